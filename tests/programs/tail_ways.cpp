// Calls that end in a tail call of code that isn't traced, and what may happen there: signals, exceptions, jumps, other stacks, forks, ends of threads and
// of the program. Each takes PAUSE_MS, and prints "NAME TID BEGIN FIRST LAST" in ticks.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include "tails.h"

#define PAUSE_MS 20

thread_local uint64_t tails_first, tails_last;
static volatile int sink;

NOINLINE void leaf(int value) { sink = value & 1; }
NOINLINE void around(int value) {
    leaf(value);
    leaf(value + 1);
}

static UNTRACED void pause_for(int ms) {
    struct timespec rest = {0, ms * 1000000};
    while (nanosleep(&rest, &rest) != 0) {
    }
    tails_last = __rdtsc();
}

static UNTRACED void tell(const char *name, uint64_t begin) {
    printf("%s %d %lu %lu %lu\n", name, gettid(), begin, tails_first, tails_last);
    fflush(stdout);
}

// What is jumped to.
UNTRACED int rest_here(int value) {
    pause_for(PAUSE_MS);
    return value;
}

UNTRACED int calls_back(int value) {
    for (int count = 0; count < 1000; count++) {
        around(count);
    }
    pause_for(PAUSE_MS);
    return value;
}

UNTRACED int throws(int value) {
    pause_for(PAUSE_MS);
    if (sink >= 0) {
        throw value;
    }
    return value;
}

static jmp_buf place;
UNTRACED int jumps(int value) {
    pause_for(PAUSE_MS);
    if (sink >= 0) {
        longjmp(place, value);
    }
    return value;
}

static ucontext_t own_context, fiber_context;
static char fiber_stack[256 << 10];
UNTRACED int switches(int value) {
    swapcontext(&own_context, &fiber_context);
    tails_last = __rdtsc();
    return value;
}
NOINLINE void fiber_main() {
    around(1);
    pause_for(PAUSE_MS);
    around(2);
    swapcontext(&fiber_context, &own_context);
}

UNTRACED int forks(int value) {
    pid_t child = fork();
    if (child == 0) {
        around(3);
        pause_for(1);
        around(4);
        _exit(0);
    }
    pause_for(PAUSE_MS);
    waitpid(child, nullptr, 0);
    tails_last = __rdtsc();
    return value;
}

UNTRACED int ends_thread(int value) {
    pause_for(PAUSE_MS);
    if (sink >= 0) {
        pthread_exit(nullptr);
    }
    return value;
}

#define HANDLE(name, target)                                                                                           \
    NOINLINE int handle_##name(int value) {                                                                            \
        tails_first = __rdtsc();                                                                                       \
        leaf(value);                                                                                                   \
        return target(value);                                                                                          \
    }

HANDLE(rest, rest_here)
HANDLE(back, calls_back)
HANDLE(signal, rest_here)
HANDLE(other_stack, rest_here)
HANDLE(throw, throws)
HANDLE(longjmp, jumps)
HANDLE(fiber, switches)
HANDLE(fork, forks)
HANDLE(thread, rest_here)
HANDLE(thread_exit, ends_thread)
HANDLE(last, rest_here)

NOINLINE void on_signal(int) { around(5); }

static UNTRACED void in_signals(bool on_other_stack) {
    static char other[64 << 10];
    stack_t stack = {};
    stack.ss_sp = other;
    stack.ss_size = sizeof other;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    if (on_other_stack) {
        sigaltstack(&stack, nullptr);
        action.sa_flags = SA_ONSTACK;
    }
    sigaction(SIGALRM, &action, nullptr);
    struct itimerval timer = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &timer, nullptr);
}

static UNTRACED void no_signals() {
    struct itimerval timer = {};
    setitimer(ITIMER_REAL, &timer, nullptr);
}

NOINLINE int catching(int value) {
    try {
        return handle_throw(value) + 1;
    } catch (int caught) {
        around(6);
        return caught;
    }
}

NOINLINE int landing(int value) {
    int jumped = setjmp(place);
    if (jumped == 0) {
        return handle_longjmp(value) + 1;
    }
    around(7);
    return jumped;
}

static UNTRACED void *in_thread(void *argument) {
    uint64_t begin = __rdtsc();
    if (argument == nullptr) {
        handle_thread(1);
        tell("handle_thread", begin);
    } else {
        printf("handle_thread_exit %d %lu %lu %lu\n", gettid(), begin, begin, begin);
        fflush(stdout);
        handle_thread_exit(1);
    }
    return nullptr;
}

static UNTRACED void run_thread(void *argument) {
    pthread_t thread;
    pthread_create(&thread, nullptr, in_thread, argument);
    pthread_join(thread, nullptr);
}

#define RUN(name, call)                                                                                                \
    {                                                                                                                  \
        uint64_t begin = __rdtsc();                                                                                    \
        call;                                                                                                          \
        tell("handle_" #name, begin);                                                                                  \
    }

UNTRACED int main() {
    RUN(rest, handle_rest(1))
    around(1);
    RUN(back, handle_back(1))
    around(1);
    in_signals(false);
    RUN(signal, handle_signal(1))
    in_signals(true);
    RUN(other_stack, handle_other_stack(1))
    no_signals();
    RUN(throw, catching(1))
    RUN(longjmp, landing(1))
    getcontext(&fiber_context);
    fiber_context.uc_stack.ss_sp = fiber_stack;
    fiber_context.uc_stack.ss_size = sizeof fiber_stack;
    makecontext(&fiber_context, fiber_main, 0);
    RUN(fiber, handle_fiber(1))
    around(1);
    RUN(fork, handle_fork(1))
    around(1);
    run_thread(nullptr);
    run_thread(fiber_stack);
    RUN(last, handle_last(1))
    return 0;
}
