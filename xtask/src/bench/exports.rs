//! How fast a trace is exported in each format, on one core.

use super::decode::{Trace, timeline, traced_program};
use super::lab::Lab;
use super::rounds::{Words, words};
use super::table::{Table, Target};

/// Million events a second that formats of text have to reach, JSON above all.
const TEXT: f64 = 5.0;
/// Those that binary formats have to reach.
const BINARY: f64 = 10.0;

/// Name of each format, and how many million events a second there should be.
const FORMATS: [(&str, f64); 14] = [
    ("vizviewer", TEXT),
    ("chrome", TEXT),
    ("perfetto", BINARY),
    ("csv", TEXT),
    ("jsonl", TEXT),
    ("parquet", BINARY),
    ("speedscope", TEXT),
    ("firefox", TEXT),
    ("folded", TEXT),
    ("flamegraph", TEXT),
    ("pprof", BINARY),
    ("callgrind", TEXT),
    ("dot", TEXT),
    ("mermaid", TEXT),
];

/// Measures.
///
/// # Errors
/// What failed, as a sentence.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let sizes = if is_quick { ["10000", "40000"] } else { ["30000", "120000"] };
    let mut table = Table::new(
        "Exports, one core",
        &["format", "million events", "million events/s", "target", "peak MiB", "file MiB", "bytes/event"],
    );
    table.note(
        "Events of SQLite's trace per second of CPU time, start, decoding and symbols included; output thrown away. The timeline is what \
         all of them need: nothing but decoding. Two sizes: memory must not grow with the file.",
    );
    let program = traced_program(lab)?;
    for rows in sizes {
        let trace = Trace::record(lab, &program, rows)?;
        let floor = [("timeline", timeline(trace.path())?, None)];
        let formats = FORMATS.map(|(format, least)| {
            let mut command: Words = words([lab.everycall()]);
            command.extend(words(["export", "--format", format, "-o", "-"]));
            command.push(trace.path().into());
            (format, command, Some(Target::Least(least)))
        });
        for (name, command, target) in floor.into_iter().chain(formats) {
            match trace.row(lab, name, command, target, is_quick) {
                Ok(cells) => table.row(cells),
                Err(why) => table.failure(name, &why),
            }
        }
    }
    Ok(vec![table])
}
