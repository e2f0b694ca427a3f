//! The kernel's errors, and their codes in `everycall.h`.

/// The kernel's errors.
pub(crate) mod errno {
    pub const EPERM: isize = -1;
    pub const ENOENT: isize = -2;
    pub const ESRCH: isize = -3;
    pub const EINTR: isize = -4;
    pub const EAGAIN: isize = -11;
    pub const ENOMEM: isize = -12;
    pub const EACCES: isize = -13;
    pub const EFAULT: isize = -14;
    pub const EEXIST: isize = -17;
    pub const ENOTDIR: isize = -20;
    pub const EINVAL: isize = -22;
    pub const EFBIG: isize = -27;
    pub const ENOSPC: isize = -28;
    pub const EROFS: isize = -30;
    pub const ELOOP: isize = -40;
    pub const EDQUOT: isize = -122;
}

/// The error codes of `everycall.h`, which has their texts.
pub(crate) mod error {
    pub(crate) const NOT_TRACED: i32 = -1;
    pub(crate) const ARGUMENT: i32 = -2;
    pub(crate) const BUSY: i32 = -3;
    pub(crate) const NO_THREAD: i32 = -4;
    pub(crate) const NO_ROOM: i32 = -5;
    // -6 is what older runtimes return; -7 is what the header returns where a runtime lacks a
    // function.
    pub(crate) const NO_MEMORY: i32 = -8;
    pub(crate) const CALLBACK: i32 = -9;
    pub(crate) const NO_FOLDER: i32 = -10;
    pub(crate) const NOT_ALLOWED: i32 = -11;
    pub(crate) const DISK_FULL: i32 = -12;
    pub(crate) const WRITE: i32 = -13;
    pub(crate) const TOO_MANY_STACKS: i32 = -14;
    pub(crate) const NO_FUNCTION: i32 = -15;
    pub(crate) const NO_SELECTION: i32 = -16;
}

/// The header's code for an error of a file operation.
pub(crate) fn told(result: isize) -> i32 {
    match result {
        errno::EINVAL => error::ARGUMENT,
        errno::ENOENT | errno::ENOTDIR => error::NO_FOLDER,
        errno::EPERM | errno::EACCES | errno::EROFS => error::NOT_ALLOWED,
        errno::EFBIG | errno::ENOSPC | errno::EDQUOT => error::DISK_FULL,
        _ => error::WRITE,
    }
}
