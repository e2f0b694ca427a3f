//! Which of a module's functions are recorded, as selections say.

use super::registry::LoadedModule;
use crate::features::captures;
use crate::features::marks;
use crate::features::marks::Change;
use crate::features::sites::Sites;
use crate::features::switch::SiteList;
use crate::state::captures::Captures;
use crate::state::dropped;
use crate::state::off_ranges;
use crate::state::selection;
use crate::state::selection::InModule;
use crate::sys::image::Image;
use everycall_hooks::CAPTURES;
use everycall_hooks::COUNT_ALL;
use everycall_hooks::COUNTS;
use everycall_hooks::ModuleDescriptor;

/// [`ModuleDescriptor::on`]: nothing, everything.
pub(super) const OFF: u64 = 0;

pub(super) const ON: u64 = 1;

/// The value of [`ModuleDescriptor::on`] in this process, which may count where others record.
pub(super) fn as_counted(on: u64) -> u64 {
    match on {
        OFF => OFF,
        _ if !dropped::is_counting() => on,
        ON => COUNT_ALL,
        bits => bits | COUNTS,
    }
}

/// Marks the sites of a module's functions that no selection contains. The caller holds the module
/// lock. Returns the new value of the module's [`ModuleDescriptor::on`] while tracing is on.
pub(super) fn selected(
    known: &LoadedModule,
    sites: &Sites<'_>,
    module: &ModuleDescriptor,
    image: &Image,
) -> u64 {
    let on = as_counted(select(known, sites, image));
    let captures = Captures::of(module).filter(|captures| captures.has_called() && on != OFF);
    let Some(captures) = captures else { return on };
    // Hooks that are always called look at bits for what is copied, too.
    let everything = || known.bits.set(image, core::iter::once((0, u64::MAX)), core::iter::empty());
    let bits = if on == ON { everything() } else { Some(on) };
    match bits {
        Some(bits) => {
            known.bits.set_second(image, captures::called_ranges(captures, image));
            bits | CAPTURES
        }
        None => on,
    }
}

/// Marks the sites of a module's functions that no selection contains. The caller holds the module
/// lock. Returns the value of the module's [`ModuleDescriptor::on`] while tracing is on.
fn select(known: &LoadedModule, sites: &Sites<'_>, image: &Image) -> u64 {
    let clear = Change { set: 0, clear: marks::NOT_SELECTED };
    if selection::is_everything() {
        if known.marks.are_there() {
            sites.numbers().for_each(|number| known.marks.change(number, clear));
        }
        return match sites.are_apart() {
            true => ON,
            false => without_off(known, image, core::iter::once((0, u64::MAX))),
        };
    }
    let selected = InModule::of(image.build_id_length, &image.build_id);
    // Without memory for marks, more is recorded than is wanted, which can be seen.
    if known.marks.make_room(sites.numbers().end) {
        for number in sites.numbers() {
            if let Some(Ok((site, _))) = sites.get(number) {
                let is_wanted = selected.wants(sites.place(number, &site).wrapping_sub(image.base));
                let leave_out = Change { set: marks::NOT_SELECTED, clear: 0 };
                known.marks.change(number, if is_wanted { clear } else { leave_out });
            }
        }
    }
    match selected.is_anything() {
        false => OFF,
        // Bits are for hooks that are always called.
        true if sites.are_apart() => ON,
        true if selected.is_all() => without_off(known, image, core::iter::once((0, u64::MAX))),
        true => {
            let off = off_ranges::within(image.start, image.end);
            known.bits.set(image, selected.ranges(), off).unwrap_or(ON)
        }
    }
}

/// The value of [`ModuleDescriptor::on`] for a module in which all of `selected` is wanted, but for
/// functions that are off by themselves.
fn without_off(known: &LoadedModule, image: &Image, selected: impl Iterator<Item = (u64, u64)>) -> u64 {
    let off = || off_ranges::within(image.start, image.end);
    match off().next() {
        None => ON,
        Some(_) => known.bits.set(image, selected, off()).unwrap_or(ON),
    }
}
