//! Runs a program that isn't recorded, with signals as those of a recorded one.

use std::io;
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};

use crate::session::running::{FORWARD_DELAY, cant_wait};
use crate::sys::error::RecordError;
use crate::sys::launch::Launch;
use crate::sys::signals::{Received, Signals, send};

/// Starts the program by `spawn`, and waits for its end. Meanwhile SIGINT and SIGQUIT are the
/// program's matter, as the terminal sends them to both; SIGTERM and SIGHUP are passed on.
///
/// # Errors
///
/// The program can't be started, or the system can't tell how it ended.
pub fn run_alone(
    launch: &Launch,
    spawn: impl FnOnce(Command) -> io::Result<Child>,
) -> Result<ExitStatus, RecordError> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments);
    let (mut child, signals) =
        Signals::spawn(command, &[], &[], spawn).map_err(|source| launch.explain(source))?;
    loop {
        while let Some(received) = signals.next() {
            if let Received::Sent(signal @ (libc::SIGTERM | libc::SIGHUP)) = received {
                // One to the whole process group may end it before.
                std::thread::sleep(FORWARD_DELAY);
                send(child.id(), signal);
            }
        }
        if let Some(status) = child.try_wait().map_err(cant_wait)? {
            signals.let_end();
            return Ok(status);
        }
        // Its end is a signal, too.
        let _ = poll(&mut [PollFd::new(signals.descriptor(), PollFlags::IN)], None);
    }
}
