//! The slow path in a process that times calls instead of recording them, in place of its hooks.

use crate::state::places::Place;
use crate::state::times::{self, Sums};
use crate::state::{dropped, memory, times::offset_of_place};
use crate::threads::short_calls;
use crate::threads::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;

impl Thread<'_> {
    /// A call has begun. `is_there`: it is the innermost one in the open-call stack.
    pub(crate) fn time_entry(&self, place: Place, is_there: bool) {
        let code = match place {
            Place::Offset(code) => Some(code),
            Place::Unknown(_) => None,
        };
        let (place, is_new) = dropped::place_of(self.process, code);
        let offset = offset_of_place(place);
        let sums = Sums::of(self.control, offset);
        sums.count();
        if is_there && let Some(entry) = self.open.stamp_innermost(offset) {
            times::callees_of(entry).store(0, Relaxed);
            let outermost = sums.outermost().load(Relaxed).wrapping_sub(times::callees());
            if !code.is_some_and(|code| self.open.is_open(outermost, code)) {
                sums.outermost().store(entry.wrapping_add(times::callees()), Relaxed);
            }
        }
        if is_new {
            short_calls::add_place_to_dumps(self.process, place);
            // Most threads set their name soon after they start.
            self.look_at_name();
        }
    }

    /// The innermost call in the open-call stack ends at `ticks`. It is still there.
    pub(crate) fn time_end(&self, ticks: u64) {
        let Some((entry, call)) = self.open.innermost_timed() else { return };
        let took = ticks.saturating_sub(call.ticks);
        let sums = Sums::of(self.control, call.stamp);
        memory::close(sums, Sums::of(self.control, 0), call.stamp);
        let is_outermost = sums.outermost().load(Relaxed) == entry.wrapping_add(times::callees());
        sums.end(took, times::callees_of(entry).load(Relaxed), is_outermost);
        times::callees_of(self.open.below(entry)).fetch_add(took, Relaxed);
    }
}
