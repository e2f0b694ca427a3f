//! The program to start: its path, its file, and why it may not start.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::sys::error::RecordError;

/// A program to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program, found along `PATH` unless there is a slash in it.
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// Shared objects to load into it: the runtime, for programs that carry none, and others.
    pub preload: Vec<PathBuf>,
    /// A shared object to load before all others, also before those that are preloaded already.
    pub first: Option<PathBuf>,
    /// File names of those of these objects that record something. Processes without them are
    /// counted.
    pub recording: Vec<Vec<u8>>,
    /// Environment variables that it gets besides those of this process.
    pub environment: Vec<(&'static str, OsString)>,
}

impl Launch {
    /// The value of `LD_PRELOAD` that loads them.
    pub(crate) fn preloads(&self) -> Option<OsString> {
        let ours = (!self.preload.is_empty()).then(|| with_present_preloads(&self.preload));
        let Some(first) = &self.first else { return ours };
        let rest = ours.unwrap_or_else(|| with_present_preloads(&[]));
        let all = [first.as_os_str(), &rest].into_iter().filter(|part| !part.is_empty());
        Some(all.collect::<Vec<_>>().join(OsStr::new(":")))
    }

    /// Why the program wasn't started.
    pub(crate) fn explain(&self, source: io::Error) -> RecordError {
        let program = self.program.clone();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {
                let exists = program.as_encoded_bytes().contains(&b'/') && Path::new(&program).exists();
                RecordError::NotFound { program, exists }
            }
            Some(
                libc::EACCES
                | libc::ENOEXEC
                | libc::EISDIR
                | libc::ELIBBAD
                | libc::ETXTBSY
                | libc::EPERM
                | libc::ELOOP,
            ) => RecordError::NotExecutable { program, source },
            _ => RecordError::System { attempt: "start the program", source },
        }
    }
}

/// The file that `start` is going to execute: the one that a name with a slash leads to, else the
/// first one of that name along `PATH` that may be executed. `None` where there is no such file.
#[must_use]
pub fn find_program(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| access(path, Access::EXEC_OK).is_ok() && path.is_file();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

/// Libraries preloaded already stay in front: sanitizers insist on being first.
fn with_present_preloads(ours: &[PathBuf]) -> OsString {
    let present = std::env::var_os("LD_PRELOAD").filter(|present| !present.is_empty());
    let all = present.iter().map(OsString::as_os_str).chain(ours.iter().map(|path| path.as_os_str()));
    all.collect::<Vec<_>>().join(OsStr::new(":"))
}
