//! Lines of text on the timeline.

use std::fmt::{self, Write};

use crate::runtime::{self, LINE_MAX};

/// Puts a line of text at this moment: `everycall::line(format_args!("worker {id} starts"))`. Its
/// first 480 bytes are kept. Nothing is formatted where there is no runtime or tracing is off.
///
/// For frequent events, prefer an [`instant`](crate::instant()), which formats nothing.
#[inline]
pub fn line(text: fmt::Arguments<'_>) {
    if runtime::is_on() {
        write(text);
    }
}

#[cold]
fn write(text: fmt::Arguments<'_>) {
    if let Some(text) = text.as_str() {
        return runtime::line(text.as_bytes());
    }
    let mut line = Line::default();
    // Text that doesn't fit is left out.
    let _ = line.write_fmt(text);
    line.put();
}

/// A line that is written piece by piece.
pub(crate) struct Line {
    bytes: [u8; LINE_MAX],
    length: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line { bytes: [0; LINE_MAX], length: 0 }
    }
}

impl Line {
    pub(crate) fn put(&self) {
        runtime::line(self.bytes.get(..self.length).unwrap_or_default());
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = self.bytes.get_mut(self.length..).unwrap_or_default();
        let fits = text.len().min(free.len());
        free.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte);
        self.length += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_what_has_room() {
        let mut line = Line::default();
        assert!(write!(line, "{} é", 7).is_ok());
        assert_eq!(&line.bytes[..line.length], "7 é".as_bytes());
        assert!(line.write_str(&"x".repeat(1000)).is_err());
        assert_eq!((line.length, line.bytes[LINE_MAX - 1]), (LINE_MAX, b'x'));
        line.put();
    }
}
