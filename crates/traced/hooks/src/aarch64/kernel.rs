//! System calls and structures that have another form on each architecture.
#![allow(unsafe_code)] // A system call.

use super::number;
use super::processor::syscall;

/// Flag of `openat`: fails unless it is a folder.
pub const O_DIRECTORY: usize = 0o40_000;
/// Flag of `openat`: fails if it is a link.
pub const O_NOFOLLOW: usize = 0o100_000;

/// The mode, the owner and the number of links in the result of `fstat`.
#[must_use]
pub fn mode_owner_links(facts: &[u64; 18]) -> (u32, u32, u64) {
    (facts[2] as u32, facts[3] as u32, facts[2] >> 32)
}

/// Waits for events of descriptors, each a `struct pollfd`, for at most so long. Returns how many
/// have some, or an error.
///
/// # Safety
/// There are so many elements, which may be written.
#[inline(always)]
pub unsafe fn poll(list: *mut u64, count: usize, milliseconds: usize) -> isize {
    let time = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    let arguments = [list as usize, count, time.as_ptr() as usize, 0, 0, 0];
    // SAFETY: by contract; reads the time.
    unsafe { syscall(number::PPOLL, arguments) }
}
