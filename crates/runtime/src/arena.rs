//! Typed access to the arena's shared memory.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, ChildEntry, ModuleEntry, OpenCall, ThreadHeader};

/// The arena: where it is, and its layout as it was when it was checked. (Whoever scribbles over the
/// header later misleads readers, not us.)
#[derive(Clone, Copy)]
pub(crate) struct Arena {
    base: *mut u8,
    layout: ArenaHeader,
}

/// A field of a structure at `$address`.
macro_rules! field {
    ($address:expr, $structure:ty, $field:ident, $atomic:ty) => {
        // SAFETY: the address is that of a whole, aligned structure in the arena, which is never
        // unmapped; atomics may be shared.
        unsafe { &*($address.add(offset_of!($structure, $field)).cast::<$atomic>()) }
    };
}

impl Arena {
    /// # Safety
    /// `base` is mapped for ever, readable, writable, page-aligned, `layout.arena_size` bytes, and `layout` is
    /// consistent for that size.
    pub(crate) unsafe fn new(base: *mut u8, layout: ArenaHeader) -> Arena {
        Arena { base, layout }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn layout(&self) -> &ArenaHeader {
        &self.layout
    }

    fn at(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add(offset as usize)
    }

    pub(crate) fn target_pid(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, target_pid, AtomicU32)
    }

    pub(crate) fn recorder_pid(&self) -> u32 {
        field!(self.base, ArenaHeader, recorder_pid, AtomicU32).load(Relaxed)
    }

    pub(crate) fn state(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, state, AtomicU32)
    }

    pub(crate) fn doorbell(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, doorbell, AtomicU32)
    }

    pub(crate) fn acknowledged(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, acknowledged, AtomicU32)
    }

    pub(crate) fn module_count(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, modules, AtomicU32)
    }

    pub(crate) fn child_count(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, children, AtomicU32)
    }

    pub(crate) fn thread_count(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, threads, AtomicU32)
    }

    pub(crate) fn paths_used(&self) -> &AtomicU64 {
        field!(self.base, ArenaHeader, paths, AtomicU64)
    }

    /// Adds to one of [`everycall_format::arena::counter`].
    pub(crate) fn count(&self, counter: usize, more: u64) {
        let counters = field!(self.base, ArenaHeader, counters, AtomicU64) as *const AtomicU64;
        if counter < everycall_format::arena::COUNTERS {
            // SAFETY: within the header's array.
            unsafe { &*counters.add(counter) }.fetch_add(more, Relaxed);
        }
    }

    /// Writes a structure into the arena. For memory that only the caller writes at the time.
    fn put<T: Wire>(&self, offset: u64, value: &T) {
        // SAFETY: offsets come from the checked layout.
        let bytes = unsafe { core::slice::from_raw_parts_mut(self.at(offset), T::SIZE) };
        value.write(bytes);
    }

    pub(crate) fn put_header(&self, header: &ArenaHeader) {
        self.put(0, header);
    }

    pub(crate) fn put_start(&self, reading: &everycall_format::arena::ClockReading) {
        self.put(offset_of!(ArenaHeader, start) as u64, reading);
    }

    fn module_offset(&self, index: u32) -> Option<u64> {
        (index < self.layout.module_capacity)
            .then(|| self.layout.modules_offset + u64::from(index) * ModuleEntry::SIZE as u64)
    }

    /// Writes a module entry; its state is published by [`Arena::module_state`].
    pub(crate) fn put_module(&self, index: u32, entry: &ModuleEntry) {
        if let Some(offset) = self.module_offset(index) {
            self.put(offset, entry);
        }
    }

    pub(crate) fn module(&self, index: u32) -> Option<ModuleEntry> {
        let offset = self.module_offset(index)?;
        // SAFETY: offsets come from the checked layout.
        ModuleEntry::read(unsafe { core::slice::from_raw_parts(self.at(offset), ModuleEntry::SIZE) })
    }

    pub(crate) fn module_state(&self, index: u32) -> Option<&AtomicU32> {
        Some(field!(self.at(self.module_offset(index)?), ModuleEntry, state, AtomicU32))
    }

    pub(crate) fn module_unloaded(&self, index: u32) -> Option<&AtomicU64> {
        Some(field!(self.at(self.module_offset(index)?), ModuleEntry, unloaded_ticks, AtomicU64))
    }

    /// Stores a path; where it begins and its length, or `None` where there is no room.
    pub(crate) fn put_path(&self, path: &[u8]) -> Option<(u32, u32)> {
        let begin = self.paths_used().fetch_add(path.len() as u64, Relaxed);
        let fits = begin.checked_add(path.len() as u64).is_some_and(|end| end <= self.layout.paths_size);
        fits.then(|| {
            // SAFETY: within the paths, and reserved for us alone.
            let place = unsafe {
                core::slice::from_raw_parts_mut(self.at(self.layout.paths_offset + begin), path.len())
            };
            place.copy_from_slice(path);
            (begin as u32, path.len() as u32)
        })
    }

    pub(crate) fn put_child(&self, index: u32, entry: &ChildEntry) {
        if index < self.layout.child_capacity {
            self.put(self.layout.children_offset + u64::from(index) * ChildEntry::SIZE as u64, entry);
        }
    }

    /// The thread slot `index`, which is below the capacity.
    pub(crate) fn slot(&self, index: u32) -> Slot {
        let index = index.min(self.layout.thread_capacity.saturating_sub(1));
        let base = self.at(self.layout.threads_offset + u64::from(index) * self.layout.thread_stride);
        Slot { base, layout: self.layout }
    }
}

/// A thread's part of the arena.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    base: *mut u8,
    layout: ArenaHeader,
}

impl Slot {
    pub(crate) fn state(&self) -> &AtomicU32 {
        field!(self.base, ThreadHeader, state, AtomicU32)
    }

    pub(crate) fn tid(&self) -> &AtomicU32 {
        field!(self.base, ThreadHeader, tid, AtomicU32)
    }

    pub(crate) fn generation(&self) -> &AtomicU32 {
        field!(self.base, ThreadHeader, generation, AtomicU32)
    }

    pub(crate) fn ticks_high(&self) -> &AtomicU32 {
        field!(self.base, ThreadHeader, ticks_high, AtomicU32)
    }

    pub(crate) fn start_ticks(&self) -> &AtomicU64 {
        field!(self.base, ThreadHeader, start_ticks, AtomicU64)
    }

    pub(crate) fn segment(&self) -> &'static AtomicU64 {
        field!(self.base, ThreadHeader, segment, AtomicU64)
    }

    pub(crate) fn unwound(&self) -> &AtomicU64 {
        field!(self.base, ThreadHeader, unwound, AtomicU64)
    }

    pub(crate) fn orphan_exits(&self) -> &AtomicU64 {
        field!(self.base, ThreadHeader, orphan_exits, AtomicU64)
    }

    pub(crate) fn lost_busy(&self) -> &AtomicU64 {
        field!(self.base, ThreadHeader, lost_busy, AtomicU64)
    }

    pub(crate) fn deep(&self) -> &AtomicU64 {
        field!(self.base, ThreadHeader, deep, AtomicU64)
    }

    pub(crate) fn set_name(&self, name: [u8; 16]) {
        let (head, tail) = name.split_at(8);
        for (half, place) in [head, tail].into_iter().zip([0, 8]) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(half);
            let address = self.base.wrapping_add(offset_of!(ThreadHeader, name) + place);
            // SAFETY: within the header, aligned to 8.
            unsafe { &*address.cast::<AtomicU64>() }.store(u64::from_le_bytes(bytes), Relaxed);
        }
    }

    /// Address of the open-call stack's sentinel, and of the end of its capacity.
    pub(crate) fn open_calls(&self) -> (u64, u64) {
        let base = self.base.wrapping_add(self.layout.open_calls_in_slot() as usize) as u64;
        (base, base + u64::from(self.layout.open_call_capacity) * OpenCall::SIZE as u64)
    }

    /// The ring's words.
    pub(crate) fn ring(&self) -> &'static [AtomicU64] {
        let first = self.base.wrapping_add(self.layout.ring_in_slot() as usize).cast::<AtomicU64>();
        // SAFETY: within the arena by its layout, aligned, never unmapped; atomics may be shared.
        unsafe { core::slice::from_raw_parts(first, self.layout.ring_size as usize / size_of::<u64>()) }
    }

    pub(crate) fn segment_words(&self) -> usize {
        self.layout.segment_size as usize / size_of::<u64>()
    }
}
