//! Throughput of `record --stream`, and its cost.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::lab::{Lab, Mode};
use super::table::{Cell, Table, Target};
use crate::step::workspace;

/// Events in a second that two threads together shall be able to store.
const TARGET: f64 = 20.0;

/// Measures.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let calls = if is_quick { "2000000" } else { "20000000" };
    let mut table = Table::new(
        "Streams, two threads",
        &[
            "what",
            "million events",
            "lost, million",
            "million events/s",
            "target",
            "record's CPU, s",
            "bytes/event",
        ],
    );
    table.note(
        "Two threads call two functions without a pause, which no disk is slow for; the rate is that of the time from the first event to the \
         last. What is stored and what is lost is together what the program did.",
    );
    let program = traced_program(lab)?;
    for (name, options) in [("--stream", &[][..]), ("--stream --stall", &["--stall"][..])] {
        match row(lab, &program, name, options, calls) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(name, &why),
        }
    }
    Ok(vec![table])
}

fn traced_program(lab: &Lab) -> Result<PathBuf, String> {
    let compiler = || lab.compiler(Mode::NOPS.compiler, Some(Mode::NOPS.name));
    let source = workspace().join("tests/programs/stream.c");
    let object = lab.compile(compiler(), source, &["-g"], "stream.o")?;
    lab.link(compiler(), &[&object], &["-lpthread"], "stream")
}

fn row(lab: &Lab, program: &Path, name: &str, options: &[&str], calls: &str) -> Result<Vec<Cell>, String> {
    let path = lab.path("stream.ect");
    let mut record = lab.command(lab.everycall());
    record.args(["record", "--stream"]).args(options).arg("-o").arg(&path).arg("--");
    record.arg(program).args(["2", calls]);
    let output = record.output().map_err(|error| format!("`everycall record` can't be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{} of `everycall record`: {}", output.status, said.trim()));
    }
    let seconds = said.split_once("record took ").and_then(|(_, rest)| rest.split_once(" s of CPU time"));
    let cpu: f64 = seconds.and_then(|(text, _)| text.parse().ok()).ok_or("`record` tells no CPU time")?;
    let text = lab.successful(lab.command(lab.everycall()).args(["info", "--format", "json"]).arg(&path))?;
    let info: Value =
        serde_json::from_str(&text).map_err(|error| format!("`info --format json`: {error}"))?;
    let threads = info["threads"].as_array().ok_or("`info --format json` lists no threads")?;
    let sum = |key: &str| threads.iter().filter_map(|thread| thread[key].as_f64()).sum::<f64>();
    let times = |key: &'static str| threads.iter().filter_map(move |thread| thread[key].as_f64());
    let first = times("first_ns").fold(f64::INFINITY, f64::min);
    let last = times("last_ns").fold(0.0, f64::max);
    let events = sum("events");
    let rate = events / (last - first) * 1e3;
    let bytes = std::fs::metadata(&path).map_err(|error| format!("can't look at the trace: {error}"))?.len();
    Ok(vec![
        Cell::text(name),
        Cell::Number(events / 1e6, 1),
        Cell::Number(sum("segments_lost_events") / 1e6, 1),
        Cell::Number(rate, 1),
        Cell::Target(Target::Least(TARGET), rate),
        Cell::Number(cpu, 2),
        Cell::Number(bytes as f64 / events, 2),
    ])
}
