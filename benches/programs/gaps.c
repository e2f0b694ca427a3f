// gaps SECONDS: calls a function without a pause. Prints ns between two calls: the median, the 99.99th percentile, the longest.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BUCKETS = 1 << 16, TICKS_PER_BUCKET = 8 };

static uint64_t buckets[BUCKETS];

__attribute__((noinline)) void leaf(void) { __asm__ volatile(""); }

__attribute__((no_instrument_function)) static uint64_t ticks(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

__attribute__((no_instrument_function)) static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    double until = now_ns() + (argc > 1 ? atof(argv[1]) : 1) * 1e9, begin_ns = now_ns();
    uint64_t begin = ticks(), last = begin, longest = 0, count = 0;
    // The first lap of the ring is another matter.
    for (int i = 0; i < 200000; i++) leaf();
    do {
        last = ticks();
        for (int i = 0; i < 1000000; i++) {
            leaf();
            uint64_t now = ticks(), gap = now - last, bucket = gap / TICKS_PER_BUCKET;
            buckets[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
            if (gap > longest) longest = gap;
            last = now;
        }
        count += 1000000;
    } while (now_ns() < until);
    double ns = (now_ns() - begin_ns) / (double)(ticks() - begin);
    uint64_t seen = 0, median = 0, late = 0;
    for (uint64_t i = 0; i < BUCKETS; i++) {
        seen += buckets[i];
        if (!median && seen * 2 >= count) median = i + 1;
        if (!late && (double)seen >= (double)count * 0.9999) late = i + 1;
    }
    printf("%.1f %.1f %.1f\n", (double)(median * TICKS_PER_BUCKET) * ns, (double)(late * TICKS_PER_BUCKET) * ns,
           (double)longest * ns);
    return 0;
}
