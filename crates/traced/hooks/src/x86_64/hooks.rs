//! The hooks, made of the parts beside this file: order and numbers.
#![allow(unsafe_code)] // Assembly.

use super::body::body_asm;
use super::capture;
use super::copying::{self, capture_asm};
use super::counts::counts_asm;
#[cfg(any(feature = "executable", feature = "shared"))]
use super::frames::{frames_asm, frames_ways};
use super::saving::saving_asm;
use super::sites::{sites_asm, tail_exit_asm};
use super::slow_path::{slow_path_asm, ways_asm};
use super::times::times_asm;
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
    saving_asm!(),
    sites_asm!(),
    unstamped_asm!(),
    tail_exit_asm!(),
    capture_asm!(),
    body_asm!(),
    times_asm!(),
    counts_asm!(),
    ways_asm!(),
    slow_path_asm!(),
}
