//! XRay's logs (versions 1 to 5 of the file): a header of 32 bytes, then records.
//!
//! | offset | size | header |
//! |---|---|---|
//! | 0 | 2 | version |
//! | 2 | 2 | type: 0 basic, 1 FDR |
//! | 4 | 4 | bit 0 the counter's rate is constant, bit 1 it never stops |
//! | 8 | 8 | counter's rate, per second; 0 if it isn't known |
//! | 16 | 16 | FDR: bytes of a buffer |
//!
//! Functions have numbers, from 1, by the tables of the program that wrote the log. A log of
//! several objects has the object's number in the upper bits; the others' functions have no names
//! here.

mod basic;
mod fdr;
mod log;
mod tables;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use rustc_hash::FxHashMap;

use crate::error::ImportError;
use crate::input::{ImportOptions, Input};
use crate::output::Output;

use self::log::{HEADER, Header, Log, fill};
use tables::xray_binary;
pub use tables::{FoundBinary, binary_of_log};

/// The highest version of the file that is known.
const VERSION_MAX: u16 = 5;
/// Reads a log.
pub(crate) fn read<W: Write>(
    input: &mut impl Input,
    options: &ImportOptions,
    out: &mut Output<W>,
) -> Result<(), ImportError> {
    let mut bytes = [0; HEADER];
    let read = fill(input, &mut bytes).map_err(|error| ImportError::Unreadable(None, error))?;
    if read < HEADER {
        return Err(ImportError::damaged(read as u64, "XRay's header of 32 bytes is incomplete"));
    }
    let header = Header::of(&bytes);
    if header.version == 0 || header.version > VERSION_MAX {
        return Err(ImportError::Version(format!(
            "is an XRay log of version {}; versions 1 to {VERSION_MAX} are known",
            header.version
        )));
    }
    let binary = options.binary.as_deref().map(xray_binary).transpose()?;
    let path =
        options.binary.as_deref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let path = path.as_deref().map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    let mut log = Log {
        header,
        binary,
        path,
        processes: BTreeMap::new(),
        threads: FxHashMap::default(),
        names: None,
        numbers: FxHashMap::default(),
        unknown: 0,
    };
    match header.kind {
        0 => basic::read(input, &mut log, out)?,
        1 => fdr::read(input, &mut log, out)?,
        other => {
            return Err(ImportError::Version(format!(
                "is an XRay log of type {other}; known are 0 (basic) and 1 (FDR)"
            )));
        }
    }
    log.finish(out);
    Ok(())
}
