//! How hooks enter the slow path.

/// The ways into it: they put `what` into edi, the slot into rsi and the address into r8.
macro_rules! ways_asm {
    () => {
        "
    .macro everycall_slow_way name, what, address
    .type   everycall_slow_\\name, @function
everycall_slow_\\name\\()_without_slot:
    .cfi_startproc
    .cfi_def_cfa_offset 40
        xorl    %esi, %esi
everycall_slow_\\name:
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        .ifc \\address, body
        movq    %rdi, %r8
        .else
        movq    48(%rsp), %r8
        .endif
        movl    $\\what, %edi
        jmp     everycall_slow_common
    .cfi_endproc
    .size   everycall_slow_\\name, . - everycall_slow_\\name
    .endm

    # An exit whose call took at least `floor` (0 if short calls are dropped). eax: ticks that it
    # took, rdx: top of the open calls, rcx: control block, rsi: slot with the ticks in its upper
    # half.
    #
    # The call is dropped if it is short, and the word before the slot is its own entry: then
    # nothing was written since. Each of these steps is one instruction, and whatever a signal
    # handler does between two of them, the trace stays true:
    # 1. Both words are emptied while the call is open; then it is popped. A handler that jumps away
    #    before that leaves two empty words and an open call, as in an interrupted hook; one that
    #    jumps away later leaves two empty words.
    # 2. The call is counted.
    # 3. Both slots are taken back if they are still the last ones. Otherwise they become fillers.
    .macro everycall_judge_way name
    .type   everycall_slow_judge_\\name, @function
    .p2align 4
everycall_slow_judge_\\name:
    .cfi_startproc
    .cfi_def_cfa_offset 40
        cmpl    {SHORT}(%rcx), %eax
        jae     5f
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        .ifc \\name, body_exit
        subl    everycall_module + {BIAS_ENTRY}(%rip), %edi
        cmpl    %edi, {CALL_WORD} - {CALL_SIZE}(%rdx)       # another function's exit
        jne     4f
        .endif
        .ifc \\name, frame_exit
        addl    ${FRAME_FIRST}, %edi
        cmpl    %edi, {CALL_WORD} - {CALL_SIZE}(%rdx)
        jne     4f
        .endif
        movq    {CALL_WORD} - {CALL_SIZE}(%rdx), %rdi
        cmpq    %rdi, -{WORD_SIZE}(%rsi)
        jne     4f
        imull   ${MAP_FACTOR}, %edi, %eax
        shrl    ${MAP_SHIFT}, %eax
        shll    $3, %eax
        addq    {SHORT_MAP}(%rcx), %rax
    1:  cmpl    %edi, {MAP_ENTRIES}(%rax)
        jne     6f
        movl    {MAP_ENTRIES} + 4(%rax), %eax               # the function's place
        andl    ${PLACE_MASK}, %eax
        movq    {SHORT_COUNTS}(%rcx), %rdi
        movq    $0, (%rsi)
        movq    $0, -{WORD_SIZE}(%rsi)
        movq    $0, {CALL_WORD} - {CALL_SIZE}(%rdx)
        subq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        addq    $1, (%rdi, %rax, 8)
        addq    $1, (%rdi)
        leaq    {WORD_SIZE}(%rsi), %rax
        leaq    -{WORD_SIZE}(%rsi), %rdi
        cmpxchgq %rdi, {POSITION}(%rcx)
        jne     7f
    2:  popq    %rdi
        .cfi_adjust_cfa_offset -8
        everycall_epilogue

    4:  .cfi_def_cfa_offset 48
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        movl    {UPPER_HALF}(%rsi), %eax                    # again the ticks that it took
        subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rdx), %eax
    5:  cmpl    {TRIGGER_FLOOR}(%rcx), %eax
        jb      .Leverycall_keep_\\name
        jmp     everycall_slow_\\name

    6:  .cfi_def_cfa_offset 48
        cmpl    $0, {MAP_ENTRIES}(%rax)
        je      3f
        addq    $8, %rax
        movl    %eax, %edi                                  # after the last entry?
        subl    {SHORT_MAP}(%rcx), %edi
        cmpl    $8 * {MAP_SIZE}, %edi
        movl    {CALL_WORD} - {CALL_SIZE}(%rdx), %edi
        jb      1b
        jmp     4b
    3:  movq    {SHORT_MAP}(%rcx), %rax
        cmpl    $0, {MAP_FULL}(%rax)
        jne     4b
        popq    %rdi                                        # the first short call of its function: the slow path gives it a place
        .cfi_adjust_cfa_offset -8
        jmp     everycall_slow_\\name

    7:  .cfi_def_cfa_offset 48
        testq   %rax, %rax                          # wiped in a forked child: the ring is the parent's
        jz      2b
        movq    ${FILLER}, (%rsi)
        movq    ${FILLER}, -{WORD_SIZE}(%rsi)
        addq    $2, {OTHER_WORDS}(%rcx)
        jmp     2b
    .cfi_endproc
    .size   everycall_slow_judge_\\name, . - everycall_slow_judge_\\name
    .endm

    # The stack pointer is below the block's lower bound: the thread is excluded, or runs another
    # stack.
    .macro everycall_elsewhere_way name
    .type   everycall_elsewhere_\\name, @function
    .p2align 4
everycall_elsewhere_\\name:
    .cfi_startproc
    .cfi_def_cfa_offset 40
        cmpl    ${AT_ONCE}, {LEFT_OUT}(%rcx)
        jne     everycall_slow_\\name\\()_without_slot
        cmpq    {STACK_END}(%rcx), %rsp
        jb      everycall_slow_\\name\\()_without_slot
        cmpq    {STACK_HIGH}(%rcx), %rsp
        jae     everycall_slow_\\name\\()_without_slot
        everycall_epilogue
    .cfi_endproc
    .size   everycall_elsewhere_\\name, . - everycall_elsewhere_\\name
    .endm

    .p2align 4
    everycall_slow_way entry, 0, caller
    everycall_slow_way exit, {EXIT}, caller
    everycall_slow_way body_entry, {BODY}, body
    everycall_slow_way body_exit, {EXIT} + {BODY}, body
    everycall_slow_way entry_pushed, {PUSHED}, caller
    everycall_slow_way body_entry_pushed, {BODY} + {PUSHED}, body
    everycall_slow_way count_entry, {COUNT}, caller
    everycall_slow_way count_body, {BODY} + {COUNT}, body

    everycall_judge_way exit
    everycall_judge_way body_exit

    everycall_elsewhere_way entry
    everycall_elsewhere_way exit
    everycall_elsewhere_way body_entry
    everycall_elsewhere_way body_exit
    everycall_elsewhere_way count_entry
    everycall_elsewhere_way count_body
    "
    };
}
pub(super) use ways_asm;

/// edi: what, rcx: control block or null, rsi: slot or null, r8: address. On the stack, lowest
/// first: r8, rdi, rsi, rcx, rdx, rax, return address. A thread that doesn't record returns at
/// once.
macro_rules! slow_path_asm {
    () => {
        "
    .type   everycall_slow_common, @function
    .p2align 4
everycall_slow_common:
    .cfi_startproc
    .cfi_def_cfa_offset 56
        testq   %rcx, %rcx
        jz      1f
        leaq    16(%rsp), %rax                      # the hook's stack pointer
        cmpq    {STACK_LOW}(%rcx), %rax
        jb      1f
        cmpq    {STACK_HIGH}(%rcx), %rax
        jae     1f
        cmpl    ${OFF}, {STATE}(%rcx)
        je      9f
    1:  pushq   %r9
        .cfi_adjust_cfa_offset 8
        pushq   %r10
        .cfi_adjust_cfa_offset 8
        pushq   %r11
        .cfi_adjust_cfa_offset 8
        everycall_push_bases
        subq    $8, %rsp                            # room for the signal mask
        .cfi_adjust_cfa_offset 8
        everycall_keep_registers
        movq    %rcx, %rbp
        movl    %edi, %r9d
        movq    %rsi, %rax

        # Block signals: rt_sigprocmask(SIG_BLOCK, set, old, 8). If the trap flag is set, the
        # program single-steps itself, and a blocked trap would end it: then the second set, without
        # SIGTRAP.
        pushq   %rax
        pushq   %r8
        pushq   %r9
        pushfq
        popq    %rdx
        andl    $0x100, %edx
        shrl    $5, %edx
        leaq    everycall_blocked_signals(%rip), %rsi
        addq    %rdx, %rsi
        movl    $14, %eax
        xorl    %edi, %edi
        movq    %rbx, %rdx
        movl    $8, %r10d
        syscall
        popq    %r9
        popq    %r8
        popq    %rdx                                # the slot: third argument

        # Take a free stack of the process, because the thread's own may be small.
        movq    everycall_module + {SLOW_STACKS}(%rip), %r10
        leaq    {SLOW_STACKS_SIZE}(%r10), %r11
    1:  movq    (%r10), %rax
        testq   %rax, %rax
        jz      2f
        xorl    %eax, %eax
        xchgq   %rax, (%r10)
        testq   %rax, %rax
        jnz     3f
    2:  addq    $8, %r10
        cmpq    %r11, %r10
        jb      1b
        movq    %rsp, %rcx                          # none is free: stay
        jmp     4f
    3:  movq    %rax, %rcx
    4:  movq    %rcx, %rsp
        andq    $-16, %rsp
        subq    ${SLOW_FRAME_SIZE}, %rsp
        movq    %rax, 256(%rsp)
        movq    %r10, 272(%rsp)
        everycall_save_vectors
        movq    %rsp, -40(%rbx)

        movl    %r9d, %edi                          # what
        movq    %rbp, %rsi                          # control
        movq    %r8, %rcx                           # address
        leaq    64(%rbx), %r8                       # the hook's stack pointer
        leaq    everycall_module(%rip), %r9
        pushfq
        popq    264(%rsp)
        cld
        call    *{SLOW}(%r9)
        testl   $0x400, 264(%rsp)                   # the direction flag: no compiler sets it, assembly may
        jz      5f
        std
    5:
        everycall_restore_vectors

        # Back to the thread's own stack; then restore the signal mask. A pending signal arrives
        # right here.
        movq    256(%rsp), %rdx
        movq    272(%rsp), %rcx
        movq    %rbx, %rsp
        testq   %rdx, %rdx
        jz      6f
        movq    %rdx, (%rcx)                        # free again
    6:
        movl    $14, %eax
        movl    $2, %edi
        movq    %rbx, %rsi
        xorl    %edx, %edx
        movl    $8, %r10d
        syscall
        addq    $8, %rsp
        .cfi_def_cfa %rsp, 96
        everycall_pop_bases
        popq    %r11
        .cfi_adjust_cfa_offset -8
        popq    %r10
        .cfi_adjust_cfa_offset -8
        popq    %r9
        .cfi_adjust_cfa_offset -8
    9:  popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        everycall_epilogue
    .cfi_endproc
    .size   everycall_slow_common, . - everycall_slow_common

    .section .rodata.everycall_blocked_signals, \"a\", @progbits
    .p2align 3
everycall_blocked_signals:
    .quad   {BLOCKED_SIGNALS}
    .quad   {BLOCKED_SIGNALS} & ~{TRAP_SIGNAL}
    .text
    "
    };
}
pub(super) use slow_path_asm;
