//! The contents of a trace as text.

use std::fmt;

use everycall_units::Several;

use super::facts::Report;
use super::layout::{LISTED, heading, more, paragraph};
use super::{
    budget, children, clock, dropped, functions, marks, modules, processes, recording, runtime_counts,
    sampled, threads, triggers,
};
use crate::output::clean;

/// The page.
pub fn page(report: &Report<'_>) -> String {
    let mut page = String::new();
    // Writing to a string doesn't fail.
    let _ = write_page(&mut page, report);
    page
}

fn write_page(out: &mut String, report: &Report<'_>) -> fmt::Result {
    recording::text(out, report)?;
    processes::text(out, report)?;
    threads::text(out, report)?;
    modules::text(out, report)?;
    children::text(out, report)?;
    sampled::text(out, report)?;
    runtime_counts::text(out, report)?;
    triggers::text(out, report)?;
    dropped::text(out, report)?;
    budget::text(out, report)?;
    clock::widest_text(out, report)?;
    marks::text(out, report)?;
    let title = if report.trace.counts().is_empty() { "Most calls" } else { functions::COUNTED };
    functions::text(out, title, &report.by_calls, report.names)?;
    functions::text(out, "Most own time", &report.by_own_time, report.names)?;
    warnings(out, report)
}

fn warnings(out: &mut String, report: &Report<'_>) -> fmt::Result {
    if report.warnings.is_empty() {
        return Ok(());
    }
    heading(out, &Several(report.warnings.len() as u64, "warning", "warnings").to_string())?;
    report.warnings.iter().take(LISTED).try_for_each(|warning| paragraph(out, &clean(warning)))?;
    more(out, report.warnings.len())
}
