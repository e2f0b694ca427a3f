//! The hooks of processes in which an event may go without a time of its own.

/// These hooks, as a part of those in `hooks.rs`, whose macros they use.
///
/// An event without a stamp gets the ticks of the thread's last stamp. It needs one if
///
/// - the kernel has stopped the thread or delivered a signal since the last stamp: then it has
///   cleared the guard, a word that it reads whenever it does so (`rseq_cs`);
/// - its site isn't known to follow the event before it closely, and to be followed closely by the
///   next one: its word in the module's table isn't positive;
/// - many events without a stamp came before it, or the slow path has written something: see
///   `Control::stamp_due`;
/// - anything is unusual.
///
/// The guard is written before the clock is read. So a signal handler that ran since then has
/// cleared it. A handler's events may write it again, and set another last stamp; then this hook's
/// slot isn't the last one any more, and the next event gets a stamp.
macro_rules! unstamped_asm {
    () => {
        "
    # As everycall_prologue, after everycall_save.
    .macro everycall_stamp what
        everycall_load_control
        testq   %rcx, %rcx
        jz      everycall_slow_\\what\\()_without_slot
        cmpq    {STACK_LOW}(%rcx), %rsp
        jb      everycall_elsewhere_\\what
        cmpq    {STACK_HIGH}(%rcx), %rsp
        jae     everycall_slow_\\what\\()_without_slot
        movq    everycall_module + {GUARD_OFFSET}(%rip), %rsi
        movq    everycall_module + {GUARD}(%rip), %rdx
        movq    %rdx, %fs:(%rsi)
        rdtsc
        movl    ${WORD_SIZE}, %esi
        xaddq   %rsi, {POSITION}(%rcx)
        cmpq    {END}(%rcx), %rsi
        jae     everycall_slow_\\what\\()_without_slot
        cmpl    {TICKS_HIGH}(%rcx), %edx
        jne     everycall_slow_\\what
        movl    %eax, {LAST_STAMP} + {UPPER_HALF}(%rcx)
        movq    {STAMP_AFTER}(%rcx), %rdx
        addq    %rsi, %rdx
        cmpq    {END}(%rcx), %rdx
        jbe     1f
        movq    {END}(%rcx), %rdx
    1:  movq    %rdx, {STAMP_DUE}(%rcx)
        leaq    {WORD_SIZE}(%rsi), %rdx
        cmpq    %rdx, {POSITION}(%rcx)
        je      2f
        movq    $0, {STAMP_DUE}(%rcx)
    2:
    .endm

    # Jumps if the event needs a stamp. Afterwards: the control block in rcx, the code offset in rsi,
    # and the site's word in eax. Uses rdx.
    .macro everycall_unless_stamped bias, stamp
        everycall_save
        movq    everycall_module + {GUARD_OFFSET}(%rip), %rax
        movq    everycall_module + {GUARD}(%rip), %rdx
        cmpq    %rdx, %fs:(%rax)
        jne     \\stamp
        everycall_load_control
        testq   %rcx, %rcx
        jz      \\stamp
        cmpq    {STACK_LOW}(%rcx), %rsp
        jb      \\stamp
        cmpq    {STACK_HIGH}(%rcx), %rsp
        jae     \\stamp
        movl    32(%rsp), %esi
        subl    everycall_module + \\bias(%rip), %esi
        movq    everycall_module + {UNSTAMPED}(%rip), %rax
        movl    (%rax, %rsi), %eax
        testl   %eax, %eax
        jle     \\stamp
        movq    {POSITION}(%rcx), %rdx
        cmpq    {STAMP_DUE}(%rcx), %rdx
        jae     \\stamp
        movq    {OPEN_TOP}(%rcx), %rdx
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rdx)
    .endm

    # The call is counted before its slot is reserved, which frees a register.
    everycall_function everycall_unstamped_entry
        everycall_unless_stamped {BIAS_ENTRY}, 1f
        jbe     1f
        orq     {LAST_STAMP}(%rcx), %rsi
        movq    {ALL_CALLS}(%rcx), %rdx
        addq    $1, (%rdx, %rax)
        movl    ${WORD_SIZE}, %edx
        xaddq   %rdx, {POSITION}(%rcx)
        cmpq    {END}(%rcx), %rdx
        jae     3f
        movq    {OPEN_TOP}(%rcx), %rax
        movq    %rsp, {CALL_POINTER}(%rax)
        addq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        movq    %rsp, {CALL_POINTER}(%rax)
        movl    {TICKS_HIGH}(%rcx), %ecx
        movq    %rcx, {CALL_TICKS_HIGH}(%rax)
        movq    %rsi, {CALL_WORD}(%rax)
        movq    %rsi, (%rdx)
        everycall_epilogue
        # A handler has filled the segment.
    3:  movq    {ALL_CALLS}(%rcx), %rdx
        subq    $1, (%rdx, %rax)
        jmp     everycall_slow_entry_without_slot
    1:  everycall_stamp entry
        everycall_write_entry
    everycall_function_end everycall_unstamped_entry

    everycall_function everycall_unstamped_exit
        everycall_unless_stamped {BIAS_EXIT}, 3f
        jne     3f
        movl    {LAST_STAMP} + {UPPER_HALF}(%rcx), %eax
        subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rdx), %eax
        cmpl    {FLOOR}(%rcx), %eax
        jae     3f
        orq     {LAST_STAMP}(%rcx), %rsi
        movl    ${WORD_SIZE}, %eax
        xaddq   %rax, {POSITION}(%rcx)
        cmpq    {END}(%rcx), %rax
        jae     everycall_slow_exit_without_slot
        movq    %rsi, (%rax)
        movq    $0, {CALL_WORD} - {CALL_SIZE}(%rdx)
        subq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        everycall_epilogue
    3:  everycall_stamp exit
        everycall_write_exit .Leverycall_keep_stamped_exit
    everycall_function_end everycall_unstamped_exit
    "
    };
}
pub(crate) use unstamped_asm;
