//! The state of the process: private memory that is wiped in a forked child.
//!
//! ```text
//! Process                       some pages
//! Control[thread_capacity]      320 bytes each
//! ------------------------------ wiped in children up to here
//! slow-path stacks              64 KiB each, for all threads: see [`slow_stacks`]
//! ```
#![allow(unsafe_code)] // Memory that is mapped here; cells written at the start.

use crate::state::arena::Arena;
use crate::state::cancelled::Cancelled;
use crate::state::crash_file::CrashFile;
use crate::state::kept_calls::KeptCalls;
use crate::state::more_places::{MorePlaces, set_nobodys};
use crate::state::ranges::Ranges;
use crate::state::retired::Retired;
use crate::state::snapshots::Snapshots;
use crate::state::{slow_stacks, times};
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use crate::sys::wiped;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};
use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, PAGE};
use everycall_hooks::ShortMap;
use everycall_ring::Control;

const PROCESS_SIZE: u64 = size_of::<Process>() as u64;

/// [`Process::state`].
pub(crate) mod process_state {
    /// Wiped: this process was forked from a traced one.
    pub const BLANK: u32 = 0;
    /// Traced.
    pub const ON: u32 = 1;
    /// Runs untraced.
    pub const OFF: u32 = 2;
}

/// The runtime's state of its process.
#[repr(C, align(4096))]
pub(crate) struct Process {
    pub(crate) state: AtomicU32,
    /// In a forked child, the thread that starts tracing it.
    pub(crate) starter: AtomicU32,
    pub(crate) pid: AtomicU32,
    /// Held while modules are registered or unregistered, and while sites are switched.
    pub(crate) module_lock: AtomicU32,
    /// First unused code offset.
    pub(crate) next_code: AtomicU32,
    /// Ended threads and free slots.
    pub(crate) retired: Retired,
    /// Stacks that aren't threads' own.
    pub(crate) stacks: Ranges,
    /// The earliest time for the next search for unused fibers, in ticks.
    pub(crate) idle_look_due: AtomicU64,
    /// Threads that were cancelled before their first call.
    pub(crate) cancelled: [Cancelled; 16],
    pub(crate) next_cancelled: AtomicU32,
    /// Number of fibers so far.
    pub(crate) fibers: AtomicU32,
    /// Snapshots that the program has taken of itself.
    pub(crate) snapshots: Snapshots,
    /// Not 0 while a helper writes a snapshot on a signal.
    pub(crate) signal_helper: AtomicU32,
    /// Not 0 while a thread of ours listens to other processes.
    pub(crate) listener: AtomicU32,
    /// Not 0 while a thread of ours keeps the budget.
    pub(crate) governor: AtomicU32,
    /// The calls that the process keeps itself, if it has a set of triggers.
    pub(crate) kept_calls: KeptCalls,
    /// The process's crash file.
    pub(crate) crash: CrashFile,
    /// Segments that threads have beyond their rings for triggers.
    pub(crate) segments_beyond: AtomicU32,
    /// Places of functions whose calls are counted.
    pub(crate) short_map: ShortMap,
    /// The places that aren't in that map: see [`crate::state::dropped`].
    pub(crate) more_places: MorePlaces,
    /// Control block of threads that run untraced. In a forked child it is blank, too, so the
    /// child's first event takes the slow path, which begins to trace the child.
    pub(crate) left_out: Control,
    /// The process's arena, with the layout that was checked at the start.
    arena: UnsafeCell<Arena>,
    /// Used while holding the module lock.
    scratch: UnsafeCell<[u8; SCRATCH_SIZE]>,
}

/// Longer than the longest line of `/proc/self/maps`.
const SCRATCH_SIZE: usize = 8 << 10;

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
/// The process in which the runtime has started.
static FIRST: AtomicU32 = AtomicU32::new(0);
static ARENA: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Offset of the thread-local slot from the thread pointer.
static THREAD_SLOT: AtomicU64 = AtomicU64::new(0);

/// Maps the process's memory for `arena` and publishes it. Returns false if there is no memory.
pub(crate) fn begin(arena: &Arena, thread_slot: u64) -> bool {
    let layout = arena.layout();
    let wiped_size = wiped_bytes(layout);
    let size = wiped_size + slow_stacks::SIZE + layout.counts_size();
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let Some(base) = system::map(size, PROT_READ | PROT_WRITE, flags, -1) else { return false };
    if !wiped::wipe_in_children(base, wiped_size) {
        // Otherwise a child would write into its parent's rings.
        system::unmap(base, size);
        return false;
    }
    let process = base.cast::<Process>();
    // SAFETY: fresh, zeroed, page-aligned memory; all zero is a valid Process. No other thread has
    // it yet.
    let fresh = unsafe { &mut *process };
    *fresh.arena.get_mut() = *arena;
    fresh.pid.store(system::process_id(), Relaxed);
    FIRST.store(system::process_id(), Relaxed);
    slow_stacks::begin(base as u64 + wiped_size);
    set_nobodys(base as u64 + wiped_size + slow_stacks::SIZE);
    fresh.next_code.store(everycall_format::event::OFFSET_FIRST, Relaxed);
    THREAD_SLOT.store(thread_slot, Relaxed);
    ARENA.store(arena.base(), Relaxed);
    PROCESS.store(process, Release);
    true
}

/// Bytes of `Process` and the control blocks, which are wiped in a forked child.
fn wiped_bytes(layout: &ArenaHeader) -> u64 {
    let controls = u64::from(layout.thread_capacity) * size_of::<Control>() as u64;
    (PROCESS_SIZE + controls).next_multiple_of(PAGE)
}

/// Whether this is the process in which the runtime has started, and not a child that was forked.
pub(crate) fn is_first() -> bool {
    FIRST.load(Relaxed) == system::process_id()
}

/// The process, once the runtime has started. In a forked child, it may be blank.
pub(crate) fn process() -> Option<&'static Process> {
    // SAFETY: set once, to memory that is never unmapped.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// The arena that a forked child has inherited. The child's own copy of the layout is wiped.
pub(crate) fn inherited_arena() -> Option<Arena> {
    let base = ARENA.load(Relaxed);
    if base.is_null() {
        return None;
    }
    // SAFETY: mapped by `start`, which checked the layout, and never unmapped; the header is at its
    // beginning.
    let header = ArenaHeader::read(unsafe { core::slice::from_raw_parts(base, ArenaHeader::SIZE) })?;
    // SAFETY: as above. The layout is checked again, because the program may have overwritten it.
    header.is_consistent(header.arena_size).then(|| unsafe { Arena::new(base, header) })
}

/// The memory that the runtime has mapped: the arena, `Process` with the control blocks, the stacks
/// of the slow path and counts that are never read, and the times of open calls' callees, or
/// nothing. Also valid in a forked child.
pub(crate) fn own_memory() -> Option<[Range<u64>; 3]> {
    let process = core::ptr::from_ref(process()?) as u64;
    let arena = inherited_arena()?;
    let layout = arena.layout();
    let base = arena.base() as u64;
    let process = process..process + wiped_bytes(layout) + slow_stacks::SIZE + layout.counts_size();
    Some([base..base + layout.arena_size, process, times::memory(&arena)])
}

/// Offset of the thread-local slot from the thread pointer.
pub(crate) fn thread_slot_offset() -> u64 {
    THREAD_SLOT.load(Relaxed)
}

/// Address of the calling thread's slot for its control block: the first word of a `Local`.
pub(crate) fn thread_slot() -> *mut *const Control {
    everycall_hooks::thread_pointer().wrapping_add(THREAD_SLOT.load(Relaxed)) as *mut *const Control
}

/// The process, if it is traced.
pub(crate) fn traced() -> Option<&'static Process> {
    process().filter(|process| process.state.load(Relaxed) == process_state::ON)
}

impl Process {
    /// The process's arena. Must not be called for a blank process.
    pub(crate) fn arena(&self) -> &Arena {
        // SAFETY: `begin` or `begin_child` was called with an arena of this layout at this address;
        // neither changes while the process isn't blank.
        unsafe { &*self.arena.get() }
    }

    /// Starts the blank process of a forked child, with `arena` in place of its parent's.
    pub(crate) fn begin_child(&self, arena: &Arena, next_code: u32) {
        // SAFETY: the thread that starts the child is the only one, and the arena of a blank
        // process isn't used.
        unsafe { *self.arena.get() = *arena };
        self.pid.store(system::process_id(), Relaxed);
        self.next_code.store(next_code, Relaxed);
        self.retired.keep_as_parent();
    }

    /// Whether a control block is one of the process's `capacity` control blocks.
    pub(crate) fn owns(&'static self, control: *const Control, capacity: u32) -> bool {
        let first = core::ptr::from_ref(self.control(0)) as u64;
        let size = u64::from(capacity) * size_of::<Control>() as u64;
        (control as u64).wrapping_sub(first) < size
    }

    /// The buffer for the thread that holds the module lock.
    pub(crate) fn scratch(&self) -> *mut [u8; SCRATCH_SIZE] {
        self.scratch.get()
    }

    /// The control block of thread slot `index`.
    pub(crate) fn control(&'static self, index: u32) -> &'static Control {
        let first =
            core::ptr::from_ref(self).cast::<u8>().wrapping_add(PROCESS_SIZE as usize).cast::<Control>();
        // SAFETY: `begin` has mapped one for each thread slot; all zero is a valid block.
        unsafe { &*first.wrapping_add(index as usize) }
    }

    /// The control blocks of all slots that a thread has ever had.
    pub(crate) fn controls(&'static self) -> impl Iterator<Item = &'static Control> {
        let arena = self.arena();
        let count = arena.thread_count().load(SeqCst).min(arena.layout().thread_capacity);
        (0..count).map(|index| self.control(index))
    }
}
