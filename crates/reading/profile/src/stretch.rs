//! A walk over a part of a thread: it begins and ends at places where calls are open, and what
//! these did in the whole is known from a pass over all of the thread.
//!
//! A profile of a range has the whole times of all calls that are open in it. Calls that begin and
//! end in the stretch that is read are counted as in a walk over everything; the others are open
//! at its begin or at its end.

use everycall_calls::{
    Begin, End, EndKind, GapKind, Location, PairingStats, StateTimes, TailCall, ThreadStates, TimelineEvent,
};

use crate::notes::Notes;

/// A call with what its callees did.
#[derive(Clone, Debug)]
pub struct WholeCall {
    begin: Begin,
    /// When and how it ended; `None` as long as that wasn't seen.
    end: Option<(u64, EndKind)>,
    /// Nanoseconds of its callees.
    pub(crate) inner_ns: u64,
    rare: Option<Box<RareParts>>,
}

#[derive(Clone, Debug, Default)]
struct RareParts {
    suspended_ns: u64,
    /// The thread states of its callees; with thread states only.
    inner_states: Option<StateTimes>,
    /// The call that jumped to it.
    jumped_from: Option<Location>,
    /// The call that it jumped to.
    jumps_to: Option<Location>,
}

impl WholeCall {
    /// Bytes that it occupies, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<WholeCall>() + self.rare.as_ref().map_or(0, |_| size_of::<RareParts>())
    }

    /// Its begin.
    #[must_use]
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Whether its end was seen.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Its end, if it was seen.
    pub(crate) fn end(&self) -> Option<End> {
        self.end.map(|(end_ns, how)| self.begin.ended(end_ns, how))
    }

    /// Nanoseconds in which its stack was suspended, without those of its callees.
    pub(crate) fn suspended_ns(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.suspended_ns)
    }

    pub(crate) fn inner_states(&self) -> Option<StateTimes> {
        self.rare.as_ref()?.inner_states
    }

    pub(crate) fn jumped_from(&self) -> Option<Location> {
        self.rare.as_ref()?.jumped_from
    }

    pub(crate) fn jumps_to(&self) -> Option<Location> {
        self.rare.as_ref()?.jumps_to
    }
}

/// A number for a call that isn't at any place.
const UNNUMBERED: u32 = u32::MAX;

struct Ongoing {
    call: WholeCall,
    number: u32,
}

/// Follows the events of a thread, and sums up the calls that are open at chosen places.
///
/// Calls at a place get numbers. The caller keeps those that it needs.
pub struct WholeCalls<'s> {
    states: Option<&'s ThreadStates>,
    stack: Vec<Ongoing>,
    /// With thread states, by open call: those of its callees.
    inner_states: Vec<StateTimes>,
    /// The call that ended last, if it jumped.
    jumped: Option<Ongoing>,
    numbered: u32,
    notes: Notes,
}

impl<'s> WholeCalls<'s> {
    /// Before the first event of a thread with these states.
    #[must_use]
    pub fn new(states: Option<&'s ThreadStates>) -> WholeCalls<'s> {
        WholeCalls {
            states,
            stack: Vec::new(),
            inner_states: Vec::new(),
            jumped: None,
            numbered: 0,
            notes: Notes::default(),
        }
    }

    /// The next event. Passes on a call with a number that has ended.
    #[inline]
    pub fn event(&mut self, event: &TimelineEvent, ended: &mut impl FnMut(u32, WholeCall)) {
        match event {
            TimelineEvent::Begin(begin) => {
                let mut rare = None;
                if self.jumped.is_some() {
                    rare = self.jump(begin, ended);
                }
                if self.states.is_some() {
                    self.inner_states.push(StateTimes::default());
                }
                let call = WholeCall { begin: *begin, end: None, inner_ns: 0, rare };
                self.stack.push(Ongoing { call, number: UNNUMBERED });
            }
            TimelineEvent::End(end) => self.end(end, ended),
            TimelineEvent::Gap(gap) => {
                self.notes.gap(gap);
                if gap.why == GapKind::Suspended
                    && let Some(open) = self.stack.last_mut()
                {
                    let time = gap.until_ns.saturating_sub(gap.at_ns);
                    let suspended_ns = &mut open.call.rare.get_or_insert_default().suspended_ns;
                    *suspended_ns = suspended_ns.saturating_add(time);
                }
            }
            TimelineEvent::Loss(loss) => self.notes.loss(loss),
            TimelineEvent::Instant(_) => self.notes.orphan_exits += 1,
            TimelineEvent::Mark(_)
            | TimelineEvent::Untraced(_)
            | TimelineEvent::Unstamped(_)
            | TimelineEvent::Returned(_) => {}
        }
    }

    #[inline]
    fn end(&mut self, end: &End, ended: &mut impl FnMut(u32, WholeCall)) {
        if self.jumped.is_some() {
            self.flush(None, ended);
        }
        let Some(mut open) = self.stack.pop() else { return };
        if let Some(around) = self.stack.last_mut() {
            let duration = end.end_ns.saturating_sub(end.start_ns);
            around.call.inner_ns = around.call.inner_ns.saturating_add(duration);
        }
        if self.states.is_some() {
            self.add_states(end, &mut open);
        }
        if end.how == EndKind::Jumped || open.number != UNNUMBERED {
            open.call.end = Some((end.end_ns, end.how));
            self.jumped = Some(open);
            if end.how != EndKind::Jumped {
                self.flush(None, ended);
            }
        }
    }

    #[cold]
    fn add_states(&mut self, end: &End, open: &mut Ongoing) {
        let (Some(states), Some(inner)) = (self.states, self.inner_states.pop()) else { return };
        if let Some(around) = self.inner_states.last_mut() {
            around.add_all(&states.times(end.start_ns, end.end_ns));
        }
        if open.number != UNNUMBERED {
            open.call.rare.get_or_insert_default().inner_states = Some(inner);
        }
    }

    /// A call begins behind one that jumped.
    #[cold]
    fn jump(&mut self, begin: &Begin, ended: &mut impl FnMut(u32, WholeCall)) -> Option<Box<RareParts>> {
        let is_there = begin.tail_call == TailCall::Yes;
        let jumped_from = self.jumped.as_ref().map(|jumped| jumped.call.begin.location);
        self.flush(is_there.then_some(begin.location), ended);
        is_there.then(|| Box::new(RareParts { jumped_from, ..RareParts::default() }))
    }

    #[cold]
    fn flush(&mut self, jumps_to: Option<Location>, ended: &mut impl FnMut(u32, WholeCall)) {
        let Some(Ongoing { mut call, number }) = self.jumped.take() else { return };
        if number == UNNUMBERED {
            return;
        }
        if jumps_to.is_some() {
            call.rare.get_or_insert_default().jumps_to = jumps_to;
        }
        ended(number, call);
    }

    /// Whether a walk can begin or end here: what ended last is not to be seen with what follows.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.jumped.is_none()
    }

    /// The calls that are open here, outermost first, as far as they are known, with their numbers.
    pub fn open(&mut self) -> impl Iterator<Item = (u32, &WholeCall)> {
        let numbered = &mut self.numbered;
        self.stack.iter_mut().map(|open| {
            if open.number == UNNUMBERED {
                open.number = *numbered;
                *numbered += 1;
            }
            (open.number, &open.call)
        })
    }

    /// After the last event: what the numbers of all of the thread lack.
    pub fn finish(mut self, stats: PairingStats, ended: &mut impl FnMut(u32, WholeCall)) -> StretchNotes {
        self.flush(None, ended);
        self.notes.too_deep = stats.too_deep;
        StretchNotes { notes: self.notes, thunk_exits: stats.thunk_exits }
    }
}

/// Losses that make the numbers of a whole thread incomplete.
#[derive(Clone, Debug, Default)]
pub struct StretchNotes {
    pub(crate) notes: Notes,
    pub(crate) thunk_exits: u64,
}
