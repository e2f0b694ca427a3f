//! Whether a module's sites should be on, and switching them so.

use super::registry::LoadedModule;
use crate::features::marks;
use crate::features::marks::Whole;
use crate::features::sites::Sites;
use crate::features::switch;
use crate::features::switch::Counts;
use crate::features::switch::Means;
use crate::state::recording;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use everycall_patch::Switch;

/// Not 0: the program has a handler for events of functions that are marked as patched.
pub(super) static IS_HANDLED: AtomicU32 = AtomicU32::new(0);

/// The state that holds for all sites.
pub(super) fn whole() -> Whole {
    Whole { is_on: recording::are_sites_on(), is_handled: IS_HANDLED.load(SeqCst) != 0 }
}

/// Results for sites that should be on, and for those that should be off.
#[derive(Clone, Copy, Default)]
pub(super) struct Line {
    pub(super) on: Counts,
    pub(super) off: Counts,
}

impl Line {
    pub(super) fn all(self) -> Counts {
        let mut all = self.on;
        all.add(self.off);
        all
    }
}

/// The result of the last update of all modules' sites.
pub(crate) struct Outcome {
    /// Sites that are on.
    pub(crate) on: AtomicU32,
    /// Sites that are off.
    pub(crate) off: AtomicU32,
    pub(crate) foreign: AtomicU32,
    pub(crate) failed: AtomicU32,
    /// How long that took, ticks.
    pub(crate) took: AtomicU64,
}

/// Used while holding the module lock.
pub(crate) static OUTCOME: Outcome = Outcome {
    on: AtomicU32::new(0),
    off: AtomicU32::new(0),
    foreign: AtomicU32::new(0),
    failed: AtomicU32::new(0),
    took: AtomicU64::new(0),
};

impl Outcome {
    pub(super) fn clear(&self) {
        for count in [&self.on, &self.off, &self.foreign, &self.failed] {
            count.store(0, Relaxed);
        }
    }

    pub(super) fn add(&self, line: Line) {
        let Line { on, off } = line;
        self.on.fetch_add(on.switched + on.already, Relaxed);
        self.off.fetch_add(off.switched + off.already, Relaxed);
        self.foreign.fetch_add(on.foreign + off.foreign, Relaxed);
        self.failed.fetch_add(on.failed + off.failed, Relaxed);
    }
}

/// Switches some of a module's sites as their marks say.
pub(super) fn bring_into_line(
    known: &LoadedModule,
    sites: &Sites<'_>,
    range: Range<u32>,
    whole: Whole,
    means: Means,
) -> Line {
    if sites.are_counted() {
        // Exits are off, which means nothing.
        let (entries, exits) = (
            range.clone().filter(|number| sites.is_entry(*number)),
            range.filter(|number| !sites.is_entry(*number)),
        );
        let is_on = |number: &u32| marks::is_on(known.marks.of(*number), whole);
        switch::switch(sites, exits, Switch::Off, means);
        return Line {
            on: switch::switch(sites, entries.clone().filter(is_on), Switch::On, means),
            off: switch::switch(sites, entries.filter(|number| !is_on(number)), Switch::Off, means),
        };
    }
    if !known.marks.are_there() {
        let to = if whole.is_on { Switch::On } else { Switch::Off };
        let counts = switch::switch(sites, range, to, means);
        let (on, off) = if whole.is_on { (counts, Counts::default()) } else { (Counts::default(), counts) };
        return Line { on, off };
    }
    let is_on = |number: &u32| marks::is_on(known.marks.of(*number), whole);
    Line {
        on: switch::switch(sites, range.clone().filter(is_on), Switch::On, means),
        off: switch::switch(sites, range.filter(|number| !is_on(number)), Switch::Off, means),
    }
}
