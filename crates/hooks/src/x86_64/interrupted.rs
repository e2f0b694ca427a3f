//! Where a signal interrupted the thread whose handler runs: on the alternate stack, the thread may
//! have come to another stack since its last event, and the handler's calls belong to that one; on
//! the same stack, the handler lies some KiB below.
//!
//! The kernel puts what it interrupted onto the handler's stack, a `ucontext_t`. On an alternate
//! stack it lies at the top, holds the bounds of that stack, and is found by them. On others, it is
//! found by what it always holds.
#![allow(unsafe_code)] // The calling thread's stack, by its addresses.

/// A `ucontext_t`, in 64-bit words: flags, of which the kernel knows few, and a link to another
/// one, which it leaves out.
const FLAGS: u64 = 0;
const FLAGS_MAX: u64 = 15;
const LINK: u64 = 1;
/// Which one has the first address of the alternate stack.
const STACK_FIRST: u64 = 2;
/// The size of the alternate stack.
const STACK_SIZE: u64 = 4;
/// The stack pointer: behind eight words of the general registers' and seven of others.
const STACK_POINTER: u64 = 20;
/// The segment registers, the code's lowest: one and the same for all 64-bit code.
const SEGMENTS: u64 = 23;
const CODE_SEGMENT: u16 = 0x33;
const WORD: u64 = 8;

/// The stack pointer at which the calling thread, whose stack pointer lies on its alternate stack
/// `first..end`, was interrupted. `None` where nothing like it is there: somebody else may have put
/// a thread onto this stack.
#[must_use]
pub fn stack_pointer(pointer: u64, first: u64, end: u64) -> Option<u64> {
    if !(first..end).contains(&pointer) {
        return None;
    }
    // SAFETY: between the stack pointer and the end of the stack that the thread runs on, all
    // memory can be read.
    let word = |address: u64| unsafe { (address as *const u64).read_volatile() };
    // The topmost one: a handler may have been interrupted on the alternate stack, too.
    let last = (end & !(WORD - 1)).checked_sub((STACK_POINTER + 1) * WORD)?;
    let lowest = pointer.next_multiple_of(WORD);
    (0..)
        .map_while(|index: u64| last.checked_sub(index * WORD).filter(|&context| context >= lowest))
        .find(|context| {
            word(context + STACK_FIRST * WORD) == first && word(context + STACK_SIZE * WORD) == end - first
        })
        .map(|context| word(context + STACK_POINTER * WORD))
        .filter(|interrupted| !(first..end).contains(interrupted))
}

/// Where the kernel saved what it interrupted that lies between two addresses, between which all
/// memory can be read, and the stack pointer that was interrupted there. `None` where nothing like
/// it is there.
#[must_use]
pub fn between(low: u64, high: u64) -> Option<(u64, u64)> {
    // SAFETY: by contract.
    let word = |address: u64| unsafe { (address as *const u64).read_volatile() };
    let last = high.checked_sub((SEGMENTS + 1) * WORD)?;
    (low.next_multiple_of(WORD)..=last)
        .step_by(WORD as usize)
        .find(|context| {
            word(context + LINK * WORD) == 0
                && word(context + FLAGS * WORD) <= FLAGS_MAX
                && word(context + SEGMENTS * WORD) as u16 == CODE_SEGMENT
                && word(context + STACK_POINTER * WORD) > *context
        })
        .map(|context| (context, word(context + STACK_POINTER * WORD)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_frame_between_two_stack_pointers_is_found() {
        let mut stack = [0_u64; 512];
        let first = stack.as_ptr() as u64;
        let end = first + 8 * 512;
        assert_eq!(between(first, end), None);
        for at in [400, 100] {
            stack[at] = 7;
            stack[at + 20] = end + 8 * at as u64;
            stack[at + 23] = 0x2b << 48 | 0x33;
            core::hint::black_box(&stack);
            assert_eq!(between(first, end), Some((first + 8 * at as u64, end + 8 * at as u64)));
        }
        assert_eq!(between(first + 8 * 101, end), Some((first + 8 * 400, end + 8 * 400)));
        assert_eq!(between(first + 8 * 401, end), None);
        assert_eq!(between(first + 8 * 101, first + 8 * 423), None);
        assert_eq!(between(end, first), None);
    }

    #[test]
    fn the_topmost_frame_of_the_kernel_is_found() {
        let mut stack = [0_u64; 512];
        let first = stack.as_ptr() as u64;
        let end = first + 8 * 512;
        assert_eq!(stack_pointer(first, first, end), None);
        for (at, interrupted) in [(100, 0x2222), (400, 0x1111)] {
            stack[at + 2] = first;
            stack[at + 4] = 8 * 512;
            stack[at + 20] = interrupted;
            assert_eq!(stack_pointer(first + 8 * 50, first, end), Some(interrupted));
            assert_eq!(stack_pointer(first + 3, first, end), Some(interrupted));
        }
        // Nothing below the stack pointer counts.
        assert_eq!(stack_pointer(first + 8 * 401, first, end), None);
        assert_eq!(stack_pointer(end, first, end), None);
        assert_eq!(stack_pointer(end - 1, first, end), None);
        // What lies on the stack itself isn't what a signal interrupted.
        stack[420] = first + 8;
        core::hint::black_box(&stack);
        assert_eq!(stack_pointer(first, first, end), None);
    }
}
