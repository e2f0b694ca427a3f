//! Typed access to the arena's shared memory.
#![allow(unsafe_code)] // Shared memory: structures in the arena, by their addresses.

use crate::state::crash_file;
use crate::sys::system;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use everycall_format::Wire;
use everycall_format::arch::ELF_MACHINE;
use everycall_format::arena::{
    ArenaHeader, COUNTERS, ClockReading, ModuleEntry, OpenCall, PAGE, PINNERS, PINNERS_OFFSET, PinnerEntry,
    ThreadHeader,
};
use everycall_format::calibration::{CALIBRATION_OFFSET, Calibration};
use everycall_format::sched::KEPT_SIZE;
use everycall_format::value_counts;
use everycall_ring::{Control, Pool, Ring};

/// The arena: its address, and its layout as it was when it was checked. (If the program overwrites
/// the header later, that misleads readers, but not the runtime.)
#[derive(Clone, Copy)]
pub(crate) struct Arena {
    base: *mut u8,
    layout: ArenaHeader,
}

impl Arena {
    /// # Safety
    /// `base` is readable, writable, page-aligned, `layout.arena_size` bytes large and never
    /// unmapped, and `layout` is consistent for that size.
    pub(crate) unsafe fn new(base: *mut u8, layout: ArenaHeader) -> Arena {
        Arena { base, layout }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn layout(&self) -> &ArenaHeader {
        &self.layout
    }

    fn segment_words(&self) -> usize {
        self.layout.segment_size as usize / size_of::<u64>()
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

    /// Which events have a time of their own: one of [`everycall_format::stamp`].
    pub(crate) fn stamps(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, stamps, AtomicU32)
    }

    /// Not 0: a client requests the control socket.
    pub(crate) fn control_asked(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, control_asked, AtomicU32)
    }

    /// One of [`everycall_format::control_socket::control_state`].
    pub(crate) fn control_state(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, control_state, AtomicU32)
    }

    /// The name of the control socket.
    pub(crate) fn control_name(&self) -> &AtomicU64 {
        field!(self.base, ArenaHeader, control_name, AtomicU64)
    }

    pub(crate) fn module_count(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, modules, AtomicU32)
    }

    pub(crate) fn thread_count(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, threads, AtomicU32)
    }

    pub(crate) fn paths_used(&self) -> &AtomicU64 {
        field!(self.base, ArenaHeader, paths, AtomicU64)
    }

    pub(crate) fn stream(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, stream, AtomicU32)
    }

    pub(crate) fn pool_doorbell(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, pool_doorbell, AtomicU32)
    }

    pub(crate) fn pool_waiters(&self) -> &AtomicU32 {
        field!(self.base, ArenaHeader, pool_waiters, AtomicU32)
    }

    /// Number of segments that the rings of all threads may have together.
    pub(crate) fn ring_segments(&self) -> &'static AtomicU32 {
        field!(self.base, ArenaHeader, ring_segments, AtomicU32)
    }

    /// The pool of segments.
    pub(crate) fn pool(&self) -> Pool<'static> {
        let layout = &self.layout;
        let capacity = layout.segment_capacity as usize;
        let segment_words = self.segment_words();
        let base = self.at(layout.segments_offset);
        // SAFETY: both within the arena by its layout, aligned, never unmapped; atomics may be
        // shared.
        let (entries, words) = unsafe {
            (
                core::slice::from_raw_parts(self.at(layout.segment_table_offset).cast(), capacity),
                core::slice::from_raw_parts(base.cast(), capacity * segment_words),
            )
        };
        Pool {
            entries,
            words,
            base: base as u64,
            segment_words,
            taken: field!(self.base, ArenaHeader, segments_taken, AtomicU32),
            free: field!(self.base, ArenaHeader, free_segments, AtomicU64),
            in_use: field!(self.base, ArenaHeader, segments_in_use, AtomicU32),
            ring_segments: self.ring_segments(),
            extra: layout.extra_segments,
            grow_until: field!(self.base, ArenaHeader, grow_until, AtomicU64),
            room: crash_file::room(),
        }
    }

    /// Adds these bytes of the arena to core dumps. At first, the whole arena is excluded, because
    /// the kernel would touch every page of it.
    pub(crate) fn add_to_dumps(&self, offset: u64, size: u64) {
        let first = offset & !(PAGE - 1);
        let end = (offset + size).next_multiple_of(PAGE).min(self.layout.arena_size);
        // Core dumps don't contain mapped files.
        if first < end && !crash_file::is_file() {
            let _ = system::advise(self.at(first), end - first, system::MADV_DODUMP);
        }
    }

    /// Excludes the arena from core dumps, except for the header. Other parts are added when they
    /// come into use.
    pub(crate) fn leave_out_of_dumps(&self) {
        let _ = system::advise(self.base, self.layout.arena_size, system::MADV_DONTDUMP);
        self.add_to_dumps(0, PAGE);
        if self.layout.states_offset != 0 && self.layout.recorder_pid != 0 {
            self.add_to_dumps(self.layout.states_offset, KEPT_SIZE);
        }
        if self.layout.values_offset != 0 {
            self.add_to_dumps(self.layout.values_offset, value_counts::SIZE);
        }
    }

    /// Adds to one of [`everycall_format::arena::counter`].
    pub(crate) fn count(&self, counter: usize, more: u64) {
        if let Some(place) = self.counter(counter) {
            place.fetch_add(more, Relaxed);
        }
    }

    /// The place of a counter.
    pub(crate) fn counter(&self, counter: usize) -> Option<&AtomicU64> {
        let counters = field!(self.base, ArenaHeader, counters, AtomicU64) as *const AtomicU64;
        // SAFETY: within the header's array.
        (counter < everycall_format::arena::COUNTERS).then(|| unsafe { &*counters.add(counter) })
    }

    /// Sets a counter that may also fall.
    pub(crate) fn set_count(&self, counter: usize, value: u64) {
        if counter < COUNTERS {
            let counters = self.at(offset_of!(ArenaHeader, counters) as u64).cast::<AtomicU64>();
            // SAFETY: one of the header's counters.
            unsafe { &*counters.add(counter) }.store(value, Relaxed);
        }
    }

    /// Writes a structure into the arena. Only the caller may write that memory at the time.
    fn put<T: Wire>(&self, offset: u64, value: &T) {
        // SAFETY: offsets come from the checked layout.
        let bytes = unsafe { core::slice::from_raw_parts_mut(self.at(offset), T::SIZE) };
        value.write(bytes);
    }

    pub(crate) fn put_header(&self, header: &ArenaHeader) {
        self.put(0, header);
    }

    /// Stores the origin of the process: see [`ArenaHeader::origin`] and the fields after it.
    pub(crate) fn put_origin(&self, origin: u32, parent: u32, forked_from: u32) {
        field!(self.base, ArenaHeader, origin, AtomicU32).store(origin, Relaxed);
        field!(self.base, ArenaHeader, parent_pid, AtomicU32).store(parent, Relaxed);
        field!(self.base, ArenaHeader, forked_from, AtomicU32).store(forked_from, Relaxed);
    }

    /// Stores when the process's runtime began, and its machine.
    pub(crate) fn put_start(&self, reading: &everycall_format::arena::ClockReading) {
        field!(self.base, ArenaHeader, machine, AtomicU32).store(ELF_MACHINE.into(), Relaxed);
        self.put(offset_of!(ArenaHeader, start) as u64, reading);
    }

    /// Stores what the hooks cost.
    pub(crate) fn put_calibration(&self, calibration: &Calibration) {
        self.put(CALIBRATION_OFFSET, calibration);
    }

    /// The measured cost of hooks; blank if there is none.
    pub(crate) fn calibration(&self) -> Calibration {
        // SAFETY: within the header's page; only written at the start.
        let bytes = unsafe {
            core::slice::from_raw_parts(self.at(CALIBRATION_OFFSET).cast_const(), Calibration::SIZE)
        };
        Calibration::read(bytes).unwrap_or_default()
    }

    /// Entry `index` of the table of pinners: process id, ticks when the process took the entry,
    /// and the process's start time.
    pub(crate) fn pinner(&self, index: u32) -> (&'static AtomicU32, &'static AtomicU64, &'static AtomicU64) {
        let index = index.min(PINNERS - 1);
        let entry = self.at(PINNERS_OFFSET + u64::from(index) * PinnerEntry::SIZE as u64);
        (
            field!(entry, PinnerEntry, pid, AtomicU32),
            field!(entry, PinnerEntry, since, AtomicU64),
            field!(entry, PinnerEntry, started, AtomicU64),
        )
    }

    /// The process that this one was forked from; 0 for none.
    pub(crate) fn forked_from(&self) -> u32 {
        field!(self.base, ArenaHeader, forked_from, AtomicU32).load(Relaxed)
    }

    /// The values of all counters.
    pub(crate) fn counters(&self) -> [u64; COUNTERS] {
        let first = field!(self.base, ArenaHeader, counters, AtomicU64) as *const AtomicU64;
        // SAFETY: within the header's array.
        core::array::from_fn(|index| unsafe { &*first.add(index) }.load(Relaxed))
    }

    /// The clock reading at the start.
    pub(crate) fn start(&self) -> Option<ClockReading> {
        let place = self.at(offset_of!(ArenaHeader, start) as u64);
        // SAFETY: within the header; written before this is called.
        ClockReading::read(unsafe { core::slice::from_raw_parts(place, ClockReading::SIZE) })
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

    /// Adds a module's entry and path to core dumps.
    pub(crate) fn add_module_to_dumps(&self, index: u32, entry: &ModuleEntry) {
        if let Some(offset) = self.module_offset(index) {
            self.add_to_dumps(offset, ModuleEntry::SIZE as u64);
            let path = self.layout.paths_offset + u64::from(entry.path_offset);
            self.add_to_dumps(path, entry.path_length.into());
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

    pub(crate) fn module_sites_unpatched(&self, index: u32) -> Option<&AtomicU32> {
        Some(field!(self.at(self.module_offset(index)?), ModuleEntry, sites_unpatched, AtomicU32))
    }

    /// Stores a path: at `free` (offset and length of a path that isn't needed any more) if it fits
    /// there, otherwise after the other paths. Returns its offset and length, or `None` if there is
    /// no space.
    pub(crate) fn put_path(&self, path: &[u8], free: (u32, u32)) -> Option<(u32, u32)> {
        let size = path.len() as u64;
        let begin = match free {
            // `free` comes from the arena, which may have been overwritten.
            (begin, length) if size <= length.into() && u64::from(begin) + size <= self.layout.paths_size => {
                begin.into()
            }
            _ => {
                let begin = self.paths_used().load(Relaxed);
                if begin.checked_add(size).is_none_or(|end| end > self.layout.paths_size) {
                    return None;
                }
                // The caller holds the module lock, so no other thread does this at the same time.
                self.paths_used().store(begin + size, Relaxed);
                begin
            }
        };
        // SAFETY: within the paths, and only ours.
        let place =
            unsafe { core::slice::from_raw_parts_mut(self.at(self.layout.paths_offset + begin), path.len()) };
        place.copy_from_slice(path);
        Some((begin as u32, path.len() as u32))
    }

    /// The path of a module. Empty if there was no space for it.
    pub(crate) fn path(&self, module: &ModuleEntry) -> &'static [u8] {
        let (begin, length) = (u64::from(module.path_offset), u64::from(module.path_length));
        if begin + length > self.layout.paths_size {
            return &[];
        }
        // SAFETY: within the paths.
        unsafe {
            core::slice::from_raw_parts(
                self.at(self.layout.paths_offset + begin).cast_const(),
                length as usize,
            )
        }
    }

    /// The first `modules` entries of the module table and the first `paths` bytes of the paths,
    /// each with its offset.
    pub(crate) fn tables(&self, modules: u32, paths: u64) -> [(u64, &'static [u8]); 2] {
        let layout = &self.layout;
        let modules = u64::from(modules.min(layout.module_capacity)) * ModuleEntry::SIZE as u64;
        let part = |offset: u64, size: u64| {
            // SAFETY: within the arena by its layout. A parent may append to them, after the part
            // that its child reads.
            (offset, unsafe { core::slice::from_raw_parts(self.at(offset).cast_const(), size as usize) })
        };
        [part(layout.modules_offset, modules), part(layout.paths_offset, paths.min(layout.paths_size))]
    }

    /// The module table and the paths of all modules.
    pub(crate) fn module_tables(&self) -> (&'static [u8], &'static [u8]) {
        let modules = self.module_count().load(Acquire);
        let [(_, modules), (_, paths)] = self.tables(modules, self.paths_used().load(Relaxed));
        (modules, paths)
    }

    /// Writes bytes from [`Arena::tables`] of an arena with the same layout, or into the header
    /// page.
    pub(crate) fn put_bytes(&self, offset: u64, bytes: &[u8]) {
        // SAFETY: within the arena by its layout; no other thread uses this part of it now.
        let place = unsafe { core::slice::from_raw_parts_mut(self.at(offset), bytes.len()) };
        place.copy_from_slice(bytes);
    }

    /// Address of the sentinel of open-call stack `index`, and of the stack's end.
    pub(crate) fn open_calls(&self, index: u32) -> (u64, u64) {
        let index = index.min(self.layout.thread_capacity.saturating_sub(1));
        let base = self.at(self.layout.open_calls_at(index)) as u64;
        (base, base + u64::from(self.layout.open_call_capacity) * OpenCall::SIZE as u64)
    }

    /// The offset of an address in the arena.
    pub(crate) fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.base as u64)
    }

    /// The ring of a context.
    pub(crate) fn ring<'a>(&self, control: &'a Control, slot: &Slot) -> Ring<'a> {
        Ring::new(self.pool(), control, slot.segment(), slot.generation().load(Relaxed))
    }

    /// The thread slot `index`, which is below the capacity.
    pub(crate) fn slot(&self, index: u32) -> Slot {
        let index = index.min(self.layout.thread_capacity.saturating_sub(1));
        Slot { header: self.at(self.layout.thread_at(index)), segment_words: self.segment_words() }
    }
}

/// A thread's slot in the arena.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    header: *mut u8,
    segment_words: usize,
}

impl Slot {
    /// A copy of the header.
    pub(crate) fn read(&self) -> Option<ThreadHeader> {
        // SAFETY: a whole header in the arena.
        ThreadHeader::read(unsafe { core::slice::from_raw_parts(self.header, ThreadHeader::SIZE) })
    }

    pub(crate) fn state(&self) -> &AtomicU32 {
        field!(self.header, ThreadHeader, state, AtomicU32)
    }

    pub(crate) fn tid(&self) -> &AtomicU32 {
        field!(self.header, ThreadHeader, tid, AtomicU32)
    }

    pub(crate) fn generation(&self) -> &AtomicU32 {
        field!(self.header, ThreadHeader, generation, AtomicU32)
    }

    pub(crate) fn ticks_high(&self) -> &AtomicU32 {
        field!(self.header, ThreadHeader, ticks_high, AtomicU32)
    }

    pub(crate) fn start_ticks(&self) -> &AtomicU64 {
        field!(self.header, ThreadHeader, start_ticks, AtomicU64)
    }

    pub(crate) fn segment(&self) -> &'static AtomicU64 {
        field!(self.header, ThreadHeader, segment, AtomicU64)
    }

    pub(crate) fn unwound(&self) -> &AtomicU64 {
        field!(self.header, ThreadHeader, unwound, AtomicU64)
    }

    pub(crate) fn orphan_exits(&self) -> &AtomicU64 {
        field!(self.header, ThreadHeader, orphan_exits, AtomicU64)
    }

    pub(crate) fn lost_busy(&self) -> &AtomicU64 {
        field!(self.header, ThreadHeader, lost_busy, AtomicU64)
    }

    pub(crate) fn deep(&self) -> &AtomicU64 {
        field!(self.header, ThreadHeader, deep, AtomicU64)
    }

    pub(crate) fn end_ticks(&self) -> &AtomicU64 {
        field!(self.header, ThreadHeader, end_ticks, AtomicU64)
    }

    /// When its thread was found to have ended: `CLOCK_MONOTONIC` in nanoseconds.
    pub(crate) fn end_ns(&self) -> &AtomicU64 {
        field!(self.header, ThreadHeader, end_ns, AtomicU64)
    }

    pub(crate) fn ring_segments(&self) -> &AtomicU32 {
        field!(self.header, ThreadHeader, ring_segments, AtomicU32)
    }

    pub(crate) fn fiber(&self) -> &AtomicU32 {
        field!(self.header, ThreadHeader, fiber, AtomicU32)
    }

    pub(crate) fn next(&self) -> &AtomicU32 {
        field!(self.header, ThreadHeader, next, AtomicU32)
    }

    pub(crate) fn set_name(&self, name: [u8; 16]) {
        let (head, tail) = name.split_at(8);
        for (half, place) in [head, tail].into_iter().zip([0, 8]) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(half);
            let address = self.header.wrapping_add(offset_of!(ThreadHeader, name) + place);
            // SAFETY: within the header, aligned to 8.
            unsafe { &*address.cast::<AtomicU64>() }.store(u64::from_le_bytes(bytes), Relaxed);
        }
    }

    /// Index of the open-call stack, plus 1.
    pub(crate) fn open_calls(&self) -> &AtomicU32 {
        field!(self.header, ThreadHeader, open_calls, AtomicU32)
    }

    pub(crate) fn segment_words(&self) -> usize {
        self.segment_words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
    use everycall_format::env::RING_SIZE_MIN;

    /// The offset for a path is stored in the arena, which the program may have overwritten.
    #[test]
    fn paths_go_nowhere_else() {
        let layout = ArenaHeader::with_triggers(RING_SIZE_MIN, 1, 1 << 20, 0);
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let base = system::map(layout.arena_size, PROT_READ | PROT_WRITE, flags, -1).unwrap();
        // SAFETY: just mapped, consistent by construction, unmapped below.
        let arena = unsafe { Arena::new(base, layout) };
        let first = arena.put_path(b"/a/library.so", (0, 0)).unwrap();
        assert_eq!(first, (0, 13));
        assert_eq!(arena.put_path(b"/b.so", first), Some((0, 5)), "in the place of the one before");
        let end = layout.paths_size as u32;
        for begin in [end - 4, end, u32::MAX - 4, u32::MAX] {
            let (place, length) = arena.put_path(b"/c.so", (begin, 5)).unwrap();
            assert!(place + length <= end, "{begin}: {place}");
        }
        system::unmap(base, layout.arena_size);
    }
}
