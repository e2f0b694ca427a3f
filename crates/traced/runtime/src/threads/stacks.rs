//! The bounds of stacks, as far as they are known.
//!
//! A thread's own stack ends, upwards, at the address in the thread pointer: C libraries put that
//! block on top of the stack. The bounds of an unregistered stack are learnt while it is used: from
//! its mapping, if a guard page lies below that, otherwise step by step. All memory between two
//! stack pointers of one stack is readable; guard pages aren't.
#![allow(unsafe_code)] // An entry of an open-call stack, by its address.

use crate::state::process::Process;
use crate::state::ranges::flags;
use crate::sys::mapping::{self, Mapping};
use crate::sys::system;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::arena::{OpenCall, PAGE};
use everycall_hooks::arch::{SIGNAL_FRAME, interrupted};
use everycall_ring::{Control, left_out};

/// How a stack's bounds are known: [`Control::bounds`].
pub(crate) mod bounds {
    /// Exactly: the program registered the stack, or a guard page lies below it.
    pub const TOLD: u32 = 0;
    /// The upper end is exact, from the thread pointer. The lower end is learnt.
    pub const THREAD: u32 = 1;
    /// As [`THREAD`], for the process's first thread, whose stack grows.
    pub const MAIN: u32 = 2;
    /// Both bounds are guesses.
    pub const GUESSED: u32 = 3;
}

/// Bounds of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// One of [`bounds`].
    pub(crate) how: u32,
}

/// Bytes below a thread's lowest known stack pointer that are taken as part of its stack. Some
/// stacks have only 16 KiB.
const MARGIN: u64 = 2 * PAGE;
/// As [`MARGIN`], for the first thread: the kernel keeps 1 MiB below its stack free.
const MARGIN_MAIN: u64 = 128 << 10;
/// As [`MARGIN`], if the bounds are guesses: other stacks may lie there.
const MARGIN_GUESSED: u64 = PAGE;
/// Within this distance from the top of a thread's stack, there is no other stack.
const NEAR_TOP: u64 = 64 << 10;
/// Limit on the distance of a thread's stack pointer from its stack's known bounds.
const THREAD_REACH: u64 = 8 << 20;
/// As [`THREAD_REACH`], for the first thread, below whose stack the kernel leaves space.
pub(crate) const MAIN_REACH: u64 = 64 << 20;
/// How far below its innermost call a stack with guessed bounds may continue: the size of a large
/// frame. Calls on an adjacent stack below are farther away.
const GUESSED_REACH: u64 = 6 << 10;
/// How far above its first stack pointer such a stack is assumed to end.
pub(crate) const ABOVE: u64 = 512;
/// How far above its end such a stack may still continue.
const ABOVE_REACH: u64 = 2 << 10;
/// Within this distance from a mapping's end, a first stack pointer shows that a stack ends there.
/// If a guard page lies below the mapping, that is the mapping's only stack.
const NEAR_END: u64 = 16 << 10;

/// An address at the top of the first thread's stack, or 0 if it isn't known.
static MAIN_TOP: AtomicU64 = AtomicU64::new(0);

/// Stores an address at the top of the first thread's stack.
pub(crate) fn begin(address: u64) {
    MAIN_TOP.store(address, Relaxed);
}

/// The bounds of the calling thread's own stack, if the thread runs on it at `pointer`.
pub(crate) fn of_thread(process: &Process, pointer: u64, tid: u32) -> Option<Bounds> {
    let is_main = tid == process.pid.load(Relaxed);
    let is_forked = process.starter.load(Relaxed) != 0;
    let low = |margin| pointer.saturating_sub(margin).max(process.stacks.end_below(pointer));
    let top = everycall_hooks::thread_pointer();
    if let Some(depth) = top.checked_sub(pointer).filter(|_| !is_main || is_forked)
        && (depth <= NEAR_TOP || depth <= THREAD_REACH && is_contiguous(pointer, top))
    {
        return Some(Bounds { low: low(MARGIN), high: top, how: bounds::THREAD });
    }
    let top = MAIN_TOP.load(Relaxed);
    (is_main && pointer < top && top - pointer <= MAIN_REACH).then(|| Bounds {
        low: low(MARGIN_MAIN),
        high: u64::MAX,
        how: bounds::MAIN,
    })
}

/// The bounds of an unregistered stack.
pub(crate) fn guess(process: &Process, pointer: u64) -> Bounds {
    let mapping = mapping::at(pointer);
    let floor = process.stacks.end_below(pointer);
    if let Some(Mapping { start, end, has_guard: true }) = mapping
        && end - pointer <= NEAR_END
        && !process.stacks.overlaps(start, end)
    {
        return Bounds { low: start, high: end, how: bounds::TOLD };
    }
    let (start, end) = mapping.map_or((0, u64::MAX), |mapping| (mapping.start, mapping.end));
    let low = pointer.saturating_sub(MARGIN_GUESSED).max(floor).max(start);
    let mut high = pointer.saturating_add(ABOVE).min(end);
    if process.stacks.overlaps(pointer, high) {
        high = pointer + 8;
    }
    Bounds { low: readable_from(low, pointer), high, how: bounds::GUESSED }
}

/// Whether hooks that find this control block accept a stack pointer as being on its stack.
pub(crate) fn is_seen(control: &Control, pointer: u64) -> bool {
    if control.left_out.load(Relaxed) == left_out::AT_ONCE && is_within(control, pointer) {
        return true;
    }
    control.stack_low.load(Relaxed) <= pointer && pointer < control.stack_high.load(Relaxed)
}

/// Whether a stack pointer lies within the stack. Other stacks within it are ignored.
pub(crate) fn is_within(control: &Control, pointer: u64) -> bool {
    control.stack_end.load(Relaxed) <= pointer && pointer < control.stack_high.load(Relaxed)
}

/// The part of the stack that the calling thread runs which is certainly mapped: from this stack
/// pointer to its end, if that is known and not a guess.
pub(crate) fn certain(control: &Control, pointer: u64) -> core::ops::Range<u64> {
    let end = match control.bounds.load(Relaxed) {
        bounds::TOLD | bounds::THREAD => control.stack_high.load(Relaxed),
        bounds::MAIN => MAIN_TOP.load(Relaxed),
        _ => 0,
    };
    if is_within(control, pointer) && pointer < end { pointer..end } else { 0..0 }
}

/// Room on a stack that values may take, with what a signal handler needs.
const CAPTURE_ROOM: u64 = 2 * PAGE;
/// [`Control::capture_floor`] before it was looked for, and if there is none.
const NOT_LOOKED: u64 = u64::MAX;
const NO_ROOM: u64 = u64::MAX - 1;
/// The first thread's stack is taken to have at least half of what it may have, but not of more
/// than this.
const MAIN_STACK: u64 = 8 << 20;

/// Finds out, once for each stack, down to which stack pointer there is certainly room to copy
/// values without the slow path's stack. A thread's own stack has a mapping of its own, above a
/// guard page; if it doesn't look so, there is no room.
pub(crate) fn look_for_room(control: &Control, pointer: u64) {
    if control.capture_floor.load(Relaxed) != NOT_LOOKED || !is_within(control, pointer) {
        return;
    }
    let end = control.stack_high.load(Relaxed);
    let floor = match control.bounds.load(Relaxed) {
        bounds::TOLD => Some(control.stack_end.load(Relaxed)),
        bounds::MAIN => {
            let size = system::stack_limit().min(MAIN_STACK) / 2;
            MAIN_TOP.load(Relaxed).checked_sub(size)
        }
        bounds::THREAD => mapping::at(pointer)
            .filter(|it| it.has_guard && it.end >= end && it.end - end <= NEAR_END)
            .map(|it| it.start),
        _ => None,
    };
    let floor = floor.map_or(NO_ROOM, |floor| floor.saturating_add(CAPTURE_ROOM));
    control.capture_end.store(certain(control, pointer).end, Relaxed);
    control.capture_floor.store(floor, Relaxed);
}

/// Whether memory that ends at `high` lies in this thread's own stack. The stack may extend below
/// its known bounds, but hardly far from its innermost call, so the memory lies in that call's
/// frame.
pub(crate) fn is_around(process: &Process, control: &Control, high: u64) -> bool {
    let is_in_frame = || {
        innermost(control).is_some_and(|call| high <= call && call - high <= MARGIN)
            && grown(process, control, high - 1, None).is_some()
    };
    high <= control.stack_high.load(Relaxed) && (is_within(control, high - 1) || is_in_frame())
}

/// Whether a stack pointer may belong to a thread's own stack.
pub(crate) fn is_near(control: &Control, pointer: u64) -> bool {
    let end = control.stack_end.load(Relaxed);
    pointer < control.stack_high.load(Relaxed) && end.saturating_sub(pointer) <= MAIN_REACH
}

/// Sets a stack's bounds.
pub(crate) fn set(process: &Process, control: &Control, bounds: Bounds) {
    control.bounds.store(bounds.how, Relaxed);
    control.stack_end.store(bounds.low, Relaxed);
    control.stack_high.store(bounds.high, Relaxed);
    control.capture_floor.store(NOT_LOOKED, Relaxed);
    control.capture_end.store(0, Relaxed);
    refit(process, control);
}

/// Detaches a control block from its stack: hooks of a thread that still finds it take the slow
/// path.
pub(crate) fn forget(control: &Control) {
    control.capture_floor.store(NO_ROOM, Relaxed);
    control.capture_end.store(0, Relaxed);
    control.stack_low.store(u64::MAX, Relaxed);
    control.stack_high.store(0, Relaxed);
    control.stack_end.store(u64::MAX, Relaxed);
}

/// Sets the lower bound that hooks compare: above all stacks that lie within this one.
pub(crate) fn refit(process: &Process, control: &Control) {
    loop {
        let version = process.stacks.version();
        let (end, high) = (control.stack_end.load(Relaxed), control.stack_high.load(Relaxed));
        let low = if process.stacks.is_empty() { end } else { process.stacks.end_within(end, high) };
        let is_out = is_out_at_once(control, low == end);
        control.stack_low.store(if is_out { u64::MAX } else { low }, Relaxed);
        // If a thread registers a stack within this one meanwhile, either it sees this store, or
        // its stack is seen here.
        fence(SeqCst);
        if process.stacks.version() == version {
            return;
        }
    }
}

/// Whether hooks return at once: the thread is excluded, and no other stack lies within its stack
/// (`alone`). Updates [`Control::left_out`].
fn is_out_at_once(control: &Control, alone: bool) -> bool {
    let (from, to) =
        if alone { (left_out::YES, left_out::AT_ONCE) } else { (left_out::AT_ONCE, left_out::YES) };
    let _ = control.left_out.compare_exchange(from, to, Relaxed, Relaxed);
    control.left_out.load(Relaxed) == left_out::AT_ONCE
}

/// Returns the new bounds of a context's stack, if a stack pointer outside its known bounds belongs
/// to it after all. `innermost` is the stack pointer of its innermost call.
pub(crate) fn grown(
    process: &Process,
    control: &Control,
    pointer: u64,
    innermost: Option<u64>,
) -> Option<Bounds> {
    let (end, high) = (control.stack_end.load(Relaxed), control.stack_high.load(Relaxed));
    let how = control.bounds.load(Relaxed);
    if high == 0 {
        return None;
    }
    if pointer >= high {
        let is_near = how == bounds::GUESSED && pointer - high < ABOVE_REACH;
        let goes_on = is_near && !process.stacks.overlaps(high, pointer + 8) && is_contiguous(high, pointer);
        return goes_on.then_some(Bounds { low: end, high: pointer + 8, how });
    }
    if pointer >= end {
        return Some(Bounds { low: end, high, how });
    }
    let (reach, from, margin) = match how {
        bounds::THREAD => (THREAD_REACH, end, MARGIN),
        bounds::MAIN => (MAIN_REACH, end, MARGIN_MAIN),
        bounds::GUESSED => (GUESSED_REACH, innermost.unwrap_or(high), MARGIN_GUESSED),
        _ => return None,
    };
    // A thread may have registered stacks in its own frames. Its own stack then continues below
    // them.
    let is_others = match how {
        bounds::GUESSED => process.stacks.overlaps(pointer, end),
        _ => process.stacks.overlaps_guessed(pointer, end),
    };
    let is_guessed = how == bounds::GUESSED;
    let farthest = if is_guessed { 2 * reach + SIGNAL_FRAME } else { reach };
    let depth = from.saturating_sub(pointer);
    if depth > farthest || is_others || !is_contiguous(pointer, end) {
        return None;
    }
    if is_guessed && depth > reach {
        // The kernel's frame for a signal handler may lie in between: it doesn't count. The stack
        // may have ended and its memory may be unmapped, so check that first.
        if !system::is_readable(pointer, from - pointer) {
            return None;
        }
        let (saved, interrupted) = interrupted::between(pointer, from)?;
        if saved - pointer > reach || from.saturating_sub(interrupted) > reach || interrupted > from + ABOVE {
            return None;
        }
    }
    let low = pointer.saturating_sub(margin).max(process.stacks.end_below(pointer));
    // The first thread's stack grows when it is written.
    let low = if how == bounds::MAIN { low } else { readable_from(low, pointer) };
    Some(Bounds { low, high, how })
}

/// The lowest address, from `low` up to `pointer`, above which all pages are readable.
fn readable_from(low: u64, pointer: u64) -> u64 {
    let mut page = pointer & !(PAGE - 1);
    while page > low {
        let below = page - PAGE;
        if !system::is_readable(below, PAGE) {
            return page;
        }
        page = below;
    }
    low
}

/// Whether all pages between two addresses are readable, as on a stack. It checks upwards: a guard
/// page between two stacks lies near the upper end of the lower one.
fn is_contiguous(low: u64, high: u64) -> bool {
    let first = (low & !(PAGE - 1)).saturating_add(PAGE);
    let last = high & !(PAGE - 1);
    first >= last || system::is_readable(first, last - first)
}

/// The stack pointer of the innermost call.
pub(crate) fn innermost(control: &Control) -> Option<u64> {
    let entry = size_of::<OpenCall>() as u64;
    let top = control.open_top.load(Relaxed);
    let pointer = top - entry + core::mem::offset_of!(OpenCall, stack_pointer) as u64;
    // SAFETY: an entry of the control block's open-call stack, which is the caller's.
    (top > control.open_base.load(Relaxed) + entry)
        .then(|| unsafe { &*(pointer as *const AtomicU64) }.load(Relaxed))
}

/// Whether the program may begin a new stack in the memory of a context's stack, at this stack
/// pointer, without registering it.
pub(crate) fn is_untold(process: &Process, control: &Control, pointer: u64) -> bool {
    control.fiber.load(Relaxed) != 0
        && process.stacks.find(pointer).is_some_and(|range| {
            range.slot == control.slot.load(Relaxed) + 1 && range.flags & flags::TOLD == 0
        })
}
