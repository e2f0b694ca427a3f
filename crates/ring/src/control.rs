//! The control block: what a hook needs of its thread, in one cache line. A fiber has one, too: here a *thread* is whatever runs on a stack of its own.

use crate::primitive::{AtomicU32, AtomicU64};

/// One thread's control block. It lies in private memory that a forked child finds wiped: then `end`
/// is 0, so that the child's first event takes the slow path, and the parent's ring isn't touched.
///
/// Rules of access: only the owning thread writes (hooks, and the slow path with signals blocked), but for the stack's bounds, which
/// whoever learns of another stack within them changes, `runner`, and three fields: whoever
/// switches tracing off sets `end` to 0, whoever switches it on turns `state` from OFF to ACTIVE, and whoever adds triggers lowers
/// `floor`. The owner looks after its own writes to these whether it has to take them back.
/// Hooks use the fields of the first line by offset; if you change them, the assembly of the hooks
/// room follows by itself (`offset_of!`), its golden disassembly has to be blessed.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// Address of the next free slot. Hooks add the size of a word before they use it.
    pub position: AtomicU64,
    /// Address behind the last slot that hooks may use; 0 sends every event to the slow path.
    pub end: AtomicU64,
    /// Address of the open-call entry behind the innermost open call.
    pub open_top: AtomicU64,
    /// Upper half of the counter as last recorded in the ring.
    pub ticks_high: AtomicU32,
    /// One of [`state`].
    pub state: AtomicU32,
    /// Lowest stack pointer at which hooks take the running stack for this block's own.
    pub stack_low: AtomicU64,
    /// The stack pointer from which on they don't. Every hook compares both before it touches anything else here: another
    /// thread may be running this stack, and only whoever runs it writes here.
    pub stack_high: AtomicU64,
    /// Thread slot in the arena.
    pub slot: AtomicU32,
    /// Calls open beyond `open_limit`.
    pub deep: AtomicU32,
    /// Exits of calls that took at least so many ticks come to the slow path: a [trigger](everycall_format::trigger) may want them.
    /// (Of calls that took 2^32 ticks and more, only what remains is compared; their exits come there anyway.)
    pub floor: AtomicU32,
    /// Place in the open-call stack, plus 1, of the outermost call that was open at the last look and that a trigger names.
    pub matching: AtomicU32,

    /// Address of the open-call stack's sentinel.
    pub open_base: AtomicU64,
    /// Address behind the last open-call entry that may be used.
    pub open_limit: AtomicU64,
    /// Number of the segment that is being written.
    pub segment: AtomicU64,
    /// Address behind the last word of the segment that is used in order; [`crate::SPARE_WORDS`] follow.
    pub segment_end: AtomicU64,
    /// While `end` is 0 so that every event comes to the slow path: the next free slot.
    pub held_position: AtomicU64,
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

    /// When recording went off in this thread, ticks; 0 while it is on. Stays until the record that says so is written.
    pub gap_ticks: AtomicU64,
    /// Why: one of [`everycall_format::event::gap`].
    pub gap_reason: AtomicU32,
    /// One of [`left_out`]. Whoever learns of another stack within this one may turn AT_ONCE into YES.
    pub left_out: AtomicU32,

    /// Not 0 while the slow path runs.
    pub busy: AtomicU32,
    /// Open calls at the last look for those that triggers name.
    pub looked_depth: AtomicU32,
    /// Events at that look.
    pub looked_events: AtomicU64,
    /// When the program said that the thread ends, ticks; 0 before. Calls that were open then were told to triggers as far as they had
    /// taken long enough.
    pub ending: AtomicU64,

    /// The true lower end of the stack, as far as it is known: `stack_low` is above it where other stacks lie within this one.
    pub stack_end: AtomicU64,
    /// Who runs the stack: [`running`] of a thread, or when it was left, ticks; 0 before it was first run.
    pub runner: AtomicU64,
    /// When the stack was left that is run again now, ticks, until the record that says so is written; else 0.
    pub resumed: AtomicU64,
    /// Number of the fiber whose stack this is; 0 for a thread's own.
    pub fiber: AtomicU32,
    /// How exactly the stack's bounds are known: the runtime's own.
    pub bounds: AtomicU32,
    /// Place in the open-call stack, plus 1, of the outermost call of a signal handler on an alternate stack that lies above what it interrupted;
    /// 0 where there is none. As long as it is open, every event comes to the slow path.
    pub handler: AtomicU32,
    /// Where a handler of an exception has begun in a frame that inlined calls share, an address in it, else 0: it may have left some of them. The next
    /// event, which comes to the slow path, decides.
    pub handled: AtomicU64,
    /// Where a jump from another stack has gone on in this one: the stack pointer that a hook would have there; else 0. The next event, which comes to the
    /// slow path, finds left what is below.
    pub jumped_to: AtomicU64,
    /// Where the runtime keeps what it has to know of the calls beyond `open_limit`.
    pub deep_base: AtomicU64,
    /// The thread pointer of the thread whose own stack this is, 0 for a fiber's; with the lowest bit set once the program has asked the thread to end
    /// (`pthread_cancel`), and the next one when that is some time ago.
    pub thread: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Control>() == 256);

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
    /// The thread isn't left out.
    pub const NO: u32 = 0;
    /// The program leaves this thread out.
    pub const YES: u32 = 1;
    /// The same, and no other stack lies within its own: `stack_low` is beyond every address, and hooks that find a stack pointer below it
    /// return before they read the clock, if it is from `stack_end` on and below `stack_high`.
    pub const AT_ONCE: u32 = 2;
}

impl Control {
    /// A control block whose hooks return at once.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn off() -> Control {
        let mut control = Control::new();
        control.state = AtomicU32::new(state::OFF);
        control.left_out = AtomicU32::new(left_out::AT_ONCE);
        control.stack_low = AtomicU64::new(u64::MAX);
        control.stack_high = AtomicU64::new(u64::MAX);
        control
    }
}

/// The same text for a constant function, where atomics are plain, and for loom, where they aren't.
macro_rules! blank_control {
    ($($constant:tt)?) => {
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
                    slot: AtomicU32::new(0),
                    deep: AtomicU32::new(0),
                    floor: AtomicU32::new(u32::MAX),
                    matching: AtomicU32::new(0),
                    open_base: AtomicU64::new(0),
                    open_limit: AtomicU64::new(0),
                    segment: AtomicU64::new(0),
                    segment_end: AtomicU64::new(0),
                    held_position: AtomicU64::new(0),
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
                    handled: AtomicU64::new(0),
                    jumped_to: AtomicU64::new(0),
                    deep_base: AtomicU64::new(0),
                    thread: AtomicU64::new(0),
                }
            }
        }
    };
}
#[cfg(not(loom))]
blank_control!(const);
#[cfg(loom)]
blank_control!();

impl Default for Control {
    fn default() -> Self {
        Control::new()
    }
}
