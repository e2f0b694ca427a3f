//! The events of one call: its labels and values, the calls in it that say what they waited for,
//! and what is missing in it.

use everycall_analysis::{CallPlace, FunctionFinder, TraceView};
use everycall_export::{Source as _, Thread};
use everycall_timeline::{GapKind, MarkKind, ThreadStates, TimelineEvent, ValuesNumber};

use crate::answer::{Holder, Named, WaitingCall};

/// The label of calls that triggers kept, which says nothing new.
const KEPT: &str = "kept call";
/// The label with the thread that holds a lock.
const HOLDER: &str = "held by";
/// Largest number of calls with labels that are looked at.
const CALLS_MAX: usize = 100_000;

/// Facts that the events of a call tell.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    pub(crate) labels: Vec<(String, Option<u64>)>,
    pub(crate) arguments: Option<ValuesNumber>,
    /// Calls in it with labels, the longest first.
    pub(crate) waiting: Vec<WaitingCall>,
    pub(crate) lost: u64,
    /// Losses of unknown size.
    pub(crate) losses: u64,
    /// Times that recording was off.
    pub(crate) gaps: u64,
}

/// A call that is open.
struct Open {
    location: everycall_timeline::Location,
    start_ns: u64,
    labels: Vec<(String, Option<u64>)>,
}

/// The index of a call's thread in [`Source::threads`](everycall_export::Source::threads).
pub(crate) fn thread_of(view: &TraceView<'_>, place: CallPlace) -> Option<usize> {
    let is_it = |(_, thread): &(usize, &Thread)| (thread.pid, thread.tid) == (place.pid, place.tid);
    let has = |index: usize| {
        let reach = view.thread_info(index).and_then(|info| info.reach);
        reach.is_some_and(|(from, to)| (from..=to).contains(&place.start_ns))
    };
    let all: Vec<usize> = view.threads().iter().enumerate().filter(is_it).map(|(index, _)| index).collect();
    all.iter().copied().find(|index| has(*index)).or(all.first().copied())
}

/// The states of a call's thread.
pub(crate) fn states_of<'v>(view: &'v TraceView<'_>, place: CallPlace) -> Option<&'v ThreadStates> {
    view.states(thread_of(view, place)?)
}

/// The name of a thread of a process, if the trace has it.
pub(crate) fn thread_name(view: &TraceView<'_>, pid: u32, tid: u32) -> Option<String> {
    let mut threads = view.threads().iter();
    let thread = threads.find(|thread| (thread.pid, thread.tid) == (pid, tid))?;
    Some(thread.name.clone()).filter(|name| !name.is_empty())
}

/// Reads the events of a call.
pub(crate) fn inside(view: &TraceView<'_>, place: CallPlace, end_ns: u64) -> Inside {
    let mut found = Inside::default();
    let Some(thread) = thread_of(view, place) else { return found };
    let mut finder = FunctionFinder::new(view);
    let mut named = |location| {
        let number = finder.number(location);
        Named::of(finder.functions().get(number))
    };
    let mut open: Vec<Open> = Vec::new();
    for event in view.events_with_labels(thread) {
        if open.is_empty() {
            if event.at_ns() > place.start_ns {
                break;
            }
            let TimelineEvent::Begin(begin) = event else { continue };
            if (begin.start_ns, begin.depth) == (place.start_ns, place.depth) {
                found.arguments = begin.arguments;
                open.push(Open { location: begin.location, start_ns: begin.start_ns, labels: Vec::new() });
            }
            continue;
        }
        if event.at_ns() > end_ns {
            break;
        }
        match event {
            TimelineEvent::Begin(begin) => {
                open.push(Open { location: begin.location, start_ns: begin.start_ns, labels: Vec::new() });
            }
            TimelineEvent::End(end) => {
                let Some(call) = open.pop() else { break };
                if open.is_empty() {
                    found.labels = call.labels;
                    break;
                }
                if !call.labels.is_empty() && found.waiting.len() < CALLS_MAX {
                    found.waiting.push(WaitingCall {
                        function: named(call.location),
                        start_ns: call.start_ns,
                        duration_ns: end.end_ns.saturating_sub(call.start_ns),
                        holder: holder(view, place.pid, &call.labels),
                        labels: call.labels,
                    });
                }
            }
            TimelineEvent::Mark(mark) if mark.kind == MarkKind::Label => {
                let name = view.mark_name(mark.name);
                if name != KEPT
                    && let Some(call) = open.last_mut()
                {
                    call.labels.push((name.to_owned(), mark.value));
                }
            }
            TimelineEvent::Loss(loss) => match loss.count {
                Some(count) => found.lost = found.lost.saturating_add(count),
                None => found.losses += 1,
            },
            TimelineEvent::Gap(gap) => found.gaps += u64::from(gap.why != GapKind::Suspended),
            _ => {}
        }
    }
    if let Some(call) = open.into_iter().next() {
        found.labels = call.labels;
    }
    found.waiting.sort_by_key(|call| (std::cmp::Reverse(call.duration_ns), call.start_ns));
    found
}

fn holder(view: &TraceView<'_>, pid: u32, labels: &[(String, Option<u64>)]) -> Option<Holder> {
    let (_, tid) = labels.iter().find(|(name, value)| name == HOLDER && value.is_some())?;
    let tid = u32::try_from((*tid)?).ok()?;
    Some(Holder { tid, thread: thread_name(view, pid, tid) })
}
