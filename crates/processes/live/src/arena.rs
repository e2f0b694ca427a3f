//! The contents of a live arena. Sizes and offsets are those of its header when it was opened,
//! checked against the mapping; the traced program can change everything else at any time.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

use everycall_format::Wire;
use everycall_format::arena::{
    ARENA_MAGIC, ARENA_VERSION, ArenaHeader, ChildEntry, ModuleEntry, OpenCall, PAGE, PINNERS_OFFSET,
    PinnerEntry, ThreadHeader, thread_state,
};
use everycall_format::crash::{Beginning, CRASH_OFFSET};
use everycall_format::dropped::{DroppedHeader, TICKS_MAX, counting};
use everycall_format::event::WORD_SIZE;
use everycall_format::frame;
use everycall_format::trampoline::Trampoline;
use everycall_machine::clock;
use everycall_ring::Pool;
use everycall_tracefile::{AllCalls, ChunkWriter, Dropped, FrameNames, KeptStates, write_calibration};

use crate::error::LiveError;
use crate::mapping::Mapping;
use crate::process::ProcessFacts;

/// Arenas of our own are larger than this; so a smaller segment needs no look.
const SEGMENT_MIN: u64 = 1 << 20;

/// How an arena was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It belongs to `record`, whose process id is this, as that process sees itself.
    Recorder(u32),
    /// It is the process's own.
    Own,
}

impl Reached {
    pub(crate) fn of(recorder: u32) -> Reached {
        if recorder == 0 { Reached::Own } else { Reached::Recorder(recorder) }
    }
}

/// Whether a mapping of so many bytes may be an arena.
pub(crate) fn may_be_arena(size: u64) -> bool {
    size >= SEGMENT_MIN
}

/// Limit on thread slots that are read.
const THREADS_MAX: u32 = 1 << 16;
/// Limit on modules that are read; a reader takes no more.
const MODULES_MAX: u32 = 1 << 16;
/// Longest path.
const PATH_MAX: u64 = 4096;
/// Limit on bytes of paths that are read; an arena has room for a megabyte.
const PATHS_MAX: u64 = 16 << 20;

/// The arena of a process that runs.
#[derive(Debug)]
pub struct LiveArena {
    mapping: Mapping,
    layout: ArenaHeader,
    process: ProcessFacts,
    file: Option<PathBuf>,
}

/// Used instead of a missing field, which [`LiveArena::open`] excludes.
static NO_FIELD: (AtomicU32, AtomicU64) = (AtomicU32::new(0), AtomicU64::new(0));

impl LiveArena {
    /// The arena in `mapping`. `None` where there is none.
    pub(crate) fn open(mapping: Mapping, process: &ProcessFacts) -> Result<Option<LiveArena>, LiveError> {
        if !may_be_arena(mapping.size()) {
            return Ok(None);
        }
        let Some(layout) = read::<ArenaHeader>(&mapping, 0).filter(|header| header.magic == ARENA_MAGIC)
        else {
            return Ok(None);
        };
        if layout.version != ARENA_VERSION {
            return Err(LiveError::Version(layout.version));
        }
        if !layout.is_consistent(mapping.size()) || layout.arena_size < PAGE {
            return Err(LiveError::Damaged);
        }
        let mut process = process.clone();
        let bytes = bytes_at(&mapping, CRASH_OFFSET, PAGE - CRASH_OFFSET);
        if let Some(beginning) = Beginning::parse(&bytes) {
            process.folder = beginning.folder.to_vec();
            // The kernel's command line may be a title by now, in the place of the words that it
            // was started with.
            if beginning.has_whole_command() {
                process.set_command(beginning.words().map(<[u8]>::to_vec).collect());
            }
        }
        Ok(Some(LiveArena { mapping, layout, process, file: None }))
    }

    /// The arena, as one in this crash file.
    pub(crate) fn in_file(self, path: PathBuf) -> LiveArena {
        LiveArena { file: Some(path), ..self }
    }

    /// The path of its crash file, as its process sees it, where it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The arena of process `pid` in a memory file that this process made: its sizes and offsets
    /// are those of `layout`, even if its header was overwritten since.
    ///
    /// # Errors
    ///
    /// It can't be mapped, or isn't what the layout says.
    pub fn of_file(file: BorrowedFd<'_>, layout: &ArenaHeader, pid: u32) -> Result<LiveArena, LiveError> {
        let mapping = Mapping::of_file(file).map_err(LiveError::Map)?;
        if !layout.is_consistent(mapping.size()) {
            return Err(LiveError::Damaged);
        }
        let mut layout = *layout;
        if let Some(now) = read::<ArenaHeader>(&mapping, 0) {
            layout.start = now.start;
        }
        let process = ProcessFacts { pid, ..ProcessFacts::default() };
        Ok(LiveArena { mapping, layout, process, file: None })
    }

    /// The arena, with these facts about its process.
    #[must_use]
    pub fn with_process(self, process: ProcessFacts) -> LiveArena {
        LiveArena { process, ..self }
    }

    /// The process that writes it.
    #[must_use]
    pub fn process(&self) -> &ProcessFacts {
        &self.process
    }

    /// Sizes and offsets, as they were when it was opened.
    #[must_use]
    pub fn layout(&self) -> &ArenaHeader {
        &self.layout
    }

    /// The header as it is now.
    #[must_use]
    pub fn header(&self) -> ArenaHeader {
        read(&self.mapping, 0).unwrap_or(self.layout)
    }

    /// Whether it is a recorder's.
    #[must_use]
    pub fn reached(&self) -> Reached {
        Reached::of(self.layout.recorder_pid)
    }

    /// The word at `offset`, if it lies inside.
    #[must_use]
    pub fn word_at(&self, offset: u64) -> Option<&AtomicU32> {
        self.mapping.u32_at(offset)
    }

    /// The eight bytes at `offset`, if they lie inside.
    #[must_use]
    pub fn long_at(&self, offset: u64) -> Option<&AtomicU64> {
        self.mapping.u64_at(offset)
    }

    fn field(&self, offset: usize) -> &AtomicU32 {
        self.mapping.u32_at(offset as u64).unwrap_or(&NO_FIELD.0)
    }

    fn long_field(&self, offset: usize) -> &AtomicU64 {
        self.mapping.u64_at(offset as u64).unwrap_or(&NO_FIELD.1)
    }

    /// The pool of segments.
    #[must_use]
    pub fn pool(&self) -> Pool<'_> {
        let layout = &self.layout;
        let segment_words = layout.segment_size / WORD_SIZE as u64;
        let capacity = u64::from(layout.segment_capacity);
        Pool {
            entries: self.mapping.segment_entries(layout.segment_table_offset, capacity),
            words: self.mapping.words(layout.segments_offset, capacity * segment_words),
            base: self.mapping.base() + layout.segments_offset,
            segment_words: segment_words as usize,
            taken: self.field(offset_of!(ArenaHeader, segments_taken)),
            free: self.long_field(offset_of!(ArenaHeader, free_segments)),
            in_use: self.field(offset_of!(ArenaHeader, segments_in_use)),
            ring_segments: self.field(offset_of!(ArenaHeader, ring_segments)),
            extra: layout.extra_segments,
            grow_until: self.long_field(offset_of!(ArenaHeader, grow_until)),
            room: None,
        }
    }

    /// Maps all pages of a completely written segment at once: their page faults, one by one, take
    /// longer than reading them.
    pub(crate) fn populate(&self, index: u32) {
        let size = self.layout.segment_size;
        self.mapping.populate(self.layout.segments_offset + u64::from(index) * size, size);
    }

    /// Counts segments given back; a futex.
    pub(crate) fn pool_doorbell(&self) -> &AtomicU32 {
        self.field(offset_of!(ArenaHeader, pool_doorbell))
    }

    /// Threads that wait for segments.
    pub(crate) fn pool_waiters(&self) -> &AtomicU32 {
        self.field(offset_of!(ArenaHeader, pool_waiters))
    }

    /// Process id, beginning of the use, and beginning of the process in entry `index` of the table
    /// of pinners.
    pub(crate) fn pinner(&self, index: u32) -> (&AtomicU32, &AtomicU64, &AtomicU64) {
        let at = PINNERS_OFFSET as usize + index as usize * PinnerEntry::SIZE;
        let since = self.long_field(at + offset_of!(PinnerEntry, since));
        (self.field(at), since, self.long_field(at + offset_of!(PinnerEntry, started)))
    }

    /// Asks the process to open its control socket.
    pub(crate) fn ask_for_control(&self) {
        self.field(offset_of!(ArenaHeader, control_asked)).store(1, Release);
    }

    /// Whether it listens: one of [`everycall_format::control_socket::control_state`].
    pub(crate) fn control_state(&self) -> u32 {
        self.field(offset_of!(ArenaHeader, control_state)).load(Acquire)
    }

    /// Whether the process has opened its control socket. Until then, it records what it was
    /// started to record.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.control_state() == everycall_format::control_socket::control_state::LISTENING
    }

    /// Whether the process records anything.
    #[must_use]
    pub fn is_tracing(&self) -> bool {
        self.header().state == everycall_format::arena::process_state::TRACING
    }

    /// Words that its threads have written so far, threads that have ended and whose slots are
    /// others' not included. Most words are events; others are parts of records.
    #[must_use]
    pub fn events_written(&self) -> u64 {
        let words = self.layout.segment_size / WORD_SIZE as u64;
        let threads = (0..self.thread_count()).filter_map(|slot| Some((slot, self.thread(slot)?)));
        // The newest segment's number, and which it is if it is in use. Threads go on meanwhile, so
        // segments may be newer than their thread's header said.
        let mut newest: HashMap<(u32, u32), (u64, Option<u32>)> =
            threads.map(|(slot, header)| ((slot, header.generation), (header.segment, None))).collect();
        let pool = self.pool();
        for index in 0..self.segments_taken() {
            let Some(entry) = pool.entries.get(index as usize).filter(|entry| entry.pins.load(Acquire) != 0)
            else {
                continue;
            };
            let owner = (entry.slot.load(Relaxed), entry.generation.load(Relaxed));
            let number = entry.number.load(Relaxed);
            if let Some(known) = newest.get_mut(&owner).filter(|(newest, _)| number >= *newest) {
                *known = (number, Some(index));
            }
        }
        // Words behind the first empty one aren't written yet.
        let begun = |index: u32| pool.segment(index).partition_point(|word| word.load(Relaxed) != 0) as u64;
        newest.into_values().fold(0, |sum: u64, (number, index)| {
            sum.saturating_add(number.saturating_mul(words)).saturating_add(index.map_or(0, begun))
        })
    }

    /// The name of its control socket, its first byte lowest.
    pub(crate) fn control_name(&self) -> u64 {
        self.long_field(offset_of!(ArenaHeader, control_name)).load(Acquire)
    }

    /// Segments that were ever used; those behind weren't.
    pub(crate) fn segments_taken(&self) -> u32 {
        self.pool().taken.load(Acquire).min(self.layout.segment_capacity)
    }

    /// Thread slots that were ever used.
    #[must_use]
    pub fn thread_count(&self) -> u32 {
        self.header().threads.min(self.layout.thread_capacity).min(THREADS_MAX)
    }

    /// The header of slot `slot`, if a thread uses or used it, and the slot was not reused
    /// meanwhile.
    #[must_use]
    pub fn thread(&self, slot: u32) -> Option<ThreadHeader> {
        let at = self.layout.thread_at(slot);
        // A thread that is seen to end in between is the same thread.
        let identity = |thread: &ThreadHeader| (thread.generation, thread.start_ticks);
        let before: ThreadHeader = read(&self.mapping, at)?;
        fence(Acquire);
        let after: ThreadHeader = read(&self.mapping, at)?;
        let is_ones =
            |thread: &ThreadHeader| matches!(thread.state, thread_state::USED | thread_state::ENDED);
        (is_ones(&before) && is_ones(&after) && identity(&before) == identity(&after)).then_some(after)
    }

    /// Threads that occupy their slots now, by slot and generation.
    pub(crate) fn current_threads(&self) -> Vec<((u32, u32), ThreadHeader)> {
        let threads = (0..self.thread_count()).filter_map(|slot| Some((slot, self.thread(slot)?)));
        threads.map(|(slot, header)| ((slot, header.generation), header)).collect()
    }

    /// The calls that a thread has open, outermost first: those that didn't change while they were
    /// read.
    #[must_use]
    pub fn open_calls(&self, thread: &ThreadHeader) -> Vec<OpenCall> {
        let Some(stack) = thread.open_calls.checked_sub(1) else { return Vec::new() };
        if stack >= self.layout.thread_capacity {
            return Vec::new();
        }
        let first = self.layout.open_calls_at(stack) + OpenCall::SIZE as u64;
        let at = |index: u64| first + index * OpenCall::SIZE as u64;
        let capacity = u64::from(self.layout.open_call_capacity).saturating_sub(1);
        let all = (0..capacity).map_while(|index| read::<OpenCall>(&self.mapping, at(index)));
        let mut calls: Vec<OpenCall> = all.take_while(|call| call.word != 0).collect();
        fence(Acquire);
        // The stack pointer is written once more behind the word.
        let is_same = |(index, call): (u64, &OpenCall)| {
            read::<OpenCall>(&self.mapping, at(index)).is_some_and(|now| now.word == call.word)
        };
        let stable = (0..).zip(&calls).take_while(|call| is_same(*call)).count();
        calls.truncate(stable);
        calls
    }

    /// The calls that were dropped, by thread and function.
    pub(crate) fn dropped(&self) -> Dropped {
        Dropped::read(&self.layout, self.thread_count(), |offset, bytes| self.read_bytes(offset, bytes))
    }

    /// The names of frames by id that the process has given so far.
    pub(crate) fn frame_names(&self) -> Option<FrameNames> {
        FrameNames::read(&self.layout, |offset, bytes| self.read_bytes(offset, bytes))
    }

    /// Writes the chunk with the cost of the process's hooks.
    pub(crate) fn write_calibration<W: Write>(&self, file: &mut ChunkWriter<W>) -> io::Result<()> {
        write_calibration(file, None, |offset, bytes| self.read_bytes(offset, bytes))
    }

    /// Bytes of names of frames by id that the process has given so far.
    #[must_use]
    pub fn frame_name_bytes(&self) -> u64 {
        let mut header = [0; frame::FrameNames::SIZE];
        let is_read = self.read_bytes(self.layout.frames_offset, &mut header);
        let header = frame::FrameNames::read(&header).filter(|_| is_read);
        header.map_or(0, |header| header.used.min(self.layout.frames_size))
    }

    /// Image addresses at which hooks stand that the table with this number of
    /// [trampolines](everycall_format::trampoline) leads to.
    #[must_use]
    pub fn origins(&self, number: u32) -> HashSet<u64> {
        let records = self.frame_names_since(0);
        let parts = frame::tables(&records).filter(|(table, ..)| *table == number);
        let entries = parts.flat_map(|(_, first, entries)| {
            let entries = entries.chunks_exact(Trampoline::SIZE).filter_map(Trampoline::read);
            entries.map(move |entry| first.wrapping_add(entry.origin.into()))
        });
        entries.collect()
    }

    /// The records of such names without their first `from` bytes.
    #[must_use]
    pub fn frame_names_since(&self, from: u64) -> Vec<u8> {
        let names = FrameNames::since(&self.layout, from, |offset, bytes| self.read_bytes(offset, bytes));
        names.map(FrameNames::into_records).unwrap_or_default()
    }

    /// The newest scheduling events, as far as its recorder has read them.
    pub(crate) fn kept_states(&self) -> Option<KeptStates> {
        KeptStates::read(&self.layout, self.header().target_pid, |offset, bytes| {
            self.read_bytes(offset, bytes)
        })
    }

    /// The numbers of all calls that the process has recorded so far; `None` if it counts its calls
    /// and doesn't record them.
    #[must_use]
    pub fn all_calls(&self) -> Option<AllCalls> {
        self.dropped().all_calls().cloned()
    }

    /// Whether the bytes there were read.
    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let found = bytes_at(&self.mapping, offset, bytes.len() as u64);
        bytes.iter_mut().zip(&found).for_each(|(to, from)| *to = *from);
        // It reads whole words.
        found.len() >= bytes.len()
    }

    /// Whether the process counts its calls and doesn't record them.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        let header: Option<DroppedHeader> = read(&self.mapping, self.layout.dropped_offset);
        header.is_some_and(|header| header.counting != counting::OFF)
    }

    /// Whether the process counts calls by their values and doesn't record them.
    #[must_use]
    pub fn counts_values(&self) -> bool {
        self.layout.values_offset != 0
    }

    /// Whether short calls are dropped.
    #[must_use]
    pub fn drops_short_calls(&self) -> bool {
        self.young_from().is_some()
    }

    /// A value that changes whenever the process loads a module, also if it loads one again.
    #[must_use]
    pub fn loaded_modules(&self) -> u64 {
        let modules = self.modules();
        // If an entry's time has changed, it was reused for another module, or for the same one.
        modules.iter().fold(modules.len() as u64, |sum, (module, _)| {
            sum.wrapping_mul(31).wrapping_add(module.loaded_ticks ^ u64::from(module.predecessors))
        })
    }

    /// The time in ticks from which on open calls may still be dropped, because they began later;
    /// `None` if no calls are dropped.
    pub(crate) fn young_from(&self) -> Option<u64> {
        let header: DroppedHeader = read(&self.mapping, self.layout.dropped_offset)?;
        // Threads may still follow an earlier one.
        let is_one = header.threshold_ns == header.highest_ns;
        let longest = if is_one { header.threshold.min(TICKS_MAX) } else { TICKS_MAX };
        (header.highest_ns != 0).then(|| clock::ticks().saturating_sub(longest))
    }

    /// The module table, with paths: no more of these than there is memory for, as entries that
    /// were written over may share them.
    #[must_use]
    pub fn modules(&self) -> Vec<(ModuleEntry, Vec<u8>)> {
        let mut left = self.layout.paths_size.min(PATHS_MAX);
        let mut within = move |path: Vec<u8>| {
            let rest = left.checked_sub(path.len() as u64);
            left = rest.unwrap_or(left);
            if rest.is_some() { path } else { Vec::new() }
        };
        let count = self.header().modules.min(self.layout.module_capacity).min(MODULES_MAX);
        let at = |index: u32| self.layout.modules_offset + u64::from(index) * ModuleEntry::SIZE as u64;
        let entries = (0..count).filter_map(|index| read::<ModuleEntry>(&self.mapping, at(index)));
        entries.map(|module| (module, within(self.path(&module)))).collect()
    }

    fn path(&self, module: &ModuleEntry) -> Vec<u8> {
        let (offset, length) = (u64::from(module.path_offset), u64::from(module.path_length));
        if length > PATH_MAX || offset + length > self.layout.paths_size {
            return Vec::new();
        }
        let from = self.layout.paths_offset + offset;
        let first = from & !(WORD_SIZE as u64 - 1);
        let words = (from + length - first).div_ceil(WORD_SIZE as u64);
        let words = self.mapping.words(first, words);
        let bytes = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        bytes.skip((from - first) as usize).take(length as usize).collect()
    }

    /// Processes that aren't followed.
    pub(crate) fn children(&self) -> Vec<ChildEntry> {
        let count = self.header().children.min(self.layout.child_capacity);
        let at = |index: u32| self.layout.children_offset + u64::from(index) * ChildEntry::SIZE as u64;
        let all = (0..count).filter_map(|index| read::<ChildEntry>(&self.mapping, at(index)));
        all.filter(|child| child.pid != 0).collect()
    }
}

/// The structure at `at`.
fn read<T: Wire>(mapping: &Mapping, at: u64) -> Option<T> {
    T::read(&bytes_at(mapping, at, T::SIZE as u64))
}

fn bytes_at(mapping: &Mapping, at: u64, size: u64) -> Vec<u8> {
    let words = mapping.words(at, size.div_ceil(WORD_SIZE as u64));
    words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicBool;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    /// A thread that ends while it is read is still the same thread.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test may panic")]
    fn threads_that_end_meanwhile_are_there() {
        let file = File::from(memfd_create("arena", MemfdFlags::ALLOW_SEALING).unwrap());
        let header = ArenaHeader { threads: 1, ..ArenaHeader::with_layout(1 << 20, 4, 0) };
        file.set_len(header.arena_size).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        file.write_all_at(&header.to_bytes(), 0).unwrap();
        let thread = ThreadHeader { state: thread_state::USED, start_ticks: 7, ..ThreadHeader::default() };
        let at = header.thread_at(0);
        file.write_all_at(&thread.to_bytes(), at).unwrap();
        let arena = LiveArena::of_file(file.as_fd(), &header, 1).unwrap();
        let over = AtomicBool::new(false);
        let state_at = at + offset_of!(ThreadHeader, state) as u64;
        let missed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    for state in [thread_state::ENDED, thread_state::USED] {
                        file.write_all_at(&state.to_le_bytes(), state_at).unwrap();
                    }
                }
            });
            let missed = (0..20_000).filter(|_| arena.thread(0).is_none()).count();
            over.store(true, Relaxed);
            missed
        });
        assert_eq!(missed, 0);
        file.write_all_at(&thread_state::FREE.to_le_bytes(), state_at).unwrap();
        assert!(arena.thread(0).is_none());
    }
}
