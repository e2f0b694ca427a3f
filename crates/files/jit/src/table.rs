//! The code at each address over time.

use std::collections::BTreeMap;

/// [`Code::replaced`] of code that is there until the end.
pub const FOREVER: u64 = u64::MAX;
/// Most codes that are kept.
const CODES_MAX: usize = 1 << 20;
/// Most bytes of names and paths that are kept.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a name, and of a path; what is longer is truncated.
const TEXT_MAX: usize = 1024;

/// A range of code, and the time in which it was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Its first address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// From when on it was there, in ticks; 0 if that isn't known.
    pub loaded: u64,
    /// When other code replaced it, in ticks, or [`FOREVER`].
    pub replaced: u64,
    /// Its name, at most 1,024 bytes.
    pub name: Vec<u8>,
    /// Path of the file that defines it; empty if it isn't known.
    pub file: Vec<u8>,
    /// The line there, from 1; 0 if it isn't known.
    pub line: u32,
}

impl Code {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.size)
    }

    fn text_bytes(&self) -> usize {
        self.name.len() + self.file.len()
    }
}

/// Codes in the order in which they were loaded. Code that is loaded replaces whatever was in its
/// range.
#[derive(Clone, Debug, Default)]
pub struct Table {
    codes: Vec<Code>,
    /// Those that weren't replaced, by their first address. They don't overlap.
    current: BTreeMap<u64, usize>,
    text_bytes: usize,
    /// Codes beyond the table's limits, and invalid lines or records.
    pub lost: u64,
}

impl Table {
    /// Adds code. Its [`Code::replaced`] isn't looked at.
    pub fn load(&mut self, mut code: Code) {
        code.size = code.size.max(1);
        code.name.truncate(TEXT_MAX);
        code.file.truncate(TEXT_MAX);
        code.replaced = FOREVER;
        if code.name.is_empty() || code.start.checked_add(code.size).is_none() {
            self.lost += 1;
            return;
        }
        let mut free = None;
        for index in self.remove(code.start, code.end()) {
            if let Some(old) = self.codes.get_mut(index) {
                old.replaced = code.loaded;
                if old.replaced <= old.loaded {
                    // Its lifetime is empty.
                    self.text_bytes -= old.text_bytes();
                    *old = Code::default();
                    free = Some(index);
                }
            }
        }
        let has_room = free.is_some() || self.codes.len() < CODES_MAX;
        if !has_room || self.text_bytes + code.text_bytes() > TEXT_BYTES_MAX {
            self.lost += 1;
            return;
        }
        self.text_bytes += code.text_bytes();
        let start = code.start;
        let index = if let Some((index, place)) =
            free.and_then(|index| self.codes.get_mut(index).map(|place| (index, place)))
        {
            *place = code;
            index
        } else {
            self.codes.push(code);
            self.codes.len() - 1
        };
        self.current.insert(start, index);
    }

    /// The code at an address moves to another one.
    pub fn relocate(&mut self, from: u64, to: u64, size: u64, ticks: u64) {
        let Some(&index) = self.current.get(&from) else {
            self.lost += 1;
            return;
        };
        if let Some(old) = self.codes.get_mut(index) {
            old.replaced = ticks;
            let moved = Code { start: to, size, loaded: ticks, ..old.clone() };
            self.current.remove(&from);
            self.load(moved);
        }
    }

    /// Takes the codes that overlap a range out of the current ones.
    fn remove(&mut self, start: u64, end: u64) -> Vec<usize> {
        let overlaps =
            |&(_, index): &(&u64, &usize)| self.codes.get(*index).is_some_and(|code| code.end() > start);
        let found: Vec<(u64, usize)> =
            self.current.range(..end).rev().take_while(overlaps).map(|(at, index)| (*at, *index)).collect();
        found
            .into_iter()
            .map(|(at, index)| {
                self.current.remove(&at);
                index
            })
            .collect()
    }

    /// The codes, and how many were lost.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Code>, u64) {
        self.codes.retain(|code| code.size > 0 && code.loaded < code.replaced);
        (self.codes, self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(start: u64, size: u64, loaded: u64, name: &str) -> Code {
        Code { start, size, loaded, name: name.into(), ..Code::default() }
    }

    fn shown(table: Table) -> Vec<(u64, u64, u64, String)> {
        let (codes, _) = table.finish();
        let text =
            |code: Code| (code.start, code.loaded, code.replaced, String::from_utf8(code.name).unwrap());
        codes.into_iter().map(text).collect()
    }

    #[test]
    fn later_code_replaces_what_it_overlaps() {
        let mut table = Table::default();
        table.load(code(0x1000, 0x100, 10, "a"));
        table.load(code(0x1100, 0x100, 10, "b"));
        table.load(code(0x1200, 0x100, 10, "c"));
        table.load(code(0x1080, 0x100, 20, "d"));
        let expected = [
            (0x1000, 10, 20, "a".into()),
            (0x1100, 10, 20, "b".into()),
            (0x1200, 10, FOREVER, "c".into()),
            (0x1080, 20, FOREVER, "d".into()),
        ];
        assert_eq!(shown(table), expected);
    }

    #[test]
    fn without_times_the_last_one_is_kept() {
        let mut table = Table::default();
        for number in 0..3 {
            table.load(code(0x1000, 0x10, 0, &format!("old{number}")));
        }
        table.load(code(0xff0, 0x1000, 0, "new"));
        assert_eq!(table.codes.len(), 1);
        assert_eq!(shown(table), [(0xff0, 0, FOREVER, "new".into())]);
    }

    #[test]
    fn code_that_moves_keeps_its_name() {
        let mut table = Table::default();
        table.load(code(0x1000, 0x10, 5, "a"));
        table.relocate(0x1000, 0x2000, 0x10, 9);
        table.relocate(0x1000, 0x3000, 0x10, 10);
        assert_eq!(table.lost, 1);
        assert_eq!(shown(table), [(0x1000, 5, 9, "a".into()), (0x2000, 9, FOREVER, "a".into())]);
    }

    #[test]
    fn what_makes_no_sense_is_counted() {
        let mut table = Table::default();
        table.load(code(u64::MAX, 2, 0, "behind the end"));
        table.load(code(0x1000, 2, 0, ""));
        table.load(code(0x1000, 0, 0, "empty"));
        assert_eq!(table.lost, 2);
        let (codes, lost) = table.finish();
        assert_eq!((codes[0].size, codes.len(), lost), (1, 1, 2));
    }

    #[test]
    fn names_are_cut_and_bounded() {
        let mut table = Table::default();
        let long = "x".repeat(2000);
        for number in 0..70_000 {
            table.load(code(0x1000 + 16 * number, 16, 0, &long));
        }
        assert!(table.text_bytes <= TEXT_BYTES_MAX);
        let (codes, lost) = table.finish();
        assert_eq!(codes[0].name.len(), TEXT_MAX);
        assert_eq!((codes.len(), lost), (65_536, 70_000 - 65_536));
    }
}
