//! Allocations, as the library that `everycall count --memory` preloads reports them.
#![allow(unsafe_code)] // Called by that library through a table.

use crate::features::calling::{WORDS_BEFORE, with_thread};
use crate::features::fork;
use crate::state::memory::{self, Change};
use crate::state::process::process;
use crate::state::{dropped, local, recording};
use crate::sys::errors::error;
use crate::threads::begin;
use crate::threads::memory::count_quickly;
use crate::threads::open_calls::Frame;
use everycall_hooks::arch::frame::HOOK_BELOW_FRAME;
use everycall_hooks::memory_change::{ALLOCATED, FACTS, FREED};

/// See [`everycall_hooks::RuntimeTable::memory`].
pub(crate) unsafe extern "C" fn memory(what: u32, allocated: u64, freed: u64, frame: u64) {
    if what & FACTS != 0 {
        return memory::note(what & !FACTS, fork::traced().map(|process| process.arena()));
    }
    let blocks = |bit: u32| u64::from(what & bit != 0);
    let change = Change([allocated, blocks(ALLOCATED), freed, blocks(FREED)]);
    if recording::is_disabled() {
        return;
    }
    let stack_pointer = frame.wrapping_sub(HOOK_BELOW_FRAME);
    if !count_quickly(stack_pointer, change) {
        count_slowly(stack_pointer, change);
    }
}

#[cold]
#[inline(never)]
fn count_slowly(stack_pointer: u64, change: Change) {
    if process().is_none() {
        return memory::count_elsewhere(None, change);
    }
    let Some(process) = fork::traced().filter(|_| dropped::counts_memory()) else { return };
    match local::last() {
        None => memory::count_elsewhere(Some(process.arena()), change),
        Some(control) if begin::is_left_out(control) => {}
        Some(_) => {
            let counted = with_thread(|thread| {
                let ticks = thread.prepare(WORDS_BEFORE);
                thread.drop_dead(ticks, Frame::Body(stack_pointer));
                thread.count_memory(change);
            });
            if counted == Err(error::BUSY) {
                // A signal handler that has interrupted the slow path allocates.
                memory::count_elsewhere(Some(process.arena()), change);
            }
        }
    }
}
