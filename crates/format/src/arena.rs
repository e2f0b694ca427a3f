//! The arena: one block of shared memory per traced process. Everything that a reader needs after a
//! SIGKILL is in it.
//!
//! ```text
//! 0                ArenaHeader, one page
//! modules_offset   ModuleEntry[module_capacity]
//! children_offset  ChildEntry[child_capacity]
//! paths_offset     bytes of the modules' paths
//! threads_offset   thread slots, thread_stride bytes each:
//!                    ThreadHeader                 one page
//!                    OpenCall[open_call_capacity] open-call stack, slot 0 is a sentinel
//!                    ring                         ring_size bytes, in segments
//! ```
//!
//! Rules of access: the header's sizes and offsets are written once, by whoever makes the arena,
//! before anybody else sees it. A thread slot is written by its thread alone. Counts only grow.
//! Readers take every number as input from a stranger: they check it against the arena's size.
//!
//! **Ring.** Segment number `n` (from 0, per thread) lies at `n % (ring_size / segment_size)`. Before a
//! thread goes on in a segment, it clears it from its start, writes the segment record and then
//! publishes the number in [`ThreadHeader::segment`]. So a segment whose first word is not a
//! segment record with the expected number is being cleared and holds nothing.
//!
//! **Open-call stack.** Entries follow the sentinel without a hole; the first one whose word is zero
//! ends it (a hook writes the word last, and clears it first when the call ends).

use crate::wire::wire_struct;

/// First bytes of an arena.
pub const ARENA_MAGIC: u64 = u64::from_le_bytes(*b"everycal");
/// Version of everything in the arena, the event words included.
pub const ARENA_VERSION: u32 = 1;
/// Bytes of the arena's header, and of each thread's.
pub const PAGE: u64 = 4096;
/// Process counters in the arena's header.
pub const COUNTERS: usize = 32;

wire_struct! {
    /// One moment on all clocks. The counter was read before and after the others; `ticks` is the
    /// middle and `bracket` the distance, so the reading is exact to half of `bracket` ticks.
    pub struct ClockReading [40] {
        /// Time-stamp counter.
        pub ticks: u64,
        /// `CLOCK_MONOTONIC_RAW`, in nanoseconds.
        pub monotonic_raw_ns: u64,
        /// `CLOCK_MONOTONIC`, in nanoseconds.
        pub monotonic_ns: u64,
        /// `CLOCK_REALTIME`, in nanoseconds since 1970.
        pub realtime_ns: u64,
        /// Ticks from before to after.
        pub bracket: u64,
    }
}

wire_struct! {
    /// First bytes of the arena; the rest of its page is zero.
    pub struct ArenaHeader [440] {
        /// [`ARENA_MAGIC`].
        pub magic: u64,
        /// [`ARENA_VERSION`].
        pub version: u32,
        /// Bytes of this structure.
        pub header_size: u32,
        /// Bytes of the arena.
        pub arena_size: u64,
        /// Bytes of each ring, a power of two.
        pub ring_size: u64,
        /// Bytes of each segment, a power of two.
        pub segment_size: u64,
        /// Entries of each open-call stack, the sentinel included.
        pub open_call_capacity: u32,
        /// Thread slots.
        pub thread_capacity: u32,
        /// Entries of the module table.
        pub module_capacity: u32,
        /// Entries of the table of children.
        pub child_capacity: u32,
        /// Where the module table begins.
        pub modules_offset: u64,
        /// Where the table of children begins.
        pub children_offset: u64,
        /// Where the paths begin.
        pub paths_offset: u64,
        /// Bytes for paths.
        pub paths_size: u64,
        /// Where the thread slots begin.
        pub threads_offset: u64,
        /// Bytes from one thread slot to the next.
        pub thread_stride: u64,
        /// Process that made the arena and reads it; 0 for a private one.
        pub recorder_pid: u32,
        /// Process that writes it; claimed by compare-and-swap from 0.
        pub target_pid: u32,
        /// One of [`process_state`].
        pub state: u32,
        /// Counts the runtime's messages to the recorder; a shared futex.
        pub doorbell: u32,
        /// The last value of `doorbell` that the recorder has dealt with; a shared futex.
        pub acknowledged: u32,
        /// Module entries taken so far.
        pub modules: u32,
        /// Entries taken in the table of children; may exceed its capacity.
        pub children: u32,
        /// Thread slots taken so far.
        pub threads: u32,
        /// Bytes of paths taken so far; may exceed `paths_size`.
        pub paths: u64,
        /// The runtime's clock reading at its start.
        pub start: ClockReading,
        /// What the runtime could not do, by [`counter`].
        pub counters: [u64; COUNTERS],
    }
}

/// [`ArenaHeader::state`].
pub mod process_state {
    /// Nobody has claimed the arena.
    pub const WAITING: u32 = 0;
    /// A traced process writes it, tracing is on.
    pub const TRACING: u32 = 1;
    /// A traced process has claimed it, tracing is off.
    pub const OFF: u32 = 2;
}

/// What the runtime counts in [`ArenaHeader::counters`].
pub mod counter {
    /// Threads that found no free slot and ran untraced.
    pub const THREADS_UNTRACED: usize = 0;
    /// Slots of ended threads that were given to new ones.
    pub const THREADS_RECYCLED: usize = 1;
    /// Segments that were lost with them.
    pub const SEGMENTS_RECYCLED: usize = 2;
    /// Modules for which the table or the code space had no room.
    pub const MODULES_UNTRACED: usize = 3;
    /// Sites that did not hold the expected bytes, or could not be written.
    pub const SITES_UNPATCHED: usize = 4;
    /// Module paths that were not found or not stored.
    pub const PATHS_MISSING: usize = 5;
    /// Forked children, which ran untraced.
    pub const FORKED_CHILDREN: usize = 6;
    /// Events of addresses that lie in no module.
    pub const UNKNOWN_CODE: usize = 7;
    /// Module messages that the recorder did not answer in time.
    pub const RECORDER_LATE: usize = 8;
    /// Second runtimes in the process, which stood aside.
    pub const SECOND_RUNTIMES: usize = 9;
    /// Modules of another version, which stayed off.
    pub const MODULES_OF_OTHER_VERSION: usize = 10;

    /// What each one means, for reports; in the order of the numbers.
    pub const MEANINGS: [&str; 11] = [
        "threads that found no free ring and ran untraced",
        "rings of ended threads that were given to new ones",
        "ring segments of ended threads that were given up for new ones",
        "modules for which the module table had no room",
        "sites that could not be switched on",
        "modules whose path could not be found",
        "forked children, which ran untraced",
        "events of code outside all modules",
        "modules whose files record did not take hold of in time: named as long as the files stay as they are",
        "second runtimes in the process, which stood aside",
        "modules of another version, which stayed off",
    ];
}

wire_struct! {
    /// A loaded object with traced code. Process address = image address + `base`;
    /// code offset = process address - `start` + `code_start`.
    pub struct ModuleEntry [128] {
        /// One of [`module_state`]; written last.
        pub state: u32,
        /// A set of [`module_flags`].
        pub flags: u32,
        /// Where the path begins, from the arena's `paths_offset` (in files: in the chunk's strings).
        pub path_offset: u32,
        /// Bytes of the path; 0 where it isn't known.
        pub path_length: u32,
        /// What the image's addresses are shifted by (ELF load bias).
        pub base: u64,
        /// Process address of the first byte of the first segment, rounded down to a page.
        pub start: u64,
        /// Process address behind the last segment.
        pub end: u64,
        /// First code offset of the module; the range has `end - start` offsets.
        pub code_start: u32,
        /// Bytes of the build id; 0 where there is none.
        pub build_id_length: u32,
        /// Build id.
        pub build_id: [u8; 32],
        /// When it was registered.
        pub loaded_ticks: u64,
        /// When it was unloaded; 0 while it is loaded.
        pub unloaded_ticks: u64,
        /// Sites that were found.
        pub sites: u32,
        /// Sites of these that could not be switched on.
        pub sites_unpatched: u32,
        /// Device of the file that was mapped (as `stat` has it); 0 where unknown.
        pub device: u64,
        /// Its inode.
        pub inode: u64,
        /// Zero.
        pub reserved: u64,
    }
}

/// [`ModuleEntry::state`].
pub mod module_state {
    /// Not yet complete.
    pub const EMPTY: u32 = 0;
    /// Complete.
    pub const COMPLETE: u32 = 1;
}

/// [`ModuleEntry::flags`].
pub mod module_flags {
    /// The program itself.
    pub const EXECUTABLE: u32 = 1;
    /// Has sites of mode `nops`.
    pub const NOPS: u32 = 2;
    /// Has XRay sleds.
    pub const XRAY: u32 = 4;
}

wire_struct! {
    /// A process that descends from the traced one and is not followed.
    pub struct ChildEntry [64] {
        /// Its process id.
        pub pid: u32,
        /// Its parent's.
        pub parent: u32,
        /// One of [`child_kind`].
        pub kind: u32,
        /// Zero.
        pub reserved: u32,
        /// When it was noticed.
        pub ticks: u64,
        /// Command name, NUL padded.
        pub name: [u8; 40],
    }
}

/// [`ChildEntry::kind`].
pub mod child_kind {
    /// Made by fork, without exec.
    pub const FORK: u32 = 1;
    /// A traced program started by exec while the arena was taken.
    pub const EXEC: u32 = 2;
}

wire_struct! {
    /// First bytes of a thread slot; the rest of its page is zero.
    pub struct ThreadHeader [104] {
        /// One of [`thread_state`].
        pub state: u32,
        /// Kernel thread id.
        pub tid: u32,
        /// How many threads had the slot before.
        pub generation: u32,
        /// Upper half of the counter at the last look; informative, segments carry their own.
        pub ticks_high: u32,
        /// When the thread took the slot.
        pub start_ticks: u64,
        /// Number of the segment that is being written. A slot in use always has one.
        pub segment: u64,
        /// Thread name as last read, NUL padded.
        pub name: [u8; 16],
        /// Frames that were left without an exit.
        pub unwound: u64,
        /// Exits without an entry on the open-call stack.
        pub orphan_exits: u64,
        /// Events that were dropped because the slow path was busy.
        pub lost_busy: u64,
        /// Events deeper than the open-call stack; they are in the ring all the same.
        pub deep: u64,
        /// Segments whose end was not reached in order; reserved.
        pub reserved: [u64; 3],
    }
}

/// [`ThreadHeader::state`].
pub mod thread_state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// A thread writes it, or has ended and left it.
    pub const USED: u32 = 1;
}

wire_struct! {
    /// A call that has not returned. Slot 0 of the stack is a sentinel with the highest stack pointer.
    pub struct OpenCall [24] {
        /// Its entry's event word; 0 behind the last one. The exit bit is set in a thread's first call,
        /// and the lowest bit of its stack pointer: no exit hook takes it for its own, so the runtime
        /// sees the call end.
        pub word: u64,
        /// Stack pointer in the hook; compared only with others of the same stack.
        pub stack_pointer: u64,
        /// Upper half of the counter at its entry: the start is `ticks_high << 32 | word >> 32`.
        pub ticks_high: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Default number of open-call entries per thread.
pub const OPEN_CALL_CAPACITY: u32 = 1 << 16;
/// Default number of thread slots.
pub const THREAD_CAPACITY: u32 = 4096;
/// Default number of modules.
pub const MODULE_CAPACITY: u32 = 4096;
/// Default number of listed children.
pub const CHILD_CAPACITY: u32 = 1024;
/// Default bytes for paths.
pub const PATHS_SIZE: u64 = 1 << 20;
/// Largest segment.
pub const SEGMENT_SIZE_MAX: u64 = 64 << 10;
/// Segments per ring, where that keeps them within [`SEGMENT_SIZE_MAX`].
pub const SEGMENTS_PER_RING: u64 = 16;

impl ArenaHeader {
    /// The header of an arena with `thread_capacity` slots and rings of `ring_size` bytes (a power of
    /// two, see [`crate::env`]); everything else has its default.
    #[must_use]
    pub fn with_layout(ring_size: u64, thread_capacity: u32) -> ArenaHeader {
        let modules_offset = PAGE;
        let children_offset = modules_offset + u64::from(MODULE_CAPACITY) * size_of::<ModuleEntry>() as u64;
        let paths_offset = children_offset + u64::from(CHILD_CAPACITY) * size_of::<ChildEntry>() as u64;
        let threads_offset = (paths_offset + PATHS_SIZE).next_multiple_of(PAGE);
        let thread_stride = PAGE + open_call_bytes(OPEN_CALL_CAPACITY) + ring_size;
        ArenaHeader {
            magic: ARENA_MAGIC,
            version: ARENA_VERSION,
            header_size: size_of::<ArenaHeader>() as u32,
            arena_size: threads_offset + u64::from(thread_capacity) * thread_stride,
            ring_size,
            segment_size: (ring_size / SEGMENTS_PER_RING).min(SEGMENT_SIZE_MAX),
            open_call_capacity: OPEN_CALL_CAPACITY,
            thread_capacity,
            module_capacity: MODULE_CAPACITY,
            child_capacity: CHILD_CAPACITY,
            modules_offset,
            children_offset,
            paths_offset,
            paths_size: PATHS_SIZE,
            threads_offset,
            thread_stride,
            ..ArenaHeader::default()
        }
    }

    /// Where the open-call stack begins within a thread slot.
    #[must_use]
    pub const fn open_calls_in_slot(&self) -> u64 {
        PAGE
    }

    /// Where the ring begins within a thread slot.
    #[must_use]
    pub const fn ring_in_slot(&self) -> u64 {
        PAGE + open_call_bytes(self.open_call_capacity)
    }

    /// Whether every size and offset fits the others and `available` bytes of memory, so that
    /// nothing computed from them leaves the arena.
    #[must_use]
    pub fn is_consistent(&self, available: u64) -> bool {
        let within = |offset: u64, count: u64, size: u64, end: u64| {
            count
                .checked_mul(size)
                .and_then(|bytes| offset.checked_add(bytes))
                .is_some_and(|last| last <= end)
        };
        let slot = PAGE
            .checked_add(open_call_bytes(self.open_call_capacity))
            .and_then(|bytes| bytes.checked_add(self.ring_size));
        self.magic == ARENA_MAGIC
            && self.version == ARENA_VERSION
            && self.arena_size <= available
            && self.ring_size.is_power_of_two()
            && (crate::env::RING_SIZE_MIN..=crate::env::RING_SIZE_MAX).contains(&self.ring_size)
            && self.segment_size.is_power_of_two()
            && (PAGE..=SEGMENT_SIZE_MAX).contains(&self.segment_size)
            && self.segment_size <= self.ring_size
            && self.open_call_capacity >= 2
            && slot.is_some_and(|bytes| bytes <= self.thread_stride)
            && within(
                self.modules_offset,
                self.module_capacity.into(),
                size_of::<ModuleEntry>() as u64,
                self.arena_size,
            )
            && within(
                self.children_offset,
                self.child_capacity.into(),
                size_of::<ChildEntry>() as u64,
                self.arena_size,
            )
            && within(self.paths_offset, 1, self.paths_size, self.arena_size)
            && within(self.threads_offset, self.thread_capacity.into(), self.thread_stride, self.arena_size)
    }
}

/// Bytes of an open-call stack, rounded up to pages.
#[must_use]
pub const fn open_call_bytes(capacity: u32) -> u64 {
    (capacity as u64 * size_of::<OpenCall>() as u64).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_layouts_are_consistent() {
        for ring_size in [crate::env::RING_SIZE_MIN, crate::env::RING_SIZE_DEFAULT, crate::env::RING_SIZE_MAX]
        {
            for threads in [1, THREAD_CAPACITY] {
                let header = ArenaHeader::with_layout(ring_size, threads);
                assert!(header.is_consistent(header.arena_size), "{header:?}");
                assert!(!header.is_consistent(header.arena_size - 1));
                assert_eq!(header.thread_stride % PAGE, 0);
                assert_eq!(header.threads_offset % PAGE, 0);
            }
        }
    }

    #[test]
    fn lies_are_noticed() {
        let good = ArenaHeader::with_layout(1 << 20, 4);
        let spoil: [fn(&mut ArenaHeader); 8] = [
            |h| h.magic += 1,
            |h| h.version += 1,
            |h| h.ring_size = u64::MAX,
            |h| h.segment_size = 3,
            |h| h.thread_stride = u64::MAX,
            |h| h.thread_capacity = u32::MAX,
            |h| h.modules_offset = u64::MAX,
            |h| h.open_call_capacity = u32::MAX,
        ];
        for change in spoil {
            let mut bad = good;
            change(&mut bad);
            assert!(!bad.is_consistent(good.arena_size), "{bad:?}");
        }
    }
}
