//! A program that runs: its newest events, as one state after the other. Each state is a small
//! trace that is read completely before the page sees it, and answered as a file is.
//!
//! ```text
//! Running     where events come from; whoever connects rooms implements it
//! states      a thread makes a state whenever a page asks, at most a third of the time
//! held        states that pages look at: the newest one, and those that are frozen
//! ```

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everycall_analysis::NameOptions;
use everycall_reader::TraceFile;
use serde::Serialize;
use std::io;

use crate::file::{Input, SharedFunctions, lock};
use crate::library::Library;
use crate::threads::{give_way, thread};

/// Time between the beginnings of two states, at least.
const PERIOD: Duration = Duration::from_millis(200);
/// Making states takes at most this part of the time.
const SHARE: u32 = 3;
/// A state that no page has asked for within this time is dropped. Pages that are frozen ask now
/// and then.
const HELD: Duration = Duration::from_secs(20);
/// States at once: the newest, the one before, which pages are leaving, and frozen ones.
const STATES_MAX: usize = 4;
/// How long a request waits for the first state.
const FIRST: Duration = Duration::from_secs(30);

/// A running program, as a viewer needs it.
pub trait Running: Send + Sync {
    /// Its newest events, as a trace file.
    ///
    /// # Errors
    ///
    /// A sentence why there are none.
    fn newest(&self) -> Result<Newest, String>;

    /// Facts about it now.
    fn facts(&self) -> RunningFacts;

    /// Records the calls of a function from now on, or no longer; `name` is its complete name.
    /// Returns what is recorded then, as a sentence.
    ///
    /// # Errors
    ///
    /// A sentence why that isn't possible.
    fn switch(&self, name: &str, is_on: bool) -> Result<String, String>;
}

/// The newest events of a program.
pub struct Newest {
    /// A trace file.
    pub file: Vec<u8>,
    /// From here on, nothing of what was read is missing, in ticks; 0 for all of it.
    pub since_ticks: u64,
    /// Writes them to a file of the user's, or those between two moments in ticks. Returns the
    /// file's name, or a sentence why there is none.
    pub keep: Keep,
}

/// Writes the events of a state to a file: see [`Newest::keep`].
pub type Keep = Box<dyn Fn(Option<(u64, u64)>) -> Result<String, String> + Send + Sync>;

/// Facts about a running program.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunningFacts {
    /// Why it isn't read any more, as a sentence, if that is so.
    pub over: Option<String>,
    /// Limits of the picture, as sentences.
    pub notes: Vec<String>,
    /// Events that were overwritten before they were read, since the viewer began.
    pub lost: u64,
    /// Bytes of events that are kept, and how many are kept at most.
    pub kept_bytes: u64,
    /// How many are kept at most.
    pub most_bytes: u64,
}

/// Facts for a page about a program that runs.
#[derive(Debug, Serialize)]
struct Told {
    /// The newest state.
    generation: u64,
    /// Whether the state that the page looks at is still there.
    held: bool,
    /// Why no newer state could be made, if that is so.
    failed: Option<String>,
    #[serde(flatten)]
    facts: RunningFacts,
}

/// The states of a running program.
pub struct States {
    running: Box<dyn Running>,
    path: String,
    names: NameOptions,
    functions: SharedFunctions,
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    states: Vec<State>,
    last: u64,
    /// Whether a page has asked for a newer state since the last one was begun.
    is_wanted: bool,
    failed: Option<String>,
}

#[derive(Clone)]
struct State {
    library: Arc<Library>,
    keep: Arc<Keep>,
    number: u64,
    /// When a page looked at it last.
    asked: Option<Instant>,
}

impl States {
    /// The states of a program, which is called `path`; `names`: how its functions are named.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn begin(running: Box<dyn Running>, path: String, names: NameOptions) -> io::Result<Arc<States>> {
        let states = Arc::new(States {
            running,
            path,
            names,
            functions: SharedFunctions::default(),
            held: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&states);
        thread("states", move || of_thread.make_all())?;
        Ok(states)
    }

    fn make_all(&self) {
        give_way();
        loop {
            let held = lock(&self.held);
            let waited = self.changed.wait_while(held, |held| !held.is_wanted);
            waited.unwrap_or_else(PoisonError::into_inner).is_wanted = false;
            let begin = Instant::now();
            // After the end, one more state has all that was left.
            let was_over = self.running.facts().over.is_some();
            let made = self.make();
            let mut held = lock(&self.held);
            match made {
                Ok((library, keep)) => {
                    held.last += 1;
                    held.failed = None;
                    let state = State {
                        library: Arc::new(library),
                        keep: Arc::new(keep),
                        number: held.last,
                        asked: None,
                    };
                    held.states.push(state);
                    held.forget();
                }
                Err(why) => held.failed = Some(why),
            }
            drop(held);
            self.changed.notify_all();
            if was_over {
                return;
            }
            std::thread::sleep(PERIOD.max(begin.elapsed() * SHARE).saturating_sub(begin.elapsed()));
        }
    }

    fn make(&self) -> Result<(Library, Keep), String> {
        let number = lock(&self.held).last + 1;
        let Newest { file, since_ticks, keep } = self.running.newest()?;
        let file = TraceFile::open(file).map_err(|error| error.to_string())?;
        let input = Input { path: self.path.clone(), file, names: self.names.clone() };
        Library::of_state(number, self.functions.clone(), input, since_ticks).map(|library| (library, keep))
    }

    /// Writes a state to a file of the user's, or the events of a range of it, in nanoseconds.
    /// Returns the file's name.
    pub(crate) fn keep(&self, number: Option<u64>, range: Option<(u64, u64)>) -> Result<String, String> {
        let State { library, keep, .. } = self.find(number)?;
        let range = match range {
            Some((from, to)) => {
                let files = library.files()?;
                let clock = files.first().ok_or("there is no file")?.file.trace.clock();
                Some((clock.ticks(from), clock.ticks(to)))
            }
            None => None,
        };
        keep(range)
    }

    /// The state with a number, or the newest one.
    pub(crate) fn state(&self, number: Option<u64>) -> Result<Arc<Library>, String> {
        self.find(number).map(|state| state.library)
    }

    fn find(&self, number: Option<u64>) -> Result<State, String> {
        let mut held = lock(&self.held);
        if number.is_none() {
            held.is_wanted = true;
            self.changed.notify_all();
        }
        let is_missing = |held: &mut Held| held.states.is_empty() && held.failed.is_none();
        let waited = self.changed.wait_timeout_while(held, FIRST, is_missing);
        let mut held = waited.unwrap_or_else(PoisonError::into_inner).0;
        let failed = held.failed.clone();
        let found = match number {
            Some(number) => held.states.iter_mut().find(|state| state.number == number),
            None => held.states.last_mut(),
        };
        match (found, number, failed) {
            (Some(state), ..) => {
                state.asked = Some(Instant::now());
                Ok(state.clone())
            }
            (None, Some(_), _) => Err("this state of the program isn't kept any more".to_owned()),
            (None, None, Some(why)) => Err(why),
            (None, None, None) => Err("the program's events are still being read; ask again".to_owned()),
        }
    }

    /// Records the calls of a function from now on, or no longer. Returns what is recorded then.
    pub(crate) fn switch(&self, function: u32, is_on: bool) -> Result<String, String> {
        let named = lock(&self.functions).get(function).map(|named| named.identity.name.clone());
        self.running.switch(&named.ok_or("there is no such function")?, is_on)
    }

    /// Facts for a page that looks at a state, and wants newer ones unless it is frozen.
    pub(crate) fn told(&self, looks_at: Option<u64>, is_frozen: bool) -> impl Serialize {
        let facts = self.running.facts();
        let mut held = lock(&self.held);
        if !is_frozen {
            held.is_wanted = true;
            self.changed.notify_all();
        }
        let state = held.states.iter_mut().find(|state| Some(state.number) == looks_at);
        let is_held = state.is_some();
        if let Some(state) = state {
            state.asked = Some(Instant::now());
        }
        Told { generation: held.last, held: is_held, failed: held.failed.clone(), facts }
    }
}

impl Held {
    /// Drops states that nobody looks at, and the ones that were looked at longest ago where there
    /// are too many. The newest one stays.
    fn forget(&mut self) {
        let last = self.last;
        let is_looked_at = |state: &State| state.asked.is_some_and(|asked| asked.elapsed() < HELD);
        self.states.retain(|state| state.number == last || is_looked_at(state));
        while self.states.len() > STATES_MAX {
            let others = self.states.iter().filter(|state| state.number != last);
            let Some(oldest) = others.min_by_key(|state| state.asked).map(|state| state.number) else {
                return;
            };
            self.states.retain(|state| state.number != oldest);
        }
    }
}
