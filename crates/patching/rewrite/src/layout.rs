//! Where a plan's trampolines are mapped.

pub(crate) use crate::bytes::PAGE;
use crate::image::{FileKind, Image};

/// Between a module and its trampolines below it.
const BELOW: i64 = 0x1000_0000;
/// Between a program at a fixed address and its trampolines above it, for its heap.
const ABOVE: i64 = 0x4000_0000;
/// The most that the trampolines may take.
pub(crate) const MAX_REGION: i64 = 0x1000_0000;

/// Where the page of an address begins.
pub(crate) fn page_start(at: u64) -> u64 {
    at & !(PAGE - 1)
}

/// Where the page of an address ends.
///
/// Each patch is on one page: the kernel writes page by page, and whoever applies a plan may be
/// killed in between.
pub(crate) fn page_end(at: u64) -> u64 {
    page_start(at).saturating_add(PAGE)
}

/// The range that the trampolines may lie in, from the module's address 0 on.
pub(crate) fn region_below(image: &Image<'_>) -> (i64, i64) {
    if image.kind == FileKind::Fixed {
        let start = (image.range.1.next_multiple_of(PAGE) as i64).saturating_add(ABOVE);
        return (start, start.saturating_add(MAX_REGION));
    }
    let end = (image.range.0 & !(PAGE - 1)) as i64 - BELOW;
    (end - MAX_REGION, end)
}
