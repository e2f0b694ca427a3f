//! The contents of a trace as one JSON object.

use everycall_analysis::counters;
use everycall_export::end_ns;
use serde_json::json;

use super::facts::Report;
use super::{
    budget, children, clock, dropped, functions, marks, modules, processes, recording, runtime_counts,
    sampled, stacks, states, threads, triggers,
};

/// The object, with a newline at the end.
pub fn json(report: &Report<'_>) -> String {
    let trace = report.trace;
    let meta = trace.meta();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = json!({
        "file": report.path.to_string_lossy(),
        "command": meta.arguments.iter().map(|word| text(word)).collect::<Vec<_>>(),
        "working_folder": text(&meta.working_folder),
        "host": text(&meta.host),
        "kernel": text(&meta.kernel),
        "cpu": text(&meta.cpu),
        "cpu_count": meta.cpu_count,
        "everycall_version": text(&meta.tool_version),
        "machines": recording::machines(report),
        "imported": recording::imported(report),
        "started_realtime_ns": trace.clock().origin_realtime_ns(),
        "duration_ns": end_ns(trace),
        "complete": meta.imported_from.is_empty().then(|| counters::doubts(trace).is_empty()),
        "ended": recording::ended(report),
        "clock": clock::json(report),
        "hooks": clock::hooks(report),
        "calls": report.profile.calls,
        "all_calls": Some(report.all_calls()).filter(|all| *all > 0),
        "functions": report.profile.function_count(),
        "unwound_calls": report.profile.unwound,
        "orphan_exits": report.profile.notes.orphan_exits,
        "calls_too_deep": report.profile.notes.too_deep,
        "marks": marks::json(report),
        "session": recording::session(report),
        "processes": processes::json(report),
        "threads": threads::json(report),
        "modules": modules::json(report),
        "has_sources": report.file.has_sources(),
        "children": children::json(report),
        "triggers": triggers::json(report),
        "kept_calls": triggers::kept_calls(report),
        "dropped_calls": dropped::json(report),
        "states": states::json(report),
        "samples": stacks::json(report),
        "counters": sampled::json(report),
        "budget": budget::json(report),
        "runtime_counts": runtime_counts::json(report),
        "most_calls": report.by_calls.iter().map(functions::json).collect::<Vec<_>>(),
        "most_own_time": report.by_own_time.iter().map(functions::json).collect::<Vec<_>>(),
        "warnings": report.warnings,
    });
    let mut value = value;
    if let Some(times) = clock::times(report) {
        value["times"] = times;
    }
    format!("{value:#}\n")
}
