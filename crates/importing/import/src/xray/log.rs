//! The state of a log while it is read, and its header.

use super::tables::XrayBinary;
use crate::output::{Code, ModuleFacts, NamesId, Output, ProcessFacts, ProcessId, ThreadId};
use everycall_format::arena::ClockReading;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// Bytes of the header.
pub(super) const HEADER: usize = 32;
/// Kinds of events of functions; 1 is an exit.
pub(super) const ENTER: u8 = 0;
pub(super) const TAIL_EXIT: u8 = 2;
pub(super) const ENTER_ARGUMENT: u8 = 3;

/// As many bytes as there are, up to the size of `bytes`.
pub(super) fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
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
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// The log's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) version: u16,
    pub(super) kind: u16,
    pub(super) rate: u64,
    /// Bytes of an FDR buffer.
    pub(super) buffer: u64,
}

impl Header {
    pub(super) fn of(bytes: &[u8; HEADER]) -> Header {
        Header {
            version: u16::from_le_bytes(number(bytes, 0)),
            kind: u16::from_le_bytes(number(bytes, 2)),
            rate: u64::from_le_bytes(number(bytes, 8)),
            buffer: u64::from_le_bytes(number(bytes, 16)),
        }
    }
}

/// A process of the log, and its code.
#[derive(Clone, Copy)]
pub(super) struct OfProcess {
    pub(super) id: ProcessId,
    /// Code offset of the first address of its code.
    pub(super) code: Option<Code>,
}

/// The state of a log while it is read.
pub(super) struct Log {
    pub(super) header: Header,
    pub(super) binary: Option<XrayBinary>,
    pub(super) path: Vec<u8>,
    pub(super) processes: BTreeMap<u32, OfProcess>,
    pub(super) threads: FxHashMap<(u32, u32), ThreadId>,
    /// Functions that have numbers only.
    pub(super) names: Option<NamesId>,
    pub(super) numbers: FxHashMap<u32, Code>,
    /// Functions that the binary doesn't have.
    pub(super) unknown: u64,
}

impl Log {
    pub(super) fn process<W: Write>(&mut self, pid: u32, out: &mut Output<W>) -> io::Result<OfProcess> {
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
    pub(super) fn thread<W: Write>(
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
    pub(super) fn code<W: Write>(
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
    pub(super) fn event<W: Write>(
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

    pub(super) fn finish<W: Write>(&self, out: &mut Output<W>) {
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
