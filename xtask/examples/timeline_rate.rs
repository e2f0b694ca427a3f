//! Makes the timelines of all threads of a trace, and writes nothing: `cargo xtask bench decode`
//! measures it.
//!
//! Prints the number of the timeline's events.

use std::fs::File;

use everycall_reader::TraceFile;
use everycall_timeline::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: timeline_rate TRACE")?;
    let trace = Trace::open(TraceFile::open(File::open(path)?)?)?;
    let mut count = 0_u64;
    let mut sum = 0_u64;
    for thread in 0..trace.threads().len() {
        for event in trace.thread_events(thread) {
            count += 1;
            sum = sum.wrapping_add(event.at_ns());
        }
    }
    println!("{count} events, sum of their times {sum}");
    Ok(())
}
