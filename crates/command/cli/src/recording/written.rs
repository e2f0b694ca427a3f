//! The reports at the end of `record`, `core`, `snapshot` and `trace`.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use everycall_format::arena::{child_kind, counter};
use everycall_format::env::{self, RING_SIZE_MAX};
use everycall_format::site_set::KEEP_MAX;
use everycall_io::{messages::say_text, say};
use everycall_recorder::{Summary, ThreadSummary};
use everycall_symbols::{SymbolWarning, site_report};
use everycall_triggers::{Condition, Limit, Outcome, Tally, Trigger};
use everycall_units::{Count, Duration, OptionSize, Several, Size};

use crate::output::clean;
use everycall_analysis::counters;

/// Largest number of modules whose files are looked at.
const MODULES_MAX: usize = 256;
/// Largest number of threads and children that are listed.
const NAMED_MAX: usize = 4;

/// Reports to standard error that nothing was recorded, and why.
pub fn print_untraced(summary: &Summary, why: &str, output: &Path) {
    let mut text = format!("everycall: nothing was traced{why}; {} contains no calls\n", output.display());
    // Writing to a string doesn't fail.
    let _ = warnings(&mut text, summary);
    say_text(&text);
}

/// Prints what a trace couldn't be given.
pub fn print_warnings(summary: &Summary) {
    let mut text = String::new();
    // Writing to a string doesn't fail.
    let _ = warnings(&mut text, summary);
    if !text.is_empty() {
        say_text(&text);
    }
}

/// The kind of recording that a trace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A run under `record`, to its end.
    Run,
    /// Such a run whose triggers kept so many calls: the file holds more events of these than the
    /// rings at the end.
    RunWithKept(u64),
    /// The moment of a core.
    Core,
    /// A moment of a program that runs on; with the nanoseconds before it that were asked for.
    Snapshot(Option<u64>),
    /// The time of a session of `everycall trace`, in nanoseconds.
    Session(u64),
}

impl Moment {
    /// The nanoseconds before a snapshot that were requested.
    fn requested_ns(self) -> Option<u64> {
        match self {
            Moment::Snapshot(last) => last,
            Moment::Session(time) => Some(time),
            Moment::Run | Moment::RunWithKept(_) | Moment::Core => None,
        }
    }

    /// Whether the file is of the program's whole life.
    fn is_run(self) -> bool {
        matches!(self, Moment::Run | Moment::RunWithKept(_))
    }
}

/// Prints the report to standard error.
pub fn print(summary: &Summary, output: &Path, moment: Moment) {
    say_text(&text(summary, output, moment));
}

/// Prints what came of triggers to standard error.
pub fn print_triggers(outcome: &Outcome, output: &Path) {
    let tallies = outcome.tallies();
    for tally in &tallies {
        say!("  {}", trigger_text(tally));
    }
    if outcome.missed_segments() > 0 {
        let segments = Several(outcome.missed_segments(), "segment of a ring was", "segments of rings were");
        say!(
            "  {segments} overwritten before record could look for entries and percentiles in them; a larger --ring-size gives it time"
        );
    }
    if let Some(error) = outcome.error() {
        say!("  calls that could not be kept: {error}");
    }
    if tallies.iter().any(|tally| tally.kept > 0) {
        say!("  kept calls: everycall info {}", output.display());
    }
}

/// Whether a trigger is a signal, which is of no function.
fn is_signal(trigger: &str) -> bool {
    trigger.parse::<Trigger>().is_ok_and(|trigger| matches!(trigger.condition, Condition::Signal(_)))
}

/// Whether a trigger is of no function: a signal, or an exception wherever it is thrown.
pub fn is_of_no_function(trigger: &str) -> bool {
    trigger.parse::<Trigger>().is_ok_and(|trigger| trigger.pattern().is_none())
}

/// Describes the results of a trigger.
fn trigger_text(tally: &Tally) -> String {
    let Tally { text, functions, late, not_armed: left_out, fired, perhaps, kept, missed, .. } = tally;
    let unseen = named_late(*late) + &not_armed(*left_out);
    let suppressed = fired.saturating_sub(*kept).saturating_sub(*missed);
    match (functions, fired) {
        (0, 0) if is_signal(text) => format!("{text}: never received"),
        (0, 0) if is_of_no_function(text) => format!("{text}: never"),
        (0, 0) => format!("{text}: no function with that name was loaded"),
        (_, 0) => {
            format!("{text}: never, in {}{}", Several(*functions, "function", "functions"), unseen)
        }
        _ => {
            let [one, several] = if is_of_no_function(text) { ["time", "times"] } else { ["call", "calls"] };
            let mut sentence = format!("{text}: {}, {} kept", Several(*fired, one, several), Count(*kept));
            if *missed > 0 {
                // Writing to a string doesn't fail.
                let _ = write!(sentence, ", {} that could not be kept", Count(*missed));
            }
            if suppressed > 0 {
                let _ = write!(sentence, ", {} left out{}", Count(suppressed), left_out_by(tally));
            }
            sentence + &perhaps_shorter(*perhaps, text) + &unseen
        }
    }
}

/// The options by which calls were left out, and those that keep more.
fn left_out_by(tally: &Tally) -> String {
    let wanted = tally.fired.saturating_sub(tally.missed).max(1);
    let [mut by, mut instead] = [Vec::new(), Vec::new()];
    for limit in &tally.limits {
        let (option, more) = match *limit {
            Limit::Count(count) => (
                format!("--keep {count}"),
                Some(wanted.min(KEEP_MAX.into()))
                    .filter(|more| *more > count as u64)
                    .map(|more| format!("--keep {more}")),
            ),
            Limit::Bytes(bytes) => {
                let each = tally.kept_bytes.checked_div(tally.kept).unwrap_or(0).max(1);
                let share = tally.triggers.max(1);
                let all = each.saturating_mul(wanted).saturating_mul(share).saturating_mul(5) / 4;
                let more = all.checked_next_power_of_two().unwrap_or(u64::MAX);
                let [now, more] = [bytes.saturating_mul(share), more].map(OptionSize);
                (format!("--keep-size {now}"), Some(format!("--keep-size {more}")))
            }
            Limit::Every(every) => {
                (format!("--keep-every {}", time_option(every)), Some("--keep-every 0".to_owned()))
            }
            Limit::Perhaps(_) => (
                "because it is uncertain that they took that long".to_owned(),
                Some(format!("--keep {}", wanted.min(KEEP_MAX.into()))),
            ),
        };
        by.push(option);
        instead.extend(more);
    }
    if by.is_empty() {
        return String::new();
    }
    let is_option = by.iter().all(|option| option.starts_with("--"));
    let by = format!("{}{}", if is_option { " by " } else { " " }, by.join(" and "));
    if instead.is_empty() { by } else { format!("{by} ({} keeps more)", instead.join(" ")) }
}

/// A time as options take it.
fn time_option(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let unit = units.into_iter().find(|(unit, _)| ns >= *unit && ns.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{ns}ns"), |(unit, name)| format!("{}{name}", ns / unit))
}

/// The remark on calls that perhaps met no condition; empty where there are none.
pub fn perhaps_shorter(calls: u64, trigger: &str) -> String {
    if calls == 0 {
        return String::new();
    }
    let without = match trigger.split_once('>') {
        Some((function, time)) => {
            let function = function.trim().trim_end_matches("+tail").trim();
            format!("; '{function}-tail > {}' leaves them out", time.trim())
        }
        None => String::new(),
    };
    format!(
        "; {} of all may have been shorter: they end in a jump to code that isn't traced{without}",
        Count(calls)
    )
}

/// A note about functions whose first calls no trigger checked; empty if there are none.
pub fn named_late(functions: u64) -> String {
    match functions {
        0 => String::new(),
        count => format!(
            "; the first calls of {} were not checked: record took too long to find them in a library",
            Several(count, "function", "functions")
        ),
    }
}

/// A note about functions that match a trigger and are not armed; empty if there are none.
pub fn not_armed(functions: u64) -> String {
    match functions {
        0 => String::new(),
        count => format!(
            "; {} more were not armed: too many match; write a narrower pattern",
            Several(count, "function", "functions")
        ),
    }
}

fn text(summary: &Summary, output: &Path, moment: Moment) -> String {
    let mut text = String::new();
    // Writing to a string doesn't fail.
    let _ = write_text(&mut text, summary, output, moment);
    text
}

fn write_text(out: &mut String, summary: &Summary, output: &Path, moment: Moment) -> fmt::Result {
    let file = output.display();
    if !summary.traced {
        writeln!(
            out,
            "everycall: nothing was traced: no program with everycall's runtime was started. Build it through the prefix, \
             as in `everycall cc -- g++ -O2 -g app.cpp -o app`, or record it as it is, also if a script starts it: `everycall record --untouched`; \
             if an untraced program loads traced libraries or plugins, add --preload; \
             {file} contains no calls"
        )?;
        return warnings(out, summary);
    }
    // A process that counts, or a session of which only counts were wanted, records nothing.
    if let Some(calls) = summary.counted.filter(|calls| *calls > 0 && summary.events() == 0) {
        let calls = Several(calls, "call was", "calls were");
        writeln!(out, "everycall: {calls} counted, {} in {file}", Size(summary.file_size))?;
        warnings(out, summary)?;
        return writeln!(out, "  next: everycall report {file}");
    }
    let mut threads = Several(summary.threads.len() as u64, "thread", "threads").to_string();
    if summary.processes > 1 {
        threads += &format!(" in {}", Several(summary.processes.into(), "process", "processes"));
    }
    let events = Several(summary.events(), "event", "events");
    let contents = match moment {
        // Segments are written whole.
        Moment::Session(_) => format!("{events} of {threads}, with older ones in the rings"),
        Moment::RunWithKept(kept) if !summary.streamed && !summary.cut_threads().is_empty() => {
            let kept = Several(kept, "kept call", "kept calls");
            format!("{kept} with what led to them, and the last {events} of {threads}")
        }
        _ => format!("{events} of {threads}"),
    };
    writeln!(out, "everycall: {contents}, {} in {file}", Size(summary.file_size))?;
    losses(out, summary)?;
    dropped(out, summary, output)?;
    times(out, summary)?;
    reach(out, summary, moment)?;
    children(out, summary)?;
    running(out, summary)?;
    warnings(out, summary)?;
    if summary.events() == 0 && !summary.is_incomplete {
        // These come with advice of their own.
        if !rewritten(summary).is_empty() {
            return Ok(());
        }
        return advice_for_no_events(out, summary, moment);
    }
    writeln!(out, "  next: everycall view {file}")?;
    writeln!(out, "        everycall replay {file}")
}

/// Describes the results of streaming.
fn stream(out: &mut String, summary: &Summary, moment: Moment) -> fmt::Result {
    let (events, seconds) = (summary.events(), |ns: u64| ns as f64 / 1e9);
    write!(
        out,
        "  {:.2} bytes an event; record took {:.2} s of CPU time",
        summary.file_size.saturating_add(summary.earlier_size) as f64 / events.max(1) as f64,
        seconds(summary.cpu_ns),
    )?;
    if summary.stall_ns > 0 {
        write!(out, "; threads waited {:.2} s in all for it", seconds(summary.stall_ns))?;
    }
    writeln!(out)?;
    if summary.earlier_files > 0 {
        let earlier = u64::from(summary.earlier_files);
        writeln!(out, "  {} came before it", Several(earlier, "file", "files"))?;
    }
    if summary.is_complete(moment.is_run()) {
        return match counters::gaps(summary.gaps()) {
            Some(gaps) => writeln!(out, "  complete but for {gaps}"),
            None => writeln!(out, "  complete: no event was lost"),
        };
    }
    if summary.lost() == 0 {
        return writeln!(out, "{NOT_COMPLETE}");
    }
    if summary.missing > 0 {
        writeln!(
            out,
            "  record couldn't keep up: {} were overwritten; --stall makes the program wait, --stream-memory buffers more",
            Several(summary.missing, "event", "events")
        )?;
    }
    Ok(())
}

/// Short calls that were only counted.
fn dropped(out: &mut String, summary: &Summary, output: &Path) -> fmt::Result {
    if summary.min_duration_ns == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "  dropped: {} shorter than {}; `everycall info {}` has their functions",
        Several(summary.dropped, "call", "calls"),
        Duration { ns: summary.min_duration_ns },
        output.display()
    )
}

/// Said in place of "complete" where rings reach far enough.
const NOT_COMPLETE: &str = "  not complete: calls are missing or in doubt; the other lines say which";

/// Why a process gives each event a time of its own although that wasn't wanted.
pub const WHY_EXACT: &str = "a thread can only notice cheaply that it was stopped if its C library registers a restartable sequence \
     (glibc from 2.35 on) and the kernel knows it (Linux from 4.18 on); --min-duration and counting need times, too";

/// Says that times are exact although that wasn't wanted.
fn times(out: &mut String, summary: &Summary) -> fmt::Result {
    if summary.exact_instead == 0 {
        return Ok(());
    }
    let processes = Several(summary.exact_instead.into(), "process", "processes");
    writeln!(out, "  all events of {processes} have times of their own, and cost as much: {WHY_EXACT}")
}

fn losses(out: &mut String, summary: &Summary) -> fmt::Result {
    if summary.lost() > 0 {
        writeln!(out, "  lost: {} within the recorded time", Several(summary.lost(), "event", "events"))?;
    }
    for (number, count) in summary.counters.into_iter().enumerate() {
        let Some(said) = counters::said(number, count) else { continue };
        // Children are listed by themselves.
        if count == 0 || matches!(number, counter::FORKED_CHILDREN | counter::STALL_TICKS) {
            continue;
        }
        writeln!(out, "  {said}")?;
    }
    if summary.counters[counter::THREADS_UNTRACED] > 0 {
        writeln!(out, "  at most {} threads can be recorded", summary.thread_capacity)?;
    }
    Ok(())
}

/// Advice for a trace without events, in place of the commands that show it.
fn advice_for_no_events(out: &mut String, summary: &Summary, moment: Moment) -> fmt::Result {
    let next = match moment {
        _ if summary.off => "start with EVERYCALL_START=on, or run `everycall enable PID` meanwhile",
        Moment::Run | Moment::RunWithKept(_) => {
            "check what the program calls: `everycall functions PROGRAM` lists the functions that can be recorded"
        }
        Moment::Core => "`everycall functions PROGRAM` lists the functions that can be recorded",
        Moment::Snapshot(_) => {
            "repeat the command while the program works, or see which functions are on: everycall functions PID"
        }
        Moment::Session(_) => {
            "record for longer, or choose functions that the program calls: `everycall functions PID` lists them"
        }
    };
    writeln!(out, "  next: {next}")
}

fn reach(out: &mut String, summary: &Summary, moment: Moment) -> fmt::Result {
    let mut cut = summary.cut_threads();
    if let Some(last_ns) = moment.requested_ns() {
        // Older events weren't requested.
        cut.retain(|thread| thread.reach_ns < last_ns);
    }
    match summary.off {
        true if summary.events() == 0 => {
            writeln!(
                out,
                "  tracing was off from the start, as {} or the build (--start off) says",
                env::START
            )?;
        }
        true => writeln!(out, "  tracing was off at the end: calls after it was stopped are missing")?,
        false => {}
    }
    if summary.is_incomplete && cut.is_empty() {
        // Whether threads wrote events is unknown then.
        return Ok(());
    }
    if summary.events() == 0 {
        let what = if summary.off { "no call was recorded" } else { "no traced function was called" };
        return writeln!(out, "  {what}");
    }
    if summary.streamed {
        return stream(out, summary, moment);
    }
    if cut.is_empty() && summary.is_complete(moment.is_run()) {
        return match (counters::gaps(summary.gaps()), moment.requested_ns()) {
            (Some(gaps), _) => writeln!(out, "  complete but for {gaps}"),
            (None, Some(last_ns)) => {
                writeln!(out, "  complete: every thread for the last {}", Duration { ns: last_ns })
            }
            (None, None) => writeln!(out, "  complete: every thread from its first call to its last"),
        };
    }
    if cut.is_empty() && summary.counters[counter::THREADS_RECYCLED] > 0 {
        return writeln!(out, "  at most {} threads are kept", Count(summary.thread_capacity.into()));
    }
    if cut.is_empty() {
        return writeln!(out, "{NOT_COMPLETE}");
    }
    if let Moment::RunWithKept(_) = moment {
        return writeln!(
            out,
            "  beside kept calls, only the newest events of {} are there: rings hold {} a thread; --ring-size holds more",
            Several(cut.len() as u64, "thread", "threads"),
            Size(summary.ring_size),
        );
    }
    writeln!(
        out,
        "  {} lost {} oldest calls: rings hold {} a thread. Before {} there are",
        Several(cut.len() as u64, "thread", "threads"),
        if cut.len() == 1 { "its" } else { "their" },
        Size(summary.ring_size),
        match moment {
            Moment::Run | Moment::RunWithKept(_) => "the program's end",
            Moment::Core => "the core's moment",
            Moment::Snapshot(_) | Moment::Session(_) => "the snapshot",
        },
    )?;
    for ThreadSummary { tid, name, reach_ns, .. } in cut.iter().take(NAMED_MAX) {
        writeln!(out, "    {:>9}  of thread {tid} {}", Duration { ns: *reach_ns }.to_string(), clean(name))?;
    }
    if cut.len() > NAMED_MAX {
        writeln!(out, "    and more of {}", Several((cut.len() - NAMED_MAX) as u64, "other", "others"))?;
    }
    // While the program runs on, no ring size would hold everything.
    match (moment, summary.ring_size_for_all()) {
        (Moment::Run, Some(size)) => {
            writeln!(out, "  --ring-size {} would have held everything", OptionSize(size))
        }
        (Moment::Run, None) => {
            writeln!(out, "  not even --ring-size {} would have held everything", OptionSize(RING_SIZE_MAX))
        }
        (Moment::Core, Some(size)) => {
            let size = OptionSize(size);
            writeln!(
                out,
                "  {}={size}, or record --ring-size {size}, would have held everything",
                env::RING_SIZE
            )
        }
        (Moment::Core, None) | (Moment::RunWithKept(_), _) => Ok(()),
        (Moment::Snapshot(_) | Moment::Session(_), _) => {
            writeln!(
                out,
                "  larger rings reach further back: start the program with {}={}, or record with --ring-size",
                env::RING_SIZE,
                OptionSize(summary.ring_size.saturating_mul(4).min(RING_SIZE_MAX))
            )
        }
    }
}

fn children(out: &mut String, summary: &Summary) -> fmt::Result {
    let listed = summary.children.len() as u64;
    let count = listed.max(summary.counters[counter::FORKED_CHILDREN]);
    if count == 0 {
        return Ok(());
    }
    write!(out, "  not followed: {}", Several(count, "child process", "child processes"))?;
    for (place, child) in summary.children.iter().take(NAMED_MAX).enumerate() {
        let how = if child.kind == child_kind::EXEC { "exec" } else { "fork" };
        let separator = if place == 0 { ": " } else { ", " };
        write!(out, "{separator}{} {} ({how})", child.pid, clean(&child.name))?;
    }
    if count > NAMED_MAX as u64 {
        write!(out, ", ...")?;
    }
    writeln!(out)
}

fn running(out: &mut String, summary: &Summary) -> fmt::Result {
    if summary.running > 0 {
        writeln!(
            out,
            "  {} still running, recorded until now; record --wait waits for them",
            if summary.running == 1 {
                "1 process is".to_owned()
            } else {
                format!("{} processes are", Count(summary.running.into()))
            }
        )?;
    }
    if summary.without_libraries > 0 {
        writeln!(
            out,
            "  {} without the libraries of --waits, --with-output or --memory, so what these record is missing there: \
             static or privileged programs, or started with another environment",
            match summary.without_libraries {
                1 => "1 process ran".to_owned(),
                several => format!("{} processes ran", Count(several.into())),
            }
        )?;
    }
    if summary.untraced_processes > 0 {
        writeln!(
            out,
            "  {} not traced: no memory was ready",
            Several(summary.untraced_processes.into(), "process", "processes")
        )?;
    }
    Ok(())
}

fn warnings(out: &mut String, summary: &Summary) -> fmt::Result {
    summary.warnings.iter().try_for_each(|warning| writeln!(out, "  {warning}"))?;
    rewritten(summary).into_iter().try_for_each(|path| {
        let path = path.to_path_buf();
        writeln!(out, "  {}", clean(&SymbolWarning::MovedSites { path }.to_string()))
    })
}

/// Files whose sites lie elsewhere than their lists say.
fn rewritten(summary: &Summary) -> Vec<&Path> {
    let paths = summary.module_paths.iter().take(MODULES_MAX).map(|path| Path::new(OsStr::from_bytes(path)));
    let has_moved =
        |path: &&Path| path.is_file() && site_report(path).is_ok_and(|report| report.has_moved_sites());
    paths.filter(has_moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_trigger_looked_at_is_said() {
        let tally = Tally { text: "f > 1ms".into(), functions: 3, late: 1, ..Tally::default() };
        let never = trigger_text(&tally);
        assert!(
            never.starts_with(
                "f > 1ms: never, in 3 functions; the first calls of 1 function were not checked"
            ),
            "{never}"
        );
        let met = trigger_text(&Tally { fired: 2, kept: 2, ..tally });
        assert!(
            met.starts_with("f > 1ms: 2 calls, 2 kept; the first calls of 1 function were not checked"),
            "{met}"
        );
    }

    #[test]
    fn the_report_says_what_would_have_held_everything() {
        let thread = |tid, written, reach_ns| ThreadSummary {
            tid,
            name: format!("worker\u{1b}{tid}"),
            events: written / 8,
            written,
            overwritten: written > 1 << 20,
            reach_ns,
            ..ThreadSummary::default()
        };
        let mut summary = Summary {
            traced: true,
            ring_size: 1 << 20,
            threads: vec![thread(1, 5 << 20, 1_200_000), thread(2, 800, 9)],
            ..Summary::default()
        };
        let shown = text(&summary, Path::new("app.ect"), Moment::Run);
        assert!(shown.contains("--ring-size 8M would have held everything"), "{shown}");
        assert!(shown.contains("1.20 ms  of thread 1 worker\\u{1b}1"), "{shown}");
        assert!(shown.contains("next: everycall view app.ect"), "{shown}");
        // Kept calls reach further back than the rings.
        let kept = text(&summary, Path::new("app.ect"), Moment::RunWithKept(2));
        let head = "everycall: 2 kept calls with what led to them, and the last 655,460 events of 2 threads";
        assert!(kept.starts_with(head), "{kept}");
        assert!(!kept.contains("lost") && !kept.contains("would have held"), "{kept}");
        assert!(kept.contains("only the newest events of 1 thread are there"), "{kept}");
        summary.threads.remove(0);
        let kept = text(&summary, Path::new("app.ect"), Moment::RunWithKept(2));
        assert!(kept.starts_with("everycall: 100 events of 1 thread, "), "{kept}");
        assert!(kept.contains("complete: every thread from its first call to its last"), "{kept}");
        assert!(text(&summary, Path::new("app.ect"), Moment::Run).contains("complete: every thread"));
        summary.threads[0].gaps = 2;
        let paused = text(&summary, Path::new("app.ect"), Moment::Run);
        assert!(paused.contains("complete but for 2 times that recording was off"), "{paused}");
        summary.threads[0].gaps = 0;
    }

    #[test]
    fn snapshots_speak_of_their_moment_and_of_what_was_asked_for() {
        let summary = Summary {
            traced: true,
            ring_size: 1 << 20,
            threads: vec![ThreadSummary {
                tid: 1,
                events: 9,
                written: 5 << 20,
                overwritten: true,
                reach_ns: 20_000_000,
                ..ThreadSummary::default()
            }],
            ..Summary::default()
        };
        let shown = |moment| text(&summary, Path::new("app.ect"), moment);
        let whole = shown(Moment::Snapshot(None));
        assert!(whole.contains("Before the snapshot there are"), "{whole}");
        assert!(whole.contains("EVERYCALL_RING_SIZE=4M") && !whole.contains("everything"), "{whole}");
        let enough = shown(Moment::Snapshot(Some(20_000_000)));
        assert!(enough.contains("every thread for the last 20.0 ms"), "{enough}");
        assert!(!enough.contains("lost") && !enough.contains("rings"), "{enough}");
        let short = shown(Moment::Snapshot(Some(21_000_000)));
        assert!(short.contains("1 thread lost its oldest calls"), "{short}");
        let core = shown(Moment::Core);
        assert!(
            core.contains("Before the core's moment")
                && core.contains("EVERYCALL_RING_SIZE=8M, or record --ring-size 8M, would"),
            "{core}"
        );
    }

    #[test]
    fn a_trace_without_events_comes_with_advice_that_helps() {
        let summary = Summary { traced: true, ring_size: 1 << 20, ..Summary::default() };
        for (moment, advice) in [
            (Moment::Run, "everycall functions PROGRAM"),
            (Moment::Core, "everycall functions PROGRAM"),
            (Moment::Snapshot(None), "everycall functions PID"),
            (Moment::Session(1_000_000_000), "record for longer"),
        ] {
            let shown = text(&summary, Path::new("app.ect"), moment);
            assert!(shown.contains(advice) && !shown.contains("everycall replay"), "{shown}");
        }
        let off = Summary { off: true, ..summary };
        let shown = text(&off, Path::new("app.ect"), Moment::Run);
        assert!(shown.contains("everycall enable PID") && !shown.contains("everycall replay"), "{shown}");
    }

    #[test]
    fn triggers_that_are_signals_have_no_functions() {
        let tally = |text: &str, functions, fired| Tally {
            text: text.to_owned(),
            functions,
            fired,
            ..Tally::default()
        };
        assert_eq!(trigger_text(&tally("signal USR1", 0, 0)), "signal USR1: never received");
        assert_eq!(trigger_text(&tally("signal USR1", 0, 1)), "signal USR1: 1 time, 0 kept, 1 left out");
        assert!(trigger_text(&tally("f > 1ms", 1, 2)).starts_with("f > 1ms: 2 calls, 0 kept"));
    }

    #[test]
    fn what_left_out_calls_is_said() {
        let tally = |limits: &[Limit]| Tally {
            text: "f > 1ms".to_owned(),
            functions: 1,
            fired: 148,
            kept: 20,
            kept_bytes: 20 << 20,
            triggers: 2,
            limits: limits.to_vec(),
            ..Tally::default()
        };
        for (limits, said) in [
            (&[Limit::Count(20)][..], "128 left out by --keep 20 (--keep 148 keeps more)"),
            (&[Limit::Bytes(128 << 20)], "128 left out by --keep-size 256M (--keep-size 512M keeps more)"),
            (
                &[Limit::Every(1_500_000_000)],
                "128 left out by --keep-every 1500ms (--keep-every 0 keeps more)",
            ),
            (
                &[Limit::Every(1_000_000_000), Limit::Count(20)],
                "128 left out by --keep-every 1s and --keep 20 (--keep-every 0 --keep 148 keeps more)",
            ),
        ] {
            let text = trigger_text(&tally(limits));
            assert_eq!(text, format!("f > 1ms: 148 calls, 20 kept, {said}"));
        }
        let perhaps = Tally { perhaps: 100, fired: 20, ..tally(&[]) };
        let text = trigger_text(&perhaps);
        assert!(
            text.contains("100 of all may have been shorter") && text.contains("'f-tail > 1ms'"),
            "{text}"
        );
    }
}
