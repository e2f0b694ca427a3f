//! Ends with a sentence and a code of ours where the system refuses a call that Rust's library, or
//! another one, can't do without: under a filter (seccomp) that knows nothing of it.
//!
//! Rust's start asks `poll()` about the standard descriptors, and aborts where that is refused:
//! before `main`. So that call is made here once before, by an initialiser. What fails later
//! panics.
//!
//! # Safety
//!
//! The initialiser runs before anything of Rust's library: it only makes system calls, and reads
//! the arguments, which the C library passes.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{self, PanicHookInfo};

use everycall_io::say;

use crate::exit_code;

const SENTENCE: &[u8] =
    b"everycall: the system refuses the call poll(), without which no program in Rust starts; \
    allow it in the filter (seccomp) that everycall is run under, or run everycall outside\n";

// With other C libraries, initialisers have no arguments.
#[cfg(target_env = "gnu")]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_START: extern "C" fn(c_int, *const *const c_char) = look_before_start;

extern "C" fn look_before_start(count: c_int, words: *const *const c_char) {
    let entry = |fd| libc::pollfd { fd, events: 0, revents: 0 };
    let mut standard = [0, 1, 2].map(entry);
    loop {
        // SAFETY: three entries; without waiting.
        if unsafe { libc::poll(standard.as_mut_ptr(), 3, 0) } >= 0 {
            return;
        }
        // SAFETY: the address of the thread's own number.
        match unsafe { *libc::__errno_location() } {
            libc::EINTR => {}
            // Rust's start goes on in another way.
            libc::EINVAL | libc::EAGAIN | libc::ENOMEM => return,
            _ => break,
        }
    }
    // SAFETY: as many words as the C library says, each a C string.
    let verb = (count > 1).then(|| unsafe { CStr::from_ptr(*words.add(1)) });
    let code = code_of(verb.is_some_and(|verb| verb.to_bytes() == b"record"));
    // SAFETY: the sentence is static.
    unsafe {
        libc::write(libc::STDERR_FILENO, SENTENCE.as_ptr().cast(), SENTENCE.len());
        libc::_exit(code.into());
    }
}

fn code_of(is_record: bool) -> u8 {
    if is_record { exit_code::NOT_RECORDED } else { exit_code::FAILED }
}

/// From now on, a library that panics in the main thread ends this process with a sentence.
pub fn explain(is_record: bool) {
    let plain = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            plain(info);
        }
        say!("everycall: {}", sentence(info));
        // Whoever waits for another thread says what is missing by that.
        if std::thread::current().name() == Some("main") {
            std::process::exit(code_of(is_record).into());
        }
    }));
}

fn sentence(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text =
        payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(|text| &text[..]));
    let words: Vec<&str> = text.unwrap_or("it doesn't say why").split_whitespace().collect();
    let what = words.join(" ");
    let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
    let advice = match is_filtered() {
        true => {
            "a filter (seccomp) refuses system calls here: allow those that it needs, or run everycall outside"
        }
        false => "this is a defect of everycall or of that library",
    };
    format!("a library has failed: {what}{}; {advice}", place.unwrap_or_default())
}

/// Whether this process is under a filter of system calls.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"))
}
