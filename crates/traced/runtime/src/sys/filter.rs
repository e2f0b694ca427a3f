//! Filters of system calls that the program installs.

use crate::sys::system;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Whether the process had a seccomp filter when it began. Such a filter has been harmless since
/// then.
static FILTERED_AT_START: AtomicU32 = AtomicU32::new(0);

/// Called when the process starts.
pub(crate) fn begin() {
    FILTERED_AT_START.store(system::is_filtered().into(), Relaxed);
}

/// Whether the program has installed a filter since its start. Whether that returns an error or
/// kills the process is unknown.
pub(crate) fn has_come() -> bool {
    FILTERED_AT_START.load(Relaxed) == 0 && system::is_filtered()
}
