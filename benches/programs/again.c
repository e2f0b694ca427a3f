// Runs a program (compiled with -Dmain=program) again and again, as a server works: SECONDS of its environment, 4 unless told
// otherwise. What it measures of itself (region.h) counts from the second second on; the result is the mean of these rounds.
#include "region.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int program(int argc, char **argv);

static long begin_ns, round_ns, used_ns, rounds;
static int counts;

static long now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

void region_begin(void) {
    counts = now_ns(CLOCK_MONOTONIC) - begin_ns > 1000000000L;
    round_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
}

void region_end(void) {
    if (!counts) return;
    used_ns += now_ns(CLOCK_PROCESS_CPUTIME_ID) - round_ns;
    rounds++;
}

int main(int argc, char **argv) {
    const char *path = getenv("BENCH_REGION"), *seconds = getenv("SECONDS_WANTED");
    long long_enough = (seconds ? atol(seconds) : 4) * 1000000000L;
    begin_ns = now_ns(CLOCK_MONOTONIC);
    while (now_ns(CLOCK_MONOTONIC) - begin_ns < long_enough || rounds < 3)
        if (program(argc, argv)) return 1;
    if (!path) return 0;
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%ld\n", used_ns / rounds) < 0 || fclose(file)) abort();
    return 0;
}
