//! The calls that one session requested, out of all that its threads recorded.

use everycall_reader::{FunctionRanges, FunctionSet, Module, Session};

use crate::clock::Clock;
use crate::event::{MarkKind, TailCall, TimelineEvent};
use crate::location::Location;

/// A session's request.
#[derive(Debug)]
pub(crate) struct Narrowing {
    /// Index of its process.
    process: usize,
    start_ns: u64,
    functions: Functions,
    within: Option<Functions>,
    crossing: bool,
}

impl Narrowing {
    pub fn new(session: &Session, modules: &[Module], clock: &Clock) -> Narrowing {
        Narrowing {
            process: session.process,
            start_ns: clock.ns(session.start_ticks),
            functions: Functions::new(&session.functions, modules),
            within: session.within.as_ref().map(|within| Functions::new(within, modules)),
            crossing: session.crossing,
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

/// One thread's events, restricted to what the session requested.
#[derive(Debug)]
pub(crate) struct Narrowed<'t> {
    to: &'t Narrowing,
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
}

impl<'t> Narrowed<'t> {
    pub fn new(to: &'t Narrowing) -> Narrowed<'t> {
        Narrowed { to, state: NarrowedState::default() }
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
        match event {
            TimelineEvent::Begin(begin) => {
                let is_within = self.to.within.as_ref().is_some_and(|set| set.contains(begin.location));
                self.state.within += usize::from(is_within);
                let crosses = self
                    .state
                    .open
                    .last()
                    .is_none_or(|caller| caller.location.module != begin.location.module);
                let is_shown = begin.start_ns >= self.to.start_ns
                    && self.to.functions.contains(begin.location)
                    && (self.to.within.is_none() || self.state.within > 0)
                    && (!self.to.crossing || crosses);
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
                self.state.depth = open.shown.unwrap_or(self.state.depth);
                end.depth = self.state.depth;
                self.state.is_last_shown
            }
            TimelineEvent::Untraced(_) => self.state.is_last_shown,
            TimelineEvent::Mark(mark) if mark.kind == MarkKind::Label => {
                mark.at_ns >= self.to.start_ns
                    && self.state.open.last().is_none_or(|open| open.shown.is_some())
            }
            other => other.at_ns() >= self.to.start_ns,
        }
    }
}
