//! The hooks of processes in which an event may go without a time of its own.

/// These hooks, as a part of those in `hooks.rs`, whose macros they use.
///
/// An event without a stamp gets the ticks of the thread's last stamp. It needs one if
///
/// - the kernel has stopped the thread or delivered a signal since the last stamp: then it has
///   cleared the guard, a word that it reads whenever it does so (`rseq_cs`);
/// - its function's entries, or exits, aren't known to follow the event before them closely, and to
///   be followed closely by the next one: the flag in the module's table, or in the open call;
/// - many events without a stamp came before it, or the slow path has written something: see
///   `Control::stamp_due`;
/// - anything is unusual.
///
/// The guard is written before the clock is read. So a signal handler that ran since then has
/// cleared it. A handler's events may write it again, and set another last stamp; then this hook's
/// slot isn't the last one any more, and the next event gets a stamp.
///
/// Without a stamp, an event's slot is reserved within a *restartable sequence*: if the kernel stops
/// the thread between `everycall_unstamped_start` and `..._end`, the thread goes on at `..._abort`,
/// after the signal's handler if there is one. So nothing else is written while a hook is there. The
/// last instruction moves the position; what comes before it has no effect until then. The rest is
/// as in the other hooks, and in the same order.
macro_rules! unstamped_asm {
    () => {
        "
    # As everycall_prologue, after everycall_save.
    .macro everycall_stamp what
        everycall_load_own_control \\what
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
        movq    %rax, %rdx
        shlq    $32, %rdx
        movq    %rdx, {LAST_STAMP}(%rcx)
        movq    {STAMP_AFTER}(%rcx), %rdx
        addq    %rsi, %rdx
        cmpq    {END}(%rcx), %rdx
        cmovaq  {END}(%rcx), %rdx
        movq    %rdx, {STAMP_DUE}(%rcx)
        leaq    {WORD_SIZE}(%rsi), %rdx
        cmpq    %rdx, {POSITION}(%rcx)
        je      2f
        movq    $0, {STAMP_DUE}(%rcx)
    2:
    .endm

    # Before a restartable sequence: the control block in rcx, the lower half of the event's word in
    # rsi, the guard's offset in rax, and its value in rdx.
    .macro everycall_before bias, stamp
        everycall_save
        everycall_load_control
        testq   %rcx, %rcx
        jz      \\stamp
        movl    32(%rsp), %esi
        subl    everycall_module + \\bias(%rip), %esi
        movq    everycall_module + {GUARD_OFFSET}(%rip), %rax
        movq    everycall_module + {GUARD}(%rip), %rdx
    .endm

    .text
    .p2align 6
    .type   everycall_unstamped_exit, @function
    .globl  everycall_unstamped_exit
    .hidden everycall_unstamped_exit
everycall_unstamped_exit:
    .cfi_startproc
        everycall_before {BIAS_EXIT}, everycall_stamped_exit
        jmp     1f
    .cfi_endproc
    .size   everycall_unstamped_exit, . - everycall_unstamped_exit

    # The sequence of entries, and that of exits, which have their word in the slot when it becomes
    # one of the ring's. rdi is saved below the stack pointer, where handlers leave it alone.
    everycall_function everycall_unstamped_entry
        everycall_before {BIAS_ENTRY}, everycall_stamped_entry
        movq    %rdi, -8(%rsp)
    .globl  everycall_unstamped_start
    .hidden everycall_unstamped_start
everycall_unstamped_start:
        cmpq    %rdx, %fs:(%rax)
        jne     4f
        cmpq    {STACK_LOW}(%rcx), %rsp
        jb      4f
        cmpq    {STACK_HIGH}(%rcx), %rsp
        jae     4f
        movq    everycall_module + {UNSTAMPED}(%rip), %rax
        movl    (%rax, %rsi, 2), %eax
        testb   ${SITE_ENTRY}, %al
        jz      4f
        movq    {OPEN_TOP}(%rcx), %rdx
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rdx)
        jbe     4f
        movq    {POSITION}(%rcx), %rdx
        cmpq    {STAMP_DUE}(%rcx), %rdx
        jae     4f
        orq     {LAST_STAMP}(%rcx), %rsi
        movl    %eax, %edi
        andl    ${SITE_COUNT}, %edi
        addq    {ALL_CALLS}(%rcx), %rdi
        jmp     2f
    1:  cmpq    %rdx, %fs:(%rax)
        jne     everycall_stamped_exit
        movq    {OPEN_TOP}(%rcx), %rax
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rax)
        jne     everycall_stamped_exit
        cmpl    $0, {CALL_TICKS_HIGH} - {CALL_SIZE}(%rax)   # SITE_EXIT
        jge     everycall_stamped_exit
        movl    {LAST_STAMP} + {UPPER_HALF}(%rcx), %edx
        subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rax), %edx
        cmpl    {FLOOR}(%rcx), %edx
        jae     everycall_stamped_exit
        movq    {POSITION}(%rcx), %rdx
        cmpq    {STAMP_DUE}(%rcx), %rdx
        jae     everycall_stamped_exit
        orq     {LAST_STAMP}(%rcx), %rsi
        movq    %rsi, (%rdx)
        movq    %rax, %rdx
    2:  addq    ${WORD_SIZE}, {POSITION}(%rcx)
    .globl  everycall_unstamped_end
    .hidden everycall_unstamped_end
everycall_unstamped_end:
        testl   %esi, %esi
        js      3f
        movq    %rdi, -16(%rsp)
        movq    {OPEN_TOP}(%rcx), %rdi
        movq    %rsp, {CALL_POINTER}(%rdi)
        addq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        andl    ${SITE_EXIT}, %eax
        movq    %rsp, {CALL_POINTER}(%rdi)              # a handler in between may have written its own
        orl     {TICKS_HIGH}(%rcx), %eax
        movq    %rax, {CALL_TICKS_HIGH}(%rdi)
        movq    %rsi, {CALL_WORD}(%rdi)
        movq    %rsi, (%rdx)
        movq    -16(%rsp), %rdi
        addq    $1, (%rdi)                              # the call's count
        movq    -8(%rsp), %rdi
        everycall_epilogue
    3:  movq    $0, {CALL_WORD} - {CALL_SIZE}(%rdx)
        subq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        everycall_epilogue
    everycall_function_end everycall_unstamped_entry

    # Here the kernel continues what it has stopped. In exits, bit 31 of rsi is set.
    .p2align 3
        ud2
    .p2align 2
    .long   {SIGNATURE}                                 # the kernel compares it
    .globl  everycall_unstamped_abort
    .hidden everycall_unstamped_abort
    .type   everycall_unstamped_abort, @function
everycall_unstamped_abort:
    .cfi_startproc
    .cfi_def_cfa_offset 40
        testl   %esi, %esi
        js      everycall_stamped_exit
    4:  movq    -8(%rsp), %rdi
    .size   everycall_unstamped_abort, . - everycall_unstamped_abort
    .type   everycall_stamped_entry, @function
everycall_stamped_entry:
        everycall_stamp entry
        everycall_push jbe, everycall_slow_entry_pushed
        movl    40(%rsp), %ecx
        subl    everycall_module + {BIAS_ENTRY}(%rip), %ecx
        orq     %rcx, %rax
        movq    %rax, {CALL_WORD}(%rdx)
        movq    %rax, (%rsi)
        movq    everycall_module + {UNSTAMPED}(%rip), %rsi
        movl    (%rsi, %rcx, 2), %eax
        movl    %eax, %esi
        andl    ${SITE_EXIT}, %esi
        orl     %esi, {CALL_TICKS_HIGH}(%rdx)
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        andl    ${SITE_COUNT}, %eax
        jz      1f
        movq    {ALL_CALLS}(%rcx), %rcx
        addq    $1, (%rcx, %rax)
        everycall_epilogue
    1:  cmpq    $0, everycall_module + {RECORDED_PLACES}(%rip)
        jne     everycall_slow_count_entry_without_slot     # its first call
        everycall_epilogue
    .size   everycall_stamped_entry, . - everycall_stamped_entry
    .type   everycall_stamped_exit, @function
everycall_stamped_exit:
        everycall_stamp exit
        everycall_write_exit .Leverycall_keep_stamped_exit
    .cfi_endproc
    .size   everycall_stamped_exit, . - everycall_stamped_exit
    "
    };
}
pub(crate) use unstamped_asm;
