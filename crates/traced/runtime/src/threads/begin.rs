//! Gives a thread or fiber a slot and a ring at its first event. This usually takes a few atomic
//! operations, and waits for no lock.
//!
//! Slots of ended threads stay unchanged for a while, so that their events can be read
//! (`retirement`).
#![allow(unsafe_code)] // The calling thread's slot, and open-call stacks, by their addresses.

use crate::state::arena::Arena;
use crate::state::process::{self, Process};
use crate::state::{cancelled, dropped, local, stamps, trigger_table};
use crate::sys::system;
use crate::threads::deep_calls::DeepCalls;
use crate::threads::stacks::{self, Bounds};
use crate::threads::{cancellation, room, short_calls};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use everycall_format::arena::{OpenCall, PAGE, SegmentEntry, ThreadHeader, counter, thread_state};
use everycall_format::event::gap;
use everycall_ring::{Control, state};

/// Words of an open-call entry.
const ENTRY_WORDS: usize = size_of::<OpenCall>() / size_of::<u64>();
/// Entries above the top of an open-call stack that are cleared with it.
const LEFT_ABOVE: u32 = 8;
/// Bytes of an open-call stack beyond its top that core dumps contain.
const DUMPED_ABOVE: u64 = PAGE;
/// Thread headers in a page.
const HEADERS_PER_PAGE: u32 = PAGE as u32 / size_of::<ThreadHeader>() as u32;
/// Segments that are added to core dumps at a time.
const DUMPED_SEGMENTS: u32 = 16;

/// A name, NUL padded. All zero means that there is none.
pub(crate) type Name = [u8; 16];

/// Number of segments that core dumps contain, from the beginning of the pool.
static SEGMENTS_DUMPED: AtomicU32 = AtomicU32::new(0);

/// A forked child's arena is new, so core dumps contain nothing of it yet.
pub(crate) fn begin_child() {
    SEGMENTS_DUMPED.store(0, Relaxed);
    short_calls::begin_child();
}

/// Gives the stack that the calling thread runs a control block and a ring, in a free `place` (slot
/// and open-call stack). The stack is the thread's own, or, if `fiber` is given, that of a fiber
/// with this name. `None` if there is no free place or no memory: then the thread or fiber runs
/// untraced.
pub(crate) fn begin(
    process: &'static Process,
    place: Option<(u32, u32)>,
    bounds: Bounds,
    tid: u32,
    fiber: Option<Name>,
) -> Option<&'static Control> {
    let begun = place.and_then(|place| begin_in(process, place, bounds, tid, fiber));
    if begun.is_none() && fiber.is_none() {
        process.arena().count(counter::THREADS_UNTRACED, 1);
        leave_out();
    }
    begun
}

/// Gives a thread of the runtime's own a ring for its instants. The thread runs no hooks and has no
/// thread-local storage.
pub(crate) fn begin_own(process: &'static Process) -> Option<&'static Control> {
    let place = process.retired.take_place(process)?;
    let nowhere = Bounds { low: u64::MAX, high: 0, how: stacks::bounds::TOLD };
    let control = begin_in(process, place, nowhere, system::thread_id()?, None)?;
    // Its thread pointer is that of the thread that has started it.
    control.thread.store(0, SeqCst);
    Some(control)
}

fn begin_in(
    process: &'static Process,
    (index, stack): (u32, u32),
    bounds: Bounds,
    tid: u32,
    fiber: Option<Name>,
) -> Option<&'static Control> {
    let arena = process.arena();
    let slot = arena.slot(index);
    let control = process.control(index);
    let ticks = everycall_hooks::ticks();
    slot.state().store(thread_state::CLAIMED, Relaxed);

    let (base, limit) = arena.open_calls(stack);
    if !room::make_room_for_calls(process, arena, stack, base, limit) {
        process.retired.give_slot_back(arena, index, stack);
        return None;
    }
    clear_open_calls(base, limit);
    slot.open_calls().store(stack + 1, Relaxed);
    control.thread.store(0, SeqCst);
    slot.tid().store(tid, Relaxed);
    slot.start_ticks().store(ticks, Relaxed);
    slot.end_ticks().store(0, Relaxed);
    let number = fiber.map_or(0, |_| process.fibers.fetch_add(1, Relaxed) + 1);
    slot.fiber().store(number, Relaxed);
    slot.set_name(match fiber {
        None => system::thread_name(),
        Some(name) if name[0] != 0 => name,
        Some(_) => fiber_name(number),
    });
    for counted in [slot.unwound(), slot.orphan_exits(), slot.lost_busy(), slot.deep()] {
        counted.store(0, Relaxed);
    }

    control.slot.store(index, Relaxed);
    control.handler.store(0, Relaxed);
    control.named.store(0, Relaxed);
    control.dumped.store(0, Relaxed);
    control.handled.store(0, Relaxed);
    control.jumped_to.store(0, Relaxed);
    DeepCalls::of(control).give_back();
    stamps::begin_thread(control);
    control.suspended_position.store(0, Relaxed);
    control.busy.store(0, Relaxed);
    control.looked_depth.store(0, Relaxed);
    control.matching.store(0, Relaxed);
    control.ending.store(0, Relaxed);
    control.short.store(0, Relaxed);
    control.short_counts.store(0, Relaxed);
    control.gap_ticks.store(0, Relaxed);
    control.gap_reason.store(gap::DISABLED.into(), Relaxed);
    control.left_out.store(0, Relaxed);
    control.fiber.store(number, Relaxed);
    let thread = if number == 0 { everycall_hooks::thread_pointer() } else { 0 };
    control.thread.store(thread, SeqCst);
    if number == 0 && cancellation::was_cancelled(process, thread) {
        control.thread.fetch_or(cancelled::CANCELLED, Relaxed);
    }
    let left_out = arena.counter(counter::CALLS_LEFT_OUT).map_or(0, |it| core::ptr::from_ref(it) as u64);
    control.calls_left_out.store(left_out, Relaxed);
    control.runner.store(0, Relaxed);
    control.resumed.store(0, Relaxed);
    control.open_base.store(base, Relaxed);
    control.open_limit.store(limit, Relaxed);
    control.open_top.store(base + size_of::<OpenCall>() as u64, Relaxed);
    room::make_room(process, arena, false);
    let segments = arena.layout().segments_per_ring() as u32;
    slot.ring_segments().store(segments, Relaxed);
    arena.ring_segments().fetch_add(segments, Relaxed);
    let start = || arena.ring(control, &slot).start(segments, ticks, 0);
    let has_times = !dropped::is_timing() || room::make_room_for_counts(process, arena, index);
    let begun = has_times
        && (start()
            || (0..room::ROOM_TRIES).any(|_| {
                room::make_room(process, arena, true);
                start()
            }));
    if !begun {
        arena.ring_segments().fetch_sub(segments, Relaxed);
        process.retired.give_place_back(arena, index, stack);
        return None;
    }
    trigger_table::count_beyond(process, control);
    short_calls::begin_to_count(process, control);
    if short_calls::look_at_thresholds(process, control) {
        short_calls::tell(process, control, &arena.ring(control, &slot), ticks);
        short_calls::add_to_dumps(process, index);
    }
    add_segment_to_dumps(arena, control.current.load(Relaxed));
    if index.is_multiple_of(HEADERS_PER_PAGE) {
        arena.add_to_dumps(arena.layout().thread_at(index), PAGE);
    }
    stacks::set(process, control, bounds);
    control.state.store(state::ACTIVE, Relaxed);
    slot.state().store(thread_state::USED, Release);
    Some(control)
}

/// The name of a fiber to which the program gave none.
fn fiber_name(number: u32) -> Name {
    let mut name = [0; 16];
    let mut unit = 1_u32;
    while number / 10 >= unit {
        unit *= 10;
    }
    let digits = core::iter::successors(Some(unit), |unit| Some(unit / 10)).take_while(|unit| *unit > 0);
    let digits = digits.map(|unit| b'0' + (number.checked_div(unit).unwrap_or(0) % 10) as u8);
    name.iter_mut().zip(b"fiber ".iter().copied().chain(digits)).for_each(|(place, byte)| *place = byte);
    name
}

/// Adds segment `index`, which is in use, to core dumps.
pub(crate) fn add_segment_to_dumps(arena: &Arena, index: u32) {
    let dumped = SEGMENTS_DUMPED.load(Relaxed);
    if index >= dumped {
        let end = (index + DUMPED_SEGMENTS).min(arena.layout().segment_capacity);
        let first = SEGMENTS_DUMPED.fetch_max(end, Relaxed);
        if first < end {
            let layout = arena.layout();
            let count = u64::from(end - first);
            arena.add_to_dumps(layout.segment_entry_at(first), count * size_of::<SegmentEntry>() as u64);
            arena.add_to_dumps(layout.segment_at(first), count * layout.segment_size);
        }
    }
}

/// Makes the calling thread's hooks return at once.
pub(crate) fn leave_out() {
    let Some(process) = process::process() else { return };
    process.left_out.turn_off();
    local::set_current(&raw const process.left_out);
}

/// Whether the calling thread was left out, by [`leave_out`].
pub(crate) fn is_left_out(control: &Control) -> bool {
    process::process().is_some_and(|process| core::ptr::eq(control, &raw const process.left_out))
}

/// Undoes [`leave_out`]: the thread gets a ring at its next event.
pub(crate) fn take_back() {
    // SAFETY: the slot is this thread's own.
    unsafe { process::thread_slot().write(core::ptr::null()) };
}

/// Adds the used part of the thread's open-call stack to core dumps. This isn't done in [`begin`],
/// because it costs as much as the rest of that; nor again for what is there. If a
/// thread has made only a few calls, its ring has the entries of its open calls.
pub(crate) fn add_open_calls_to_dumps(arena: &Arena, control: &Control) {
    let base = control.open_base.load(Relaxed);
    let top = control.open_top.load(Relaxed);
    if top.saturating_add(DUMPED_ABOVE) <= control.dumped.load(Relaxed) {
        return;
    }
    // A bit more, so that the next segments find it done.
    let end = top.saturating_add(2 * DUMPED_ABOVE);
    arena.add_to_dumps(arena.offset_of(base), end.saturating_sub(base));
    control.dumped.store(end, Relaxed);
}

/// Empties an open-call stack that another thread may have used, and sets the sentinel.
fn clear_open_calls(base: u64, limit: u64) {
    // SAFETY: the open-call stack lies in the arena, aligned, and is ours.
    let words = unsafe {
        core::slice::from_raw_parts(base as *const AtomicU64, (limit - base) as usize / size_of::<u64>())
    };
    let mut entries = words.chunks_exact(ENTRY_WORDS);
    if let Some([_, stack_pointer, ..]) = entries.next() {
        stack_pointer.store(u64::MAX, Relaxed);
    }
    // A hook that was abandoned at the wrong moment may have left a word above the top.
    let mut clean = 0;
    for word in entries.filter_map(|entry| entry.first()) {
        clean = if word.load(Relaxed) == 0 { clean + 1 } else { 0 };
        if clean > LEFT_ABOVE {
            break;
        }
        word.store(0, Relaxed);
    }
}
