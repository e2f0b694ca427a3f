//! The names of frames by id, and the module that they make.

use std::collections::BTreeMap;
use std::io::Cursor;

use everycall_format::Wire;
use everycall_format::arena::module_flags;
use everycall_format::ect::{CodeFileRecord, CodeName, CodeNamesRecord, FrameNamesRecord, code_file};
use everycall_format::frame::{
    CAPTURES, FIRST, FRAMES_SIZE, FrameName, IDS, RECORD_ALIGN, STEP, THREAD, TRAMPOLINES,
};
use everycall_jit::{Code, Table, jitdump, perf_map, ticks_of_monotonic};

use crate::model::{CodeRange, Frame, Frames, Module, Recording, Snapshot, Thread, ThreadName};
use crate::payload::{SHORT, TABLE_MAX};
use crate::{trampolines, values};

/// Most files with names of code in a trace. A snapshot has three at most.
const CODE_FILES_MAX: usize = 64;
/// The path of the module.
const PATH: &[u8] = b"frames by id";

/// Adds the names of the process with index `process`. `Err` says what is wrong with the payload.
pub(crate) fn read_names(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let record = FrameNamesRecord::read(bytes).ok_or(SHORT)?;
    let records = bytes.get(record.record_size as usize..).ok_or(SHORT)?;
    add(records.get(..record.length as usize).unwrap_or(records), record.lost, process, recording);
    let is_whole = records.len() as u64 >= record.length;
    if is_whole { Ok(()) } else { Err("it has fewer names than it says") }
}

/// Adds the names in these records; they replace earlier ones of the process.
pub(crate) fn add(records: &[u8], lost: u64, process: usize, recording: &mut Recording) {
    trampolines::add(complete(records), recording);
    values::add(complete(records), recording);
    let mut all = complete(records).peekable();
    if all.peek().is_some() && all.all(|(record, ..)| matches!(record.id, TRAMPOLINES | CAPTURES)) {
        return;
    }
    let Some(frames) = of_process(process, recording) else { return };
    frames.lost = lost;
    frames.names.drain(..frames.names.partition_point(|frame| frame.id < IDS));
    frames.names.splice(..0, names(records));
    frames.threads = thread_names(records);
}

/// Gives the threads of each process the names that the program gave them. A thread's name may be
/// told before its first event, but not after its kernel id belongs to another one.
pub(crate) fn name_threads(recording: &mut Recording) {
    for frames in recording.frames.iter().filter(|frames| !frames.threads.is_empty()) {
        let of_process = |snapshot: &&mut Snapshot| snapshot.process == frames.process;
        for snapshot in recording.snapshots.iter_mut().filter(of_process) {
            name_threads_of(&mut snapshot.threads, &frames.threads);
        }
    }
}

fn name_threads_of(threads: &mut [Thread], told: &[ThreadName]) {
    let is_own = |thread: &&mut Thread| thread.fiber.is_none() && !thread.is_sampled;
    let mut own: Vec<&mut Thread> = threads.iter_mut().filter(is_own).collect();
    own.sort_by_key(|thread| (thread.tid, thread.start_ticks));
    let mut told: Vec<&ThreadName> = told.iter().collect();
    // The sort is stable: names that were told at one time stay in their order.
    told.sort_by_key(|name| (name.tid, name.ticks));
    let starts: Vec<(u32, u64)> = own.iter().map(|thread| (thread.tid, thread.start_ticks)).collect();
    for (at, thread) in own.into_iter().enumerate() {
        let same_id = |at: usize| starts.get(at).filter(|(tid, _)| *tid == thread.tid);
        let from = at.checked_sub(1).and_then(same_id).map_or(0, |(_, start)| *start);
        let to = same_id(at + 1).map_or(u64::MAX, |(_, start)| *start);
        let behind = told.partition_point(|name| (name.tid, name.ticks) < (thread.tid, to));
        let last = behind.checked_sub(1).and_then(|last| told.get(last));
        if let Some(name) = last.filter(|name| name.tid == thread.tid && name.ticks >= from) {
            thread.name.clone_from(&name.name);
        }
    }
}

/// The names of threads in these records, in their order.
fn thread_names(records: &[u8]) -> Vec<ThreadName> {
    let name = |(record, name, file): (FrameName, &[u8], &[u8])| {
        let ticks = u64::from_le_bytes(file.try_into().ok()?);
        (record.id == THREAD).then(|| ThreadName { tid: record.line, ticks, name: name.to_vec() })
    };
    complete(records).filter_map(name).collect()
}

fn of_process(process: usize, recording: &mut Recording) -> Option<&mut Frames> {
    let all = &mut recording.frames;
    let index = match all.iter().position(|frames| frames.process == process) {
        Some(known) => known,
        None if all.len() < TABLE_MAX => {
            all.push(Frames { process, ..Frames::default() });
            all.len() - 1
        }
        None => return None,
    };
    all.get_mut(index)
}

/// Adds the names of code that just-in-time compilers made in the process with index `process`;
/// they replace earlier ones. `Err` says what is wrong with the payload.
pub(crate) fn read_codes(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let record = CodeNamesRecord::read(bytes).ok_or(SHORT)?;
    let records = bytes.get(record.record_size as usize..).ok_or(SHORT)?;
    let mut rest = records.get(..record.length as usize).unwrap_or(records);
    let mut codes = Vec::new();
    while let Some(code) = CodeName::read(rest) {
        let size = code.size as usize;
        if size < CodeName::SIZE || !u64::from(code.size).is_multiple_of(RECORD_ALIGN) {
            break;
        }
        let Some((whole, behind)) = rest.split_at_checked(size) else { break };
        rest = behind;
        let texts = &whole[CodeName::SIZE..];
        let Some((name, texts)) = texts.split_at_checked(code.name_length as usize) else { continue };
        let Some(file) = texts.get(..code.file_length as usize) else { continue };
        let CodeName { start, length: size, loaded, replaced, line, .. } = code;
        codes.push(Code { start, size, loaded, replaced, name: name.to_vec(), file: file.to_vec(), line });
    }
    let is_whole = rest.is_empty() && records.len() as u64 >= record.length;
    set_codes(codes, record.lost, process, recording);
    if is_whole { Ok(()) } else { Err("it has fewer names than it says") }
}

/// The names of a process's code are these.
fn set_codes(codes: Vec<Code>, lost: u64, process: usize, recording: &mut Recording) {
    let Some(frames) = of_process(process, recording) else { return };
    frames.codes_lost = lost;
    frames.names.truncate(frames.names.partition_point(|frame| frame.id < IDS));
    frames.codes.clear();
    for (code, id) in codes.into_iter().zip(IDS..) {
        let Code { start, size, loaded, replaced, name, file, line } = code;
        frames.codes.push(CodeRange { start, size, loaded, replaced, id });
        frames.names.push(Frame { id, name, file, line: (line != 0).then_some(line) });
    }
    frames.codes.sort_by_key(|code| (code.start, code.loaded));
}

/// Files with names of code that are in a trace as they were, with the indices of their processes.
#[derive(Default)]
pub(crate) struct CodeFiles(Vec<(usize, u32, Vec<u8>)>);

impl CodeFiles {
    /// Adds the file in a chunk. `Err` says what is wrong with the payload.
    pub fn add(&mut self, bytes: &[u8], process: usize) -> Result<(), &'static str> {
        let record = CodeFileRecord::read(bytes).ok_or(SHORT)?;
        let file = bytes.get(record.record_size as usize..).ok_or(SHORT)?;
        if self.0.len() < CODE_FILES_MAX {
            let part = file.get(..record.length as usize).unwrap_or(file);
            self.0.push((process, record.kind, part.to_vec()));
        }
        if file.len() as u64 >= record.length { Ok(()) } else { Err("it has less of its file than it says") }
    }

    /// Adds the names in all of them. Those of later files of a process replace earlier ones.
    pub fn finish(self, recording: &mut Recording) {
        let mut tables: BTreeMap<usize, Table> = BTreeMap::new();
        let ticks = |clock, time| match clock {
            jitdump::Clock::Ticks => time,
            jitdump::Clock::Monotonic => ticks_of_monotonic(&recording.clock, time),
        };
        for (process, kind, file) in self.0 {
            let table = tables.entry(process).or_default();
            let is_read = match kind {
                code_file::PERF_MAP => perf_map::read(&*file, table).is_ok(),
                code_file::JITDUMP => jitdump::read(Cursor::new(file), table, &ticks).is_ok(),
                _ => false,
            };
            table.lost += u64::from(!is_read);
        }
        for (process, table) in tables {
            let (codes, lost) = table.finish();
            set_codes(codes, lost, process, recording);
        }
    }
}

/// Ids that the program didn't name have the names of code at the addresses with these numbers.
pub(crate) fn name_ids(frames: &mut Frames) {
    let told = frames.names.partition_point(|frame| frame.id < IDS);
    let (told, of_codes) = frames.names.split_at(told);
    let mut new = Vec::new();
    let mut room = FRAMES_SIZE as usize;
    for code in frames.codes.iter().take_while(|code| code.start < u64::from(IDS)) {
        let Some(named) = of_codes.get((code.id - IDS) as usize) else { continue };
        let end = code.start.saturating_add(code.size).min(u64::from(IDS));
        let first = (code.start as u32).max(new.last().map_or(0, |frame: &Frame| frame.id + 1));
        let is_told = |id: &u32| told.binary_search_by_key(id, |frame| frame.id).is_ok();
        let size = FrameName::SIZE + named.name.len() + named.file.len();
        let ids = (first..end as u32).filter(|id| !is_told(id)).take(room / size);
        let before = new.len();
        new.extend(ids.map(|id| Frame { id, ..named.clone() }));
        room -= (new.len() - before) * size;
    }
    if !new.is_empty() {
        frames.names.extend(new);
        frames.names.sort_by_key(|frame| frame.id);
    }
}

/// The complete records, with the name and the path of each.
fn complete(mut records: &[u8]) -> impl Iterator<Item = (FrameName, &[u8], &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let record = FrameName::read(records)?;
            let size = record.size as usize;
            // A record without a size ends the names: its thread was killed.
            if size < FrameName::SIZE || !u64::from(record.size).is_multiple_of(RECORD_ALIGN) {
                return None;
            }
            let (whole, rest) = records.split_at_checked(size)?;
            records = rest;
            let texts = &whole[FrameName::SIZE..];
            let Some((name, rest)) = texts.split_at_checked(record.name_length as usize) else { continue };
            let Some(file) = rest.get(..record.file_length as usize) else { continue };
            if record.is_complete != 0 {
                return Some((record, name, file));
            }
        }
    })
}

/// Those of the last record of each id, by id.
fn names(records: &[u8]) -> Vec<Frame> {
    let named = complete(records).filter(|(record, ..)| record.id < IDS);
    let mut names: Vec<Frame> = named
        .map(|(record, name, file)| {
            let line = (record.line != 0).then_some(record.line);
            Frame { id: record.id, name: name.to_vec(), file: file.to_vec(), line }
        })
        .collect();
    // The sort is stable, so the last one of each id is the last of its equals.
    names.sort_by_key(|frame| frame.id);
    names.reverse();
    names.dedup_by_key(|frame| frame.id);
    names.reverse();
    names
}

/// The module of a process's frames by id: the image address of an id is `id * STEP`.
pub(crate) fn module() -> Module {
    Module {
        path: PATH.to_vec(),
        flags: module_flags::FRAMES,
        end: u64::from(IDS) * u64::from(STEP),
        code_start: FIRST,
        ..Module::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u32, name: &str, file: &str, is_complete: u32) -> Vec<u8> {
        let size = (FrameName::SIZE + name.len() + file.len()).next_multiple_of(8);
        let record = FrameName {
            size: size as u32,
            id,
            line: id,
            name_length: name.len() as u32,
            file_length: file.len() as u32,
            is_complete,
        };
        let mut bytes = vec![0; size];
        record.write(&mut bytes);
        bytes[FrameName::SIZE..][..name.len()].copy_from_slice(name.as_bytes());
        bytes[FrameName::SIZE + name.len()..][..file.len()].copy_from_slice(file.as_bytes());
        bytes
    }

    fn read(records: &[u8]) -> Vec<(u32, String)> {
        let text = |frame: Frame| (frame.id, String::from_utf8(frame.name).unwrap());
        names(records).into_iter().map(text).collect()
    }

    #[test]
    fn the_last_name_counts_and_what_is_damaged_is_left_out() {
        let all = [
            record(7, "old", "a.lua", 1),
            record(3, "three", "", 1),
            record(7, "new", "a.lua", 1),
            record(9, "half", "", 0),
            record(IDS, "too high", "", 1),
            record(8, "eight", "", 1),
        ]
        .concat();
        let expected = [(3, "three".to_owned()), (7, "new".to_owned()), (8, "eight".to_owned())];
        assert_eq!(read(&all), expected);
        for end in 0..all.len() {
            assert!(read(&all[..end]).len() <= 3);
        }
        let mut lie = all.clone();
        lie[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&lie), []);
        let mut longer = record(1, "one", "", 1);
        longer[12..16].copy_from_slice(&1000_u32.to_le_bytes());
        assert_eq!(read(&[longer, record(2, "two", "", 1)].concat()), [(2, "two".to_owned())]);
    }

    fn thread(tid: u32, ticks: u64, name: &str) -> Vec<u8> {
        let file = ticks.to_le_bytes();
        let size = (FrameName::SIZE + name.len() + file.len()).next_multiple_of(8);
        let (name_length, file_length) = (name.len() as u32, file.len() as u32);
        let record =
            FrameName { size: size as u32, id: THREAD, line: tid, name_length, file_length, is_complete: 1 };
        let mut bytes = vec![0; size];
        record.write(&mut bytes);
        bytes[FrameName::SIZE..][..name.len()].copy_from_slice(name.as_bytes());
        bytes[FrameName::SIZE + name.len()..][..file.len()].copy_from_slice(&file);
        bytes
    }

    #[test]
    fn threads_have_the_last_name_that_the_program_gave_them() {
        let of =
            |tid, start_ticks| Thread { tid, start_ticks, name: b"python3".to_vec(), ..Thread::default() };
        // The kernel has given an id twice; a fiber's is that of the thread which ran it last.
        let fiber = Thread { fiber: Some(1), ..of(5, 150) };
        let mut threads = [of(4, 10), of(5, 200), of(5, 100), of(6, 300), fiber];
        let told = [
            thread(5, 90, "first"),
            record(4, "a function", "", 1),
            thread(5, 120, "first, renamed"),
            thread(5, 210, "second"),
            thread(6, 290, "a name of more than fifteen bytes"),
            thread(7, 1, "records nothing"),
        ];
        let mut recording = Recording::default();
        add(&told.concat(), 0, 0, &mut recording);
        assert_eq!((recording.frames[0].names.len(), recording.frames[0].threads.len()), (1, 5));
        name_threads_of(&mut threads, &recording.frames[0].threads);
        let expected =
            ["python3", "second", "first, renamed", "a name of more than fifteen bytes", "python3"];
        assert_eq!(threads.each_ref().map(|thread| thread.name_lossy().into_owned()), expected);
    }

    fn code(start: u64, length: u64, loaded: u64, name: &str) -> Vec<u8> {
        let size = (CodeName::SIZE + name.len()).next_multiple_of(8);
        let code = CodeName {
            size: size as u32,
            start,
            length,
            loaded,
            replaced: u64::MAX,
            name_length: name.len() as u32,
            ..CodeName::default()
        };
        let mut bytes = vec![0; size];
        code.write(&mut bytes);
        bytes[CodeName::SIZE..][..name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    fn codes(records: &[u8]) -> Vec<u8> {
        let head = CodeNamesRecord {
            record_size: CodeNamesRecord::SIZE as u32,
            length: records.len() as u64,
            lost: 5,
            ..Default::default()
        };
        let mut bytes = head.to_bytes().to_vec();
        bytes.extend(records);
        bytes
    }

    #[test]
    fn code_names_the_ids_that_nobody_named() {
        let mut recording = Recording::default();
        let all = [code(6, 3, 0, "six to eight"), code(0x7f00_0000, 16, 9, "fib"), code(5, 2, 0, "five")];
        read_codes(&codes(&all.concat()), 0, &mut recording).unwrap();
        add(&[record(7, "seven", "", 1), record(7, "told", "", 1)].concat(), 0, 0, &mut recording);
        read_codes(&codes(&all.concat()), 0, &mut recording).unwrap();
        let frames = &mut recording.frames[0];
        name_ids(frames);
        let named: Vec<_> = frames.names.iter().map(|frame| (frame.id, &*frame.name)).collect();
        let expected = [
            (5, &b"five"[..]),
            (6, b"five"),
            (7, b"told"),
            (8, b"six to eight"),
            (IDS, b"six to eight"),
            (IDS + 1, b"fib"),
            (IDS + 2, b"five"),
        ];
        assert_eq!(named, expected);
        let fib = CodeRange { start: 0x7f00_0000, size: 16, loaded: 9, replaced: u64::MAX, id: IDS + 1 };
        assert_eq!((frames.codes[2], frames.codes_lost), (fib, 5));
    }

    #[test]
    fn code_of_many_ids_takes_bounded_memory() {
        let mut recording = Recording::default();
        let name = "x".repeat(1000);
        read_codes(&codes(&code(0, u64::MAX, 0, &name)), 0, &mut recording).unwrap();
        name_ids(&mut recording.frames[0]);
        assert_eq!(recording.frames[0].names.len(), 1 + (16 << 20) / 1024);
    }

    #[test]
    fn files_are_read_in_their_order() {
        let chunk = |kind, file: &[u8]| {
            let record_size = CodeFileRecord::SIZE as u32;
            let record = CodeFileRecord { record_size, kind, length: file.len() as u64 };
            let mut bytes = record.to_bytes().to_vec();
            bytes.extend(file);
            bytes
        };
        let parents = chunk(code_file::PERF_MAP, b"1000 10 parents\n2000 10 theirs\n");
        let own = chunk(code_file::PERF_MAP, b"2000 10 own\ncut");
        let mut files = CodeFiles::default();
        files.add(&parents, 0).unwrap();
        files.add(&own, 0).unwrap();
        files.add(&chunk(code_file::JITDUMP, b"none"), 0).unwrap();
        for end in 0..own.len() {
            assert!(CodeFiles::default().add(&own[..end], 0).is_err(), "{end}");
        }
        let mut recording = Recording::default();
        files.finish(&mut recording);
        let frames = &recording.frames[0];
        let named: Vec<_> = frames.names.iter().map(|frame| &*frame.name).collect();
        assert_eq!((named, frames.codes_lost), (vec![&b"parents"[..], b"own"], 2));
    }

    #[test]
    fn code_that_is_cut_says_so() {
        let all = codes(&[code(1, 1, 0, "one"), code(2, 1, 0, "two")].concat());
        for end in 0..all.len() {
            assert!(read_codes(&all[..end], 0, &mut Recording::default()).is_err(), "{end}");
        }
        for at in 0..all.len() {
            let mut lie = all.clone();
            lie[at] ^= 0xff;
            let _ = read_codes(&lie, 0, &mut Recording::default());
        }
    }

    #[test]
    fn a_chunk_that_is_cut_says_so() {
        let records = record(7, "seven", "file", 1);
        let head = FrameNamesRecord {
            record_size: FrameNamesRecord::SIZE as u32,
            length: records.len() as u64,
            lost: 5,
            ..Default::default()
        };
        let mut bytes = head.to_bytes().to_vec();
        bytes.extend(&records);
        for end in 0..bytes.len() {
            assert!(read_names(&bytes[..end], 0, &mut Recording::default()).is_err(), "{end}");
        }
        let mut recording = Recording::default();
        read_names(&bytes, 2, &mut recording).unwrap();
        let frames = &recording.frames[0];
        assert_eq!((frames.process, frames.lost, frames.names.len()), (2, 5, 1));
        assert_eq!((frames.names[0].file.as_slice(), frames.names[0].line), (&b"file"[..], Some(7)));
    }
}
