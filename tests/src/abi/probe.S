# Loads every register with a pattern, calls a function with hooks, looks at every register in it, loads
# others, returns through the hooks and looks again. Not traced itself.

        # All within one object, which may be a shared one.
        .hidden probe_run, probe_return, probe_inside, probe_target, state_mask
        .hidden registers_before, registers_inside, registers_second, registers_after
        .hidden state_home, state_before, state_inside, state_second, state_after
        .hidden stack_before, stack_after, flags, flags_inside, flags_after, words_before, words_after

        .macro load_all from
        movq    \from + 0(%rip), %rax
        movq    \from + 8(%rip), %rbx
        movq    \from + 16(%rip), %rcx
        movq    \from + 24(%rip), %rdx
        movq    \from + 32(%rip), %rsi
        movq    \from + 40(%rip), %rdi
        movq    \from + 48(%rip), %rbp
        movq    \from + 56(%rip), %r8
        movq    \from + 64(%rip), %r9
        movq    \from + 72(%rip), %r10
        movq    \from + 80(%rip), %r11
        movq    \from + 88(%rip), %r12
        movq    \from + 96(%rip), %r13
        movq    \from + 104(%rip), %r14
        movq    \from + 112(%rip), %r15
        .endm

        .macro store_all to
        movq    %rax, \to + 0(%rip)
        movq    %rbx, \to + 8(%rip)
        movq    %rcx, \to + 16(%rip)
        movq    %rdx, \to + 24(%rip)
        movq    %rsi, \to + 32(%rip)
        movq    %rdi, \to + 40(%rip)
        movq    %rbp, \to + 48(%rip)
        movq    %r8, \to + 56(%rip)
        movq    %r9, \to + 64(%rip)
        movq    %r10, \to + 72(%rip)
        movq    %r11, \to + 80(%rip)
        movq    %r12, \to + 88(%rip)
        movq    %r13, \to + 96(%rip)
        movq    %r14, \to + 104(%rip)
        movq    %r15, \to + 112(%rip)
        .endm

        # Vector, mask and x87 registers: all that the processor has, or what every one has.
        .macro restore_state from
        cmpl    $0, state_mask(%rip)
        je      1f
        movl    state_mask(%rip), %eax
        xorl    %edx, %edx
        xrstor64 \from(%rip)
        jmp     2f
    1:  fxrstor64 \from(%rip)
    2:
        .endm

        .macro save_state to
        cmpl    $0, state_mask(%rip)
        je      1f
        movl    state_mask(%rip), %eax
        xorl    %edx, %edx
        xsave64 \to(%rip)
        jmp     2f
    1:  fxsave64 \to(%rip)
    2:
        .endm

        .text
        # void probe_run(void)
        .globl  probe_run
        .type   probe_run, @function
probe_run:
        pushq   %rbx
        pushq   %rbp
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        subq    $520, %rsp                      # 64 words of the caller's stack, to be left alone
        movq    %rsp, stack_before(%rip)
        movq    %rsp, %rdi
        leaq    words_before(%rip), %rsi
        movl    $64, %ecx
        cld
        rep movsq
        save_state state_home
        restore_state state_before
        load_all registers_before
        pushq   flags(%rip)
        popfq
        call    *probe_target(%rip)
        .globl  probe_return
probe_return:
        store_all registers_after
        pushfq
        popq    flags_after(%rip)
        cld
        movq    %rsp, stack_after(%rip)
        movq    stack_before(%rip), %rsp
        save_state state_after
        restore_state state_home
        movq    %rsp, %rsi
        leaq    words_after(%rip), %rdi
        movl    $64, %ecx
        rep movsq
        addq    $520, %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbp
        popq    %rbx
        ret
        .size   probe_run, . - probe_run

        # In the function: what came through its entry hook, and what goes to its exit hook. (Its stack isn't
        # aligned, and needn't be.)
        .globl  probe_inside
        .type   probe_inside, @function
probe_inside:
        store_all registers_inside
        pushfq
        popq    flags_inside(%rip)
        cld
        save_state state_inside
        restore_state state_second
        load_all registers_second
        pushq   flags(%rip)
        popfq
        ret
        .size   probe_inside, . - probe_inside

        # What the compilers write at entries and exits, by hand, so that each hook is here in every mode.
        .macro  by_hand name
        .globl  \name
        .hidden \name
        .type   \name, @function
\name:
        .cfi_startproc
        .endm
        .macro  by_hand_end name
        .cfi_endproc
        .size   \name, . - \name
        .endm

        by_hand hand_fentry
        call    __fentry__
        call    probe_inside
        call    __return__
        ret
        by_hand_end hand_fentry

        # A tail exit: the target's entry hook gets what the exit hook has left.
        by_hand hand_fentry_tail
        call    __fentry__
        call    probe_inside
        call    __return__
        jmp     hand_fentry_target
        by_hand_end hand_fentry_tail
        by_hand hand_fentry_target
        call    __fentry__
        call    __return__
        ret
        by_hand_end hand_fentry_target

        # The patterns have the function in rdi and the call site in rsi, as these hooks want them.
        by_hand hand_cyg
        call    __cyg_profile_func_enter
        call    probe_inside
        call    __cyg_profile_func_exit
        ret
        by_hand_end hand_cyg

        # The last call made a jump.
        by_hand hand_cyg_jump
        call    __cyg_profile_func_enter
        call    probe_inside
        jmp     __cyg_profile_func_exit
        by_hand_end hand_cyg_jump

        # An exit without its entry, as after a longjmp back into a frame: the slow path.
        by_hand hand_orphan
        call    probe_inside
        call    __return__
        ret
        by_hand_end hand_orphan

        .section .note.GNU-stack, "", @progbits
