// Loops that make all their calls of a function by one instruction. The function ends in a tail call
// of a library that isn't traced, and every other call is slow before that. Prints "NAME BEGIN END
// SLOW" for each call, in ticks.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include <new>

#include "tails.h"

#define CALLS 12
#define SLOW_US 8000

extern "C" int other_library(int value);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t begins[CALLS], ends[CALLS];
static volatile unsigned sink;

static UNTRACED void spin(long us) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
        sink = sink + 1;
    } while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 < us);
}

// The C library, libstdc++, and a library that nobody knows.
NOINLINE int handle_unlock(long us) {
    pthread_mutex_lock(&mutex);
    spin(us);
    return pthread_mutex_unlock(&mutex);
}
NOINLINE int handle_close(long us) {
    int descriptor = dup(2);
    spin(us);
    return close(descriptor);
}
NOINLINE void handle_delete(long us) {
    void *memory = operator new(100);
    spin(us);
    operator delete(memory);
}
NOINLINE long handle_library(long us) {
    spin(us);
    return other_library(us & 1);
}

struct Handler {
    virtual int handle_virtual(long us) = 0;
};
struct First : Handler {
    NOINLINE int handle_virtual(long us) override { return handle_close(us); }
};
struct Second : Handler {
    NOINLINE int handle_virtual(long us) override {
        spin(us);
        return close(dup(2));
    }
};
static First first;
static Second second;

static UNTRACED long slow_us(int number) { return number % 2 ? SLOW_US : 20; }

static UNTRACED void tell(const char *name) {
    for (int number = 0; number < CALLS; number++) {
        printf("%s %lu %lu %d\n", name, begins[number], ends[number], number % 2);
    }
}

#define LOOP(name, call)                                                                                               \
    for (int number = 0; number < CALLS; number++) {                                                                   \
        begins[number] = __rdtsc();                                                                                    \
        call;                                                                                                          \
        ends[number] = __rdtsc();                                                                                      \
    }                                                                                                                  \
    tell(name);

UNTRACED int main() {
    Handler *handlers[] = {&second, &second, &first, &second};
    LOOP("handle_unlock", handle_unlock(slow_us(number)))
    LOOP("handle_close", handle_close(slow_us(number)))
    LOOP("handle_delete", handle_delete(slow_us(number)))
    LOOP("handle_library", handle_library(slow_us(number)))
    LOOP("handle_virtual", handlers[number % 4]->handle_virtual(slow_us(number)))
    return 0;
}
