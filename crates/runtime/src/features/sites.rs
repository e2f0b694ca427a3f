//! Writes the sites of a module, on or off. At its registration nobody runs its code yet.
#![allow(unsafe_code)] // Lists of sites that the linker made, and bytes of code.

use crate::sys::file::File;
use crate::sys::image::Text;
use crate::sys::system::{self, PROT_EXEC, PROT_READ, PROT_WRITE};
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::Wire;
use everycall_format::arena::PAGE;
use everycall_format::site::{Site, XraySled, site_kind, sled_kind};
use everycall_hooks::ModuleDescriptor;
use everycall_patch::{Refusal, SITE_SIZE, SLED_SIZE, Switch, site_bytes, sled_bytes};

/// What became of a module's sites.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    pub(crate) sites: u32,
    pub(crate) unpatched: u32,
}

/// Pages that are writable for the time being, one run at a time.
#[derive(Default)]
struct Window {
    first: u64,
    end: u64,
    /// What they are otherwise.
    protection: usize,
    /// Writes through the kernel where pages can't be made writable.
    memory: Option<File>,
}

/// Bytes that one change of protection makes writable: sites come in address order.
const RUN: u64 = 64 * PAGE;

impl Window {
    fn write(&mut self, address: u64, bytes: &[u8], text: Text) -> bool {
        let end = address + bytes.len() as u64;
        if !(self.first <= address && end <= self.end) && self.memory.is_none() {
            self.close();
            let first = address & !(PAGE - 1);
            let last = (first + RUN).min(text.end).max(end).next_multiple_of(PAGE);
            // Executable all the while: other threads may run neighbours on the same pages.
            if system::protect(first, last - first, PROT_READ | PROT_WRITE | PROT_EXEC) {
                (self.first, self.end, self.protection) = (first, last, text.protection());
            } else {
                self.memory = File::open(b"/proc/self/mem\0", true);
            }
        }
        if let Some(memory) = &self.memory {
            return memory.write_at(bytes, address);
        }
        if self.first == self.end {
            return false;
        }
        // SAFETY: writable now, within the module's text, verified to be a site's bytes.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        true
    }

    fn close(&mut self) {
        if self.first < self.end {
            system::protect(self.first, self.end - self.first, self.protection);
        }
        (self.first, self.end) = (0, 0);
    }
}

/// Switches all sites of a module.
pub(crate) fn switch(module: &ModuleDescriptor, text: &[Text], to: Switch) -> Outcome {
    let mut outcome = Outcome::default();
    let mut window = Window::default();
    let hook = |exit: bool, tail: bool| {
        let field = if tail {
            &module.tail_exit_hook
        } else if exit {
            &module.exit_hook
        } else {
            &module.entry_hook
        };
        field.load(Relaxed)
    };

    let mut done = |ok: bool| {
        outcome.sites += 1;
        outcome.unpatched += u32::from(!ok);
    };
    for (place, site) in entries::<Site>(&module.sites) {
        let address = place.wrapping_add_signed(site.site.into());
        let hook = hook(site.kind != site_kind::ENTRY, site.kind == site_kind::TAIL_EXIT);
        done(change(&mut window, text, address, |now: [u8; SITE_SIZE]| {
            site_bytes(now, site.kind, address, hook, to)
        }));
    }
    for (place, sled) in entries::<XraySled>(&module.sleds) {
        if sled.kind > sled_kind::ENTRY_LOG_ARGS {
            continue; // Custom events: no entry, no exit.
        }
        let address = place.wrapping_add_signed(sled.sled);
        let hook = hook(sled.kind == sled_kind::EXIT, sled.kind == sled_kind::TAIL_EXIT);
        done(change(&mut window, text, address, |now: [u8; SLED_SIZE]| {
            sled_bytes(now, sled.kind, address, hook, to)
        }));
    }
    window.close();
    outcome
}

/// The entries of a list in the module's memory, with their addresses.
fn entries<T: Wire>(list: &[core::sync::atomic::AtomicU64; 2]) -> impl Iterator<Item = (u64, T)> {
    let (first, end) = (list[0].load(Relaxed), list[1].load(Relaxed));
    let length = if first == 0 { 0 } else { end.saturating_sub(first) };
    // SAFETY: the linker's begin and end of a section that is loaded and never written.
    let bytes = unsafe {
        core::slice::from_raw_parts(
            core::ptr::with_exposed_provenance::<u8>(first.max(1) as usize),
            length as usize,
        )
    };
    bytes
        .chunks_exact(T::SIZE)
        .enumerate()
        .filter_map(move |(index, raw)| Some((first + (index * T::SIZE) as u64, T::read(raw)?)))
}

/// Changes the bytes at an address within the module's text; whether they are what they should be.
fn change<const N: usize>(
    window: &mut Window,
    text: &[Text],
    address: u64,
    new: impl Fn([u8; N]) -> Result<[u8; N], Refusal>,
) -> bool {
    let Some(segment) = Text::of(text, address, N) else { return false };
    // SAFETY: within a mapped segment.
    let now = unsafe { *(address as *const [u8; N]) };
    new(now).is_ok_and(|new| now == new || window.write(address, &new, segment))
}
