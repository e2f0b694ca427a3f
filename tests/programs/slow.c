// Calls of which one in some thousands takes long, at random, by the program's own clock.
//
//   slow CALLS ONE_IN SLOW_US SEED [THREADS [WORKS [stay]]]
//
// Every thread makes so many calls of `handle`, each with a few calls inside; slow ones have WORKS * 3 more. With `stay`, prints "end" when all is done, and ends when its standard input
// does. Prints "rate TICKS_PER_SECOND" and, for each call
// that took more than half of SLOW_US, "TID BEGIN FIRST LAST END" in ticks: read right before the call, first and last thing in it, and
// right behind it. What a tracer takes for its beginning lies between the first two of them, its end between the others.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#if defined(__clang__)
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#elif defined(__GNUC__)
#define UNTRACED __attribute__((no_instrument_function, noinline, patchable_function_entry(0, 0)))
#endif

static long calls, one_in, slow_us, works;
static uint64_t ticks_per_second;
static volatile unsigned sink;

static UNTRACED uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The counter and the clock at the same moment: of many tries the one that was interrupted least.
struct both {
    uint64_t ticks, nanoseconds;
};

static UNTRACED struct both read_both(void) {
    struct both best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int count = 0; count < 1000; count++) {
        uint64_t begin = __rdtsc(), now = nanoseconds(), took = __rdtsc() - begin;
        if (took < least) {
            least = took;
            best = (struct both){begin + took / 2, now};
        }
    }
    return best;
}

static UNTRACED void spin(uint64_t ticks) {
    uint64_t begin = __rdtsc();
    while (__rdtsc() - begin < ticks) {
    }
}

__attribute__((noinline)) void leaf(unsigned value) { sink += value; }

__attribute__((noinline)) void work(unsigned value) {
    leaf(value);
    leaf(value + 1);
}

struct found {
    uint64_t begin, first, last, end;
};

__attribute__((noinline)) void handle(int is_slow, unsigned value, struct found *found) {
    found->first = __rdtsc();
    work(value);
    if (is_slow) {
        for (long count = 0; count < works; count++) {
            work(value);
        }
        spin(ticks_per_second / 1000000 * (uint64_t)slow_us);
    }
    work(value);
    found->last = __rdtsc();
}

__attribute__((noinline)) void *serve(void *seed) {
    uint64_t state = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
    struct found *found = malloc(sizeof *found * 100000);
    long count = 0;
    for (long call = 0; call < calls; call++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        int is_slow = (state >> 20) % (uint64_t)one_in == 0;
        struct found now;
        now.begin = __rdtsc();
        handle(is_slow, (unsigned)call, &now);
        now.end = __rdtsc();
        if (now.end - now.begin > ticks_per_second / 2000000 * (uint64_t)slow_us && count < 100000) {
            found[count++] = now;
        }
    }
    for (long place = 0; place < count; place++) {
        struct found one = found[place];
        printf("%d %llu %llu %llu %llu\n", gettid(), (unsigned long long)one.begin, (unsigned long long)one.first,
               (unsigned long long)one.last, (unsigned long long)one.end);
    }
    free(found);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        return 2;
    }
    calls = atol(argv[1]);
    one_in = atol(argv[2]);
    slow_us = atol(argv[3]);
    uintptr_t seed = (uintptr_t)atol(argv[4]);
    int threads = argc > 5 ? atoi(argv[5]) : 1;
    works = argc > 6 ? atol(argv[6]) : 0;
    struct both first = read_both();
    usleep(50000);
    struct both last = read_both();
    ticks_per_second =
        (uint64_t)((double)(last.ticks - first.ticks) * 1e9 / (double)(last.nanoseconds - first.nanoseconds));
    printf("rate %llu\n", (unsigned long long)ticks_per_second);
    pthread_t all[64];
    for (int thread = 1; thread < threads && thread < 64; thread++) {
        pthread_create(&all[thread], NULL, serve, (void *)(seed + (uintptr_t)thread));
    }
    serve((void *)seed);
    for (int thread = 1; thread < threads && thread < 64; thread++) {
        pthread_join(all[thread], NULL);
    }
    if (argc > 7) {
        printf("end\n");
        fflush(stdout);
        char byte;
        while (read(0, &byte, 1) > 0) {
        }
    }
    return 0;
}
