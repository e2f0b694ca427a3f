//! The hooks of entries and exits, and those that functions always call.

/// Entry and exit. Hooks that are always called test the module's `on`: 0 is off, 1 is on, and
/// anything else is the address of the module's bits (see `ModuleDescriptor::on`). If calls are
/// counted, the address has bit 1 set, and exits do nothing.
macro_rules! sites_asm {
    () => {
        "
    # Sets the carry flag if the function is selected.
    .macro everycall_is_selected address, what
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        movq    \\address, %rax
        movq    everycall_module + {ON}(%rip), %rcx     # read once: it may change at any time
        .ifc \\what, counted
        andq    $-8, %rcx
        .else
        cmpq    $1, %rcx
        jbe     7f
        andq    $-8, %rcx
        .endif
        subq    everycall_module + {START}(%rip), %rax
        cmpq    everycall_module + {SIZE}(%rip), %rax
        cmc                                         # a function of another module: the slow path decides
        jc      9f
        btq     %rax, (%rcx)
        jmp     9f
    7:  btq     $0, %rcx
    9:  popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
    .endm

    # Sets the carry flag if values are copied at this entry: see `CAPTURES`.
    .macro everycall_is_captured
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        movq    16(%rsp), %rax
        movq    everycall_module + {ON}(%rip), %rcx     # read once: it may change at any time
        testb   ${CAPTURES}, %cl                        # clears the carry flag
        jz      9f
        subq    everycall_module + {START}(%rip), %rax
        cmpq    everycall_module + {SIZE}(%rip), %rax
        jae     9f
        addq    everycall_module + {SIZE}(%rip), %rax
        andq    $-8, %rcx
        btq     %rax, (%rcx)
    9:  popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
    .endm

    # Entry: called at a function's first instruction.
    .text
    everycall_function __fentry__
        cmpq    $1, everycall_module + {ON}(%rip)
        je      everycall_called_entry
        jb      1f
        testb   ${COUNTS}, everycall_module + {ON}(%rip)
        jnz     everycall_count_selected
        everycall_is_selected 16(%rsp), recorded
        jnc     1f
        everycall_is_captured
        jnc     everycall_called_entry
        jmp     everycall_capture_entry
    1:  ret
    everycall_function_end __fentry__

    # Writes an entry into the slot that was reserved for it.
    .macro everycall_write_entry
        everycall_push jbe, everycall_slow_entry_pushed
        movl    40(%rsp), %ecx
        subl    everycall_module + {BIAS_ENTRY}(%rip), %ecx
        orq     %rcx, %rax
        movq    %rax, {CALL_WORD}(%rdx)
        movq    %rax, (%rsi)
        everycall_counted_epilogue 32(%rsp), entry
    .endm

    everycall_called_way entry
    everycall_function everycall_entry
        everycall_prologue entry
        everycall_write_entry
    everycall_function_end everycall_entry

    # Exit: called before a function's `ret`, or before a tail call that no trigger follows.
    everycall_function __return__
        cmpq    $1, everycall_module + {ON}(%rip)
        je      everycall_called_exit
        jb      1f
        testb   ${COUNTS}, everycall_module + {ON}(%rip)
        jnz     everycall_counted_exit
        everycall_is_selected 16(%rsp), recorded
        jnc     1f
        everycall_is_captured
        jnc     everycall_called_exit
        jmp     everycall_capture_exit
    1:  ret
    everycall_function_end __return__

    .macro everycall_write_exit keep
        movq    {OPEN_TOP}(%rcx), %rdx
        movl    %eax, {UPPER_HALF}(%rsi)                       # the ticks first: a word is empty until its low half is written
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rdx)   # is it the innermost open call's frame?
        jne     everycall_slow_exit
        subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rdx), %eax                     # ticks that the call took
        cmpl    {FLOOR}(%rcx), %eax
        jae     everycall_slow_judge_exit
    \\keep:
        movl    32(%rsp), %eax
        subl    everycall_module + {BIAS_EXIT}(%rip), %eax
        movl    %eax, (%rsi)
        movq    $0, {CALL_WORD} - {CALL_SIZE}(%rdx)
        subq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        everycall_epilogue
    .endm

    everycall_called_way exit
    everycall_function everycall_exit
        everycall_prologue exit
        everycall_write_exit .Leverycall_keep_exit
    everycall_function_end everycall_exit
    "
    };
}
pub(super) use sites_asm;

/// Tail exit of an armed function: always takes the slow path.
macro_rules! tail_exit_asm {
    () => {
        "
    everycall_function everycall_tail_exit
        cmpq    $1, everycall_module + {ON}(%rip)
        jne     1f
    2:  everycall_prologue exit
        movl    %eax, {UPPER_HALF}(%rsi)
        jmp     everycall_slow_exit
    1:  .cfi_adjust_cfa_offset -32
        jb      1f
        testb   ${COUNTS}, everycall_module + {ON}(%rip)
        jnz     everycall_counted_exit
        everycall_is_selected 16(%rsp), recorded
        jc      2b
    1:  ret
    everycall_function_end everycall_tail_exit
    "
    };
}
pub(super) use tail_exit_asm;
