//! Calls that hooks count and don't record, because they are short or because the process only
//! counts: switches this on and off in a thread, and records how many calls were dropped.

use crate::state::arena::Arena;
use crate::state::places::Place;
use crate::state::process::Process;
use crate::state::{all_calls, dropped, memory, times, trigger_table};
use crate::threads::room;
use crate::threads::thread::Thread;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use everycall_format::arena::{PAGE, counter};
use everycall_format::dropped::{DroppedFunction, FUNCTIONS, OTHERS};
use everycall_format::event::{kind, payload_word, record_word};
use everycall_format::times::TIME_SUMS_SIZE;
use everycall_ring::{Control, Ring};

/// Words of the record that [`tell`] writes.
pub(crate) const DROPPED_WORDS: usize = 3;

/// Adopts the current thresholds of triggers and of short calls for the thread's exits. Returns
/// whether the thread drops calls, or did until now.
pub(crate) fn look_at_thresholds(process: &Process, control: &Control) -> bool {
    let arena = process.arena();
    let slot = control.slot.load(Relaxed);
    let before = control.short.load(Relaxed);
    let mut short = if dropped::is_timing() { 0 } else { dropped::threshold(arena) };
    if short != before && short != 0 && !room::make_room_for_counts(process, arena, slot) {
        // Short calls can't be counted, so they are recorded.
        short = 0;
    }
    if short != 0 {
        control.short_map.store(core::ptr::from_ref(&process.short_map) as u64, Relaxed);
        control.short_counts.store(dropped::counts_at(arena, slot), Relaxed);
    }
    control.short.store(short, Relaxed);
    trigger_table::look_at_floor(process, control);
    before != 0 || short != 0
}

/// Lets the thread's hooks count: all calls beside the ring, or in a process that counts its calls
/// and doesn't record them.
pub(crate) fn begin_to_count(process: &Process, control: &Control) {
    let arena = process.arena();
    let slot = control.slot.load(Relaxed);
    let is_beside = !dropped::is_counting() && room::make_room_for_all_calls(process, arena, slot);
    all_calls::begin(control, is_beside.then(|| all_calls::counts_at(arena, slot)));
    if is_beside {
        add_all_calls_to_dumps(arena, slot);
    } else if !dropped::is_counting() {
        arena.count(counter::THREADS_UNCOUNTED, 1);
    }
    if dropped::is_timing() {
        memory::begin_thread(arena, slot);
        control.short_map.store(times::callees(), Relaxed);
        control.short_counts.store(times::sums_at(arena, slot), Relaxed);
        add_times_to_dumps(arena, slot, 0, dropped::places(arena).0);
        add_times_to_dumps(arena, slot, OTHERS, OTHERS);
    } else if dropped::is_counting() && room::make_room_for_counts(process, arena, slot) {
        control.short_map.store(core::ptr::from_ref(&process.short_map) as u64, Relaxed);
        control.short_counts.store(dropped::counts_at(arena, slot), Relaxed);
        let first = arena.offset_of(dropped::counts_at(arena, slot));
        arena.add_to_dumps(first, dumped_counts(arena));
    }
}

/// Functions whose counts are added to core dumps at a time.
const DUMPED_COUNTS: u32 = FUNCTIONS;
/// Functions that are added to core dumps at a time.
const DUMPED_FUNCTIONS: u32 = (PAGE / size_of::<DroppedFunction>() as u64) as u32;
/// Number of places whose functions core dumps contain.
static PLACES_DUMPED: AtomicU32 = AtomicU32::new(0);
/// Number of places whose counts core dumps contain, in all slots in use; 0 for [`DUMPED_COUNTS`].
static COUNTS_DUMPED: AtomicU32 = AtomicU32::new(0);

/// Bytes of a slot's counts that core dumps contain.
fn dumped_counts(arena: &Arena) -> u64 {
    let places = dropped::places(arena).0.max(1).next_multiple_of(DUMPED_COUNTS);
    u64::from(places.min(arena.layout().functions())) * size_of::<u64>() as u64
}

/// Slots whose counts of all calls are added to core dumps at a time.
const DUMPED_SLOTS: u32 = 2;
/// Number of slots whose counts of all calls core dumps contain, from the first one on.
static SLOTS_DUMPED: AtomicU32 = AtomicU32::new(0);

/// A forked child's arena is new, so core dumps contain nothing of it yet.
pub(crate) fn begin_child() {
    SLOTS_DUMPED.store(0, Relaxed);
    PLACES_DUMPED.store(0, Relaxed);
    COUNTS_DUMPED.store(0, Relaxed);
}

/// Adds a slot's counts of all calls to core dumps, and those of the slots after it.
fn add_all_calls_to_dumps(arena: &Arena, slot: u32) {
    if slot >= SLOTS_DUMPED.load(Relaxed) {
        let end = (slot + DUMPED_SLOTS).min(arena.layout().thread_capacity);
        let first = SLOTS_DUMPED.fetch_max(end, Relaxed);
        for slot in first..end {
            arena.add_to_dumps(arena.layout().all_calls_at(slot), dumped_counts(arena));
        }
    }
}

/// Functions whose sums are added to core dumps at a time.
const DUMPED_SUMS: u32 = 128;

/// Adds the sums that a slot has of the functions at the places from `first` to `end`, and of some
/// more, to core dumps.
fn add_times_to_dumps(arena: &Arena, slot: u32, first: u32, end: u32) {
    let sums = arena.offset_of(times::sums_at(arena, slot));
    let first = first - first % DUMPED_SUMS;
    let end = (end + 1).next_multiple_of(DUMPED_SUMS).min(arena.layout().functions());
    let size = u64::from(end.saturating_sub(first)) * TIME_SUMS_SIZE;
    arena.add_to_dumps(sums + u64::from(times::offset_of_place(first)), size);
}

/// A function has a new place: adds it, and its times in all slots, to core dumps.
pub(crate) fn add_place_to_dumps(process: &'static Process, place: u32) {
    let arena = process.arena();
    add_functions_to_dumps(process);
    if place.is_multiple_of(DUMPED_SUMS) {
        for control in process.controls().filter(|control| control.short_counts.load(Relaxed) != 0) {
            add_times_to_dumps(arena, control.slot.load(Relaxed), place, place);
        }
    }
}

/// Adds the functions that have places to core dumps, and their counts in all slots.
pub(crate) fn add_functions_to_dumps(process: &'static Process) {
    let arena = process.arena();
    let places = dropped::places(arena).0.max(1);
    if places > PLACES_DUMPED.load(Relaxed) {
        let places = places.next_multiple_of(DUMPED_FUNCTIONS);
        let first = arena.layout().dropped_offset;
        arena.add_to_dumps(first, arena.layout().dropped_function_at(places).saturating_sub(first));
        PLACES_DUMPED.fetch_max(places, Relaxed);
    }
    if places > COUNTS_DUMPED.load(Relaxed).max(DUMPED_COUNTS) && !dropped::is_timing() {
        COUNTS_DUMPED.fetch_max(places.next_multiple_of(DUMPED_COUNTS), Relaxed);
        if dropped::is_counting() {
            for control in process.controls().filter(|control| control.short_counts.load(Relaxed) != 0) {
                let counts = dropped::counts_at(arena, control.slot.load(Relaxed));
                arena.add_to_dumps(arena.offset_of(counts), dumped_counts(arena));
            }
            return;
        }
        for slot in 0..SLOTS_DUMPED.load(Relaxed) {
            arena.add_to_dumps(arena.layout().all_calls_at(slot), dumped_counts(arena));
        }
    }
}

/// Adds the counts of a slot, and their functions, to core dumps.
pub(crate) fn add_to_dumps(process: &'static Process, slot: u32) {
    let arena = process.arena();
    add_functions_to_dumps(process);
    let places = dropped::places(arena).0.max(1);
    let counts = arena.offset_of(dropped::counts_at(arena, slot));
    arena.add_to_dumps(counts, u64::from(places) * size_of::<u64>() as u64);
}

/// Records how many calls were dropped so far. The segment must have room for the record.
pub(crate) fn tell(process: &Process, control: &Control, ring: &Ring<'_>, ticks: u64) {
    let count = dropped::count_of(process.arena(), control);
    ring.push(&[
        record_word(ticks, kind::DROPPED, 2, 0),
        payload_word(count as u32, kind::DROPPED, 1),
        payload_word((count >> 32) as u32, kind::DROPPED, 2),
    ]);
}

impl Thread<'_> {
    /// Counts a call of the function at `place`, which was recorded. Returns the place of its
    /// count.
    pub(crate) fn count_recorded(&self, place: Place) -> u32 {
        let (place, is_new) = all_calls::add(self.process, self.control, place);
        if is_new {
            add_functions_to_dumps(self.process);
        }
        place
    }

    /// Adopts the current thresholds, and records how many calls were dropped so far. The segment
    /// must have room for the record.
    pub(crate) fn look_at_thresholds(&self, ticks: u64) {
        if look_at_thresholds(self.process, self.control) {
            tell(self.process, self.control, &self.ring, ticks);
            add_to_dumps(self.process, self.control.slot.load(Relaxed));
        }
    }

    /// Adopts the current thresholds if that of short calls has changed. (If the segment is full or
    /// the clock's upper half has changed, the thread adopts them anyway when it handles that.)
    pub(crate) fn adopt_thresholds(&self) {
        let ticks = everycall_hooks::ticks();
        if dropped::threshold(self.process.arena()) != self.control.short.load(Relaxed)
            && self.ring.has_room(DROPPED_WORDS)
            && self.control.ticks_high.load(Relaxed) == (ticks >> 32) as u32
        {
            self.look_at_thresholds(ticks);
        }
    }

    /// The innermost call ends at `ticks` and is recorded. If it is short, gives its function a
    /// place, so that the function's next short calls are dropped and counted.
    pub(crate) fn learn_short(&self, ticks: u64) {
        let short = self.control.short.load(Relaxed);
        if short == 0 || self.control.deep.load(Relaxed) != 0 {
            return;
        }
        let Some(call) = self.open.innermost_call() else { return };
        if ticks.saturating_sub(call.ticks) < short.into() {
            dropped::learn(self.process, call.code, ticks);
        }
    }
}
