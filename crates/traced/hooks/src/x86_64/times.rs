//! The hooks of a process that times calls and records nothing.

/// They keep the open-call stack as other hooks do, so the slow path can take over at any point.
/// Their entries' stamps say where the function's times are. Beside the stack, at a fixed distance,
/// each entry has the time of the calls in it that have ended.
macro_rules! times_asm {
    () => {
        "
    .macro everycall_time_prologue what
        everycall_save
        everycall_load_own_control \\what
        cmpq    $0, {END}(%rcx)
        je      everycall_slow_\\what\\()_without_slot
        rdtsc
        movq    {OPEN_TOP}(%rcx), %rsi
    .endm

    # The order: the caller's and the call's times are added when the call is complete. A handler
    # that runs the same function in between is taken for another outermost call of it.
    .macro everycall_time_in what, jump, function
        cmpq    {OPEN_LIMIT}(%rcx), %rsi
        jae     everycall_slow_\\what\\()_without_slot
        movq    %rsp, {CALL_POINTER}(%rsi)
        addq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rsi)
        \\jump  everycall_slow_\\what\\()_pushed_without_slot
        movq    %rsp, {CALL_POINTER}(%rsi)
        movl    %edx, {CALL_TICKS_HIGH}(%rsi)
        movq    \\function, %rdx
        shlq    $32, %rax
        subl    everycall_module + {BIAS_ENTRY}(%rip), %edx
        orq     %rdx, %rax                          # the entry's word
        movq    \\function, %rdx
        addq    everycall_module + {PLACES}(%rip), %rdx
        movl    (%rdx), %edx                        # where the function's times are
        testl   %edx, %edx
        jz      everycall_slow_\\what\\()_pushed_without_slot
        movl    %edx, {CALL_STAMP}(%rsi)
        addq    {SHORT_COUNTS}(%rcx), %rdx
        movq    %rax, {CALL_WORD}(%rsi)
        addq    {SHORT_MAP}(%rcx), %rsi             # the entry's time of its callees
        movq    $0, (%rsi)
        addq    $1, {CALLS}(%rdx)
        cmpq    %rsi, {OUTERMOST}(%rdx)
        jne     5f
    3:  everycall_epilogue
    5:  jb      4f                                  # an entry below this one: of an open call?
        movq    %rsi, {OUTERMOST}(%rdx)
        jmp     3b
        # An entry of this stack with the same function in its word.
    4:  pushq   %rdi
        .cfi_adjust_cfa_offset 8
        movq    {OUTERMOST}(%rdx), %rdi
        subq    {SHORT_MAP}(%rcx), %rdi
        cmpq    {OPEN_BASE}(%rcx), %rdi
        jb      6f
        movl    {CALL_WORD}(%rdi), %edi
        xorl    %eax, %edi
        shll    $1, %edi                            # without the mark of diverted calls
        jz      7f
    6:  movq    %rsi, {OUTERMOST}(%rdx)
    7:  popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     3b
    .endm

    # edx:eax: the clock, rsi: top of the open calls.
    .macro everycall_time_out what
        subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rsi), %eax
        sbbl    {CALL_TICKS_HIGH} - {CALL_SIZE}(%rsi), %edx
        jne     everycall_slow_\\what\\()_without_slot      # took 2^32 ticks or more
        movl    {CALL_STAMP} - {CALL_SIZE}(%rsi), %edx
        testl   %edx, %edx
        jle     20f
    21: pushq   %rdi
        .cfi_adjust_cfa_offset 8
        addq    {SHORT_COUNTS}(%rcx), %rdx          # the function's times
        movq    $0, {CALL_WORD} - {CALL_SIZE}(%rsi)
        addq    {SHORT_MAP}(%rcx), %rsi
        movq    -{CALL_SIZE}(%rsi), %rdi            # ticks in callees
        subq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        subq    ${CALL_SIZE}, %rsi
        addq    %rax, -{CALL_SIZE}(%rsi)            # the caller's
        movq    %rax, %rcx
        subq    %rdi, %rcx
        addq    %rcx, {OWN}(%rdx)
        cmpq    %rsi, {OUTERMOST}(%rdx)
        jne     1f
        addq    %rax, {TOTAL}(%rdx)
    6:  movq    %rax, %rcx
        notq    %rcx
        cmpq    {SHORTEST}(%rdx), %rcx
        ja      3f
    2:  cmpq    {LONGEST}(%rdx), %rax
        ja      4f
    5:  orl     $1, %eax
        movl    {USUAL}(%rdx), %ecx
        movl    %eax, %esi
        shrl    %cl, %esi                           # 1: the usual bucket, 2 or 3: the next one
        leal    -1(%rsi), %edi
        cmpl    $2, %edi
        ja      30f
        cmpl    $2, %esi
        adcq    $0, {HISTOGRAM}(%rdx, %rcx, 8)
        cmpl    $2, %esi
        sbbq    $-1, {HISTOGRAM} + 8(%rdx, %rcx, 8)
    31: popq    %rdi
        .cfi_adjust_cfa_offset -8
        everycall_epilogue
        .cfi_adjust_cfa_offset 8
    1:  addq    %rax, {NESTED}(%rdx)
        jmp     6b
    3:  movq    %rcx, {SHORTEST}(%rdx)
        jmp     2b
    4:  movq    %rax, {LONGEST}(%rdx)
        jmp     5b
        # Another bucket. It becomes usual when it has more calls than either.
    30: bsrl    %eax, %eax
        addq    $1, {HISTOGRAM}(%rdx, %rax, 8)
        movq    {HISTOGRAM}(%rdx, %rax, 8), %rdi
        cmpq    {HISTOGRAM}(%rdx, %rcx, 8), %rdi
        jbe     31b
        cmpq    {HISTOGRAM} + 8(%rdx, %rcx, 8), %rdi
        jbe     31b
        cmpl    %eax, %ecx
        sbbl    $0, %eax                            # of two buckets, the one beside those before
        movl    %eax, {USUAL}(%rdx)
        jmp     31b
        .cfi_adjust_cfa_offset -8

        # The sign: memory was allocated or freed in the call. Its function's totals are closed, if
        # this call has opened them: see format::memory.
    20: jz      everycall_slow_\\what\\()_without_slot
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        movl    %edx, %edi
        andl    ${STAMP_PLACE}, %edx
        btl     ${STAMP_OPENED_BIT}, %edi
        jnc     23f
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        movq    {SHORT_COUNTS}(%rcx), %r8           # the sums at place 0: the meter
        .irp number, 0, 8, 16, 24
        testb   $1, {MEMORY_TOTAL} + \\number(%r8, %rdx)
        jz      22f
        movq    {MEMORY_TOTAL} + \\number(%r8), %rdi
        addq    $1, %rdi
        subq    {MEMORY_TOTAL} + \\number(%r8, %rdx), %rdi
        movq    %rdi, {MEMORY_TOTAL} + \\number(%r8, %rdx)
    22:
        .endr
        popq    %r8
        .cfi_adjust_cfa_offset -8
    23: popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     21b
    .endm

    everycall_function everycall_time_entry
        everycall_time_prologue entry
        everycall_time_in entry, jbe, 32(%rsp)
    everycall_function_end everycall_time_entry

    everycall_function everycall_time_body_entry
        everycall_time_prologue body_entry
        movq    %rdi, %rsi
        subq    everycall_module + {START}(%rip), %rsi
        cmpq    everycall_module + {SIZE}(%rip), %rsi
        movq    {OPEN_TOP}(%rcx), %rsi
        jae     everycall_slow_body_entry_without_slot      # a function of another module
        everycall_time_in body_entry, jb, %rdi
    everycall_function_end everycall_time_body_entry

    everycall_function everycall_time_exit
        everycall_time_prologue exit
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rsi)
        jne     everycall_slow_exit_without_slot
        everycall_time_out exit
    everycall_function_end everycall_time_exit

    everycall_function everycall_time_body_exit
        everycall_time_prologue body_exit
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rsi)
        jb      8f
    9:  pushq   %rdi
        .cfi_adjust_cfa_offset 8
        subl    everycall_module + {BIAS_ENTRY}(%rip), %edi
        cmpl    %edi, {CALL_WORD} - {CALL_SIZE}(%rsi)
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jne     everycall_slow_body_exit_without_slot
        everycall_time_out body_exit
    8:  pushq   %rdi
        .cfi_adjust_cfa_offset 8
        movq    8(%rsp), %rdi                       # the call site
        cmpq    40(%rsp), %rdi                      # is where the hook returns to?
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        je      9b
        jmp     everycall_slow_body_exit_without_slot
    everycall_function_end everycall_time_body_exit

    .macro everycall_counted_exit_way name, address, hook
    .type   \\name, @function
    .p2align 4
\\name:
    .cfi_startproc
        cmpq    $0, everycall_module + {TIMES}(%rip)
        je      1f
        cmpq    ${COUNT_ALL}, everycall_module + {ON}(%rip)
        je      \\hook
        everycall_is_selected \\address, counted
        jc      \\hook
    1:  ret
    .cfi_endproc
    .size   \\name, . - \\name
    .endm

    everycall_counted_exit_way everycall_counted_exit, 16(%rsp), everycall_time_exit
    everycall_counted_exit_way everycall_counted_body_exit, %rdi, everycall_time_body_exit
    "
    };
}
pub(super) use times_asm;
