//! A thread that calls a function whenever one of the hub's futexes counts up, such as its
//! doorbell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::thread::futex::{self as futexes, Timespec};

use crate::memory::hub::Hub;
use crate::memory::hub_page::HubPage;

/// Shortest time between two calls, so that a process that rings all the time doesn't block the
/// process tree.
const PAUSE_MIN: Duration = Duration::from_micros(20);

/// The thread, if one could be started.
#[derive(Debug)]
pub(super) struct Listener {
    hub: Arc<Hub>,
    futex: fn(&HubPage) -> &AtomicU32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts the thread. `look` receives the doorbell's number, and returns the longest time until
    /// its next call without a ring.
    pub fn start(hub: Arc<Hub>, look: impl FnMut(u32) -> Duration + Send + 'static) -> Listener {
        Listener::on(HubPage::doorbell, hub, look)
    }

    /// As [`Listener::start`], for another of the hub's futexes.
    pub fn on(
        futex: fn(&HubPage) -> &AtomicU32,
        hub: Arc<Hub>,
        mut look: impl FnMut(u32) -> Duration + Send + 'static,
    ) -> Listener {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, rings) = (Arc::clone(&stop), Arc::clone(&hub));
        let thread = Builder::new().spawn(move || {
            let doorbell = futex(rings.page());
            while !stopped.load(Ordering::Acquire) {
                let rung = doorbell.load(Ordering::Acquire);
                let pause = look(rung);
                // Before the wait, which a ring during this pause ends at once: rare rings are
                // answered without delay.
                std::thread::sleep(PAUSE_MIN);
                let timeout =
                    Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
                let _ = futexes::wait(doorbell, futexes::Flags::empty(), rung, Some(&timeout));
            }
        });
        Listener { hub, futex, stop, thread: thread.ok() }
    }

    /// Whether the thread could be started.
    pub fn has_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Rings the doorbell like a process.
    pub fn ring(&self) {
        (self.futex)(self.hub.page()).fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        let futex = (self.futex)(self.hub.page());
        let _ = futexes::wake(futex, futexes::Flags::empty(), u32::MAX >> 1);
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
