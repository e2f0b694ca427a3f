//! The modules that are loaded. All of it is used while the module lock is held.

use crate::features::bits::Bits;
use crate::features::marks::Marks;
use crate::state::off_ranges;
use crate::state::selection::Selection;
use crate::sys::image::Image;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use everycall_format::arena::MODULE_CAPACITY;
use everycall_format::arena::ModuleEntry;
use everycall_hooks::ModuleDescriptor;

/// A loaded module.
pub(super) struct LoadedModule {
    pub(super) module: AtomicPtr<ModuleDescriptor>,
    /// An upper bound for the number of its sites that couldn't be switched on.
    pub(super) unpatched: AtomicU32,
    /// Which of its functions are off or on by themselves.
    pub(super) marks: Marks,
    /// Which of its functions are selected, for hooks that are always called.
    pub(super) bits: Bits,
}

impl LoadedModule {
    const fn none() -> LoadedModule {
        LoadedModule {
            module: AtomicPtr::new(core::ptr::null_mut()),
            unpatched: AtomicU32::new(0),
            marks: Marks::none(),
            bits: Bits::none(),
        }
    }
}

/// Used while holding the module lock. A forked child has its parent's modules.
pub(super) static MODULES: [LoadedModule; MODULE_CAPACITY as usize] =
    [const { LoadedModule::none() }; MODULE_CAPACITY as usize];

/// The largest number of modules that were loaded at once.
pub(super) static USED: AtomicU32 = AtomicU32::new(0);

/// Marks for a module that has no place among the known ones.
pub(super) static FORGOTTEN: LoadedModule = LoadedModule::none();

pub(super) fn used() -> &'static [LoadedModule] {
    MODULES.get(..USED.load(Relaxed) as usize).unwrap_or(&MODULES)
}

/// Whether a selection says something about a loaded module. The caller holds the module lock.
pub(crate) fn has_module_of(selection: &Selection) -> bool {
    used().iter().any(|known| {
        // SAFETY: registered modules stay loaded while the lock is held.
        let module = unsafe { known.module.load(Acquire).as_ref() };
        let image = module.and_then(Image::of_module);
        let is_named = |image: Image| selection.names(image.build_id_length, &image.build_id);
        selection.has_others() || image.is_some_and(is_named)
    })
}

/// The module of an entry of the module table. The caller holds the module lock.
pub(crate) fn module_of(entry: &ModuleEntry) -> Option<&'static ModuleDescriptor> {
    let all = used().iter().filter_map(|known| {
        // SAFETY: registered modules stay loaded while the lock is held.
        unsafe { known.module.load(Acquire).as_ref() }
    });
    all.into_iter().find(|module| module.start.load(Relaxed) == entry.start)
}

/// The module is about to be unloaded. The caller holds the module lock.
pub(crate) fn remove(module: &ModuleDescriptor) {
    for known in used() {
        if core::ptr::eq(known.module.load(Relaxed), module) {
            known.module.store(core::ptr::null_mut(), Relaxed);
            known.marks.forget();
            known.bits.forget();
            let start = module.start.load(Relaxed);
            off_ranges::forget(start, start.saturating_add(module.size.load(Relaxed)));
        }
    }
}

/// The marks of a site of a module that stays loaded.
pub(crate) fn marks_of(module: &ModuleDescriptor, number: u32) -> u8 {
    let known = used().iter().find(|known| core::ptr::eq(known.module.load(Acquire), module));
    known.map_or(0, |known| known.marks.of(number))
}
