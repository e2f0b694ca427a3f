//! Where the bytes come from: anything that can be read at a position.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, PoisonError};

/// Bytes that can be read at any position, by several threads at once.
pub trait ReadAt: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset` and returns how many were read; 0 at the end.
    ///
    /// # Errors
    /// The device's error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// All bytes there are.
    ///
    /// # Errors
    /// The device's error.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` with the bytes at `offset`, as far as there are any, and returns how many
    /// were read.
    ///
    /// # Errors
    /// The device's error; being interrupted is none.
    fn read_full_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            match self.read_at(at, &mut buffer[done..]) {
                Ok(0) => break,
                Ok(count) => done += count.min(buffer.len() - done),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_at(offset, buffer)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

#[cfg(unix)]
impl ReadAt for std::fs::File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buffer, offset)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buffer)
    }
    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }
}

/// Makes [`ReadAt`] of anything with `Read` and `Seek`.
#[derive(Debug)]
pub struct Seekable<R>(Mutex<R>);

impl<R: Read + Seek> Seekable<R> {
    /// Takes `inner` over.
    pub fn new(inner: R) -> Seekable<R> {
        Seekable(Mutex::new(inner))
    }
}

impl<R: Read + Seek + Send> ReadAt for Seekable<R> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.seek(SeekFrom::Start(offset))?;
        inner.read(buffer)
    }
    fn size(&self) -> io::Result<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seek(SeekFrom::End(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &dyn ReadAt) {
        let mut buffer = [0; 4];
        assert_eq!(source.read_full_at(3, &mut buffer).unwrap(), 2);
        assert_eq!(buffer[..2], [4, 5]);
        assert_eq!(source.read_full_at(5, &mut buffer).unwrap(), 0);
        assert_eq!(source.read_full_at(u64::MAX, &mut buffer).unwrap(), 0);
        assert_eq!(source.size().unwrap(), 5);
    }

    #[test]
    fn reading_stops_where_the_bytes_stop() {
        let bytes = vec![1u8, 2, 3, 4, 5];
        check(&bytes);
        check(&&bytes[..]);
        check(&Seekable::new(io::Cursor::new(bytes)));
    }
}
