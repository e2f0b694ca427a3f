//! Where thread states came from, and what is missing.

use everycall_export::end_ns;
use everycall_reader::{Sched, SchedSource};
use everycall_timeline::States;
use everycall_units::{Count, Duration, Several};
use serde_json::{Value, json};

use super::facts::Report;
use crate::output::clean;

/// Where thread states came from, and what is missing.
pub fn text(report: &Report<'_>, sched: &Sched) -> String {
    let text = clean(&String::from_utf8_lossy(&sched.text));
    let source = match sched.source {
        SchedSource::None => return format!("not recorded: {text}"),
        SchedSource::Perf => "perf_event_open",
        SchedSource::Tracefs => "tracefs",
        SchedSource::PerfAndTracefs => "perf_event_open and tracefs",
        SchedSource::Schedstat => "samples of /proc/PID/task/TID/schedstat",
        SchedSource::Other(_) => "a source unknown to this version",
    };
    let switches = report.trace.states().map_or(0, States::switches);
    let lost = report.trace.states().map_or(0, States::lost);
    let mut states = format!("from {source}");
    if sched.source != SchedSource::Schedstat {
        states += &format!(": threads were put on a CPU {}", Several(switches, "time", "times"));
    }
    if sched.overwritten > 0 {
        states += &format!("; {} older events overwritten", Count(sched.overwritten));
    }
    if lost > 0 {
        states += &format!("; {} events lost, states of that time are unknown", Count(lost));
    }
    let wake_ups = report.trace.states().map_or(0, States::wake_ups_lost);
    if wake_ups > 0 {
        states += &format!("; {} wake-ups lost, threads count as blocked until they ran", Count(wake_ups));
    }
    let missing = report.trace.states().map_or(0, States::missing);
    if missing > 0 {
        let missing = Several(missing, "switch", "switches");
        states += &format!("; the kernel didn't tell {missing}, the states before are unknown");
    }
    let until = report.trace.states().and_then(States::until);
    let unknown = until.map_or(0, |until| end_ns(report.trace).saturating_sub(until));
    if unknown > 0 {
        let unknown = Duration { ns: unknown };
        states +=
            &format!("; the states of the last {unknown} are unknown, as the recorder hadn't read them");
    }
    if !text.is_empty() {
        states += &format!("; {text}");
    }
    states
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let Some(sched) = report.trace.sched() else { return Value::Null };
    let source = match sched.source {
        SchedSource::None => Value::Null,
        SchedSource::Perf => "perf".into(),
        SchedSource::Tracefs => "tracefs".into(),
        SchedSource::PerfAndTracefs => "perf+tracefs".into(),
        SchedSource::Schedstat => "schedstat".into(),
        SchedSource::Other(number) => number.into(),
    };
    json!({
        "source": source,
        "text": String::from_utf8_lossy(&sched.text),
        "switches": report.trace.states().map_or(0, States::switches),
        "wake_ups_lost": report.trace.states().map_or(0, States::wake_ups_lost),
        "events_lost": report.trace.states().map_or(0, States::lost),
        "switches_missing": report.trace.states().map_or(0, States::missing),
        "events_overwritten": sched.overwritten,
        "unknown_at_end_ns": report.trace.states().and_then(States::until).map(|until| {
            end_ns(report.trace).saturating_sub(until)
        }),
    })
}
