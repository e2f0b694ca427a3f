//! `record --min-duration`: what an event of a call costs that is dropped, and how much further
//! back a ring reaches.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cost;
use super::lab::{Lab, Mode};
use super::rounds::{Rounds, words};
use super::stats::Spread;
use super::table::{Cell, Table, Target};
use super::workload::Workload;

/// Runs of each kind, one after the other.
const ROUNDS: usize = 9;
const PAIRS: &str = "31";
/// Calls that are shorter are dropped.
const SHORTEST: &str = "500ns";
/// Permitted cost of a dropped call's event, as a multiple of a recorded event's.
const COST_MOST: f64 = 1.10;
/// How much further back a ring has to reach.
const REACH_LEAST: f64 = 10.0;
/// The ring's size: small, so that every program fills it in both ways.
const RING: &str = "64K";

/// Measures.
///
/// # Errors
/// A program can't be built. A mode that fails later is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let rounds = if is_quick { 3 } else { ROUNDS };
    let meter = cost::meter(lab)?;
    let mut events = Table::new(
        "An event of a call that is dropped",
        &["mode", "recorded, of rdtsc", "dropped", "dropped/recorded", "target"],
    );
    events.note(format!(
        "The loop of \"Cost per event\" under `record`, without and with --min-duration {SHORTEST}, in turns: every call is recorded, or every one \
         is dropped and counted. Of the cost of back-to-back rdtsc; median (quartiles)."
    ));
    for mode in Mode::installed().filter(|mode| mode.compiler != "clang-22") {
        match of_mode(lab, mode, &meter, rounds) {
            Ok(cells) => events.row(cells),
            Err(why) => events.failure(&mode.label(), &why),
        }
    }
    let mut reach = Table::new(
        "How far back a ring reaches",
        &[
            "program",
            "mode",
            "recorded, ms",
            "with --min-duration, ms",
            "times",
            "target",
            "dropped, %",
            "CPU time",
        ],
    );
    reach.note(format!(
        "Rings of {RING}, --min-duration {SHORTEST}. Time that the ring of the program's main thread covers at its end; of the calls that \
         the program made, those that were dropped; CPU time with the option against that without, median (quartiles) of pairs."
    ));
    for workload in [Workload::FIBONACCI, Workload::SQLITE] {
        for mode in [Mode::NOPS, Mode::XRAY, Mode { compiler: "gcc", name: "finstrument" }] {
            match of_program(lab, workload, mode, is_quick, rounds) {
                Ok(cells) => reach.row(cells),
                Err(why) => reach.failure(&format!("{} {}", workload.name, mode.label()), &why),
            }
        }
    }
    Ok(vec![events, reach])
}

fn of_mode(lab: &Lab, mode: Mode, meter: &Path, rounds: usize) -> Result<Vec<Cell>, String> {
    let program = cost::build(lab, mode, meter)?;
    let event = |options: &[&str]| {
        let mut command = lab.pinned(lab.everycall());
        command.args(["record", "--quiet"]).args(options).arg("-o").arg(lab.path("min-duration.ect"));
        command.arg("--").arg(&program).args(["warm", PAIRS]);
        Ok::<f64, String>(cost::of_clock_reads_in(&lab.successful(&mut command)?)?.median)
    };
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        pairs.push((event(&[])?, event(&["--min-duration", SHORTEST])?));
    }
    let of = |figure: fn(&(f64, f64)) -> f64| Spread::of(pairs.iter().map(figure).collect());
    let ratio = of(|(recorded, dropped)| dropped / recorded)?;
    Ok(vec![
        Cell::text(mode.label()),
        Cell::Measured(of(|(recorded, _)| *recorded)?, 3),
        Cell::Measured(of(|(_, dropped)| *dropped)?, 3),
        Cell::Measured(ratio, 3),
        Cell::Target(Target::Most(COST_MOST), ratio.median),
    ])
}

fn of_program(
    lab: &Lab,
    workload: Workload,
    mode: Mode,
    is_short: bool,
    rounds: usize,
) -> Result<Vec<Cell>, String> {
    let name = format!("{} {}", workload.name, mode.label());
    let objects = workload.compile(lab, || lab.compiler(mode.compiler, Some(mode.name)), &[], &name)?;
    let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
    let linker = lab.compiler(mode.compiler, Some(mode.name));
    let program = lab.link(linker, &objects, &["-lm", "-lpthread"], &format!("short {name}"))?;
    let argument = workload.argument(is_short);
    let covered = |options: &[&str]| {
        let path = lab.path("reach.ect");
        let mut command = lab.pinned(lab.everycall());
        command.args(["record", "--quiet", "--ring-size", RING]).args(options).arg("-o").arg(&path);
        lab.successful(command.arg("--").arg(&program).arg(argument))?;
        Covered::read(lab, &path)
    };
    let (recorded, dropped) = (covered(&[])?, covered(&["--min-duration", SHORTEST])?);
    let times = dropped.reach_ms / recorded.reach_ms;
    let run = |shortest: &'static str| {
        let variable: &std::ffi::OsStr = shortest.as_ref();
        words([variable, program.as_os_str(), argument.as_ref()])
    };
    let both = Rounds::run(
        lab,
        rounds,
        true,
        &[run("EVERYCALL_MIN_DURATION=0"), run("EVERYCALL_MIN_DURATION=500ns")],
    )?;
    let time = both.pairs(0, 1, |without, with| with.region_or_cpu_ns() / without.region_or_cpu_ns())?;
    Ok(vec![
        Cell::text(workload.name),
        Cell::text(mode.label()),
        Cell::Number(recorded.reach_ms, 3),
        Cell::Number(dropped.reach_ms, 3),
        Cell::Number(times, 1),
        Cell::Target(Target::Least(REACH_LEAST), times),
        Cell::Number(100.0 * dropped.dropped / recorded.calls, 1),
        Cell::Measured(time, 3),
    ])
}

/// The extent of a trace.
struct Covered {
    reach_ms: f64,
    /// Calls that were made, those included whose events were overwritten.
    calls: f64,
    dropped: f64,
}

impl Covered {
    fn read(lab: &Lab, path: &Path) -> Result<Covered, String> {
        let text =
            lab.successful(lab.command(lab.everycall()).args(["info", "--format", "json"]).arg(path))?;
        let info: Value =
            serde_json::from_str(&text).map_err(|error| format!("`info --format json`: {error}"))?;
        let thread = &info["threads"][0];
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let events = number(&thread["events"]) + number(&thread["segments_lost_events"]);
        // Overwritten segments are full: of 64 KiB a ring has 16 segments of 4 KiB, of which 12
        // words aren't events'.
        let overwritten = number(&thread["segments_overwritten"]) * (4096.0 / 8.0 - 12.0);
        Ok(Covered {
            reach_ms: (number(&thread["last_ns"]) - number(&thread["first_ns"])) / 1e6,
            calls: (events + overwritten) / 2.0,
            dropped: number(&info["dropped_calls"]["calls"]),
        })
    }
}
