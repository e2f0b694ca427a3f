//! The cost of `everycall snapshot`, and its effect on a thread that runs meanwhile.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::lab::{Lab, Mode};
use super::machine;
use super::rounds::{Rounds, words};
use super::stats::Spread;
use super::table::{Cell, Table, Target};
use crate::step::workspace;

/// Milliseconds until everything is pinned, and CPU time for it.
const PINNED_MS: f64 = 20.0;
/// Microseconds by which snapshots may lengthen the 99.99th percentile of the time between two
/// calls.
const GAP_US: f64 = 5.0;
/// Events that a full ring of 1 MiB has at least: all but the segment that may just be cleared, and
/// each segment's first words.
const RING_EVENTS: f64 = 122_000.0;

/// Measures.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let mut table = Table::new(
        "Snapshots, rings of 1 MiB",
        &[
            "program",
            "pinned within, ms",
            "target",
            "CPU of that, ms",
            "target of it",
            "written within, ms",
            "CPU of that, ms",
            "the command, all CPU, ms",
        ],
    );
    table.note(
        "Pinned: from then on the program can't change the snapshot. It is compressed and written meanwhile.",
    );
    table.note("With real-time priority where that is allowed; the programs at a lower one.");
    let compiler = || lab.compiler(Mode::NOPS.compiler, Some(Mode::NOPS.name));
    let source = workspace().join("tests/programs/standing.c");
    let object = lab.compile(compiler(), source, &[], "standing.o")?;
    let program = lab.link(compiler(), &[&object], &["-lpthread"], "standing")?;
    let count = if is_quick { 5 } else { 25 };
    for (name, arguments) in [
        ("100 threads, blocked", ["100", "0", "0", "100000"]),
        ("100 threads, busy", ["0", "100", "0", "0"]),
        ("8 busy ones, 8 that come and go; 4,096 are kept", ["0", "8", "8", "0"]),
    ] {
        match row(lab, &program, name, arguments, count) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(name, &why),
        }
    }
    Ok(vec![table, gaps(lab, is_quick)])
}

/// A program that runs until this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Words in front of a command: on that CPU, before all others where that is allowed.
fn first_on(cpu: &str) -> Vec<String> {
    let real_time = ["chrt", "-f", "5"];
    let is_allowed = Command::new("chrt")
        .args(["-f", "5", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let pinned = ["taskset", "-c", cpu];
    pinned.into_iter().chain(real_time.into_iter().filter(|_| is_allowed)).map(str::to_owned).collect()
}

fn command(lab: &Lab, words: &[String]) -> Result<Command, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut command = lab.command(program);
    command.args(arguments);
    Ok(command)
}

fn snapshot(lab: &Lab, pid: u32) -> Vec<String> {
    let words = ["snapshot", "-o", "snapshot.ect"].map(str::to_owned);
    let everycall = lab.everycall().to_string_lossy().into_owned();
    [first_on("0"), vec![everycall], words.to_vec(), vec![pid.to_string()]].concat()
}

/// The numbers, in ms, of "pinned within 4.97 ms, 4.90 ms of CPU time; written within 90 ms, 80 ms
/// of CPU time".
fn figures(said: &str) -> Option<[f64; 4]> {
    let ([pinned, pinned_cpu], [written, written_cpu]) = (within(said, "pinned")?, within(said, "written")?);
    Some([pinned, pinned_cpu, written, written_cpu])
}

/// The time and the CPU time of one of them.
fn within(said: &str, what: &str) -> Option<[f64; 2]> {
    let (_, rest) = said.split_once(&format!("{what} within "))?;
    let (time, rest) = rest.split_once(", ")?;
    let (cpu, _) = rest.split_once(" of CPU time")?;
    let ms = |text: &str| {
        let (number, unit) = text.split_once(' ')?;
        let scale = [("ns", 1e-6), ("us", 1e-3), ("ms", 1.0), ("s", 1e3)];
        let (_, scale) = scale.into_iter().find(|(name, _)| *name == unit)?;
        Some(number.replace(',', "").parse::<f64>().ok()? * scale)
    };
    Some([ms(time)?, ms(cpu)?])
}

fn row(
    lab: &Lab,
    program: &Path,
    name: &str,
    arguments: [&str; 4],
    count: usize,
) -> Result<Vec<Cell>, String> {
    let mut nice = lab.command("nice");
    nice.args(["-n", "10"]).arg(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(nice.spawn().map_err(|error| format!("`nice` can't be started: {error}"))?);
    let mut line = String::new();
    let stdout = running.0.stdout.take().ok_or("no output")?;
    BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
    // Rings fill, threads come and go.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let words_of_it = snapshot(lab, running.0.id());
    let mut all = Vec::new();
    for _ in 0..count {
        let output = command(lab, &words_of_it)?.output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        all.push(figures(&said).ok_or_else(|| format!("`everycall snapshot` said: {}", said.trim()))?);
    }
    let of = |which: usize| Spread::of(all.iter().map(|figures| figures[which]).collect());
    let (pinned, cpu) = (of(0)?, of(1)?);
    let rounds = Rounds::run(lab, count, false, &[words(&words_of_it)])?;
    Ok(vec![
        Cell::text(name),
        Cell::Measured(pinned, 1),
        Cell::Target(Target::Most(PINNED_MS), pinned.median),
        Cell::Measured(cpu, 1),
        Cell::Target(Target::Most(PINNED_MS), cpu.median),
        Cell::Measured(of(2)?, 0),
        Cell::Measured(of(3)?, 0),
        Cell::Measured(rounds.figure(0, |run| run.cpu_ns)?.scaled(1e-6), 0),
    ])
}

/// One thread that does nothing but call, and snapshots of it from another CPU.
fn gaps(lab: &Lab, is_quick: bool) -> Table {
    let mut table = Table::new(
        "A thread's calls while snapshots are taken from another CPU: ns between two calls",
        &[
            "what",
            "median",
            "99.99th percentile",
            "longest",
            "more, us",
            "target",
            "snapshots",
            "events in the least one",
            "target of it",
        ],
    );
    table.note("Each segment of the ring, 4,096 calls, is cleared before it is written again: that is the 99.99th percentile in either case.");
    match gap_rows(lab, if is_quick { 5 } else { 15 }) {
        Ok(rows) => rows.into_iter().for_each(|row| table.row(row)),
        Err(why) => table.failure("gaps", &why),
    }
    table
}

fn gap_rows(lab: &Lab, pairs: usize) -> Result<Vec<Vec<Cell>>, String> {
    let compiler = || lab.compiler(Mode::NOPS.compiler, Some(Mode::NOPS.name));
    let object = lab.compile(compiler(), "gaps.c", &[], "gaps.o")?;
    let program: PathBuf = lab.link(compiler(), &[&object], &[], "gaps")?;
    let (mut alone, mut asked, mut least, mut snapshots) = (Vec::new(), Vec::new(), f64::INFINITY, 0);
    for _ in 0..pairs {
        alone.push(gap_run(lab, &program, |_| Ok(()))?);
        asked.push(gap_run(lab, &program, |pid| {
            command(lab, &snapshot(lab, pid))?.output().map_err(|error| error.to_string())?;
            least = least.min(events(lab)?);
            snapshots += 1;
            Ok(())
        })?);
    }
    let of = |runs: &[[f64; 3]], which: usize| Spread::of(runs.iter().map(|run| run[which]).collect());
    let more = alone.iter().zip(&asked).map(|(alone, asked)| (asked[1] - alone[1]) / 1e3).collect();
    let more = Spread::of(more)?;
    let figures = |runs: &[[f64; 3]]| {
        let cell = |which| Ok::<_, String>(Cell::Measured(of(runs, which)?, 0));
        Ok::<_, String>([cell(0)?, cell(1)?, cell(2)?])
    };
    let mut without = vec![Cell::text("without")];
    without.extend(figures(&alone)?);
    let mut with = vec![Cell::text("with")];
    with.extend(figures(&asked)?);
    with.extend([
        Cell::Measured(more, 2),
        Cell::Target(Target::Most(GAP_US), more.median),
        Cell::Number(f64::from(snapshots), 0),
        Cell::Number(least, 0),
        Cell::Target(Target::Least(RING_EVENTS), least),
    ]);
    Ok(vec![without, with])
}

/// Runs the program for two seconds, and `meanwhile` again and again.
fn gap_run(
    lab: &Lab,
    program: &Path,
    mut meanwhile: impl FnMut(u32) -> Result<(), String>,
) -> Result<[f64; 3], String> {
    let mut words = first_on(&machine::measuring_cpu());
    words.push(program.to_string_lossy().into_owned());
    let mut command = command(lab, &words)?;
    command.arg("2").stdout(Stdio::piped());
    let mut running = Running(command.spawn().map_err(|error| format!("`gaps` can't be started: {error}"))?);
    let pause = std::time::Duration::from_millis(100);
    // It has its arena by then.
    std::thread::sleep(pause * 3);
    for _ in 0..12 {
        meanwhile(running.0.id())?;
        std::thread::sleep(pause);
    }
    let stdout = running.0.stdout.take().ok_or("no output")?;
    let text = std::io::read_to_string(stdout).map_err(|error| error.to_string())?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| format!("`gaps` printed `{text}`"))
}

/// Events in the snapshot that was just written.
fn events(lab: &Lab) -> Result<f64, String> {
    let mut info = lab.command(lab.everycall());
    let text = lab.successful(info.args(["info", "--format", "json", "snapshot.ect"]))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let threads = value["threads"].as_array().ok_or("`info` tells of no threads")?;
    Ok(threads.iter().filter_map(|thread| thread["events"].as_f64()).sum())
}

#[cfg(test)]
mod tests {
    use super::figures;

    #[test]
    fn what_a_snapshot_says() {
        let said = "everycall: snapshot of app (7), pinned within 1.05 s, 4.9 ms of CPU time; written within 90 ms, 800 us of CPU \
                    time\neverycall: 3 events";
        assert_eq!(figures(said), Some([1050.0, 4.9, 90.0, 0.8]));
        assert_eq!(figures("everycall: process 7: gone"), None);
    }
}
