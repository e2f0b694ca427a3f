//! Why something can't be imported.

use std::fmt;
use std::io;

/// Why something can't be imported. `Display` describes the problem; the caller adds the path.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// A file can't be read; its name, if it is a part of the input.
    Unreadable(Option<String>, io::Error),
    /// The output can't be written.
    Unwritable(io::Error),
    /// There is nothing in it.
    Empty,
    /// Its format isn't known. What it looks like, if that is known.
    Unknown(Option<&'static str>),
    /// The format isn't that of such files, or this version of it isn't known.
    Version(String),
    /// Bytes at this offset don't make sense, and nothing before them is of use.
    Damaged {
        /// The file's name, if it is a part of the input.
        file: Option<String>,
        /// In bytes from its beginning, decompressed.
        offset: u64,
        /// The expected content.
        reason: &'static str,
    },
    /// The given binary can't be used.
    Binary(String),
}

impl ImportError {
    /// Bytes at this offset of the file that was named don't make sense.
    pub(crate) fn damaged(offset: u64, reason: &'static str) -> ImportError {
        ImportError::Damaged { file: None, offset, reason }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part =
            |file: &Option<String>| file.as_ref().map(|file| format!("{file} in it ")).unwrap_or_default();
        match self {
            ImportError::Unreadable(file, error) => write!(out, "{}can't be read: {error}", part(file)),
            ImportError::Unwritable(error) => write!(out, "{error}"),
            ImportError::Empty => out.write_str("is empty: there is nothing to import"),
            ImportError::Unknown(None) => out.write_str("is of no format that can be imported"),
            ImportError::Unknown(Some(what)) => write!(out, "is {what}"),
            ImportError::Version(what) => out.write_str(what),
            ImportError::Damaged { file, offset, reason } => {
                write!(out, "{}is damaged at byte {offset}: {reason}", part(file))
            }
            ImportError::Binary(what) => out.write_str(what),
        }
    }
}

impl std::error::Error for ImportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ImportError::Unreadable(_, error) | ImportError::Unwritable(error) => Some(error),
            _ => None,
        }
    }
}
