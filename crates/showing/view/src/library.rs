//! The opened files, and the threads that read them.
//!
//! ```text
//! open      Input -> File        in a thread, as all that follows; of a large file a sketch before
//! read      File -> its summary levels
//! workers   File -> answers that need events: `quick` ones of a frame, by several threads, and
//!           `long` ones of a range
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use everycall_analysis::{Profile, SymbolNames, TraceView};
use everycall_export::Filter;

use crate::context::Context;
use crate::file::{File, Input, SharedFunctions, SharedInput, lock, place_of_track};
use crate::glance::{Glance, glance};
use crate::parts;
use crate::read::{Numbers, read};
use crate::threads::{give_way, thread};
use everycall_answers::SourceText;

/// All files that are viewed.
pub struct Library {
    pub(crate) functions: SharedFunctions,
    /// Which state of a running program it is of.
    pub(crate) generation: Option<u64>,
    filter: Filter,
    /// Whether long answers are to end, as no client waits for them any more.
    stop: Arc<AtomicBool>,
    files: Mutex<Vec<Slot>>,
    opened: Condvar,
    /// Sources by function, once they were asked for.
    pub(crate) sources: Mutex<HashMap<u32, SourceText>>,
}

/// A file.
#[derive(Clone)]
enum Slot {
    /// With what is known already.
    Opening {
        path: String,
        glance: Glance,
    },
    /// Its events are being counted. Something is drawn of them already.
    Sketched(Arc<OpenFile>),
    Open(Arc<OpenFile>),
    Failed(String),
}

/// A file with its workers.
pub(crate) struct OpenFile {
    pub file: Arc<File>,
    pub quick: Worker,
    pub long: Worker,
    /// The sums of all calls by function, once they were asked for.
    pub whole: Mutex<Option<Arc<Profile>>>,
}

/// Each has symbols of its own.
const QUICK_MAX: usize = 4;

/// Why an answer that was stopped isn't there.
pub const STOPPED: &str = "stopped";

type Job = Box<dyn FnOnce(&Context<'_>) + Send>;

/// One thread or several, each with a view of the trace of its own.
pub(crate) struct Worker {
    jobs: Mutex<Sender<Job>>,
    /// Ends what it does.
    stop: Arc<AtomicBool>,
}

/// The queue from which a worker's threads take their jobs.
type Jobs = Arc<Mutex<Receiver<Job>>>;

impl Worker {
    fn new(stop: Arc<AtomicBool>) -> (Worker, Jobs) {
        let (jobs, receiver) = channel();
        (Worker { jobs: Mutex::new(jobs), stop }, Arc::new(Mutex::new(receiver)))
    }

    /// Lets the worker do something, and waits for it.
    pub fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Context<'_>) -> T + Send + 'static,
    ) -> Result<T, String> {
        self.begin(what)?.answer()
    }

    /// Lets the worker do something.
    pub fn begin<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Context<'_>) -> T + Send + 'static,
    ) -> Result<Begun<'_, T>, String> {
        let (put, get) = sync_channel(1);
        let job: Job = Box::new(move |context| {
            let _ = put.send(what(context));
        });
        lock(&self.jobs).send(job).map_err(|_| GONE)?;
        Ok(Begun { answer: get, stop: &self.stop })
    }
}

const GONE: &str = "the trace can't be read any more";

/// A job that a worker was given.
pub(crate) struct Begun<'w, T> {
    answer: Receiver<T>,
    stop: &'w AtomicBool,
}

impl<T> Begun<'_, T> {
    /// Waits for it.
    pub fn answer(self) -> Result<T, String> {
        let answer = self.answer.recv().map_err(|_| GONE)?;
        // Events may be missing in it.
        if self.stop.load(Ordering::Relaxed) { Err(STOPPED.to_owned()) } else { Ok(answer) }
    }
}

/// Answers until no further job can come.
fn work(file: &File, functions: &SharedFunctions, jobs: &Jobs, stop: Arc<AtomicBool>) {
    let next = || lock(jobs).recv();
    // Nothing is needed before the first request.
    let Ok(first) = next() else { return };
    let names = SymbolNames::new(&file.file, &file.trace, file.options.clone());
    let view = TraceView::new(&file.trace, &names).with_stop(stop).with_stretches(file);
    let numbers = RefCell::new(Numbers::new(&view, functions));
    let context = Context { file, view: &view, names: &names, numbers };
    first(&context);
    while let Ok(job) = next() {
        job(&context);
    }
}

/// Threads that answer what a frame needs: a frame has several tracks.
pub(crate) fn quick_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| all.get().min(QUICK_MAX))
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    thread(name, run).map_err(|error| format!("no thread can be started: {error}"))
}

impl Library {
    /// Begins to open and to read the files.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn open(inputs: Vec<Input>) -> io::Result<Arc<Library>> {
        Library::filtered(inputs, Filter::default())
    }

    /// Begins to open and to read the files; tables and trees count the calls that pass a filter.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn filtered(inputs: Vec<Input>, filter: Filter) -> io::Result<Arc<Library>> {
        let slot = |(index, input): (usize, &Input)| Slot::Opening {
            path: input.path.clone(),
            glance: glance(index, input),
        };
        let slots = inputs.iter().enumerate().map(slot).collect();
        let library = Arc::new(Library {
            functions: SharedFunctions::default(),
            generation: None,
            filter,
            stop: Arc::default(),
            files: Mutex::new(slots),
            opened: Condvar::new(),
            sources: Mutex::default(),
        });
        for (index, input) in inputs.into_iter().enumerate() {
            let of_thread = Arc::clone(&library);
            thread("read", move || of_thread.run(index, input))?;
        }
        Ok(library)
    }

    /// One file, a state of a running program from some ticks on, read completely. Functions have
    /// the numbers that they had in earlier states.
    pub(crate) fn of_state(
        generation: u64,
        functions: SharedFunctions,
        input: Input,
        begin_ticks: u64,
    ) -> Result<Library, String> {
        let slot = Slot::Opening { path: input.path.clone(), glance: glance(0, &input) };
        let library = Library {
            functions,
            generation: Some(generation),
            filter: Filter::default(),
            stop: Arc::default(),
            files: Mutex::new(vec![slot]),
            opened: Condvar::new(),
            sources: Mutex::default(),
        };
        let input =
            SharedInput { begin_ticks: Some(begin_ticks), ..SharedInput::new(input, Filter::default()) };
        library.read_in_order(0, &input, None)?;
        Ok(library)
    }

    fn run(&self, index: usize, input: Input) {
        give_way();
        let path = input.path.clone();
        if let Err(why) = self.try_run(index, &SharedInput::new(input, self.filter.clone())) {
            self.put(index, Slot::Failed(format!("{path}: {why}")));
        }
    }

    fn try_run(&self, index: usize, input: &SharedInput) -> Result<(), String> {
        let sketched = File::sketched(index, input).map_err(|error| error.to_string())?;
        let sketched = sketched.map(|file| self.with_workers(file)).transpose()?;
        if let Some(open) = &sketched {
            let (file, functions) = (Arc::clone(&open.file), self.functions.clone());
            start("sketch", move || {
                give_way();
                parts::draw(&file, &functions);
            })?;
            self.put(index, Slot::Sketched(Arc::clone(open)));
        }
        let before = sketched.as_ref().map(|open| open.file.as_ref());
        let result = self.read_in_order(index, input, before);
        if let Some(sketch) = before.and_then(|file| file.sketch.as_ref()) {
            sketch.end();
        }
        result
    }

    fn read_in_order(&self, index: usize, input: &SharedInput, before: Option<&File>) -> Result<(), String> {
        let file = File::open(index, input, before).map_err(|error| error.to_string())?;
        let open = self.with_workers(file)?;
        self.put(index, Slot::Open(Arc::clone(&open)));
        read(&open.file, &self.functions);
        Ok(())
    }

    /// Starts the threads that answer requests about a file.
    fn with_workers(&self, file: File) -> Result<Arc<OpenFile>, String> {
        let (of_quick, of_long) = (Arc::default(), Arc::clone(&self.stop));
        let ((quick, quick_jobs), (long, long_jobs)) =
            (Worker::new(Arc::clone(&of_quick)), Worker::new(Arc::clone(&of_long)));
        let file = Arc::new(file);
        let of_quick = std::iter::repeat_n(("quick", quick_jobs, of_quick), quick_threads());
        for (name, jobs, stop) in of_quick.chain([("long", long_jobs, of_long)]) {
            let (of_worker, functions) = (Arc::clone(&file), self.functions.clone());
            start(name, move || work(&of_worker, &functions, &jobs, stop))?;
        }
        Ok(Arc::new(OpenFile { file, quick, long, whole: Mutex::default() }))
    }

    /// Ends the table or tree that is being computed, with [`STOPPED`]; `false` lets the next one
    /// begin.
    pub fn stop(&self, is_stopped: bool) {
        self.stop.store(is_stopped, Ordering::Relaxed);
    }

    fn put(&self, index: usize, slot: Slot) {
        if let Some(place) = lock(&self.files).get_mut(index) {
            *place = slot;
        }
        self.opened.notify_all();
    }

    /// Facts about the files while some are being opened; `None` once all are open.
    pub(crate) fn glances(&self) -> Option<Vec<Glance>> {
        let files = lock(&self.files);
        let glances = files.iter().filter_map(|slot| match slot {
            Slot::Opening { glance, .. } => Some(glance.clone()),
            _ => None,
        });
        Some(glances.collect::<Vec<_>>()).filter(|glances| !glances.is_empty())
    }

    /// The files, once all of them are open; waits for that for a while.
    pub(crate) fn files(&self) -> Result<Vec<Arc<OpenFile>>, String> {
        self.wait_for(|slot| !matches!(slot, Slot::Opening { .. } | Slot::Sketched(_)))
    }

    /// The files, once something can be drawn of all of them; waits for that for a while.
    pub(crate) fn drawn(&self) -> Result<Vec<Arc<OpenFile>>, String> {
        self.wait_for(|slot| !matches!(slot, Slot::Opening { .. }))
    }

    fn wait_for(&self, is_there: impl Fn(&Slot) -> bool) -> Result<Vec<Arc<OpenFile>>, String> {
        let files = lock(&self.files);
        let is_opening = |files: &mut Vec<Slot>| files.iter().any(|slot| !is_there(slot));
        let waited = self.opened.wait_timeout_while(files, Duration::from_secs(30), is_opening);
        let files = waited.unwrap_or_else(PoisonError::into_inner).0;
        let still = |path: &str| Err(format!("{path}: its events are still being counted; ask again"));
        let open = files.iter().map(|slot| match slot {
            Slot::Opening { path, .. } => still(path),
            Slot::Sketched(open) if !is_there(slot) => still(&open.file.path),
            Slot::Sketched(open) | Slot::Open(open) => Ok(Arc::clone(open)),
            Slot::Failed(why) => Err(why.clone()),
        });
        open.collect()
    }

    /// Whether the events of some file are still being counted.
    pub(crate) fn is_counting(&self) -> bool {
        lock(&self.files).iter().any(|slot| matches!(slot, Slot::Sketched(_)))
    }

    /// The files, once all of them were read.
    pub(crate) fn wait(&self) -> Result<Vec<Arc<OpenFile>>, String> {
        loop {
            let is_opening = |slot: &Slot| matches!(slot, Slot::Opening { .. } | Slot::Sketched(_));
            if !lock(&self.files).iter().any(is_opening) {
                let files = self.files()?;
                if files.iter().all(|open| open.file.is_complete()) {
                    return Ok(files);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The file and the thread of a track.
    pub(crate) fn track(&self, id: u32) -> Result<(Arc<OpenFile>, usize), String> {
        track_of(&self.files()?, id)
    }

    /// The file and the thread of a track, as soon as something can be drawn of it.
    pub(crate) fn drawn_track(&self, id: u32) -> Result<(Arc<OpenFile>, usize), String> {
        track_of(&self.drawn()?, id)
    }
}

fn track_of(files: &[Arc<OpenFile>], id: u32) -> Result<(Arc<OpenFile>, usize), String> {
    let (file, thread) = place_of_track(id);
    let file = files.get(file).filter(|file| thread < file.file.threads.len());
    file.cloned().map(|file| (file, thread)).ok_or_else(|| format!("there is no track {id}"))
}
