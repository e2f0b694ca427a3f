//! The hooks, made of the parts beside this file: order and numbers.
#![allow(unsafe_code)] // Assembly.

use super::body::body_asm;
use super::counts::counts_asm;
use super::frame::{FRAME, HOOK_BELOW, REGISTERS, VECTORS_AT};
#[cfg(any(feature = "executable", feature = "shared"))]
use super::frames::{frames_asm, frames_ways};
use super::saving::saving_asm;
use super::sites::sites_asm;
use super::slow_path::{slow_path_asm, ways_asm};
use crate::descriptor::{
    BLOCKED_SIGNALS, COUNT_ALL, COUNTS, ModuleDescriptor, SLOW_FRAME_SIZE, SLOW_STACKS, THREAD_HOME, slow,
};
use core::arch::global_asm;
use core::mem::offset_of;
use everycall_format::arena::OpenCall;
use everycall_format::event;
#[cfg(any(feature = "executable", feature = "shared"))]
use everycall_format::frame;
use everycall_ring::{Control, left_out, state};

// Hooks reserve slots, and store the words of open calls, at these fields without an offset.
const _: () = assert!(offset_of!(Control, position) == 0 && offset_of!(OpenCall, word) == 0);
const _: () = assert!(offset_of!(Control, stack_high) == offset_of!(Control, stack_low) + 8);

// The offset of the thread-local slot is a constant in executables, and read from the descriptor in
// shared objects.
#[cfg(feature = "executable")]
macro_rules! load_control {
    () => {
        "
    .macro everycall_load_slot offset
        mrs     x10, tpidr_el0
        add     x10, x10, #:tprel_hi12:everycall_thread, lsl #12
        ldr     x10, [x10, #:tprel_lo12_nc:everycall_thread + \\offset]
    .endm
    "
    };
}
#[cfg(not(feature = "executable"))]
macro_rules! load_control {
    () => {
        "
    .macro everycall_load_slot offset
        mrs     x10, tpidr_el0
        adrp    x11, everycall_module
        ldr     x11, [x11, #:lo12:everycall_module + {THREAD_SLOT}]
        .ifc \\offset, 0
        ldr     x10, [x10, x11]
        .else
        add     x10, x10, x11
        ldr     x10, [x10, #\\offset]
        .endif
    .endm
    "
    };
}
macro_rules! load_either {
    () => {
        "
    .macro everycall_load_control
        everycall_load_slot 0
    .endm
    .macro everycall_load_home
        everycall_load_slot {HOME}
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
        assemble!($($text,)*; THREAD_SLOT = const offset_of!(ModuleDescriptor, thread_slot),);
    };
}

#[cfg(any(feature = "executable", feature = "shared"))]
macro_rules! assemble_with_frames {
    ($($text:expr,)*; $($operand:tt)*) => {
        assemble!(
            $($text,)* frames_asm!(), frames_ways!(),;
            $($operand)*
            FRAME_FLAG = const slow::FRAME,
            FRAME_IDS = const frame::IDS,
            FRAME_SHIFT = const frame::STEP.ilog2(),
            ABI = const offset_of!(ModuleDescriptor, abi),
        );
    };
}

macro_rules! assemble {
    ($($text:expr,)*; $($operand:tt)*) => {
        global_asm!(
            load_control!(),
            load_either!(),
            $($text,)*
            $($operand)*
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
            SHORT_COUNTS = const offset_of!(Control, short_counts),
            STAMP_DUE = const offset_of!(Control, stamp_due),
            ALL_CALLS = const offset_of!(Control, counts),
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
            TIMES = const offset_of!(ModuleDescriptor, times),
            PLACES = const offset_of!(ModuleDescriptor, places),
            RECORDED_PLACES = const offset_of!(ModuleDescriptor, recorded_places),
            CALL_WORD = const offset_of!(OpenCall, word),
            CALL_POINTER = const offset_of!(OpenCall, stack_pointer),
            CALL_TICKS_HIGH = const offset_of!(OpenCall, ticks_high),
            CALL_SIZE = const size_of::<OpenCall>(),
            WORD_SIZE = const event::WORD_SIZE,
            UPPER_HALF = const event::WORD_SIZE / 2,
            EXIT_BIT = const event::EXIT,
            EXIT = const slow::EXIT,
            BODY = const slow::BODY,
            PUSHED = const slow::PUSHED,
            COUNT = const slow::COUNT,
            COUNTS_BIT = const COUNTS.ilog2(),
            COUNT_ALL = const COUNT_ALL,
            HOME = const THREAD_HOME,
            HOOK_BELOW = const HOOK_BELOW,
            FRAME = const FRAME,
            REGISTERS = const REGISTERS,
            VECTORS_AT = const VECTORS_AT,
            SIGPROCMASK = const super::number::RT_SIGPROCMASK,
            BLOCKED_SIGNALS = const BLOCKED_SIGNALS.cast_signed(),
        );
    };
}

hooks_asm! {
    saving_asm!(),
    sites_asm!(),
    body_asm!(),
    counts_asm!(),
    ways_asm!(),
    slow_path_asm!(),
}
