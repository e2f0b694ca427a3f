//! Calls by where they are: a track, a moment and a depth.

use std::sync::Arc;

use everycall_answers::{NO_CALL, Position};
use everycall_export::{Source as _, ValuesNumber, shown_values};
use everycall_timeline::{Bars, GapKind, Intervals, MarkKind, TimelineEvent};
use rustc_hash::FxHashMap;

use super::Answered;
use crate::cell::Cell;
use crate::context::Context;
use crate::file::Open;
use crate::library::{Library, OpenFile};
use crate::read::{begin_bits, end_bits};
use crate::window::{From, read_from};

/// A call, with what it did.
pub(super) struct Call {
    pub cell: Cell,
    pub own_ns: u64,
    /// How long it took, if that isn't known exactly.
    pub bars: Option<Bars>,
    pub labels: Vec<(String, Option<u64>)>,
    /// Names and texts of its arguments and its result.
    pub values: Vec<(String, String)>,
    /// The calls around it, outermost first.
    pub around: Vec<Open>,
    /// By function: calls, time, and the longest.
    pub children: FxHashMap<u32, (u64, u64, Cell)>,
}

/// The call that is open in a thread at a moment and a depth.
pub(super) fn call_at(context: &Context<'_>, thread: usize, at: u64, depth: usize) -> Option<Call> {
    let mut numbers = context.numbers.borrow_mut();
    // Where it begins, if the levels have it.
    let known = context.file.track(thread).and_then(|track| track.levels.find(depth, at));
    let from = known.map_or(at, |cell| cell.from);
    let From { events, open: mut stack } = read_from(context, &mut numbers, thread, from);
    let mut call: Option<Call> = None;
    let mut short = None;
    // The call's time without that of its callees, and without that in which its stack was
    // suspended.
    let mut less_ns = 0_u64;
    let mut intervals = Intervals::default();
    let shown = |number: Option<ValuesNumber>| {
        number.map_or_else(Vec::new, |number| shown_values(context.view, number))
    };
    for event in events {
        let bars = intervals.event(&event);
        match event {
            TimelineEvent::Begin(begin) => {
                let here = stack.len();
                if begin.start_ns > at && here <= depth {
                    break;
                }
                let function = numbers.of(begin.location);
                let open = Open { function, from: begin.start_ns, bits: begin_bits(&begin) };
                if here == depth {
                    less_ns = 0;
                    call = Some(Call {
                        cell: Cell::call(open.from, open.from, function, open.bits),
                        own_ns: 0,
                        bars: None,
                        labels: Vec::new(),
                        values: shown(begin.arguments),
                        around: stack.clone(),
                        children: FxHashMap::default(),
                    });
                }
                stack.push(open);
            }
            TimelineEvent::End(end) => {
                let Some(open) = stack.pop() else { continue };
                let cell = Cell::call(open.from, end.end_ns, open.function, open.bits | end_bits(&end));
                let length = cell.to() - cell.from;
                if stack.len() == depth + 1
                    && let Some(call) = &mut call
                {
                    less_ns = less_ns.saturating_add(length);
                    let (calls, time, longest) = call.children.entry(cell.function).or_insert((0, 0, cell));
                    (*calls, *time) = (*calls + 1, time.saturating_add(length));
                    if longest.to() - longest.from < length {
                        *longest = cell;
                    }
                }
                if stack.len() == depth
                    && let Some(mut call) = call.take()
                    && (cell.from <= at && at < cell.to() || cell.from == at)
                {
                    (call.cell, call.bars) = (cell, bars);
                    call.own_ns = length.saturating_sub(less_ns);
                    if at < cell.to() {
                        return Some(call);
                    }
                    // Another one may begin when this one, without duration, ends.
                    short = Some(call);
                }
            }
            TimelineEvent::Returned(returned) if stack.len() == depth + 1 => {
                if let Some(call) = &mut call {
                    call.values.extend(shown(Some(returned.result)));
                }
            }
            TimelineEvent::Mark(mark) if mark.kind == MarkKind::Label && stack.len() == depth + 1 => {
                if let Some(call) = &mut call {
                    call.labels.push((context.view.mark_name(mark.name).to_owned(), mark.value));
                }
            }
            TimelineEvent::Gap(gap) if stack.len() == depth + 1 && gap.why == GapKind::Suspended => {
                less_ns = less_ns.saturating_add(gap.until_ns.saturating_sub(gap.at_ns));
            }
            _ => {}
        }
    }
    short
}

/// The file, the thread and the cell of a call.
pub(super) fn cell_at(library: &Library, position: Position) -> Answered<(Arc<OpenFile>, usize, Cell)> {
    let (open, thread) = library.track(position.track)?;
    let Position { at, depth, .. } = position;
    let known =
        open.file.track(thread).and_then(|track| track.levels.find(depth, at)).filter(|cell| cell.count == 1);
    let cell = match known {
        Some(cell) => cell,
        None => open
            .quick
            .ask(move |context| call_at(context, thread, at, depth).map(|call| call.cell))?
            .ok_or(NO_CALL)?,
    };
    Ok((open, thread, cell))
}
