//! Steps in slot order: what pairing needs of each event.
//!
//! An unwound record gives a depth of the open-call stack, which changes in slot order and not in
//! the order of time. So it is turned into a number of calls here, before the order changes.

use everycall_reader::event::{Event, EventKind, PlainEvent};

use everycall_format::event::loss;
use everycall_format::label;

use crate::values::Exception;
use everycall_calls::ValuesNumber;
use everycall_calls::{LossKind, MarkName, Stream};

/// One thing that happened, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub ticks: u64,
    pub kind: StepKind,
}

const _: () = assert!(size_of::<Step>() == 24, "many are held back");

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// A code offset was entered.
    Entry(u32),
    /// A code offset was left.
    Exit(u32),
    /// A process address outside all modules was entered.
    UnknownEntry(u64),
    /// A process address outside all modules was left.
    UnknownExit(u64),
    /// So many of the innermost calls ended without an exit; how that is known.
    Unwound(u32, u8),
    /// An exit without an entry.
    OrphanExit(u32),
    /// Events are missing.
    Loss(u64, LossKind),
    /// The program said something: class and flags, name, value.
    Label(u8, MarkName, u64),
    /// An exception is thrown.
    Throw(MarkName, Exception),
    /// An exception of a type is caught.
    Catch(MarkName, Option<ValuesNumber>),
    /// The program wrote a log line.
    Log(MarkName),
    /// The program wrote a line of output: where, what, the line's number.
    Output(Stream, MarkName, u64),
    /// Values of the call that is entered or left next, at the same time: which of them, what.
    Values(u8, Option<ValuesNumber>),
    /// Recording was off since these ticks; so many of the innermost calls ended meanwhile. Why.
    Gap(u64, u32, u8),
    /// No thread ran the stack since these ticks; which thread continues it, 0 if that isn't known;
    /// whether it may be another stack.
    Resumed(u64, u32, bool),
    /// The code offset of the instruction that made the next call, if a module contains it; whether
    /// it is in the called function's own code, which was inlined.
    Caller(Option<u32>, bool),
}

/// Follows the depth of the open-call stack from slot to slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotDepth {
    /// Calls open by now; `None` before the first segment.
    depth: Option<u32>,
    /// Whether events were lost since the last recorded depth.
    lost: bool,
    /// Whether a slot was never written since frames were last unwound.
    has_hole: bool,
    /// Times that the recorded depth differed from the counted one although nothing was lost.
    pub disagreements: u64,
}

impl SlotDepth {
    /// Segments are missing: the depth is unknown until the next record of it.
    pub fn forget(&mut self) {
        self.depth = None;
    }

    /// The step that an entry or exit stands for.
    #[inline]
    pub fn plain(&mut self, event: PlainEvent) -> Step {
        let PlainEvent { ticks, offset, is_entry } = event;
        if is_entry {
            self.enter();
            Step { ticks, kind: StepKind::Entry(offset) }
        } else {
            self.leave();
            Step { ticks, kind: StepKind::Exit(offset) }
        }
    }

    /// The step that an event stands for, if it is one. `name` gives the name of a label at a slot,
    /// `line` a log line, `values` a capture, `exception` what is thrown or caught.
    #[inline]
    pub fn step(
        &mut self,
        event: Event,
        name: impl Fn(u32, u8) -> MarkName,
        line: impl Fn(u32, u64) -> StepKind,
        values: impl Fn(u32) -> Option<ValuesNumber>,
        exception: impl Fn(u32) -> Exception,
    ) -> Option<Step> {
        let kind = match event.kind {
            EventKind::Entry { offset } => {
                self.enter();
                StepKind::Entry(offset)
            }
            EventKind::Exit { offset } => {
                self.leave();
                StepKind::Exit(offset)
            }
            EventKind::Label { detail, value } => match detail & label::CLASS_MASK {
                label::THROW => StepKind::Throw(name(event.slot, detail), exception(event.slot)),
                label::CATCH => StepKind::Catch(name(event.slot, detail), exception(event.slot).of_type),
                _ => StepKind::Label(detail, name(event.slot, detail), value),
            },
            EventKind::Log => line(event.slot, event.ticks),
            EventKind::Values { what } => StepKind::Values(what, values(event.slot)),
            EventKind::XrayEvent => {
                let detail = label::INSTANT | label::NO_VALUE;
                StepKind::Label(detail, name(event.slot, detail), 0)
            }
            other => self.rare(other)?,
        };
        Some(Step { ticks: event.ticks, kind })
    }

    #[cold]
    fn rare(&mut self, kind: EventKind) -> Option<StepKind> {
        let step = match kind {
            EventKind::Entry { offset } => StepKind::Entry(offset),
            EventKind::Exit { offset } | EventKind::TailExit { offset } => {
                self.leave();
                StepKind::Exit(offset)
            }
            EventKind::UnknownEntry { address } => {
                self.enter();
                StepKind::UnknownEntry(address)
            }
            EventKind::UnknownExit { address } => {
                self.leave();
                StepKind::UnknownExit(address)
            }
            EventKind::OrphanExit { offset } => StepKind::OrphanExit(offset),
            EventKind::Segment { open_calls, .. } => {
                self.told(open_calls);
                return None;
            }
            EventKind::Unwound { open_calls, left, how } => {
                StepKind::Unwound(self.unwound(open_calls, left), how)
            }
            EventKind::Loss { count, why } => {
                self.lost = true;
                StepKind::Loss(count, if why == loss::BUSY { LossKind::Busy } else { LossKind::Other(why) })
            }
            EventKind::Hole { count } => {
                self.lost = true;
                self.has_hole = true;
                StepKind::Loss(count, LossKind::Hole)
            }
            EventKind::Malformed => {
                self.lost = true;
                StepKind::Loss(1, LossKind::Hole)
            }
            EventKind::Gap { from_ticks, left, why } => {
                if let Some(depth) = &mut self.depth {
                    *depth = depth.saturating_sub(left);
                }
                StepKind::Gap(from_ticks, left, why)
            }
            EventKind::Resumed { from_ticks, thread, maybe_another } => {
                StepKind::Resumed(from_ticks, thread, maybe_another)
            }
            EventKind::Caller { offset, is_callees } => StepKind::Caller(offset, is_callees),
            EventKind::Label { .. }
            | EventKind::Log
            | EventKind::Values { .. }
            | EventKind::XrayEvent
            | EventKind::Dropped { .. }
            | EventKind::Other { .. } => return None,
        };
        Some(step)
    }

    /// How many calls an unwound record ends.
    ///
    /// A hook may be interrupted after it has reserved its slot and before it has opened its call.
    /// The depth in the handler's unwound records, or at the beginning of a segment, is then one
    /// call less than the slots say; the number of frames is right. A handler may also jump out of
    /// a hook that has opened its call and not written it, which leaves a hole; then the number has
    /// one frame more than there are entries, and the depth is right.
    fn unwound(&mut self, open_calls: u32, left: Option<u32>) -> u32 {
        let counted = self.depth.unwrap_or(open_calls.saturating_add(left.unwrap_or(0)));
        if counted < open_calls && !self.lost {
            self.disagreements += 1;
        }
        let by_depth = counted.saturating_sub(open_calls);
        let has_hole = std::mem::take(&mut self.has_hole);
        let ended = match left {
            Some(left) if has_hole => left.min(by_depth),
            Some(left) => left,
            None => by_depth,
        };
        self.depth = Some(if left.is_some() { counted.saturating_sub(ended) } else { open_calls });
        ended
    }

    #[inline]
    fn enter(&mut self) {
        if let Some(depth) = &mut self.depth {
            *depth = depth.saturating_add(1);
        }
    }

    #[inline]
    fn leave(&mut self) {
        if let Some(depth) = &mut self.depth {
            *depth = depth.saturating_sub(1);
        }
    }

    /// A segment begins with `open_calls`. If nothing was lost, the count kept here is better: a
    /// full open-call stack gives a smaller depth.
    fn told(&mut self, open_calls: u32) {
        match self.depth {
            Some(counted) if !self.lost => self.disagreements += u64::from(counted != open_calls),
            _ => self.depth = Some(open_calls),
        }
        self.lost = false;
    }
}
