//! State of the kept calls of a process that has a set of triggers of its own.

use crate::sys::name::Name;
use crate::sys::system;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use everycall_format::site_set::KEEP_MAX;
use everycall_format::trigger::RULES;

/// Limit on the helpers: one works, while another may just be ending.
pub(crate) const HELPERS: usize = 2;

/// A process's kept calls. Wiped in a forked child, which keeps calls of its own.
pub(crate) struct KeptCalls {
    /// Number of calls posted since a helper last saw that there are none left. The thread that
    /// posts the first one starts a helper.
    pub(crate) wanted: AtomicU32,
    /// Lower half: the entry of the call for which a helper is to be started, plus 1. Upper half:
    /// the process that posted the call, because a child may share the memory. 0 for none.
    due: AtomicU64,
    pub(crate) running: [AtomicU32; HELPERS],
    /// Used only by the helper.
    pub(crate) choices: UnsafeCell<Choices>,
}

impl KeptCalls {
    /// A call was posted in entry `call`. If there is no helper, the thread starts one after its
    /// current work.
    pub(crate) fn want(&self, call: u32) {
        if self.wanted.fetch_add(1, AcqRel) == 0 {
            let poster = u64::from(system::process_id());
            self.due.store(poster << 32 | u64::from(call + 1), Release);
        }
    }

    /// Takes the entry of the call for which the calling process is to start a helper. Only one
    /// thread gets it.
    pub(crate) fn take_due(&self) -> Option<u32> {
        let due = self.due.load(Relaxed);
        if due == 0 || due >> 32 != u64::from(system::process_id()) {
            return None;
        }
        let is_ours = self.due.compare_exchange(due, 0, Acquire, Relaxed).is_ok();
        if is_ours { (due as u32).checked_sub(1) } else { None }
    }
}

pub(crate) struct Choices {
    /// The beginning of the files' names. Empty before the first file.
    pub(crate) name: Name,
    /// Number of the last file.
    pub(crate) number: u32,
    pub(crate) of: [Choice; RULES as usize],
}

/// A call that is kept.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    /// Whether it is certain that it exceeded the threshold.
    pub(crate) is_certain: bool,
    /// Ticks that it took at least.
    pub(crate) took: u64,
    /// Its file's number. Numbers increase.
    pub(crate) number: u32,
    /// Its file's size, in units of 1024 bytes.
    pub(crate) kib: u32,
}

/// The calls of one trigger.
pub(crate) struct Choice {
    /// The end, in ticks, of the interval for which a call is already kept: the newest one.
    pub(crate) until: u64,
    pub(crate) count: u32,
    /// The size of the newest one.
    pub(crate) newest_kib: u32,
    pub(crate) kept: [Kept; KEEP_MAX as usize],
}
