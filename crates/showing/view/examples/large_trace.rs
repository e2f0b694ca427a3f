//! Writes a large synthetic trace, to try the viewer: so many events of four threads, calls of many
//! durations.
//!
//! `cargo run --release -p everycall-view --example large_trace -- 1000000000 /tmp/large.ect`

use std::io::{BufWriter, Write};

use everycall_synth::{File, Module, Process, Ring, Rng, Thread};
use everycall_tracefile::Packer;

const START: u64 = 1 << 40;
const THREADS: u64 = 4;
/// Words of a segment: the most that there may be.
const SEGMENT: usize = 8 << 10;
/// Segments that are written together.
const TOGETHER: u64 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let events: u64 = arguments.next().ok_or("how many events?")?.parse()?;
    let path = arguments.next().ok_or("which file?")?;
    let start = 0x40_0000;
    let module = Module {
        base: start - 0x1000,
        start,
        end: start + 0x10_0000,
        code_start: 0x1000,
        ..Module::default()
    };
    let thread = |tid: u64| Thread {
        tid: tid as u32 + 1,
        name: format!("worker {tid}"),
        start_ticks: START,
        ring: Ring::new(SEGMENT, 64, START),
    };
    let process = Process {
        modules: vec![module],
        threads: (0..THREADS).map(thread).collect(),
        end_ticks: START + events / THREADS * 40,
        ..Process::default()
    };
    let mut file = File::begun(&process);
    let mut out = BufWriter::new(std::fs::File::create(&path)?);
    for thread in 0..THREADS {
        write_thread(&mut file, &mut out, thread as u32, events / THREADS)?;
    }
    out.write_all(&file.end())?;
    Ok(out.flush()?)
}

/// Calls up and down by chance, in phases that go deeper and come back.
fn write_thread(file: &mut File, out: &mut impl Write, thread: u32, events: u64) -> std::io::Result<()> {
    let mut ring = Ring::new(SEGMENT, 64, START);
    let mut rng = Rng::new(u64::from(thread) + 1);
    let mut packer = Packer::default();
    let (mut now, mut open, mut written) = (START, Vec::new(), 0_u64);
    for event in 0..events {
        now += 20 + rng.below(40);
        let deepest = 4 + (event / 10_000 % 37) as usize;
        if open.is_empty() || open.len() < deepest && rng.one_in(2) {
            // Some functions are called far more often than others.
            let most = 1 + rng.below(3000);
            let function = rng.below(most) as u32;
            ring.enter(now, 0x1000 + 64 * function);
            open.push(function);
        } else if let Some(function) = open.pop() {
            ring.exit(now, 0x1000 + 64 * function + 16);
        }
        if ring.newest_segment() >= written + TOGETHER || event + 1 == events {
            let is_last = event + 1 == events;
            let until = ring.newest_segment() + u64::from(is_last);
            let first = ring.first_segment();
            let parts: Vec<&[u64]> =
                ring.segments().skip((written - first) as usize).take((until - written) as usize).collect();
            let words: Vec<u8> =
                parts.iter().flat_map(|part| part.iter()).flat_map(|word| word.to_le_bytes()).collect();
            let (encoding, bytes) = packer.packed(&words);
            file.events_encoded(thread, written, words.len() as u64 / 8, encoding, bytes);
            written = until;
            out.write_all(&file.take())?;
        }
    }
    Ok(())
}
