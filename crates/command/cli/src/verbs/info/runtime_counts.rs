//! Counts of things that the runtime could not do.

use std::fmt::{self, Write};

use everycall_analysis::{counters, runtime_counts};
use everycall_units::Count;
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::heading;

/// As text; nothing, if there is none.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let counts = runtime_counts(report.trace);
    let mut counted = counts.iter().enumerate().filter(|(_, count)| **count > 0).peekable();
    if counted.peek().is_none() {
        return Ok(());
    }
    heading(out, "Runtime counters")?;
    for (number, count) in counted {
        let meaning = counters::meaning(number).unwrap_or("unknown to this version");
        writeln!(out, "  {:>8}  {meaning}", Count(*count).to_string())?;
    }
    Ok(())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let counters = runtime_counts(report.trace);
    let counted = counters.iter().enumerate().filter(|(_, count)| **count > 0);
    let entry = |(number, count): (usize, &u64)| json!({ "number": number, "count": count, "meaning": counters::meaning(number) });
    counted.map(entry).collect()
}
