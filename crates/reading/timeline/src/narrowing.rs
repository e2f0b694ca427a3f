//! The calls that one session requested, out of all that its threads recorded.

use std::collections::HashMap;
use std::sync::Arc;

use everycall_reader::{FunctionRanges, FunctionSet, Module, Session};

use crate::clock::Clock;
use crate::code::Code;
use everycall_calls::Location;
use everycall_calls::{Begin, GapKind, InstantKind, MarkKind, TailCall, TimelineEvent};

/// Callers of outermost calls that are kept for one thread; later ones are unknown.
const CALLERS_MAX: usize = 1 << 16;
/// Answers about pairs of functions that are kept.
const PAIRS_MAX: usize = 1 << 14;

/// A session's request.
#[derive(Debug)]
pub(crate) struct Narrowing {
    /// Index of its process.
    process: usize,
    start_ns: u64,
    functions: Functions,
    within: Option<Functions>,
    crossing: bool,
    has_all_callers: bool,
}

impl Narrowing {
    pub fn new(session: &Session, modules: &[Module], clock: &Clock) -> Narrowing {
        Narrowing {
            process: session.process,
            start_ns: clock.ns(session.start_ticks),
            functions: Functions::new(&session.functions, modules),
            within: session.within.as_ref().map(|within| Functions::new(within, modules)),
            crossing: session.crossing,
            has_all_callers: session.has_all_callers,
        }
    }

    /// Whether the session requested calls of the function at a location.
    pub fn has(&self, location: Location) -> bool {
        self.functions.contains(location)
    }

    /// Whether it says which calls of a process are shown.
    pub fn is_of(&self, process: usize) -> bool {
        self.process == process
    }

    /// Whether callers decide which calls are shown: then [`OutermostCallers`] are needed.
    pub fn needs_callers(&self) -> bool {
        self.crossing
    }
}

/// The callers of a thread's outermost calls, where calls were open when recording began. Their
/// exits are recorded without an entry: each names the call that was the innermost one until then.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutermostCallers {
    /// One for each stretch of outermost calls, in the order of time; `None` where recording was
    /// off at the stretch's end, or events are missing.
    stretches: Arc<[Option<Location>]>,
    /// Outermost calls behind all stretches were made by code that isn't traced.
    is_rest_untraced: bool,
}

impl OutermostCallers {
    /// Finds them in all events of a thread. `orphan_exits`: those in the thread's whole life.
    pub fn find(
        to: &Narrowing,
        orphan_exits: u64,
        events: impl Iterator<Item = TimelineEvent>,
    ) -> OutermostCallers {
        let mut depth = 0_usize;
        let mut stretches = Vec::new();
        for event in events {
            match &event {
                TimelineEvent::Begin(_) => depth += 1,
                TimelineEvent::End(_) => depth = depth.saturating_sub(1),
                _ => {}
            }
            stretches.extend(stretch_end(&event, depth).filter(|_| stretches.len() < CALLERS_MAX));
        }
        let is_rest_untraced = to.has_all_callers && orphan_exits == 0 && stretches.is_empty();
        OutermostCallers { stretches: stretches.into(), is_rest_untraced }
    }
}

/// Whether a stretch of outermost calls ends with this event, and which call had made them, if that
/// is known. `depth`: calls that are open.
fn stretch_end(event: &TimelineEvent, depth: usize) -> Option<Option<Location>> {
    match event {
        TimelineEvent::Instant(instant) if depth == 0 => match instant.kind {
            InstantKind::OrphanExit(exit) | InstantKind::InferredOrphanExit(exit) => Some(Some(exit)),
        },
        TimelineEvent::Gap(gap) if gap.why != GapKind::Suspended => Some(None),
        TimelineEvent::Loss(_) => Some(None),
        _ => None,
    }
}

/// The functions of a set, by module.
#[derive(Debug)]
struct Functions {
    /// First address and the address behind the last, in order; `None` where the set doesn't have
    /// the module.
    modules: Vec<Option<FunctionRanges>>,
    others: bool,
}

impl Functions {
    fn new(set: &FunctionSet, modules: &[Module]) -> Functions {
        let ranges = |module: &Module| {
            let of = |(build_id, _): &&(Vec<u8>, _)| build_id == module.build_id_in_sets();
            set.modules.iter().find(of).map(|(_, ranges)| ranges.clone())
        };
        Functions { modules: modules.iter().map(ranges).collect(), others: set.others }
    }

    fn contains(&self, location: Location) -> bool {
        let module = location.module_index().and_then(|index| self.modules.get(index));
        let Some(ranges) = module.and_then(Option::as_ref) else { return self.others };
        let at = location.image_address;
        let behind = ranges.partition_point(|(start, _)| *start <= at);
        behind.checked_sub(1).and_then(|index| ranges.get(index)).is_some_and(|(_, end)| at < *end)
    }
}

/// A call that is open, shown or not.
#[derive(Clone, Copy, Debug)]
struct Open {
    location: Location,
    /// Its depth among the calls that are shown.
    shown: Option<u32>,
    is_within: bool,
}

/// Where a call was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MadeIn {
    /// Another module, or code that isn't traced.
    Outside,
    /// Its own module.
    Inside,
    /// One of both.
    Unknown,
}

/// One thread's events, restricted to what the session requested.
pub(crate) struct Narrowed<'t> {
    to: &'t Narrowing,
    code: Option<&'t dyn Code>,
    /// Whether code at the first place calls the function of the second one.
    pairs: HashMap<(Location, Location), Option<bool>>,
    state: NarrowedState,
}

/// The state between two events.
#[derive(Clone, Debug, Default)]
pub(crate) struct NarrowedState {
    open: Vec<Open>,
    /// Calls that are open and shown.
    depth: u32,
    /// Open calls of the functions within whose calls the session records.
    within: usize,
    /// Whether the call that ended last is shown.
    is_last_shown: bool,
    /// Where the call that ended last was entered.
    last: Option<Location>,
    callers: OutermostCallers,
    /// Stretches of outermost calls that have ended.
    stretch: usize,
}

impl<'t> Narrowed<'t> {
    pub fn new(to: &'t Narrowing, code: Option<&'t dyn Code>, callers: OutermostCallers) -> Narrowed<'t> {
        let state = NarrowedState { callers, ..NarrowedState::default() };
        Narrowed { to, code, pairs: HashMap::new(), state }
    }

    /// Continues with such a state.
    pub fn resume(&mut self, state: &NarrowedState) {
        self.state = state.clone();
    }

    /// The current state.
    pub fn state(&self) -> NarrowedState {
        self.state.clone()
    }

    /// Leaves only what the session requested.
    pub fn narrow(&mut self, events: &mut Vec<TimelineEvent>) {
        events.retain_mut(|event| self.is_shown(event));
    }

    fn is_shown(&mut self, event: &mut TimelineEvent) -> bool {
        if self.to.crossing && stretch_end(event, self.state.open.len()).is_some() {
            self.state.stretch += 1;
        }
        match event {
            TimelineEvent::Begin(begin) => {
                let is_within = self.to.within.as_ref().is_some_and(|set| set.contains(begin.location));
                self.state.within += usize::from(is_within);
                let is_shown = begin.start_ns >= self.to.start_ns
                    && self.to.functions.contains(begin.location)
                    && (self.to.within.is_none() || self.state.within > 0)
                    && (!self.to.crossing || self.crosses(begin));
                self.state.open.push(Open {
                    location: begin.location,
                    shown: is_shown.then_some(self.state.depth),
                    is_within,
                });
                begin.depth = self.state.depth;
                if !self.state.is_last_shown {
                    begin.tail_call = TailCall::No;
                }
                self.state.depth += u32::from(is_shown);
                is_shown
            }
            TimelineEvent::End(end) => {
                let Some(open) = self.state.open.pop() else { return false };
                self.state.within = self.state.within.saturating_sub(usize::from(open.is_within));
                self.state.is_last_shown = open.shown.is_some();
                self.state.last = Some(open.location);
                self.state.depth = open.shown.unwrap_or(self.state.depth);
                end.depth = self.state.depth;
                self.state.is_last_shown
            }
            TimelineEvent::Untraced(_) => self.state.is_last_shown,
            TimelineEvent::Returned(_) => self.state.open.last().is_some_and(|open| open.shown.is_some()),
            TimelineEvent::Mark(mark) if mark.kind == MarkKind::Label => {
                mark.at_ns >= self.to.start_ns
                    && self.state.open.last().is_none_or(|open| open.shown.is_some())
            }
            other => other.at_ns() >= self.to.start_ns,
        }
    }

    /// Whether a call was made from another module, or from code that isn't traced. Where that
    /// isn't known, it is shown as one of uncertain caller.
    fn crosses(&mut self, begin: &mut Begin) -> bool {
        if begin.caller_unsure {
            return true;
        }
        let from = self.from(begin);
        let is_shown_within = self.state.depth > 0 && begin.tail_call == TailCall::No;
        let is_callers =
            self.state.open.last().is_some_and(|open| open.location.module != begin.location.module);
        begin.caller_unsure = match from {
            MadeIn::Unknown => true,
            // The calls around it are those of the code that isn't traced.
            MadeIn::Outside => is_shown_within && !is_callers,
            MadeIn::Inside => false,
        };
        from != MadeIn::Inside
    }

    fn from(&mut self, begin: &Begin) -> MadeIn {
        let jumped = self.state.last.filter(|_| begin.tail_call != TailCall::No);
        let caller = jumped.or_else(|| self.state.open.last().map(|open| open.location));
        let Some(caller) = caller else { return self.made_from_outermost(begin.location) };
        self.made_from(caller, begin.location)
    }

    /// Where an outermost call was made from.
    fn made_from_outermost(&mut self, callee: Location) -> MadeIn {
        let callers = &self.state.callers;
        match callers.stretches.get(self.state.stretch).copied() {
            Some(Some(caller)) => self.made_from(caller, callee),
            None if callers.is_rest_untraced => MadeIn::Outside,
            Some(None) | None => MadeIn::Unknown,
        }
    }

    /// Where a call was made from within a call of the function at `caller`: by that one, or by
    /// code that isn't traced.
    fn made_from(&mut self, caller: Location, callee: Location) -> MadeIn {
        let is_known = caller.module_index().is_some() && callee.module_index().is_some();
        if !is_known || caller.module != callee.module {
            return MadeIn::Outside;
        }
        if self.pairs.len() >= PAIRS_MAX {
            self.pairs.clear();
        }
        let code = self.code;
        let find = || code.and_then(|code| code.may_call(caller, callee));
        // A function's calls through pointers are taken for its own.
        match *self.pairs.entry((caller, callee)).or_insert_with(find) {
            Some(false) => MadeIn::Outside,
            Some(true) | None => MadeIn::Inside,
        }
    }
}

impl std::fmt::Debug for Narrowed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Narrowed").field("to", &self.to).field("state", &self.state).finish_non_exhaustive()
    }
}
