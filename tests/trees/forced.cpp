// pthread_exit and cancellation: destructors and cleanup handlers run, the frames are unwound.
//
// flags: -pthread
//| main
//|   joins(void* (*)(void*)) ×2
//|   cancels()
//| --
//| exits(void*)!
//|   leaf()
//|   deep_exit(int)! ↓4
//|     Guard::~Guard()
//|       leaf()
//| --
//| catches_and_exits(void*)!
//|   passes_on()!
//|     deep_exit(int)! ↓2
//|       Guard::~Guard()
//|         leaf()
//|     leaf()
//|     *throw
//|   Guard::~Guard()
//|     leaf()
//| --
//| waits(void*)!
//|   leaf()
//|   sleeps()!
//|   Guard::~Guard()
//|     leaf()
#include "tree.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static sem_t ready;

F void leaf() { HERE; }
struct Guard {
    F ~Guard() {
        leaf();
        HERE;
    }
    UNTRACED Guard() { HERE; }
};
F void deep_exit(int depth) {
    if (depth == 0) {
        Guard guard;
        pthread_exit(nullptr);
    }
    deep_exit(depth - 1);
    HERE;
}
F void* exits(void*) {
    leaf();
    deep_exit(3);
    return nullptr;
}
F void passes_on() {
    try {
        deep_exit(1);
    } catch (...) {
        leaf();
        throw;
    }
    HERE;
}
F void* catches_and_exits(void*) {
    Guard guard;
    passes_on();
    return nullptr;
}
F void sleeps() {
    sem_post(&ready);
    for (;;) pause();
}
F void* waits(void*) {
    Guard guard;
    leaf();
    sleeps();
    return nullptr;
}
F void joins(void* (*start)(void*)) {
    pthread_t thread;
    pthread_create(&thread, nullptr, start, nullptr);
    pthread_join(thread, nullptr);
}
F void cancels() {
    pthread_t thread;
    pthread_create(&thread, nullptr, waits, nullptr);
    sem_wait(&ready);
    pthread_cancel(thread);
    pthread_join(thread, nullptr);
}
int main() {
    sem_init(&ready, 0, 0);
    joins(exits);
    joins(catches_and_exits);
    cancels();
}
