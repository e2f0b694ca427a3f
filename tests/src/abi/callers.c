// Functions that call and jump to each other, for a debugger to look at.
#define NOINLINE __attribute__((noinline))
#ifdef __clang__
#define QUIET __attribute__((noinline, no_instrument_function, xray_never_instrument))
#else
#define QUIET __attribute__((noinline, no_instrument_function))
#endif

volatile int sink;

NOINLINE int inner(int value, const char *text)
{
    sink++;
    return value + *text;
}

NOINLINE void outer(void)
{
    int before = sink, more = before * 3, most = more ^ before;
    char text[] = "text";
    inner(before, text);
    sink += before + more + most;
}

NOINLINE void tail_inner(void)
{
    sink += 2;
}

NOINLINE void tail_outer(void)
{
    int before = sink;
    inner(before, "more text");
    sink += before;
    tail_inner();
}

// Holds a known value in each register that functions have to restore, and calls what it is given.
void hold(void (*function)(void));
__asm__(".pushsection .text\n.type hold, @function\nhold:\n.cfi_startproc\n"
        "pushq %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\n"
        "pushq %rbp\n.cfi_def_cfa_offset 24\n.cfi_offset %rbp, -24\n"
        "pushq %r12\n.cfi_def_cfa_offset 32\n.cfi_offset %r12, -32\n"
        "pushq %r13\n.cfi_def_cfa_offset 40\n.cfi_offset %r13, -40\n"
        "pushq %r14\n.cfi_def_cfa_offset 48\n.cfi_offset %r14, -48\n"
        "pushq %r15\n.cfi_def_cfa_offset 56\n.cfi_offset %r15, -56\n"
        "movl $1001, %ebx\nmovl $1002, %ebp\nmovl $1003, %r12d\nmovl $1004, %r13d\nmovl $1005, %r14d\n"
        "movl $1006, %r15d\ncall *%rdi\n"
        "popq %r15\n.cfi_def_cfa_offset 48\npopq %r14\n.cfi_def_cfa_offset 40\npopq %r13\n.cfi_def_cfa_offset 32\n"
        "popq %r12\n.cfi_def_cfa_offset 24\npopq %rbp\n.cfi_def_cfa_offset 16\npopq %rbx\n.cfi_def_cfa_offset 8\n"
        "ret\n.cfi_endproc\n.size hold, .-hold\n.popsection\n");

QUIET void wrap(void)
{
    sink++;
}

QUIET int main(void)
{
    for (int round = 0; round < 2; round++) {
        hold(outer);
        hold(tail_outer);
    }
    wrap();
    for (int round = 0; round < 3000; round++)
        hold(outer);
    return 0;
}
