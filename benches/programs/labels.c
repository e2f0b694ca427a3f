/* What labels cost: prints rounds of lines "KIND NANOSECONDS", each kind measured in turn in each round. */
#define _GNU_SOURCE
#include <everycall.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COUNT = 5000 };

static volatile unsigned long long sink;
static char made[] = "request";
static const char *volatile text = "waiting.";

EVERYCALL_EXCLUDE static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

#define MEASURE(kind, what)                                         \
    do {                                                            \
        double begin = now_ns();                                    \
        int i;                                                      \
        for (i = 0; i < COUNT; i++) {                               \
            what;                                                   \
        }                                                           \
        printf(kind " %.2f\n", (now_ns() - begin) / (double)COUNT); \
    } while (0)

int main(int argc, char **argv)
{
    int round, rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (round = 0; round < rounds; round++) {
        MEASURE("clock", sink = __builtin_ia32_rdtsc());
        MEASURE("label", everycall_label("request", (uint64_t)i));
        MEASURE("instant", everycall_instant("half"));
        MEASURE("counter", everycall_counter("queue", i));
        MEASURE("span", everycall_span_begin("part"); everycall_span_end("part"));
        MEASURE("long", everycall_label("a name of thirty-two characters!", (uint64_t)i));
        MEASURE("made", everycall_label(made, (uint64_t)i));
        MEASURE("log", everycall_log("worker %d took %d", i, 7));
        MEASURE("log-mixed", everycall_log("at %p: %g of %d in %ld", (void *)made, 0.5, i, 7L));
        MEASURE("log-text", everycall_log("worker %d says %s", i, text));
    }
    everycall_leave_thread_out();
    for (round = 0; round < rounds; round++) {
        MEASURE("out", everycall_label("request", (uint64_t)i));
        MEASURE("log-out", everycall_log("worker %d took %d", i, 7));
    }
    return 0;
}
