//! Records an event with its values as hooks do: without a system call of the runtime's own and
//! without the slow path, on the thread's own stack, with signals as they are.
//!
//! The conditions are those of a hook's fast path, and there must be room on the stack. Otherwise
//! nothing is done here. The ring's position is read first and exchanged last, so a signal handler
//! that has written anything in between makes the exchange fail: what is checked here still holds.
#![allow(unsafe_code)] // Called by hooks; the ring's slots and the open-call stack, by their addresses.

use crate::state::captures::{Captures, Found, HEAD_WORDS, IN_WORD};
use crate::state::process;
use crate::state::value_counts::ValueCounts;
use crate::threads::values::Call;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};
use everycall_capture::Outcome;
use everycall_format::arena::{OpenCall, counter, met_bits};
use everycall_format::capture::REMEMBERED;
use everycall_format::event::{EXIT, WORD_SIZE, call_word, kind, payload_word, record_word, values};
use everycall_hooks::{COPY_ROOM, ModuleDescriptor, add_own, exchange_own};
use everycall_ring::{Control, state};

/// Bytes of an open call.
const CALL: u64 = size_of::<OpenCall>() as u64;

/// The work that is left. Hooks know these numbers.
mod outcome {
    /// Nothing.
    pub const DONE: u32 = 0;
    /// Nothing was done: the slow path has to.
    pub const NOT_DONE: u32 = 1;
    /// The slow path has to count the call.
    pub const COUNT: u32 = 2;
}

/// See [`ModuleDescriptor::capture`].
///
/// # Safety
/// For capture hooks only: `control` is the block of the stack that the thread runs, and `hook` the
/// stack pointer of the hook, which has saved the registers.
pub(crate) unsafe extern "C" fn record(
    control: *const Control,
    behind: u64,
    hook: u64,
    module: *const ModuleDescriptor,
    is_exit: u32,
) -> u32 {
    // SAFETY: by contract.
    let (control, module) = unsafe { (&*control, &*module) };
    let event = Event { control, module, behind, hook };
    // SAFETY: by contract.
    unsafe { event.record(is_exit != 0) }.unwrap_or(outcome::NOT_DONE)
}

struct Event<'a> {
    control: &'a Control,
    module: &'a ModuleDescriptor,
    behind: u64,
    hook: u64,
}

impl Event<'_> {
    /// # Safety
    /// As [`record`].
    unsafe fn record(&self, is_exit: bool) -> Option<u32> {
        let control = self.control;
        if control.state.load(Relaxed) != state::ACTIVE || control.end.load(Relaxed) == 0 {
            return None;
        }
        let Found { program, is_conditional } = Captures::of(self.module)?.look_up(self.behind, is_exit)?;
        let process = process::traced()?;
        if is_exit && is_conditional && self.was_left_out()? {
            return Some(outcome::DONE);
        }
        let mut bytes = [0; COPY_ROOM];
        let (mut length, mut id, mut met) = (0, 0, 0);
        if let Some(program) = program {
            if program.output_max() > COPY_ROOM {
                return None;
            }
            // SAFETY: by contract.
            let call = unsafe { Call::new(process, control, self.hook) };
            id = program.id();
            let (outcome, conditions) = program.judge(&call, &mut bytes);
            met = conditions;
            match outcome {
                // A trigger may want the call now.
                _ if met >> REMEMBERED != 0 => return None,
                Outcome::Captured(written) if is_conditional && !is_exit => {
                    if let Some(counts) = ValueCounts::of(process.arena()) {
                        let values = bytes.get(..written)?;
                        return self.leave_out(|| counts.count(id, values));
                    }
                    length = written;
                }
                Outcome::Captured(written) => length = written,
                Outcome::Rejected if is_exit => {}
                Outcome::Rejected => {
                    return self.leave_out(|| process.arena().count(counter::CALLS_LEFT_OUT, 1));
                }
                Outcome::NoSpace => return None,
            }
        }
        let bytes = bytes.get(..length)?;
        let words = if length == 0 { 0 } else { HEAD_WORDS + length.div_ceil(IN_WORD) };

        let slot = control.position.load(Relaxed);
        let after = slot.wrapping_add(((words + 1) * WORD_SIZE) as u64);
        let ticks = everycall_hooks::ticks();
        let top = control.open_top.load(Relaxed);
        let innermost = top.wrapping_sub(CALL);
        let has_room = after > slot && after <= control.end.load(Relaxed);
        if !has_room
            || (ticks >> 32) as u32 != control.ticks_high.load(Relaxed)
            || control.resumed.load(Relaxed) != 0
            || control.deep.load(Relaxed) != 0
            || !self.is_right_call(is_exit, innermost, ticks)
            || !exchange_own(&control.position, slot, after)
        {
            return None;
        }
        // The next event must not have an earlier time.
        control.stamp_due.store(0, Relaxed);
        if words > 0 {
            add_own(&control.other_words, words as u64);
        }
        let event_slot = slot.wrapping_add((words * WORD_SIZE) as u64);
        if is_exit {
            put_values(slot, ticks, values::RESULT, id, bytes);
            let low = (self.behind as u32).wrapping_sub(self.module.bias_exit.load(Relaxed));
            word_at(event_slot).store(call_word(ticks, low | EXIT), Release);
            word_at(innermost + offset_of!(OpenCall, word) as u64).store(0, Release);
            add_own(&control.open_top, CALL.wrapping_neg());
            return Some(outcome::DONE);
        }
        let low = (self.behind as u32).wrapping_sub(self.module.bias_entry.load(Relaxed));
        let pointer = word_at(top + offset_of!(OpenCall, stack_pointer) as u64);
        pointer.store(self.hook, Relaxed);
        add_own(&control.open_top, CALL);
        // A signal handler in between may have written its own there.
        pointer.store(self.hook, Relaxed);
        // The stamp beside it is 0.
        let high = ticks >> 32 | u64::from(met_bits(met));
        word_at(top + offset_of!(OpenCall, ticks_high) as u64).store(high, Relaxed);
        word_at(top + offset_of!(OpenCall, word) as u64).store(call_word(ticks, low), Release);
        put_values(slot, ticks, values::ARGUMENTS, id, bytes);
        word_at(event_slot).store(call_word(ticks, low), Release);
        Some(self.count())
    }

    /// Leaves out a call, whose condition is false or which is only counted: nothing is written, if
    /// no call is dead.
    fn leave_out(&self, count: impl FnOnce()) -> Option<u32> {
        if !self.is_within()? {
            return None;
        }
        count();
        Some(outcome::DONE)
    }

    /// Whether the call that ends was left out. `None`: the slow path decides.
    fn was_left_out(&self) -> Option<bool> {
        let is_within = self.is_within()?;
        let innermost = self.control.open_top.load(Relaxed).wrapping_sub(CALL);
        let pointer = word_at(innermost + offset_of!(OpenCall, stack_pointer) as u64).load(Relaxed);
        (is_within || pointer == self.hook).then_some(is_within)
    }

    /// Whether the call lies inside the innermost open call, so that it isn't open itself, and no
    /// call is dead. `None` where that can't be told here.
    fn is_within(&self) -> Option<bool> {
        let control = self.control;
        if control.resumed.load(Relaxed) != 0 || control.deep.load(Relaxed) != 0 {
            return None;
        }
        let innermost = control.open_top.load(Relaxed).wrapping_sub(CALL);
        let pointer = word_at(innermost + offset_of!(OpenCall, stack_pointer) as u64).load(Relaxed);
        Some(pointer > self.hook)
    }

    /// Whether the open-call stack is as hooks expect it: at an entry, no call is dead; at an exit,
    /// it is that of the innermost call, which didn't take long.
    fn is_right_call(&self, is_exit: bool, innermost: u64, ticks: u64) -> bool {
        let pointer = word_at(innermost + offset_of!(OpenCall, stack_pointer) as u64).load(Relaxed);
        if !is_exit {
            return pointer > self.hook;
        }
        let word = word_at(innermost + offset_of!(OpenCall, word) as u64).load(Relaxed);
        let took = (ticks as u32).wrapping_sub((word >> 32) as u32);
        pointer == self.hook && took < self.control.floor.load(Relaxed)
    }

    /// Counts a call, as entry hooks do: the address of the counts is read first, because it is
    /// wiped in a forked child, as the places are.
    fn count(&self) -> u32 {
        let counts = self.control.counts.load(Relaxed);
        let places = self.module.recorded_places.load(Relaxed);
        if places == 0 {
            return outcome::DONE;
        }
        // SAFETY: in the module's table, which has a word for each hook's call.
        let place = unsafe { (places.wrapping_add(self.behind) as *const u32).read_unaligned() };
        if place == 0 {
            return outcome::COUNT;
        }
        add_own(word_at(counts + u64::from(place)), 1);
        outcome::DONE
    }
}

/// Writes the record before an event's word, its first word last: without that, the others are no
/// record.
fn put_values(slot: u64, ticks: u64, detail: u8, id: u32, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let put = |index: usize, payload: u32| {
        let word = payload_word(payload, kind::VALUES, index as u8);
        word_at(slot + (index * WORD_SIZE) as u64).store(word, Relaxed);
    };
    put(1, id);
    put(2, bytes.len() as u32);
    let (whole, rest) = bytes.as_chunks::<IN_WORD>();
    let mut index = HEAD_WORDS;
    for part in whole {
        put(index, u32::from_le_bytes(*part));
        index += 1;
    }
    if !rest.is_empty() {
        let low = |(at, byte): (usize, &u8)| u32::from(*byte) << (8 * at);
        put(index, rest.iter().enumerate().map(low).fold(0, |all, byte| all | byte));
        index += 1;
    }
    word_at(slot).store(record_word(ticks, kind::VALUES, (index - 1) as u8, detail), Release);
}

fn word_at(address: u64) -> &'static AtomicU64 {
    // SAFETY: a slot that is reserved, a word of the open-call stack, or of the thread's counts,
    // all of which are never unmapped.
    unsafe { &*(address as *const AtomicU64) }
}
