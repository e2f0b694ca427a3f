//! Signals that end a wait, so that a verb can undo what it has set up.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

/// Signals that end the wait.
pub struct Signals {
    set: SigSet,
    received: Receiver<()>,
}

impl Signals {
    pub fn begin() -> Signals {
        let set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        let (send, received) = channel();
        let is_blocked = set.thread_block().is_ok();
        let wait = move || {
            let _ = set.wait();
            let _ = send.send(());
        };
        let waiter = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
        if !is_blocked || waiter.is_err() {
            // They end this process, which the traced process detects.
            let _ = set.thread_unblock();
        }
        Signals { set, received }
    }

    /// Waits for at most `time`. Returns whether a signal came.
    pub fn wait(&self, time: Duration) -> bool {
        match self.received.recv_timeout(time) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                false
            }
        }
    }

    /// From here on, signals end this process.
    pub fn end(self) {
        let _ = self.set.thread_unblock();
    }
}
