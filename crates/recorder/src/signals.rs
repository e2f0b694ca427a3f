//! Signals around the traced program. It gets the mask and the dispositions that we were started with; we wait
//! for ours on a descriptor.
//!
//! Once the program has ended, HUP, INT, QUIT and TERM end the recorder, unless it was started to ignore them: it has nothing
//! left to pass on. Those of the first second are ignored: whoever ends a program often sends its group the signal twice (a
//! terminal and its shell), and the second one must not cost the trace.
//!
//! ```text
//!            before fork            program, before exec     recorder, while it waits
//! mask       HUP TERM CHLD blocked  as we found it           HUP TERM CHLD blocked, read from a signalfd
//! CHLD       default                as we found it           default, else there is no exit status
//! INT QUIT   as found, blocked      as we found it           ignored: the terminal sends them to the program too
//! XFSZ PIPE  as found               as we found it           ignored: a full file is an error, not the end
//! ```
//!
//! # Safety
//!
//! Every call takes valid pointers to local structures. What runs between fork and exec is async-signal-safe.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::mem::zeroed;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::inherited;

/// How long after the program's end signals are taken for the ones that have ended it, in nanoseconds.
const GRACE_NS: u64 = 1_000_000_000;

/// When the program's end was noticed, in nanoseconds of the monotonic clock.
static END_NS: AtomicU64 = AtomicU64::new(0);

/// Bytes of what a signalfd yields.
const SIGNAL_RECORD: usize = size_of::<libc::signalfd_siginfo>();

/// A signal that was sent to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A child ended or stopped.
    Child,
    /// Somebody sent it to this process, maybe to this one alone.
    Sent(i32),
    /// The kernel sent it to the whole group, as for a terminal that is gone.
    ToAll(i32),
}

/// Signals that ask a process to end.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

impl Received {
    /// Whether it asks a process to end.
    pub fn ends(self) -> bool {
        matches!(self, Received::Sent(signal) | Received::ToAll(signal) if ENDING.contains(&signal))
    }
}

/// The signals that this process waits for.
pub struct Signals {
    descriptor: OwnedFd,
    /// What this process was started with: its mask, ...
    mask: libc::sigset_t,
    /// ... and the dispositions that were changed since.
    found: Vec<(i32, libc::sigaction)>,
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}

impl Signals {
    /// Starts `command`, which finds all signals as this process found them, and from then on holds this
    /// process's own, and those in `wanted`. `environment` is added to what the program finds.
    ///
    /// # Errors
    ///
    /// The program can't be started. Signals are then as before.
    pub fn spawn(
        command: &mut Command,
        environment: &[(&str, &OsStr)],
        wanted: &[i32],
    ) -> io::Result<(Child, Signals)> {
        // SAFETY: all zero is a valid value of these C structures; the calls only fill or read them.
        let (own, mask, child_action) = unsafe {
            let mut own: libc::sigset_t = zeroed();
            libc::sigemptyset(&raw mut own);
            let always = [libc::SIGHUP, libc::SIGTERM, libc::SIGCHLD, libc::SIGINT, libc::SIGQUIT];
            for signal in always.iter().chain(wanted) {
                libc::sigaddset(&raw mut own, *signal);
            }
            let mut mask: libc::sigset_t = zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const own, &raw mut mask);
            let mut default: libc::sigaction = zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            let mut found: libc::sigaction = zeroed();
            libc::sigaction(libc::SIGCHLD, &raw const default, &raw mut found);
            (own, mask, found)
        };
        let restore = move || {
            // SAFETY: between fork and exec; these calls are async-signal-safe and take valid structures.
            unsafe {
                for descriptor in inherited::closed_descriptors() {
                    libc::close(descriptor);
                }
                if inherited::sigpipe_ignored() {
                    libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                }
                libc::sigaction(libc::SIGCHLD, &raw const child_action, ptr::null_mut());
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: `restore` makes system calls only.
        unsafe { command.pre_exec(restore) };
        // `Command::env` would sort the program's environment; it is to differ by our variables alone.
        // SAFETY: the recorder has one thread at this time.
        let started = Signals::open(&own)
            .and_then(|descriptor| Ok((with_environment(environment, || command.spawn())?, descriptor)));
        let (child, descriptor) = match started {
            Ok(started) => started,
            Err(error) => {
                // SAFETY: these are the structures that were filled above.
                unsafe {
                    libc::sigaction(libc::SIGCHLD, &raw const child_action, ptr::null_mut());
                    libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut());
                }
                return Err(error);
            }
        };
        let mut found = Vec::new();
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: a null action only asks, and `before` is large enough for the answer.
            let before = unsafe {
                let mut before: libc::sigaction = zeroed();
                libc::sigaction(signal, ptr::null(), &raw mut before);
                before
            };
            found.push((signal, before));
        }
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGXFSZ, libc::SIGPIPE] {
            // SAFETY: ignoring a signal installs no code.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        Ok((child, Signals { descriptor, mask, found }))
    }

    fn open(own: &libc::sigset_t) -> io::Result<OwnedFd> {
        // SAFETY: `own` is a filled set; the new descriptor is nobody else's.
        unsafe {
            let descriptor = libc::signalfd(-1, own, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(OwnedFd::from_raw_fd(descriptor))
        }
    }

    /// The program has ended: after [`GRACE_NS`], signals that end processes end this one, unless it was started to ignore
    /// them. Those that came before were meant for both.
    pub fn let_end(&self) {
        while self.next().is_some() {}
        END_NS.store(monotonic_ns(), Ordering::Relaxed);
        // SAFETY: these are the dispositions and the mask that were found, and a handler that makes async-signal-safe calls;
        // sets are local.
        unsafe {
            for (signal, found) in &self.found {
                libc::sigaction(*signal, found, ptr::null_mut());
            }
            let mut later: libc::sigaction = zeroed();
            later.sa_sigaction = end_after_grace as *const () as usize;
            later.sa_flags = libc::SA_RESTART;
            for signal in ENDING {
                let mut found: libc::sigaction = zeroed();
                libc::sigaction(signal, ptr::null(), &raw mut found);
                if found.sa_sigaction == libc::SIG_DFL {
                    libc::sigaction(signal, &raw const later, ptr::null_mut());
                }
            }
            let mut set: libc::sigset_t = zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in ENDING {
                if libc::sigismember(&raw const self.mask, signal) == 0 {
                    libc::sigaddset(&raw mut set, signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        }
    }

    /// The descriptor that is readable when there is a signal.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// The next signal, if there is one.
    pub fn next(&self) -> Option<Received> {
        let mut record = [0; SIGNAL_RECORD];
        if rustix::io::read(&self.descriptor, &mut record) != Ok(SIGNAL_RECORD) {
            return None;
        }
        let field =
            |at: usize| i32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let signal = field(0);
        let code = field(8);
        Some(match signal {
            libc::SIGCHLD => Received::Child,
            _ if code == libc::SI_KERNEL => Received::ToAll(signal),
            _ => Received::Sent(signal),
        })
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Ends this process by `signal`, unless the program has just ended. A handler: the signal is blocked until it returns.
extern "C" fn end_after_grace(signal: libc::c_int) {
    if monotonic_ns().saturating_sub(END_NS.load(Ordering::Relaxed)) >= GRACE_NS {
        // SAFETY: async-signal-safe calls; the default disposition installs no code.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

/// Runs `run` while `variables` stand in this process's environment.
fn with_environment<T>(variables: &[(&str, &OsStr)], run: impl FnOnce() -> T) -> T {
    let before: Vec<_> = variables.iter().map(|(name, _)| (*name, std::env::var_os(name))).collect();
    for (name, value) in variables {
        // SAFETY: the caller is the only thread.
        unsafe { std::env::set_var(name, value) };
    }
    let result = run();
    for (name, value) in before {
        match value {
            // SAFETY: as above.
            Some(value) => unsafe { std::env::set_var(name, value) },
            // SAFETY: as above.
            None => unsafe { std::env::remove_var(name) },
        }
    }
    result
}

/// Ends this process by `signal`, without a core of its own, so that its parent sees what became of the program.
/// Returns where the signal can't end a process.
pub fn die_of(signal: i32) {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    // Cores that are piped to a program ignore the limit.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    // SAFETY: all zero is a valid set, and the default disposition installs no code.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        libc::raise(signal);
    }
}

/// Makes a file that grows beyond the limit (`ulimit -f`) an error of the write, and not the end of this process. A program
/// that is started later inherits it, so it isn't for recorders, which see to it themselves.
pub fn outlive_size_limit() {
    // SAFETY: ignoring a signal installs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Sends `signal` to a process that wasn't reaped yet, so that its id is nobody else's.
pub fn send(pid: u32, signal: i32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: sends a signal; touches no memory.
        unsafe { libc::kill(pid, signal) };
    }
}
