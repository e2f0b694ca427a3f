//! An opened file, and what was read of it so far.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use everycall_analysis::{NameOptions, SymbolNames};
use everycall_export::{Filter, Source as _, Thread, TraceSource};
use everycall_reader::{Source as _, ThreadKey, TraceFile};
use everycall_timeline::{ThreadStates, Trace};
use rustc_hash::FxHashMap;

use crate::functions::{AllCalls, FunctionTable};
use crate::levels::Levels;
use crate::marks::Marks;
use crate::sampled::Runs;
use crate::series::Series;
use crate::sketch::{PARTS_MIN, Sketch};
use crate::stops::Stops;

/// Pixels of the density that is kept for each track.
pub(crate) const DENSITY: usize = 4096;
/// Bits of a track's number that count the tracks of a file; those above it are the file's.
const FILE_SHIFT: u32 = 24;

/// A file to view.
pub struct Input {
    /// Its path, as it is shown.
    pub path: String,
    /// The file.
    pub file: TraceFile<'static>,
    /// How its functions are named, and where sources lie.
    pub names: NameOptions,
}

/// A file to view, once it is being opened.
pub(crate) struct SharedInput {
    pub path: String,
    pub file: Arc<TraceFile<'static>>,
    pub names: NameOptions,
    /// Which calls are counted.
    pub filter: Filter,
    /// Of a state of a running program: where what is shown begins, in ticks; 0 for all of it.
    pub begin_ticks: Option<u64>,
}

impl SharedInput {
    pub fn new(input: Input, filter: Filter) -> SharedInput {
        let Input { path, file, names } = input;
        SharedInput { path, file: Arc::new(file), names, filter, begin_ticks: None }
    }
}

/// The trace with the names of its tasks.
fn named(input: &SharedInput, mut trace: Trace<'static>) -> Trace<'static> {
    if trace.has_tasks_of_code() {
        SymbolNames::new(&input.file, &trace, input.names.clone()).name_tasks(&mut trace);
    }
    trace
}

/// An opened file.
pub(crate) struct File {
    /// Its place among the files.
    pub index: usize,
    pub path: String,
    pub file: Arc<TraceFile<'static>>,
    pub trace: Trace<'static>,
    pub options: NameOptions,
    /// Which calls are counted; its window is in nanoseconds since the trace's origin.
    pub filter: Filter,
    /// Threads, in the order in which they are shown.
    pub threads: Vec<Thread>,
    /// By thread: its index in the trace.
    pub indices: Vec<usize>,
    /// Whether it is a state of a running program, the newest events of it.
    pub is_state: bool,
    /// When what is shown begins, in nanoseconds since the trace's origin: earlier events of some
    /// threads may be missing. 0 for all of it.
    pub begin_ns: u64,
    /// When the trace ends, in nanoseconds since its origin.
    pub end_ns: u64,
    /// By thread.
    pub tracks: Vec<RwLock<Track>>,
    /// By process id and name.
    pub series: Mutex<FxHashMap<(u32, String), Series>>,
    /// Names of labels, as far as the file was read.
    pub labels: Mutex<BTreeSet<String>>,
    /// Calls of functions that were counted beside the rings, once they are known.
    pub all_calls: OnceLock<AllCalls>,
    /// Events that were read.
    pub read_events: AtomicU64,
    pub is_complete: AtomicBool,
    /// The sketch of parts that weren't read in order yet; none of small files.
    pub sketch: Option<Arc<Sketch>>,
}

/// The data of a thread, as far as it was read.
pub(crate) struct Track {
    pub levels: Levels,
    pub marks: Marks,
    /// Sampled stacks.
    pub samples: Runs,
    /// Calls that are open where reading has got to, outermost first.
    pub open: Vec<Open>,
    /// The time up to which it was read.
    pub read_ns: u64,
    pub is_complete: bool,
    /// Entries and exits by part of the trace's duration.
    pub density: Vec<u32>,
    /// The most calls that were open at once.
    pub depth: usize,
    /// Whether no event comes later than others that happened after it; known at the end.
    pub is_in_order: bool,
    /// Places from which reading can continue.
    pub stops: Stops,
}

/// A call that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub function: u32,
    pub from: u64,
    pub bits: u8,
}

impl File {
    /// Looks at the ends of the threads of a large file, so that something is known of it at once:
    /// a file to be sketched. `None` for others, which are opened as fast.
    ///
    /// # Errors
    ///
    /// Those of the timeline.
    pub fn sketched(index: usize, input: &SharedInput) -> Result<Option<File>, everycall_reader::Error> {
        let recording = input.file.recording();
        let snapshots = recording.snapshots.iter().enumerate();
        let keys = snapshots.flat_map(|(snapshot, of)| {
            (0..of.threads.len()).map(move |thread| ThreadKey { snapshot, thread })
        });
        if keys.map(|key| input.file.parts(key)).sum::<usize>() < PARTS_MIN {
            return Ok(None);
        }
        let mut file = File::of(index, input, named(input, Trace::open_unread(Arc::clone(&input.file))?));
        let parts = file.indices.iter().map(|index| file.trace.parts(*index)).collect();
        file.sketch = Sketch::new(parts).map(Arc::new);
        Ok(Some(file))
    }

    /// Reads what the file holds besides its events' order: threads, counts, the clock. `sketched`
    /// is what was made of it before.
    ///
    /// # Errors
    ///
    /// Those of the timeline.
    pub fn open(
        index: usize,
        input: &SharedInput,
        sketched: Option<&File>,
    ) -> Result<File, everycall_reader::Error> {
        let mut file = File::of(index, input, named(input, Trace::open(Arc::clone(&input.file))?));
        // A thread's first event may be an earlier one than it seemed.
        let is_same = |before: &&File| {
            before.indices == file.indices
                && before.trace.clock().origin_ticks() == file.trace.clock().origin_ticks()
        };
        file.sketch = sketched.filter(is_same).and_then(|before| before.sketch.clone());
        Ok(file)
    }

    fn of(index: usize, input: &SharedInput, trace: Trace<'static>) -> File {
        let file = Arc::clone(&input.file);
        let source = TraceSource::new(&trace, None);
        let threads = source.threads().to_vec();
        let indices = (0..threads.len()).map(|thread| source.index(thread).unwrap_or(usize::MAX)).collect();
        let end_ns = source.end_ns();
        let filter = resolved(&input.filter, &source);
        let begin_ns = input.begin_ticks.map_or(0, |ticks| trace.clock().ns(ticks));
        let track = |_: &Thread| {
            RwLock::new(Track {
                levels: Levels::new(end_ns, 0),
                marks: Marks::default(),
                samples: Runs::default(),
                open: Vec::new(),
                read_ns: 0,
                is_complete: false,
                density: vec![0; DENSITY],
                depth: 0,
                is_in_order: false,
                stops: Stops::default(),
            })
        };
        let tracks = threads.iter().map(track).collect();
        File {
            index,
            path: input.path.clone(),
            tracks,
            threads,
            indices,
            is_state: input.begin_ticks.is_some(),
            begin_ns,
            end_ns,
            options: input.names.clone(),
            filter,
            series: Mutex::default(),
            labels: Mutex::default(),
            all_calls: OnceLock::new(),
            read_events: AtomicU64::new(0),
            is_complete: AtomicBool::new(false),
            sketch: None,
            file,
            trace,
        }
    }

    /// The number of a thread's track among those of all files.
    pub fn track_id(&self, thread: usize) -> u32 {
        track_id(self.index, thread)
    }

    /// The data of a thread, as far as it was read.
    pub fn track(&self, thread: usize) -> Option<RwLockReadGuard<'_, Track>> {
        Some(self.tracks.get(thread)?.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The data of a thread, to be changed.
    pub fn track_mut(&self, thread: usize) -> Option<RwLockWriteGuard<'_, Track>> {
        Some(self.tracks.get(thread)?.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// When the kernel ran a thread.
    pub fn states(&self, thread: usize) -> Option<&ThreadStates> {
        self.trace.states_of(*self.indices.get(thread)?)
    }

    /// Whether all of it was read.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }
}

/// The filter with its window in the times of one trace.
fn resolved(filter: &Filter, source: &TraceSource<'_>) -> Filter {
    let (since, until) = filter.bounds(source);
    Filter {
        since_ns: Some(since).filter(|ns| *ns > 0),
        until_ns: Some(until).filter(|ns| *ns < u64::MAX),
        since_wall: None,
        until_wall: None,
        last_ns: None,
        ..filter.clone()
    }
}

/// The number of a thread's track.
pub(crate) fn track_id(file: usize, thread: usize) -> u32 {
    (file as u32) << FILE_SHIFT | (thread as u32 & ((1 << FILE_SHIFT) - 1))
}

/// The file and the thread of a track's number.
pub(crate) fn place_of_track(id: u32) -> (usize, usize) {
    ((id >> FILE_SHIFT) as usize, (id & ((1 << FILE_SHIFT) - 1)) as usize)
}

/// Locks; what a thread that panicked has left is as good as anything.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The functions of all files.
pub(crate) type SharedFunctions = Arc<Mutex<FunctionTable>>;
