//! Signals around the traced program. It gets the mask and the actions that we were started with; we wait
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
//! Code that runs between fork and exec is async-signal-safe.
#![allow(unsafe_code)]

mod actions;
mod ending;
mod environment;
mod inherited;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use actions::{Action, Set};
use ending::{ENDING, end_after_grace};
pub use ending::{die_of, outlive_size_limit};
use environment::with_environment;

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

impl Received {
    /// Whether it asks a process to end.
    pub fn ends(self) -> bool {
        matches!(self, Received::Sent(signal) | Received::ToAll(signal) if ENDING.contains(&signal))
    }
}

/// The signals that this process waits for.
pub struct Signals {
    descriptor: OwnedFd,
    /// The mask that this process was started with, ...
    mask: Set,
    /// ... and the actions that were changed since.
    found: Vec<(i32, Action)>,
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}

impl Signals {
    /// Starts `command` by `spawn`. The program finds all signals as this process found them, and
    /// from then on holds this process's own, and those in `wanted`. `environment` is added to what
    /// the program finds. The calling process has one thread.
    ///
    /// # Errors
    ///
    /// The program can't be started. Signals are then as before.
    pub fn spawn(
        mut command: Command,
        environment: &[(&str, &OsStr)],
        wanted: &[i32],
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> io::Result<(Child, Signals)> {
        let own = actions::set_of(ENDING.into_iter().chain([libc::SIGCHLD]).chain(wanted.iter().copied()));
        let mask = actions::block(&own);
        let child_action = actions::set_default(libc::SIGCHLD);
        // SAFETY: it is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                restore(&child_action, &mask);
                Ok(())
            })
        };
        let started = actions::descriptor(&own).and_then(|descriptor| {
            let child = with_environment(environment, || spawn(command))?;
            Ok((child, descriptor))
        });
        let (child, descriptor) = started.inspect_err(|_| {
            actions::set_action(libc::SIGCHLD, &child_action);
            actions::set_mask(&mask);
        })?;
        let found = [libc::SIGINT, libc::SIGQUIT].map(|signal| (signal, actions::action(signal))).to_vec();
        [libc::SIGINT, libc::SIGQUIT, libc::SIGXFSZ, libc::SIGPIPE].into_iter().for_each(actions::ignore);
        Ok((child, Signals { descriptor, mask, found }))
    }

    /// The program has ended: a second later, signals that end processes end this one, unless it was started to ignore
    /// them. Those that came before were meant for both.
    pub fn let_end(&self) {
        while self.next().is_some() {}
        for (signal, found) in &self.found {
            actions::set_action(*signal, found);
        }
        end_after_grace();
        let found_unblocked = |signal: &i32| !actions::contains(&self.mask, *signal);
        actions::unblock(&actions::set_of(ENDING.into_iter().filter(found_unblocked)));
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

/// In the program, before it is executed: everything as this process was started with it.
fn restore(child_action: &Action, mask: &Set) {
    for descriptor in inherited::closed_descriptors() {
        // SAFETY: the standard descriptor is one that Rust has opened where there was none.
        unsafe { libc::close(descriptor) };
    }
    if inherited::sigpipe_ignored() {
        actions::ignore(libc::SIGPIPE);
    }
    actions::set_action(libc::SIGCHLD, child_action);
    actions::set_mask(mask);
}

/// Sends `signal` to a process that wasn't reaped yet, so that its id is nobody else's.
pub fn send(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}
