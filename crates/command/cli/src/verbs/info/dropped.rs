//! Short calls that were not recorded.

use std::fmt::{self, Write};

use everycall_units::{Count, Duration, Several};
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{heading, paragraph};

/// Largest number of functions whose dropped calls are listed.
const DROPPED_LISTED: usize = 10;

/// Short calls that were dropped, and the functions with the most of them.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let Some(dropped) = &report.dropped else { return Ok(()) };
    heading(out, "Dropped calls")?;
    let mut line = if dropped.highest_ns == 0 {
        format!(
            "{} in the time that this file covers; the functions are in the recording's last file.",
            Several(dropped.within, "short call", "short calls")
        )
    } else {
        format!(
            "{} shorter than {} that called nothing recorded, in {}; {} of them in the time that this trace covers.",
            Several(dropped.calls, "call", "calls"),
            Duration { ns: dropped.highest_ns },
            Several(dropped.functions.len() as u64, "function", "functions"),
            Count(dropped.within),
        )
    };
    if dropped.threshold_ns != dropped.highest_ns {
        let now = Duration { ns: dropped.threshold_ns };
        match dropped.threshold_ns {
            0 => line += " At the end, every call was recorded.",
            _ => write!(line, " At the end, those shorter than {now} were.")?,
        }
    }
    if dropped.is_full {
        line += " There was no room to count more functions; the short calls of the others were recorded.";
    }
    paragraph(out, &line)?;
    if dropped.functions.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {:>15}  function", "dropped")?;
    for function in dropped.functions.iter().take(DROPPED_LISTED) {
        writeln!(out, "  {:>15}  {}", Count(function.calls).to_string(), function.name)?;
    }
    let more = dropped.functions.len().saturating_sub(DROPPED_LISTED);
    if more > 0 {
        let rest: u64 = dropped.functions.iter().skip(DROPPED_LISTED).map(|function| function.calls).sum();
        writeln!(out, "  {:>15}  in {}", Count(rest).to_string(), Several(more as u64, "more", "more"))?;
    }
    Ok(())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let Some(dropped) = &report.dropped else { return Value::Null };
    let functions =
        dropped.functions.iter().map(|function| json!({ "name": function.name, "calls": function.calls }));
    json!({
        "min_duration_ns": dropped.threshold_ns,
        "highest_min_duration_ns": dropped.highest_ns,
        "calls": dropped.calls,
        "calls_in_covered_time": dropped.within,
        "no_room_for_functions": dropped.is_full,
        "functions": functions.collect::<Vec<_>>(),
    })
}
