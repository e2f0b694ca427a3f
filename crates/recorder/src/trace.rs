//! Writes the `.ect` file: chunk by chunk, straight from the arenas, in bounded memory.
//!
//! What a reader needs first comes first, so that a file that was cut still has its modules and clocks. Processes that ended
//! while others run may be written before the others' ends are known.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use everycall_format::Wire;
use everycall_format::arena::{
    ArenaHeader, ChildEntry, ClockReading, OpenCall, SegmentEntry, process_state, thread_state,
};
use everycall_format::ect::{
    ModuleImage, NO_PROCESS, ProcessEnd, ProcessRecord, SnapshotRecord, chunk, encoding, image_end, meta,
    reason,
};
use everycall_tracefile::{
    Child, ChunkWriter, Ring, Segments, Summary, array, bytes_of, is_segment, module_table, texts,
};

use crate::arena::Arena;
use crate::clock::Readings;
use crate::family::Member;
use crate::host;
use crate::modules::Identity;
use crate::program::Launch;

/// Module images are packed quickly rather than tightly: the program's user is waiting.
const IMAGE_COMPRESSION: i32 = 1;

/// A trace file on its way.
pub struct TraceWriter<W> {
    file: ChunkWriter<W>,
    summary: Summary,
    /// Files of modules that are in the trace.
    images: HashSet<Identity>,
    /// Ticks of the newest clock reading in the file.
    clock_until: u64,
    /// The first error of what was written early.
    failed: Option<io::Error>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins the file. `tool_version` is everycall's. The output should be buffered.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn begin(output: W, launch: &Launch, tool_version: &str) -> io::Result<TraceWriter<W>> {
        let mut file = ChunkWriter::begin(output)?;
        file.chunk(chunk::META, &[&meta(launch, tool_version)])?;
        Ok(TraceWriter {
            file,
            summary: Summary::default(),
            images: HashSet::new(),
            clock_until: 0,
            failed: None,
        })
    }

    /// Writes processes that are over while others run. An error is kept for later: the program runs on.
    pub(crate) fn early(&mut self, members: Vec<Member>, readings: &Readings) {
        for mut member in members {
            if self.failed.is_none() {
                let written = self.clock(readings, None).and_then(|()| self.member(&mut member, readings));
                self.failed = written.err();
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
        self.file.set_process(member.number);
        self.record(member)?;
        self.modules(member)?;
        self.snapshot(member, readings)
    }

    /// Ends the file with what belongs to the whole recording.
    pub(crate) fn end(
        mut self,
        children: &[ChildEntry],
        untraced: u32,
        end: &ProcessEnd,
    ) -> io::Result<(Summary, W)> {
        self.file.set_process(0);
        self.file.chunk(chunk::PROCESS_END, &[&bytes_of(end)])?;
        self.file.chunk(chunk::CHILDREN, &[&array(children)])?;
        self.summary.children = children.iter().map(Child::from).collect();
        self.summary.untraced_processes = untraced;
        let (file_size, output) = self.file.end()?;
        self.summary.file_size = file_size;
        Ok((self.summary, output))
    }

    fn record(&mut self, member: &Member) -> io::Result<()> {
        let (ending, end_ticks) = member.end.unwrap_or((image_end::RUNNING, 0));
        let record = ProcessRecord {
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
        };
        self.summary.processes += 1;
        self.summary.running += u32::from(ending == image_end::RUNNING);
        self.file.chunk(chunk::PROCESS, &[&bytes_of(&record), &member.command])
    }

    fn modules(&mut self, member: &mut Member) -> io::Result<()> {
        let arena = &member.arena;
        let modules = (0..arena.module_count()).map(|index| {
            let module = arena.module(index);
            (module, arena.module_path(&module).unwrap_or_default())
        });
        let table = module_table(modules, &mut self.summary);
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
            let length = bytes.len() as u64;
            let packed = zstd::bulk::compress(&bytes, IMAGE_COMPRESSION)?;
            let record = ModuleImage { module, encoding: encoding::ZSTD, length };
            file.chunk(chunk::MODULE_IMAGE, &[&bytes_of(&record), &packed])
        })
    }

    fn snapshot(&mut self, member: &Member, readings: &Readings) -> io::Result<()> {
        let arena = &*member.arena;
        let header = arena.header();
        let layout = arena.layout();
        let summary = &mut self.summary;
        summary.traced = true;
        summary.off |= header.state == process_state::OFF;
        summary.ring_size = layout.ring_size;
        summary.thread_capacity = layout.thread_capacity;
        for (sum, count) in summary.counters.iter_mut().zip(header.counters) {
            *sum = sum.saturating_add(count);
        }
        let (ending, ticks) = member.end.unwrap_or((image_end::RUNNING, member.start_ticks));
        let used = |slot: &u32| matches!(arena.thread(*slot).state, thread_state::USED | thread_state::ENDED);
        let table = arena.segments();
        let slots: Vec<u32> = (0..arena.thread_count()).filter(used).collect();
        let snapshot = SnapshotRecord {
            snapshot: member.number,
            reason: if ending == image_end::RUNNING { reason::REQUEST } else { reason::PROCESS_END },
            pid: member.pid,
            threads: slots.len() as u32,
            ticks,
            ring_size: layout.ring_size,
            segment_size: layout.segment_size,
            counters: header.counters,
        };
        self.file.chunk(chunk::SNAPSHOT, &[&bytes_of(&snapshot)])?;
        for (thread, slot) in (0..).zip(slots) {
            let header = arena.thread(slot);
            let whose = (slot, header.generation);
            let first = table.partition_point(|(_, entry)| (entry.slot, entry.generation) < whose);
            let own = table[first..].partition_point(|(_, entry)| (entry.slot, entry.generation) == whose);
            let segments = SlotSegments { arena, entries: &table[first..first + own] };
            let ring = Ring::survey(&segments, header, layout.segment_size);
            let name = member.names.newest(slot, &header);
            let record = ring.thread_record(member.number, thread, member.pid, slot, name);
            let open_calls: Vec<OpenCall> = arena.open_calls(slot);
            self.file.chunk(chunk::THREAD, &[&bytes_of(&record), &array(&open_calls)])?;
            ring.write_events(&mut self.file, &record)?;
            let nanoseconds = |ticks| readings.nanoseconds(ticks);
            self.summary.threads.push(ring.summary(&record, ticks, nanoseconds));
        }
        Ok(())
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
