//! The memory shared with the traced process: created and read here, written there.
//!
//! It is read through its file descriptor instead of a mapping. Reading therefore can't fault,
//! unused parts stay unused (a hole reads as zeros), and a limit on our address space doesn't
//! matter.
//!
//! Sizes and offsets come from the header that we wrote, never from the arena's present contents.

use std::io::{self, Write};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, ModuleEntry, OpenCall, PAGE, SegmentEntry, ThreadHeader};
use everycall_format::crash::{Beginning, CRASH_OFFSET};
use everycall_format::dropped::{DroppedHeader, counting};
use everycall_format::hub::{OWNER_MODE, SPARE_MODE};
use everycall_format::trigger::{GROW_TICKS, NEVER, TriggerHeader, rule_at};
use everycall_machine::proc_files::Name;
use everycall_tracefile::{ChunkWriter, Dropped, FrameNames, write_calibration};
use rustix::fs::Mode;

use crate::memory::contents::ArenaContents;
use crate::memory::frame_rules::Rules;
use crate::memory::memory_file;
use crate::memory::shared_pool::SharedPool;

/// The duration below which calls aren't recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinDuration {
    /// In nanoseconds, as requested.
    pub nanoseconds: u64,
    /// In ticks.
    pub ticks: u64,
}

/// Which calls are counted instead of recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unrecorded {
    /// None.
    #[default]
    Nothing,
    /// Shorter calls that call no recorded function.
    Short(MinDuration),
    /// All.
    Everything(Counting),
}

impl Unrecorded {
    /// Whether arenas need room for times.
    pub(crate) fn has_times(self) -> bool {
        matches!(self, Unrecorded::Everything(Counting::Times | Counting::Memory))
    }

    /// Whether arenas need room for counts by values.
    pub(crate) fn has_values(self) -> bool {
        self == Unrecorded::Everything(Counting::Values)
    }
}

/// Counts kept of calls that aren't recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Their number.
    Calls,
    /// Their number and times.
    Times,
    /// Their number and times, and what they allocate.
    Memory,
    /// How often they have the same values.
    Values,
}

/// The arena of one program.
#[derive(Debug)]
pub struct Arena {
    file: OwnedFd,
    /// The header as we wrote it; the traced process may change the arena's copy.
    layout: ArenaHeader,
}

impl Arena {
    /// Creates an arena with these sizes and offsets. Threads may use `trigger_memory` bytes beyond
    /// their rings for triggers.
    ///
    /// # Errors
    ///
    /// No memory, or no descriptor.
    pub(crate) fn create(
        mut layout: ArenaHeader,
        trigger_memory: u64,
        unrecorded: Unrecorded,
    ) -> io::Result<Arena> {
        layout.recorder_pid = std::process::id();
        let file = memory_file::create(memory_file::ARENA, layout.arena_size, OWNER_MODE | SPARE_MODE)?;
        memory_file::write_at(&file, &layout, 0)?;
        if let Some(at) = layout.triggers_at() {
            let segments = trigger_memory.checked_div(layout.segment_size).unwrap_or(0);
            let triggers = TriggerHeader {
                floor: NEVER,
                segments_allowed: u32::try_from(segments).unwrap_or(u32::MAX),
                grow_ticks: GROW_TICKS,
                ..TriggerHeader::default()
            };
            memory_file::write_at(&file, &triggers, at)?;
        }
        // Where values are counted, hooks leave out calls as if a condition on them were false.
        if unrecorded != Unrecorded::Nothing && !unrecorded.has_values() {
            let counts = |counting| DroppedHeader { counting, ..DroppedHeader::default() };
            let dropped = match unrecorded {
                Unrecorded::Short(MinDuration { nanoseconds, ticks }) => DroppedHeader {
                    threshold: ticks,
                    threshold_ns: nanoseconds,
                    highest_ns: nanoseconds,
                    ..DroppedHeader::default()
                },
                Unrecorded::Everything(Counting::Times) => counts(counting::TIMES),
                Unrecorded::Everything(Counting::Memory) => counts(counting::MEMORY),
                _ => counts(counting::CALLS),
            };
            memory_file::write_at(&file, &dropped, layout.dropped_offset)?;
        }
        Ok(Arena { file, layout })
    }

    /// Writes what is known of triggers before there are functions.
    pub(crate) fn put_rules(&self, rules: &Rules) -> io::Result<()> {
        let Some(at) = self.layout.triggers_at() else { return Ok(()) };
        let count = at + offset_of!(TriggerHeader, rules) as u64;
        memory_file::write_bytes_at(&self.file, &rules.count.to_le_bytes(), count)?;
        memory_file::write_bytes_at(&self.file, &rules.of_frames, at + rule_at(0))
    }

    /// From here on no other process can take it, whatever the hub contains.
    pub(crate) fn unmark_spare(&self) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(OWNER_MODE))?)
    }

    /// Its number in the hub: its descriptor plus 1.
    pub(crate) fn number(&self) -> u32 {
        self.file.as_raw_fd().unsigned_abs() + 1
    }

    /// Its pool of segments, mapped into our memory.
    pub(crate) fn shared_pool(&self) -> io::Result<SharedPool> {
        SharedPool::map(self.file.as_fd(), &self.layout)
    }

    /// Its memory file.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The inode of its memory file; 0, which no file has, if the kernel doesn't provide it.
    pub(crate) fn inode(&self) -> u64 {
        memory_file::inode(&self.file)
    }

    /// Bytes of memory that it occupies.
    pub(crate) fn allocated(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_blocks.unsigned_abs() * 512)
    }

    /// Sizes and offsets, as they were when the arena was made.
    #[must_use]
    pub fn layout(&self) -> &ArenaHeader {
        &self.layout
    }

    /// The present header: its counts and process ids come from the traced process and are
    /// untrusted.
    #[must_use]
    pub fn header(&self) -> ArenaHeader {
        self.read_at(0)
    }

    /// The command line that its process was started with, each word ended by a zero byte unless it
    /// is truncated, and the process's name at that time. `None` if the process hasn't provided
    /// them. Untrusted.
    #[must_use]
    pub fn beginning(&self) -> Option<(Vec<u8>, Name)> {
        let mut bytes = [0; (PAGE - CRASH_OFFSET) as usize];
        self.read_bytes(CRASH_OFFSET, &mut bytes);
        let beginning = Beginning::parse(&bytes)?;
        Some((beginning.command.to_vec(), beginning.name))
    }

    /// Entries of the module table in use.
    #[must_use]
    pub fn module_count(&self) -> u32 {
        self.header().modules.min(self.layout.module_capacity)
    }

    /// A module entry; `index` is below [`Arena::module_count`].
    #[must_use]
    pub fn module(&self, index: u32) -> ModuleEntry {
        let index = u64::from(index.min(self.layout.module_capacity - 1));
        self.read_at(self.layout.modules_offset + index * ModuleEntry::SIZE as u64)
    }

    /// The path of a module; `None` if it has none, or if it lies outside of the path area.
    #[must_use]
    pub fn module_path(&self, module: &ModuleEntry) -> Option<Vec<u8>> {
        let (offset, length) = (u64::from(module.path_offset), u64::from(module.path_length));
        let inside = length > 0 && length <= 4096 && offset + length <= self.layout.paths_size;
        inside.then(|| {
            let mut path = vec![0; length as usize];
            self.read_bytes(self.layout.paths_offset + offset, &mut path);
            path
        })
    }

    /// Thread slots in use.
    #[must_use]
    pub fn thread_count(&self) -> u32 {
        self.header().threads.min(self.layout.thread_capacity)
    }

    /// The header of a thread slot; `slot` is below [`Arena::thread_count`].
    #[must_use]
    pub fn thread(&self, slot: u32) -> ThreadHeader {
        self.read_at(self.slot_offset(slot))
    }

    /// The segments in use, by position in the pool: grouped by thread, sorted by number.
    #[must_use]
    pub fn segments(&self) -> Vec<(u32, SegmentEntry)> {
        /// Number of entries that are read at once.
        const STEP: u32 = 1024;
        let taken = self.header().segments_taken.min(self.layout.segment_capacity);
        let mut found = Vec::new();
        let mut bytes = vec![0; STEP as usize * SegmentEntry::SIZE];
        for first in (0..taken).step_by(STEP as usize) {
            let bytes = &mut bytes[..STEP.min(taken - first) as usize * SegmentEntry::SIZE];
            self.read_bytes(self.layout.segment_entry_at(first), bytes);
            let entries = bytes.chunks_exact(SegmentEntry::SIZE).filter_map(SegmentEntry::read);
            found.extend((first..).zip(entries).filter(|(_, entry)| entry.is_readable()));
        }
        found.sort_by_key(|(_, entry)| (entry.slot, entry.generation, entry.number));
        found
    }

    /// The short calls that were dropped so far.
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        Dropped::read(&self.layout, self.thread_count(), |offset, bytes| {
            self.read_bytes(offset, bytes);
            true
        })
    }

    /// The short calls that were dropped so far by the threads of a slot.
    pub fn dropped_in_slot(&self, slot: u32) -> u64 {
        if self.layout.dropped_offset == 0 || slot >= self.layout.thread_capacity {
            return 0;
        }
        let mut count = [0; size_of::<u64>()];
        self.read_bytes(self.layout.dropped_counts_at(slot), &mut count);
        u64::from_le_bytes(count)
    }

    /// The names of frames by id that the process has stored so far.
    #[must_use]
    pub fn frame_names(&self) -> Option<FrameNames> {
        FrameNames::read(&self.layout, |offset, bytes| {
            self.read_bytes(offset, bytes);
            true
        })
    }

    /// Writes the chunk of what the process's hooks cost, with the CPU time that it took.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write_calibration<W: Write>(
        &self,
        file: &mut ChunkWriter<W>,
        cpu_ns: Option<u64>,
    ) -> io::Result<()> {
        write_calibration(file, cpu_ns, |offset, bytes| {
            self.read_bytes(offset, bytes);
            true
        })
    }

    /// Whether the process has stored names of frames by id, or reported such frames.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        let names = self.read_at::<everycall_format::frame::FrameNames>(self.layout.frames_offset);
        names.is_used & everycall_format::frame::used::FRAMES != 0
    }

    /// Copies segment `index` of the pool into `bytes`.
    pub fn read_segment(&self, index: u32, bytes: &mut [u8]) {
        let index = index.min(self.layout.segment_capacity.saturating_sub(1));
        self.read_bytes(self.layout.segment_at(index), bytes);
    }

    /// Writes bytes there. Only for parts that the traced process doesn't write.
    pub(super) fn write_bytes(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        memory_file::write_bytes_at(&self.file, bytes, offset)
    }

    fn slot_offset(&self, slot: u32) -> u64 {
        self.layout.thread_at(slot.min(self.layout.thread_capacity - 1))
    }

    fn read_at<T: Wire + Default>(&self, offset: u64) -> T {
        let mut bytes = vec![0; T::SIZE];
        self.read_bytes(offset, &mut bytes);
        T::read(&bytes).unwrap_or_default()
    }

    pub(super) fn read_bytes(&self, offset: u64, bytes: &mut [u8]) {
        memory_file::read_at(&self.file, offset, bytes);
    }
}

impl ArenaContents for Arena {
    fn file(&self) -> Option<(BorrowedFd<'_>, &ArenaHeader)> {
        Some((Arena::file(self), self.layout()))
    }

    fn thread_count(&self) -> u32 {
        Arena::thread_count(self)
    }

    fn thread(&self, slot: u32) -> ThreadHeader {
        Arena::thread(self, slot)
    }

    fn open_calls(&self, slot: u32) -> Vec<OpenCall> {
        Arena::open_calls(self, slot)
    }

    fn frame_names_since(&self, from: u64) -> Vec<u8> {
        let read = |offset, bytes: &mut [u8]| {
            self.read_bytes(offset, bytes);
            true
        };
        FrameNames::since(&self.layout, from, read).map(FrameNames::into_records).unwrap_or_default()
    }

    fn segment_size(&self) -> u64 {
        self.layout().segment_size
    }

    fn read_segment(&self, index: u32, bytes: &mut [u8]) {
        Arena::read_segment(self, index, bytes);
    }
}

#[cfg(test)]
mod tests {
    use everycall_format::env::RING_SIZE_MIN;

    use super::Unrecorded;
    use crate::memory::capacity::Capacity;

    #[test]
    fn a_new_arena_is_empty_and_consistent() {
        let arena = Capacity::find(RING_SIZE_MIN, None, None, Unrecorded::Nothing, false, 0)
            .unwrap()
            .arena()
            .unwrap();
        let header = arena.header();
        assert!(header.is_consistent(rustix::fs::fstat(&arena.file).unwrap().st_size as u64));
        assert_eq!(header.thread_capacity, everycall_format::arena::THREAD_CAPACITY);
        assert_eq!(header.recorder_pid, std::process::id());
        assert_eq!((arena.thread_count(), arena.module_count(), header.target_pid), (0, 0, 0));
        assert!(arena.open_calls(0).is_empty());
    }

    /// The traced program may write anything anywhere.
    #[test]
    fn overwritten_memory_is_read_without_panic() {
        let arena = Capacity::find(RING_SIZE_MIN, None, None, Unrecorded::Nothing, false, 0)
            .unwrap()
            .arena()
            .unwrap();
        let layout = *arena.layout();
        let noise: Vec<u8> = (0..layout.open_calls_offset + 2 * layout.open_call_stride)
            .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1)
            .collect();
        rustix::io::pwrite(&arena.file, &noise, 0).unwrap();
        assert_eq!(arena.thread_count(), layout.thread_capacity);
        assert_eq!(arena.module_count(), layout.module_capacity);
        for index in 0..arena.module_count() {
            let _ = arena.module_path(&arena.module(index));
        }
        let deepest = (0..arena.thread_count()).map(|slot| arena.open_calls(slot).len()).max();
        assert!(deepest.unwrap() < layout.open_call_capacity as usize);
        let mut segment = vec![0; layout.segment_size as usize];
        arena.read_segment(u32::MAX, &mut segment);
        assert!(arena.segments().len() <= layout.segment_capacity as usize);
        assert_eq!(*arena.layout(), layout);
    }
}
