//! Labels, instants, spans and counters that the program set.

use std::fmt::{self, Write};

use everycall_analysis::{is_of_budget, marks_by_count};
use everycall_timeline::NamedMarks;
use everycall_units::Count;
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{WIDTH, heading};
use crate::output::clean;

/// Largest number of names of labels, instants and spans that are listed.
pub const MARKS_LISTED: usize = 10;

/// As text; nothing, if there is none.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let lines = report.trace.log_lines().count();
    if lines > 0 {
        heading(out, "Log lines of the program")?;
        writeln!(out, "  {:>12}  lines, which replay shows", Count(lines).to_string())?;
    }
    let mut names = marks_by_count(report.trace);
    names.retain(|named| report.budget.is_none() || !is_of_budget(&named.name));
    names.retain(|named| !report.is_sampled(&named.name));
    if names.is_empty() {
        return Ok(());
    }
    heading(out, "Labels, instants, spans and counters of the program")?;
    writeln!(out, "  {:>12}{:>12}{:>12}{:>12}  name", "labels", "instants", "spans", "counters")?;
    for named in names.iter().take(MARKS_LISTED) {
        let name = report.names.shown(&clean(&named.name), Some(WIDTH - 52));
        let [labels, instants, spans, counters] =
            [named.labels, named.instants, named.spans, named.counters].map(|count| Count(count).to_string());
        writeln!(out, "  {labels:>12}{instants:>12}{spans:>12}{counters:>12}  {name}")?;
    }
    if names.len() > MARKS_LISTED {
        writeln!(out, "  ... and {} more", names.len() - MARKS_LISTED)?;
    }
    Ok(())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let mut names = marks_by_count(report.trace);
    names.retain(|named| report.budget.is_none() || !is_of_budget(&named.name));
    names.retain(|named| !report.is_sampled(&named.name));
    let sum =
        |count: fn(&NamedMarks) -> u64| names.iter().map(|named| count(named)).fold(0, u64::saturating_add);
    let listed = names.iter().take(MARKS_LISTED).map(|named| {
        json!({
            "name": named.name,
            "labels": named.labels,
            "instants": named.instants,
            "spans": named.spans,
            "counters": named.counters,
        })
    });
    json!({
        "names": names.len(),
        "labels": sum(|named| named.labels),
        "instants": sum(|named| named.instants),
        "spans": sum(|named| named.spans),
        "counters": sum(|named| named.counters),
        "log_lines": report.trace.log_lines().count(),
        "most": listed.collect::<Vec<_>>(),
    })
}
