//! Cost of one event: an empty function that is called in a loop.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::lab::{Lab, Mode};
use super::stats::Spread;
use super::table::{Cell, Table, Target};
use crate::step::workspace;

/// The row of Rust's code.
const RUST: &str = "rustc (cargo everycall)";
/// Of hooks that are called as `__cyg_profile_func_enter`.
const CYG_PROFILE: Target = Target::Most(1.10);
const PAIRS: &str = "31";
const FIRST_LAPS: usize = 31;

/// Measures.
///
/// # Errors
/// Only where the floor itself can't be measured: a mode that fails is a row that says so.
pub fn run(lab: &Lab) -> Result<Vec<Table>, String> {
    let meter = meter(lab)?;
    let mut table = Table::new(
        "Cost per event",
        &[
            "mode",
            "of rdtsc",
            "target",
            "under record",
            "ns",
            "first lap",
            "target of it",
            "first lap under record",
        ],
    );
    table.note(
        "An event is an entry or an exit. \"of rdtsc\": (traced - untraced loop of an empty call) / 2N over N back-to-back rdtsc / N; \
         warm ring of the default size, on one CPU; median (quartiles) of 31 pairs, of 31 processes for first laps.",
    );
    table.note("\"under record\": the same in the arena that `everycall record` owns.");
    for mode in Mode::installed() {
        match of_mode(lab, mode, &meter) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(&mode.label(), &why),
        }
    }
    match build_rust(lab, &meter).and_then(|program| of_program(lab, RUST, &program, CYG_PROFILE)) {
        Ok(cells) => table.row(cells),
        Err(why) => table.failure(RUST, &why),
    }
    Ok(vec![floor(lab, &meter)?, table])
}

/// Compiles the code that measures.
pub fn meter(lab: &Lab) -> Result<PathBuf, String> {
    lab.compile(lab.compiler("gcc", None), "cost.c", &[], "cost.o")
}

/// Cost of an event as a multiple of an rdtsc, from the output of a program that [`build`] has
/// built.
pub fn of_clock_reads_in(text: &str) -> Result<Spread, String> {
    Ticks::read(text)?.figure(of_clock_reads)
}

/// Lines of ticks per iteration, and the clock's frequency.
struct Ticks {
    lines: Vec<Vec<f64>>,
    per_us: f64,
}

impl Ticks {
    fn read(text: &str) -> Result<Ticks, String> {
        let mut lines = Vec::new();
        let mut per_us = None;
        for line in text.lines() {
            match line.strip_prefix("ticks/us ") {
                Some(number) => per_us = number.parse().ok(),
                None => lines.push(line.split(' ').filter_map(|number| number.parse().ok()).collect()),
            }
        }
        Ok(Ticks { lines, per_us: per_us.ok_or("`cost` printed no frequency")? })
    }

    /// Of each line.
    fn figure(&self, figure: impl Fn(&[f64]) -> Option<f64>) -> Result<Spread, String> {
        Spread::of(self.lines.iter().filter_map(|line| figure(line)).collect())
    }
}

/// Of `plain, traced, rdtsc`: what an event costs, in the cost of an rdtsc.
fn of_clock_reads(line: &[f64]) -> Option<f64> {
    let &[plain, traced, clock_read] = line else { return None };
    Some((traced - plain) / 2.0 / clock_read)
}

fn of_mode(lab: &Lab, mode: Mode, meter: &Path) -> Result<Vec<Cell>, String> {
    let program = build(lab, mode, meter)?;
    let most = if mode.is_cyg_profile() { CYG_PROFILE } else { Target::Most(1.05) };
    of_program(lab, &mode.label(), &program, most)
}

fn of_program(lab: &Lab, label: &str, program: &Path, most: Target) -> Result<Vec<Cell>, String> {
    let recorded = |arguments: &[&str]| {
        let mut command = lab.pinned(lab.everycall());
        command.args(["record", "--quiet", "-o"]).arg(lab.path("cost.ect")).arg("--").arg(program);
        lab.successful(command.args(arguments)).and_then(|text| Ticks::read(&text))
    };
    let alone = |arguments: &[&str]| {
        lab.successful(lab.pinned(program).args(arguments)).and_then(|text| Ticks::read(&text))
    };
    let warm = alone(&["warm", PAIRS])?;
    let ratio = warm.figure(of_clock_reads)?;
    let ns = warm.figure(|line| Some((line.get(1)? - line.first()?) / 2.0 * 1e3 / warm.per_us))?;
    let first = |lap: &dyn Fn(&[&str]) -> Result<Ticks, String>| {
        let laps = (0..FIRST_LAPS).map(|_| lap(&["first"])?.figure(of_clock_reads));
        Spread::of(laps.map(|spread| spread.map(|spread| spread.median)).collect::<Result<_, _>>()?)
    };
    let first_alone = first(&alone)?;
    Ok(vec![
        Cell::text(label),
        Cell::Measured(ratio, 3),
        Cell::Target(most, ratio.median),
        Cell::Measured(recorded(&["warm", PAIRS])?.figure(of_clock_reads)?, 3),
        Cell::Measured(ns, 2),
        Cell::Measured(first_alone, 2),
        Cell::Target(Target::Most(1.6), first_alone.median),
        Cell::Measured(first(&recorded)?, 2),
    ])
}

/// The program that measures a mode.
pub fn build(lab: &Lab, mode: Mode, meter: &Path) -> Result<PathBuf, String> {
    let label = mode.label();
    let [plain, traced] = loops(lab, mode)?;
    let linker = lab.compiler(mode.compiler, Some(mode.name));
    lab.link(linker, &[meter, &plain, &traced], &[], &format!("cost {label}"))
}

/// The program that measures Rust's code.
fn build_rust(lab: &Lab, meter: &Path) -> Result<PathBuf, String> {
    let target = lab.path("rust-calls");
    let library = |mut command: Command, options: &[&str], folder: &str| {
        command.args(["build", "--quiet", "--release", "--offline", "--manifest-path"]);
        command.arg(workspace().join("benches/rust-calls/Cargo.toml")).args(options);
        // Those of the cargo that runs this.
        command.env_remove("CARGO_MANIFEST_DIR").env("CARGO_TARGET_DIR", &target);
        lab.successful(&mut command)?;
        Ok::<_, String>(target.join(folder).join("release/libcalls.a"))
    };
    let plain = library(lab.command("cargo"), &["--features", "plain"], ".")?;
    let mut everycall = lab.command(lab.everycall());
    everycall.arg("cargo");
    let traced = library(everycall, &[], "everycall")?;
    let linker = lab.compiler("gcc", Some(Mode::NOPS.name));
    // Both have what is called by a panic.
    lab.link(linker, &[meter, &plain, &traced], &["-Wl,--allow-multiple-definition"], "cost rust")
}

/// The loops without and with hooks.
pub fn loops(lab: &Lab, mode: Mode) -> Result<[PathBuf; 2], String> {
    let label = mode.label();
    let compile = |through: Option<&str>, name: &str| {
        let compiler = lab.compiler(mode.compiler, through);
        let option = format!("-DNAME={name}");
        lab.compile(compiler, "calls.c", &[&option], &format!("calls {label} {name}.o"))
    };
    Ok([compile(None, "plain")?, compile(Some(mode.name), "traced")?])
}

/// The cost, on this machine, of any hook that reads the clock.
fn floor(lab: &Lab, meter: &Path) -> Result<Table, String> {
    let [plain, _] = loops(lab, Mode::NOPS)?;
    // No second object of loops: the floor's own are in the meter.
    let traced = lab.compile(lab.compiler("gcc", None), "calls.c", &["-DNAME=traced"], "calls untraced.o")?;
    let program = lab.link(lab.compiler("gcc", None), &[meter, &plain, &traced], &[], "cost floor")?;
    let ticks = Ticks::read(&lab.successful(lab.pinned(program).args(["floor", PAIRS]))?)?;
    let mut table = Table::new("The machine's floor", &["what a function calls twice", "ns", "of rdtsc"]);
    table.note(
        "What a hook costs beyond \"call; rdtsc; ret\" is everycall's: saving registers, reserving a slot, the open-call stack, the word. Where \
         other instructions are executed beside `rdtsc` (AMD Zen), nearly all of that hides behind it; where it is microcode that keeps the \
         decoder busy (Intel), nearly nothing does.",
    );
    let ns = 1e3 / ticks.per_us;
    let hooks = |which: usize| move |line: &[f64]| Some((line.get(which)? - line.first()?) / 2.0);
    for (name, which) in [("call; ret", 1), ("call; rdtsc; ret", 2)] {
        let spread = ticks.figure(hooks(which))?.scaled(ns);
        let ratio = ticks.figure(|line| Some(hooks(which)(line)? / line.get(3)?))?;
        table.row(vec![Cell::text(name), Cell::Measured(spread, 2), Cell::Measured(ratio, 3)]);
    }
    let clock_read = ticks.figure(|line| line.get(3).copied())?.scaled(ns);
    table.row(vec![Cell::text("rdtsc, back to back"), Cell::Measured(clock_read, 2), Cell::Number(1.0, 3)]);
    Ok(table)
}
