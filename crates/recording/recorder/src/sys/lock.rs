//! Locks that outlive the failure of a thread that held them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also after a thread of ours has failed.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
