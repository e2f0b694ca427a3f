//! The hooks, and how they enter the slow path.
#![allow(unsafe_code)] // Assembly.

use super::capture;
use super::copying::{self, capture_asm};
#[cfg(any(feature = "executable", feature = "shared"))]
use super::frames::{frames_asm, frames_ways};
use super::unstamped::unstamped_asm;
use crate::descriptor::{
    BLOCKED_SIGNALS, CAPTURES, COPY_PAGES, COUNT_ALL, COUNTS, CapturePlace, CapturePlaces, Copies, CopyItem,
    CopyTest, ModuleDescriptor, SLOW_FRAME_SIZE, SLOW_STACKS, ShortMap, THREAD_HOME, TRAP_SIGNAL, copied,
    copies, short_map, site, slow,
};
use core::arch::global_asm;
use core::mem::offset_of;
use everycall_format::arena::{EXIT_WITHOUT_STAMP, OpenCall};
use everycall_format::times::{STAMP_OPENED_BIT, STAMP_PLACE, TimeSums};
use everycall_format::{event, frame};
use everycall_ring::{Control, left_out, state};

// The offset of the thread-local slot is a constant in executables, and read from the descriptor in
// shared objects.
#[cfg(feature = "executable")]
macro_rules! load_control {
    () => {
        "
    .macro everycall_load_control
        movq    %fs:everycall_thread@tpoff, %rcx
    .endm
    .macro everycall_load_home
        movq    %fs:everycall_thread@tpoff + {HOME}, %rcx
    .endm

    "
    };
}
#[cfg(not(feature = "executable"))]
macro_rules! load_control {
    () => {
        "
    .macro everycall_load_control
        movq    everycall_module + {THREAD_SLOT}(%rip), %rcx
        movq    %fs:(%rcx), %rcx
    .endm
    .macro everycall_load_home
        movq    everycall_module + {THREAD_SLOT}(%rip), %rcx
        movq    %fs:{HOME}(%rcx), %rcx
    .endm
    "
    };
}

#[cfg(feature = "executable")]
macro_rules! hooks_asm {
    ($($text:expr,)*) => { assemble_with_frames!($($text,)*;); };
}
#[cfg(feature = "shared")]
macro_rules! hooks_asm {
    ($($text:expr,)*) => {
        assemble_with_frames!($($text,)*; THREAD_SLOT = const offset_of!(ModuleDescriptor, thread_slot),);
    };
}
// The hooks of frames by id are the runtime's.
#[cfg(feature = "module")]
macro_rules! hooks_asm {
    ($($text:expr,)*) => {
        assemble!(load_control!(), $($text,)*; THREAD_SLOT = const offset_of!(ModuleDescriptor, thread_slot),);
    };
}

#[cfg(any(feature = "executable", feature = "shared"))]
macro_rules! assemble_with_frames {
    ($($text:expr,)*; $($operand:tt)*) => {
        assemble!(
            load_control!(), $($text,)* frames_asm!(), frames_ways!(),;
            $($operand)*
            FRAME = const slow::FRAME,
            FRAME_IDS = const frame::IDS,
            FRAME_OFFSETS = const frame::IDS * frame::STEP,
            FRAME_SHIFT = const frame::STEP.ilog2(),
            OFFSETS = const event::OFFSET_MASK,
            ABI = const offset_of!(ModuleDescriptor, abi),
        );
    };
}

macro_rules! assemble {
    ($($text:expr,)*; $($operand:tt)*) => {
        global_asm!(
            $($text,)*
            $($operand)*
            POSITION = const offset_of!(Control, position),
            END = const offset_of!(Control, end),
            OPEN_TOP = const offset_of!(Control, open_top),
            TICKS_HIGH = const offset_of!(Control, ticks_high),
            STATE = const offset_of!(Control, state),
            STACK_LOW = const offset_of!(Control, stack_low),
            STACK_HIGH = const offset_of!(Control, stack_high),
            STACK_END = const offset_of!(Control, stack_end),
            LEFT_OUT = const offset_of!(Control, left_out),
            AT_ONCE = const left_out::AT_ONCE,
            FLOOR = const offset_of!(Control, floor),
            SHORT = const offset_of!(Control, short),
            TRIGGER_FLOOR = const offset_of!(Control, trigger_floor),
            SHORT_MAP = const offset_of!(Control, short_map),
            SHORT_COUNTS = const offset_of!(Control, short_counts),
            ALL_CALLS = const offset_of!(Control, counts),
            OTHER_WORDS = const offset_of!(Control, other_words),
            MAP_FULL = const offset_of!(ShortMap, is_full),
            MAP_ENTRIES = const offset_of!(ShortMap, entries),
            MAP_FACTOR = const short_map::FACTOR,
            MAP_SHIFT = const short_map::SHIFT,
            MAP_SIZE = const short_map::SIZE,
            PLACE_MASK = const everycall_format::dropped::FUNCTIONS - 1,
            FILLER = const event::record_word(0, event::kind::FILLER, 0, 0),
            OFF = const state::OFF,
            BIAS_ENTRY = const offset_of!(ModuleDescriptor, bias_entry),
            BIAS_EXIT = const offset_of!(ModuleDescriptor, bias_exit),
            ON = const offset_of!(ModuleDescriptor, on),
            SLOW = const offset_of!(ModuleDescriptor, slow),
            SLOW_STACKS = const offset_of!(ModuleDescriptor, slow_stacks),
            SLOW_FRAME_SIZE = const SLOW_FRAME_SIZE,
            SLOW_STACKS_SIZE = const SLOW_STACKS * size_of::<u64>(),
            START = const offset_of!(ModuleDescriptor, start),
            SIZE = const offset_of!(ModuleDescriptor, size),
            CALL_WORD = const offset_of!(OpenCall, word),
            CALL_POINTER = const offset_of!(OpenCall, stack_pointer),
            CALL_TICKS_HIGH = const offset_of!(OpenCall, ticks_high),
            CALL_STAMP = const offset_of!(OpenCall, stamp),
            CALL_SIZE = const size_of::<OpenCall>(),
            OPEN_BASE = const offset_of!(Control, open_base),
            OPEN_LIMIT = const offset_of!(Control, open_limit),
            TIMES = const offset_of!(ModuleDescriptor, times),
            CALLS = const offset_of!(TimeSums, calls),
            TOTAL = const offset_of!(TimeSums, total),
            NESTED = const offset_of!(TimeSums, nested),
            OWN = const offset_of!(TimeSums, own),
            SHORTEST = const offset_of!(TimeSums, shortest),
            LONGEST = const offset_of!(TimeSums, longest),
            OUTERMOST = const offset_of!(TimeSums, outermost),
            USUAL = const offset_of!(TimeSums, usual),
            HISTOGRAM = const offset_of!(TimeSums, histogram),
            MEMORY_TOTAL = const offset_of!(TimeSums, memory_total),
            STAMP_PLACE = const STAMP_PLACE,
            STAMP_OPENED_BIT = const STAMP_OPENED_BIT,
            WORD_SIZE = const event::WORD_SIZE,
            UPPER_HALF = const event::WORD_SIZE / 2,
            EXIT_BIT = const event::EXIT,
            EXIT = const slow::EXIT,
            BODY = const slow::BODY,
            COUNT = const slow::COUNT,
            COUNTS = const COUNTS,
            CAPTURES = const CAPTURES,
            COUNT_ALL = const COUNT_ALL,
            PLACES = const offset_of!(ModuleDescriptor, places),
            RECORDED_PLACES = const offset_of!(ModuleDescriptor, recorded_places),
            UNSTAMPED = const offset_of!(ModuleDescriptor, unstamped),
            CAPTURE = const offset_of!(ModuleDescriptor, capture),
            CAPTURE_FLOOR = const offset_of!(Control, capture_floor),
            CAPTURE_END = const offset_of!(Control, capture_end),
            CALLS_LEFT_OUT = const offset_of!(Control, calls_left_out),
            RESUMED = const offset_of!(Control, resumed),
            DEEP = const offset_of!(Control, deep),
            CAPTURES_AT = const offset_of!(ModuleDescriptor, captures),
            PLACES_TABLE = const offset_of!(CapturePlaces, table),
            PLACES_MASK = const offset_of!(CapturePlaces, mask),
            PLACES_FACTOR = const CapturePlaces::FACTOR.cast_signed(),
            PLACES_SHIFT = const CapturePlaces::SHIFT,
            PLACE_BEHIND = const offset_of!(CapturePlace, behind),
            PLACE_COPIES = const offset_of!(CapturePlace, copies),
            COPIES_FIRST_WORD = const offset_of!(Copies, first_word),
            COPIES_ID = const offset_of!(Copies, id),
            COPIES_FLAGS = const offset_of!(Copies, flags),
            COPIES_TESTS = const offset_of!(Copies, tests),
            COPIES_ITEMS = const offset_of!(Copies, items),
            COPIES_WORDS = const offset_of!(Copies, words),
            COPIES_BYTES = const offset_of!(Copies, bytes),
            COPIES_PAGES = const offset_of!(Copies, pages),
            COPIES_SIZE = const size_of::<Copies>(),
            AT_EXIT = const copies::EXIT,
            CONDITIONAL = const copies::CONDITIONAL,
            VECTORS = const copies::VECTORS,
            WORDS = const copies::WORDS,
            TEST_AT = const offset_of!(CopyTest, at),
            TEST_FACTOR = const offset_of!(CopyTest, factor),
            TEST_FIRST = const offset_of!(CopyTest, first),
            TEST_SPAN = const offset_of!(CopyTest, span),
            TEST_SIZE = const size_of::<CopyTest>(),
            ITEM_AT = const offset_of!(CopyItem, at),
            ITEM_SIZE = const offset_of!(CopyItem, size),
            ITEM_WHAT = const offset_of!(CopyItem, what),
            ITEM_BYTES = const size_of::<CopyItem>(),
            COPIED_WORD = const copied::WORD,
            COPIED_TEXT = const copied::TEXT,
            PAGES_MASK = const COPY_PAGES - 1,
            COPY_FRAME = const capture::FRAME,
            COPY_TICKS = const capture::TICKS,
            COPY_END = const capture::END,
            COPY_VECTORS = const capture::VECTORS,
            COPY_SAVED = const capture::SAVED,
            PRESENT = const everycall_format::capture::status::PRESENT,
            TEXT_HEAD = const 1 + size_of::<everycall_format::capture::TextHeader>(),
            TEXT_NULL = const copying::text_flags(everycall_format::capture::text_flag::NULL),
            TEXT_CUT = const copying::text_flags(everycall_format::capture::text_flag::CUT),
            HEAD_WORDS = const copying::HEAD_WORDS,
            PAYLOAD = const copying::PAYLOAD.cast_signed(),
            STAMP_AFTER = const offset_of!(Control, stamp_after),
            GUARD_OFFSET = const offset_of!(ModuleDescriptor, guard_offset),
            GUARD = const offset_of!(ModuleDescriptor, guard),
            STAMP_DUE = const offset_of!(Control, stamp_due),
            SIGNATURE = const super::guard::SIGNATURE,
            SITE_ENTRY = const site::ENTRY,
            SITE_EXIT = const EXIT_WITHOUT_STAMP,
            SITE_COUNT = const site::COUNT,
            LAST_STAMP = const offset_of!(Control, last_stamp),
            HOME = const THREAD_HOME,
            PUSHED = const slow::PUSHED,
            FRAME_FIRST = const frame::FIRST,
            BLOCKED_SIGNALS = const BLOCKED_SIGNALS.cast_signed(),
            TRAP_SIGNAL = const TRAP_SIGNAL,
            options(att_syntax),
        );
    };
}

hooks_asm! {
    // Afterwards: four registers on the stack, the control block in rcx, the clock in edx:eax, and
    // the slot in rsi.
    "
    .macro everycall_save
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
    .endm

    # Loads the control block into rcx. Not this stack's? Nothing else of it may be touched.
    .macro everycall_load_own_control what
        everycall_load_control
        testq   %rcx, %rcx
        jz      everycall_slow_\\what\\()_without_slot
        cmpq    {STACK_LOW}(%rcx), %rsp
        jb      everycall_elsewhere_\\what
        cmpq    {STACK_HIGH}(%rcx), %rsp
        jae     everycall_slow_\\what\\()_without_slot
    .endm

    .macro everycall_prologue what
        everycall_save
        everycall_load_own_control \\what
        rdtsc
        movl    ${WORD_SIZE}, %esi
        xaddq   %rsi, {POSITION}(%rcx)              # reserve: one instruction, so no signal splits it
        cmpq    {END}(%rcx), %rsi
        jae     everycall_slow_\\what\\()_without_slot
        cmpl    {TICKS_HIGH}(%rcx), %edx            # after reserving: see the crate's head
        jne     everycall_slow_\\what
    .endm

    .macro everycall_restore
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
    .endm

    .macro everycall_epilogue
        everycall_restore
        ret
        .cfi_adjust_cfa_offset 32
    .endm

    # Pushes an OpenCall except for its word, and takes jump if the frame below is dead. The stack
    # pointer is written before the top is raised, and again afterwards: a signal handler in between
    # may have written its own there. Afterwards rdx is the entry, and the control block is on the
    # stack.
    .macro everycall_push jump, slow
        movq    {OPEN_TOP}(%rcx), %rdx
        movq    %rsp, {CALL_POINTER}(%rdx)
        addq    ${CALL_SIZE}, {OPEN_TOP}(%rcx)
        cmpq    %rsp, {CALL_POINTER} - {CALL_SIZE}(%rdx)   # stack pointer of the entry below
        \\jump  \\slow
        movq    %rsp, {CALL_POINTER}(%rdx)
        shlq    $32, %rax
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        movl    {TICKS_HIGH}(%rcx), %ecx
        movq    %rcx, {CALL_TICKS_HIGH}(%rdx)           # the stamp beside it is 0
    .endm

    # The rest of an entry hook, once the entry is written: counts the call, which no ring forgets.
    # One instruction adds to the count, so a signal handler may count at any point, and a handler
    # that jumps away before it leaves a call that isn't counted. The control block is this stack's,
    # as compared in the prologue, so no other thread adds to its counts. In a forked child, it and
    # the module's table are wiped. So the address of the counts is read first: if it isn't 0 but
    # the place is, the child was forked in between, and the slow path is taken.
    .macro everycall_counted_epilogue address, what
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        movq    {ALL_CALLS}(%rcx), %rsi
        movq    everycall_module + {RECORDED_PLACES}(%rip), %rdx
        testq   %rdx, %rdx
        jz      8f                                  # the module's calls aren't counted
        addq    \\address, %rdx
        movl    (%rdx), %edx                        # offset of the function's count
        testl   %edx, %edx
        jz      everycall_slow_count_\\what\\()_without_slot
        addq    $1, (%rsi, %rdx)
    8:  everycall_epilogue
    .endm

    # Before a call of the runtime: rbx and rbp.
    .macro everycall_push_bases
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
    .endm
    .macro everycall_pop_bases
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
    .endm

    # Then the stack pointer into rbx, and the registers that `Registers` finds below it.
    .macro everycall_keep_registers
        movq    %rsp, %rbx
        .cfi_def_cfa_register %rbx
        pushq   %r12                                # for `Registers::saved`; nothing pops them
        pushq   %r13
        pushq   %r14
        pushq   %r15
        pushq   %r15                                # place of the vector registers: `Registers::vectors`
    .endm

    # All vector registers, at the stack pointer, which is a multiple of 16.
    .macro everycall_save_vectors
        movaps  %xmm0, (%rsp)
        movaps  %xmm1, 16(%rsp)
        movaps  %xmm2, 32(%rsp)
        movaps  %xmm3, 48(%rsp)
        movaps  %xmm4, 64(%rsp)
        movaps  %xmm5, 80(%rsp)
        movaps  %xmm6, 96(%rsp)
        movaps  %xmm7, 112(%rsp)
        movaps  %xmm8, 128(%rsp)
        movaps  %xmm9, 144(%rsp)
        movaps  %xmm10, 160(%rsp)
        movaps  %xmm11, 176(%rsp)
        movaps  %xmm12, 192(%rsp)
        movaps  %xmm13, 208(%rsp)
        movaps  %xmm14, 224(%rsp)
        movaps  %xmm15, 240(%rsp)
    .endm
    .macro everycall_restore_vectors
        movaps  (%rsp), %xmm0
        movaps  16(%rsp), %xmm1
        movaps  32(%rsp), %xmm2
        movaps  48(%rsp), %xmm3
        movaps  64(%rsp), %xmm4
        movaps  80(%rsp), %xmm5
        movaps  96(%rsp), %xmm6
        movaps  112(%rsp), %xmm7
        movaps  128(%rsp), %xmm8
        movaps  144(%rsp), %xmm9
        movaps  160(%rsp), %xmm10
        movaps  176(%rsp), %xmm11
        movaps  192(%rsp), %xmm12
        movaps  208(%rsp), %xmm13
        movaps  224(%rsp), %xmm14
        movaps  240(%rsp), %xmm15
    .endm

    .macro everycall_function name
    .globl  \\name
    .hidden \\name
    .type   \\name, @function
    .p2align 6
\\name:
    .cfi_startproc
    .endm

    # What hooks that are always called continue with, right before the hook of sites, which doesn't
    # test whether events may go without a stamp: sites of such processes lead elsewhere.
    .macro everycall_called_way what
    .globl  everycall_called_\\what
    .hidden everycall_called_\\what
    .type   everycall_called_\\what, @function
    .p2align 6
    .skip   50, 0xcc
everycall_called_\\what:
    .cfi_startproc
        cmpq    $0, everycall_module + {UNSTAMPED}(%rip)
        jne     everycall_unstamped_\\what
    .cfi_endproc
    .size   everycall_called_\\what, . - everycall_called_\\what
    .endm

    .macro everycall_function_end name
    .cfi_endproc
    .size   \\name, . - \\name
    .endm
    ",

    // Hooks that are always called test the module's `on`: 0 is off, 1 is on, and anything else is
    // the address of the module's bits (see `ModuleDescriptor::on`). This macro sets the carry flag
    // if the function is selected. If calls are counted, the address has bit 1 set, and exits do
    // nothing.
    "
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
    ",

    // Entry: called at a function's first instruction.
    "
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

    # What follows the reservation of an entry's slot.
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
    ",

    // Exit: called before a function's `ret`, or before a tail call that no trigger follows.
    "
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
    ",

    unstamped_asm!(),

    // Tail exit of an armed function: always takes the slow path.
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
    ",

    capture_asm!(),

    // __cyg_profile_func_enter(function, call site), from within the function's frame.
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
    ",

    // __cyg_profile_func_exit(function, call site). The frame may have grown since the entry, so
    // the innermost open call is recognised by its function. If its stack pointer is lower than the
    // hook's, it belongs to a dead frame, unless the function has released its frame and jumped
    // here: then the hook's return address is the call site.
    "
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
    ",

    // Hooks of a process that times calls and records nothing. They keep the open-call stack as
    // other hooks do, so the slow path can take over at any point. Their entries' stamps say where
    // the function's times are. Beside the stack, at a fixed distance, each entry has the time of
    // the calls in it that have ended.
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
    ",

    // Counts a call and records nothing. One instruction adds to the count, and nothing else is
    // written, so a signal handler may count at any point. Each thread has its own counts. The
    // control block of the thread's own stack has their address, whichever stack the thread runs:
    // no other thread uses that block.
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
    ",

    // The ways into the slow path: they put `what` into edi, the slot into rsi and the address into
    // r8.
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
    ",

    // edi: what, rcx: control block or null, rsi: slot or null, r8: address. On the stack, lowest
    // first: r8, rdi, rsi, rcx, rdx, rax, return address. A thread that doesn't record returns at
    // once.
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
    ",
}
