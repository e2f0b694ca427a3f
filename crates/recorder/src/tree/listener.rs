//! A thread that calls a function whenever the hub's doorbell rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::thread::futex;

use crate::memory::hub::Hub;

/// Shortest time between two calls, so that a process that rings all the time doesn't block the
/// process tree.
const PAUSE_MIN: Duration = Duration::from_micros(20);

/// The thread, if one could be started.
#[derive(Debug)]
pub(super) struct Listener {
    hub: Arc<Hub>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts the thread. `look` receives the doorbell's number, and returns the longest time until
    /// its next call without a ring.
    pub fn start(hub: Arc<Hub>, mut look: impl FnMut(u32) -> Duration + Send + 'static) -> Listener {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, rings) = (Arc::clone(&stop), Arc::clone(&hub));
        let thread = Builder::new().spawn(move || {
            let doorbell = rings.page().doorbell();
            while !stopped.load(Ordering::Acquire) {
                let rung = doorbell.load(Ordering::Acquire);
                let pause = look(rung);
                // Before the wait, which a ring during this pause ends at once: rare rings are
                // answered without delay.
                std::thread::sleep(PAUSE_MIN);
                let timeout =
                    futex::Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
                let _ = futex::wait(doorbell, futex::Flags::empty(), rung, Some(&timeout));
            }
        });
        Listener { hub, stop, thread: thread.ok() }
    }

    /// Whether the thread could be started.
    pub fn has_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Rings the doorbell like a process.
    pub fn ring(&self) {
        self.hub.page().doorbell().fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        let _ = futex::wake(self.hub.page().doorbell(), futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Ends the thread. The last rings may be unanswered.
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
