//! A lock for rare moments: modules come and go, slots of threads change hands. No hook takes it.

use crate::sys::system;
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Held until it is dropped.
pub(crate) struct Lock<'a>(&'a AtomicU32);

impl<'a> Lock<'a> {
    /// Takes it if nobody has it.
    pub(crate) fn try_take(word: &'a AtomicU32) -> Option<Lock<'a>> {
        // Not `then_some`: a lock that is made in vain would be dropped, and open the other's.
        word.compare_exchange(0, 1, Acquire, Relaxed).is_ok().then(|| Lock(word))
    }

    /// Takes it when nobody has it any more.
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
