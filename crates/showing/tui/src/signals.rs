//! Signals while the terminal is another one's view: they are handled between two pictures.

use std::io;
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::{SigSet, Signal, raise};

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    End,
    Suspend,
    Continued,
}

/// Signals of this process, which wait to be looked at.
pub struct Signals {
    set: SigSet,
    received: Receiver<Told>,
}

impl Signals {
    /// From here on, threads that are started don't get them.
    pub fn begin() -> io::Result<Signals> {
        let all = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP, Signal::SIGCONT];
        let set: SigSet = all.into_iter().collect();
        set.thread_block()?;
        let (send, received) = channel();
        let wait = move || {
            while let Ok(signal) = set.wait() {
                let told = match signal {
                    Signal::SIGTSTP => Told::Suspend,
                    Signal::SIGCONT => Told::Continued,
                    _ => Told::End,
                };
                if send.send(told).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
        Ok(Signals { set, received })
    }

    /// The next signal that was received.
    pub fn next(&self) -> Option<Told> {
        self.received.try_recv().ok()
    }

    /// Stops this process until it is continued.
    pub fn suspend(&self) -> io::Result<()> {
        Ok(raise(Signal::SIGSTOP)?)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.set.thread_unblock();
    }
}
