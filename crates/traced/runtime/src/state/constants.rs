//! Constants of the program itself: its read-only segments, which stay mapped as long as it runs.
//! Values are read there without asking the kernel, page by page, once it has read the page.

use crate::sys::image::{CONSTANT_SEGMENTS, Image};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use everycall_format::arena::PAGE;
use everycall_hooks::{COPY_PAGES, ModuleDescriptor};

/// The segments: first address, and the one behind the last.
static SEGMENTS: [[AtomicU64; 2]; CONSTANT_SEGMENTS] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; CONSTANT_SEGMENTS];
/// Addresses of pages that the kernel has read, each at a place by its number. If two pages have
/// one place, they replace each other. Hooks read it, and compare nothing else.
static PAGES: [AtomicU64; COPY_PAGES] = {
    let mut pages = [const { AtomicU64::new(0) }; COPY_PAGES];
    pages[0] = AtomicU64::new(NO_FIRST_PAGE);
    pages
};
/// At the first place if there is no page: 0 would be one. At the others, 0 is no page, as that has
/// the first place.
const NO_FIRST_PAGE: u64 = PAGE;

/// The ELF header of the object to which they belong; 0 if there is none.
static OWNER: AtomicU64 = AtomicU64::new(0);

/// Learns the segments of the program. Those of libraries don't count, because they may be
/// unloaded. The caller holds the module lock.
pub(crate) fn learn(module: &ModuleDescriptor, image: &Image) {
    let header = module.elf_header.load(Relaxed);
    if !image.executable || ![0, header].contains(&OWNER.load(Relaxed)) {
        return;
    }
    OWNER.store(header, Relaxed);
    for ([first, end], (start, behind)) in SEGMENTS.iter().zip(image.constant) {
        first.store(start, Relaxed);
        end.store(behind, Relaxed);
    }
}

/// The module is about to be unloaded: a library may look like a program. The caller holds the
/// module lock.
pub(crate) fn forget(module: &ModuleDescriptor) {
    if OWNER.load(Relaxed) == module.elf_header.load(Relaxed) {
        SEGMENTS.iter().flatten().for_each(|place| place.store(0, Relaxed));
        let empty = core::iter::once(NO_FIRST_PAGE).chain(core::iter::repeat(0));
        PAGES.iter().zip(empty).for_each(|(place, empty)| place.store(empty, Relaxed));
        OWNER.store(0, Relaxed);
    }
}

/// Whether these bytes are constants of the program.
fn are_constants(address: u64, length: usize) -> bool {
    let Some(behind) = address.checked_add(length as u64) else { return false };
    SEGMENTS.iter().any(|[first, end]| address >= first.load(Relaxed) && behind <= end.load(Relaxed))
}

/// The places of the pages of these bytes.
fn pages(address: u64, length: usize) -> impl Iterator<Item = (u64, &'static AtomicU64)> {
    let first = address & !(PAGE - 1);
    let pages = (first..address.saturating_add(length as u64)).step_by(PAGE as usize);
    pages.filter_map(|page| Some((page, PAGES.get((page / PAGE) as usize % PAGES.len())?)))
}

/// Whether these bytes can be read directly.
pub(crate) fn are_readable(address: u64, length: usize) -> bool {
    are_constants(address, length) && pages(address, length).all(|(page, place)| place.load(Relaxed) == page)
}

/// The kernel has read these bytes.
pub(crate) fn were_read(address: u64, length: usize) {
    if are_constants(address, length) {
        pages(address, length).for_each(|(page, place)| place.store(page, Relaxed));
    }
}

/// Where hooks find the pages that the kernel has read.
pub(crate) fn pages_address() -> u64 {
    PAGES.as_ptr() as u64
}
