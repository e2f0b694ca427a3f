//! A program's file: its build id, and where it was loaded. And the texts in which tools name files
//! and addresses.

use std::path::Path;

use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSegment};

/// Facts of a program's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileFacts {
    pub build_id: Vec<u8>,
    /// It is loaded at the addresses that it states.
    pub is_fixed: bool,
}

/// Facts of the file at `path`; `None` if it isn't a program or library.
pub(crate) fn facts_of(path: &Path) -> Option<FileFacts> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let cache = ReadCache::new(everycall_io::infile::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    Some(FileFacts {
        build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(),
        is_fixed: file.kind() == object::ObjectKind::Executable && !is_position_independent(&file),
    })
}

/// `object` takes programs that can be loaded anywhere for executables, too.
fn is_position_independent<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> bool {
    matches!(file.flags(), object::FileFlags::Elf { .. })
        && file.segments().map(|segment| segment.address()).min().unwrap_or(0) < 0x1000
}

/// Bytes of hexadecimal digits; ends at the first other character.
pub(crate) fn hex(text: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> =
        text.iter().map_while(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8).collect();
    digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect()
}

/// A hexadecimal number, with or without `0x`; ends at the first other character.
pub(crate) fn hex_number(text: &[u8]) -> u64 {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let digits = text.iter().map_while(|byte| char::from(*byte).to_digit(16));
    digits.fold(0, |number: u64, digit| number << 4 | u64::from(digit))
}

/// A line of `/proc/PID/maps`, or like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapLine<'l> {
    pub start: u64,
    pub end: u64,
    pub is_executable: bool,
    /// In the file.
    pub offset: u64,
    pub path: &'l [u8],
}

/// Reads such a line; `None` if it is none.
pub(crate) fn map_line(line: &[u8]) -> Option<MapLine<'_>> {
    let mut rest = line.trim_ascii_start();
    let mut word = || {
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind.trim_ascii_start();
        word
    };
    let (range, permissions, offset) = (word(), word(), word());
    word();
    word();
    let dash = memchr::memchr(b'-', range)?;
    let (start, end) = (hex_number(range.get(..dash)?), hex_number(range.get(dash + 1..)?));
    let is_executable = permissions.get(2) == Some(&b'x');
    (start < end).then_some(MapLine {
        start,
        end,
        is_executable,
        offset: hex_number(offset),
        path: rest.trim_ascii_end(),
    })
}

/// Load bias of the file at `path`, of which the bytes from `offset` on are mapped at `start`: what
/// its headers say, or that addresses in it are as in the file's bytes.
pub(crate) fn base_of(path: &Path, start: u64, offset: u64) -> u64 {
    let found = || {
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let cache = ReadCache::new(everycall_io::infile::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let mut segments = file.segments().map(|segment| (segment.file_range(), segment.address()));
        let ((at, _), address) =
            segments.find(|((at, size), _)| (*at & !0xfff..at.saturating_add(*size)).contains(&offset))?;
        Some(start.wrapping_sub(address.wrapping_add(offset.wrapping_sub(at))))
    };
    found().unwrap_or_else(|| start.wrapping_sub(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_lines() {
        let line = map_line(b"56473e905000-56473e90a000 r-xp 00001000 00:00 0     /tmp/my app").unwrap();
        let wanted = MapLine {
            start: 0x5647_3e90_5000,
            end: 0x5647_3e90_a000,
            is_executable: true,
            offset: 0x1000,
            path: b"/tmp/my app",
        };
        assert_eq!(line, wanted);
        assert_eq!(map_line(b""), None);
        assert_eq!(map_line(b"9-1 r-xp"), None);
        assert_eq!((hex(b"0aFf0"), hex_number(b"0x1fz")), (vec![0x0a, 0xff], 0x1f));
    }
}
