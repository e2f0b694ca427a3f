//! A thread that does something each time the hub's doorbell rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::thread::futex;

use crate::memory::hub::Hub;

/// Between two looks at least: whoever rings all the time must not keep the process tree from others.
const PAUSE_MIN: Duration = Duration::from_micros(20);

/// The thread, where there is one to be had.
#[derive(Debug)]
pub(super) struct Listener {
    hub: Arc<Hub>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts the thread. `look` is given the doorbell's number, and says how long it may take until the next look even if
    /// nothing rings.
    pub fn start(hub: Arc<Hub>, mut look: impl FnMut(u32) -> Duration + Send + 'static) -> Listener {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, rings) = (Arc::clone(&stop), Arc::clone(&hub));
        let thread = Builder::new().spawn(move || {
            let doorbell = rings.page().doorbell();
            while !stopped.load(Ordering::Acquire) {
                let rung = doorbell.load(Ordering::Acquire);
                let pause = look(rung);
                // Before the wait, which a ring in between then ends at once: who rings seldom is answered without it.
                std::thread::sleep(PAUSE_MIN);
                let timeout =
                    futex::Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
                let _ = futex::wait(doorbell, futex::Flags::empty(), rung, Some(&timeout));
            }
        });
        Listener { hub, stop, thread: thread.ok() }
    }

    /// Whether the system had a thread.
    pub fn has_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Rings the doorbell as a process does.
    pub fn ring(&self) {
        self.hub.page().doorbell().fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        let _ = futex::wake(self.hub.page().doorbell(), futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Ends the thread. What has rung last may not have been looked at.
    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        // The thread may be about to wait when it is woken.
        while !thread.is_finished() {
            self.wake();
            std::thread::sleep(PAUSE_MIN);
        }
        let _ = thread.join();
    }
}
