//! Calls as lines, while they happen.
//!
//! ```text
//! 10:00:00.123456  handle_request(int) #1 {
//! 10:00:00.123461    parse(char const*) #1  1.20 us
//! 10:00:00.123470  } handle_request(int) #1  14.1 us
//! ```
//!
//! A call without shown calls in it takes one line, if it ends soon. Lines come thread by thread in their order, and of several
//! threads in the order of time.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use everycall_analysis::SymbolNames;
use everycall_export::{Calendar, without_parameters};
use everycall_format::arena::ClockReading;
use everycall_live::RingOwner;
use everycall_machine::clock;
use everycall_timeline::{
    Bars, Clock, EndKind, Intervals, Location, Mark, MarkKind, Stream, TailCall, TimelineEvent, Trace,
};
use everycall_units::{Count, Duration, Several};

use super::levels::Levels;
use crate::arguments::Clock as Shown;
use crate::output::{Room, clean};

/// A call that hasn't ended after this time gets a line of its own.
const OPEN_AFTER_NS: u64 = 20_000_000;
/// Longer lines of output are broken.
const LINE_MAX: usize = 16 << 10;
/// A name keeps at least this many columns.
const NAME_MIN: usize = 16;
/// Largest number of levels that are indented.
const INDENTED: usize = 16;

/// Lines to print, and the open calls of each thread.
pub struct Page {
    pub levels: Levels,
    shown: Shown,
    calendar: Calendar,
    /// Converts ticks to times.
    clock: Clock,
    first: ClockReading,
    /// Calls that began earlier aren't shown.
    since: u64,
    /// Where times begin.
    shown_since: u64,
    /// Output lines without line break so far.
    unfinished: [(u64, Vec<u8>); 2],
    threads: HashMap<RingOwner, Thread>,
    names: HashMap<Location, Rc<str>>,
    /// Number of calls so far, by function.
    numbers: HashMap<Rc<str>, u64>,
    lines: Vec<Line>,
    room: Room,
    /// Whether lines begin with their thread.
    pub has_titles: bool,
    /// Calls that were shown.
    pub calls: u64,
}

#[derive(Default)]
struct Thread {
    title: String,
    open: Vec<Open>,
    /// Calls that are open and shown.
    depth: usize,
    /// Number of open calls within which nothing, or everything, is shown.
    closed: usize,
    whole: usize,
    /// Whether the call that began last has no line yet.
    is_pending: bool,
    /// The result of the call that ends next.
    result: String,
    intervals: Intervals,
    /// Time of its last line.
    latest: u64,
    /// Whether the call that ended last is shown, and the arrow before the name of a call made by
    /// its jump.
    jumped: bool,
}

/// An open call.
struct Open {
    /// `None` if it isn't shown.
    shown: Option<Call>,
    level: u8,
}

#[derive(Clone)]
struct Call {
    name: Rc<str>,
    /// Its arguments in parentheses, and its result behind an equals sign; empty if they weren't
    /// recorded.
    values: String,
    number: u64,
    start: u64,
    arrow: &'static str,
    /// Whether it takes one line.
    is_short: bool,
}

/// A line.
struct Line {
    at: u64,
    text: String,
}

impl Page {
    pub fn new(
        levels: Levels,
        shown: Shown,
        room: Room,
        first: ClockReading,
        (since, shown_since): (u64, u64),
    ) -> Page {
        let mut page = Page {
            levels,
            shown,
            calendar: Calendar::local(),
            clock: Clock::new(&[first], None),
            first,
            since,
            shown_since,
            unfinished: [(0, Vec::new()), (0, Vec::new())],
            threads: HashMap::new(),
            names: HashMap::new(),
            numbers: HashMap::new(),
            lines: Vec::new(),
            room,
            has_titles: false,
            calls: 0,
        };
        page.read_clock();
        page
    }

    /// Uses the present reading of the clock to convert ticks.
    pub fn read_clock(&mut self) {
        self.clock = Clock::new(&[self.first, clock::read()], None);
    }

    /// Locations have other meanings from now on.
    pub fn forget_names(&mut self) {
        self.names.clear();
    }

    /// Removes threads that have ended.
    pub fn forget_threads(&mut self, is_gone: &dyn Fn(RingOwner) -> bool) {
        self.threads.retain(|owner, thread| thread.is_pending || !is_gone(*owner));
    }

    /// Sets a thread's title.
    pub fn set_title(&mut self, owner: RingOwner, title: String) {
        self.threads.entry(owner).or_default().title = title;
    }

    /// Sets the titles of the threads that have one anew.
    pub fn set_titles(&mut self, title: impl Fn(RingOwner) -> String) {
        for (owner, thread) in self.threads.iter_mut().filter(|(_, thread)| !thread.title.is_empty()) {
            thread.title = title(*owner);
        }
    }

    pub fn has_title(&self, owner: RingOwner) -> bool {
        self.threads.get(&owner).is_some_and(|thread| !thread.title.is_empty())
    }

    /// Processes an event of a thread, in the order of time. `said` is the text of a mark, or the
    /// values of the call that begins or ends.
    pub fn event(
        &mut self,
        owner: RingOwner,
        event: &TimelineEvent,
        said: &str,
        trace: &Trace<'_>,
        names: &SymbolNames<'_>,
    ) {
        let mut thread = self.threads.remove(&owner).unwrap_or_default();
        self.event_of(&mut thread, event, said, trace, names);
        self.threads.insert(owner, thread);
    }

    fn event_of(
        &mut self,
        thread: &mut Thread,
        event: &TimelineEvent,
        said: &str,
        trace: &Trace<'_>,
        names: &SymbolNames<'_>,
    ) {
        let bars = thread.intervals.event(event);
        match event {
            TimelineEvent::Begin(begin) => {
                let level = self.levels.level(trace, begin.location);
                let is_new = begin.start_ns >= self.since && !begin.cut;
                let is_shown = is_new && thread.closed == 0 && (level > 0 || thread.whole > 0);
                let shown = is_shown.then(|| {
                    let name = self.name(names, begin.location);
                    let number = self.numbers.entry(Rc::clone(&name)).or_default();
                    *number += 1;
                    let arrow = match begin.tail_call {
                        TailCall::No => "",
                        _ if !thread.jumped => "",
                        TailCall::Yes => "=> ",
                        TailCall::Perhaps => "=>? ",
                    };
                    Call {
                        name,
                        values: clean(said),
                        number: *number,
                        start: begin.start_ns,
                        arrow,
                        is_short: level == 1,
                    }
                });
                if shown.is_some() {
                    self.calls += 1;
                    self.open_pending(thread, begin.start_ns);
                    thread.is_pending = true;
                }
                if is_new {
                    thread.closed += usize::from(level == 1);
                    thread.whole += usize::from(level == 3);
                }
                let level = if is_new { level } else { 0 };
                thread.open.push(Open { shown, level });
            }
            TimelineEvent::End(end) => {
                let Some(open) = thread.open.pop() else { return };
                thread.closed -= usize::from(open.level == 1);
                thread.whole -= usize::from(open.level == 3);
                thread.jumped = open.shown.is_some();
                let result = std::mem::take(&mut thread.result);
                let Some(call) = open.shown else { return };
                let ending = self.ending((call.start, end.end_ns), end.how, bars);
                if std::mem::take(&mut thread.is_pending) {
                    let tail = format!("{result} #{}  {ending}", call.number);
                    self.call_line(thread, (call.start, end.end_ns), call.arrow, &call, &tail);
                } else {
                    thread.depth = thread.depth.saturating_sub(1);
                    let tail = format!("{result} #{}  {ending}", call.number);
                    self.line(thread, end.end_ns, end.end_ns, "} ", &call.name, &tail);
                }
            }
            TimelineEvent::Loss(loss) if loss.at_ns >= self.since || loss.count.is_some() => {
                self.open_pending(thread, loss.at_ns);
                let text = match loss.count {
                    Some(count) => format!("... {} events lost", Count(count)),
                    None => "... events lost".to_owned(),
                };
                self.line(thread, loss.at_ns, loss.at_ns, &text, "", "");
            }
            TimelineEvent::Returned(_) => thread.result = clean(said),
            TimelineEvent::Mark(mark) => self.mark(thread, mark, said),
            _ => {}
        }
    }

    /// Processes output of the program: one line for each of its lines.
    pub fn said(&mut self, at: u64, is_error: bool, bytes: &[u8]) {
        let (_, mut text) = std::mem::take(&mut self.unfinished[usize::from(is_error)]);
        text.extend_from_slice(bytes);
        let mut rest = &text[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.said_line(at, is_error, &rest[..end]);
            rest = &rest[end + 1..];
        }
        let rest = if rest.len() > LINE_MAX {
            self.said_line(at, is_error, rest);
            &[]
        } else {
            rest
        };
        self.unfinished[usize::from(is_error)] = (at, rest.to_vec());
    }

    /// Threads that ended before they were read.
    pub fn missed(&mut self, at: u64, count: u64) {
        let threads = Several(count, "thread", "threads");
        let text =
            format!("{}  ... calls of {threads} lost, which ended before they were read", self.moment(at));
        self.lines.push(Line { at, text });
    }

    fn said_line(&mut self, at: u64, is_error: bool, bytes: &[u8]) {
        let sign = if is_error { "2|" } else { "1|" };
        let text = String::from_utf8_lossy(bytes);
        let text: String = text.split('\t').map(clean).collect::<Vec<_>>().join("\t");
        let text = format!("{}  {sign} {text}", self.moment(at));
        self.lines.push(Line { at, text });
    }

    /// Processes a mark of the program, in calls that are shown.
    fn mark(&mut self, thread: &mut Thread, mark: &Mark, said: &str) {
        let is_within = thread.open.last().is_some_and(|open| open.shown.is_some()) || thread.whole > 0;
        let sign = match mark.kind {
            MarkKind::Label => "@ ",
            MarkKind::Instant | MarkKind::Wake | MarkKind::Step => "! ",
            MarkKind::Log => "> ",
            MarkKind::Output(Stream::Stdout) => "1| ",
            MarkKind::Output(Stream::Stderr) => "2| ",
            MarkKind::SpanBegin { .. } => "[ ",
            MarkKind::SpanEnd { .. } => "] ",
            _ => return,
        };
        if !is_within || thread.closed > 0 {
            return;
        }
        self.open_pending(thread, mark.at_ns);
        let value = mark.value.map(|value| format!(" = {value}")).unwrap_or_default();
        self.line(thread, mark.at_ns, mark.at_ns, sign, &clean(said), &value);
    }

    /// The name of the function at a place.
    fn name(&mut self, names: &SymbolNames<'_>, location: Location) -> Rc<str> {
        let name = self.names.entry(location).or_insert_with(|| {
            let name = match location.module_index() {
                Some(_) => names.name(location).name.into_owned(),
                None => format!("{:#x}", location.image_address),
            };
            clean(&name).into()
        });
        Rc::clone(name)
    }

    /// Prints the delayed line of the call that began last.
    fn open_pending(&mut self, thread: &mut Thread, at: u64) {
        if !thread.is_pending {
            return;
        }
        let Some(call) = thread.open.iter().rev().find_map(|open| open.shown.clone()) else { return };
        if call.is_short {
            return;
        }
        thread.is_pending = false;
        let tail = format!(" #{} {{", call.number);
        let times = (call.start, call.start.max(thread.latest).min(at));
        self.call_line(thread, times, call.arrow, &call, &tail);
        thread.depth += 1;
    }

    /// A line with a call's arguments behind its name.
    fn call_line(&mut self, thread: &mut Thread, times: (u64, u64), sign: &str, call: &Call, tail: &str) {
        if call.values.is_empty() {
            return self.line(thread, times.0, times.1, sign, &call.name, tail);
        }
        let name = without_parameters(&call.name);
        self.line(thread, times.0, times.1, sign, name, &format!("{}{tail}", call.values));
    }

    fn line(&mut self, thread: &mut Thread, shown_at: u64, at: u64, sign: &str, name: &str, tail: &str) {
        thread.latest = thread.latest.max(at);
        let mut text = self.moment(shown_at);
        text.push_str("  ");
        if self.has_titles {
            let _ = write!(text, "{}  ", thread.title);
        }
        let indent = 2 * thread.depth.min(INDENTED);
        text.extend(std::iter::repeat_n(' ', indent));
        if thread.depth > INDENTED {
            let _ = write!(text, "[{}] ", thread.depth);
        }
        text.push_str(sign);
        let used = text.chars().count() + tail.chars().count();
        let width = self.room.width.map(|width| width.saturating_sub(used).max(NAME_MIN));
        text.push_str(&self.room.names.shown(name, width));
        text.push_str(tail);
        self.lines.push(Line { at: thread.latest, text });
    }

    fn moment(&self, ticks: u64) -> String {
        let ns = self.clock.ns(ticks);
        match (self.shown, self.clock.wall()) {
            (Shown::Raw, _) => ticks.to_string(),
            (Shown::Wall, Some(wall)) => self.calendar.time_of_day(wall.realtime_ns(ns)),
            _ => {
                let ns = ns.saturating_sub(self.clock.ns(self.shown_since));
                format!("{:>6}.{:06}", ns / 1_000_000_000, ns / 1_000 % 1_000_000)
            }
        }
    }

    fn ending(&self, (start, end): (u64, u64), how: EndKind, bars: Option<Bars>) -> String {
        let length = |start: u64, end: u64| match self.shown {
            Shown::Raw => format!("{} ticks", Count(end.saturating_sub(start))),
            _ => Duration { ns: self.clock.ns(end).saturating_sub(self.clock.ns(start)) }.to_string(),
        };
        let error = bars.map(|bars| format!(" \u{b1}{}", length(start, start.saturating_add(bars.error()))));
        let length = length(start, end) + &error.unwrap_or_default();
        match how {
            EndKind::Returned => length,
            EndKind::Jumped => format!("{length} =>"),
            EndKind::Unwound => format!("{length}, unwound"),
            EndKind::UnwoundLate => format!("{length}, unwound earlier, exact time unknown"),
            EndKind::ReturnedAfterGap => format!("~{length}, partly not recorded"),
            EndKind::ExitLost => format!("<{length}, exit lost"),
            EndKind::TruncatedAtLoss => format!(">{length}, truncated at a loss"),
            EndKind::TruncatedAtGap => format!(">{length}, truncated at a gap"),
            EndKind::TruncatedAtEnd => format!(">{length}, truncated at end"),
        }
    }

    /// The lines up to a time in ticks; all lines if there is none. Includes calls that have been
    /// open for a while.
    pub fn take(&mut self, until: Option<u64>) -> String {
        let owners: Vec<RingOwner> = self.threads.keys().copied().collect();
        for owner in owners {
            let Some(mut thread) = self.threads.remove(&owner) else { continue };
            let start = thread.open.iter().rev().find_map(|open| open.shown.as_ref()).map(|call| call.start);
            let is_due = |start: u64| {
                until.is_none_or(|until| {
                    self.clock.ns(until).saturating_sub(self.clock.ns(start)) > OPEN_AFTER_NS
                })
            };
            if let Some(start) = start.filter(|start| thread.is_pending && is_due(*start)) {
                self.open_pending(&mut thread, start);
            }
            self.threads.insert(owner, thread);
        }
        if until.is_none() {
            for (is_error, (at, rest)) in [false, true].into_iter().zip(std::mem::take(&mut self.unfinished))
            {
                if !rest.is_empty() {
                    self.said_line(at, is_error, &rest);
                }
            }
        }
        self.lines.sort_by_key(|line| line.at);
        let count =
            until.map_or(self.lines.len(), |until| self.lines.partition_point(|line| line.at <= until));
        self.lines.drain(..count).flat_map(|line| [line.text, "\n".to_owned()]).collect()
    }
}
