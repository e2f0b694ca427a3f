//! Texts that several outputs share.

use std::borrow::Cow;

use everycall_timeline::{EndKind, GapKind, LossKind, Mark, MarkKind, MarkName, SpanEndKind};

use crate::filtered::{Point, PointKind, Tail};
use crate::names::{Details, Functions, Inlined};
use crate::shorten::shortened_name;
use crate::source::Source;
use crate::thrown;
use everycall_units::Count;
use everycall_values::text as value_text;

/// When a span began, whether its beginning is truncated, and how it ended.
type SpanFacts = (u64, bool, SpanEndKind);

/// The kind of a mark in tables, and what its end says of a span. `None` for the beginning of a
/// span, which its end includes.
pub(crate) fn mark_kind(mark: &Mark) -> Option<(&'static str, Option<SpanFacts>)> {
    Some(match mark.kind {
        MarkKind::Label => ("label", None),
        MarkKind::Instant => ("instant", None),
        MarkKind::Wake => ("wake", None),
        MarkKind::Step => ("step", None),
        MarkKind::Throw => ("throw", None),
        MarkKind::Catch => ("catch", None),
        MarkKind::Counter | MarkKind::CounterReal => ("counter", None),
        MarkKind::Log => ("log", None),
        MarkKind::Output(stream) => (stream.name(), None),
        MarkKind::OrphanSpanEnd => ("orphan span end", None),
        MarkKind::SpanEnd { start_ns, start_cut, how, .. } => ("span", Some((start_ns, start_cut, how))),
        MarkKind::SpanBegin { .. } => return None,
    })
}

/// The title of a mark in viewers.
pub(crate) fn mark_title<'t>(source: &'t impl Source, mark: &Mark) -> Cow<'t, str> {
    let what = match mark.kind {
        MarkKind::Throw => "throw",
        MarkKind::Catch => "catch",
        MarkKind::Log | MarkKind::Output(_) => return source.log_line(mark.name).into(),
        _ => return mark_name(source, mark.name).into(),
    };
    match type_name(source.mark_name(mark.name)) {
        Some(name) => format!("{what} {name}").into(),
        None => what.into(),
    }
}

/// The value of a mark, as text.
pub(crate) fn mark_value(mark: &Mark) -> Option<String> {
    let value = mark.value?;
    if let Some((task, step)) = mark.task_step() {
        return Some(format!("task {task}, step {step}"));
    }
    Some(match mark.kind {
        MarkKind::Counter => value.cast_signed().to_string(),
        MarkKind::CounterReal => format!("{:?}", f64::from_bits(value)),
        _ => value.to_string(),
    })
}

/// The number of the arrow from what wakes a task to its step, if a mark is one of its ends.
pub(crate) fn arrow_of(mark: &Mark, pid: u32) -> Option<u64> {
    let (task, step) = mark.task_step()?;
    // Far from the chains of tail calls, which are numbered from 0; the multiplication is a
    // bijection.
    let numbers = (u64::from(task) << 32 | u64::from(step)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Some((numbers ^ u64::from(pid).wrapping_mul(0xd1b5_4a32_d192_ed03)) | 1 << 63)
}

/// The source form of a C++ ABI type name; the name itself if it can't be demangled, for example
/// because it was truncated. `None` if there is no name.
#[must_use]
pub fn type_name(mangled: &str) -> Option<String> {
    let (of_type, text) = thrown::parts(mangled)?;
    Some(match text {
        None => of_type,
        Some((text, is_cut)) => {
            let dots = if is_cut { "..." } else { "" };
            format!("{of_type}: {}{dots}", value_text::quoted_text(text.as_bytes()))
        }
    })
}

/// Name of slices that stand for calls nested too deeply.
pub(crate) const DEEPER: &str = "... deeper calls not shown";

/// A point in a few words (`1,234 events lost`), and its reason or function.
pub(crate) fn point<'a>(point: &Point, functions: &'a Functions<'_>) -> (String, &'a str) {
    match point.kind {
        PointKind::Lost(why) => {
            let what = match point.count {
                None => "events lost".to_owned(),
                Some(1) => "1 event lost".to_owned(),
                Some(count) => format!("{} events lost", Count(count)),
            };
            (what, reason(why))
        }
        PointKind::OrphanExit(function) => {
            let what = match point.count {
                Some(1) => "orphan exit".to_owned(),
                count => format!("{} orphan exits", Count(count.unwrap_or(0))),
            };
            (what, &functions.get(function).name)
        }
        PointKind::LeftOut => {
            let count = Count(point.count.unwrap_or(0));
            let why = "too many came before it was known whether the calls around them are shown";
            (format!("{count} labels, spans or gaps left out"), why)
        }
        PointKind::Dropped => {
            let what = match point.count {
                Some(1) => "1 short call dropped".to_owned(),
                count => format!("{} short calls dropped", Count(count.unwrap_or(0))),
            };
            (what, "shorter than --min-duration of record; so many in all of this thread")
        }
    }
}

/// The displayed name of a mark.
pub(crate) fn mark_name(source: &impl Source, name: MarkName) -> &str {
    match source.mark_name(name) {
        "" => "(no name)",
        name => name,
    }
}

/// The key of the argument that names the function which jumped to a call.
pub(crate) fn tail_key(tail: Tail) -> &'static str {
    if tail.is_sure { "tail_call_of" } else { "possible_tail_call_of" }
}

/// Width of a name among details, in columns.
const DETAIL_WIDTH: usize = 60;

/// The arguments with further facts about a function, as key and text.
pub(crate) fn details(details: &Details) -> Vec<(&'static str, String)> {
    let mut arguments = Vec::new();
    if let Some(full_name) = &details.full_name {
        arguments.push(("full_name", full_name.clone()));
    }
    if let Some(symbol) = &details.symbol {
        arguments.push(("symbol", symbol.clone()));
    }
    if !details.same_code_as.is_empty() {
        arguments.push(("same_code_as", details.same_code_as.join("; ")));
    }
    if !details.inlined.is_empty() {
        arguments.push(("inlined_not_timed", inlined_calls(&details.inlined, details.more_inlined)));
    }
    arguments
}

/// `f(int) at a.cpp:3 { g() at b.h:7 }; h() at a.cpp:4`.
fn inlined_calls(calls: &[Inlined], more: u64) -> String {
    let mut text = String::new();
    let mut level = 0;
    for (index, call) in calls.iter().enumerate() {
        if index > 0 {
            match call.level.checked_sub(level) {
                Some(0) => text.push_str("; "),
                Some(_) => text.push_str(" { "),
                None => {
                    (call.level..level).for_each(|_| text.push_str(" }"));
                    text.push_str("; ");
                }
            }
        }
        level = call.level;
        text.push_str(&shortened_name(&call.name, DETAIL_WIDTH));
        if let Some(place) = &call.place {
            text.push_str(" at ");
            text.push_str(place);
        }
    }
    (0..level).for_each(|_| text.push_str(" }"));
    if more > 0 {
        text.push_str(&format!("; and {} more", Count(more)));
    }
    text
}

/// The remark for a call that ended by jumping into another function.
pub(crate) const JUMPED: &str = "ends in a tail call";

/// The remark for a call of uncertain caller.
pub(crate) const CALLER_UNSURE: &str = "caller uncertain";

/// Name of slices that stand for times in which nothing was recorded.
pub(crate) fn gap_name(why: GapKind) -> &'static str {
    match why {
        GapKind::Suspended => "suspended",
        GapKind::Overwritten => "overwritten",
        GapKind::Thread | GapKind::Disabled | GapKind::Other(_) => "not recorded",
    }
}

/// The remark for the end of a span that had not begun.
pub(crate) const ORPHAN_SPAN_END: &str = "ends without having begun";

/// Why nothing was recorded.
pub(crate) fn gap_reason(why: GapKind) -> &'static str {
    match why {
        GapKind::Thread => "the program left this thread out",
        GapKind::Disabled => "tracing was disabled",
        GapKind::Suspended => "no thread ran this stack",
        GapKind::Overwritten => {
            "newer events took this time's place; a larger --ring-size or --stream keeps it"
        }
        GapKind::Other(_) => "unknown to this version",
    }
}

/// The argument's key for a slice without measured duration.
pub(crate) const NOT_MEASURED: &str = "not_measured";
/// The argument's text for untraced code after a tail call.
pub(crate) const UNTRACED: &str =
    "a tail call into code that isn't traced, until the thread's next event: it took at most this long";

/// The arguments' keys for what a duration is at least and at most, where it isn't known exactly.
pub(crate) const DUR_LOW: &str = "dur_low_ns";
/// See above.
pub(crate) const DUR_HIGH: &str = "dur_high_ns";

/// The argument's key for the thread that resumed a suspended stack.
pub(crate) const RESUMED_BY: &str = "resumed_by";

/// How a span's recording differs from the complete span, one phrase each.
pub(crate) fn span_remarks(start_cut: bool, how: SpanEndKind) -> impl Iterator<Item = &'static str> {
    let end = match how {
        SpanEndKind::Ended => None,
        SpanEndKind::TruncatedAtEnd => Some("truncated at end"),
        SpanEndKind::TruncatedAtLoss => Some("truncated at a loss"),
    };
    start_cut.then_some("truncated at start").into_iter().chain(end)
}

/// The key for the second part of [`point`].
pub(crate) fn detail_key(point: &Point) -> &'static str {
    match point.kind {
        PointKind::Lost(_) | PointKind::LeftOut | PointKind::Dropped => "why",
        PointKind::OrphanExit(_) => "function",
    }
}

fn reason(why: LossKind) -> &'static str {
    match why {
        LossKind::Hole => "a hook was interrupted before it wrote its event",
        LossKind::Busy => "the tracer was busy in this thread",
        LossKind::Segments => "a part of the ring is missing or damaged",
        LossKind::Other(_) => "unknown to this version",
    }
}

/// How a call's recording differs from the complete call, one phrase each.
pub(crate) fn remarks(
    start_cut: bool,
    caller_unsure: bool,
    how: EndKind,
) -> impl Iterator<Item = &'static str> {
    let end: &[&str] = match how {
        EndKind::Returned => &[],
        EndKind::Jumped => &[JUMPED],
        EndKind::ReturnedAfterGap => &["partly not recorded"],
        EndKind::Unwound => &["unwound"],
        EndKind::UnwoundLate => &["unwound", "exact time unknown"],
        EndKind::TruncatedAtEnd => &["truncated at end"],
        EndKind::TruncatedAtLoss => &["truncated at a loss"],
        EndKind::TruncatedAtGap => &["truncated at a gap"],
        EndKind::ExitLost => &["exit lost"],
    };
    let unsure = caller_unsure.then_some(CALLER_UNSURE);
    start_cut.then_some("truncated at start").into_iter().chain(unsure).chain(end.iter().copied())
}
