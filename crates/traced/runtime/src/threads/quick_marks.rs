//! Writes labels, instants, spans, counters and log lines as hooks write calls: without a system
//! call and without the slow path.
//!
//! The conditions are those of a hook's fast path: the thread records and runs the control block's
//! stack, its segment has room, the clock's upper half hasn't changed, and no open call is dead.
//! Otherwise nothing is done here, and the slow path writes the mark.
#![allow(unsafe_code)] // The ring's slots and the open-call stack, by their addresses.

use crate::state::local;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::OpenCall;
use everycall_format::event::{WORD_SIZE, kind, payload_word, record_word};
use everycall_format::label::NAME_MAX;
use everycall_hooks::{add_own, exchange_own};
use everycall_ring::{Control, left_out};

/// Payloads before the name.
const VALUE_PAYLOADS: usize = 2;

/// The result of writing a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkResult {
    /// It is written, or the thread is left out.
    Yes,
    /// The slow path has to write it.
    No,
}

/// Writes a mark of the calling thread, or nothing if the thread is excluded. `detail`: class and
/// flags. `stack_pointer`: open calls below it are dead.
#[inline(always)]
pub(crate) fn write(detail: u8, value: u64, name: &[u8], stack_pointer: u64) -> MarkResult {
    let Some(control) = local::last() else { return MarkResult::No };
    if is_left_out(control, stack_pointer) {
        return MarkResult::Yes;
    }
    if name.len() > NAME_MAX {
        return MarkResult::No; // The slow path truncates it.
    }
    let count = VALUE_PAYLOADS + name.len().div_ceil(4);
    let Some(record) = Reserved::new(control, count, stack_pointer) else { return MarkResult::No };
    record.put(1, payload_word(value as u32, kind::LABEL, 1));
    record.put(2, payload_word((value >> 32) as u32, kind::LABEL, 2));
    record.put_bytes(1 + VALUE_PAYLOADS, kind::LABEL, name);
    record.finish(kind::LABEL, detail);
    MarkResult::Yes
}

/// Writes a record of `count` payloads, which `fill` supplies in order, or nothing if the thread is
/// excluded.
#[inline(always)]
pub(crate) fn write_payloads(
    kind: u8,
    count: usize,
    stack_pointer: u64,
    fill: impl FnOnce(&mut Payloads<'_>),
) -> MarkResult {
    let Some(control) = local::last() else { return MarkResult::No };
    if is_left_out(control, stack_pointer) {
        return MarkResult::Yes;
    }
    let Some(record) = Reserved::new(control, count, stack_pointer) else { return MarkResult::No };
    fill(&mut Payloads { record: &record, kind, next: 1 });
    record.finish(kind, 0);
    MarkResult::Yes
}

/// Payloads of a record that is being written.
pub(crate) struct Payloads<'r> {
    record: &'r Reserved,
    kind: u8,
    next: usize,
}

impl Payloads<'_> {
    /// Writes the next payload, unless all were written.
    #[inline(always)]
    pub(crate) fn push(&mut self, payload: u32) {
        if self.next <= self.record.count {
            self.record.put(self.next, payload_word(payload, self.kind, self.next as u8));
            self.next += 1;
        }
    }
}

/// Slots of a record in the calling thread's ring.
struct Reserved {
    slot: *mut u64,
    ticks: u64,
    count: usize,
}

impl Reserved {
    /// Reserves slots for a first word and `count` payloads.
    ///
    /// The position is read first and exchanged last. If a signal handler has written anything in
    /// between, the exchange fails. So no event comes between the checks and the reservation, and
    /// slot order is the order of time.
    #[inline(always)]
    fn new(control: &Control, count: usize, stack_pointer: u64) -> Option<Reserved> {
        let words = 1 + count;
        // If the block belongs to another stack, nothing else of it may be touched.
        let is_its_stack = stack_pointer >= control.stack_low.load(Relaxed)
            && stack_pointer < control.stack_high.load(Relaxed);
        if !is_its_stack {
            return None;
        }
        let slot = control.position.load(Relaxed);
        let after = slot.wrapping_add((words * WORD_SIZE) as u64);
        let ticks = everycall_hooks::ticks();
        let has_room = after > slot && after <= control.end.load(Relaxed);
        if !has_room
            || (ticks >> 32) as u32 != control.ticks_high.load(Relaxed)
            || control.resumed.load(Relaxed) != 0
            || control.deep.load(Relaxed) != 0
            || innermost(control) < stack_pointer
            || !exchange_own(&control.position, slot, after)
        {
            return None;
        }
        // The next event must not have an earlier time.
        control.stamp_due.store(0, Relaxed);
        add_own(&control.other_words, words as u64);
        Some(Reserved { slot: slot as *mut u64, ticks, count })
    }

    #[inline(always)]
    fn put(&self, index: usize, word: u64) {
        // SAFETY: one of the reserved slots.
        let slot = unsafe { AtomicU64::from_ptr(self.slot.wrapping_add(index)) };
        slot.store(word, Release);
    }

    /// Writes bytes into the slots from `index` on.
    #[inline(always)]
    fn put_bytes(&self, mut index: usize, kind: u8, bytes: &[u8]) {
        let mut fours = bytes.chunks_exact(4);
        for part in &mut fours {
            let &[a, b, c, d] = part else { continue };
            self.put(index, payload_word(u32::from_le_bytes([a, b, c, d]), kind, index as u8));
            index += 1;
        }
        let rest = fours.remainder().len();
        if rest == 0 {
            return;
        }
        let four = match *bytes {
            // The last four bytes hold the rest.
            [.., a, b, c, d] => u32::from_le_bytes([a, b, c, d]) >> (8 * (4 - rest)),
            [a, b, c] => u32::from_le_bytes([a, b, c, 0]),
            [a, b] => u32::from_le_bytes([a, b, 0, 0]),
            [a] => a.into(),
            [] => 0,
        };
        self.put(index, payload_word(four, kind, index as u8));
    }

    /// Writes the first word. It comes last, because without it the others are no record.
    #[inline(always)]
    fn finish(self, kind: u8, detail: u8) {
        self.put(0, record_word(self.ticks, kind, self.count as u8, detail));
    }
}

/// Whether the thread is excluded and runs the control block's stack, by the comparisons of hooks.
#[inline]
pub(crate) fn is_left_out(control: &Control, stack_pointer: u64) -> bool {
    control.left_out.load(Relaxed) == left_out::AT_ONCE
        && stack_pointer >= control.stack_end.load(Relaxed)
        && stack_pointer < control.stack_high.load(Relaxed)
}

/// The stack pointer of the innermost open call; the highest one if none is open.
#[inline]
fn innermost(control: &Control) -> u64 {
    let call = control.open_top.load(Relaxed).wrapping_sub(size_of::<OpenCall>() as u64);
    let place = (call as *mut u8).wrapping_add(offset_of!(OpenCall, stack_pointer)).cast();
    // SAFETY: the entry below the top is a call or the sentinel, in memory that is never unmapped.
    unsafe { AtomicU64::from_ptr(place) }.load(Relaxed)
}
