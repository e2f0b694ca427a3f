//! A forked child finds the process and every control block wiped. At its first event, it gets an
//! arena of its own: one of the recorder's, or a private one if its parent's is private. This arena
//! replaces the parent's in the address space, so the child can't reach the parent's memory any
//! more. The module table is copied, because the child has its parent's modules.
//!
//! The child's rings begin with that event. The calls that were open at the fork are not copied:
//! the parent keeps changing its stack of open calls, and the child can't know what it held at the
//! fork. Their exits appear as orphan exits.
#![allow(unsafe_code)] // New mappings become arenas.

use crate::features::{budget, code_frames, crash, frames, keeper, live_triggers, loaded_modules, pause};
use crate::state::arena::Arena;
use crate::state::hub::{self, Hub, Spare};
use crate::state::process::{self, Process, process_state};
use crate::state::trigger_table::Triggers;
use crate::state::{
    beginning, crash_file, dropped, frames as names, local, memory, module_table, recording, stamps,
};
use crate::sys::system::{
    self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE,
};
use crate::sys::{clock, disk, own_memory};
use crate::threads::begin;
use core::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::{ArenaHeader, EXTRA_SIZE, child_kind, counter};
use everycall_format::calibration::Calibration;
use everycall_format::hub::origin;

/// Data that the child copies from the parent's arena.
#[derive(Clone, Copy)]
struct Inheritance {
    parent: Arena,
    parent_pid: u32,
    calibration: Calibration,
    /// [`arena_state`].
    state: u32,
    modules: u32,
    paths: u64,
    /// From which duration on calls are recorded: see [`dropped::inheritance`].
    shortest: (u64, u64),
    /// Slots that no thread of the child may get, because the forked thread may still have the
    /// control block of one of them.
    slots_barred: u32,
}

impl Inheritance {
    /// The modules, their paths, and the names of frames by id, each with its offset.
    fn tables(&self) -> [(u64, &'static [u8]); 3] {
        let [modules, paths] = self.parent.tables(self.modules, self.paths);
        [modules, paths, names::told(&self.parent)]
    }
}

/// The process, if it is traced. A forked child starts to be traced here.
pub(crate) fn traced() -> Option<&'static Process> {
    let process = process::process()?;
    let on = match process.state.load(Acquire) {
        process_state::ON => true,
        process_state::BLANK => begin(process),
        _ => false,
    };
    on.then_some(process)
}

/// Starts tracing a child in a thread of ours, unless it is traced already. Returns whether it is
/// traced now.
pub(crate) fn begin_in_helper(process: &'static Process) -> bool {
    match process.state.load(Acquire) {
        process_state::BLANK => begin_by(process, Beginner::Helper),
        state => state == process_state::ON,
    }
}

/// Which thread starts to trace a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beginner {
    /// One of the program's, maybe the forked one.
    Program,
    /// One of ours, which has the thread pointer of the forked one.
    Helper,
}

/// Starts tracing a child, at its first event or module. Returns whether the child is traced from
/// now on. Threads that come at the same time wait for the first one; a signal handler that
/// interrupts it doesn't.
pub(crate) fn begin(process: &'static Process) -> bool {
    begin_by(process, Beginner::Program)
}

fn begin_by(process: &'static Process, beginner: Beginner) -> bool {
    let own = system::thread_id().unwrap_or(u32::MAX);
    if let Err(starter) = process.starter.compare_exchange(0, own, AcqRel, Acquire) {
        while process.state.load(Acquire) == process_state::BLANK {
            if starter == own {
                return false;
            }
            system::yield_now();
        }
        return process.state.load(Acquire) == process_state::ON;
    }
    recording::begin_child();
    loaded_modules::begin_child();
    live_triggers::begin_child();
    let inheritance = inheritance(process, beginner);
    let is_on = inheritance.is_some_and(|inheritance| {
        let begun = begin_first(process, &inheritance);
        if begun.is_none() {
            let _ = part_from(&inheritance);
        }
        begun.is_some()
    });
    let state = if is_on { process_state::ON } else { process_state::OFF };
    process.state.store(state, Release);
    if is_on {
        // Its parent's sessions aren't its own.
        pause::update(process);
        let _ = budget::start(process);
    }
    is_on
}

fn inheritance(process: &'static Process, beginner: Beginner) -> Option<Inheritance> {
    let parent = process::inherited_arena()?;
    Some(Inheritance {
        parent,
        parent_pid: parent.target_pid().load(Relaxed),
        calibration: parent.calibration(),
        state: parent.state().load(Relaxed),
        modules: module_table::known().min(parent.layout().module_capacity),
        shortest: dropped::inheritance(&parent),
        paths: parent.paths_used().load(Relaxed).min(parent.layout().paths_size),
        slots_barred: barred_slots(process, &parent, beginner),
    })
}

fn begin_first(process: &'static Process, inheritance: &Inheritance) -> Option<()> {
    let parent = inheritance.parent;
    let arena = match hub::hub() {
        Some(hub) if !hub.follows() => {
            leave_out(&hub, child_kind::FORK);
            parent.count(counter::FORKED_CHILDREN, 1);
            return None;
        }
        Some(hub) => match hub.take().and_then(|spare| take_over(spare, inheritance)) {
            Some(arena) => arena,
            None => {
                leave_out(&hub, child_kind::FORK);
                return None;
            }
        },
        None => match take_over_in_file(process, inheritance) {
            Some(arena) => arena,
            None => take_over_privately(inheritance)?,
        },
    };
    arena.state().store(inheritance.state, Relaxed);
    arena.module_count().store(inheritance.modules, Relaxed);
    arena.paths_used().store(inheritance.paths, Relaxed);
    dropped::inherit(&arena, inheritance.shortest);
    stamps::note(&arena);
    memory::begin(&arena);
    frames::begin_child(&arena);
    code_frames::begin_child();
    arena.thread_count().store(inheritance.slots_barred, Relaxed);
    module_table::take_over(&arena, inheritance.modules);
    begin::begin_child();
    process.begin_child(&arena, module_table::next_code());
    arena.put_origin(origin::FORK, system::parent_id(), inheritance.parent_pid);
    arena.put_start(&clock::reading());
    // It runs the same hooks on the same machine.
    arena.put_calibration(&inheritance.calibration);
    // The arena is claimed only now that all of this is written.
    arena.target_pid().store(system::process_id(), Release);
    if let Some(hub) = hub::hub() {
        hub.ring();
    }
    Some(())
}

/// In a child that isn't traced, replaces the parent's arena by private memory with a copy of the
/// tables. The child may have dropped its privileges, and must not be able to write to the memory
/// that its parent's hooks use. (Its own hooks may still write once, if a signal handler that
/// interrupted one of them has forked. So there must be memory at this address.)
fn part_from(inheritance: &Inheritance) -> Option<()> {
    let layout = *inheritance.parent.layout();
    let map = |flags| {
        let flags = flags | MAP_ANONYMOUS | MAP_NORESERVE;
        system::map(layout.arena_size, PROT_READ | PROT_WRITE, flags, -1)
    };
    // Private memory counts against `RLIMIT_DATA`, of which the child may need all; shared memory
    // doesn't.
    let has_limit = system::data_limit() != u64::MAX;
    let base = if has_limit { map(MAP_SHARED) } else { map(MAP_PRIVATE).or_else(|| map(MAP_SHARED)) }?;
    put_in_place(inheritance, layout, base, false)?.leave_out_of_dumps();
    Some(())
}

/// Lists the calling process as one that isn't followed, and counts it if it should have been.
pub(crate) fn leave_out(hub: &Hub, kind: u32) {
    hub.list(kind);
    if hub.follows() {
        hub.count_untraced();
        hub.ring();
    }
}

/// The forked thread finds its parent's control block in its thread-local slot, wiped. If that
/// thread is the one that begins, it gets a new slot. Otherwise its slot is unknown, so all of the
/// parent's are barred; also if a thread of ours may get a slot before it does.
fn barred_slots(process: &'static Process, parent: &Arena, beginner: Beginner) -> u32 {
    let capacity = parent.layout().thread_capacity;
    let is_program = beginner == Beginner::Program && !budget::is_set();
    let is_forked = is_program && local::has_any(process, capacity);
    if is_forked { 0 } else { parent.thread_count().load(Relaxed).min(capacity) }
}

/// Maps a spare arena in place of the parent's.
fn take_over(spare: Spare, inheritance: &Inheritance) -> Option<Arena> {
    let Spare { file, header } = spare;
    let parent = &inheritance.parent;
    let layout = parent.layout();
    let shape = |header: &ArenaHeader| (header.arena_size, header.ring_size, header.trigger_sites);
    if shape(&header) != shape(layout) {
        return None;
    }
    let tables = inheritance.tables();
    let put = |offset: u64, bytes: &[u8]| file.write_at(bytes, offset);
    if !tables.iter().all(|(offset, bytes)| put(*offset, bytes)) || !put_triggers(parent, put) {
        return None;
    }
    // From here on, the parent's arena can't be reached.
    let base = file.map_shared_at(parent.base(), header.arena_size)?;
    // SAFETY: never unmapped; consistent.
    let arena = unsafe { Arena::new(base, header) };
    beginning::put(&arena);
    arena.leave_out_of_dumps();
    Some(arena)
}

/// Puts a private arena in place of the parent's.
fn take_over_privately(inheritance: &Inheritance) -> Option<Arena> {
    let fresh = fresh(&inheritance.parent)?;
    let arena = put_in_place(inheritance, fresh, own_memory::map(fresh.arena_size)?, true)?;
    if crash_file::is_file() {
        crash::begin_without(&arena);
    }
    beginning::put(&arena);
    arena.leave_out_of_dumps();
    Some(arena)
}

/// Puts an arena in a crash file in its place, if the parent's arena is one. A failure isn't
/// reported, only counted.
fn take_over_in_file(process: &'static Process, inheritance: &Inheritance) -> Option<Arena> {
    if !crash_file::is_file() {
        return None;
    }
    let fresh = fresh(&inheritance.parent)?;
    let mapped = crash::map(&fresh).ok()?;
    let Some(arena) = put_in_place(inheritance, fresh, mapped.base, true) else {
        crash::give_up(&mapped);
        return None;
    };
    crash::begin(&arena);
    crash::own(process, &mapped);
    Some(arena)
}

/// The header of an arena with the same layout as the parent's.
fn fresh(parent: &Arena) -> Option<ArenaHeader> {
    let layout = parent.layout();
    let (threads, open_calls) = (layout.thread_capacity, layout.open_call_capacity);
    let (ring, sites, functions) = (layout.ring_size, layout.trigger_sites, layout.functions());
    let fresh = ArenaHeader::with_stacks(ring, threads, EXTRA_SIZE, sites, open_calls, functions);
    let fresh = if layout.times_offset == 0 { fresh } else { fresh.with_times() };
    let fresh = if layout.states_offset == 0 { fresh } else { fresh.with_states() };
    let fresh = if layout.values_offset == 0 { fresh } else { fresh.with_values() };
    (fresh.arena_size == layout.arena_size).then_some(fresh)
}

/// Stores the parent's triggers by `put`. Returns false if that failed. If the recorder changes
/// them all the time, the child may miss its last change. The recorder then sees another generation
/// in the child and writes the triggers there, too.
fn put_triggers(parent: &Arena, mut put: impl FnMut(u64, &[u8]) -> bool) -> bool {
    let Some(triggers) = Triggers::of(parent) else { return true };
    for _ in 0..TRIGGER_COPIES {
        let inheritance = triggers.inheritance(parent);
        if !inheritance.put(&mut put) {
            return false;
        }
        if inheritance.is_current() {
            return true;
        }
    }
    // Generation 0, so that the recorder replaces them.
    triggers.inheritance(parent).without_sites().put(put)
}

/// How often copying the parent's triggers is tried.
const TRIGGER_COPIES: u32 = 4;

/// Fills fresh memory at `base` and moves it to the address of the parent's arena. On failure, it
/// unmaps `base`. A child that isn't traced needs no triggers, which may be many megabytes.
fn put_in_place(
    inheritance: &Inheritance,
    fresh: ArenaHeader,
    base: *mut u8,
    is_traced: bool,
) -> Option<Arena> {
    let parent = &inheritance.parent;
    // SAFETY: just mapped; consistent by construction.
    let arena = unsafe { Arena::new(base, fresh) };
    arena.put_header(&fresh);
    keeper::begin(&arena);
    for (offset, bytes) in inheritance.tables() {
        let is_names = offset == fresh.frames_offset;
        let needs_room = is_names && !bytes.is_empty() && crash_file::is_file();
        if !needs_room || disk::take_room_at(base as u64 + offset, bytes.len() as u64).is_ok() {
            arena.put_bytes(offset, bytes);
        }
    }
    if is_traced {
        put_triggers(parent, |offset, bytes| {
            arena.put_bytes(offset, bytes);
            true
        });
    }
    let base = system::move_mapping(base, fresh.arena_size, parent.base())?;
    // SAFETY: never unmapped; consistent.
    Some(unsafe { Arena::new(base, fresh) })
}
