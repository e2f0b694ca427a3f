//! Calls in a form that viewers can draw.
//!
//! Viewers nest slices by their times only, draw slices of length zero as points, and (Perfetto and
//! everything based on it) support 512 levels. Therefore, per thread:
//!
//! - A slice begins at least 1 ns after its parent, lasts at least 1 ns, and doesn't end before its
//!   children. Only time stamps that would violate this are moved, later and by as little as
//!   possible. A slice with a moved time stamp also carries its true times.
//! - Calls below [`LEVELS`] levels are merged into one slice per outermost of them, which has their
//!   number.

use everycall_timeline::{EndKind, Gap, Mark, MarkKind};

use crate::filtered::{Event, Point, Start, UntracedSlice};
use crate::labels::{Labels, OpenLabels};
use crate::names::FunctionId;
use crate::tails::{Jumps, Tails};
use everycall_calls::CallValues;

/// Number of levels that are drawn. Perfetto supports 512, the last of which shows the deeper
/// calls.
pub(crate) const LEVELS: usize = 511;

/// The events that a viewer's format gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// A slice begins. `what` is `None` for calls beyond the drawn levels. `is_tail` for tail
    /// calls: [`Pen::jumps`].
    Begin { what: Option<FunctionId>, at_ns: u64, is_tail: bool },
    /// The innermost slice ends.
    End(Slice),
    /// Something without a duration.
    Point(Point),
    /// A mark of the program.
    Mark(Mark),
    /// Recording was off: a slice without children.
    Gap(Gap),
    /// Untraced code: a slice without children.
    Untraced(UntracedSlice),
}

impl Drawn {
    /// The time at which it is drawn: for a slice that ends, its end.
    #[inline]
    pub(crate) fn at_ns(&self) -> u64 {
        match self {
            Drawn::Begin { at_ns, .. } => *at_ns,
            Drawn::End(slice) => slice.end_ns,
            Drawn::Point(point) => point.at_ns,
            Drawn::Mark(mark) => mark.at_ns,
            Drawn::Gap(gap) => gap.at_ns,
            Drawn::Untraced(slice) => slice.at_ns,
        }
    }
}

/// A complete slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// `None` for calls beyond the drawn levels.
    pub(crate) what: Option<FunctionId>,
    /// As drawn.
    pub(crate) start_ns: u64,
    /// As drawn.
    pub(crate) end_ns: u64,
    /// True begin and duration, if they differ from the drawn ones.
    pub(crate) moved: Option<(u64, u64)>,
    /// It began before the recorded range.
    pub(crate) start_cut: bool,
    /// Whether it is uncertain that the enclosing call made it.
    pub(crate) caller_unsure: bool,
    pub(crate) how: EndKind,
    /// Whether it has labels: [`Pen::labels`].
    pub(crate) has_labels: bool,
    /// Whether a tail call made or ended it: [`Pen::jumps`].
    pub(crate) has_jumps: bool,
    /// Arguments and result.
    pub(crate) values: CallValues,
    /// Number of calls that it represents: 1 except for calls beyond the drawn levels.
    pub(crate) calls: u64,
}

impl Slice {
    /// Whether it has more attributes than name and times.
    #[inline]
    pub(crate) fn has_remarks(&self) -> bool {
        self.start_cut
            || self.caller_unsure
            || self.how != EndKind::Returned
            || self.moved.is_some()
            || self.what.is_none()
            || self.has_labels
            || self.has_jumps
            || self.values.are_any()
    }
}

/// Draws one thread.
#[derive(Debug, Default)]
pub(crate) struct Pen {
    /// Drawn begins of the open slices.
    starts_ns: Vec<u64>,
    /// The latest time stamp drawn.
    now_ns: u64,
    /// Whether that was a begin.
    just_begun: bool,
    /// Open calls beyond the drawn levels.
    deep_open: u64,
    /// Calls in the current merged slice.
    deep_calls: u64,
    labels: OpenLabels,
    tails: Tails,
    /// The jumps of the slice that began or ended last.
    jumps: Jumps,
}

impl Pen {
    /// `first_chain` is the number of the first chain of tail calls.
    pub(crate) fn new(first_chain: u64) -> Pen {
        Pen { tails: Tails::new(first_chain), ..Pen::default() }
    }

    #[inline]
    pub(crate) fn draw(&mut self, event: &Event) -> Option<Drawn> {
        match *event {
            Event::Begin { function, start_ns, start } => {
                let mut what = Some(function);
                if self.starts_ns.len() >= LEVELS {
                    self.deep_open += 1;
                    self.deep_calls += 1;
                    if self.deep_open > 1 {
                        return None;
                    }
                    what = None;
                }
                self.jumps =
                    self.tails.begin(self.starts_ns.len() + 1, start.tail.filter(|_| what.is_some()));
                let at_ns = self.stamp(start_ns);
                self.just_begun = true;
                self.starts_ns.push(at_ns);
                Some(Drawn::Begin { what, at_ns, is_tail: self.jumps.any() })
            }
            Event::End { function, start_ns, end_ns, start, how } => {
                let mut what = Some(function);
                let mut calls = 1;
                if self.deep_open > 0 {
                    self.deep_open -= 1;
                    if self.deep_open > 0 {
                        return None;
                    }
                    what = None;
                    calls = std::mem::take(&mut self.deep_calls);
                }
                let has_labels = self.labels.end(self.starts_ns.len());
                self.jumps = self.tails.end(self.starts_ns.len(), how);
                if what.is_none() {
                    self.tails.interrupt();
                    self.jumps = Jumps::default();
                }
                let has_jumps = self.jumps.any();
                let drawn_start_ns = self.starts_ns.pop()?;
                let drawn_end_ns = self.stamp(end_ns);
                self.just_begun = false;
                let moved = (drawn_start_ns != start_ns || drawn_end_ns != end_ns)
                    .then(|| (start_ns, end_ns.saturating_sub(start_ns)));
                let (start_ns, end_ns) = (drawn_start_ns, drawn_end_ns);
                let Start { cut: start_cut, caller_unsure, values, .. } = start;
                let values = if what.is_some() { values } else { CallValues::default() };
                let slice = Slice {
                    what,
                    start_ns,
                    end_ns,
                    moved,
                    start_cut,
                    caller_unsure,
                    how,
                    has_labels,
                    has_jumps,
                    values,
                    calls,
                };
                Some(Drawn::End(slice))
            }
            // A point may share its time stamp with other events.
            Event::Point(point) => Some(Drawn::Point(Point { at_ns: point.at_ns.max(self.now_ns), ..point })),
            Event::Mark(mark) => {
                if mark.kind == MarkKind::Label && !self.starts_ns.is_empty() {
                    self.labels.add(self.starts_ns.len(), mark.name, mark.value);
                }
                Some(Drawn::Mark(Mark { at_ns: mark.at_ns.max(self.now_ns), ..mark }))
            }
            // Not drawn within calls that aren't drawn.
            Event::Gap(_) if self.deep_open > 0 => None,
            Event::Gap(gap) => {
                let (at_ns, until_ns) = self.stamp_both(gap.at_ns, gap.until_ns);
                Some(Drawn::Gap(Gap { at_ns, until_ns, ..gap }))
            }
            // Viewers have a lane of its own for it.
            Event::OffCpu(_) | Event::ShortSuspension(_) => None,
            Event::Untraced(_) if self.deep_open > 0 => None,
            Event::Untraced(slice) => {
                let (at_ns, until_ns) = self.stamp_both(slice.at_ns, slice.until_ns);
                Some(Drawn::Untraced(UntracedSlice { at_ns, until_ns, ..slice }))
            }
        }
    }

    /// The jumps of the slice that began or ended last.
    pub(crate) fn jumps(&self) -> &Jumps {
        &self.jumps
    }

    /// Number of the next chain of tail calls.
    pub(crate) fn next_chain(&self) -> u64 {
        self.tails.next_chain()
    }

    /// The labels of the slice with labels that ended last.
    pub(crate) fn labels(&self) -> &Labels {
        self.labels.ended()
    }

    /// Begin and end of a slice without children.
    fn stamp_both(&mut self, at_ns: u64, until_ns: u64) -> (u64, u64) {
        let at_ns = self.stamp(at_ns);
        self.just_begun = true;
        let until_ns = self.stamp(until_ns);
        self.just_begun = false;
        (at_ns, until_ns)
    }

    #[inline]
    fn stamp(&mut self, true_ns: u64) -> u64 {
        let earliest_ns = self.now_ns.saturating_add(u64::from(self.just_begun));
        self.now_ns = true_ns.max(earliest_ns);
        self.now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(events: &[(bool, u64)]) -> Vec<(u64, u64)> {
        let mut tree = crate::testing::Calls::default();
        events.iter().for_each(|&(begin, at)| if begin { tree.begin(0, at) } else { tree.end(at) });
        let mut pen = Pen::default();
        let mut slices = Vec::new();
        for event in tree.filtered() {
            if let Some(Drawn::End(slice)) = pen.draw(&event) {
                slices.push((slice.start_ns, slice.end_ns));
            }
        }
        slices
    }

    #[test]
    fn only_ambiguous_stamps_move() {
        // Unambiguous: siblings that touch, and a child that ends with its parent.
        let clear = [(true, 0), (true, 5), (false, 9), (true, 9), (false, 20), (false, 20)];
        assert_eq!(draw(&clear), [(5, 9), (9, 20), (0, 20)]);
        let ambiguous =
            [(true, 7), (true, 7), (true, 7), (false, 7), (false, 7), (false, 7), (true, 8), (false, 30)];
        assert_eq!(draw(&ambiguous), [(9, 10), (8, 10), (7, 10), (10, 30)]);
    }
}
