// Jumps and exceptions far down: between calls that lie deeper than the tracer's own stack of open calls, of which there are 65,534 at most, and from there to the
// outside.
//
// flags: -pthread
//| main
//|   leaf()
//| --
//| runs(void*)
//|   down(int) ↓80000
//|     lands()
//|       below(int, void (*)())! ↓20000
//|         jumps()!
//|       leaf()
//|     catches()
//|       below(int, void (*)())! ↓20000
//|         guarded()!
//|           throws()!
//|             *throw int
//|           Guard::~Guard()
//|             leaf()
//|       *catch int
//|       leaf()
//|     leaf()
//|   leaf()
//|   lands_outside()
//|     below(int, void (*)())! ↓90000
//|       jumps()!
//|     leaf()
//|   leaf()
#include "tree.h"
#include <pthread.h>
#include <setjmp.h>

static jmp_buf target;

F void leaf() { HERE; }
F void jumps() {
    longjmp(target, 1);
}
F void throws() { throw 1; }
struct Guard {
    F ~Guard() {
        leaf();
        HERE;
    }
};
F void guarded() {
    Guard guard;
    throws();
    HERE;
}
F void below(int depth, void (*last)()) {
    if (depth == 1)
        last();
    else
        below(depth - 1, last);
    HERE;
}
F void lands() {
    if (setjmp(target) == 0) below(20000, jumps);
    leaf();
    HERE;
}
F void catches() {
    try {
        below(20000, guarded);
    } catch (int) {
        leaf();
    }
    HERE;
}
F void down(int depth) {
    if (depth == 1) {
        lands();
        catches();
        leaf();
    } else {
        down(depth - 1);
    }
    HERE;
}
F void lands_outside() {
    if (setjmp(target) == 0) below(90000, jumps);
    leaf();
    HERE;
}
F void* runs(void* unused) {
    down(80000);
    leaf();
    lands_outside();
    leaf();
    return unused;
}
int main() {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 20);
    pthread_create(&thread, &attributes, runs, 0);
    pthread_join(thread, 0);
    leaf();
    return 0;
}
