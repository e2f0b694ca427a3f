//! Sets of functions that programs read, and that grow as they load libraries: of `--only`, and of
//! `--args`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use everycall_format::arena::ModuleEntry;
use everycall_patterns::FunctionTable;
use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use rustix::io::{DupFlags, dup3};

use crate::exit_code;
use crate::failure::Failure;

/// A set in an unnamed file.
pub struct OpenSet(OwnedFd);

impl OpenSet {
    /// A set with these bytes.
    pub fn new(bytes: &[u8]) -> Result<OpenSet, Failure> {
        let failed = |error| {
            Failure::new(exit_code::NOT_RECORDED, format!("no memory for the functions to record: {error}"))
        };
        OpenSet::file(bytes).map(OpenSet).map_err(failed)
    }

    fn file(bytes: &[u8]) -> io::Result<OwnedFd> {
        let file = memfd_create("everycall-selection", MemfdFlags::CLOEXEC)?;
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(bytes)?;
        Ok(file.into())
    }

    /// The path at which the program opens it.
    pub fn path(&self) -> OsString {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Puts other bytes at the same path. Whoever opens it gets either the old or the new ones.
    pub fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let new = OpenSet::file(bytes)?;
        Ok(dup3(&new, &mut self.0, DupFlags::CLOEXEC)?)
    }
}

/// The path and the functions of a module that a process has loaded, if its build id isn't `known`
/// yet. `open` reads its file.
pub fn new_table(
    known: &mut HashSet<Vec<u8>>,
    (module, path, file): (&ModuleEntry, &[u8], Option<&File>),
    open: impl FnOnce(&Path) -> Option<FunctionTable>,
) -> Option<(PathBuf, FunctionTable)> {
    let build_id = module.build_id.get(..module.build_id_length as usize).unwrap_or_default();
    if build_id.is_empty() || !known.insert(build_id.to_vec()) {
        return None;
    }
    // By its descriptor: the path may name another file by now, or a file of another process.
    let named = PathBuf::from(OsStr::from_bytes(path));
    let opened = file.map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let table = open(opened.as_deref().unwrap_or(&named))?;
    (table.build_id() == build_id).then_some((named, table))
}
