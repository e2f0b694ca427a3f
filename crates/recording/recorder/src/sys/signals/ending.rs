//! Signals that end this process: after the program's end, and as the program was ended.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::actions;

/// Signals that ask a process to end.
pub const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// How long after the program's end signals are taken for the ones that have ended it, in nanoseconds.
const GRACE_NS: u64 = 1_000_000_000;

/// When the program's end was noticed, in nanoseconds of the monotonic clock.
static END_NS: AtomicU64 = AtomicU64::new(0);

/// From now on, after [`GRACE_NS`], signals that end processes end this one, where they would do so by default.
pub fn end_after_grace() {
    END_NS.store(monotonic_ns(), Ordering::Relaxed);
    for signal in ENDING {
        if actions::action(signal).sa_sigaction == libc::SIG_DFL {
            actions::handle(signal, end_unless_new);
        }
    }
}

/// Ends this process by `signal`, unless the program has just ended. A handler: the signal is blocked until it returns.
extern "C" fn end_unless_new(signal: libc::c_int) {
    if monotonic_ns().saturating_sub(END_NS.load(Ordering::Relaxed)) >= GRACE_NS {
        actions::set_default(signal);
        actions::raise(signal);
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Ends this process by `signal`, without a core of its own, so that its parent sees what became of the program.
/// Returns where the signal can't end a process.
pub fn die_of(signal: i32) {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
    // Cores that are piped to a program ignore the limit.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    actions::set_default(signal);
    actions::unblock(&actions::set_of([signal]));
    actions::raise(signal);
}

/// Makes a file that grows beyond the limit (`ulimit -f`) an error of the write, and not the end of this process. A program
/// that is started later inherits it, so it isn't for recorders, which see to it themselves.
pub fn outlive_size_limit() {
    actions::ignore(libc::SIGXFSZ);
}
