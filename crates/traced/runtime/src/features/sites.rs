//! The sites that a module lists, by number: those of mode `nops`, then XRay's.

#![allow(unsafe_code)] // Lists of sites that the linker made.

use crate::features::switch::SiteList;
use crate::state::arena::Arena;
use crate::state::captures::{self, Captures};
use crate::state::dropped;
use crate::state::process::process;
use crate::state::stamps;
use crate::state::trigger_table::{self, Triggers};
use crate::sys::image::Text;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use everycall_format::Wire;
use everycall_format::arch::{CALL_SIZE, SITE_SIZE, SLED_CALL};
use everycall_format::site::{Site as NopSite, XraySled, site_kind, sled_kind};
use everycall_hooks::ModuleDescriptor;
use everycall_hooks::arch::jump;
use everycall_patch::{OTHERS, Refusal, Site};

/// A module's sites.
pub(crate) struct Sites<'a> {
    module: &'a ModuleDescriptor,
    text: &'a [Text],
    nops: &'a [u8],
    sleds: &'a [u8],
    /// The process's, if it is traced: its triggers say which tail exits have which hook.
    arena: Option<Arena>,
}

impl<'a> Sites<'a> {
    /// The sites of a module with these executable segments.
    ///
    /// # Safety
    /// The module stays loaded that long, and its lists come from its linker.
    pub(crate) unsafe fn of(module: &'a ModuleDescriptor, text: &'a [Text]) -> Sites<'a> {
        let arena = process().map(|process| *process.arena());
        // SAFETY: by contract.
        unsafe { Sites { module, text, nops: list(&module.sites), sleds: list(&module.sleds), arena } }
    }

    /// The numbers of all sites.
    pub(crate) fn numbers(&self) -> core::ops::Range<u32> {
        0..(self.nops.len() / NopSite::SIZE + self.sleds.len() / XraySled::SIZE) as u32
    }

    /// The number of the first XRay sled.
    pub(crate) fn first_sled(&self) -> u32 {
        (self.nops.len() / NopSite::SIZE) as u32
    }

    /// The numbers of the tail exits that triggers follow.
    pub(crate) fn followed(&self) -> impl Iterator<Item = u32> + Clone {
        self.tail_exits().filter(|number| {
            let code = self.code(self.function(*number));
            self.arena.is_some_and(|arena| trigger_table::follows_tails_of(&arena, code))
        })
    }

    /// The numbers of the tail exits of functions that these triggers name.
    pub(crate) fn tail_exits_of(&self, triggers: Triggers) -> impl Iterator<Item = u32> + Clone {
        self.tail_exits()
            .filter(move |number| triggers.sites_at(self.code(self.function(*number))).next().is_some())
    }

    /// The numbers of all tail exits.
    pub(crate) fn tail_exits(&self) -> impl Iterator<Item = u32> + Clone {
        self.numbers().filter(move |number| self.is_tail_exit(*number))
    }

    /// Whether a site is a tail exit.
    pub(crate) fn is_tail_exit(&self, number: u32) -> bool {
        self.is_of_kind(number, site_kind::TAIL_EXIT, &[sled_kind::TAIL_EXIT])
    }

    /// Whether a site is of a kind, or a sled of one of these kinds.
    fn is_of_kind(&self, number: u32, kind: u32, of_sleds: &[u8]) -> bool {
        let number = number as usize;
        match number.checked_sub(self.nops.len() / NopSite::SIZE) {
            None => entry::<NopSite>(self.nops, number).is_some_and(|(_, site)| site.kind == kind),
            Some(number) => {
                entry::<XraySled>(self.sleds, number).is_some_and(|(_, sled)| of_sleds.contains(&sled.kind))
            }
        }
    }

    /// The sites are in trampolines, apart from the functions to which they belong.
    pub(crate) fn are_apart(&self) -> bool {
        self.module.region[0].load(Relaxed) != 0
    }

    /// The address by which selections know a site: its own, or its function's.
    pub(crate) fn place(&self, number: u32, site: &Site) -> u64 {
        if self.are_apart() { self.function(number) } else { site.address() }
    }

    /// The code offset of a function.
    fn code(&self, function: u64) -> u32 {
        let place = match self.are_apart() {
            true => self.trampolines_of(function).map_or(0, |(first, _)| first),
            false => function,
        };
        (place as u32).wrapping_sub(self.module.bias_entry.load(Relaxed))
    }

    /// The addresses that hooks report for a function: the first one, and the one behind the last.
    pub(crate) fn trampolines_of(&self, function: u64) -> Option<(u64, u64)> {
        let count = (self.nops.len() / NopSite::SIZE) as u32;
        let (mut first, mut end) = (0, count);
        while first < end {
            let middle = first.midpoint(end);
            if self.function(middle) < function {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        let numbers = (first..count).take_while(|number| self.function(*number) == function);
        let places = numbers.filter_map(|number| {
            let (place, site) = entry::<NopSite>(self.nops, number as usize)?;
            Some(place.wrapping_add_signed(site.site.into()) + SITE_SIZE as u64)
        });
        places.fold(None, |found, place| match found {
            None => Some((place, place + 1)),
            Some((first, end)) => Some((first.min(place), end.max(place + 1))),
        })
    }

    /// Whether a trigger follows the tail calls of a function.
    fn follows(&self, function: u64) -> bool {
        self.arena.is_some_and(|arena| trigger_table::follows_tails_of(&arena, self.code(function)))
    }

    /// The hook of a tail exit of a function, and those that it may call so far. `plain` are those
    /// of other functions.
    fn tail_exit_hooks(&self, function: u64, (plain, other): Hooks) -> Hooks {
        let armed = self.module.tail_exit_hook.load(Relaxed);
        let (hook, plain) = if self.follows(function) { (armed, plain) } else { (plain, armed) };
        (hook, [Some(plain), other[0]])
    }
}

impl SiteList for Sites<'_> {
    fn get(&self, number: u32) -> Option<Result<(Site, Text), Refusal>> {
        let number = number as usize;
        let nops = self.nops.len() / NopSite::SIZE;
        let (site, others) = match number.checked_sub(nops) {
            None => {
                let (place, site) = entry::<NopSite>(self.nops, number)?;
                let address = place.wrapping_add_signed(site.site.into());
                let plain = self.hooks(site.kind != site_kind::ENTRY);
                let (hook, others) = match site.kind {
                    site_kind::TAIL_EXIT => self.tail_exit_hooks(function_of(&site, place), plain),
                    kind => self.capture_hooks(function_of(&site, place), kind != site_kind::ENTRY, plain),
                };
                (Site::of_nops(site.kind, address, hook), others)
            }
            Some(number) => {
                let (place, sled) = entry::<XraySled>(self.sleds, number)?;
                let address = place.wrapping_add_signed(sled.sled);
                let (hook, others) = match sled.kind {
                    sled_kind::EXIT => {
                        self.capture_hooks(function_of_sled(&sled, place), true, self.hooks(true))
                    }
                    sled_kind::TAIL_EXIT => {
                        self.tail_exit_hooks(function_of_sled(&sled, place), self.sled_hook(true))
                    }
                    _ => {
                        let wanted =
                            self.capture_hooks(function_of_sled(&sled, place), false, self.sled_hook(false));
                        self.lasting(address, wanted)
                    }
                };
                (Site::of_sled(sled.kind, address, hook), others)
            }
        };
        let site = others
            .into_iter()
            .flatten()
            .fold(site, |site, other| site.and_then(|site| site.instead_of(other)));
        Some(site.and_then(|site| match Text::of(self.text, site.address(), site.size()) {
            Some(text) => Ok((site, text)),
            None => Err(Refusal::Misplaced),
        }))
    }
}

impl Sites<'_> {
    /// The address of the function to which a site belongs. 0 if there is no such number.
    pub(crate) fn function(&self, number: u32) -> u64 {
        let number = number as usize;
        let function = match number.checked_sub(self.nops.len() / NopSite::SIZE) {
            None => entry::<NopSite>(self.nops, number).map(|(place, site)| function_of(&site, place)),
            Some(number) => {
                entry::<XraySled>(self.sleds, number).map(|(place, sled)| function_of_sled(&sled, place))
            }
        };
        function.unwrap_or(0)
    }

    /// Whether a site is its function's entry.
    pub(crate) fn is_entry(&self, number: u32) -> bool {
        self.is_of_kind(number, site_kind::ENTRY, &[sled_kind::ENTRY, sled_kind::ENTRY_LOG_ARGS])
    }

    /// Whether a site is an exit, and the address behind its call of a hook. `None` for sites of
    /// other kinds.
    pub(crate) fn hook_returns_to(&self, number: u32) -> Option<(bool, u64)> {
        let number = number as usize;
        match number.checked_sub(self.nops.len() / NopSite::SIZE) {
            None => {
                let (place, site) = entry::<NopSite>(self.nops, number)?;
                let behind = place.wrapping_add_signed(site.site.into()) + SITE_SIZE as u64;
                match site.kind {
                    site_kind::ENTRY => Some((false, behind)),
                    site_kind::EXIT | site_kind::RETURN | site_kind::TAIL_EXIT => Some((true, behind)),
                    _ => None,
                }
            }
            Some(number) => {
                let (place, sled) = entry::<XraySled>(self.sleds, number)?;
                let behind = place.wrapping_add_signed(sled.sled) + CALL_SIZE as u64;
                // In front of the call in a sled that isn't in the place of a return.
                let before = SLED_CALL as u64;
                match sled.kind {
                    sled_kind::ENTRY | sled_kind::ENTRY_LOG_ARGS => Some((false, behind + before)),
                    sled_kind::TAIL_EXIT => Some((true, behind + before)),
                    sled_kind::EXIT => Some((true, behind)),
                    _ => None,
                }
            }
        }
    }

    /// The hook of a site of a function whose values may be copied, and those that it may call so
    /// far. `usual` are those of other functions.
    fn capture_hooks(&self, function: u64, is_exit: bool, usual: Hooks) -> Hooks {
        if dropped::is_counting() {
            return usual;
        }
        let captures = Captures::of(self.module);
        let hook = if is_exit { &self.module.capture_exit_hook } else { &self.module.capture_entry_hook };
        let hook = hook.load(Relaxed);
        if hook == 0 {
            return usual;
        }
        let (plain, others) = usual;
        // At exits of calls that may have been left out, the entry may be missing.
        let at = captures.and_then(|captures| captures.at(function));
        let is_captured = at.is_some_and(|at| match is_exit {
            true => at.exit.are_any() || at.is_conditional,
            false => at.entry.are_any(),
        });
        match is_captured {
            false => (plain, [Some(hook), others[0]]),
            true => (hook, [Some(plain), others[0]]),
        }
    }

    /// The hook of an entry's sled, which keeps the one that it has once threads may run it: one
    /// may have been stopped right before the call, and would find half of the new displacement.
    fn lasting(&self, sled: u64, wanted: Hooks) -> Hooks {
        let (hook, others) = wanted;
        let call = sled.wrapping_add(SLED_CALL as u64);
        if captures::is_registering(self.module) || Text::of(self.text, call, CALL_SIZE).is_none() {
            return wanted;
        }
        // SAFETY: in a loaded segment; volatile, as others may write.
        let bytes = unsafe { (call as *const [u8; CALL_SIZE]).read_volatile() };
        let target = jump::direct_call(bytes, call.wrapping_add(CALL_SIZE as u64));
        match target.filter(|target| others.contains(&Some(*target))) {
            Some(target) => (target, [Some(hook), None]),
            None => wanted,
        }
    }

    /// Whether a site is an entry that can't be led to the hook that copies values.
    pub(crate) fn keeps_other_hook(&self, number: u32) -> bool {
        let sled = (number as usize).checked_sub(self.nops.len() / NopSite::SIZE);
        let Some((place, sled)) = sled.and_then(|sled| entry::<XraySled>(self.sleds, sled)) else {
            return false;
        };
        let hook = self.module.capture_entry_hook.load(Relaxed);
        let wanted = (hook, [Some(self.sled_hook(false).0), None]);
        let is_entry = matches!(sled.kind, sled_kind::ENTRY | sled_kind::ENTRY_LOG_ARGS);
        is_entry && self.lasting(place.wrapping_add_signed(sled.sled), wanted).0 != hook
    }

    /// The hook of sites, and the one that they may call so far: which events have stamps may have
    /// changed while they were off.
    fn hooks(&self, is_exit: bool) -> Hooks {
        let was_chosen = self.module.unstamped.load(Relaxed) != 0;
        let are_left_out = stamps::are_left_out();
        let hook = |are_unstamped: bool| self.hook(is_exit, are_unstamped && was_chosen);
        (hook(are_left_out), [was_chosen.then(|| hook(!are_left_out)), None])
    }

    /// That of sleds which aren't led to another hook: [`ModuleDescriptor::sled_hooks`].
    fn sled_hook(&self, is_exit: bool) -> Hooks {
        let [entry, exit] = &self.module.sled_hooks;
        let hook = match is_exit {
            true if !dropped::is_timing() => exit.load(Relaxed),
            false if !dropped::is_counting() => entry.load(Relaxed),
            _ => self.hook(is_exit, false),
        };
        (hook, [None; 2])
    }

    fn hook(&self, is_exit: bool, are_unstamped: bool) -> u64 {
        let field = match is_exit {
            true if dropped::is_timing() => &self.module.time_exit_hook,
            true if are_unstamped => &self.module.unstamped_exit_hook,
            true => &self.module.exit_hook,
            false if dropped::is_timing() => &self.module.time_entry_hook,
            false if dropped::is_counting() => &self.module.count_hook,
            false if are_unstamped => &self.module.unstamped_entry_hook,
            false => &self.module.entry_hook,
        };
        field.load(Relaxed)
    }

    /// Whether only entries are on: hooks count.
    pub(crate) fn are_counted(&self) -> bool {
        dropped::is_counting()
            && !dropped::is_timing()
            && self.module.count_hook.load(Relaxed) != self.module.entry_hook.load(Relaxed)
    }
}

/// The hook of a site, and those that it may call so far.
type Hooks = (u64, [Option<u64>; OTHERS]);

/// The start of the function of a site whose entry in the list lies at `place`.
fn function_of(site: &NopSite, place: u64) -> u64 {
    (place + offset_of!(NopSite, function) as u64).wrapping_add_signed(site.function.into())
}

fn function_of_sled(sled: &XraySled, place: u64) -> u64 {
    (place + offset_of!(XraySled, function) as u64).wrapping_add_signed(sled.function)
}

/// A list in the module's memory.
///
/// # Safety
/// `list` holds the linker's begin and end of a section that is loaded and never written.
unsafe fn list(list: &[AtomicU64; 2]) -> &[u8] {
    let (first, end) = (list[0].load(Relaxed), list[1].load(Relaxed));
    let length = if first == 0 { 0 } else { end.saturating_sub(first) };
    // SAFETY: by contract.
    unsafe {
        core::slice::from_raw_parts(
            core::ptr::with_exposed_provenance::<u8>(first.max(1) as usize),
            length as usize,
        )
    }
}

/// An entry of such a list, with its address.
fn entry<T: Wire>(list: &[u8], number: usize) -> Option<(u64, T)> {
    let raw = list.get(number * T::SIZE..)?.get(..T::SIZE)?;
    Some((raw.as_ptr() as u64, T::read(raw)?))
}
