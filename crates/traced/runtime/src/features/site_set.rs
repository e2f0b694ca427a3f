//! Sets of functions in files, read at the start: those that triggers name (`EVERYCALL_TRIGGERS`),
//! which are compared with each module that is loaded, and those that are recorded
//! (`EVERYCALL_ONLY`).
#![allow(unsafe_code)] // Memory that is mapped here; a buffer that the lock's holder has.

use crate::features::loaded_modules;
use crate::features::set_file::{Trouble, read, refuse};
use crate::features::sites::Sites;
use crate::state::arena::Arena;
use crate::state::hub;
use crate::state::process::Process;
use crate::state::selection::{self, HEAD, Selection};
use crate::state::thresholds::{self, Bound, is_heard};
use crate::state::trigger_table::Triggers;
use crate::sys::crc::Crc;
use crate::sys::errors::error;
use crate::sys::folder::FOLDER_MAX;
use crate::sys::kept_path::KeptPath;
use crate::sys::mapped_file::MappedFile;
use crate::sys::system::{self, PROT_READ};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use everycall_format::arena::{ModuleEntry, module_flags};
use everycall_format::control_socket::NAME_MAX;
use everycall_format::env;
use everycall_format::site_set::{SetError, SetModule, SiteSet};
use everycall_format::trigger::{NEVER, RULES, TriggerSite};

/// Whether a warning was printed that a module differs from that of the set.
static IS_TOLD: AtomicBool = AtomicBool::new(false);
/// Whether a warning was printed that there is no space for all functions.
static IS_FULL_TOLD: AtomicBool = AtomicBool::new(false);

/// The path in `EVERYCALL_ONLY`.
static ONLY_PATH: KeptPath = KeptPath::none();

/// Reads the set of triggers in the file at `path`. On failure, it prints why, and the program
/// continues. Call it only at the start.
pub(crate) fn load(path: &[u8]) -> Option<&'static SiteSet<'static>> {
    match read_triggers(path) {
        Ok(set) => thresholds::begin(set),
        Err(trouble) => {
            refuse(env::TRIGGERS, path, &trouble, b"Going on without triggers.\n");
            None
        }
    }
}

/// Makes the selection in the file at `path` the base selection. On failure, it prints why, and the
/// program records everything. Call it only at the start.
pub(crate) fn load_selection(path: &[u8]) {
    match read(path, HEAD)
        .and_then(|block| Selection::new(block, 0, [0; NAME_MAX]).ok_or(Trouble::NoSelection))
    {
        Ok(selection) => {
            ONLY_PATH.keep(path);
            selection::set_base_from_start(selection);
        }
        Err(trouble) => refuse(env::ONLY, path, &trouble, b"Recording all functions.\n"),
    }
}

/// Whether the recorder may add functions of a module to the base selection.
pub(crate) fn may_be_added(build_id_length: u32, build_id: &[u8; 32]) -> bool {
    let is_unnamed = |base: &Selection| build_id_length != 0 && !base.names(build_id_length, build_id);
    selection::base_from_start().is_some_and(is_unnamed) && hub::hub().is_some_and(|hub| hub.selects())
}

/// Reads the base selection again, to which the recorder has added functions. Returns whether it is
/// there; if not, the one before stays. The caller holds the module lock.
pub(crate) fn load_selection_again() -> bool {
    let new = selection_at(ONLY_PATH.read(&mut [0; FOLDER_MAX]));
    if let Ok(new) = new {
        selection::set_base_from_start(new);
    }
    new.is_ok()
}

/// The selection in the file at `path`, which nothing uses yet; or the code of an error.
pub(crate) fn selection_at(path: &[u8]) -> Result<&'static Selection, i32> {
    let new = read(path, HEAD)
        .and_then(|block| Selection::new(block, 0, [0; NAME_MAX]).ok_or(Trouble::NoSelection));
    new.map_err(|trouble| match trouble {
        Trouble::NoMemory => error::NO_MEMORY,
        Trouble::Path => error::ARGUMENT,
        _ => error::NO_SELECTION,
    })
}

fn read_triggers(path: &[u8]) -> Result<SiteSet<'static>, Trouble> {
    let block = read(path, 0)?;
    let (length, base) = (block.bytes().len(), block.leak());
    // SAFETY: the block's bytes; it is never unmapped, and never written from here on.
    let bytes: &'static [u8] = unsafe { core::slice::from_raw_parts(base, length) };
    let set = match SiteSet::parse(bytes, Crc::of) {
        Ok(set) if set.is_selection() => Err(Trouble::NoTriggers),
        Ok(set) if set.is_live() => Err(Trouble::Damaged),
        Ok(set) => {
            let _ = system::protect(base as u64, length as u64, PROT_READ);
            return Ok(set);
        }
        Err(SetError::NoSet) => Err(Trouble::NoSet),
        Err(SetError::Version(_)) => Err(Trouble::OtherVersion),
        Err(SetError::Damaged) => Err(Trouble::Damaged),
    };
    system::unmap(base, length as u64);
    set
}

/// A module was loaded: passes its functions that triggers name to the hooks' slow path. The caller
/// holds the module lock.
pub(crate) fn add(process: &Process, arena: &Arena, entry: &ModuleEntry, file: &MappedFile) {
    let (Some(set), Some(triggers)) = (thresholds::set(), Triggers::of(arena)) else { return };
    let Some((first, code_end)) = code_of(entry) else { return };
    if !set.modules().any(|module| is_same(&module, entry)) {
        // SAFETY: the scratch buffer is the lock holder's.
        compare_names(set, file.path(unsafe { &*process.scratch() }));
    }
    let mut thresholds = [NEVER; RULES as usize];
    for (threshold, rule) in thresholds.iter_mut().zip(0..set.rule_count()) {
        *threshold = set.rule(rule).map_or(NEVER, |rule| match rule.threshold_ns {
            NEVER => NEVER,
            threshold_ns => thresholds::ticks(threshold_ns, Bound::Lower),
        });
    }
    let sites = sites_in(set, entry, &thresholds);
    if triggers.replace(first, code_end, sites) > 0 && is_heard() && !IS_FULL_TOLD.swap(true, Relaxed) {
        system::warn(&[
            b"everycall: ",
            env::TRIGGERS.as_bytes(),
            b" names more functions than there is room for, in libraries that are loaded several times; calls of some aren't looked at.\n",
        ]);
    }
}

/// A module's range of code: its first offset, and the one after it.
pub(crate) fn code_of(entry: &ModuleEntry) -> Option<(u32, u32)> {
    let size = u32::try_from(entry.end.saturating_sub(entry.start)).ok()?;
    Some((entry.code_start, entry.code_start.checked_add(size)?))
}

/// The functions of a module that a set names, with the thresholds of their rules.
pub(crate) fn sites_in<'a>(
    set: &SiteSet<'a>,
    entry: &ModuleEntry,
    thresholds: &[u64; RULES as usize],
) -> impl Iterator<Item = TriggerSite> + use<'a> {
    let (entry, thresholds, set) = (*entry, *thresholds, *set);
    let size = entry.end.saturating_sub(entry.start);
    let code = move |address: u64| {
        let offset = address.checked_sub(entry.start)?;
        (offset < size).then(|| u32::try_from(offset).ok()?.checked_add(entry.code_start)).flatten()
    };
    let apart =
        (entry.flags & module_flags::TRAMPOLINES != 0).then(|| loaded_modules::module_of(&entry)).flatten();
    // The addresses that hooks report for a function: the first and the last one.
    let reported = move |start: u64, end: u64| {
        let (start, end) = (start.wrapping_add(entry.base), end.wrapping_add(entry.base));
        match apart {
            Some(module) => {
                // SAFETY: a registered module stays loaded while the module lock is held.
                let sites = unsafe { Sites::of(module, &[]) };
                sites.trampolines_of(start).map(|(first, end)| (first, end - 1))
            }
            None => Some((start, end - 1)),
        }
    };
    let module = set.modules().find(|module| is_same(module, &entry));
    module.into_iter().flat_map(move |module| set.sites_of(&module)).filter_map(move |site| {
        let (first, last) = reported(site.start, site.end)?;
        Some(TriggerSite {
            first: code(first)?,
            end: code(last)?.checked_add(1)?,
            rule: site.rule,
            flags: site.flags,
            threshold: *thresholds.get(site.rule as usize)?,
            ..TriggerSite::default()
        })
    })
}

fn is_same(module: &SetModule, entry: &ModuleEntry) -> bool {
    (module.build_id_length, module.build_id) == (entry.build_id_length, entry.build_id)
}

/// Prints a warning if a file has the name of one of the set but isn't that file.
fn compare_names(set: &SiteSet<'_>, path: Option<&[u8]>) {
    let name = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let Some(own) = path.and_then(|path| path.get(name(path)..)).filter(|name| !name.is_empty()) else {
        return;
    };
    let is_of_this_name = |module: SetModule| {
        let path = set.text(module.path_offset, module.path_length);
        path.get(name(path)..) == Some(own)
    };
    if set.modules().any(is_of_this_name) && is_heard() && !IS_TOLD.swap(true, Relaxed) {
        let path = path.unwrap_or(&[]);
        system::warn(&[
            b"everycall: ",
            path.get(..path.len().min(200)).unwrap_or(path),
            b" isn't the file that ",
            env::TRIGGERS.as_bytes(),
            b" was made of (another build id), so none of its calls are kept; write the set again with everycall resolve.\n",
        ]);
    }
}
