//! `everycall ps`: lists running traced programs, and crash files of programs that ended.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everycall_analysis::crash_files::{self, LeftBehind};
use everycall_format::env;
use everycall_io::say;
use everycall_live::{Listed, LiveError, ProcessFacts, Reached};
use everycall_units::{Count, OptionSize, Size};
use serde_json::{Value, json};

use crate::arguments::{PsArguments, TextFormat};
use crate::failure::Failure;
use crate::output::{clean, lines, print_as};

/// Runs the verb.
pub fn run(arguments: &PsArguments) -> Result<ExitCode, Failure> {
    let (listed, others) = everycall_live::list();
    let (left, odd) = left_behind(arguments, &listed)?;
    let text = match arguments.format {
        TextFormat::Text => {
            lines(&head_and(HEAD, listed.iter().map(row)), &LEFT_ALIGNED)
                + &lines(&head_and(LEFT_HEAD, left.iter().map(left_row)), &LEFT_LEFT_ALIGNED)
        }
        TextFormat::Json => {
            let listed: Vec<Value> = listed.iter().map(object).collect();
            let left: Vec<Value> = left.iter().map(left_object).collect();
            let others: Vec<Value> = others
                .iter()
                .map(|(pid, error)| json!({ "pid": pid, "reason": error.to_string() }))
                .collect();
            format!("{:#}\n", json!({ "processes": listed, "crash_files": left, "unreachable": others }))
        }
    };
    print_as(arguments.format.escapes(), &text)?;
    if arguments.format == TextFormat::Text {
        notes(&listed, &left, &others);
    }
    for sentence in odd {
        say!("everycall: {sentence}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Crash files in the named folders, in `EVERYCALL_CRASH`, and in those of running programs.
fn left_behind(
    arguments: &PsArguments,
    listed: &[Listed],
) -> Result<(Vec<LeftBehind>, Vec<String>), Failure> {
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    let of_running = listed.iter().filter_map(|listed| listed.file.as_deref()?.parent());
    folders.extend(of_running.map(Path::to_owned));
    folders.extend(std::env::var_os(env::CRASH).filter(|folder| !folder.is_empty()).map(PathBuf::from));
    let asked: BTreeSet<&PathBuf> = arguments.folders.iter().collect();
    let (mut left, mut odd) = (Vec::new(), Vec::new());
    folders.extend(arguments.folders.iter().cloned());
    let mut seen = BTreeSet::new();
    for folder in folders.iter().filter(|folder| seen.insert(folder.canonicalize().ok())) {
        match crash_files::left_behind(folder) {
            Ok((more, other)) => {
                left.extend(more);
                odd.extend(other);
            }
            Err(error) if asked.contains(folder) => {
                let reason = format!("can't be read: {error}; name a folder with crash files");
                return Err(Failure::of(folder, reason));
            }
            // The folder may belong to another container, or not exist yet.
            Err(_) => {}
        }
    }
    Ok((left, odd))
}

fn notes(listed: &[Listed], left: &[LeftBehind], others: &[(u32, LiveError)]) {
    for (pid, error) in others {
        say!("everycall: process {pid}: {error}");
    }
    if let Some(first) = left.first() {
        say!(
            "everycall: crash files stay until you delete them; `everycall replay {}` shows the first one",
            first.path.display()
        );
    }
    if listed.is_empty() && left.is_empty() {
        say!(
            "everycall: no traced program of yours is running; build one with `everycall cc -- g++ -O2 -g app.cpp -o app`, start it, \
             and run `everycall ps` again"
        );
    }
}

const HEAD: [&str; 8] = ["PID", "AGE", "THREADS", "EVENTS", "RING", "STATE", "BY", "PROGRAM"];
/// Left-aligned columns.
const LEFT_ALIGNED: [usize; 3] = [5, 6, 7];
const LEFT_HEAD: [&str; 6] = ["DIED", "LAST EVENT", "THREADS", "ON DISK", "CRASH FILE", "COMMAND"];
const LEFT_LEFT_ALIGNED: [usize; 2] = [4, 5];

/// The table with its head, or nothing if it has no rows.
fn head_and<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> Vec<[String; N]> {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    if rows.len() > 1 { rows } else { Vec::new() }
}

fn row(listed: &Listed) -> [String; 8] {
    [
        listed.process.pid.to_string(),
        age(listed.age_ns / 1_000_000_000),
        listed.threads.to_string(),
        Count(listed.events).to_string(),
        OptionSize(listed.ring_size).to_string(),
        if listed.on { "on" } else { "off" }.to_owned(),
        match (listed.reached, &listed.file) {
            (Reached::Recorder(pid), _) => format!("record {pid}"),
            (Reached::Own, None) => "itself".to_owned(),
            (Reached::Own, Some(file)) => clean(&file.to_string_lossy()),
        },
        match title(&listed.process) {
            Some(title) => format!("{} ({})", clean(&listed.process.program()), clean(&title)),
            None => clean(&listed.process.program()),
        },
    ]
}

/// The title that the process shows in place of its command line.
fn title(process: &ProcessFacts) -> Option<String> {
    process.title.as_ref().map(|title| String::from_utf8_lossy(title).into_owned())
}

fn left_row(left: &LeftBehind) -> [String; 6] {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let ago = left.last_ns.map(|last| (now.as_nanos() as u64).saturating_sub(last) / 1_000_000_000);
    [
        left.pid.to_string(),
        ago.map_or("unknown".to_owned(), |ago| format!("{} ago", age(ago))),
        left.threads.to_string(),
        Size(left.disk).to_string(),
        clean(&left.path.to_string_lossy()),
        clean(&left.command.join(" ")),
    ]
}

fn left_object(left: &LeftBehind) -> Value {
    json!({
        "pid": left.pid,
        "path": left.path.to_string_lossy(),
        "command": left.command,
        "last_realtime_ns": left.last_ns,
        "threads": left.threads,
        "bytes_on_disk": left.disk,
    })
}

/// `5s`, `2m 05s`, `3h 20m`, `4d 03h`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

fn object(listed: &Listed) -> Value {
    let command: Vec<_> =
        listed.process.command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    json!({
        "pid": listed.process.pid,
        "program": listed.process.program(),
        "command": command,
        "title": title(&listed.process),
        "since_realtime_ns": listed.since_ns,
        "age_ns": listed.age_ns,
        "threads": listed.threads,
        "ended_threads": listed.ended_threads,
        "events": listed.events,
        "ring_size": listed.ring_size,
        "on": listed.on,
        "recorder_pid": match listed.reached {
            Reached::Recorder(pid) => Some(pid),
            Reached::Own => None,
        },
        "crash_file": listed.file.as_ref().map(|file| file.to_string_lossy()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let shown = [0, 59, 60, 3_599, 12_000, 100_000].map(age);
        assert_eq!(shown, ["0s", "59s", "1m 00s", "59m 59s", "3h 20m", "1d 03h"]);
    }
}
