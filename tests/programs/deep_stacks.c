// Goes deep on the first thread's stack, on another thread's and on a fiber's.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { FIBER_SIZE = 64 << 10 };

__attribute__((noinline)) static int deep(int levels) {
    volatile char frame[200];
    frame[0] = 1;
    return levels == 0 ? 0 : deep(levels - 1) + frame[0];
}

static void* thread(void* unused) {
    printf("thread %d\n", deep(5000));
    return unused;
}

static ucontext_t own, other;

static void fiber(void) {
    printf("fiber %d\n", deep(100));
}

int main(void) {
    printf("main %d\n", deep(5000));
    pthread_t id;
    pthread_create(&id, 0, thread, 0);
    pthread_join(id, 0);
    char* stack = malloc(FIBER_SIZE);
    getcontext(&other);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = FIBER_SIZE;
    other.uc_link = &own;
    makecontext(&other, fiber, 0);
    swapcontext(&own, &other);
    free(stack);
}
