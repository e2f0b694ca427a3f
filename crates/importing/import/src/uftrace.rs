//! uftrace's folder (versions 0.9 and up): `info`, `task.txt`, for each session `sid-*.map`, for
//! each file `*.sym`, for each thread `TID.dat`.
//!
//! A record has 16 bytes, and payload behind it if `more` is set:
//!
//! ```text
//! 63                                                             0
//! +----------------------------------------------------------------+
//! | nanoseconds                                                    |
//! +------------------------------------------------+---------------+
//! | address                                        | 15.. depth    |  1..0 type, 2 more, 5..3 always 5
//! +------------------------------------------------+---------------+
//! ```
//!
//! The payload's size isn't in the record but in specifications of arguments. So the record after
//! it is found by what it must be: 5 in its place, a time that isn't earlier, a depth that is
//! possible.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use everycall_format::arena::ClockReading;

use crate::binary;
use crate::error::ImportError;
use crate::folder::Folder;
use crate::image::{Symbol, image};
use crate::modules::{Mapped, call};
use crate::output::{ModuleFacts, Output, ProcessFacts, ProcessId, ThreadId};

/// Largest `info`, `task.txt` or map.
const TEXT_MAX: u64 = 64 << 20;
/// Largest file of symbols.
const SYMBOLS_MAX: u64 = 512 << 20;
/// No thread is silent for longer between a record with a payload and the next one.
const SILENCE_NS: u64 = 3_600_000_000_000;
/// Bytes of a payload, at most: arguments are cut before.
const PAYLOAD_MAX: usize = 64 << 10;
/// The deepest call whose depth a record can hold.
const DEPTH_MAX: u16 = 1023;

/// Reads the folder.
pub(crate) fn read<W: Write>(folder: &dyn Folder, out: &mut Output<W>) -> Result<(), ImportError> {
    let names = folder.names().map_err(|error| ImportError::Unreadable(None, error))?;
    let info = Info::read(folder)?;
    let mut tasks = Tasks::read(folder)?;
    let mut notes = Notes::default();
    let data: Vec<(u32, &String)> =
        names.iter().filter_map(|name| Some((name.strip_suffix(".dat")?.parse().ok()?, name))).collect();
    if data.is_empty() {
        return Err(ImportError::Version(
            "has no records: no file TID.dat is in it, so nothing was recorded".to_owned(),
        ));
    }
    let files = Files { folder, names: &names, info: &info };
    let mut sessions = Sessions { files, known: Vec::new(), index: BTreeMap::new() };
    for (tid, name) in data {
        let input = folder.open(name).map_err(|error| ImportError::Unreadable(Some(name.clone()), error))?;
        let mut thread = Reader::new(tid, input, name);
        thread.read(&mut tasks, &mut sessions, out, &mut notes)?;
    }
    let other: Vec<&str> = [("kernel-cpu", "kernel functions"), ("perf-cpu", "scheduling events")]
        .into_iter()
        .filter(|(prefix, _)| {
            let is_it = |name: &&String| name.starts_with(prefix) && name.ends_with(".dat");
            names.iter().filter(is_it).any(|name| folder.bytes(name, 1).is_ok_and(|bytes| !bytes.is_empty()))
        })
        .map(|(_, what)| what)
        .collect();
    if !other.is_empty() {
        out.facts.notes.push(format!("uftrace's {} were left out", other.join(" and ")));
    }
    notes.tell(&mut out.facts.notes);
    out.facts.command = info.command;
    out.facts.clock = "nanoseconds of CLOCK_MONOTONIC, read by uftrace".to_owned();
    if let Some((first, last)) = out.reach() {
        out.facts.readings = [first, last.max(first + 1)].into_iter().map(reading).collect();
    }
    Ok(())
}

/// uftrace's nanoseconds are ticks here.
fn reading(ns: u64) -> ClockReading {
    ClockReading { ticks: ns, monotonic_raw_ns: ns, monotonic_ns: ns, ..ClockReading::default() }
}

/// Data that was left out or is invalid, in all threads.
#[derive(Default)]
struct Notes {
    arguments: u64,
    events: u64,
    cut: u64,
    damaged: Vec<String>,
    no_process: u64,
}

impl Notes {
    fn tell(&self, notes: &mut Vec<String>) {
        if self.arguments > 0 {
            notes
                .push(format!("arguments and results of {} entries and exits were left out", self.arguments));
        }
        if self.events > 0 {
            notes.push(format!("{} events of uftrace that aren't calls were left out", self.events));
        }
        if self.cut > 0 {
            notes.push(format!("the last record of {} threads is incomplete", self.cut));
        }
        if self.no_process > 0 {
            notes.push(format!("task.txt doesn't name the process of {} threads", self.no_process));
        }
        notes.extend(self.damaged.iter().cloned());
    }
}

/// The file `info`.
#[derive(Default)]
struct Info {
    exe: Vec<u8>,
    build_id: Vec<u8>,
    command: Vec<Vec<u8>>,
}

impl Info {
    fn read(folder: &dyn Folder) -> Result<Info, ImportError> {
        let name = || Some("info".to_owned());
        let bytes = match folder.bytes("info", TEXT_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Info::default()),
            Err(error) => return Err(ImportError::Unreadable(name(), error)),
        };
        if bytes.len() < 16 || !bytes.starts_with(b"Ftrace!\0") {
            let reason = "uftrace's mark is expected here";
            return Err(ImportError::Damaged { file: name(), offset: 0, reason });
        }
        if bytes.get(14) == Some(&2) || bytes.get(15) == Some(&1) {
            return Err(ImportError::Version(
                "is of a 32-bit or big-endian machine; only those of 64-bit little-endian ones are read"
                    .to_owned(),
            ));
        }
        let size = usize::from(u16::from_le_bytes([
            bytes.get(12).copied().unwrap_or(40),
            bytes.get(13).copied().unwrap_or(0),
        ]));
        let mut info = Info::default();
        for line in bytes.get(size..).unwrap_or_default().split(|byte| *byte == b'\n') {
            if let Some(exe) = line.strip_prefix(b"exename:") {
                info.exe = exe.to_vec();
            } else if let Some(id) = line.strip_prefix(b"build_id:") {
                info.build_id = binary::hex(id);
            } else if let Some(command) = line.strip_prefix(b"cmdline:") {
                let words = command.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
                info.command = words.map(<[u8]>::to_vec).collect();
            }
        }
        Ok(info)
    }
}

/// A program's run, from its start or exec on.
#[derive(Clone, Debug)]
struct Session {
    from: u64,
    sid: String,
    exe: Vec<u8>,
    process: Option<ProcessId>,
}

/// The file `task.txt`.
#[derive(Default)]
struct Tasks {
    /// By process id.
    sessions: BTreeMap<u32, Vec<Session>>,
    /// Process of each thread.
    processes: BTreeMap<u32, u32>,
    /// Parent of each forked process, and when it was forked.
    forks: BTreeMap<u32, (u32, u64)>,
    /// By session: libraries that were loaded later, with their bases.
    loaded: BTreeMap<String, Vec<(u64, u64, Vec<u8>)>>,
}

impl Tasks {
    fn read(folder: &dyn Folder) -> Result<Tasks, ImportError> {
        let bytes = folder
            .bytes("task.txt", TEXT_MAX)
            .map_err(|error| ImportError::Unreadable(Some("task.txt".to_owned()), error))?;
        let mut tasks = Tasks::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let Some(space) = memchr::memchr(b' ', line) else { continue };
            let (kind, fields) = line.split_at(space);
            let field = |name: &str| field(fields, name);
            let number = |name: &str| str::from_utf8(field(name)?).ok()?.parse::<u32>().ok();
            let time = field("timestamp").and_then(seconds).unwrap_or(0);
            match kind {
                b"SESS" => {
                    let (Some(pid), Some(sid)) = (number("pid"), field("sid")) else { continue };
                    let session = Session {
                        from: time,
                        sid: String::from_utf8_lossy(sid).into_owned(),
                        exe: field("exename").unwrap_or_default().to_vec(),
                        process: None,
                    };
                    tasks.sessions.entry(pid).or_default().push(session);
                }
                b"TASK" => {
                    let (Some(tid), Some(pid)) = (number("tid"), number("pid")) else { continue };
                    tasks.processes.insert(tid, pid);
                }
                b"FORK" => {
                    let (Some(pid), Some(parent)) = (number("pid"), number("ppid")) else { continue };
                    tasks.processes.insert(pid, pid);
                    tasks.forks.insert(pid, (parent, time));
                }
                b"DLOP" => {
                    let (Some(sid), Some(base), Some(library)) =
                        (field("sid"), field("base"), field("libname"))
                    else {
                        continue;
                    };
                    let sid = String::from_utf8_lossy(sid).into_owned();
                    let base = binary::hex_number(base);
                    tasks.loaded.entry(sid).or_default().push((time, base, library.to_vec()));
                }
                _ => {}
            }
        }
        tasks.sessions.values_mut().for_each(|sessions| sessions.sort_by_key(|session| session.from));
        Ok(tasks)
    }

    /// The process id of a thread, and the session that its process was in at a time: its own, or
    /// that of the process it was forked from.
    fn at(&mut self, tid: u32, time: u64) -> (u32, Option<(u32, usize)>, u64) {
        let pid = self.processes.get(&tid).copied().unwrap_or(tid);
        let (mut owner, mut at) = (pid, time);
        // Generations of forks; a circle in a damaged file ends.
        for _ in 0..64 {
            if let Some(sessions) = self.sessions.get(&owner) {
                let behind = sessions.partition_point(|session| session.from <= at);
                let until = sessions.get(behind).map_or(u64::MAX, |session| session.from);
                if behind > 0 || owner == pid && !self.forks.contains_key(&owner) {
                    let until = if owner == pid { until } else { self.first_of(pid) };
                    return (pid, Some((owner, behind.saturating_sub(1))), until);
                }
            }
            let Some((parent, forked)) = self.forks.get(&owner) else { break };
            (owner, at) = (*parent, (*forked).min(at));
        }
        (pid, None, u64::MAX)
    }

    /// When a process began a session of its own.
    fn first_of(&self, pid: u32) -> u64 {
        self.sessions.get(&pid).and_then(|sessions| sessions.first()).map_or(u64::MAX, |session| session.from)
    }
}

/// The value of a field `name=value`, or `name="value"`.
fn field<'l>(line: &'l [u8], name: &str) -> Option<&'l [u8]> {
    let pattern = [b" ", name.as_bytes(), b"="].concat();
    let at = memchr::memmem::find(line, &pattern)? + pattern.len();
    let rest = line.get(at..)?;
    match rest.strip_prefix(b"\"") {
        Some(quoted) => quoted.get(..memchr::memchr(b'"', quoted).unwrap_or(quoted.len())),
        None => rest.get(..memchr::memchr(b' ', rest).unwrap_or(rest.len())),
    }
}

/// Nanoseconds of `seconds.fraction`.
fn seconds(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(digits.parse().ok()?)
}

/// Address, kind and name of a symbol.
type NamedAddress = (u64, u8, Vec<u8>);

/// The folder's files with maps and symbols.
struct Files<'f> {
    folder: &'f dyn Folder,
    names: &'f [String],
    info: &'f Info,
}

/// Processes of the output, each with its mapped files.
struct Sessions<'f> {
    files: Files<'f>,
    known: Vec<(ProcessId, Mapped)>,
    /// Where they are, by process id, and the session's process id and number.
    index: BTreeMap<(u32, Option<(u32, usize)>), usize>,
}

impl Sessions<'_> {
    /// The process in which a thread was at a time, and until when.
    fn process<W: Write>(
        &mut self,
        tid: u32,
        time: u64,
        tasks: &mut Tasks,
        out: &mut Output<W>,
    ) -> io::Result<(usize, u64)> {
        let (pid, session, until) = tasks.at(tid, time);
        let key = (pid, session);
        if let Some(index) = self.index.get(&key) {
            return Ok((*index, until));
        }
        let found = session
            .and_then(|(owner, number)| Some((owner, tasks.sessions.get(&owner)?.get(number)?.clone())));
        let exe = found.as_ref().map_or(&self.files.info.exe, |(_, session)| &session.exe);
        let own = found.as_ref().is_some_and(|(owner, _)| *owner == pid);
        let fork = tasks.forks.get(&pid).copied();
        let parent = match (&found, session) {
            (Some(_), Some((_, number))) if own && number > 0 => self.known_of(pid),
            _ => fork.and_then(|(parent, _)| self.known_of(parent)),
        };
        let process = out.process(ProcessFacts {
            pid,
            parent_pid: fork.map_or(0, |(parent, _)| parent),
            parent,
            is_fork: !own,
            name: exe.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec(),
            command: vec![exe.clone()],
        })?;
        if own
            && let Some((owner, number)) = session
            && let Some(known) = tasks.sessions.get_mut(&owner).and_then(|sessions| sessions.get_mut(number))
        {
            known.process = Some(process);
        }
        let sid = found.map(|(_, session)| session.sid).unwrap_or_default();
        let mut maps = self.files.maps(&sid);
        for (time, base, library) in tasks.loaded.get(&sid).map(Vec::as_slice).unwrap_or_default() {
            let (symbols, build_id) = self.files.symbols(library, &[]);
            let length = symbols.last().map_or(0x1000, |(address, ..)| address + 0x1000);
            maps.push(ModuleFacts {
                path: library.clone(),
                build_id,
                base: *base,
                start: *base,
                end: base.saturating_add(length),
                loaded: *time,
                image: None,
            });
        }
        self.known.push((process, Mapped::new(maps)));
        self.index.insert(key, self.known.len() - 1);
        Ok((self.known.len() - 1, until))
    }

    /// The last process of the output with a process id.
    fn known_of(&self, pid: u32) -> Option<ProcessId> {
        let same = self.index.iter().filter(|((known, _), _)| *known == pid);
        same.filter_map(|(_, index)| self.known.get(*index)).map(|(process, _)| *process).next_back()
    }
}

impl Files<'_> {
    /// The mapped files of a session.
    fn maps(&self, sid: &str) -> Vec<ModuleFacts> {
        let bytes = self.folder.bytes(&format!("sid-{sid}.map"), TEXT_MAX).unwrap_or_default();
        let mut maps: Vec<ModuleFacts> = Vec::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let Some(map) = binary::map_line(line) else { continue };
            if !map.is_executable || !map.path.starts_with(b"/") {
                continue;
            }
            let (path, build_id) = match memchr::memmem::find(map.path, b" build-id:") {
                Some(at) => {
                    let (path, id) = map.path.split_at(at);
                    (path, binary::hex(id.get(10..).unwrap_or_default()))
                }
                None if map.path == self.info.exe => (map.path, self.info.build_id.clone()),
                None => (map.path, Vec::new()),
            };
            maps.push(ModuleFacts {
                path: path.to_vec(),
                build_id,
                base: map.start.wrapping_sub(map.offset),
                start: map.start,
                end: map.end,
                ..ModuleFacts::default()
            });
        }
        maps
    }

    /// The symbols of a file, by address, and its build id.
    fn symbols(&self, path: &[u8], build_id: &[u8]) -> (Vec<NamedAddress>, Vec<u8>) {
        let base = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let base = String::from_utf8_lossy(base);
        // Files of the same name have their build ids in the names of the others.
        let prefix = format!("{base}-");
        let fits = |name: &&String| {
            **name == format!("{base}.sym") || name.starts_with(&prefix) && name.ends_with(".sym")
        };
        for name in self.names.iter().filter(fits) {
            let bytes = self.folder.bytes(name, SYMBOLS_MAX).unwrap_or_default();
            let mut symbols = Vec::new();
            let (mut its_path, mut its_id): (&[u8], Vec<u8>) = (path, Vec::new());
            for line in bytes.split(|byte| *byte == b'\n') {
                if let Some(comment) = line.strip_prefix(b"# ") {
                    its_path = comment.strip_prefix(b"path name: ").unwrap_or(its_path);
                    its_id = comment.strip_prefix(b"build-id: ").map_or(its_id, binary::hex);
                    continue;
                }
                let mut fields = line.splitn(3, |byte| *byte == b' ');
                let (Some(address), Some(kind), Some(text)) = (fields.next(), fields.next(), fields.next())
                else {
                    continue;
                };
                symbols.push((
                    binary::hex_number(address),
                    kind.first().copied().unwrap_or(b'?'),
                    text.to_vec(),
                ));
            }
            let is_other = !build_id.is_empty() && !its_id.is_empty() && its_id != build_id;
            if its_path == path && !is_other {
                symbols.sort_by_key(|(address, ..)| *address);
                return (symbols, its_id);
            }
        }
        (Vec::new(), Vec::new())
    }

    /// Names a file's functions: by the file, if it is at its path, otherwise by uftrace's symbols.
    fn prepare(&self, facts: &mut ModuleFacts) {
        let (symbols, build_id) = self.symbols(&facts.path, &facts.build_id);
        if facts.build_id.is_empty() {
            facts.build_id = build_id;
        }
        let file = binary::facts_of(Path::new(std::ffi::OsStr::new(&*String::from_utf8_lossy(&facts.path))));
        let is_absolute = match &file {
            Some(file) if !facts.build_id.is_empty() && file.build_id == facts.build_id => {
                if file.is_fixed {
                    facts.base = 0;
                }
                return;
            }
            _ => symbols.first().is_some_and(|(address, ..)| *address >= facts.start),
        };
        if is_absolute {
            facts.base = 0;
        }
        if symbols.is_empty() {
            return;
        }
        let ends = symbols.iter().skip(1).map(|(address, ..)| *address).chain([u64::MAX]);
        let table: Vec<Symbol<'_>> = symbols
            .iter()
            .zip(ends)
            // The mark of the end isn't a function.
            .filter(|((_, kind, name), _)| *kind != b'?' && name != b"__sym_end")
            .map(|((address, _, name), end)| Symbol {
                address: *address,
                size: end.saturating_sub(*address).min(1 << 20),
                name,
            })
            .collect();
        let (bytes, build_id) = image(&table, &facts.build_id);
        facts.build_id = build_id;
        facts.image = Some(bytes);
    }
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    time: u64,
    kind: u8,
    more: bool,
    depth: u16,
    address: u64,
}

const ENTRY: u8 = 0;
const EXIT: u8 = 1;
const LOST: u8 = 2;

impl Record {
    fn of(bytes: [u8; 16]) -> Option<Record> {
        let [time, word] = [0, 8].map(|at| {
            let mut part = [0; 8];
            part.iter_mut().zip(bytes.iter().skip(at)).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(part)
        });
        (word >> 3 & 7 == 5).then_some(Record {
            time,
            kind: (word & 3) as u8,
            more: word & 4 != 0,
            depth: (word >> 6 & u64::from(DEPTH_MAX)) as u16,
            address: word >> 16,
        })
    }

    /// Whether this record can come after `before`.
    fn can_follow(self, before: Record) -> bool {
        let in_time = self.time >= before.time && self.time - before.time < SILENCE_NS;
        let depth = match (before.kind, self.kind) {
            (ENTRY, ENTRY) => self.depth <= before.depth + 1,
            (ENTRY | EXIT, EXIT) | (EXIT, ENTRY) => self.depth <= before.depth,
            _ => true,
        };
        in_time && depth && (self.address > 0 || self.kind > EXIT)
    }
}

/// Reads the records of a thread.
struct Reader<'f> {
    tid: u32,
    input: Box<dyn Read + 'f>,
    name: &'f str,
    offset: u64,
    /// Depths of the calls that are open.
    open: Vec<u16>,
}

impl<'f> Reader<'f> {
    fn new(tid: u32, input: Box<dyn Read + 'f>, name: &'f str) -> Reader<'f> {
        Reader { tid, input, name, offset: 0, open: Vec::new() }
    }

    /// As many bytes as there are, up to the size of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, ImportError> {
        let mut count = 0;
        while count < bytes.len() {
            match self.input.read(bytes.get_mut(count..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ImportError::Unreadable(Some(self.name.to_owned()), error)),
            }
        }
        self.offset += count as u64;
        Ok(count)
    }

    fn read<W: Write>(
        &mut self,
        tasks: &mut Tasks,
        sessions: &mut Sessions<'_>,
        out: &mut Output<W>,
        notes: &mut Notes,
    ) -> Result<(), ImportError> {
        let written = ImportError::Unwritable;
        let mut block = vec![0; 16 << 12];
        let mut place: Option<Place> = None;
        let mut before: Option<Record> = None;
        // Bytes since then that are no record.
        let mut skipped = 0;
        // Bytes of the block that are left from the round before.
        let mut kept = 0;
        if !tasks.processes.contains_key(&self.tid) {
            notes.no_process += 1;
        }
        loop {
            let count = self.fill(block.get_mut(kept..).unwrap_or_default())?;
            let filled = kept + count;
            let begin = self.offset - filled as u64;
            let is_end = filled < block.len();
            let mut at = 0;
            while at + 16 <= filled {
                let bytes =
                    block.get(at..at + 16).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
                let record = Record::of(bytes);
                if let Some(previous) = before.filter(|previous| previous.more) {
                    // Somewhere in or behind the payload.
                    if !record.is_some_and(|record| record.can_follow(previous)) {
                        at += 8;
                        skipped += 8;
                        if skipped > PAYLOAD_MAX {
                            let offset = begin + at as u64;
                            return self.is_damaged(offset, place.as_ref(), out, notes);
                        }
                        continue;
                    }
                }
                let Some(record) = record else {
                    // Nothing says where the next record is.
                    let offset = begin + at as u64;
                    return self.is_damaged(offset, place.as_ref(), out, notes);
                };
                if place.as_ref().is_none_or(|place| record.time >= place.until) {
                    let (index, until) =
                        sessions.process(self.tid, record.time, tasks, out).map_err(written)?;
                    let process = sessions.known.get(index).map(|(process, _)| *process);
                    let thread = process.map(|process| {
                        let name =
                            out.process_facts(process).map(|facts| facts.name.clone()).unwrap_or_default();
                        out.thread(process, self.tid, &name, false)
                    });
                    let (Some(process), Some(thread)) = (process, thread) else { return Ok(()) };
                    place = Some(Place { index, process, thread, until });
                    self.open.clear();
                }
                if let Some(place) = &place {
                    self.event(record, place, sessions, out, notes).map_err(written)?;
                }
                before = Some(record);
                skipped = 0;
                at += 16;
            }
            block.copy_within(at.min(filled)..filled, 0);
            kept = filled.saturating_sub(at);
            if is_end {
                notes.cut += u64::from(kept > 0 && before.is_none_or(|before| !before.more));
                return Ok(());
            }
        }
    }

    /// The rest of the thread's records is left out.
    fn is_damaged<W: Write>(
        &self,
        offset: u64,
        place: Option<&Place>,
        out: &mut Output<W>,
        notes: &mut Notes,
    ) -> Result<(), ImportError> {
        notes.damaged.push(format!("{} is damaged at byte {offset}, and its rest was left out", self.name));
        match place {
            Some(place) => out.lose(place.thread, None).map_err(ImportError::Unwritable),
            None => Ok(()),
        }
    }

    #[inline]
    fn event<W: Write>(
        &mut self,
        record: Record,
        place: &Place,
        sessions: &mut Sessions<'_>,
        out: &mut Output<W>,
        notes: &mut Notes,
    ) -> io::Result<()> {
        let is_exit = match record.kind {
            ENTRY => false,
            EXIT => true,
            LOST => {
                self.open.clear();
                return out.lose(place.thread, Some(record.address).filter(|count| *count > 0));
            }
            _ => {
                notes.events += 1;
                return Ok(());
            }
        };
        notes.arguments += u64::from(record.more);
        // Calls that are deeper, or were at this depth, have ended without an exit.
        let keeps = |depth: &u16| if is_exit { *depth <= record.depth } else { *depth < record.depth };
        let staying = self.open.iter().rposition(keeps).map_or(0, |last| last + 1);
        let left = self.open.len() - staying;
        if left > 0 {
            self.open.truncate(staying);
            out.unwound_late(place.thread, record.time, left as u32)?;
        }
        if is_exit {
            if self.open.last() == Some(&record.depth) {
                self.open.pop();
            }
        } else {
            self.open.push(record.depth);
        }
        let Some((_, mapped)) = sessions.known.get_mut(place.index) else { return Ok(()) };
        let files = &sessions.files;
        let code = mapped.locate(out, place.process, record.address, |facts| files.prepare(facts));
        call(out, place.thread, record.time, (record.address, code), is_exit)
    }
}

/// Where a thread is.
struct Place {
    /// Among the known processes.
    index: usize,
    process: ProcessId,
    thread: ThreadId,
    /// When its process executes another program.
    until: u64,
}
