//! Chrome JSON: complete events, and sources for vizviewer.
//!
//! ```text
//! {"displayTimeUnit":"ns","traceEvents":[
//! {"ph":"M",...}                                    names of process and threads
//! {"ph":"X","pid":1,"tid":2,"ts":0.007,"dur":1.234,"name":"f(int) (file.cpp:12)"},
//! {"ph":"i",...}                                    losses, orphan exits, labels, instants
//! {"ph":"b",...} {"ph":"e",...}                      begins and ends of spans, which overlap as they like
//! ],"file_info":{"files":{path:[text,lines]},"functions":{slice name:[path,line]}}}
//! ```
//!
//! With [`Times::Wall`], `otherData` has the origin in calendar time: `start_time`, and `start_realtime_ns` as a text. Stamps stay
//! relative to it, as doubles can't hold nanoseconds since 1970.
//!
//! `ts` and `dur` are microseconds since the trace's origin with three places: exact nanoseconds, also for
//! readers that keep them as doubles, for the first hundred days. A slice with something to remark has
//! `args`: `remark` ("truncated at start", "truncated at end", "truncated at a loss", "truncated at a gap",
//! "unwound", "unwound, exact time unknown" (it ended some time before, and the last calls in it may be of those around it), "exit lost", "caller uncertain" (the slice around it may not have
//! called it), "partly not recorded", "ends in a tail call"), `label` (its labels by name), `more_labels` (how many more there were), `calls` (of a
//! slice that stands for deeper ones), `tail_call_of` (the function of the slice before, which jumped there) or `possible_tail_call_of`
//! (it jumped, and the code doesn't tell where to), `symbol` (the linker's name, where several functions may have the name), `same_code_as` (functions with the same
//! code at the same address), `inlined_not_timed` (calls that the compiler inlined into its function, as a tree in one text),
//! `dur_low_ns` and `dur_high_ns` (of a slice whose duration isn't known exactly),
//! `true_start_ns` and `true_dur_ns` (of a slice whose stamps were moved,
//! see [`crate::draw`]).
//!
//! Tail calls are linked by arrows: `bind_id`, with `flow_out` at the one that jumps and `flow_in` at the one that it jumps to.
//!
//! Times when recording was off are slices named "not recorded", with `why`; times when no thread ran a stack, slices named "suspended", with `why` and
//! `resumed_by`, the thread that goes on with it. Instants of the program have the category
//! `label`, `instant` or `span` (an end that fits no span), and the `value` that they were given. Values above 2^53 are texts.
//!
//! Thread states are `systemTraceEvents`, lines of ftrace in one text: viewers show a lane for each CPU and the states of each
//! thread.
//!
//! vizviewer looks sources up by slice name, and its page breaks at a function whose file isn't
//! there: such functions are left out. Functions of one name, file name and line in different
//! folders are distinguished by the whole path.

use std::fmt::Write as _;
use std::io::{self, Write};

use everycall_timeline::{Bars, Gap, Mark, MarkKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::draw::{Drawn, Pen, Slice};
use crate::driver::{DrawnSink, Export, Switches};
use crate::excerpt::excerpt;
use crate::filtered::{Point, UntracedSlice};
use crate::json::{put_microseconds, put_number, put_string};
use crate::labels::put_mark_value;
use crate::names::{Function, FunctionId, Functions, Names};
use crate::portions::Portions;
use crate::source::{Source, Times};
use crate::switches::Switch;
use crate::tails::Jumps;
use crate::text;
use crate::values;
use everycall_calls::Thread;

/// The output.
pub(crate) struct Chrome<'o> {
    portions: Portions<'o>,
    with_sources: bool,
    titles: Titles,
    is_first: bool,
    /// The thread, and its position among all threads.
    thread: (Thread, usize),
    /// The beginning of each slice of the thread.
    prefix: Vec<u8>,
    /// Thread states.
    system_events: String,
}

impl<'o> Chrome<'o> {
    pub(crate) fn new(out: &'o mut dyn Write, with_sources: bool) -> Self {
        let thread =
            Thread { process: 0, pid: 0, tid: 0, name: String::new(), dropped: 0, is_sampled: false };
        Chrome {
            portions: Portions::new(out),
            with_sources,
            titles: Titles::default(),
            is_first: true,
            thread: (thread, 0),
            prefix: Vec::new(),
            system_events: String::new(),
        }
    }
}

impl<'o, S: Source> DrawnSink<'o, S> for Chrome<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn begin(&mut self, export: &mut Export<'_, S>) {
        self.portions.put(b"{\"displayTimeUnit\":\"ns\",");
        if let (Times::Wall(calendar), Some(origin)) = (export.source.times(), export.source.realtime_ns(0)) {
            let members = format!(
                "\"otherData\":{{\"start_time\":\"{}\",\"start_realtime_ns\":\"{origin}\"}},",
                calendar.stamp(origin)
            );
            self.portions.put(members.as_bytes());
        }
        self.portions.put(b"\"traceEvents\":[");
    }

    fn thread(
        &mut self,
        _: &mut Export<'_, S>,
        index: usize,
        thread: &Thread,
        process: Option<&str>,
        _: u64,
    ) {
        let bytes = &mut self.portions.bytes;
        if let Some(title) = process {
            put_metadata(bytes, &mut self.is_first, thread, "process_name", title);
        }
        if !thread.name.is_empty() && !thread.is_sampled {
            put_metadata(bytes, &mut self.is_first, thread, "thread_name", &thread.name);
        }
        self.prefix.clear();
        self.prefix.extend_from_slice(b"{\"ph\":\"X\",");
        put_thread(&mut self.prefix, thread);
        self.prefix.extend_from_slice(b"\"ts\":");
        self.thread = (thread.clone(), index);
    }

    #[inline]
    fn draw(&mut self, export: &mut Export<'_, S>, drawn: &Drawn, pen: &Pen) {
        if matches!(drawn, Drawn::Begin { .. }) {
            // A slice is written at its end.
            return;
        }
        let Chrome { titles, prefix, thread: (thread, index), .. } = self;
        let bytes = &mut self.portions.bytes;
        put_separator(bytes, &mut self.is_first);
        match drawn {
            Drawn::End(slice) => {
                bytes.extend_from_slice(prefix);
                put_slice(bytes, slice, titles, &export.functions);
                let has_details = slice.what.is_some_and(|function| !titles.details(function).is_empty());
                let bars = export.bars.filter(|_| slice.what.is_some());
                if slice.has_remarks() || has_details || bars.is_some() {
                    if slice.has_jumps {
                        put_arrows(bytes, pen.jumps());
                    }
                    put_remarks(bytes, (slice, bars), pen, export.source, (titles, &export.functions));
                }
                bytes.push(b'}');
            }
            Drawn::Mark(mark) => put_mark(bytes, thread, *index, mark, export.source),
            Drawn::Gap(gap) => {
                bytes.extend_from_slice(prefix);
                put_gap(bytes, gap);
            }
            Drawn::Untraced(slice) => {
                bytes.extend_from_slice(prefix);
                put_untraced(bytes, slice, &export.functions.get(slice.function).name);
            }
            Drawn::Point(point) => put_point(bytes, thread, point, &export.functions),
            Drawn::Begin { .. } => {}
        }
    }

    fn switches(&mut self, export: &mut Export<'_, S>, switches: &Switches) {
        self.system_events = ftrace_text(export.source.threads(), switches);
    }

    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        self.portions.put(b"\n]");
        if !self.system_events.is_empty() {
            self.portions.put(b",\"systemTraceEvents\":");
            put_string(&mut self.portions.bytes, &self.system_events);
        }
        if self.with_sources {
            put_file_info(&mut self.portions, &export.functions, &self.titles, export.names)?;
        }
        self.portions.put(b"}\n");
        Ok(())
    }
}

/// Switches of CPUs as lines of ftrace, which viewers of this format read.
fn ftrace_text(threads: &[Thread], switches: &Switches) -> String {
    let mut all: Vec<_> =
        switches.iter().flat_map(|(cpu, list)| list.iter().map(|one| (*cpu, *one))).collect();
    all.sort_by_key(|(_, switch)| switch.at_ns());
    let facts = |thread: usize| {
        let thread = threads.get(thread);
        // Viewers split the lines at spaces and equal signs.
        let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:".contains(character);
        let name = thread.map_or("", |thread| thread.name.as_str());
        let name: String =
            name.chars().map(|character| if plain(character) { character } else { '_' }).collect();
        let name = if name.is_empty() { "thread".to_owned() } else { name };
        (thread.map_or(0, |thread| thread.tid), thread.map_or(0, |thread| thread.pid), name)
    };
    let mut text = "# tracer: nop\n#\n".to_owned();
    for (cpu, switch) in all {
        let (seconds, ns) = (switch.at_ns() / 1_000_000_000, switch.at_ns() % 1_000_000_000);
        let place = format!("[{cpu:03}] .... {seconds}.{ns:09}");
        // Writing to a string doesn't fail.
        let _ = match switch {
            Switch::Woken { thread, by, .. } => {
                let (tid, _, name) = facts(thread);
                let waker = if by == 0 { "<idle>" } else { "waker" };
                writeln!(
                    text,
                    "{waker}-{by} (-----) {place}: sched_waking: comm={name} pid={tid} prio=120 target_cpu={cpu:03}"
                )
            }
            Switch::On { thread, .. } | Switch::Off { thread, .. } => {
                // The names by which viewers recognize idle CPUs.
                let idle = || (0, 0, format!("swapper/{cpu}"));
                let (before, state, after) = match switch {
                    Switch::Off { state, .. } => (facts(thread), state_letter(state), idle()),
                    _ => (idle(), "R", facts(thread)),
                };
                writeln!(
                    text,
                    "{name}-{tid} ({process}) {place}: sched_switch: prev_comm={name} prev_pid={tid} prev_prio=120 \
                    prev_state={state} ==> next_comm={} next_pid={} next_prio=120",
                    after.2,
                    after.0,
                    tid = before.0,
                    process = if before.1 == 0 { "-----".to_owned() } else { before.1.to_string() },
                    name = before.2,
                )
            }
        };
        if let Switch::Off { thread, waits_in: Some(call), .. } = switch {
            let (tid, ..) = facts(thread);
            let _ = writeln!(
                text,
                "<idle>-0 (-----) {place}: sched_blocked_reason: pid={tid} iowait=0 caller={call}"
            );
        }
    }
    text
}

fn state_letter(bits: u32) -> &'static str {
    match bits {
        0 => "R",
        1 => "S",
        2 => "D",
        4 => "T",
        _ => "X",
    }
}

/// Slice names, as JSON.
#[derive(Default)]
struct Titles {
    /// By function; empty for functions whose name wasn't written.
    json: Vec<Vec<u8>>,
    /// By function: members of `args` that all of its slices have in common.
    details: Vec<Vec<u8>>,
    /// The file that a plain slice name refers to.
    files: FxHashMap<String, Option<String>>,
}

impl Titles {
    #[inline]
    fn get(&mut self, id: FunctionId, functions: &Functions<'_>) -> &[u8] {
        if self.json.get(id.index()).is_none_or(Vec::is_empty) {
            self.learn(id, functions);
        }
        &self.json[id.index()]
    }

    #[cold]
    fn learn(&mut self, id: FunctionId, functions: &Functions<'_>) {
        let function = functions.get(id);
        let mut name = function.slice_name();
        match self.files.get(&name) {
            None => {
                self.files.insert(name.clone(), function.file.clone());
            }
            Some(taken) if *taken == function.file => {}
            Some(_) => {
                let line = function.line.map(|line| format!(":{line}")).unwrap_or_default();
                let file = function.file.as_deref().unwrap_or(&function.module);
                name = format!("{} ({file}{line})", function.name);
            }
        }
        self.json.resize_with(self.json.len().max(id.index() + 1), Vec::new);
        put_string(&mut self.json[id.index()], &name);
        self.details.resize_with(self.json.len(), Vec::new);
        let details = &mut self.details[id.index()];
        for (key, text) in text::details(&functions.details(id)) {
            if !details.is_empty() {
                details.push(b',');
            }
            put_string(details, key);
            details.push(b':');
            put_string(details, &text);
        }
    }

    /// Further facts about a function whose name was written, as members of an object.
    #[inline]
    fn details(&self, id: FunctionId) -> &[u8] {
        self.details.get(id.index()).map_or(&[], Vec::as_slice)
    }

    /// The functions with slices, and their slice names.
    fn used<'a>(&'a self, functions: &'a Functions<'_>) -> impl Iterator<Item = (&'a Function, &'a [u8])> {
        functions
            .iter()
            .zip(&self.json)
            .filter(|(_, json)| !json.is_empty())
            .map(|(function, json)| (function, &**json))
    }
}

#[inline]
fn put_separator(bytes: &mut Vec<u8>, first: &mut bool) {
    bytes.extend_from_slice(if *first { b"\n" } else { b",\n" });
    *first = false;
}

fn put_thread(bytes: &mut Vec<u8>, thread: &Thread) {
    bytes.extend_from_slice(b"\"pid\":");
    put_number(bytes, thread.pid.into());
    bytes.extend_from_slice(b",\"tid\":");
    put_number(bytes, thread.tid.into());
    bytes.push(b',');
}

fn put_metadata(bytes: &mut Vec<u8>, first: &mut bool, thread: &Thread, what: &str, name: &str) {
    put_separator(bytes, first);
    bytes.extend_from_slice(b"{\"ph\":\"M\",");
    put_thread(bytes, thread);
    bytes.extend_from_slice(b"\"name\":");
    put_string(bytes, what);
    bytes.extend_from_slice(b",\"args\":{\"name\":");
    put_string(bytes, name);
    bytes.extend_from_slice(b"}}");
}

#[inline]
fn put_slice(bytes: &mut Vec<u8>, slice: &Slice, titles: &mut Titles, functions: &Functions<'_>) {
    put_microseconds(bytes, slice.start_ns);
    bytes.extend_from_slice(b",\"dur\":");
    put_microseconds(bytes, slice.end_ns - slice.start_ns);
    bytes.extend_from_slice(b",\"name\":");
    match slice.what {
        Some(function) => bytes.extend_from_slice(titles.get(function, functions)),
        None => put_string(bytes, text::DEEPER),
    }
}

fn put_gap(bytes: &mut Vec<u8>, gap: &Gap) {
    put_microseconds(bytes, gap.at_ns);
    bytes.extend_from_slice(b",\"dur\":");
    put_microseconds(bytes, gap.until_ns - gap.at_ns);
    bytes.extend_from_slice(b",\"name\":");
    put_string(bytes, text::gap_name(gap.why));
    bytes.extend_from_slice(b",\"args\":");
    let mut members = Members::new(bytes);
    put_string(members.key("why"), text::gap_reason(gap.why));
    if let Some(thread) = gap.resumed_by {
        put_number(members.key(text::RESUMED_BY), thread.into());
    }
    members.end();
    bytes.push(b'}');
}

fn put_untraced(bytes: &mut Vec<u8>, slice: &UntracedSlice, name: &str) {
    put_microseconds(bytes, slice.at_ns);
    bytes.extend_from_slice(b",\"dur\":");
    put_microseconds(bytes, slice.until_ns - slice.at_ns);
    bytes.extend_from_slice(b",\"name\":");
    put_string(bytes, name);
    bytes.extend_from_slice(b",\"args\":");
    let mut members = Members::new(bytes);
    put_string(members.key(text::NOT_MEASURED), text::UNTRACED);
    members.end();
    bytes.push(b'}');
}

/// An object, member by member.
struct Members<'a> {
    bytes: &'a mut Vec<u8>,
    next: u8,
}

impl<'a> Members<'a> {
    fn new(bytes: &'a mut Vec<u8>) -> Self {
        Members { bytes, next: b'{' }
    }

    /// Begins a member; its value must be appended next.
    fn key(&mut self, name: &str) -> &mut Vec<u8> {
        self.bytes.push(std::mem::replace(&mut self.next, b','));
        put_string(self.bytes, name);
        self.bytes.push(b':');
        self.bytes
    }

    /// Appends members that are already JSON.
    fn ready(&mut self, written: &[u8]) {
        if !written.is_empty() {
            self.bytes.push(std::mem::replace(&mut self.next, b','));
            self.bytes.extend_from_slice(written);
        }
    }

    fn remarks<'t>(&mut self, remarks: impl Iterator<Item = &'t str>) {
        let mut separator: &[u8] = b"\"remark\":\"";
        for remark in remarks {
            if separator.len() > 2 {
                self.bytes.push(std::mem::replace(&mut self.next, b','));
            }
            self.bytes.extend_from_slice(std::mem::replace(&mut separator, b", "));
            // Remarks need no escaping.
            self.bytes.extend_from_slice(remark.as_bytes());
        }
        if separator.len() == 2 {
            self.bytes.push(b'"');
        }
    }

    fn end(self) {
        if self.next == b'{' {
            self.bytes.push(b'{');
        }
        self.bytes.push(b'}');
    }
}

fn put_mark(bytes: &mut Vec<u8>, thread: &Thread, index: usize, mark: &Mark, source: &impl Source) {
    let (phase, category, number): (&[u8], _, _) = match mark.kind {
        MarkKind::Label => (b"\"i\",\"s\":\"t\"", "label", None),
        MarkKind::Instant => (b"\"i\",\"s\":\"t\"", "instant", None),
        // Arrows are between slices only.
        MarkKind::Wake | MarkKind::Step => (b"\"X\",\"dur\":0", "task", None),
        MarkKind::Throw | MarkKind::Catch => (b"\"i\",\"s\":\"t\"", "exception", None),
        MarkKind::Counter | MarkKind::CounterReal => (b"\"C\"", "counter", None),
        MarkKind::Log => (b"\"i\",\"s\":\"t\"", "log", None),
        MarkKind::Output(_) => (b"\"i\",\"s\":\"t\"", "output", None),
        MarkKind::OrphanSpanEnd => (b"\"i\",\"s\":\"t\"", "span", None),
        MarkKind::SpanBegin { span, .. } => (b"\"b\"", "span", Some(span)),
        MarkKind::SpanEnd { span, .. } => (b"\"e\"", "span", Some(span)),
    };
    bytes.extend_from_slice(b"{\"ph\":");
    bytes.extend_from_slice(phase);
    bytes.extend_from_slice(b",\"cat\":");
    put_string(bytes, category);
    if let Some(span) = number {
        // Numbers of spans are unique within a thread. A local id lets viewers show them with their
        // process.
        bytes.extend_from_slice(b",\"id2\":{\"local\":");
        put_string(bytes, &format!("{index:x}.{span:x}"));
        bytes.push(b'}');
    }
    bytes.push(b',');
    put_thread(bytes, thread);
    bytes.extend_from_slice(b"\"ts\":");
    put_microseconds(bytes, mark.at_ns);
    bytes.extend_from_slice(b",\"name\":");
    put_string(bytes, &text::mark_title(source, mark));
    if let Some(arrow) = text::arrow_of(mark, thread.pid) {
        put_arrow(bytes, arrow, (mark.kind == MarkKind::Step, mark.kind == MarkKind::Wake));
    }
    bytes.extend_from_slice(b",\"args\":");
    let mut members = Members::new(bytes);
    match mark.kind {
        MarkKind::Wake | MarkKind::Step => {
            let (task, step) = mark.task_step().unwrap_or_default();
            put_number(members.key("task"), task.into());
            put_number(members.key("step"), step.into());
        }
        MarkKind::SpanEnd { start_cut, how, .. } => members.remarks(text::span_remarks(start_cut, how)),
        MarkKind::Output(stream) => {
            put_string(members.key("stream"), stream.name());
            put_number(members.key("line"), mark.value.unwrap_or(0));
        }
        kind => {
            if mark.value.is_some() {
                let value = members.key("value");
                match mark.kind {
                    // Viewers only draw numbers, as doubles.
                    MarkKind::Counter => {
                        let number = mark.value.unwrap_or(0).cast_signed();
                        value.extend_from_slice(number.to_string().as_bytes());
                    }
                    _ => put_mark_value(value, mark),
                }
            }
            if kind == MarkKind::OrphanSpanEnd {
                members.remarks(std::iter::once(text::ORPHAN_SPAN_END));
            }
            if number.is_some() {
                put_number(members.key("tid"), thread.tid.into());
                put_string(members.key("thread"), &thread.name);
            }
        }
    }
    members.end();
    bytes.push(b'}');
}

/// The arrows to and from a slice: a chain of tail calls is one flow.
fn put_arrows(bytes: &mut Vec<u8>, jumps: &Jumps) {
    let Some(chain) = jumps.arrives_by.or(jumps.leaves_by) else { return };
    put_arrow(bytes, chain, (jumps.arrives_by.is_some(), jumps.leaves_by.is_some()));
}

fn put_arrow(bytes: &mut Vec<u8>, number: u64, (arrives, leaves): (bool, bool)) {
    bytes.extend_from_slice(b",\"bind_id\":\"0x");
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        bytes.push(b"0123456789abcdef"[(number >> (4 * digit) & 15) as usize]);
    }
    bytes.push(b'"');
    if arrives {
        bytes.extend_from_slice(b",\"flow_in\":true");
    }
    if leaves {
        bytes.extend_from_slice(b",\"flow_out\":true");
    }
}

fn put_remarks(
    bytes: &mut Vec<u8>,
    (slice, bars): (&Slice, Option<Bars>),
    pen: &Pen,
    source: &impl Source,
    (titles, functions): (&mut Titles, &Functions<'_>),
) {
    bytes.extend_from_slice(b",\"args\":");
    let mut members = Members::new(bytes);
    if slice.what.is_none() {
        put_number(members.key("calls"), slice.calls);
    }
    members.remarks(text::remarks(slice.start_cut, slice.caller_unsure, slice.how));
    if let Some(tail) = pen.jumps().tail.filter(|_| slice.has_jumps) {
        members.key(text::tail_key(tail)).extend_from_slice(titles.get(tail.of, functions));
    }
    let (arguments, result) = values::json(source, slice.values);
    if let Some(arguments) = arguments {
        members.key("arguments").extend_from_slice(arguments.as_bytes());
    }
    if let Some(result) = result {
        members.key("result").extend_from_slice(result.as_bytes());
    }
    if slice.has_labels {
        let labels = pen.labels();
        labels.put_json(members.key("label"), source);
        if labels.more > 0 {
            put_number(members.key("more_labels"), labels.more);
        }
    }
    if let Some((start_ns, dur_ns)) = slice.moved {
        put_number(members.key("true_start_ns"), start_ns);
        put_number(members.key("true_dur_ns"), dur_ns);
    }
    if let Some(bars) = bars {
        put_number(members.key(text::DUR_LOW), bars.low);
        put_number(members.key(text::DUR_HIGH), bars.high);
    }
    if let Some(function) = slice.what {
        members.ready(titles.details(function));
    }
    members.end();
}

fn put_point(bytes: &mut Vec<u8>, thread: &Thread, point: &Point, functions: &Functions<'_>) {
    let (what, detail) = text::point(point, functions);
    bytes.extend_from_slice(b"{\"ph\":\"i\",\"s\":\"t\",");
    put_thread(bytes, thread);
    bytes.extend_from_slice(b"\"ts\":");
    put_microseconds(bytes, point.at_ns);
    bytes.extend_from_slice(b",\"name\":");
    put_string(bytes, &what);
    bytes.extend_from_slice(b",\"args\":{");
    if let Some(count) = point.count {
        bytes.extend_from_slice(b"\"count\":");
        put_number(bytes, count);
        bytes.push(b',');
    }
    put_string(bytes, text::detail_key(point));
    bytes.push(b':');
    put_string(bytes, detail);
    bytes.extend_from_slice(b"}}");
}

/// The sources of the functions that occurred, each file once.
fn put_file_info(
    sink: &mut Portions<'_>,
    functions: &Functions<'_>,
    titles: &Titles,
    names: &dyn Names,
) -> io::Result<()> {
    sink.put(b",\"file_info\":{\"files\":{");
    let mut starts: FxHashMap<&str, Vec<u32>> = FxHashMap::default();
    for (function, _) in titles.used(functions) {
        let (Some(file), Some(line)) = (function.file.as_deref(), function.line) else { continue };
        starts.entry(file).or_default().push(line);
    }
    let mut asked: FxHashMap<&str, bool> = FxHashMap::default();
    let mut separator: &[u8] = b"\n";
    for (function, _) in titles.used(functions) {
        let (Some(file), Some(_)) = (function.file.as_deref(), function.line) else { continue };
        if asked.contains_key(file) {
            continue;
        }
        let text = names.source(file);
        asked.insert(file, text.is_some());
        if let Some(text) = text {
            let text = excerpt(text, &starts[file]);
            sink.put(std::mem::replace(&mut separator, b",\n"));
            put_string(&mut sink.bytes, file);
            sink.put(b":[");
            put_string(&mut sink.bytes, &text);
            sink.put(b",");
            put_number(&mut sink.bytes, text.lines().count() as u64);
            sink.put(b"]");
            sink.spill()?;
        }
    }
    sink.put(b"\n},\"functions\":{");
    separator = b"\n";
    let mut named = FxHashSet::default();
    for (function, title) in titles.used(functions) {
        let (Some(file), Some(line)) = (function.file.as_deref(), function.line) else { continue };
        if asked.get(file) == Some(&true) && named.insert(title) {
            sink.put(std::mem::replace(&mut separator, b",\n"));
            sink.put(title);
            sink.put(b":[");
            put_string(&mut sink.bytes, file);
            sink.put(b",");
            put_number(&mut sink.bytes, line.into());
            sink.put(b"]");
            sink.spill()?;
        }
    }
    sink.put(b"\n}}");
    Ok(())
}
