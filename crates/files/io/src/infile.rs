//! Inputs that are named: by the user, by an environment variable, or by another file.
//!
//! Only regular files are read. Whoever made the folder may have put a FIFO there, which would be
//! waited for, or a link to a device, which has no end. Whoever is asked for a small file reads at
//! most so much.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. A FIFO doesn't block, a terminal isn't acquired.
///
/// # Errors
///
/// Those of the system, and `InvalidInput` if it isn't a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Asked before opening too: opening some devices has effects.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// The bytes of a regular file of at most `most` bytes.
///
/// # Errors
///
/// As [`open`], and `FileTooLarge` if it has more.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The size that the system reports may be zero, as in /proc.
    open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {most} bytes, the most that is read"),
        ));
    }
    Ok(bytes)
}

/// A text of at most `most` bytes, of a regular file.
///
/// # Errors
///
/// As [`read`], and `InvalidData` if it isn't UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it isn't UTF-8"))
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_only_so_much() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for other in [fifo.as_path(), Path::new("/dev/zero"), Path::new("/dev/null"), folder.path()] {
            assert_eq!(open(other).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{other:?}");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "four").unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"four");
        assert_eq!(read(&file, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read_text(Path::new("/proc/self/status"), 1 << 20).unwrap().contains("Uid:"));
        std::fs::write(&file, b"\xff").unwrap();
        assert_eq!(read_text(&file, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
