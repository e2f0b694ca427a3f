//! Counters that the recorder sampled of processes.

use std::fmt::{self, Write};

use everycall_units::{Count, Duration, Size};
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{LISTED, heading, more};

/// The processes' resource use, as far as the recorder sampled it.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    if report.sampled.is_empty() {
        return Ok(());
    }
    heading(out, "Counters of processes")?;
    let columns = ["RSS", "minor", "major", "voluntary", "involuntary", "CPU"];
    writeln!(
        out,
        "  {:>8}{:>11}{:>15}{:>8}{:>12}{:>12}{:>11}",
        "", "highest", "page faults", "", "switches", "", "time"
    )?;
    let [rss, minor, major, voluntary, involuntary, cpu] = columns;
    writeln!(out, "  {:>8}{rss:>11}{minor:>15}{major:>8}{voluntary:>12}{involuntary:>12}{cpu:>11}", "pid")?;
    for process in report.sampled.iter().take(LISTED) {
        let value = |name: &str| {
            let counter = process.counters.iter().find(|counter| counter.name.starts_with(name))?;
            let value = if name == "RSS" { counter.highest } else { counter.last };
            u64::try_from(value).ok()
        };
        let show = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let count = |name: &str| show(value(name).map(|count| Count(count).to_string()));
        let (pid, rss) = (process.pid, show(value("RSS").map(|size| Size(size).to_string())));
        let cpu = show(value("CPU time").map(|ns| Duration { ns }.to_string()));
        let [minor, major, voluntary, involuntary] =
            ["minor", "major", "voluntary", "involuntary"].map(count);
        writeln!(out, "  {pid:>8}{rss:>11}{minor:>15}{major:>8}{voluntary:>12}{involuntary:>12}{cpu:>11}")?;
    }
    more(out, report.sampled.len())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let of_process = report.sampled.iter().map(|sampled| {
        let counters = sampled.counters.iter().map(|counter| {
            json!({
                "name": counter.name,
                "last": counter.last,
                "highest": counter.highest,
                "changes": counter.samples,
            })
        });
        json!({
            "process": sampled.process,
            "pid": sampled.pid,
            "first_ns": sampled.reach.0,
            "last_ns": sampled.reach.1,
            "counters": counters.collect::<Vec<_>>(),
        })
    });
    of_process.collect()
}
