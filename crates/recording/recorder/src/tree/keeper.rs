//! Passes posted calls to the keeper on a separate thread, if one can be started.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::process::triggers::KeepCalls;
use crate::sys::lock::lock;
use crate::tree::listener::Listener;
use crate::tree::process_tree::ProcessTree;

/// Longest time between two checks without a thread for the doorbell.
const PAUSE_WITHOUT_THREAD: Duration = Duration::from_millis(1);

/// The keeper on a thread, or on the caller's thread if none can be started.
pub(crate) struct Keeper {
    looks: Arc<Looks>,
    listener: Listener,
    /// When the next check is due, without a thread.
    due: Instant,
}

/// The data for a check.
struct Looks {
    tree: Arc<Mutex<ProcessTree>>,
    keep: Mutex<Box<dyn KeepCalls>>,
    signals: Mutex<Vec<i32>>,
}

impl Looks {
    /// Checks for posted calls. Returns the longest time until the next check.
    fn look(&self) -> Duration {
        let processes = lock(&self.tree).triggered();
        let signals = std::mem::take(&mut *lock(&self.signals));
        lock(&self.keep).look(&processes, &signals)
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Keeper {
    /// Starts the thread. If that fails (`ulimit -u`, a control group), [`Keeper::poll`] must be
    /// called often.
    pub fn attend(tree: Arc<Mutex<ProcessTree>>, keep: Box<dyn KeepCalls>) -> Keeper {
        let hub = Arc::clone(lock(&tree).hub());
        let looks = Arc::new(Looks { tree, keep: Mutex::new(keep), signals: Mutex::default() });
        let looking = Arc::clone(&looks);
        let listener = Listener::start(hub, move |_| looking.look());
        Keeper { looks, listener, due: Instant::now() }
    }

    /// Checks for posted calls if there is no thread and it is time. Returns whether there is no
    /// thread.
    pub fn poll(&mut self) -> bool {
        let has_thread = self.listener.has_thread();
        if !has_thread && self.due <= Instant::now() {
            // Without a thread, posts don't end the wait.
            let pause = self.looks.look().min(PAUSE_WITHOUT_THREAD);
            self.due = Instant::now() + pause;
        }
        !has_thread
    }

    /// A signal came.
    pub fn signal(&mut self, signal: i32) {
        lock(&self.looks.signals).push(signal);
        self.due = Instant::now();
        self.listener.ring();
    }

    /// Ends the thread. The last posts are left to the caller.
    pub fn stop(self) -> Option<Box<dyn KeepCalls>> {
        self.listener.stop();
        let Looks { keep, .. } = Arc::into_inner(self.looks)?;
        Some(keep.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
