//! Lines of `perf-PID.map`: the code of a just-in-time compiler at an address, and its id as a
//! frame.
//!
//! Lines are only added, and the last one of an address counts. What was found for an address is
//! remembered with the number of lines that were there, so each line is looked at once for each
//! address.
#![allow(unsafe_code)] // Tables that are mapped here.

use crate::sys::block::Block;
use everycall_format::frame::IDS;

/// Most lines.
const LINES: usize = 1 << 18;
/// Most addresses; a power of two. The table has twice as many places.
const ADDRESSES: usize = 1 << 15;
const PLACES: usize = 2 * ADDRESSES;
/// Ids that code gets: the last ones.
const FIRST_ID: u32 = IDS - ADDRESSES as u32;

/// [`Line::file`] of a line whose file isn't known any more.
const NO_FILE: u32 = u32::MAX;

/// Where the name of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamePlace {
    /// Which file.
    pub(crate) file: u32,
    /// Its first byte.
    pub(crate) offset: u64,
}

/// Code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No line says what it is.
    Nothing,
    /// It has this id.
    Id(u32),
    /// It has no id yet: the line with this number says what it is called.
    Unnamed(u32, NamePlace),
}

/// A line. Zero: `id` isn't given.
#[repr(C)]
#[derive(Clone, Copy)]
struct Line {
    start: u64,
    size: u64,
    offset: u64,
    file: u32,
    id: u32,
}

/// The cached result for an address; `address` is 0 in a free place.
#[repr(C)]
#[derive(Clone, Copy)]
struct CachedLine {
    address: u64,
    /// How many lines were looked at.
    lines: u32,
    /// The last one of these that is about the address, from 1; 0 for none.
    line: u32,
}

/// All lines. It takes memory when the first one is added.
pub(crate) struct CodeLog {
    tables: Option<Block>,
    lines: u32,
    addresses: u32,
    ids: u32,
    /// Lines for which there was no room, or that made no sense.
    pub(crate) lost: u64,
}

impl CodeLog {
    pub(crate) const fn new() -> CodeLog {
        CodeLog { tables: None, lines: 0, addresses: 0, ids: 0, lost: 0 }
    }

    fn tables(&mut self) -> Option<(&mut [Line], &mut [CachedLine])> {
        if self.tables.is_none() {
            self.tables = Block::new((LINES * size_of::<Line>() + PLACES * size_of::<CachedLine>()) as u64);
        }
        let base = self.tables.as_mut()?.bytes_mut().as_mut_ptr();
        // SAFETY: mapped with room for both, aligned to a page; zeros are valid.
        unsafe {
            let known = base.wrapping_add(LINES * size_of::<Line>()).cast();
            let lines = core::slice::from_raw_parts_mut(base.cast(), LINES);
            Some((lines, core::slice::from_raw_parts_mut(known, PLACES)))
        }
    }

    /// Adds a line `START SIZE NAME`, which begins at `offset` of a file. Lines that name ids are
    /// no code.
    pub(crate) fn add(&mut self, file: u32, offset: u64, text: &[u8]) {
        let at = self.lines as usize;
        let is_there = parse(text).is_some_and(|(start, size, name)| {
            let offset = offset + name as u64;
            start < u64::from(IDS)
                || self.tables().and_then(|(lines, _)| lines.get_mut(at)).is_some_and(|line| {
                    *line = Line { start, size, offset, file, id: 0 };
                    true
                }) && {
                    self.lines += 1;
                    true
                }
        });
        self.lost += u64::from(!is_there);
    }

    /// The code at an address.
    pub(crate) fn find(&mut self, address: u64) -> Found {
        let (count, has_room) = (self.lines, (self.addresses as usize) < ADDRESSES);
        if count == 0 {
            return Found::Nothing;
        }
        let Some((lines, places)) = self.tables() else { return Found::Nothing };
        let mut place = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let (known, is_new) = loop {
            place %= PLACES;
            match places.get_mut(place) {
                Some(known) if known.address == address => break (known, false),
                Some(known) if known.address == 0 => break (known, true),
                Some(_) => place += 1,
                None => return Found::Nothing,
            }
        };
        if is_new && !has_room {
            return Found::Nothing;
        }
        known.address = address;
        let not_seen = lines.get(known.lines as usize..count as usize).unwrap_or_default();
        let is_its = |line: &Line| address.wrapping_sub(line.start) < line.size.max(1);
        if let Some(index) = not_seen.iter().rposition(is_its) {
            known.line = known.lines + index as u32 + 1;
        }
        known.lines = count;
        let number = known.line;
        self.addresses += u32::from(is_new);
        let Some(index) = number.checked_sub(1) else { return Found::Nothing };
        let line = self.tables().and_then(|(lines, _)| lines.get(index as usize).copied());
        match line {
            Some(Line { id: id @ 1.., .. }) => Found::Id(id),
            Some(Line { file: NO_FILE, .. }) => Found::Nothing,
            Some(Line { file, offset, .. }) => Found::Unnamed(index, NamePlace { file, offset }),
            None => Found::Nothing,
        }
    }

    /// Gives a line an id. `None` if there are no more.
    pub(crate) fn give_id(&mut self, line: u32) -> Option<u32> {
        let id = IDS.checked_sub(self.ids + 1).filter(|id| *id >= FIRST_ID)?;
        self.tables().and_then(|(lines, _)| lines.get_mut(line as usize))?.id = id;
        self.ids += 1;
        Some(id)
    }

    /// A file was begun anew, or isn't known any more: names can't be read there. Code that has an
    /// id keeps it.
    pub(crate) fn forget(&mut self, file: u32) {
        self.each_line(|line| {
            if line.file == file {
                line.file = NO_FILE;
            }
        });
    }

    /// In a forked child, whose own file is the second one: what its parent's was is the first one.
    pub(crate) fn begin_child(&mut self) {
        self.forget(0);
        self.each_line(|line| {
            if line.file == 1 {
                line.file = 0;
            }
        });
    }

    fn each_line(&mut self, change: impl FnMut(&mut Line)) {
        let count = self.lines as usize;
        if count > 0
            && let Some((lines, _)) = self.tables()
        {
            lines.iter_mut().take(count).for_each(change);
        }
    }
}

/// Start, size, and where the name begins.
fn parse(line: &[u8]) -> Option<(u64, u64, usize)> {
    let mut at = 0;
    let mut number = || {
        let word = line.get(at..)?;
        let word = word.get(..word.iter().position(u8::is_ascii_whitespace)?)?;
        at += word.len();
        at += line.get(at..)?.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let digits = word.strip_prefix(b"0x").unwrap_or(word);
        let digit = |number: u64, byte: &u8| {
            let digit = (*byte as char).to_digit(16)?;
            (number >> 60 == 0).then_some(number << 4 | u64::from(digit))
        };
        if digits.is_empty() { None } else { digits.iter().try_fold(0, digit) }
    };
    let (start, size) = (number()?, number()?);
    let is_sound = at < line.len() && start.checked_add(size).is_some();
    is_sound.then_some((start, size, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_an_address_counts() {
        let mut log = CodeLog::new();
        assert_eq!(log.find(0x7000_0000), Found::Nothing);
        log.add(1, 100, b"70000000 20 fib app.js");
        log.add(1, 200, b"0x70000020 0x10 add");
        let place = |offset| NamePlace { file: 1, offset };
        assert_eq!(log.find(0x7000_0008), Found::Unnamed(0, place(112)));
        assert_eq!(log.give_id(0), Some(IDS - 1));
        // Another address in it is the same function.
        assert_eq!([0x7000_0008, 0x7000_001f].map(|at| log.find(at)), [Found::Id(IDS - 1); 2]);
        assert_eq!(log.find(0x7000_0020), Found::Unnamed(1, place(216)));
        assert_eq!(log.find(0x7000_0030), Found::Nothing);
        log.add(1, 300, b"70000000 10 other");
        log.add(1, 400, b"70000030 10 later");
        assert_eq!(log.find(0x7000_0008), Found::Unnamed(2, place(312)));
        assert_eq!(log.find(0x7000_001f), Found::Id(IDS - 1));
        assert_eq!(log.find(0x7000_0030), Found::Unnamed(3, place(412)));
        log.begin_child();
        assert_eq!(log.find(0x7000_0030), Found::Unnamed(3, NamePlace { file: 0, offset: 412 }));
        log.forget(0);
        assert_eq!([0x7000_0030, 0x7000_001f].map(|at| log.find(at)), [Found::Nothing, Found::Id(IDS - 1)]);
    }

    #[test]
    fn other_lines_are_counted_and_ids_are_no_code() {
        let mut log = CodeLog::new();
        for line in [&b""[..], b"hello", b"70000000 20", b"70000000 20 ", b"+7 1 x", b"ffffffffffffffff 2 x"]
        {
            log.add(1, 0, line);
        }
        log.add(1, 0, b"11222333444555666 1 too long");
        assert_eq!(log.lost, 7);
        log.add(1, 0, b"11 1 an id");
        assert_eq!((log.lost, log.lines), (7, 0));
    }

    #[test]
    fn what_finds_no_room_is_nothing() {
        let mut log = CodeLog::new();
        log.add(1, 0, b"70000000 10000000 everything");
        for address in 0..ADDRESSES as u64 {
            assert_eq!(log.find(0x7000_0000 + address), Found::Unnamed(0, NamePlace { file: 1, offset: 18 }));
        }
        assert_eq!(log.find(0x7fff_0000), Found::Nothing);
        let mut ids = 0;
        while log.give_id(0).is_some() {
            ids += 1;
        }
        assert_eq!(ids, ADDRESSES);
        for _ in 0..LINES {
            log.add(1, 0, b"70000000 10 one");
        }
        assert_eq!(log.lost, 1);
    }
}
