//! Triggers that clients of the control socket arm while the process runs.
//!
//! Each client gets an area of the arena. Its set of functions stays in memory here, so that modules
//! that are loaded later get their sites as well. The client takes the posted calls out of the area
//! by itself. When its connection ends, the area is free again, and hooks and thresholds are as
//! before.
#![allow(unsafe_code)] // Sets in memory that is mapped here, by their addresses.

use crate::features::{loaded_modules, site_set};
use crate::state::arena::Arena;
use crate::state::process::Process;
use crate::state::selection::HEAD;
use crate::state::trigger_table::{self, Triggers};
use crate::state::{crash_file, frame_triggers, live_areas, own_triggers, stamps};
use crate::sys::block::Block;
use crate::sys::crc::Crc;
use crate::sys::disk;
use crate::sys::lock::Lock;
use crate::sys::system;
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::{ModuleEntry, module_state};
use everycall_format::control_socket::status;
use everycall_format::site_set::SiteSet;
use everycall_format::trigger::{LIVE_AREAS, LIVE_SITES, NEVER, RULES, area_size};

/// A client's set.
struct LiveSet {
    set: SiteSet<'static>,
    /// Bytes of its memory.
    size: u64,
}

const _: () = assert!(size_of::<LiveSet>() <= HEAD);

/// By area. Only the holder of the module lock follows or replaces these.
static SETS: [AtomicPtr<LiveSet>; LIVE_AREAS as usize] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; LIVE_AREAS as usize];

impl LiveSet {
    /// The set in `block`, whose first [`HEAD`] bytes are free. `None` if it isn't one.
    fn new(block: Block) -> Option<*mut LiveSet> {
        let size = block.bytes().len() as u64;
        SiteSet::parse(block.bytes().get(HEAD..)?, Crc::of).ok().filter(SiteSet::is_live)?;
        let base = block.leak();
        // SAFETY: the block's memory, which stays until `put` replaces it, and of which only the
        // head is written from here on.
        let bytes: &'static [u8] =
            unsafe { core::slice::from_raw_parts(base.wrapping_add(HEAD), size as usize - HEAD) };
        let set = SiteSet::parse(bytes, Crc::of).ok()?;
        let place = base.cast::<LiveSet>();
        // SAFETY: a page's beginning, with room for it before the set.
        unsafe { place.write(LiveSet { set, size }) };
        Some(place)
    }
}

/// The set of an area. The caller holds the module lock.
fn set_of(area: u32) -> Option<&'static LiveSet> {
    // SAFETY: null or made by `LiveSet::new`; it isn't freed while the module lock is held.
    unsafe { SETS.get(area as usize)?.load(Acquire).as_ref() }
}

/// Replaces the set of an area. The caller holds the module lock.
fn put(area: u32, set: *mut LiveSet) {
    let Some(place) = SETS.get(area as usize) else { return };
    free(place.swap(set, Release));
}

/// Unmaps a set, which must no longer be reachable.
fn free(set: *mut LiveSet) {
    // SAFETY: null or made by `LiveSet::new`.
    if let Some(size) = unsafe { set.as_ref() }.map(|set| set.size) {
        system::unmap(set.cast(), size);
    }
}

/// Arms the functions of the set in `block` for a client, which has `area` already or gets one.
/// Returns the area, and how many functions had no room; or a [`status`].
pub(crate) fn arm(process: &'static Process, area: Option<u32>, block: Block) -> Result<(u32, u32), u32> {
    let set = LiveSet::new(block).ok_or(status::BAD_SET)?;
    let arena = process.arena();
    let _lock = Lock::take(&process.module_lock);
    let is_new = area.is_none();
    let found = area.or_else(|| (0..LIVE_AREAS).find(|area| live_areas::in_use() & 1 << area == 0));
    let place = found.and_then(|area| Some((area, Triggers::live(arena, area)?)));
    let Some((area, triggers)) = place else {
        free(set);
        return Err(status::NO_AREA);
    };
    // In a crash file, disk space has to be there first.
    let room = area_size(LIVE_SITES);
    if crash_file::is_file() && disk::take_room_at(triggers.base as u64, room).is_err() {
        free(set);
        return Err(status::NO_MEMORY);
    }
    put(area, set);
    let Some(LiveSet { set, .. }) = set_of(area) else { return Err(status::BAD_SET) };
    if is_new {
        triggers.begin_live(arena, set.header().memory);
    }
    own_triggers::put_rules(&triggers, set);
    own_triggers::put_frames(&triggers, set, |ticks| ticks);
    let mut left_out = 0;
    for index in 0..arena.module_count().load(Relaxed).min(arena.layout().module_capacity) {
        let entry = arena.module(index).filter(|entry| entry.state == module_state::COMPLETE);
        if let Some(entry) = entry.filter(|entry| entry.unloaded_ticks == 0) {
            left_out += put_module(&triggers, set, &entry);
        }
    }
    frame_triggers::begin(arena, &triggers, || live_areas::begin(area));
    trigger_table::lower_floors(process);
    stamps::begin_again();
    loaded_modules::switch_tails(arena, Some(triggers));
    Ok((area, left_out))
}

/// The client with this area is gone.
pub(crate) fn disarm(process: &'static Process, area: u32) {
    let arena = process.arena();
    let _lock = Lock::take(&process.module_lock);
    live_areas::end(area);
    if let Some(triggers) = Triggers::live(arena, area) {
        loaded_modules::switch_tails(arena, Some(triggers));
        trigger_table::raise_floors(process);
        triggers.end_live();
    }
    put(area, core::ptr::null_mut());
}

/// A module was loaded. The caller holds the module lock.
pub(crate) fn add(arena: &Arena, entry: &ModuleEntry) {
    let in_use = live_areas::in_use();
    if in_use == 0 {
        return;
    }
    for area in (0..LIVE_AREAS).filter(|area| in_use & 1 << area != 0) {
        if let (Some(LiveSet { set, .. }), Some(triggers)) = (set_of(area), Triggers::live(arena, area)) {
            put_module(&triggers, set, entry);
        }
    }
}

/// Puts a module's functions into an area. Returns how many had no room.
fn put_module(triggers: &Triggers, set: &SiteSet<'static>, entry: &ModuleEntry) -> u32 {
    let mut thresholds = [NEVER; RULES as usize];
    for (threshold, rule) in thresholds.iter_mut().zip(0..set.rule_count()) {
        *threshold = set.rule(rule).map_or(NEVER, |rule| rule.threshold_ns);
    }
    let Some((first, end)) = site_set::code_of(entry) else { return 0 };
    triggers.replace(first, end, site_set::sites_in(set, entry, &thresholds))
}

/// In a forked child: clients are the parent's.
pub(crate) fn begin_child() {
    for place in &SETS {
        // Pointers that the parent left at an unlucky moment are not followed.
        place.store(core::ptr::null_mut(), Relaxed);
    }
}
