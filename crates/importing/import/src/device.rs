//! Files of an emulated device with the TRACE instruction: `everycall-trace-device` has their
//! layout, and what the events say of open calls.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use everycall_format::arena::ClockReading;
use everycall_trace_device::{Change, Decoder, DeviceFile, Event, Names, OpenCalls, Place, Stamped};

use crate::error::ImportError;
use crate::input::Input;
use crate::modules::{Mapped, call, find_build, mapped_files};
use crate::output::{Code, NamesId, Output, ProcessFacts, ProcessId, ThreadId};

/// The largest file: rings of some threads.
const FILE_MAX: u64 = 4 << 30;

/// Reads a device's file.
pub(crate) fn read<W: Write>(input: &mut impl Input, out: &mut Output<W>) -> Result<(), ImportError> {
    let mut bytes = Vec::new();
    let read = input.by_ref().take(FILE_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| ImportError::Unreadable(None, error))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(ImportError::damaged(FILE_MAX, "the end of the file, 4 GiB at most, is expected here"));
    }
    let file = DeviceFile::read(&bytes)
        .map_err(|error| ImportError::damaged(error.offset as u64, error.expected))?;
    drop(bytes);
    Ids::of(&file).write(&file, out).map_err(ImportError::Unwritable)
}

/// Names of ids, which any thread may have said.
struct Ids {
    names: Names,
    codes: BTreeMap<u64, Code>,
    table: Option<NamesId>,
    /// Places in blocks that can't be decoded, and what is wrong there.
    damages: Vec<String>,
}

fn events(file: &DeviceFile, thread: usize) -> Decoder<'_> {
    let blocks = file.threads.get(thread).map(|thread| &*thread.blocks).unwrap_or_default();
    Decoder::new(file.parameters, blocks)
}

impl Ids {
    fn of(file: &DeviceFile) -> Ids {
        let mut names = Names::default();
        for thread in 0..file.threads.len() {
            for event in events(file, thread) {
                match event {
                    Ok(Stamped { event: Event::Word { value }, .. }) => names.word(value),
                    Ok(Stamped { event: Event::Lost { .. }, .. }) | Err(_) => names.cut(),
                    Ok(_) => {}
                }
            }
            names.cut();
        }
        Ids { names, codes: BTreeMap::new(), table: None, damages: Vec::new() }
    }

    fn write<W: Write>(mut self, file: &DeviceFile, out: &mut Output<W>) -> io::Result<()> {
        let command: Vec<Vec<u8>> = file
            .command
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        // An emulated program's code isn't executable for the emulator's own process.
        let maps = mapped_files(&file.maps, |_| true);
        let name = command.last().map(|word| Path::new(OsStr::from_bytes(word)));
        let name = name.and_then(Path::file_name).map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        let facts = ProcessFacts { pid: file.pid, name, command: command.clone(), ..ProcessFacts::default() };
        let process = out.process(facts)?;
        out.facts.command = command;
        let mut mapped = Mapped::new(maps);
        let mut orphans = 0;
        for (index, thread) in file.threads.iter().enumerate() {
            let id = out.thread(process, thread.tid, b"", thread.overwritten > 0);
            orphans += self.thread(file, index, (process, &mut mapped, id), out)?;
        }
        out.facts.clock = "nanoseconds of the emulator's clock".to_owned();
        if let Some((first, last)) = out.reach() {
            out.facts.readings = [first, last.max(first + 1)].into_iter().map(reading).collect();
        }
        let notes = &mut out.facts.notes;
        let overwritten: u64 = file.threads.iter().map(|thread| thread.overwritten).sum();
        if overwritten > 0 {
            notes.push(format!("{overwritten} older blocks of rings were overwritten"));
        }
        if orphans > 0 {
            notes.push(format!("{orphans} exits of calls whose entries aren't there were left out"));
        }
        notes.append(&mut self.damages);
        if file.is_cut {
            notes.push("the file's end is missing".to_owned());
        }
        Ok(())
    }

    /// Writes a thread; returns how many exits have no entry.
    fn thread<W: Write>(
        &mut self,
        file: &DeviceFile,
        index: usize,
        (process, mapped, id): (ProcessId, &mut Mapped, ThreadId),
        out: &mut Output<W>,
    ) -> io::Result<u64> {
        let mut calls = OpenCalls::default();
        let mut orphans = 0;
        for event in events(file, index) {
            let Stamped { at_ns, event } = match event {
                Ok(event) => event,
                Err(error) => {
                    self.damages.push(format!("thread {index}, {error}; the rest of the block was left out"));
                    calls = OpenCalls::default();
                    out.lose(id, None)?;
                    continue;
                }
            };
            if let Event::Lost { count } = event {
                out.lose(id, Some(count))?;
            }
            let (left, change) = calls.apply(&event);
            if left > 0 {
                out.unwound_late(id, at_ns, left as u32)?;
            }
            let (place, is_exit) = match change {
                Change::Begin(place) => (place, false),
                Change::Return(place) | Change::Jump(place) => (place, true),
                Change::Orphan => {
                    orphans += 1;
                    continue;
                }
                Change::None => continue,
            };
            let (address, code) = match place {
                Place::Code(address) => (address, mapped.locate(out, process, address, find_build)),
                Place::Id(number) => (number, Some(self.code(number, out))),
            };
            call(out, id, at_ns, (address, code), is_exit)?;
        }
        Ok(orphans)
    }

    fn code<W: Write>(&mut self, id: u64, out: &mut Output<W>) -> Code {
        if let Some(code) = self.codes.get(&id) {
            return *code;
        }
        let table = *self.table.get_or_insert_with(|| out.names(b"ids"));
        let code = match self.names.of(id) {
            Some(name) => out.name(table, name),
            None => out.name(table, format!("id {id}").as_bytes()),
        };
        self.codes.insert(id, code);
        code
    }
}

fn reading(ns: u64) -> ClockReading {
    ClockReading { ticks: ns, monotonic_raw_ns: ns, ..ClockReading::default() }
}
