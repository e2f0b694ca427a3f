//! Open calls beyond the open-call stack: where their stack pointers are and which functions they
//! are of, so that those that are left can be told from those that go on. They stay in memory of
//! the process's own, which is mapped when a stack has the first of them; no hook and no reader
//! knows of it.
#![allow(unsafe_code)] // Memory that is mapped here.

use crate::sys::system;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_ring::Control;

/// What is kept of a call.
#[repr(C)]
struct DeepCall {
    stack_pointer: AtomicU64,
    /// As the low half of its entry's word has it.
    function: AtomicU32,
    unused: u32,
}

/// Calls that are kept. Readers show 2^19 levels.
const CAPACITY: u32 = 1 << 19;
const SIZE: u64 = CAPACITY as u64 * size_of::<DeepCall>() as u64;
/// [`Control::deep_base`] where the system has refused the memory.
const REFUSED: u64 = 1;

/// The deep calls of a stack, which the calling thread runs.
#[derive(Clone, Copy)]
pub(crate) struct DeepCalls<'a> {
    control: &'a Control,
}

impl<'a> DeepCalls<'a> {
    pub(crate) fn of(control: &'a Control) -> DeepCalls<'a> {
        DeepCalls { control }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.control.deep.load(Relaxed)
    }

    /// Of so many, the innermost ones, nothing else is known.
    pub(crate) fn unknown(&self) -> u32 {
        self.count() - self.known()
    }

    /// How many are known, the outermost ones.
    fn known(&self) -> u32 {
        if self.control.deep_base.load(Relaxed) > REFUSED { self.count().min(CAPACITY) } else { 0 }
    }

    fn call(&self, place: u32) -> &'a DeepCall {
        let address = self.control.deep_base.load(Relaxed) + u64::from(place) * size_of::<DeepCall>() as u64;
        // SAFETY: callers pass places of calls that are known, which are in the mapping.
        unsafe { &*(address as *const DeepCall) }
    }

    /// Opens one.
    pub(crate) fn push(&self, function: u32, stack_pointer: u64) {
        let place = self.count();
        self.control.deep.store(place.saturating_add(1), Relaxed);
        if place < CAPACITY && self.are_there() {
            let call = self.call(place);
            call.stack_pointer.store(stack_pointer, Relaxed);
            call.function.store(function, Relaxed);
        }
    }

    /// Whether there is memory for them.
    fn are_there(&self) -> bool {
        let base = &self.control.deep_base;
        if base.load(Relaxed) == 0 {
            let flags = system::MAP_PRIVATE | system::MAP_ANONYMOUS | system::MAP_NORESERVE;
            let memory = system::map(SIZE, system::PROT_READ | system::PROT_WRITE, flags, -1);
            if let Some(memory) = memory {
                // A child's stacks begin anew.
                let _ = system::advise(memory, SIZE, system::MADV_DONTFORK);
            }
            base.store(memory.map_or(REFUSED, |memory| memory as u64), Relaxed);
        }
        base.load(Relaxed) > REFUSED
    }

    /// Gives the memory back.
    pub(crate) fn give_back(&self) {
        self.control.deep.store(0, Relaxed);
        let base = self.control.deep_base.swap(0, Relaxed);
        if base > REFUSED {
            system::unmap(base as *mut u8, SIZE);
        }
    }

    /// Stack pointers and functions of those that are known, innermost first.
    pub(crate) fn innermost(self) -> impl Iterator<Item = (u64, u32)> + use<'a> {
        (0..self.known()).rev().map(move |place| {
            let call = self.call(place);
            (call.stack_pointer.load(Relaxed), call.function.load(Relaxed))
        })
    }

    /// Removes so many, the innermost ones. How many there were.
    pub(crate) fn remove(&self, count: u32) -> u32 {
        let removed = self.count().min(count);
        self.control.deep.store(self.count() - removed, Relaxed);
        removed
    }

    /// Removes those that are gone, by their stack pointers; of those that aren't known, none or
    /// all. Whether there are none now, or none that is known.
    pub(crate) fn remove_gone(&self, is_gone: impl Fn(u64) -> bool) -> bool {
        let gone = self.innermost().take_while(|(pointer, _)| is_gone(*pointer)).count() as u32;
        let known = self.known();
        if gone > 0 {
            self.control.deep.store(known - gone, Relaxed);
        }
        gone == known
    }
}
