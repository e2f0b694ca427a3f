//! The trace file, `.ect`: a header and a sequence of chunks, each with its own checksum, so that a
//! truncated file is readable up to its end, and a damaged file past each damaged chunk.
//!
//! ```text
//! FileHeader
//! ChunkHeader payload padding-to-8
//! ChunkHeader payload padding-to-8
//! ...
//! ChunkHeader(END) EndRecord           absent in a truncated file
//! ```
//!
//! Numbers are little endian. Checksums are CRC-32 (IEEE 802.3, reflected, as zlib's `crc32`).
//! Chunks of unknown kinds are skipped; structures may grow at their end (arrays carry the size of
//! their entries). A change that old readers would misread raises [`VERSION_MAJOR`], any other one
//! [`VERSION_MINOR`].

use crate::Wire;
use crate::arena::COUNTERS;
use crate::times::{BUCKETS, TimeSums};
use crate::trigger::TriggeredCall;
use crate::wire::wire_struct;

/// File name extension of trace files.
pub const ENDING: &str = ".ect";
/// First bytes of a trace file.
pub const MAGIC: [u8; 16] = *b"everycall trace\n";
/// Readers refuse a higher one.
pub const VERSION_MAJOR: u16 = 2;
/// Readers accept any.
pub const VERSION_MINOR: u16 = 15;
/// First bytes of a chunk.
pub const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"ECTc");
/// Chunks begin at multiples of this.
pub const CHUNK_ALIGN: u64 = 8;
/// Largest payload of an events chunk, in bytes. Module images may be larger, and threads with very
/// many open calls.
pub const EVENTS_PAYLOAD_MAX: u64 = (1 << 20) + EventsRecord::BYTES;

wire_struct! {
    /// First bytes of the file.
    pub struct FileHeader [32] {
        /// [`MAGIC`].
        pub magic: [u8; 16],
        /// [`VERSION_MAJOR`].
        pub version_major: u16,
        /// [`VERSION_MINOR`].
        pub version_minor: u16,
        /// Bytes of this header; the first chunk follows.
        pub header_size: u32,
        /// Zero.
        pub flags: u32,
        /// CRC-32 of the bytes before it.
        pub checksum: u32,
    }
}

impl FileHeader {
    /// The header of a file of this version. `crc` gives the CRC-32 of bytes.
    #[must_use]
    pub fn new(crc: impl FnOnce(&[u8]) -> u32) -> FileHeader {
        let mut header = FileHeader {
            magic: MAGIC,
            version_major: VERSION_MAJOR,
            version_minor: VERSION_MINOR,
            header_size: FileHeader::SIZE as u32,
            flags: 0,
            checksum: 0,
        };
        let bytes = header.to_bytes();
        header.checksum = crc(&bytes[..FileHeader::SIZE - size_of::<u32>()]);
        header
    }
}

wire_struct! {
    /// First bytes of a chunk.
    pub struct ChunkHeader [32] {
        /// [`CHUNK_MAGIC`].
        pub magic: u32,
        /// One of [`chunk`].
        pub kind: u32,
        /// Its place in the file, from 0.
        pub number: u32,
        /// Number of the process that it belongs to, from 0; zero for chunks of the whole
        /// recording.
        pub process: u32,
        /// Bytes of the payload, without padding.
        pub length: u64,
        /// CRC-32 of the payload.
        pub payload_checksum: u32,
        /// CRC-32 of the bytes before it.
        pub header_checksum: u32,
    }
}

/// Kind and place of a chunk in a file.
#[derive(Clone, Copy, Debug)]
pub struct ChunkPlace {
    /// One of [`chunk`].
    pub kind: u32,
    /// Its place in the file, from 0.
    pub number: u32,
    /// Number of the process that it belongs to.
    pub process: u32,
}

impl ChunkHeader {
    /// The header of a chunk whose payload has `length` bytes and this checksum. `crc` gives the
    /// CRC-32 of bytes.
    #[must_use]
    pub fn new(
        place: ChunkPlace,
        length: u64,
        payload_checksum: u32,
        crc: impl FnOnce(&[u8]) -> u32,
    ) -> ChunkHeader {
        let ChunkPlace { kind, number, process } = place;
        let mut header = ChunkHeader {
            magic: CHUNK_MAGIC,
            kind,
            number,
            process,
            length,
            payload_checksum,
            header_checksum: 0,
        };
        let bytes = header.to_bytes();
        header.header_checksum = crc(&bytes[..ChunkHeader::SIZE - size_of::<u32>()]);
        header
    }
}

/// Kinds of chunks, and what their payloads are.
pub mod chunk {
    /// Texts about the recording: [`super::MetaField`]s, each followed by its bytes, padded to 4.
    pub const META: u32 = 1;
    /// [`super::ArrayHeader`], then [`crate::arena::ClockReading`]s.
    pub const CLOCK: u32 = 2;
    /// [`super::ArrayHeader`], then [`crate::arena::ModuleEntry`]s, then their paths. A later
    /// chunk of the same process replaces an earlier one.
    pub const MODULES: u32 = 3;
    /// [`super::ModuleImage`], then the file's bytes.
    pub const MODULE_IMAGE: u32 = 4;
    /// [`super::SnapshotRecord`].
    pub const SNAPSHOT: u32 = 5;
    /// [`super::ThreadRecord`], then [`super::ArrayHeader`] and [`crate::arena::OpenCall`]s,
    /// outermost first, without the sentinel.
    pub const THREAD: u32 = 6;
    /// [`super::EventsRecord`], then event words.
    pub const EVENTS: u32 = 7;
    /// [`super::ArrayHeader`], then [`crate::arena::ChildEntry`]s.
    pub const CHILDREN: u32 = 8;
    /// [`super::ProcessEnd`].
    pub const PROCESS_END: u32 = 9;
    /// [`super::ProcessRecord`], then the words of its command line, each ended by a zero byte.
    pub const PROCESS: u32 = 10;
    /// [`super::ArrayHeader`], then [`super::TriggerRecord`]s, then their texts. Since version 2.3.
    pub const TRIGGERS: u32 = 11;
    /// [`super::KeptCall`], after its snapshot. Since version 2.3.
    pub const KEPT: u32 = 12;
    /// [`super::DroppedRecord`], then [`super::ArrayHeader`] and [`super::DroppedCalls`], after the
    /// threads of its snapshot. Since version 2.8.
    pub const DROPPED: u32 = 18;
    /// [`super::SessionRecord`], then its one or two [site sets](crate::site_set): before the
    /// snapshot. Since version 2.8.
    pub const SESSION: u32 = 20;
    /// [`super::CountsRecord`], then [`super::ArrayHeader`] and [`super::CountedCalls`], after the
    /// threads of its snapshot. Since version 2.8.
    pub const COUNTS: u32 = 21;
    /// [`crate::sched::SchedRecord`], then its text and its [events](crate::sched::SchedEvent);
    /// several chunks add up. Since version 2.8.
    pub const SCHED: u32 = 22;
    /// [`crate::embedded::SymbolsRecord`], then the module's path and what is known of its
    /// functions. After the END. Since version 2.9.
    pub const SYMBOLS: u32 = 23;
    /// [`crate::embedded::SourcesRecord`], then source files. After the END. Since version 2.9.
    pub const SOURCES: u32 = 24;
    /// [`super::CountsRecord`], then [`super::ArrayHeader`] and [`super::TimedCalls`], after the
    /// threads of its snapshot. Since version 2.9.
    pub const TIMES: u32 = 26;
    /// [`crate::memory::MemoryRecord`], then [`super::ArrayHeader`] and
    /// [`crate::memory::MemoryCalls`], after the TIMES of its snapshot. Since version 2.10.
    pub const MEMORY: u32 = 27;
    /// [`super::CountsRecord`], then [`super::ArrayHeader`] and [`super::CountedCalls`]: the
    /// [counts of all calls](crate::all_calls) that were recorded so far, after the threads of
    /// their snapshot. Since version 2.10.
    pub const ALL_CALLS: u32 = 28;
    /// [`super::FrameNamesRecord`], then records of names as in the arena
    /// ([`crate::frame`]): the process's frames by id. Since version 2.11.
    pub const FRAME_NAMES: u32 = 29;
    /// [`super::CodeNamesRecord`], then records of [`super::CodeName`]: the process's machine code
    /// of just-in-time compilers. Since version 2.13.
    pub const CODE_NAMES: u32 = 30;
    /// [`super::CodeFileRecord`], then bytes of a file in which a just-in-time compiler names its
    /// code for perf: in snapshots that the program took of itself, instead of CODE_NAMES. Since
    /// version 2.14.
    pub const CODE_FILE: u32 = 33;
    /// [`super::StampsRecord`]: which of the process's events have a time of their own. Absent where
    /// all have, as was wanted. Since version 2.14.
    pub const STAMPS: u32 = 31;
    /// [`crate::calibration::Calibration`]: the cost of the process's hooks. Since version 2.14.
    pub const CALIBRATION: u32 = 32;
    /// [`super::ValueCountsRecord`], then [`super::ArrayHeader`] and
    /// [`crate::value_counts::ValueCount`]: how often calls had the same values, after the threads
    /// of their snapshot. Since version 2.15.
    pub const VALUE_COUNTS: u32 = 35;
    /// [`crate::stacks::StacksRecord`], then its text, its names, its [files](crate::stacks::StackFile),
    /// [frames](crate::stacks::StackFrame), [nodes](crate::stacks::StackNode) and
    /// [samples](crate::stacks::StackSample). Several chunks add up. Since version 2.15.
    pub const STACKS: u32 = 36;
    /// [`super::EndRecord`]: the file is complete.
    pub const END: u32 = 15;
}

wire_struct! {
    /// The part of its process that the file shows: one session's request. The rings may contain
    /// more, which others requested.
    pub struct SessionRecord [104] {
        /// Bytes of this record.
        pub record_size: u32,
        /// A set of [`session_flags`].
        pub flags: u32,
        /// When the session became active, ticks: calls that began earlier don't belong to it.
        pub start_ticks: u64,
        /// When the session ended, ticks.
        pub end_ticks: u64,
        /// Process id of its owner.
        pub owner: u32,
        /// Bytes of the site set with its functions, which follows this record.
        pub functions_length: u32,
        /// Bytes of a second site set, which follows the first one: only calls within calls of
        /// these functions belong to the session. 0 if all calls do.
        pub within_length: u32,
        /// Zero.
        pub reserved: u32,
        /// Its name, NUL padded.
        pub name: [u8; 64],
    }
}

/// [`SessionRecord::flags`].
pub mod session_flags {
    /// Only calls whose caller is in another module, or isn't traced.
    pub const CROSSING: u32 = 1;
    /// The file has only some of the threads.
    pub const SOME_THREADS: u32 = 2;
    /// Until then, all functions had been recorded since the process began: a call whose caller
    /// isn't recorded was made by code that isn't traced.
    pub const ALL_CALLERS: u32 = 4;
}

wire_struct! {
    /// Before an array.
    pub struct ArrayHeader [8] {
        /// Bytes from one entry to the next; may be more than the size that a reader knows.
        pub entry_size: u32,
        /// Entries.
        pub count: u32,
    }
}

wire_struct! {
    /// One text in a META chunk.
    pub struct MetaField [8] {
        /// One of [`meta`].
        pub key: u32,
        /// Bytes that follow.
        pub length: u32,
    }
}

/// Keys of [`MetaField`].
pub mod meta {
    /// everycall's version.
    pub const TOOL_VERSION: u32 = 1;
    /// One word of the traced command line; repeated, in order.
    pub const ARGUMENT: u32 = 2;
    /// Working folder.
    pub const WORKING_FOLDER: u32 = 3;
    /// Host name.
    pub const HOST: u32 = 4;
    /// Operating system and kernel version.
    pub const KERNEL: u32 = 5;
    /// CPU model.
    pub const CPU: u32 = 6;
    /// Number of CPUs, as a decimal text.
    pub const CPU_COUNT: u32 = 7;
    /// Current clock source of the kernel.
    pub const CLOCK_SOURCE: u32 = 8;
    /// Whether the CPU says that the counter runs at a constant rate: `yes` or `no`.
    pub const INVARIANT_COUNTER: u32 = 9;
    /// The source of an imported trace: its format and path, as text. Since version 2.9.
    pub const IMPORTED_FROM: u32 = 32;
    /// The clock of the imported trace. Since version 2.9.
    pub const IMPORTED_CLOCK: u32 = 33;
    /// A sentence about what is missing or unknown in that trace; repeated. Since version 2.9.
    pub const IMPORT_NOTE: u32 = 34;
}

/// The first bytes of the build ids of [module images](chunk::MODULE_IMAGE) that only hold the
/// names of functions which were imported without any file. Since version 2.9.
pub const IMPORTED_BUILD_ID: [u8; 8] = *b"imported";

wire_struct! {
    /// Which of a process's events have a time of their own.
    pub struct StampsRecord [16] {
        /// Bytes of this record.
        pub record_size: u32,
        /// One of [`crate::stamp`].
        pub stamps: u32,
        /// The wanted value; the process may have been unable to leave stamps out.
        pub wanted: u32,
        /// Zero.
        pub reserved: u32,
    }
}

wire_struct! {
    /// Precedes the bytes of a mapped file that is no longer at its path.
    pub struct ModuleImage [16] {
        /// Index in the module table.
        pub module: u32,
        /// One of [`encoding`]: RAW or ZSTD.
        pub encoding: u32,
        /// Bytes of the file, decoded.
        pub length: u64,
    }
}

/// How bytes are stored.
pub mod encoding {
    /// As they are.
    pub const RAW: u32 = 0;
    /// One zstd frame.
    pub const ZSTD: u32 = 1;
    /// Event words in the compact form, since version 2.1.
    pub const COMPACT: u32 = 2;
    /// One zstd frame of the compact form, since version 2.1.
    pub const COMPACT_ZSTD: u32 = 3;
}

wire_struct! {
    /// A snapshot of a process; its threads follow in chunks of their own.
    pub struct SnapshotRecord [296] {
        /// Number of the snapshot, from 0.
        pub snapshot: u32,
        /// One of [`reason`].
        pub reason: u32,
        /// Process.
        pub pid: u32,
        /// Threads that follow.
        pub threads: u32,
        /// When it was taken, ticks; 0 in a stream's first one.
        pub ticks: u64,
        /// Default bytes of a thread's ring.
        pub ring_size: u64,
        /// Bytes of each segment.
        pub segment_size: u64,
        /// [`crate::arena::ArenaHeader::counters`].
        pub counters: [u64; COUNTERS],
    }
}

/// Why a snapshot was taken.
pub mod reason {
    /// The process ended.
    pub const PROCESS_END: u32 = 1;
    /// It was requested.
    pub const REQUEST: u32 = 2;
    /// A call met a trigger's condition; a [`KeptCall`](super::KeptCall) says which.
    pub const TRIGGER: u32 = 3;
    /// The process was streamed while it ran. The chunks of the snapshot and of its threads may be
    /// repeated, and the last of each counts. Since version 2.2.
    pub const STREAM: u32 = 4;
}

wire_struct! {
    /// A thread in a snapshot.
    pub struct ThreadRecord [128] {
        /// Snapshot that it belongs to.
        pub snapshot: u32,
        /// Index within the snapshot, from 0.
        pub thread: u32,
        /// Process id.
        pub pid: u32,
        /// Kernel thread id.
        pub tid: u32,
        /// Slot in the arena.
        pub slot: u32,
        /// Number of threads that had the slot before.
        pub generation: u32,
        /// When the thread took its ring, ticks.
        pub start_ticks: u64,
        /// Number of the oldest segment that follows; those before it were overwritten.
        pub first_segment: u64,
        /// Number of segments that follow.
        pub segments: u64,
        /// Words in them that were reserved but never written: each is a lost event.
        pub holes: u64,
        /// Thread name, NUL padded.
        pub name: [u8; 16],
        /// As in [`crate::arena::ThreadHeader`].
        pub unwound: u64,
        /// As in [`crate::arena::ThreadHeader`].
        pub orphan_exits: u64,
        /// As in [`crate::arena::ThreadHeader`].
        pub lost_busy: u64,
        /// As in [`crate::arena::ThreadHeader`].
        pub deep: u64,
        /// As in [`crate::arena::ThreadHeader`].
        pub fiber: u32,
        /// A set of [`thread_flags`]. Since version 2.8.
        pub flags: u32,
        /// Short calls that were dropped in its slot, by it and by the threads that had the slot
        /// before, as in [`crate::event::kind::DROPPED`]; 0 if another thread has had the slot
        /// since. Since version 2.8.
        pub dropped: u64,
        /// Zero.
        pub reserved_too: [u32; 2],
    }
}

/// Thread ids from here on are those of files whose lines the recorder has read: no threads, and no
/// fibers. Since version 2.9.
pub const LOG_FILE_TID: u32 = 2_000_000_000;

/// [`ThreadRecord::flags`].
pub mod thread_flags {
    /// It isn't a thread: its events are counters of the process, which the recorder has sampled.
    pub const SAMPLED: u32 = 1;
}

wire_struct! {
    /// A thread's events: whole segments, in order. The unwritten end of the thread's last segment
    /// is omitted.
    pub struct EventsRecord [32] {
        /// Snapshot that it belongs to.
        pub snapshot: u32,
        /// Thread within the snapshot.
        pub thread: u32,
        /// Number of the first segment.
        pub first_segment: u64,
        /// Event words.
        pub words: u64,
        /// One of [`encoding`].
        pub encoding: u32,
        /// Events of the thread that are lost between the segment stored before and the first
        /// segment here. Chunks without words add to it. Since version 2.2.
        pub lost: u32,
    }
}

impl EventsRecord {
    /// Bytes of the record.
    pub const BYTES: u64 = 32;
}

wire_struct! {
    /// How the traced process ended.
    pub struct ProcessEnd [24] {
        /// Process.
        pub pid: u32,
        /// One of [`end`].
        pub how: u32,
        /// Exit status, or signal number.
        pub code: u32,
        /// 1 if a core was dumped.
        pub core_dumped: u32,
        /// When the recorder detected the end, ticks.
        pub ticks: u64,
    }
}

/// [`ProcessEnd::how`].
pub mod end {
    /// By exit; the code is its status.
    pub const EXITED: u32 = 1;
    /// By a signal; the code is its number.
    pub const SIGNALED: u32 = 2;
}

wire_struct! {
    /// One program's run in a traced process. A process that executes another traced program has
    /// two of these records.
    pub struct ProcessRecord [64] {
        /// Bytes of this structure; the command line follows.
        pub record_size: u32,
        /// Process id.
        pub pid: u32,
        /// Its parent's, when it began.
        pub parent_pid: u32,
        /// Number of the process in this file that it was forked from, whose program it replaced,
        /// or that started it; [`NO_PROCESS`] if there is none.
        pub parent: u32,
        /// One of [`crate::hub::origin`].
        pub origin: u32,
        /// One of [`image_end`].
        pub ending: u32,
        /// When its tracing began, ticks.
        pub start_ticks: u64,
        /// When it ended, or was last checked, ticks.
        pub end_ticks: u64,
        /// Command name, NUL padded.
        pub name: [u8; 16],
        /// Bytes of the command line.
        pub command_length: u32,
        /// Its machine, by its number in ELF files; 0 where that isn't stated: in files of before
        /// version 2.15, and in imported ones.
        pub machine: u32,
    }
}

/// [`ProcessRecord::parent`] of a process whose parent isn't in the file.
pub const NO_PROCESS: u32 = u32::MAX;

/// [`ProcessRecord::ending`].
pub mod image_end {
    /// The source of an imported trace doesn't say. Since version 2.9.
    pub const UNKNOWN: u32 = 0;
    /// It ended.
    pub const ENDED: u32 = 1;
    /// It executed another traced program.
    pub const EXEC: u32 = 2;
    /// It was running when the recording ended.
    pub const RUNNING: u32 = 3;
}

wire_struct! {
    /// A trigger, and its results.
    pub struct TriggerRecord [64] {
        /// Where its text begins, from the end of the entries.
        pub text_offset: u32,
        /// Bytes of its text.
        pub text_length: u32,
        /// Calls that met the condition, or may have.
        pub fired: u64,
        /// Calls of these that were kept: their snapshots are in the file.
        pub kept: u64,
        /// Calls of these that should have been kept, but could not be.
        pub missed: u64,
        /// Functions that it names.
        pub functions: u64,
        /// Functions of these whose first calls were not checked, because the program continued
        /// before the recorder had found them.
        pub late: u64,
        /// Further functions that it names, which were not armed for lack of room. They are not
        /// among `functions`.
        pub not_armed: u64,
        /// Calls of `fired` that may have met the condition
        /// ([`PERHAPS`](crate::trigger::call_flags::PERHAPS)). Since 2.14.
        pub perhaps: u64,
    }
}

wire_struct! {
    /// The call for which a snapshot was taken.
    pub struct KeptCall [96] {
        /// Number of the snapshot.
        pub snapshot: u32,
        /// Index of the trigger.
        pub trigger: u32,
        /// Index of its thread in the snapshot; [`NO_THREAD`] if the snapshot doesn't contain it.
        pub thread: u32,
        /// Kernel thread id.
        pub tid: u32,
        /// Code offset of its entry.
        pub code: u32,
        /// A set of [`crate::trigger::call_flags`].
        pub flags: u32,
        /// When it was entered, ticks.
        pub start_ticks: u64,
        /// When it ended, or was found to have ended, ticks.
        pub end_ticks: u64,
        /// The threshold that it exceeded, in ticks.
        pub threshold: u64,
        /// Events of its thread, from its entry to its exit, that were overwritten before they were
        /// copied.
        pub missing: u64,
        /// As [`TriggeredCall::jump_ticks`]. Since 2.8.
        pub jump_ticks: u64,
        /// As [`TriggeredCall::target`]. Since 2.8.
        pub target: u64,
        /// As [`TriggeredCall::jump_code`]. Since 2.8.
        pub jump_code: u32,
        /// Zero.
        pub reserved: [u32; 5],
    }
}

impl KeptCall {
    /// The call for which snapshot `snapshot` was taken. `thread` is its thread's index in that
    /// snapshot, followed by the number of that thread's oldest event; if the snapshot doesn't
    /// contain the thread, all of the call is missing.
    #[must_use]
    pub fn of(call: &TriggeredCall, snapshot: u32, thread: Option<(u32, u64)>) -> KeptCall {
        let (thread, first) = thread.unwrap_or((NO_THREAD, u64::MAX));
        KeptCall {
            snapshot,
            trigger: call.rule,
            thread,
            tid: call.tid,
            code: call.code,
            flags: call.flags,
            start_ticks: call.start_ticks,
            end_ticks: call.end_ticks,
            threshold: call.threshold,
            missing: first.min(call.events_after).saturating_sub(call.events_before),
            jump_ticks: call.jump_ticks,
            target: call.target,
            jump_code: call.jump_code,
            ..KeptCall::default()
        }
    }
}

/// [`KeptCall::thread`] if the thread isn't in the snapshot.
pub const NO_THREAD: u32 = u32::MAX;

wire_struct! {
    /// The short calls that a process had dropped when a snapshot was taken.
    pub struct DroppedRecord [48] {
        /// Number of the snapshot.
        pub snapshot: u32,
        /// 1 if short calls of some functions were recorded, because no place was left to count
        /// them.
        pub is_full: u32,
        /// The threshold at the end, in nanoseconds; 0 if no calls were dropped then.
        pub threshold_ns: u64,
        /// The highest threshold so far, in nanoseconds.
        pub highest_ns: u64,
        /// Calls that were dropped, of all functions.
        pub calls: u64,
        /// Zero.
        pub reserved: [u64; 2],
    }
}

wire_struct! {
    /// The calls of one function that were dropped.
    pub struct DroppedCalls [24] {
        /// Code offset of its entries.
        pub code: u32,
        /// Zero.
        pub reserved: u32,
        /// When its first short call ended, ticks: this shows which module the code offset is in.
        pub ticks: u64,
        /// Calls that were dropped.
        pub calls: u64,
    }
}

wire_struct! {
    /// The counts of a process that only counts calls, when a snapshot was taken.
    pub struct CountsRecord [48] {
        /// Number of the snapshot.
        pub snapshot: u32,
        /// One of [`crate::dropped::counting`].
        pub counting: u32,
        /// Calls that were counted, of all functions.
        pub calls: u64,
        /// Calls of these whose functions aren't known, because no place was left to count them.
        pub others: u64,
        /// Zero.
        pub reserved: [u64; 3],
    }
}

wire_struct! {
    /// The counts of a process that counts calls by their values, when a snapshot was taken.
    pub struct ValueCountsRecord [48] {
        /// Number of the snapshot.
        pub snapshot: u32,
        /// Zero.
        pub reserved: u32,
        /// Calls whose values found no place.
        pub others: u64,
        /// Calls of these that had values of too many bytes.
        pub too_long: u64,
        /// Zero.
        pub reserved_as_well: [u64; 3],
    }
}

wire_struct! {
    /// The names of a process's frames by id; the records follow.
    pub struct FrameNamesRecord [32] {
        /// Bytes of this record.
        pub record_size: u32,
        /// Zero.
        pub reserved: u32,
        /// Bytes of the records of names.
        pub length: u64,
        /// Names that found no room in the arena.
        pub lost: u64,
        /// Zero.
        pub reserved_as_well: u64,
    }
}

wire_struct! {
    /// The names that a just-in-time compiler gives the machine code that it has made; the records
    /// follow.
    pub struct CodeNamesRecord [32] {
        /// Bytes of this record.
        pub record_size: u32,
        /// Zero.
        pub reserved: u32,
        /// Bytes of the records of names.
        pub length: u64,
        /// Names for which there was no room.
        pub lost: u64,
        /// Zero.
        pub reserved_as_well: u64,
    }
}

wire_struct! {
    /// Which file of a just-in-time compiler this is; its bytes follow.
    pub struct CodeFileRecord [16] {
        /// Bytes of this record.
        pub record_size: u32,
        /// See [`code_file`].
        pub kind: u32,
        /// Bytes of the file that follow: all, or its beginning.
        pub length: u64,
    }
}

/// Kinds of files in a [`CodeFileRecord`].
pub mod code_file {
    /// `perf-PID.map`.
    pub const PERF_MAP: u32 = 1;
    /// `jit-PID.dump`.
    pub const JITDUMP: u32 = 2;
    /// Most bytes of a file.
    pub const BYTES_MAX: u64 = 64 << 20;
}

wire_struct! {
    /// The name of a range of code for a time. The texts follow, padded with zeros to a multiple of
    /// [`crate::frame::RECORD_ALIGN`].
    pub struct CodeName [56] {
        /// Bytes of the record with its texts and padding.
        pub size: u32,
        /// Line of the function's definition, from 1; 0 if it isn't known.
        pub line: u32,
        /// Its first address in the process, or id of a frame.
        pub start: u64,
        /// Addresses, or ids.
        pub length: u64,
        /// From when on the code was there, in ticks.
        pub loaded: u64,
        /// When other code replaced it, in ticks; all bits set: it was there until the end.
        pub replaced: u64,
        /// Bytes of the name.
        pub name_length: u32,
        /// Bytes of the path of its file, which follows the name; 0 if it isn't known.
        pub file_length: u32,
        /// Zero.
        pub reserved: u64,
    }
}

wire_struct! {
    /// The calls of one function that were counted in one thread slot.
    pub struct CountedCalls [24] {
        /// Code offset of its entries.
        pub code: u32,
        /// The thread slot.
        pub slot: u32,
        /// When the process first called it, ticks: this shows which module the code offset is in.
        pub ticks: u64,
        /// Calls by all threads that had the slot so far.
        pub calls: u64,
    }
}

wire_struct! {
    /// The calls of one function that were timed in one thread slot. Times are in ticks.
    pub struct TimedCalls [448] {
        /// Code offset of its entries.
        pub code: u32,
        /// The thread slot.
        pub slot: u32,
        /// When the process first called it, ticks: this shows which module the code offset is in.
        pub ticks: u64,
        /// Calls by all threads that had the slot so far. Those that have ended are in the
        /// histogram.
        pub calls: u64,
        /// Time in calls that have ended, with what they called. A call within another one of the
        /// same function adds nothing.
        pub total: u64,
        /// Time in calls that have ended, without the calls in them.
        pub own: u64,
        /// The shortest call's time; 0 if none has ended.
        pub shortest: u64,
        /// The longest call's time.
        pub longest: u64,
        /// Time in calls within another one of the same function, which `total` lacks.
        pub nested: u64,
        /// As in [`crate::times::TimeSums`].
        pub histogram: [u64; BUCKETS],
    }
}

impl TimedCalls {
    /// Sums as they are in a file, without what their function is.
    #[must_use]
    pub fn of(sums: &TimeSums) -> TimedCalls {
        let ended = sums.histogram.iter().copied().fold(0, u64::saturating_add);
        TimedCalls {
            // A call adds to its calls first and to the histogram last. If a signal handler has
            // jumped away in between, the former may lack.
            calls: sums.calls.max(ended),
            total: sums.total,
            own: if sums.own.cast_signed() < 0 { 0 } else { sums.own },
            shortest: if sums.shortest == 0 { 0 } else { !sums.shortest },
            longest: sums.longest,
            nested: sums.nested,
            histogram: sums.histogram,
            ..TimedCalls::default()
        }
    }
}

wire_struct! {
    /// Last chunk of a complete file.
    pub struct EndRecord [16] {
        /// Chunks before this one.
        pub chunks: u32,
        /// Zero.
        pub reserved: u32,
        /// Bytes of the file.
        pub file_length: u64,
    }
}
