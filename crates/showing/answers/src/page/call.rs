//! One call of a page.

use std::collections::BTreeMap;

use everycall_calls::{StateSpan, ThreadState, ThreadStates, Wait};
use serde_json::Value;

use super::data::Page;
use super::slices::{Slice, Track};
use crate::{Answered, Callee, Details, NO_CALL, OpenCall, Position, TimesOfStates, bits};

/// Called functions that are listed.
const CHILDREN_MAX: usize = 200;

/// A call that was found.
pub(super) struct Found<'p> {
    pub track: &'p Track,
    pub slice: Slice,
    /// Its position among the track's calls.
    pub position: u64,
    /// The calls around it, outermost first.
    around: Vec<Slice>,
}

impl Page {
    /// The call that is open at a place.
    pub(super) fn found(&self, position: Position) -> Answered<Found<'_>> {
        let Position { track, at, depth } = position;
        let track = self.tracks.iter().find(|of| of.id == track).ok_or("there is no such track")?;
        let mut open: Vec<Slice> = Vec::new();
        let mut found = None;
        let calls = track.slices(&self.bytes).filter(|slice| !slice.is_untraced()).zip(0..);
        for (slice, position) in calls.take_while(|(slice, _)| slice.from <= at) {
            open.truncate(slice.depth as usize);
            if slice.depth as usize == depth && (at < slice.to() || slice.from == at) {
                found = Some(Found { track, slice, position, around: open.clone() });
            }
            open.push(slice);
        }
        found.ok_or_else(|| NO_CALL.to_owned())
    }

    pub(super) fn details(&self, position: Position) -> Answered<Details> {
        let Found { track, slice, position: index, around } = self.found(position)?;
        // By function: calls, time, and the longest.
        let mut called: BTreeMap<u32, (u64, u64, Slice)> = BTreeMap::new();
        let mut inner_ns = 0_u64;
        let calls = track.slices(&self.bytes).filter(|slice| !slice.is_untraced());
        let within = calls.skip(usize::try_from(index).unwrap_or(usize::MAX).saturating_add(1));
        for callee in within.take_while(|callee| callee.depth > slice.depth) {
            if callee.depth != slice.depth + 1 {
                continue;
            }
            inner_ns = inner_ns.saturating_add(callee.duration);
            let Some(function) = self.head.function_at(callee.place) else { continue };
            let (calls, time, longest) = called.entry(function).or_insert((0, 0, callee));
            (*calls, *time) = (*calls + 1, time.saturating_add(callee.duration));
            if longest.duration < callee.duration {
                *longest = callee;
            }
        }
        let (inner_ns, suspended_ns) = slice.less.unwrap_or((inner_ns, 0));
        let mut children: Vec<_> = called.into_iter().collect();
        children.sort_by_key(|(function, (_, time, _))| (std::cmp::Reverse(*time), *function));
        let all_children = children.len();
        let callee = |(function, (calls, total_ns, longest)): (u32, (u64, u64, Slice))| Callee {
            function,
            calls,
            total_ns,
            longest: longest.place_in(track.id),
        };
        let function_of = |slice: &Slice| self.head.function_at(slice.place).unwrap_or(u32::MAX);
        let function = function_of(&slice);
        let open = |call: &Slice| OpenCall {
            function: function_of(call),
            from: call.from,
            to: Some(call.to()),
            depth: call.depth as usize,
        };
        let counted = self.head.all_calls.iter().filter(|(of, ..)| *of == function);
        let all_calls: u64 = counted.map(|(.., calls)| *calls).fold(0, u64::saturating_add);
        Ok(Details {
            place: slice.place_in(track.id),
            function,
            own_ns: slice.duration.saturating_sub(inner_ns).saturating_sub(suspended_ns),
            low_ns: None,
            high_ns: None,
            all_calls: Some(all_calls).filter(|all| *all > 0),
            cut_start: slice.has(bits::CUT_START),
            cut_end: slice.has(bits::CUT_END),
            unwound: slice.has(bits::UNWOUND),
            tail: slice.has(bits::TAIL),
            at_most: slice.has(bits::AT_MOST),
            caller_uncertain: slice.has(bits::CALLER_UNSURE),
            labels: self.head.labels_of(track.id, slice.from, slice.depth),
            caller: around.last().map(open),
            path: around.iter().chain([&slice]).map(function_of).collect(),
            all_children,
            children: children.into_iter().take(CHILDREN_MAX).map(callee).collect(),
            states: self.head.states.get(&track.id).map(|rows| states(rows, slice.from, slice.to())),
            samples: self.head.samples_of(track.id, slice.depth, (slice.from, slice.to())),
        })
    }
}

/// The states in a call, of rows as the page draws them.
fn states(rows: &[Vec<Value>], from: u64, to: u64) -> TimesOfStates {
    // System calls are numbered as they come.
    let mut names: Vec<String> = Vec::new();
    let spans = rows.iter().filter_map(|row| {
        let number = |index: usize| row.get(index).and_then(Value::as_u64);
        let state = match number(2)? {
            0 => ThreadState::Running,
            1 => ThreadState::Runnable,
            2 => ThreadState::Blocked(Wait::Any),
            _ => ThreadState::Unknown,
        };
        let blocked_in = row.get(4).and_then(Value::as_str).map(|name| {
            let known = names.iter().position(|known| known == name);
            known.unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            }) as u32
        });
        let (start, end) = (number(0)?, number(1)?);
        Some(StateSpan { start, end: end.max(start), state, cpu: None, woken_by: None, blocked_in })
    });
    let states = ThreadStates::new(spans.collect());
    let (times, waits) = (states.times(from, to), states.blocked_in(from, to));
    let wait = |(name, time): (u32, u64)| Some((names.get(name as usize)?.clone(), time));
    TimesOfStates {
        blocked_in: waits.into_iter().filter_map(wait).collect(),
        running_ns: times.running,
        runnable_ns: times.runnable,
        blocked_ns: times.blocked,
        unknown_ns: times.unknown,
    }
}
