//! Finds the stack pointer at which a signal interrupted the thread. It is needed for two cases:
//!
//! - A handler runs on the alternate stack. Its calls belong to the interrupted stack, to which the
//!   thread may have switched since its last event.
//! - A handler runs on the interrupted stack itself, some KiB below: the kernel's frame is in
//!   between.
//!
//! The kernel saves the interrupted state on the handler's stack, in a `ucontext_t`. On an
//! alternate stack, it is at the top and contains the bounds of the stack, by which it is found. On
//! other stacks, it is found by values that it always contains.
#![allow(unsafe_code)] // The calling thread's stack, by its addresses.

/// Layout of a `ucontext_t`, in 64-bit words. First come flags, of which the kernel uses none, and a
/// link to another `ucontext_t`, which the kernel sets to 0.
const FLAGS: u64 = 0;
const FLAGS_MAX: u64 = 15;
const LINK: u64 = 1;
/// The word that holds the first address of the alternate stack.
const STACK_FIRST: u64 = 2;
/// The word that holds the size of the alternate stack.
const STACK_SIZE: u64 = 4;
/// The word that holds the stack pointer, behind the address of a fault and 31 registers.
const STACK_POINTER: u64 = 54;
/// The word that the record of the vector registers begins with, which is the first of the records
/// behind the registers: its magic number, and its size.
const RECORDS: u64 = 58;
const VECTORS: u64 = 528 << 32 | 0x4650_8001;
const WORD: u64 = 8;

/// The stack pointer at which the calling thread was interrupted. The thread's stack pointer,
/// `pointer`, lies on its alternate stack `first..end`. `None` if no saved context is found: then
/// something other than a signal may have put the thread onto this stack.
#[must_use]
pub fn stack_pointer(pointer: u64, first: u64, end: u64) -> Option<u64> {
    if !(first..end).contains(&pointer) {
        return None;
    }
    // SAFETY: all memory between the stack pointer and the end of the stack that the thread runs on
    // is readable.
    let word = |address: u64| unsafe { (address as *const u64).read_volatile() };
    // The topmost context counts: a handler on the alternate stack may have been interrupted, too.
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

/// Finds a saved context between two addresses. All memory between them must be readable. Returns
/// the context's address and the interrupted stack pointer. `None` if there is none.
#[must_use]
pub fn between(low: u64, high: u64) -> Option<(u64, u64)> {
    // SAFETY: by contract.
    let word = |address: u64| unsafe { (address as *const u64).read_volatile() };
    let last = high.checked_sub((RECORDS + 1) * WORD)?;
    (low.next_multiple_of(WORD)..=last)
        .step_by(WORD as usize)
        .find(|context| {
            word(context + LINK * WORD) == 0
                && word(context + FLAGS * WORD) <= FLAGS_MAX
                && word(context + RECORDS * WORD) == VECTORS
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
            stack[at + 54] = end + 8 * at as u64;
            stack[at + 58] = VECTORS;
            core::hint::black_box(&stack);
            assert_eq!(between(first, end), Some((first + 8 * at as u64, end + 8 * at as u64)));
        }
        assert_eq!(between(first + 8 * 101, end), Some((first + 8 * 400, end + 8 * 400)));
        assert_eq!(between(first + 8 * 401, end), None);
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
            stack[at + 54] = interrupted;
            core::hint::black_box(&stack);
            assert_eq!(stack_pointer(first + 8 * 50, first, end), Some(interrupted));
        }
        assert_eq!(stack_pointer(first + 8 * 401, first, end), None, "below the stack pointer");
        stack[454] = first + 8;
        core::hint::black_box(&stack);
        assert_eq!(stack_pointer(first, first, end), None, "on the stack itself");
    }
}
