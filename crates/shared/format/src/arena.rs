//! The arena: one block of shared memory per traced process. Everything that a reader needs after a
//! SIGKILL is in it.
//!
//! ```text
//! 0                      ArenaHeader, PinnerEntry[PINNERS], Calibration, one page
//! modules_offset         ModuleEntry[module_capacity]
//! children_offset        ChildEntry[child_capacity]
//! paths_offset           bytes of the modules' paths
//! triggers_at            what crate::trigger declares, where there is room for it
//! segment_table_offset   SegmentEntry[segment_capacity]
//! threads_offset         ThreadHeader[thread_capacity]
//! dropped_offset         what crate::dropped declares, without the counts
//! open_calls_offset      open-call stacks, as many as threads, open_call_stride bytes each:
//!                          OpenCall[open_call_capacity], entry 0 is a sentinel
//! behind them            counts of dropped calls, as many as threads
//! all_calls_offset       what crate::all_calls declares
//! segments_offset        segments, segment_size bytes each
//! live_triggers_at       as at triggers_at, for each client that arms functions at run time
//! times_offset           what crate::times declares, if the process's calls are timed
//! states_offset          what crate::kept_states declares, if scheduling events are recorded
//! values_offset          what crate::value_counts declares, if calls are counted by their values
//! ```
//!
//! Rules of access:
//!
//! - The process that makes the arena writes the header's sizes and offsets once, before any other
//!   process sees it.
//! - A thread's header and open-call stack are written by that thread alone. When it has ended, the
//!   runtime retires them.
//! - Counts only grow, unless their description says otherwise.
//! - Readers treat every number as untrusted input: they check it against the arena's size.
//!
//! **Rings.** A thread's ring is a list of segments from the pool that all threads share. The
//! thread takes one segment after the other until its ring is full. From then on it overwrites the
//! ring's oldest segment. A ring's segments are numbered from 0. The segment table says which
//! thread owns a segment. Before a thread uses a segment, it marks the segment as being cleared,
//! clears it from its start, writes the owner and the segment record, removes the mark, and
//! publishes the number in [`ThreadHeader::segment`].
//!
//! **Pins.** A process that needs a segment unchanged (to take a snapshot, or to record) sets its
//! bit in [`SegmentEntry::pins`]. A thread whose oldest segment has such a bit leaves that segment
//! and takes another one from the pool. The last process to unpin the segment returns it to the
//! pool. So a snapshot never makes a thread wait. If the pool is empty, the thread overwrites its
//! oldest segment although it is pinned, or waits if [`ArenaHeader::stream`] is [`stream::STALL`].
//!
//! **Open-call stack.** Entries follow the sentinel without a gap. The first entry whose word is
//! zero ends the stack: a hook writes the word last, and clears it first when the call ends.

use crate::capture::REMEMBERED;
use crate::dropped;
use crate::frame::{FRAMES_SIZE, FrameNames};
use crate::sched::KEPT_SIZE;
use crate::times;
use crate::trigger;
use crate::value_counts;
/// Bytes of the arena's header, and of each thread's.
#[doc(inline)]
pub use crate::wire::PAGE;
use crate::wire::wire_struct;

/// First bytes of an arena.
pub const ARENA_MAGIC: u64 = u64::from_le_bytes(*b"everycal");
/// Version of everything in the arena, the event words included.
pub const ARENA_VERSION: u32 = 8;
/// Process counters in the arena's header.
pub const COUNTERS: usize = 32;

wire_struct! {
    /// One moment on all clocks. The time-stamp counter was read before and after the other clocks
    /// (by the runtime: before and after `CLOCK_MONOTONIC_RAW`). `ticks` is the middle, `bracket`
    /// the distance: the reading is exact to half of `bracket` ticks.
    pub struct ClockReading [40] {
        /// Time-stamp counter.
        pub ticks: u64,
        /// `CLOCK_MONOTONIC_RAW`, in nanoseconds.
        pub monotonic_raw_ns: u64,
        /// `CLOCK_MONOTONIC`, in nanoseconds.
        pub monotonic_ns: u64,
        /// `CLOCK_REALTIME`, in nanoseconds since 1970.
        pub realtime_ns: u64,
        /// Ticks between the two readings of the counter.
        pub bracket: u64,
    }
}

wire_struct! {
    /// First bytes of the arena; the rest of its page is zero.
    pub struct ArenaHeader [608] {
        /// [`ARENA_MAGIC`].
        pub magic: u64,
        /// [`ARENA_VERSION`].
        pub version: u32,
        /// Bytes of this structure.
        pub header_size: u32,
        /// Bytes of the arena.
        pub arena_size: u64,
        /// Default bytes of a thread's ring, a power of two.
        pub ring_size: u64,
        /// Bytes of each segment, a power of two.
        pub segment_size: u64,
        /// Entries of each open-call stack, the sentinel included.
        pub open_call_capacity: u32,
        /// Thread slots, and open-call stacks.
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
        /// Where the threads' headers begin.
        pub threads_offset: u64,
        /// Where the open-call stacks begin.
        pub open_calls_offset: u64,
        /// Bytes from one open-call stack to the next.
        pub open_call_stride: u64,
        /// Where the segment table begins.
        pub segment_table_offset: u64,
        /// Where the segments begin.
        pub segments_offset: u64,
        /// Entries of the segment table.
        pub segment_capacity: u32,
        /// Segments that may be in use beyond those of the threads' rings, because they are pinned.
        pub extra_segments: u32,
        /// Recorder that made the arena and reads it; 0 for a private arena.
        pub recorder_pid: u32,
        /// Traced process that writes the arena; claimed by compare-and-swap from 0.
        pub target_pid: u32,
        /// One of [`process_state`].
        pub state: u32,
        /// How the process came to be traced: START or FORK of [`crate::hub::origin`].
        pub origin: u32,
        /// The process's parent when the process began.
        pub parent_pid: u32,
        /// Module entries taken so far.
        pub modules: u32,
        /// Entries taken in the table of children; may exceed its capacity.
        pub children: u32,
        /// Thread slots taken so far.
        pub threads: u32,
        /// Segments taken from the pool's end so far; later ones were never written.
        pub segments_taken: u32,
        /// Segments that belong to a thread or are pinned.
        pub segments_in_use: u32,
        /// Segments that the rings of all threads together may have.
        pub ring_segments: u32,
        /// One of [`stream`].
        pub stream: u32,
        /// The list of returned segments: low half the index of the last one, plus 1 (0: none);
        /// upper half a counter of changes.
        pub free_segments: u64,
        /// Ticks until which threads take new segments instead of their oldest, because a process
        /// is about to pin those. The low byte counts the requests.
        pub grow_until: u64,
        /// Changes when a process returns segments while threads wait; a shared futex.
        pub pool_doorbell: u32,
        /// Threads that wait for a segment.
        pub pool_waiters: u32,
        /// Bytes of paths taken so far; may exceed `paths_size`.
        pub paths: u64,
        /// The runtime's clock reading at its start.
        pub start: ClockReading,
        /// Counts by [`counter`], mostly of what the runtime could not do.
        pub counters: [u64; COUNTERS],
        /// The traced process that this one was forked from, directly or not; 0 for none.
        pub forked_from: u32,
        /// Room for [trigger sites](crate::trigger); 0 if the arena has no room for triggers.
        pub trigger_sites: u32,
        /// Not 0: another process wants to connect to the [control socket](crate::control_socket).
        pub control_asked: u32,
        /// One of [`crate::control_socket::control_state`].
        pub control_state: u32,
        /// The control socket's name, padded with zeros.
        pub control_name: u64,
        /// Where the counts of [dropped](crate::dropped) calls begin.
        pub dropped_offset: u64,
        /// Where the [times](crate::times) of calls begin; 0 if calls aren't timed.
        pub times_offset: u64,
        /// Where the newest scheduling events begin, see [`crate::kept_states`]; 0 if they aren't
        /// recorded.
        pub states_offset: u64,
        /// Where the [counts of all calls](crate::all_calls) begin.
        pub all_calls_offset: u64,
        /// Where the names of [frames by id](crate::frame) begin.
        pub frames_offset: u64,
        /// Bytes for these names, with their header.
        pub frames_size: u64,
        /// Which events have a time of their own: one of [`crate::stamp`].
        pub stamps: u32,
        /// Places of functions that are counted, a power of two; 0: [`dropped::FUNCTIONS`].
        pub functions: u32,
        /// Where the [counts of calls by their values](crate::value_counts) begin; 0 if calls
        /// aren't counted so.
        pub values_offset: u64,
        /// The process's machine, by its number in ELF files; 0 in older arenas.
        pub machine: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// [`ArenaHeader::state`].
pub mod process_state {
    /// The arena is not in use.
    pub const WAITING: u32 = 0;
    /// A traced process writes it, tracing is on.
    pub const TRACING: u32 = 1;
    /// A traced process has claimed it, tracing is off.
    pub const OFF: u32 = 2;
}

/// Indices of [`ArenaHeader::counters`].
pub mod counter {
    /// Threads that found no free slot and ran untraced.
    pub const THREADS_UNTRACED: usize = 0;
    /// Ended threads whose slots were given to others before their events were stored.
    pub const THREADS_RECYCLED: usize = 1;
    /// Segments that were lost with these threads.
    pub const SEGMENTS_RECYCLED: usize = 2;
    /// Modules for which the code space had no room, and which stayed off.
    pub const MODULES_UNTRACED: usize = 3;
    /// Sites that could not be switched on: they did not contain the expected bytes, or could not
    /// be written.
    pub const SITES_UNPATCHED: usize = 4;
    /// Module paths that were not found or not stored.
    pub const PATHS_MISSING: usize = 5;
    /// Forked children, which ran untraced.
    pub const FORKED_CHILDREN: usize = 6;
    /// Events of addresses outside all modules.
    pub const UNKNOWN_CODE: usize = 7;
    /// Module messages that the recorder did not answer in time.
    pub const RECORDER_LATE: usize = 8;
    /// Second runtimes in the process, which stay off.
    pub const SECOND_RUNTIMES: usize = 9;
    /// Modules of another version, which stayed off.
    pub const MODULES_OF_OTHER_VERSION: usize = 10;
    /// Ticks for which threads waited until the recorder had stored their events, summed over all
    /// threads.
    pub const STALL_TICKS: usize = 11;
    /// Modules that found no entry or code range: their calls are shown as those of an unknown
    /// module.
    pub const MODULES_WITHOUT_PLACE: usize = 12;
    /// Entries of unloaded modules that were given to other modules.
    pub const MODULE_ENTRIES_REUSED: usize = 13;
    /// Times that the disk had no more room for a crash file, forked children without any room
    /// included.
    pub const CRASH_NO_ROOM: usize = 14;
    /// Snapshot signals coalesced with a snapshot in progress.
    pub const SIGNALS_BUSY: usize = 15;
    /// Snapshots for signals that could not be taken or written.
    pub const SIGNALS_FAILED: usize = 16;
    /// Lost events of fibers that found no free slot.
    pub const FIBER_EVENTS: usize = 17;
    /// Times that other processes have changed which functions are recorded.
    pub const SELECTIONS: usize = 18;
    /// Sites that are off now because their functions are not selected. This counter may fall.
    pub const SITES_NOT_SELECTED: usize = 19;
    /// Threads whose calls aren't in the [counts of all calls](crate::all_calls), because the disk
    /// had no room for them.
    pub const THREADS_UNCOUNTED: usize = 20;
    /// Modules whose calls aren't in the counts of all calls, because there was no memory.
    pub const MODULES_UNCOUNTED: usize = 21;
    /// Frames, by id or with hooks, that ended on a stack of calls on which they hadn't begun, or
    /// from which they had been taken for unwound: another stack was in that memory meanwhile.
    pub const FRAMES_MISPLACED: usize = 22;
    /// Functions whose values were to be recorded and can't be: their hooks aren't called at their
    /// first instruction, or a program was refused.
    pub const CAPTURES_REFUSED: usize = 23;
    /// Calls and returns that were recorded without values that should have been.
    pub const VALUES_LOST: usize = 24;
    /// Calls that were left out because a condition on their arguments was false.
    pub const CALLS_LEFT_OUT: usize = 25;
    /// The counters that say that calls are missing which should have been recorded, or that they
    /// may not lie where they were made.
    pub const MISSING: [usize; 10] = [
        THREADS_UNTRACED,
        THREADS_RECYCLED,
        SEGMENTS_RECYCLED,
        MODULES_UNTRACED,
        SITES_UNPATCHED,
        SECOND_RUNTIMES,
        MODULES_OF_OTHER_VERSION,
        CRASH_NO_ROOM,
        FIBER_EVENTS,
        FRAMES_MISPLACED,
    ];
    /// Number of counters in use; later ones, up to [`COUNTERS`](super::COUNTERS), are 0.
    pub const COUNT: usize = 26;
}

wire_struct! {
    /// A loaded object with traced code. Process address = image address + `base`;
    /// code offset = process address - `start` + `code_start`.
    ///
    /// If it was built without hooks and has trampolines, `start` and `end` are those of the
    /// [region](crate::trampoline) of trampolines.
    pub struct ModuleEntry [128] {
        /// One of [`module_state`]; written last.
        pub state: u32,
        /// A set of [`module_flags`].
        pub flags: u32,
        /// Where the path begins, from the arena's `paths_offset` (in files: from the end of the
        /// chunk's entries).
        pub path_offset: u32,
        /// Bytes of the path; 0 where it isn't known.
        pub path_length: u32,
        /// ELF load bias: process address minus image address.
        pub base: u64,
        /// Process address of the first byte of the first segment, rounded down to a page.
        pub start: u64,
        /// Process address after the last segment, rounded up to a page.
        pub end: u64,
        /// First code offset of the module; the range has `end - start` offsets.
        pub code_start: u32,
        /// Bytes of the build id; 0 where there is none.
        pub build_id_length: u32,
        /// Build id.
        pub build_id: [u8; 32],
        /// When it was registered, ticks.
        pub loaded_ticks: u64,
        /// When it was unloaded, ticks; 0 while it is loaded.
        pub unloaded_ticks: u64,
        /// Sites that were found.
        pub sites: u32,
        /// Sites of these that could not be switched on.
        pub sites_unpatched: u32,
        /// Device of the file that was mapped (from `stat`); 0 if unknown.
        pub device: u64,
        /// Its inode.
        pub inode: u64,
        /// Number of unloaded modules that had this entry before.
        pub predecessors: u32,
        /// Number of the [table](crate::trampoline) that leads from the module's trampolines to its
        /// functions; 0 if its own code calls the hooks.
        pub trampolines: u32,
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
    /// Its code offsets belonged to another module before, which was unloaded.
    pub const REUSED_CODE: u32 = 8;
    /// Not traced itself: hooks of other modules have reported functions of it, whose calls were
    /// inlined into theirs.
    pub const UNTRACED: u32 = 32;
    /// Was built without hooks, and has [trampolines](crate::trampoline).
    pub const TRAMPOLINES: u32 = 64;
    /// Not an object: the [frames by id](crate::frame) of a process. Readers make it; it is in no
    /// module table.
    pub const FRAMES: u32 = 16;
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
        /// When it was detected, ticks.
        pub ticks: u64,
        /// Command name, NUL padded.
        pub name: [u8; 40],
    }
}

/// [`ChildEntry::kind`].
pub mod child_kind {
    /// Made by fork, without exec.
    pub const FORK: u32 = 1;
    /// A traced program, started by exec, that got no arena.
    pub const EXEC: u32 = 2;
}

/// [`ArenaHeader::stream`].
pub mod stream {
    /// Rings keep their newest segments, as many as they have room for.
    pub const OFF: u32 = 0;
    /// Finished segments are pinned for the recorder ([`crate::arena::pinned_by::RECORDER`]). If
    /// there is no room, the oldest ones are overwritten.
    pub const ON: u32 = 1;
    /// As [`ON`], but if there is no room, the thread waits for it.
    pub const STALL: u32 = 2;
}

/// Bits of [`SegmentEntry::pins`].
pub mod pinned_by {
    /// The thread whose ring it belongs to.
    pub const OWNER: u32 = 1;
    /// The recorder, until it has stored the segment.
    pub const RECORDER: u32 = 1 << 1;
    /// The process with entry 0 in the table of pinners; entry `n` has this bit shifted by `n`.
    pub const FIRST: u32 = 1 << 2;
    /// The segment is being cleared: it must be neither read nor pinned.
    pub const CLEARING: u32 = 1 << 31;
}

/// Entries of the table of pinners.
pub const PINNERS: u32 = 29;
/// Where the table of pinners begins.
pub const PINNERS_OFFSET: u64 = 1024;

wire_struct! {
    /// A process that pins segments.
    pub struct PinnerEntry [32] {
        /// Its process id; 0 if the entry is free.
        pub pid: u32,
        /// Zero.
        pub reserved: u32,
        /// When it took the entry, ticks.
        pub since: u64,
        /// Start time of that process: field 22 of `/proc/PID/stat`.
        pub started: u64,
        /// Zero.
        pub reserved_too: u64,
    }
}

wire_struct! {
    /// The owner of a segment, and the processes that have pinned it.
    pub struct SegmentEntry [40] {
        /// A set of [`pinned_by`]; 0 if the segment is in the pool.
        pub pins: u32,
        /// Index, plus 1, of the segment to which its thread advanced; in the pool, of the next one
        /// in the list.
        pub next: u32,
        /// Its thread's slot.
        pub slot: u32,
        /// The slot's generation.
        pub generation: u32,
        /// Its number in its thread's ring.
        pub number: u64,
        /// Events that the thread wrote before it.
        pub events_before: u64,
        /// In the pool: bytes from its start that may be non-zero.
        pub written: u64,
    }
}

wire_struct! {
    /// A thread or a fiber. (A fiber is a stack, other than a thread's own, that threads run.)
    pub struct ThreadHeader [128] {
        /// One of [`thread_state`].
        pub state: u32,
        /// Kernel thread id.
        pub tid: u32,
        /// Number of threads that had the slot before.
        pub generation: u32,
        /// Upper half of ticks at the last look; informative, as segments carry their own.
        pub ticks_high: u32,
        /// When the thread took the slot, ticks.
        pub start_ticks: u64,
        /// Number of the segment that is being written. A slot in use always has one.
        pub segment: u64,
        /// Thread name as last read, NUL padded.
        pub name: [u8; 16],
        /// Frames that were unwound.
        pub unwound: u64,
        /// Orphan exits.
        pub orphan_exits: u64,
        /// Events that were lost because the slow path was busy.
        pub lost_busy: u64,
        /// Events beyond the depth limit of the open-call stack; they are in the ring nevertheless.
        pub deep: u64,
        /// Zero.
        pub reserved: u64,
        /// When the thread was found to have ended, ticks; 0 before.
        pub end_ticks: u64,
        /// When the thread was found to have ended, by `CLOCK_MONOTONIC`, in nanoseconds; 0 if
        /// ended threads aren't retained for a time.
        pub end_ns: u64,
        /// Limit on the segments of its ring.
        pub ring_segments: u32,
        /// Number of the fiber that has the slot, from 1; 0 for a thread. The fiber's `tid` is that
        /// of the thread that ran it last.
        pub fiber: u32,
        /// Its open-call stack: index, plus 1. 0 if an ended thread had no open calls: then the
        /// stack is free for other threads.
        pub open_calls: u32,
        /// Index, plus 1, of the next slot in the list of ended threads (in the order of their
        /// ends) or in the list of free slots.
        pub next: u32,
        /// Zero.
        pub reserved_as_well: u64,
    }
}

/// [`ThreadHeader::state`].
pub mod thread_state {
    /// Free.
    pub const FREE: u32 = 0;
    /// A thread uses it, or has ended unnoticed.
    pub const USED: u32 = 1;
    /// It is changing its owner, and must not be read.
    pub const CLAIMED: u32 = 2;
    /// Its thread has ended; its events are retained.
    pub const ENDED: u32 = 3;
}

wire_struct! {
    /// An open call. Entry 0 of the stack is a sentinel with the highest stack pointer.
    pub struct OpenCall [24] {
        /// The event word of its entry; 0 after the last open call. If the call's exit must take
        /// the slow path (as that of a thread's first call), the exit bit is set here, and the
        /// stack pointer is off by one, so that no exit hook matches the call.
        pub word: u64,
        /// Stack pointer in the hook; comparable only with others of the same stack.
        pub stack_pointer: u64,
        /// Upper half of its ticks, or [`EXIT_WITHOUT_STAMP`] and [`met`]: see
        /// [`OpenCall::ticks`].
        pub ticks_high: u32,
        /// For a call of an [armed function](crate::trigger) that has been open since an earlier
        /// segment: low half of the number of events that its thread wrote before its entry, 1 for
        /// 0. For an entry that stands for a [jump](crate::trigger::jump_word): a set of
        /// [`crate::trigger::jumped`]. Else 0.
        pub stamp: u32,
    }
}

impl OpenCall {
    /// When it began, ticks.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        ticks_of(self.ticks_high, self.word)
    }
}

/// In [`OpenCall::ticks_high`]: the exit may go without a [stamp](crate::stamp).
pub const EXIT_WITHOUT_STAMP: u32 = 1 << 31;
/// First bit of [`met`]. The bits below are enough for 7 years at 5 GHz.
const MET_SHIFT: u32 = u32::BITS - 1 - REMEMBERED;
const MET: u32 = ((1 << REMEMBERED) - 1) << MET_SHIFT;

/// Which conditions a call meets, in its [`OpenCall::ticks_high`]: a bit for each of those that are
/// [remembered](crate::capture::REMEMBERED).
#[must_use]
pub const fn met(ticks_high: u32) -> u32 {
    (ticks_high & MET) >> MET_SHIFT
}

/// The bits of [`OpenCall::ticks_high`] for a call that meets these conditions.
#[must_use]
pub const fn met_bits(conditions: u32) -> u32 {
    conditions << MET_SHIFT & MET
}

/// When an open call began, by its upper half of the ticks and its event word.
#[must_use]
pub const fn ticks_of(ticks_high: u32, word: u64) -> u64 {
    ((ticks_high & !(EXIT_WITHOUT_STAMP | MET)) as u64) << 32 | word >> 32
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
/// Segments per ring, unless they would exceed [`SEGMENT_SIZE_MAX`]: then a ring has more.
pub const SEGMENTS_PER_RING: u64 = 16;
/// Default bytes of segments that may be pinned beyond the threads' rings.
pub const EXTRA_SIZE: u64 = 64 << 20;

impl SegmentEntry {
    /// Whether the segment has the contents that the entry describes: it has a pin, and isn't
    /// being cleared.
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        self.pins != 0 && self.pins & pinned_by::CLEARING == 0
    }
}

impl ArenaHeader {
    /// The header of an arena with `thread_capacity` slots, rings of `ring_size` bytes (a power of
    /// two, see [`crate::env`]) and at least `extra_size` bytes of segments that may be pinned
    /// beyond them; everything else has its default.
    #[must_use]
    pub fn with_layout(ring_size: u64, thread_capacity: u32, extra_size: u64) -> ArenaHeader {
        ArenaHeader::with_triggers(ring_size, thread_capacity, extra_size, 0)
    }

    /// As [`ArenaHeader::with_layout`], with room for `trigger_sites` trigger sites, in both
    /// halves.
    #[must_use]
    pub fn with_triggers(
        ring_size: u64,
        thread_capacity: u32,
        extra_size: u64,
        trigger_sites: u32,
    ) -> ArenaHeader {
        let functions = dropped::FUNCTIONS;
        let open_calls = OPEN_CALL_CAPACITY;
        ArenaHeader::with_stacks(ring_size, thread_capacity, extra_size, trigger_sites, open_calls, functions)
    }

    /// As [`ArenaHeader::with_triggers`], with open-call stacks of `open_call_capacity` entries,
    /// the sentinel included, and with `functions` places of functions that are counted.
    #[must_use]
    pub fn with_stacks(
        ring_size: u64,
        thread_capacity: u32,
        extra_size: u64,
        trigger_sites: u32,
        open_call_capacity: u32,
        functions: u32,
    ) -> ArenaHeader {
        let segment_size = (ring_size / SEGMENTS_PER_RING).min(SEGMENT_SIZE_MAX);
        let segments = |size: u64| size.checked_div(segment_size).unwrap_or(0);
        let extra_segments = u32::try_from(segments(extra_size)).unwrap_or(u32::MAX / 2);
        let ring_segments = segments(ring_size) as u32;
        let segment_capacity = thread_capacity.saturating_mul(ring_segments).saturating_add(extra_segments);
        let modules_offset = PAGE;
        let children_offset = modules_offset + u64::from(MODULE_CAPACITY) * size_of::<ModuleEntry>() as u64;
        let paths_offset = children_offset + u64::from(CHILD_CAPACITY) * size_of::<ChildEntry>() as u64;
        let segment_table_offset =
            (paths_offset + PATHS_SIZE).next_multiple_of(PAGE) + trigger::area_size(trigger_sites);
        let threads_offset = (segment_table_offset
            + u64::from(segment_capacity) * size_of::<SegmentEntry>() as u64)
            .next_multiple_of(PAGE);
        let dropped_offset = (threads_offset + u64::from(thread_capacity) * size_of::<ThreadHeader>() as u64)
            .next_multiple_of(PAGE);
        let open_calls_offset = dropped_offset + dropped::table_size(functions);
        let open_call_stride = open_call_bytes(open_call_capacity);
        let counts_offset = open_calls_offset + u64::from(thread_capacity) * open_call_stride;
        let counts_size = dropped::counts_size(functions);
        let all_calls_offset = counts_offset + u64::from(thread_capacity) * counts_size;
        let segments_offset = all_calls_offset + u64::from(thread_capacity) * counts_size;
        let frames_offset =
            (segments_offset + u64::from(segment_capacity) * segment_size + LIVE_SIZE).next_multiple_of(PAGE);
        ArenaHeader {
            magic: ARENA_MAGIC,
            version: ARENA_VERSION,
            header_size: size_of::<ArenaHeader>() as u32,
            arena_size: frames_offset + FRAMES_SIZE,
            ring_size,
            segment_size,
            open_call_capacity,
            thread_capacity,
            module_capacity: MODULE_CAPACITY,
            child_capacity: CHILD_CAPACITY,
            modules_offset,
            children_offset,
            paths_offset,
            paths_size: PATHS_SIZE,
            threads_offset,
            open_calls_offset,
            open_call_stride,
            segment_table_offset,
            segments_offset,
            segment_capacity,
            extra_segments,
            trigger_sites,
            dropped_offset,
            all_calls_offset,
            frames_offset,
            frames_size: FRAMES_SIZE,
            functions,
            ..ArenaHeader::default()
        }
    }

    /// Adds room for the [times](crate::times) of calls at the arena's end.
    #[must_use]
    pub fn with_times(self) -> ArenaHeader {
        let times_offset = self.arena_size.next_multiple_of(PAGE);
        let size = u64::from(self.thread_capacity) * self.times_size();
        ArenaHeader { times_offset, arena_size: times_offset + size, ..self }
    }

    /// Adds room for the newest scheduling events at the arena's end.
    #[must_use]
    pub fn with_states(self) -> ArenaHeader {
        let states_offset = self.arena_size.next_multiple_of(PAGE);
        ArenaHeader { states_offset, arena_size: states_offset + KEPT_SIZE, ..self }
    }

    /// Adds room for counts of calls by their values at the arena's end.
    #[must_use]
    pub fn with_values(self) -> ArenaHeader {
        let values_offset = self.arena_size.next_multiple_of(PAGE);
        ArenaHeader { values_offset, arena_size: values_offset + value_counts::SIZE, ..self }
    }

    /// Where the times of a thread slot's calls of the function at `place` are; `None` if calls
    /// aren't timed.
    #[must_use]
    pub const fn times_at(&self, slot: u32, place: u32) -> Option<u64> {
        match self.times_offset {
            0 => None,
            first => Some(first + slot as u64 * self.times_size() + place as u64 * times::TIME_SUMS_SIZE),
        }
    }

    /// Default number of segments in a ring.
    #[must_use]
    pub const fn segments_per_ring(&self) -> u64 {
        match self.ring_size.checked_div(self.segment_size) {
            Some(segments) => segments,
            None => 0,
        }
    }

    /// Where open-call stack `index` begins.
    #[must_use]
    pub const fn open_calls_at(&self, index: u32) -> u64 {
        self.open_calls_offset + index as u64 * self.open_call_stride
    }

    /// Number of places that functions may have, place 0 included.
    #[must_use]
    pub const fn functions(&self) -> u32 {
        if self.functions == 0 { dropped::FUNCTIONS } else { self.functions }
    }

    /// Bytes of a thread slot's counts: those of dropped calls, or of all calls.
    #[must_use]
    pub const fn counts_size(&self) -> u64 {
        dropped::counts_size(self.functions())
    }

    /// Bytes of the times of a thread slot's calls.
    #[must_use]
    pub const fn times_size(&self) -> u64 {
        times::slot_size(self.functions())
    }

    /// Where the [dropped] calls of the function at `place` are described.
    #[must_use]
    pub const fn dropped_function_at(&self, place: u32) -> u64 {
        self.dropped_offset + dropped::function_at(place)
    }

    /// Where a thread slot's counts of dropped calls are.
    #[must_use]
    pub const fn dropped_counts_at(&self, slot: u32) -> u64 {
        self.open_calls_at(self.thread_capacity) + slot as u64 * self.counts_size()
    }

    /// Where a thread slot's [counts of all calls](crate::all_calls) are.
    #[must_use]
    pub const fn all_calls_at(&self, slot: u32) -> u64 {
        self.all_calls_offset + slot as u64 * self.counts_size()
    }

    /// Where the entry of segment `index` of the pool is.
    #[must_use]
    pub const fn segment_entry_at(&self, index: u32) -> u64 {
        self.segment_table_offset + index as u64 * size_of::<SegmentEntry>() as u64
    }

    /// Where segment `index` of the pool is.
    #[must_use]
    pub const fn segment_at(&self, index: u32) -> u64 {
        self.segments_offset + index as u64 * self.segment_size
    }

    /// Where the header of thread `index` is.
    #[must_use]
    pub const fn thread_at(&self, index: u32) -> u64 {
        self.threads_offset + index as u64 * size_of::<ThreadHeader>() as u64
    }

    /// Whether every size and offset fits the others and `available` bytes of memory, so that
    /// nothing computed from them leaves the arena.
    #[must_use]
    pub fn is_consistent(&self, available: u64) -> bool {
        let within = |offset: u64, count: u64, size: u64| {
            count
                .checked_mul(size)
                .and_then(|bytes| offset.checked_add(bytes))
                .is_some_and(|last| last <= self.arena_size)
        };
        let aligned = |offset: u64| offset.is_multiple_of(8);
        self.magic == ARENA_MAGIC
            && self.version == ARENA_VERSION
            && self.arena_size <= available
            && self.ring_size.is_power_of_two()
            && (crate::env::RING_SIZE_MIN..=crate::env::RING_SIZE_MAX).contains(&self.ring_size)
            && self.segment_size.is_power_of_two()
            && (PAGE..=SEGMENT_SIZE_MAX).contains(&self.segment_size)
            && self.segment_size <= self.ring_size
            && self.open_call_capacity >= 2
            && open_call_bytes(self.open_call_capacity) <= self.open_call_stride
            && [self.modules_offset, self.children_offset, self.threads_offset, self.segment_table_offset]
                .into_iter()
                .all(aligned)
            && [self.open_calls_offset, self.open_call_stride, self.segments_offset].into_iter().all(aligned)
            && within(self.modules_offset, self.module_capacity.into(), size_of::<ModuleEntry>() as u64)
            && within(self.children_offset, self.child_capacity.into(), size_of::<ChildEntry>() as u64)
            && within(self.paths_offset, 1, self.paths_size)
            && self.triggers_fit()
            && within(
                self.segment_table_offset,
                self.segment_capacity.into(),
                size_of::<SegmentEntry>() as u64,
            )
            && within(self.threads_offset, self.thread_capacity.into(), size_of::<ThreadHeader>() as u64)
            && within(self.open_calls_offset, self.thread_capacity.into(), self.open_call_stride)
            && self.dropped_offset.is_multiple_of(PAGE)
            && self.functions().is_power_of_two()
            && (dropped::FUNCTIONS..=dropped::FUNCTIONS_MAX).contains(&self.functions())
            && within(self.dropped_offset, 1, dropped::table_size(self.functions()))
            && within(
                self.open_calls_at(self.thread_capacity),
                self.thread_capacity.into(),
                self.counts_size(),
            )
            && self.all_calls_offset.is_multiple_of(PAGE)
            && within(self.all_calls_offset, self.thread_capacity.into(), self.counts_size())
            && within(self.segments_offset, self.segment_capacity.into(), self.segment_size)
            && self.frames_offset.is_multiple_of(PAGE)
            && self.frames_size >= size_of::<FrameNames>() as u64
            && within(self.frames_offset, 1, self.frames_size)
            && self.times_offset.is_multiple_of(PAGE)
            && (self.times_offset == 0
                || within(self.times_offset, self.thread_capacity.into(), self.times_size()))
            && self.states_offset.is_multiple_of(PAGE)
            && (self.states_offset == 0 || within(self.states_offset, 1, KEPT_SIZE))
            && self.values_offset.is_multiple_of(PAGE)
            && (self.values_offset == 0 || within(self.values_offset, 1, value_counts::SIZE))
    }
}

/// Bytes for the triggers of clients.
const LIVE_SIZE: u64 = trigger::LIVE_AREAS as u64 * trigger::area_size(trigger::LIVE_SITES);

/// Bytes of an open-call stack, rounded up to pages.
#[must_use]
pub const fn open_call_bytes(capacity: u32) -> u64 {
    (capacity as u64 * size_of::<OpenCall>() as u64).next_multiple_of(PAGE)
}

impl ArenaHeader {
    /// Where the triggers are: after the paths. `None` if the arena has no room for any.
    #[must_use]
    pub const fn triggers_at(&self) -> Option<u64> {
        if self.trigger_sites == 0 {
            return None;
        }
        match self.paths_offset.checked_add(self.paths_size) {
            Some(end) => end.checked_next_multiple_of(PAGE),
            None => None,
        }
    }

    /// Where area `index` for a client's triggers is, of [`trigger::LIVE_AREAS`] such areas. `None`
    /// if the arena has no room for them.
    #[must_use]
    pub const fn live_triggers_at(&self, index: u32) -> Option<u64> {
        let Some(segments) = (self.segment_capacity as u64).checked_mul(self.segment_size) else {
            return None;
        };
        let Some(first) = self.segments_offset.checked_add(segments) else { return None };
        match first.checked_add(LIVE_SIZE) {
            Some(end)
                if end <= self.arena_size && index < trigger::LIVE_AREAS && first.is_multiple_of(PAGE) =>
            {
                Some(first + index as u64 * trigger::area_size(trigger::LIVE_SITES))
            }
            _ => None,
        }
    }

    /// Whether the triggers end before the next part begins.
    pub(crate) fn triggers_fit(&self) -> bool {
        self.trigger_sites == 0
            || self
                .triggers_at()
                .and_then(|at| at.checked_add(trigger::area_size(self.trigger_sites)))
                .is_some_and(|end| end <= self.segment_table_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_layouts_are_consistent() {
        for ring_size in [crate::env::RING_SIZE_MIN, crate::env::RING_SIZE_DEFAULT, crate::env::RING_SIZE_MAX]
        {
            for threads in [1, THREAD_CAPACITY] {
                let header = ArenaHeader::with_layout(ring_size, threads, EXTRA_SIZE);
                assert!(header.is_consistent(header.arena_size), "{header:?}");
                assert!(!header.is_consistent(header.arena_size - 1));
                assert_eq!(header.open_call_stride % PAGE, 0);
                assert_eq!(header.threads_offset % PAGE, 0);
            }
        }
    }

    #[test]
    fn lies_are_noticed() {
        let good = ArenaHeader::with_layout(1 << 20, 4, EXTRA_SIZE);
        let spoil: [fn(&mut ArenaHeader); 21] = [
            |h| h.frames_size = 8,
            |h| h.frames_size = u64::MAX,
            |h| h.frames_offset = 8,
            |h| h.frames_offset = h.arena_size,
            |h| h.magic += 1,
            |h| h.version += 1,
            |h| h.ring_size = u64::MAX,
            |h| h.segment_size = 3,
            |h| h.open_call_stride = u64::MAX,
            |h| h.thread_capacity = u32::MAX,
            |h| h.modules_offset = u64::MAX,
            |h| h.open_call_capacity = u32::MAX,
            |h| h.segment_capacity = u32::MAX,
            |h| h.segment_table_offset += 1,
            |h| h.times_offset = 8,
            |h| h.times_offset = !(PAGE - 1),
            |h| h.states_offset = 8,
            |h| h.states_offset = h.arena_size,
            |h| h.functions = 2 * dropped::FUNCTIONS_MAX,
            |h| h.functions += 1,
            |h| h.functions = 1,
        ];
        let with_states = good.with_states();
        assert!(with_states.is_consistent(with_states.arena_size));
        assert!(!with_states.is_consistent(with_states.arena_size - 1));
        assert_eq!(with_states.states_offset + KEPT_SIZE, with_states.arena_size);
        assert!(ArenaHeader { functions: 0, ..good }.is_consistent(good.arena_size));
        let timed = good.with_times();
        assert!(timed.is_consistent(timed.arena_size) && !timed.is_consistent(timed.arena_size - 1));
        assert_eq!(timed.times_at(3, 0).map(|at| at + timed.times_size()), Some(timed.arena_size));
        for change in spoil {
            let mut bad = good;
            change(&mut bad);
            assert!(!bad.is_consistent(good.arena_size), "{bad:?}");
        }
    }

    #[test]
    fn triggers_have_their_place() {
        let plain = ArenaHeader::with_layout(1 << 20, 4, 0);
        assert_eq!(plain.triggers_at(), None);
        let with = ArenaHeader::with_triggers(1 << 20, 4, 0, trigger::SITES);
        assert!(with.is_consistent(with.arena_size));
        assert_eq!(
            with.segment_table_offset - with.triggers_at().unwrap(),
            trigger::area_size(trigger::SITES)
        );
        for header in [plain, with] {
            let live = |index| header.live_triggers_at(index);
            assert_eq!(live(0), Some(header.segment_at(header.segment_capacity)));
            let last = live(trigger::LIVE_AREAS - 1).unwrap();
            assert_eq!(last + trigger::area_size(trigger::LIVE_SITES), header.frames_offset);
            assert_eq!(header.frames_offset + FRAMES_SIZE, header.arena_size);
            assert_eq!(live(trigger::LIVE_AREAS), None);
            let short = ArenaHeader { arena_size: header.frames_offset - 1, ..header };
            assert_eq!(short.live_triggers_at(0), None);
        }
        for sites in [trigger::SITES + 4096, u32::MAX] {
            let lie = ArenaHeader { trigger_sites: sites, ..with };
            assert!(!lie.is_consistent(with.arena_size), "{sites}");
        }
    }
}
