//! Marks on the sites of a module, by which single functions are off or on, in addition to the
//! state of the whole process.
//!
//! Each site has a byte of marks. Several features switch functions off, each for its own reason,
//! so each has a mark of its own. A function is on again when no feature wants it off any more.
#![allow(unsafe_code)] // Bytes that are mapped here.

use crate::sys::system::{self, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Off: the program has excluded the function ([`crate::features::xray`]).
pub(crate) const UNWANTED: u8 = 1;
/// Off: neither the base selection nor a session names the function ([`crate::state::selection`]).
pub(crate) const NOT_SELECTED: u8 = 2;
/// Off: it would cost more than the budget ([`crate::features::budget`]).
pub(crate) const OVER_BUDGET: u8 = 4;
/// Off: the program has left it out ([`crate::features::left_out`]).
pub(crate) const LEFT_OUT: u8 = 8;
/// Being switched by itself, among sites that stay as they are.
pub(crate) const CHANGING: u8 = 0x40;
/// The program has patched the function by XRay's interface: as long as there is a handler, it is
/// on, whatever else is said.
pub(crate) const PATCHED: u8 = 0x80;
/// All marks for which a site is off.
const OFF: u8 = UNWANTED | NOT_SELECTED | OVER_BUDGET | LEFT_OUT;

/// The state that holds for all sites of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Sites are on, unless they are marked.
    pub(crate) is_on: bool,
    /// The program has a handler.
    pub(crate) is_handled: bool,
}

/// Whether a function with these marks is recorded, when the process is.
pub(crate) fn is_recorded(marks: u8) -> bool {
    marks & OFF == 0
}

/// Whether a site with these marks should be on.
pub(crate) fn is_on(marks: u8, whole: Whole) -> bool {
    whole.is_handled && marks & PATCHED != 0 || whole.is_on && is_recorded(marks)
}

/// How marks change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) set: u8,
    pub(crate) clear: u8,
}

/// The marks of a module's sites. They change while the module lock is held. A forked child has its
/// parent's.
pub(crate) struct Marks {
    /// Null: no site is marked.
    first: AtomicPtr<AtomicU8>,
    count: AtomicU32,
}

impl Marks {
    pub(crate) const fn none() -> Marks {
        Marks { first: AtomicPtr::new(core::ptr::null_mut()), count: AtomicU32::new(0) }
    }

    /// Whether any site may be marked.
    pub(crate) fn are_there(&self) -> bool {
        !self.first.load(Relaxed).is_null()
    }

    /// The marks of a site.
    pub(crate) fn of(&self, number: u32) -> u8 {
        self.all().get(number as usize).map_or(0, |marks| marks.load(Relaxed))
    }

    /// Changes the marks of a site that [`Marks::make_room`] has made room for.
    pub(crate) fn change(&self, number: u32, change: Change) {
        if let Some(marks) = self.all().get(number as usize) {
            marks.store(marks.load(Relaxed) & !change.clear | change.set, Relaxed);
        }
    }

    /// Makes room for a module's marks. Returns false if there is no memory.
    pub(crate) fn make_room(&self, sites: u32) -> bool {
        if !self.are_there() && sites > 0 {
            let flags = MAP_PRIVATE | MAP_ANONYMOUS;
            let Some(base) = system::map(sites.into(), PROT_READ | PROT_WRITE, flags, -1) else {
                return false;
            };
            self.count.store(sites, Relaxed);
            self.first.store(base.cast(), Release);
        }
        true
    }

    /// The module is about to be unloaded.
    pub(crate) fn forget(&self) {
        let first = self.first.swap(core::ptr::null_mut(), Relaxed);
        if !first.is_null() {
            system::unmap(first.cast(), self.count.load(Relaxed).into());
        }
    }

    fn all(&self) -> &[AtomicU8] {
        let first = self.first.load(Acquire);
        if first.is_null() {
            return &[];
        }
        // SAFETY: mapped by `make_room`, which stores the count first.
        unsafe { core::slice::from_raw_parts(first, self.count.load(Relaxed) as usize) }
    }
}
