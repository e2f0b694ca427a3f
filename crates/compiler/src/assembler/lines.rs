//! A text, line by line, in bounded memory.

use std::io::{self, BufRead};

/// Longest line that is looked at; longer ones (data) are passed on.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// What is done with a text's lines.
pub(super) trait Lines {
    /// A whole line, with its end.
    fn line(&mut self, line: &[u8]) -> io::Result<()>;

    /// Part of a line that is too long to be looked at.
    fn pass(&mut self, part: &[u8]) -> io::Result<()>;

    /// The text is over.
    fn finish(self) -> io::Result<()>;
}

/// Hands a whole text over.
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
