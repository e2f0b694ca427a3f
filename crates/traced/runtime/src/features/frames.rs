//! Frames by id: their descriptor, which begins with the first name or the first frame, and their
//! names.

use crate::features::{counted, frame_bits};
use crate::state::arena::Arena;
use crate::state::frames::{self, Name};
use crate::state::process::Process;
use crate::state::{dropped, frame_triggers, named_frames, recording, selection, trigger_table};
use crate::sys::lock::Lock;
use crate::threads::room;
use core::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};
use everycall_format::Wire;
use everycall_format::arena::counter;
use everycall_format::event::EXIT;
use everycall_format::frame::{CAPTURES, FIRST, IDS, STEP, TEXT_MAX, THREAD, TRAMPOLINES};
use everycall_format::site::RUNTIME_ABI;
use everycall_format::trampoline::{ENTRIES_AT_ONCE, Trampoline};
use everycall_hooks::{COUNT_ALL, COUNTS, ModuleDescriptor, frames as descriptor};

/// [`ModuleDescriptor::on`]: all are recorded.
const ALL: u64 = 1;
/// Names are added to core dumps in pieces of this size.
const DUMPED_AT_ONCE: u64 = 64 << 10;
/// How many bytes of the names core dumps contain.
static DUMPED: AtomicU64 = AtomicU64::new(0);

/// The descriptor of the process's frames by id. It begins here if it hasn't yet.
pub(crate) fn module(process: &Process) -> &'static ModuleDescriptor {
    let module = descriptor();
    if module.abi.load(Acquire) == 0 {
        begin(process, module);
    }
    module
}

/// Several threads may do this at a time: they store the same values.
#[cold]
fn begin(process: &Process, module: &ModuleDescriptor) {
    frames::begin(process.arena());
    module.size.store(u64::from(IDS * STEP), Relaxed);
    let bias = 0_u32.wrapping_sub(FIRST);
    module.bias_entry.store(bias, Relaxed);
    module.bias_exit.store(bias.wrapping_sub(EXIT), Relaxed);
    if module.recorded_places.load(Relaxed) == 0
        && module.places.load(Relaxed) == 0
        && !counted::begin(module)
    {
        process.arena().count(counter::MODULES_UNCOUNTED, 1);
    }
    follow_locked(process, module);
    module.abi.store(RUNTIME_ABI, Release);
    // The selection may have changed meanwhile.
    follow_locked(process, module);
}

fn follow_locked(process: &Process, module: &ModuleDescriptor) {
    // Whoever selects holds the lock; signals are blocked here.
    let _lock = may_have_bits().then(|| Lock::take(&process.module_lock));
    follow(process.arena(), module);
}

/// Whether frames may have been left out one by one.
fn may_have_bits() -> bool {
    selection::may_have_left_out_entries() || frame_bits::has_budget()
}

/// The caller holds the module lock if frames may have been left out one by one.
fn follow(arena: &Arena, module: &ModuleDescriptor) {
    let counts = if dropped::is_counting() { COUNTS } else { 0 };
    // Without memory for bits, more is recorded than is wanted, which can be seen.
    let are_all = || selection::is_everything() && !frame_bits::has_budget();
    let bits = || if are_all() { None } else { frame_bits::set(arena) };
    let on = match recording::are_sites_on() {
        false => 0,
        true => bits().unwrap_or(ALL) | counts,
    };
    module.on.store(on, Release);
}

/// Switches the hooks of frames on or off, as what is recorded has changed.
pub(crate) fn switch(arena: &Arena) {
    let module = descriptor();
    if module.abi.load(Acquire) != 0 {
        follow(arena, module);
    }
}

/// Whether calls of a frame are recorded.
pub(crate) fn is_recorded(id: u32) -> bool {
    match descriptor().on.load(Acquire) {
        0 => false,
        ALL | COUNT_ALL => true,
        _ => frame_bits::is_set(id),
    }
}

/// Names an id. Returns false if there is no room.
pub(crate) fn name(process: &'static Process, name: Name<'_>) -> bool {
    module(process);
    let arena = process.arena();
    let is_there = put(process, name);
    fence(SeqCst);
    if may_have_bits() {
        let _lock = Lock::take(&process.module_lock);
        frame_bits::look_at(&name);
    }
    if frame_triggers::look_at(arena, &name) {
        trigger_table::lower_floors(process);
    }
    is_there
}

/// Names a thread. Returns false if there is no room.
pub(crate) fn name_thread(process: &'static Process, tid: u32, name: &[u8]) -> bool {
    frames::begin(process.arena());
    let ticks = everycall_hooks::ticks().to_le_bytes();
    put(process, Name { id: THREAD, name, file: &ticks, line: tid })
}

fn put(process: &'static Process, name: Name<'_>) -> bool {
    let arena = process.arena();
    let make_room = |first: u64, end: u64| {
        let has_room = room::make_room_for_frames(process, arena, first, end);
        if has_room {
            add_to_dumps(arena, first, end);
        }
        has_room
    };
    let is_there = frames::put(arena, name, make_room);
    if !is_there {
        frames::lose(arena);
    }
    is_there
}

/// Puts a table of trampolines among the names: see [`everycall_format::trampoline`]. `first` is
/// added to its entries' addresses.
pub(crate) fn put_trampolines(process: &'static Process, number: u32, first: u64, table: &[u8]) {
    frames::begin_trampolines(process.arena());
    for entries in table.chunks(ENTRIES_AT_ONCE * Trampoline::SIZE) {
        put(process, Name { id: TRAMPOLINES, name: entries, file: &first.to_le_bytes(), line: number });
    }
}

/// Puts the layout of a capture among the names: see [`CAPTURES`].
pub(crate) fn put_layout(process: &'static Process, id: u32, layout: &[u8]) {
    frames::begin_captures(process.arena());
    let parts = layout.len().div_ceil(TEXT_MAX).max(1) as u32;
    for (number, part) in (0..parts).zip(layout.chunks(TEXT_MAX).chain(core::iter::once(&[][..]))) {
        let place = u64::from(parts) << 32 | u64::from(number);
        put(process, Name { id: CAPTURES, name: part, file: &place.to_le_bytes(), line: id });
    }
}

fn add_to_dumps(arena: &Arena, first: u64, end: u64) {
    let wanted = end.saturating_sub(first);
    if wanted > DUMPED.load(Relaxed) {
        let size = wanted.next_multiple_of(DUMPED_AT_ONCE);
        let before = DUMPED.fetch_max(size, Relaxed);
        arena.add_to_dumps(first + before, size.saturating_sub(before));
    }
}

/// A forked child's arena is new, so core dumps contain nothing of it yet. It has its parent's
/// names.
pub(crate) fn begin_child(arena: &Arena) {
    DUMPED.store(0, Relaxed);
    named_frames::begin_child();
    let has = frames::begin_child(arena);
    if has > 0 {
        let first = arena.layout().frames_offset;
        add_to_dumps(arena, first, first + has);
    } else if descriptor().abi.load(Acquire) != 0 {
        // The disk had no room for the names.
        frames::begin(arena);
    }
}
