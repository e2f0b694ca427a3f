//! Segments on their way into events chunks: several chunks at a time, so that all CPUs pack.

use std::io::{self, Write};
use std::num::NonZero;
use std::thread;

use everycall_format::ect::{EVENTS_PAYLOAD_MAX, EventsRecord, chunk};
use everycall_format::event::WORD_SIZE;

use crate::chunk_writer::{ChunkWriter, bytes_of};
use crate::packer::Packer;

/// The most bytes of words in one chunk.
const RUN_BYTES: usize = (EVENTS_PAYLOAD_MAX - EventsRecord::BYTES) as usize;
/// The most chunks at a time. Each takes up to 5 MiB, and with these, reading is what takes the time.
const RUNS_MAX: usize = 8;

/// Chunks of one thread that aren't written yet.
pub struct Runs {
    snapshot: u32,
    thread: u32,
    /// How many are packed at a time.
    limit: usize,
    /// Those with segments come first; the others keep their buffers.
    runs: Vec<Run>,
    filled: usize,
    /// Number of the segment that would follow.
    next: u64,
}

/// Segments that follow each other, for one chunk.
#[derive(Default)]
struct Run {
    /// Number of the first segment.
    first: u64,
    bytes: Vec<u8>,
    packer: Packer,
}

impl Runs {
    /// None, of thread `thread` of snapshot `snapshot`.
    pub fn new(snapshot: u32, thread: u32) -> Runs {
        let limit = thread::available_parallelism().map_or(1, NonZero::get).min(RUNS_MAX);
        Runs { snapshot, thread, limit, runs: Vec::new(), filled: 0, next: 0 }
    }

    /// Takes segment `number`, whose words are `bytes`.
    pub fn add<W: Write>(&mut self, file: &mut ChunkWriter<W>, number: u64, bytes: &[u8]) -> io::Result<()> {
        let fits = |run: &Run| run.bytes.len() + bytes.len() <= RUN_BYTES;
        let goes_on = number == self.next && self.runs[..self.filled].last().is_some_and(fits);
        if !goes_on {
            if self.filled == self.limit {
                self.write(file)?;
            }
            if self.filled == self.runs.len() {
                self.runs.push(Run::default());
            }
            self.runs[self.filled].first = number;
            self.filled += 1;
        }
        self.runs[self.filled - 1].bytes.extend_from_slice(bytes);
        self.next = number.wrapping_add(1);
        Ok(())
    }

    /// Writes what there is, and forgets it.
    pub fn write<W: Write>(&mut self, file: &mut ChunkWriter<W>) -> io::Result<()> {
        let runs = &mut self.runs[..self.filled];
        self.filled = 0;
        pack(runs);
        for run in runs {
            let (encoding, packed) = run.packer.packed(&run.bytes);
            let record = EventsRecord {
                snapshot: self.snapshot,
                thread: self.thread,
                first_segment: run.first,
                words: (run.bytes.len() / WORD_SIZE) as u64,
                encoding,
                reserved: 0,
            };
            file.chunk(chunk::EVENTS, &[&bytes_of(&record), packed])?;
            run.bytes.clear();
        }
        Ok(())
    }
}

/// Packs each run, the first one here and the others on threads of their own.
fn pack(runs: &mut [Run]) {
    let Some((first, others)) = runs.split_first_mut() else { return };
    thread::scope(|scope| {
        for Run { bytes, packer, .. } in others {
            // Without a thread it will be packed when it is asked for.
            let _ = thread::Builder::new().spawn_scoped(scope, || packer.prepare(bytes));
        }
        first.packer.prepare(&first.bytes);
    });
}
