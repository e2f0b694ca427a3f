//! A trace's call trees as lines of text, one call a line: what the library of expected trees is
//! compared with.
//!
//! ```text
//! main                                a call that returned
//!   catcher                           what it called, two columns further
//!     thrower!                        left without an exit: exception, longjmp, end of the thread
//!       *throw std::runtime_error     something that happened at one moment
//!     leaf ×10                        ten calls like this one after the other
//!   down ↓100000                      calls itself; so many deep, nothing else in between
//!     leaf~                           open at the end of the trace
//! --
//! worker                              the next thread, or fiber: a stack of its own
//! ```
//!
//! Marks behind a name: `!` unwound, `=>` it jumped to the next one, `~` open at the end, `?` exact
//! end unknown, `^` its entry is missing. An orphan exit is a line of its own, `<exit of f>`; lost
//! events are `<n lost>`.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use everycall_reader::TraceFile;
use everycall_timeline::{EndKind, GapKind, InstantKind, MarkKind, TimelineEvent, Trace};

use crate::trace::Names;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    depth: usize,
    text: String,
    is_call: bool,
    /// Lines that are inside it, in any depth.
    inside: usize,
}

/// The outline of a trace file. Threads come in the order in which they began. Functions for which
/// `is_hidden` are left out; what they called takes their place.
///
/// # Panics
/// Where the file can't be read.
#[must_use]
pub fn outline(path: &Path, is_hidden: impl Fn(&str) -> bool) -> Vec<String> {
    of_file(path, is_hidden, write_lines)
}

/// The calls of a trace as [`outline`] shows them, with a line for each call.
///
/// # Panics
/// Where the file can't be read.
#[must_use]
pub fn whole_outline(path: &Path, is_hidden: impl Fn(&str) -> bool) -> Vec<String> {
    of_file(path, is_hidden, |lines, out| {
        out.extend(lines.iter().map(|line| format!("{}{}", "  ".repeat(line.depth), line.text)));
    })
}

fn of_file(
    path: &Path,
    is_hidden: impl Fn(&str) -> bool,
    write_lines: impl Fn(&[Line], &mut Vec<String>),
) -> Vec<String> {
    let file = TraceFile::open(File::open(path).expect("the trace opens")).expect("the trace is one");
    let trace = Trace::open(file).expect("the trace is readable");
    let mut names = Names::of(&trace);
    let mut threads: Vec<_> = trace.threads().to_vec();
    threads.sort_by_key(|thread| (thread.start_ns, thread.tid));
    let mut result: Vec<String> = trace.warnings().iter().map(|warning| format!("<{warning}>")).collect();
    for (number, info) in threads.iter().enumerate() {
        if number > 0 {
            result.push("--".into());
        }
        let mut lines: Vec<Line> = Vec::new();
        // Of each open call, its line; none where it is hidden.
        let mut open: Vec<Option<usize>> = Vec::new();
        let mut depth = 0;
        for event in trace.thread_events(info.index) {
            let mut moment =
                |text: String, depth| lines.push(Line { depth, text, is_call: false, inside: 0 });
            match event {
                TimelineEvent::Begin(begin) => {
                    let name = names.of_location(begin.location);
                    if is_hidden(&name) {
                        open.push(None);
                        continue;
                    }
                    open.push(Some(lines.len()));
                    lines.push(Line { depth, text: name, is_call: true, inside: 0 });
                    depth += 1;
                }
                TimelineEvent::End(end) => {
                    let Some(line) = open.pop().expect("ends follow begins") else { continue };
                    depth -= 1;
                    let inside = lines.len() - line - 1;
                    let line = &mut lines[line];
                    line.inside = inside;
                    line.text.push_str(if end.start_cut { "^" } else { "" });
                    line.text.push_str(match end.how {
                        EndKind::Returned => "",
                        EndKind::Jumped => "=>",
                        EndKind::Unwound | EndKind::UnwoundLate => "!",
                        EndKind::TruncatedAtEnd => "~",
                        EndKind::ReturnedAfterGap
                        | EndKind::TruncatedAtLoss
                        | EndKind::TruncatedAtGap
                        | EndKind::ExitLost => "?",
                    });
                }
                TimelineEvent::Instant(instant) => {
                    let (InstantKind::OrphanExit(location) | InstantKind::InferredOrphanExit(location)) =
                        instant.kind;
                    moment(format!("<exit of {}>", names.of_location(location)), depth);
                }
                TimelineEvent::Returned(_) => {}
                TimelineEvent::Loss(loss) => {
                    moment(
                        format!("<{} lost>", loss.count.map_or("?".into(), |count| count.to_string())),
                        depth,
                    );
                }
                TimelineEvent::Untraced(_) | TimelineEvent::Unstamped(_) => {}
                TimelineEvent::Mark(mark) => {
                    let name = trace.mark_names().text(mark.name);
                    let what = match mark.kind {
                        MarkKind::Throw => "throw",
                        MarkKind::Catch => "catch",
                        MarkKind::Label
                        | MarkKind::Instant
                        | MarkKind::SpanBegin { .. }
                        | MarkKind::SpanEnd { .. }
                        | MarkKind::OrphanSpanEnd
                        | MarkKind::Counter
                        | MarkKind::CounterReal
                        | MarkKind::Log
                        | MarkKind::Output(_)
                        | MarkKind::Wake
                        | MarkKind::Step => continue,
                    };
                    let name = everycall_export::type_name(name).unwrap_or_default();
                    moment(format!("*{what} {name}").trim_end().to_owned(), depth);
                }
                // A stack that was suspended and is resumed: nothing is missing.
                TimelineEvent::Gap(gap) if gap.why == GapKind::Suspended => {}
                TimelineEvent::Gap(_) => moment("<gap>".into(), depth),
            }
        }
        assert!(open.is_empty(), "every begin has an end");
        write_lines(&lines, &mut result);
    }
    result
}

/// Lines with runs of the same drawn together.
fn write_lines(lines: &[Line], out: &mut Vec<String>) {
    let mut next = 0;
    // Levels that were drawn together, each with the first line behind them.
    let mut drawn: Vec<(usize, usize)> = Vec::new();
    while let Some(line) = lines.get(next) {
        drawn.retain(|(_, end)| next < *end);
        let depth = line.depth - drawn.iter().map(|(levels, _)| levels).sum::<usize>();
        let mut text = format!("{}{}", "  ".repeat(depth), line.text);
        if line.inside == 0 {
            let same = lines[next..].iter().take_while(|other| *other == line).count();
            if same > 1 {
                let _ = write!(text, " ×{same}");
            }
            next += same;
        } else {
            // Each but the last has the next one inside it, and nothing else.
            let same = |at: usize| {
                lines.get(at + 1).is_some_and(|inner| {
                    inner.is_call && inner.text == line.text && inner.inside + 1 == lines[at].inside
                })
            };
            let levels = (next..).take_while(|at| same(*at)).count();
            if levels > 0 {
                let _ = write!(text, " ↓{}", levels + 1);
                drawn.push((levels, next + line.inside + 1));
            }
            next += levels + 1;
        }
        out.push(text);
    }
}
