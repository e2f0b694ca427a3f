//! Nested stacks, which lie in a local variable on another stack. A nested stack ends when the
//! function in whose frame it lies returns, and the runtime isn't notified of that. But it stores
//! which call of the outer stack was the innermost one around the nested stack when that was
//! registered:
//!
//! - When that call is no longer open, the memory belongs to the outer stack again.
//! - A hook at a function's first instruction has a stack pointer above the function's frame, so
//!   the innermost call around the stack is the function's own. A hook within the frame has a stack
//!   pointer below most of the frame. Then the innermost call around the stack is the function's
//!   caller, which may run for long. But the caller's next call puts its return address where the
//!   function's was. A different return address there shows that the function has returned.
#![allow(unsafe_code)] // Code and stacks of the program, by their addresses.

use crate::state::places;
use crate::state::process::Process;
use crate::state::ranges::{Around, Range};
use crate::sys::system;
use crate::threads::open_calls::OpenCalls;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::EXIT;
use everycall_hooks::arch::{code, frame};
use everycall_ring::Control;

/// Limit on the distance of return addresses in one function from each other and from the
/// function's start.
const FUNCTION_MAX: u64 = 64 << 10;
/// Number of nesting levels that are checked.
const LEVELS_MAX: usize = 16;

/// The call of this context around a nested stack in `low..high`.
pub(crate) fn around(process: &'static Process, outer: &Control, low: u64, high: u64) -> Around {
    let Some((place, word, pointer)) = OpenCalls::new(outer).around(high) else { return Around::default() };
    let slot = outer.slot.load(Relaxed) + 1;
    // If the nested stack contains this address, it lies in the frame of the call itself.
    let is_callees = |at: &u64| !(low..high).contains(at) && system::is_readable(*at, 8);
    let returns_at = frame::return_address_below(pointer).filter(is_callees);
    let callee_returns_to = returns_at.map(read).filter(|&address| {
        let function = places::address(process, word as u32 & !EXIT);
        function.is_some_and(|(start, end)| {
            let is_in_it = address.checked_sub(start).is_some_and(|offset| offset < FUNCTION_MAX);
            is_in_it && address < end && is_behind_call(address)
        })
    });
    Around { slot, place, word, callee_returns_to: callee_returns_to.unwrap_or(0) }
}

/// Whether the function in whose frame a nested stack was has returned, or one in whose frame a
/// stack around it was. `home` is the context of the calling thread's own stack.
pub(crate) fn is_over(process: &'static Process, range: &Range, home: Option<&Control>) -> bool {
    let around = |range: &Range| process.stacks.find_around(range.low, range.high);
    let mut outwards = core::iter::successors(Some(*range), around).take(LEVELS_MAX);
    outwards.any(|range| has_returned(process, &range, home))
}

/// Whether the function in whose frame a stack was has returned.
fn has_returned(process: &'static Process, range: &Range, home: Option<&Control>) -> bool {
    let around = &range.around;
    let Some(slot) = around.slot.checked_sub(1) else { return false };
    let outer = process.control(slot);
    match OpenCalls::new(outer).pointer_of(around.place, around.word) {
        None => true,
        Some(_) if around.callee_returns_to == 0 => false,
        Some(call) => has_called_again(outer, home, call, around.callee_returns_to),
    }
}

/// Whether the call with this stack pointer has made another call since the one that returns to
/// `before`.
fn has_called_again(outer: &Control, home: Option<&Control>, call: u64, before: u64) -> bool {
    let Some(place) = frame::return_address_below(call) else { return false };
    // The calling thread's own stack is mapped there. Other stacks may be unmapped by now.
    let is_own = home.is_some_and(|home| core::ptr::eq(home, outer))
        && place < outer.stack_high.load(Relaxed).saturating_sub(8);
    if !(is_own || outer.fiber.load(Relaxed) != 0 && system::is_readable(place, 8)) {
        return false;
    }
    let now = read(place);
    now != before && now.abs_diff(before) < FUNCTION_MAX && is_behind_call(now)
}

/// Whether a call instruction ends at a code address.
fn is_behind_call(address: u64) -> bool {
    let Some(first) =
        address.checked_sub(code::CALL_MAX).filter(|&first| system::is_readable(first, code::CALL_MAX))
    else {
        return false;
    };
    // SAFETY: the memory is readable, and code is bytes.
    let bytes = unsafe { *(first as *const [u8; code::CALL_MAX as usize]) };
    code::ends_in_call(bytes)
}

fn read(address: u64) -> u64 {
    // SAFETY: the callers have checked that the memory is mapped.
    unsafe { (address as *const u64).read_volatile() }
}
