/* Nanoseconds for each call: counted PAIRS
 * Each line has those of a loop that calls two empty functions, of such a loop that calls an empty hook in both, of Fibonacci numbers, and of the
 * first loop in two threads at once; then those of two reads of the clock. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define UNTRACED __attribute__((no_instrument_function, noinline, aligned(64)))
#if defined(__clang__)
#define PLAIN UNTRACED __attribute__((xray_never_instrument))
#else
#define PLAIN UNTRACED __attribute__((patchable_function_entry(0)))
#endif

enum { CALLS = 2000000, NUMBER = 27, NUMBER_CALLS = 832039 };

__attribute__((noinline, aligned(64))) void first(void) { __asm__ volatile(""); }
__attribute__((noinline, aligned(64))) void second(void) { __asm__ volatile(""); }

/* What a hook costs at least that does nothing. */
__asm__(".text\n.p2align 6\nempty_hook: ret\n.p2align 6\nhooked_first: call empty_hook\nret\n.p2align 6\nhooked_second: call empty_hook\nret\n");
void hooked_first(void);
void hooked_second(void);

__attribute__((noinline)) int fibonacci(int n)
{
    if (n < 2)
        return n;
    int sum = fibonacci(n - 1);
    __asm__ volatile("" : "+r"(sum));
    sum += fibonacci(n - 2);
    __asm__ volatile("" : "+r"(sum));
    return sum;
}

PLAIN static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

PLAIN static void *loop(void *taken)
{
    double begin = now();
    for (int i = 0; i < CALLS / 2; i++) {
        first();
        second();
    }
    *(double *)taken = (now() - begin) / CALLS;
    return taken;
}

PLAIN static double hooked_loop(void)
{
    double begin = now();
    for (int i = 0; i < CALLS / 2; i++) {
        hooked_first();
        hooked_second();
    }
    return (now() - begin) / CALLS;
}

PLAIN static double two_clock_reads(void)
{
    double begin = now();
    for (int i = 0; i < CALLS; i++)
        __asm__ volatile("rdtsc\n\trdtsc" : : : "eax", "edx");
    return (now() - begin) / CALLS;
}

PLAIN int main(int count, char **words)
{
    int rounds = count > 1 ? atoi(words[1]) : 1;
    for (int i = -1; i < rounds; i++) {
        double one, two, other;
        loop(&one);
        double hooked = hooked_loop();
        double begin = now();
        volatile int number = fibonacci(NUMBER);
        double fibonaccis = (now() - begin) / NUMBER_CALLS;
        (void)number;
        pthread_t thread;
        pthread_create(&thread, 0, loop, &other);
        loop(&two);
        pthread_join(thread, 0);
        /* The first round touches memory. */
        if (i >= 0)
            printf("%.4f %.4f %.4f %.4f %.4f\n", one, hooked, fibonaccis, (two + other) / 2, two_clock_reads());
    }
    return 0;
}
