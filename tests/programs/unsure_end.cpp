// Threads that end by pthread_exit, with thread-local objects: their destructors are called when all frames have been left.
#include "../trees/tree.h"
#include <initializer_list>
#include <pthread.h>

F void leaf() { HERE; }
struct Local {
    F ~Local() {
        leaf();
        HERE;
    }
    UNTRACED Local() { HERE; }
    F void touch() { HERE; }
};
static thread_local Local local;
struct Guard {
    F ~Guard() {
        leaf();
        HERE;
    }
    UNTRACED Guard() { HERE; }
};
struct Inlined {
    __attribute__((always_inline)) ~Inlined() {
        leaf();
        HERE;
    }
    UNTRACED Inlined() { HERE; }
};
F void leaves() {
    pthread_exit(nullptr);
}
F void guarded_inline() {
    Inlined guard;
    leaves();
    HERE;
}
F void guarded() {
    Guard guard;
    leaves();
    HERE;
}
F void* exits(void*) {
    local.touch();
    leaves();
    return nullptr;
}
F void* exits_guarded(void*) {
    local.touch();
    guarded();
    return nullptr;
}
F void* exits_guarded_inline(void*) {
    local.touch();
    guarded_inline();
    return nullptr;
}
F void* returns(void*) {
    local.touch();
    return nullptr;
}
int main() {
    for (auto start : {exits, exits_guarded, exits_guarded_inline, returns}) {
        pthread_t thread;
        pthread_create(&thread, nullptr, start, nullptr);
        pthread_join(thread, nullptr);
    }
    return 0;
}
