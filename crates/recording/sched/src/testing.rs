//! Helpers of several tests.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// A thread that waits for a futex until [`WaitingThread::end`].
pub struct WaitingThread {
    /// Its number in the kernel.
    pub tid: u32,
    tell: Sender<()>,
    thread: JoinHandle<()>,
}

impl WaitingThread {
    pub fn start() -> WaitingThread {
        let (tell, told) = channel::<()>();
        let (say, tid) = channel();
        let thread = std::thread::Builder::new().spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            let _ = told.recv();
        });
        let thread = thread.unwrap();
        WaitingThread { tid: tid.recv().unwrap(), tell, thread }
    }

    pub fn end(self) {
        self.tell.send(()).unwrap();
        self.thread.join().unwrap();
    }
}
