//! A thread, as the slow path sees it: its context with its slot, ring and open calls.

use crate::state::arena::Slot;
use crate::state::cancelled;
use crate::state::process::Process;
use crate::sys::system;
use crate::threads::open_calls::{Frame, OpenCalls};
use crate::threads::stacks;
use crate::threads::values::Values;
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::Word;
use everycall_ring::{Control, Ring};

/// Value of [`Control::resumed`] if the runtime didn't see the switch away from the stack.
pub(crate) const UNSEEN: u64 = 1;

/// From one look at a thread's name to the next one: about 10 ms.
const NAMED_TICKS: u64 = 1 << 25;

/// The calling thread, with signals blocked.
pub(crate) struct Thread<'a> {
    pub(crate) process: &'static Process,
    pub(crate) control: &'a Control,
    pub(crate) slot: Slot,
    pub(crate) ring: Ring<'a>,
    pub(crate) open: OpenCalls<'a>,
    /// Values of the event that is recorded.
    pub(crate) values: Cell<Option<&'a Values>>,
    /// The conditions that the event meets, a bit for each.
    pub(crate) met: Cell<u32>,
}

impl<'a> Thread<'a> {
    pub(crate) fn new(process: &'static Process, control: &'a Control) -> Thread<'a> {
        let slot = process.arena().slot(control.slot.load(Relaxed));
        let ring = process.arena().ring(control, &slot);
        let values = Cell::new(None);
        Thread { process, control, slot, ring, open: OpenCalls::new(control), values, met: Cell::new(0) }
    }

    /// Whether the program has announced that the thread ends, or has cancelled it.
    pub(crate) fn has_ended(&self) -> bool {
        self.control.ending.load(Relaxed) != 0 || self.is_cancelled()
    }

    /// Whether another thread has cancelled it. It may then end at any call.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.control.thread.load(Relaxed) & cancelled::CANCELLED != 0
    }

    /// Whether a call at this hook resumes a stack in whose memory another, unregistered stack may
    /// have begun.
    pub(crate) fn is_maybe_another(&self, hook: Frame) -> bool {
        self.control.resumed.load(Relaxed) != 0
            && stacks::is_untold(self.process, self.control, hook.stack_pointer())
    }

    /// Reads the thread's name again, except on a fiber, which has a name of its own.
    pub(crate) fn look_at_name(&self) {
        if self.control.fiber.load(Relaxed) == 0 {
            self.slot.set_name(system::thread_name());
        }
    }

    /// Reads the thread's name again when a segment is full, which may be thousands of times a
    /// second: only as often as it matters.
    pub(crate) fn look_at_name_now_and_then(&self) {
        let now = everycall_hooks::ticks();
        if now.wrapping_sub(self.control.named.load(Relaxed)) >= NAMED_TICKS {
            self.control.named.store(now, Relaxed);
            self.look_at_name();
        }
    }

    /// The time of the last event in the current segment, or `now` if the segment has none.
    pub(crate) fn last_ticks(&self, now: u64) -> u64 {
        let low =
            self.ring.current().1.iter().rev().find_map(|word| match Word::decode(word.load(Relaxed)) {
                Word::Entry { ticks_low, .. } | Word::Exit { ticks_low, .. } => Some(ticks_low),
                _ => None,
            });
        low.map_or(now, |low| now - u64::from((now as u32).wrapping_sub(low)))
    }
}
