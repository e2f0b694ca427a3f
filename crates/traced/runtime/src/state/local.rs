//! A thread's data in its thread-local slot.
#![allow(unsafe_code)] // The calling thread's slot, by its address.

use crate::state::process::{self, Process};
use crate::state::slow_stacks;
use crate::sys::errors::error;
use crate::sys::system;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use everycall_hooks::{THREAD_HOME, THREAD_SLOT_SIZE};
use everycall_ring::{Control, state};

/// A thread's data in its thread-local slot. Hooks read the first two words.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Local {
    /// The context that the thread ran last, or null if it has none that records.
    pub(crate) current: *const Control,
    /// The context of its own stack, or null before its first event there.
    pub(crate) home: *const Control,
    /// Lower half: its id. Upper half: its process's id.
    id: u64,
    /// Not 0 while the runtime runs in the thread: 1, plus the number of events of signal handlers
    /// that were lost meanwhile and aren't counted yet.
    at_work: u64,
    /// Stack pointer of the hook that runs one of the program's XRay handlers, or 0.
    handling: u64,
}

const _: () = assert!(size_of::<Local>() == THREAD_SLOT_SIZE);
const _: () = assert!(core::mem::offset_of!(Local, home) == THREAD_HOME);

#[cfg(test)]
impl Local {
    pub(crate) const NONE: Local =
        Local { current: core::ptr::null(), home: core::ptr::null(), id: 0, at_work: 0, handling: 0 };
}

pub(crate) fn local() -> Local {
    // SAFETY: the thread-local slot is this thread's own.
    unsafe { process::thread_slot().cast::<Local>().read() }
}

/// Stack pointer of the hook that runs one of the program's XRay handlers, or 0.
pub(crate) fn handling() -> u64 {
    local().handling
}

pub(crate) fn set_handling(stack_pointer: u64) {
    // SAFETY: as above.
    unsafe { (*process::thread_slot().cast::<Local>()).handling = stack_pointer };
}

/// Sets the control block that hooks find from now on.
pub(crate) fn set_current(control: *const Control) {
    // SAFETY: as above.
    unsafe { process::thread_slot().write(control) };
}

pub(crate) fn set_home(control: *const Control) {
    // SAFETY: as above.
    unsafe { (*process::thread_slot().cast::<Local>()).home = control };
}

fn at_work() -> &'static AtomicU64 {
    // SAFETY: as above; it stays as long as the thread.
    unsafe { AtomicU64::from_ptr(&raw mut (*process::thread_slot().cast::<Local>()).at_work) }
}

/// The runtime runs in the calling thread while this value exists.
pub(crate) struct AtWork(());

impl AtWork {
    /// `None` if the runtime is already running in the thread, interrupted by the signal handler
    /// that calls this.
    pub(crate) fn begin() -> Option<AtWork> {
        at_work().compare_exchange(0, 1, Relaxed, Relaxed).ok().map(|_| AtWork(()))
    }

    /// Counts the lost event of such a handler: at once if possible, because the handler may never
    /// return. If the thread is just beginning, the event is counted after that.
    pub(crate) fn lose_event() {
        if !count_lost(1) {
            at_work().fetch_add(1, Relaxed);
        }
    }
}

/// Runs `work` on one of the slow path's stacks. The thread's signals are blocked. Returns the
/// result of `work`, or an error if the runtime is already running in the thread.
pub(crate) fn run_on_slow_stack(work: impl FnOnce() -> i32) -> i32 {
    let Some(_at_work) = AtWork::begin() else { return error::BUSY };
    slow_stacks::run(work)
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let lost = at_work().swap(0, Relaxed).saturating_sub(1);
        if lost > 0 {
            count_lost(lost);
        }
    }
}

/// Counts lost events of the calling thread, if it records.
fn count_lost(events: u64) -> bool {
    let Some(process) = process::traced() else { return false };
    let Some(control) = last().filter(|control| control.state.load(Relaxed) == state::ACTIVE) else {
        return false;
    };
    process.arena().slot(control.slot.load(Relaxed)).lost_busy().fetch_add(events, Relaxed);
    true
}

/// The control block at a pointer from the thread-local slot. `None` if it was wiped by a fork.
pub(crate) fn live(control: *const Control) -> Option<&'static Control> {
    // SAFETY: null, or a control block, which is never unmapped.
    unsafe { control.as_ref() }.filter(|control| control.state.load(Relaxed) != state::BLANK)
}

/// The context that the thread ran last, whichever stack it runs now.
pub(crate) fn last() -> Option<&'static Control> {
    live(local().current)
}

/// The context of the thread's own stack, if it has one.
pub(crate) fn home() -> Option<&'static Control> {
    live(local().home)
}

/// Whether the thread's slot has control blocks, even wiped ones.
pub(crate) fn has_any(process: &'static Process, capacity: u32) -> bool {
    let local = local();
    process.owns(local.current, capacity)
        || process.owns(local.home, capacity)
        || core::ptr::eq(local.current, &raw const process.left_out)
}

/// The calling thread's id. `None` if a seccomp filter refuses the call.
pub(crate) fn thread_id(process: &Process) -> Option<u32> {
    let pid = u64::from(process.pid.load(Relaxed)) << 32;
    let known = local().id;
    if known & !u64::from(u32::MAX) == pid && known as u32 != 0 {
        return Some(known as u32);
    }
    let tid = system::thread_id()?;
    // SAFETY: the thread-local slot is this thread's own.
    unsafe { (*process::thread_slot().cast::<Local>()).id = pid | u64::from(tid) };
    Some(tid)
}
