//! Calls for programs: one JSON object per line and call, written when the call ends.
//!
//! ```text
//! {"pid":1,"tid":2,"thread":"main","depth":1,"start_ns":7,"dur_ns":1234,"name":"f(int)","module":"app","file":"/src/file.cpp","line":12}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"lost":7,"why":"..."}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"orphan_exits":1,"function":"f(int)"}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"label":"request","value":4711}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"instant":"reload"}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"counter":"queue","value":-17}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"log":"worker 7 took 3 ms"}
//! {"pid":1,"tid":2,"thread":"main","span":"request","value":4711,"start_ns":7,"dur_ns":1234}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"not_recorded_ns":1234,"why":"..."}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"off_cpu_ns":1234,"blocked_ns":1200,
//!     "runnable_ns":34,"blocked_in":"futex","woken_by":2}
//! {"pid":1,"tid":1000000003,"fiber":3,"thread":"fiber 3","at_ns":99,"suspended_ns":1234,"why":"...","resumed_by":2}
//! ```
//!
//! With [`Times::Wall`], `start_realtime_ns` (since 1970) and `start_time` (RFC 3339) stand behind `start_ns`, and `at_realtime_ns` and `at_time` behind `at_ns`.
//! With [`Times::Raw`], `start_ticks`, `dur_ticks` and `at_ticks` stand there, and calls have `address`, where the function was entered, as its module's file has it.
//!
//! `resumed_by` is the kernel's number of the thread that goes on with a suspended stack. Times are exact nanoseconds since the trace's origin. `depth` counts the shown calls around the call.
//! A call whose duration isn't known exactly, because events had no times of their own, has
//! `dur_low_ns` and `dur_high_ns`.
//! `file` and `line` are left out where unknown, `lost` is null where nobody counted, `value` left
//! out where there is none, a text where it is above 2^53, or a double that is no number. A call
//! whose thread's states are known has `voluntary_switches` and `involuntary_switches`; where some
//! of its time is unknown, `off_cpu_at_least_ns` and `off_cpu_at_most_ns`. A call with labels has
//! `labels`, an object of their names and values (an array where a name has several; `kept call` is
//! the number of a call that a trigger kept), and `more_labels` where they were too many. A span's
//! line is written when it ends; `orphan_span_end` in the place of `span` and at one moment is an
//! end without a begin. A call that isn't wholly recorded or didn't return has `remarks`, an array
//! of "truncated at start", "truncated at end", "truncated at a loss", "truncated at a gap",
//! "unwound", "exact time unknown" (after "unwound": it ended some time before), "exit lost",
//! "caller uncertain" (the call around it may not have made it), "partly not recorded", "ends in a
//! tail call"; a span that isn't, likewise. A call that the one before jumped to has
//! `tail_call_of`, that one's function, or `possible_tail_call_of` where it jumped and the code
//! doesn't tell where to. `symbol` is the linker's name where several functions may have the name,
//! `same_code_as` the functions with the same code at the same address. With inlined calls asked
//! for, `inlined_not_timed` has those of the call's function: `level` (inlined calls around it),
//! `name`, `at` (file and line of the call); `more_inlined` counts those that were left out.

use std::io::{self, Write};

use everycall_timeline::{Bars, EndKind, Gap, GapKind, Location, Mark, MarkKind, SpanEndKind, StateTimes};

use crate::driver::{self, Export, Sink};
use crate::filter::Filter;
use crate::filtered::{Event, Point, PointKind, Tail};
use crate::json::{put_number, put_string};
use crate::labels::{Labels, OpenLabels, put_mark_value};
use crate::names::{Details, Function, FunctionId, Functions, Names};
use crate::off_cpu::OffCpu;
use crate::portions::Portions;
use crate::source::{Source, Times};
use crate::summary::Summary;
use crate::tails::Tails as Jumping;
use crate::text;
use crate::times::JsonMoments;
use crate::values;
use everycall_calls::CallValues;
use everycall_calls::Thread;

/// Writes what passes `filter` as JSON lines, thread by thread.
///
/// # Errors
///
/// Errors of `out`, unchanged: a closed pipe is an [`io::ErrorKind::BrokenPipe`].
pub fn replay_json(
    source: &impl Source,
    names: &dyn Names,
    filter: &Filter,
    out: &mut dyn Write,
) -> io::Result<Summary> {
    driver::run(source, names, filter, &mut |_| {}, &mut JsonLines::new(out))
}

/// The output.
pub(crate) struct JsonLines<'o> {
    portions: Portions<'o>,
    tails: Tails,
    /// The beginning of each line of the thread.
    head: Vec<u8>,
    labels: OpenLabels,
    jumps: Jumping,
    /// Index of the thread.
    thread: usize,
    /// When its stack was resumed last: the thread ran others meanwhile.
    resumed_ns: u64,
    /// Open calls of the thread.
    depth: u64,
    moments: JsonMoments,
}

impl<'o> JsonLines<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        JsonLines {
            portions: Portions::new(out),
            tails: Tails::default(),
            head: Vec::new(),
            labels: OpenLabels::default(),
            jumps: Jumping::default(),
            thread: 0,
            resumed_ns: 0,
            depth: 0,
            moments: JsonMoments::default(),
        }
    }
}

impl<'o, S: Source> Sink<'o, S> for JsonLines<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn thread(&mut self, _: &mut Export<'_, S>, index: usize, thread: &Thread) {
        self.head = head(thread);
        (self.thread, self.resumed_ns) = (index, 0);
        self.labels = OpenLabels::default();
        self.jumps = Jumping::default();
        self.depth = 0;
    }

    #[inline]
    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        let JsonLines { tails, head, labels, jumps, depth, moments, resumed_ns, .. } = self;
        let (bytes, functions) = (&mut self.portions.bytes, &export.functions);
        export.summary.event(event);
        match *event {
            Event::Begin { start, .. } => {
                *depth += 1;
                jumps.begin(*depth as usize, start.tail);
            }
            Event::End { function, start_ns, end_ns, start, how } => {
                let has_labels = labels.end(*depth as usize);
                let tail = jumps.end(*depth as usize, how).tail;
                *depth -= 1;
                bytes.extend_from_slice(head);
                bytes.extend_from_slice(b",\"depth\":");
                put_number(bytes, *depth);
                moments.put_call(bytes, export.source, start_ns, end_ns);
                if let Some(bars) = export.bars {
                    put_bars(bytes, export.source, start_ns, bars);
                }
                bytes.extend_from_slice(tails.get(function, functions));
                if let Times::Raw(_) = export.source.times() {
                    put_address(bytes, functions.get(function).location);
                }
                if start.cut || start.caller_unsure || how != EndKind::Returned {
                    put_remarks(bytes, text::remarks(start.cut, start.caller_unsure, how));
                }
                if let Some(tail) = tail {
                    put_tail(bytes, tail, functions);
                }
                if start.values.are_any() {
                    put_values(bytes, start.values, export.source);
                }
                if has_labels {
                    put_labels(bytes, labels.ended(), export.source);
                }
                if let Some(states) = export.source.states(self.thread).filter(|_| start_ns >= *resumed_ns) {
                    put_states(bytes, export.source, &states.times(start_ns, end_ns));
                }
                bytes.extend_from_slice(b"}\n");
            }
            Event::Point(point) => put_point(bytes, head, (moments, export.source), &point, functions),
            Event::Mark(mark) => {
                if mark.kind == MarkKind::Label && *depth > 0 {
                    labels.add(*depth as usize, mark.name, mark.value);
                }
                put_mark(bytes, head, moments, &mark, export.source);
            }
            Event::ShortSuspension(gap) => *resumed_ns = gap.until_ns,
            Event::Gap(gap) => {
                if gap.why == GapKind::Suspended {
                    *resumed_ns = gap.until_ns;
                }
                put_gap(bytes, head, (moments, export.source), &gap);
            }
            Event::OffCpu(off) => put_off_cpu(bytes, head, (moments, export.source), &off),
            Event::Untraced(slice) => {
                bytes.extend_from_slice(head);
                moments.put_at(bytes, export.source, slice.at_ns);
                bytes.extend_from_slice(b",\"untraced_at_most_ns\":");
                put_number(bytes, JsonMoments::length_ns(export.source, slice.at_ns, slice.until_ns));
                bytes.extend_from_slice(b",\"name\":");
                put_string(bytes, &functions.get(slice.function).name);
                bytes.extend_from_slice(b"}\n");
            }
        }
    }
}

fn put_off_cpu(
    bytes: &mut Vec<u8>,
    head: &[u8],
    (moments, source): (&mut JsonMoments, &impl Source),
    off: &OffCpu,
) {
    bytes.extend_from_slice(head);
    moments.put_at(bytes, source, off.at_ns);
    bytes.extend_from_slice(b",\"off_cpu_ns\":");
    put_number(bytes, JsonMoments::length_ns(source, off.at_ns, off.until_ns));
    for (state, time) in off.parts() {
        bytes.extend_from_slice(b",\"");
        bytes.extend_from_slice(state.as_bytes());
        bytes.extend_from_slice(b"_ns\":");
        put_number(bytes, JsonMoments::length_ns(source, off.at_ns, off.at_ns + time));
    }
    if let Some(time) = off.at_most_ns {
        bytes.extend_from_slice(b",\"off_cpu_at_most_ns\":");
        put_number(bytes, JsonMoments::length_ns(source, 0, time));
    }
    if let Some(call) = off.blocked_in {
        bytes.extend_from_slice(b",\"blocked_in\":\"");
        bytes.extend_from_slice(call.as_bytes());
        bytes.push(b'"');
    }
    if let Some(thread) = off.woken_by {
        bytes.extend_from_slice(b",\"woken_by\":");
        put_number(bytes, thread.into());
    }
    bytes.extend_from_slice(b"}\n");
}

/// The values of a call.
#[cold]
fn put_values(bytes: &mut Vec<u8>, values: CallValues, source: &impl Source) {
    let (arguments, result) = values::json(source, values);
    if let Some(arguments) = arguments {
        bytes.extend_from_slice(b",\"arguments\":");
        bytes.extend_from_slice(arguments.as_bytes());
    }
    if let Some(result) = result {
        bytes.extend_from_slice(b",\"result\":");
        bytes.extend_from_slice(result.as_bytes());
    }
}

/// The bounds of a duration; if requested, those without the cost of tracing.
#[cold]
fn put_bars(bytes: &mut Vec<u8>, source: &impl Source, start: u64, bars: Bars) {
    let mut put = |key: &str, length: u64| {
        bytes.extend_from_slice(format!(",\"{key}_ns\":").as_bytes());
        put_number(bytes, JsonMoments::length_ns(source, start, start.saturating_add(length)));
    };
    if source.is_corrected() {
        put("corrected", bars.value);
        put("corrected_low", bars.low);
        put("corrected_high", bars.high);
    } else {
        put("dur_low", bars.low);
        put("dur_high", bars.high);
    }
}

/// The thread's states and switches during a call.
#[cold]
fn put_states(bytes: &mut Vec<u8>, source: &impl Source, times: &StateTimes) {
    let mut put = |name: &str, value: u64| {
        bytes.extend_from_slice(b",\"");
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b"\":");
        put_number(bytes, value);
    };
    if let Some([voluntary, involuntary]) = times.switches() {
        put("voluntary_switches", voluntary);
        put("involuntary_switches", involuntary);
    }
    if times.unknown > 0 {
        let known = times.runnable.saturating_add(times.blocked);
        put("off_cpu_at_least_ns", JsonMoments::length_ns(source, 0, known));
        put("off_cpu_at_most_ns", JsonMoments::length_ns(source, 0, times.off_at_most()));
    }
}

/// The part that all lines of a thread have in common.
fn head(thread: &Thread) -> Vec<u8> {
    let mut head = b"{\"pid\":".to_vec();
    put_number(&mut head, thread.pid.into());
    head.extend_from_slice(b",\"tid\":");
    put_number(&mut head, thread.tid.into());
    if let Some(task) = thread.task() {
        head.extend_from_slice(b",\"task\":");
        put_number(&mut head, task.into());
    } else if let Some(fiber) = thread.fiber() {
        head.extend_from_slice(b",\"fiber\":");
        put_number(&mut head, fiber.into());
    }
    head.extend_from_slice(b",\"thread\":");
    put_string(&mut head, &thread.name);
    head
}

/// The part that all lines of a function have in common; empty for functions without lines so far.
#[derive(Default)]
struct Tails(Vec<Vec<u8>>);

impl Tails {
    #[inline]
    fn get(&mut self, id: FunctionId, functions: &Functions<'_>) -> &[u8] {
        if self.0.len() <= id.index() {
            self.0.resize_with(id.index() + 1, Vec::new);
        }
        let tail = &mut self.0[id.index()];
        if tail.is_empty() {
            *tail = new_tail(functions.get(id), &functions.details(id));
        }
        tail
    }
}

#[cold]
fn new_tail(function: &Function, details: &Details) -> Vec<u8> {
    let mut tail = b",\"name\":".to_vec();
    put_string(&mut tail, &function.name);
    tail.extend_from_slice(b",\"module\":");
    put_string(&mut tail, &function.module);
    if let Some(file) = &function.file {
        tail.extend_from_slice(b",\"file\":");
        put_string(&mut tail, file);
    }
    if let Some(line) = function.line {
        tail.extend_from_slice(b",\"line\":");
        put_number(&mut tail, line.into());
    }
    if let Some(symbol) = &details.symbol {
        tail.extend_from_slice(b",\"symbol\":");
        put_string(&mut tail, symbol);
    }
    if !details.same_code_as.is_empty() {
        tail.extend_from_slice(b",\"same_code_as\":");
        put_list(&mut tail, &details.same_code_as, |tail, name| put_string(tail, name));
    }
    if !details.inlined.is_empty() {
        tail.extend_from_slice(b",\"inlined_not_timed\":");
        put_list(&mut tail, &details.inlined, |tail, call| {
            tail.extend_from_slice(b"{\"level\":");
            put_number(tail, call.level.into());
            tail.extend_from_slice(b",\"name\":");
            put_string(tail, &call.name);
            if let Some(place) = &call.place {
                tail.extend_from_slice(b",\"at\":");
                put_string(tail, place);
            }
            tail.push(b'}');
        });
    }
    if details.more_inlined > 0 {
        tail.extend_from_slice(b",\"more_inlined\":");
        put_number(&mut tail, details.more_inlined);
    }
    tail
}

/// Where a function was entered, as its module's file states it.
#[cold]
fn put_address(bytes: &mut Vec<u8>, location: Location) {
    bytes.extend_from_slice(format!(",\"address\":\"{:#x}\"", location.image_address).as_bytes());
}

/// An array.
fn put_list<T>(bytes: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    let mut separator = b'[';
    for item in items {
        bytes.push(std::mem::replace(&mut separator, b','));
        put(bytes, item);
    }
    bytes.push(b']');
}

#[cold]
fn put_tail(bytes: &mut Vec<u8>, tail: Tail, functions: &Functions<'_>) {
    bytes.push(b',');
    put_string(bytes, text::tail_key(tail));
    bytes.push(b':');
    put_string(bytes, &functions.get(tail.of).name);
}

#[cold]
fn put_labels(bytes: &mut Vec<u8>, labels: &Labels, source: &impl Source) {
    bytes.extend_from_slice(b",\"labels\":");
    labels.put_json(bytes, source);
    if labels.more > 0 {
        bytes.extend_from_slice(b",\"more_labels\":");
        put_number(bytes, labels.more);
    }
}

/// A line; nothing at the begin of a span.
fn put_mark(bytes: &mut Vec<u8>, head: &[u8], moments: &mut JsonMoments, mark: &Mark, source: &impl Source) {
    let (key, span): (&[u8], _) = match mark.kind {
        MarkKind::Label => (b"\"label\":", None),
        MarkKind::Instant => (b"\"instant\":", None),
        MarkKind::Wake => (b"\"wake\":", None),
        MarkKind::Step => (b"\"step\":", None),
        MarkKind::Throw => (b"\"throw\":", None),
        MarkKind::Catch => (b"\"catch\":", None),
        MarkKind::Counter | MarkKind::CounterReal => (b"\"counter\":", None),
        MarkKind::Log => (b"\"log\":", None),
        MarkKind::Output(_) => (b"\"output\":", None),
        MarkKind::OrphanSpanEnd => (b"\"orphan_span_end\":", None),
        MarkKind::SpanEnd { start_ns, start_cut, how, .. } => {
            (b"\"span\":", Some((start_ns, start_cut, how)))
        }
        MarkKind::SpanBegin { .. } => return,
    };
    bytes.extend_from_slice(head);
    if span.is_none() {
        moments.put_at(bytes, source, mark.at_ns);
    }
    bytes.push(b',');
    bytes.extend_from_slice(key);
    if matches!(mark.kind, MarkKind::Throw | MarkKind::Catch) {
        match text::type_name(source.mark_name(mark.name)) {
            Some(name) => put_string(bytes, &name),
            None => bytes.extend_from_slice(b"null"),
        }
    } else {
        put_string(bytes, &text::mark_title(source, mark));
    }
    if let MarkKind::Output(stream) = mark.kind {
        bytes.extend_from_slice(b",\"stream\":");
        put_string(bytes, stream.name());
        bytes.extend_from_slice(b",\"line\":");
        put_number(bytes, mark.value.unwrap_or(0));
    } else if let Some((task, step)) = mark.task_step() {
        bytes.extend_from_slice(b",\"task\":");
        put_number(bytes, task.into());
        bytes.extend_from_slice(b",\"number\":");
        put_number(bytes, step.into());
    } else if mark.value.is_some() {
        bytes.extend_from_slice(b",\"value\":");
        put_mark_value(bytes, mark);
    }
    if let Some((start_ns, start_cut, how)) = span {
        moments.put_call(bytes, source, start_ns, mark.at_ns);
        if start_cut || how != SpanEndKind::Ended {
            put_remarks(bytes, text::span_remarks(start_cut, how));
        }
    }
    bytes.extend_from_slice(b"}\n");
}

fn put_gap<S: Source>(
    bytes: &mut Vec<u8>,
    head: &[u8],
    (moments, source): (&mut JsonMoments, &S),
    gap: &Gap,
) {
    bytes.extend_from_slice(head);
    moments.put_at(bytes, source, gap.at_ns);
    let key: &[u8] = match gap.why {
        GapKind::Suspended => b",\"suspended_ns\":",
        _ => b",\"not_recorded_ns\":",
    };
    bytes.extend_from_slice(key);
    put_number(bytes, JsonMoments::length_ns(source, gap.at_ns, gap.until_ns));
    bytes.extend_from_slice(b",\"why\":");
    put_string(bytes, text::gap_reason(gap.why));
    if let Some(thread) = gap.resumed_by {
        bytes.push(b',');
        put_string(bytes, text::RESUMED_BY);
        bytes.push(b':');
        put_number(bytes, thread.into());
    }
    bytes.extend_from_slice(b"}\n");
}

#[cold]
fn put_remarks<'t>(bytes: &mut Vec<u8>, remarks: impl Iterator<Item = &'t str>) {
    bytes.extend_from_slice(b",\"remarks\":");
    let mut separator = b'[';
    for remark in remarks {
        bytes.push(std::mem::replace(&mut separator, b','));
        put_string(bytes, remark);
    }
    bytes.push(b']');
}

fn put_point<S: Source>(
    bytes: &mut Vec<u8>,
    head: &[u8],
    (moments, source): (&mut JsonMoments, &S),
    point: &Point,
    functions: &Functions<'_>,
) {
    let (_, detail) = text::point(point, functions);
    bytes.extend_from_slice(head);
    moments.put_at(bytes, source, point.at_ns);
    bytes.extend_from_slice(match point.kind {
        PointKind::Lost(_) => b",\"lost\":",
        PointKind::OrphanExit(_) => b",\"orphan_exits\":",
        PointKind::LeftOut => b",\"left_out\":",
        PointKind::Dropped => b",\"dropped\":",
    });
    match point.count {
        Some(count) => put_number(bytes, count),
        None => bytes.extend_from_slice(b"null"),
    }
    bytes.push(b',');
    put_string(bytes, text::detail_key(point));
    bytes.push(b':');
    put_string(bytes, detail);
    bytes.extend_from_slice(b"}\n");
}
