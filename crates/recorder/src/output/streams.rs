//! The streams of all processes, stored while they run.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everycall_format::arena::{ArenaHeader, ThreadHeader};
use everycall_format::ect::{chunk, image_end, reason};
use everycall_tracefile::{ChunkWriter, Runs, ThreadSummary, bytes_of};

use crate::output::records::{process_record, snapshot_record};
use crate::output::stream::arena_stream::{ArenaStream, Stored};
use crate::process::member::Member;

/// Pauses between two passes over what waits to be stored: the shortest after one that found a lot.
pub(crate) const PASS_PAUSES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(20);
/// A pass that finds more than this comes again at once; one that finds less than a quarter waits for longer.
const PASS_FULL: u64 = 4 << 20;
/// Time between two looks at the progress.
const PROGRESS_PAUSE: Duration = Duration::from_millis(500);

/// How far a stream has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Entries and exits in the file.
    pub events: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Events that are missing between them.
    pub lost: u64,
}

/// What is stored while the processes run.
pub(crate) struct Streams {
    /// By number of the process.
    arenas: BTreeMap<u32, ArenaStream>,
    pause: Duration,
    /// What processes left that are over.
    over: Stored,
    progress: Option<Box<dyn FnMut(Progress)>>,
    progress_due: Instant,
    /// What announces each process in a file: its PROCESS, its SNAPSHOT.
    heads: BTreeMap<u32, [Vec<u8>; 2]>,
}

/// What one pass has stored.
pub(crate) struct Pass {
    pub bytes: u64,
    /// How long to wait until the next one.
    pub pause: Duration,
}

/// What a process has stored when it is over.
pub(crate) struct Finished {
    /// The arena's header as it is in the file.
    pub header: ArenaHeader,
    pub lost: u64,
    pub threads: Vec<ThreadSummary>,
}

impl Streams {
    /// None so far; `progress` is told from time to time how far they are.
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

    /// Whether there is one of `member`.
    pub fn has(&self, member: &Member) -> bool {
        self.arenas.contains_key(&member.number)
    }

    /// Begins to store what `member` writes.
    pub fn join<W: Write>(&mut self, file: &mut ChunkWriter<W>, member: &Member) -> io::Result<()> {
        self.add(member)?;
        let process = bytes_of(&process_record(member, image_end::RUNNING, member.start_ticks));
        let process = [process, member.command.clone()].concat();
        let snapshot = bytes_of(&snapshot_record(member, &member.arena.header(), reason::STREAM, 0, 0));
        file.set_process(member.number);
        file.chunk(chunk::PROCESS, &[&process])?;
        file.chunk(chunk::SNAPSHOT, &[&snapshot])?;
        self.heads.insert(member.number, [process, snapshot]);
        Ok(())
    }

    /// Nothing of `member` is stored, and its threads needn't wait for that.
    pub fn join_in_vain(&mut self, member: &Member) -> io::Result<()> {
        self.add(member).map(ArenaStream::give_up)
    }

    fn add(&mut self, member: &Member) -> io::Result<&ArenaStream> {
        let arena = Arc::clone(&member.arena);
        let stream = ArenaStream::new(arena, member.number, member.pid, member.start_ticks)?;
        Ok(self.arenas.entry(member.number).or_insert(stream))
    }

    /// Stores what waits, up to `limit` bytes of each process.
    pub fn pass<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        limit: u64,
    ) -> (Pass, io::Result<()>) {
        let sum = |streams: &Streams| streams.arenas.values().map(|arena| arena.stored.bytes).sum::<u64>();
        let before = sum(self);
        let mut is_more = false;
        let mut stored = Ok(());
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

    /// Segments of process `number` that wait to be stored.
    pub fn waiting(&self, number: u32) -> usize {
        self.arenas.get(&number).map_or(0, ArenaStream::waiting)
    }

    /// A new file begins: it gets what announces the processes that are there.
    pub fn begin_file<W: Write>(&mut self, file: &mut ChunkWriter<W>) -> io::Result<()> {
        for (number, [process, snapshot]) in &self.heads {
            file.set_process(*number);
            file.chunk(chunk::PROCESS, &[process])?;
            file.chunk(chunk::SNAPSHOT, &[snapshot])?;
        }
        self.arenas.values_mut().for_each(ArenaStream::begin_file);
        Ok(())
    }

    /// Says how far the streams are, of which the file has `bytes`, where it is time to.
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

    /// Nothing is stored any more, and nobody waits for it.
    pub fn give_up(&self) {
        self.arenas.values().for_each(ArenaStream::give_up);
    }

    /// Writes what isn't stored yet of a process that is over, or is looked at for the last time; `None` where it has no stream.
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
        file.chunk(chunk::SNAPSHOT, &[&bytes_of(&snapshot)])?;
        if let Some((kind, [record, functions])) = stream.arena().dropped().chunk(member.number) {
            file.chunk(kind, &[&record, &functions])?;
        }
        Ok(Some(Finished { header, lost: stream.stored.lost, threads: stream.summaries() }))
    }
}
