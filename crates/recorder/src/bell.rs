//! Answers the runtimes' messages, on a thread of its own where there is one to be had: they wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::thread::futex;

use crate::family::Family;
use crate::hub::Hub;
use crate::program::lock;

/// The thread looks up this often even if nothing rings.
const SECONDS: i64 = 1;

/// Between two answers: whoever rings all the time must not keep the family from others.
const PAUSE: Duration = Duration::from_micros(20);

/// Whoever answers: a thread, or the caller's own where there is none to be had.
#[derive(Debug)]
pub(crate) struct Bell {
    hub: Arc<Hub>,
    family: Arc<Mutex<Family>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bell {
    /// Starts the thread. Where the system has none (`ulimit -u`, a control group), [`Bell::poll`] has to be called often.
    pub fn attend(family: Arc<Mutex<Family>>) -> Bell {
        let hub = Arc::clone(&lock(&family).hub);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, page_of, of) = (Arc::clone(&stop), Arc::clone(&hub), Arc::clone(&family));
        let thread = Builder::new().spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let rung = answer(&page_of, &of);
                // Before the wait, which a ring in between then ends at once: who rings seldom is answered without it.
                std::thread::sleep(PAUSE);
                let timeout = futex::Timespec { tv_sec: SECONDS, tv_nsec: 0 };
                let _ = futex::wait(page_of.page().doorbell(), futex::Flags::empty(), rung, Some(&timeout));
            }
        });
        Bell { hub, family, stop, thread: thread.ok() }
    }

    /// Answers what has rung, where there is no thread for it. Whether that was so.
    pub fn poll(&self) -> bool {
        if self.thread.is_none() {
            answer(&self.hub, &self.family);
        }
        self.thread.is_none()
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread else { return };
        // The thread may be about to wait when it is woken.
        while !thread.is_finished() {
            let _ = futex::wake(self.hub.page().doorbell(), futex::Flags::empty(), u32::MAX >> 1);
            std::thread::sleep(PAUSE);
        }
        // What was not attended to then is the caller's.
        let _ = thread.join();
    }
}

/// Deals with what has rung. The bell's number.
fn answer(hub: &Hub, family: &Mutex<Family>) -> u32 {
    let page = hub.page();
    let rung = page.doorbell().load(Ordering::Acquire);
    lock(family).attend();
    page.silent().store(0, Ordering::Relaxed);
    if page.acknowledged().swap(rung, Ordering::Release) != rung {
        let _ = futex::wake(page.acknowledged(), futex::Flags::empty(), u32::MAX >> 1);
    }
    rung
}
