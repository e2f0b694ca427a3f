//! Removes what LLVM says about listed functions that are not in the part of a crate it works on.
//!
//! LLVM writes such a line in three pieces, and several of its threads do so at once; pieces are
//! whole, lines may not be. rustc's own lines come between them, in one piece each.

use std::io::{self, Read, Write};

const BEFORE: &[u8] = b"Function in CSV file at line ";
const BEHIND: &[u8] = b" does not exist.\n";

/// Copies everything else from `input` to `out`, as soon as it is known to be something else.
///
/// # Errors
/// Those of reading and writing.
pub(super) fn remove(input: &mut dyn Read, out: &mut dyn Write) -> io::Result<()> {
    let mut filter = Filter::default();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = match input.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        filter.waiting.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let done = filter.look(read == 0, out)?;
        filter.waiting.drain(..done);
        if read == 0 {
            return Ok(());
        }
        out.flush()?;
    }
}

#[derive(Default)]
struct Filter {
    /// Bytes that were not decided about yet.
    waiting: Vec<u8>,
    /// Numbers of lines that are still to come.
    numbers: usize,
    /// Whether a line of something else has begun.
    is_within: bool,
}

impl Filter {
    /// Returns how many bytes have been decided about.
    fn look(&mut self, is_end: bool, out: &mut dyn Write) -> io::Result<usize> {
        let mut at = 0;
        while let Some(rest) = self.waiting.get(at..).filter(|rest| !rest.is_empty()) {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if rest.starts_with(BEFORE) {
                self.numbers += 1;
                at += BEFORE.len();
            } else if rest.starts_with(BEHIND) {
                at += BEHIND.len();
            } else if !is_end
                && (BEFORE.starts_with(rest) || BEHIND.starts_with(rest) || digits == rest.len())
            {
                // It may become one of these.
                break;
            } else if digits > 0 && self.numbers > 0 && !self.is_within {
                self.numbers -= 1;
                at += digits;
            } else {
                let line = rest.get(..else_length(rest)).unwrap_or(rest);
                self.is_within = line.last() != Some(&b'\n');
                out.write_all(line)?;
                at += line.len();
            }
        }
        Ok(at)
    }
}

/// How far something else goes: to the line's end, or to a piece of LLVM's.
fn else_length(rest: &[u8]) -> usize {
    let line = memchr::memchr(b'\n', rest).map_or(rest, |end| rest.get(..=end).unwrap_or(rest));
    let pieces = [BEFORE, BEHIND].into_iter().filter_map(|piece| memchr::memmem::find(line, piece));
    pieces.min().unwrap_or(line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte, or a few, at a time.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len());
            let (now, later) = self.0.split_at(length);
            into[..length].copy_from_slice(now);
            self.0 = later;
            Ok(length)
        }
    }

    #[test]
    fn only_whole_pieces_of_llvms_are_removed() {
        let text = "Function in CSV file at line 12 does not exist.\n\
            {\"a\":1}\n\
            Function in CSV file at line Function in CSV file at line 34 does not exist.\n\
            {\"reason\":\"x\"}\n\
            5 does not exist.\n\
            Function in CSV file at line 1Function in CSV file at line 2 does not exist.\n does not exist.\n\
            Function in a file\n doesn't exist. Really\nlast";
        for at_once in [1, 2, 7, 1000] {
            let mut out = Vec::new();
            remove(&mut Slowly(text.as_bytes(), at_once), &mut out).unwrap();
            assert_eq!(
                String::from_utf8(out).unwrap(),
                "{\"a\":1}\n{\"reason\":\"x\"}\nFunction in a file\n doesn't exist. Really\nlast",
                "{at_once}"
            );
        }
    }
}
