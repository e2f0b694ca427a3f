//! `cargo xtask bench`: what everycall costs and how fast it decodes, beside the tracers that are
//! installed. `docs/reference/benchmarks.md` says what the figures mean. Everything is built in
//! `target/bench`.

mod args;
mod budget;
mod corrected;
mod cost;
mod count;
mod decode;
mod edges;
mod exports;
mod lab;
mod labels;
mod machine;
mod min_duration;
mod off;
mod orders;
mod peers;
mod real;
mod report;
mod rounds;
mod snapshots;
mod states;
mod stats;
mod stream;
mod switch;
mod table;
mod trace_device;
mod triggers;
mod untouched;
mod view;
mod workload;

use std::time::Instant;

use serde_json::json;

use self::lab::Lab;
use self::machine::Machine;
use self::table::Table;

const USAGE: &str = "\
usage: cargo xtask bench [PART...] [--quick] [--events N] [--format text|json]
parts: cost    an event, in each mode
       args    an event with arguments or a result, and calls that a condition leaves out
       count   a call that is counted and not recorded, in each mode
       off     sites while tracing is off
       edges   start and end, threads, memory, size, compiling
       decode  events per second to a timeline and to each output
       exports events per second to each format of export
       report  events per second to a report of all functions, and to its other views
       view    the viewer's pictures of a large trace, of --events N
       stream  events per second that record --stream stores
       triggers an event while a trigger waits for its condition
       budget  CPU time of programs under --budget 3%, and what remains traced
       min-duration  events of calls that are dropped as they are short, and how much further back a ring reaches
       labels  labels, instants, spans, counters and log lines, beside the clock read
       switch  all sites of a large program off and on while it runs
       states  what record --states costs a switch of a thread, and a program that never waits
       snapshots  what a snapshot takes, and what a thread notices of it
       real    what recording costs real programs, beside hooks that only read the clock
       corrected  recorded programs' corrected CPU time, beside uninstrumented runs
       trace-device  what a TRACE instruction would write for real programs, by its model; writes the design document's table
       untouched  functions of this machine's programs that could get hooks without being rebuilt
       peers   the tracers that are installed, and everycall, on the same programs";

/// A part of the benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Cost,
    Args,
    Count,
    Off,
    Edges,
    Decode,
    Exports,
    Report,
    View,
    Stream,
    Triggers,
    MinDuration,
    Budget,
    Labels,
    Switch,
    States,
    Snapshots,
    Real,
    Corrected,
    TraceDevice,
    Untouched,
    Peers,
}

impl Part {
    const ALL: [(&'static str, Part); 22] = [
        ("cost", Part::Cost),
        ("args", Part::Args),
        ("count", Part::Count),
        ("off", Part::Off),
        ("edges", Part::Edges),
        ("decode", Part::Decode),
        ("exports", Part::Exports),
        ("report", Part::Report),
        ("view", Part::View),
        ("stream", Part::Stream),
        ("triggers", Part::Triggers),
        ("min-duration", Part::MinDuration),
        ("budget", Part::Budget),
        ("labels", Part::Labels),
        ("switch", Part::Switch),
        ("states", Part::States),
        ("snapshots", Part::Snapshots),
        ("real", Part::Real),
        ("corrected", Part::Corrected),
        ("trace-device", Part::TraceDevice),
        ("untouched", Part::Untouched),
        ("peers", Part::Peers),
    ];

    fn measure(self, lab: &Lab, is_quick: bool, events: Option<u64>) -> Result<Vec<Table>, String> {
        match self {
            Part::Cost => cost::run(lab),
            Part::Args => args::run(lab, is_quick),
            Part::Count => count::run(lab, is_quick),
            Part::Off => off::run(lab, is_quick),
            Part::Edges => edges::run(lab, is_quick),
            Part::Decode => decode::run(lab, is_quick),
            Part::Exports => exports::run(lab, is_quick),
            Part::Report => report::run(lab, is_quick),
            Part::View => view::run(lab, is_quick, events),
            Part::Stream => stream::run(lab, is_quick),
            Part::Triggers => triggers::run(lab, is_quick),
            Part::MinDuration => min_duration::run(lab, is_quick),
            Part::Budget => budget::run(lab, is_quick),
            Part::Labels => labels::run(lab, is_quick),
            Part::Switch => switch::run(lab, is_quick),
            Part::States => states::run(lab, is_quick),
            Part::Snapshots => snapshots::run(lab, is_quick),
            Part::Real => real::run(lab, is_quick),
            Part::Corrected => corrected::run(lab, is_quick),
            Part::TraceDevice => trace_device::run(lab, is_quick),
            Part::Untouched => untouched::run(lab, is_quick),
            Part::Peers => peers::run(lab, is_quick),
        }
    }
}

/// The options of a run.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    parts: Vec<Part>,
    is_quick: bool,
    /// Of the trace that is made for the viewer.
    events: Option<u64>,
    is_json: bool,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { parts: Vec::new(), is_quick: false, events: None, is_json: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.is_quick = true,
                "--events" => {
                    let count = words.next().and_then(|word| count(&word));
                    let wrong = || format!("--events wants a number, such as 1000M\n{USAGE}");
                    options.events = Some(count.ok_or_else(wrong)?);
                }
                "--format" => match words.next().as_deref() {
                    Some("text") => options.is_json = false,
                    Some("json") => options.is_json = true,
                    _ => return Err(format!("--format wants `text` or `json`\n{USAGE}")),
                },
                name => match Part::ALL.iter().find(|(known, _)| *known == name) {
                    Some((_, part)) => options.parts.push(*part),
                    None => return Err(format!("`{name}` is no part and no option\n{USAGE}")),
                },
            }
        }
        if options.parts.is_empty() {
            options.parts = Part::ALL.map(|(_, part)| part).to_vec();
        }
        Ok(options)
    }
}

/// A number, in millions with an `M`.
fn count(word: &str) -> Option<u64> {
    match word.strip_suffix('M') {
        Some(millions) => millions.parse::<u64>().ok()?.checked_mul(1_000_000),
        None => word.parse().ok(),
    }
}

/// Runs the task with the words behind `bench`.
///
/// # Errors
/// The failure, as a sentence; after that the other parts were measured all the same.
pub fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
    let options = Options::parse(words)?;
    let machine = Machine::new();
    let lab = Lab::new()?;
    if !options.is_json {
        println!("{}", machine.shown());
    }
    let mut failed = Vec::new();
    let mut tables = Vec::new();
    for (name, part) in Part::ALL {
        if !options.parts.contains(&part) {
            continue;
        }
        let begin = Instant::now();
        match part.measure(&lab, options.is_quick, options.events) {
            Ok(measured) => {
                if !options.is_json {
                    measured.iter().for_each(|table| println!("{}", table.shown()));
                }
                tables.extend(measured);
            }
            Err(why) => failed.push(format!("{name}: {why}")),
        }
        eprintln!("bench: {name} took {} s", begin.elapsed().as_secs());
    }
    if options.is_json {
        let tables: Vec<_> = tables.iter().map(Table::value).collect();
        println!("{:#}", json!({ "machine": machine.value(), "tables": tables }));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        Options::parse(words.iter().map(|&word| word.to_owned()))
    }

    #[test]
    fn options() {
        assert_eq!(parse(&[]).unwrap().parts.len(), Part::ALL.len());
        let some = parse(&["off", "--quick", "--format", "json", "cost", "--events", "7"]).unwrap();
        let parts = vec![Part::Off, Part::Cost];
        assert_eq!(some, Options { parts, is_quick: true, events: Some(7), is_json: true });
        assert_eq!(parse(&["--events", "1000M"]).unwrap().events, Some(1_000_000_000));
        assert!(parse(&["--events", "many"]).unwrap_err().contains("number"));
        assert!(parse(&["--format", "xml"]).unwrap_err().contains("text"));
        assert!(parse(&["of"]).unwrap_err().contains("`of`"));
    }
}
