//! The loaded modules, and whether their sites are off or on.
//!
//! A thread that switches tracing, or registers a module, brings the sites into line, unless
//! another thread is already doing so. That thread holds the module lock, and checks again after it
//! has released it. So no thread waits for another.

#![allow(unsafe_code)] // Descriptors of modules that are loaded.

use crate::features::plain_exits::PlainExits;
use crate::features::sites::Sites;
use crate::features::switch::{self, Counts, Means};
use crate::state::arena::Arena;
use crate::state::process::Process;
use crate::state::recording;
use crate::state::trigger_table::Triggers;
use crate::sys::image::Image;
use crate::sys::lock::Lock;
use crate::sys::system;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};
use everycall_format::arena::{MODULE_CAPACITY, counter};
use everycall_hooks::ModuleDescriptor;
use everycall_patch::Switch;

/// A loaded module.
struct Known {
    module: AtomicPtr<ModuleDescriptor>,
    /// An upper bound for the number of its sites that couldn't be switched on.
    unpatched: AtomicU32,
}

/// Used while holding the module lock. A forked child has its parent's modules.
static MODULES: [Known; MODULE_CAPACITY as usize] =
    [const { Known { module: AtomicPtr::new(core::ptr::null_mut()), unpatched: AtomicU32::new(0) } };
        MODULE_CAPACITY as usize];

/// The largest number of modules that were loaded at once.
static USED: AtomicU32 = AtomicU32::new(0);

/// The state of the sites: [`applied`].
static APPLIED: AtomicU32 = AtomicU32::new(applied::ON);

/// [`Triggers::generation`] of the functions whose tail exits have their own hook.
static FOLLOWED: AtomicU32 = AtomicU32::new(0);

mod applied {
    pub const ON: u32 = 0;
    pub const OFF: u32 = 1;
    /// Being switched.
    pub const MIXED: u32 = 2;
}

/// The process starts with its sites off.
pub(crate) fn begin_off() {
    APPLIED.store(applied::OFF, SeqCst);
}

/// In a forked child, nothing continues what a thread of the parent was doing at the fork.
pub(crate) fn begin_child() {
    switch::begin_child();
    if APPLIED.load(SeqCst) == applied::MIXED {
        for known in used() {
            // SAFETY: registered modules, which are loaded here, too.
            if let Some(module) = unsafe { known.module.load(Acquire).as_ref() } {
                // If its calls reach the hooks, the hooks check this.
                module.on.store((!recording::is_disabled()).into(), Release);
            }
        }
    }
}

fn used() -> &'static [Known] {
    MODULES.get(..USED.load(Relaxed) as usize).unwrap_or(&MODULES)
}

/// Adds a module none of whose code has run yet, and gives its sites the same state as all others.
/// The caller holds the module lock. Returns what became of its sites, and whether it is on.
pub(crate) fn add(module: &ModuleDescriptor, image: &Image) -> (Counts, bool) {
    let to = if APPLIED.load(SeqCst) == applied::ON { Switch::On } else { Switch::Off };
    // SAFETY: the module is loaded, by contract of `register`.
    let sites = unsafe { Sites::of(module, &image.text) };
    let counts = switch::switch(&sites, sites.numbers(), to, Means::BEFORE_ANYBODY);
    let free = MODULES.iter().position(|known| known.module.load(Relaxed).is_null());
    if let Some((place, known)) = free.and_then(|place| Some((place, MODULES.get(place)?))) {
        known.unpatched.store(counts.wrong(), Relaxed);
        known.module.store(core::ptr::from_ref(module).cast_mut(), Release);
        USED.fetch_max(place as u32 + 1, Relaxed);
    }
    (counts, to == Switch::On)
}

/// Sends the tail exits of functions that triggers follow to their own hook, in a module none of
/// whose code has run yet. Returns how many that couldn't be done for. The caller holds the module
/// lock.
pub(crate) fn follow_tails(arena: &Arena, module: &ModuleDescriptor, image: &Image) -> u32 {
    follow_tails_of(arena, module, image, Means::BEFORE_ANYBODY)
}

fn follow_tails_of(arena: &Arena, module: &ModuleDescriptor, image: &Image, means: Means) -> u32 {
    let Some(triggers) = Triggers::of(arena).filter(|triggers| triggers.ranges_with_tails().next().is_some())
    else {
        return 0;
    };
    let mut wrong = 0;
    if APPLIED.load(SeqCst) == applied::ON {
        // SAFETY: the module is loaded.
        let sites = unsafe { Sites::of(module, &image.text) };
        wrong += switch::switch(&sites, sites.followed(), Switch::On, means).wrong();
    }
    // SAFETY: as above.
    let calls = unsafe { PlainExits::of(module, &image.text, triggers) };
    wrong + switch::switch(&calls, calls.numbers(), Switch::On, means).wrong()
}

/// Does the same in all modules, if triggers have come since that was last done.
pub(crate) fn follow_new_tails(process: &'static Process) {
    let arena = process.arena();
    let Some(generation) = Triggers::of(arena).map(|triggers| triggers.generation()) else { return };
    if FOLLOWED.load(Relaxed) == generation {
        return;
    }
    let mask = system::block_signals();
    if let Some(_lock) = Lock::try_take(&process.module_lock) {
        FOLLOWED.store(generation, Relaxed);
        let means = Means::live();
        for known in used() {
            // SAFETY: registered modules stay loaded while the lock is held.
            let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
            if let Some(image) = Image::of(module.elf_header.load(Relaxed)) {
                let wrong = follow_tails_of(arena, module, &image, means);
                arena.count(counter::SITES_UNPATCHED, wrong.into());
            }
        }
    }
    system::set_signal_mask(mask);
}

/// The module is about to be unloaded. The caller holds the module lock.
pub(crate) fn remove(module: &ModuleDescriptor) {
    for known in used() {
        if core::ptr::eq(known.module.load(Relaxed), module) {
            known.module.store(core::ptr::null_mut(), Relaxed);
        }
    }
}

/// Brings the sites of all modules into line with the state of tracing. If another thread is doing
/// so, it will see the change.
pub(crate) fn follow(process: &'static Process) {
    loop {
        // Either the thread that has just released the lock sees the new request here, or the
        // requesting thread gets the lock.
        fence(SeqCst);
        let on = recording::are_sites_on();
        if APPLIED.load(SeqCst) == if on { applied::ON } else { applied::OFF } {
            return;
        }
        let mask = system::block_signals();
        let lock = Lock::try_take(&process.module_lock);
        if lock.is_some() {
            apply(process.arena(), on);
        }
        let had_lock = lock.is_some();
        drop(lock);
        system::set_signal_mask(mask);
        if !had_lock {
            return;
        }
    }
}

fn apply(arena: &Arena, on: bool) {
    APPLIED.store(applied::MIXED, SeqCst);
    let means = Means::live();
    let to = if on { Switch::On } else { Switch::Off };
    for known in used() {
        // SAFETY: registered modules stay loaded while the lock is held.
        let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
        if !on {
            module.on.store(0, Release);
        }
        if let Some(image) = Image::of(module.elf_header.load(Relaxed)) {
            // SAFETY: as above.
            let sites = unsafe { Sites::of(module, &image.text) };
            let counts = switch::switch(&sites, sites.numbers(), to, means);
            if on {
                count(arena, known, module, counts);
            }
        }
        if on {
            module.on.store(1, Release);
        }
    }
    APPLIED.store(if on { applied::ON } else { applied::OFF }, SeqCst);
}

/// Counts the sites that couldn't be switched on and haven't been counted yet.
fn count(arena: &Arena, known: &Known, module: &ModuleDescriptor, counts: Counts) {
    let before = known.unpatched.fetch_max(counts.wrong(), Relaxed);
    let more = counts.wrong().saturating_sub(before);
    if more > 0 {
        arena.count(counter::SITES_UNPATCHED, more.into());
        if let Some(unpatched) = arena.module_sites_unpatched(module.index.load(Relaxed)) {
            unpatched.store(counts.wrong(), Relaxed);
        }
    }
}
