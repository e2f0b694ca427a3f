//! Removes stacks that have ended, or that have to make room for others.

use crate::state::local::{live, local};
use crate::state::process::Process;
use crate::state::ranges::{Range, TAKEN_AT_ONCE, flags};
use crate::sys::system;
use crate::threads::nested;
use crate::threads::stacks::{self, Bounds, bounds};
use crate::threads::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::unwound;
use everycall_ring::{Control, running};

/// The pause between two searches for unused fibers is this many times as long as the first search
/// took.
const IDLE_PAUSE: u64 = 4;

/// The stack in the table that contains a stack pointer. Removes nested stacks whose function has
/// returned.
pub(crate) fn known(process: &'static Process, pointer: u64, home: Option<&Control>) -> Option<Range> {
    loop {
        let range = process.stacks.find(pointer)?;
        if !forget_if_over(process, &range, home) {
            return Some(range);
        }
    }
}

/// The smallest stack in the table that contains a stack pointer and hasn't ended. (If a nested
/// stack has ended, its memory belongs to the outer one again.) Removes nothing.
pub(crate) fn there(process: &'static Process, pointer: u64) -> Option<Range> {
    let home = live(local().home);
    let around = |range: &Range| process.stacks.find_around(range.low, range.high);
    core::iter::successors(process.stacks.find(pointer), around)
        .find(|range| !nested::is_over(process, range, home))
}

/// Removes a stack in a local variable if its function has returned, together with all stacks
/// within it. Returns whether it did.
pub(crate) fn forget_if_over(process: &'static Process, range: &Range, home: Option<&Control>) -> bool {
    let is_over = nested::is_over(process, range, home);
    if is_over {
        let (low, high) = (range.low, range.high);
        retire(process, low, high, unwound::NOTICED, |other| other.is_within(low, high));
    }
    is_over
}

/// Removes the stacks in this memory that `is_meant` accepts, and ends their contexts. `how`: one
/// of [`unwound`].
pub(crate) fn retire(
    process: &'static Process,
    low: u64,
    high: u64,
    how: u8,
    is_meant: impl Fn(&Range) -> bool,
) {
    let next = || {
        let table = process.stacks.lock();
        let range = table.overlapping(low, high, &is_meant)?;
        table.remove(&range);
        Some(range)
    };
    while let Some(range) = next() {
        end(process, &range, how);
    }
}

/// Ends the context of a range that was removed from the table: its open calls were unwound. `how`:
/// one of [`unwound`].
pub(crate) fn end(process: &'static Process, range: &Range, how: u8) {
    if let Some(slot) = range.slot.checked_sub(1) {
        let control = process.control(slot);
        stacks::forget(control);
        Thread::new(process, control).leave_all(how);
        process.retired.end(process, slot);
    }
}

/// Ends fibers whose memory is unmapped. If there are none, ends fibers that have no open call and
/// aren't running; if one of these runs again, it gets a new context. Returns whether any was
/// ended. The search checks all fibers, so it runs only for a small part of the time.
pub(crate) fn retire_idle(process: &'static Process) -> bool {
    let begin = everycall_hooks::ticks();
    if process.idle_look_due.load(Relaxed) > begin {
        return false;
    }
    let is_idle = |range: &Range| {
        let Some(slot) = range.slot.checked_sub(1) else { return false };
        let control = process.control(slot);
        control.runner.load(Relaxed) < running(0)
            && stacks::innermost(control).is_none()
            && control.deep.load(Relaxed) == 0
    };
    let were_some =
        retire_all(process, |range| !system::is_readable(range.high - 8, 8)) || retire_all(process, is_idle);
    let now = everycall_hooks::ticks();
    let pause = now.saturating_sub(begin).saturating_mul(IDLE_PAUSE);
    process.idle_look_due.store(now.saturating_add(pause), Relaxed);
    were_some
}

/// As [`retire`], for stacks anywhere. Returns whether any was removed.
pub(crate) fn retire_all(process: &'static Process, is_meant: impl Fn(&Range) -> bool) -> bool {
    let (mut from, mut were_some) = (Some(0), false);
    while let Some(begin) = from {
        let mut taken = [Range::default(); TAKEN_AT_ONCE];
        let count;
        (count, from) = process.stacks.lock().take_some(begin, &mut taken, &is_meant);
        for range in taken.iter().take(count) {
            end(process, range, unwound::NOTICED);
        }
        were_some |= count > 0;
    }
    were_some
}

/// Corrects guessed bounds of other stacks that overlap this stack: a stack in use below or above
/// it keeps only the part outside.
pub(crate) fn trim(process: &'static Process, low: u64, high: u64) {
    let kept = |range: &Range| {
        let control = process.control(range.slot.checked_sub(1)?);
        let innermost = stacks::innermost(control);
        let is_below = range.low < low && range.high - low <= stacks::ABOVE;
        let is_above = range.high > high && innermost.is_none_or(|innermost| innermost >= high);
        let (from, to) = (if is_above { high } else { range.low }, if is_below { low } else { range.high });
        (is_below != is_above).then_some((control, from, to))
    };
    let is_meant = |range: &Range| range.flags & flags::GUESSED != 0 && kept(range).is_some();
    loop {
        let table = process.stacks.lock();
        let Some(range) = table.overlapping(low, high, is_meant) else { return };
        let Some((control, from, to)) = kept(&range) else { return };
        table.remove(&range);
        table.insert(&Range { low: from, high: to, ..range });
        drop(table);
        stacks::set(process, control, Bounds { low: from, high: to, how: bounds::GUESSED });
    }
}
