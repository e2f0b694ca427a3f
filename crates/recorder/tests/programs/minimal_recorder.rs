//! The smallest recorder: `record OUTPUT RING_SIZE PROGRAM ARGUMENTS...`. The tests of this crate run it as a process
//! of its own, because signals and exit statuses are what they ask about.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::process::ExitStatusExt;
use std::process::exit;

use everycall_recorder::{Arena, Launch, RecordError, die_of, start};

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let output = arguments.next().unwrap();
    let ring_size = arguments.next().unwrap().to_str().unwrap().parse().unwrap();
    let launch = Launch { program: arguments.next().unwrap(), arguments: arguments.collect(), preload: None };
    let ended =
        Arena::create(ring_size).and_then(|arena| start(arena, launch)).and_then(|running| running.wait());
    let mut ended = ended.unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(match error {
            RecordError::NotFound { .. } => 127,
            RecordError::NotExecutable { .. } => 126,
            _ => 125,
        })
    });
    let file = BufWriter::new(File::create(output).unwrap());
    let summary = ended.write(file, "test").unwrap();
    if std::env::var_os("SHOW_SUMMARY").is_some() {
        eprintln!("{summary:?}");
    }
    ended.status().signal().inspect(|signal| die_of(*signal));
    exit(ended.status().code().unwrap_or(125));
}
