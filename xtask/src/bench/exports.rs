//! How fast a trace is exported in each format, on one core.

use super::decode::{build_examples, rates, timeline, verb};
use super::lab::Lab;
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
/// The failure, as a sentence.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    build_examples()?;
    let note = "Events of SQLite's trace per second of CPU time, start, decoding and symbols included; output thrown away. The timeline is what \
         all of them need: nothing but decoding. Two sizes: memory must not grow with the file.";
    rates(lab, is_quick, "Exports, one core", note, |trace| {
        let export = |(format, least)| {
            (format, verb(lab, &["export", "--format", format, "-o", "-"], trace), Some(Target::Least(least)))
        };
        [("timeline", timeline(trace), None)].into_iter().chain(FORMATS.map(export)).collect()
    })
}
