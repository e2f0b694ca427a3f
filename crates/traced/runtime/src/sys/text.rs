//! C strings that the program passes to the runtime.
#![allow(unsafe_code)] // Pointers to them.

use everycall_format::label::NAME_MAX;

/// A C string, truncated to one byte more than a label's name may have.
///
/// # Safety
/// `begin` is that of a C string that is never freed.
pub(crate) unsafe fn start_of(begin: *const u8) -> &'static [u8] {
    let mut length = 0;
    // SAFETY: by contract.
    unsafe {
        while length <= NAME_MAX && *begin.add(length) != 0 {
            length += 1;
        }
        core::slice::from_raw_parts(begin, length)
    }
}

/// The length of a C string, or `most` if it is longer: no more bytes are read.
///
/// # Safety
/// `begin` is that of a C string, or of `most` bytes.
pub(crate) unsafe fn length_up_to(begin: *const u8, most: usize) -> usize {
    let mut length = 0;
    // SAFETY: by contract.
    while length < most && unsafe { *begin.wrapping_add(length) } != 0 {
        length += 1;
    }
    length
}

/// The bytes of a C string. (Without `strlen`, which the program may define.)
///
/// # Safety
/// `begin` is that of a C string that is never freed.
pub(crate) unsafe fn whole(begin: *const u8) -> &'static [u8] {
    let mut length = 0;
    // SAFETY: by contract.
    unsafe {
        while *begin.add(length) != 0 {
            length += 1;
        }
        core::slice::from_raw_parts(begin, length)
    }
}
