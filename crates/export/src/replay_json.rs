//! Calls for programs: one JSON object per line and call, written when the call ends.
//!
//! ```text
//! {"pid":1,"tid":2,"thread":"main","depth":1,"start_ns":7,"dur_ns":1234,"name":"f(int)","module":"app","file":"/src/file.cpp","line":12}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"lost":7,"why":"..."}
//! {"pid":1,"tid":2,"thread":"main","at_ns":99,"stray_exits":1,"function":"f(int)"}
//! ```
//!
//! Times are exact nanoseconds since the trace's origin. `depth` counts the shown calls around the call.
//! `file` and `line` are left out where unknown, `lost` is null where nobody counted. A call that isn't
//! wholly recorded or didn't return has `remarks`, an array of "cut at start", "cut at end", "cut at a loss",
//! "unwound", "exit lost".

use std::io::{self, Write};

use everycall_timeline::EndKind;

use crate::Summary;
use crate::filter::{Event, Filter, Filtered, Point, PointKind};
use crate::json::{put_number, put_string};
use crate::names::{Function, FunctionId, Functions, Names};
use crate::sink::Sink;
use crate::source::{Source, Thread};
use crate::text;

/// Writes what `filter` lets through as JSON lines, thread by thread.
///
/// # Errors
///
/// What `out` answers, as it is: a closed pipe is an [`io::ErrorKind::BrokenPipe`].
pub fn replay_json(
    source: &impl Source,
    names: &dyn Names,
    filter: &Filter,
    out: &mut dyn Write,
) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let mut functions = Functions::new(names, filter.function.as_ref());
    let mut tails = Tails::default();
    let mut sink = Sink::new(out);
    let window = filter.window(source.end_ns());
    for (index, thread) in source.threads().iter().enumerate() {
        if !filter.admits_thread(thread.tid) {
            continue;
        }
        let head = head(thread);
        let mut events = Filtered::new(source.events(index), window);
        let mut depth = 0u64;
        let mut any = false;
        while let Some(event) = events.next(&mut functions) {
            any = true;
            match event {
                Event::Begin { .. } => depth += 1,
                Event::End { function, start_ns, end_ns, start_cut, how } => {
                    depth -= 1;
                    summary.slices += 1;
                    let bytes = &mut sink.bytes;
                    bytes.extend_from_slice(&head);
                    bytes.extend_from_slice(b",\"depth\":");
                    put_number(bytes, depth);
                    bytes.extend_from_slice(b",\"start_ns\":");
                    put_number(bytes, start_ns);
                    bytes.extend_from_slice(b",\"dur_ns\":");
                    put_number(bytes, end_ns.saturating_sub(start_ns));
                    bytes.extend_from_slice(tails.get(function, &functions));
                    if start_cut || how != EndKind::Returned {
                        put_remarks(bytes, start_cut, how);
                    }
                    bytes.extend_from_slice(b"}\n");
                }
                Event::Point(point) => {
                    put_point(&mut sink.bytes, &head, &point, &functions);
                    summary.point(&point);
                }
            }
            sink.spill()?;
        }
        summary.threads += u64::from(any);
    }
    sink.finish()?;
    Ok(summary)
}

/// What is the same in all lines of a thread.
fn head(thread: &Thread) -> Vec<u8> {
    let mut head = b"{\"pid\":".to_vec();
    put_number(&mut head, thread.pid.into());
    head.extend_from_slice(b",\"tid\":");
    put_number(&mut head, thread.tid.into());
    head.extend_from_slice(b",\"thread\":");
    put_string(&mut head, &thread.name);
    head
}

/// What is the same in all lines of a function; empty for those that have no line.
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
            *tail = new_tail(functions.get(id));
        }
        tail
    }
}

#[cold]
fn new_tail(function: &Function) -> Vec<u8> {
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
    tail
}

#[cold]
fn put_remarks(bytes: &mut Vec<u8>, start_cut: bool, how: EndKind) {
    bytes.extend_from_slice(b",\"remarks\":");
    let mut separator = b'[';
    for remark in text::remarks(start_cut, how) {
        bytes.push(std::mem::replace(&mut separator, b','));
        put_string(bytes, remark);
    }
    bytes.push(b']');
}

fn put_point(bytes: &mut Vec<u8>, head: &[u8], point: &Point, functions: &Functions<'_>) {
    let (_, detail) = text::point(point, functions);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(b",\"at_ns\":");
    put_number(bytes, point.at_ns);
    bytes.extend_from_slice(match point.kind {
        PointKind::Lost(_) => b",\"lost\":",
        PointKind::StrayExit(_) => b",\"stray_exits\":",
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
