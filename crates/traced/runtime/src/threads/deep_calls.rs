//! Open calls beyond the open-call stack's capacity. Their stack pointers and functions are stored,
//! so that the runtime can distinguish unwound calls from open ones. The memory is private, and
//! mapped when a stack has its first such call. Hooks and readers don't access it.
#![allow(unsafe_code)] // Memory that is mapped here.

use crate::sys::system;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_ring::Control;

/// A stored call.
#[repr(C)]
struct DeepCall {
    stack_pointer: AtomicU64,
    /// The low half of its entry's word.
    function: AtomicU32,
    unused: u32,
}

/// Limit on the stored calls of a stack. Readers show 2^19 levels.
const CAPACITY: u32 = 1 << 19;
const SIZE: u64 = CAPACITY as u64 * size_of::<DeepCall>() as u64;
/// Value of [`Control::deep_base`] if the kernel has refused the memory.
const REFUSED: u64 = 1;

/// The deep calls of a stack that the calling thread runs.
#[derive(Clone, Copy)]
pub(crate) struct DeepCalls<'a> {
    control: &'a Control,
}

impl<'a> DeepCalls<'a> {
    pub(crate) fn of(control: &'a Control) -> DeepCalls<'a> {
        DeepCalls { control }
    }

    /// Number of deep calls.
    pub(crate) fn count(&self) -> u32 {
        self.control.deep.load(Relaxed)
    }

    /// Number of the innermost deep calls, which are only counted.
    pub(crate) fn unknown(&self) -> u32 {
        self.count() - self.known()
    }

    /// Number of the outermost deep calls, which are stored.
    fn known(&self) -> u32 {
        if self.control.deep_base.load(Relaxed) > REFUSED { self.count().min(CAPACITY) } else { 0 }
    }

    fn call(&self, place: u32) -> &'a DeepCall {
        let address = self.control.deep_base.load(Relaxed) + u64::from(place) * size_of::<DeepCall>() as u64;
        // SAFETY: callers pass indices of stored calls, which are in the mapping.
        unsafe { &*(address as *const DeepCall) }
    }

    /// Opens a deep call.
    pub(crate) fn push(&self, function: u32, stack_pointer: u64) {
        let place = self.count();
        self.control.deep.store(place.saturating_add(1), Relaxed);
        if place < CAPACITY && self.are_there() {
            let call = self.call(place);
            call.stack_pointer.store(stack_pointer, Relaxed);
            call.function.store(function, Relaxed);
        }
    }

    /// Whether the memory is mapped. Maps it if needed.
    fn are_there(&self) -> bool {
        let base = &self.control.deep_base;
        if base.load(Relaxed) == 0 {
            let flags = system::MAP_PRIVATE | system::MAP_ANONYMOUS | system::MAP_NORESERVE;
            let memory = system::map(SIZE, system::PROT_READ | system::PROT_WRITE, flags, -1);
            if let Some(memory) = memory {
                // A forked child doesn't need it: all its contexts begin anew.
                let _ = system::advise(memory, SIZE, system::MADV_DONTFORK);
            }
            base.store(memory.map_or(REFUSED, |memory| memory as u64), Relaxed);
        }
        base.load(Relaxed) > REFUSED
    }

    /// Unmaps the memory.
    pub(crate) fn give_back(&self) {
        self.control.deep.store(0, Relaxed);
        let base = self.control.deep_base.swap(0, Relaxed);
        if base > REFUSED {
            system::unmap(base as *mut u8, SIZE);
        }
    }

    /// Stack pointers and functions of the stored calls, innermost first.
    pub(crate) fn innermost(self) -> impl Iterator<Item = (u64, u32)> + use<'a> {
        (0..self.known()).rev().map(move |place| {
            let call = self.call(place);
            (call.stack_pointer.load(Relaxed), call.function.load(Relaxed))
        })
    }

    /// Removes up to `count` calls, innermost first. Returns how many it removed.
    pub(crate) fn remove(&self, count: u32) -> u32 {
        let removed = self.count().min(count);
        self.control.deep.store(self.count() - removed, Relaxed);
        removed
    }

    /// Removes the innermost stored calls as long as `is_gone` accepts their stack pointers, and
    /// with the first of them all calls that are only counted. Returns whether no stored call is
    /// left.
    pub(crate) fn remove_gone(&self, is_gone: impl Fn(u64) -> bool) -> bool {
        let gone = self.innermost().take_while(|(pointer, _)| is_gone(*pointer)).count() as u32;
        let known = self.known();
        if gone > 0 {
            self.control.deep.store(known - gone, Relaxed);
        }
        gone == known
    }
}
