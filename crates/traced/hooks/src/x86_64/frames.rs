//! Hooks of frames by id, and the descriptor of these frames.
#![allow(unsafe_code)] // The descriptor by its address, and the hooks' symbols.

use crate::descriptor::ModuleDescriptor;
use core::arch::global_asm;

global_asm!(
    "
    .section .bss.everycall_frames, \"aw\", @nobits
    .p2align 6
    .type   everycall_frames, @object
    .size   everycall_frames, {SIZE}
    .globl  everycall_frames
    .hidden everycall_frames
everycall_frames:
    .zero   {SIZE}
    .text
    ",
    SIZE = const size_of::<ModuleDescriptor>(),
    options(att_syntax)
);

#[cfg(any(feature = "executable", feature = "shared"))]
unsafe extern "C" {
    /// A call of the frame `id` begins on the calling thread.
    pub fn everycall_frame_enter(id: u64);
    /// It ends.
    pub fn everycall_frame_leave(id: u64);
}

unsafe extern "C" {
    static everycall_frames: ModuleDescriptor;
}

/// The descriptor of the process's frames by id. Their addresses are `id * STEP`.
#[must_use]
pub fn frames() -> &'static ModuleDescriptor {
    // SAFETY: zeroed bytes that hold only atomics.
    unsafe { &everycall_frames }
}

/// The hooks, as a part of those in `hooks.rs`, whose macros they use.
///
/// They are functions that the program calls, so they may change registers as such. Addresses are
/// `id * STEP`. Numbers from `IDS` on are no ids, but addresses of code, which only the slow path
/// records. A frame's stack pointer in the open-call stack isn't the hook's: an interpreter may
/// report the calls of its functions at different depths. It is 8 below that of the machine's call
/// around the frame, where nothing else can be, and all frames within that call have the same. So
/// they end with that call at the latest, however it is left: they are dead when it is. How much
/// deeper the hook was is in the entry's stamp: a jump that continues above that place leaves the
/// frame.
#[cfg(any(feature = "executable", feature = "shared"))]
macro_rules! frames_asm {
    () => {
        "
    # Whether the frame whose id is in r10 is selected, in the carry flag; all are, or the id is an
    # address: jumps. Uses rsi.
    .macro everycall_is_frame_selected all
        movq    everycall_frames + {ON}(%rip), %rsi # read once: it may change at any time
        andq    $-4, %rsi
        jz      \\all
        cmpq    ${FRAME_IDS}, %r10
        jae     \\all                               # an address: the slow path decides
        btq     %r10, (%rsi)
    .endm

    everycall_function everycall_frame_enter
        movq    %rdi, %r10
        shlq    ${FRAME_SHIFT}, %rdi
        xorl    %esi, %esi                          # no call site
        cmpq    $1, everycall_frames + {ON}(%rip)
        jne     3f
    1:  everycall_prologue frame_entry
        movq    $0, {STAMP_DUE}(%rcx)               # this event has a stamp: the next one needs one, too
        cmpq    ${FRAME_IDS}, %r10
        jae     everycall_slow_frame_entry          # an address
        movq    {OPEN_TOP}(%rcx), %rdx
        movq    {CALL_POINTER} - {CALL_SIZE}(%rdx), %r8
        movl    {CALL_WORD} - {CALL_SIZE}(%rdx), %r9d
        addq    $1, %r8                             # as own_pointer() of the slow path reads it
        jz      everycall_slow_frame_entry          # no open call: the sentinel
        andq    $-8, %r8
        andl    ${OFFSETS}, %r9d
        subl    ${FRAME_FIRST}, %r9d
        cmpl    ${FRAME_OFFSETS}, %r9d
        jae     2f
        addq    $8, %r8                             # within another frame by id
    2:  cmpq    %rsp, %r8
        jb      everycall_slow_frame_entry          # a dead frame below
        movq    %r8, %r9
        subq    %rsp, %r9
        shrq    $3, %r9                             # how much deeper the hook is, in words: the stamp
        shlq    $32, %r9
        subq    $8, %r8
        movq    %r8, {CALL_POINTER}(%rdx)
        addq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        movq    %r8, {CALL_POINTER}(%rdx)           # a handler in between may have written its own
        shlq    $32, %rax
        movl    {TICKS_HIGH}(%rcx), %r8d
        orq     %r9, %r8
        movq    %r8, {CALL_TICKS_HIGH}(%rdx)
        leal    {FRAME_FIRST}(%rdi), %r8d
        orq     %r8, %rax
        movq    %rax, {CALL_WORD}(%rdx)
        movq    %rax, (%rsi)
        movq    {ALL_CALLS}(%rcx), %rsi
        movq    everycall_frames + {RECORDED_PLACES}(%rip), %rdx
        testq   %rdx, %rdx
        jz      8f
        movl    (%rdx, %rdi), %edx
        testl   %edx, %edx
        jz      everycall_slow_count_frame_without_slot
        addq    $1, (%rsi, %rdx)
    8:  everycall_epilogue
    3:  .cfi_adjust_cfa_offset -32
        ja      5f
        cmpl    $0, everycall_frames + {ABI}(%rip)  # off, unless this is the first of all
        je      4f
        ret
    5:  everycall_is_frame_selected 4f
        jnc     6f
        xorl    %esi, %esi
        testb   ${COUNTS}, everycall_frames + {ON}(%rip)
        jz      1b
    4:  xorl    %esi, %esi
        everycall_save
        everycall_load_control
        testb   ${COUNTS}, everycall_frames + {ON}(%rip)
        jz      everycall_slow_frame_entry_without_slot
        cmpq    $0, everycall_frames + {TIMES}(%rip)
        jne     everycall_slow_frame_entry_without_slot
        jmp     everycall_slow_count_frame_without_slot
    6:  .cfi_adjust_cfa_offset -32
        ret
    everycall_function_end everycall_frame_enter

    everycall_function everycall_frame_leave
        movq    %rdi, %r10
        shlq    ${FRAME_SHIFT}, %rdi
        xorl    %esi, %esi
        cmpq    $1, everycall_frames + {ON}(%rip)
        jne     3f
    1:  everycall_prologue frame_exit
        movq    $0, {STAMP_DUE}(%rcx)               # this event has a stamp: the next one needs one, too
        movq    {OPEN_TOP}(%rcx), %rdx
        movl    %eax, {UPPER_HALF}(%rsi)
        cmpq    ${FRAME_IDS}, %r10
        jae     everycall_slow_frame_exit           # an address
        leaq    -8(%rsp), %r8
        cmpq    %r8, {CALL_POINTER} - {CALL_SIZE}(%rdx)
        jb      everycall_slow_frame_exit           # a dead frame
        subl    {CALL_WORD} + {UPPER_HALF} - {CALL_SIZE}(%rdx), %eax
        cmpl    {FLOOR}(%rcx), %eax
        jae     everycall_slow_judge_frame_exit
    .Leverycall_keep_frame_exit:
        leal    {FRAME_FIRST}(%rdi), %eax
        cmpl    %eax, {CALL_WORD} - {CALL_SIZE}(%rdx)
        jne     everycall_slow_frame_exit
        orl     ${EXIT_BIT}, %eax
        movl    %eax, (%rsi)
        movq    $0, {CALL_WORD} - {CALL_SIZE}(%rdx)
        subq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        everycall_epilogue
    3:  .cfi_adjust_cfa_offset -32
        jb      4f
        everycall_is_frame_selected 5f
        jnc     4f
        xorl    %esi, %esi
        testb   ${COUNTS}, everycall_frames + {ON}(%rip)
        jz      1b
    5:  cmpq    $0, everycall_frames + {TIMES}(%rip)
        jne     6f
        testb   ${COUNTS}, everycall_frames + {ON}(%rip)
        jnz     4f                                  # counts need no exits
    6:  xorl    %esi, %esi                          # times, or an address
        everycall_save
        everycall_load_control
        jmp     everycall_slow_frame_exit_without_slot
    4:  .cfi_adjust_cfa_offset -32
        ret
    everycall_function_end everycall_frame_leave
        "
    };
}
#[cfg(any(feature = "executable", feature = "shared"))]
pub(super) use frames_asm;

/// Their ways into the slow path.
#[cfg(any(feature = "executable", feature = "shared"))]
macro_rules! frames_ways {
    () => {
        "
    everycall_slow_way frame_entry, {BODY} + {FRAME}, body
    everycall_slow_way frame_exit, {EXIT} + {BODY} + {FRAME}, body
    everycall_slow_way count_frame, {BODY} + {COUNT} + {FRAME}, body
    everycall_judge_way frame_exit
    everycall_elsewhere_way frame_entry
    everycall_elsewhere_way frame_exit
        "
    };
}
#[cfg(any(feature = "executable", feature = "shared"))]
pub(super) use frames_ways;
