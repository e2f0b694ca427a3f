//! Stacks that lie in another stack: in a local variable. Such a stack is over when the function has returned in whose frame it lies, and
//! nobody tells of that. What can be known is which call of the outer stack was the innermost one around it when the
//! program told of it:
//!
//! - When that call isn't open any more, the memory is the outer stack's again.
//! - Hooks at a function's first instruction have a stack pointer above the function's frame, so this call is the function's own. Hooks
//!   within the frame have one below most of it: then it is the call of whoever called the function, and may go on for long. But
//!   such a call's next call puts its return address in the place where the function's was: another one there says that the
//!   function has returned.

use crate::open_calls::{HOOK_BELOW, OpenCalls};
use crate::process::Process;
use crate::ranges::{Around, Range};
use crate::{modules, system};
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::EXIT;
use everycall_ring::Control;

/// Return addresses of calls that one function makes are at most so far from each other and from where it begins.
const FUNCTION_MAX: u64 = 64 << 10;
/// Stacks within stacks that are looked at.
const LEVELS_MAX: usize = 16;
/// The longest instruction that calls: with a prefix, an address and an offset of 32 bits.
const CALL_MAX: u64 = 7;

/// What is around a stack in `low..high` that lies in this context's.
pub(crate) fn around(process: &'static Process, outer: &Control, low: u64, high: u64) -> Around {
    let Some((place, word, pointer)) = OpenCalls::new(outer).around(high) else { return Around::default() };
    let slot = outer.slot.load(Relaxed) + 1;
    let returns_at = return_address_below(pointer);
    // Where the stack has this place, the call itself has made room for it.
    let is_callees = !(low..high).contains(&returns_at) && system::is_readable(returns_at, 8);
    let callee_returns_to = is_callees.then(|| read(returns_at)).filter(|&address| {
        let function = modules::address(process, word as u32 & !EXIT);
        function.is_some_and(|(start, end)| {
            let is_in_it = address.checked_sub(start).is_some_and(|offset| offset < FUNCTION_MAX);
            is_in_it && address < end && is_behind_call(address)
        })
    });
    Around { slot, place, word, callee_returns_to: callee_returns_to.unwrap_or(0) }
}

/// Whether a stack was one in a local variable whose function has returned, or lies within one. `home` is the context of the calling thread's
/// own stack.
pub(crate) fn is_over(process: &'static Process, range: &Range, home: Option<&Control>) -> bool {
    let around = |range: &Range| process.stacks.find_around(range.low, range.high);
    let mut outwards = core::iter::successors(Some(*range), around).take(LEVELS_MAX);
    outwards.any(|range| has_returned(process, &range, home))
}

/// Whether the function has returned in whose frame a stack was.
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

/// Whether the call with this stack pointer has made another call since the one that returns to `before`.
fn has_called_again(outer: &Control, home: Option<&Control>, call: u64, before: u64) -> bool {
    let place = return_address_below(call);
    // The calling thread's own stack has memory there; others may be gone by now.
    let is_own = home.is_some_and(|home| core::ptr::eq(home, outer))
        && place < outer.stack_high.load(Relaxed).saturating_sub(8);
    if !(is_own || outer.fiber.load(Relaxed) != 0 && system::is_readable(place, 8)) {
        return false;
    }
    let now = read(place);
    now != before && now.abs_diff(before) < FUNCTION_MAX && is_behind_call(now)
}

/// Where a function whose hook has this stack pointer puts the return addresses of what it calls, if the hook lies within its frame.
fn return_address_below(hook: u64) -> u64 {
    hook.saturating_add(HOOK_BELOW - 8)
}

/// Whether an instruction that calls ends at an address of code.
fn is_behind_call(address: u64) -> bool {
    let Some(first) = address.checked_sub(CALL_MAX).filter(|&first| system::is_readable(first, CALL_MAX))
    else {
        return false;
    };
    // SAFETY: it can be read, and code is bytes.
    let code = unsafe { *(first as *const [u8; CALL_MAX as usize]) };
    ends_in_call(code)
}

/// Whether code ends in an instruction that calls.
fn ends_in_call(code: [u8; CALL_MAX as usize]) -> bool {
    // Through a register or memory: the operand's length varies.
    let is_indirect = |length: usize| match code.get(CALL_MAX as usize - length..) {
        Some([0xff, operand, ..]) => operand & 0x38 == 0x10,
        _ => false,
    };
    matches!(code, [_, _, 0xe8, ..]) || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}

fn read(address: u64) -> u64 {
    // SAFETY: the callers have made sure that there is memory.
    unsafe { (address as *const u64).read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_recognised() {
        for code in [
            [0x90, 0x90, 0xe8, 1, 2, 3, 4],             // call rel32
            [0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0], // call *%rax
            [0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd4], // call *%r12
            [0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x18], // call *24(%rax)
            [0x90, 0x90, 0x90, 0xff, 0x54, 0x24, 0x08], // call *8(%rsp)
            [0x90, 0xff, 0x15, 1, 2, 3, 4],             // call *x(%rip)
            [0xff, 0x94, 0x24, 1, 2, 3, 4],             // call *x(%rsp)
        ] {
            assert!(ends_in_call(code), "{code:x?}");
        }
        for code in [
            [0x90, 0x90, 0xe9, 1, 2, 3, 4],             // jmp rel32
            [0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0], // jmp *%rax
            [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x53],
            [0; 7],
        ] {
            assert!(!ends_in_call(code), "{code:x?}");
        }
    }
}
