//! Comma-separated values (RFC 4180, with plain newlines): a header, then a line for each call,
//! written when it ends.
//!
//! ```text
//! kind,pid,tid,thread,depth,start_ns,duration_ns,function,module,file,line,value,remarks
//! call,1,2,main,1,7,1234,f(int),app,/src/file.cpp,12,,
//! lost,1,2,main,1,99,,,,,,7,overwritten before they were read
//! ```
//!
//! - `start_ns` and `duration_ns` are exact nanoseconds; times count from the trace's origin. In their place are `start_realtime_ns`, which
//!   counts from 1970, or `start_ticks` and `duration_ticks`, if asked for.
//! - Where events may have no times of their own, two further columns, `duration_low` and
//!   `duration_high`, have what the duration of a call is at least and at most, in its unit.
//! - `depth` counts the shown calls around the call.
//! - `remarks` are those of the other outputs, such as `truncated at end` or `unwound`, separated
//!   by `; `.
//! - Other kinds of lines: `lost`, `orphan exit` and `left out` (`value` is the count, empty if
//!   unknown), `label`, `instant`, `throw`, `catch`, `span`, `orphan span end` (the name is in the
//!   function column, `value` is its value), `not recorded`, `suspended` and `off cpu` (`remarks` has the states). To get only calls,
//!   select lines of kind `call`.

use std::io::Write;

use everycall_timeline::{Bars, Gap, GapKind, Mark, MarkKind};

use crate::driver::{Export, Sink};
use crate::filtered::{Event, Point, PointKind, UntracedSlice};
use crate::json::put_number;
use crate::names::{Function, FunctionId, Functions};
use crate::off_cpu::OffCpu;
use crate::portions::Portions;
use crate::source::{Source, Times};
use crate::text;
use crate::values;
use everycall_calls::Thread;

const HEADER: [&str; 2] = ["kind,pid,tid,thread,depth,", ",function,module,file,line,value,remarks"];
/// Further columns where calls have arguments or results: as JSON.
const VALUES: &str = ",arguments,result";
/// Further columns where durations have bounds.
const BOUNDS: &str = ",duration_low,duration_high";

/// The output.
pub(crate) struct Csv<'o> {
    portions: Portions<'o>,
    /// `,pid,tid,thread,` of the thread.
    thread: Vec<u8>,
    /// By function: `,function,module,file,line,`; empty for functions without lines so far.
    functions: Vec<Vec<u8>>,
    /// Open calls of the thread.
    depth: u64,
    /// Whether there are columns for bounds of durations.
    has_bounds: bool,
    /// Whether there are columns for arguments and results.
    has_values: bool,
}

impl<'o> Csv<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        Csv {
            portions: Portions::new(out),
            thread: Vec::new(),
            functions: Vec::new(),
            depth: 0,
            has_bounds: false,
            has_values: false,
        }
    }

    /// Everything before the times.
    fn head(&mut self, kind: &str) -> &mut Vec<u8> {
        let bytes = &mut self.portions.bytes;
        bytes.extend_from_slice(kind.as_bytes());
        bytes.extend_from_slice(&self.thread);
        put_number(bytes, self.depth);
        bytes.push(b',');
        bytes
    }

    fn call(&mut self, event: &Event, export: &Export<'_, impl Source>) {
        let (functions, source) = (&export.functions, export.source);
        let Event::End { function, start_ns, end_ns, start, how } = *event else { return };
        self.learn(function, functions);
        put_times(self.head("call"), source, start_ns, Some(end_ns));
        let bytes = &mut self.portions.bytes;
        bytes.extend_from_slice(&self.functions[function.index()]);
        bytes.push(b',');
        put_remarks(bytes, text::remarks(start.cut, start.caller_unsure, how));
        if self.has_bounds {
            let duration_ns = end_ns.saturating_sub(start_ns);
            let bars = export.bars.unwrap_or(Bars::exact(duration_ns));
            for length in [bars.low, bars.high] {
                self.portions.bytes.push(b',');
                put_number(&mut self.portions.bytes, length);
            }
        }
        if self.has_values {
            let (arguments, result) = values::json(source, start.values);
            for text in [arguments, result] {
                self.portions.bytes.push(b',');
                put_text(&mut self.portions.bytes, &text.unwrap_or_default());
            }
        }
        self.portions.bytes.push(b'\n');
    }

    fn learn(&mut self, id: FunctionId, functions: &Functions<'_>) {
        if self.functions.len() <= id.index() {
            self.functions.resize_with(id.index() + 1, Vec::new);
        }
        let known = &mut self.functions[id.index()];
        if known.is_empty() {
            put_function(known, functions.get(id));
        }
    }

    /// The last columns, and the end of the line, of a row without bounds.
    fn put_remarks<'t>(&mut self, remarks: impl Iterator<Item = &'t str>) {
        let bytes = &mut self.portions.bytes;
        put_remarks(bytes, remarks);
        for _ in [self.has_bounds, self.has_values].into_iter().filter(|has| *has) {
            bytes.extend_from_slice(b",,");
        }
        bytes.push(b'\n');
    }

    fn point(&mut self, point: &Point, functions: &Functions<'_>, source: &impl Source) {
        let (kind, function) = match point.kind {
            PointKind::Lost(_) => ("lost", None),
            PointKind::OrphanExit(function) => ("orphan exit", Some(function)),
            PointKind::LeftOut => ("left out", None),
            PointKind::Dropped => ("dropped", None),
        };
        put_times(self.head(kind), source, point.at_ns, None);
        if let Some(function) = function {
            self.learn(function, functions);
            self.portions.put(&self.functions[function.index()]);
        } else {
            self.portions.put(NO_FUNCTION);
        }
        let bytes = &mut self.portions.bytes;
        if let Some(count) = point.count {
            put_number(bytes, count);
        }
        bytes.push(b',');
        let (_, detail) = text::point(point, functions);
        self.put_remarks(function.is_none().then_some(detail).into_iter());
    }

    fn mark(&mut self, mark: &Mark, source: &impl Source) {
        let Some((kind, start)) = text::mark_kind(mark) else { return };
        let start_ns = start.map_or(mark.at_ns, |(start_ns, ..)| start_ns);
        put_times(self.head(kind), source, start_ns, start.map(|_| mark.at_ns));
        let bytes = &mut self.portions.bytes;
        bytes.push(b',');
        if matches!(mark.kind, MarkKind::Throw | MarkKind::Catch) {
            put_text(bytes, &text::type_name(source.mark_name(mark.name)).unwrap_or_default());
        } else {
            put_text(bytes, &text::mark_title(source, mark));
        }
        bytes.extend_from_slice(b",,,,");
        if let Some(value) = text::mark_value(mark) {
            bytes.extend_from_slice(value.as_bytes());
        }
        bytes.push(b',');
        match start {
            Some((_, start_cut, how)) => self.put_remarks(text::span_remarks(start_cut, how)),
            None => self.put_remarks(std::iter::empty()),
        }
    }

    fn untraced(&mut self, slice: &UntracedSlice, functions: &Functions<'_>, source: &impl Source) {
        self.learn(slice.function, functions);
        put_times(self.head("untraced"), source, slice.at_ns, Some(slice.until_ns));
        let bytes = &mut self.portions.bytes;
        bytes.extend_from_slice(&self.functions[slice.function.index()]);
        bytes.push(b',');
        self.put_remarks(std::iter::once(text::UNTRACED));
    }

    fn gap(&mut self, gap: &Gap, source: &impl Source) {
        let kind = if gap.why == GapKind::Suspended { "suspended" } else { "not recorded" };
        put_times(self.head(kind), source, gap.at_ns, Some(gap.until_ns));
        self.portions.put(NO_FUNCTION);
        let bytes = &mut self.portions.bytes;
        bytes.push(b',');
        let resumed = gap.resumed_by.map(|thread| format!("resumed by thread {thread}"));
        self.put_remarks(std::iter::once(text::gap_reason(gap.why)).chain(resumed.as_deref()));
    }

    fn off_cpu(&mut self, off: &OffCpu, source: &impl Source) {
        put_times(self.head("off cpu"), source, off.at_ns, Some(off.until_ns));
        self.portions.put(NO_FUNCTION);
        let bytes = &mut self.portions.bytes;
        bytes.push(b',');
        let states: Vec<_> = off.parts_in_words().map(|(state, _)| state).collect();
        let woken = off.woken_by.map(|thread| format!("woken by thread {thread}"));
        self.put_remarks(states.iter().map(AsRef::as_ref).chain(woken.as_deref()));
    }
}

impl<'o, S: Source> Sink<'o, S> for Csv<'o> {
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn begin(&mut self, export: &mut Export<'_, S>) {
        let times = match export.source.times() {
            Times::Trace => "start_ns,duration_ns",
            Times::Wall(_) => "start_realtime_ns,duration_ns",
            Times::Raw(_) => "start_ticks,duration_ticks",
        };
        self.has_bounds = export.source.has_bounds();
        let bounds = if self.has_bounds { BOUNDS } else { "" };
        self.has_values = export.source.has_values();
        let values = if self.has_values { VALUES } else { "" };
        for part in [HEADER[0], times, HEADER[1], bounds, values, "\n"] {
            self.portions.put(part.as_bytes());
        }
    }

    fn thread(&mut self, _: &mut Export<'_, S>, _: usize, thread: &Thread) {
        self.depth = 0;
        self.thread.clear();
        for number in [thread.pid, thread.tid] {
            self.thread.push(b',');
            put_number(&mut self.thread, number.into());
        }
        self.thread.push(b',');
        put_text(&mut self.thread, &thread.name);
        self.thread.push(b',');
    }

    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        export.summary.event(event);
        match *event {
            Event::Begin { .. } => self.depth += 1,
            Event::End { .. } => {
                self.depth -= 1;
                self.call(event, export);
            }
            Event::Point(point) => self.point(&point, &export.functions, export.source),
            Event::Mark(mark) => self.mark(&mark, export.source),
            Event::Gap(gap) => self.gap(&gap, export.source),
            Event::ShortSuspension(_) => {}
            Event::Untraced(slice) => self.untraced(&slice, &export.functions, export.source),
            Event::OffCpu(off) => self.off_cpu(&off, export.source),
        }
    }
}

/// Empty function columns.
const NO_FUNCTION: &[u8] = b",,,,,";

fn put_function(bytes: &mut Vec<u8>, function: &Function) {
    for text in [&function.name, &function.module, function.file.as_deref().unwrap_or_default()] {
        bytes.push(b',');
        put_text(bytes, text);
    }
    bytes.push(b',');
    if let Some(line) = function.line {
        put_number(bytes, line.into());
    }
    bytes.push(b',');
}

/// Begin and duration; the latter is empty for what has none.
#[inline]
fn put_times(bytes: &mut Vec<u8>, source: &impl Source, start_ns: u64, end_ns: Option<u64>) {
    let start = match source.times() {
        Times::Wall(_) => source.realtime_ns(start_ns).unwrap_or(start_ns),
        _ => start_ns,
    };
    put_number(bytes, start);
    bytes.push(b',');
    if let Some(end_ns) = end_ns {
        put_number(bytes, end_ns.saturating_sub(start_ns));
    }
}

/// The column of remarks.
fn put_remarks<'t>(bytes: &mut Vec<u8>, remarks: impl Iterator<Item = &'t str>) {
    let mut text = String::new();
    for remark in remarks {
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(remark);
    }
    put_text(bytes, &text);
}

/// A text, quoted if necessary.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    if !text.contains([',', '"', '\n', '\r']) {
        return bytes.extend_from_slice(text.as_bytes());
    }
    bytes.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            bytes.push(byte);
        }
        bytes.push(byte);
    }
    bytes.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_they_must_be() {
        let quoted = |text: &str| {
            let mut bytes = Vec::new();
            put_text(&mut bytes, text);
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(quoted("f(int)"), "f(int)");
        assert_eq!(quoted("f(int, char)"), "\"f(int, char)\"");
        assert_eq!(quoted("a \"b\"\nc"), "\"a \"\"b\"\"\nc\"");
    }
}
