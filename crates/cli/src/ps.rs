//! `everycall ps`: the programs of which snapshots can be taken.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use everycall_export::Count;
use everycall_live::{Listed, LiveError, Reached};
use serde_json::{Value, json};

use crate::arguments::{PsArguments, TextFormat};
use crate::failure::Failure;
use crate::report::OptionSize;

/// Runs the verb.
pub fn run(arguments: &PsArguments) -> Result<ExitCode, Failure> {
    let (listed, others) = everycall_live::list();
    let text = match arguments.format {
        TextFormat::Text => table(&listed),
        TextFormat::Json => {
            let listed: Vec<Value> = listed.iter().map(object).collect();
            let others: Vec<Value> = others
                .iter()
                .map(|(pid, error)| json!({ "pid": pid, "reason": error.to_string() }))
                .collect();
            format!("{:#}\n", json!({ "processes": listed, "unreachable": others }))
        }
    };
    io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::writing(Path::new("standard output"), error))?;
    if arguments.format == TextFormat::Text {
        notes(&listed, &others);
    }
    Ok(ExitCode::SUCCESS)
}

fn notes(listed: &[Listed], others: &[(u32, LiveError)]) {
    for (pid, error) in others {
        eprintln!("everycall: process {pid}: {error}");
    }
    if listed.is_empty() {
        eprintln!(
            "everycall: nothing that runs here is traced, or it isn't yours: start a program that was built with \
             `everycall cc -- g++ ...`"
        );
    }
}

fn table(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return String::new();
    }
    let head = ["PID", "AGE", "THREADS", "EVENTS", "RING", "STATE", "BY", "PROGRAM"].map(str::to_owned);
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(listed.iter().map(row)).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            match column {
                7 => text.push_str(cell),
                5 | 6 => text.push_str(&format!("{cell:<width$}  ")),
                _ => text.push_str(&format!("{cell:>width$}  ")),
            }
        }
        text.push('\n');
    }
    text
}

fn row(listed: &Listed) -> [String; 8] {
    [
        listed.process.pid.to_string(),
        age(listed.age_ns / 1_000_000_000),
        listed.threads.to_string(),
        Count(listed.events).to_string(),
        OptionSize(listed.ring_size).to_string(),
        if listed.on { "on" } else { "off" }.to_owned(),
        match listed.reached {
            Reached::Recorder(pid) => format!("record {pid}"),
            Reached::Own => "itself".to_owned(),
        },
        listed.process.program().escape_debug().to_string(),
    ]
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
