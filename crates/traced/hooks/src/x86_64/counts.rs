//! The hooks of a process that counts calls and records nothing.

/// One instruction adds to the count, and nothing else is written, so a signal handler may count at
/// any point. Each thread has its own counts. The control block of the thread's own stack has their
/// address, whichever stack the thread runs: no other thread uses that block.
macro_rules! counts_asm {
    () => {
        "
    .macro everycall_count what
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        .ifc \\what, body
        movq    %rdi, %rax
        subq    everycall_module + {START}(%rip), %rax
        cmpq    everycall_module + {SIZE}(%rip), %rax
        jae     3f                                  # a function of another module
        movq    %rdi, %rax
        .else
        movq    16(%rsp), %rax
        .endif
        addq    everycall_module + {PLACES}(%rip), %rax
        movl    (%rax), %eax                        # offset of its count
        everycall_load_home
        testq   %rcx, %rcx
        jz      3f
        movq    {SHORT_COUNTS}(%rcx), %rcx          # 0: wiped, in a forked child
        testq   %rcx, %rcx
        jz      3f
        testl   %eax, %eax
        jz      3f
        addq    $1, (%rcx, %rax)
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_adjust_cfa_offset 16
    3:  popq    %rcx                                # the function's or the thread's first call
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
        everycall_save
        everycall_load_control
        testq   %rcx, %rcx
        jz      everycall_slow_count_\\what\\()_without_slot
        cmpq    {STACK_LOW}(%rcx), %rsp
        jb      everycall_elsewhere_count_\\what
        jmp     everycall_slow_count_\\what\\()_without_slot
    .endm

    everycall_function everycall_count_entry
        everycall_count entry
    everycall_function_end everycall_count_entry

    everycall_function everycall_count_body
        everycall_count body
    everycall_function_end everycall_count_body

    .type   everycall_count_selected, @function
    .p2align 4
everycall_count_selected:
    .cfi_startproc
        cmpq    ${COUNT_ALL}, everycall_module + {ON}(%rip)
        je      1f
        everycall_is_selected 16(%rsp), counted
        jc      1f
        ret
    1:  cmpq    $0, everycall_module + {TIMES}(%rip)
        je      everycall_count_entry
        jmp     everycall_time_entry
    .cfi_endproc
    .size   everycall_count_selected, . - everycall_count_selected

    .type   everycall_count_selected_body, @function
    .p2align 4
everycall_count_selected_body:
    .cfi_startproc
        cmpq    ${COUNT_ALL}, everycall_module + {ON}(%rip)
        je      1f
        everycall_is_selected %rdi, counted
        jc      1f
        ret
    1:  cmpq    $0, everycall_module + {TIMES}(%rip)
        je      everycall_count_body
        jmp     everycall_time_body_entry
    .cfi_endproc
    .size   everycall_count_selected_body, . - everycall_count_selected_body
    "
    };
}
pub(super) use counts_asm;
