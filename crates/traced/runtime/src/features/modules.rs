//! Traced objects are loaded and unloaded.
#![allow(unsafe_code)] // A buffer that the lock's holder has.

use crate::features::{calling, captures, counted, fork, frames, live_triggers, loaded_modules, site_set};
use crate::state::arena::Arena;
use crate::state::captures::Registering;
use crate::state::module_table::{self, Claim, Kind, NOT_REGISTERED};
use crate::state::places::{self, Place};
use crate::state::process::{self, Process};
use crate::state::trigger_table::{self, Triggers};
use crate::state::{dropped, hub, slow_stacks, stamps};
use crate::sys::image::Image;
use crate::sys::lock::Lock;
use crate::sys::mapped_file::MappedFile;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use everycall_format::arena::{ModuleEntry, counter, module_flags, module_state};
use everycall_format::event::{ESCAPE_FIRST, EXIT, NO_PLACE_FIRST};
use everycall_format::label;
use everycall_format::site::RUNTIME_ABI;
use everycall_hooks::{ModuleDescriptor, SlowCall};

/// Set when the program itself is unloaded: it is ending, and nothing more is unmapped.
static ENDING: AtomicU32 = AtomicU32::new(0);

/// Registers a module with trampolines, to which nothing leads yet. See
/// [`everycall_hooks::RuntimeTable::adopt`].
pub(crate) fn adopt(module: &ModuleDescriptor, slow_path: SlowCall, first: u64, table: &[u8]) {
    module.index.store(NOT_REGISTERED, Relaxed);
    let Some(process) = fork::traced() else { return };
    frames::put_trampolines(process, module.trampolines.load(Relaxed) as u32, first, table);
    register_module(process, module, slow_path);
    loaded_modules::follow(process);
}

/// Registers a module whose hooks shall call this slow path. See
/// [`everycall_hooks::RuntimeTable::register`].
pub(crate) fn register(module: &ModuleDescriptor, slow_path: SlowCall) {
    module.index.store(NOT_REGISTERED, Relaxed);
    let Some(process) = fork::traced() else { return };
    register_module(process, module, slow_path);
    loaded_modules::follow(process);
}

fn register_module(process: &'static Process, module: &ModuleDescriptor, slow_path: SlowCall) {
    let arena = process.arena();
    if module.abi.load(Relaxed) != RUNTIME_ABI {
        arena.count(counter::MODULES_OF_OTHER_VERSION, 1);
        return;
    }
    let _lock = Lock::take(&process.module_lock);
    let _registering = Registering::new(module);
    let Some(image) = Image::of_module(module) else {
        arena.count(counter::MODULES_UNTRACED, 1);
        return;
    };
    // SAFETY: the scratch buffer is ours while we hold the lock.
    let buffer = unsafe { &mut *process.scratch() };
    let file = MappedFile::at(image.start, buffer);
    let claim = module_table::claim(process, arena, &image, &file);
    let (start, end) = image.code;
    let size = end - start;
    // A module without a place in the table is recorded as an unknown module. All of these share
    // one range.
    let code_start = match &claim {
        Some(claim) => claim.code_start,
        None if size <= u64::from(ESCAPE_FIRST - NO_PLACE_FIRST) => NO_PLACE_FIRST,
        None => {
            arena.count(counter::MODULES_UNTRACED, 1);
            return;
        }
    };
    let bias = (start as u32).wrapping_sub(code_start);
    module.bias_entry.store(bias, Relaxed);
    module.bias_exit.store(bias.wrapping_sub(EXIT), Relaxed);
    module.start.store(start, Relaxed);
    module.size.store(size, Relaxed);
    prepare(module, slow_path);
    stamps::prepare(process, module, claim.as_ref().map(|claim| claim.index));
    if !counted::begin(module) {
        if dropped::is_counting() {
            arena.count(counter::MODULES_UNTRACED, 1);
            return;
        }
        arena.count(counter::MODULES_UNCOUNTED, 1);
    }
    captures::install(process, module, &image);
    // Read before the first event of the module.
    let loaded_ticks = everycall_hooks::ticks();
    let (counts, mut on) = loaded_modules::add(module, &image);
    loaded_modules::count_not_selected(arena);
    arena.count(counter::SITES_UNPATCHED, counts.wrong().into());
    match claim {
        Some(claim) => {
            let entry = ModuleEntry {
                flags: flags(module, &image) | claim.flags(),
                base: image.base,
                start,
                end,
                code_start,
                build_id_length: image.build_id_length,
                build_id: image.build_id,
                loaded_ticks,
                sites: counts.all(),
                sites_unpatched: counts.wrong(),
                device: file.device,
                inode: file.inode,
                predecessors: claim.predecessors(),
                trampolines: image.trampolines,
                ..ModuleEntry::default()
            };
            fill(process, arena, &claim, entry, &file);
            site_set::add(process, arena, &entry, &file);
            live_triggers::add(arena, &entry);
            module.index.store(claim.index, Relaxed);
        }
        None => arena.count(counter::MODULES_WITHOUT_PLACE, 1),
    }
    // Modules with trampolines are registered from outside, by a thread on a stack that isn't its
    // own: a note would be one of a fiber.
    if module.region[0].load(Relaxed) == 0 {
        // SAFETY: the scratch buffer is ours while we hold the lock.
        note(label::MODULE_LOADED, file.path(unsafe { &*process.scratch() }).unwrap_or(&[]));
    }
    let may_be_added = site_set::may_be_added(image.build_id_length, &image.build_id);
    let may_be_captured = captures::may_be_added(image.build_id_length, &image.build_id);
    if tell_recorder(arena, may_be_added || may_be_captured) {
        let is_added = may_be_added && site_set::load_selection_again();
        let is_captured =
            may_be_captured && captures::load_again() && captures::install(process, module, &image);
        if (is_added || is_captured)
            && let Some(new) = loaded_modules::select_again(module, &image)
        {
            on = new;
            // The registering thread does the rest when it has released the lock.
            loaded_modules::request();
        }
    }
    let wrong = loaded_modules::follow_tails(arena, module, &image);
    arena.count(counter::SITES_UNPATCHED, wrong.into());
    trigger_table::lower_floors(process);
    module.on.store(on, Release);
}

/// Largest number of addresses whose modules aren't found, after which none is looked for. Each
/// look reads all mappings.
const NOT_FOUND_MAX: u32 = 32;
/// How many there were.
static NOT_FOUND: AtomicU32 = AtomicU32::new(0);

/// A hook has reported a call of code outside all registered modules: a function of a library that
/// isn't traced and that was inlined into a traced function (mode `finstrument`; libstdc++'s
/// templates are such functions). Adds its object to the module table, so that its calls have
/// names.
pub(crate) fn take_in_untraced(process: &'static Process, address: u64) {
    // Not waited for: this may be within a registration.
    let Some(_lock) = Lock::try_take(&process.module_lock) else { return };
    if NOT_FOUND.load(Relaxed) >= NOT_FOUND_MAX || matches!(places::of(process, address), Place::Offset(_)) {
        return;
    }
    let arena = process.arena();
    // SAFETY: the scratch buffer is ours while we hold the lock.
    let buffer = unsafe { &mut *process.scratch() };
    let image = MappedFile::header_of(address, buffer).and_then(Image::of);
    let Some(image) = image.filter(|image| (image.start..image.end).contains(&address)) else {
        NOT_FOUND.fetch_add(1, Relaxed);
        return;
    };
    let file = MappedFile::at(address, buffer);
    let Some(claim) = module_table::claim(process, arena, &image, &file) else {
        NOT_FOUND.fetch_add(1, Relaxed);
        return;
    };
    let entry = ModuleEntry {
        flags: module_flags::UNTRACED | claim.flags(),
        base: image.base,
        start: image.start,
        end: image.end,
        code_start: claim.code_start,
        build_id_length: image.build_id_length,
        build_id: image.build_id,
        loaded_ticks: everycall_hooks::ticks(),
        device: file.device,
        inode: file.inode,
        predecessors: claim.predecessors(),
        ..ModuleEntry::default()
    };
    fill(process, arena, &claim, entry, &file);
    // So that the recorder opens its file. The thread doesn't wait for that.
    if let Some(hub) = hub::hub() {
        let _ = hub.ring();
    }
}

/// The runtime is not notified when an untraced module is unloaded, but a traced one that refers to
/// it goes first. If it is still there, it is found again. The caller holds the module lock.
fn take_out_untraced(arena: &Arena) {
    let count = arena.module_count().load(Relaxed);
    let entries = (0..count).filter_map(|index| Some((index, arena.module(index)?)));
    let is_it = |entry: &ModuleEntry| {
        entry.state == module_state::COMPLETE
            && entry.unloaded_ticks == 0
            && entry.flags & module_flags::UNTRACED != 0
    };
    for (index, _) in entries.filter(|(_, entry)| is_it(entry)) {
        if let Some(unloaded_ticks) = arena.module_unloaded(index) {
            unloaded_ticks.store(everycall_hooks::ticks(), Relaxed);
            module_table::remember_unloaded(index);
        }
    }
}

/// Lets the hooks of an object find their thread and the slow path.
pub(crate) fn prepare(module: &ModuleDescriptor, slow_path: SlowCall) {
    module.thread_slot.store(process::thread_slot_offset(), Relaxed);
    module.slow_stacks.store(slow_stacks::list(), Relaxed);
    module.slow.store(slow_path as usize as u64, Relaxed);
}

/// The code offset after a module's range.
fn end_of(entry: &ModuleEntry) -> u32 {
    entry.code_start.saturating_add(entry.end.wrapping_sub(entry.start) as u32)
}

/// Fills the entry of a claim and publishes it.
fn fill(process: &Process, arena: &Arena, claim: &Claim, mut entry: ModuleEntry, file: &MappedFile) {
    let path = match claim.kind {
        Kind::Again(before) => {
            entry.loaded_ticks = before.loaded_ticks;
            Some((before.path_offset, before.path_length))
        }
        // SAFETY: the scratch buffer is ours while we hold the lock.
        Kind::New | Kind::Instead(_) => file.path(unsafe { &*process.scratch() }).and_then(|path| {
            let free = match claim.kind {
                Kind::Instead(before) => (before.path_offset, before.path_length),
                _ => (0, 0),
            };
            arena.put_path(path, free)
        }),
    };
    if path.is_none() {
        arena.count(counter::PATHS_MISSING, 1);
    }
    (entry.path_offset, entry.path_length) = path.unwrap_or_default();
    if let Kind::Instead(before) = claim.kind {
        if before.code_start == entry.code_start {
            dropped::forget(process, entry.code_start, end_of(&before).max(end_of(&entry)));
        }
        arena.count(counter::MODULE_ENTRIES_REUSED, 1);
    }
    if let (Kind::Again(before), Some(unloaded_ticks)) = (claim.kind, arena.module_unloaded(claim.index))
        && (before.base, before.start, before.end) == (entry.base, entry.start, entry.end)
    {
        // The module is loaded at the same address as before, so the entry is still valid and is
        // never seen empty.
        unloaded_ticks.store(0, Relaxed);
        module_table::remember(claim.index, &entry);
        return;
    }
    let Some(state) = arena.module_state(claim.index) else { return };
    // These are system calls. They run before the entry is marked empty, because a snapshot may be
    // taken at any time.
    arena.add_module_to_dumps(claim.index, &entry);
    // Marked empty while it changes, so that no reader sees a mixture of both modules.
    state.store(module_state::EMPTY, SeqCst);
    arena.put_module(claim.index, &entry);
    state.store(module_state::COMPLETE, Release);
    if let Kind::New = claim.kind {
        arena.module_count().store(claim.index + 1, Release);
    }
    module_table::remember(claim.index, &entry);
}

/// The module is about to be unloaded. See [`everycall_hooks::RuntimeTable::unregister`].
pub(crate) fn unregister(module: &ModuleDescriptor) {
    let Some(process) = fork::traced() else { return };
    if module.abi.load(Relaxed) != RUNTIME_ABI {
        return;
    }
    take_out(process, module);
    loaded_modules::follow(process);
}

fn take_out(process: &'static Process, module: &ModuleDescriptor) {
    let arena = process.arena();
    let _lock = Lock::take(&process.module_lock);
    let index = module.index.load(Relaxed);
    let entry = arena.module(index);
    if entry.is_some_and(|entry| entry.flags & module_flags::EXECUTABLE != 0) {
        ENDING.store(1, Relaxed);
    }
    if ENDING.load(Relaxed) != 0 {
        return;
    }
    take_out_untraced(arena);
    loaded_modules::remove(module);
    counted::end(module);
    stamps::end(module);
    captures::remove(module);
    note(label::MODULE_UNLOADED, entry.as_ref().map_or(&[], |entry| arena.path(entry)));
    if index != NOT_REGISTERED
        && let Some(unloaded_ticks) = arena.module_unloaded(index)
    {
        unloaded_ticks.store(everycall_hooks::ticks(), Relaxed);
        module_table::remember_unloaded(index);
    }
}

/// Records on the calling thread's timeline that a module is loaded or unloaded. Does nothing if
/// the thread hasn't recorded anything yet.
fn note(class: u8, path: &[u8]) {
    let name = match path.rsplit(|byte| *byte == b'/').next() {
        None | Some(b"") => b"?",
        Some(name) => name,
    };
    calling::note(class, name, core::ptr::from_ref(&path) as u64);
}

fn flags(module: &ModuleDescriptor, image: &Image) -> u32 {
    let present = |list: &[core::sync::atomic::AtomicU64; 2]| list[0].load(Relaxed) != list[1].load(Relaxed);
    let mut flags = 0;
    if image.executable {
        flags |= module_flags::EXECUTABLE;
    }
    if present(&module.sites) {
        flags |= module_flags::NOPS;
    }
    if present(&module.sleds) {
        flags |= module_flags::XRAY;
    }
    if present(&module.region) {
        flags |= module_flags::TRAMPOLINES;
    }
    flags
}

/// Rings for the recorder and waits shortly, so that it can open the module's file. If there are
/// triggers, or its functions `may_be_added` to a set, it waits until the recorder has
/// named the functions; otherwise their first calls would be missed. Returns whether the recorder
/// has done so in time.
fn tell_recorder(arena: &Arena, may_be_added: bool) -> bool {
    let Some(hub) = hub::hub() else { return false };
    let doorbell = hub.ring();
    let triggers = Triggers::of(arena);
    let is_heard = if triggers.is_some() || may_be_added {
        hub.wait_for_names(doorbell)
    } else {
        hub.wait_for(doorbell, hub::FILE_WAIT_NS)
    };
    if !is_heard {
        arena.count(counter::RECORDER_LATE, 1);
        if let Some(triggers) = triggers {
            triggers.give_up();
        }
    }
    is_heard
}
