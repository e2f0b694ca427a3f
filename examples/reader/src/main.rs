//! Prints calls, own time and total time of the functions of a trace, sorted by own time.
//!
//! ```text
//! $ cargo run -p reader -- app.ect
//!        calls         own       total  function
//!            1     1.20 ms     9.31 ms  main  (main.cpp:12)
//! ```
//!
//! It doesn't use the `everycall` command: a Rust program can get all data of a trace in this way.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use everycall_analysis::{NameOptions, Order, Profile, SymbolNames, TraceView, open};
use everycall_timeline::Trace;
use everycall_units::{Count, Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let trace = words.next().ok_or("usage: reader TRACE [OUTPUT]")?;
    let mut out: Box<dyn Write> = match words.next() {
        Some(output) => Box::new(File::create(output)?),
        None => Box::new(io::stdout().lock()),
    };
    print_profile(Path::new(&trace), &mut out)
}

/// Writes one line for each function of the trace at `path`.
pub fn print_profile(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let opened = open(path)?;
    let trace = Trace::open(&opened.file)?;
    let names = SymbolNames::new(&opened.file, &trace, NameOptions::default());
    // Pairs entries with exits; the functions' code decides which of them belong together.
    let profile = Profile::of(&TraceView::new(&trace, &names));
    writeln!(out, "{:>12}{:>12}{:>12}  function", "calls", "own", "total")?;
    for row in profile.top(Order::OwnTime, usize::MAX) {
        let place = match (&row.file, row.line) {
            (Some(file), Some(line)) => format!("  ({file}:{line})"),
            _ => String::new(),
        };
        writeln!(
            out,
            "{:>12}{:>12}{:>12}  {}{place}",
            Count(row.calls).to_string(),
            Duration { ns: row.own_ns }.to_string(),
            Duration { ns: row.total_ns }.to_string(),
            row.name
        )?;
    }
    // Reports what these numbers lack, too.
    let warnings = opened.warnings.into_iter().chain(trace.warnings().iter().map(ToString::to_string));
    for warning in warnings.chain(names.warnings().iter().map(ToString::to_string)) {
        writeln!(out, "note: {warning}")?;
    }
    Ok(())
}
