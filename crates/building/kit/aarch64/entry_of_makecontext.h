// The wrapper of makecontext, which calls context_is_made of fibers.c.
//
// makecontext takes any number of arguments, in registers and on the stack: the wrapper leaves them
// in place. Floating-point arguments, which makecontext doesn't pass on, may be lost.
extern void __real_makecontext(void) EVERYCALL_WEAK;
__asm__(
    "    .text\n"
    "    .globl  __wrap_makecontext\n"
    EVERYCALL_HIDDEN("__wrap_makecontext")
    "    .type   __wrap_makecontext, %function\n"
    "    .weak   __real_makecontext\n"
    "__wrap_makecontext:\n"
    "    .cfi_startproc\n"
    "    hint    #34\n"
    "    stp     x29, x30, [sp, #-80]!\n"
    "    .cfi_def_cfa_offset 80\n"
    "    .cfi_offset x29, -80\n"
    "    .cfi_offset x30, -72\n"
    "    stp     x0, x1, [sp, #16]\n"
    "    stp     x2, x3, [sp, #32]\n"
    "    stp     x4, x5, [sp, #48]\n"
    "    stp     x6, x7, [sp, #64]\n"
    "    bl      context_is_made\n"
    "    ldp     x6, x7, [sp, #64]\n"
    "    ldp     x4, x5, [sp, #48]\n"
    "    ldp     x2, x3, [sp, #32]\n"
    "    ldp     x0, x1, [sp, #16]\n"
    "    ldp     x29, x30, [sp], #80\n"
    "    .cfi_def_cfa_offset 0\n"
    "    .cfi_restore x29\n"
    "    .cfi_restore x30\n"
    "    adrp    x16, :got:__real_makecontext\n"
    "    ldr     x16, [x16, #:got_lo12:__real_makecontext]\n"
    "    br      x16\n"
    "    .cfi_endproc\n"
    "    .size   __wrap_makecontext, . - __wrap_makecontext\n");
