//! The contents of a trace as text, in 80 columns.

use std::fmt::{self, Write};

use everycall_analysis::{
    EventPrice, FunctionRow, KeptCall, KeptTail, is_of_budget, lost_events, marks_by_count,
    ring_that_keeps_all, runtime_counts,
};
use everycall_export::{NameLength, end_ns, process_name, wall_accuracy};
use everycall_format::arena::child_kind;
use everycall_format::ect::LOG_FILE_TID;
use everycall_format::ect::end;
use everycall_reader::{
    Ending, EventClock, FunctionSet, Origin, Reason, Sched, SchedSource, Session, Stamps, Warning,
};
use everycall_timeline::{ClockQuality, States, Trace};
use everycall_units::{Count, Duration, Several, Size};

use super::facts::{Report, hooked, kept_function};
use crate::arguments::Clock;
use crate::output::{clean, signal_name};
use crate::recording::written::{self, is_of_no_function, named_late, not_armed, perhaps_shorter};
use crate::untouched::hooks_of;
use everycall_analysis::counters;

/// Columns of the page.
const WIDTH: usize = 80;
/// Columns for the names of fields.
const LABEL: usize = 12;
/// Largest number of threads, modules and children that are listed.
const LISTED: usize = 32;
/// Largest number of renames that are listed of a thread.
const RENAMES_LISTED: usize = 4;
/// Largest number of kept calls that are listed.
const KEPT_LISTED: usize = 100;
/// Largest number of generations of processes that are indented.
const GENERATIONS_INDENTED: usize = 8;
/// Largest number of functions whose dropped calls are listed.
const DROPPED_LISTED: usize = 10;
/// Largest number of functions that are listed because they were off for the budget.
const COSTLY_LISTED: usize = 20;
/// Largest number of names of labels, instants and spans that are listed.
pub const MARKS_LISTED: usize = 10;

/// The page.
pub fn page(report: &Report<'_>) -> String {
    let mut page = String::new();
    // Writing to a string doesn't fail.
    let _ = write_page(&mut page, report);
    page
}

fn write_page(out: &mut String, report: &Report<'_>) -> fmt::Result {
    recording(out, report)?;
    processes(out, report)?;
    threads(out, report)?;
    modules(out, report)?;
    children(out, report)?;
    sampled(out, report)?;
    counters(out, report)?;
    triggers(out, report)?;
    dropped(out, report)?;
    budget(out, report)?;
    widest(out, report)?;
    marks(out, report)?;
    let title = if report.trace.counts().is_empty() { "Most calls" } else { COUNTED };
    functions(out, title, &report.by_calls, report.names)?;
    functions(out, "Most own time", &report.by_own_time, report.names)?;
    warnings(out, report)
}

/// Measured cost of an event; of several processes, the first one's.
fn hooks_text(trace: &Trace<'_>) -> Option<String> {
    let known = trace.calibrations().first()?;
    if !known.is_measured {
        return Some("what an event cost could not be measured at the start".to_owned());
    }
    let has_sites = trace.modules().iter().any(everycall_reader::Module::has_sites);
    let prices = if has_sites { &known.sites } else { &known.bodies };
    let [low, value, high] = EventPrice::of(trace, prices).ns();
    Some(format!(
        "{value:.1} ns an event, in programs {low:.1} to {high:.1}, measured at the start; `everycall report \
        --corrected` subtracts it"
    ))
}

fn recording(out: &mut String, report: &Report<'_>) -> fmt::Result {
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
    if is_imported {
        field(out, "clock", &text(&meta.imported_clock))?;
    } else {
        field(out, "kernel", &text(&meta.kernel))?;
        field(out, "clock", &clock_text(report))?;
    }
    if let Some(times) = times(report) {
        field(out, "times", &times)?;
    }
    if let Some(hooks) = hooks_text(report.trace) {
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
        field(out, "states", &states(report, sched))?;
    } else if is_crash_file(report) {
        field(
            out,
            "states",
            "not in a crash file, which has what the process knew itself; with `everycall record --states`, \
            the recorder's file has them after a crash, too, and so has a core",
        )?;
    }
    field(out, "file", &clean(&report.path.to_string_lossy()))
}

/// Where thread states came from, and what is missing.
fn states(report: &Report<'_>, sched: &Sched) -> String {
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

/// A moment, in a column.
fn moment(report: &Report<'_>, ns: u64) -> String {
    let clock = report.trace.clock();
    match (report.clock, clock.wall()) {
        (Clock::Wall, Some(wall)) => report.calendar.stamp(wall.realtime_ns(ns)),
        (Clock::Raw, _) => clock.ticks(ns).to_string(),
        _ => Duration { ns }.to_string(),
    }
}

fn clock_text(report: &Report<'_>) -> String {
    let meta = report.trace.meta();
    let invariant = match meta.invariant_counter {
        Some(true) => "constant rate",
        Some(false) => "rate not guaranteed constant by the CPU",
        None => "constancy unknown",
    };
    match report.trace.clock_quality() {
        ClockQuality::Measured { error_ns, ticks_per_second, readings, readings_refused } => {
            let refused =
                if readings_refused > 0 { format!(", {readings_refused} refused") } else { String::new() };
            format!(
                "{:.6} GHz, {invariant}, exact to {} ({}{refused})",
                ticks_per_second as f64 / 1e9,
                Duration { ns: error_ns },
                Several(readings.into(), "reading", "readings"),
            )
        }
        ClockQuality::AssumedRate { .. } => "rate unknown: times are ticks, shown as nanoseconds".to_owned(),
    }
}

/// Which events have times of their own, if not all have, or not all should.
fn times(report: &Report<'_>) -> Option<String> {
    let mut parts = Vec::new();
    let clocks = clocks(report.trace);
    for (stamps, count) in &clocks {
        let of = match clocks.len() {
            1 => String::new(),
            _ => format!(" in {}", Several(*count, "process", "processes")),
        };
        let (name, wanted) = (stamps.clock.name(), stamps.wanted.name());
        parts.push(match stamps.clock {
            _ if stamps.clock == stamps.wanted => format!("{name}{of}"),
            EventClock::Exact => format!("{name}{of}, although {wanted} was wanted: {}", written::WHY_EXACT),
            _ if stamps.wanted == EventClock::Exact => format!("{name}{of}, chosen while it ran"),
            _ => format!("{name}{of}, although {wanted} was wanted"),
        });
    }
    if clocks.iter().all(|(stamps, _)| *stamps == Stamps::default()) {
        return None;
    }
    if let Some(intervals) = &report.intervals {
        let without = intervals.without.count();
        let stamped = intervals.events.saturating_sub(without) as f64 / intervals.events.max(1) as f64;
        let mut text = match without {
            // Such as two that a slow path wrote at the same tick.
            1.. if stamped > 0.9995 => format!("all but {} events have times of their own", Count(without)),
            _ => format!("{:.1} % of the events have times of their own", 100.0 * stamped),
        };
        let percentile = |of| intervals.without.percentile(of).map(|ns| Duration { ns });
        if let (Some(median), Some(p99)) = (percentile(5_000), percentile(9_900)) {
            text += &format!(", the others are known within {median} (median), {p99} (99th percentile)");
        }
        parts.push(text);
    }
    Some(parts.join("; "))
}

/// The choices of the processes, and how many have each.
pub fn clocks(trace: &Trace<'_>) -> Vec<(Stamps, u64)> {
    let mut clocks: Vec<(Stamps, u64)> = Vec::new();
    for process in trace.processes() {
        match clocks.iter_mut().find(|(stamps, _)| *stamps == process.stamps) {
            Some((_, count)) => *count += 1,
            None => clocks.push((process.stamps, 1)),
        }
    }
    clocks
}

/// The functions whose events' times are known least.
fn widest(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let Some(intervals) = report.intervals.as_ref().filter(|intervals| !intervals.widest.is_empty()) else {
        return Ok(());
    };
    heading(out, "Times known least")?;
    writeln!(out, "  {:>12}{:>12}{:>12}  function", "events", "median", "widest")?;
    for function in &intervals.widest {
        let time = |ns: Option<u64>| Duration { ns: ns.unwrap_or(0) }.to_string();
        let (median, widest) = (function.intervals.percentile(5_000), function.intervals.max());
        writeln!(
            out,
            "  {:>12}{:>12}{:>12}  {}",
            Count(function.intervals.count()).to_string(),
            time(median),
            time(widest),
            report.names.shown(&clean(&function.name), Some(WIDTH - 40)),
        )?;
    }
    Ok(())
}

fn processes(out: &mut String, report: &Report<'_>) -> fmt::Result {
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

fn threads(out: &mut String, report: &Report<'_>) -> fmt::Result {
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

fn modules(out: &mut String, report: &Report<'_>) -> fmt::Result {
    // Several processes may load the same file.
    let all = report.trace.modules().iter().enumerate();
    let modules: Vec<_> = all.filter(|(index, module)| module.same_file == *index).collect();
    heading(out, &Several(modules.len() as u64, "module", "modules").to_string())?;
    for (index, module) in modules.iter().take(LISTED) {
        let path = clean(&module.path_lossy());
        let id: String = module.build_id.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let id = if id.is_empty() { "no build id".to_owned() } else { format!("build id {id}...") };
        let mut notes = vec![id];
        if let Some(frames) = report.trace.frames_of(module) {
            let of_codes = frames.codes.len() as u64;
            let of_ids = (frames.names.len() as u64).saturating_sub(of_codes);
            notes = vec![Several(of_ids, "name", "names").to_string()];
            if frames.lost > 0 {
                notes.push(format!("{} more found no room", Count(frames.lost)));
            }
            if of_codes > 0 {
                notes.push(format!("{} of generated code", Several(of_codes, "name", "names")));
            }
            if frames.codes_lost > 0 {
                notes.push(format!("{} of generated code couldn't be used", Count(frames.codes_lost)));
            }
        }
        if module.sites > 0 {
            notes.push(Several(module.sites.into(), "site", "sites").to_string());
        }
        if module.sites_unpatched > 0 {
            notes.push(format!("{} not switched on", Count(module.sites_unpatched.into())));
        }
        let (hooks, reasons) = hooked(report.trace, module).map(|file| hooks_of(&file)).unzip();
        notes.extend(hooks);
        if module.unloaded_ticks.is_some() {
            notes.push("unloaded".to_owned());
        }
        if report.file.has_symbols(u32::try_from(*index).unwrap_or(u32::MAX)) {
            notes.push("its symbols are in the file".to_owned());
        }
        writeln!(out, "  {}", if path.is_empty() { "(no path)" } else { &path })?;
        writeln!(out, "      {}", notes.join(", "))?;
        for reason in reasons.into_iter().flatten() {
            writeln!(out, "        {reason}")?;
        }
    }
    more(out, modules.len())
}

fn children(out: &mut String, report: &Report<'_>) -> fmt::Result {
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

/// The processes' resource use, as far as the recorder sampled it.
fn sampled(out: &mut String, report: &Report<'_>) -> fmt::Result {
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

fn counters(out: &mut String, report: &Report<'_>) -> fmt::Result {
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

/// Lists the functions that were off to keep the budget, and when.
fn budget(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let Some(budget) = &report.budget else { return Ok(()) };
    heading(out, "Budget")?;
    let percent = |millionths: u64| format!("{:.2}", millionths as f64 / 10_000.0);
    let mut line = format!(
        "{} % of the program's CPU time; an event was measured as {:.1} ns.",
        percent(budget.millionths),
        budget.event_ps as f64 / 1000.0
    );
    let off = budget.functions.iter().filter(|function| !function.off.is_empty()).count() as u64;
    match off {
        0 => line += " No function had to go off.",
        _ => write!(
            line,
            " Tracing everything would have cost up to {} %: calls of {} are missing while they were off, {} at the end.",
            percent(budget.highest),
            Several(off, "function", "functions"),
            budget.functions.iter().filter(|function| function.is_off).count(),
        )?,
    }
    if budget.out_of_reach > 0 {
        write!(
            line,
            " It could not be kept: tracing cost up to {} % when nothing was left that could go off.",
            percent(budget.out_of_reach)
        )?;
    }
    paragraph(out, &line)?;
    if budget.functions.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {:>12} {:>12} {:>6} {:>14}  function", "off since", "off for", "times", "calls/s")?;
    for function in budget.functions.iter().take(COSTLY_LISTED) {
        let since = function.off.first().map_or(0, |(from, _)| *from);
        let stuck = if function.is_stuck { " (can't go off)" } else { "" };
        writeln!(
            out,
            "  {:>12} {:>12} {:>6} {:>14}  {}{stuck}",
            Duration { ns: since }.to_string(),
            Duration { ns: function.off_ns() }.to_string(),
            function.off.len(),
            Count(function.calls_per_second).to_string(),
            function.name,
        )?;
    }
    let more = budget.functions.len().saturating_sub(COSTLY_LISTED);
    if more > 0 {
        writeln!(out, "  and {more} more: everycall info -f json")?;
    }
    Ok(())
}

/// Short calls that were dropped, and the functions with the most of them.
fn dropped(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let Some(dropped) = &report.dropped else { return Ok(()) };
    heading(out, "Dropped calls")?;
    let mut line = if dropped.highest_ns == 0 {
        format!(
            "{} in the time that this file covers; the functions are in the recording's last file.",
            Several(dropped.within, "short call", "short calls")
        )
    } else {
        format!(
            "{} shorter than {} that called nothing recorded, in {}; {} of them in the time that this trace covers.",
            Several(dropped.calls, "call", "calls"),
            Duration { ns: dropped.highest_ns },
            Several(dropped.functions.len() as u64, "function", "functions"),
            Count(dropped.within),
        )
    };
    if dropped.threshold_ns != dropped.highest_ns {
        let now = Duration { ns: dropped.threshold_ns };
        match dropped.threshold_ns {
            0 => line += " At the end, every call was recorded.",
            _ => write!(line, " At the end, those shorter than {now} were.")?,
        }
    }
    if dropped.is_full {
        line += " There was no room to count more functions; the short calls of the others were recorded.";
    }
    paragraph(out, &line)?;
    if dropped.functions.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {:>15}  function", "dropped")?;
    for function in dropped.functions.iter().take(DROPPED_LISTED) {
        writeln!(out, "  {:>15}  {}", Count(function.calls).to_string(), function.name)?;
    }
    let more = dropped.functions.len().saturating_sub(DROPPED_LISTED);
    if more > 0 {
        let rest: u64 = dropped.functions.iter().skip(DROPPED_LISTED).map(|function| function.calls).sum();
        writeln!(out, "  {:>15}  in {}", Count(rest).to_string(), Several(more as u64, "more", "more"))?;
    }
    Ok(())
}

fn triggers(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let triggers = report.trace.triggers();
    if triggers.is_empty() && report.kept.is_empty() {
        return Ok(());
    }
    heading(out, "Triggers")?;
    for trigger in triggers {
        let not_kept = trigger.fired.saturating_sub(trigger.kept).saturating_sub(trigger.missed);
        let text = String::from_utf8_lossy(&trigger.text);
        let fired = if is_of_no_function(&text) {
            Several(trigger.fired, "time", "times").to_string()
        } else {
            let functions = Several(trigger.functions, "function", "functions");
            format!("{} in {functions}", Several(trigger.fired, "call", "calls"))
        };
        let mut line = format!("{}: {fired}, {} kept", clean(&text), Count(trigger.kept));
        if not_kept > 0 {
            write!(line, ", {} left out by --keep, --keep-size or --keep-every", Count(not_kept))?;
        }
        if trigger.missed > 0 {
            write!(line, ", {} that could not be kept", Count(trigger.missed))?;
        }
        line += &perhaps_shorter(trigger.perhaps, &clean(&text));
        line += &named_late(trigger.late);
        line += &not_armed(trigger.not_armed);
        paragraph(out, &line)?;
    }
    if report.kept.is_empty() {
        return Ok(());
    }
    heading(out, &Several(report.kept.len() as u64, "kept call", "kept calls").to_string())?;
    // Calendar times and ticks are longer.
    let at = match report.clock {
        Clock::Trace => 12,
        Clock::Raw => 22,
        Clock::Wall => 37,
    };
    writeln!(out, "  {:>4}{:>at$}{:>12}{:>12}  {:>8}  function", "", "at", "took", "threshold", "tid")?;
    for kept in report.kept.iter().take(KEPT_LISTED) {
        let time = |ns: u64| Duration { ns }.to_string();
        writeln!(
            out,
            "  {:>4}{:>at$}{:>12}{:>12}  {:>8}  {}",
            kept.number,
            moment(report, kept.start_ns),
            time(kept.took_ns),
            time(kept.threshold_ns),
            kept.tid,
            report.names.shown(&clean(kept_function(kept)), Some(WIDTH - 56))
        )?;
        let mut notes = Vec::new();
        if kept.is_entry {
            notes.push("kept at its entry".to_owned());
        }
        if kept.is_throw {
            notes.push("kept when an exception was thrown in it".to_owned());
        }
        if kept.is_unwound {
            notes.push("unwound by an exception or a jump".to_owned());
        }
        notes.extend(kept.tail.as_ref().map(|tail| tail_note(kept, tail)));
        if let Some(least) = kept.at_least_ns {
            let doubt = if least <= kept.threshold_ns { ", perhaps less than the threshold" } else { "" };
            notes.push(format!("at most; at least {}{doubt}", Duration { ns: least }));
        }
        if kept.missing > 0 {
            notes.push(format!(
                "{} since its entry were overwritten",
                Several(kept.missing, "event", "events")
            ));
        }
        if !notes.is_empty() {
            writeln!(out, "        {}", notes.join("; "))?;
        }
    }
    if report.kept.len() > KEPT_LISTED {
        writeln!(out, "  ... and {} more", report.kept.len() - KEPT_LISTED)?;
    }
    paragraph(
        out,
        "`everycall view` shows them on the timeline; `everycall replay --kept NUMBER` prints one, from its \
        beginning on.",
    )
}

/// The effect of a kept call's tail call on its time.
fn tail_note(kept: &KeptCall, tail: &KeptTail) -> String {
    let target = tail.target.as_deref().map(clean);
    let untraced =
        target.as_ref().map_or_else(|| "what it jumped to".to_owned(), |name| format!("{name} (not traced)"));
    let target = target.unwrap_or_else(|| "an address that isn't known".to_owned());
    let behind = Duration { ns: tail.behind_ns };
    if tail.is_perhaps_short {
        let end = if tail.has_next { "" } else { "; nothing came after it" };
        let before = Duration { ns: kept.took_ns.saturating_sub(tail.behind_ns) };
        return format!(
            "at least {before}, at most with {behind} of {untraced} and what its caller did next{end}"
        );
    }
    if tail.is_at_most {
        let end = if tail.has_next { "" } else { "; nothing came after it" };
        return format!("at most, of which {untraced} at most {behind}{end}");
    }
    match tail.goes_on {
        true => format!("until its tail call of {target}, which goes on"),
        false => format!("with its tail call, {behind}"),
    }
}

fn marks(out: &mut String, report: &Report<'_>) -> fmt::Result {
    let lines = report.trace.log_lines().count();
    if lines > 0 {
        heading(out, "Log lines of the program")?;
        writeln!(out, "  {:>12}  lines, which replay shows", Count(lines).to_string())?;
    }
    let mut names = marks_by_count(report.trace);
    names.retain(|named| report.budget.is_none() || !is_of_budget(&named.name));
    names.retain(|named| !report.is_sampled(&named.name));
    if names.is_empty() {
        return Ok(());
    }
    heading(out, "Labels, instants, spans and counters of the program")?;
    writeln!(out, "  {:>12}{:>12}{:>12}{:>12}  name", "labels", "instants", "spans", "counters")?;
    for named in names.iter().take(MARKS_LISTED) {
        let name = report.names.shown(&clean(&named.name), Some(WIDTH - 52));
        let [labels, instants, spans, counters] =
            [named.labels, named.instants, named.spans, named.counters].map(|count| Count(count).to_string());
        writeln!(out, "  {labels:>12}{instants:>12}{spans:>12}{counters:>12}  {name}")?;
    }
    if names.len() > MARKS_LISTED {
        writeln!(out, "  ... and {} more", names.len() - MARKS_LISTED)?;
    }
    Ok(())
}

/// The heading of calls that weren't recorded.
const COUNTED: &str = "Most calls (counted, not recorded)";

fn functions(out: &mut String, title: &str, rows: &[FunctionRow], names: NameLength) -> fmt::Result {
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

fn warnings(out: &mut String, report: &Report<'_>) -> fmt::Result {
    if report.warnings.is_empty() {
        return Ok(());
    }
    heading(out, &Several(report.warnings.len() as u64, "warning", "warnings").to_string())?;
    report.warnings.iter().take(LISTED).try_for_each(|warning| paragraph(out, &clean(warning)))?;
    more(out, report.warnings.len())
}

fn heading(out: &mut String, text: &str) -> fmt::Result {
    writeln!(out, "\n{text}")
}

fn more(out: &mut String, count: usize) -> fmt::Result {
    if count > LISTED { writeln!(out, "  ... and {} more", count - LISTED) } else { Ok(()) }
}

/// Writes a field; long text is wrapped between words.
fn field(out: &mut String, label: &str, text: &str) -> fmt::Result {
    let text = if text.is_empty() { "unknown" } else { text };
    for (number, line) in lines(text, WIDTH - LABEL).iter().enumerate() {
        writeln!(out, "{:<LABEL$}{line}", if number == 0 { label } else { "" })?;
    }
    Ok(())
}

fn paragraph(out: &mut String, text: &str) -> fmt::Result {
    lines(text, WIDTH - 2).iter().try_for_each(|line| writeln!(out, "  {line}"))
}

fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Date and time in UTC, of nanoseconds since 1970.
pub fn utc(realtime_ns: u64) -> String {
    match jiff::Timestamp::from_nanosecond(realtime_ns.into()) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => "an unknown time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_827_696_000_000_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(utc(1_735_689_599_999_999_999), "2024-12-31 23:59:59 UTC");
        assert!(utc(u64::MAX).starts_with("2554-07-21"));
    }

    #[test]
    fn texts_keep_to_their_width() {
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(clean("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
    }
}
