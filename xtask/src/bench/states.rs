//! Cost of `record --states`: a switch of a thread, a program that never waits, and start and
//! end.

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
const TURNS: &str = "100000";
/// For how long, in seconds, a program computes.
const COMPUTES: &str = "2";

/// Measures.
///
/// # Errors
/// The program can't be built. A source that can't be used is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let mut table = Table::new(
        "record --states",
        &["source", "a switch more, us", "target", "never waits", "target of it", "start and end more, ms"],
    );
    table.note(
        "CPU time of `record`, the program and the kernel in both, on one CPU, in turns without and with --states: of two threads that pass a byte \
         to and fro, for each time that one is put on the CPU; of each second of a program that only computes, as a ratio; and of one that \
         ends at once, as a difference.",
    );
    let compiler = || lab.compiler(Mode::NOPS.compiler, Some(Mode::NOPS.name));
    let object = lab.compile(compiler(), "switches.c", &[], "switches.o")?;
    let program = lab.link(compiler(), &[&object], &["-lpthread"], "switches")?;
    for source in ["perf", "tracefs", "perf+tracefs", "best", "schedstat"] {
        match of_source(lab, &program, source, if is_quick { 3 } else { 15 }) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(source, &why),
        }
    }
    Ok(vec![table])
}

fn of_source(lab: &Lab, program: &Path, source: &str, rounds: usize) -> Result<Vec<Cell>, String> {
    let file = lab.path("states.ect");
    let record = |states: Option<&str>, arguments: &[&str]| -> Words {
        let mut all = words([lab.everycall().as_os_str(), "record".as_ref(), "--quiet".as_ref()]);
        all.extend(states.map(|states| format!("--states={states}").into()));
        all.extend(words(["-o".as_ref(), file.as_os_str(), "--".as_ref(), program.as_os_str()]));
        all.extend(words(arguments));
        all
    };
    let both = |arguments: &[&str]| [record(None, arguments), record(Some(source), arguments)];
    let turns: f64 = TURNS.parse().map_err(|error| format!("{TURNS}: {error}"))?;
    let switches = Rounds::run(lab, rounds, true, &both(&[TURNS]))?;
    let text = lab.successful(lab.command(lab.everycall()).args(["info", "--format", "json"]).arg(&file))?;
    let info: Value =
        serde_json::from_str(&text).map_err(|error| format!("`info --format json`: {error}"))?;
    let told = info["states"]["source"].as_str().unwrap_or("nothing");
    if source != "best" && told != source {
        return Err(format!("the states are from {}: {}", info["states"]["source"], info["states"]["text"]));
    }
    let more = |without: &Run, with: &Run| with.cpu_ns - without.cpu_ns;
    let switch = switches.pairs(0, 1, |without, with| more(without, with) / 1e3 / (2.0 * turns))?;
    // Start and end are in both runs.
    let [without_short, with_short] = both(&["0", "0"]);
    let [without_long, with_long] = both(&["0", COMPUTES]);
    let quiet = Rounds::run(lab, rounds, true, &[without_short, with_short, without_long, with_long])?;
    let running = quiet.each(|[without_short, with_short, without_long, with_long]| {
        more(with_short, with_long) / more(without_short, without_long)
    })?;
    let ends = quiet.pairs(0, 1, |without, with| more(without, with) / 1e6)?;
    Ok(vec![
        Cell::text(if told == source { source.to_owned() } else { format!("{source}: {told}") }),
        Cell::Measured(switch, 2),
        Cell::Target(Target::Most(SWITCH_US), switch.median),
        Cell::Measured(running, 4),
        Cell::Target(Target::Most(QUIET), running.median),
        Cell::Measured(ends, 1),
    ])
}
