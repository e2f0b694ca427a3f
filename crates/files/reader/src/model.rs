//! The contents of a recording apart from its events, whether it came from a file or an arena.

use std::borrow::Cow;
use std::ops::Range;

use everycall_format::arch::Machine;
use everycall_format::arena::{COUNTERS, ClockReading, module_flags};
use everycall_format::calibration::HookPrices;
use everycall_format::frame::BUILD_ID;
use everycall_format::stamp;
use everycall_format::times::BUCKETS;

use crate::error::Warning;

/// A recording: everything but the events and the open calls, which are read per thread.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Texts about it.
    pub meta: Meta,
    /// Clock readings as they were found, in any order.
    pub clock: Vec<ClockReading>,
    /// Traced processes, in the order of the file. There is at least one.
    pub processes: Vec<Process>,
    /// Modules of all processes, grouped by process; other tables refer to a module by its index
    /// here.
    pub modules: Vec<Module>,
    /// Processes that descend from the traced ones and were not followed.
    pub children: Vec<Child>,
    /// How the program that `record` started ended, if that was seen.
    pub process_end: Option<ProcessEnd>,
    /// Snapshots in the order of the file. An arena contains one.
    pub snapshots: Vec<Snapshot>,
    /// Triggers.
    pub triggers: Vec<Trigger>,
    /// Kept calls, in the order of their ends.
    pub kept: Vec<KeptCall>,
    /// Short calls that were dropped, by process and snapshot.
    pub dropped: Vec<Dropped>,
    /// Calls that were counted and not recorded, by process and snapshot.
    pub counts: Vec<Counts>,
    /// All calls of processes that record, by process and snapshot: also those whose events were
    /// overwritten, and those that were dropped.
    pub all_calls: Vec<Counts>,
    /// How often calls had the same values, by process and snapshot.
    pub value_counts: Vec<ValueCounts>,
    /// Frames by id, of the processes that have some.
    pub frames: Vec<Frames>,
    /// Memory that counted calls have allocated and freed, by process and snapshot.
    pub memory: Vec<Memory>,
    /// The cost of the hooks, by process.
    pub calibrations: Vec<ProcessCalibration>,
    /// Where trampolines belong to, by the number that modules have.
    pub trampolines: Vec<Trampolines>,
    /// Layouts of calls' values, by the id that captures have.
    pub layouts: Vec<CaptureLayout>,
    /// One session's request, if the file was written by `everycall trace`: all other calls of its
    /// process are left out.
    pub session: Option<Session>,
    /// When the kernel ran the threads; `None` if that wasn't recorded.
    pub sched: Option<Sched>,
    /// Sampled stacks; `None` if none were wanted.
    pub stacks: Option<SampledStacks>,
    /// Damaged, missing or unknown parts of the input.
    pub warnings: Vec<Warning>,
}

/// The cost of a process's hooks, as it was measured at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessCalibration {
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Whether the prices are known; if not, they could not be measured.
    pub is_measured: bool,
    /// Of hooks at a function's first instruction and before its return, in thousandths of a tick.
    pub sites: HookPrices,
    /// Of hooks in a function's body.
    pub bodies: HookPrices,
    /// Of hooks of frames by id.
    pub frames: HookPrices,
    /// CPU time that the process took in all, in nanoseconds; `None` if it isn't known.
    pub cpu_ns: Option<u64>,
}

/// Where threads were at moments that the kernel chose. Tables refer to each other by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledStacks {
    /// Samples that were wanted of each second in which a thread runs; 0: the text says why there
    /// are none.
    pub rate: u32,
    /// Whether code of the kernel was sampled, too.
    pub has_kernel: bool,
    /// Bytes of a stack that were copied for each sample.
    pub stack_bytes: u32,
    /// Says which code wasn't sampled, and why; as bytes, because it need not be UTF-8.
    pub text: Vec<u8>,
    /// Samples that the kernel had no room for.
    pub lost: u64,
    /// Samples that newer ones have replaced in the recorder's memory.
    pub overwritten: u64,
    /// How often the kernel took fewer samples for a time.
    pub throttled: u64,
    /// Files with code.
    pub files: Vec<SampledFile>,
    /// Places in code.
    pub frames: Vec<SampledFrame>,
    /// Stacks: each has its innermost frame, and the caller's stack, which stands before it.
    pub nodes: Vec<(Option<usize>, usize)>,
    /// In any order.
    pub samples: Vec<StackSample>,
}

impl SampledStacks {
    /// The frames of a stack, innermost first.
    pub fn frames_of(&self, node: Option<usize>) -> impl Iterator<Item = &SampledFrame> {
        let mut at = node;
        // A caller's stack stands before, so this ends.
        std::iter::from_fn(move || {
            let (parent, frame) = self.nodes.get(at?)?;
            at = *parent;
            self.frames.get(*frame)
        })
    }
}

/// A file with code that was sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledFile {
    /// As the process sees it.
    pub path: Vec<u8>,
    /// Empty if it has none.
    pub build_id: Vec<u8>,
}

/// A place in code that was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampledFrame {
    /// An instruction of a file, or the last byte of a call.
    File {
        /// Index in [`SampledStacks::files`].
        file: usize,
        /// The file's own address.
        image_address: u64,
    },
    /// A function of the kernel; empty if its name isn't known.
    Kernel(Vec<u8>),
    /// A function that the kernel puts into each process.
    Vdso(Vec<u8>),
    /// Code that no file contains, at this address of the process.
    Memory(u64),
    /// Of newer versions.
    Other,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSample {
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW`.
    pub raw_ns: u64,
    /// The thread's process id.
    pub pid: u32,
    /// The thread's id.
    pub tid: u32,
    /// Index in [`SampledStacks::nodes`]; `None` if there is no frame.
    pub node: Option<usize>,
    /// A set of [`everycall_format::stacks::sample_flags`].
    pub flags: u32,
}

/// When the kernel ran the threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sched {
    /// Where the events came from.
    pub source: SchedSource,
    /// The clock of their times.
    pub clock: SchedClock,
    /// The source's limits, and why there was no better one; as bytes, because it need not be
    /// UTF-8.
    pub text: Vec<u8>,
    /// Events that newer ones have overwritten.
    pub overwritten: u64,
    /// Nothing is known of the time behind this, by their clock; `None` if they reach to the end.
    pub until: Option<u64>,
    /// Events as they were found, in any order. Numbers are unchecked.
    pub events: Vec<everycall_format::sched::SchedEvent>,
}

/// Where scheduling events came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedSource {
    /// Nowhere: the kernel refused.
    None,
    /// `perf_event_open`.
    Perf,
    /// An instance of tracefs.
    Tracefs,
    /// Both: switches from the first, wake-ups from the second.
    PerfAndTracefs,
    /// Samples of the kernel's counts for each thread.
    Schedstat,
    /// A source of newer versions.
    Other(u32),
}

/// The clock of scheduling events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedClock {
    /// Ticks, as in the threads' events.
    Ticks,
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW`.
    MonotonicRaw,
}

/// A session's request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Its name, as bytes, because it need not be UTF-8.
    pub name: Vec<u8>,
    /// Index of its process.
    pub process: usize,
    /// When it became active, in ticks.
    pub start_ticks: u64,
    /// When it ended, in ticks.
    pub end_ticks: u64,
    /// Process id of its owner.
    pub owner: u32,
    /// Its functions.
    pub functions: FunctionSet,
    /// The functions within whose calls it records; `None` for all calls.
    pub within: Option<FunctionSet>,
    /// Only calls whose caller is in another module, or isn't traced.
    pub crossing: bool,
    /// The file has only some of the threads.
    pub some_threads: bool,
    /// Until then, all functions had been recorded since the process began: a call whose caller
    /// isn't recorded was made by code that isn't traced.
    pub has_all_callers: bool,
}

/// First addresses of functions and the addresses behind their last ones, as in the module's file,
/// in order and apart.
pub type FunctionRanges = Vec<(u64, u64)>;

/// Functions of modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSet {
    /// The rules that it was made by: `+ PATTERN` or `- PATTERN`.
    pub rules: Vec<Vec<u8>>,
    /// Whether it has the functions of modules that aren't in it.
    pub others: bool,
    /// Modules by their build ids.
    pub modules: Vec<(Vec<u8>, FunctionRanges)>,
}

/// Texts about the recording, as bytes, because they need not be UTF-8; empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Version of the everycall that wrote the file.
    pub tool_version: Vec<u8>,
    /// Words of the traced command line.
    pub arguments: Vec<Vec<u8>>,
    /// Working folder.
    pub working_folder: Vec<u8>,
    /// Host name.
    pub host: Vec<u8>,
    /// Operating system and kernel version.
    pub kernel: Vec<u8>,
    /// CPU model.
    pub cpu: Vec<u8>,
    /// Number of CPUs.
    pub cpu_count: Option<u32>,
    /// Clock source of the kernel.
    pub clock_source: Vec<u8>,
    /// Whether the CPU says that the counter runs at a constant rate.
    pub invariant_counter: Option<bool>,
    /// The trace of another tool that this was made of, as text; empty if it is a recording of
    /// everycall.
    pub imported_from: Vec<u8>,
    /// That tool's clock.
    pub imported_clock: Vec<u8>,
    /// Sentences about what is missing or unknown in that tool's trace.
    pub import_notes: Vec<Vec<u8>>,
}

/// A traced process: one program's run in it. A process that executed another traced program is two
/// of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id; 0 where it isn't known.
    pub pid: u32,
    /// Its parent's.
    pub parent_pid: u32,
    /// Index in [`Recording::processes`] of the process that it was forked from, or whose program
    /// it replaced, or that started it.
    pub parent: Option<usize>,
    /// How it came to be traced.
    pub origin: Origin,
    /// When it began to be traced, in ticks; `None` where the input doesn't say.
    pub start_ticks: Option<u64>,
    /// When it ended or was last seen, in ticks; `None` if the input doesn't say.
    pub end_ticks: Option<u64>,
    /// Why it ends there.
    pub ending: Ending,
    /// Its machine; `None` where the input doesn't say, or names one that this version doesn't
    /// know.
    pub machine: Option<Machine>,
    /// Words of its command line.
    pub command: Vec<Vec<u8>>,
    /// Command name, without the padding.
    pub name: Vec<u8>,
    /// Its modules in [`Recording::modules`].
    pub modules: Range<usize>,
    /// Which of its events have a time of their own.
    pub stamps: Stamps,
}

/// Which events of a process have a time of their own: see [`everycall_format::stamp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// The events that have one.
    pub clock: EventClock,
    /// The events that should have one.
    pub wanted: EventClock,
}

impl Stamps {
    /// Those that an arena states, one of [`everycall_format::stamp`].
    #[must_use]
    pub fn of(stamps: u32) -> Stamps {
        let clock = EventClock::of(stamps);
        Stamps { clock, wanted: clock }
    }
}

/// Which events have a time of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventClock {
    /// All.
    #[default]
    Exact,
    /// Those after which the next ones don't follow closely, and some others.
    Bounded,
    /// As few as possible.
    Order,
    /// A choice that this version doesn't know: not all.
    Other(u32),
}

impl EventClock {
    /// That of a number in the file.
    #[must_use]
    pub fn of(stamps: u32) -> EventClock {
        match stamps {
            stamp::EXACT => EventClock::Exact,
            stamp::BOUNDED => EventClock::Bounded,
            stamp::ORDER => EventClock::Order,
            other => EventClock::Other(other),
        }
    }

    /// Its name in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EventClock::Exact => "exact",
            EventClock::Bounded => "bounded",
            EventClock::Order => "order",
            EventClock::Other(_) => "other",
        }
    }
}

/// How a process came to be traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A traced program was started.
    #[default]
    Start,
    /// It was forked from a traced process.
    Fork,
    /// A traced process executed a traced program.
    Exec,
    /// In a way that this version doesn't know.
    Other(u32),
}

/// Why a process's record ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// The process ended.
    #[default]
    Ended,
    /// It executed another traced program.
    Exec,
    /// It was running when the recording ended.
    Running,
    /// For a reason that this version doesn't know.
    Other(u32),
}

/// The layout of captures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureLayout {
    /// The id in captures.
    pub id: u32,
    /// The layout, as `docs/format.md` describes it.
    pub bytes: Vec<u8>,
}

/// From the hook calls of an object's trampolines to its instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trampolines {
    /// By which [`Module::trampolines`] refers to it.
    pub number: u32,
    /// The place behind each call, from the region's start, and the image address of the
    /// instruction that the hook stands before; in order.
    pub entries: Vec<(u32, u64)>,
}

/// A loaded object with traced code. Process address = image address + `base`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Index of the first module in [`Recording::modules`] that is the same file: one program runs
    /// in many processes, and its functions are the same in all of them.
    pub same_file: usize,
    /// Path, as bytes; empty where it isn't known.
    pub path: Vec<u8>,
    /// Whether it is the program itself.
    pub is_executable: bool,
    /// All of [`module_flags`].
    pub flags: u32,
    /// ELF load bias.
    pub base: u64,
    /// Process address of its first byte.
    pub start: u64,
    /// Process address behind its last byte.
    pub end: u64,
    /// Its first code offset.
    pub code_start: u32,
    /// Build id; empty where there is none.
    pub build_id: Vec<u8>,
    /// When it was registered, in ticks.
    pub loaded_ticks: u64,
    /// When it was unloaded, in ticks; `None` while it is loaded.
    pub unloaded_ticks: Option<u64>,
    /// Sites that were found.
    pub sites: u32,
    /// Sites of these that could not be switched on.
    pub sites_unpatched: u32,
    /// Device of the mapped file; 0 where unknown.
    pub device: u64,
    /// Inode of the mapped file; 0 where unknown.
    pub inode: u64,
    /// [`Trampolines::number`] if hooks are called by trampolines, to which `start` and `end`
    /// belong then; else 0.
    pub trampolines: u32,
}

impl Recording {
    /// The frames by id that a module stands for; `None` for an object.
    #[must_use]
    pub fn frames_of(&self, module: &Module) -> Option<&Frames> {
        let mut all = self.frames.iter().filter(|_| module.is_frames());
        all.find(|frames| frames.process == module.process)
    }
}

impl Module {
    /// Whether the entry was completed; an incomplete entry keeps its index but contains no code.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end > self.start
    }

    /// The path as text, for people.
    #[must_use]
    pub fn path_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.path)
    }

    /// Whether it is no object, but the frames by id of its process.
    #[must_use]
    pub fn is_frames(&self) -> bool {
        self.flags & module_flags::FRAMES != 0
    }

    /// The build id by which sets of functions name it: that of frames by id stands for all of them.
    #[must_use]
    pub fn build_id_in_sets(&self) -> &[u8] {
        if self.is_frames() { BUILD_ID } else { &self.build_id }
    }

    /// Whether it has sites of mode `nops` or of XRay.
    #[must_use]
    pub fn has_sites(&self) -> bool {
        self.flags & (module_flags::NOPS | module_flags::XRAY) != 0
    }
}

/// The frames by id of a process: calls that the program reports itself. They are in a module of
/// their own, at the image address `id * STEP` ([`everycall_format::frame`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Names that found no room.
    pub lost: u64,
    /// By id; those that were named. Those of [`Frames::codes`] follow, from
    /// [`everycall_format::frame::IDS`] on.
    pub names: Vec<Frame>,
    /// The names that the program gave its threads, in their order.
    pub threads: Vec<ThreadName>,
    /// Machine code of just-in-time compilers, by address, then by time.
    pub codes: Vec<CodeRange>,
    /// Names of such code for which there was no room, or that could not be read.
    pub codes_lost: u64,
}

/// The name that the program gave a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadName {
    /// The kernel's id of the thread.
    pub tid: u32,
    /// When it got the name, in ticks.
    pub ticks: u64,
    /// The name.
    pub name: Vec<u8>,
}

/// Machine code that a just-in-time compiler made. Its name is that of an id of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// Its first address in the process.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// From when on it was there, in ticks; 0 where that isn't known.
    pub loaded: u64,
    /// When other code replaced it, in ticks; `u64::MAX`: it was there until the end.
    pub replaced: u64,
    /// Its [`Frame::id`].
    pub id: u32,
}

/// The name of an id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The id.
    pub id: u32,
    /// Its name, as the program gave it.
    pub name: Vec<u8>,
    /// Path of the file that defines it; empty where it isn't known.
    pub file: Vec<u8>,
    /// The line there, from 1.
    pub line: Option<u32>,
}

/// A process that was not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its process id.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// One of [`everycall_format::arena::child_kind`].
    pub kind: u32,
    /// When it was noticed.
    pub ticks: u64,
    /// Command name.
    pub name: Vec<u8>,
}

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEnd {
    /// Process.
    pub pid: u32,
    /// One of [`everycall_format::ect::end`].
    pub how: u32,
    /// Exit status, or signal number.
    pub code: u32,
    /// Whether a core was dumped.
    pub core_dumped: bool,
    /// When it was seen.
    pub ticks: u64,
}

/// Why a snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The process ended.
    ProcessEnd,
    /// A request.
    Request,
    /// A trigger fired.
    Trigger,
    /// The process was recorded as a whole, while it ran.
    Stream,
    /// A reason that this version doesn't know.
    Other(u32),
}

/// The threads of a process at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Number of the snapshot.
    pub number: u32,
    /// Why it was taken.
    pub reason: Reason,
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Its process id.
    pub pid: u32,
    /// When it was taken; `None` where the input doesn't say.
    pub ticks: Option<u64>,
    /// Bytes of each thread's ring.
    pub ring_size: u64,
    /// Bytes of each segment.
    pub segment_size: u64,
    /// The runtime's counters, by [`everycall_format::arena::counter`].
    pub counters: [u64; COUNTERS],
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// A thread in a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Process id.
    pub pid: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// Slot in the arena.
    pub slot: u32,
    /// How many threads had the slot before.
    pub generation: u32,
    /// Name, without the padding.
    pub name: Vec<u8>,
    /// When the thread took its ring, in ticks.
    pub start_ticks: u64,
    /// Number of its oldest segment that exists. Those before it were overwritten.
    pub first_segment: u64,
    /// Number of its segments that exist, or that exist according to the file.
    pub segments: u64,
    /// Frames that were left without an exit.
    pub unwound: u64,
    /// Exits without an entry on the open-call stack.
    pub orphan_exits: u64,
    /// Events that were dropped because the slow path was busy.
    pub lost_busy: u64,
    /// Events beyond the depth limit of the open-call stack; they are also included in the other
    /// counts.
    pub deep: u64,
    /// Of a fiber, a stack that threads run which isn't their own: its number in its process, from
    /// 1. Its `tid` is that of the thread that ran it last.
    pub fiber: Option<u32>,
    /// Short calls that it and the slot's threads before it had dropped; compared with
    /// [`crate::event::EventKind::Dropped`].
    pub dropped: u64,
    /// It isn't a thread: its events are counters of the process, which the recorder has sampled.
    pub is_sampled: bool,
}

impl Thread {
    /// The name as text, for people.
    #[must_use]
    pub fn name_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }
}

/// A call that had not returned when the snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// When it began, in full ticks.
    pub ticks: u64,
    /// Code offset of its entry; `None` for code outside all modules.
    pub offset: Option<u32>,
}

/// Names a thread of a recording: `recording.snapshots[snapshot].threads[thread]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey {
    /// Index in [`Recording::snapshots`].
    pub snapshot: usize,
    /// Index in [`Snapshot::threads`].
    pub thread: usize,
}

/// A recording whose events can be read, by several threads at once.
pub trait Source: Send + Sync {
    /// The recording, without its events.
    fn recording(&self) -> &Recording;

    /// The calls of a thread that had not returned, outermost first; empty for an unknown key.
    fn open_calls(&self, key: ThreadKey) -> Vec<OpenCall>;

    /// The segments of a thread, oldest first; none for an unknown key.
    fn segments(&self, key: ThreadKey) -> Box<dyn SegmentCursor + '_>;

    /// The segments of a thread from `first` on; `None` if reading can't begin there.
    fn segments_from(&self, key: ThreadKey, first: SegmentPlace) -> Option<Box<dyn SegmentCursor + '_>> {
        let _ = (key, first);
        None
    }

    /// How many parts of a thread's segments can be read alone, in their order; 0 if none can.
    fn parts(&self, key: ThreadKey) -> usize {
        let _ = key;
        0
    }

    /// The segments of one of these parts; `None` if there is no such part.
    fn part(&self, key: ThreadKey, part: usize) -> Option<Box<dyn SegmentCursor + '_>> {
        let _ = (key, part);
        None
    }

    /// When one of these parts begins, in ticks: quicker than reading it, and not checked.
    fn part_begin(&self, key: ThreadKey, part: usize) -> Option<u64> {
        let _ = (key, part);
        None
    }
}

impl<T: Source + ?Sized> Source for &T {
    fn recording(&self) -> &Recording {
        (**self).recording()
    }
    fn open_calls(&self, key: ThreadKey) -> Vec<OpenCall> {
        (**self).open_calls(key)
    }
    fn segments(&self, key: ThreadKey) -> Box<dyn SegmentCursor + '_> {
        (**self).segments(key)
    }
    fn segments_from(&self, key: ThreadKey, first: SegmentPlace) -> Option<Box<dyn SegmentCursor + '_>> {
        (**self).segments_from(key, first)
    }
    fn parts(&self, key: ThreadKey) -> usize {
        (**self).parts(key)
    }
    fn part(&self, key: ThreadKey, part: usize) -> Option<Box<dyn SegmentCursor + '_>> {
        (**self).part(key, part)
    }
    fn part_begin(&self, key: ThreadKey, part: usize) -> Option<u64> {
        (**self).part_begin(key, part)
    }
}

impl<T: Source + ?Sized> Source for std::sync::Arc<T> {
    fn recording(&self) -> &Recording {
        (**self).recording()
    }
    fn open_calls(&self, key: ThreadKey) -> Vec<OpenCall> {
        (**self).open_calls(key)
    }
    fn segments(&self, key: ThreadKey) -> Box<dyn SegmentCursor + '_> {
        (**self).segments(key)
    }
    fn segments_from(&self, key: ThreadKey, first: SegmentPlace) -> Option<Box<dyn SegmentCursor + '_>> {
        (**self).segments_from(key, first)
    }
    fn parts(&self, key: ThreadKey) -> usize {
        (**self).parts(key)
    }
    fn part(&self, key: ThreadKey, part: usize) -> Option<Box<dyn SegmentCursor + '_>> {
        (**self).part(key, part)
    }
    fn part_begin(&self, key: ThreadKey, part: usize) -> Option<u64> {
        (**self).part_begin(key, part)
    }
}

/// Where a segment of a thread lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPlace {
    /// Place of its chunk among those of the thread.
    pub(crate) chunk: usize,
    /// Where in the chunk's words it begins.
    pub(crate) at: usize,
    /// Its number.
    pub(crate) number: u64,
}

/// Goes through the segments of one thread.
pub trait SegmentCursor {
    /// Puts the words of the next segment into `words` and returns its number, which is higher than
    /// those before. The first word begins a valid segment record. Unwritten words at the end of
    /// the last segment are left out; a zero before the end is a lost event. `Err` means that
    /// something was left out; later calls can still succeed. `None` marks the end.
    fn next_segment(&mut self, words: &mut Vec<u64>) -> Option<Result<u64, Warning>>;

    /// Events known to be missing directly before the segment that was returned last; after the
    /// end, those missing behind the last segment. 0 if they were not counted.
    fn lost_before(&self) -> u64 {
        0
    }

    /// Whether the end of the segment before the one that was returned last is missing, although
    /// their numbers follow one another.
    fn is_cut_before(&self) -> bool {
        false
    }

    /// Where the segment lies that was returned last; `None` if reading can't begin there.
    fn place(&self) -> Option<SegmentPlace> {
        None
    }
}

/// A trigger of the recording, and its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// As it was written, such as `handle_request > 20ms`.
    pub text: Vec<u8>,
    /// Functions that it names, in all modules.
    pub functions: u64,
    /// Functions of these whose first calls were not checked, because the program continued before
    /// the recorder had named them.
    pub late: u64,
    /// Further functions that match but were not armed, because there was no room for them.
    pub not_armed: u64,
    /// Calls that met its condition, or may have.
    pub fired: u64,
    /// Calls of these that may have met it: see [`Tail::is_perhaps_short`].
    pub perhaps: u64,
    /// Kept calls of these functions.
    pub kept: u64,
    /// Calls of these functions that met the condition but could not be kept.
    pub missed: u64,
}

/// The calls of a process that were dropped because they were short and contained no recorded call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// [`Snapshot::number`](crate::Snapshot::number) of the snapshot at which they were counted.
    pub snapshot: u32,
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Calls shorter than this, in nanoseconds, were dropped at the end; 0 if none were.
    pub threshold_ns: u64,
    /// The highest such duration.
    pub highest_ns: u64,
    /// Whether short calls of some functions were recorded, as there was no room to count them.
    pub is_full: bool,
    /// Calls that were dropped, of all functions.
    pub calls: u64,
    /// Calls that were dropped, by function.
    pub functions: Vec<DroppedCalls>,
}

/// The calls of a process that were counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`Snapshot::number`](crate::Snapshot::number) of the snapshot at which they were read.
    pub snapshot: u32,
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Whether the calls were timed.
    pub is_timed: bool,
    /// Calls, of all functions.
    pub calls: u64,
    /// Calls of these whose functions aren't known, because there was no room to count them.
    pub others: u64,
    /// The rest, by function and thread slot.
    pub functions: Vec<CountedCalls>,
}

/// How often the calls of a process had the same values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueCounts {
    /// [`Snapshot::number`](crate::Snapshot::number) of the snapshot at which they were read.
    pub snapshot: u32,
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Calls with values for which there was no place.
    pub others: u64,
    /// The rest. The same values may be there more than once.
    pub values: Vec<CountedValues>,
}

/// Calls with the same values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedValues {
    /// [`CaptureLayout::id`] of their layout.
    pub id: u32,
    /// The capture.
    pub bytes: Box<[u8]>,
    /// Calls.
    pub calls: u64,
}

/// The calls of a function that were counted in a thread slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedCalls {
    /// Code offset of its entries; `None` if that makes no sense.
    pub offset: Option<u32>,
    /// [`ThreadFacts::slot`](crate::ThreadFacts) of the threads that made them.
    pub slot: u32,
    /// When its first call was counted: the offset is that of a module that was loaded then.
    pub ticks: u64,
    /// Calls.
    pub calls: u64,
    /// Their times, if they were measured.
    pub times: Option<Box<CallTimes>>,
}

/// Memory that a process has allocated and freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// [`Snapshot::number`](crate::Snapshot::number) of the snapshot at which it was read.
    pub snapshot: u32,
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Whether the library that counts it was in the process.
    pub is_seen: bool,
    /// Whether the allocator says how large blocks are: otherwise bytes allocated are those that
    /// were asked for, and bytes freed aren't known.
    pub has_sizes: bool,
    /// Whether the program's own file defines `malloc`, so that only what this takes from the next
    /// allocator is counted.
    pub own_allocator: bool,
    /// By threads without a slot, or before they had one.
    pub elsewhere: MemoryNumbers,
    /// The rest, by function and thread slot.
    pub calls: Vec<MemoryOfCalls>,
}

/// Bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryNumbers {
    /// Bytes allocated.
    pub allocated: u64,
    /// Blocks allocated.
    pub allocated_blocks: u64,
    /// Bytes freed.
    pub freed: u64,
    /// Blocks freed.
    pub freed_blocks: u64,
}

/// Memory that the calls of a function in a thread slot have allocated and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOfCalls {
    /// Whose calls.
    pub whose: MemoryOwner,
    /// [`ThreadFacts::slot`](crate::ThreadFacts) of the threads that made them.
    pub slot: u32,
    /// In the calls themselves.
    pub own: MemoryNumbers,
    /// With what they called; a call within another one of the same function adds nothing.
    pub total: MemoryNumbers,
}

/// Who has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOwner {
    /// A function, by the code offset of its entries, which is that of a module that was loaded at
    /// this time, in ticks.
    Function(u32, u64),
    /// No call that is counted; the total is that of all of the slot's threads.
    Thread,
    /// Functions that aren't known, because there was no room to count them apart.
    Others,
}

/// The times of a function's calls that have ended, in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// Time in the calls with what they called. A call within another one of the same function adds
    /// nothing.
    pub total: u64,
    /// Time in calls within another one of the same function.
    pub nested: u64,
    /// Time in the calls without the calls in them.
    pub own: u64,
    /// The shortest call.
    pub shortest: u64,
    /// The longest call.
    pub longest: u64,
    /// Number of calls by the binary logarithm of their time, rounded down.
    pub histogram: [u64; BUCKETS],
}

/// The calls of a function that were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedCalls {
    /// Code offset of its entries; `None` if that makes no sense.
    pub offset: Option<u32>,
    /// When its first short call ended: the offset is that of a module that was loaded then.
    pub ticks: u64,
    /// Calls that were dropped.
    pub calls: u64,
}

/// A kept call that ended in a tail call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// When it, or the last function that it led to by jumps, jumped, in ticks.
    /// [`KeptCall::end_ticks`] is the same where triggers had the call at its jump.
    pub jump_ticks: u64,
    /// It had exceeded its threshold when it jumped, and was kept then: it may have taken longer.
    pub goes_on: bool,
    /// The time is an upper limit, because the end of the function it jumped to isn't known.
    pub is_at_most: bool,
    /// The call had not exceeded its threshold when it jumped: it is uncertain whether it did. It
    /// took at least until [`Tail::jump_ticks`].
    pub is_perhaps_short: bool,
    /// The address to which that jump led, where that is known.
    pub target: Option<u64>,
    /// The code offset in front of that jump, where that is known.
    pub jump_offset: Option<u32>,
    /// A later event of its thread shows that it has ended; otherwise the thread, the process or
    /// the recording ended first.
    pub has_next: bool,
}

/// A kept call: a snapshot of its process, taken when the call had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCall {
    /// [`Snapshot::number`](crate::Snapshot::number) of its snapshot.
    pub snapshot: u32,
    /// Index in [`Recording::processes`].
    pub process: usize,
    /// Index in [`Recording::triggers`].
    pub trigger: usize,
    /// Index of its thread in the snapshot; `None` if the snapshot doesn't contain it.
    pub thread: Option<usize>,
    /// Kernel thread id.
    pub tid: u32,
    /// Name of its thread, without the padding; empty if the snapshot doesn't contain the thread.
    pub thread_name: Vec<u8>,
    /// Code offset of its entry; `None` where the file has none that makes sense.
    pub offset: Option<u32>,
    /// When it was entered, in ticks.
    pub start_ticks: u64,
    /// When it was left, in ticks.
    pub end_ticks: u64,
    /// The threshold that it had to exceed, in ticks.
    pub threshold_ticks: u64,
    /// Whether a call caused the snapshot; otherwise it was requested, for example by a signal.
    pub is_call: bool,
    /// Whether it was kept at its entry, so that its end isn't known.
    pub is_entry: bool,
    /// Whether it was kept when an exception was thrown in it, so that its end isn't known.
    pub is_throw: bool,
    /// Whether it was left by an exception or a jump; [`KeptCall::end_ticks`] is when that was
    /// noticed.
    pub is_unwound: bool,
    /// The tail call in which it ended, where its time counts.
    pub tail: Option<Tail>,
    /// Events of its thread since its entry that were overwritten before they could be copied.
    pub missing: u64,
}
