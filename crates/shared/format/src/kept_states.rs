//! The newest scheduling events of a process in its arena, so that they are in a core, and there
//! when the recorder was killed.

use crate::arena::ClockReading;
use crate::sched::{KEPT_EVENTS, KEPT_EVENTS_AT};
use crate::wire::{Wire, wire_struct};

/// "everysts".
pub const KEPT_MAGIC: u64 = u64::from_le_bytes(*b"everysts");
/// Of events that newer ones have overwritten, those that are left out behind them: the recorder
/// may go on writing while a core is written.
pub const KEPT_SLACK: u32 = KEPT_EVENTS / 16;
/// Limit on bytes of the text.
pub const KEPT_TEXT_MAX: usize = KEPT_EVENTS_AT as usize - KeptHeader::SIZE;

wire_struct! {
    /// Begins their part of the arena. The text follows, then, at [`KEPT_EVENTS_AT`], the events:
    /// number `n` at place `n` modulo [`KEPT_EVENTS`]. Only the recorder writes this; the traced
    /// process could.
    pub struct KeptHeader [104] {
        /// [`KEPT_MAGIC`].
        pub magic: u64,
        /// Bytes of this structure.
        pub record_size: u32,
        /// Bytes of each event.
        pub event_size: u32,
        /// One of [`crate::sched::source`].
        pub source: u32,
        /// One of [`crate::sched::clock`].
        pub clock: u32,
        /// As in [`crate::sched::SchedRecord`].
        pub text_length: u32,
        /// Zero.
        pub reserved: u32,
        /// Events that were written or are being written, from the first one on.
        pub begun: u64,
        /// Events that were written.
        pub written: u64,
        /// The kernel's events up to this time are here, by [`KeptHeader::clock`].
        pub until: u64,
        /// All clocks at that moment.
        pub reading: ClockReading,
        /// [`KeptHeader::sum`]; something else while the fields from `written` on are being
        /// written.
        pub check: u64,
    }
}

impl KeptHeader {
    /// The sum of the fields that are written together.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.written
            .wrapping_add(self.until)
            .wrapping_add(self.reading.ticks)
            .wrapping_add(self.reading.monotonic_raw_ns)
            .wrapping_add(KEPT_MAGIC)
    }
}
