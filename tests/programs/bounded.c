// Makes short calls, and now and then one that waits. Says of each call of `outer` the time-stamp
// counter before it, at its beginning and end, and after it.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <x86intrin.h>

#define HIDDEN __attribute__((no_instrument_function))
#define ROUNDS 200

static volatile long sum;
static uint64_t ticks[ROUNDS][4];

__attribute__((noinline)) static void leaf(long number) { sum += number; }

__attribute__((noinline)) static void middle(long number) {
    leaf(number);
    leaf(number + 1);
    sum++;
}

__attribute__((noinline)) static void outer(int round) {
    ticks[round][1] = __rdtsc();
    for (int call = 0; call < 40; call++) middle(call);
    if (round % 10 == 9) usleep(500);
    ticks[round][2] = __rdtsc();
}

HIDDEN int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        ticks[round][0] = __rdtsc();
        outer(round);
        ticks[round][3] = __rdtsc();
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < 4; at++) printf("%llu ", (unsigned long long)ticks[round][at]);
        printf("\n");
    }
    return 0;
}
