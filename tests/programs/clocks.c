// Says when it calls a function: its number, the system's clock and the time-stamp counter before and after,
// and the former in UTC and as local time.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define HIDDEN __attribute__((no_instrument_function))

volatile int sum;

__attribute__((noinline)) void work(int number) {
    sum += number;
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

HIDDEN static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

HIDDEN static void say(const char *zone, const struct tm *time, int64_t ns) {
    char text[64];
    strftime(text, sizeof text, zone, time);
    printf(" %s.%09d", text, (int)(ns % 1000000000));
}

HIDDEN int main(void) {
    for (int number = 0; number < 100; number++) {
        int64_t before = now();
        uint64_t ticks_before = __rdtsc();
        work(number);
        uint64_t ticks_after = __rdtsc();
        int64_t after = now();
        time_t seconds = before / 1000000000;
        printf("%d %lld %lld %llu %llu", number, (long long)before, (long long)after, (unsigned long long)ticks_before,
               (unsigned long long)ticks_after);
        say("%Y-%m-%dT%H:%M:%S", gmtime(&seconds), before);
        say("%H:%M:%S", localtime(&seconds), before);
        printf("\n");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
