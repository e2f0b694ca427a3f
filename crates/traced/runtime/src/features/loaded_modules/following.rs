//! Brings the sites of all modules into line with what is to be recorded.
//!
//! A thread that switches tracing, or registers a module, does that, unless another thread is
//! already doing so. That thread holds the module lock, and checks again after it has released it.
//! So no thread waits for another.

use super::lines::{IS_HANDLED, OUTCOME, bring_into_line, whole};
use super::registry::{FORGOTTEN, LoadedModule, MODULES, USED, used};
use super::selecting::{OFF, ON, as_counted, selected};
use super::tails::IS_LEFT;
use crate::features::captures;
use crate::features::frames;
use crate::features::marks;
use crate::features::sites::Sites;
use crate::features::switch;
use crate::features::switch::Counts;
use crate::features::switch::Means;
use crate::features::switch::Pages;
use crate::state::arena::Arena;
use crate::state::capture_sets;
use crate::state::live_areas;
use crate::state::module_table::NOT_REGISTERED;
use crate::state::process::Process;
use crate::state::recording;
use crate::state::selection;
use crate::state::stamps;
use crate::sys::image::Image;
use crate::sys::lock::Lock;
use crate::sys::system;
use core::sync::atomic::{
    AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};
use everycall_format::arena::counter;
use everycall_hooks::ModuleDescriptor;

/// Changes whenever sites are to be brought into line with something else.
static REQUESTED: AtomicU32 = AtomicU32::new(0);

/// The value of [`REQUESTED`] that the sites were last brought into line with.
static APPLIED: AtomicU32 = AtomicU32::new(0);

/// Not 0 while that is being done.
pub(super) static CHANGING: AtomicU32 = AtomicU32::new(0);

/// How often the module lock is tried, with a turn for other threads in between.
pub(super) const TRIES: u32 = 10_000;

/// The sites are to be brought into line: what is recorded has changed. [`follow`] does it.
pub(crate) fn request() {
    REQUESTED.fetch_add(1, SeqCst);
}

/// The program has set its first handler, or removed the last one.
pub(crate) fn set_handled(process: &'static Process, is_handled: bool) {
    if IS_HANDLED.swap(is_handled.into(), SeqCst) != u32::from(is_handled) {
        request();
        follow(process);
    }
}

/// In a forked child, nothing continues what a thread of the parent was doing at the fork.
pub(crate) fn begin_child() {
    switch::begin_child();
    let had_sessions = selection::begin_child() | capture_sets::begin_child();
    if live_areas::begin_child() {
        IS_LEFT.store(1, Relaxed);
    }
    let was_changing = CHANGING.swap(0, SeqCst) != 0;
    if was_changing || had_sessions {
        request();
    }
    if was_changing {
        for known in used() {
            // SAFETY: registered modules, which are loaded here, too.
            if let Some(module) = unsafe { known.module.load(Acquire).as_ref() } {
                // If its calls reach the hooks, the hooks check this.
                let on = match module.on.load(Relaxed) {
                    OFF => as_counted(ON),
                    on => on,
                };
                module.on.store(if recording::is_disabled() { OFF } else { on }, Release);
            }
        }
    }
}

/// Adds a module none of whose code has run yet, and switches its sites as the selections require.
/// The caller holds the module lock. Returns the result for its sites, and the new value of its
/// [`ModuleDescriptor::on`].
pub(crate) fn add(module: &ModuleDescriptor, image: &Image) -> (Counts, u64) {
    let free = MODULES.iter().position(|known| known.module.load(Relaxed).is_null());
    let (place, known) = match free.and_then(|place| Some((place, MODULES.get(place)?))) {
        Some((place, known)) => (Some(place), known),
        // It can't be remembered, so it stays as it begins.
        None => (None, &FORGOTTEN),
    };
    let whole = whole();
    // SAFETY: the module is loaded, by contract of `register`.
    let sites = unsafe { Sites::of(module, &image.text) };
    let on = if whole.is_on { selected(known, &sites, module, image) } else { OFF };
    let line = bring_into_line(known, &sites, sites.numbers(), whole, Means::BEFORE_ANYBODY);
    OUTCOME.add(line);
    match place {
        None => {
            // Its bits are leaked: its hooks read them.
            known.marks.forget();
        }
        Some(place) => {
            known.unpatched.store(line.on.wrong(), Relaxed);
            known.module.store(core::ptr::from_ref(module).cast_mut(), Release);
            USED.fetch_max(place as u32 + 1, Relaxed);
        }
    }
    (line.all(), on)
}

/// Switches the sites of a module that was just added, and none of whose code has run yet, as the
/// selections now require. Returns the new value of its [`ModuleDescriptor::on`]. The caller holds
/// the module lock, and has all modules brought into line afterwards, which counts the sites.
pub(crate) fn select_again(module: &ModuleDescriptor, image: &Image) -> Option<u64> {
    let known = used().iter().find(|known| core::ptr::eq(known.module.load(Relaxed), module))?;
    let whole = whole();
    // SAFETY: the module is loaded, by contract of `register`.
    let sites = unsafe { Sites::of(module, &image.text) };
    let on = if whole.is_on { selected(known, &sites, module, image) } else { OFF };
    bring_into_line(known, &sites, sites.numbers(), whole, Means::BEFORE_ANYBODY);
    Some(on)
}

/// Brings the sites of all modules into line with what is to be recorded. If another thread is
/// doing so, it will see the change.
pub(crate) fn follow(process: &'static Process) {
    // Either the thread that has just released the lock sees the new request here, or the
    // requesting thread gets the lock.
    while !is_followed() {
        let mask = system::block_signals();
        let lock = Lock::try_take(&process.module_lock);
        if lock.is_some() {
            apply(process);
        }
        let had_lock = lock.is_some();
        drop(lock);
        system::set_signal_mask(mask);
        if !had_lock {
            return;
        }
    }
}

/// As [`follow`], and waits while another thread does it, unless that is the one that a signal
/// handler has interrupted here.
pub(crate) fn follow_to_end(process: &'static Process) {
    for _ in 0..TRIES {
        follow(process);
        if is_followed() {
            return;
        }
        system::yield_now();
    }
}

/// Whether the program has installed a filter of system calls since its start.
pub(crate) fn is_filtered() -> bool {
    Means::live().pages == Pages::Never
}

/// Whether all sites are as they were last requested.
pub(crate) fn is_followed() -> bool {
    fence(SeqCst);
    APPLIED.load(SeqCst) == REQUESTED.load(SeqCst)
}

fn apply(process: &'static Process) {
    let arena = process.arena();
    let began = everycall_hooks::ticks();
    CHANGING.store(1, SeqCst);
    let request = REQUESTED.load(SeqCst);
    let whole = whole();
    let is_on = whole.is_on;
    let means = Means::live();
    OUTCOME.clear();
    selection::begin_count();
    let are_values_new = capture_sets::begin_change();
    for known in used() {
        // SAFETY: registered modules stay loaded while the lock is held.
        let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
        let image = Image::of_module(module);
        // SAFETY: as above.
        let sites = image.as_ref().map(|image| unsafe { Sites::of(module, &image.text) });
        let (Some(image), Some(sites)) = (&image, &sites) else { continue };
        if are_values_new {
            captures::install(process, module, image);
        }
        let on = if is_on { selected(known, sites, module, image) } else { OFF };
        if on == OFF {
            module.on.store(OFF, Release);
        }
        let line = bring_into_line(known, sites, sites.numbers(), whole, means);
        OUTCOME.add(line);
        if is_on {
            count(arena, known, module, line.on);
        }
        if on != OFF {
            module.on.store(on, Release);
        }
    }
    if are_values_new {
        capture_sets::end_change();
    }
    frames::switch(arena);
    OUTCOME.took.store(everycall_hooks::ticks().saturating_sub(began), Relaxed);
    count_not_selected(arena);
    CHANGING.store(0, SeqCst);
    APPLIED.store(request, SeqCst);
}

/// Chooses which events have stamps (`wanted`: one of [`everycall_format::stamp`], or what the
/// process began with). Returns false if something is recorded with another choice: hooks of one
/// kind don't expect events of the other's. `None` is satisfied with that. The caller holds the
/// module lock.
pub(crate) fn choose_stamps(process: &'static Process, wanted: Option<u32>) -> bool {
    let chosen = wanted.unwrap_or_else(stamps::first);
    if chosen == stamps::mode() {
        return true;
    }
    let modules = || {
        used().iter().filter_map(|known| {
            // SAFETY: registered modules stay loaded while the lock is held.
            let module = unsafe { known.module.load(Acquire).as_ref() };
            module.map(|module| (known, module))
        })
    };
    let whole = whole();
    let is_on = |(known, module): (&LoadedModule, &ModuleDescriptor)| {
        // SAFETY: as above.
        let sites = unsafe { Sites::of(module, &[]) };
        module.on.load(Relaxed) != OFF
            || sites.numbers().any(|number| marks::is_on(known.marks.of(number), whole))
    };
    if modules().any(is_on) {
        return wanted.is_none();
    }
    stamps::choose(process, chosen);
    for (_, module) in modules() {
        let index = module.index.load(Relaxed);
        stamps::prepare(process, module, (index != NOT_REGISTERED).then_some(index));
    }
    true
}

/// Stores how many sites are off because no selection contains their functions. The caller holds
/// the module lock.
pub(crate) fn count_not_selected(arena: &Arena) {
    let is_on = recording::are_sites_on();
    let not_selected = if is_on { OUTCOME.off.load(Relaxed) } else { 0 };
    arena.set_count(counter::SITES_NOT_SELECTED, not_selected.into());
}

/// Counts the sites that couldn't be switched on and haven't been counted yet.
fn count(arena: &Arena, known: &LoadedModule, module: &ModuleDescriptor, counts: Counts) {
    let before = known.unpatched.fetch_max(counts.wrong(), Relaxed);
    let more = counts.wrong().saturating_sub(before);
    if more > 0 {
        arena.count(counter::SITES_UNPATCHED, more.into());
        if let Some(unpatched) = arena.module_sites_unpatched(module.index.load(Relaxed)) {
            unpatched.store(counts.wrong(), Relaxed);
        }
    }
}
