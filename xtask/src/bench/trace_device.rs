//! Bytes that a TRACE instruction would write for real programs, by the model in
//! `crates/importing/trace-device`: the table and the plot of `docs/design/trace-instruction.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::decode::{build_examples, example};
use super::lab::Lab;
use super::real::PROGRAMS;
use super::table::{Cell, Table};
use crate::step::workspace;

/// Lines of the document between which the table is.
const BEGIN: &str = "<!-- table: cargo xtask bench trace-device -->";
const END: &str = "<!-- end of the table -->";
/// Large enough for all of a run.
const RING_SIZE: &str = "512M";

const REDIS: &str = "/usr/bin/redis-server";

/// Measures, and writes table and plot into the document, unless it is a quick run.
///
/// # Errors
/// The failure, as a sentence. A program that can't be run is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    build_examples()?;
    let mut table = Table::new(
        "The TRACE instruction, by its model",
        &[
            "program",
            "million events",
            "events/us",
            "bytes/event",
            "MB/s",
            "busiest ms, MB/s",
            "% of a channel",
            "SRAM, wait 1 us",
            "10 us",
            "100 us",
            "64 MiB reach, s",
            "hooks' reach, s",
            "nJ/event",
            "hooks' nJ/event",
        ],
    );
    table.note(
        "Per core that runs one thread. Rates are those of the program without hooks. SRAM: bytes that 99.9 % of bursts \
         need, if DRAM makes the device wait so long each time.",
    );
    let mut rows = Vec::new();
    for (name, record) in RUNS {
        let measured = record(lab, is_quick).and_then(|trace| {
            let text = lab.successful(lab.command(example("trace_device")).arg(&trace))?;
            serde_json::from_str::<Value>(&text).map_err(|error| format!("trace_device: {error}"))
        });
        match measured {
            Ok(value) => {
                table.row(cells(name, &value));
                rows.push((name, value));
            }
            Err(why) => table.failure(name, &why),
        }
    }
    if !is_quick {
        write_document(&table, &rows)?;
    }
    Ok(vec![table])
}

type Record = fn(&Lab, bool) -> Result<PathBuf, String>;

const RUNS: [(&str, Record); 4] = [
    ("SQLite", |lab, is_quick| built(lab, "sqlite", if is_quick { "2000" } else { "40000" })),
    ("Lua", |lab, is_quick| built(lab, "lua", if is_quick { "5" } else { "100" })),
    ("Redis", redis),
    ("Python", python),
];

fn cells(name: &str, value: &Value) -> Vec<Cell> {
    let number = |field: &str, decimals| Cell::Number(value[field].as_f64().unwrap_or(f64::NAN), decimals);
    let sram = |index: usize| Cell::Number(value["sram_bytes"][index].as_f64().unwrap_or(f64::NAN), 0);
    vec![
        Cell::text(name),
        Cell::Number(value["events"].as_f64().unwrap_or(f64::NAN) / 1e6, 1),
        number("events_per_us", 1),
        number("bytes", 2),
        number("mb_per_s", 0),
        number("busiest_mb_per_s", 0),
        number("share_of_channel_percent", 2),
        sram(0),
        sram(1),
        sram(2),
        number("reach_s", 2),
        number("hooks_reach_s", 2),
        number("nj", 2),
        number("hooks_nj", 2),
    ]
}

/// A program of the benchmarks, as the prefix builds it.
fn built(lab: &Lab, name: &str, argument: &str) -> Result<PathBuf, String> {
    let real = PROGRAMS.iter().find(|real| real.name == name).ok_or("no such program")?;
    let program = real.built(lab, "nops", Some("nops"), &[], &[])?;
    let mut words = real.run_of(&program, None);
    words.pop();
    words.push(argument.into());
    let trace = lab.path(&format!("device {name}.ect"));
    let mut record = lab.command(lab.everycall());
    record.args(["record", "--quiet", "--ring-size", RING_SIZE, "-o"]).arg(&trace).arg("--").args(words);
    lab.successful(&mut record)?;
    Ok(trace)
}

/// The distribution's server as it is, under its own benchmark.
fn redis(lab: &Lab, is_quick: bool) -> Result<PathBuf, String> {
    if !Path::new(REDIS).exists() {
        return Err(format!("{REDIS} isn't there"));
    }
    let (trace, socket) = (lab.path("device redis.ect"), lab.path("device.sock"));
    let _ = fs::remove_file(&socket);
    let mut record = lab.command(lab.everycall());
    record.args(["record", "--untouched", "--quiet", "--ring-size", RING_SIZE, "-o"]).arg(&trace);
    record.args(["--", REDIS, "--port", "0", "--save", "", "--logfile", "device-redis.log", "--unixsocket"]);
    let started =
        record.arg(&socket).spawn().map_err(|error| format!("`record` can't be started: {error}"))?;
    let mut recorded = Recorded(started);
    let begin = Instant::now();
    while !socket.exists() && begin.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let requests = if is_quick { "1000" } else { "30000" };
    let mut load = lab.command("redis-benchmark");
    lab.successful(load.arg("-s").arg(&socket).args(["-n", requests, "-q", "-t", "set,get,lpush,zadd"]))?;
    // The server ends without an answer.
    let _ = lab.command("redis-cli").arg("-s").arg(&socket).args(["shutdown", "nosave"]).output();
    let status = recorded.0.wait().map_err(|error| format!("`record`: {error}"))?;
    if status.success() { Ok(trace) } else { Err(format!("{status} of `record` of {REDIS}")) }
}

/// A recorder that doesn't stay behind.
struct Recorded(Child);

impl Drop for Recorded {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Python's frames by id, with the package of this workspace.
fn python(lab: &Lab, is_quick: bool) -> Result<PathBuf, String> {
    let trace = lab.path("device python.ect");
    let interpreter = std::env::var_os("EVERYCALL_BENCH_PYTHON").unwrap_or_else(|| "python3".into());
    let script = "import json, sys\nfrom json import encoder, decoder\nencoder.c_make_encoder = None\n\
        d = {'k%d' % i: [i, str(i), {'a': i / 3}] for i in range(200)}\n\
        e = json.JSONEncoder(); D = json.JSONDecoder()\n\
        for i in range(int(sys.argv[1])): D.decode(e.encode(d))\n";
    let mut run = lab.command(interpreter);
    run.args(["-m", "everycall", "--quiet", "--ring-size", RING_SIZE, "-o"]).arg(&trace);
    run.args(["-c", script]).arg(if is_quick { "20" } else { "600" });
    lab.successful(&mut run)?;
    Ok(trace)
}

/// Puts the table between its two lines, and writes the plot.
fn write_document(table: &Table, rows: &[(&str, Value)]) -> Result<(), String> {
    let document = workspace().join("docs/design/trace-instruction.md");
    let text = fs::read_to_string(&document)
        .map_err(|error| format!("can't read {}: {error}", document.display()))?;
    let shown = table.shown();
    // Without its title: the document has one.
    let body = shown.trim_start().split_once('\n').map_or("", |(_, body)| body);
    let replaced = replaced(&text, body)
        .ok_or_else(|| format!("{} lacks the lines around its table", document.display()))?;
    let plot = workspace().join("docs/images/trace-instruction.svg");
    for (path, text) in [(&document, replaced), (&plot, plot_of(rows))] {
        fs::write(path, text).map_err(|error| format!("can't write {}: {error}", path.display()))?;
    }
    Ok(())
}

fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", table.trim()))
}

/// Bars: how far back a ring of 64 MiB reaches, with hooks and with the device.
fn plot_of(rows: &[(&str, Value)]) -> String {
    const WIDTH: f64 = 420.0;
    const STEP: usize = 56;
    let reach = |value: &Value, field: &str| value[field].as_f64().unwrap_or(0.0);
    let longest = rows.iter().map(|(_, value)| reach(value, "reach_s")).fold(1e-9, f64::max);
    let height = 44 + rows.len() * STEP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"640\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">Seconds that a ring of 64 MiB reaches back</text>\n"
    );
    for (number, (name, value)) in rows.iter().enumerate() {
        let top = 36 + number * STEP;
        let _ = writeln!(svg, "<text x=\"10\" y=\"{}\">{name}</text>", top + 26);
        let bars = [("reach_s", "TRACE", "#2a7f62"), ("hooks_reach_s", "hooks", "#b0502a")];
        for (bar, (field, label, colour)) in bars.into_iter().enumerate() {
            let (y, seconds) = (top + bar * 22, reach(value, field));
            let width = seconds / longest * WIDTH;
            let _ = writeln!(
                svg,
                "<rect x=\"80\" y=\"{y}\" width=\"{width:.1}\" height=\"18\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{}\">{seconds:.2} {label}</text>",
                86.0 + width,
                y + 14
            );
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_document_has_a_place_for_the_table() {
        let text = fs::read_to_string(workspace().join("docs/design/trace-instruction.md")).unwrap();
        let new = replaced(&text, "| a table |").unwrap();
        assert!(new.contains(&format!("{BEGIN}\n| a table |\n{END}")));
    }

    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let rows = [("a", json!({ "reach_s": 2.0, "hooks_reach_s": 0.5 }))];
        let svg = plot_of(&rows);
        assert!(svg.contains("width=\"420.0\"") && svg.contains("width=\"105.0\""), "{svg}");
    }
}
