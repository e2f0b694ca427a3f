//! Sets of signals and what they do to this process: the C library's functions, which nothing safe offers.
//!
//! # Safety
//!
//! Every call takes valid pointers to local structures, for which all zero is a valid value. The
//! functions are async-signal-safe, so they may also run between fork and exec, and in handlers.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

/// The action that this process has for a signal.
pub type Action = libc::sigaction;
/// A set of signals.
pub type Set = libc::sigset_t;

/// The set of these signals.
pub fn set_of(signals: impl IntoIterator<Item = i32>) -> Set {
    // SAFETY: fills a local set.
    unsafe {
        let mut set: Set = zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Whether `signal` is in `set`.
pub fn contains(set: &Set, signal: i32) -> bool {
    // SAFETY: reads a filled set.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// Blocks these signals. Those that were blocked before.
pub fn block(set: &Set) -> Set {
    change_mask(libc::SIG_BLOCK, set)
}

/// Unblocks these signals.
pub fn unblock(set: &Set) {
    change_mask(libc::SIG_UNBLOCK, set);
}

/// Blocks these signals, and no others.
pub fn set_mask(set: &Set) {
    change_mask(libc::SIG_SETMASK, set);
}

fn change_mask(how: i32, set: &Set) -> Set {
    // SAFETY: reads a filled set and fills a local one.
    unsafe {
        let mut before: Set = zeroed();
        libc::pthread_sigmask(how, set, &raw mut before);
        before
    }
}

/// The current action of `signal`.
pub fn action(signal: i32) -> Action {
    // SAFETY: a null action only asks; the answer is local.
    unsafe {
        let mut found: Action = zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut found);
        found
    }
}

/// Sets what `signal` does, to what was found by [`action`]. What it did before.
pub fn set_action(signal: i32, action: &Action) -> Action {
    // SAFETY: installs an action of this process; the answer is local.
    unsafe {
        let mut before: Action = zeroed();
        libc::sigaction(signal, action, &raw mut before);
        before
    }
}

/// Has `signal` do what the system does by default. What it did before.
pub fn set_default(signal: i32) -> Action {
    // SAFETY: all zero is a valid action.
    let mut default: Action = unsafe { zeroed() };
    default.sa_sigaction = libc::SIG_DFL;
    set_action(signal, &default)
}

/// Has `signal` ignored.
pub fn ignore(signal: i32) {
    // SAFETY: all zero is a valid action, and ignoring installs no code.
    let mut ignored: Action = unsafe { zeroed() };
    ignored.sa_sigaction = libc::SIG_IGN;
    set_action(signal, &ignored);
}

/// Has `handler` run at `signal`, which is blocked meanwhile; system calls that it interrupts go on. The
/// handler must be async-signal-safe.
pub fn handle(signal: i32, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: all zero is a valid action.
    let mut action: Action = unsafe { zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    set_action(signal, &action);
}

/// Sends `signal` to the calling thread.
pub fn raise(signal: i32) {
    // SAFETY: touches no memory.
    unsafe { libc::raise(signal) };
}

/// A descriptor that yields the signals of `set`, which are blocked.
pub fn descriptor(set: &Set) -> io::Result<OwnedFd> {
    // SAFETY: reads a filled set; the new descriptor is nobody else's.
    unsafe {
        let descriptor = libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}
