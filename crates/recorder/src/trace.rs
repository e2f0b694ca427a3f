//! Writes the `.ect` file: chunk by chunk, straight from the arena, in bounded memory.
//!
//! What a reader needs first comes first, so that a file that was cut still has its modules and clocks.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use everycall_format::arena::{
    ArenaHeader, ClockReading, OpenCall, SegmentEntry, process_state, thread_state,
};
use everycall_format::ect::{ModuleImage, SnapshotRecord, chunk, encoding, meta, reason};
use everycall_tracefile::{
    Child, ChunkWriter, Ring, Segments, Summary, array, bytes_of, is_segment, module_table, texts,
};

use crate::arena::Arena;
use crate::host;
use crate::program::Ended;

/// Module images are packed quickly rather than tightly: the program's user is waiting.
const IMAGE_COMPRESSION: i32 = 1;
/// The only snapshot of a file made at the program's end.
const SNAPSHOT: u32 = 0;

impl Ended {
    /// Writes the trace file, of everything that the arena holds. `tool_version` is everycall's. The output
    /// should be buffered.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write(&mut self, output: impl Write, tool_version: &str) -> io::Result<Summary> {
        let mut file = ChunkWriter::begin(output)?;
        let header = self.arena.header();
        let mut summary = Summary {
            traced: self.was_traced(),
            off: header.state == process_state::OFF,
            ring_size: self.arena.layout().ring_size,
            thread_capacity: self.arena.layout().thread_capacity,
            counters: header.counters,
            ..Summary::default()
        };
        file.chunk(chunk::META, &[&self.meta(tool_version)])?;
        file.chunk(chunk::CLOCK, &[&array(&self.clock_readings(&header))])?;
        file.chunk(chunk::MODULES, &[&self.module_table(&mut summary)])?;
        file.chunk(chunk::PROCESS_END, &[&bytes_of(&self.end)])?;
        self.write_children(&mut file, &mut summary)?;
        self.write_module_images(&mut file, &mut summary)?;
        self.write_snapshot(&mut file, &header, &mut summary)?;
        summary.file_size = file.end()?;
        Ok(summary)
    }

    fn meta(&self, tool_version: &str) -> Vec<u8> {
        let mut fields = vec![(meta::TOOL_VERSION, tool_version.as_bytes().to_vec())];
        let words = std::iter::once(&self.launch.program).chain(&self.launch.arguments);
        fields.extend(words.map(|word| (meta::ARGUMENT, word.as_bytes().to_vec())));
        if let Ok(folder) = std::env::current_dir() {
            fields.push((meta::WORKING_FOLDER, folder.as_os_str().as_bytes().to_vec()));
        }
        fields.extend(host::describe());
        texts(fields.iter().map(|(key, text)| (*key, text.as_slice())))
    }

    fn clock_readings(&self, header: &ArenaHeader) -> Vec<ClockReading> {
        let ours = self.readings.all();
        let mut all = ours.to_vec();
        let first = ours.first().map_or(0, |reading| reading.ticks);
        // The runtime's reading lies within ours, unless somebody wrote over it.
        if header.start.monotonic_raw_ns != 0 && (first..=self.end.ticks).contains(&header.start.ticks) {
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

    fn module_table(&self, summary: &mut Summary) -> Vec<u8> {
        let modules = (0..self.arena.module_count()).map(|index| {
            let module = self.arena.module(index);
            (module, self.arena.module_path(&module).unwrap_or_default())
        });
        module_table(modules, summary)
    }

    fn write_children<W: Write>(&self, file: &mut ChunkWriter<W>, summary: &mut Summary) -> io::Result<()> {
        let children = self.arena.children();
        summary.children = children.iter().map(Child::from).collect();
        file.chunk(chunk::CHILDREN, &[&array(&children)])
    }

    fn write_module_images<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        summary: &mut Summary,
    ) -> io::Result<()> {
        self.modules.moved(&self.arena, |module, bytes| {
            let length = bytes.len() as u64;
            let packed = zstd::bulk::compress(&bytes, IMAGE_COMPRESSION)?;
            let record = ModuleImage { module, encoding: encoding::ZSTD, length };
            file.chunk(chunk::MODULE_IMAGE, &[&bytes_of(&record), &packed])
        })?;
        summary.warnings.extend_from_slice(self.modules.warnings());
        Ok(())
    }

    fn write_snapshot<W: Write>(
        &self,
        file: &mut ChunkWriter<W>,
        header: &ArenaHeader,
        summary: &mut Summary,
    ) -> io::Result<()> {
        let layout = self.arena.layout();
        let pid = if header.target_pid == 0 { self.end.pid } else { header.target_pid };
        let used =
            |slot: &u32| matches!(self.arena.thread(*slot).state, thread_state::USED | thread_state::ENDED);
        let table = self.arena.segments();
        let slots: Vec<u32> = (0..self.arena.thread_count()).filter(used).collect();
        let snapshot = SnapshotRecord {
            snapshot: SNAPSHOT,
            reason: reason::PROCESS_END,
            pid,
            threads: slots.len() as u32,
            ticks: self.end.ticks,
            ring_size: layout.ring_size,
            segment_size: layout.segment_size,
            counters: header.counters,
        };
        file.chunk(chunk::SNAPSHOT, &[&bytes_of(&snapshot)])?;
        for (thread, slot) in (0..).zip(slots) {
            let header = self.arena.thread(slot);
            let whose = (slot, header.generation);
            let first = table.partition_point(|(_, entry)| (entry.slot, entry.generation) < whose);
            let own = table[first..].partition_point(|(_, entry)| (entry.slot, entry.generation) == whose);
            let segments = SlotSegments { arena: &self.arena, entries: &table[first..first + own] };
            let ring = Ring::survey(&segments, header, layout.segment_size);
            let name = self.names.newest(slot, &header);
            let record = ring.thread_record(SNAPSHOT, thread, pid, slot, name);
            let open_calls: Vec<OpenCall> = self.arena.open_calls(slot);
            file.chunk(chunk::THREAD, &[&bytes_of(&record), &array(&open_calls)])?;
            ring.write_events(file, &record)?;
            let nanoseconds = |ticks| self.readings.nanoseconds(ticks);
            summary.threads.push(ring.summary(&record, self.end.ticks, nanoseconds));
        }
        Ok(())
    }
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
