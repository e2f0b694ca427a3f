//! Triggers while the programs run: modules' functions are named to the runtimes as modules come, and posted calls are handed to
//! whoever keeps them, on a thread of its own. Which functions and which calls that are is others' matter.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use everycall_format::arena::ModuleEntry;
use everycall_format::trigger::TriggerSite;
use rustix::thread::futex;

use crate::arena::Arena;
use crate::family::Family;
use crate::hub::Hub;
use crate::program::lock;
use crate::shared_triggers::SharedTriggers;

/// Between two looks at least.
const LEAST_PAUSE: Duration = Duration::from_micros(20);
/// Between two looks at most where there is no thread that could hear the bell.
const PAUSE_WITHOUT_THREAD: Duration = Duration::from_millis(1);

/// Knows which functions of a module triggers name.
pub trait FindSites: Send {
    /// The sites of a module, as code offsets, in order. `file` is the module's, where it could be opened. The program waits for some
    /// seconds at most; what comes later is still good for later calls.
    fn sites(&mut self, module: &ModuleEntry, path: &[u8], file: Option<&File>) -> Vec<TriggerSite>;

    /// There is no room for these in the process: their calls are never looked at.
    fn unwatched(&mut self, sites: &[TriggerSite]);

    /// The program didn't wait for these: calls before weren't looked at.
    fn late(&mut self, sites: &[TriggerSite]);
}

/// A process with triggers.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its number in the file.
    pub number: u32,
    /// Its process id.
    pub pid: u32,
    /// Its arena.
    pub arena: Arc<Arena>,
    /// The triggers in it.
    pub triggers: Arc<SharedTriggers>,
}

/// A chunk of a process: its number, the chunk's kind and payload.
pub type WriteChunk<'a> = dyn FnMut(u32, u32, &[u8]) -> io::Result<()> + 'a;

/// Keeps calls.
pub trait KeepCalls: Send {
    /// Something may have been posted, in one of these processes. How long it may take until the next look. A process that has ended
    /// is given once more afterwards, and then never again. `signals` came since.
    fn look(&mut self, watched: &[Watched], signals: &[i32]) -> Duration;

    /// All processes are over, and in the file: writes what was kept.
    ///
    /// # Errors
    ///
    /// Those of `write`, and where what was kept can't be read.
    fn write(&mut self, write: &mut WriteChunk<'_>) -> io::Result<()>;
}

/// What a recording does for triggers.
pub struct Triggers {
    /// Bytes that threads may take beyond their rings while calls are open that may be kept.
    pub memory: u64,
    /// Signals to this process that are handed to whoever keeps calls.
    pub signals: Vec<i32>,
    /// Which functions.
    pub sites: Box<dyn FindSites>,
    /// Which calls.
    pub keep: Box<dyn KeepCalls>,
}

impl std::fmt::Debug for Triggers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Triggers").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// Whoever keeps calls, on a thread of its own, or on the caller's where there is none to be had.
pub(crate) struct Keeper {
    looks: Arc<Looks>,
    hub: Arc<Hub>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// When it is time for the next look, where there is no thread.
    due: Instant,
}

/// What a look needs.
struct Looks {
    family: Arc<Mutex<Family>>,
    keep: Mutex<Box<dyn KeepCalls>>,
    signals: Mutex<Vec<i32>>,
}

impl Looks {
    /// How long it may take until the next one.
    fn look(&self) -> Duration {
        let watched = lock(&self.family).watched();
        let signals = std::mem::take(&mut *unpoisoned(&self.signals));
        unpoisoned(&self.keep).look(&watched, &signals)
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Keeper {
    /// Starts the thread. Where the system has none (`ulimit -u`, a control group), [`Keeper::poll`] has to be called often.
    pub fn attend(family: Arc<Mutex<Family>>, keep: Box<dyn KeepCalls>) -> Keeper {
        let hub = Arc::clone(&lock(&family).hub);
        let stop = Arc::new(AtomicBool::new(false));
        let looks = Arc::new(Looks { family, keep: Mutex::new(keep), signals: Mutex::default() });
        let (stopped, page_of, looking) = (Arc::clone(&stop), Arc::clone(&hub), Arc::clone(&looks));
        let thread = Builder::new().spawn(move || {
            let page = page_of.page();
            while !stopped.load(Ordering::Acquire) {
                let rung = page.doorbell().load(Ordering::Acquire);
                let pause = looking.look();
                // Whoever rings all the time must not keep the family from others.
                std::thread::sleep(LEAST_PAUSE);
                let timeout =
                    futex::Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
                let _ = futex::wait(page.doorbell(), futex::Flags::empty(), rung, Some(&timeout));
            }
        });
        Keeper { looks, hub, stop, thread: thread.ok(), due: Instant::now() }
    }

    /// Looks where there is no thread for it, at most as often as it likes to. Whether that was so.
    pub fn poll(&mut self) -> bool {
        if self.thread.is_none() && self.due <= Instant::now() {
            // What is posted isn't waited for here.
            let pause = self.looks.look().min(PAUSE_WITHOUT_THREAD);
            self.due = Instant::now() + pause;
        }
        self.thread.is_none()
    }

    /// A signal came.
    pub fn signal(&mut self, signal: i32) {
        unpoisoned(&self.looks.signals).push(signal);
        self.due = Instant::now();
        let doorbell = self.hub.page().doorbell();
        doorbell.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(doorbell, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Ends the thread. What was posted last is still to be looked at.
    pub fn stop(self) -> Option<Box<dyn KeepCalls>> {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread {
            // The thread may be about to wait when it is woken.
            while !thread.is_finished() {
                let _ = futex::wake(self.hub.page().doorbell(), futex::Flags::empty(), u32::MAX >> 1);
                std::thread::sleep(LEAST_PAUSE);
            }
            let _ = thread.join();
        }
        let Looks { keep, .. } = Arc::into_inner(self.looks)?;
        Some(keep.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
