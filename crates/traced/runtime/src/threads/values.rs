//! Values of calls: arguments and results, copied at the event and written before its word.
#![allow(unsafe_code)] // Registers that hooks have saved, and the calling thread's own stack.

use crate::state::captures::{Captures, FoundAll, HEAD_WORDS, IN_WORD};
use crate::state::constants;
use crate::state::last_error;
use crate::state::process::Process;
use crate::state::value_counts::ValueCounts;
use crate::sys::{filter, system};
use crate::threads::stacks;
use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use everycall_capture::{Machine, Outcome};
use everycall_format::arena::counter;
use everycall_format::capture::{ERRNO, OUTPUT_MAX, register};
use everycall_hooks::arch::floating;
use everycall_hooks::arch::frame::HOOK_BELOW;
use everycall_hooks::arch::jump::Registers;
use everycall_hooks::{ModuleDescriptor, slow};
use everycall_ring::Control;

/// Values of one event.
pub(crate) struct Values {
    pub(super) id: u32,
    pub(super) is_exit: bool,
    length: usize,
    bytes: [u8; OUTPUT_MAX],
}

/// The answer of a function's program about an event.
#[derive(Clone, Copy, Default)]
pub(crate) struct Verdict {
    /// The conditions of triggers that the event meets, a bit for each.
    pub(crate) met: u32,
    /// The call is left out: its condition is false, or it is only counted.
    pub(crate) is_rejected: bool,
    /// The call is counted by its values.
    pub(crate) is_counted: bool,
    /// The function's calls may be left out, so the entry of the call that ends may be missing.
    pub(crate) is_conditional: bool,
}

impl Values {
    /// Room for values.
    pub(crate) const fn none() -> Values {
        Values { id: 0, is_exit: false, length: 0, bytes: [0; OUTPUT_MAX] }
    }

    /// Copies what is wanted of an event. `what`: a set of the flags in [`slow`]; `behind`: the
    /// address behind the call of the hook.
    ///
    /// # Safety
    /// `hook` is the stack pointer of a hook that is in the slow path, and `control` the control
    /// block of the stack that it runs on.
    pub(crate) unsafe fn copy(
        &mut self,
        process: &Process,
        control: &Control,
        module: &ModuleDescriptor,
        what: u32,
        behind: u64,
        hook: u64,
    ) -> Verdict {
        let nothing = Verdict::default();
        if what & (slow::BODY | slow::FRAME | slow::COUNT) != 0 {
            return nothing;
        }
        let is_exit = what & slow::EXIT != 0;
        let Some(captures) = Captures::of(module) else { return nothing };
        let Some(FoundAll { programs, is_conditional }) = captures.look_up_all(behind, is_exit) else {
            return nothing;
        };
        let mut verdict = Verdict { is_conditional, ..nothing };
        if programs.is_empty() {
            return verdict;
        }
        stacks::look_for_room(control, hook);
        // SAFETY: by contract.
        let call = unsafe { Call::new(process, control, hook) };
        let mut is_rejected = is_conditional && !is_exit;
        // The values of the first one stay that copies any.
        for program in programs.iter().rev() {
            let (outcome, met) = program.judge(&call, &mut self.bytes);
            verdict.met |= met;
            is_rejected &= outcome == Outcome::Rejected;
            match outcome {
                Outcome::Captured(0) | Outcome::Rejected => {}
                Outcome::Captured(length) => {
                    (self.id, self.is_exit, self.length) = (program.id(), is_exit, length);
                }
                Outcome::NoSpace => {
                    self.length = 0;
                    process.arena().count(counter::VALUES_LOST, 1);
                }
            }
        }
        let counts = is_conditional && !is_exit && !is_rejected;
        let is_counted = counts && ValueCounts::of(process.arena()).is_some();
        Verdict { is_rejected: is_rejected || is_counted, is_counted, ..verdict }
    }

    /// Counts a call by them.
    pub(crate) fn count(&self, counts: ValueCounts) {
        counts.count(self.id, self.bytes());
    }

    /// Whether there are any.
    pub(crate) fn are_any(&self) -> bool {
        self.length > 0
    }

    /// The capture.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// Words that they take in the ring.
    pub(super) fn words(&self) -> usize {
        HEAD_WORDS + self.length.div_ceil(IN_WORD)
    }
}

/// The traced call, as programs see it.
pub(crate) struct Call<'a> {
    process: &'a Process,
    /// The stack pointer of the hook, which has saved the registers.
    hook: u64,
    /// The part of the stack that can be read directly.
    stack: Range<u64>,
    /// Whether the kernel may be asked to read; not known before the first time.
    may_ask: Cell<Option<bool>>,
}

impl<'a> Call<'a> {
    /// # Safety
    /// `hook` is the stack pointer of a hook that has saved all registers, and `control` the
    /// control block of the stack that it runs on.
    pub(crate) unsafe fn new(process: &'a Process, control: &Control, hook: u64) -> Call<'a> {
        let stack = stacks::certain(control, hook + HOOK_BELOW);
        Call { process, hook, stack, may_ask: Cell::new(None) }
    }

    fn may_ask(&self) -> bool {
        self.may_ask.get().unwrap_or_else(|| {
            let may_ask = !filter::has_come();
            self.may_ask.set(Some(may_ask));
            may_ask
        })
    }
}

impl Machine for Call<'_> {
    fn register(&self, number: u32) -> Option<u64> {
        let half = |first: u32, half: usize| {
            // SAFETY: by contract of `new`.
            let vectors = unsafe { Registers::vectors(self.hook) };
            vectors.get((number - first) as usize).and_then(|halves| halves.get(half)).copied()
        };
        if number < register::GENERAL_COUNT {
            // SAFETY: by contract of `new`.
            unsafe { Registers::by_dwarf(self.hook, number) }
        } else if (register::VECTOR..register::VECTOR_UPPER).contains(&number) {
            half(register::VECTOR, 0)
        } else if (register::VECTOR_UPPER..register::FLOATING).contains(&number) {
            half(register::VECTOR_UPPER, 1)
        } else if (register::FLOATING..register::END).contains(&number) {
            floating::top_two().get((number - register::FLOATING) as usize).copied()
        } else if number == ERRNO {
            last_error::of_this_thread().map(u64::from)
        } else {
            None
        }
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let end = address.checked_add(into.len() as u64);
        let is_own = address >= self.stack.start && end.is_some_and(|end| end <= self.stack.end);
        if is_own || constants::are_readable(address, into.len()) {
            // SAFETY: the part of the thread's own stack that is in use, where others may write:
            // any bytes will do. Or constants of the program, which stay.
            unsafe { core::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len()) };
            return into.len();
        }
        if !self.may_ask() {
            return 0;
        }
        let read = system::read_own(self.process.pid.load(Relaxed), address, into);
        if read == into.len() {
            constants::were_read(address, read);
        }
        read
    }
}
