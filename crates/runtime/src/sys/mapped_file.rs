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
        let Some(maps) = File::open(b"/proc/self/maps\0", false) else { return MappedFile::default() };
        let mut filled = 0;
        loop {
            let free = buffer.get_mut(filled..).unwrap_or(&mut []);
            let count = maps.read(free);
            filled += count;
            let mut begin = 0;
            while let Some(length) =
                buffer.get(begin..filled).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
            {
                let line = buffer.get(begin..begin + length).unwrap_or(&[]);
                if let Some(mut file) = Self::of_line(line, address) {
                    file.path_begin += begin;
                    return file;
                }
                begin += length + 1;
            }
            if count == 0 || begin == 0 && filled == buffer.len() {
                return MappedFile::default();
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

    /// Parses `start-end perms offset major:minor inode   path`, if the range contains the address.
    fn of_line(line: &[u8], address: u64) -> Option<MappedFile> {
        let (start, rest) = number(line, 16)?;
        let (end, mut rest) = number(rest.strip_prefix(b"-")?, 16)?;
        if !(start..end).contains(&address) {
            return None;
        }
        for _ in 0..2 {
            rest = skip_field(rest)?;
        }
        let (major, rest) = number(rest.strip_prefix(b" ")?, 16)?;
        let (minor, rest) = number(rest.strip_prefix(b":")?, 16)?;
        let (inode, rest) = number(rest.strip_prefix(b" ")?, 10)?;
        let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
        // Combined as makedev(3) does.
        let device = (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32;
        let path_length = rest.len() - blanks;
        Some(MappedFile {
            device,
            inode,
            path_begin: line.len() - path_length,
            path_length: Some(path_length),
        })
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
