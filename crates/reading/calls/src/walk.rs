//! The walk over a thread's calls that outputs and profiles share: which calls are open, which of
//! them pass a filter, and all that is known of a call when it ends.
//!
//! A condition of the filter is in [`Selection`]. A fact about calls is a field of [`Call`] and a
//! line in [`Calls::end`]: all that follows calls has it then.

use crate::event::{Begin, End, EndKind, Gap, GapKind, Returned, TailCall, Untraced};
use crate::location::Location;
use crate::selection::{Selection, Window};
use crate::values::ValuesNumber;

/// A call that has ended. `F` is what the owner of the walk keeps of each call.
#[derive(Clone, Copy, Debug)]
pub struct Call<F> {
    /// Facts of the owner of the walk, such as the call's function.
    pub of: F,
    /// Number of enclosing calls.
    pub depth: u32,
    /// Where it was entered.
    pub location: Location,
    /// Nanoseconds since the origin.
    pub start_ns: u64,
    /// Nanoseconds since the origin.
    pub end_ns: u64,
    /// Nanoseconds in it without its callees, whether these are shown or not, and without the time
    /// in which its stack was suspended.
    pub own_ns: u64,
    /// Nanoseconds in it, but not in its callees, in which its stack was suspended.
    pub suspended_ns: u64,
    /// How it ended.
    pub how: EndKind,
    /// Whether it began before the recorded range.
    pub start_cut: bool,
    /// Whether it is uncertain that the enclosing call made it.
    pub caller_unsure: bool,
    /// Whether it passes the conditions on what is known when a call begins.
    pub is_selected: bool,
    /// Whether it also passes those on times.
    pub is_shown: bool,
    /// Its arguments and its result, as far as they were recorded.
    pub values: CallValues,
}

impl<F> Call<F> {
    /// Its duration, as far as it was recorded.
    #[must_use]
    #[inline]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Whether its duration is known.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        !self.start_cut && matches!(self.how, EndKind::Returned | EndKind::Jumped | EndKind::Unwound)
    }
}

/// Values of a call that were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallValues {
    /// Its arguments.
    pub arguments: Option<ValuesNumber>,
    /// Its result, known at the call's end.
    pub result: Option<ValuesNumber>,
}

impl CallValues {
    /// Whether there are any.
    #[must_use]
    pub fn are_any(self) -> bool {
        self.arguments.is_some() || self.result.is_some()
    }
}

/// A call that hasn't ended.
#[derive(Clone, Copy, Debug)]
pub struct OpenCall<F> {
    /// Its begin.
    pub begin: Begin,
    /// Facts of the owner of the walk.
    pub of: F,
    /// Nanoseconds in its callees.
    inner_ns: u64,
    suspended_ns: u64,
    is_selected: bool,
}

/// The call that ended last, if it jumped.
#[derive(Clone, Copy, Debug)]
pub struct JumpedCall<F> {
    /// Facts of the owner of the walk.
    pub of: F,
    /// Where it was entered.
    pub location: Location,
    /// Whether it is selected.
    pub is_selected: bool,
}

/// The calls of one thread, as its events come. Memory holds those that are open.
#[derive(Clone, Debug)]
pub struct Calls<F> {
    selection: Selection,
    open: Vec<OpenCall<F>>,
    /// The result of the call that ends next.
    returned: Option<ValuesNumber>,
    jumped: Option<JumpedCall<F>>,
}

impl<F: Copy> Calls<F> {
    /// Before the first event of a thread. `chosen` are the positions of the calls that
    /// are chosen one by one, among the thread's begins; `None` if none are.
    #[must_use]
    pub fn new(window: Window, chosen: Option<Vec<u64>>) -> Calls<F> {
        Calls { selection: Selection::new(window, chosen), open: Vec::new(), returned: None, jumped: None }
    }

    /// The conditions on times and depth.
    #[must_use]
    #[inline]
    pub fn window(&self) -> &Window {
        self.selection.window()
    }

    /// Whether something that isn't a call, and happens now, is selected, whatever its time.
    #[must_use]
    pub fn is_selected(&self) -> bool {
        self.selection.is_selected()
    }

    /// The open calls, outermost first.
    #[must_use]
    #[inline]
    pub fn open(&self) -> &[OpenCall<F>] {
        &self.open
    }

    /// The owner's facts of the open call with this number of calls around it.
    #[must_use]
    pub fn of_mut(&mut self, depth: usize) -> Option<&mut F> {
        self.open.get_mut(depth).map(|open| &mut open.of)
    }

    /// The call that ended last, if it jumped.
    #[must_use]
    #[inline]
    pub fn jumped(&self) -> Option<&JumpedCall<F>> {
        self.jumped.as_ref()
    }

    /// The call that made the one that begins by a jump, if that is sure.
    #[must_use]
    #[inline]
    pub fn jumped_to(&self, begin: &Begin) -> Option<&JumpedCall<F>> {
        self.jumped.as_ref().filter(|_| begin.tail_call == TailCall::Yes)
    }

    /// Sets the call that ended before the first event.
    pub fn enter_behind(&mut self, jumped: Option<JumpedCall<F>>) {
        self.jumped = jumped;
    }

    /// A call begins; `matches` says whether its function matches the filter's pattern. Returns
    /// whether the call is selected.
    #[inline]
    pub fn begin(&mut self, begin: &Begin, matches: bool, of: F) -> bool {
        let is_selected = self.selection.begin(matches, begin.start_ns);
        self.open.push(OpenCall { begin: *begin, of, inner_ns: 0, suspended_ns: 0, is_selected });
        is_selected
    }

    /// The result of the call that ends next.
    #[inline]
    pub fn returned(&mut self, returned: &Returned) {
        self.returned = Some(returned.result);
    }

    /// The innermost call ends.
    #[inline]
    pub fn end(&mut self, end: &End) -> Option<Call<F>> {
        let result = self.returned.take();
        let OpenCall { begin, of, inner_ns, suspended_ns, is_selected } = self.open.pop()?;
        self.selection.end();
        let End { location, start_ns, end_ns, how, start_cut, .. } = *end;
        let duration_ns = end_ns.saturating_sub(start_ns);
        if let Some(around) = self.open.last_mut() {
            around.inner_ns = around.inner_ns.saturating_add(duration_ns);
        }
        self.jumped = (how == EndKind::Jumped).then_some(JumpedCall { of, location, is_selected });
        Some(Call {
            of,
            depth: self.open.len() as u32,
            location,
            start_ns,
            end_ns,
            own_ns: duration_ns.saturating_sub(inner_ns).saturating_sub(suspended_ns),
            suspended_ns,
            how,
            start_cut,
            caller_unsure: begin.caller_unsure,
            is_selected,
            is_shown: is_selected && self.selection.window().shows(start_ns, end_ns),
            values: CallValues { arguments: begin.arguments, result },
        })
    }

    /// Nothing was recorded for a time.
    #[cold]
    pub fn gap(&mut self, gap: &Gap) {
        if gap.why == GapKind::Suspended
            && let Some(open) = self.open.last_mut()
        {
            // Its thread ran another stack meanwhile.
            open.suspended_ns = open.suspended_ns.saturating_add(gap.until_ns.saturating_sub(gap.at_ns));
        }
    }

    /// Untraced code is shown where the call that jumped to it may be shown, if it may have lasted
    /// the minimum duration. Returns that call.
    #[cold]
    pub fn untraced(&self, untraced: &Untraced) -> Option<&JumpedCall<F>> {
        let is_shown = self.window().shows(untraced.at_ns, untraced.until_ns);
        self.jumped.as_ref().filter(|jumped| jumped.is_selected && is_shown)
    }
}
