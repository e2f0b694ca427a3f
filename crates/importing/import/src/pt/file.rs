//! perf's own file: its header, what it says beside the trace, and where the trace lies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use rustc_hash::FxHashMap;

use super::inflate::{Inflate, Refused};
use crate::error::ImportError;

/// The beginning of perf's file.
pub(crate) const MAGIC: &[u8] = b"PERFILE2";
/// The magic number as a big-endian machine writes it.
pub(crate) const MAGIC_SWAPPED: &[u8] = b"2ELIFREP";

/// The most bytes of build ids and attributes that are read.
const TABLE_MAX: u64 = 64 << 20;
/// The size of the header in a pipe.
const PIPE_HEADER: u64 = 16;
/// The number of the table with the command line.
const COMMAND: usize = 11;
/// The most descriptions of events that are read.
const ATTRS_MAX: usize = 1 << 16;
/// The most records beside the trace.
const RECORDS_MAX: usize = 1 << 27;

/// A record beside the trace, with perf's time.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub ns: u64,
    pub cpu: u32,
    pub pid: u32,
    pub tid: u32,
    pub what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A file was mapped: start, length, offset in the file; its number among the files.
    Map(u64, u64, u64, u32),
    /// The thread's name, and whether it is a new program's.
    Name(Vec<u8>, bool),
    /// A thread of the process with this id made it.
    Fork(u32),
    Exit,
    /// It runs on the CPU from now on.
    Switch,
}

/// A file that was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FileName {
    pub path: Vec<u8>,
    pub build_id: Vec<u8>,
}

/// Whether a path is that of a jitdump file.
pub(crate) fn is_dump(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let digits = name.strip_prefix(b"jit-").and_then(|rest| rest.strip_suffix(b".dump"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// Whether a path is that of a file which `perf inject --jit` made of a jitdump file.
pub(crate) fn is_injected(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b"jitted-") && name.ends_with(b".so")
}

/// A part of the trace of a CPU or thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Where it lies in perf's file.
    pub at: u64,
    pub size: u64,
    /// Where it lies among all that the CPU or thread wrote.
    pub offset: u64,
}

/// The trace of a CPU or thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub cpu: Option<u32>,
    pub tid: u32,
    pub parts: Vec<Part>,
    /// Offsets behind which the kernel lost a part.
    pub losses: Vec<u64>,
}

/// Perf's record of the CPU's trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clocks {
    pub shift: u32,
    pub mult: u64,
    pub zero: u64,
    /// Whether the three above hold.
    pub are_known: bool,
    pub mtc_shift: u8,
    pub crystal: (u32, u32),
    pub tsc_ratio: u8,
}

impl Clocks {
    /// perf's time of the time-stamp counter.
    pub fn ns(&self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.mult)) >> self.shift.min(63);
        self.zero.wrapping_add(ns as u64)
    }

    /// The time-stamp counter at a time of perf's.
    pub fn ticks(&self, ns: u64) -> u64 {
        if !self.are_known || self.mult == 0 {
            return 0;
        }
        // The zero may lie before the counter's: as a signed number it is negative then.
        let since = ns.wrapping_sub(self.zero);
        if since >> 63 != 0 {
            return 0;
        }
        let ticks = (u128::from(since) << self.shift.min(63)) / u128::from(self.mult);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// Everything but the trace itself.
#[derive(Debug, Default)]
pub(crate) struct PerfFile {
    pub clocks: Clocks,
    pub sides: Vec<Side>,
    pub files: Vec<FileName>,
    pub streams: BTreeMap<u32, Stream>,
    pub command: Vec<Vec<u8>>,
    pub notes: Vec<String>,
    pub has_switches: bool,
    numbers: FxHashMap<FileName, u32>,
    /// The time of the last record of each process.
    pub lasts: FxHashMap<u32, u64>,
    /// Records of build ids.
    build_ids: Vec<u8>,
    losses: Vec<(Whose, u64)>,
}

/// How records end: which fields say whose they are and when.
#[derive(Clone, Copy, Debug, Default)]
struct Trailer {
    bits: u64,
    has_trailer: bool,
}

const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const STREAM_ID: u64 = 1 << 9;
const IDENTIFIER: u64 = 1 << 16;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn text(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != 0).collect()
}

fn unreadable(error: std::io::Error) -> ImportError {
    ImportError::Unreadable(None, error)
}

/// Bytes at a place of the file.
pub(crate) fn bytes_at(
    input: &mut (impl Read + Seek),
    at: u64,
    size: u64,
    most: u64,
) -> Result<Vec<u8>, ImportError> {
    input.seek(SeekFrom::Start(at)).map_err(unreadable)?;
    let mut bytes = Vec::new();
    input.by_ref().take(size.min(most)).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

impl PerfFile {
    /// Reads everything but the trace.
    pub fn read(input: &mut (impl Read + Seek)) -> Result<PerfFile, ImportError> {
        let head = bytes_at(input, 0, 104, 104)?;
        if head.starts_with(MAGIC_SWAPPED) {
            return Err(ImportError::Version(
                "was written on a big-endian machine, and so has no trace of Intel PT".to_owned(),
            ));
        }
        let truncated = || ImportError::damaged(0, "the header of perf's file is truncated");
        let number = |at| long(&head, at).ok_or_else(truncated);
        let mut file = PerfFile::default();
        let mut stream = Records::default();
        // Into a pipe, perf writes as records what is in tables otherwise.
        let tables = if number(8)? == PIPE_HEADER {
            stream.read(&mut file, input, (PIPE_HEADER, u64::MAX))?;
            None
        } else {
            let (attr_size, attrs) = (number(16)?, (number(24)?, number(32)?));
            let (data_at, data_size) = (number(40)?, number(48)?);
            let features = (number(72)?, [number(80)?, number(88)?, number(96)?]);
            let attrs = bytes_at(input, attrs.0, attrs.1, TABLE_MAX)?;
            let attr_size = usize::try_from(attr_size).unwrap_or(usize::MAX).max(64);
            attrs.chunks(attr_size).for_each(|attr| stream.attr(attr));
            let end = if data_size == 0 {
                file.notes.push(
                    "perf ended before it had finished the file: some things beside the trace may be missing"
                        .to_owned(),
                );
                u64::MAX
            } else {
                data_at.saturating_add(data_size)
            };
            stream.read(&mut file, input, (data_at, end))?;
            (data_size > 0).then_some((end, features))
        };
        let Records { info, attrs, .. } = stream;
        let Some(info) = info else {
            return Err(ImportError::Version(
                "is perf's file without a trace of Intel PT; perf record -e intel_pt//u -- PROGRAM records one"
                    .to_owned(),
            ));
        };
        file.clocks = clocks(&info, &attrs)?;
        if let Some((end, features)) = tables {
            file.features(input, end, features)?;
        }
        let ids = std::mem::take(&mut file.build_ids);
        file.name_builds(&ids);
        if file.streams.values().all(|stream| stream.parts.iter().all(|part| part.size == 0)) {
            return Err(ImportError::Version(
                "has no bytes of Intel PT: the CPU recorded nothing while perf ran".to_owned(),
            ));
        }
        for stream in file.streams.values_mut() {
            let is_its = |whose: &Whose| stream.cpu.map_or(whose.tid == stream.tid, |cpu| whose.cpu == cpu);
            stream.losses = file.losses.iter().filter(|loss| is_its(&loss.0)).map(|loss| loss.1).collect();
            stream.losses.sort_unstable();
        }
        file.sides.sort_by_key(|side| side.ns);
        Ok(file)
    }

    fn record(&mut self, kind: u32, misc: u16, record: &[u8], trailer: Trailer) {
        let _: Option<()> = (|| {
            let whose = Whose::of(record, trailer);
            if whose.pid != u32::MAX {
                let last = self.lasts.entry(whose.pid).or_default();
                *last = whose.ns.max(*last);
            }
            let (pid, tid) = (word(record, 8)?, word(record, 12)?);
            let side = |what| Side { ns: whose.ns, cpu: whose.cpu, pid, tid, what };
            match kind {
                // MMAP, without those of data.
                1 if misc & 1 << 13 == 0 => {
                    let name = FileName { path: text(record.get(40..)?), build_id: Vec::new() };
                    let file = self.file(name);
                    self.sides.push(side(What::Map(
                        long(record, 16)?,
                        long(record, 24)?,
                        long(record, 32)?,
                        file,
                    )));
                }
                10 => {
                    let is_executable = word(record, 64)? & 4 != 0;
                    let build_id = if misc & 1 << 14 != 0 {
                        let length = usize::from(*record.get(40)?).min(20);
                        record.get(44..44 + length)?.to_vec()
                    } else {
                        Vec::new()
                    };
                    if is_executable {
                        let file = self.file(FileName { path: text(record.get(72..)?), build_id });
                        self.sides.push(side(What::Map(
                            long(record, 16)?,
                            long(record, 24)?,
                            long(record, 32)?,
                            file,
                        )));
                    }
                }
                3 => self.sides.push(side(What::Name(text(record.get(16..)?), misc & 1 << 13 != 0))),
                7 => {
                    // Process, parent, thread, parent's thread.
                    let tid = word(record, 16)?;
                    let parent = word(record, 12)?;
                    self.sides.push(Side { tid, ..side(What::Fork(parent)) });
                }
                4 => {
                    let tid = word(record, 16)?;
                    self.sides.push(Side { tid, ..side(What::Exit) });
                }
                // AUX: a part was cut.
                11 if long(record, 24)? & 1 != 0 => {
                    let lost = long(record, 8)?.saturating_add(long(record, 16)?);
                    self.losses.push((whose, lost));
                }
                12 => self.sides.push(side(What::Switch)),
                14 if misc & 1 << 13 == 0 => {
                    self.has_switches = true;
                    self.sides.push(Side { pid: whose.pid, tid: whose.tid, ..side(What::Switch) });
                }
                15 => {
                    self.has_switches = true;
                    let is_out = misc & 1 << 13 != 0;
                    let (pid, tid) = if is_out { (pid, tid) } else { (whose.pid, whose.tid) };
                    self.sides.push(Side { pid, tid, ..side(What::Switch) });
                }
                _ => {}
            }
            Some(())
        })();
    }

    fn file(&mut self, name: FileName) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.files.len() as u32;
        self.files.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// The tables behind the records: build ids and the command line.
    fn features(
        &mut self,
        input: &mut (impl Read + Seek),
        at: u64,
        (first, others): (u64, [u64; 3]),
    ) -> Result<(), ImportError> {
        let bits = [first, others[0], others[1], others[2]];
        let present =
            (0..256_usize).filter(|bit| bits.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 != 0));
        for (index, bit) in present.enumerate() {
            let section = bytes_at(input, at.saturating_add(16 * index as u64), 16, 16)?;
            let (Some(at), Some(size)) = (long(&section, 0), long(&section, 8)) else { break };
            match bit {
                2 => {
                    let table = bytes_at(input, at, size, TABLE_MAX)?;
                    self.name_builds(&table);
                }
                COMMAND => {
                    let bytes = bytes_at(input, at, size, 1 << 20)?;
                    self.name_command(&bytes);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn name_command(&mut self, bytes: &[u8]) {
        let mut rest = bytes.get(4..).unwrap_or_default();
        while let Some(length) = word(rest, 0) {
            let end = (length as usize).saturating_add(4).min(rest.len());
            self.command.push(text(rest.get(4..end).unwrap_or_default()));
            rest = rest.get(end..).unwrap_or_default();
        }
    }

    fn name_builds(&mut self, mut table: &[u8]) {
        let mut ids: FxHashMap<Vec<u8>, Vec<u8>> = FxHashMap::default();
        while let Some(sizes) = word(table, 4) {
            let size = (sizes >> 16) as usize;
            let Some(entry) = table.get(..size).filter(|_| size > 36) else { break };
            // Older perfs leave the length out.
            let length = match (sizes as u16 & 1 << 15, entry.get(32)) {
                (0, _) | (_, None | Some(0)) => 20,
                (_, Some(length)) => usize::from(*length).min(20),
            };
            let id = entry.get(12..12 + length).unwrap_or_default().to_vec();
            ids.insert(text(entry.get(36..).unwrap_or_default()), id);
            table = table.get(size..).unwrap_or_default();
        }
        for file in &mut self.files {
            if let Some(id) = ids.get(&file.path).filter(|_| file.build_id.is_empty()) {
                file.build_id.clone_from(id);
            }
        }
    }
}

/// perf's records as they come, and what they say of those that follow.
#[derive(Default)]
struct Records {
    attrs: Vec<Vec<u8>>,
    trailer: Trailer,
    /// perf's record of the CPU's trace.
    info: Option<Vec<u8>>,
    inflate: Inflate,
    /// Records that perf lost.
    lost: u64,
}

impl Records {
    /// An event's description: the first one says how records end.
    fn attr(&mut self, attr: &[u8]) {
        if self.attrs.is_empty() {
            self.trailer.bits = long(attr, 24).unwrap_or(0);
            self.trailer.has_trailer = long(attr, 40).unwrap_or(0) >> 18 & 1 != 0;
        }
        if self.attrs.len() < ATTRS_MAX {
            self.attrs.push(attr.to_vec());
        }
    }

    fn read(
        &mut self,
        file: &mut PerfFile,
        input: &mut (impl Read + Seek),
        (begin, end): (u64, u64),
    ) -> Result<(), ImportError> {
        input.seek(SeekFrom::Start(begin)).map_err(unreadable)?;
        let mut input = BufReader::with_capacity(crate::input::BUFFER, input);
        let mut at = begin;
        let mut record = Vec::new();
        while at < end {
            record.clear();
            input.by_ref().take(8).read_to_end(&mut record).map_err(unreadable)?;
            if record.is_empty() {
                break;
            }
            let (kind, sizes) = (word(&record, 0).unwrap_or(0), word(&record, 4).unwrap_or(0));
            let size = u64::from(sizes >> 16);
            if record.len() < 8 || size < 8 {
                file.notes.push(format!("the file is damaged at byte {at}: what is behind it isn't read"));
                break;
            }
            input.by_ref().take(size - 8).read_to_end(&mut record).map_err(unreadable)?;
            if (record.len() as u64) < size {
                file.notes.push(format!("the file is truncated at byte {}", at + record.len() as u64));
                break;
            }
            at += size;
            match kind {
                // AUXTRACE: the trace's bytes follow.
                71 => {
                    let (size, offset) = (long(&record, 8).unwrap_or(0), long(&record, 16).unwrap_or(0));
                    let (index, tid) = (word(&record, 32).unwrap_or(0), word(&record, 36).unwrap_or(0));
                    let cpu = word(&record, 40).unwrap_or(u32::MAX);
                    let stream = file.streams.entry(index).or_default();
                    stream.cpu = (cpu != u32::MAX).then_some(cpu);
                    stream.tid = tid;
                    stream.parts.push(Part { at, size, offset });
                    at = at.saturating_add(size);
                    let Ok(skipped) = i64::try_from(size) else {
                        file.notes.push("the file is truncated within the trace".to_owned());
                        break;
                    };
                    input.seek_relative(skipped).map_err(unreadable)?;
                }
                // TRACING_DATA: its bytes follow.
                66 => {
                    let size = u64::from(word(&record, 8).unwrap_or(0)).next_multiple_of(8);
                    at += size;
                    input.seek_relative(size as i64).map_err(unreadable)?;
                }
                // COMPRESSED, and the form that says its length.
                81 | 83 => {
                    let part = match kind {
                        81 => record.get(8..),
                        _ => {
                            let size = long(&record, 8).and_then(|size| usize::try_from(size).ok());
                            size.and_then(|size| record.get(16..size.checked_add(16)?))
                        }
                    };
                    if !self.unpack(file, part.unwrap_or_default(), at) {
                        break;
                    }
                }
                _ => self.one(file, &record),
            }
            if file.sides.len() > RECORDS_MAX {
                return Err(ImportError::damaged(
                    at,
                    "there are more records beside the trace than can be read",
                ));
            }
            if at >= end && !input.fill_buf().map_err(unreadable)?.is_empty() {
                break;
            }
        }
        if self.lost > 0 {
            file.notes.push(format!(
                "perf lost {} records beside the trace: names, mapped files or switches of threads may be missing",
                self.lost
            ));
        }
        Ok(())
    }

    /// Reads compressed records. Returns whether they make sense.
    fn unpack(&mut self, file: &mut PerfFile, part: &[u8], at: u64) -> bool {
        let mut inflate = std::mem::take(&mut self.inflate);
        let found = inflate.add(part, |record| {
            if file.sides.len() <= RECORDS_MAX {
                self.one(file, record);
            }
        });
        self.inflate = inflate;
        let why = match found {
            Ok(()) => return true,
            Err(Refused::Damaged) => "can't be decompressed",
            Err(Refused::TooLong) => "are more than 2 GiB",
        };
        file.notes.push(format!("the compressed records before byte {at} {why}: what follows isn't read"));
        false
    }

    fn one(&mut self, file: &mut PerfFile, record: &[u8]) {
        let (kind, sizes) = (word(record, 0).unwrap_or(0), word(record, 4).unwrap_or(0));
        match kind {
            2 => self.lost = self.lost.saturating_add(long(record, 16).unwrap_or(0)),
            70 => self.info = Some(record.to_vec()),
            // In a pipe: an event, a build id, a table.
            64 => self.attr(record.get(8..).unwrap_or_default()),
            67 if (file.build_ids.len() as u64) < TABLE_MAX => file.build_ids.extend(record),
            80 if long(record, 8) == Some(COMMAND as u64) => {
                file.name_command(record.get(16..).unwrap_or_default());
            }
            _ => file.record(kind, sizes as u16, record, self.trailer),
        }
    }
}

/// Whose a record is, and when it was made.
#[derive(Clone, Copy, Debug)]
struct Whose {
    pid: u32,
    tid: u32,
    ns: u64,
    cpu: u32,
}

impl Whose {
    /// From the fields at the record's end.
    fn of(record: &[u8], trailer: Trailer) -> Whose {
        let mut whose = Whose { pid: u32::MAX, tid: u32::MAX, ns: 0, cpu: u32::MAX };
        let fields = [TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER];
        let count = fields.iter().filter(|bit| trailer.bits & **bit != 0).count();
        let Some(mut at) = record.len().checked_sub(8 * count).filter(|_| trailer.has_trailer) else {
            return whose;
        };
        for bit in fields {
            if trailer.bits & bit == 0 {
                continue;
            }
            let value = long(record, at).unwrap_or(0);
            match bit {
                TID => (whose.pid, whose.tid) = (value as u32, (value >> 32) as u32),
                TIME => whose.ns = value,
                CPU => whose.cpu = value as u32,
                _ => {}
            }
            at += 8;
        }
        whose
    }
}

fn clocks(info: &[u8], attrs: &[Vec<u8>]) -> Result<Clocks, ImportError> {
    match word(info, 8) {
        Some(1) => {}
        other => {
            let what = match other {
                Some(2) => "Intel's branch trace store",
                Some(3) => "ARM's CoreSight",
                Some(4 | 6) => "ARM's statistical profiling or HiSilicon's PCIe trace",
                _ => "another kind",
            };
            return Err(ImportError::Version(format!(
                "has a trace of {what}; only Intel PT can be imported"
            )));
        }
    }
    let number = |index: usize| long(info, 16 + 8 * index).unwrap_or(0);
    let config = attrs
        .iter()
        .find(|attr| word(attr, 0).map(u64::from) == Some(number(0)))
        .and_then(|attr| long(attr, 8))
        .unwrap_or(0);
    let mask = number(11);
    let mtc = if mask == 0 { 0 } else { (config & mask) >> mask.trailing_zeros() };
    Ok(Clocks {
        shift: number(1) as u32,
        mult: number(2),
        zero: number(3),
        are_known: number(4) != 0 && number(2) != 0,
        mtc_shift: (mtc & 15) as u8,
        crystal: (number(12) as u32, number(13) as u32),
        tsc_ratio: number(15) as u8,
    })
}
