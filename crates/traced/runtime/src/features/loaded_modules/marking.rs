//! Functions that go off or on by themselves: their marks, and their sites.

use super::following::{CHANGING, TRIES, follow, follow_to_end, request};
use super::lines::{bring_into_line, whole};
use super::registry::{LoadedModule, used};
use crate::features::frame_bits;
use crate::features::marks;
use crate::features::marks::Change;
use crate::features::marks::Whole;
use crate::features::sites::Sites;
use crate::features::switch;
use crate::features::switch::Counts;
use crate::features::switch::Means;
use crate::state::off_ranges;
use crate::state::off_ranges::OffRanges;
use crate::state::process::Process;
use crate::sys::image::Image;
use crate::sys::lock::Lock;
use crate::sys::system;
use crate::sys::unwind_table;
use core::ops::Range;
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use everycall_format::frame::FIRST;
use everycall_format::frame::STEP;
use everycall_format::frame::is_frame;
use everycall_hooks::ModuleDescriptor;
use everycall_patch::Switch;

/// Results for functions that should be switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    /// Functions that were chosen.
    pub(crate) functions: u32,
    /// Their sites.
    pub(crate) sites: u32,
    /// The result for these sites.
    pub(crate) counts: Counts,
}

/// Why no function was switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another thread switches sites, or loads a module, and this may be a signal handler that has
    /// interrupted it.
    Busy,
    /// There is no memory for the marks.
    NoMemory,
    /// So many functions whose hooks are always called can't be off by themselves.
    NoRoom,
}

/// Marks some sites of one module, those of a function, and switches them accordingly.
pub(crate) fn mark_sites(
    process: &'static Process,
    module: &ModuleDescriptor,
    range: Range<u32>,
    to: Change,
) -> Result<Marked, Refused> {
    change(process, |known, other, sites, whole, marked| {
        if core::ptr::eq(module, other) && !range.is_empty() {
            if !known.marks.make_room(sites.numbers().end) {
                return Err(Refused::NoMemory);
            }
            range.clone().for_each(|number| known.marks.change(number, to));
            marked.functions += 1;
            marked.sites += range.len() as u32;
            marked.counts.add(bring_into_line(known, sites, range.clone(), whole, Means::live()).all());
        }
        Ok(())
    })
}

/// A function that is to go off, or on again, for the budget.
#[derive(Clone, Copy, Default)]
pub(crate) struct Costly {
    /// The code offset of its entries.
    pub(crate) code: u32,
    pub(crate) is_off: bool,
    /// Whether that was done.
    pub(crate) done: bool,
    /// Whether its hooks are called though it is off.
    pub(crate) is_always_called: bool,
}

/// How far behind its function's beginning the code of an entry lies: an instruction for indirect
/// branches, the compiler's own before a site, and the call.
const ENTRY_REACH: u64 = 24;

/// How many functions [`mark_costly`] takes at a time.
pub(crate) const COSTLY_MAX: usize = 32;

/// Switches functions off or on for the budget, by the code offsets of their entries.
pub(crate) fn mark_costly(process: &'static Process, all: &mut [Costly]) -> Result<(), Refused> {
    let mut is_plain = mark_costly_frames(process, all)?;
    change(process, |known, module, sites, whole, _| {
        let (start, size) = (module.start.load(Relaxed), module.size.load(Relaxed));
        let bias = module.bias_entry.load(Relaxed);
        // The address of an entry, and the function with sites that begins right before it.
        let mut found = [(0_u64, 0_u64); COSTLY_MAX];
        let mut is_any = false;
        for (costly, found) in all.iter().zip(&mut found) {
            let offset = u64::from(costly.code.wrapping_add(bias).wrapping_sub(start as u32));
            if offset < size {
                found.0 = start + offset;
                is_any = true;
            }
        }
        if !is_any {
            return Ok(());
        }
        let mut function = 0;
        for number in sites.numbers() {
            let its = sites.function(number);
            if its != function {
                function = its;
                for found in &mut found {
                    if its <= found.0 && found.0 - its <= ENTRY_REACH {
                        found.1 = found.1.max(its);
                    }
                }
            }
        }
        if found.iter().any(|found| found.1 != 0) {
            if !known.marks.make_room(sites.numbers().end) {
                return Err(Refused::NoMemory);
            }
            let (mut function, mut change) = (0, Change::default());
            for number in sites.numbers() {
                let its = sites.function(number);
                if its != function {
                    function = its;
                    let place = found.iter().position(|found| found.1 == its && its != 0);
                    change = match place.and_then(|place| all.get_mut(place)) {
                        None => Change::default(),
                        Some(costly) => {
                            costly.done = true;
                            match costly.is_off {
                                true => Change { set: marks::OVER_BUDGET | marks::CHANGING, clear: 0 },
                                false => Change { set: marks::CHANGING, clear: marks::OVER_BUDGET },
                            }
                        }
                    };
                }
                if change.set != 0 {
                    known.marks.change(number, change);
                }
            }
            let wrong = switch_changing(known, sites, whole).wrong() != 0;
            for (costly, found) in all.iter_mut().zip(&found) {
                costly.done &= found.1 == 0 || !wrong;
            }
        }
        // Hooks that are always called look at bits.
        for (costly, found) in all.iter_mut().zip(&found) {
            let is_here = found.0 != 0 && found.1 == 0;
            let range = if is_here {
                unwind_table::function_at(module.elf_header.load(Relaxed), found.0)
            } else {
                None
            };
            if let Some((first, end)) = range {
                costly.done = if costly.is_off {
                    off_ranges::OVER_BUDGET.add(first, end)
                } else {
                    off_ranges::OVER_BUDGET.remove(first, first + 1);
                    true
                };
                costly.is_always_called = true;
                is_plain |= costly.done;
            }
        }
        Ok(())
    })?;
    if is_plain {
        request();
        follow(process);
    }
    Ok(())
}

/// Marks the costly functions that are frames by id. Returns whether there are any.
fn mark_costly_frames(process: &'static Process, all: &mut [Costly]) -> Result<bool, Refused> {
    if !all.iter().any(|costly| is_frame(costly.code)) {
        return Ok(false);
    }
    let mask = system::block_signals();
    let result = lock_patiently(process).map(|_lock| {
        for costly in all.iter_mut().filter(|costly| is_frame(costly.code)) {
            costly.done = frame_bits::set_over_budget((costly.code - FIRST) / STEP, costly.is_off);
            costly.is_always_called = true;
        }
        true
    });
    system::set_signal_mask(mask);
    result
}

/// Switches the sites that are marked as being switched, as their other marks say, and removes that
/// mark.
fn switch_changing(known: &LoadedModule, sites: &Sites<'_>, whole: Whole) -> Counts {
    let is_changing = |number: &u32| known.marks.of(*number) & marks::CHANGING != 0;
    let is_on = |number: &u32| marks::is_on(known.marks.of(*number), whole);
    let (numbers, means) = (|| sites.numbers().filter(is_changing), Means::live());
    let mut counts = switch::switch(sites, numbers().filter(is_on), Switch::On, means);
    counts.add(switch::switch(sites, numbers().filter(|number| !is_on(number)), Switch::Off, means));
    for number in sites.numbers() {
        known.marks.change(number, Change { set: 0, clear: marks::CHANGING });
    }
    counts
}

/// How many functions [`mark_addresses`] takes at a time.
pub(crate) const ADDRESSES_MAX: usize = 32;

/// Switches the functions that contain these addresses off for one reason, or removes that reason.
/// `mark` and `ranges` are the reason's. At most [`ADDRESSES_MAX`] addresses.
pub(crate) fn mark_addresses(
    process: &'static Process,
    addresses: &[u64],
    is_off: bool,
    (mark, ranges): (u8, &OffRanges),
) -> Result<Marked, Refused> {
    let mut is_any_plain = false;
    let marked = change(process, |known, module, sites, whole, marked| {
        let (start, size) = (module.start.load(Relaxed), module.size.load(Relaxed));
        // Begin and end of the functions here, and whether they have sites.
        let mut found = [(0_u64, 0_u64, false); ADDRESSES_MAX];
        for (place, address) in found.iter_mut().zip(addresses) {
            if (start..start.saturating_add(size)).contains(address) {
                let (first, end) = unwind_table::function_at(module.elf_header.load(Relaxed), *address)
                    .unwrap_or((*address, *address));
                *place = (first, end, false);
            }
        }
        if found.iter().all(|found| found.0 == 0) {
            return Ok(());
        }
        let change = match is_off {
            true => Change { set: mark | marks::CHANGING, clear: 0 },
            false => Change { set: marks::CHANGING, clear: mark },
        };
        let (mut function, mut is_one) = (0, false);
        for number in sites.numbers() {
            let its = sites.function(number);
            if its != function {
                function = its;
                is_one = false;
                for found in found.iter_mut().filter(|found| found.0 == its && its != 0) {
                    (found.2, is_one) = (true, true);
                }
            }
            if is_one {
                if !known.marks.make_room(sites.numbers().end) {
                    return Err(Refused::NoMemory);
                }
                known.marks.change(number, change);
                marked.functions += u32::from(sites.is_entry(number));
                marked.sites += 1;
            }
        }
        if known.marks.are_there() {
            marked.counts.add(switch_changing(known, sites, whole));
        }
        // Hooks that are always called look at bits.
        for (index, (first, end, has_sites)) in found.iter().copied().enumerate() {
            let is_again = found.iter().take(index).any(|before| before.0 == first);
            if first < end && !has_sites && !is_again && sites.numbers().is_empty() {
                match is_off {
                    true if !ranges.add(first, end) => return Err(Refused::NoRoom),
                    true => {}
                    false => ranges.remove(first, first + 1),
                }
                is_any_plain = true;
                marked.functions += 1;
            }
        }
        Ok(())
    });
    if is_any_plain {
        request();
        follow_to_end(process);
    }
    marked
}

/// Runs `change` for each module while the module lock is held.
fn change(
    process: &'static Process,
    mut change: impl FnMut(
        &LoadedModule,
        &ModuleDescriptor,
        &Sites<'_>,
        Whole,
        &mut Marked,
    ) -> Result<(), Refused>,
) -> Result<Marked, Refused> {
    let mask = system::block_signals();
    let result = match lock_patiently(process) {
        Err(refused) => Err(refused),
        Ok(_lock) => {
            // A child that is forked meanwhile finishes what is half done.
            CHANGING.store(1, SeqCst);
            let whole = whole();
            let mut marked = Marked::default();
            let result = used().iter().try_for_each(|known| {
                // SAFETY: registered modules stay loaded while the lock is held.
                let module = unsafe { known.module.load(Acquire).as_ref() };
                let image = module.and_then(Image::of_module);
                let (Some(module), Some(image)) = (module, image) else { return Ok(()) };
                // SAFETY: as above.
                let sites = unsafe { Sites::of(module, &image.text) };
                change(known, module, &sites, whole, &mut marked)
            });
            CHANGING.store(0, SeqCst);
            result.map(|()| marked)
        }
    };
    system::set_signal_mask(mask);
    // Another thread may have found the lock taken.
    follow(process);
    result
}

/// The module lock, which is waited for a while.
pub(crate) fn lock_patiently(process: &'static Process) -> Result<Lock<'static>, Refused> {
    (0..TRIES).find_map(|_| lock(process)).ok_or(Refused::Busy)
}

/// The module lock, if it is free.
fn lock(process: &'static Process) -> Option<Lock<'static>> {
    let lock = Lock::try_take(&process.module_lock);
    if lock.is_none() {
        system::yield_now();
    }
    lock
}
