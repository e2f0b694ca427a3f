//! The control block: a thread's data for its hooks. What each hook needs is in its first cache
//! line. A fiber has a control block, too: here, *thread* includes fibers.

use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// One thread's control block. It is in private memory that the kernel clears in a forked child.
/// There `end` is 0, so the child's first event takes the slow path and doesn't touch the parent's
/// ring.
///
/// Only the owning thread writes (hooks, and the slow path with signals blocked), except that other
/// threads
///
/// - change the stack's bounds when they learn of another stack within them;
/// - write `runner`;
/// - set `end` to 0 when they switch tracing off;
/// - change `state` from OFF to ACTIVE when they switch it on;
/// - lower `floor` and `trigger_floor` when they add triggers.
///
/// After its own writes to these fields, the owner checks whether it must revert them.
///
/// Hooks access fields by their offsets (`offset_of!`). If you move a field, update the hooks'
/// golden disassembly.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// Address of the next free slot. Hooks add the size of a word before they use it.
    pub position: AtomicU64,
    /// Address after the last slot that hooks may use; 0 sends every event to the slow path.
    pub end: AtomicU64,
    /// Address of the open-call entry after the innermost open call.
    pub open_top: AtomicU64,
    /// Upper half of the counter as last recorded in the ring.
    pub ticks_high: AtomicU32,
    /// One of [`state`].
    pub state: AtomicU32,
    /// Lowest stack pointer that hooks accept as being on this block's stack.
    pub stack_low: AtomicU64,
    /// Lowest stack pointer above this block's stack. Every hook compares both bounds before it
    /// accesses anything else here: another thread may be running this stack, and only the thread
    /// that runs it writes here.
    pub stack_high: AtomicU64,
    /// Address of this slot's [counts of all calls](everycall_format::all_calls), or of counts that
    /// are never read. Never 0 while the thread records.
    pub counts: AtomicU64,
    /// Exits of calls that took at least this many ticks leave the fast path: a
    /// [trigger](everycall_format::trigger) may want such a call, or (then this is 0) the call may
    /// have to be [dropped](everycall_format::dropped). (For calls of 2^32 ticks and more, only the
    /// low half is compared; their exits take the slow path anyway.)
    pub floor: AtomicU32,
    /// Index in the open-call stack, plus 1, of the outermost call of an armed function that was
    /// open at the last check.
    pub matching: AtomicU32,

    /// Address of the open-call stack's sentinel.
    pub open_base: AtomicU64,
    /// Address after the last open-call entry that may be used.
    pub open_limit: AtomicU64,
    /// Number of the segment that is being written.
    pub segment: AtomicU64,
    /// Address after the segment's last regular word; [`crate::SPARE_WORDS`] follow.
    pub segment_end: AtomicU64,
    /// The next free slot while `end` is 0, so that every event takes the slow path.
    pub suspended_position: AtomicU64,
    /// Not 0 once the segment was ended, until the next one is begun.
    pub closed: AtomicU32,
    /// Place in the pool of the segment that is being written.
    pub current: AtomicU32,
    /// Place in the pool of the ring's oldest segment.
    pub oldest: AtomicU32,
    /// Segments of the ring.
    pub ring_count: AtomicU32,
    /// Segments that it may have.
    pub ring_limit: AtomicU32,
    /// Segments beyond that limit that are counted for triggers.
    pub beyond: AtomicU32,
    /// Entries and exits before the current segment.
    pub events: AtomicU64,
    /// Words in the current segment that aren't entries or exits.
    pub other_words: AtomicU64,

    /// When recording went off in this thread, ticks; 0 while it is on. Not cleared until the GAP
    /// record is written.
    pub gap_ticks: AtomicU64,
    /// The reason: one of [`everycall_format::event::gap`].
    pub gap_reason: AtomicU32,
    /// One of [`left_out`]. Code that learns of another stack within this one may turn AT_ONCE into
    /// YES.
    pub left_out: AtomicU32,

    /// Not 0 while the slow path runs.
    pub busy: AtomicU32,
    /// Number of open calls at the last check for armed functions.
    pub looked_depth: AtomicU32,
    /// Events at that check.
    pub looked_events: AtomicU64,
    /// When the program announced the thread's end, ticks; 0 before. The calls that were open then
    /// and exceeded a trigger's threshold have been posted.
    pub ending: AtomicU64,

    /// The stack's lower end, as far as known. `stack_low` is above it if other stacks are within
    /// this one.
    pub stack_end: AtomicU64,
    /// The thread that runs the stack ([`running`]), or the time when the stack was suspended,
    /// ticks; 0 before it first ran.
    pub runner: AtomicU64,
    /// When the stack, now resumed, was suspended, ticks. 0 once the GAP record is written.
    pub resumed: AtomicU64,
    /// Number of the fiber whose stack this is; 0 for a thread's own.
    pub fiber: AtomicU32,
    /// How exactly the stack's bounds are known; used by the runtime only.
    pub bounds: AtomicU32,
    /// Index in the open-call stack, plus 1, of the outermost call of a signal handler on an
    /// alternate stack above the stack that it interrupted; 0 if there is none. While it is open,
    /// every event takes the slow path.
    pub handler: AtomicU32,
    /// Calls in the open-call stack that ended by tail calls which triggers still follow. They take
    /// two entries each, and aren't open calls.
    pub jumps: AtomicU32,
    /// An address in an exception handler that has begun in a frame that inlined calls share,
    /// otherwise 0. Some of those calls may have been unwound; the next event, which takes the slow
    /// path, decides.
    pub handled: AtomicU64,
    /// After a jump from another stack to this one: the stack pointer that a hook would have at the
    /// target; otherwise 0. The next event, which takes the slow path, unwinds the frames below.
    pub jumped_to: AtomicU64,
    /// Address of the runtime's data on calls beyond `open_limit`.
    pub deep_base: AtomicU64,
    /// The thread pointer of the thread whose own stack this is, 0 for a fiber's; with the lowest
    /// bit set once the program has asked the thread to end (`pthread_cancel`), and the next bit
    /// some time after that.
    pub thread: AtomicU64,

    /// Calls that took less, in ticks, and called nothing that is in the ring are dropped; 0 if no
    /// call is. Only the owner writes it. While it isn't 0, `floor` is 0.
    pub short: AtomicU32,
    /// The value of `floor` while no calls are dropped: the lowest threshold of all triggers.
    pub trigger_floor: AtomicU32,
    /// Address of the process's table of functions whose short calls are counted.
    pub short_map: AtomicU64,
    /// Address of this slot's counts of short calls.
    pub short_counts: AtomicU64,
    /// Address of the open-call entry that stands for the jump that was followed last.
    pub jump: AtomicU64,
    /// When that call, or the last function that it reached by tail calls, jumped, ticks.
    pub jump_ticks: AtomicU64,
    /// The address to which that jump led; 0 if it isn't known.
    pub jump_target: AtomicU64,
    /// A hash of the registers that functions preserve, at that jump.
    pub jump_registers: AtomicU64,
    /// The code offset of the exit at that jump; 0 if it is in no module.
    pub jump_code: AtomicU32,
    /// Low half of the number of events when the present exception was thrown; 0 if none is known.
    pub raised: AtomicU32,
    /// Thread slot in the arena.
    pub slot: AtomicU32,
    /// Calls open beyond `open_limit`.
    pub deep: AtomicU32,

    /// When the thread's name was read last, ticks.
    pub named: AtomicU64,
    /// Address up to which the open-call stack is in core dumps.
    pub dumped: AtomicU64,
    /// An event whose slot is at this address or behind it gets a stamp; 0: the next one. Not beyond
    /// `end`; who lowers that lowers this. Only used where events may go without.
    pub stamp_due: AtomicU64,
    /// The last stamp, ticks; only its lower half counts, and it is in the upper half of the word.
    pub last_stamp: AtomicU64,
    /// Events below this stack pointer whose values are copied take the slow path: there may be no
    /// room on the stack.
    pub capture_floor: AtomicU64,
    /// Bytes of words from one stamp to the next, at most. 0: every event gets one.
    pub stamp_after: AtomicU64,
    /// Address of the end of the stack, which is certainly mapped up to it; 0 if none is known.
    pub capture_end: AtomicU64,
    /// Address of the process's number of calls that were left out; 0: the slow path counts.
    pub calls_left_out: AtomicU64,

    /// Stack pointers of calls that were found to have been unwound. If one of them returns after
    /// all, its stack had only been left for another one in the same memory.
    pub noticed: [AtomicU64; NOTICED],
}

/// Places in [`Control::noticed`]; a power of two.
pub const NOTICED: usize = 16;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Control>() == 576);

/// [`Control::runner`] of a stack that a thread runs. Ticks are far below it.
#[must_use]
pub const fn running(tid: u32) -> u64 {
    1 << 63 | tid as u64
}

/// [`Control::state`].
pub mod state {
    /// All zero: never set up, or wiped by a fork.
    pub const BLANK: u32 = 0;
    /// The thread records.
    pub const ACTIVE: u32 = 1;
    /// The thread doesn't record: hooks return at once.
    pub const OFF: u32 = 2;
}

/// [`Control::left_out`].
pub mod left_out {
    /// The thread isn't excluded.
    pub const NO: u32 = 0;
    /// The program has excluded this thread.
    pub const YES: u32 = 1;
    /// As [`YES`], and no other stack lies within its own. `stack_low` is above every address, so
    /// every hook branches there; a hook whose stack pointer is from `stack_end` to below
    /// `stack_high` returns before it reads the clock.
    pub const AT_ONCE: u32 = 2;
}

impl Control {
    /// Sends the stack's next event to the slow path. Hooks that see that they need a stamp see the
    /// end, too.
    pub fn stop_hooks(&self) {
        self.end.store(0, Ordering::Relaxed);
        self.stamp_due.store(0, Ordering::Release);
    }

    /// Makes hooks that find this blank control block return at once.
    pub fn turn_off(&self) {
        self.floor.store(u32::MAX, Ordering::Relaxed);
        self.trigger_floor.store(u32::MAX, Ordering::Relaxed);
        self.short.store(0, Ordering::Relaxed);
        self.left_out.store(left_out::AT_ONCE, Ordering::Relaxed);
        self.stack_low.store(u64::MAX, Ordering::Relaxed);
        self.stack_high.store(u64::MAX, Ordering::Relaxed);
        self.state.store(state::OFF, Ordering::Release);
    }
}

/// One definition for a `const` function with std's atomics, and for loom's, which aren't `const`.
macro_rules! blank_control {
    ($none_noticed:expr $(, $constant:tt)?) => {
        impl Control {
            /// A blank control block.
            #[must_use]
            pub $($constant)? fn new() -> Control {
                Control {
                    position: AtomicU64::new(0),
                    end: AtomicU64::new(0),
                    open_top: AtomicU64::new(0),
                    ticks_high: AtomicU32::new(0),
                    state: AtomicU32::new(0),
                    stack_low: AtomicU64::new(0),
                    stack_high: AtomicU64::new(0),
                    counts: AtomicU64::new(0),
                    floor: AtomicU32::new(u32::MAX),
                    matching: AtomicU32::new(0),
                    open_base: AtomicU64::new(0),
                    open_limit: AtomicU64::new(0),
                    segment: AtomicU64::new(0),
                    segment_end: AtomicU64::new(0),
                    suspended_position: AtomicU64::new(0),
                    closed: AtomicU32::new(0),
                    current: AtomicU32::new(0),
                    oldest: AtomicU32::new(0),
                    ring_count: AtomicU32::new(0),
                    ring_limit: AtomicU32::new(0),
                    beyond: AtomicU32::new(0),
                    events: AtomicU64::new(0),
                    other_words: AtomicU64::new(0),
                    gap_ticks: AtomicU64::new(0),
                    gap_reason: AtomicU32::new(0),
                    left_out: AtomicU32::new(0),
                    busy: AtomicU32::new(0),
                    looked_depth: AtomicU32::new(0),
                    looked_events: AtomicU64::new(0),
                    ending: AtomicU64::new(0),
                    stack_end: AtomicU64::new(0),
                    runner: AtomicU64::new(0),
                    resumed: AtomicU64::new(0),
                    fiber: AtomicU32::new(0),
                    bounds: AtomicU32::new(0),
                    handler: AtomicU32::new(0),
                    jumps: AtomicU32::new(0),
                    handled: AtomicU64::new(0),
                    jumped_to: AtomicU64::new(0),
                    deep_base: AtomicU64::new(0),
                    thread: AtomicU64::new(0),
                    short: AtomicU32::new(0),
                    trigger_floor: AtomicU32::new(u32::MAX),
                    short_map: AtomicU64::new(0),
                    short_counts: AtomicU64::new(0),
                    jump: AtomicU64::new(0),
                    jump_ticks: AtomicU64::new(0),
                    jump_target: AtomicU64::new(0),
                    jump_registers: AtomicU64::new(0),
                    jump_code: AtomicU32::new(0),
                    raised: AtomicU32::new(0),
                    slot: AtomicU32::new(0),
                    deep: AtomicU32::new(0),
                    named: AtomicU64::new(0),
                    dumped: AtomicU64::new(0),
                    stamp_due: AtomicU64::new(0),
                    last_stamp: AtomicU64::new(0),
                    capture_floor: AtomicU64::new(u64::MAX),
                    stamp_after: AtomicU64::new(0),
                    capture_end: AtomicU64::new(0),
                    calls_left_out: AtomicU64::new(0),
                    noticed: $none_noticed,
                }
            }
        }
    };
}
#[cfg(not(loom))]
blank_control!([const { AtomicU64::new(0) }; NOTICED], const);
#[cfg(loom)]
blank_control!(std::array::from_fn(|_| AtomicU64::new(0)));

impl Default for Control {
    fn default() -> Self {
        Control::new()
    }
}
