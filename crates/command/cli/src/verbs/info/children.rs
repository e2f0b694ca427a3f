//! Children that were not recorded.

use std::fmt::{self, Write};

use everycall_format::arena::child_kind;
use everycall_units::Several;
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{LISTED, heading, more};
use crate::output::clean;

/// As text; nothing, if there is none.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let children = report.trace.children();
    if children.is_empty() {
        return Ok(());
    }
    heading(
        out,
        &format!("{}, not followed", Several(children.len() as u64, "child process", "child processes")),
    )?;
    for child in children.iter().take(LISTED) {
        let how = if child.kind == child_kind::EXEC { "exec" } else { "fork" };
        let name = String::from_utf8_lossy(&child.name);
        let name = clean(name.trim_end_matches('\0'));
        writeln!(out, "  {:>8}  {name:<24}  by {how} of {}", child.pid, child.parent)?;
    }
    more(out, children.len())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let children = report.trace.children().iter().map(|child| {
        json!({
            "pid": child.pid,
            "parent": child.parent,
            "by": if child.kind == child_kind::EXEC { "exec" } else { "fork" },
            "name": String::from_utf8_lossy(&child.name).trim_end_matches('\0'),
        })
    });
    children.collect()
}
