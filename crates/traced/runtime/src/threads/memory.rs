//! To which calls an allocation belongs: see [`crate::state::memory`].
//!
//! The innermost open call has made it itself. Each call around it needs the thread's meter of the
//! moment when it began, for its function's total. None of them has changed since the last
//! allocation in the thread, so the meter of now is theirs, if they had none: they are the
//! innermost ones, up to the first that has one. So each call is visited once, and one in which
//! nothing is allocated isn't at all.
#![allow(unsafe_code)] // Entries of the open-call stack, by their addresses.

use crate::state::memory::{self, Change};
use crate::state::times::{self, Sums, offset_of_place};
use crate::state::{dropped, local};
use crate::threads::deep_calls::DeepCalls;
use crate::threads::quick_marks::is_left_out;
use crate::threads::thread::Thread;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::OpenCall;
use everycall_format::event::{ESCAPE_FIRST, EXIT};
use everycall_format::times::STAMP_VISITED;
use everycall_ring::Control;

const ENTRY: u64 = size_of::<OpenCall>() as u64;

/// Counts an allocation of the calling thread under the conditions of a hook's fast path: the
/// thread counts and runs the control block's stack, and no open call is dead. Counts nothing if
/// the thread is excluded. Returns false without effect otherwise. `stack_pointer`: open calls
/// below it are dead.
#[inline(always)]
pub(crate) fn count_quickly(stack_pointer: u64, change: Change) -> bool {
    let Some(control) = local::last() else { return false };
    if is_left_out(control, stack_pointer) {
        return true;
    }
    // If the block belongs to another stack, nothing else of it may be touched.
    if stack_pointer < control.stack_low.load(Relaxed) || stack_pointer >= control.stack_high.load(Relaxed) {
        return false;
    }
    if control.end.load(Relaxed) == 0
        || control.resumed.load(Relaxed) != 0
        || control.deep.load(Relaxed) != 0
        || control.short_counts.load(Relaxed) == 0
    {
        return false;
    }
    let innermost = control.open_top.load(Relaxed).wrapping_sub(ENTRY);
    if Entry(innermost).stack_pointer().load(Relaxed) < stack_pointer {
        return false;
    }
    count(control, innermost, change);
    true
}

/// Counts an allocation in the innermost open call, whose entry is given, or in none.
#[inline(always)]
fn count(control: &Control, innermost: u64, change: Change) {
    let meter = Sums::of(control, 0);
    let first = control.open_base.load(Relaxed) + ENTRY;
    let (mut owner, mut entry) = (None, innermost);
    while entry >= first {
        let stamp = Entry(entry).stamp();
        let now = stamp.load(Relaxed);
        // Without its word, a call hasn't begun: its hook was interrupted.
        if Entry(entry).word().load(Relaxed) != 0 && now != 0 {
            let sums = Sums::of(control, now);
            owner = owner.or(Some(sums));
            if now & STAMP_VISITED != 0 {
                break;
            }
            let is_outermost = sums.outermost().load(Relaxed) == entry.wrapping_add(times::callees());
            stamp.store(now | memory::open(sums, meter, is_outermost), Relaxed);
        }
        entry = entry.wrapping_sub(ENTRY);
    }
    memory::count(owner.unwrap_or(meter), meter, change);
}

/// An entry of the open-call stack, by its address.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    fn word(self) -> &'static AtomicU64 {
        // SAFETY: callers pass the addresses of entries, whose memory is never unmapped.
        unsafe { &*((self.0 + offset_of!(OpenCall, word) as u64) as *const AtomicU64) }
    }

    fn stack_pointer(self) -> &'static AtomicU64 {
        // SAFETY: as above.
        unsafe { &*((self.0 + offset_of!(OpenCall, stack_pointer) as u64) as *const AtomicU64) }
    }

    fn stamp(self) -> &'static AtomicU32 {
        // SAFETY: as above.
        unsafe { &*((self.0 + offset_of!(OpenCall, stamp) as u64) as *const AtomicU32) }
    }
}

impl Thread<'_> {
    /// Counts an allocation. Dead frames have been removed before.
    pub(crate) fn count_memory(&self, change: Change) {
        if self.control.short_counts.load(Relaxed) == 0 {
            return memory::count_elsewhere(Some(self.process.arena()), change);
        }
        let deep = DeepCalls::of(self.control);
        let innermost = self.control.open_top.load(Relaxed).wrapping_sub(ENTRY);
        if deep.count() == 0 {
            return count(self.control, innermost, change);
        }
        // The calls around it are visited by an allocation of nothing.
        let nothing = Change([0; everycall_format::memory::NUMBERS]);
        count(self.control, innermost, nothing);
        let innermost = deep.innermost().next().filter(|_| deep.unknown() == 0);
        let code = innermost.map(|(_, word)| word & !EXIT).filter(|code| *code < ESCAPE_FIRST);
        let sums = Sums::of(self.control, offset_of_place(dropped::place_of(self.process, code).0));
        memory::count_deep(sums, Sums::of(self.control, 0), change);
    }
}
