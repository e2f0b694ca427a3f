//! Stacks of open calls.

use everycall_format::Wire;
use everycall_format::arena::OpenCall;

use crate::memory::arena::Arena;

/// Bytes of open-call stacks that were read. Each stack belongs to one thread. If several threads
/// name the same one, it was overwritten, and the amount that is read must stay bounded.
#[derive(Debug, Default)]
pub(crate) struct OpenCallBudget {
    bytes: u64,
}

impl Arena {
    /// The open calls of a thread, outermost first; empty if more than the arena's size was read by
    /// `budget`.
    pub(crate) fn open_calls_within(&self, slot: u32, budget: &mut OpenCallBudget) -> Vec<OpenCall> {
        let calls = self.open_calls(slot);
        let bytes = (calls.len() * OpenCall::SIZE) as u64;
        if bytes > 0 && budget.bytes.saturating_add(bytes) > self.allocated() {
            return Vec::new();
        }
        budget.bytes = budget.bytes.saturating_add(bytes);
        calls
    }

    /// The open calls of a thread, outermost first.
    #[must_use]
    pub fn open_calls(&self, slot: u32) -> Vec<OpenCall> {
        const STEP: u64 = 128;
        let stack = self.thread(slot).open_calls.wrapping_sub(1);
        if stack >= self.layout().thread_capacity {
            return Vec::new();
        }
        let first = self.layout().open_calls_at(stack);
        let capacity = u64::from(self.layout().open_call_capacity);
        let mut calls = Vec::new();
        let mut bytes = vec![0; STEP as usize * OpenCall::SIZE];
        // Slot 0 is a sentinel.
        let mut index = 1;
        while index < capacity {
            let count = STEP.min(capacity - index) as usize;
            let bytes = &mut bytes[..count * OpenCall::SIZE];
            self.read_bytes(first + index * OpenCall::SIZE as u64, bytes);
            for call in bytes.chunks_exact(OpenCall::SIZE).filter_map(OpenCall::read) {
                if call.word == 0 {
                    return calls;
                }
                calls.push(call);
            }
            index += count as u64;
        }
        calls
    }
}
