// many_threads COUNT TOGETHER: threads that make some calls and end, TOGETHER at the same time, COUNT in all; then "ready", and for each line of its
// input once more.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
enum { TOGETHER_MAX = 64 };

NOINLINE void leaf(void) { __asm__ volatile(""); }

static pthread_barrier_t gate;

NOINLINE void *brief(void *number) {
    for (int i = 0; i < 100; i++) leaf();
    // Some leave open calls behind, and with them their stacks of open calls.
    if ((long)number % 4 == 0) pthread_exit(0);
    return 0;
}

// Isn't traced: the first calls of all are made at the same moment.
__attribute__((no_instrument_function)) static void *waits(void *number) {
    pthread_barrier_wait(&gate);
    return brief(number);
}

NOINLINE void turn(long count, long together) {
    for (long done = 0; done < count; done += together) {
        pthread_t threads[TOGETHER_MAX];
        for (long i = 0; i < together; i++)
            if (pthread_create(&threads[i], 0, waits, (void *)i)) abort();
        for (long i = 0; i < together; i++) pthread_join(threads[i], 0);
    }
}

int main(int argc, char **arguments) {
    long count = argc > 1 ? atol(arguments[1]) : 1, together = argc > 2 ? atol(arguments[2]) : 1;
    if (together < 1 || together > TOGETHER_MAX) return 2;
    pthread_barrier_init(&gate, 0, (unsigned)together);
    char byte;
    do {
        turn(count, together);
        puts("ready");
        fflush(stdout);
    } while (read(0, &byte, 1) == 1);
    return 0;
}
