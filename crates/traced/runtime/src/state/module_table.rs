//! Which entry of the module table, and which range of the code space, a module gets.
//!
//! A module that is loaded again (the same file by its build id) gets its former entry and range,
//! so its older events keep their names however often it is loaded. Other modules get new ones.
//! When no entry is left, the module that was unloaded first loses its entry, and its range if the
//! code space is used up, too. `record` has seen that module by then and keeps it for the file.
//! Without `record`, its older events lose their names, but never get another module's.

use crate::state::arena::Arena;
use crate::state::process::Process;
use crate::sys::image::Image;
use crate::sys::mapped_file::MappedFile;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::{MODULE_CAPACITY, ModuleEntry, module_flags, module_state};
use everycall_format::event::OFFSET_FIRST;
use everycall_format::frame;

/// Descriptor index of a module that isn't in the table.
pub(crate) const NOT_REGISTERED: u32 = u32::MAX;

// The parent's modules at the fork, as a forked child needs them. (The parent may change its table
// meanwhile.)
static KNOWN: AtomicU32 = AtomicU32::new(0);
static NEXT_CODE: AtomicU32 = AtomicU32::new(OFFSET_FIRST);
/// A bit for each module that was unloaded.
static UNLOADED: [AtomicU64; MODULE_CAPACITY as usize / 64] =
    [const { AtomicU64::new(0) }; MODULE_CAPACITY as usize / 64];
/// [`ModuleEntry::predecessors`] of each entry.
static PREDECESSORS: [AtomicU32; MODULE_CAPACITY as usize] =
    [const { AtomicU32::new(0) }; MODULE_CAPACITY as usize];

/// Number of modules that were registered by this process, or before it was forked.
pub(crate) fn known() -> u32 {
    KNOWN.load(Relaxed)
}

/// First code offset that none of them has.
pub(crate) fn next_code() -> u32 {
    NEXT_CODE.load(Relaxed)
}

/// A module's entry and code range.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) index: u32,
    pub(crate) code_start: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A new entry.
    New,
    /// The module's former entry: it was unloaded and is loaded again.
    Again(ModuleEntry),
    /// The entry of another module that was unloaded.
    Instead(ModuleEntry),
}

/// Finds an entry and range for a module. `None` if there are none. The caller holds the module
/// lock.
pub(crate) fn claim(process: &Process, arena: &Arena, image: &Image, file: &MappedFile) -> Option<Claim> {
    let count = arena.module_count().load(Relaxed);
    let unloaded = || {
        let entries = (0..count).filter_map(|index| Some((index, arena.module(index)?)));
        entries.filter(|(_, entry)| entry.state == module_state::COMPLETE && entry.unloaded_ticks != 0)
    };
    let size = image.code.1 - image.code.0;
    let is_same = |entry: &ModuleEntry| {
        image.build_id_length != 0
            && (entry.build_id_length, entry.build_id) == (image.build_id_length, image.build_id)
            && (entry.device, entry.inode) == (file.device, file.inode)
            && entry.end.wrapping_sub(entry.start) == size
            && entry.trampolines == image.trampolines
    };
    if let Some((index, entry)) = unloaded().find(|(_, entry)| is_same(entry)) {
        return Some(Claim { index, code_start: entry.code_start, kind: Kind::Again(entry) });
    }
    let next = process.next_code.load(Relaxed);
    let fresh = (size <= u64::from(frame::FIRST.saturating_sub(next))).then_some(next);
    let claim = match fresh {
        Some(code_start) if count < arena.layout().module_capacity => {
            Claim { index: count, code_start, kind: Kind::New }
        }
        _ => {
            let fits = |entry: &ModuleEntry| fresh.is_some() || size <= entry.end.wrapping_sub(entry.start);
            let (index, entry) =
                unloaded().filter(|(_, entry)| fits(entry)).min_by_key(|(_, entry)| entry.unloaded_ticks)?;
            Claim { index, code_start: fresh.unwrap_or(entry.code_start), kind: Kind::Instead(entry) }
        }
    };
    if let Some(code_start) = fresh {
        let behind = code_start.saturating_add(size as u32);
        process.next_code.store(behind, Relaxed);
        NEXT_CODE.store(behind, Relaxed);
    }
    Some(claim)
}

impl Claim {
    /// Number of modules that had the entry before.
    pub(crate) fn predecessors(&self) -> u32 {
        match self.kind {
            Kind::New => 0,
            Kind::Again(entry) => entry.predecessors,
            Kind::Instead(entry) => entry.predecessors.wrapping_add(1),
        }
    }

    /// The flag that the range belonged to another module before.
    pub(crate) fn flags(&self) -> u32 {
        match self.kind {
            Kind::New => 0,
            Kind::Again(entry) => entry.flags & module_flags::REUSED_CODE,
            Kind::Instead(entry) if entry.code_start == self.code_start => module_flags::REUSED_CODE,
            Kind::Instead(_) => 0,
        }
    }
}

/// Records that an entry was filled. The caller holds the module lock.
pub(crate) fn remember(index: u32, entry: &ModuleEntry) {
    KNOWN.fetch_max(index + 1, Relaxed);
    if let Some((word, bit)) = unloaded_bit(index) {
        word.fetch_and(!bit, Relaxed);
    }
    if let Some(predecessors) = PREDECESSORS.get(index as usize) {
        predecessors.store(entry.predecessors, Relaxed);
    }
}

/// Records that the module of an entry was unloaded.
pub(crate) fn remember_unloaded(index: u32) {
    if let Some((word, bit)) = unloaded_bit(index) {
        word.fetch_or(bit, Relaxed);
    }
}

fn unloaded_bit(index: u32) -> Option<(&'static AtomicU64, u64)> {
    Some((UNLOADED.get(index as usize / 64)?, 1 << (index % 64)))
}

/// Takes over the first `count` modules in `arena`, the parent's, in a forked child. Modules that
/// the parent unloaded after the fork are still loaded in the child. If the parent has given an
/// entry to another module since, the calls of the entry's former module have no names.
pub(crate) fn take_over(arena: &Arena, count: u32) {
    for index in 0..count {
        let Some(entry) = arena.module(index) else { continue };
        arena.add_module_to_dumps(index, &entry);
        let (Some(state), Some(unloaded_ticks), Some((word, bit)), Some(predecessors)) = (
            arena.module_state(index),
            arena.module_unloaded(index),
            unloaded_bit(index),
            PREDECESSORS.get(index as usize),
        ) else {
            continue;
        };
        if entry.predecessors != predecessors.load(Relaxed) {
            state.store(module_state::EMPTY, Relaxed);
        } else if word.load(Relaxed) & bit == 0 {
            unloaded_ticks.store(0, Relaxed);
        }
    }
}
