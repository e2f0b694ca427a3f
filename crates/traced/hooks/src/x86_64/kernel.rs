//! System calls and structures that have another form on each architecture.
#![allow(unsafe_code)] // A system call.

use super::number;
use super::processor::syscall;

/// Flag of `openat`: fails unless it is a folder.
pub const O_DIRECTORY: usize = 0o200_000;
/// Flag of `openat`: fails if it is a link.
pub const O_NOFOLLOW: usize = 0o400_000;

/// The mode, the owner and the number of links in the result of `fstat`.
#[must_use]
pub fn mode_owner_links(facts: &[u64; 18]) -> (u32, u32, u64) {
    (facts[3] as u32, (facts[3] >> 32) as u32, facts[2])
}

/// Waits for events of descriptors, each a `struct pollfd`, for at most so long. Returns how many
/// have some, or an error.
///
/// # Safety
/// There are so many elements, which may be written.
#[inline(always)]
pub unsafe fn poll(list: *mut u64, count: usize, milliseconds: usize) -> isize {
    // SAFETY: by contract.
    unsafe { syscall(number::POLL, [list as usize, count, milliseconds, 0, 0, 0]) }
}
