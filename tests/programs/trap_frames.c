// A handler of traps with a large frame.
//
//   trap_frames sent     traps come from another thread, to threads that are in the slow path most of the time
//   trap_frames stepped  the program steps through itself by the trap flag, the slow path included
//
// Prints the number of traps that it waited for.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 2, TRAPS = 1000, FRAME = 40000 };
#if defined(__clang__)
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#else
#define UNTRACED __attribute__((no_instrument_function, noinline))
#endif

static volatile long handled;
static volatile int stop;

UNTRACED static void on_trap(int signal) {
    (void)signal;
    volatile char frame[FRAME];
    for (int i = FRAME - 64; i >= 0; i -= 64) frame[i] = 1;
    __sync_fetch_and_add(&handled, 1);
}

__attribute__((noinline)) void leaf(void) { __asm__ volatile("" : : : "memory"); }

// Frames that are left, of which nobody tells.
__attribute__((noinline)) void leave(void **back, int depth) {
    if (!depth) __builtin_longjmp(back, 1);
    leave(back, depth - 1);
    __asm__ volatile("" : : : "memory");
}

__attribute__((noinline)) void work(void) {
    void *back[5];
    if (!__builtin_setjmp(back)) leave(back, 3);
    leaf();
}

static void *thread(void *nothing) {
    while (!stop) work();
    return nothing;
}

int main(int count, char **arguments) {
    signal(SIGTRAP, on_trap);
    if (count > 1 && !strcmp(arguments[1], "stepped")) {
        leaf();
        __asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq" : : : "memory", "cc");
        while (handled < TRAPS) work();
        __asm__ volatile("pushfq; andl $~0x100, (%%rsp); popfq" : : : "memory", "cc");
        printf("%d\n", TRAPS);
        return 0;
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], 0, thread, 0)) return 2;
    for (int i = 0; handled < TRAPS; i++) pthread_kill(threads[i % THREADS], SIGTRAP);
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    printf("%d\n", TRAPS);
    return 0;
}
