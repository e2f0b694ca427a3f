//! Time to switch all sites of a large program while it runs, and the delays of its threads.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use super::lab::{Lab, Mode};
use super::stats::Spread;
use super::table::{Cell, Table, Target};

/// Functions of the program; each has an entry and an exit.
const FUNCTIONS: usize = 50_000;
/// The most milliseconds for all sites.
const MOST_MS: f64 = 50.0;
/// The most microseconds that a thread may be stopped.
const MOST_US: f64 = 100.0;

/// Measures.
///
/// # Errors
/// The sources can't be written. A mode that fails is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let source = lab.path("switch_functions.c");
    fs::write(&source, functions()).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut table = Table::new(
        "Switching 100,000 sites while threads run",
        &[
            "mode",
            "off, ms",
            "on, ms",
            "target",
            "longest pause, us",
            "target",
            "of that without switching, us",
        ],
    );
    table.note(
        "everycall_disable() and everycall_enable() in a program of 50,000 functions, without `record`. The pause is the longest time \
         between two calls of another thread, which calls functions at random. Median (quartiles) of rounds. On a busy machine, pauses \
         are the scheduler's.",
    );
    let rounds = if is_quick { "20" } else { "200" };
    for mode in [Mode::NOPS, Mode::XRAY] {
        match of_mode(lab, mode, &source, rounds) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(&mode.label(), &why),
        }
    }
    Ok(vec![table])
}

/// The functions, each of its own, and a table of them.
fn functions() -> String {
    let mut text = String::new();
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "unsigned f{number}(unsigned n) {{ return n ^ {number}u; }}");
    }
    text.push_str("unsigned (*const functions[])(unsigned) = {\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "f{number},");
    }
    let _ = writeln!(text, "}};\nconst unsigned function_count = {FUNCTIONS};");
    text
}

fn of_mode(lab: &Lab, mode: Mode, source: &PathBuf, rounds: &str) -> Result<Vec<Cell>, String> {
    let include = format!("-I{}", super::lab::program("../../crates/building/kit/include").display());
    let compiler = || lab.compiler(mode.compiler, Some(mode.name));
    let objects = [
        lab.compile(compiler(), source, &[], &format!("switch functions {}.o", mode.label()))?,
        lab.compile(compiler(), "switch.c", &[&include], &format!("switch {}.o", mode.label()))?,
    ];
    let program = lab.link(
        compiler(),
        &[&objects[0], &objects[1]],
        &["-pthread"],
        &format!("switch {}", mode.label()),
    )?;
    let printed = lab.successful(lab.command(&program).arg(rounds))?;
    let spread = |kind: &str| {
        let of_kind = |line: &str| line.strip_prefix(kind)?.strip_prefix(' ')?.parse::<f64>().ok();
        Spread::of(printed.lines().filter_map(of_kind).collect())
    };
    let (off, on, busy) = (spread("off")?, spread("on")?, spread("busy")?);
    let slower = off.median.max(on.median);
    let pause = busy.median;
    Ok(vec![
        Cell::text(mode.label()),
        Cell::Measured(off, 2),
        Cell::Measured(on, 2),
        Cell::Target(Target::Most(MOST_MS), slower),
        Cell::Measured(busy, 1),
        Cell::Target(Target::Most(MOST_US), pause),
        Cell::Measured(spread("quiet")?, 1),
    ])
}
