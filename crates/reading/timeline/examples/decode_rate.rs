//! How fast is a thread's timeline made, and at what memory? 20 million synthetic events in one
//! thread, from a trace file in memory, on one core.
//!
//! `cargo run --release -p everycall-timeline --example decode_rate`

use everycall_reader::TraceFile;
use everycall_synth::{File, Module, Process, Ring, Rng, Thread};
use everycall_timeline::{Location, TimelineEvent, Trace};

const EVENTS: u64 = 20_000_000;
const START: u64 = 1 << 40;

/// Calls up and down by chance, a few of them interrupted by signal handlers.
fn ring(capacity: usize) -> Ring {
    let mut ring = Ring::new(8192, capacity, START);
    let mut rng = Rng::new(1);
    let mut now = START;
    let mut open = Vec::new();
    let mut events = 0;
    while events < EVENTS {
        now += 20 + rng.below(40);
        if open.is_empty() || open.len() < 60 && rng.one_in(2) {
            let offset = 0x1000 + 64 * rng.below(5000) as u32;
            if rng.one_in(10_000) {
                ring.enter(now + 10, 0x1000);
                ring.exit(now + 15, 0x1000);
                events += 2;
            }
            ring.enter(now, offset);
            open.push(offset);
        } else if let Some(offset) = open.pop() {
            ring.exit(now, offset + 16);
        }
        events += 1;
    }
    ring
}

fn file(capacity: usize) -> Vec<u8> {
    let start = 0x40_0000;
    let ring = ring(capacity);
    let module = Module {
        base: start - 0x1000,
        start,
        end: start + 0x10_0000,
        code_start: 0x1000,
        ..Module::default()
    };
    let thread = Thread { tid: 1, name: "main".into(), start_ticks: START, ring };
    File::of(&Process { modules: vec![module], threads: vec![thread], ..Process::default() })
}

/// CPU time that the process has used, so that others on the machine don't count. In seconds.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

fn memory_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    if let Some(path) = arguments.next() {
        return Ok(measure(std::path::Path::new(&path))?);
    }
    // Another process measures, so that its memory is that of decoding alone.
    let path = std::env::temp_dir().join(format!("decode-rate-{}.ect", std::process::id()));
    for (name, capacity) in [("whole", 4096), ("wrapped", 2000)] {
        std::fs::write(&path, file(capacity))?;
        println!("{name}:");
        std::process::Command::new(std::env::current_exe()?).arg(&path).status()?;
    }
    Ok(std::fs::remove_file(&path)?)
}

fn measure(path: &std::path::Path) -> Result<(), everycall_reader::Error> {
    let same = |entry: Location, exit: Location| Some(entry.image_address / 64 == exit.image_address / 64);
    let begun = cpu_seconds();
    let trace = Trace::open(TraceFile::open(std::fs::File::open(path)?)?)?;
    let opened = cpu_seconds() - begun;
    let events = trace.threads().first().map_or(0, |thread| thread.events) as f64;
    println!("  opening: {:.1} million events/s of {events}", events / opened / 1e6);
    for (how, same) in [("plain", None), ("checked by symbols", Some(&same as &_))] {
        let begun = cpu_seconds();
        let mut count = 0_u64;
        let mut sum = 0_u64;
        for event in trace.thread_events_checked(0, same) {
            count += u64::from(matches!(event, TimelineEvent::Begin(_) | TimelineEvent::End(_)));
            sum = sum.wrapping_add(event.at_ns());
        }
        let seconds = cpu_seconds() - begun;
        println!(
            "  {how}: {:.1} million events/s (of {count}; sum of times {sum})",
            count as f64 / seconds / 1e6
        );
    }
    println!("  peak memory {} KiB", memory_peak_kib());
    Ok(())
}
