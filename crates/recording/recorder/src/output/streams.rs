//! The streams of all processes, written while they run.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everycall_format::Wire as _;
use everycall_format::arena::{ArenaHeader, ThreadHeader};
use everycall_format::ect::{chunk, image_end, reason};
use everycall_tracefile::{ChunkWriter, Progress, Runs, ThreadSummary, write_stamps};

use crate::memory::arena::Arena;
use crate::output::records::{process_record, snapshot_record};
use crate::output::stream::arena_stream::{ArenaStream, Stored};
use crate::process::member::Member;

/// Pauses between two passes: the shortest after a pass that found much to write.
pub(crate) const PASS_PAUSES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(20);
/// A pass that finds more than this is repeated at once; after one that finds less than a quarter,
/// the pause grows.
const PASS_FULL: u64 = 4 << 20;
/// Time between two progress reports.
const PROGRESS_PAUSE: Duration = Duration::from_millis(500);

/// Everything that is stored while the processes run.
pub(crate) struct Streams {
    /// By number of the process.
    arenas: BTreeMap<u32, ArenaStream>,
    pause: Duration,
    /// Totals of ended processes.
    over: Stored,
    progress: Option<Box<dyn FnMut(Progress)>>,
    progress_due: Instant,
    /// The records that announce each process in a file.
    heads: BTreeMap<u32, Head>,
}

/// The records that announce a process in a file.
struct Head {
    process: Vec<u8>,
    snapshot: Vec<u8>,
    /// Which events have stamps, and which should have.
    stamps: u32,
    stamps_wanted: u32,
}

impl Head {
    fn write<W: Write>(
        &self,
        file: &mut ChunkWriter<W>,
        number: u32,
        arena: Option<&Arena>,
    ) -> io::Result<()> {
        file.set_process(number);
        file.chunk(chunk::PROCESS, &[&self.process])?;
        write_stamps(file, self.stamps, self.stamps_wanted)?;
        if let Some(arena) = arena {
            arena.write_calibration(file, None)?;
        }
        file.chunk(chunk::SNAPSHOT, &[&self.snapshot])
    }
}

/// The result of one pass.
pub(crate) struct Pass {
    pub bytes: u64,
    /// Time until the next pass.
    pub pause: Duration,
}

/// The stream of a process that has ended.
pub(crate) struct Finished {
    /// The arena's header as it is in the file.
    pub header: ArenaHeader,
    pub lost: u64,
    pub threads: Vec<ThreadSummary>,
}

impl Streams {
    /// No streams; `progress` is called from time to time.
    pub fn new(progress: Option<Box<dyn FnMut(Progress)>>) -> Streams {
        Streams {
            arenas: BTreeMap::new(),
            pause: *PASS_PAUSES.start(),
            over: Stored::default(),
            progress,
            progress_due: Instant::now() + PROGRESS_PAUSE,
            heads: BTreeMap::new(),
        }
    }

    /// Whether `member` has a stream.
    pub fn has(&self, member: &Member) -> bool {
        self.arenas.contains_key(&member.number)
    }

    /// Begins to write the events of `member`.
    pub fn join<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        member: &Member,
        stamps_wanted: u32,
    ) -> io::Result<()> {
        self.add(member)?;
        let process = process_record(member, image_end::RUNNING, member.start_ticks).to_bytes().to_vec();
        let process = [&process, member.title_or_command()].concat();
        let header = member.arena.header();
        let snapshot = snapshot_record(member, &header, reason::STREAM, 0, 0).to_bytes().to_vec();
        let head = Head { process, snapshot, stamps: header.stamps, stamps_wanted };
        head.write(file, member.number, Some(&member.arena))?;
        self.heads.insert(member.number, head);
        Ok(())
    }

    /// `member` isn't streamed, so its threads don't need to wait for that.
    pub fn join_in_vain(&mut self, member: &Member) -> io::Result<()> {
        self.add(member).map(ArenaStream::give_up)
    }

    fn add(&mut self, member: &Member) -> io::Result<&ArenaStream> {
        let arena = Arc::clone(&member.arena);
        let stream = ArenaStream::new(arena, member.number, member.pid, member.start_ticks)?;
        Ok(self.arenas.entry(member.number).or_insert(stream))
    }

    /// Writes what waits, up to `limit` bytes of each process.
    pub fn pass<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        limit: u64,
    ) -> (Pass, io::Result<()>) {
        let sum = |streams: &Streams| streams.arenas.values().map(|arena| arena.stored.bytes).sum::<u64>();
        let before = sum(self);
        let mut is_more = false;
        let mut stored = self.note_stamps(file);
        for arena in self.arenas.values_mut() {
            match arena.pass(file, runs, limit) {
                Ok(more) => is_more |= more,
                Err(error) => stored = stored.and(Err(error)),
            }
        }
        let stored = stored.and_then(|()| runs.write(file));
        let bytes = sum(self) - before;
        self.pause = match bytes {
            _ if is_more => Duration::ZERO,
            PASS_FULL.. => *PASS_PAUSES.start(),
            _ if bytes < PASS_FULL / 4 => (self.pause * 2).clamp(*PASS_PAUSES.start(), *PASS_PAUSES.end()),
            _ => self.pause,
        };
        (Pass { bytes, pause: self.pause }, stored)
    }

    /// Announces again which events have stamps, where that was chosen anew (`everycall enable`).
    fn note_stamps<W: Write>(&mut self, file: &mut ChunkWriter<W>) -> io::Result<()> {
        for (number, head) in &mut self.heads {
            let Some(arena) = self.arenas.get(number).map(ArenaStream::arena) else { continue };
            let stamps = arena.header().stamps;
            if head.stamps != stamps {
                head.stamps = stamps;
                file.set_process(*number);
                write_stamps(file, stamps, head.stamps_wanted)?;
            }
        }
        Ok(())
    }

    /// Number of segments of process `number` that wait to be written.
    pub fn waiting(&self, number: u32) -> usize {
        self.arenas.get(&number).map_or(0, ArenaStream::waiting)
    }

    /// A new file begins: announces the existing processes in it.
    pub fn begin_file<W: Write>(&mut self, file: &mut ChunkWriter<W>) -> io::Result<()> {
        for (number, head) in &self.heads {
            let arena = self.arenas.get(number).map(ArenaStream::arena);
            head.write(file, *number, arena)?;
        }
        self.arenas.values_mut().for_each(ArenaStream::begin_file);
        Ok(())
    }

    /// Reports the progress if it is time. `bytes` is the size of the file.
    pub fn tell_progress(&mut self, bytes: u64) {
        let Some(tell) = self.progress.as_mut().filter(|_| self.progress_due <= Instant::now()) else {
            return;
        };
        self.progress_due = Instant::now() + PROGRESS_PAUSE;
        let mut sum = self.over;
        for Stored { events, lost, .. } in self.arenas.values().map(|arena| arena.stored) {
            sum.events = sum.events.saturating_add(events);
            sum.lost = sum.lost.saturating_add(lost);
        }
        tell(Progress { events: sum.events, lost: sum.lost, bytes });
    }

    /// Stops writing; threads no longer wait.
    pub fn give_up(&self) {
        self.arenas.values().for_each(ArenaStream::give_up);
    }

    /// Writes the rest of a process that has ended, or is read for the last time; `None` if it has
    /// no stream.
    pub fn finish<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        member: &Member,
    ) -> io::Result<Option<Finished>> {
        let Some(mut stream) = self.arenas.remove(&member.number) else { return Ok(None) };
        self.heads.remove(&member.number);
        let name = |slot, header: &ThreadHeader| member.names.newest(slot, header);
        let finished = stream.finish(file, runs, name);
        stream.give_up();
        finished?;
        self.over.events = self.over.events.saturating_add(stream.stored.events);
        self.over.lost = self.over.lost.saturating_add(stream.stored.lost);
        let (_, ticks) = member.end.unwrap_or((image_end::RUNNING, member.start_ticks));
        let header = stream.arena().header();
        let snapshot = snapshot_record(member, &header, reason::STREAM, ticks, stream.announced());
        file.set_process(member.number);
        file.chunk(chunk::SNAPSHOT, &[&snapshot.to_bytes()])?;
        if let Some(names) = stream.arena().frame_names() {
            names.write(file)?;
        }
        for (kind, [record, functions]) in stream.arena().dropped().chunks(member.number) {
            file.chunk(kind, &[&record, &functions])?;
        }
        Ok(Some(Finished { header, lost: stream.stored.lost, threads: stream.summaries() }))
    }
}
