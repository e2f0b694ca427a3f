//! The smallest recorder: `record OUTPUT RING_SIZE PROGRAM ARGUMENTS...`. The tests of this crate run it as a process
//! of its own, because signals and exit statuses are what they ask about.

use std::os::unix::process::ExitStatusExt;
use std::process::exit;

use everycall_recorder::{Launch, Options, RecordError, Recorder, TraceWriter, die_of, start};

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let output = arguments.next().unwrap();
    let ring_size = arguments.next().unwrap().to_str().unwrap().parse().unwrap();
    let launch = Launch {
        program: arguments.next().unwrap(),
        arguments: arguments.collect(),
        preload: Vec::new(),
        first: None,
        recording: Vec::new(),
        environment: Vec::new(),
    };
    let options = Options {
        functions: 0,
        ring_size,
        follow: std::env::var_os("NO_FOLLOW").is_none(),
        stream: None,
        unrecorded: Default::default(),
        states: None,
        counters: None,
        samples: None,
    };
    let all = std::env::var_os("WAIT_FOR_ALL").is_some();
    let mut bytes = Vec::new();
    let mut file = TraceWriter::begin(&mut bytes, &launch, "test").unwrap();
    let ended = Recorder::create(options)
        .and_then(|recorder| start(recorder, &launch))
        .and_then(|running| running.wait(all, &mut file));
    let ended = ended.unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(match error {
            RecordError::NotFound { .. } => 127,
            RecordError::NotExecutable { .. } => 126,
            _ => 125,
        })
    });
    let status = ended.status();
    let (summary, _) = ended.write(file).unwrap();
    std::fs::write(output, bytes).unwrap();
    if std::env::var_os("SHOW_SUMMARY").is_some() {
        eprintln!("{summary:?}");
    }
    status.signal().inspect(|signal| die_of(*signal));
    exit(status.code().unwrap_or(125));
}
