//! How fast reports are made of a trace, on one core.

use super::decode::{Trace, traced_program};
use super::lab::Lab;
use super::rounds::{Words, words};
use super::table::{Table, Target};

/// Measures.
///
/// # Errors
/// What failed, as a sentence.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let sizes = if is_quick { ["10000", "40000"] } else { ["30000", "120000"] };
    let mut table = Table::new(
        "Reports, one core",
        &["what", "million events", "million events/s", "target", "peak MiB", "file MiB", "bytes/event"],
    );
    table.note(
        "Events of SQLite's trace per second of CPU time, start and symbols included; output thrown away. --explain goes through the trace \
         twice. Two sizes: memory must not grow with the file.",
    );
    let program = traced_program(lab)?;
    for rows in sizes {
        let trace = Trace::record(lab, &program, rows)?;
        for (name, options, target) in REPORTS {
            let mut command: Words = words([lab.everycall()]);
            command.extend(words(["report"]));
            command.extend(words(options));
            command.push(trace.path().into());
            match trace.row(lab, name, command, target.map(Target::Least), is_quick) {
                Ok(cells) => table.row(cells),
                Err(why) => table.failure(name, &why),
            }
        }
    }
    Ok(vec![table])
}

/// Name, options, and how many million events a second there should be.
const REPORTS: [(&str, &[&str], Option<f64>); 8] = [
    ("report", &[], Some(20.0)),
    ("report -f json", &["-f", "json"], Some(20.0)),
    ("--by thread", &["--by", "thread"], None),
    ("--function", &["--function", "^sqlite3Btree"], None),
    ("--tree", &["--tree"], None),
    ("--callers", &["--callers", "sqlite3VdbeExec"], None),
    ("--slowest", &["--slowest", "sqlite3VdbeExec"], None),
    ("--explain", &["--explain", "sqlite3VdbeExec"], None),
];
