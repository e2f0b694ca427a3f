//! A text, line by line, in bounded memory.

use std::io::{self, BufRead};

/// Longest line that is parsed; longer ones (data) are copied.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// Processes the lines of a text.
pub(super) trait Lines {
    /// A complete line, with its end.
    fn line(&mut self, line: &[u8]) -> io::Result<()>;

    /// A part of a line that is too long to be parsed.
    fn pass(&mut self, part: &[u8]) -> io::Result<()>;

    /// The text is over.
    fn finish(self) -> io::Result<()>;
}

/// Reads a whole text and passes its lines on.
///
/// # Errors
///
/// Those of reading and writing.
pub(super) fn feed(text: &mut dyn BufRead, mut lines: impl Lines) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = io::Read::take(&mut *text, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            return lines.finish();
        }
        if line.ends_with(b"\n") || bytes < LINE_BYTES_MAX as usize {
            lines.line(&line)?;
        } else {
            lines.pass(&line)?;
            pass_rest_of_line(text, &mut lines)?;
        }
    }
}

fn pass_rest_of_line(text: &mut dyn BufRead, lines: &mut impl Lines) -> io::Result<()> {
    loop {
        let chunk = text.fill_buf()?;
        let end = memchr::memchr(b'\n', chunk);
        let bytes = end.map_or(chunk.len(), |at| at + 1);
        lines.pass(&chunk[..bytes])?;
        text.consume(bytes);
        if end.is_some() || bytes == 0 {
            return Ok(());
        }
    }
}

/// Texts of these pieces in any order, for tests.
#[cfg(test)]
pub(super) fn jumbled(pieces: &[&str]) -> impl Iterator<Item = String> {
    let mut state = 1_u32;
    (0..3000).map(move |_| {
        let mut text = String::new();
        for _ in 0..24 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text += pieces[(state >> 16) as usize % pieces.len()];
        }
        text
    })
}
