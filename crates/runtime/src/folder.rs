//! Folders that the environment names, and names of files in them.

use crate::{file, system};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bytes of a folder's path, at most.
pub(crate) const FOLDER_MAX: usize = 1023;
/// Bytes of a file's name, with the NUL.
pub(crate) const NAME_MAX: usize = 64;

/// A folder's path, for the process and for its children.
pub(crate) struct Folder {
    path: UnsafeCell<[u8; FOLDER_MAX + 1]>,
    length: AtomicU32,
}

// SAFETY: written at the start alone, before there is anybody else to read it.
unsafe impl Sync for Folder {}

impl Folder {
    pub(crate) const fn new() -> Folder {
        Folder { path: UnsafeCell::new([0; FOLDER_MAX + 1]), length: AtomicU32::new(0) }
    }

    /// Remembers the path; a relative one is made absolute, as the program may go elsewhere. For the start alone. False where it is no
    /// path or too long.
    pub(crate) fn set(&self, path: &[u8]) -> bool {
        self.put(path).is_some()
    }

    fn put(&self, path: &[u8]) -> Option<()> {
        // SAFETY: called at the start alone.
        let buffer = unsafe { &mut *self.path.get() };
        let mut length = 0;
        if path.first() != Some(&b'/') {
            length = file::working_folder(buffer);
            *buffer.get_mut(length).filter(|_| length > 0)? = b'/';
            length += 1;
        }
        // With a slash behind it, a link would be followed.
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let path = path.get(..end).filter(|path| !path.is_empty())?;
        buffer.get_mut(length..length + path.len())?.copy_from_slice(path);
        length += path.len();
        *buffer.get_mut(length)? = 0;
        self.length.store(length as u32, Relaxed);
        Some(())
    }

    /// Forgets it.
    pub(crate) fn forget(&self) {
        self.length.store(0, Relaxed);
    }

    /// The path with a NUL; that alone where there is none.
    pub(crate) fn path(&self) -> &[u8] {
        // SAFETY: written at the start alone.
        let buffer = unsafe { &*self.path.get() };
        match self.length.load(Relaxed) {
            0 => b"\0",
            length => buffer.get(..=length as usize).unwrap_or(&[]),
        }
    }

    /// The path of the file that has this name, which ends at its first NUL; nothing where there is no folder.
    pub(crate) fn path_of(&self, name: &[u8]) -> FilePath {
        let mut path = FilePath { bytes: [0; FOLDER_MAX + 1 + NAME_MAX], length: 0 };
        if self.length.load(Relaxed) == 0 {
            return path;
        }
        for part in [self.path(), b"/", name] {
            for byte in part.iter().take_while(|byte| **byte != 0) {
                if let Some(place) = path.bytes.get_mut(path.length) {
                    *place = *byte;
                    path.length += 1;
                }
            }
        }
        path
    }
}

/// The path of a file in a folder.
pub(crate) struct FilePath {
    bytes: [u8; FOLDER_MAX + 1 + NAME_MAX],
    length: usize,
}

impl FilePath {
    /// With its NUL.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.get(..=self.length).unwrap_or(&[])
    }
}

/// A file's name that is put together.
#[derive(Clone)]
pub(crate) struct Name {
    bytes: [u8; NAME_MAX],
    length: usize,
}

impl Name {
    /// Nothing yet.
    pub(crate) fn empty() -> Name {
        Name { bytes: [0; NAME_MAX], length: 0 }
    }

    /// The process's name and id, as in `app-1234`.
    pub(crate) fn of_process() -> Name {
        let mut name = Name::empty();
        for byte in system::process_name().into_iter().take_while(|byte| *byte != 0) {
            let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | 0x80..);
            // None begins with a dot, which would hide it.
            name.put(&[if is_plain && (byte != b'.' || name.length > 0) { byte } else { b'_' }]);
        }
        name.put(b"-");
        name.put_number(system::process_id());
        name
    }

    /// Whether nothing was put into it.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends; the NUL at the end stays.
    pub(crate) fn put(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(place) = self.bytes.get_mut(self.length).filter(|_| self.length + 1 < NAME_MAX) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    pub(crate) fn put_number(&mut self, number: u32) {
        let mut unit = 1_000_000_000;
        while unit > 0 {
            if number >= unit || unit == 1 {
                self.put(&[b'0' + (number / unit % 10) as u8]);
            }
            unit /= 10;
        }
    }

    /// With its NUL.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.get(..=self.length).unwrap_or(&[])
    }

    /// The same, padded with NULs.
    pub(crate) fn bytes(&self) -> [u8; NAME_MAX] {
        self.bytes
    }
}
