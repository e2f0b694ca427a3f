//! What the kernel told about when threads ran: scheduling events, as the trace file has them.

use crate::wire::wire_struct;

/// Where scheduling events came from.
pub mod source {
    /// Nowhere: the header's text says why.
    pub const NONE: u32 = 0;
    /// `perf_event_open` with `context_switch`: when a thread was put on a CPU and taken off it, and
    /// whether it could have run on. Who woke it, and when, isn't known.
    pub const PERF: u32 = 1;
    /// An instance of tracefs: also in which state a thread was taken off, and who woke it when.
    pub const TRACEFS: u32 = 2;
}

/// What the times of scheduling events are.
pub mod clock {
    /// Ticks, as events of threads have them.
    pub const TICKS: u32 = 1;
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW`.
    pub const MONOTONIC_RAW: u32 = 2;
}

/// What a scheduling event says.
pub mod kind {
    /// The thread was put on the CPU.
    pub const ON: u8 = 1;
    /// It was taken off; `state` is one of [`super::state`].
    pub const OFF: u8 = 2;
    /// It was woken: from now on it could run. `other` is the thread that woke it; 0 if none did.
    pub const WOKEN: u8 = 3;
    /// It ended.
    pub const ENDED: u8 = 4;
    /// Events of this CPU were lost before this one, since the event of this CPU before it: `other` of
    /// them.
    pub const LOST: u8 = 5;
}

/// In which state a thread was taken off its CPU.
pub mod state {
    /// It could have run on.
    pub const RUNNABLE: u8 = 0;
    /// It waits, in which way isn't known.
    pub const BLOCKED: u8 = 1;
    /// It waits, and a signal would wake it.
    pub const SLEEPING: u8 = 2;
    /// It waits, for a disk mostly, and no signal wakes it.
    pub const UNINTERRUPTIBLE: u8 = 3;
    /// It was stopped by a signal or a debugger.
    pub const STOPPED: u8 = 4;
    /// It has ended.
    pub const DEAD: u8 = 5;
}

wire_struct! {
    /// Begins a SCHED chunk; the text and the events are behind it.
    pub struct SchedRecord [48] {
        /// Bytes of this record.
        pub record_size: u32,
        /// One of [`source`].
        pub source: u32,
        /// One of [`clock`].
        pub clock: u32,
        /// Bytes of each event.
        pub event_size: u32,
        /// Events.
        pub events: u64,
        /// Events that were overwritten by newer ones before these: earlier than the first one,
        /// nothing is known.
        pub overwritten: u64,
        /// Bytes of the text, which says what the source can't tell and why no better one was there;
        /// padded to a multiple of 8.
        pub text_length: u32,
        /// Zero.
        pub reserved: [u32; 3],
    }
}

wire_struct! {
    /// A scheduling event.
    pub struct SchedEvent [24] {
        /// When it was, by the chunk's clock.
        pub time: u64,
        /// The thread's process id.
        pub pid: u32,
        /// The thread's id.
        pub tid: u32,
        /// Depends on [`kind`].
        pub other: u32,
        /// The CPU.
        pub cpu: u16,
        /// One of [`kind`].
        pub kind: u8,
        /// One of [`state`].
        pub state: u8,
    }
}
