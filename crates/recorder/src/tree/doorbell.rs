//! Answers the runtimes' messages, on a thread of its own where there is one to be had: they wait for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::thread::futex;

use crate::memory::hub::Hub;
use crate::sys::lock::lock;
use crate::tree::listener::Listener;
use crate::tree::process_tree::ProcessTree;

/// The thread looks up this often even if nothing rings.
const PAUSE: Duration = Duration::from_secs(1);

/// Whoever answers: a thread, or the caller's own where there is none to be had.
#[derive(Debug)]
pub(crate) struct Doorbell {
    hub: Arc<Hub>,
    tree: Arc<Mutex<ProcessTree>>,
    listener: Listener,
}

impl Doorbell {
    /// Starts the thread. Where the system has none (`ulimit -u`, a control group), [`Doorbell::poll`] has to be called often.
    pub fn attend(tree: Arc<Mutex<ProcessTree>>) -> Doorbell {
        let hub = Arc::clone(lock(&tree).hub());
        let (page_of, of) = (Arc::clone(&hub), Arc::clone(&tree));
        let listener = Listener::start(Arc::clone(&hub), move |rung| {
            answer(&page_of, &of, rung);
            PAUSE
        });
        Doorbell { hub, tree, listener }
    }

    /// Answers what has rung, where there is no thread for it. Whether that was so.
    pub fn poll(&self) -> bool {
        let has_thread = self.listener.has_thread();
        if !has_thread {
            let rung = self.hub.page().doorbell().load(Ordering::Acquire);
            answer(&self.hub, &self.tree, rung);
        }
        !has_thread
    }

    /// Ends the thread. What was not attended to then is the caller's.
    pub fn stop(self) {
        self.listener.stop();
    }
}

/// Deals with what has rung up to number `rung`.
fn answer(hub: &Hub, tree: &Mutex<ProcessTree>, rung: u32) {
    lock(tree).attend();
    let page = hub.page();
    page.silent().store(0, Ordering::Relaxed);
    if page.acknowledged().swap(rung, Ordering::Release) != rung {
        let _ = futex::wake(page.acknowledged(), futex::Flags::empty(), u32::MAX >> 1);
    }
}
