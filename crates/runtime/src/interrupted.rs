//! Which stack a signal interrupted whose handler runs on the alternate one: the thread may have come to another stack since its
//! last event, and the handler's calls belong to that one.
//!
//! The kernel puts what it interrupted at the top of the alternate stack, a `ucontext_t`. It holds the bounds of the
//! alternate stack, and is found by them.

/// A `ucontext_t`, in 64-bit words: which one has the first address of the alternate stack.
const STACK_FIRST: u64 = 2;
/// The size of the alternate stack.
const STACK_SIZE: u64 = 4;
/// The stack pointer: behind eight words of the general registers' and seven of others.
const STACK_POINTER: u64 = 20;
const WORD: u64 = 8;

/// The stack pointer at which the calling thread, whose stack pointer lies on its alternate stack `first..end`, was interrupted. `None` where nothing
/// like it is there: somebody else may have put a thread onto this stack.
pub(crate) fn stack_pointer(pointer: u64, first: u64, end: u64) -> Option<u64> {
    if !(first..end).contains(&pointer) {
        return None;
    }
    // SAFETY: between the stack pointer and the end of the stack that the thread runs on, all memory can be read.
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

#[cfg(test)]
mod tests {
    use super::*;

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
