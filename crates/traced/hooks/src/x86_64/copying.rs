//! The hooks of functions whose values are copied.

use core::mem::offset_of;
use everycall_format::capture::TextHeader;
use everycall_format::event::{kind, payload_word};

/// Words before those with the capture's bytes.
pub(super) const HEAD_WORDS: usize = 3;
/// The lower half of the second word of the record.
pub(super) const PAYLOAD: u32 = payload_word(0, kind::VALUES, 1) as u32;

/// Flags where they are in the bytes of a text's header.
pub(super) const fn text_flags(flags: u16) -> i64 {
    assert!(offset_of!(TextHeader, length) == 0 && offset_of!(TextHeader, copied) == 4);
    (flags as i64) << (8 * offset_of!(TextHeader, flags))
}

/// These hooks, as a part of those in `hooks.rs`, whose macros they use.
///
/// A hook that finds [`Copies`](crate::Copies) records an event with its values by itself, in the
/// way of the other hooks: the position of the ring is read before the checks, and exchanged after
/// them, so a signal handler that has written something in between makes the exchange fail. All
/// else is done by a function of the runtime, on the thread's own stack if there is room, and
/// otherwise by the slow path. The hook has no slot then.
///
/// Memory is read only where it can be: on the stack that the thread runs, from the hook's own part
/// to the end (`Control::capture_end`), and in pages that the runtime knows
/// (`Copies::pages`). 16 bytes are read at once, which don't cross a page's end.
macro_rules! capture_asm {
    () => {
        "
    everycall_function everycall_capture_entry
        everycall_save
        everycall_load_own_control entry
        cmpq    {CAPTURE_FLOOR}(%rcx), %rsp
        jb      everycall_slow_entry_without_slot
        xorl    %esi, %esi
        jmp     everycall_capture_common
    everycall_function_end everycall_capture_entry

    # Exits of short calls that are dropped go the usual way.
    everycall_function everycall_capture_exit
        everycall_save
        everycall_load_own_control exit
        cmpl    $0, {SHORT}(%rcx)
        je      1f
        rdtsc
        movq    {OPEN_TOP}(%rcx), %rdx
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rdx)
        jne     1f
        subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rdx), %eax
        cmpl    {SHORT}(%rcx), %eax
        jae     1f
        movq    $0, {STAMP_DUE}(%rcx)               # this event has a stamp: the next one needs one, too
        everycall_restore
        jmp     everycall_exit
        .cfi_adjust_cfa_offset 32
    1:  cmpq    {CAPTURE_FLOOR}(%rcx), %rsp
        jb      everycall_slow_exit_without_slot
        movl    $1, %esi
        jmp     everycall_capture_common
    everycall_function_end everycall_capture_exit

    # What the hook has pushed beside what every hook saves.
    .macro everycall_pop_copying
        popq    %r11
        .cfi_adjust_cfa_offset -8
        popq    %r10
        .cfi_adjust_cfa_offset -8
        popq    %r9
        .cfi_adjust_cfa_offset -8
        popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
    .endm

    # Reserves the slots: r11 is the first one, rsi the address behind the last one. Afterwards, rsi
    # has the event's ticks in its upper half.
    .macro everycall_reserve_copied
        movq    %r11, %rax
        cmpxchgq %rsi, {POSITION}(%rcx)
        jne     .Leverycall_capture_otherwise_framed
        movl    {COPY_TICKS}(%rsp), %esi
        shlq    $32, %rsi
        movq    $0, {STAMP_DUE}(%rcx)               # this event has a stamp: the next one needs one, too
        addq    %r10, {OTHER_WORDS}(%rcx)
    .endm

    # Writes the record with the values, its first word last: without that, the others are no
    # record. Then the event's word, r9. r8: copies, r10: words of the record, r11: its slot, rsi:
    # ticks in the upper half, rdi: bytes of the capture, which begins at the stack pointer; or (if
    # it has words) the first word's place. Changes rax, rdx, rdi, r10 and r11.
    .macro everycall_write_copied
        testl   %r10d, %r10d
        jz      9f
        movl    ${PAYLOAD}, %eax
        movl    {COPIES_ID}(%r8), %edx
        shlq    $32, %rdx
        orq     %rax, %rdx
        movq    %rdx, {WORD_SIZE}(%r11)
        addl    $0x100, %eax                        # the next word's index
        testl   ${WORDS}, {COPIES_FLAGS}(%r8)
        jnz     7f
        shlq    $32, %rdi
        orq     %rax, %rdi
        movq    %rdi, 2 * {WORD_SIZE}(%r11)
        leal    -4 * {HEAD_WORDS}(, %r10, 4), %edi
        movl    %edi, {COPY_END}(%rsp)
        xorl    %edi, %edi
    6:  addl    $0x100, %eax
        movl    (%rsp, %rdi), %edx
        shlq    $32, %rdx
        orq     %rax, %rdx
        movq    %rdx, {HEAD_WORDS} * {WORD_SIZE}(%r11, %rdi, 2)
        addl    $4, %edi
        cmpl    {COPY_END}(%rsp), %edi
        jb      6b
        leal    -1(%r10), %eax
        shll    $8, %eax
        orl     {COPIES_FIRST_WORD}(%r8), %eax
        orq     %rsi, %rax
        movq    %rax, (%r11)
        jmp     9f
    7:  movl    {COPIES_BYTES}(%r8), %edx
        shlq    $32, %rdx
        orq     %rax, %rdx
        movq    %rdx, 2 * {WORD_SIZE}(%r11)
        subl    ${HEAD_WORDS}, %r10d
    8:  movzwl  (%rdi), %edx
        addl    $0x100, %eax
        movl    (%rsp, %rdx), %edx
        addq    $2, %rdi
        shlq    $32, %rdx
        orq     %rax, %rdx
        movq    %rdx, {HEAD_WORDS} * {WORD_SIZE}(%r11)
        addq    ${WORD_SIZE}, %r11
        subl    $1, %r10d
        jnz     8b
        movl    {COPIES_FIRST_WORD}(%r8), %eax
        movl    {COPIES_BYTES}(%r8), %edx
        orq     %rsi, %rax
        negq    %rdx
        movq    %rax, (%r11, %rdx, 2)
        addq    ${HEAD_WORDS} * {WORD_SIZE}, %r11
    9:  movq    %r9, (%r11, %r10, 8)
    .endm

    # esi: 1 for an exit, rcx: the control block. What is on the stack lies as in the slow path.
    .type   everycall_capture_common, @function
    .p2align 6
everycall_capture_common:
    .cfi_startproc
    .cfi_def_cfa_offset 40
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        pushq   %r10
        .cfi_adjust_cfa_offset 8
        pushq   %r11
        .cfi_adjust_cfa_offset 8

        # What is copied here?
        movq    everycall_module + {CAPTURES_AT}(%rip), %rdi
        testq   %rdi, %rdi
        jz      .Leverycall_capture_otherwise
        movq    72(%rsp), %r8                       # behind the call of the hook
        imull   ${PLACES_FACTOR}, %r8d, %eax
        movq    {PLACES_TABLE}(%rdi), %r9
        movl    {PLACES_MASK}(%rdi), %edx
        shrl    ${PLACES_SHIFT}, %eax
    1:  andl    %edx, %eax
        leaq    (%rax, %rax, 2), %r10
        leaq    (%r9, %r10, 8), %r10
        cmpq    %r8, {PLACE_BEHIND}(%r10)
        je      2f
        addl    $1, %eax
        cmpq    $0, {PLACE_BEHIND}(%r10)
        jne     1b
        jmp     .Leverycall_capture_otherwise
    2:  movl    {PLACE_COPIES}(%r10), %r8d
        testl   %r8d, %r8d
        jz      .Leverycall_capture_otherwise
        addq    %rdi, %r8
        movl    {COPIES_FLAGS}(%r8), %eax
        movl    %eax, %edx
        andl    ${AT_EXIT}, %edx
        cmpl    %esi, %edx
        jne     .Leverycall_capture_otherwise

        # A call that was left out isn't open: its exit lies inside the innermost open call.
        andl    ${AT_EXIT} | {CONDITIONAL}, %eax
        cmpl    ${AT_EXIT} | {CONDITIONAL}, %eax
        jne     3f
        movq    {OPEN_TOP}(%rcx), %rdx
        leaq    40(%rsp), %rax                      # the hook's stack pointer
        cmpq    %rax, {CALL_POINTER} - {CALL_SIZE}(%rdx)
        je      3f
        jb      .Leverycall_capture_otherwise
        cmpq    $0, {RESUMED}(%rcx)
        jne     .Leverycall_capture_otherwise
        cmpl    $0, {DEEP}(%rcx)
        jne     .Leverycall_capture_otherwise
        everycall_pop_copying
        everycall_epilogue

    3:  .cfi_def_cfa_offset 80
        subq    ${COPY_FRAME}, %rsp
        .cfi_adjust_cfa_offset {COPY_FRAME}
        leaq    {COPIES_SIZE}(%r8), %r10
        movl    {COPIES_TESTS}(%r8), %eax
        testl   %eax, %eax
        jz      5f
    4:  movl    {TEST_AT}(%r10), %edx
        movq    (%rsp, %rdx), %rdx
        imulq   {TEST_FACTOR}(%r10), %rdx
        subq    {TEST_FIRST}(%r10), %rdx
        cmpq    {TEST_SPAN}(%r10), %rdx
        ja      .Leverycall_capture_leave_out
        addq    ${TEST_SIZE}, %r10
        subl    $1, %eax
        jnz     4b
    5:  testl   ${VECTORS}, {COPIES_FLAGS}(%r8)
        jz      6f
        movq    %xmm0, {COPY_VECTORS}(%rsp)
        movq    %xmm1, {COPY_VECTORS} + 8(%rsp)
        movq    %xmm2, {COPY_VECTORS} + 16(%rsp)
        movq    %xmm3, {COPY_VECTORS} + 24(%rsp)
        movq    %xmm4, {COPY_VECTORS} + 32(%rsp)
        movq    %xmm5, {COPY_VECTORS} + 40(%rsp)
        movq    %xmm6, {COPY_VECTORS} + 48(%rsp)
        movq    %xmm7, {COPY_VECTORS} + 56(%rsp)

    6:  movl    {COPIES_ITEMS}(%r8), %edi
        testl   %edi, %edi
        jz      .Leverycall_capture_words
        movq    %rsp, %r9                           # the end of the capture so far
    7:  movl    {ITEM_AT}(%r10), %eax
        movzwl  {ITEM_SIZE}(%r10), %edx
        cmpw    ${COPIED_WORD}, {ITEM_WHAT}(%r10)
        jae     .Leverycall_capture_other
    .Leverycall_capture_value:
        movq    (%rsp, %rax), %rax
        movb    ${PRESENT}, (%r9)
        movq    %rax, 1(%r9)                        # the next item overwrites what is too much
        leaq    1(%r9, %rdx), %r9
    .Leverycall_capture_next:
        addq    ${ITEM_BYTES}, %r10
        subl    $1, %edi
        jnz     7b

        movl    $0, (%r9)                           # the rest of the last word
        movq    %r9, %rdi
        subq    %rsp, %rdi                          # bytes of the capture
        leal    4 * {HEAD_WORDS} + 3(%rdi), %r10d
        shrl    $2, %r10d                           # words of the record
        jmp     1f
    .Leverycall_capture_words:
        movq    %r10, %rdi
        movl    {COPIES_WORDS}(%r8), %r10d

    # The record and the event. The position is read before the checks and exchanged after them.
    1:  movq    {POSITION}(%rcx), %r11
        rdtsc
        leaq    {WORD_SIZE}(%r11, %r10, 8), %rsi
        cmpq    {END}(%rcx), %rsi
        ja      .Leverycall_capture_otherwise_framed
        cmpl    {TICKS_HIGH}(%rcx), %edx
        jne     .Leverycall_capture_otherwise_framed
        cmpq    $0, {RESUMED}(%rcx)
        jne     .Leverycall_capture_otherwise_framed
        cmpl    $0, {DEEP}(%rcx)
        jne     .Leverycall_capture_otherwise_framed
        movl    %eax, {COPY_TICKS}(%rsp)
        movq    {OPEN_TOP}(%rcx), %rdx
        leaq    {COPY_FRAME} + 40(%rsp), %r9        # the hook's stack pointer
        testl   ${AT_EXIT}, {COPIES_FLAGS}(%r8)
        jnz     2f
        cmpq    %r9, {CALL_POINTER} - {CALL_SIZE}(%rdx)
        jbe     .Leverycall_capture_otherwise_framed       # a call is dead
        everycall_reserve_copied
        movq    %r9, {CALL_POINTER}(%rdx)
        addq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        movq    %r9, {CALL_POINTER}(%rdx)           # a handler in between may have written its own
        movl    {TICKS_HIGH}(%rcx), %eax
        movq    %rax, {CALL_TICKS_HIGH}(%rdx)       # the stamp beside it is 0
        movl    {COPY_FRAME} + 72(%rsp), %r9d
        subl    everycall_module + {BIAS_ENTRY}(%rip), %r9d
        orq     %rsi, %r9
        movq    %r9, {CALL_WORD}(%rdx)
        everycall_write_copied
        addq    ${COPY_FRAME}, %rsp
        .cfi_adjust_cfa_offset -{COPY_FRAME}
        everycall_pop_copying
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        everycall_counted_epilogue 32(%rsp), entry

    2:  .cfi_def_cfa_offset {COPY_FRAME} + 80
        cmpq    %r9, {CALL_POINTER} - {CALL_SIZE}(%rdx)    # is it the innermost open call's frame?
        jne     .Leverycall_capture_otherwise_framed
        subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rdx), %eax
        cmpl    {FLOOR}(%rcx), %eax
        jae     .Leverycall_capture_otherwise_framed
        everycall_reserve_copied
        movl    {COPY_FRAME} + 72(%rsp), %r9d
        subl    everycall_module + {BIAS_EXIT}(%rip), %r9d
        orq     %rsi, %r9
        everycall_write_copied
        movq    {OPEN_TOP}(%rcx), %rdx
        movq    $0, {CALL_WORD} - {CALL_SIZE}(%rdx)
        subq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        addq    ${COPY_FRAME}, %rsp
        .cfi_adjust_cfa_offset -{COPY_FRAME}
        everycall_pop_copying
        everycall_epilogue

    # An item without a status, or one that lies in memory: a word of the stack, or a text. rax: the
    # place of the word or of the text's address, rdx: its size.
    .Leverycall_capture_other:
        .cfi_def_cfa_offset {COPY_FRAME} + 80
        ja      8f
        movq    (%rsp, %rax), %rax
        movq    %rax, (%r9)
        addq    %rdx, %r9
        jmp     .Leverycall_capture_next
    8:  cmpw    ${COPIED_TEXT}, {ITEM_WHAT}(%r10)
        je      1f
        leaq    8(%rsp, %rax), %rsi
        cmpq    {CAPTURE_END}(%rcx), %rsi
        jbe     .Leverycall_capture_value
        jmp     .Leverycall_capture_otherwise_framed
    1:  movq    (%rsp, %rax), %rax
        leaq    {TEXT_HEAD}(%r9), %r11
        movups  %xmm0, {COPY_SAVED}(%rsp)
        movups  %xmm1, {COPY_SAVED} + 16(%rsp)
        testq   %rax, %rax
        jz      6f
    2:  movq    {CAPTURE_END}(%rcx), %rsi
        subq    %rax, %rsi
        jb      3f
        cmpq    $16, %rsi
        jb      3f
        cmpq    %rsp, %rax
        jae     4f
    3:  movl    %eax, %esi
        andl    $4095, %esi
        cmpl    $4080, %esi
        ja      8f
        movq    %rax, %rsi
        shrq    $12, %rsi
        andl    ${PAGES_MASK}, %esi
        shll    $3, %esi
        addq    {COPIES_PAGES}(%r8), %rsi
        movq    (%rsi), %rsi
        xorq    %rax, %rsi
        cmpq    $4096, %rsi
        jae     8f
    4:  movdqu  (%rax), %xmm0
        pxor    %xmm1, %xmm1
        movdqu  %xmm0, (%r11)
        pcmpeqb %xmm0, %xmm1
        pmovmskb %xmm1, %esi
        testl   %esi, %esi
        jnz     5f
        addq    $16, %rax
        addq    $16, %r11
        subl    $16, %edx
        jnz     2b
        movabsq ${TEXT_CUT}, %rsi
        jmp     7f
    5:  bsfl    %esi, %esi
        addq    %rsi, %r11
        xorl    %esi, %esi
        jmp     7f
    6:  movabsq ${TEXT_NULL}, %rsi
    7:  movups  {COPY_SAVED}(%rsp), %xmm0
        movups  {COPY_SAVED} + 16(%rsp), %xmm1
        movq    %r11, %rax
        subq    %r9, %rax
        subq    ${TEXT_HEAD}, %rax                  # the bytes that were copied, and the text's length
        movq    %rax, %rdx
        shlq    $32, %rdx
        orq     %rdx, %rax
        orq     %rsi, %rax
        movb    ${PRESENT}, (%r9)
        movq    %rax, 1(%r9)
        movq    %r11, %r9
        jmp     .Leverycall_capture_next
    8:  movups  {COPY_SAVED}(%rsp), %xmm0
        movups  {COPY_SAVED} + 16(%rsp), %xmm1
        jmp     .Leverycall_capture_otherwise_framed

    # A test isn't passed: the call is left out, if no call is dead.
    .Leverycall_capture_leave_out:
        movq    {OPEN_TOP}(%rcx), %rdx
        leaq    {COPY_FRAME} + 40(%rsp), %rax
        cmpq    %rax, {CALL_POINTER} - {CALL_SIZE}(%rdx)
        jbe     .Leverycall_capture_otherwise_framed
        cmpq    $0, {RESUMED}(%rcx)
        jne     .Leverycall_capture_otherwise_framed
        cmpl    $0, {DEEP}(%rcx)
        jne     .Leverycall_capture_otherwise_framed
        movq    {CALLS_LEFT_OUT}(%rcx), %rax
        testq   %rax, %rax
        jz      .Leverycall_capture_otherwise_framed
        lock addq $1, (%rax)
        addq    ${COPY_FRAME}, %rsp
        .cfi_adjust_cfa_offset -{COPY_FRAME}
        everycall_pop_copying
        everycall_epilogue

    # The runtime's function.
    .Leverycall_capture_otherwise_framed:
        .cfi_def_cfa_offset {COPY_FRAME} + 80
        movl    {COPIES_FLAGS}(%r8), %esi
        andl    ${AT_EXIT}, %esi
        addq    ${COPY_FRAME}, %rsp
        .cfi_adjust_cfa_offset -{COPY_FRAME}
    .Leverycall_capture_otherwise:
        everycall_push_bases
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        everycall_keep_registers
        andq    $-16, %rsp
        subq    $272, %rsp
        everycall_save_vectors
        movq    %rsp, -40(%rbx)
        movl    %esi, %r8d
        movq    %rcx, %rdi
        movq    96(%rbx), %rsi                      # behind the call of the hook
        leaq    64(%rbx), %rdx                      # the hook's stack pointer
        leaq    everycall_module(%rip), %rcx
        pushfq
        popq    256(%rsp)
        cld
        call    *{CAPTURE}(%rcx)
        testl   $0x400, 256(%rsp)                   # the direction flag, as in the slow path
        jz      5f
        std
    5:
        everycall_restore_vectors
        movq    %rbx, %rsp
        popq    %rsi
        .cfi_def_cfa %rsp, 96
        everycall_pop_bases
        everycall_pop_copying
        testl   %eax, %eax
        jnz     6f
        everycall_epilogue
    6:  .cfi_def_cfa_offset 40
        everycall_load_control
        cmpl    $1, %eax
        jne     everycall_slow_count_entry_without_slot
        testl   %esi, %esi
        jnz     everycall_slow_exit_without_slot
        jmp     everycall_slow_entry_without_slot
    .cfi_endproc
    .size   everycall_capture_common, . - everycall_capture_common
    "
    };
}
pub(super) use capture_asm;
