//! The recording as a whole: the program, how it ended, the machine, the calls.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use everycall_analysis::counters;
use everycall_export::{end_ns, wall_accuracy};
use everycall_format::arch::Machine;
use everycall_format::ect::end;
use everycall_reader::{Ending, FunctionSet, Reason, Session, Warning};
use everycall_timeline::Trace;
use everycall_units::{Count, Duration, Several};
use serde_json::{Value, json};

use super::facts::Report;
use super::layout::{field, utc};
use super::{clock, stacks, states};
use crate::arguments::Clock;
use crate::output::{clean, signal_name};

/// As text.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let meta = report.trace.meta();
    let text = |bytes: &[u8]| clean(&String::from_utf8_lossy(bytes));
    let command: Vec<String> = meta.arguments.iter().map(|word| quoted(&text(word))).collect();
    field(out, "command", &command.join(" "))?;
    let is_imported = !meta.imported_from.is_empty();
    if is_imported {
        field(out, "imported", &format!("from {}", text(&meta.imported_from)))?;
        let notes: Vec<String> = meta.import_notes.iter().map(|note| text(note)).collect();
        let none = "the source tells of nothing that is missing".to_owned();
        field(out, "missing", &if notes.is_empty() { none } else { notes.join("; ") })?;
    } else {
        field(out, "in", &text(&meta.working_folder))?;
    }
    let clock = report.trace.clock();
    if let Some(origin) = clock.origin_realtime_ns() {
        field(out, "started", &started(report, origin))?;
    }
    field(out, "covers", &covers(report.trace))?;
    if !is_imported {
        let doubts = counters::doubts(report.trace);
        let gaps: u64 = report.trace.threads().iter().map(|thread| thread.gaps).sum();
        let complete = match (&doubts[..], counters::gaps(gaps)) {
            ([], None) => "yes: every thread from its first call to its last".to_owned(),
            ([], Some(gaps)) => format!("but for {gaps}"),
            _ => format!("no: {}", doubts.join("; ")),
        };
        field(out, "complete", &complete)?;
    }
    if !is_imported {
        field(out, "ended", &how_it_ended(report))?;
    }
    if let Some(session) = report.trace.session() {
        field(out, "session", &session_text(session))?;
    }
    let cpus = meta.cpu_count.map(|count| format!(", {}", Several(count.into(), "CPU", "CPUs")));
    if !meta.host.is_empty() || !meta.cpu.is_empty() {
        field(
            out,
            "host",
            &format!("{}: {}{}", text(&meta.host), text(&meta.cpu), cpus.unwrap_or_default()),
        )?;
    }
    let machines = machines(report);
    if !machines.is_empty() {
        field(out, "machine", &machines.join(", "))?;
    }
    if is_imported {
        field(out, "clock", &text(&meta.imported_clock))?;
    } else {
        field(out, "kernel", &text(&meta.kernel))?;
        field(out, "clock", &clock::text(report))?;
    }
    if let Some(times) = clock::times_text(report) {
        field(out, "times", &times)?;
    }
    if let Some(hooks) = clock::hooks_text(report.trace) {
        field(out, "hooks", &hooks)?;
    }
    field(out, "everycall", &text(&meta.tool_version))?;
    let profile = &report.profile;
    let mut calls = format!(
        "{} of {}",
        Several(profile.calls, "call", "calls"),
        Several(profile.function_count() as u64, "function", "functions")
    );
    let all = report.all_calls();
    if all > profile.calls {
        write!(calls, "; {} made in all, as counted beside the events", Count(all))?;
    }
    if profile.unwound > 0 {
        write!(calls, "; {} unwound by exception, longjmp or thread end", Count(profile.unwound))?;
    }
    if profile.notes.orphan_exits > 0 {
        write!(calls, "; {}", Several(profile.notes.orphan_exits, "orphan exit", "orphan exits"))?;
    }
    if profile.notes.too_deep > 0 {
        write!(calls, "; {} more beyond the depth limit", Count(profile.notes.too_deep))?;
    }
    field(out, "calls", &calls)?;
    let threads = report.trace.threads();
    let gaps: u64 = threads.iter().map(|thread| thread.gaps).sum();
    if gaps > 0 {
        let off = Duration { ns: threads.iter().map(|thread| thread.gaps_ns).fold(0, u64::saturating_add) };
        field(out, "off", &format!("{}, {off} in all threads together", Several(gaps, "time", "times")))?;
    }
    let (tasks, stacks): (Vec<_>, Vec<_>) = threads.iter().partition(|thread| thread.task().is_some());
    let suspended: u64 = stacks.iter().map(|thread| thread.suspended).sum();
    let fibers = stacks.iter().filter(|thread| thread.fiber.is_some()).count() as u64;
    if suspended > 0 || fibers > 0 {
        let fibers = Several(fibers, "fiber", "fibers");
        field(
            out,
            "fibers",
            &format!("{fibers}; stacks were resumed {}", Several(suspended, "time", "times")),
        )?;
    }
    if !tasks.is_empty() {
        let resumed: u64 = tasks.iter().map(|thread| thread.suspended).sum();
        let tasks = Several(tasks.len() as u64, "task", "tasks");
        field(out, "tasks", &format!("{tasks}; they were resumed {}", Several(resumed, "time", "times")))?;
    }
    if let Some(sched) = report.trace.sched() {
        field(out, "states", &states::text(report, sched))?;
    } else if is_crash_file(report) {
        field(
            out,
            "states",
            "not in a crash file, which has what the process knew itself; with `everycall record --states`, \
            the recorder's file has them after a crash, too, and so has a core",
        )?;
    }
    if let Some(stacks) = report.trace.stacks() {
        field(out, "samples", &stacks::text(stacks))?;
    }
    field(out, "file", &clean(&report.path.to_string_lossy()))
}

fn how_it_ended(report: &Report<'_>) -> String {
    let Some(process_end) = report.trace.process_end() else {
        let is_of_living = |reason| matches!(reason, Reason::Request | Reason::Trigger);
        let was_asked = report.trace.snapshots().iter().any(|snapshot| is_of_living(snapshot.reason));
        // Kept calls of a running program, and nothing else.
        let is_running = report.trace.snapshots().is_empty()
            && report.trace.processes().iter().any(|process| process.ending == Ending::Running);
        let is_cut = report.trace.warnings().iter().any(|warning| matches!(warning, Warning::Cut { .. }));
        let why = match (was_asked || is_running, is_cut) {
            (true, _) => "not yet",
            (false, true) => "unknown: the file is truncated",
            (false, false) if is_crash_file(report) => {
                "terminated abnormally (cause not recorded in a crash file)"
            }
            (false, false) => "not in this file",
        };
        return why.to_owned();
    };
    match process_end.how {
        end::EXITED => format!("with exit status {}", process_end.code),
        end::SIGNALED => {
            let core = if process_end.core_dumped { ", with a core dump" } else { "" };
            format!("by signal {}{}{core}", process_end.code, signal_name(process_end.code))
        }
        _ => "in a way unknown to this version".to_owned(),
    }
}

/// Whether the trace is that of a core, or of a crash file: no recorder saw the end.
fn is_crash_file(report: &Report<'_>) -> bool {
    let snapshots = report.trace.snapshots();
    let is_over = snapshots.iter().all(|snapshot| snapshot.reason == Reason::ProcessEnd);
    let is_cut = report.trace.warnings().iter().any(|warning| matches!(warning, Warning::Cut { .. }));
    report.trace.process_end().is_none() && is_over && !is_cut && !snapshots.is_empty()
}

/// When the trace begins.
fn started(report: &Report<'_>, origin: u64) -> String {
    let clock = report.trace.clock();
    match (report.clock, clock.wall()) {
        (Clock::Wall, Some(wall)) => {
            let begin = report.calendar.stamp(wall.realtime_ns(0));
            format!("{begin}, {}", wall_accuracy(wall))
        }
        (Clock::Raw, _) => format!("{}, at {} ticks", utc(origin), clock.origin_ticks()),
        _ => utc(origin),
    }
}

/// The length of the trace, and which part of the run it is if older calls are missing.
fn covers(trace: &Trace<'_>) -> String {
    let end = end_ns(trace);
    let first = trace.threads().iter().filter_map(|thread| thread.reach).map(|(first, _)| first).min();
    let is_cut = trace.threads().iter().any(|thread| thread.is_cut);
    let time = |ns| Duration { ns };
    match first.filter(|_| is_cut) {
        Some(first) => format!("{}, from {} to {}", time(end.saturating_sub(first)), time(first), time(end)),
        None => time(end).to_string(),
    }
}

/// Describes the functions that a session recorded.
fn session_text(session: &Session) -> String {
    let rules = |set: &FunctionSet| {
        let rules = set.rules.iter().map(|rule| {
            let rule = clean(&String::from_utf8_lossy(rule));
            rule.strip_prefix("+ ").map_or(rule.clone(), str::to_owned)
        });
        rules.collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("calls of {} that began during the session", rules(&session.functions));
    if let Some(within) = &session.within {
        text += &format!(", within calls of {}", rules(within));
    }
    if session.crossing {
        text += ", made from another module or from code that isn't traced";
    }
    if session.some_threads {
        text += ", in the threads below";
    }
    text
}

/// The names of the machines that the processes' programs were compiled for, each once; none where
/// the file doesn't say.
pub fn machines(report: &Report<'_>) -> Vec<&'static str> {
    let machines: BTreeSet<_> = report.trace.processes().iter().filter_map(|it| it.machine).collect();
    machines.into_iter().map(Machine::name).collect()
}

/// The source of an imported trace; null if everycall recorded it.
pub fn imported(report: &Report<'_>) -> Value {
    let meta = report.trace.meta();
    if meta.imported_from.is_empty() {
        return Value::Null;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    json!({
        "from": text(&meta.imported_from),
        "clock": text(&meta.imported_clock),
        "notes": meta.import_notes.iter().map(|note| text(note)).collect::<Vec<_>>(),
    })
}

/// How the program ended, as JSON; null if that is unknown.
pub fn ended(report: &Report<'_>) -> Value {
    match report.trace.process_end() {
        Some(process_end) if process_end.how == end::EXITED => json!({ "exit_status": process_end.code }),
        Some(process_end) if process_end.how == end::SIGNALED => {
            json!({ "signal": process_end.code, "core_dumped": process_end.core_dumped })
        }
        _ => Value::Null,
    }
}

/// The session that recorded, as JSON.
pub fn session(report: &Report<'_>) -> Value {
    let Some(session) = report.trace.session() else { return Value::Null };
    let clock = report.trace.clock();
    let texts = |set: &FunctionSet| {
        set.rules.iter().map(|rule| String::from_utf8_lossy(rule).into_owned()).collect::<Vec<_>>()
    };
    json!({
        "name": String::from_utf8_lossy(&session.name),
        "process": session.process,
        "owner_pid": session.owner,
        "start_ns": clock.ns(session.start_ticks),
        "end_ns": clock.ns(session.end_ticks),
        "functions": texts(&session.functions),
        "within": session.within.as_ref().map(texts),
        "crossing": session.crossing,
        "some_threads": session.some_threads,
    })
}

/// A word of a command, as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(clean("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
    }
}
