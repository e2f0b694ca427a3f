//! A hand-made recording for tests.

use std::borrow::Cow;

use everycall_timeline::{
    Begin, EndKind, Gap, GapKind, Location, Loss, LossKind, Mark, MarkKind, MarkName, TailCall,
    TimelineEvent, Untraced,
};

use crate::filter::Filter;
use crate::filtered::Event;
use crate::names::{FunctionId, FunctionName, Functions, Names};
use crate::source::{Process, Source};
use everycall_calls::Thread;

/// Numbers of so many functions.
pub(crate) fn function_ids(count: u64) -> Vec<FunctionId> {
    let mut functions = Functions::new(&Numbered, None);
    (0..count).map(|function| functions.id(Location { module: 0, image_address: function })).collect()
}

/// Calls of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) events: Vec<TimelineEvent>,
    stack: Vec<Begin>,
}

impl Calls {
    pub(crate) fn begin(&mut self, function: u64, start_ns: u64) {
        self.begin_tail(function, start_ns, TailCall::No);
    }

    pub(crate) fn begin_tail(&mut self, function: u64, start_ns: u64, tail_call: TailCall) {
        let location = Location { module: 0, image_address: function };
        let depth = self.stack.len() as u32;
        let begin = Begin { depth, location, start_ns, tail_call, ..Begin::default() };
        self.stack.push(begin);
        self.events.push(TimelineEvent::Begin(begin));
    }

    pub(crate) fn end(&mut self, end_ns: u64) {
        self.end_how(end_ns, EndKind::Returned);
    }

    pub(crate) fn end_how(&mut self, end_ns: u64, how: EndKind) {
        let begin = self.stack.pop().unwrap();
        self.events.push(TimelineEvent::End(begin.ended(end_ns, how)));
    }

    /// A mark named m0, m1, ...
    pub(crate) fn mark(&mut self, at_ns: u64, name: u32, value: Option<u64>, kind: MarkKind) {
        self.events.push(TimelineEvent::Mark(Mark { at_ns, name: MarkName(name), value, kind }));
    }

    pub(crate) fn gap(&mut self, at_ns: u64, until_ns: u64, why: GapKind) {
        self.events.push(TimelineEvent::Gap(Gap { at_ns, until_ns, why, resumed_by: None }));
    }

    /// The untraced target of the call that ended last.
    pub(crate) fn untraced(&mut self, at_ns: u64, until_ns: u64) {
        let exit = Location { module: 0, image_address: 0x1000 };
        self.events.push(TimelineEvent::Untraced(Untraced { at_ns, until_ns, exit }));
    }

    pub(crate) fn loss(&mut self, at_ns: u64, count: u64) {
        self.events.push(TimelineEvent::Loss(Loss { at_ns, count: Some(count), why: LossKind::Hole }));
    }

    /// The function that got this number: they are numbered as they occur.
    pub(crate) fn number_of(&self, id: FunctionId) -> u64 {
        let mut seen = Vec::new();
        for event in &self.events {
            if let TimelineEvent::Begin(begin) = event
                && !seen.contains(&begin.location.image_address)
            {
                seen.push(begin.location.image_address);
            }
        }
        seen[id.index()]
    }

    /// All of them.
    pub(crate) fn filtered(&self) -> Vec<Event> {
        self.filtered_by(&Filter::default(), u64::MAX)
    }

    pub(crate) fn filtered_by(&self, filter: &Filter, end_ns: u64) -> Vec<Event> {
        let mut functions = Functions::new(&Numbered, filter.function.as_ref());
        // The trace may go on behind these calls.
        let mut window = Filter { last_ns: None, ..filter.clone() }.window(self);
        let last = filter.last_ns.map_or(0, |last_ns| end_ns.saturating_sub(last_ns));
        window.since_ns = window.since_ns.max(last);
        let mut filtered = filter.apply(self, 0, window);
        let mut event = Event::default();
        std::iter::from_fn(|| filtered.next(&mut functions, &mut event).then_some(event)).collect()
    }
}

impl Source for Calls {
    fn processes(&self) -> &[Process] {
        &[]
    }

    fn threads(&self) -> &[Thread] {
        &[]
    }

    fn end_ns(&self) -> u64 {
        self.events.last().map_or(0, TimelineEvent::at_ns)
    }

    fn last_event_ns(&self) -> u64 {
        self.end_ns()
    }

    fn origin_realtime_ns(&self) -> Option<u64> {
        None
    }

    fn mark_name(&self, name: MarkName) -> &str {
        ["m0", "m1"][name.0 as usize]
    }

    fn events(&self, _: usize) -> impl Iterator<Item = TimelineEvent> {
        self.events.iter().copied()
    }
}

/// Functions named f0, f1, ...
pub(crate) struct Numbered;

impl Names for Numbered {
    fn function(&self, location: Location) -> FunctionName<'_> {
        let name = format!("f{}", location.image_address).into();
        FunctionName { name, full_name: None, module: "app".into(), file: None, line: None }
    }

    fn source(&self, _: &str) -> Option<Cow<'_, str>> {
        None
    }
}
