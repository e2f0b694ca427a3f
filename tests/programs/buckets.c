// buckets: calls a function that takes 1.5 times a power of two ticks; the powers come in runs,
// then as neighbours, then at random. Prints "POWER LEAST MOST" for each power of two: how many
// calls took that much, at least and at most. A call that is interrupted may count for more than
// one.
#include <stdint.h>
#include <stdio.h>
#include <x86intrin.h>

#define F __attribute__((noinline))
#if defined(__clang__)
#define UNTRACED __attribute__((no_instrument_function, xray_never_instrument, noinline))
#else
#define UNTRACED __attribute__((no_instrument_function, noinline))
#endif

enum { LOWEST = 11, HIGHEST = 18, CALLS = 12000 };
static uint64_t least[64], most[64], inside;

F void spins(uint64_t ticks)
{
    uint64_t start = __rdtsc();
    do
        inside = __rdtsc() - start;
    while (inside < ticks);
}
UNTRACED static int bucket(uint64_t ticks) { return 63 - __builtin_clzll(ticks | 1); }

UNTRACED static void one(int power)
{
    uint64_t start = __rdtsc();
    spins((3ull << power) / 2);
    int low = bucket(inside), high = bucket(__rdtsc() - start);
    least[low] += low == high;
    for (int i = low; i <= high; i++) most[i]++;
}
int main(void)
{
    uint32_t random = 1;
    int power = LOWEST;
    for (int i = 0; i < CALLS; i++) {
        random = random * 1664525 + 1013904223;
        // First runs of one power, then of two neighbours, then anything.
        if (i < CALLS / 3 ? i % 500 == 0 : 1) power = LOWEST + (random >> 16) % (HIGHEST - LOWEST + 1);
        if (i >= CALLS / 3 && i < 2 * CALLS / 3) power = LOWEST + i / 500 % (HIGHEST - LOWEST) + (random >> 31);
        one(power);
    }
    for (int i = 0; i < 64; i++)
        if (most[i]) printf("%d %lu %lu\n", i, least[i], most[i]);
    return 0;
}
