// What one event costs. Never instrumented itself; calls.c brings the loops.
//
//   cost warm PAIRS   lines of: plain loop, traced loop, as many rdtsc; the ring is warm
//   cost first        one such line for the first lap of the ring
//   cost floor PAIRS  lines of: empty calls, with two calls of `ret` in them, with two of `rdtsc; ret`, as many rdtsc
//
// All in ticks per iteration, the order of the columns' loops changing from line to line. The last line is
// "ticks/us" and the clock's frequency.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

void plain_loop(long n);
void traced_loop(long n);

// N is less than half a lap of a 1 MiB ring, so that most samples hold no more segment ends than a run does; FIRST is
// just less than one lap.
enum { N = 48000, FIRST = 65000, LAPS = 3 };

void empty_calls(long n), return_hooks(long n), clock_hooks(long n), clock_reads(long n);
__asm__(".text\n"
        ".p2align 6\nempty_function: ret\n"
        ".p2align 6\nreturn_hook: ret\n"
        ".p2align 6\nclock_hook: rdtsc\n ret\n"
        ".p2align 6\nwith_return_hooks: call return_hook\n call return_hook\n ret\n"
        ".p2align 6\nwith_clock_hooks: call clock_hook\n call clock_hook\n ret\n"
        ".p2align 6\nempty_calls: call empty_function\n dec %rdi\n jnz empty_calls\n ret\n"
        ".p2align 6\nreturn_hooks: call with_return_hooks\n dec %rdi\n jnz return_hooks\n ret\n"
        ".p2align 6\nclock_hooks: call with_clock_hooks\n dec %rdi\n jnz clock_hooks\n ret\n"
        // Sixteen in a row: nothing but clock reads. n is a multiple of 16.
        ".p2align 6\nclock_reads: .rept 16\n rdtsc\n .endr\n sub $16, %rdi\n ja clock_reads\n ret\n");

static double ticks(void (*loop)(long), long n) {
    unsigned long before = __rdtsc();
    loop(n);
    return (double)(__rdtsc() - before) / (double)n;
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void measure(void (*const *loops)(long), int count, int lines) {
    for (int line = 0; line < lines; line++) {
        double sample[4];
        for (int i = 0; i < count; i++) {
            int which = (i + line) % count;
            sample[which] = ticks(loops[which], N);
        }
        for (int i = 0; i < count; i++) printf("%.4f%c", sample[i], i + 1 < count ? ' ' : '\n');
    }
}

int main(int argc, char **argv) {
    static void (*const traced[])(long) = {plain_loop, traced_loop, clock_reads};
    static void (*const floors[])(long) = {empty_calls, return_hooks, clock_hooks, clock_reads};
    double begin_us = now_us();
    unsigned long begin = __rdtsc();
    int lines = argc > 2 ? atoi(argv[2]) : 0;
    if (argc > 1 && !strcmp(argv[1], "warm")) {
        for (int lap = 0; lap < LAPS; lap++) traced_loop(FIRST);
        measure(traced, 3, lines);
    } else if (argc > 1 && !strcmp(argv[1], "first")) {
        double first = ticks(traced_loop, FIRST);
        printf("%.4f %.4f %.4f\n", ticks(plain_loop, N), first, ticks(clock_reads, N));
    } else if (argc > 1 && !strcmp(argv[1], "floor")) {
        measure(floors, 4, lines);
    } else {
        return 2;
    }
    // Long enough for the frequency to have four digits.
    while (now_us() - begin_us < 20e3) {}
    printf("ticks/us %.3f\n", (double)(__rdtsc() - begin) / (now_us() - begin_us));
    return 0;
}
