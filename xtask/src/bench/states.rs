//! What `record --states` costs: a switch of a thread, and a program that never waits.

use std::path::Path;

use serde_json::Value;

use super::lab::{Lab, Mode};
use super::rounds::{Rounds, Run, Words, words};
use super::table::{Cell, Table, Target};

/// CPU time of a switch, in microseconds.
const SWITCH_US: f64 = 2.0;
/// CPU time of a program that never waits, of that without states.
const QUIET: f64 = 1.01;
/// How often two threads pass a byte to and fro.
const TURNS: u32 = 100_000;

/// Measures.
///
/// # Errors
/// The program can't be built. A source that can't be used is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let mut table = Table::new(
        "record --states",
        &["source", "a switch more, us", "target", "a program that never waits", "target of it"],
    );
    table.note(
        "CPU time of `record`, the program and the kernel in both, on one CPU, in turns without and with --states: of two threads that pass a byte \
         to and fro, for each time that one is put on the CPU; and of a program that only computes, as a ratio.",
    );
    let compiler = || lab.compiler(Mode::NOPS.compiler, Some(Mode::NOPS.name));
    let object = lab.compile(compiler(), "switches.c", &[], "switches.o")?;
    let program = lab.link(compiler(), &[&object], &["-lpthread"], "switches")?;
    for source in ["perf", "tracefs", "perf+tracefs", "schedstat"] {
        match of_source(lab, &program, source, if is_quick { 3 } else { 15 }) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(source, &why),
        }
    }
    Ok(vec![table])
}

fn of_source(lab: &Lab, program: &Path, source: &str, rounds: usize) -> Result<Vec<Cell>, String> {
    let file = lab.path("states.ect");
    let choice = if source == "perf+tracefs" { "best" } else { source };
    let record = |states: Option<&str>, turns: u32| -> Words {
        let mut all = words([lab.everycall().as_os_str(), "record".as_ref(), "--quiet".as_ref()]);
        all.extend(states.map(|states| format!("--states={states}").into()));
        all.extend(words(["-o".as_ref(), file.as_os_str(), "--".as_ref(), program.as_os_str()]));
        all.push(turns.to_string().into());
        all
    };
    let of = |turns: u32| Rounds::run(lab, rounds, true, &[record(None, turns), record(Some(choice), turns)]);
    let switches = of(TURNS)?;
    let text = lab.successful(lab.command(lab.everycall()).args(["info", "--format", "json"]).arg(&file))?;
    let info: Value =
        serde_json::from_str(&text).map_err(|error| format!("`info --format json`: {error}"))?;
    if info["states"]["source"] != source {
        return Err(format!("the states are from {}: {}", info["states"]["source"], info["states"]["text"]));
    }
    let per_switch =
        |without: &Run, with: &Run| (with.cpu_ns - without.cpu_ns) / 1e3 / (2.0 * f64::from(TURNS));
    let switch = switches.pairs(0, 1, per_switch)?;
    let quiet = of(0)?.pairs(0, 1, |without, with| with.cpu_ns / without.cpu_ns)?;
    Ok(vec![
        Cell::text(source),
        Cell::Measured(switch, 2),
        Cell::Target(Target::Most(SWITCH_US), switch.median),
        Cell::Measured(quiet, 4),
        Cell::Target(Target::Most(QUIET), quiet.median),
    ])
}
