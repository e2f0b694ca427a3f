//! Answers the runtimes' messages on a separate thread, if one can be started, because the runtimes
//! wait.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::thread::futex;

use crate::memory::hub::Hub;
use crate::sys::lock::lock;
use crate::tree::listener::Listener;
use crate::tree::process_tree::ProcessTree;

/// Longest time between two checks without a ring.
const PAUSE: Duration = Duration::from_secs(1);

/// The thread, or the caller's thread if none can be started.
#[derive(Debug)]
pub(crate) struct Doorbell {
    hub: Arc<Hub>,
    tree: Arc<Mutex<ProcessTree>>,
    listener: Listener,
}

impl Doorbell {
    /// Starts the thread. If that fails (`ulimit -u`, a control group), [`Doorbell::poll`] must be
    /// called often.
    pub fn attend(tree: Arc<Mutex<ProcessTree>>) -> Doorbell {
        let hub = Arc::clone(lock(&tree).hub());
        let (page_of, of) = (Arc::clone(&hub), Arc::clone(&tree));
        let listener = Listener::start(Arc::clone(&hub), move |rung| {
            answer(&page_of, &of, rung);
            PAUSE
        });
        Doorbell { hub, tree, listener }
    }

    /// Answers rings if there is no thread. Returns whether that was the case.
    pub fn poll(&self) -> bool {
        let has_thread = self.listener.has_thread();
        if !has_thread {
            let rung = self.hub.page().doorbell().load(Ordering::Acquire);
            answer(&self.hub, &self.tree, rung);
        }
        !has_thread
    }

    /// Ends the thread. Unanswered rings are left to the caller.
    pub fn stop(self) {
        self.listener.stop();
    }
}

/// Answers rings up to number `rung`.
fn answer(hub: &Hub, tree: &Mutex<ProcessTree>, rung: u32) {
    lock(tree).attend();
    let page = hub.page();
    page.silent().store(0, Ordering::Relaxed);
    if page.acknowledged().swap(rung, Ordering::Release) != rung {
        let _ = futex::wake(page.acknowledged(), futex::Flags::empty(), u32::MAX >> 1);
    }
}
