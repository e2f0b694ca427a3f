// The wrapper of makecontext, which calls context_is_made of fibers.c.
//
// makecontext takes any number of arguments, in registers and on the stack: the wrapper leaves them
// in place.
extern void __real_makecontext(void) EVERYCALL_WEAK;
__asm__(
    "    .text\n"
    "    .globl  __wrap_makecontext\n"
    EVERYCALL_HIDDEN("__wrap_makecontext")
    "    .type   __wrap_makecontext, @function\n"
    "    .weak   __real_makecontext\n"
    "__wrap_makecontext:\n"
    "    .cfi_startproc\n"
    "    pushq   %rdi\n"
    "    pushq   %rsi\n"
    "    pushq   %rdx\n"
    "    pushq   %rcx\n"
    "    pushq   %r8\n"
    "    pushq   %r9\n"
    "    pushq   %rax\n"
    "    .cfi_adjust_cfa_offset 56\n"
    "    call    context_is_made\n"
    "    popq    %rax\n"
    "    popq    %r9\n"
    "    popq    %r8\n"
    "    popq    %rcx\n"
    "    popq    %rdx\n"
    "    popq    %rsi\n"
    "    popq    %rdi\n"
    "    .cfi_adjust_cfa_offset -56\n"
    "    jmp     *__real_makecontext@GOTPCREL(%rip)\n"
    "    .cfi_endproc\n"
    "    .size   __wrap_makecontext, . - __wrap_makecontext\n");
