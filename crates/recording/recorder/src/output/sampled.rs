//! Writes sampled counters: each process has a snapshot of its own for them, with one thread that
//! is none.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use everycall_format::Wire as _;
use everycall_format::arena::OpenCall;
use everycall_format::ect::{SnapshotRecord, ThreadRecord, chunk, reason, thread_flags};
use everycall_tracefile::{ChunkWriter, Place, Runs, array};

use crate::process::samples::{SEGMENT_SIZE, Samples};
use crate::sys::lock::lock;
use crate::tree::sampler::AllSamples;

/// Numbers of the snapshots begin here. Processes have lower ones, kept calls higher ones.
const FIRST_SNAPSHOT: u32 = 1 << 30;
/// The thread's name.
const NAME: &[u8] = b"counters";

/// The samples, and what of them is in the file.
pub(crate) struct Sampled {
    samples: Arc<AllSamples>,
    /// By number of the process: what is in this file.
    announced: BTreeMap<u32, Announced>,
}

struct Announced {
    first_segment: u64,
    segments: u64,
}

impl Sampled {
    pub fn new(samples: Arc<AllSamples>) -> Sampled {
        Sampled { samples, announced: BTreeMap::new() }
    }

    /// Another file begins, which has nothing yet.
    pub fn begin_file(&mut self) {
        self.announced.clear();
    }

    /// Writes finished segments of the process with this number.
    pub fn pass<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        number: u32,
        pid: u32,
    ) -> io::Result<()> {
        let mut all = lock(&self.samples);
        let Some(Some(samples)) = all.get_mut(&number) else { return Ok(()) };
        let (first, segments) = samples.take_segments(false);
        let start = samples.start_ticks;
        drop(all);
        self.write(file, runs, (number, pid, start), first, &segments)
    }

    /// Writes the rest of a process that has ended, or is read for the last time, at `ticks`.
    pub fn finish<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        number: u32,
        pid: u32,
        ticks: u64,
    ) -> io::Result<()> {
        let Some(Some(mut samples)): Option<Option<Samples>> = lock(&self.samples).insert(number, None)
        else {
            return Ok(());
        };
        let (first, segments) = samples.take_segments(true);
        let whose = (number, pid, samples.start_ticks);
        self.write(file, runs, whose, first, &segments)?;
        let Some(announced) = self.announced.remove(&number) else { return Ok(()) };
        self.announce(file, whose, &announced, ticks)
    }

    fn write<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        whose: (u32, u32, u64),
        first: u64,
        segments: &[Vec<u64>],
    ) -> io::Result<()> {
        if segments.is_empty() {
            return Ok(());
        }
        let (number, ..) = whose;
        file.set_process(number);
        if !self.announced.contains_key(&number) {
            let announced = Announced { first_segment: first, segments: 0 };
            self.announce(file, whose, &announced, 0)?;
            self.announced.insert(number, announced);
        }
        for (segment, words) in (first..).zip(segments) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let place = Place { snapshot: FIRST_SNAPSHOT | number, thread: 0, segment };
            runs.add(file, place, &bytes)?;
        }
        if let Some(announced) = self.announced.get_mut(&number) {
            announced.segments += segments.len() as u64;
        }
        runs.write(file)
    }

    /// Writes the snapshot and its thread; the last ones in the file count.
    #[expect(clippy::unused_self, reason = "as its siblings")]
    fn announce<W: Write>(
        &self,
        file: &mut ChunkWriter<W>,
        (number, pid, start_ticks): (u32, u32, u64),
        announced: &Announced,
        ticks: u64,
    ) -> io::Result<()> {
        let snapshot = SnapshotRecord {
            snapshot: FIRST_SNAPSHOT | number,
            reason: reason::STREAM,
            pid,
            threads: 1,
            ticks,
            ring_size: 0,
            segment_size: SEGMENT_SIZE,
            ..SnapshotRecord::default()
        };
        let mut name = [0; 16];
        name.iter_mut().zip(NAME).for_each(|(place, byte)| *place = *byte);
        let thread = ThreadRecord {
            snapshot: FIRST_SNAPSHOT | number,
            pid,
            start_ticks,
            first_segment: announced.first_segment,
            segments: announced.segments,
            name,
            flags: thread_flags::SAMPLED,
            ..ThreadRecord::default()
        };
        file.set_process(number);
        file.chunk(chunk::SNAPSHOT, &[&snapshot.to_bytes()])?;
        file.chunk(chunk::THREAD, &[&thread.to_bytes(), &array::<OpenCall>(&[])])
    }
}
