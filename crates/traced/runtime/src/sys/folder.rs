//! Folders named in environment variables, and files in them.
#![allow(unsafe_code)] // A cell that is written at the start alone.

use crate::sys::name::NAME_MAX;
use crate::sys::processes;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The most bytes of a folder's path.
pub(crate) const FOLDER_MAX: usize = 1023;

/// A folder's path. Forked children inherit it.
pub(crate) struct Folder {
    path: UnsafeCell<[u8; FOLDER_MAX + 1]>,
    length: AtomicU32,
}

// SAFETY: written only at the start, before any other thread can read it.
unsafe impl Sync for Folder {}

impl Folder {
    pub(crate) const fn new() -> Folder {
        Folder { path: UnsafeCell::new([0; FOLDER_MAX + 1]), length: AtomicU32::new(0) }
    }

    /// Remembers the path. A relative path is made absolute, because the program may change its
    /// working folder. Returns false if it isn't a path or is too long. Call it only at the start.
    pub(crate) fn set(&self, path: &[u8]) -> bool {
        self.put(path).is_some()
    }

    fn put(&self, path: &[u8]) -> Option<()> {
        // SAFETY: called only at the start.
        let buffer = unsafe { &mut *self.path.get() };
        let mut length = 0;
        if path.first() != Some(&b'/') {
            length = processes::working_folder(buffer);
            *buffer.get_mut(length).filter(|_| length > 0)? = b'/';
            length += 1;
        }
        // A slash at the end would make the kernel follow a link.
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let path = path.get(..end).filter(|path| !path.is_empty())?;
        buffer.get_mut(length..length + path.len())?.copy_from_slice(path);
        length += path.len();
        *buffer.get_mut(length)? = 0;
        self.length.store(length as u32, Relaxed);
        Some(())
    }

    /// Forgets the path.
    pub(crate) fn forget(&self) {
        self.length.store(0, Relaxed);
    }

    /// The path with a NUL, or only the NUL if there is none.
    pub(crate) fn path(&self) -> &[u8] {
        // SAFETY: written only at the start.
        let buffer = unsafe { &*self.path.get() };
        match self.length.load(Relaxed) {
            0 => b"\0",
            length => buffer.get(..=length as usize).unwrap_or(&[]),
        }
    }

    /// The path of the file with this name, which ends at its first NUL. Empty if there is no
    /// folder.
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
