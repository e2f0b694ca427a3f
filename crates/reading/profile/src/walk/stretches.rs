//! Walks over stretches of random threads have the numbers of walks over all of the thread.

use std::collections::BTreeMap;

use everycall_calls::{
    Gap, GapKind, Instant, InstantKind, Loss, LossKind, PairingStats, StateSpan, ThreadState, Untraced, Wait,
    Window,
};
use everycall_synth::Rng;

use super::*;
use crate::functions::{Function, FunctionIdentity};
use crate::group::Grouping;
use crate::stretch::WholeCalls;
use crate::sums::Sums;
use crate::table::{Cells, Table};
use crate::tree::Tree;

/// Functions at multiples of ten; their thunks lie behind them.
struct ByTens;

fn name_of(location: Location) -> String {
    (location.image_address / 10).to_string()
}

impl PlaceOf for ByTens {
    fn get(&mut self, location: Location, functions: &mut Functions) -> Place {
        let identity = FunctionIdentity { name: name_of(location), ..FunctionIdentity::default() };
        let thunk = match location.image_address % 10 {
            1 => Some(Thunk::This),
            2 => Some(Thunk::Result),
            _ => None,
        };
        let matches = (location.image_address / 10).is_multiple_of(3);
        Place { function: functions.number(Function::of(identity)), thunk, split: Split::No, matches }
    }
}

/// Calls of a thread by chance, of every kind, until `until_ns`.
fn thread(rng: &mut Rng, until_ns: u64) -> Vec<TimelineEvent> {
    let mut events = Vec::new();
    let (mut now, mut open): (u64, Vec<Begin>) = (0, Vec::new());
    let mut jumped: Option<Begin> = None;
    while now < until_ns || !open.is_empty() {
        now += rng.below(4);
        let is_over = now >= until_ns;
        let is_deeper = open.len() < 12 && (open.is_empty() || rng.one_in(2));
        if let Some(before) = jumped.take()
            && rng.one_in(3)
        {
            let until_ns = now + rng.below(3);
            events.push(TimelineEvent::Untraced(Untraced { at_ns: now, until_ns, exit: before.location }));
            now = until_ns;
        }
        if is_deeper && !is_over {
            let image_address = 10 * rng.below(7) + rng.below(3);
            let mut begin = Begin {
                depth: open.len() as u32,
                location: Location { module: 0, image_address },
                start_ns: now,
                cut: rng.one_in(50),
                ..Begin::default()
            };
            if let Some(TimelineEvent::End(End { how: EndKind::Jumped, location, .. })) = events.last() {
                begin.tail_call = if rng.one_in(4) { TailCall::Perhaps } else { TailCall::Yes };
                if rng.one_in(2) {
                    begin.location.image_address = location.image_address / 10 * 10;
                }
            }
            open.push(begin);
            events.push(TimelineEvent::Begin(begin));
        } else if let Some(begin) = open.pop() {
            let how = match rng.below(12) {
                _ if is_over => EndKind::TruncatedAtEnd,
                0 | 1 => EndKind::Unwound,
                2 => EndKind::UnwoundLate,
                3 => EndKind::ReturnedAfterGap,
                4 | 5 => EndKind::Jumped,
                _ => EndKind::Returned,
            };
            events.push(TimelineEvent::End(begin.ended(now, how)));
            jumped = (how == EndKind::Jumped).then_some(begin);
        }
        if rng.one_in(30) && !is_over {
            let until_ns = now + rng.below(5);
            let why = if rng.one_in(2) { GapKind::Suspended } else { GapKind::Disabled };
            events.push(TimelineEvent::Gap(Gap { at_ns: now, until_ns, why, resumed_by: None }));
            now = until_ns;
        }
        if rng.one_in(40) {
            let count = rng.one_in(2).then(|| rng.below(9));
            events.push(TimelineEvent::Loss(Loss { at_ns: now, count, why: LossKind::Busy }));
        }
        if rng.one_in(40) {
            let kind = InstantKind::OrphanExit(Location { module: 0, image_address: 10 });
            events.push(TimelineEvent::Instant(Instant { at_ns: now, kind }));
        }
    }
    events
}

fn states(rng: &mut Rng, until_ns: u64) -> ThreadStates {
    let mut now = 0;
    let mut spans = Vec::new();
    while now < until_ns {
        let (start, end) = (now, now + 1 + rng.below(9));
        let state = match rng.below(4) {
            0 => ThreadState::Running,
            1 => ThreadState::Runnable,
            2 => ThreadState::Blocked(Wait::Any),
            _ => ThreadState::Unknown,
        };
        spans.push(StateSpan { start, end, state, cpu: None, woken_by: None, blocked_in: None });
        now = end;
    }
    ThreadStates::new(spans)
}

/// A place at which a walk can begin or end.
struct Stop {
    index: usize,
    at: u64,
    open: Vec<u32>,
}

/// Which events a walk gets, and the calls that are open before and behind them.
type Part<'e> = (&'e [TimelineEvent], Vec<WholeCall>, Option<Vec<WholeCall>>);

/// Sums by name or path, and what they lack.
type Found = (BTreeMap<String, Sums>, BTreeMap<String, Sums>, Notes);

fn found(part: &Part<'_>, window: &Window, states: Option<&ThreadStates>) -> Found {
    // As with a pattern, which `ByTens` applies.
    let window = Window { selects: window.depth == 7, ..*window };
    let mut notes = Notes::default();
    let mut functions = Functions::default();
    let mut cells = Cells::default();
    cells.has_own_times = true;
    walked(
        part,
        &window,
        states,
        &mut functions,
        &mut notes,
        &mut Table::new(&mut cells, &Grouping::Function, 0, Vec::new()),
    );
    let is_there = |sums: &Sums| *sums != Sums::default();
    let name = |number: u32| functions.get(number).unwrap().identity.name.clone();
    let table = cells.all.iter().filter(|cell| is_there(&cell.sums)).map(|cell| {
        let crate::group::Key::Function(number) = cell.key else { unreachable!() };
        (name(number), cell.sums.clone())
    });
    let table = table.collect();
    let mut of_tree = Functions::default();
    let mut tree = Tree::default();
    walked(part, &window, states, &mut of_tree, &mut Notes::default(), &mut tree);
    let name = |number: &u32| of_tree.get(*number).unwrap().identity.name.clone();
    let paths =
        tree.nodes().iter().enumerate().filter(|(_, node)| is_there(&node.sums)).map(|(index, node)| {
            (tree.path(index).iter().map(name).collect::<Vec<_>>().join(" "), node.sums.clone())
        });
    (table, paths.collect(), notes)
}

fn walked(
    (events, before, behind): &Part<'_>,
    window: &Window,
    states: Option<&ThreadStates>,
    functions: &mut Functions,
    notes: &mut Notes,
    visitor: &mut impl Visitor,
) {
    let mut places = ByTens;
    let mut walker =
        Walker::new(Calls::new(*window, None), functions, &mut places, visitor).with_states(states);
    walker.enter(before);
    walker.walk(events, notes);
    match behind {
        Some(open) => walker.leave(open),
        None => walker.untie(),
    }
    assert!(walker.calls.open().is_empty());
}

#[test]
fn a_stretch_has_the_numbers_of_a_walk_over_everything() {
    let mut parts = 0;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let until_ns = 400;
        let events = thread(&mut rng, until_ns);
        let states = (seed % 2 == 0).then(|| states(&mut rng, until_ns));
        let mut calls = WholeCalls::new(states.as_ref());
        let (mut stops, mut known, mut at): (Vec<Stop>, BTreeMap<u32, WholeCall>, _) = Default::default();
        for (index, event) in events.iter().enumerate() {
            at = event.at_ns().max(at);
            if rng.one_in(20) && calls.is_between() {
                stops.push(Stop { index, at, open: calls.open().map(|(number, _)| number).collect() });
            }
            calls.event(event, &mut |number, call| _ = known.insert(number, call));
        }
        calls.finish(PairingStats::default(), &mut |number, call| _ = known.insert(number, call));
        let open = |stop: &Stop| stop.open.iter().map(|number| known[number].clone()).collect::<Vec<_>>();
        for _ in 0..30 {
            let since = rng.below(until_ns);
            let until = since + rng.below(60);
            let window = Window {
                since_ns: since,
                until_ns: until,
                min_duration_ns: rng.below(2) * rng.below(20),
                depth: [usize::MAX, 3, 7][rng.below(3) as usize],
                ..Window::default()
            };
            let begin = stops.iter().rev().find(|stop| stop.at < since);
            let end = stops.iter().find(|stop| stop.at > until);
            let from = begin.map_or(0, |stop| stop.index);
            let to = end.map_or(events.len(), |stop| stop.index);
            let part = (&events[from..to], begin.map(open).unwrap_or_default(), end.map(open));
            parts += usize::from(begin.is_some() && end.is_some());
            let mut some = found(&part, &window, states.as_ref());
            let all = found(&(&events, Vec::new(), None), &window, states.as_ref());
            // Not bound to the range.
            some.2.gaps = all.2.gaps;
            assert!(some == all, "seed {seed}, {since}..{until}\n{some:?}\n{all:?}");
        }
    }
    assert!(parts > 3000, "{parts}");
}
