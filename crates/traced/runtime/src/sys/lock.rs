//! A lock for rare operations, such as registering a module or reusing an ended thread's slot.
//! Hooks never take one.

use crate::sys::system;
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Held until dropped.
pub(crate) struct Lock<'a>(&'a AtomicU32);

impl<'a> Lock<'a> {
    /// Takes the lock if it is free.
    pub(crate) fn try_take(word: &'a AtomicU32) -> Option<Lock<'a>> {
        // Not `then_some`: that would always make a `Lock`, and dropping it would release the other
        // holder's lock.
        word.compare_exchange(0, 1, Acquire, Relaxed).is_ok().then(|| Lock(word))
    }

    /// Waits until the lock is free, and takes it.
    pub(crate) fn take(word: &'a AtomicU32) -> Lock<'a> {
        loop {
            if let Some(lock) = Lock::try_take(word) {
                return lock;
            }
            system::yield_now();
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}
