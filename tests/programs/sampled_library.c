// A library that nobody traces, with a stack frame that only unwind information describes.

static __attribute__((noinline)) unsigned long rounds_of(unsigned long value, long rounds)
{
    volatile unsigned long kept[64];
    kept[rounds & 63] = value;
    while (rounds-- > 0)
        value ^= (value << 13) + (value >> 7) + kept[rounds & 63];
    return value;
}

unsigned long digest(unsigned long seed, long rounds)
{
    return rounds_of(seed + 1, rounds) + 1;
}
