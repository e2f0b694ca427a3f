//! Scheduling events of the kernel, as stored in the trace file and in arenas: when threads ran.

use crate::wire::{PAGE, wire_struct};

/// The source of scheduling events.
pub mod source {
    /// There was none; the record's text says why.
    pub const NONE: u32 = 0;
    /// `perf_event_open` with `context_switch`: when a thread was put on a CPU and taken off it,
    /// and whether it was still runnable. Which thread woke it, and when, is unknown.
    pub const PERF: u32 = 1;
    /// An instance of tracefs: also the state in which a thread was taken off, and which thread
    /// woke it when.
    pub const TRACEFS: u32 = 2;
    /// Both: switches are those of `perf_event_open`, wake-ups those of tracefs. Since version 2.9.
    pub const PERF_AND_TRACEFS: u32 = 3;
    /// Samples of `/proc/PID/task/TID/schedstat`. Since version 2.9.
    pub const SCHEDSTAT: u32 = 4;
}

/// The clock of scheduling events.
pub mod clock {
    /// Ticks, as in the events of threads.
    pub const TICKS: u32 = 1;
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW`.
    pub const MONOTONIC_RAW: u32 = 2;
}

/// Kinds of scheduling events.
pub mod kind {
    /// The thread was put on the CPU.
    pub const ON: u8 = 1;
    /// The thread was taken off the CPU; `state` is one of [`super::state`]. Since version 2.10,
    /// `other` is one more than the number of the system call in which it then waited; 0 if that
    /// isn't known. Where it is known, the event comes twice, first without it; so does one whose
    /// `state` is [`super::state::BLOCKED`] at first, if it is found out later. With
    /// [`super::source::SCHEDSTAT`]: the thread waited in that call at `time`, and at the next
    /// sample.
    pub const OFF: u8 = 2;
    /// The thread was woken: from now on it is runnable. `other` is the thread that woke it; 0 if
    /// none did.
    pub const WOKEN: u8 = 3;
    /// The thread ended.
    pub const ENDED: u8 = 4;
    /// `other` events of this CPU were lost between its previous event and this one.
    pub const LOST: u8 = 5;
    /// `other` wake-ups of this CPU were lost: threads count as blocked until they ran again.
    /// Since version 2.9.
    pub const WAKEUPS_LOST: u8 = 6;
    /// The thread's CPU time was read, between `cpu` microseconds before `time` and `time`. It had
    /// run `other` nanoseconds since the sample before, by the kernel's count, which
    /// [`u32::MAX`] and more don't fit in; `state` is a set of [`super::sample`]. Since version
    /// 2.9.
    pub const SAMPLE: u8 = 7;
    /// A part of a rename: the thread got another name at `time`. Its id is `tid` less
    /// [`super::NAMED`]. `other` has four bytes of a name, the first one lowest, and `state` says
    /// which: 0 to 3 the name before, all zero if it isn't known, 4 to 7 the new one. The eight
    /// parts are in this order. Since version 2.11.
    pub const RENAMED: u8 = 8;
}

/// Added to the thread's id in events of [`kind::RENAMED`]: for readers that don't know them, they
/// are of threads that don't exist.
pub const NAMED: u32 = 1 << 31;
/// Parts of a rename.
pub const RENAME_PARTS: usize = 8;

/// The events that say that the thread of `event` was renamed then, from the first name to the
/// second.
#[must_use]
pub fn rename(event: SchedEvent, before: [u8; 16], name: [u8; 16]) -> [SchedEvent; RENAME_PARTS] {
    let words = [before, name].map(u128::from_le_bytes);
    core::array::from_fn(|part| SchedEvent {
        tid: event.tid | NAMED,
        kind: kind::RENAMED,
        state: part as u8,
        other: (words[part / 4] >> (32 * (part % 4))) as u32,
        ..event
    })
}

/// Flags of a sample.
pub mod sample {
    /// Since the sample before, it wasn't put on a CPU.
    pub const NOT_PUT_ON: u8 = 1;
    /// It waited, and had done so for some time: it was on no CPU.
    pub const WAITS: u8 = 2;
}

/// The state in which a thread was taken off its CPU.
pub mod state {
    /// It was still runnable.
    pub const RUNNABLE: u8 = 0;
    /// It waits, in an unknown way.
    pub const BLOCKED: u8 = 1;
    /// It waits, and a signal would wake it.
    pub const SLEEPING: u8 = 2;
    /// It waits, mostly for a disk, and no signal wakes it.
    pub const UNINTERRUPTIBLE: u8 = 3;
    /// It was stopped by a signal or a debugger.
    pub const STOPPED: u8 = 4;
    /// It has ended.
    pub const DEAD: u8 = 5;
}

wire_struct! {
    /// Begins a SCHED chunk; the text and the events follow it.
    pub struct SchedRecord [48] {
        /// Bytes of this record.
        pub record_size: u32,
        /// One of [`source`].
        pub source: u32,
        /// One of [`clock`].
        pub clock: u32,
        /// Bytes of each event.
        pub event_size: u32,
        /// Number of events.
        pub events: u64,
        /// Events before these that newer ones have overwritten: nothing is known about the time
        /// before the first event.
        pub overwritten: u64,
        /// Bytes of the text, which says what the source doesn't provide, and why no better one was
        /// used. The text is padded to a multiple of 8.
        pub text_length: u32,
        /// Zero.
        pub reserved: u32,
        /// Nothing is known of the time behind this, by the chunk's clock; 0 if the events reach to
        /// the end of what was recorded. Since version 2.10.
        pub until: u64,
    }
}

wire_struct! {
    /// A scheduling event.
    pub struct SchedEvent [24] {
        /// Its time, by the chunk's clock.
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

/// Scheduling events that an [arena](crate::kept_states) has room for.
pub const KEPT_EVENTS: u32 = 1 << 15;
/// Where the events begin in their part of the arena, behind the header and the text.
pub const KEPT_EVENTS_AT: u64 = PAGE;
/// Bytes of this part of an arena.
pub const KEPT_SIZE: u64 = KEPT_EVENTS_AT + KEPT_EVENTS as u64 * size_of::<SchedEvent>() as u64;

/// Begins the name of the abstract socket of a recorder that records scheduling events; its process
/// id follows. A client sends a [`SchedRequest`] and receives the payload of a SCHED chunk, then
/// the end of the stream.
pub const SOCKET: &str = "everycall-states-";

wire_struct! {
    /// Asks a recorder for the scheduling events of a process.
    pub struct SchedRequest [24] {
        /// The [start](crate::arena::ArenaHeader::start) of the process's arena, ticks, by which
        /// the recorder knows it.
        pub start_ticks: u64,
        /// The first moment that is wanted, ticks.
        pub since_ticks: u64,
        /// The first moment that is wanted, by `CLOCK_MONOTONIC_RAW`, nanoseconds.
        pub since_raw_ns: u64,
    }
}
