//! Triggers, and the calls that they kept.

use std::fmt::{self, Write};

use everycall_analysis::{KeptCall, KeptTail};
use everycall_units::{Count, Duration, Several};
use serde_json::{Value, json};

use super::facts::{Report, kept_function};
use super::layout::{WIDTH, heading, paragraph};
use crate::arguments::Clock;
use crate::output::clean;
use crate::recording::written::{is_of_no_function, named_late, not_armed, perhaps_shorter};

/// Largest number of kept calls that are listed.
const KEPT_LISTED: usize = 100;

/// As text; nothing, if there is none.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let triggers = report.trace.triggers();
    if triggers.is_empty() && report.kept.is_empty() {
        return Ok(());
    }
    heading(out, "Triggers")?;
    for trigger in triggers {
        let not_kept = trigger.fired.saturating_sub(trigger.kept).saturating_sub(trigger.missed);
        let text = String::from_utf8_lossy(&trigger.text);
        let fired = if is_of_no_function(&text) {
            Several(trigger.fired, "time", "times").to_string()
        } else {
            let functions = Several(trigger.functions, "function", "functions");
            format!("{} in {functions}", Several(trigger.fired, "call", "calls"))
        };
        let mut line = format!("{}: {fired}, {} kept", clean(&text), Count(trigger.kept));
        if not_kept > 0 {
            write!(line, ", {} left out by --keep, --keep-size or --keep-every", Count(not_kept))?;
        }
        if trigger.missed > 0 {
            write!(line, ", {} that could not be kept", Count(trigger.missed))?;
        }
        line += &perhaps_shorter(trigger.perhaps, &clean(&text));
        line += &named_late(trigger.late);
        line += &not_armed(trigger.not_armed);
        paragraph(out, &line)?;
    }
    if report.kept.is_empty() {
        return Ok(());
    }
    heading(out, &Several(report.kept.len() as u64, "kept call", "kept calls").to_string())?;
    // Calendar times and ticks are longer.
    let at = match report.clock {
        Clock::Trace => 12,
        Clock::Raw => 22,
        Clock::Wall => 37,
    };
    writeln!(out, "  {:>4}{:>at$}{:>12}{:>12}  {:>8}  function", "", "at", "took", "threshold", "tid")?;
    for kept in report.kept.iter().take(KEPT_LISTED) {
        let time = |ns: u64| Duration { ns }.to_string();
        writeln!(
            out,
            "  {:>4}{:>at$}{:>12}{:>12}  {:>8}  {}",
            kept.number,
            moment(report, kept.start_ns),
            time(kept.took_ns),
            time(kept.threshold_ns),
            kept.tid,
            report.names.shown(&clean(kept_function(kept)), Some(WIDTH - 56))
        )?;
        let mut notes = Vec::new();
        if kept.is_entry {
            notes.push("kept at its entry".to_owned());
        }
        if kept.is_throw {
            notes.push("kept when an exception was thrown in it".to_owned());
        }
        if kept.is_unwound {
            notes.push("unwound by an exception or a jump".to_owned());
        }
        notes.extend(kept.tail.as_ref().map(|tail| tail_note(kept, tail)));
        if let Some(least) = kept.at_least_ns {
            let doubt = if least <= kept.threshold_ns { ", perhaps less than the threshold" } else { "" };
            notes.push(format!("at most; at least {}{doubt}", Duration { ns: least }));
        }
        if kept.missing > 0 {
            notes.push(format!(
                "{} since its entry were overwritten",
                Several(kept.missing, "event", "events")
            ));
        }
        if !notes.is_empty() {
            writeln!(out, "        {}", notes.join("; "))?;
        }
    }
    if report.kept.len() > KEPT_LISTED {
        writeln!(out, "  ... and {} more", report.kept.len() - KEPT_LISTED)?;
    }
    paragraph(
        out,
        "`everycall view` shows them on the timeline; `everycall replay --kept NUMBER` prints one, from its \
        beginning on.",
    )
}

/// The effect of a kept call's tail call on its time.
fn tail_note(kept: &KeptCall, tail: &KeptTail) -> String {
    let target = tail.target.as_deref().map(clean);
    let untraced =
        target.as_ref().map_or_else(|| "what it jumped to".to_owned(), |name| format!("{name} (not traced)"));
    let target = target.unwrap_or_else(|| "an address that isn't known".to_owned());
    let behind = Duration { ns: tail.behind_ns };
    if tail.is_perhaps_short {
        let end = if tail.has_next { "" } else { "; nothing came after it" };
        let before = Duration { ns: kept.took_ns.saturating_sub(tail.behind_ns) };
        return format!(
            "at least {before}, at most with {behind} of {untraced} and what its caller did next{end}"
        );
    }
    if tail.is_at_most {
        let end = if tail.has_next { "" } else { "; nothing came after it" };
        return format!("at most, of which {untraced} at most {behind}{end}");
    }
    match tail.goes_on {
        true => format!("until its tail call of {target}, which goes on"),
        false => format!("with its tail call, {behind}"),
    }
}

/// The triggers, as JSON.
pub fn json(report: &Report<'_>) -> Value {
    let triggers = report.trace.triggers().iter().map(|trigger| {
        json!({
            "trigger": String::from_utf8_lossy(&trigger.text),
            "functions": trigger.functions,
            "functions_named_late": trigger.late,
            "functions_not_armed": trigger.not_armed,
            "calls": trigger.fired,
            "calls_perhaps_shorter": trigger.perhaps,
            "kept": trigger.kept,
            "missed": trigger.missed,
        })
    });
    triggers.collect()
}

/// The kept calls, as JSON.
pub fn kept_calls(report: &Report<'_>) -> Value {
    let kept = report.kept.iter().map(|kept| {
        let mut object = json!({
            "number": kept.number,
            "trigger": kept.trigger,
            "pid": kept.pid,
            "tid": kept.tid,
            "thread": kept.thread,
            "function": kept_function(kept),
            "start_ns": kept.start_ns,
            "start_realtime_ns": report.trace.clock().wall().map(|wall| wall.realtime_ns(kept.start_ns)),
            "took_ns": kept.took_ns,
            "threshold_ns": kept.threshold_ns,
            "entered": kept.is_entry,
            "threw": kept.is_throw,
            "unwound": kept.is_unwound,
            "tail": kept.tail.as_ref().map(|tail| json!({
                "at_most": tail.is_at_most,
                "goes_on": tail.goes_on,
                "perhaps_shorter": tail.is_perhaps_short,
                "behind_ns": tail.behind_ns,
                "target": tail.target,
                "ended": tail.has_next && !tail.goes_on,
            })),
            "missing_events": kept.missing,
        });
        if let Some(least) = kept.at_least_ns {
            object["took_at_least_ns"] = least.into();
        }
        object
    });
    kept.collect()
}

/// A moment, in a column.
fn moment(report: &Report<'_>, ns: u64) -> String {
    let clock = report.trace.clock();
    match (report.clock, clock.wall()) {
        (Clock::Wall, Some(wall)) => report.calendar.stamp(wall.realtime_ns(ns)),
        (Clock::Raw, _) => clock.ticks(ns).to_string(),
        _ => Duration { ns }.to_string(),
    }
}
