//! Functions that were off to keep the budget.

use std::fmt::{self, Write};

use everycall_units::{Count, Duration, Several};
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{heading, paragraph};

/// Largest number of functions that are listed because they were off for the budget.
const COSTLY_LISTED: usize = 20;

/// Lists the functions that were off to keep the budget, and when.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let Some(budget) = &report.budget else { return Ok(()) };
    heading(out, "Budget")?;
    let percent = |millionths: u64| format!("{:.2}", millionths as f64 / 10_000.0);
    let mut line = format!(
        "{} % of the program's CPU time; an event was measured as {:.1} ns.",
        percent(budget.millionths),
        budget.event_ps as f64 / 1000.0
    );
    let off = budget.functions.iter().filter(|function| !function.off.is_empty()).count() as u64;
    match off {
        0 => line += " No function had to go off.",
        _ => write!(
            line,
            " Tracing everything would have cost up to {} %: calls of {} are missing while they were off, {} at the end.",
            percent(budget.highest),
            Several(off, "function", "functions"),
            budget.functions.iter().filter(|function| function.is_off).count(),
        )?,
    }
    if budget.out_of_reach > 0 {
        write!(
            line,
            " It could not be kept: tracing cost up to {} % when nothing was left that could go off.",
            percent(budget.out_of_reach)
        )?;
    }
    paragraph(out, &line)?;
    if budget.functions.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {:>12} {:>12} {:>6} {:>14}  function", "off since", "off for", "times", "calls/s")?;
    for function in budget.functions.iter().take(COSTLY_LISTED) {
        let since = function.off.first().map_or(0, |(from, _)| *from);
        let stuck = if function.is_stuck { " (can't go off)" } else { "" };
        writeln!(
            out,
            "  {:>12} {:>12} {:>6} {:>14}  {}{stuck}",
            Duration { ns: since }.to_string(),
            Duration { ns: function.off_ns() }.to_string(),
            function.off.len(),
            Count(function.calls_per_second).to_string(),
            function.name,
        )?;
    }
    let more = budget.functions.len().saturating_sub(COSTLY_LISTED);
    if more > 0 {
        writeln!(out, "  and {more} more: everycall info -f json")?;
    }
    Ok(())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let Some(budget) = &report.budget else { return Value::Null };
    let functions = budget.functions.iter().map(|function| {
        json!({
            "process": function.process,
            "name": function.name,
            "off_ns": function.off.iter().map(|(from, to)| json!([from, to])).collect::<Vec<_>>(),
            "off_at_end": function.is_off,
            "calls_per_cpu_second": function.calls_per_second,
            "cannot_go_off": function.is_stuck,
        })
    });
    json!({
        "millionths": budget.millionths,
        "event_ps": budget.event_ps,
        "highest_cost_millionths": budget.highest,
        "out_of_reach_millionths": budget.out_of_reach,
        "functions": functions.collect::<Vec<_>>(),
    })
}
