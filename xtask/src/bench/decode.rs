//! How fast a trace is decoded, on one core.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::lab::{Lab, Mode, cargo};
use super::rounds::{Rounds, Words, words};
use super::table::{Cell, Table, Target};
use super::workload::Workload;
use crate::step::target_folder;

/// Large enough for all of a run.
const RING_SIZE: &str = "512M";

/// Measures.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    build_examples()?;
    let note = "Events of SQLite's trace per second of CPU time, start, symbols and source files included; output thrown away. Two sizes: \
         memory must not grow with the file. The compact form is that of events in files: from words to bytes and back, without zstd, in \
         memory, where all words are.";
    rates(lab, is_quick, "Decoding, one core", note, |trace| decoders(lab, trace).into())
}

/// A name, a command that reads a trace, and how many million events a second there should be.
pub type Reader = (&'static str, Words, Option<Target>);

/// How fast commands read SQLite's trace in two sizes: a table with this title.
///
/// # Errors
/// The failure, as a sentence. A command that fails is a row that says so.
pub fn rates(
    lab: &Lab,
    is_quick: bool,
    title: &'static str,
    note: &str,
    readers: impl Fn(&Path) -> Vec<Reader>,
) -> Result<Vec<Table>, String> {
    let sizes = if is_quick { ["10000", "40000"] } else { ["30000", "120000"] };
    let mut table = Table::new(
        title,
        &["what", "million events", "million events/s", "target", "peak MiB", "file MiB", "bytes/event"],
    );
    table.note(note);
    let program = traced_program(lab)?;
    for rows in sizes {
        let trace = Trace::record(lab, &program, rows)?;
        for (name, command, target) in readers(&trace.path) {
            match trace.row(lab, name, command, target, is_quick) {
                Ok(cells) => table.row(cells),
                Err(why) => table.failure(name, &why),
            }
        }
    }
    Ok(vec![table])
}

/// A verb of everycall with its options, on a trace.
pub fn verb(lab: &Lab, arguments: &[&str], trace: &Path) -> Words {
    let mut command = words([lab.everycall()]);
    command.extend(words(arguments));
    command.push(trace.into());
    command
}

/// SQLite, built for tracing.
///
/// # Errors
/// The failure, as a sentence.
pub fn traced_program(lab: &Lab) -> Result<PathBuf, String> {
    let compiler = || lab.compiler(Mode::NOPS.compiler, Some(Mode::NOPS.name));
    let objects = Workload::SQLITE.compile(lab, compiler, &["-g"], "decode sqlite")?;
    let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
    lab.link(compiler(), &objects, &["-lm", "-lpthread"], "decode sqlite")
}

/// A command that decodes a trace and does nothing else. [`build_examples`] makes it.
pub fn timeline(trace: &Path) -> Words {
    words([example("timeline_rate"), trace.into()])
}

/// Builds the commands that aren't everycall's.
///
/// # Errors
/// It failed; as a sentence.
pub fn build_examples() -> Result<(), String> {
    cargo(&["build", "--release", "--quiet", "--package", "xtask", "--examples"])
}

/// One of xtask's examples. [`build_examples`] makes them.
pub fn example(name: &str) -> OsString {
    target_folder().join("release/examples").join(name).into_os_string()
}

fn decoders(lab: &Lab, trace: &Path) -> [Reader; 9] {
    let compact = |way: &str| words([example("compact_rate"), way.into(), trace.into()]);
    let of = |arguments: &[&str]| verb(lab, arguments, trace);
    let export = |format| of(&["export", "--format", format, "-o", "-"]);
    let least = |millions| Some(Target::Least(millions));
    [
        ("timeline", timeline(trace), least(10.0)),
        ("vizviewer", export("vizviewer"), least(5.0)),
        ("chrome", export("chrome"), least(5.0)),
        ("perfetto", export("perfetto"), least(8.0)),
        ("replay", of(&["replay"]), None),
        ("replay, JSON", of(&["replay", "--format", "json"]), None),
        ("info", of(&["info"]), None),
        ("compact form, encode", compact("encode"), least(50.0)),
        ("compact form, decode", compact("decode"), least(60.0)),
    ]
}

/// A recorded run.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    /// Entries and exits in it.
    pub events: f64,
    bytes: f64,
}

impl Trace {
    /// Runs a program under `record`, with a ring that can hold all events.
    ///
    /// # Errors
    /// The failure, or that the ring didn't hold it; as a sentence.
    pub fn record(lab: &Lab, program: &Path, argument: &str) -> Result<Trace, String> {
        let path = lab.path("whole.ect");
        let mut record = lab.command(lab.everycall());
        record.args(["record", "--quiet", "--ring-size", RING_SIZE, "-o"]).arg(&path).arg("--");
        lab.successful(record.arg(program).arg(argument))?;
        let text =
            lab.successful(lab.command(lab.everycall()).args(["info", "--format", "json"]).arg(&path))?;
        let info: Value =
            serde_json::from_str(&text).map_err(|error| format!("`info --format json`: {error}"))?;
        let threads = info["threads"].as_array().ok_or("`info --format json` lists no threads")?;
        if threads.iter().any(|thread| thread["beginning_overwritten"] != false) {
            return Err(format!("a ring of {RING_SIZE} doesn't hold {} {argument}", program.display()));
        }
        let events = threads.iter().filter_map(|thread| thread["events"].as_f64()).sum();
        let bytes = std::fs::metadata(&path)
            .map_err(|error| format!("can't look at {}: {error}", path.display()))?
            .len() as f64;
        Ok(Trace { path, events, bytes })
    }

    /// Measures a command that reads the trace.
    ///
    /// # Errors
    /// It failed; as a sentence.
    pub fn row(
        &self,
        lab: &Lab,
        name: &str,
        command: Words,
        target: Option<Target>,
        is_quick: bool,
    ) -> Result<Vec<Cell>, String> {
        let rounds = Rounds::run(lab, if is_quick { 1 } else { 3 }, false, &[command])?;
        let rate = rounds.figure(0, |run| self.events / run.region_or_cpu_ns() * 1e3)?;
        Ok(vec![
            Cell::text(name),
            Cell::Number(self.events / 1e6, 1),
            Cell::Measured(rate, 1),
            target.map_or(Cell::Empty, |target| Cell::Target(target, rate.median)),
            Cell::Number(rounds.figure(0, |run| run.peak_kib)?.median / 1024.0, 1),
            Cell::Number(self.bytes / f64::from(1 << 20), 1),
            Cell::Number(self.bytes / self.events, 2),
        ])
    }
}
