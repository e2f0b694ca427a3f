//! The contents of chunks and tables, checked.

use everycall_format::arch::Machine;
use everycall_format::arena::{self, ChildEntry, ClockReading, ModuleEntry, module_flags, module_state};
use everycall_format::ect::{
    self, ArrayHeader, MetaField, ProcessRecord, SnapshotRecord, ThreadRecord, image_end, meta, reason,
    thread_flags,
};
use everycall_format::hub::origin;
use everycall_format::trigger::is_jump;
use everycall_format::{Wire, until_nul};

use crate::error::{Warning, warn};
use crate::model::{
    Child, Ending, EventClock, Meta, Module, OpenCall, Origin, Process, ProcessEnd, Reason, Recording,
    Snapshot, Stamps, Thread,
};

/// Limit on entries stored from each table. A real recording has far fewer; without a limit, tiny
/// entries of a hostile file would take many times their own size here.
pub(crate) const TABLE_MAX: usize = 1 << 16;
pub(crate) const NO_ARRAY: &str = "its array's header is cut or has too small entries";
pub(crate) const SHORT: &str = "it is too short";

/// The entries of an array, and what follows it; `None` where there is no array.
pub(crate) struct Array<'a> {
    entry_size: usize,
    entries: &'a [u8],
    /// Bytes behind it.
    pub rest: &'a [u8],
    /// Whether it contains fewer entries than its header says.
    pub is_cut: bool,
}

impl<'a> Array<'a> {
    /// The array of `T` at the beginning of `bytes`.
    pub fn parse<T: Wire>(bytes: &'a [u8]) -> Option<Array<'a>> {
        let header = ArrayHeader::read(bytes)?;
        let bytes = bytes.get(ArrayHeader::SIZE..)?;
        let entry_size = usize::try_from(header.entry_size).ok()?;
        if entry_size < T::SIZE {
            return None;
        }
        let claimed = entry_size.checked_mul(usize::try_from(header.count).ok()?)?;
        let there = claimed.min(bytes.len());
        let (entries, rest) = bytes.split_at(there - there % entry_size);
        Some(Array { entry_size, entries, rest, is_cut: there < claimed })
    }

    /// The record at the beginning of a payload, and the array of `T` behind it. `Err` says what is
    /// wrong with the payload.
    pub fn behind<R: Wire, T: Wire>(bytes: &'a [u8]) -> Result<(R, Array<'a>), &'static str> {
        let record = R::read(bytes).ok_or(SHORT)?;
        let array = bytes.get(R::SIZE..).and_then(Array::parse::<T>);
        Ok((record, array.ok_or(NO_ARRAY)?))
    }

    /// `Err` if entries are missing.
    pub fn is_whole(&self) -> Result<(), &'static str> {
        if self.is_cut { Err("its array has fewer entries than it says") } else { Ok(()) }
    }

    /// Its entries.
    pub fn iter<T: Wire>(&self) -> impl Iterator<Item = T> + use<'a, T> {
        self.entries.chunks_exact(self.entry_size).filter_map(T::read)
    }
}

/// Text up to its padding.
pub(crate) fn unpadded(bytes: &[u8]) -> Vec<u8> {
    until_nul(bytes).to_vec()
}

/// Adds the texts of a META chunk. `Err` says what is wrong with the payload.
pub(crate) fn read_meta(mut bytes: &[u8], meta: &mut Meta) -> Result<(), &'static str> {
    while !bytes.is_empty() {
        let field = MetaField::read(bytes).ok_or("a text's header is cut")?;
        let length = usize::try_from(field.length).unwrap_or(usize::MAX);
        let text = bytes
            .get(MetaField::SIZE..)
            .and_then(|rest| rest.get(..length))
            .ok_or("a text is longer than the chunk")?;
        let padded = (MetaField::SIZE + length).next_multiple_of(4);
        bytes = bytes.get(padded..).unwrap_or_default();
        match field.key {
            meta::TOOL_VERSION => meta.tool_version = text.to_vec(),
            meta::ARGUMENT if meta.arguments.len() < TABLE_MAX => meta.arguments.push(text.to_vec()),
            meta::ARGUMENT => return Err("it has more arguments than are kept"),
            meta::IMPORTED_FROM => meta.imported_from = text.to_vec(),
            meta::IMPORTED_CLOCK => meta.imported_clock = text.to_vec(),
            meta::IMPORT_NOTE if meta.import_notes.len() < TABLE_MAX => meta.import_notes.push(text.to_vec()),
            meta::IMPORT_NOTE => return Err("it has more notes than are kept"),
            meta::WORKING_FOLDER => meta.working_folder = text.to_vec(),
            meta::HOST => meta.host = text.to_vec(),
            meta::KERNEL => meta.kernel = text.to_vec(),
            meta::CPU => meta.cpu = text.to_vec(),
            meta::CPU_COUNT => meta.cpu_count = str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            meta::CLOCK_SOURCE => meta.clock_source = text.to_vec(),
            meta::INVARIANT_COUNTER => {
                meta.invariant_counter = match text {
                    b"yes" => Some(true),
                    b"no" => Some(false),
                    _ => None,
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds clock readings.
pub(crate) fn add_clock(readings: impl Iterator<Item = ClockReading>, recording: &mut Recording) {
    for reading in readings {
        if recording.clock.len() == TABLE_MAX {
            let warning = Warning::TooMany { what: "clock readings", kept: TABLE_MAX };
            return warn(&mut recording.warnings, warning);
        }
        recording.clock.push(reading);
    }
}

/// Adds children that aren't known yet.
pub(crate) fn add_children(entries: impl Iterator<Item = ChildEntry>, recording: &mut Recording) {
    let mut seen: std::collections::HashSet<(u32, u32, u64)> =
        recording.children.iter().map(|child| (child.pid, child.kind, child.ticks)).collect();
    for entry in entries.filter(|entry| entry.kind != 0) {
        if recording.children.len() == TABLE_MAX {
            let warning = Warning::TooMany { what: "children", kept: TABLE_MAX };
            return warn(&mut recording.warnings, warning);
        }
        if seen.insert((entry.pid, entry.kind, entry.ticks)) {
            let name = unpadded(&entry.name);
            let ChildEntry { pid, parent, kind, ticks, .. } = entry;
            recording.children.push(Child { pid, parent, kind, ticks, name });
        }
    }
}

/// A module from its entry; `paths` contains the bytes of its path. An incomplete entry gives a
/// module without code, so that the others keep their index.
fn module(entry: &ModuleEntry, paths: &[u8]) -> Module {
    if entry.state != module_state::COMPLETE || entry.end < entry.start {
        return Module::default();
    }
    let first = entry.path_offset as usize;
    let path = paths.get(first..).and_then(|rest| rest.get(..entry.path_length as usize)).unwrap_or_default();
    let build_id = entry.build_id.get(..entry.build_id_length as usize).unwrap_or_default();
    Module {
        process: 0,
        same_file: 0,
        path: path.to_vec(),
        is_executable: entry.flags & module_flags::EXECUTABLE != 0,
        flags: entry.flags,
        base: entry.base,
        start: entry.start,
        end: entry.end,
        code_start: entry.code_start,
        build_id: build_id.to_vec(),
        loaded_ticks: entry.loaded_ticks,
        unloaded_ticks: (entry.unloaded_ticks != 0).then_some(entry.unloaded_ticks),
        sites: entry.sites,
        sites_unpatched: entry.sites_unpatched,
        device: entry.device,
        inode: entry.inode,
        trampolines: entry.trampolines,
    }
}

/// The modules of a table whose entries are followed by their paths. The paths together are no
/// longer than the payload: overlapping paths of a hostile file are dropped.
pub(crate) fn modules(array: &Array<'_>) -> Vec<Module> {
    modules_of(array.iter(), array.rest)
}

/// The modules of a table whose paths are in `paths`, together no longer than `paths`.
pub(crate) fn modules_of(entries: impl Iterator<Item = ModuleEntry>, paths: &[u8]) -> Vec<Module> {
    let mut room = paths.len();
    let bounded = |entry: ModuleEntry| {
        let mut module = module(&entry, paths);
        match room.checked_sub(module.path.len()) {
            Some(left) => room = left,
            None => module.path = Vec::new(),
        }
        module
    };
    entries.take(TABLE_MAX).map(bounded).collect()
}

/// A process from its record and the command line behind it; its parent is set by the caller.
/// `None` if it is truncated.
pub(crate) fn process(record: &ProcessRecord, bytes: &[u8]) -> Option<Process> {
    let command = bytes.get(record.record_size as usize..)?.get(..record.command_length as usize)?;
    Some(Process {
        pid: record.pid,
        parent_pid: record.parent_pid,
        parent: None,
        origin: match record.origin {
            origin::START => Origin::Start,
            origin::FORK => Origin::Fork,
            origin::EXEC => Origin::Exec,
            other => Origin::Other(other),
        },
        start_ticks: Some(record.start_ticks),
        end_ticks: Some(record.end_ticks),
        ending: match record.ending {
            image_end::ENDED => Ending::Ended,
            image_end::EXEC => Ending::Exec,
            image_end::RUNNING => Ending::Running,
            other => Ending::Other(other),
        },
        machine: Machine::of_record(record.machine),
        command: command.split_inclusive(|byte| *byte == 0).take(TABLE_MAX).map(unpadded).collect(),
        name: unpadded(&record.name),
        modules: 0..0,
        stamps: Stamps::default(),
    })
}

/// Which events have a time of their own.
pub(crate) fn stamps(record: &ect::StampsRecord) -> Stamps {
    Stamps { clock: EventClock::of(record.stamps), wanted: EventClock::of(record.wanted) }
}

/// A snapshot without its threads.
pub(crate) fn snapshot(record: &SnapshotRecord) -> Snapshot {
    Snapshot {
        number: record.snapshot,
        reason: match record.reason {
            reason::PROCESS_END => Reason::ProcessEnd,
            reason::REQUEST => Reason::Request,
            reason::TRIGGER => Reason::Trigger,
            reason::STREAM => Reason::Stream,
            other => Reason::Other(other),
        },
        process: 0,
        pid: record.pid,
        // A stream says it at its end.
        ticks: Some(record.ticks).filter(|ticks| record.reason != reason::STREAM || *ticks != 0),
        ring_size: record.ring_size,
        segment_size: record.segment_size,
        counters: record.counters,
        threads: Vec::new(),
    }
}

/// A thread from its record.
pub(crate) fn thread(record: &ThreadRecord) -> Thread {
    Thread {
        pid: record.pid,
        tid: record.tid,
        slot: record.slot,
        generation: record.generation,
        name: unpadded(&record.name),
        start_ticks: record.start_ticks,
        first_segment: record.first_segment,
        segments: record.segments,
        unwound: record.unwound,
        orphan_exits: record.orphan_exits,
        lost_busy: record.lost_busy,
        deep: record.deep,
        fiber: (record.fiber != 0).then_some(record.fiber),
        dropped: record.dropped,
        is_sampled: record.flags & thread_flags::SAMPLED != 0,
    }
}

/// The open calls of a stack. Those that have jumped away, and are there for triggers, aren't open.
#[must_use]
pub fn open_calls(entries: impl Iterator<Item = arena::OpenCall>) -> Vec<OpenCall> {
    let mut calls = Vec::new();
    for entry in entries {
        if is_jump(entry.word) {
            calls.pop();
        } else if let Some(call) = open_call(&entry) {
            calls.push(call);
        } else {
            break;
        }
    }
    calls
}

/// An open call; `None` where the entry isn't that of a call.
fn open_call(entry: &arena::OpenCall) -> Option<OpenCall> {
    use everycall_format::event::Word;
    let ticks = entry.ticks();
    match Word::decode(entry.word) {
        Word::Entry { offset, .. } | Word::Exit { offset, .. } => {
            Some(OpenCall { ticks, offset: Some(offset) })
        }
        Word::Record { .. } => Some(OpenCall { ticks, offset: None }),
        _ => None,
    }
}

/// How the process ended.
pub(crate) fn process_end(record: &ect::ProcessEnd) -> ProcessEnd {
    let ect::ProcessEnd { pid, how, code, core_dumped, ticks } = *record;
    ProcessEnd { pid, how, code, core_dumped: core_dumped != 0, ticks }
}
