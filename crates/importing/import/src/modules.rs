//! Files that were mapped into a process, and the code offsets of addresses in them.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::binary::{MapLine, base_of, facts_of, map_line};
use crate::output::{Code, ModuleFacts, Output, ProcessId, ThreadId};

/// The files in the text of `/proc/PID/maps` that are taken, for now as if addresses in them were as
/// in the files' bytes.
pub(crate) fn mapped_files(text: &[u8], is_taken: impl Fn(&MapLine<'_>) -> bool) -> Vec<ModuleFacts> {
    let lines = text.split(|byte| *byte == b'\n').filter_map(map_line);
    lines
        .filter(|map| is_taken(map) && map.path.starts_with(b"/"))
        .map(|map| ModuleFacts {
            path: map.path.to_vec(),
            base: map.start.wrapping_sub(map.offset),
            start: map.start,
            end: map.end,
            ..ModuleFacts::default()
        })
        .collect()
}

/// Finds the build id of such a file, and where it was loaded.
pub(crate) fn find_build(facts: &mut ModuleFacts) {
    let path = Path::new(OsStr::from_bytes(&facts.path));
    if let Some(file) = facts_of(path) {
        facts.build_id = file.build_id;
        facts.base = base_of(path, facts.start, facts.start.wrapping_sub(facts.base));
    }
}

/// A process's mapped files, each of which becomes a module when an address in it is met.
pub(crate) struct Mapped {
    /// By their first addresses.
    maps: Vec<Map>,
    /// The one found last.
    last: usize,
}

struct Map {
    facts: ModuleFacts,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No address in it was met.
    Unused,
    /// The code offset of its first address.
    Module(Code),
    /// The code space had no room for it.
    NoRoom,
}

impl Mapped {
    pub fn new(mut maps: Vec<ModuleFacts>) -> Mapped {
        maps.sort_by_key(|map| map.start);
        let maps = maps.into_iter().map(|facts| Map { facts, state: State::Unused }).collect();
        Mapped { maps, last: 0 }
    }

    /// The code offset of an address; `None` if no file was mapped there.
    #[inline]
    pub fn locate<W: Write>(
        &mut self,
        out: &mut Output<W>,
        process: ProcessId,
        address: u64,
        prepare: impl FnOnce(&mut ModuleFacts),
    ) -> Option<Code> {
        if let Some(map) = self.maps.get(self.last)
            && let State::Module(code) = map.state
            && (map.facts.start..map.facts.end).contains(&address)
        {
            return Some(Code(code.0 + (address - map.facts.start) as u32));
        }
        self.search(out, process, address, prepare)
    }

    /// The file that was mapped at an address.
    pub fn facts_at(&self, address: u64) -> Option<&ModuleFacts> {
        let index = self.maps.partition_point(|map| map.facts.start <= address).checked_sub(1)?;
        self.maps.get(index).map(|map| &map.facts).filter(|facts| address < facts.end)
    }

    #[cold]
    fn search<W: Write>(
        &mut self,
        out: &mut Output<W>,
        process: ProcessId,
        address: u64,
        prepare: impl FnOnce(&mut ModuleFacts),
    ) -> Option<Code> {
        let index = self.maps.partition_point(|map| map.facts.start <= address).checked_sub(1)?;
        let map = self.maps.get_mut(index)?;
        if address >= map.facts.end {
            return None;
        }
        if map.state == State::Unused {
            prepare(&mut map.facts);
            let facts = ModuleFacts { image: map.facts.image.take(), ..map.facts.clone() };
            map.state = out.module(process, facts).map_or(State::NoRoom, State::Module);
        }
        let State::Module(code) = map.state else { return None };
        self.last = index;
        Some(Code(code.0 + (address - map.facts.start) as u32))
    }
}

/// Writes an entry or exit at a place that may be in no module.
#[inline]
pub(crate) fn call<W: Write>(
    out: &mut Output<W>,
    thread: ThreadId,
    ticks: u64,
    (address, code): (u64, Option<Code>),
    is_exit: bool,
) -> io::Result<()> {
    match (code, is_exit) {
        (Some(code), false) => out.entry(thread, ticks, code),
        (Some(code), true) => out.exit(thread, ticks, code),
        (None, _) => out.unknown(thread, ticks, address, is_exit),
    }
}
