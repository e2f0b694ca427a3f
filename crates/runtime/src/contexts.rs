//! Which stack a thread runs, and whose events its hooks write: those of its own stack, or of a fiber's.
//!
//! A *context* is a stack with a slot, a ring and an open-call stack: a thread's own, or a fiber's, which any thread may
//! run. Hooks compare the stack pointer with the bounds of the context that the thread ran last; where it is another one's, the slow path
//! comes here. It finds the context by the stack pointer and puts its control block into the thread-local slot. Calls that are open on
//! the stack that was left stay open.
//!
//! Nobody has to tell of a switch, be it made by `swapcontext`, `longjmp`, assembly or a signal handler.

use crate::open_calls::{HOOK_BELOW, OpenCalls};
use crate::process::{self, Process};
use crate::ranges::{Range, TAKEN_AT_ONCE, flags};
use crate::slow::Thread;
use crate::stacks::{self, Bounds, bounds};
use crate::{api, interrupted, nested, system, threads};
use core::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst, fence,
};
use everycall_format::arena::{counter, thread_state};
use everycall_format::event::unwound;
use everycall_hooks::THREAD_SLOT_SIZE;
use everycall_ring::{Control, left_out, running, state};

/// What the runtime keeps for each thread in its thread-local slot. Hooks read the first word.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Local {
    /// The context that the thread ran last; null where it has none that records.
    pub(crate) current: *const Control,
    /// That of its own stack; null before its first event there.
    home: *const Control,
    /// Its id, and above it its process's.
    id: u64,
    /// Not 0 while the runtime works for the thread: 1, and the events of signal handlers that came in between.
    at_work: u64,
}

const _: () = assert!(size_of::<Local>() == THREAD_SLOT_SIZE);

#[cfg(test)]
impl Local {
    pub(crate) const NONE: Local =
        Local { current: core::ptr::null(), home: core::ptr::null(), id: 0, at_work: 0 };
}

/// Between two looks for fibers that nobody needs any more there is so many times what the first one took.
const IDLE_PAUSE: u64 = 4;
/// [`Control::resumed`] where nobody saw the stack being left.
pub(crate) const UNSEEN: u64 = 1;

fn local() -> Local {
    // SAFETY: the thread-local slot is this thread's own.
    unsafe { process::thread_slot().cast::<Local>().read() }
}

/// What hooks find from now on.
fn set_current(control: *const Control) {
    // SAFETY: as above.
    unsafe { process::thread_slot().write(control) };
}

fn set_home(control: *const Control) {
    // SAFETY: as above.
    unsafe { (*process::thread_slot().cast::<Local>()).home = control };
}

fn at_work() -> &'static AtomicU64 {
    // SAFETY: as above; it stays as long as the thread.
    unsafe { AtomicU64::from_ptr(&raw mut (*process::thread_slot().cast::<Local>()).at_work) }
}

/// The runtime works for the calling thread as long as this is there.
pub(crate) struct AtWork(());

impl AtWork {
    /// `None` where it does already: then this is a signal handler that came in between.
    pub(crate) fn begin() -> Option<AtWork> {
        at_work().compare_exchange(0, 1, Relaxed, Relaxed).ok().map(|_| AtWork(()))
    }

    /// An event comes in such a handler, and is lost. It is counted at once, as the handler may never return, or behind the work, which may be the
    /// thread's begin.
    pub(crate) fn lose_event() {
        if !count_lost(1) {
            at_work().fetch_add(1, Relaxed);
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let lost = at_work().swap(0, Relaxed).saturating_sub(1);
        if lost > 0 {
            count_lost(lost);
        }
    }
}

/// Counts events of the calling thread that are lost, if it records.
fn count_lost(events: u64) -> bool {
    let Some(process) = api::traced() else { return false };
    let Some(control) = last().filter(|control| control.state.load(Relaxed) == state::ACTIVE) else {
        return false;
    };
    Thread::new(process, control).slot.lost_busy().fetch_add(events, Relaxed);
    true
}

/// A control block that the thread-local slot has: none, where it was wiped by a fork.
fn live(control: *const Control) -> Option<&'static Control> {
    // SAFETY: null, or a control block, which stays.
    unsafe { control.as_ref() }.filter(|control| control.state.load(Relaxed) != state::BLANK)
}

/// The context that the thread ran last, whichever stack it runs now.
pub(crate) fn last() -> Option<&'static Control> {
    live(local().current)
}

/// Whether a frame in which a hook would have this stack pointer is shared by inlined calls, or was. The calling thread runs there; its signals needn't be blocked.
pub(crate) fn shares_frame(hook: u64) -> bool {
    let on_stack = last().filter(|control| stacks::is_within(control, hook));
    on_stack.is_none_or(|control| OpenCalls::new(control).is_shared(hook))
}

/// Whether the thread's slot has control blocks, wiped or not.
pub(crate) fn has_any(process: &'static Process, capacity: u32) -> bool {
    let local = local();
    process.owns(local.current, capacity) || process.owns(local.home, capacity)
}

/// The calling thread's id. `None` where a filter of system calls doesn't tell.
fn thread_id(process: &Process) -> Option<u32> {
    let pid = u64::from(process.pid.load(Relaxed)) << 32;
    let known = local().id;
    if known & !u64::from(u32::MAX) == pid && known as u32 != 0 {
        return Some(known as u32);
    }
    let tid = system::thread_id()?;
    // SAFETY: the thread-local slot is this thread's own.
    unsafe { (*process::thread_slot().cast::<Local>()).id = pid | u64::from(tid) };
    Some(tid)
}

/// A context, and whether it begins with this.
pub(crate) struct Found {
    pub(crate) control: &'static Control,
    pub(crate) is_new: bool,
}

/// The context that the calling thread, whose signals are blocked, runs at this stack pointer. It begins if it hasn't yet. `None`
/// where the stack isn't recorded.
pub(crate) fn current(process: &'static Process, pointer: u64) -> Option<Found> {
    let known = |control| Some(Found { control, is_new: false });
    match last() {
        Some(control) if stacks::is_seen(control, pointer) => known(control),
        last => find(process, pointer, last),
    }
}

fn find(process: &'static Process, pointer: u64, last: Option<&'static Control>) -> Option<Found> {
    let Some(tid) = thread_id(process) else {
        process.arena().count(counter::THREADS_UNTRACED, 1);
        threads::leave_out();
        return None;
    };
    let home = live(local().home);
    if home.is_none() {
        // Its parent's, after a fork.
        set_home(core::ptr::null());
    }
    // One that another thread runs by now, or that is another stack's, isn't this thread's to go on in.
    let own = last.filter(|last| last.runner.load(Acquire) == running(tid));
    let entered = |control| Some(Found { control: enter(process, last, control, tid), is_new: false });
    if let Some(range) = known(process, pointer, home)
        && !is_threads(&range, home)
    {
        return on_fiber(process, last, &range, tid);
    }
    if let Some(home) = home.filter(|home| stacks::is_within(home, pointer)) {
        refit(process, home);
        return entered(home);
    }
    // One that has no bounds began in a handler on its alternate stack.
    let has_bounds = home.is_some_and(|home| home.stack_high.load(Relaxed) != 0);
    let of_thread = if has_bounds { None } else { stacks::of_thread(process, pointer, tid) };
    if let Some(bounds) = of_thread.filter(|_| home.is_none()) {
        return begin_home(process, bounds, tid);
    }
    if let Some((first, end)) = system::alternate_stack()
        && (first..end).contains(&pointer)
    {
        // A handler's calls nest within what it interrupted.
        let interrupted = interrupted::stack_pointer(pointer, first, end);
        // Nothing is there where a stack has overflowed: by how much, nobody knows.
        if let Some(interrupted) = interrupted.filter(|interrupted| system::is_readable(*interrupted, 8)) {
            // Where a hook would have been.
            return find(process, interrupted.saturating_sub(HOOK_BELOW), last);
        }
        return match own.or(home) {
            Some(control) => entered(control),
            None => begin_home(process, Bounds { low: u64::MAX, high: 0, how: bounds::THREAD }, tid),
        };
    }
    for control in [own, home].into_iter().flatten() {
        if is_grown(process, control, pointer) {
            return entered(control);
        }
    }
    if let (Some(home), Some(bounds)) = (home, of_thread) {
        stacks::set(process, home, bounds);
        return entered(home);
    }
    if let Some(other) = other_threads(process, pointer).or_else(|| suspended_above(process, pointer)) {
        return entered(other);
    }
    let guess = stacks::guess(process, pointer);
    let guessed = if guess.how == bounds::GUESSED { flags::GUESSED } else { 0 };
    let range = Range { low: guess.low, high: guess.high, flags: guessed, tid, ..Range::default() };
    let take_in = || process.stacks.lock().insert(&range);
    if !(take_in() || retire_idle(process) && take_in()) {
        process.arena().count(counter::FIBER_EVENTS, 1);
        set_current(core::ptr::null());
        return None;
    }
    on_fiber(process, last, &range, tid)
}

/// The stack of the table that is at a stack pointer, when those have been forgotten whose function has returned.
fn known(process: &'static Process, pointer: u64, home: Option<&Control>) -> Option<Range> {
    loop {
        let range = process.stacks.find(pointer)?;
        if !forget_if_over(process, &range, home) {
            return Some(range);
        }
    }
}

/// The smallest stack of the table at a stack pointer that isn't over: where one within it was, the memory is its own again.
fn there(process: &'static Process, pointer: u64) -> Option<Range> {
    let home = live(local().home);
    let around = |range: &Range| process.stacks.find_around(range.low, range.high);
    core::iter::successors(process.stacks.find(pointer), around)
        .find(|range| !nested::is_over(process, range, home))
}

/// Forgets a stack in a local variable whose function has returned, and all that lie within it. Whether it was one.
fn forget_if_over(process: &'static Process, range: &Range, home: Option<&Control>) -> bool {
    let is_over = nested::is_over(process, range, home);
    if is_over {
        let (low, high) = (range.low, range.high);
        retire(process, low, high, unwound::NOTICED, |other| other.is_within(low, high));
    }
    is_over
}

/// Whether a known range is memory in which the thread's own stack has begun since.
fn is_threads(range: &Range, home: Option<&Control>) -> bool {
    home.is_none() && range.contains(everycall_hooks::thread_pointer())
}

/// The thread's own stack gets a context. What was known of stacks in this memory is over, unless the thread itself told of it.
pub(crate) fn begin_home(process: &'static Process, bounds: Bounds, tid: u32) -> Option<Found> {
    if !process.stacks.is_empty() && bounds.high != 0 {
        retire(process, bounds.low, bounds.high, unwound::NOTICED, |range| range.tid != tid);
    }
    let control = threads::begin(process, bounds, tid, None)?;
    set_home(control);
    if let Some(last) = last() {
        leave(last, tid);
    }
    control.runner.store(running(tid), Relaxed);
    set_current(control);
    Some(Found { control, is_new: true })
}

/// The thread runs a stack of the table.
fn on_fiber(
    process: &'static Process,
    last: Option<&'static Control>,
    range: &Range,
    tid: u32,
) -> Option<Found> {
    if let Some(slot) = range.slot.checked_sub(1) {
        let control = enter(process, last, process.control(slot), tid);
        if range.flags & flags::BEGUN_ANEW != 0 {
            process.stacks.lock().update(range, |range| range.flags &= !flags::BEGUN_ANEW);
            control.resumed.store(0, Relaxed);
            Thread::new(process, control).leave_all(unwound::NOTICED);
        }
        refit(process, control);
        return Some(Found { control, is_new: false });
    }
    let how = if range.flags & flags::GUESSED != 0 { bounds::GUESSED } else { bounds::TOLD };
    let bounds = Bounds { low: range.low, high: range.high, how };
    let begun = (range.flags & flags::REFUSED == 0)
        .then(|| threads::begin(process, bounds, tid, Some(range.name)))
        .flatten();
    let Some(control) = begun else {
        process.stacks.lock().update(range, |range| range.flags |= flags::REFUSED);
        process.arena().count(counter::FIBER_EVENTS, 1);
        if let Some(last) = last {
            leave(last, tid);
        }
        set_current(core::ptr::null());
        return None;
    };
    let slot = control.slot.load(Relaxed) + 1;
    process.stacks.lock().update(range, |range| {
        range.slot = slot;
        range.flags &= !flags::BEGUN_ANEW;
    });
    enter(process, last, control, tid);
    Some(Found { control, is_new: true })
}

/// What hooks take for the stack, when those within it have been forgotten whose function has returned.
fn refit(process: &'static Process, control: &'static Control) {
    let home = live(local().home);
    loop {
        let (end, high) = (control.stack_end.load(Relaxed), control.stack_high.load(Relaxed));
        let highest = if process.stacks.is_empty() { None } else { process.stacks.highest_within(end, high) };
        if !highest.is_some_and(|range| forget_if_over(process, &range, home)) {
            break;
        }
    }
    stacks::refit(process, control);
}

/// The thread goes on in another context than the one that it ran last.
fn enter(
    process: &'static Process,
    last: Option<&'static Control>,
    control: &'static Control,
    tid: u32,
) -> &'static Control {
    if last.is_some_and(|last| core::ptr::eq(last, control)) {
        return control;
    }
    if let Some(last) = last {
        leave(last, tid);
    }
    let before = control.runner.swap(running(tid), AcqRel);
    if before >= running(0) {
        if before != running(tid) {
            control.resumed.store(UNSEEN, Relaxed);
        }
    } else {
        control.resumed.store(before, Relaxed);
    }
    if control.fiber.load(Relaxed) != 0 {
        // A thread's own stays the thread's, whose end is asked after.
        process.arena().slot(control.slot.load(Relaxed)).tid().store(tid, Relaxed);
    }
    set_current(control);
    Thread::new(process, control).leave_below_jump();
    control
}

/// The thread has left a context, unless another one runs it by now.
fn leave(last: &Control, tid: u32) {
    let now = everycall_hooks::ticks();
    let _ = last.runner.compare_exchange(running(tid), now, AcqRel, Relaxed);
}

/// Whether a stack turns out to go on at a stack pointer.
fn is_grown(process: &'static Process, control: &'static Control, pointer: u64) -> bool {
    let Some(bounds) = stacks::grown(process, control, pointer, stacks::innermost(control)) else {
        return false;
    };
    if control.fiber.load(Relaxed) != 0 {
        let table = process.stacks.lock();
        let slot = control.slot.load(Relaxed) + 1;
        let Some(range) = table.overlapping(bounds.low, bounds.high, |range| range.slot == slot) else {
            return false;
        };
        table.remove(&range);
        table.insert(&Range { low: bounds.low, high: bounds.high, ..range });
    }
    stacks::set(process, control, bounds);
    true
}

/// The own stack of another thread, which this one has gone on in.
fn other_threads(process: &'static Process, pointer: u64) -> Option<&'static Control> {
    let is_near = |control: &Control| stacks::is_near(control, pointer);
    let is_it = |control| stacks::is_within(control, pointer) || is_grown(process, control, pointer);
    of_threads(process, is_near).find(|&control| is_it(control))
}

/// The contexts of living threads' own stacks, of those for which `is_meant`: whether a thread lives is asked of the system.
fn of_threads(
    process: &'static Process,
    is_meant: impl Fn(&Control) -> bool,
) -> impl Iterator<Item = &'static Control> {
    let arena = process.arena();
    process.controls().filter(move |control| {
        let slot = arena.slot(control.slot.load(Relaxed));
        slot.state().load(Relaxed) == thread_state::USED
            && control.fiber.load(Relaxed) == 0
            && is_meant(control)
            && !system::thread_is_gone(process.pid.load(Relaxed), slot.tid().load(Relaxed))
    })
}

/// A stack that nobody has told of, which has been left and is gone on with below its known end.
fn suspended_above(process: &'static Process, pointer: u64) -> Option<&'static Control> {
    let range = process.stacks.next_above(pointer).filter(|range| range.flags & flags::GUESSED != 0)?;
    let control = process.control(range.slot.checked_sub(1)?);
    let is_suspended = control.runner.load(Acquire) < running(0) && stacks::innermost(control).is_some();
    (is_suspended && is_grown(process, control, pointer)).then_some(control)
}

/// Whether a jump that goes on where a hook would have this stack pointer stays on the context's stack, or goes to the thread's alternate signal
/// stack. Where it goes to another stack, nothing of this one is left; what is below on that one has been, which its next event tells.
pub(crate) fn stays_in_jump(process: &'static Process, control: &Control, pointer: u64) -> bool {
    let there = there(process, pointer);
    let is_own = match &there {
        Some(range) => range.slot == control.slot.load(Relaxed) + 1 && control.fiber.load(Relaxed) != 0,
        None => stacks::is_within(control, pointer),
    };
    if is_own || system::alternate_stack().is_some_and(|(first, end)| (first..end).contains(&pointer)) {
        return true;
    }
    let target = match there {
        Some(range) => range.slot.checked_sub(1).map(|slot| process.control(slot)),
        None => live(local().home).filter(|home| stacks::is_within(home, pointer)),
    };
    // Not one that another thread runs; nor one whose memory may be another's by now, of which nobody told.
    let is_suspended = |target: &&Control| target.runner.load(Acquire) < running(0);
    if let Some(target) = target.filter(is_suspended).filter(|target| !is_untold(process, target, pointer)) {
        target.jumped_to.store(pointer, Relaxed);
    }
    false
}

/// Whether nobody tells where something new begins on a context's stack, which has this stack pointer.
pub(crate) fn is_untold(process: &Process, control: &Control, pointer: u64) -> bool {
    control.fiber.load(Relaxed) != 0
        && process.stacks.find(pointer).is_some_and(|range| {
            range.slot == control.slot.load(Relaxed) + 1 && range.flags & flags::TOLD == 0
        })
}

/// The stacks in this memory, as far as they are meant, are no stacks any more. `how` that is known, one of [`unwound`].
fn retire(process: &'static Process, low: u64, high: u64, how: u8, is_meant: impl Fn(&Range) -> bool) {
    let next = || {
        let table = process.stacks.lock();
        let range = table.overlapping(low, high, &is_meant)?;
        table.remove(&range);
        Some(range)
    };
    while let Some(range) = next() {
        end(process, &range, how);
    }
}

/// A range that was taken out of the table: what it had open has been left. `how` that is known, one of [`unwound`].
fn end(process: &'static Process, range: &Range, how: u8) {
    if let Some(slot) = range.slot.checked_sub(1) {
        let control = process.control(slot);
        stacks::forget(control);
        Thread::new(process, control).leave_all(how);
        process.graveyard.end(process, slot);
    }
}

/// Ends fibers whose memory is gone; where there are none, those that have nothing open and aren't running: should one of them run
/// again, it begins anew. Whether there were any. All of them are looked at, so not too often: it takes a small part of the time.
pub(crate) fn retire_idle(process: &'static Process) -> bool {
    let begin = everycall_hooks::ticks();
    if process.idle_look_due.load(Relaxed) > begin {
        return false;
    }
    let is_idle = |range: &Range| {
        let Some(slot) = range.slot.checked_sub(1) else { return false };
        let control = process.control(slot);
        control.runner.load(Relaxed) < running(0)
            && stacks::innermost(control).is_none()
            && control.deep.load(Relaxed) == 0
    };
    let were_some =
        retire_all(process, |range| !system::is_readable(range.high - 8, 8)) || retire_all(process, is_idle);
    let now = everycall_hooks::ticks();
    let pause = now.saturating_sub(begin).saturating_mul(IDLE_PAUSE);
    process.idle_look_due.store(now.saturating_add(pause), Relaxed);
    were_some
}

/// The same as [`retire`] of all stacks. Whether there were any.
fn retire_all(process: &'static Process, is_meant: impl Fn(&Range) -> bool) -> bool {
    let (mut from, mut were_some) = (Some(0), false);
    while let Some(begin) = from {
        let mut taken = [Range::default(); TAKEN_AT_ONCE];
        let count;
        (count, from) = process.stacks.lock().take_some(begin, &mut taken, &is_meant);
        for range in taken.iter().take(count) {
            end(process, range, unwound::NOTICED);
        }
        were_some |= count > 0;
    }
    were_some
}

/// Guesses that went too far: a stack that is used below or above this one keeps its part.
fn trim(process: &'static Process, low: u64, high: u64) {
    let kept = |range: &Range| {
        let control = process.control(range.slot.checked_sub(1)?);
        let innermost = stacks::innermost(control);
        let is_below = range.low < low && range.high - low <= stacks::ABOVE;
        let is_above = range.high > high && innermost.is_none_or(|innermost| innermost >= high);
        let (from, to) = (if is_above { high } else { range.low }, if is_below { low } else { range.high });
        (is_below != is_above).then_some((control, from, to))
    };
    let is_meant = |range: &Range| range.flags & flags::GUESSED != 0 && kept(range).is_some();
    loop {
        let table = process.stacks.lock();
        let Some(range) = table.overlapping(low, high, is_meant) else { return };
        let Some((control, from, to)) = kept(&range) else { return };
        table.remove(&range);
        table.insert(&Range { low: from, high: to, ..range });
        drop(table);
        stacks::set(process, control, Bounds { low: from, high: to, how: bounds::GUESSED });
    }
}

/// The program tells of a stack, on which something new begins, unless it runs it: then that is what it has told of.
/// False where no more stacks can be known.
pub(crate) fn register(process: &'static Process, low: u64, high: u64, name: [u8; 16], pointer: u64) -> bool {
    let Some(tid) = thread_id(process) else { return true };
    let end = high;
    // No hook has a stack pointer above, on that stack. But those of a function have, whose frame the stack ends in.
    let high = end.saturating_sub(HOOK_BELOW).max(low + 1);
    let runs = (low..end).contains(&pointer);
    let there = known(process, pointer, live(local().home));
    // A fiber whose bounds were a guess, or that was told of otherwise; not one that this stack lies in.
    let is_known = |range: &Range| range.flags & flags::GUESSED != 0 || range.is_within(low, high);
    let known = there.filter(|range| runs && is_known(range));
    let is_stale = |range: &Range| {
        let is_same = (range.low, range.high) == (low, high);
        !is_same && !range.contains(pointer) && !is_outer(process, range, low, high)
    };
    trim(process, low, end);
    retire(process, low, end, unwound::NOTICED, is_stale);
    let outer = if runs { None } else { outer(process, (low, high), pointer, there, tid) };
    let around = outer.map(|outer| nested::around(process, outer, low, end)).unwrap_or_default();
    let table = process.stacks.lock();
    if let Some(known) = known {
        table.remove(&known);
        if let Some(slot) = known.slot.checked_sub(1) {
            stacks::set(process, process.control(slot), Bounds { low, high, how: bounds::TOLD });
            set_name(process, slot, name);
        }
        let name = if name[0] == 0 { known.name } else { name };
        let flags = known.flags & !flags::GUESSED | flags::TOLD;
        let fits = table.insert(&Range { low, high, name, flags, ..known });
        drop(table);
        raise(process, low, high);
        return fits;
    }
    let range = Range { low, high, name, tid, slot: 0, flags: flags::TOLD, around };
    let is_there = table.update(&range, |there| {
        there.around = around;
        there.flags = there.flags & !flags::REFUSED | flags::BEGUN_ANEW | flags::TOLD;
        if name[0] != 0 {
            there.name = name;
        }
        if let Some(slot) = there.slot.checked_sub(1) {
            set_name(process, slot, name);
            // The thread may have made no call since it left this stack: the first one on it comes to the slow path.
            process.control(slot).stack_low.store(u64::MAX, Relaxed);
        }
    });
    let mut fits = is_there || table.insert(&range);
    drop(table);
    if !fits && retire_idle(process) {
        fits = process.stacks.lock().insert(&range);
    }
    raise(process, low, high);
    fits
}

/// Whether other memory lies within this stack, on which calls are open: in a frame, as far as anybody can tell.
fn is_outer(process: &'static Process, range: &Range, low: u64, high: u64) -> bool {
    let has_calls = |slot: u32| stacks::innermost(process.control(slot)).is_some();
    range.low <= low
        && high <= range.high
        && range.slot.checked_sub(1).is_some_and(has_calls)
        && !nested::is_over(process, range, live(local().home))
}

/// The context in whose stack another one lies that the calling thread tells of: its own, above its stack pointer, a fiber's or another thread's.
fn outer(
    process: &'static Process,
    (low, high): (u64, u64),
    pointer: u64,
    there: Option<Range>,
    tid: u32,
) -> Option<&'static Control> {
    if let Some(slot) = process.stacks.find_around(low, high).and_then(|range| range.slot.checked_sub(1)) {
        return Some(process.control(slot));
    }
    let own = match there {
        Some(range) => range.slot.checked_sub(1).map(|slot| process.control(slot)),
        None => {
            let last = last().filter(|last| last.runner.load(Acquire) == running(tid));
            let candidates = || [last, live(local().home)].into_iter().flatten();
            candidates()
                .find(|control| stacks::is_within(control, pointer))
                .or_else(|| candidates().find(|control| is_grown(process, control, pointer)))
        }
    };
    if let Some(own) = own.filter(|own| pointer < low && high <= own.stack_high.load(Relaxed)) {
        return Some(own);
    }
    let is_around = |control: &Control| {
        !own.is_some_and(|own| core::ptr::eq(own, control)) && stacks::is_around(process, control, high)
    };
    of_threads(process, is_around).next()
}

/// Whether the calling thread is known to run its own stack.
pub(crate) fn runs_own_stack(pointer: u64) -> bool {
    live(local().home).is_some_and(|home| stacks::is_seen(home, pointer))
}

/// Stacks that this one lies in are seen by hooks above it only.
fn raise(process: &'static Process, low: u64, high: u64) {
    // See `stacks::refit`.
    fence(SeqCst);
    for control in process.controls() {
        if stacks::is_within(control, low)
            && (control.stack_end.load(Relaxed), control.stack_high.load(Relaxed)) != (low, high)
        {
            let _ = control.left_out.compare_exchange(left_out::AT_ONCE, left_out::YES, Relaxed, Relaxed);
        }
        let is_around = control.stack_low.load(Relaxed) < high
            && low < control.stack_high.load(Relaxed)
            && (control.stack_end.load(Relaxed), control.stack_high.load(Relaxed)) != (low, high);
        if is_around {
            control.stack_low.fetch_max(high, Relaxed);
        }
    }
}

/// The program says that a stack's memory is no stack any more. False where it isn't known, or where the program runs it. (A function that has
/// returned runs it no more, though its caller's stack pointer may be there.)
pub(crate) fn unregister(process: &'static Process, low: u64, high: u64, pointer: u64) -> bool {
    let is_it = |range: &Range| range.is_within(low, high);
    if (low..high).contains(&pointer) {
        let is_there = process.stacks.find(pointer).as_ref().is_some_and(is_it);
        if !is_there || known(process, pointer, live(local().home)).as_ref().is_some_and(is_it) {
            return false;
        }
        retire(process, low, high, unwound::KNOWN, is_it);
        return true;
    }
    let is_known = process.stacks.lock().overlapping(low, high, is_it).is_some();
    retire(process, low, high, unwound::KNOWN, is_it);
    is_known
}

/// Names a context.
fn set_name(process: &'static Process, slot: u32, name: [u8; 16]) {
    if name[0] != 0 {
        process.arena().slot(slot).set_name(name);
    }
}
