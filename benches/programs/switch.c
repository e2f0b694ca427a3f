/* Switches all sites of a program off and on: prints rounds of lines "KIND VALUE". A thread calls its functions
   at random meanwhile: "quiet" and "busy" are the longest times between two of its calls, in microseconds, while
   nothing is switched and while something is; "off" and "on" are what switching took, in milliseconds. */
#define _GNU_SOURCE
#include <everycall.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

extern unsigned (*const functions[])(unsigned);
extern const unsigned function_count;

static atomic_int over;
static atomic_ulong longest_ns;

EVERYCALL_EXCLUDE static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

EVERYCALL_EXCLUDE static void *call(void *unused)
{
    unsigned number = 1;
    double last = now_ns();
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        double now;
        number = functions[number % function_count](number * 2654435761u + 1);
        now = now_ns();
        if (now - last > (double)atomic_load_explicit(&longest_ns, memory_order_relaxed))
            atomic_store_explicit(&longest_ns, (unsigned long)(now - last), memory_order_relaxed);
        last = now;
    }
    return unused;
}

EVERYCALL_EXCLUDE static void print_longest(const char *kind)
{
    printf("%s %.1f\n", kind, (double)atomic_exchange(&longest_ns, 0) / 1e3);
}

EVERYCALL_EXCLUDE int main(int argc, char **argv)
{
    int round, rounds = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t thread;
    pthread_create(&thread, NULL, call, NULL);
    usleep(100000);
    for (round = 0; round < rounds; round++) {
        double begin, off;
        atomic_store(&longest_ns, 0);
        usleep(20000);
        print_longest("quiet");
        begin = now_ns();
        everycall_disable();
        off = now_ns();
        printf("off %.3f\n", (off - begin) / 1e6);
        everycall_enable();
        printf("on %.3f\n", (now_ns() - off) / 1e6);
        print_longest("busy");
    }
    atomic_store(&over, 1);
    pthread_join(thread, NULL);
    return 0;
}
