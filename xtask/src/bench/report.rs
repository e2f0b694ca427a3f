//! How fast reports are made of a trace, on one core.

use super::decode::{rates, verb};
use super::lab::Lab;
use super::table::{Table, Target};

/// Measures.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let note = "Events of SQLite's trace per second of CPU time, start and symbols included; output thrown away. --explain goes through the trace \
         twice. Two sizes: memory must not grow with the file.";
    rates(lab, is_quick, "Reports, one core", note, |trace| {
        let reader = |(name, options, least): (_, &[&str], Option<f64>)| {
            (name, verb(lab, &[&["report"], options].concat(), trace), least.map(Target::Least))
        };
        REPORTS.map(reader).into()
    })
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
