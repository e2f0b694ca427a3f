// Cleanups in C: pthread_exit and cancellation leave the frames, the cleanups run, and what they call stands in the frame that is left.
//
// flags: -pthread -fexceptions
//| main
//|   returns
//|     holds
//|       leaf
//|       released
//|         leaf
//|     leaf
//|   joins ×2
//| --
//| exits!
//|   leaf
//|   deep_exit!
//|     deep_exit!
//|       deep_exit!
//|         released
//|           leaf
//|       released
//|         leaf
//|     released
//|       leaf
//| --
//| waits!
//|   leaf
//|   holds_and_waits!
//|     sleeps!
//|     released
//|       leaf
//|   released
//|     leaf
#include "tree.h"
#include <pthread.h>
#include <unistd.h>

F void leaf(void) { HERE; }
F void released(int* held) {
    leaf();
    __asm__ volatile("" ::"r"(*held) : "memory");
}
#define HOLDS __attribute__((cleanup(released))) int held = 0

F void holds(void) {
    HOLDS;
    leaf();
    HERE;
}
F void returns(void) {
    holds();
    leaf();
    HERE;
}
F void deep_exit(int levels) {
    HOLDS;
    if (levels == 0) pthread_exit(0);
    deep_exit(levels - 1);
    HERE;
}
F void* exits(void* unused) {
    leaf();
    deep_exit(2);
    HERE;
    return unused;
}
F void sleeps(void) {
    for (;;) pause();
}
F void holds_and_waits(void) {
    HOLDS;
    sleeps();
    HERE;
}
F void* waits(void* unused) {
    HOLDS;
    leaf();
    holds_and_waits();
    HERE;
    return unused;
}
F void joins(void* (*start)(void*), int cancels) {
    pthread_t thread;
    pthread_create(&thread, 0, start, 0);
    if (cancels) pthread_cancel(thread);
    pthread_join(thread, 0);
    HERE;
}
int main(void) {
    returns();
    joins(exits, 0);
    joins(waits, 1);
    return 0;
}
