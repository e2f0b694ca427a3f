//! Tail exits of functions that triggers follow, which have a hook of their own.

use super::lines::whole;
use super::registry::used;
use crate::features::marks;
use crate::features::plain_exits::PlainExits;
use crate::features::sites::Sites;
use crate::features::switch;
use crate::features::switch::Means;
use crate::state::arena::Arena;
use crate::state::process::Process;
use crate::state::trigger_table::Triggers;
use crate::sys::image::Image;
use crate::sys::lock::Lock;
use crate::sys::system;
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use everycall_format::arena::counter;
use everycall_hooks::ModuleDescriptor;
use everycall_patch::Switch;

/// [`Triggers::generation`] of the functions whose tail exits have their own hook.
static FOLLOWED: AtomicU32 = AtomicU32::new(0);

/// Not 0 in a forked child whose parent had triggers that aren't the child's: tail exits may have
/// their hook.
pub(super) static IS_LEFT: AtomicU32 = AtomicU32::new(0);

/// Sends the tail exits of functions that triggers follow to their own hook, in a module none of
/// whose code has run yet. Returns how many that couldn't be done for. The caller holds the module
/// lock.
pub(crate) fn follow_tails(arena: &Arena, module: &ModuleDescriptor, image: &Image) -> u32 {
    follow_tails_of(arena, module, image, Means::BEFORE_ANYBODY)
}

fn follow_tails_of(arena: &Arena, module: &ModuleDescriptor, image: &Image, means: Means) -> u32 {
    if !Triggers::all(arena).any(|triggers| triggers.ranges_with_tails().next().is_some()) {
        return 0;
    }
    // SAFETY: the module is loaded.
    let sites = unsafe { Sites::of(module, &image.text) };
    let whole = whole();
    let known = used().iter().find(|known| core::ptr::eq(known.module.load(Relaxed), module));
    // Sites that are off get their hook when they are switched on.
    let is_on = |number: &u32| known.is_some_and(|known| marks::is_on(known.marks.of(*number), whole));
    let wrong = switch::switch(&sites, sites.followed().filter(is_on), Switch::On, means).wrong();
    // SAFETY: as above.
    let calls = unsafe { PlainExits::of(module, &image.text, *arena) };
    wrong + switch::switch(&calls, calls.numbers(), Switch::On, means).wrong()
}

/// Does the same in all modules, if triggers have come since that was last done.
pub(crate) fn follow_new_tails(process: &'static Process) {
    let arena = process.arena();
    let generation = Triggers::of(arena).map_or(0, |triggers| triggers.generation());
    if FOLLOWED.load(Relaxed) == generation && IS_LEFT.load(Relaxed) == 0 {
        return;
    }
    let mask = system::block_signals();
    if let Some(_lock) = Lock::try_take(&process.module_lock) {
        FOLLOWED.store(generation, Relaxed);
        if IS_LEFT.swap(0, Relaxed) != 0 {
            switch_tails(arena, None);
        }
        let means = Means::live();
        for known in used() {
            // SAFETY: registered modules stay loaded while the lock is held.
            let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
            if let Some(image) = Image::of_module(module) {
                let wrong = follow_tails_of(arena, module, &image, means);
                arena.count(counter::SITES_UNPATCHED, wrong.into());
            }
        }
    }
    system::set_signal_mask(mask);
}

/// Gives the tail exits of functions the hooks that triggers now want: those of functions that these
/// triggers name, or all. The caller holds the module lock.
pub(crate) fn switch_tails(arena: &Arena, triggers: Option<Triggers>) {
    let (whole, means) = (whole(), Means::live());
    for known in used() {
        // SAFETY: registered modules stay loaded while the lock is held.
        let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
        let Some(image) = Image::of_module(module) else { continue };
        // SAFETY: as above.
        let (sites, calls) =
            unsafe { (Sites::of(module, &image.text), PlainExits::of(module, &image.text, *arena)) };
        // Sites that are off get their hook when they are switched on.
        let is_on = |number: &u32| marks::is_on(known.marks.of(*number), whole);
        let counts = match triggers {
            Some(triggers) => {
                let mut counts =
                    switch::switch(&sites, sites.tail_exits_of(triggers).filter(is_on), Switch::On, means);
                counts.add(switch::switch(&calls, calls.numbers_of(triggers), Switch::On, means));
                counts
            }
            None => {
                let mut counts = switch::switch(&sites, sites.tail_exits().filter(is_on), Switch::On, means);
                counts.add(switch::switch(&calls, calls.all_changed(), Switch::On, means));
                counts
            }
        };
        arena.count(counter::SITES_UNPATCHED, counts.wrong().into());
    }
}
