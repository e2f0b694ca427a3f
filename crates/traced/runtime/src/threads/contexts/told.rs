//! Stacks that the program registers, and jumps between stacks that it announces.

use crate::state::local::{last, live, local, thread_id};
use crate::state::process::Process;
use crate::state::ranges::{Range, flags};
use crate::sys::system;
use crate::threads::contexts::growth::{is_grown, of_threads};
use crate::threads::contexts::over::{known, retire, retire_idle, there, trim};
use crate::threads::nested;
use crate::threads::open_calls::OpenCalls;
use crate::threads::stacks::{self, Bounds, bounds};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::event::unwound;
use everycall_hooks::arch::frame::ABOVE_HOOKS;
use everycall_ring::{Control, left_out, running};

/// Whether a jump stays on the context's stack, or goes to the thread's alternate signal stack. The
/// jump's target is a point where a hook would have this stack pointer. A jump to another stack
/// unwinds no frame of this stack, but the frames below the target on the other one. That stack's
/// next event records it.
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
    // Stacks that another thread runs are excluded, and stacks in whose memory an unregistered
    // stack may have begun.
    let is_suspended = |target: &&Control| target.runner.load(Acquire) < running(0);
    if let Some(target) =
        target.filter(is_suspended).filter(|target| !stacks::is_untold(process, target, pointer))
    {
        target.jumped_to.store(pointer, Relaxed);
    }
    false
}

/// Registers a stack, on which something new begins. If the calling thread already runs on it, only
/// its bounds become known. Returns false if the table of stacks is full.
pub(crate) fn register(process: &'static Process, low: u64, high: u64, name: [u8; 16], pointer: u64) -> bool {
    let Some(tid) = thread_id(process) else { return true };
    let end = high;
    // No hook on that stack has a stack pointer in its highest bytes. But hooks of a function in
    // whose frame the stack ends may.
    let high = end.saturating_sub(ABOVE_HOOKS).max(low + 1);
    let runs = (low..end).contains(&pointer);
    let there = known(process, pointer, live(local().home));
    // A stack whose bounds were guessed, or registered differently; but not a stack that contains
    // this one.
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
            // The thread that ran this stack may have made no call on another one since. So hooks
            // may still find this control block, and the first call has to take the slow path.
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

/// Whether this memory lies within a larger stack on which calls are open. Then it is taken to lie
/// in one of that stack's frames.
pub(crate) fn is_outer(process: &'static Process, range: &Range, low: u64, high: u64) -> bool {
    let has_calls = |slot: u32| stacks::innermost(process.control(slot)).is_some();
    range.low <= low
        && high <= range.high
        && range.slot.checked_sub(1).is_some_and(has_calls)
        && !nested::is_over(process, range, live(local().home))
}

/// The context whose stack contains the memory of the stack that the calling thread registers: a
/// fiber's, the calling thread's own (above its stack pointer), or another thread's.
pub(crate) fn outer(
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

/// On stacks that contain this one, raises the lower bound that hooks compare to this stack's upper
/// end.
pub(crate) fn raise(process: &'static Process, low: u64, high: u64) {
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

/// Unregisters a stack. Returns false if the stack isn't known, or if the calling thread runs on
/// it. (A nested stack whose function has returned isn't run any more, even if the stack pointer
/// lies in its memory.)
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
pub(crate) fn set_name(process: &'static Process, slot: u32, name: [u8; 16]) {
    if name[0] != 0 {
        process.arena().slot(slot).set_name(name);
    }
}

/// Whether inlined calls share, or have shared, the frame in which a hook would have this stack
/// pointer. The frame is on the calling thread's stack. The thread's signals need not be blocked.
pub(crate) fn shares_frame(hook: u64) -> bool {
    let on_stack = last().filter(|control| stacks::is_within(control, hook));
    on_stack.is_none_or(|control| OpenCalls::new(control).is_shared(hook))
}
