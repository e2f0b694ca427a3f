//! The rings of a process that has ended, or is read for the last time.

use std::io::{self, Write};

use everycall_format::Wire as _;
use everycall_format::arena::{ArenaHeader, SegmentEntry, thread_state};
use everycall_format::ect::{chunk, image_end, reason};
use everycall_machine::clock::Readings;
use everycall_tracefile::{
    ChunkWriter, Ring, Runs, Segments, ThreadSummary, array, is_segment, keep_settled,
};

use crate::memory::arena::Arena;
use crate::memory::open_calls::OpenCallBudget;
use crate::output::records::snapshot_record;
use crate::process::member::Member;

/// Writes the contents of the threads' rings. Returns the arena's header as it is in the file, and
/// the counts of the threads.
pub fn write<W: Write>(
    file: &mut ChunkWriter<W>,
    runs: &mut Runs,
    member: &Member,
    readings: &Readings,
) -> io::Result<(ArenaHeader, Vec<ThreadSummary>)> {
    let arena = &*member.arena;
    let header = arena.header();
    let segment_size = arena.layout().segment_size;
    let (ending, ticks) = member.end.unwrap_or((image_end::RUNNING, member.start_ticks));
    let used = |slot: &u32| matches!(arena.thread(*slot).state, thread_state::USED | thread_state::ENDED);
    let table = arena.segments();
    let slots: Vec<u32> = (0..arena.thread_count()).filter(used).collect();
    let reason = if ending == image_end::RUNNING { reason::REQUEST } else { reason::PROCESS_END };
    let record = snapshot_record(member, &header, reason, ticks, slots.len() as u32);
    file.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])?;
    let dropped = arena.dropped();
    let is_running = ending == image_end::RUNNING && dropped.is_there();
    let mut open_calls = OpenCallBudget::default();
    let mut threads = Vec::new();
    for (thread, slot) in (0..).zip(slots) {
        let header = arena.thread(slot);
        let whose = (slot, header.generation);
        let first = table.partition_point(|(_, entry)| (entry.slot, entry.generation) < whose);
        let own = table[first..].partition_point(|(_, entry)| (entry.slot, entry.generation) == whose);
        let goes_on = is_running.then_some(header.segment);
        let segments = SlotSegments { arena, entries: &table[first..first + own], goes_on };
        let ring = Ring::survey(&segments, header, segment_size);
        let name = member.names.newest(slot, &header);
        let mut record = ring.thread_record(member.number, thread, member.pid, slot, name);
        record.dropped = dropped.of_slot(slot);
        let calls = arena.open_calls_within(slot, &mut open_calls);
        file.chunk(chunk::THREAD, &[&record.to_bytes(), &array(&calls)])?;
        ring.write_events(file, runs, &record)?;
        threads.push(ring.summary(&record, ticks, |ticks| readings.nanoseconds(ticks)));
    }
    if let Some(names) = arena.frame_names() {
        names.write(file)?;
    }
    for (kind, [record, functions]) in dropped.chunks(member.number) {
        file.chunk(kind, &[&record, &functions])?;
    }
    Ok((header, threads))
}

/// The segments of a thread's ring.
struct SlotSegments<'a> {
    arena: &'a Arena,
    /// Their positions and entries.
    entries: &'a [(u32, SegmentEntry)],
    /// The segment that the thread may still write, and whose last words it may take back.
    goes_on: Option<u64>,
}

impl Segments for SlotSegments<'_> {
    fn each(&self, take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut bytes = vec![0; self.arena.layout().segment_size as usize];
        for (index, entry) in self.entries {
            self.arena.read_segment(*index, &mut bytes);
            if self.goes_on.is_some_and(|newest| newest <= entry.number) {
                let mut again = vec![0; bytes.len()];
                self.arena.read_segment(*index, &mut again);
                keep_settled(&mut bytes, &again);
            }
            if is_segment(&bytes, entry.number) {
                take(entry.number, &bytes)?;
            }
        }
        Ok(())
    }
}
