//! The limit of address space that the program sets for itself (`RLIMIT_AS`). The kernel counts
//! what the runtime has reserved, most of which is never used. So the runtime's part is added to
//! what the program sets, and taken off again from what the program reads.
//!
//! Not in forked children: what they set is mostly for a program that they execute next, which
//! would inherit the sum.
#![allow(unsafe_code)] // Called by the kit's wrappers through a table, with two words of theirs.

use crate::state::process;
use crate::sys::system;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Operation: change the soft and hard limit that the program sets into the kernel's.
const SET: u32 = 0;
/// Operation: change the kernel's limits into those that the program has set.
const GOT: u32 = 1;

/// The soft and hard limit that the kernel got last.
static GIVEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// How much of that was added.
static ADDED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// See [`everycall_hooks::RuntimeTable::address_space`].
///
/// # Safety
/// `limits` points to two words.
pub(crate) unsafe extern "C" fn address_space(what: u32, limits: *mut u64) {
    // SAFETY: by contract.
    let Some(limits) = (unsafe { limits.cast::<[u64; 2]>().as_mut() }) else { return };
    match what {
        SET => set(limits),
        GOT => got(limits),
        _ => {}
    }
}

fn set(limits: &mut [u64; 2]) {
    let own = if process::is_first() { own_bytes() } else { 0 };
    // Without special rights, the hard limit can't be raised.
    let most = system::hard_address_space_limit();
    for ((limit, given), added) in limits.iter_mut().zip(&GIVEN).zip(&ADDED) {
        // A library that is preloaded may see what a wrapper in the program has changed already.
        if added.load(Relaxed) != 0 && given.load(Relaxed) == *limit {
            continue;
        }
        let sum = limit.saturating_add(own).min(most).max(*limit);
        given.store(sum, Relaxed);
        added.store(sum - *limit, Relaxed);
        *limit = sum;
    }
}

fn got(limits: &mut [u64; 2]) {
    for ((limit, given), added) in limits.iter_mut().zip(&GIVEN).zip(&ADDED) {
        if given.load(Relaxed) == *limit {
            *limit -= added.load(Relaxed);
        }
    }
}

/// Bytes that the runtime has mapped.
fn own_bytes() -> u64 {
    process::own_memory().into_iter().flatten().map(|range| range.end.saturating_sub(range.start)).sum()
}
