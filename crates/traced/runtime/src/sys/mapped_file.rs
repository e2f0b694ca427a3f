//! The file that is mapped at an address, from `/proc/self/maps`.

use crate::sys::file::File;

/// A file that is mapped somewhere.
#[derive(Default)]
pub(crate) struct MappedFile {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Where the path begins in the buffer.
    path_begin: usize,
    path_length: Option<usize>,
}

impl MappedFile {
    /// The path. `buffer` is the buffer that was passed to [`at`](MappedFile::at).
    pub(crate) fn path<'a>(&self, buffer: &'a [u8]) -> Option<&'a [u8]> {
        let length = self.path_length.filter(|length| *length > 0)?;
        buffer.get(self.path_begin..self.path_begin + length)
    }

    /// The file mapped at `address`. Its path stays in the buffer.
    pub(crate) fn at(address: u64, buffer: &mut [u8]) -> MappedFile {
        let mut found = MappedFile::default();
        each_line(buffer, |line, begin| {
            let Some(mut file) = Self::of_line(line, address) else { return false };
            file.path_begin += begin;
            found = file;
            true
        });
        found
    }

    /// Where the beginning of the file is mapped whose code is mapped at `address`: its ELF header,
    /// if it is an object.
    pub(crate) fn header_of(address: u64, buffer: &mut [u8]) -> Option<u64> {
        // Device, inode and address of the file whose beginning was mapped last.
        let mut last = None;
        let mut found = None;
        each_line(buffer, |line, _| {
            let Some(mapping) = Mapping::of_line(line) else { return false };
            let is_read = mapping.protection.first() == Some(&b'r');
            if mapping.offset == 0 && is_read && mapping.inode != 0 {
                last = Some((mapping.device, mapping.inode, mapping.start));
            }
            let is_there = (mapping.start..mapping.end).contains(&address);
            if is_there && mapping.protection.get(2) == Some(&b'x') {
                let of_file = |last: &(u64, u64, u64)| (last.0, last.1) == (mapping.device, mapping.inode);
                found = last.filter(of_file).map(|(.., start)| start);
            }
            is_there
        });
        found
    }

    /// The file of a line, if its range contains the address.
    fn of_line(line: &[u8], address: u64) -> Option<MappedFile> {
        let mapping = Mapping::of_line(line)?;
        (mapping.start..mapping.end).contains(&address).then(|| MappedFile {
            device: mapping.device,
            inode: mapping.inode,
            path_begin: line.len() - mapping.path_length,
            path_length: Some(mapping.path_length),
        })
    }
}

/// Passes the lines of `/proc/self/maps` with their places in the buffer to `is_last`, until it
/// returns true.
fn each_line(buffer: &mut [u8], mut is_last: impl FnMut(&[u8], usize) -> bool) {
    let Some(maps) = File::open(b"/proc/self/maps\0", false) else { return };
    let mut filled = 0;
    loop {
        let free = buffer.get_mut(filled..).unwrap_or(&mut []);
        let count = maps.read(free);
        filled += count;
        let mut begin = 0;
        while let Some(length) =
            buffer.get(begin..filled).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        {
            if is_last(buffer.get(begin..begin + length).unwrap_or(&[]), begin) {
                return;
            }
            begin += length + 1;
        }
        if count == 0 || begin == 0 && filled == buffer.len() {
            return;
        }
        // Moves the rest of a line to the front.
        for place in begin..filled {
            if let Some(byte) = buffer.get(place).copied()
                && let Some(front) = buffer.get_mut(place - begin)
            {
                *front = byte;
            }
        }
        filled -= begin;
    }
}

/// A line of `/proc/self/maps`.
struct Mapping<'a> {
    start: u64,
    end: u64,
    protection: &'a [u8],
    offset: u64,
    device: u64,
    inode: u64,
    /// The path ends the line.
    path_length: usize,
}

impl Mapping<'_> {
    /// Parses `start-end perms offset major:minor inode   path`.
    fn of_line(line: &[u8]) -> Option<Mapping<'_>> {
        let (start, rest) = number(line, 16)?;
        let (end, rest) = number(rest.strip_prefix(b"-")?, 16)?;
        let protection = rest.strip_prefix(b" ")?;
        let rest = skip_field(rest)?;
        let (offset, rest) = number(rest.strip_prefix(b" ")?, 16)?;
        let (major, rest) = number(rest.strip_prefix(b" ")?, 16)?;
        let (minor, rest) = number(rest.strip_prefix(b":")?, 16)?;
        let (inode, rest) = number(rest.strip_prefix(b" ")?, 10)?;
        let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
        // Combined as makedev(3) does.
        let device = (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32;
        Some(Mapping { start, end, protection, offset, device, inode, path_length: rest.len() - blanks })
    }
}

/// Skips a blank and the field after it.
fn skip_field(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b" ")?;
    text.get(text.iter().position(|byte| *byte == b' ')?..)
}

/// A number at the beginning of a text, and the text after it.
fn number(text: &[u8], radix: u32) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut count = 0;
    for byte in text {
        let Some(digit) = (*byte as char).to_digit(radix) else { break };
        value = value.wrapping_mul(radix.into()).wrapping_add(digit.into());
        count += 1;
    }
    (count > 0).then(|| (value, text.get(count..).unwrap_or(&[])))
}
