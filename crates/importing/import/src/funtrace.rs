//! funtrace's raw files: chunks of a name of 8 bytes, a length of 8, and so many bytes.
//!
//! | chunk | bytes |
//! |---|---|
//! | `PROCMAPS` | lines of mapped files |
//! | `FUNTRACE` | ticks per second, 8: a sample begins |
//! | `CMD LINE` | the command line, words separated by spaces |
//! | `THREADID` | process, 8; thread, 8; name, 16: a thread of the sample |
//! | `TRACEBUF` | its ring: events of 16 bytes, an address and ticks, in any rotation; zeros were never written |
//! | `FTRACETX` | lines of the kernel's tracer |
//! | `ENDTRACE` | none: the sample ends |
//!
//! The upper bits of an address are flags: bit 63 a return; bit 62 a return whose address is the
//! caller's; both, an exception is caught there; bit 61 a call whose return comes even if it is
//! unwound.
//!
//! Samples of one run repeat events: each thread's are read once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use everycall_format::arena::ClockReading;
use everycall_format::label;
use everycall_symbols::{ModuleIdentity, ModuleSymbols, SymbolOptions};

use crate::error::ImportError;
use crate::input::Input;
use crate::modules::{Mapped, call, find_build, mapped_files};
use crate::output::{Code, ModuleFacts, Output, ProcessFacts, ProcessId, ThreadId};

const HEAD: u64 = 16;
const EVENT: usize = 16;
/// Largest ring: funtrace's buffers have up to 2^30 bytes.
const RING_MAX: u64 = 1 << 30;
/// Largest text.
const TEXT_MAX: u64 = 64 << 20;

const RETURN: u64 = 1 << 63;
const CALLERS: u64 = 1 << 62;
const RETURNS_ALWAYS: u64 = 1 << 61;
const ADDRESS: u64 = RETURNS_ALWAYS - 1;

/// Reads a raw file.
pub(crate) fn read<W: Write>(input: &mut impl Input, out: &mut Output<W>) -> Result<(), ImportError> {
    let mut state = State::default();
    let mut head = [0; HEAD as usize];
    let mut bytes = Vec::new();
    loop {
        let at = state.offset;
        let count = fill(input, &mut head)?;
        if count == 0 {
            break;
        }
        if count < head.len() {
            state.cut = true;
            break;
        }
        let (name, length) = head.split_at(8);
        let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
        let limit = match name {
            b"TRACEBUF" => RING_MAX,
            b"PROCMAPS" | b"CMD LINE" | b"FTRACETX" => TEXT_MAX,
            b"FUNTRACE" | b"THREADID" | b"ENDTRACE" => 4096,
            _ => return state.damaged(at, "a chunk of funtrace is expected here", out),
        };
        if length > limit {
            return state.damaged(at + 8, "a length is expected here that a chunk can have", out);
        }
        bytes.clear();
        let read = input.by_ref().take(length).read_to_end(&mut bytes);
        read.map_err(|error| ImportError::Unreadable(None, error))?;
        state.offset += HEAD + bytes.len() as u64;
        state.cut = (bytes.len() as u64) < length;
        state.chunk(name, &mut bytes, out).map_err(ImportError::Unwritable)?;
        if state.cut {
            break;
        }
    }
    if state.threads.is_empty() && state.cut {
        return Err(ImportError::damaged(state.offset, "the rest of the first sample is missing"));
    }
    state.finish(out);
    Ok(())
}

fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize, ImportError> {
    let mut count = 0;
    while count < bytes.len() {
        match input.read(bytes.get_mut(count..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ImportError::Unreadable(None, error)),
        }
    }
    Ok(count)
}

/// A thread, over all samples.
struct Thread {
    id: ThreadId,
    /// Ticks of its last event that was read.
    last: u64,
    open: Vec<Open>,
}

/// A call that is open.
#[derive(Clone, Copy)]
struct Open {
    address: u64,
    code: Option<Code>,
    returns_always: bool,
}

#[derive(Default)]
struct State {
    offset: u64,
    rate: u64,
    samples: u64,
    maps: Vec<u8>,
    command: Vec<Vec<u8>>,
    processes: BTreeMap<u64, (ProcessId, Mapped)>,
    threads: BTreeMap<(u64, u64), Thread>,
    /// Of the thread whose ring follows.
    current: Option<(u64, u64)>,
    functions: Functions,
    kernel_lines: u64,
    cut: bool,
    problem: Option<String>,
}

impl State {
    fn damaged<W: Write>(
        &mut self,
        at: u64,
        reason: &'static str,
        out: &mut Output<W>,
    ) -> Result<(), ImportError> {
        if self.threads.is_empty() {
            return Err(ImportError::damaged(at, reason));
        }
        self.problem = Some(format!("the file is damaged at byte {at}, and its rest was left out"));
        self.finish(out);
        Ok(())
    }

    fn chunk<W: Write>(&mut self, name: &[u8], bytes: &mut [u8], out: &mut Output<W>) -> io::Result<()> {
        let number = |at: usize| {
            bytes
                .get(at..)
                .and_then(|bytes| bytes.first_chunk())
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        match name {
            b"PROCMAPS" if self.maps != bytes => {
                self.maps = bytes.to_vec();
                for (_, mapped) in self.processes.values_mut() {
                    *mapped = Mapped::new(maps(&self.maps));
                }
            }
            b"FUNTRACE" => {
                self.rate = number(0);
                self.samples += 1;
            }
            b"CMD LINE" => {
                let words = bytes.split(|byte| *byte == b' ' || *byte == 0).filter(|word| !word.is_empty());
                self.command = words.map(<[u8]>::to_vec).collect();
                let command = self.command.clone();
                for (id, _) in self.processes.values() {
                    if let Some(facts) = out.process_facts(*id) {
                        facts.command.clone_from(&command);
                    }
                }
            }
            b"THREADID" => {
                let key = (number(0), number(8));
                let name = bytes.get(16..).unwrap_or_default();
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
                self.thread(key, &name, out)?;
            }
            b"TRACEBUF" => self.ring(bytes, out)?,
            b"FTRACETX" => self.kernel_lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64,
            _ => {}
        }
        Ok(())
    }

    fn thread<W: Write>(&mut self, key: (u64, u64), name: &[u8], out: &mut Output<W>) -> io::Result<()> {
        let (pid, tid) = key;
        self.current = Some(key);
        if !self.processes.contains_key(&pid) {
            let path = self.command.first().map(Vec::as_slice).unwrap_or_default();
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
            let command = self.command.clone();
            let id =
                out.process(ProcessFacts { pid: pid as u32, name, command, ..ProcessFacts::default() })?;
            self.processes.insert(pid, (id, Mapped::new(maps(&self.maps))));
        }
        let Some((process, _)) = self.processes.get(&pid) else { return Ok(()) };
        self.threads.entry(key).or_insert_with(|| {
            // Until its ring shows that it has all of its events.
            let id = out.thread(*process, tid as u32, name, true);
            Thread { id, last: 0, open: Vec::new() }
        });
        Ok(())
    }

    fn ring<W: Write>(&mut self, bytes: &[u8], out: &mut Output<W>) -> io::Result<()> {
        let Some(key) = self.current.take() else { return Ok(()) };
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut events: Vec<(u64, u64)> = bytes
            .chunks_exact(EVENT)
            .map(|event| {
                let (address, ticks) = event.split_at(8);
                (number(ticks), number(address))
            })
            .collect();
        let all = events.len();
        // The oldest events lie behind the newest.
        let turn = events.windows(2).position(|pair| matches!(pair, [before, after] if after.0 < before.0));
        events.rotate_left(turn.map_or(0, |turn| turn + 1));
        events.retain(|event| *event != (0, 0));
        let is_full = events.len() == all;
        // A program writes its rings while they are copied.
        events.sort_by_key(|(ticks, _)| *ticks);
        let (Some(thread), Some((process, mapped))) =
            (self.threads.get_mut(&key), self.processes.get_mut(&key.0))
        else {
            return Ok(());
        };
        if thread.last == 0 && !is_full {
            out.has_all(thread.id);
        }
        let oldest = events.first().map_or(u64::MAX, |event| event.0);
        if thread.last > 0 && is_full && oldest > thread.last {
            thread.open.clear();
            out.lose(thread.id, None)?;
        }
        let known = events.partition_point(|(ticks, _)| *ticks <= thread.last);
        for (ticks, word) in events.get(known..).unwrap_or_default() {
            thread.last = *ticks;
            event(thread, (*process, mapped), &mut self.functions, (*ticks, *word), out)?;
        }
        Ok(())
    }

    fn finish<W: Write>(&mut self, out: &mut Output<W>) {
        let is_known = (1_000_000..=100_000_000_000).contains(&self.rate);
        if let (Some((first, last)), true) = (out.reach(), is_known) {
            let behind = last.max(first.saturating_add(self.rate));
            let ns = |ticks: u64| (u128::from(ticks) * 1_000_000_000 / u128::from(self.rate)) as u64;
            let reading = |ticks: u64| ClockReading {
                ticks,
                monotonic_raw_ns: 1 + ns(ticks - first),
                ..ClockReading::default()
            };
            out.facts.readings = vec![reading(first), reading(behind)];
        }
        out.facts.clock = if is_known {
            format!("the CPU's counter, {:.6} GHz as funtrace found it", self.rate as f64 / 1e9)
        } else {
            "the CPU's counter; the file doesn't have its rate: times are ticks, shown as nanoseconds"
                .to_owned()
        };
        out.facts.command.clone_from(&self.command);
        let notes = &mut out.facts.notes;
        notes.push(
            "events that were overwritten in funtrace's rings are missing; the file doesn't say how many"
                .to_owned(),
        );
        notes.push(
            "the file doesn't say which builds of the program and its libraries ran: functions are named by the files \
             at their paths"
                .to_owned(),
        );
        if self.samples > 1 {
            notes.push(format!("{} samples were put together; what they repeat was read once", self.samples));
        }
        if self.kernel_lines > 0 {
            notes.push(format!("{} lines of the kernel's tracer were left out", self.kernel_lines));
        }
        if self.cut {
            notes.push("the file's end is missing".to_owned());
        }
        notes.extend(self.problem.take());
    }
}

fn event<W: Write>(
    thread: &mut Thread,
    (process, mapped): (ProcessId, &mut Mapped),
    functions: &mut Functions,
    (ticks, word): (u64, u64),
    out: &mut Output<W>,
) -> io::Result<()> {
    let address = word & ADDRESS;
    let mut code = mapped.locate(out, process, address, find_build);
    match word & (RETURN | CALLERS) {
        0 => {
            functions.seen.insert(address);
            thread.open.push(Open { address, code, returns_always: word & RETURNS_ALWAYS != 0 });
            call(out, thread.id, ticks, (address, code), false)
        }
        RETURN | CALLERS => {
            // With the caller's address, it is the innermost call that returns.
            let top = thread.open.pop();
            let mut at = address;
            if word & RETURN == 0 {
                (at, code) = top.map_or((0, None), |top| (top.address, top.code));
            }
            call(out, thread.id, ticks, (at, code), true)
        }
        _ => {
            let catches =
                |open: &Open| open.returns_always || functions.is_same(mapped, open.address, address);
            if let Some(place) = thread.open.iter().rposition(catches) {
                let left = thread.open.len() - place - 1;
                thread.open.truncate(place + 1);
                if left > 0 {
                    out.unwound(thread.id, ticks, left as u32)?;
                }
            }
            out.label(thread.id, ticks, label::CATCH, b"", None)
        }
    }
}

/// The mapped files, for now as if addresses in them were as in the files' bytes.
fn maps(text: &[u8]) -> Vec<ModuleFacts> {
    mapped_files(text, |map| map.is_executable)
}

/// Which addresses are of one function: by the files' symbols, otherwise by the calls that were
/// seen.
#[derive(Default)]
struct Functions {
    files: BTreeMap<Vec<u8>, ModuleSymbols>,
    /// Addresses of entries.
    seen: BTreeSet<u64>,
}

impl Functions {
    fn is_same(&mut self, mapped: &Mapped, entry: u64, code: u64) -> bool {
        let (Some(one), Some(other)) = (mapped.facts_at(entry), mapped.facts_at(code)) else { return false };
        if one.path != other.path {
            return false;
        }
        let file = self.files.entry(one.path.clone()).or_insert_with(|| {
            let path = Path::new(OsStr::from_bytes(&one.path));
            ModuleSymbols::open(&ModuleIdentity::new(path, &one.build_id), &SymbolOptions::default())
        });
        let image = |address: u64| address.wrapping_sub(one.base);
        let by_symbols = file.is_same_function(image(entry), image(code));
        by_symbols.unwrap_or_else(|| self.seen.range(..=code).next_back() == Some(&entry))
    }
}
