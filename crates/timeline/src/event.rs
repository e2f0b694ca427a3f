//! What a thread's timeline consists of.

use crate::location::Location;

/// One step of a thread's timeline, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineEvent {
    /// A call begins.
    Begin(Begin),
    /// A call ends: the innermost one that has begun and not ended.
    End(End),
    /// Events are missing.
    Loss(Loss),
    /// Something happened at one moment.
    Instant(Instant),
}

impl TimelineEvent {
    /// When it happened, in nanoseconds since the origin. Never less than the one before it in its
    /// thread.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        match self {
            TimelineEvent::Begin(begin) => begin.start_ns,
            TimelineEvent::End(end) => end.end_ns,
            TimelineEvent::Loss(loss) => loss.at_ns,
            TimelineEvent::Instant(instant) => instant.at_ns,
        }
    }
}

/// A call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Calls around it, as far as they are known.
    pub depth: u32,
    /// Where: an address in the function.
    pub location: Location,
    /// When, in nanoseconds since the origin.
    pub start_ns: u64,
    /// It began earlier than that: its entry is not in the trace.
    pub cut: bool,
}

/// A call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// As in its [`Begin`].
    pub depth: u32,
    /// As in its [`Begin`].
    pub location: Location,
    /// As in its [`Begin`], in nanoseconds since the origin.
    pub start_ns: u64,
    /// When, in nanoseconds since the origin.
    pub end_ns: u64,
    /// How it ended.
    pub how: EndKind,
    /// It began earlier than `start_ns`.
    pub start_cut: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndKind {
    /// By its exit.
    Returned,
    /// Its frame was left without an exit: exception, longjmp, end of the thread. The moment is when
    /// that was noticed.
    Unwound,
    /// It had not ended at the end of the trace.
    CutAtEnd,
    /// Events are missing from here on, and whether it had ended after them is not known.
    CutAtLoss,
    /// Its exit is missing though it must have ended by now.
    ExitLost,
}

/// Events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where the gap is noticed, in nanoseconds since the origin.
    pub at_ns: u64,
    /// How many; `None` where nobody counted.
    pub count: Option<u64>,
    /// Why.
    pub why: LossKind,
}

/// Why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossKind {
    /// A hook was left before it wrote the slot that it had reserved.
    Hole,
    /// The slow path was busy.
    Busy,
    /// Segments in the middle are missing or damaged.
    Segments,
    /// A reason that this version doesn't know.
    Other(u8),
}

/// Something happened at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// When, in nanoseconds since the origin.
    pub at_ns: u64,
    /// What.
    pub kind: InstantKind,
}

/// What happened at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstantKind {
    /// An exit whose entry the runtime did not know. It closes nothing.
    OrphanExit(Location),
    /// An exit that fits none of the calls that are open. It closes nothing.
    UnmatchedExit(Location),
}
