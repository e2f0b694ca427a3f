//! The events of a thread's timeline.

use crate::location::Location;
use crate::values::ValuesNumber;

/// One step of a thread's timeline, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineEvent {
    /// A call begins.
    Begin(Begin),
    /// A call ends: the innermost open one.
    End(End),
    /// Events are missing.
    Loss(Loss),
    /// An exit fits nothing.
    Instant(Instant),
    /// The program said something about itself.
    Mark(Mark),
    /// Recording was off. No other event of the thread falls into this time.
    Gap(Gap),
    /// The call that ended last jumped to untraced code. No other event of the thread falls into
    /// this time.
    Untraced(Untraced),
    /// When the calls that begin or end next, at the same time, may have done so.
    Unstamped(Unstamped),
    /// The result of the call that ends next, at the same time.
    Returned(Returned),
}

const _: () = assert!(size_of::<TimelineEvent>() <= 48, "there are many");

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
            TimelineEvent::Mark(mark) => mark.at_ns,
            TimelineEvent::Gap(gap) => gap.at_ns,
            TimelineEvent::Untraced(untraced) => untraced.at_ns,
            TimelineEvent::Unstamped(unstamped) => unstamped.at_ns,
            TimelineEvent::Returned(returned) => returned.at_ns,
        }
    }
}

/// A call begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Calls around it, as far as they are known.
    pub depth: u32,
    /// Where: an address in the function.
    pub location: Location,
    /// When, in nanoseconds since the origin.
    pub start_ns: u64,
    /// It began earlier than that: its entry is not in the trace.
    pub cut: bool,
    /// Whether the call that ended right before it, at the same depth, made it by jumping there.
    pub tail_call: TailCall,
    /// The enclosing call may not be its caller: the call may belong to another stack in the same
    /// memory, or have been made at the end of the thread, after the enclosing call had been
    /// unwound.
    pub caller_unsure: bool,
    /// Its arguments, if they were recorded.
    pub arguments: Option<ValuesNumber>,
}

impl Begin {
    /// The call's end.
    #[must_use]
    pub fn ended(&self, end_ns: u64, how: EndKind) -> End {
        let Begin { depth, location, start_ns, cut: start_cut, .. } = *self;
        End { depth, location, start_ns, end_ns, how, start_cut }
    }
}

/// Whether a call was made by a tail call of another, and takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TailCall {
    /// Nothing says so.
    #[default]
    No,
    /// The call before it jumped, and the code doesn't show where to.
    Perhaps,
    /// The call before it jumped there.
    Yes,
}

/// Behind a tail call into code that isn't traced, until the thread's next event: that code took no
/// longer than this. How long it took isn't measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untraced {
    /// When the call before it jumped, in nanoseconds since the origin.
    pub at_ns: u64,
    /// When the next event came, or the recording ended, in nanoseconds since the origin.
    pub until_ns: u64,
    /// The exit at which the call jumped: the code there shows the target.
    pub exit: Location,
}

/// The events of the thread that follow at `at_ns` have no time of their own. They happened in this
/// order, and within the time that is given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unstamped {
    /// Where they are placed, in nanoseconds since the origin.
    pub at_ns: u64,
    /// The earliest moment at which they may have happened, in nanoseconds since the origin.
    pub from_ns: u64,
    /// The latest moment, in nanoseconds since the origin.
    pub until_ns: u64,
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

/// The result of the call that ends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// When, in nanoseconds since the origin.
    pub at_ns: u64,
    /// The result.
    pub result: ValuesNumber,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndKind {
    /// By its exit.
    Returned,
    /// By jumping into another function, which returns in its place: a tail call.
    Jumped,
    /// By an exit, but recording was off in between: these may be several calls of its function.
    ReturnedAfterGap,
    /// Its frame was left without an exit: exception, longjmp, end of the thread.
    Unwound,
    /// As [`EndKind::Unwound`], but the exact time is unknown: the time given is that of the next
    /// call or return, which showed it. The call ended earlier, and the last calls shown in it may
    /// be calls of its callers.
    UnwoundLate,
    /// It had not ended at the end of the trace.
    TruncatedAtEnd,
    /// Events are missing from here on, and whether the call had ended after them is not known.
    TruncatedAtLoss,
    /// Recording went off, and when it was on again, the call had ended.
    TruncatedAtGap,
    /// Its exit is missing although it must have ended by now.
    ExitLost,
}

/// Events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where the gap is noticed, in nanoseconds since the origin.
    pub at_ns: u64,
    /// How many; `None` if they were not counted.
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
    /// Its kind.
    pub kind: InstantKind,
}

/// The kind of an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstantKind {
    /// An orphan exit that the runtime recorded as such. It closes no call.
    OrphanExit(Location),
    /// An orphan exit that the runtime recorded as an ordinary exit: it matches none of the calls that
    /// are open here. It closes no call.
    InferredOrphanExit(Location),
}

/// Nothing was recorded: recording was off, or no thread ran the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// From, in nanoseconds since the origin.
    pub at_ns: u64,
    /// To, in nanoseconds since the origin.
    pub until_ns: u64,
    /// Why.
    pub why: GapKind,
    /// The thread that continues the stack, by the kernel's id; none if no stack was suspended, or
    /// if the trace doesn't say.
    pub resumed_by: Option<u32>,
}

/// Why nothing was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapKind {
    /// The program left the thread out.
    Thread,
    /// Tracing was disabled.
    Disabled,
    /// The stack was suspended: no thread ran it. Calls that were open before are open afterwards.
    Suspended,
    /// Newer events have overwritten those of this time. Only outputs that are drawn have it, for
    /// the time before a thread's oldest event.
    Overwritten,
    /// A reason that this version doesn't know.
    Other(u8),
}

/// Something that the program said about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When, in nanoseconds since the origin.
    pub at_ns: u64,
    /// Its name: an index of [`crate::Trace::mark_names`].
    pub name: MarkName,
    /// Its value, where it was given one.
    pub value: Option<u64>,
    /// Its kind.
    pub kind: MarkKind,
}

impl Mark {
    /// The number of a task and of one of its steps, of a wake or step.
    #[must_use]
    pub fn task_step(&self) -> Option<(u32, u32)> {
        let value = self.value.filter(|_| matches!(self.kind, MarkKind::Wake | MarkKind::Step))?;
        Some((value as u32, (value >> 32) as u32))
    }
}

/// Names the text of a [`Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkName(pub u32);

/// The kind of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A named value of the innermost call that is open, or of the thread where none is.
    Label,
    /// Something happened at this moment.
    Instant,
    /// A span of time begins.
    SpanBegin {
        /// Its number in this thread's timeline. They grow.
        span: u32,
        /// It began earlier than that.
        cut: bool,
    },
    /// A span ends.
    SpanEnd {
        /// As in its begin.
        span: u32,
        /// As in its begin, in nanoseconds since the origin.
        start_ns: u64,
        /// It began earlier than that.
        start_cut: bool,
        /// How it ended.
        how: SpanEndKind,
    },
    /// An exception is thrown. The name is its type's, as the C++ ABI writes it; empty where it
    /// isn't known.
    Throw,
    /// An exception is caught by the innermost open call, or by an untraced function that it
    /// called. The name is as for [`MarkKind::Throw`].
    Catch,
    /// The program ended a span that it had not begun.
    OrphanSpanEnd,
    /// A value of a time series of the process: the mark's value as a signed number.
    Counter,
    /// A value of a time series of the process: the mark's value holds the bits of a double.
    CounterReal,
    /// A task is woken. The mark's value is the task's number in its lower half, and which of its
    /// steps is to begin in its upper half.
    Wake,
    /// A step of a task begins, in the task's own timeline. The value is that of its
    /// [`MarkKind::Wake`].
    Step,
    /// A log line: the mark's name is its number in [`crate::Trace::log_lines`].
    Log,
    /// A line that the program wrote, or a part of one: the mark's name is as that of a log line,
    /// and its value is the number of the line in the stream, from 1.
    Output(Stream),
}

/// Where the program wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// To its standard output.
    Stdout,
    /// To its standard error.
    Stderr,
    /// Into a file, which the recorder has read.
    File,
    /// To one that this version doesn't know.
    Other(u8),
}

impl Stream {
    /// Its name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
            Stream::File => "file",
            Stream::Other(_) => "other",
        }
    }
}

/// How a span ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanEndKind {
    /// The program ended it.
    Ended,
    /// It had not ended at the end of the thread's events.
    TruncatedAtEnd,
    /// Events are missing from here on.
    TruncatedAtLoss,
}
