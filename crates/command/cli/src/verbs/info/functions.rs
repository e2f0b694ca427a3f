//! The functions with the most calls, and with the most time of their own.

use std::fmt::{self, Write};

use everycall_analysis::FunctionRow;
use everycall_export::NameLength;
use everycall_units::{Count, Duration};
use serde_json::{Value, json};

use super::layout::{WIDTH, heading};
use crate::output::clean;

/// The heading of calls that weren't recorded.
pub const COUNTED: &str = "Most calls (counted, not recorded)";

/// Rows of functions under a title, as text.
pub fn text(out: &mut String, title: &str, rows: &[FunctionRow], names: NameLength) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    heading(out, title)?;
    if title == COUNTED {
        writeln!(out, "  {:>12}  function", "calls")?;
        return rows.iter().try_for_each(|row| {
            let name = names.shown(&clean(&row.name), Some(WIDTH - 16));
            writeln!(out, "  {:>12}  {name}", Count(row.calls).to_string())
        });
    }
    writeln!(out, "  {:>12}{:>10}{:>10}  function", "calls", "own", "total")?;
    for row in rows {
        let name = names.shown(&clean(&row.name), Some(WIDTH - 36));
        writeln!(
            out,
            "  {:>12}{:>10}{:>10}  {name}",
            Count(row.calls).to_string(),
            Duration { ns: row.own_ns }.to_string(),
            Duration { ns: row.total_ns }.to_string(),
        )?;
    }
    Ok(())
}

/// A row, as JSON.
pub fn json(row: &FunctionRow) -> Value {
    json!({
        "name": row.name,
        "symbols": row.symbols,
        "module": row.module,
        "file": row.file,
        "line": row.line,
        "calls": row.calls,
        "own_ns": row.own_ns,
        "total_ns": row.total_ns,
    })
}
