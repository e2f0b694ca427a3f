//! SIGPIPE's action and the standard descriptors at this process's start, before Rust's runtime
//! changed them: the program must inherit these.
//!
//! Rust ignores SIGPIPE before `main` and opens `/dev/null` in place of standard descriptors that are closed.
//! A constructor runs before that and takes note.
//!
//! # Safety
//!
//! The constructor calls only functions that need nothing of the C library but its start, and stores into
//! atomics.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

#[used]
// SAFETY: the section holds pointers to functions that the C library calls before `main`.
#[unsafe(link_section = ".init_array")]
static TAKE_NOTE: extern "C" fn() = take_note;

extern "C" fn take_note() {
    // SAFETY: a null action only asks, and `old` is large enough for the answer.
    let handler = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old);
        old.sa_sigaction
    };
    SIGPIPE_IGNORED.store(handler == libc::SIG_IGN, Ordering::Relaxed);
    for (closed, descriptor) in CLOSED.iter().zip(0..) {
        // SAFETY: asking for a descriptor's flags changes nothing.
        closed.store(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1, Ordering::Relaxed);
    }
}

/// Whether SIGPIPE was ignored.
pub fn sigpipe_ignored() -> bool {
    SIGPIPE_IGNORED.load(Ordering::Relaxed)
}

/// The standard descriptors that were closed.
pub fn closed_descriptors() -> impl Iterator<Item = i32> {
    CLOSED
        .iter()
        .zip(0..)
        .filter(|(closed, _)| closed.load(Ordering::Relaxed))
        .map(|(_, descriptor)| descriptor)
}
