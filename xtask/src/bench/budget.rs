//! `EVERYCALL_BUDGET`: what programs take while it keeps tracing below 3 %, from the second second on.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::lab::{Lab, Mode};
use super::rounds::{Rounds, words};
use super::table::{Cell, Table, Target};
use super::workload::Workload;

/// The budget.
const BUDGET: &str = "3%";
/// What a program may take, of what it takes untraced.
const MOST: f64 = 1.04;
const ROUNDS: usize = 9;

/// Measures.
///
/// # Errors
/// A program can't be built. A mode that fails later is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let rounds = if is_quick { 3 } else { ROUNDS };
    let mut table = Table::new(
        "Programs under --budget 3%",
        &[
            "program",
            "mode",
            "traced/untraced",
            "with --budget 3%",
            "target",
            "of the same program with tracing off",
            "functions off",
            "calls/s that remain",
        ],
    );
    table.note(
        "CPU time of rounds from the second second on, as a ratio; median (quartiles) of pairs. Untraced: compiled without everycall, so that the \
         places of functions differ; tracing off: the same binary with EVERYCALL_START=off. Functions that are off at the end, and calls per second \
         of CPU time that are in the trace of another run.",
    );
    let modes = [
        Mode::NOPS,
        Mode::XRAY,
        Mode { compiler: "gcc", name: "fentry" },
        Mode { compiler: "gcc", name: "finstrument" },
    ];
    for workload in [Workload::FIBONACCI, Workload::SQLITE] {
        for mode in modes {
            match of_program(lab, workload, mode, rounds) {
                Ok(cells) => table.row(cells),
                Err(why) => table.failure(&format!("{} {}", workload.name, mode.label()), &why),
            }
        }
    }
    Ok(vec![table])
}

/// Builds a program that does its work again and again.
fn build(lab: &Lab, workload: Workload, compiler: &str, mode: Option<&str>) -> Result<PathBuf, String> {
    let name = format!("again {} {compiler} {}", workload.name, mode.unwrap_or("plain"));
    let again = lab.compile(lab.compiler("gcc", None), "again.c", &[], "again.o")?;
    let compile = || lab.compiler(compiler, mode);
    let mut objects = workload.compile(lab, compile, &["-Dmain=program"], &name)?;
    // Its place is taken by the loop's.
    objects.retain(|object| object.file_name().is_none_or(|name| name != "region.o"));
    objects.push(again);
    let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
    lab.link(compile(), &objects, &["-lm", "-lpthread"], &name)
}

fn of_program(lab: &Lab, workload: Workload, mode: Mode, rounds: usize) -> Result<Vec<Cell>, String> {
    let plain = build(lab, workload, mode.compiler, None)?;
    let traced = build(lab, workload, mode.compiler, Some(mode.name))?;
    let argument = workload.argument(true);
    let run = |program: &Path, variable: &str| {
        let variable: &std::ffi::OsStr = variable.as_ref();
        words([variable, program.as_os_str(), argument.as_ref()])
    };
    let budget = format!("EVERYCALL_BUDGET={BUDGET}");
    let all = Rounds::run(
        lab,
        rounds,
        true,
        &[
            run(&plain, "A=1"),
            run(&traced, "A=1"),
            run(&traced, &budget),
            run(&traced, "EVERYCALL_START=off"),
        ],
    )?;
    let times = |first: usize, second: usize| {
        all.pairs(first, second, |one, other| other.region_or_cpu_ns() / one.region_or_cpu_ns())
    };
    let kept = times(0, 2)?;
    let file = lab.path("budget.ect");
    let mut command = lab.pinned(lab.everycall());
    command.args(["record", "--quiet", "--budget", BUDGET, "--stream", "-o"]).arg(&file);
    lab.successful(command.arg("--").arg(&traced).arg(argument))?;
    let text = lab.successful(lab.command(lab.everycall()).args(["info", "--format", "json"]).arg(&file))?;
    let info: Value =
        serde_json::from_str(&text).map_err(|error| format!("`info --format json`: {error}"))?;
    let functions = info["budget"]["functions"].as_array().map_or(&[][..], Vec::as_slice);
    let off = functions.iter().filter(|function| function["off_at_end"] == true).count();
    let calls = info["calls"].as_f64().unwrap_or(0.0) / (info["duration_ns"].as_f64().unwrap_or(1.0) / 1e9);
    Ok(vec![
        Cell::text(workload.name),
        Cell::text(mode.label()),
        Cell::Measured(times(0, 1)?, 2),
        Cell::Measured(kept, 3),
        Cell::Target(Target::Most(MOST), kept.median),
        Cell::Measured(times(3, 2)?, 3),
        Cell::text(off.to_string()),
        Cell::Number(calls, 0),
    ])
}
