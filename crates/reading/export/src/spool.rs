//! Columns that are written one after the other, although their items come row by row.
//!
//! Items that don't fit into a small buffer wait in a file without a name, so that memory stays
//! bounded.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use crate::json::put_number;
use crate::portions::Portions;

/// Bytes of a column in memory.
const BUFFER: usize = 256 << 10;

/// A JSON array in the making.
#[derive(Default)]
pub(crate) struct Spool {
    bytes: Vec<u8>,
    file: Option<File>,
    failure: Option<io::Error>,
    /// Items so far.
    pub(crate) items: u64,
}

impl Spool {
    /// The place for the next item's bytes.
    #[inline]
    pub(crate) fn item(&mut self) -> &mut Vec<u8> {
        if self.bytes.len() >= BUFFER {
            self.set_aside();
        }
        if self.items > 0 {
            self.bytes.push(b',');
        }
        self.items += 1;
        &mut self.bytes
    }

    /// A number as the next item.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) {
        put_number(self.item(), number);
    }

    #[cold]
    fn set_aside(&mut self) {
        let file = match self.file.take().map_or_else(tempfile::tempfile, Ok) {
            Ok(file) => self.file.insert(file),
            Err(error) => {
                self.failure.get_or_insert(error);
                self.bytes.clear();
                return;
            }
        };
        if let Err(error) = file.write_all(&self.bytes) {
            self.failure.get_or_insert(error);
        }
        self.bytes.clear();
    }

    /// Writes the array, and begins a new one.
    ///
    /// # Errors
    ///
    /// Those of `out`, and those of the folder for temporary files.
    pub(crate) fn finish(&mut self, out: &mut Portions<'_>) -> io::Result<()> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        out.put(b"[");
        if let Some(mut file) = self.file.take() {
            file.rewind()?;
            let mut part = vec![0; BUFFER];
            loop {
                match file.read(&mut part)? {
                    0 => break,
                    length => out.put(part.get(..length).unwrap_or_default()),
                }
                out.spill()?;
            }
        }
        out.put(&self.bytes);
        out.put(b"]");
        self.bytes.clear();
        self.items = 0;
        out.spill()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arrays_come_back_whole() {
        for count in [0, 1, 3, 300_000] {
            let mut spool = Spool::default();
            (0..count).for_each(|number| spool.number(number));
            assert!(spool.bytes.len() < 2 * BUFFER);
            let mut bytes = Vec::new();
            let mut out = Portions::new(&mut bytes);
            spool.finish(&mut out).unwrap();
            out.finish().unwrap();
            let numbers: Vec<u64> = serde_json::from_slice(&bytes).unwrap();
            assert!(numbers.into_iter().eq(0..count));
            assert_eq!(spool.items, 0);
        }
    }
}
