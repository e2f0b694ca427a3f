//! `--corrected`: times without what the hooks cost, with their error bars.

use std::cmp::Reverse;
use std::path::Path;

use everycall_analysis::{Corrected, Correction, Order, Profile, Row, Sums, WholeRun};
use everycall_io::say;
use everycall_timeline::Bars;
use everycall_units::{Count, Duration, Several, parse_time};
use serde_json::{Map, Value, json};

use super::load::Run;
use super::whole::WholeProcess;
use crate::arguments::ReportArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::traces;

/// The CPU times between which a program's lies without tracing: those that are named, as times or
/// as files of runs without tracing. `None` if there are none.
fn untraced(named: &[String]) -> Result<Option<(u64, u64)>, Failure> {
    let times = named.iter().map(|text| match parse_time(text) {
        Ok(time) => Ok(time),
        Err(_) if Path::new(text).exists() => time_of_run(Path::new(text)),
        Err(error) => Err(Failure::new(
            exit_code::USAGE,
            format!("--untraced {text}: there is no such file, and it is no time: {error}"),
        )),
    });
    let times = times.collect::<Result<Vec<u64>, Failure>>()?;
    Ok(times.iter().min().copied().zip(times.iter().max().copied()))
}

/// The CPU time of a program in a file of a run without tracing.
fn time_of_run(path: &Path) -> Result<u64, Failure> {
    let file = traces::open(path)?;
    let trace = traces::trace(&file, path)?;
    let run = WholeProcess::of(&trace);
    match run.cpu_ns {
        Some(_) if run.all_calls > 0 => Err(Failure::of(
            path,
            "--untraced: calls were recorded; `EVERYCALL_START=off everycall record` runs a program without tracing",
        )),
        Some(time) => Ok(time),
        None => Err(Failure::of(path, NO_CPU_TIME)),
    }
}

/// Why it isn't known what a program took.
const NO_CPU_TIME: &str = "--untraced: the file doesn't say what CPU time the program took; it must be one process, \
    from its start to its end, under `everycall record`";

/// Refuses options that concern other times.
pub fn check(arguments: &ReportArguments) -> Result<(), Failure> {
    let sort = arguments.sort.unwrap_or(Order::OwnTime);
    let refused = |what: &str| {
        Err(Failure::new(exit_code::USAGE, format!("--corrected corrects total and own times; {what}")))
    };
    match () {
        () if !matches!(sort, Order::Calls | Order::TotalTime | Order::OwnTime) => {
            refused("sort by calls, total or own")
        }
        () if arguments.by == everycall_analysis::Grouping::Path => refused("it isn't for paths"),
        () if !arguments.untraced.is_empty() && arguments.traces.len() != 1 => {
            refused("--untraced is for one recording")
        }
        () => Ok(()),
    }
}

/// How the times of a profile are corrected.
pub fn correction(
    arguments: &ReportArguments,
    profile: &Profile,
    runs: &[Run],
) -> Result<Correction, Failure> {
    let correction = profile.correction().unwrap_or_default();
    let (Some(untraced_ns), [run]) = (untraced(&arguments.untraced)?, runs) else { return Ok(correction) };
    let (Some(traced_ns), true) = (run.whole.cpu_ns, run.whole.all_calls > 0) else {
        return Err(Failure::of(&run.path, NO_CPU_TIME));
    };
    let whole = WholeRun { traced_ns, untraced_ns, hooks_ps: run.whole.hooks_ps(profile) };
    correction.with_untraced(whole).ok_or_else(|| {
        let took = Duration { ns: traced_ns };
        let why = format!("--untraced: the recorded program took {took} of CPU time, no more than that; it must be the same work");
        Failure::of(&run.path, why)
    })
}

/// The corrected total or own time of a group.
pub fn of(correction: &Correction, sums: &Sums, order: Order) -> Corrected {
    match order {
        Order::TotalTime => correction.corrected(sums.total_ns, sums.hooks.total_ps),
        _ => correction.corrected(sums.own_ns, sums.hooks.own_ps),
    }
}

/// Sorts rows by the corrected time.
pub fn sort(correction: &Correction, rows: &mut [Row<'_>], order: Order) {
    if matches!(order, Order::TotalTime | Order::OwnTime) {
        rows.sort_by_key(|row| Reverse(of(correction, row.sums, order).time.value));
    }
}

/// A corrected time with its error bar.
pub fn shown(corrected: &Corrected) -> String {
    let (value, error) = (Duration { ns: corrected.time.value }, Duration { ns: corrected.time.error() });
    format!("{value} ±{error}")
}

/// Cost of hooks in all calls of a profile.
fn hooks(correction: &Correction, profile: &Profile) -> Bars {
    correction.cost(profile.hooks_ps())
}

/// Cost of hooks as JSON: in all calls of a profile, and in all calls that were made, also those
/// missing in the trace; null where these weren't counted.
pub fn hooks_json(correction: &Correction, profile: &Profile, runs: &[Run]) -> [(&'static str, Value); 2] {
    let json = |cost: Bars| json!({ "low": cost.low, "value": cost.value, "high": cost.high });
    let all = match runs {
        [run] if run.whole.all_calls > 0 => json(correction.cost(run.whole.hooks_ps(profile))),
        _ => Value::Null,
    };
    [("hooks_ns", json(hooks(correction, profile))), ("all_hooks_ns", all)]
}

/// The corrected times of a group, by name.
pub fn add_numbers(object: &mut Map<String, Value>, correction: &Correction, sums: &Sums) {
    for (name, order) in [("total", Order::TotalTime), ("own", Order::OwnTime)] {
        let time = of(correction, sums, order).time;
        for (suffix, ns) in [("", time.value), ("_low", time.low), ("_high", time.high)] {
            object.insert(format!("corrected_{name}{suffix}_ns"), json!(ns));
        }
    }
}

/// Says what the figures are.
pub fn explain(correction: &Correction, profile: &Profile, rows: &[Row<'_>], is_by_run: bool) {
    let hooks = hooks(correction, profile);
    let measured = match is_by_run {
        true => "by the program's CPU time without tracing",
        false => "by prices that were measured at its start; --untraced makes that more exact",
    };
    let [low, value, high] = [hooks.low, hooks.value, hooks.high].map(|ns| Duration { ns });
    say!("everycall: corrected: hooks took {value} of these calls' time ({low} to {high}), {measured}");
    let clamped = rows.iter().filter(|row| {
        [Order::TotalTime, Order::OwnTime].iter().any(|order| of(correction, row.sums, *order).is_clamped)
    });
    let clamped = clamped.count() as u64;
    if clamped > 0 {
        say!(
            "everycall: {} would be below 0, as hooks cost less there than on the whole: shown as 0",
            Several(clamped, "row", "rows")
        );
    }
    if profile.notes.dropped_short > 0 {
        say!(
            "everycall: what the hooks of {} dropped short calls cost is still in these times",
            Count(profile.notes.dropped_short)
        );
    }
}
