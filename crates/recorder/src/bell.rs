//! Answers the runtimes' messages on a thread of its own: they wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::futex;

use crate::family::Family;
use crate::hub::Hub;
use crate::program::lock;

/// The thread looks up this often even if nothing rings.
const SECONDS: i64 = 1;

/// The thread that answers.
#[derive(Debug)]
pub(crate) struct Bell {
    hub: Arc<Hub>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Bell {
    pub fn attend(family: Arc<Mutex<Family>>) -> Bell {
        let hub = Arc::clone(&lock(&family).hub);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, page_of) = (Arc::clone(&stop), Arc::clone(&hub));
        let thread = std::thread::spawn(move || {
            let page = page_of.page();
            while !stopped.load(Ordering::Acquire) {
                let rung = page.doorbell().load(Ordering::Acquire);
                lock(&family).attend();
                page.silent().store(0, Ordering::Relaxed);
                if page.acknowledged().swap(rung, Ordering::Release) != rung {
                    let _ = futex::wake(page.acknowledged(), futex::Flags::empty(), u32::MAX >> 1);
                }
                let timeout = futex::Timespec { tv_sec: SECONDS, tv_nsec: 0 };
                let _ = futex::wait(page.doorbell(), futex::Flags::empty(), rung, Some(&timeout));
            }
        });
        Bell { hub, stop, thread }
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        // The thread may be about to wait when it is woken.
        while !self.thread.is_finished() {
            let _ = futex::wake(self.hub.page().doorbell(), futex::Flags::empty(), u32::MAX >> 1);
            std::thread::sleep(Duration::from_micros(20));
        }
        // What was not attended to then is the caller's.
        let _ = self.thread.join();
    }
}
