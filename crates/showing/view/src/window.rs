//! The calls of a window as they were, read from the file: for pixels that are narrower than the
//! lowest summary level that is kept.

use std::sync::Arc;

use everycall_analysis::LabelledEvents;
use everycall_timeline::{Checkpoint, ThreadEvents, TimelineEvent};

use crate::cell::Cell;
use crate::context::Context;
use crate::file::Open;
use crate::levels::width;
use crate::read::{Numbers, begin_bits, end_bits};
use everycall_answers::bits;

/// A thread's events from a moment on, and the calls that are open there.
pub(crate) struct From<'w> {
    pub events: LabelledEvents<'w>,
    pub open: Vec<Open>,
}

/// Begins to read a thread before `at_ns`.
pub(crate) fn read_from<'w>(
    context: &Context<'w>,
    numbers: &mut Numbers<'_>,
    thread: usize,
    at_ns: u64,
) -> From<'w> {
    let from = stop(context, numbers, thread, at_ns).and_then(|stop| {
        let mut events = context.view.events_from(thread, &stop.checkpoint)?;
        if stop.is_in_order {
            events.without_late();
        }
        Some(From { events, open: stop.open })
    });
    from.unwrap_or_else(|| From { events: context.view.events_with_labels(thread), open: Vec::new() })
}

/// A place from which a thread can be read.
struct Place {
    checkpoint: Arc<Checkpoint>,
    open: Vec<Open>,
    is_in_order: bool,
}

fn stop(context: &Context<'_>, numbers: &mut Numbers<'_>, thread: usize, at_ns: u64) -> Option<Place> {
    let track = context.file.track(thread)?;
    let (checkpoint, open) = track.stops.before(at_ns)?;
    let open = open.into_iter().map(|call| Open {
        function: numbers.of(call.begin().location),
        from: call.begin().start_ns,
        bits: begin_bits(call.begin()),
    });
    Some(Place { checkpoint, open: open.collect(), is_in_order: track.is_in_order })
}

/// Events from a moment on without labels, which are many events at once.
fn events_from<'w>(
    context: &Context<'w>,
    numbers: &mut Numbers<'_>,
    thread: usize,
    at_ns: u64,
) -> Option<(ThreadEvents<'w>, Vec<Open>)> {
    let from = stop(context, numbers, thread, at_ns).and_then(|stop| {
        let mut events = context.view.timeline_from(thread, Some(&stop.checkpoint))?;
        if stop.is_in_order {
            events.without_late();
        }
        Some((events, stop.open))
    });
    from.or_else(|| Some((context.view.timeline_from(thread, None)?, Vec::new())))
}

/// Passes the calls that are open at some moment of a window, with their depths, in the order of
/// their ends.
pub(crate) fn calls(
    context: &Context<'_>,
    thread: usize,
    from: u64,
    to: u64,
    out: &mut impl FnMut(usize, Cell),
) {
    let (lowest, read_ns) = match context.file.track(thread) {
        Some(track) => (track.levels.lowest(), if track.is_complete { u64::MAX } else { track.read_ns }),
        None => return,
    };
    let mut numbers = context.numbers.borrow_mut();
    let Some((mut events, mut open)) = events_from(context, &mut numbers, thread, from) else { return };
    // A call that is open for so long behind the window is in the lowest level.
    let behind = to.saturating_add(width(lowest));
    'read: loop {
        let some = events.next_some();
        if some.is_empty() {
            break;
        }
        for event in some {
            let at_ns = event.at_ns();
            let is_over = at_ns > to && (at_ns > behind || open.first().is_none_or(|open| open.from > to));
            if at_ns > read_ns || is_over {
                break 'read;
            }
            match event {
                TimelineEvent::Begin(begin) => {
                    let function = numbers.of(begin.location);
                    open.push(Open { function, from: begin.start_ns, bits: begin_bits(begin) });
                }
                TimelineEvent::End(end) => {
                    let Some(call) = open.pop() else { continue };
                    if end.end_ns >= from && call.from <= to {
                        let bits = call.bits | end_bits(end);
                        out(open.len(), Cell::call(call.from, end.end_ns, call.function, bits));
                    }
                }
                TimelineEvent::Untraced(untraced) if untraced.until_ns >= from && untraced.at_ns <= to => {
                    let function = numbers.untraced(context.names, untraced.exit);
                    let cell = Cell::call(untraced.at_ns, untraced.until_ns, function, bits::AT_MOST);
                    out(open.len(), cell);
                }
                _ => {}
            }
        }
    }
    drop(numbers);
    let Some(track) = context.file.track(thread) else { return };
    for (depth, call) in open.iter().enumerate().rev() {
        if call.from > to {
            continue;
        }
        let known = track.levels.find(depth, call.from);
        match known.filter(|cell| cell.from == call.from && cell.count == 1) {
            Some(cell) => out(depth, cell),
            // It has not ended where reading has got to.
            None => {
                out(depth, Cell::call(call.from, track.read_ns, call.function, call.bits | bits::CUT_END))
            }
        }
    }
}
