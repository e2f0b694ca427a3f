//! Hands posted calls to whoever keeps them, on a thread of its own where there is one to be had.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::process::triggers::KeepCalls;
use crate::sys::lock::lock;
use crate::tree::listener::Listener;
use crate::tree::process_tree::ProcessTree;

/// Between two looks at most where there is no thread that could hear the doorbell.
const PAUSE_WITHOUT_THREAD: Duration = Duration::from_millis(1);

/// Whoever keeps calls, on a thread of its own, or on the caller's where there is none to be had.
pub(crate) struct Keeper {
    looks: Arc<Looks>,
    listener: Listener,
    /// When it is time for the next look, where there is no thread.
    due: Instant,
}

/// What a look needs.
struct Looks {
    tree: Arc<Mutex<ProcessTree>>,
    keep: Mutex<Box<dyn KeepCalls>>,
    signals: Mutex<Vec<i32>>,
}

impl Looks {
    /// How long it may take until the next one.
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
    /// Starts the thread. Where the system has none (`ulimit -u`, a control group), [`Keeper::poll`] has to be called often.
    pub fn attend(tree: Arc<Mutex<ProcessTree>>, keep: Box<dyn KeepCalls>) -> Keeper {
        let hub = Arc::clone(lock(&tree).hub());
        let looks = Arc::new(Looks { tree, keep: Mutex::new(keep), signals: Mutex::default() });
        let looking = Arc::clone(&looks);
        let listener = Listener::start(hub, move |_| looking.look());
        Keeper { looks, listener, due: Instant::now() }
    }

    /// Looks where there is no thread for it, at most as often as it likes to. Whether that was so.
    pub fn poll(&mut self) -> bool {
        let has_thread = self.listener.has_thread();
        if !has_thread && self.due <= Instant::now() {
            // What is posted isn't waited for here.
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

    /// Ends the thread. What was posted last is still to be looked at.
    pub fn stop(self) -> Option<Box<dyn KeepCalls>> {
        self.listener.stop();
        let Looks { keep, .. } = Arc::into_inner(self.looks)?;
        Some(keep.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
