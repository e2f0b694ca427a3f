//! The cost of hooks, as the traced process measured it at its start: in its arena, and in a chunk
//! of the trace file.
//!
//! ```text
//!   caller         | entry hook            | callee        | exit hook             | caller
//!   ...............+-------stamp-----------+...............+-------stamp-----------+.........
//!                   outside | inside                        inside | outside
//! ```
//!
//! An entry and an exit together cost a call `inside` in its own duration, and its caller
//! `outside`. In programs, a hook costs more or less than in a loop, because the processor runs it
//! beside the code around it. So a price is a range: the low end was measured with calls that do
//! work which the processor can't predict, the high end with calls that do nothing.

use crate::arena::{PINNERS, PINNERS_OFFSET, PinnerEntry};
use crate::crash::CRASH_OFFSET;
use crate::wire::wire_struct;

/// Where a process's calibration is in its arena: behind the table of pinners. All zero if there is
/// none.
pub const CALIBRATION_OFFSET: u64 = PINNERS_OFFSET + PINNERS as u64 * size_of::<PinnerEntry>() as u64;

wire_struct! {
    /// A cost, in thousandths of a tick.
    pub struct Price [12] {
        /// At the least.
        pub low: u32,
        /// The best single figure.
        pub value: u32,
        /// At the most.
        pub high: u32,
    }
}

wire_struct! {
    /// The cost of a call's two hooks.
    pub struct HookPrices [24] {
        /// Between the two stamps.
        pub inside: Price,
        /// Before the entry's stamp, and after the exit's.
        pub outside: Price,
    }
}

wire_struct! {
    /// The cost of a process's hooks.
    pub struct Calibration [88] {
        /// Bytes of this record; 0 if nothing was measured.
        pub record_size: u32,
        /// One of [`calibration_state`].
        pub state: u32,
        /// Hooks at a function's first instruction and before its return: `nops`, `xray` and
        /// `fentry`.
        pub sites: HookPrices,
        /// Hooks in a function's body: `finstrument` and `after-inlining`.
        pub bodies: HookPrices,
        /// Hooks of [frames by id](crate::frame), without what the program does to report them.
        pub frames: HookPrices,
        /// CPU time that the process took in all, with its runtime's start, nanoseconds; 0 if it
        /// isn't known. Only in files.
        pub cpu_ns: u64,
    }
}

/// [`Calibration::state`].
pub mod calibration_state {
    /// The prices are known.
    pub const MEASURED: u32 = 1;
    /// They could not be measured: the figures of the rounds contradict each other.
    pub const FAILED: u32 = 2;
}

const _: () = assert!(CALIBRATION_OFFSET + size_of::<Calibration>() as u64 <= CRASH_OFFSET);
