//! XRay's logs (versions 1 to 5 of the file): a header of 32 bytes, then records.
//!
//! | offset | size | header |
//! |---|---|---|
//! | 0 | 2 | version |
//! | 2 | 2 | type: 0 basic, 1 FDR |
//! | 4 | 4 | bit 0 the counter's rate is constant, bit 1 it never stops |
//! | 8 | 8 | counter's rate, per second; 0 if it isn't known |
//! | 16 | 16 | FDR: bytes of a buffer |
//!
//! Functions have numbers, from 1, by the tables of the program that wrote the log. A log of several
//! objects has the object's number in the upper bits; the others' functions have no names here.

mod basic;
mod fdr;
mod tables;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

use everycall_format::arena::ClockReading;
use rustc_hash::FxHashMap;

use crate::error::ImportError;
use crate::output::{Code, ModuleFacts, NamesId, Output, ProcessFacts, ProcessId, ThreadId};
use crate::{ImportOptions, Input};

pub use tables::{FoundBinary, binary_of_log};
use tables::{XrayBinary, xray_binary};

/// Bytes of the header.
const HEADER: usize = 32;
/// The highest version of the file that is known.
const VERSION_MAX: u16 = 5;
/// Kinds of events of functions; 1 is an exit.
const ENTER: u8 = 0;
const TAIL_EXIT: u8 = 2;
const ENTER_ARGUMENT: u8 = 3;

/// Reads a log.
pub(crate) fn read<W: Write>(
    input: &mut impl Input,
    options: &ImportOptions,
    out: &mut Output<W>,
) -> Result<(), ImportError> {
    let mut bytes = [0; HEADER];
    let read = fill(input, &mut bytes).map_err(|error| ImportError::Unreadable(None, error))?;
    if read < HEADER {
        return Err(ImportError::damaged(read as u64, "XRay's header of 32 bytes is incomplete"));
    }
    let header = Header::of(&bytes);
    if header.version == 0 || header.version > VERSION_MAX {
        return Err(ImportError::Version(format!(
            "is an XRay log of version {}; versions 1 to {VERSION_MAX} are known",
            header.version
        )));
    }
    let binary = options.binary.as_deref().map(xray_binary).transpose()?;
    let path =
        options.binary.as_deref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let path = path.as_deref().map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    let mut log = Log {
        header,
        binary,
        path,
        processes: BTreeMap::new(),
        threads: FxHashMap::default(),
        names: None,
        numbers: FxHashMap::default(),
        unknown: 0,
    };
    match header.kind {
        0 => basic::read(input, &mut log, out)?,
        1 => fdr::read(input, &mut log, out)?,
        other => {
            return Err(ImportError::Version(format!(
                "is an XRay log of type {other}; known are 0 (basic) and 1 (FDR)"
            )));
        }
    }
    log.finish(out);
    Ok(())
}

/// As many bytes as there are, up to the size of `bytes`.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match input.read(bytes.get_mut(count..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// A little-endian number at `at`; zero where the bytes end.
#[inline]
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// The log's header.
#[derive(Clone, Copy, Debug)]
struct Header {
    version: u16,
    kind: u16,
    rate: u64,
    /// Bytes of an FDR buffer.
    buffer: u64,
}

impl Header {
    fn of(bytes: &[u8; HEADER]) -> Header {
        Header {
            version: u16::from_le_bytes(number(bytes, 0)),
            kind: u16::from_le_bytes(number(bytes, 2)),
            rate: u64::from_le_bytes(number(bytes, 8)),
            buffer: u64::from_le_bytes(number(bytes, 16)),
        }
    }
}

/// What a process's module or names are.
#[derive(Clone, Copy)]
struct OfProcess {
    id: ProcessId,
    /// Code offset of the first address of its code.
    code: Option<Code>,
}

/// What is known of a log while it is read.
struct Log {
    header: Header,
    binary: Option<XrayBinary>,
    path: Vec<u8>,
    processes: BTreeMap<u32, OfProcess>,
    threads: FxHashMap<(u32, u32), ThreadId>,
    /// Functions that have numbers only.
    names: Option<NamesId>,
    numbers: FxHashMap<u32, Code>,
    /// Functions that the binary doesn't have.
    unknown: u64,
}

impl Log {
    fn process<W: Write>(&mut self, pid: u32, out: &mut Output<W>) -> io::Result<OfProcess> {
        if let Some(known) = self.processes.get(&pid) {
            return Ok(*known);
        }
        let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let command = if self.path.is_empty() { Vec::new() } else { vec![self.path.clone()] };
        let id = out.process(ProcessFacts { pid, name, command, ..ProcessFacts::default() })?;
        let code = self.binary.as_ref().and_then(|binary| {
            let (start, end) = binary.code;
            let facts = ModuleFacts {
                path: self.path.clone(),
                build_id: binary.build_id.clone(),
                start,
                end,
                ..ModuleFacts::default()
            };
            out.module(id, facts)
        });
        let process = OfProcess { id, code };
        self.processes.insert(pid, process);
        Ok(process)
    }

    /// A thread of a process. `older_missing`: the log may have lost older events of it.
    fn thread<W: Write>(
        &mut self,
        (pid, tid): (u32, u32),
        older_missing: bool,
        out: &mut Output<W>,
    ) -> io::Result<(OfProcess, ThreadId)> {
        let process = self.process(pid, out)?;
        let thread = *self.threads.entry((pid, tid)).or_insert_with(|| {
            let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            out.thread(process.id, tid, name, older_missing)
        });
        Ok((process, thread))
    }

    /// The code offset of a function's entry, or of its tail exit.
    fn code<W: Write>(
        &mut self,
        number: u32,
        is_tail: bool,
        process: OfProcess,
        out: &mut Output<W>,
    ) -> Code {
        if let (Some(binary), Some(code)) = (&self.binary, process.code)
            && let Some(function) =
                (number as usize).checked_sub(1).and_then(|index| binary.functions.get(index))
        {
            let address = function.tail_exit.filter(|_| is_tail).unwrap_or(function.address);
            if let Some(offset) = address.checked_sub(binary.code.0).filter(|_| address < binary.code.1) {
                return Code(code.0 + offset as u32);
            }
        }
        let names = *self.names.get_or_insert_with(|| out.names(b"functions without a binary"));
        let unknown = &mut self.unknown;
        *self.numbers.entry(number).or_insert_with(|| {
            *unknown += 1;
            out.name(names, format!("function {number}").as_bytes())
        })
    }

    /// An event of a function.
    #[inline]
    fn event<W: Write>(
        &mut self,
        (process, thread): (OfProcess, ThreadId),
        kind: u8,
        function: u32,
        ticks: u64,
        out: &mut Output<W>,
    ) -> io::Result<()> {
        let code = self.code(function, kind == TAIL_EXIT, process, out);
        match kind {
            ENTER | ENTER_ARGUMENT => out.entry(thread, ticks, code),
            _ => out.exit(thread, ticks, code),
        }
    }

    fn finish<W: Write>(&self, out: &mut Output<W>) {
        let rate = self.header.rate;
        let known_rate = (1_000_000..=100_000_000_000).contains(&rate);
        if let (Some((first, last)), true) = (out.reach(), known_rate) {
            let ns = |ticks: u64| (u128::from(ticks) * 1_000_000_000 / u128::from(rate)) as u64;
            let reading = |ticks: u64| ClockReading {
                ticks,
                monotonic_raw_ns: ns(ticks - first).saturating_add(1),
                ..ClockReading::default()
            };
            // Far enough apart that the rate is exact.
            let behind = last.max(first.saturating_add(rate));
            out.facts.readings = vec![reading(first), reading(behind)];
        }
        out.facts.clock = match (rate, known_rate) {
            (1_000_000_000, _) => {
                "nanoseconds: XRay didn't find the counter's rate, and used the system's clock".to_owned()
            }
            (_, true) => format!("the CPU's counter, {:.6} GHz as XRay found it", rate as f64 / 1e9),
            (_, false) => {
                "the CPU's counter; the log doesn't have its rate: times are ticks, shown as nanoseconds"
                    .to_owned()
            }
        };
        let notes = &mut out.facts.notes;
        match &self.binary {
            None => notes.push(
                "functions are shown by their numbers; --binary PROGRAM names the program that wrote the log".to_owned(),
            ),
            Some(_) if self.unknown > 0 => notes.push(format!(
                "{} functions aren't in the program's tables: they are of shared objects, or the program was built again",
                self.unknown
            )),
            Some(_) => {}
        }
        out.facts.command = if self.path.is_empty() { Vec::new() } else { vec![self.path.clone()] };
    }
}
