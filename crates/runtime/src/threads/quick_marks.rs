//! Labels, instants and spans that are written as hooks write calls: without a system call and without the slow path.
//!
//! The conditions are those of a hook's straight way: the thread runs the control block's stack, records, has room in its
//! segment, the upper half of the clock is known, and no open call is dead. Otherwise nothing is done here.
#![allow(unsafe_code)] // The ring's slots and the open-call stack, by their addresses.

use crate::state::local;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::OpenCall;
use everycall_format::event::{WORD_SIZE, kind, payload_word, record_word};
use everycall_format::label::{NAME_MAX, NO_VALUE};
use everycall_hooks::{add_own, exchange_own};
use everycall_ring::{Control, left_out};

/// Payloads before the name.
const VALUE_PAYLOADS: usize = 2;

/// Writes a mark of the calling thread, or nothing if the thread is left out. `stack_pointer`: calls below it are dead.
/// Returns false if the slow path has to do it.
pub(crate) fn write(class: u8, value: Option<u64>, name: &[u8], stack_pointer: u64) -> bool {
    let Some(control) = local::last() else { return false };
    if is_left_out(control, stack_pointer) {
        return true;
    }
    if name.len() > NAME_MAX {
        return false; // It has to be cut, which takes more care.
    }
    let count = VALUE_PAYLOADS + name.len().div_ceil(4);
    let Some((slot, ticks)) = reserve(control, 1 + count, stack_pointer) else { return false };
    let put = |index: usize, word: u64| {
        // SAFETY: one of the reserved slots.
        let slot = unsafe { AtomicU64::from_ptr((slot as *mut u64).wrapping_add(index)) };
        slot.store(word, Release);
    };
    let (value, flags) = match value {
        Some(value) => (value, 0),
        None => (0, NO_VALUE),
    };
    put(1, payload_word(value as u32, kind::LABEL, 1));
    put(2, payload_word((value >> 32) as u32, kind::LABEL, 2));
    for (index, part) in (1 + VALUE_PAYLOADS..).zip(name.chunks(4)) {
        let four = match *part {
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            [a, b, c] => u32::from_le_bytes([a, b, c, 0]),
            [a, b] => u32::from_le_bytes([a, b, 0, 0]),
            [a] => a.into(),
            _ => 0,
        };
        put(index, payload_word(four, kind::LABEL, index as u8));
    }
    // The last one: without it, the others are no record.
    put(0, record_word(ticks, kind::LABEL, count as u8, class | flags));
    true
}

/// Reserves slots in the calling thread's ring. Returns the address of the first one and the time.
///
/// The position is read first and exchanged last. If a signal handler has written anything between, the exchange fails: so all
/// that was found between suspensions, and slot order is the order of time.
#[inline]
fn reserve(control: &Control, words: usize, stack_pointer: u64) -> Option<(u64, u64)> {
    // Another stack's block: before anything else of it is touched.
    let is_its_stack =
        stack_pointer >= control.stack_low.load(Relaxed) && stack_pointer < control.stack_high.load(Relaxed);
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
    add_own(&control.other_words, words as u64);
    Some((slot, ticks))
}

/// Whether the thread is left out and runs the control block's stack, as hooks see it.
#[inline]
fn is_left_out(control: &Control, stack_pointer: u64) -> bool {
    control.left_out.load(Relaxed) == left_out::AT_ONCE
        && stack_pointer >= control.stack_end.load(Relaxed)
        && stack_pointer < control.stack_high.load(Relaxed)
}

/// The stack pointer of the innermost open call; the highest one if none is open.
fn innermost(control: &Control) -> u64 {
    let call = control.open_top.load(Relaxed).wrapping_sub(size_of::<OpenCall>() as u64);
    let place = (call as *mut u8).wrapping_add(offset_of!(OpenCall, stack_pointer)).cast();
    // SAFETY: the entry below the top is a call or the sentinel, in memory that is never unmapped.
    unsafe { AtomicU64::from_ptr(place) }.load(Relaxed)
}
