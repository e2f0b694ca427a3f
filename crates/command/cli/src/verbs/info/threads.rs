//! Threads, and what was lost of each.

use std::fmt::{self, Write};

use everycall_analysis::{lost_events, ring_that_keeps_all};
use everycall_export::{end_ns, process_name};
use everycall_format::ect::LOG_FILE_TID;
use everycall_units::{Count, Duration, Several, Size};
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{LISTED, heading, more, paragraph};
use crate::output::clean;

/// Largest number of renames that are listed of a thread.
const RENAMES_LISTED: usize = 4;

/// As text.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let threads: Vec<_> = report
        .trace
        .threads()
        .iter()
        .filter(|thread| !thread.is_sampled && thread.tid < LOG_FILE_TID)
        .collect();
    heading(out, &Several(threads.len() as u64, "thread", "threads").to_string())?;
    if threads.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {:>8}  {:<16}{:>15}{:>12}{:>10}  beginning", "tid", "name", "events", "reach", "lost")?;
    let is_imported = !report.trace.meta().imported_from.is_empty();
    let end = end_ns(report.trace);
    let mut process = None;
    for thread in threads.iter().take(LISTED) {
        if report.trace.processes().len() > 1 && process.replace(thread.process) != Some(thread.process) {
            let name = report.trace.processes().get(thread.process);
            let name = name.map(|process| clean(&process_name(report.trace, process))).unwrap_or_default();
            writeln!(out, "  process {} {name}", thread.pid)?;
        }
        writeln!(
            out,
            "  {:>8}  {:<16}{:>15}{:>12}{:>10}  {}",
            thread.id(),
            clean(&thread.name),
            Count(thread.events).to_string(),
            thread
                .reach
                .map_or("-".to_owned(), |(first, _)| Duration { ns: end - first.min(end) }.to_string()),
            Count(lost_events(thread)).to_string(),
            match (thread.is_cut, is_imported) {
                (true, true) => "may be missing",
                (true, false) => "overwritten",
                (false, _) => "kept",
            },
        )?;
        // The newest ones, which are those that the name in the row doesn't say.
        let skipped = thread.renames.len().saturating_sub(RENAMES_LISTED);
        for rename in thread.renames.iter().skip(skipped).filter(|rename| !rename.before.is_empty()) {
            writeln!(out, "{:10}{} until {}", "", clean(&rename.before), Duration { ns: rename.at })?;
        }
    }
    more(out, threads.len())?;
    let ring_sizes = report.trace.snapshots().iter().map(|snapshot| snapshot.ring_size);
    if !is_imported
        && threads.iter().any(|thread| thread.is_cut)
        && let Some(ring_size) = ring_sizes.max()
    {
        let larger = match ring_that_keeps_all(report.trace) {
            Some(size) => format!("`record --ring-size {size}` would have kept all"),
            None => "`record --stream` keeps all".to_owned(),
        };
        let note =
            format!("Rings held {} a thread; {larger}. Reach counts back from the end.", Size(ring_size));
        paragraph(out, &note)?;
    }
    Ok(())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let ring_size =
        |snapshot: usize| report.trace.snapshots().get(snapshot).map(|snapshot| snapshot.ring_size);
    let thunk_exits = &report.profile.notes.thunk_exits;
    let threads = report.trace.threads().iter().zip(thunk_exits);
    let threads = threads.filter(|(thread, _)| !thread.is_sampled && thread.tid < LOG_FILE_TID).map(
        |(thread, thunk_exits)| {
            json!({
                "process": thread.process,
                "pid": thread.pid,
                "tid": thread.id(),
                "fiber": thread.fiber.filter(|_| thread.task().is_none()),
                "task": thread.task(),
                "last_tid": thread.tid,
                "name": thread.name,
                "renames": thread.renames.iter().map(|rename| json!({
                    "at_ns": rename.at,
                    "before": rename.before,
                    "name": rename.name,
                })).collect::<Vec<_>>(),
                "events": thread.events,
                "first_ns": thread.reach.map(|(first, _)| first),
                "last_ns": thread.reach.map(|(_, last)| last),
                "lost_events": lost_events(thread),
                "dropped_busy": thread.lost_busy,
                "dropped_short": thread.dropped_within,
                "gaps": thread.gaps,
                "gaps_ns": thread.gaps_ns,
                "suspended": thread.suspended,
                "suspended_ns": thread.suspended_ns,
                "beginning_overwritten": thread.is_cut,
                "segments_overwritten": thread.segments_overwritten,
                "segments_lost": thread.segments_lost,
                "segments_lost_events": thread.missing,
                "open_calls": thread.open_calls,
                "unwound": thread.unwound,
                // The runtime counts exits of thunks as orphan exits.
                "orphan_exits": thread.orphan_exits.saturating_sub(*thunk_exits),
                "deep_events": thread.deep,
                "ring_size": ring_size(thread.key.snapshot),
            })
        },
    );
    threads.collect()
}
