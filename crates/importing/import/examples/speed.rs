//! How fast something is imported: `cargo run --release -p everycall-import --example speed
//! SOURCE`. Prints entries and exits per second; nothing is written to disk.

use std::path::PathBuf;
use std::time::Instant;

use everycall_import::{ImportOptions, binary_of_log, detect, import};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = PathBuf::from(std::env::args_os().nth(1).ok_or("name a file or folder to import")?);
    let format = detect(&source)?;
    let binary = binary_of_log(&source).map(|found| found.0);
    let options = ImportOptions { binary, name: source.display().to_string(), ..ImportOptions::default() };
    let begin = Instant::now();
    let summary = import(&source, format, &options, std::io::sink(), "speed")?;
    let seconds = begin.elapsed().as_secs_f64();
    let events = summary.events();
    println!(
        "{format}: {events} entries and exits in {seconds:.2} s: {:.1} million/s",
        events as f64 / seconds / 1e6
    );
    Ok(())
}
