//! The loaded modules, and whether their sites are off or on.
//!
//! A thread that switches tracing, or registers a module, brings the sites into line, unless
//! another thread is already doing so. That thread holds the module lock, and checks again after it
//! has released it. So no thread waits for another.

#![allow(unsafe_code)] // Descriptors of modules that are loaded.

use crate::features::sites::Sites;
use crate::features::switch::{self, Counts, Means, Pages};
use crate::state::arena::Arena;
use crate::state::process::Process;
use crate::state::recording;
use crate::state::selection::{self, InModule};
use crate::sys::block::Block;
use crate::sys::image::Image;
use crate::sys::lock::Lock;
use crate::sys::system;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
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

/// Changes whenever sites are to be brought into line with something else.
static REQUESTED: AtomicU32 = AtomicU32::new(0);
/// The value of [`REQUESTED`] that the sites were last brought into line with.
static APPLIED: AtomicU32 = AtomicU32::new(0);
/// Not 0 while that is being done.
static CHANGING: AtomicU32 = AtomicU32::new(0);

/// What became of the sites of all modules when they were last brought into line.
pub(crate) struct Outcome {
    /// Sites that are on.
    pub(crate) on: AtomicU32,
    /// Sites that are off.
    pub(crate) off: AtomicU32,
    pub(crate) foreign: AtomicU32,
    pub(crate) failed: AtomicU32,
    /// When that was done, and how long it took, ticks.
    pub(crate) ticks: AtomicU64,
    pub(crate) took: AtomicU64,
}

/// Used while holding the module lock.
pub(crate) static OUTCOME: Outcome = Outcome {
    on: AtomicU32::new(0),
    off: AtomicU32::new(0),
    foreign: AtomicU32::new(0),
    failed: AtomicU32::new(0),
    ticks: AtomicU64::new(0),
    took: AtomicU64::new(0),
};

impl Outcome {
    fn clear(&self) {
        for count in [&self.on, &self.off, &self.foreign, &self.failed] {
            count.store(0, Relaxed);
        }
    }

    fn add(&self, on: Counts, off: Counts) {
        self.on.fetch_add(on.switched + on.already, Relaxed);
        self.off.fetch_add(off.switched + off.already, Relaxed);
        self.foreign.fetch_add(on.foreign + off.foreign, Relaxed);
        self.failed.fetch_add(on.failed + off.failed, Relaxed);
    }
}

/// The sites are to be brought into line: what is recorded has changed. [`follow`] does it.
pub(crate) fn request() {
    REQUESTED.fetch_add(1, SeqCst);
}

/// In a forked child, nothing continues what a thread of the parent was doing at the fork.
pub(crate) fn begin_child() {
    switch::begin_child();
    let had_sessions = selection::begin_child();
    let was_changing = CHANGING.swap(0, SeqCst) != 0;
    if was_changing || had_sessions {
        request();
    }
    if was_changing {
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

/// Adds a module none of whose code has run yet, and switches its sites as selections want it. The
/// caller holds the module lock. Returns what became of its sites, and whether it is on.
pub(crate) fn add(module: &ModuleDescriptor, image: &Image) -> (Counts, bool) {
    let wanted = Wanted::of(image);
    // SAFETY: the module is loaded, by contract of `register`.
    let sites = unsafe { Sites::of(module, &image.text) };
    let (on, off) = wanted.switch(&sites, image, Means::BEFORE_ANYBODY);
    OUTCOME.add(on, off);
    let free = MODULES.iter().position(|known| known.module.load(Relaxed).is_null());
    if let Some((place, known)) = free.and_then(|place| Some((place, MODULES.get(place)?))) {
        known.unpatched.store(on.wrong(), Relaxed);
        known.module.store(core::ptr::from_ref(module).cast_mut(), Release);
        USED.fetch_max(place as u32 + 1, Relaxed);
    }
    let mut counts = on;
    counts.add(off);
    (counts, wanted.is_anything())
}

/// Which sites of a module are to be on.
enum Wanted {
    All,
    None,
    Some(InModule),
}

impl Wanted {
    /// The caller holds the module lock.
    fn of(image: &Image) -> Wanted {
        if !recording::are_sites_on() {
            return Wanted::None;
        }
        if selection::is_everything() {
            return Wanted::All;
        }
        Wanted::Some(InModule::of(image.build_id_length, &image.build_id))
    }

    fn is_anything(&self) -> bool {
        match self {
            Wanted::All => true,
            Wanted::None => false,
            Wanted::Some(some) => some.is_anything(),
        }
    }

    /// Switches the sites of a module. Returns what became of those that are to be on, and of the
    /// others.
    fn switch(&self, sites: &Sites<'_>, image: &Image, means: Means) -> (Counts, Counts) {
        let (all, none) = (sites.numbers(), 0..0);
        let some = match self {
            Wanted::All => return (switch::switch(sites, all, Switch::On, means), Counts::default()),
            Wanted::None => return (Counts::default(), switch::switch(sites, all, Switch::Off, means)),
            Wanted::Some(some) => some,
        };
        // Looked up once: switching looks at each site several times.
        let Some(mut marks) = Block::new(u64::from(all.end.div_ceil(8))) else {
            let off = Counts { failed: all.end, ..Counts::default() };
            return (switch::switch(sites, none, Switch::On, means), off);
        };
        for number in all.clone() {
            let address = match sites.get(number) {
                Some(Ok((site, _))) => site.address(),
                _ => continue,
            };
            if some.wants(address.wrapping_sub(image.base))
                && let Some(byte) = marks.bytes_mut().get_mut(number as usize / 8)
            {
                *byte |= 1 << (number % 8);
            }
        }
        let is_marked = |number: &u32| {
            marks.bytes().get(*number as usize / 8).is_some_and(|byte| byte >> (number % 8) & 1 != 0)
        };
        let on = switch::switch(sites, all.clone().filter(is_marked), Switch::On, means);
        (on, switch::switch(sites, all.filter(|number| !is_marked(number)), Switch::Off, means))
    }
}

/// The module is about to be unloaded. The caller holds the module lock.
pub(crate) fn remove(module: &ModuleDescriptor) {
    for known in used() {
        if core::ptr::eq(known.module.load(Relaxed), module) {
            known.module.store(core::ptr::null_mut(), Relaxed);
        }
    }
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
            apply(process.arena());
        }
        let had_lock = lock.is_some();
        drop(lock);
        system::set_signal_mask(mask);
        if !had_lock {
            return;
        }
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

fn apply(arena: &Arena) {
    let began = everycall_hooks::ticks();
    CHANGING.store(1, SeqCst);
    let request = REQUESTED.load(SeqCst);
    let means = Means::live();
    OUTCOME.clear();
    selection::begin_count();
    for known in used() {
        // SAFETY: registered modules stay loaded while the lock is held.
        let Some(module) = (unsafe { known.module.load(Acquire).as_ref() }) else { continue };
        let image = Image::of(module.elf_header.load(Relaxed));
        let wanted = image.as_ref().map_or(Wanted::None, Wanted::of);
        if !wanted.is_anything() {
            module.on.store(0, Release);
        }
        if let Some(image) = image {
            // SAFETY: as above.
            let sites = unsafe { Sites::of(module, &image.text) };
            let (on, off) = wanted.switch(&sites, &image, means);
            OUTCOME.add(on, off);
            count(arena, known, module, on);
        }
        if wanted.is_anything() {
            module.on.store(1, Release);
        }
    }
    let now = everycall_hooks::ticks();
    OUTCOME.ticks.store(now, Relaxed);
    OUTCOME.took.store(now.saturating_sub(began), Relaxed);
    let is_off_on_purpose = recording::are_sites_on();
    arena.sites_off().store(if is_off_on_purpose { OUTCOME.off.load(Relaxed).into() } else { 0 }, Relaxed);
    CHANGING.store(0, SeqCst);
    APPLIED.store(request, SeqCst);
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
