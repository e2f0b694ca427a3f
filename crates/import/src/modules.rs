//! Files that were mapped into a process, and the code offsets of addresses in them.

use std::io::{self, Write};

use crate::output::{Code, ModuleFacts, Output, ProcessId, ThreadId};

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
