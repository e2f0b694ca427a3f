//! Counts of the output, with notes for users.

use std::fmt;

use everycall_timeline::MarkKind;
use everycall_units::Count;

use crate::filtered::{Event, PointKind};
use crate::frames::MORE_PATHS;
use crate::{draw, text};

/// From this number of slices on, an export advises how to make it smaller.
pub const MANY_SLICES: u64 = 2_000_000;

/// A note for users about an export. `Display` gives the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// There are more slices than viewers handle well. The note is given when the limit is
    /// exceeded, before the rest is written.
    ManySlices,
    /// So much is done.
    Progress {
        /// Events that passed the filter so far.
        events: u64,
    },
    /// Calls were nested more deeply than viewers support.
    DeepCalls {
        /// Number of calls that were merged into slices that say so.
        calls: u64,
    },
    /// There were more call paths than are kept apart.
    ManyPaths {
        /// Number of calls on the others.
        calls: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Note::ManySlices => write!(
                out,
                "more than {} slices: viewers will be slow or run out of memory; choose a part with --last, \
                 --since and --until, --tid, --function or --depth, or leave out short calls with \
                 --min-duration",
                Count(MANY_SLICES)
            ),
            Note::Progress { events } => write!(out, "{} events", Count(events)),
            Note::DeepCalls { calls } => write!(
                out,
                "{} calls are beyond the {} levels that viewers draw; slices named \"{}\" stand for \
                 them. --function starts the tree at a function of your choice",
                Count(calls),
                draw::LEVELS,
                text::DEEPER
            ),
            Note::ManyPaths { calls } => write!(
                out,
                "{} calls are on call paths beyond the limit of memory; frames named \"{}\" stand for them. --depth \
                 or --function makes fewer paths",
                Count(calls),
                MORE_PATHS
            ),
        }
    }
}

/// Counts of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Slices, or calls in text outputs.
    pub slices: u64,
    /// Calls that slices named "deeper calls not shown" represent.
    pub deep_calls: u64,
    /// Calls that frames named "more paths not shown" represent.
    pub other_calls: u64,
    /// Threads with at least one event.
    pub threads: u64,
    /// Lost events within the written range, as far as they were counted.
    pub lost_events: u64,
    /// Short calls that were dropped while the threads were recorded.
    pub dropped_calls: u64,
    /// Orphan exits.
    pub orphan_exits: u64,
    /// Labels, instants and spans.
    pub marks: u64,
    /// Times that recording was off.
    pub gaps: u64,
    /// Calls whose durations aren't known exactly, because events had no times of their own.
    pub bounded_calls: u64,
    /// Slices whose time stamps were moved by some nanoseconds so that viewers nest them correctly.
    pub moved_slices: u64,
}

impl Summary {
    /// Counts an event that was written.
    #[inline]
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Begin { .. } | Event::Untraced(_) | Event::OffCpu(_) | Event::ShortSuspension(_) => {}
            Event::End { .. } => self.slices += 1,
            Event::Mark(mark) => self.marks += u64::from(!matches!(mark.kind, MarkKind::SpanEnd { .. })),
            Event::Gap(_) => self.gaps += 1,
            Event::Point(point) => {
                let sum = match point.kind {
                    PointKind::Lost(_) => &mut self.lost_events,
                    PointKind::OrphanExit(_) => &mut self.orphan_exits,
                    PointKind::Dropped => &mut self.dropped_calls,
                    PointKind::LeftOut => return,
                };
                *sum = sum.saturating_add(point.count.unwrap_or(0));
            }
        }
    }
}
