//! Turns segments into events chunks, several chunks at a time, so that all CPUs compress.

use std::io::{self, Write};
use std::num::NonZero;
use std::thread;

use everycall_format::Wire as _;
use everycall_format::ect::{EVENTS_PAYLOAD_MAX, EventsRecord, chunk, encoding};
use everycall_format::event::WORD_SIZE;

use crate::chunk_writer::ChunkWriter;
use crate::packer::Packer;

/// The most bytes of words in one chunk.
const RUN_BYTES: usize = (EVENTS_PAYLOAD_MAX - EventsRecord::BYTES) as usize;
/// The most chunks at a time. Each takes up to 5 MiB; with more, reading is the bottleneck.
const RUNS_MAX: usize = 8;

/// The most chunks for one loss: a program that overwrites the count must not fill the disk.
const LOSS_CHUNKS_MAX: u32 = 256;

/// A segment's thread and number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the snapshot.
    pub snapshot: u32,
    /// Index of the thread in it.
    pub thread: u32,
    /// Number of the segment.
    pub segment: u64,
}

/// Chunks that aren't written yet.
pub struct Runs {
    /// How many are compressed at a time.
    limit: usize,
    /// Those with segments come first; the others only provide their buffers.
    runs: Vec<Run>,
    filled: usize,
    /// The place of the segment that can follow in the same chunk.
    next: Option<Place>,
    /// Whether words are written as they are.
    is_raw: bool,
}

/// Segments that follow each other, for one chunk.
#[derive(Default)]
struct Run {
    /// The first segment.
    first: Place,
    /// Events that are lost before it.
    lost: u32,
    bytes: Vec<u8>,
    packer: Packer,
}

impl Default for Runs {
    fn default() -> Runs {
        let limit = thread::available_parallelism().map_or(1, NonZero::get).min(RUNS_MAX);
        Runs { limit, runs: Vec::new(), filled: 0, next: None, is_raw: false }
    }
}

impl Runs {
    /// Chunks that aren't compressed: for files that are read at once, and not kept.
    #[must_use]
    pub fn as_they_are() -> Runs {
        Runs { limit: 1, is_raw: true, ..Runs::default() }
    }

    /// Adds a segment with the words `bytes`: a whole one, or a thread's last.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn add<W: Write>(&mut self, file: &mut ChunkWriter<W>, place: Place, bytes: &[u8]) -> io::Result<()> {
        let fits = |run: &Run| run.bytes.len() + bytes.len() <= RUN_BYTES;
        let goes_on = self.next == Some(place) && self.runs[..self.filled].last().is_some_and(fits);
        if !goes_on {
            self.begin(file, place, 0)?;
        }
        self.runs[self.filled - 1].bytes.extend_from_slice(bytes);
        self.next = Some(Place { segment: place.segment.wrapping_add(1), ..place });
        Ok(())
    }

    /// Adds `count` events lost before the segment at `place`, which follows or never comes. A
    /// chunk can contain a count up to 2^32 - 1; a count that would take more than
    /// [`LOSS_CHUNKS_MAX`] chunks is limited to these.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn lose<W: Write>(&mut self, file: &mut ChunkWriter<W>, place: Place, count: u64) -> io::Result<()> {
        let mut left = count;
        for _ in 0..LOSS_CHUNKS_MAX {
            if left == 0 {
                break;
            }
            let lost = u32::try_from(left).unwrap_or(u32::MAX);
            self.begin(file, place, lost)?;
            left -= u64::from(lost);
        }
        self.next = (count > 0).then_some(place);
        Ok(())
    }

    fn begin<W: Write>(&mut self, file: &mut ChunkWriter<W>, first: Place, lost: u32) -> io::Result<()> {
        if self.filled == self.limit {
            self.write(file)?;
        }
        if self.filled == self.runs.len() {
            self.runs.push(Run::default());
        }
        let run = &mut self.runs[self.filled];
        (run.first, run.lost) = (first, lost);
        self.filled += 1;
        Ok(())
    }

    /// Writes all pending chunks.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write<W: Write>(&mut self, file: &mut ChunkWriter<W>) -> io::Result<()> {
        let runs = &mut self.runs[..self.filled];
        self.filled = 0;
        self.next = None;
        if !self.is_raw {
            pack(runs);
        }
        for run in &mut *runs {
            let (encoding, packed) = match self.is_raw {
                true => (encoding::RAW, &run.bytes[..]),
                false => run.packer.packed(&run.bytes),
            };
            let record = EventsRecord {
                snapshot: run.first.snapshot,
                thread: run.first.thread,
                first_segment: run.first.segment,
                words: (run.bytes.len() / WORD_SIZE) as u64,
                encoding,
                lost: run.lost,
            };
            let written = file.chunk(chunk::EVENTS, &[&record.to_bytes(), packed]);
            run.bytes.clear();
            if written.is_err() {
                runs.iter_mut().for_each(Run::clear);
                return written;
            }
        }
        Ok(())
    }
}

impl Run {
    fn clear(&mut self) {
        self.bytes.clear();
        self.packer.forget();
    }
}

/// Compresses each run, the first one here and the others on threads of their own.
fn pack(runs: &mut [Run]) {
    let Some((first, others)) = runs.split_first_mut() else { return };
    thread::scope(|scope| {
        for Run { bytes, packer, .. } in others {
            // Without a thread, it is compressed when it is written.
            let _ = thread::Builder::new().spawn_scoped(scope, || packer.prepare(bytes));
        }
        first.packer.prepare(&first.bytes);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::Wire;

    #[test]
    fn a_loss_takes_few_chunks_however_large_it_is() {
        let place = Place { snapshot: 0, thread: 0, segment: 5 };
        for (count, chunks) in
            [(0, 0), (1, 1), (u64::from(u32::MAX), 1), (1 << 33, 3), (u64::MAX, u64::from(LOSS_CHUNKS_MAX))]
        {
            let mut file = ChunkWriter::begin(io::sink()).unwrap();
            let mut runs = Runs::default();
            let begin = file.position();
            runs.lose(&mut file, place, count).unwrap();
            runs.write(&mut file).unwrap();
            let one = (everycall_format::ect::ChunkHeader::SIZE + EventsRecord::SIZE) as u64;
            assert_eq!((file.position() - begin) / one, chunks, "{count}");
        }
    }
}
