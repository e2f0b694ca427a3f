//! A thread's first event gives it a slot: one atomic addition, no lock.
//!
//! Slots of ended threads stay as they are, so that their events can be read, until there are no free
//! ones left. Then the slot of a thread that has ended is given to the new one and what it held is
//! counted as lost. Nobody tells us of a thread's end: the kernel is asked.

use crate::arena::Slot;
use crate::process::{self, Process};
use crate::system;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use everycall_format::arena::{OpenCall, counter, thread_state};
use everycall_ring::{Control, Ring, state};

/// A slot that is changing hands. Readers take it as free.
const CLAIMED: u32 = 2;
/// Slots that are looked at for one new thread.
const RECYCLE_TRIES: u32 = 64;

/// Bytes above the top of an open-call stack that are cleared with it.
const LEFT_ABOVE: u64 = 8 * size_of::<OpenCall>() as u64;

/// Control block of threads that run untraced for want of a slot.
static OFF: Control = Control::off();

/// Gives the calling thread a slot and a control block. `None` where it runs untraced.
pub(crate) fn begin(process: &'static Process) -> Option<&'static Control> {
    let arena = process.arena();
    let Some((index, recycled)) = take_slot(process) else {
        arena.count(counter::THREADS_UNTRACED, 1);
        leave_out();
        return None;
    };
    let slot = arena.slot(index);
    let control = process.control(index);
    let ticks = everycall_hooks::ticks();

    clear_open_calls(&slot, control);
    slot.tid().store(system::thread_id(), Relaxed);
    slot.start_ticks().store(ticks, Relaxed);
    slot.set_name(system::thread_name());
    for counted in [slot.unwound(), slot.orphan_exits(), slot.lost_busy(), slot.deep()] {
        counted.store(0, Relaxed);
    }

    let (base, limit) = slot.open_calls();
    control.slot.store(index, Relaxed);
    control.deep.store(0, Relaxed);
    control.held_position.store(0, Relaxed);
    control.busy.store(0, Relaxed);
    control.open_base.store(base, Relaxed);
    control.open_limit.store(limit, Relaxed);
    control.open_top.store(base + size_of::<OpenCall>() as u64, Relaxed);
    control.slow_stack.store(process.slow_stack(index, arena.layout().thread_capacity), Relaxed);
    ring(control, &slot).start(slot.ring().as_ptr() as u64, ticks, 0, !recycled);
    control.state.store(state::ACTIVE, Relaxed);
    slot.state().store(thread_state::USED, core::sync::atomic::Ordering::Release);
    set_control(control);
    Some(control)
}

/// Makes the calling thread's hooks return at once.
pub(crate) fn leave_out() {
    set_control(&OFF);
}

/// Sets what the thread's hooks find in the thread-local slot.
fn set_control(control: &'static Control) {
    // SAFETY: the slot is this thread's own.
    unsafe { process::thread_slot().write(control) };
}

/// The ring of a thread.
pub(crate) fn ring<'a>(control: &'a Control, slot: &Slot) -> Ring<'a> {
    Ring::new(slot.ring(), slot.segment_words(), control, slot.segment())
}

/// A free slot and whether another thread had it before.
fn take_slot(process: &'static Process) -> Option<(u32, bool)> {
    let arena = process.arena();
    let capacity = arena.layout().thread_capacity;
    let fresh =
        arena.thread_count().fetch_update(Relaxed, Relaxed, |count| (count < capacity).then_some(count + 1));
    if let Ok(index) = fresh {
        return Some((index, false));
    }
    let pid = process.pid.load(Relaxed);
    for _ in 0..RECYCLE_TRIES.min(capacity) {
        let index = process.recycle_hint.fetch_add(1, Relaxed).checked_rem(capacity)?;
        let slot = arena.slot(index);
        let used = slot.state().load(Acquire) == thread_state::USED;
        if used
            && system::thread_is_gone(pid, slot.tid().load(Relaxed))
            && slot.state().compare_exchange(thread_state::USED, CLAIMED, Acquire, Relaxed).is_ok()
        {
            arena.count(counter::THREADS_RECYCLED, 1);
            arena.count(counter::SEGMENTS_RECYCLED, slot.segment().load(Relaxed) + 1);
            slot.generation().fetch_add(1, Relaxed);
            return Some((index, true));
        }
    }
    None
}

/// Empties the open-call stack that the slot's last thread left, and sets the sentinel.
fn clear_open_calls(slot: &Slot, control: &Control) {
    let (base, limit) = slot.open_calls();
    // And a little further: a hook that was left at the wrong moment may have left a word above the top.
    let used = (control.open_top.load(Relaxed) + LEFT_ABOVE).min(limit).saturating_sub(base);
    // SAFETY: the open-call stack lies in the arena, aligned; the slot is ours.
    let words =
        unsafe { core::slice::from_raw_parts(base as *const AtomicU64, used as usize / size_of::<u64>()) };
    for word in words {
        word.store(0, Relaxed);
    }
    let sentinel = base + core::mem::offset_of!(OpenCall, stack_pointer) as u64;
    // SAFETY: as above; the stack has at least two entries.
    unsafe { &*(sentinel as *const AtomicU64) }.store(u64::MAX, Relaxed);
}
