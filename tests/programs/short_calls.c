// Short and long calls in several threads, with a timer's handler that makes calls, too, and with jumps. It counts its calls by
// itself and prints the counts: "name calls" for each function.
//
//   short_calls THREADS ROUNDS [endless | switched | lingers]
//
// With `endless`, it says that it is ready, and goes on until its standard input ends. With `switched`, it drops no calls at first, then
// those of less than 5 us, then none again, by everycall.h. With `lingers`, it goes on for a while
// after its threads have ended.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "everycall.h"

#define NOINLINE __attribute__((noinline))
#define FUNCTIONS(X) \
    X(leaf_a) X(leaf_b) X(leaf_c) X(middle) X(outer) X(recurse) X(slow) X(jumper) X(jumped) X(on_signal) X(in_handler) X(round_of) X(run) X(main)

enum {
#define X(name) NUMBER_##name,
    FUNCTIONS(X)
#undef X
    COUNT
};

static const char *const names[] = {
#define X(name) #name,
    FUNCTIONS(X)
#undef X
};

static uint64_t totals[COUNT];
static volatile int is_over;
static __thread volatile uint64_t counts[COUNT];
#define CALLED(name) (counts[NUMBER_##name]++)
static __thread volatile int sink;
static __thread jmp_buf target;

NOINLINE int leaf_a(int x) { CALLED(leaf_a); return sink = x + 1; }
NOINLINE int leaf_b(int x) { CALLED(leaf_b); return sink = x * 3; }
NOINLINE int leaf_c(int x) { CALLED(leaf_c); return sink = x ^ 5; }
NOINLINE int middle(int x) { CALLED(middle); sink = leaf_a(x); return leaf_b(x) + sink; }
NOINLINE int recurse(int depth) { CALLED(recurse); sink = depth == 0 ? leaf_c(depth) : recurse(depth - 1); return sink; }
NOINLINE void jumped(int x) { CALLED(jumped); sink = leaf_a(x); longjmp(target, 1); }
NOINLINE int jumper(int x) {
    CALLED(jumper);
    if (setjmp(target) == 0)
        jumped(x);
    return sink = x;
}

// Takes 40 microseconds at least.
NOINLINE int slow(int x) {
    CALLED(slow);
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000LL + now.tv_nsec - begin.tv_nsec < 40000);
    return sink = x;
}

NOINLINE int outer(int x) {
    CALLED(outer);
    sink = middle(x);
    sink = slow(x);
    return leaf_c(x) + sink;
}

NOINLINE int in_handler(int x) { CALLED(in_handler); return sink = x; }
NOINLINE void on_signal(int number) {
    CALLED(on_signal);
    int before = sink;
    sink = in_handler(number);
    sink = before;
}

NOINLINE int round_of(int number) {
    CALLED(round_of);
    int sum = 0;
    for (int i = 0; i < 100; i++)
        sum += middle(i) + leaf_c(i);
    if (number % 4 == 0)
        sum += outer(number);
    if (number % 8 == 3)
        sum += recurse(20) + jumper(number);
    return sink = sum;
}

NOINLINE void *run(void *rounds) {
    CALLED(run);
    for (intptr_t i = 0; i < (intptr_t)rounds && !is_over; i++)
        sink = round_of((int)i);
    // The timer's signal comes no more before the counts are added.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < COUNT; i++)
        __atomic_fetch_add(&totals[i], counts[i], __ATOMIC_RELAXED);
    return NULL;
}

// The timer's signals end each sleep early.
EVERYCALL_EXCLUDE static void rest(int milliseconds) {
    struct timespec left = {0, milliseconds * 1000000L};
    while (nanosleep(&left, &left) != 0) {
    }
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    intptr_t rounds = argc > 2 ? atoi(argv[2]) : 100;
    pthread_t all[64];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, run, (void *)rounds);
    if (argc > 3 && strcmp(argv[3], "endless") == 0) {
        char line[8];
        printf("ready\n");
        fflush(stdout);
        while (fgets(line, sizeof line, stdin)) {
        }
        is_over = 1;
    }
    if (argc > 3 && strcmp(argv[3], "switched") == 0) {
        int results[4];
        rest(50);
        results[0] = everycall_set_min_duration(5000);
        results[1] = everycall_set_min_duration(100000001);
        sink = leaf_a(1);
        rest(200);
        results[2] = everycall_set_min_duration(0);
        rest(100);
        printf("%d %d %d\n", results[0], results[1], results[2]);
        is_over = 1;
    }
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    if (argc > 3 && strcmp(argv[3], "lingers") == 0) rest(200);
    CALLED(main);
    for (int i = 0; i < COUNT; i++)
        totals[i] += counts[i];
    for (int i = 0; i < COUNT; i++)
        printf("%s %llu\n", names[i], (unsigned long long)totals[i]);
    return 0;
}
