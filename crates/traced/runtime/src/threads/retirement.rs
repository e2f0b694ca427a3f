//! Retires threads that have ended. Their events are kept for a time, or until they take too much
//! memory; then other threads get their slots and segments.
//!
//! A slot is a thread's header. The open-call stack is separate from it, because an ended thread
//! rarely needs its stack any more.
//!
//! The runtime isn't notified when a thread ends. Instead, each thread that begins asks the kernel
//! about two others: the one that began before it, and one of all the others, in turn.
#![allow(unsafe_code)] // Open-call stacks, by their addresses.

use crate::state::arena::{Arena, Slot};
use crate::state::process::Process;
use crate::state::retired::Retired;
use crate::state::trigger_table;
use crate::sys::lock::Lock;
use crate::sys::system;
use crate::threads::tails;
use crate::threads::thread::Thread;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::Wire;
use everycall_format::arena::{OpenCall, PAGE, counter, stream, thread_state};
use everycall_format::trigger::CALLS;
use everycall_ring::FreeList;

/// Bytes that ended threads may take beyond their limit while posted calls wait.
const AWAITED_BYTES_MAX: u64 = 64 << 20;

/// Number of threads that a new thread checks.
const LOOKS: u32 = 2;
/// Number of threads that it checks if there is no free slot.
const LOOKS_IN_NEED: u32 = 64;
/// Limit on the slots that it frees.
const FREED: u32 = 2;
/// If ended threads are kept for a time: limit on the threads checked, and on the slots freed, in
/// each periodic pass.
const LOOKS_IN_TIME: u32 = 256;
/// Interval between these passes in ticks: about 100 ms.
const PASS_TICKS: u64 = 1 << 28;

impl Retired {
    /// Takes a slot and an open-call stack for a new thread. Used ones come first, because their
    /// memory is warm. `None` if there are none.
    pub(crate) fn take_place(&self, process: &'static Process) -> Option<(u32, u32)> {
        let arena = process.arena();
        if let Some(_lock) = Lock::try_take(&self.lock) {
            self.make_room(process, arena, LOOKS);
        }
        let capacity = arena.layout().thread_capacity;
        let slot = self.take_slot(arena).or_else(|| next_of(arena.thread_count(), capacity));
        let stack = self.take_stack(arena).or_else(|| next_of(&self.stacks_taken, capacity));
        let place = match (slot, stack) {
            (Some(slot), Some(stack)) => Some((slot, stack)),
            _ => self.place_in_need(process, arena, slot, stack),
        };
        if let Some((slot, _)) = place {
            self.newest.store(slot + 1, Relaxed);
        }
        place
    }

    /// Completes a place if all are taken, by freeing the places of the threads that ended first.
    fn place_in_need(
        &self,
        process: &'static Process,
        arena: &Arena,
        mut slot: Option<u32>,
        mut stack: Option<u32>,
    ) -> Option<(u32, u32)> {
        let _lock = Lock::take(&self.lock);
        self.make_room(process, arena, LOOKS_IN_NEED);
        loop {
            slot = slot.or_else(|| self.take_slot(arena));
            stack = stack.or_else(|| self.take_stack(arena));
            if slot.is_some() && stack.is_some() || !self.free_oldest(process, arena) {
                break;
            }
        }
        if slot.is_none() || stack.is_none() {
            if let Some(slot) = slot {
                self.free_slot(arena, slot);
            }
            if let Some(stack) = stack {
                self.free_stack(arena, stack);
            }
        }
        slot.zip(stack)
    }

    /// If ended threads are kept for a time, frees the places of those whose time is over. Each
    /// thread calls this when a segment ends.
    pub(crate) fn keep_to_time(&self, process: &'static Process) {
        if self.is_pass_due()
            && let Some(_lock) = Lock::try_take(&self.lock)
        {
            self.make_room(process, process.arena(), 0);
        }
    }

    fn is_pass_due(&self) -> bool {
        self.keep_ns.load(Relaxed) != u64::MAX && everycall_hooks::ticks() >= self.pass_due.load(Relaxed)
    }

    /// Finds threads that have ended, and frees the places of those that were kept for long enough.
    fn make_room(&self, process: &'static Process, arena: &Arena, looks: u32) {
        let (mut looks, mut frees) = (looks, FREED);
        if self.is_pass_due() {
            self.pass_due.store(everycall_hooks::ticks().saturating_add(PASS_TICKS), Relaxed);
            (looks, frees) = (looks.max(LOOKS_IN_TIME), LOOKS_IN_TIME);
        }
        self.look_after(process, arena, looks);
        for _ in 0..frees {
            if !self.is_full(arena) || !self.free_oldest(process, arena) {
                break;
            }
        }
    }

    /// Takes a slot that was used before.
    fn take_slot(&self, arena: &Arena) -> Option<u32> {
        FreeList::new(&self.free).take(|slot| Some(arena.slot(slot).next().load(Relaxed)))
    }

    /// Takes an open-call stack that was used before.
    fn take_stack(&self, arena: &Arena) -> Option<u32> {
        let stack = FreeList::new(&self.free_stacks)
            .take(|stack| Some(sentinel(arena, stack).load(Relaxed) as u32))?;
        sentinel(arena, stack).store(0, Relaxed);
        Some(stack)
    }

    /// Forgets all threads, for another arena.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        for list in [&self.next_look, &self.newest, &self.first, &self.last, &self.stacks_taken] {
            list.store(0, Relaxed);
        }
        for list in [&self.free, &self.free_stacks, &self.bytes] {
            list.store(0, Relaxed);
        }
    }

    /// Takes back what [`Retired::take_place`] gave.
    pub(crate) fn give_place_back(&self, arena: &Arena, slot: u32, stack: u32) {
        arena.slot(slot).open_calls().store(0, Relaxed);
        self.free_slot(arena, slot);
        self.free_stack(arena, stack);
    }

    /// Takes back a slot whose open-call stack has no disk space. The stack stays available to the
    /// next thread, unless another thread has taken one meanwhile.
    pub(crate) fn give_slot_back(&self, arena: &Arena, slot: u32, stack: u32) {
        let _lock = Lock::take(&self.lock);
        arena.slot(slot).open_calls().store(0, Relaxed);
        self.free_slot(arena, slot);
        let _ = self.stacks_taken.compare_exchange(stack + 1, stack, Relaxed, Relaxed);
    }

    fn free_slot(&self, arena: &Arena, index: u32) {
        let slot = arena.slot(index);
        slot.state().store(thread_state::FREE, Release);
        FreeList::new(&self.free).give(index, |next| slot.next().store(next, Relaxed));
    }

    fn free_stack(&self, arena: &Arena, index: u32) {
        let set_next = |next: u32| sentinel(arena, index).store(next.into(), Relaxed);
        FreeList::new(&self.free_stacks).give(index, set_next);
    }

    fn look_after(&self, process: &'static Process, arena: &Arena, looks: u32) {
        let count = arena.thread_count().load(Relaxed).min(arena.layout().thread_capacity);
        let pid = process.pid.load(Relaxed);
        let mut newest = self.newest.load(Relaxed).checked_sub(1).filter(|index| *index < count);
        for _ in 0..looks.min(count) {
            let index = newest.take().unwrap_or_else(|| {
                let index = self.next_look.load(Relaxed);
                let index = if index < count { index } else { 0 };
                self.next_look.store(index + 1, Relaxed);
                index
            });
            let slot = arena.slot(index);
            // Fibers don't end with a thread.
            if slot.state().load(Acquire) == thread_state::USED
                && slot.fiber().load(Relaxed) == 0
                && system::thread_is_gone(pid, slot.tid().load(Relaxed))
            {
                self.retire(process, arena, index);
            }
        }
    }

    /// Ends a fiber that no thread runs any more.
    pub(crate) fn end(&self, process: &'static Process, index: u32) {
        let _lock = Lock::take(&self.lock);
        self.retire(process, process.arena(), index);
    }

    /// Retires a slot whose thread or fiber has ended.
    fn retire(&self, process: &'static Process, arena: &Arena, index: u32) {
        let slot = arena.slot(index);
        slot.end_ticks().store(everycall_hooks::ticks(), Relaxed);
        slot.end_ns().store(self.now(), Relaxed);
        if stack_of(&slot).is_some() {
            let thread = Thread::new(process, process.control(index));
            tails::judge_gone(&thread, everycall_hooks::ticks());
        }
        // If no call was open, the stack isn't needed any more.
        let stack = slot.open_calls().load(Relaxed);
        if let Some(stack) = stack.checked_sub(1).filter(|stack| is_empty(arena, *stack)) {
            slot.open_calls().store(0, Release);
            self.free_stack(arena, stack);
        }
        slot.state().store(thread_state::ENDED, Release);
        self.put_last(arena, index);
        self.bytes.fetch_add(occupied(process, index, &slot), Relaxed);
    }

    /// The current time, if ended threads are kept for a time.
    fn now(&self) -> u64 {
        match self.keep_ns.load(Relaxed) {
            u64::MAX => 0,
            _ => system::clock_ns(system::CLOCK_MONOTONIC),
        }
    }

    /// Whether the place of the thread that ended first can be freed: the thread was kept for long
    /// enough, or ended threads take too many bytes. Returns false while posted calls wait.
    fn is_full(&self, arena: &Arena) -> bool {
        let Some(first) = self.first.load(Relaxed).checked_sub(1) else { return false };
        let (bytes, bytes_max) = (self.bytes.load(Relaxed), self.bytes_max.load(Relaxed));
        // Up to a limit, because the process that keeps calls may be dead.
        if bytes <= bytes_max.saturating_add(AWAITED_BYTES_MAX) && trigger_table::are_awaited(arena) {
            return false;
        }
        let keep = self.keep_ns.load(Relaxed);
        bytes > bytes_max
            || keep != u64::MAX && self.now().saturating_sub(arena.slot(first).end_ns().load(Relaxed)) > keep
    }

    /// Takes the thread that ended first out of the list.
    fn take_first(&self, arena: &Arena) -> Option<u32> {
        let index = self.first.load(Relaxed).checked_sub(1)?;
        self.first.store(arena.slot(index).next().load(Relaxed), Relaxed);
        if self.first.load(Relaxed) == 0 {
            self.last.store(0, Relaxed);
        }
        Some(index)
    }

    /// Appends an ended thread to the list.
    fn put_last(&self, arena: &Arena, index: u32) {
        arena.slot(index).next().store(0, Relaxed);
        match self.last.load(Relaxed).checked_sub(1) {
            Some(last) => arena.slot(last).next().store(index + 1, Relaxed),
            None => self.first.store(index + 1, Relaxed),
        }
        self.last.store(index + 1, Relaxed);
    }

    /// Takes the thread that ended first out of the list. Threads with a posted call that still
    /// waits are moved to the end of the list. There are fewer such calls than slots, so another
    /// thread is nearly always found.
    fn take_oldest(&self, arena: &Arena) -> Option<u32> {
        for _ in 0..CALLS {
            let index = self.take_first(arena)?;
            if !trigger_table::is_awaited(arena, index, arena.slot(index).generation().load(Relaxed)) {
                return Some(index);
            }
            self.put_last(arena, index);
        }
        None
    }

    /// Frees the slot of the thread that ended first. Returns whether there was one.
    fn free_oldest(&self, process: &'static Process, arena: &Arena) -> bool {
        let Some(index) = self.take_oldest(arena) else { return false };
        let slot = arena.slot(index);
        self.bytes.fetch_sub(occupied(process, index, &slot), Relaxed);
        slot.state().store(thread_state::CLAIMED, Release);
        let is_streaming = arena.stream().load(Relaxed) != stream::OFF;
        if !is_streaming {
            arena.count(counter::THREADS_RECYCLED, 1);
            arena.count(counter::SEGMENTS_RECYCLED, slot.segment().load(Relaxed) + 1);
        }
        arena.ring(process.control(index), &slot).give_up(is_streaming);
        trigger_table::count_beyond(process, process.control(index));
        arena.ring_segments().fetch_sub(slot.ring_segments().load(Relaxed), Relaxed);
        slot.generation().fetch_add(1, Relaxed);
        if let Some(stack) = slot.open_calls().load(Relaxed).checked_sub(1) {
            slot.open_calls().store(0, Release);
            self.free_stack(arena, stack);
        }
        self.free_slot(arena, index);
        true
    }
}

/// A slot's open-call stack.
fn stack_of(slot: &Slot) -> Option<u32> {
    slot.open_calls().load(Relaxed).checked_sub(1)
}

/// The next index below `capacity` that was never used.
fn next_of(taken: &AtomicU32, capacity: u32) -> Option<u32> {
    taken.fetch_update(Relaxed, Relaxed, |count| (count < capacity).then_some(count + 1)).ok()
}

/// The word of an open-call stack's sentinel, which links free stacks. Readers ignore it.
fn sentinel(arena: &Arena, stack: u32) -> &'static AtomicU64 {
    // SAFETY: the open-call stack lies in the arena, aligned.
    unsafe { &*(arena.open_calls(stack).0 as *const AtomicU64) }
}

/// Whether an open-call stack has no entry.
fn is_empty(arena: &Arena, stack: u32) -> bool {
    let first = arena.open_calls(stack).0 + OpenCall::SIZE as u64;
    // SAFETY: as above; the stack has at least two entries.
    unsafe { &*(first as *const AtomicU64) }.load(Relaxed) == 0
}

/// Bytes of memory that an ended thread's slot and segments occupy. All segments are whole except
/// the last.
fn occupied(process: &'static Process, index: u32, slot: &Slot) -> u64 {
    let control = process.control(index);
    let size = (slot.segment_words() * size_of::<u64>()) as u64;
    let whole = u64::from(control.ring_count.load(Relaxed).saturating_sub(1)) * size;
    let position = match control.suspended_position.load(Relaxed) {
        0 => control.position.load(Relaxed),
        suspended => suspended,
    };
    let last = control.segment_end.load(Relaxed).saturating_sub(position).min(size);
    PAGE + whole + (size - last).next_multiple_of(PAGE)
}
