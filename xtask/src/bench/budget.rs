//! `EVERYCALL_BUDGET`: what programs take while it keeps tracing below 3 %, from the second second on.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::lab::{Lab, Mode};
use super::orders::{Orders, SECTIONS, middle, range};
use super::rounds::{Rounds, Run, words};
use super::table::{Cell, Table, Target};
use super::workload::Workload;

/// The budget.
const BUDGET: &str = "3%";
/// Permitted time of a program, as a multiple of its untraced time.
const MOST: f64 = 1.04;

/// Measures.
///
/// # Errors
/// A program can't be built. A mode that fails later is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let mut table = Table::new(
        "Programs under --budget 3%",
        &[
            "program",
            "mode",
            "traced/untraced",
            "with --budget 3%",
            "target",
            "orders",
            "of the same program with tracing off",
            "functions off",
            "calls/s that remain",
        ],
    );
    table.note(
        "CPU time of rounds from the second second on, as a ratio: the median over orders of the functions (9 in nops and xray) of the median of 3 pairs. \
         Untraced: compiled without everycall, in the same orders; tracing off: the same binary with EVERYCALL_START=off. Functions that are off at the \
         end, and calls per second of CPU time that are in the trace of another run.",
    );
    let modes = [
        Mode::NOPS,
        Mode::XRAY,
        Mode { compiler: "gcc", name: "fentry" },
        Mode { compiler: "gcc", name: "finstrument" },
    ];
    for workload in [Workload::FIBONACCI, Workload::SQLITE] {
        for mode in modes {
            match of_program(lab, workload, mode, is_quick) {
                Ok(cells) => table.row(cells),
                Err(why) => table.failure(&format!("{} {}", workload.name, mode.label()), &why),
            }
        }
    }
    Ok(vec![table])
}

/// The objects of a program that does its work again and again.
fn compile(
    lab: &Lab,
    workload: Workload,
    compiler: &str,
    mode: Option<&str>,
) -> Result<Vec<PathBuf>, String> {
    let name = format!("again {} {compiler} {}", workload.name, mode.unwrap_or("plain"));
    let again = lab.compile(lab.compiler("gcc", None), "again.c", &[], "again.o")?;
    let options = [&SECTIONS[..], &["-Dmain=program"]].concat();
    let mut objects = workload.compile(lab, || lab.compiler(compiler, mode), &options, &name)?;
    // Its place is taken by the loop's.
    objects.retain(|object| object.file_name().is_none_or(|name| name != "region.o"));
    objects.push(again);
    Ok(objects)
}

fn of_program(lab: &Lab, workload: Workload, mode: Mode, is_quick: bool) -> Result<Vec<Cell>, String> {
    let plain = compile(lab, workload, mode.compiler, None)?;
    let traced = compile(lab, workload, mode.compiler, Some(mode.name))?;
    let functions = Orders::of(lab, mode.compiler, &plain)?;
    let argument = workload.argument(true);
    let run = |program: &Path, variable: &str| {
        let variable: &std::ffi::OsStr = variable.as_ref();
        words([variable, program.as_os_str(), argument.as_ref()])
    };
    let budget = format!("EVERYCALL_BUDGET={BUDGET}");
    // Modes whose hooks are always called are far from it, whatever the order.
    let (orders, pairs) = match mode.name {
        "nops" | "xray" if is_quick => (3, 1),
        "nops" | "xray" => (9, 3),
        _ => (1, 3),
    };
    let (mut all, mut kept, mut of_off) = (Vec::new(), Vec::new(), Vec::new());
    let mut program = PathBuf::new();
    for seed in 1..=orders {
        let name = |label: &str| format!("again {} {label}", workload.name);
        let plain = functions.link(seed, None, &plain, &name("plain"))?;
        program = functions.link(seed, Some(mode.name), &traced, &name(mode.name))?;
        let rounds = Rounds::run(
            lab,
            pairs,
            true,
            &[
                run(&plain, "A=1"),
                run(&program, "A=1"),
                run(&program, &budget),
                run(&program, "EVERYCALL_START=off"),
            ],
        )?;
        let ratio = |first: usize, second: usize| {
            let ratio = |one: &Run, other: &Run| other.region_or_cpu_ns() / one.region_or_cpu_ns();
            Ok::<f64, String>(rounds.pairs(first, second, ratio)?.median)
        };
        all.push(ratio(0, 1)?);
        kept.push(ratio(0, 2)?);
        of_off.push(ratio(3, 2)?);
        eprintln!("bench: {} {} order {seed}: {:.3}", workload.name, mode.label(), kept[kept.len() - 1]);
    }
    let range = range(&kept);
    let kept = middle(kept)?;
    let file = lab.path("budget.ect");
    let mut command = lab.pinned(lab.everycall());
    command.args(["record", "--quiet", "--budget", BUDGET, "--stream", "-o"]).arg(&file);
    lab.successful(command.arg("--").arg(&program).arg(argument))?;
    let text = lab.successful(lab.command(lab.everycall()).args(["info", "--format", "json"]).arg(&file))?;
    let info: Value =
        serde_json::from_str(&text).map_err(|error| format!("`info --format json`: {error}"))?;
    let functions = info["budget"]["functions"].as_array().map_or(&[][..], Vec::as_slice);
    let off = functions.iter().filter(|function| function["off_at_end"] == true).count();
    let calls = info["calls"].as_f64().unwrap_or(0.0) / (info["duration_ns"].as_f64().unwrap_or(1.0) / 1e9);
    Ok(vec![
        Cell::text(workload.name),
        Cell::text(mode.label()),
        Cell::Number(middle(all)?, 2),
        Cell::Number(kept, 3),
        Cell::Target(Target::Most(MOST), kept),
        Cell::text(range),
        Cell::Number(middle(of_off)?, 3),
        Cell::text(off.to_string()),
        Cell::Number(calls, 0),
    ])
}
