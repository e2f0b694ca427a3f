//! Calls for users: an indented tree per thread.
//!
//! ```text
//! == thread 4242 worker-1 ==                       of process 4240 app, where there are several
//!
//!    0.001203 ms  parse(std::string const&) {
//!    0.001250 ms    next_token()  120 ns
//!    0.001400 ms    next_token()  95 ns
//!    0.013503 ms  } 12.3 us
//! ```
//!
//! - The column on the left is the time since the trace's origin, exact, and in the form that `--since`
//!   takes; with [`Times`](crate::Times) of another kind, calendar time or ticks.
//! - A call without shown calls in it takes one line. The brace of one that began many lines above repeats
//!   its name.
//! - `>` marks the duration of a call that began or went on outside of the recording, `<` that of a call
//!   whose exit is missing, `~` that of one during which recording was off.
//! - `95 ns ±150 ns`: events without times of their own limit the duration; it may be so much less
//!   or more (`docs/reference/clock.md`).
//! - `unwound`: the call was left without its exit (exception, longjmp, end of the thread). `exact time unknown`: it ended some
//!   time before, and the last calls in it may belong to those around it.
//! - `caller uncertain`: the call around it may not have made it. Another stack may have begun in the memory of a suspended one,
//!   or it was made at the end of the thread, after the call around it was unwound.
//! - `=>` behind a duration says that the call ended by jumping into another function, which returns in its place: a tail call.
//!   `=> ` before a name marks the call that it jumped to, `=>? ` the next one where the code doesn't tell where the jump led.
//! - `-- => name (not traced, at most) 30.1 ms --` behind a call that ended in a tail call: where it jumped to isn't traced, and took at most that
//!   long: until the thread's next event.
//! - `handle(path="/index", len=42) = 0`: arguments and result of the call, if they were recorded.
//! - `- name  inlined at file.cpp:12, not timed` below a call stands for one that the compiler inlined into it, whether the code
//!   came by there or not.
//! - `@ request = 4711` is a label of the call around it, `! name` an instant, `[ name` and `] name 12.3 us` are begin and
//!   end of a span. `@ kept call = 2` says that the call around it was kept by a trigger.
//! - `~ 3.1 ms blocked`: the thread was off the CPU, as the kernel recorded it. `runnable`: it
//!   could have run, and others did.
//! - `-- suspended for 1.2 ms: no thread ran this stack; resumed by thread 4711 --`: a fiber, or a thread's own stack while the thread ran others.
//! - From [`LEVELS_INDENTED`] levels on, the indentation stays and the number of the level is shown.
//! - Characters that could steer a terminal or reorder its text are shown escaped.
//! - On a terminal, names that don't fit lose the text in their parentheses and angle brackets first, then
//!   their scopes, then their end.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use everycall_format::ect::LOG_FILE_TID;
use everycall_io::terminal::line as visible;
use everycall_timeline::{Bars, EndKind, Gap, Mark, MarkKind, Stream};

use crate::driver::{self, Export, Sink};
use crate::filter::Filter;
use crate::filtered::{Event, Point, Start, Tail, UntracedSlice};
use crate::names::{Details, FunctionId, Functions, Names};
use crate::off_cpu::OffCpu;
use crate::portions::Portions;
use crate::shorten::{NameLength, Shortable, columns};
use crate::source::{Process, Source, Times};
use crate::summary::Summary;
use crate::text;
use crate::times::{Moments, wall_accuracy};
use crate::values;
use everycall_calls::CallValues;
use everycall_calls::Thread;
use everycall_units::Count;

/// Largest number of levels that are indented.
const LEVELS_INDENTED: usize = 16;
/// The closing brace of a call that began more lines above repeats its name.
const LINES_NEAR: u64 = 20;
/// Smallest number of columns for a name.
const NAME_MIN: usize = 16;
/// Largest number of columns for arguments where lines may have any length.
const VALUES_MAX: usize = 400;

/// The style of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayStyle {
    /// Colours, by ANSI escape sequences.
    pub colour: bool,
    /// Largest line width in columns; `None` for lines of any length.
    pub width: Option<usize>,
    /// How much is shown of functions' names.
    pub names: NameLength,
    /// Whether each call has the number that it has among its function's calls which are shown of
    /// its thread, from 1.
    pub numbers: bool,
}

/// Writes what passes `filter` as an indented tree, thread by thread.
///
/// # Errors
///
/// Errors of `out`, unchanged: a closed pipe is an [`io::ErrorKind::BrokenPipe`].
pub fn replay(
    source: &impl Source,
    names: &dyn Names,
    filter: &Filter,
    style: ReplayStyle,
    out: &mut dyn Write,
) -> io::Result<Summary> {
    let realtime_ns = |at: u64| source.realtime_ns(at).unwrap_or(0);
    let page = &mut Page {
        sink: Portions::new(out),
        style,
        moments: Moments::new(source, &realtime_ns),
        labels: Vec::new(),
        begun: None,
        threads: named(source.threads()),
        stack: Vec::new(),
        lines: 0,
        is_first: true,
        calls: Vec::new(),
        since_ns: filter.bounds(source).0,
    };
    driver::run(source, names, filter, &mut |_| {}, page)
}

struct Page<'a> {
    sink: Portions<'a>,
    style: ReplayStyle,
    /// When the window begins: what a call did before isn't shown.
    since_ns: u64,
    moments: Moments<'a>,
    /// By function; empty for those that weren't shown yet.
    labels: Vec<Label>,
    /// A call whose line is delayed until the next event: a call without shown callees takes one
    /// line.
    begun: Option<Begun>,
    /// Names of the threads that have one, by id.
    threads: HashMap<u32, &'a str>,
    stack: Vec<Open>,
    /// Number of the thread's lines so far.
    lines: u64,
    /// Whether no thread was shown yet.
    is_first: bool,
    /// By function: calls of the thread so far, if calls are numbered.
    calls: Vec<u64>,
}

/// A call that began just now.
#[derive(Clone, Copy)]
struct Begun {
    function: FunctionId,
    start_ns: u64,
    start: Start,
    /// 0 if calls aren't numbered.
    number: u64,
}

/// Values of a call as they are shown.
#[derive(Default)]
struct Shown {
    arguments: Option<String>,
    /// From where it was called.
    site: Option<String>,
    result: Option<String>,
}

/// A function as it is shown.
#[derive(Clone, Default)]
struct Label {
    name: Shortable,
    place: String,
    details: Details,
}

/// A call whose line has been written.
struct Open {
    function: FunctionId,
    line: u64,
}

/// Colours by meaning.
#[derive(Clone, Copy)]
enum Ink {
    Plain,
    Faint,
    Heading,
    Slow,
    VerySlow,
    Missing,
    Mark,
    Wait,
}

/// A call's number after its name, as `follow` shows it.
fn shown_number(number: u64) -> String {
    if number == 0 { String::new() } else { format!(" #{number}") }
}

/// The names of threads that run by themselves. Of several that had the same id, it is the last.
fn named(threads: &[Thread]) -> HashMap<u32, &str> {
    let named = threads.iter().filter(|thread| {
        !thread.name.is_empty() && thread.fiber().is_none() && !thread.is_sampled && thread.tid < LOG_FILE_TID
    });
    named.map(|thread| (thread.tid, thread.name.as_str())).collect()
}

/// The heading of a thread: `thread 4242 worker of process 4240`. `process` is given if there are
/// several.
fn title(thread: &Thread, process: Option<&Process>) -> String {
    let (mut title, has_name) = match thread.fiber() {
        Some(_) if thread.task().is_some() => (format!("task {}", thread.task().unwrap_or(0)), true),
        // The default name of a fiber.
        Some(fiber) => (format!("fiber {fiber}"), thread.name != format!("fiber {fiber}")),
        None if thread.is_sampled => (visible(&thread.name).into_owned(), false),
        None if thread.tid >= LOG_FILE_TID => (format!("log file {}", visible(&thread.name)), false),
        None => (format!("thread {}", thread.tid), true),
    };
    // Writing to a string doesn't fail.
    if has_name && !thread.name.is_empty() {
        let _ = write!(title, " {}", visible(&thread.name));
    }
    if thread.pid != thread.tid || process.is_some() {
        let _ = write!(title, " of process {}", thread.pid);
    }
    if let Some(process) = process.filter(|process| !process.name.is_empty()) {
        let _ = write!(title, " {}", visible(&process.name));
    }
    title
}

impl<'a, S: Source> Sink<'a, S> for Page<'a> {
    fn portions(&mut self) -> &mut Portions<'a> {
        &mut self.sink
    }

    fn begin(&mut self, export: &mut Export<'_, S>) {
        if let (Times::Wall(calendar), Some(wall)) = (export.source.times(), export.source.wall()) {
            let date = calendar.date(wall.realtime_ns(0));
            self.ink(Ink::Faint, format_args!("-- calendar time from {date}, {} --", wall_accuracy(wall)));
            self.sink.put(b"\n\n");
        }
    }

    fn thread(&mut self, export: &mut Export<'_, S>, _: usize, thread: &Thread) {
        let processes = export.source.processes();
        let process = processes.get(thread.process).filter(|_| processes.len() > 1);
        self.heading(&title(thread, process));
        self.stack.clear();
        self.calls.clear();
        self.lines = 0;
    }

    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        let functions = &export.functions;
        export.summary.event(event);
        if let Event::End { start_ns, end_ns, start, how, .. } = *event {
            let bars = export.bars;
            if let Some(begun) = self.begun.take() {
                let times = (begun.start_ns, end_ns);
                let values = self.values(export.source, start.values);
                self.leaf(functions, self.stack.len(), &begun, ((times, bars), how), &values);
                return;
            }
            self.lines += 1;
            let Some(open) = self.stack.pop() else { return };
            let far = (self.lines - open.line > LINES_NEAR).then_some(open.function);
            let times = ((start_ns, end_ns), bars);
            let result = self.result_of(export.source, start.values);
            return self.closing(self.stack.len(), far, times, result, (start.cut, how));
        }
        self.open(functions, export.source);
        self.lines += 1;
        match *event {
            Event::Begin { function, start_ns, start } => {
                let number = self.number(function);
                self.begun = Some(Begun { function, start_ns, start, number });
            }
            Event::Point(point) => self.point(functions, self.stack.len(), &point),
            Event::Mark(mark) => {
                self.mark(self.stack.len(), &mark, &text::mark_title(export.source, &mark));
            }
            Event::Gap(gap) => self.gap(&gap),
            Event::ShortSuspension(_) => {}
            Event::Untraced(slice) => self.untraced(functions, &slice),
            Event::OffCpu(off) => self.off_cpu(&off),
            Event::End { .. } => {}
        }
    }

    fn thread_end(&mut self, export: &mut Export<'_, S>) {
        self.open(&export.functions, export.source);
    }
}

impl Page<'_> {
    /// Writes the delayed line of the call that began last.
    fn open(&mut self, functions: &Functions<'_>, source: &impl Source) {
        if let Some(begun) = self.begun.take() {
            let values = self.values(source, begun.start.values);
            self.opening(functions, self.stack.len(), &begun, &values);
            self.stack.push(Open { function: begun.function, line: self.lines });
        }
    }

    /// The number of a call of this function that begins; 0 if calls aren't numbered.
    fn number(&mut self, function: FunctionId) -> u64 {
        if !self.style.numbers {
            return 0;
        }
        if self.calls.len() <= function.index() {
            self.calls.resize(function.index() + 1, 0);
        }
        let calls = &mut self.calls[function.index()];
        *calls += 1;
        *calls
    }

    /// Writes a call's number, if it has one.
    fn call_number(&mut self, number: &str) {
        if !number.is_empty() {
            self.ink(Ink::Faint, format_args!("{number}"));
        }
    }

    fn gap(&mut self, gap: &Gap) {
        let indent = self.line_start(self.stack.len(), gap.at_ns);
        let duration = self.moments.length(gap.until_ns - gap.at_ns);
        let what = format!("{} for {duration}", text::gap_name(gap.why));
        let resumed = gap.resumed_by.map(|thread| format!("; resumed by thread {thread}"));
        let why = format!("{}{}", text::gap_reason(gap.why), resumed.unwrap_or_default());
        self.remark(indent, &what, &why);
    }

    fn untraced(&mut self, functions: &Functions<'_>, slice: &UntracedSlice) {
        let indent = self.line_start(self.stack.len(), slice.at_ns);
        let duration = self.moments.length(slice.until_ns - slice.at_ns);
        let name = visible(&functions.get(slice.function).name);
        let name = self.style.names.shown(&name, self.room(indent + 16));
        self.ink(Ink::Faint, format_args!("-- => {name} {duration} --"));
        self.sink.put(b"\n");
    }

    /// Writes how long the thread was off the CPU, and why.
    fn off_cpu(&mut self, off: &OffCpu) {
        self.line_start(self.stack.len(), off.at_ns);
        let mut separator = "~ ";
        for (state, time) in off.parts_in_words() {
            self.ink(Ink::Wait, format_args!("{separator}{} {state}", self.moments.length(time)));
            separator = ", ";
        }
        if let Some(time) = off.at_most_ns {
            let time = self.moments.length(time);
            self.ink(Ink::Wait, format_args!("{separator}off the CPU for {time} at most"));
        }
        if let Some(thread) = off.woken_by {
            self.ink(Ink::Wait, format_args!(", woken by thread {thread}"));
            if let Some(name) = self.threads.get(&thread).copied() {
                self.ink(Ink::Wait, format_args!(" {}", visible(name)));
            }
        }
        self.sink.put(b"\n");
    }

    fn heading(&mut self, title: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.sink.put(b"\n");
        }
        self.ink(Ink::Heading, format_args!("== {title} =="));
        self.sink.put(b"\n\n");
    }

    fn opening(
        &mut self,
        functions: &Functions<'_>,
        level: usize,
        &Begun { function, start_ns, start, number }: &Begun,
        values: &Shown,
    ) {
        let number = shown_number(number);
        let indent = self.line_start(level, start_ns) + self.arrow(start.tail);
        let remark = match start {
            Start { cut: true, .. } => "began earlier",
            Start { caller_unsure: true, .. } => text::CALLER_UNSURE,
            _ if start_ns < self.since_ns => "earlier calls in it aren't shown",
            _ => "",
        };
        let rest = number.len() + if remark.is_empty() { 2 } else { remark.len() + 4 };
        let used = self.call_name(functions, function, (indent, rest), values);
        self.call_number(&number);
        self.sink.put(b" {");
        if !remark.is_empty() {
            self.sink.put(b"  ");
            self.ink(Ink::Missing, format_args!("{remark}"));
        }
        self.place(function, used + rest);
        self.sink.put(b"\n");
        self.inlined(function, level + 1);
    }

    /// Writes the arrow of a tail call. Returns its width in columns.
    fn arrow(&mut self, tail: Option<Tail>) -> usize {
        let Some(tail) = tail else { return 0 };
        let arrow = if tail.is_sure { "=> " } else { "=>? " };
        self.ink(Ink::Mark, format_args!("{arrow}"));
        arrow.len()
    }

    fn leaf(
        &mut self,
        functions: &Functions<'_>,
        level: usize,
        &Begun { function, start, number, .. }: &Begun,
        ((times, bars), how): (((u64, u64), Option<Bars>), EndKind),
        values: &Shown,
    ) {
        let number = shown_number(number);
        let indent = self.line_start(level, times.0) + self.arrow(start.tail);
        let ending = Ending::new((times, bars), &self.moments, start, how);
        let rest = number.len() + 2 + ending.width();
        let used = self.call_name(functions, function, (indent, rest), values);
        self.call_number(&number);
        self.result(values.result.as_deref());
        self.sink.put(b"  ");
        self.ending(&ending);
        self.place(function, used + rest);
        self.sink.put(b"\n");
        self.inlined(function, level + 1);
    }

    fn closing(
        &mut self,
        level: usize,
        far: Option<FunctionId>,
        (times, bars): ((u64, u64), Option<Bars>),
        result: Option<String>,
        (cut, how): (bool, EndKind),
    ) {
        let indent = self.line_start(level, times.1);
        // Where the call began, it is said who may have made it.
        let ending = Ending::new((times, bars), &self.moments, Start { cut, ..Start::default() }, how);
        self.sink.put(b"}");
        self.result(result.as_deref());
        self.sink.put(b" ");
        self.ending(&ending);
        if let Some(function) = far {
            let room = self.room(indent + 4 + ending.width());
            let name = self.labels[function.index()].name.fitting(self.style.names.columns(room));
            self.sink.put(b"  ");
            self.ink(Ink::Faint, format_args!("{name}"));
        }
        self.sink.put(b"\n");
    }

    fn point(&mut self, functions: &Functions<'_>, level: usize, point: &Point) {
        let (what, detail) = text::point(point, functions);
        let indent = self.line_start(level, point.at_ns);
        self.remark(indent, &what, detail);
    }

    fn mark(&mut self, level: usize, mark: &Mark, name: &str) {
        let indent = self.line_start(level, mark.at_ns);
        let (sign, tail) = match mark.kind {
            MarkKind::Label => ("@", String::new()),
            MarkKind::Instant | MarkKind::Wake | MarkKind::Step => ("!", String::new()),
            MarkKind::Throw | MarkKind::Catch => ("*", String::new()),
            MarkKind::SpanBegin { cut, .. } => ("[", if cut { ", began earlier" } else { "" }.to_owned()),
            MarkKind::SpanEnd { start_ns, start_cut, how, .. } => {
                let remarks: String =
                    text::span_remarks(start_cut, how).flat_map(|remark| [", ", remark]).collect();
                let bound = if remarks.is_empty() { "" } else { ">" };
                ("]", format!("  {bound}{}{remarks}", self.moments.length(mark.at_ns - start_ns)))
            }
            MarkKind::Counter | MarkKind::CounterReal => ("#", String::new()),
            MarkKind::Log => (">", String::new()),
            MarkKind::Output(Stream::Stdout) => ("1|", String::new()),
            MarkKind::Output(Stream::Stderr) => ("2|", String::new()),
            MarkKind::Output(_) => ("=", String::new()),
            MarkKind::OrphanSpanEnd => ("]", format!(", {}", text::ORPHAN_SPAN_END)),
        };
        let value = match mark.kind {
            // The number of a line is of use where it is looked for.
            MarkKind::Output(_) => None,
            _ => text::mark_value(mark),
        };
        let value = value.map(|value| format!(" = {value}")).unwrap_or_default();
        let name = visible(name);
        let room = self.room(indent + sign.len() + 1 + value.len() + tail.len());
        let name = Shortable::plain(name.into_owned()).fitting(room.unwrap_or(usize::MAX));
        self.ink(Ink::Mark, format_args!("{sign} {name}{value}"));
        self.sink.put(tail.as_bytes());
        self.sink.put(b"\n");
    }

    /// Writes the calls that were inlined into a function. They have no times.
    fn inlined(&mut self, function: FunctionId, level: usize) {
        let details = std::mem::take(&mut self.labels[function.index()].details);
        let time_width = self.moments.width();
        let indent = |level: usize| time_width + 2 + 2 * level.min(2 * LEVELS_INDENTED);
        for call in &details.inlined {
            let place =
                call.place.as_deref().map(|place| format!(" at {}", visible(place))).unwrap_or_default();
            let tail = format!("  inlined{place}, not timed");
            let start = indent(level + call.level as usize);
            let room = self.room(start + 2 + tail.len());
            let name = self.style.names.shown(&visible(&call.name), room);
            self.sink.bytes.resize(self.sink.bytes.len() + start, b' ');
            self.ink(Ink::Faint, format_args!("- {name}{tail}"));
            self.sink.put(b"\n");
        }
        if details.more_inlined > 0 {
            self.sink.bytes.resize(self.sink.bytes.len() + indent(level), b' ');
            self.ink(Ink::Faint, format_args!("- and {} more inlined calls", Count(details.more_inlined)));
            self.sink.put(b"\n");
        }
        self.labels[function.index()].details = details;
    }

    /// Writes what is missing, and why.
    fn remark(&mut self, indent: usize, what: &str, detail: &str) {
        let room = self.room(indent + what.len() + 8).unwrap_or(usize::MAX);
        let detail = Shortable::new(visible(detail).into_owned()).fitting(room);
        self.ink(Ink::Missing, format_args!("-- {what}: {detail} --"));
        self.sink.put(b"\n");
    }

    /// Writes time and indentation. Returns their width in columns.
    fn line_start(&mut self, level: usize, at_ns: u64) -> usize {
        self.ink_begin(Ink::Faint);
        self.moments.put(&mut self.sink.bytes, at_ns);
        self.ink_end(Ink::Faint);
        let indent = 2 + 2 * level.min(LEVELS_INDENTED);
        self.sink.bytes.resize(self.sink.bytes.len() + indent, b' ');
        let mut used = self.moments.width() + indent;
        if level > LEVELS_INDENTED {
            let number = format!("[{level}] ");
            used += number.len();
            self.ink(Ink::Faint, format_args!("{number}"));
        }
        used
    }

    /// A call's values as they are shown.
    fn values(&self, source: &impl Source, values: CallValues) -> Shown {
        if !values.are_any() {
            return Shown::default();
        }
        let of_entry = values.arguments.map(|number| values::arguments_and_site(source, number));
        let (arguments, site) = of_entry.unwrap_or_default();
        let arguments = arguments.map(|text| self.shortened(&text, 1));
        let site = site.map(|text| self.shortened(&text, 2));
        Shown { arguments, site, result: self.result_of(source, values) }
    }

    /// A call's result with the sign or word before it.
    fn result_of(&self, source: &impl Source, values: CallValues) -> Option<String> {
        let text = values::result_text(source, values.result?);
        let (sign, text) = text.split_once(' ')?;
        Some(format!("{sign} {}", self.shortened(text, 2)))
    }

    /// A text of the program, which takes at most one in `parts` of a line's columns.
    fn shortened(&self, text: &str, parts: usize) -> String {
        let room = match self.style.names {
            NameLength::Whole => usize::MAX,
            NameLength::Fitting => self.style.width.unwrap_or(VALUES_MAX).max(NAME_MIN) / parts,
        };
        Shortable::plain(visible(text).into_owned()).fitting(room)
    }

    /// Writes the function's name with the call's arguments, if there are any.
    fn call_name(
        &mut self,
        functions: &Functions<'_>,
        id: FunctionId,
        (indent, rest): (usize, usize),
        values: &Shown,
    ) -> usize {
        let site = values.site.as_ref().map_or(0, |site| columns(site) + 4);
        let used = self.name_with_arguments(functions, id, (indent, rest + site), values);
        if let Some(site) = &values.site {
            self.ink(Ink::Faint, format_args!(" at {site}"));
        }
        used + site
    }

    fn name_with_arguments(
        &mut self,
        functions: &Functions<'_>,
        id: FunctionId,
        (indent, rest): (usize, usize),
        values: &Shown,
    ) -> usize {
        let result = values.result.as_ref().map_or(0, |result| columns(result) + 1);
        let Some(arguments) = &values.arguments else {
            return self.name(functions, id, indent, rest + result);
        };
        let name = &self.label(functions, id).name.whole;
        let name = Shortable::new(values::without_parameters(name).to_owned());
        let taken = columns(arguments) + 2 + result;
        let room = self.style.names.columns(self.room(indent + rest + taken));
        let used = indent + name.put(&mut self.sink.bytes, room);
        self.sink.put(b"(");
        self.ink(Ink::Mark, format_args!("{arguments}"));
        self.sink.put(b")");
        used + taken
    }

    fn result(&mut self, result: Option<&str>) {
        if let Some((sign, result)) = result.and_then(|result| result.split_once(' ')) {
            self.sink.put(format!(" {sign} ").as_bytes());
            self.ink(Ink::Mark, format_args!("{result}"));
        }
    }

    /// Writes the function's name, shortened to leave `tail` columns. Returns the number of columns
    /// used after it.
    fn name(&mut self, functions: &Functions<'_>, id: FunctionId, used: usize, tail: usize) -> usize {
        let room = self.style.names.columns(self.room(used + tail));
        self.label(functions, id);
        used + self.labels[id.index()].name.put(&mut self.sink.bytes, room)
    }

    /// The function as it is shown.
    fn label(&mut self, functions: &Functions<'_>, id: FunctionId) -> &Label {
        if self.labels.len() <= id.index() {
            self.labels.resize(id.index() + 1, Label::default());
        }
        if self.labels[id.index()].name.whole.is_empty() {
            let function = functions.get(id);
            let name = visible(if function.name.is_empty() { "(no name)" } else { &function.name });
            let place = visible(&function.place().unwrap_or_default()).into_owned();
            let details = functions.details(id);
            self.labels[id.index()] = Label { name: Shortable::new(name.into_owned()), place, details };
        }
        &self.labels[id.index()]
    }

    /// Writes file and line at the right edge, if there is room.
    fn place(&mut self, function: FunctionId, used: usize) {
        let place = std::mem::take(&mut self.labels[function.index()].place);
        if let Some(width) = self.style.width
            && !place.is_empty()
            && used + 2 + columns(&place) <= width
        {
            let gap = width - used - columns(&place);
            self.sink.bytes.resize(self.sink.bytes.len() + gap, b' ');
            self.ink(Ink::Faint, format_args!("{place}"));
        }
        self.labels[function.index()].place = place;
    }

    /// The columns that are left in a line; `None` if lines may have any length.
    fn room(&self, used: usize) -> Option<usize> {
        self.style.width.map(|width| width.saturating_sub(used).max(NAME_MIN))
    }

    fn ending(&mut self, ending: &Ending) {
        let ink = match ending.ns {
            0..1_000 => Ink::Faint,
            1_000..1_000_000 => Ink::Plain,
            1_000_000..10_000_000 => Ink::Slow,
            _ => Ink::VerySlow,
        };
        self.ink(ink, format_args!("{}", ending.duration));
        if !ending.remarks.is_empty() {
            self.ink(Ink::Missing, format_args!(", {}", ending.remarks));
        }
        if ending.jumped {
            self.ink(Ink::Mark, format_args!(" =>"));
        }
    }

    fn ink(&mut self, ink: Ink, text: fmt::Arguments<'_>) {
        self.ink_begin(ink);
        // Writing to memory can't fail.
        let _ = self.sink.bytes.write_fmt(text);
        self.ink_end(ink);
    }

    fn ink_begin(&mut self, ink: Ink) {
        if self.style.colour {
            self.sink.put(match ink {
                Ink::Plain => b"",
                Ink::Faint => b"\x1b[2m",
                Ink::Heading => b"\x1b[1m",
                Ink::Slow => b"\x1b[33m",
                Ink::VerySlow => b"\x1b[31m",
                Ink::Missing => b"\x1b[35m",
                Ink::Mark => b"\x1b[36m",
                Ink::Wait => b"\x1b[34m",
            });
        }
    }

    fn ink_end(&mut self, ink: Ink) {
        if self.style.colour && !matches!(ink, Ink::Plain) {
            self.sink.put(b"\x1b[0m");
        }
    }
}

/// The text after a call.
struct Ending {
    ns: u64,
    duration: String,
    remarks: String,
    jumped: bool,
}

impl Ending {
    fn new(
        ((start_ns, end_ns), bars): ((u64, u64), Option<Bars>),
        moments: &Moments<'_>,
        start: Start,
        how: EndKind,
    ) -> Ending {
        let Start { cut, caller_unsure, .. } = start;
        let ns = bars.map_or(end_ns.saturating_sub(start_ns), |bars| bars.value);
        let bound = match how {
            EndKind::TruncatedAtEnd | EndKind::TruncatedAtLoss | EndKind::TruncatedAtGap => ">",
            EndKind::ReturnedAfterGap => "~",
            _ if cut => ">",
            EndKind::ExitLost => "<",
            EndKind::Returned | EndKind::Jumped | EndKind::Unwound | EndKind::UnwoundLate => "",
        };
        let jumped = how == EndKind::Jumped;
        // The arrow after the duration shows the jump.
        let remarked = if jumped { EndKind::Returned } else { how };
        let remarks = text::remarks(cut, caller_unsure, remarked).collect::<Vec<_>>().join(", ");
        let mut duration = format!("{bound}{}", moments.length(ns));
        if let Some(bars) = bars.filter(|bars| !bars.is_exact()) {
            let _ = write!(duration, " \u{b1}{}", moments.length(bars.error()));
        }
        Ending { ns, duration, remarks, jumped }
    }

    fn width(&self) -> usize {
        let remarks = if self.remarks.is_empty() { 0 } else { 2 + self.remarks.len() };
        columns(&self.duration) + remarks + if self.jumped { 3 } else { 0 }
    }
}
