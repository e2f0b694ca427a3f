//! Processes of the recorded tree.

use std::fmt::{self, Write};

use everycall_export::process_name;
use everycall_reader::{Ending, Origin};
use everycall_units::{Duration, Several};
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{LISTED, WIDTH, heading, more};
use super::recording::quoted;
use crate::output::clean;

/// Largest number of generations of processes that are indented.
const GENERATIONS_INDENTED: usize = 8;

/// As text; nothing, if there is none.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let trace = report.trace;
    let processes = trace.processes();
    if processes.len() < 2 {
        return Ok(());
    }
    heading(out, &Several(processes.len() as u64, "process", "processes").to_string())?;
    writeln!(out, "  {:>8}  {:>10}{:>10}  {:<8} command", "pid", "begin", "took", "end")?;
    for relative in trace.process_tree().iter().take(LISTED) {
        let process = &processes[relative.process];
        let ns = |ticks: Option<u64>| ticks.map(|ticks| trace.clock().ns(ticks));
        let (start, end) = (ns(process.start_ticks), ns(process.end_ticks));
        let took = start.zip(end).map(|(start, end)| end.saturating_sub(start));
        let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| Duration { ns }.to_string());
        let words: Vec<String> =
            process.command.iter().map(|word| quoted(&clean(&String::from_utf8_lossy(word)))).collect();
        let command = match (&words[..], process.origin) {
            ([], _) => clean(&process_name(trace, process)),
            (_, Origin::Fork) => format!("{} (fork)", clean(&process_name(trace, process))),
            _ => words.join(" "),
        };
        let mut line = format!(
            "  {:>8}  {:>10}{:>10}  {:<8} {:indent$}{command}",
            process.pid,
            time(start),
            time(took),
            match process.ending {
                Ending::Ended => "ended",
                Ending::Exec => "exec",
                Ending::Running => "running",
                Ending::Other(_) => "unknown",
            },
            "",
            indent = 2 * relative.generation.min(GENERATIONS_INDENTED),
        );
        if line.chars().count() > WIDTH {
            line = line.chars().take(WIDTH - 3).chain("...".chars()).collect();
        }
        writeln!(out, "{line}")?;
    }
    more(out, processes.len())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let clock = report.trace.clock();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let processes = report.trace.processes().iter().enumerate().map(|(index, process)| {
        json!({
            "index": index,
            "pid": process.pid,
            "parent_pid": process.parent_pid,
            "parent": process.parent,
            "origin": match process.origin {
                Origin::Start => "start",
                Origin::Fork => "fork",
                Origin::Exec => "exec",
                Origin::Other(_) => "unknown",
            },
            "name": process_name(report.trace, process),
            "command": process.command.iter().map(|word| text(word)).collect::<Vec<_>>(),
            "start_ns": process.start_ticks.map(|ticks| clock.ns(ticks)),
            "end_ns": process.end_ticks.map(|ticks| clock.ns(ticks)),
            "ending": match process.ending {
                Ending::Ended => "ended",
                Ending::Exec => "exec",
                Ending::Running => "running",
                Ending::Other(_) => "unknown",
            },
        })
    });
    processes.collect()
}
