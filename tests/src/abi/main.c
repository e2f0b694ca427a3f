static unsigned long sums[COUNT], counts[COUNT];

static QUIET void call(unsigned long index)
{
    __builtin_cpu_init();
    if (needs[index] == 1 && !__builtin_cpu_supports("avx"))
        return;
    if (needs[index] == 2 && !__builtin_cpu_supports("avx512f"))
        return;
    sum = &sums[index];
    counts[index]++;
    calls[index]();
}

static jmp_buf away;

NOINLINE void deep(int levels)
{
    volatile char room[300];
    room[levels] = 1;
    if (levels == 0)
        longjmp(away, 1);
    deep(levels - 1);
    room[levels] = 2;
}

// Leaves traced frames without their exits.
static QUIET void abandon(void)
{
    if (setjmp(away) == 0)
        deep(3);
}

static QUIET void *thread(void *index)
{
    call((unsigned long)index);
    return 0;
}

// A leaf that lives below its stack pointer.
NOINLINE unsigned long leaf(unsigned long with)
{
    volatile unsigned long room[12];
    for (unsigned long at = 0; at < 12; at++)
        room[at] = with + at;
    unsigned long total = 0;
    for (unsigned long at = 0; at < 12; at++)
        total = total * 31 + room[at];
    return total;
}

QUIET int main(int argc, char **argv)
{
    unsigned long total = argc > 1 ? strtoul(argv[1], 0, 10) : 0;
    for (unsigned long index = 0; index < COUNT; index++) {
        pthread_t id;
        if (pthread_create(&id, 0, thread, (void *)index) != 0)
            return 3;
        pthread_join(id, 0);
    }
    unsigned long leaves = 0;
    for (unsigned long number = 0; number < total; number++) {
        unsigned long bits = draw() >> 8;
        if (bits % 64 == 0)
            abandon();
        if (bits % 64 == 1)
            leaves += leaf(bits);
        call((bits >> 8) % COUNT);
    }
    for (unsigned long index = 0; index < COUNT; index++)
        printf("f_%lu: %lu calls, %016lx\n", index, counts[index], sums[index]);
    printf("leaves: %016lx\n", leaves);
    printf("changed: errno %lu, MXCSR %lu, x87 control word %lu, x87 stack %lu, direction %lu\n", wrong_errno,
           wrong_mxcsr, wrong_control, wrong_status, wrong_flags);
    return 0;
}
