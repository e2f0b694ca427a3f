//! Threads of the runtime's own, which write files, listen to other processes, or keep the budget.
//!
//! A thread is better than a process here: a process would be a zombie until it is waited for, and
//! it would become a child of the program if that is the first process of its container or adopts
//! orphans. The thread:
//!
//! - has all signals blocked;
//! - has none of the program's descriptors, but an empty table of its own;
//! - isn't in the program's scheduling class;
//! - needs no thread-local storage and nothing of the C library.
#![allow(unsafe_code)] // A thread on a stack that is mapped here.

use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::PAGE;

/// Bytes of a stack.
const STACK_SIZE: u64 = 128 << 10;
/// `clone` flags: the thread shares everything except the descriptor table, and the kernel clears a
/// word when the thread is gone.
const FLAGS: usize = 0x100 | 0x200 | 0x800 | 0x1_0000 | 0x4_0000 | 0x20_0000;

/// The upper end of a stack for one helper at a time, 0 if there is none, or [`MAPPING`].
pub(crate) struct Stack(AtomicU64);

/// In place of a stack's end while a thread maps it.
const MAPPING: u64 = 1;

impl Stack {
    pub(crate) const fn new() -> Stack {
        Stack(AtomicU64::new(0))
    }

    /// Maps the stack. Returns false if there is no memory.
    pub(crate) fn map(&self) -> bool {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let Some(stack) = system::map(STACK_SIZE + PAGE, PROT_READ | PROT_WRITE, flags, -1) else {
            return false;
        };
        // The guard page below the stack must not be accessible.
        let _ = system::protect(stack as u64, PAGE, 0);
        self.0.store(stack as u64 + PAGE + STACK_SIZE, Relaxed);
        true
    }
}

impl Stack {
    /// Maps the stack if there is none yet. `Busy`: another thread is about to, and starts the
    /// helper.
    pub(crate) fn prepare(&self) -> Started {
        match self.0.compare_exchange(0, MAPPING, Relaxed, Relaxed) {
            Err(MAPPING) => Started::Busy,
            Err(_) => Started::Yes,
            Ok(_) if self.map() => Started::Yes,
            Ok(_) => {
                self.0.store(0, Relaxed);
                Started::Failed
            }
        }
    }

    /// In a forked child: the thread that was mapping it is the parent's.
    pub(crate) fn forget_unfinished(&self) {
        let _ = self.0.compare_exchange(MAPPING, 0, Relaxed, Relaxed);
    }
}

/// The result of starting a helper, or of making it ready.
pub(crate) enum Started {
    Yes,
    /// Another helper uses the stack.
    Busy,
    Failed,
}

/// Starts a helper that runs `entry`, unless one already runs on this stack: then `running` isn't
/// 0. The kernel clears `running` when the helper is gone. The caller has all signals blocked, and
/// the helper inherits that.
pub(crate) fn start(
    stack: &Stack,
    running: &AtomicU32,
    entry: unsafe extern "C" fn(u64),
    argument: u64,
) -> Started {
    let top = stack.0.load(Relaxed);
    if top <= MAPPING {
        return Started::Failed;
    }
    if running.compare_exchange(0, u32::MAX, AcqRel, Relaxed).is_err() {
        return Started::Busy;
    }
    // SAFETY: the stack belongs to the caller, which has set `running`.
    if unsafe { everycall_hooks::spawn(FLAGS, top, running.as_ptr(), entry, argument) } < 0 {
        running.store(0, Release);
        return Started::Failed;
    }
    Started::Yes
}

/// The first thing that a helper calls.
pub(crate) fn begin() {
    system::close_all();
    system::be_ordinary();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_mapped_once_and_waited_for_by_nobody() {
        let stack = Stack::new();
        // Another thread is about to map it.
        stack.0.store(MAPPING, Relaxed);
        assert!(matches!(stack.prepare(), Started::Busy));
        // A child of that moment has no such thread.
        stack.forget_unfinished();
        assert!(matches!(stack.prepare(), Started::Yes));
        let top = stack.0.load(Relaxed);
        assert!(top > MAPPING && matches!(stack.prepare(), Started::Yes));
        stack.forget_unfinished();
        assert_eq!(stack.0.load(Relaxed), top);
    }
}
