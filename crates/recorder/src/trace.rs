//! Writes the `.ect` file: chunk by chunk, straight from the arenas, in bounded memory.
//!
//! What a reader needs first comes first, so that a file that was cut still has its modules and clocks. Processes that ended
//! while others run may be written before the others' ends are known.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everycall_format::Wire;
use everycall_format::arena::{
    ArenaHeader, ChildEntry, ClockReading, SegmentEntry, ThreadHeader, counter, process_state, thread_state,
};
use everycall_format::ect::{
    NO_PROCESS, ProcessEnd, ProcessRecord, SnapshotRecord, chunk, image_end, meta, reason,
};
use everycall_tracefile::{
    Child, ChunkWriter, Ring, Runs, Segments, Summary, array, bytes_of, is_segment, module_image,
    module_table, texts,
};
use rustix::time::{ClockId, clock_gettime};

use crate::arena::{Arena, OpenCallBudget};
use crate::clock::Readings;
use crate::family::Member;
use crate::host;
use crate::modules::Identity;
use crate::program::Launch;
use crate::stream::{ArenaStream, Stored};

/// Pauses between two passes over what waits to be stored: the shortest after one that found a lot.
const PASS_PAUSES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(20);
/// A pass that finds more than this comes again at once; one that finds less than a quarter waits for longer.
const PASS_FULL: u64 = 4 << 20;
/// Up to the size of a file, so much of it is stored at once at most, as a power of two: it becomes no larger than that by this much.
const FILE_SHARE: u32 = 4;
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

/// A trace file on its way.
pub struct TraceWriter<W> {
    file: ChunkWriter<W>,
    /// Empty between two threads.
    runs: Runs,
    summary: Summary,
    /// Files of modules that are in the trace.
    images: HashSet<Identity>,
    /// Ticks of the newest clock reading in the file.
    clock_until: u64,
    /// The first error of what was written early.
    failed: Option<io::Error>,
    /// Where everything is stored.
    streams: Option<Streams>,
    /// The META payload, for files to come.
    meta: Vec<u8>,
    rotation: Option<Rotation<W>>,
    /// When this file began.
    begun: Instant,
}

/// What is stored while the processes run.
struct Streams {
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

/// Puts the next file in the place of the one that ended.
pub type NextFile<W> = Box<dyn FnMut(&mut W) -> io::Result<()>>;

/// When a stream goes on in another file, and how.
pub struct Rotation<W> {
    /// Bytes after which it does.
    pub size: u64,
    /// Time after which it does.
    pub age: Duration,
    /// Puts the next file in the place of the one that ended.
    pub next: NextFile<W>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins the file. `tool_version` is everycall's. The output should be buffered.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn begin(output: W, launch: &Launch, tool_version: &str) -> io::Result<TraceWriter<W>> {
        let mut file = ChunkWriter::begin(output)?;
        let meta = meta(launch, tool_version);
        file.chunk(chunk::META, &[&meta])?;
        Ok(TraceWriter {
            file,
            runs: Runs::default(),
            summary: Summary::default(),
            images: HashSet::new(),
            clock_until: 0,
            failed: None,
            streams: None,
            meta,
            rotation: None,
            begun: Instant::now(),
        })
    }

    /// The stream goes on in other files.
    pub fn rotate(&mut self, rotation: Rotation<W>) {
        self.rotation = Some(rotation);
    }

    /// Bytes of events that are stored at once at most: few where the file's size is nearly reached.
    fn pass_limit(&self) -> u64 {
        self.rotation.as_ref().map_or(u64::MAX, |rotation| {
            rotation.size.saturating_sub(self.file.position()).max(rotation.size >> FILE_SHARE)
        })
    }

    /// Goes on in the next file where it is time to. Each can be read on its own: it has the processes that are there.
    fn next_file(&mut self, readings: &Readings) -> io::Result<()> {
        let (Some(rotation), Some(streams)) = (&mut self.rotation, &mut self.streams) else { return Ok(()) };
        if self.file.position() < rotation.size && self.begun.elapsed() < rotation.age {
            return Ok(());
        }
        self.begun = Instant::now();
        let size = self.file.go_on(&mut rotation.next)?;
        self.summary.earlier_files += 1;
        self.summary.earlier_size = self.summary.earlier_size.saturating_add(size);
        self.file.chunk(chunk::META, &[&self.meta])?;
        for (number, [process, snapshot]) in &streams.heads {
            self.file.set_process(*number);
            self.file.chunk(chunk::PROCESS, &[process])?;
            self.file.chunk(chunk::SNAPSHOT, &[snapshot])?;
        }
        streams.arenas.values_mut().for_each(ArenaStream::begin_file);
        self.images.clear();
        self.clock_until = 0;
        self.clock(readings, None)
    }

    /// Everything is stored while the program runs; `progress` is told from time to time how far that is.
    pub fn stream(&mut self, progress: Option<Box<dyn FnMut(Progress)>>) {
        self.streams = Some(Streams {
            arenas: BTreeMap::new(),
            pause: *PASS_PAUSES.start(),
            over: Stored::default(),
            progress,
            progress_due: Instant::now() + PROGRESS_PAUSE,
            heads: BTreeMap::new(),
        });
        let flushed = self.file.flush();
        self.keep_error(flushed);
    }

    /// Does something with the output itself once the program runs, such as giving a stream's file its name. An error is kept for
    /// later.
    pub fn with_output(&mut self, act: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.failed.is_none() {
            let done = act(self.file.output());
            self.keep_error(done);
        }
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.streams.is_some()
    }

    /// Begins to store what new members write. An error is kept for later: the program runs on.
    pub(crate) fn join<'m>(&mut self, members: impl Iterator<Item = &'m Member>) {
        for member in members {
            let is_new =
                self.streams.as_ref().is_some_and(|streams| !streams.arenas.contains_key(&member.number));
            if is_new {
                let joined = self.join_one(member);
                self.keep_error(joined);
            }
        }
    }

    fn join_one(&mut self, member: &Member) -> io::Result<()> {
        let Some(streams) = &mut self.streams else { return Ok(()) };
        let stream =
            ArenaStream::new(Arc::clone(&member.arena), member.number, member.pid, member.start_ticks)?;
        if self.failed.is_some() {
            stream.give_up();
        }
        streams.arenas.insert(member.number, stream);
        if self.failed.is_some() {
            return Ok(());
        }
        let process =
            [bytes_of(&record(member, image_end::RUNNING, member.start_ticks)), member.command.clone()];
        let process = process.concat();
        let snapshot = bytes_of(&snapshot_record(member, &member.arena.header(), reason::STREAM, 0, 0));
        self.file.set_process(member.number);
        self.file.chunk(chunk::PROCESS, &[&process])?;
        self.file.chunk(chunk::SNAPSHOT, &[&snapshot])?;
        streams.heads.insert(member.number, [process, snapshot]);
        Ok(())
    }

    /// Stores what waits. How long to wait until the next pass. An error is kept for later.
    pub(crate) fn pass(&mut self, readings: &Readings) -> Duration {
        if self.failed.is_some() {
            return *PASS_PAUSES.end();
        }
        let limit = self.pass_limit();
        let Some(streams) = &mut self.streams else { return *PASS_PAUSES.end() };
        let sum = |streams: &Streams| streams.arenas.values().map(|arena| arena.stored.bytes).sum::<u64>();
        let before = sum(streams);
        let mut is_more = false;
        let mut stored = Ok(());
        for arena in streams.arenas.values_mut() {
            match arena.pass(&mut self.file, &mut self.runs, limit) {
                Ok(more) => is_more |= more,
                Err(error) => stored = stored.and(Err(error)),
            }
        }
        let stored = stored.and_then(|()| self.runs.write(&mut self.file));
        let bytes = sum(streams) - before;
        streams.pause = if is_more {
            Duration::ZERO
        } else if bytes >= PASS_FULL {
            *PASS_PAUSES.start()
        } else if bytes < PASS_FULL / 4 {
            (streams.pause * 2).clamp(*PASS_PAUSES.start(), *PASS_PAUSES.end())
        } else {
            streams.pause
        };
        let pause = streams.pause;
        let stored = stored.and_then(|()| self.clock(readings, None));
        let stored = stored.and_then(|()| self.next_file(readings));
        let stored = if bytes > 0 { stored.and_then(|()| self.file.flush()) } else { stored };
        self.keep_error(stored);
        self.tell_progress();
        pause
    }

    /// Stores what waits of a process that has ended, or is looked at for the last time, in as many files as that takes. (What is left
    /// then are the segments that threads hadn't ended.)
    fn pass_all(&mut self, number: u32, readings: &Readings) {
        if self.rotation.is_none() {
            return;
        }
        let waiting = |writer: &Self| {
            let arena = writer.streams.as_ref().and_then(|streams| streams.arenas.get(&number));
            arena.map_or(0, ArenaStream::waiting)
        };
        // One that runs may write as fast as we store it. Each pass takes a segment at least.
        for _ in 0..waiting(self) {
            if self.failed.is_some() || waiting(self) == 0 {
                break;
            }
            self.pass(readings);
        }
    }

    fn tell_progress(&mut self) {
        let Some(streams) = &mut self.streams else { return };
        let Some(tell) = streams.progress.as_mut().filter(|_| streams.progress_due <= Instant::now()) else {
            return;
        };
        streams.progress_due = Instant::now() + PROGRESS_PAUSE;
        let mut sum = streams.over;
        for Stored { events, lost, .. } in streams.arenas.values().map(|arena| arena.stored) {
            sum.events = sum.events.saturating_add(events);
            sum.lost = sum.lost.saturating_add(lost);
        }
        tell(Progress { events: sum.events, lost: sum.lost, bytes: self.file.position() });
    }

    /// Notes the first error of what is written while the program runs; from then on nobody waits for the disk.
    fn keep_error(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && self.failed.is_none()
        {
            self.failed = Some(error);
            let arenas = self.streams.iter().flat_map(|streams| streams.arenas.values());
            arenas.for_each(ArenaStream::give_up);
        }
    }

    /// Writes processes that are over while others run. An error is kept for later: the program runs on.
    pub(crate) fn early(&mut self, members: Vec<Member>, readings: &Readings) {
        for mut member in members {
            if self.failed.is_none() {
                let written = self.clock(readings, None).and_then(|()| self.member(&mut member, readings));
                self.keep_error(written);
            }
        }
    }

    /// Writes the clock readings that aren't in the file, with the start of `member` among them.
    pub(crate) fn clock(&mut self, readings: &Readings, first: Option<&Member>) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut new = match first {
            Some(member) if self.clock_until == 0 => with_start(readings.all(), &member.arena.header()),
            _ => readings.all().to_vec(),
        };
        new.retain(|reading| reading.ticks > self.clock_until);
        let Some(last) = new.last() else { return Ok(()) };
        self.clock_until = last.ticks;
        self.file.set_process(0);
        self.file.chunk(chunk::CLOCK, &[&array(&new)])
    }

    /// Writes a process that is over, or is looked at for the last time.
    pub(crate) fn member(&mut self, member: &mut Member, readings: &Readings) -> io::Result<()> {
        self.join(std::iter::once(&*member));
        self.pass_all(member.number, readings);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (ending, end_ticks) = member.end.unwrap_or((image_end::RUNNING, 0));
        self.summary.processes += 1;
        self.summary.running += u32::from(ending == image_end::RUNNING);
        self.file.set_process(member.number);
        let process = bytes_of(&record(member, ending, end_ticks));
        self.file.chunk(chunk::PROCESS, &[&process, &member.command])?;
        self.modules(member)?;
        let stream = self.streams.as_mut().and_then(|streams| streams.arenas.remove(&member.number));
        match stream {
            Some(stream) => self.end_stream(member, stream),
            None => self.snapshot(member, readings),
        }
    }

    /// Writes what a stream hasn't stored yet.
    fn end_stream(&mut self, member: &Member, mut stream: ArenaStream) -> io::Result<()> {
        let Some(streams) = &mut self.streams else { return Ok(()) };
        let name = |slot, header: &ThreadHeader| member.names.newest(slot, header);
        streams.heads.remove(&member.number);
        let finished = stream.finish(&mut self.file, &mut self.runs, name);
        stream.give_up();
        finished?;
        streams.over.events = streams.over.events.saturating_add(stream.stored.events);
        streams.over.lost = streams.over.lost.saturating_add(stream.stored.lost);
        let header = stream.arena().header();
        self.add_to_summary(member, &header);
        self.summary.streamed = true;
        self.summary.missing = self.summary.missing.saturating_add(stream.stored.lost);
        self.summary.threads.extend(stream.summaries());
        let (_, ticks) = member.end.unwrap_or((image_end::RUNNING, member.start_ticks));
        let snapshot = snapshot_record(member, &header, reason::STREAM, ticks, stream.announced());
        self.file.set_process(member.number);
        self.file.chunk(chunk::SNAPSHOT, &[&bytes_of(&snapshot)])
    }

    /// Writes a chunk of process number `process` that somebody else has made.
    pub(crate) fn chunk(&mut self, process: u32, kind: u32, payload: &[u8]) -> io::Result<()> {
        self.file.set_process(process);
        self.file.chunk(kind, &[payload])
    }

    fn add_to_summary(&mut self, member: &Member, header: &ArenaHeader) {
        let layout = member.arena.layout();
        let summary = &mut self.summary;
        summary.traced = true;
        summary.off |= header.state == process_state::OFF;
        summary.ring_size = layout.ring_size;
        summary.thread_capacity = layout.thread_capacity;
        for (sum, count) in summary.counters.iter_mut().zip(header.counters) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Ends the file with what belongs to the whole recording.
    pub(crate) fn end(
        mut self,
        children: &[ChildEntry],
        untraced: u32,
        end: &ProcessEnd,
        readings: &Readings,
    ) -> io::Result<(Summary, W)> {
        self.file.set_process(0);
        self.file.chunk(chunk::PROCESS_END, &[&bytes_of(end)])?;
        self.file.chunk(chunk::CHILDREN, &[&array(children)])?;
        self.summary.children = children.iter().map(Child::from).collect();
        self.summary.untraced_processes = untraced;
        self.summary.stall_ns = readings.nanoseconds(self.summary.counters[counter::STALL_TICKS]);
        let (file_size, output) = self.file.end()?;
        self.summary.file_size = file_size;
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        self.summary.cpu_ns = cpu.tv_sec.unsigned_abs() * 1_000_000_000 + cpu.tv_nsec.unsigned_abs();
        Ok((self.summary, output))
    }

    fn modules(&mut self, member: &mut Member) -> io::Result<()> {
        let arena = &member.arena;
        let table = module_table(member.modules.table(arena), &mut self.summary);
        self.file.chunk(chunk::MODULES, &[&table])?;
        let (file, images) = (&mut self.file, &mut self.images);
        member.modules.moved(arena, |identity, module, bytes| {
            if !images.insert(identity) {
                return Ok(());
            }
            let bytes = match bytes() {
                Ok(bytes) => bytes,
                Err(sentence) => {
                    self.summary.warnings.push(sentence);
                    return Ok(());
                }
            };
            let [record, packed] = module_image(module, &bytes)?;
            file.chunk(chunk::MODULE_IMAGE, &[&record, &packed])
        })
    }

    fn snapshot(&mut self, member: &Member, readings: &Readings) -> io::Result<()> {
        let arena = &*member.arena;
        let header = arena.header();
        let layout = arena.layout();
        self.add_to_summary(member, &header);
        let (ending, ticks) = member.end.unwrap_or((image_end::RUNNING, member.start_ticks));
        let used = |slot: &u32| matches!(arena.thread(*slot).state, thread_state::USED | thread_state::ENDED);
        let table = arena.segments();
        let slots: Vec<u32> = (0..arena.thread_count()).filter(used).collect();
        let reason = if ending == image_end::RUNNING { reason::REQUEST } else { reason::PROCESS_END };
        let record = snapshot_record(member, &header, reason, ticks, slots.len() as u32);
        self.file.chunk(chunk::SNAPSHOT, &[&bytes_of(&record)])?;
        let mut open_calls = OpenCallBudget::default();
        for (thread, slot) in (0..).zip(slots) {
            let header = arena.thread(slot);
            let whose = (slot, header.generation);
            let first = table.partition_point(|(_, entry)| (entry.slot, entry.generation) < whose);
            let own = table[first..].partition_point(|(_, entry)| (entry.slot, entry.generation) == whose);
            let segments = SlotSegments { arena, entries: &table[first..first + own] };
            let ring = Ring::survey(&segments, header, layout.segment_size);
            let name = member.names.newest(slot, &header);
            let record = ring.thread_record(member.number, thread, member.pid, slot, name);
            let calls = arena.open_calls_within(slot, &mut open_calls);
            self.file.chunk(chunk::THREAD, &[&bytes_of(&record), &array(&calls)])?;
            ring.write_events(&mut self.file, &mut self.runs, &record)?;
            let nanoseconds = |ticks| readings.nanoseconds(ticks);
            self.summary.threads.push(ring.summary(&record, ticks, nanoseconds));
        }
        Ok(())
    }
}

fn snapshot_record(
    member: &Member,
    header: &ArenaHeader,
    reason: u32,
    ticks: u64,
    threads: u32,
) -> SnapshotRecord {
    let layout = member.arena.layout();
    SnapshotRecord {
        snapshot: member.number,
        reason,
        pid: member.pid,
        threads,
        ticks,
        ring_size: layout.ring_size,
        segment_size: layout.segment_size,
        counters: header.counters,
    }
}

fn record(member: &Member, ending: u32, end_ticks: u64) -> ProcessRecord {
    ProcessRecord {
        record_size: ProcessRecord::SIZE as u32,
        pid: member.pid,
        parent_pid: member.parent_pid,
        parent: member.parent.unwrap_or(NO_PROCESS),
        origin: member.origin,
        ending,
        start_ticks: member.start_ticks,
        end_ticks,
        name: member.name,
        command_length: member.command.len() as u32,
        reserved: 0,
    }
}

fn meta(launch: &Launch, tool_version: &str) -> Vec<u8> {
    let mut fields = vec![(meta::TOOL_VERSION, tool_version.as_bytes().to_vec())];
    let words = std::iter::once(&launch.program).chain(&launch.arguments);
    fields.extend(words.map(|word| (meta::ARGUMENT, word.as_bytes().to_vec())));
    if let Ok(folder) = std::env::current_dir() {
        fields.push((meta::WORKING_FOLDER, folder.as_os_str().as_bytes().to_vec()));
    }
    fields.extend(host::describe());
    texts(fields.iter().map(|(key, text)| (*key, text.as_slice())))
}

/// Our readings and the runtime's at its start, which lies within ours, unless somebody wrote over it.
fn with_start(ours: &[ClockReading], header: &ArenaHeader) -> Vec<ClockReading> {
    let mut all = ours.to_vec();
    let (first, last) = (ours.first(), ours.last());
    let within = first.map_or(0, |reading| reading.ticks)..=last.map_or(0, |reading| reading.ticks);
    if header.start.monotonic_raw_ns != 0 && within.contains(&header.start.ticks) {
        let place = all.partition_point(|reading| reading.ticks < header.start.ticks);
        let in_order = |index: Option<usize>, order: fn(u64, u64) -> bool| {
            index
                .and_then(|index| ours.get(index))
                .is_none_or(|reading| order(reading.monotonic_raw_ns, header.start.monotonic_raw_ns))
        };
        if in_order(place.checked_sub(1), |before, ours| before <= ours)
            && in_order(Some(place), |after, ours| after >= ours)
        {
            all.insert(place, header.start);
        }
    }
    all
}

/// The segments of a thread's ring.
struct SlotSegments<'a> {
    arena: &'a Arena,
    /// Where they lie, and what they are.
    entries: &'a [(u32, SegmentEntry)],
}

impl Segments for SlotSegments<'_> {
    fn each(&self, take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut bytes = vec![0; self.arena.layout().segment_size as usize];
        for (index, entry) in self.entries {
            self.arena.read_segment(*index, &mut bytes);
            if is_segment(&bytes, entry.number) {
                take(entry.number, &bytes)?;
            }
        }
        Ok(())
    }
}
