//! Registers on the stack, the control block, the open-call stack: how all hooks begin and end.

/// Macros for the other texts. After `everycall_prologue`: four registers on the stack, the control
/// block in rcx, the clock in edx:eax, and the slot in rsi.
macro_rules! saving_asm {
    () => {
        "
    .macro everycall_save
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
    .endm

    # Loads the control block into rcx. Not this stack's? Nothing else of it may be touched.
    .macro everycall_load_own_control what
        everycall_load_control
        testq   %rcx, %rcx
        jz      everycall_slow_\\what\\()_without_slot
        cmpq    {STACK_LOW}(%rcx), %rsp
        jb      everycall_elsewhere_\\what
        cmpq    {STACK_HIGH}(%rcx), %rsp
        jae     everycall_slow_\\what\\()_without_slot
    .endm

    .macro everycall_prologue what
        everycall_save
        everycall_load_own_control \\what
        rdtsc
        movl    ${WORD_SIZE}, %esi
        xaddq   %rsi, {POSITION}(%rcx)              # reserve: one instruction, so no signal splits it
        cmpq    {END}(%rcx), %rsi
        jae     everycall_slow_\\what\\()_without_slot
        cmpl    {TICKS_HIGH}(%rcx), %edx            # after reserving: see the crate's head
        jne     everycall_slow_\\what
    .endm

    .macro everycall_restore
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
    .endm

    .macro everycall_epilogue
        everycall_restore
        ret
        .cfi_adjust_cfa_offset 32
    .endm

    # Pushes an OpenCall except for its word, and takes jump if the frame below is dead. The stack
    # pointer is written before the top is raised, and again afterwards: a signal handler in between
    # may have written its own there. Afterwards rdx is the entry, and the control block is on the
    # stack.
    .macro everycall_push jump, slow
        movq    {OPEN_TOP}(%rcx), %rdx
        movq    %rsp, {CALL_POINTER}(%rdx)
        addq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rdx)   # stack pointer of the entry below
        \\jump  \\slow
        movq    %rsp, {CALL_POINTER}(%rdx)
        shlq    $32, %rax
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        movl    {TICKS_HIGH}(%rcx), %ecx
        movq    %rcx, {CALL_TICKS_HIGH}(%rdx)           # the stamp beside it is 0
    .endm

    # The rest of an entry hook, once the entry is written: counts the call, which no ring forgets.
    # One instruction adds to the count, so a signal handler may count at any point, and a handler
    # that jumps away before it leaves a call that isn't counted. The control block is this stack's,
    # as compared in the prologue, so no other thread adds to its counts. In a forked child, it and
    # the module's table are wiped. So the address of the counts is read first: if it isn't 0 but
    # the place is, the child was forked in between, and the slow path is taken.
    .macro everycall_counted_epilogue address, what
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        movq    {ALL_CALLS}(%rcx), %rsi
        movq    everycall_module + {RECORDED_PLACES}(%rip), %rdx
        testq   %rdx, %rdx
        jz      8f                                  # the module's calls aren't counted
        addq    \\address, %rdx
        movl    (%rdx), %edx                        # offset of the function's count
        testl   %edx, %edx
        jz      everycall_slow_count_\\what\\()_without_slot
        addq    $1, (%rsi, %rdx)
    8:  everycall_epilogue
    .endm

    # Before a call of the runtime: rbx and rbp.
    .macro everycall_push_bases
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
    .endm
    .macro everycall_pop_bases
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
    .endm

    # Then the stack pointer into rbx, and the registers that `Registers` finds below it.
    .macro everycall_keep_registers
        movq    %rsp, %rbx
        .cfi_def_cfa_register %rbx
        pushq   %r12                                # for `Registers::saved`; nothing pops them
        pushq   %r13
        pushq   %r14
        pushq   %r15
        pushq   %r15                                # place of the vector registers: `Registers::vectors`
    .endm

    # All vector registers, at the stack pointer, which is a multiple of 16.
    .macro everycall_save_vectors
        movaps  %xmm0, (%rsp)
        movaps  %xmm1, 16(%rsp)
        movaps  %xmm2, 32(%rsp)
        movaps  %xmm3, 48(%rsp)
        movaps  %xmm4, 64(%rsp)
        movaps  %xmm5, 80(%rsp)
        movaps  %xmm6, 96(%rsp)
        movaps  %xmm7, 112(%rsp)
        movaps  %xmm8, 128(%rsp)
        movaps  %xmm9, 144(%rsp)
        movaps  %xmm10, 160(%rsp)
        movaps  %xmm11, 176(%rsp)
        movaps  %xmm12, 192(%rsp)
        movaps  %xmm13, 208(%rsp)
        movaps  %xmm14, 224(%rsp)
        movaps  %xmm15, 240(%rsp)
    .endm
    .macro everycall_restore_vectors
        movaps  (%rsp), %xmm0
        movaps  16(%rsp), %xmm1
        movaps  32(%rsp), %xmm2
        movaps  48(%rsp), %xmm3
        movaps  64(%rsp), %xmm4
        movaps  80(%rsp), %xmm5
        movaps  96(%rsp), %xmm6
        movaps  112(%rsp), %xmm7
        movaps  128(%rsp), %xmm8
        movaps  144(%rsp), %xmm9
        movaps  160(%rsp), %xmm10
        movaps  176(%rsp), %xmm11
        movaps  192(%rsp), %xmm12
        movaps  208(%rsp), %xmm13
        movaps  224(%rsp), %xmm14
        movaps  240(%rsp), %xmm15
    .endm

    .macro everycall_function name
    .globl  \\name
    .hidden \\name
    .type   \\name, @function
    .p2align 6
\\name:
    .cfi_startproc
    .endm

    # Code with which hooks that are always called continue. It stands right before the hook of
    # sites, which doesn't test whether events may go without a stamp: sites of such processes lead
    # elsewhere.
    .macro everycall_called_way what
    .globl  everycall_called_\\what
    .hidden everycall_called_\\what
    .type   everycall_called_\\what, @function
    .p2align 6
    .skip   50, 0xcc
everycall_called_\\what:
    .cfi_startproc
        cmpq    $0, everycall_module + {UNSTAMPED}(%rip)
        jne     everycall_unstamped_\\what
    .cfi_endproc
    .size   everycall_called_\\what, . - everycall_called_\\what
    .endm

    .macro everycall_function_end name
    .cfi_endproc
    .size   \\name, . - \\name
    .endm
    "
    };
}
pub(super) use saving_asm;
