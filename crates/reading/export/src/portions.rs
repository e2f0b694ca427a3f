//! Buffered output in large portions.

use std::io::{self, Write};

const PORTION: usize = 256 << 10;

/// Collects bytes and writes them when there are many.
pub(crate) struct Portions<'a> {
    pub(crate) bytes: Vec<u8>,
    out: &'a mut dyn Write,
}

impl<'a> Portions<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Portions { bytes: Vec::with_capacity(PORTION + PORTION / 4), out }
    }

    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Called between items: writes if a portion is complete.
    #[inline]
    pub(crate) fn spill(&mut self) -> io::Result<()> {
        if self.bytes.len() >= PORTION { self.write_out() } else { Ok(()) }
    }

    #[cold]
    fn write_out(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// Writes the remaining bytes.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.out.flush()
    }
}
