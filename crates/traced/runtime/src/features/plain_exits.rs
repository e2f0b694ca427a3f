//! Calls of exit hooks that compilers have left in armed functions (mode `fentry`), in front of a
//! jump: they get another hook, which always takes the slow path.
//!
//! No list has them. A call is known by its target: the object's own exit hook. That four bytes of
//! another instruction lead there by chance, from just this place, isn't to be expected.
#![allow(unsafe_code)] // Code of a loaded module, by its addresses.

use crate::features::switch::SiteList;
use crate::state::arena::Arena;
use crate::state::trigger_table::{self, Triggers};
use crate::sys::image::Text;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::arch::SITE_SIZE;
use everycall_hooks::ModuleDescriptor;
use everycall_hooks::arch::jump::{self, INSTRUCTION_MAX, Registers};
use everycall_patch::{Refusal, Site};

/// Where hooks begin.
const HOOK_ALIGN: u64 = 64;

/// Such calls of a module. Their numbers are code offsets.
pub(crate) struct PlainExits<'a> {
    module: &'a ModuleDescriptor,
    text: &'a [Text],
    arena: Arena,
}

impl<'a> PlainExits<'a> {
    /// Those of a module with these executable segments.
    ///
    /// # Safety
    /// The module stays loaded that long.
    pub(crate) unsafe fn of(module: &'a ModuleDescriptor, text: &'a [Text], arena: Arena) -> Self {
        // Trampolines have sites instead.
        let text = if module.region[0].load(Relaxed) == 0 { text } else { &[] };
        PlainExits { module, text, arena }
    }

    fn hook(&self) -> u64 {
        self.module.tail_exit_hook.load(Relaxed)
    }

    fn address(&self, code: u32) -> u64 {
        let start = self.module.start.load(Relaxed);
        let first = (start as u32).wrapping_sub(self.module.bias_entry.load(Relaxed));
        start.wrapping_add(code.wrapping_sub(first).into())
    }

    /// The code offsets of all such calls in the functions that triggers follow.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + Clone {
        self.numbers_in(Triggers::all(&self.arena).flat_map(Triggers::ranges_with_tails))
    }

    /// The code offsets of all such calls in the functions that these triggers name.
    pub(crate) fn numbers_of(&self, triggers: Triggers) -> impl Iterator<Item = u32> + Clone {
        self.numbers_in(triggers.ranges(|_| true))
    }

    /// All that lead to the other hook or are on the way from it, wherever they are. A switcher asks
    /// anew before each step: a call that has its own target back still needs the last one.
    pub(crate) fn all_changed(&self) -> impl Iterator<Item = u32> + Clone {
        let start = self.module.start.load(Relaxed);
        let first = (start as u32).wrapping_sub(self.module.bias_entry.load(Relaxed));
        let texts = self.text.iter().filter_map(move |text| {
            let code = |address: u64| Some(first + u32::try_from(address.checked_sub(start)?).ok()?);
            Some((code(text.start)?, code(text.end)?))
        });
        let hook = self.hook();
        let is_changed = move |address| !Site::is_call(Self::byte(address)) || self.target(address) == hook;
        self.numbers_in(texts).filter(move |code| is_changed(self.address(*code)))
    }

    fn numbers_in(
        &self,
        ranges: impl Iterator<Item = (u32, u32)> + Clone,
    ) -> impl Iterator<Item = u32> + Clone {
        let size = self.module.size.load(Relaxed);
        let start = self.module.start.load(Relaxed);
        let is_there = move |first: u32, end: u32| {
            let address = self.address(first);
            address.wrapping_sub(start) < size
                && Text::of(self.text, address, (end - first) as usize).is_some()
        };
        ranges.filter(move |(first, end)| is_there(*first, *end)).flat_map(move |(first, end)| {
            let last = end.saturating_sub(SITE_SIZE as u32);
            (first..last).filter(move |code| self.is_tail_exit(self.address(*code), self.address(end)))
        })
    }

    fn byte(address: u64) -> u8 {
        // SAFETY: callers have found the address in a loaded segment; volatile, as others may write.
        unsafe { (address as *const u8).read_volatile() }
    }

    /// The bytes at an address, as far as the segment goes: it may end behind a function's last
    /// jump.
    fn bytes<const SIZE: usize>(&self, address: u64) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let is_there = |(_, at): &(&mut u8, u64)| Text::of(self.text, *at, 1).is_some();
        bytes.iter_mut().zip(address..).take_while(is_there).for_each(|(byte, at)| *byte = Self::byte(at));
        bytes
    }

    /// Where the call at `address` leads.
    fn target(&self, address: u64) -> u64 {
        Site::call_target(self.bytes(address), address)
    }

    fn is_tail_exit(&self, address: u64, end: u64) -> bool {
        if !Site::may_be_call(Self::byte(address)) {
            return false;
        }
        let target = self.target(address);
        if target != self.hook() && !self.is_exit_hook(target) {
            return false;
        }
        let behind = address + SITE_SIZE as u64;
        let mut code: [u8; INSTRUCTION_MAX] = self.bytes(behind);
        let rest = usize::try_from(end.saturating_sub(behind)).unwrap_or(0);
        code.iter_mut().skip(rest).for_each(|byte| *byte = 0);
        jump::behind_exit(&code, behind, &Registers::default()).is_some()
    }

    /// The hook that compilers' calls lead to: it lies before the exit hook.
    fn plain_hook(&self) -> Option<u64> {
        let exit = self.module.called_exit_hook.load(Relaxed);
        let line = exit / HOOK_ALIGN * HOOK_ALIGN;
        (0..4096 / HOOK_ALIGN)
            .map(|steps| line.wrapping_sub(steps * HOOK_ALIGN))
            .find(|place| jump::is_plain_hook(&self.bytes::<INSTRUCTION_MAX>(*place), *place, exit))
    }

    fn is_exit_hook(&self, target: u64) -> bool {
        let exit = self.module.called_exit_hook.load(Relaxed);
        let near = exit.abs_diff(target) < 4096;
        near && (target == exit || jump::is_plain_hook(&self.bytes::<INSTRUCTION_MAX>(target), target, exit))
    }
}

impl SiteList for PlainExits<'_> {
    fn get(&self, number: u32) -> Option<Result<(Site, Text), Refusal>> {
        let address = self.address(number);
        let text = Text::of(self.text, address, SITE_SIZE)?;
        let (target, hook) = (self.target(address), self.hook());
        // While a site changes, its target is whole.
        let site = match trigger_table::follows_tails_of(&self.arena, number) {
            true => Site::of_call(address, hook).and_then(|site| site.instead_of(target)),
            false => {
                let plain = if target == hook { self.plain_hook()? } else { target };
                Site::of_call(address, plain).and_then(|site| site.instead_of(hook))
            }
        };
        Some(site.map(|site| (site, text)))
    }
}
