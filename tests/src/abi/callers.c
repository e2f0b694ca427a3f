// Functions that call and jump to each other, for a debugger to look at.
#define NOINLINE __attribute__((noinline))
#ifdef __clang__
#define QUIET __attribute__((noinline, no_instrument_function, xray_never_instrument))
#else
#define QUIET __attribute__((noinline, no_instrument_function))
#endif

volatile int sink;

NOINLINE void inner(void)
{
    sink++;
}

NOINLINE void outer(void)
{
    inner();
    sink++;
}

NOINLINE void tail_inner(void)
{
    sink += 2;
}

NOINLINE void tail_outer(void)
{
    sink++;
    tail_inner();
}

QUIET void wrap(void)
{
    sink++;
}

QUIET int main(void)
{
    for (int round = 0; round < 2; round++) {
        outer();
        tail_outer();
    }
    wrap();
    for (int round = 0; round < 3000; round++)
        outer();
    return 0;
}
