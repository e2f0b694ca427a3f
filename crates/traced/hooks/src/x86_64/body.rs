//! Hooks that are called from within a function's frame, in mode `finstrument`.

/// `__cyg_profile_func_enter(function, call site)` and `__cyg_profile_func_exit`, alike.
///
/// The frame may have grown since the entry, so an exit recognises the innermost open call by its
/// function. If its stack pointer is lower than the hook's, it belongs to a dead frame, unless the
/// function has released its frame and jumped here: then the hook's return address is the call
/// site.
macro_rules! body_asm {
    () => {
        "
    everycall_function __cyg_profile_func_enter
        cmpq    $1, everycall_module + {ON}(%rip)
        jne     1f
    2:  everycall_prologue body_entry
        movq    $0, {STAMP_DUE}(%rcx)               # this event has a stamp: the next one needs one, too
        movq    %rdi, %rdx
        subq    everycall_module + {START}(%rip), %rdx
        cmpq    everycall_module + {SIZE}(%rip), %rdx
        jae     everycall_slow_body_entry           # a function of another module
        everycall_push jb, everycall_slow_body_entry_pushed
        movl    %edi, %ecx
        subl    everycall_module + {BIAS_ENTRY}(%rip), %ecx
        orq     %rcx, %rax
        movq    %rax, {CALL_WORD}(%rdx)
        movq    %rax, (%rsi)
        everycall_counted_epilogue %rdi, body
    1:  .cfi_adjust_cfa_offset -32
        jb      1f
        testb   ${COUNTS}, everycall_module + {ON}(%rip)
        jnz     everycall_count_selected_body
        everycall_is_selected %rdi, recorded
        jc      2b
    1:  ret
    everycall_function_end __cyg_profile_func_enter

    everycall_function __cyg_profile_func_exit
        cmpq    $1, everycall_module + {ON}(%rip)
        jne     1f
    4:  everycall_prologue body_exit
        movq    $0, {STAMP_DUE}(%rcx)               # this event has a stamp: the next one needs one, too
        movq    {OPEN_TOP}(%rcx), %rdx
        movl    %eax, {UPPER_HALF}(%rsi)
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rdx)
        jb      3f
    2:  subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rdx), %eax
        cmpl    {FLOOR}(%rcx), %eax
        jae     everycall_slow_judge_body_exit
    .Leverycall_keep_body_exit:
        movl    %edi, %eax
        subl    everycall_module + {BIAS_ENTRY}(%rip), %eax
        cmpl    %eax, {CALL_WORD} - {CALL_SIZE}(%rdx)
        jne     everycall_slow_body_exit
        orl     ${EXIT_BIT}, %eax
        movl    %eax, (%rsi)
        movq    $0, {CALL_WORD} - {CALL_SIZE}(%rdx)
        subq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        everycall_epilogue
    3:  movq    (%rsp), %rax
        cmpq    32(%rsp), %rax
        movl    {UPPER_HALF}(%rsi), %eax
        je      2b
        jmp     everycall_slow_body_exit
    1:  .cfi_adjust_cfa_offset -32
        jb      1f
        testb   ${COUNTS}, everycall_module + {ON}(%rip)
        jnz     everycall_counted_body_exit
        everycall_is_selected %rdi, recorded
        jc      4b
    1:  ret
    everycall_function_end __cyg_profile_func_exit
    "
    };
}
pub(super) use body_asm;
