//! Output that appears under its name only when it is whole.
//!
//! ```text
//! create("app.json")   a file without a name (O_TMPFILE) in the same folder,
//!                      or `.app.json.PID-N.tmp` where the file system has no such files
//! write ...
//! finish()             fsync, then rename over app.json
//! drop                 nothing stays behind
//! ```
//!
//! A file that is useful before it is complete gets its name earlier, by [`OutFile::publish`], and
//! keeps it.
//!
//! Anything but a regular file (`-`, `/dev/null`, a FIFO, a socket, anything below `/dev` and
//! `/proc`) can't be replaced by a rename: it is written directly. A symbolic link stays, and its
//! target is replaced.
//!
//! Only files that everycall wrote are replaced ([`crate::ours`]), unless the user wants it
//! otherwise. The last recording stays as `NAME.old`.
//!
//! It doesn't buffer: wrap it in a [`std::io::BufWriter`], and flush that before
//! [`OutFile::finish`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};

use crate::ours;
use crate::terminal::{self, Escapes, Filter};

/// Mode of files that anyone may read; the process's umask takes bits away.
pub const MODE_SHARED: u32 = 0o644;
/// Mode of files for the owner alone.
pub const MODE_PRIVATE: u32 = 0o600;

/// The name of standard output in messages.
const STDOUT: &str = "standard output";

/// How many symbolic links are followed from one name; as many as the kernel does.
const LINKS_MAX: usize = 40;

/// How an existing file that has the output's name is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// It is replaced even if everycall didn't write it.
    pub is_forced: bool,
    /// It is renamed to `NAME.old`, as it can't be made again.
    pub is_kept: bool,
}

/// Why an existing file isn't replaced.
const NOT_OURS: &str =
    "it exists, and everycall didn't write it; name another file, or replace this one with --force";

/// An output that doesn't appear before it is complete.
#[derive(Debug)]
pub struct OutFile {
    /// For messages.
    shown: PathBuf,
    target: Target,
    existing: Existing,
}

#[derive(Debug)]
enum Target {
    /// Written in place.
    Direct(File),
    Stdout(Filter<io::Stdout>),
    /// Under its name already.
    Live(File),
    /// Renamed at the end.
    Replaced {
        file: File,
        temporary: Option<Temporary>,
        final_path: PathBuf,
    },
}

/// A name that is removed unless it was given away.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// An attempt on an output file that failed.
#[derive(Debug)]
pub struct OutFileError {
    /// As the user wrote it.
    pub path: PathBuf,
    /// The attempt, as in "can't *create*".
    pub attempt: &'static str,
    /// The reason.
    pub source: io::Error,
}

impl OutFileError {
    /// Whether the reader at the other end has gone, which is not an error.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe
    }
}

impl std::fmt::Display for OutFileError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        write!(out, "can't {} {path}: {}", self.attempt, self.source)?;
        out.write_str(match self.source.kind() {
            io::ErrorKind::NotFound => "; the folder must exist: create it or name another one",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; choose a folder that you may write to"
            }
            io::ErrorKind::IsADirectory => "; name a file in it",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; free some space or choose another disk"
            }
            io::ErrorKind::FileTooLarge => "; raise the limit (ulimit -f) or ask for less",
            _ => "",
        })
    }
}

impl std::error::Error for OutFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<OutFileError> for io::Error {
    fn from(error: OutFileError) -> io::Error {
        io::Error::new(error.source.kind(), error)
    }
}

impl OutFile {
    /// Opens the output that `path` names; `-` is standard output. `mode` is [`MODE_SHARED`] or
    /// [`MODE_PRIVATE`]; a file that is already there gets it too, when it is replaced.
    ///
    /// # Errors
    ///
    /// The folder doesn't exist or can't be written to, `path` is a folder, or a file that mustn't
    /// be replaced.
    pub fn create(path: &Path, mode: u32, existing: Existing) -> Result<OutFile, OutFileError> {
        let target = Target::open(path, mode, existing).map_err(|source| error(path, "write to", source))?;
        let shown = if let Target::Stdout(_) = target { Path::new(STDOUT) } else { path };
        Ok(OutFile { shown: shown.to_owned(), target, existing })
    }

    /// Opens an output whose name the user has not chosen: an entry that another user may have put
    /// there is left alone.
    ///
    /// # Errors
    ///
    /// As with [`OutFile::create`], and if there is a symbolic link or anything but a regular file
    /// under that name.
    pub fn create_by_default(path: &Path, mode: u32, existing: Existing) -> Result<OutFile, OutFileError> {
        let refused = |reason: &str| Err(error(path, "write to", io::Error::other(reason)));
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_symlink() => {
                return refused(
                    "it is a symbolic link, which isn't followed unless it was asked for; name the file with -o",
                );
            }
            Ok(there) if !there.is_file() && !there.is_dir() => {
                return refused("it isn't a regular file; name the file with -o");
            }
            _ => {}
        }
        let mut file = OutFile::create(path, mode, existing)?;
        // A pipe or device that came meanwhile would get the output.
        if let Target::Direct(_) = file.target {
            return refused("it isn't a regular file; name the file with -o");
        }
        // A link that came meanwhile is replaced.
        if let Target::Replaced { final_path, .. } = &mut file.target {
            path.clone_into(final_path);
        }
        Ok(file)
    }

    /// Makes the file appear under its name now, with the bytes written so far, because it is
    /// useful before it is complete, such as one that grows for hours. It stays there whatever
    /// happens.
    ///
    /// # Errors
    ///
    /// The file system failed. The earlier file of this name still exists then.
    pub fn publish(&mut self) -> Result<(), OutFileError> {
        if let Target::Replaced { file, temporary, final_path } = &mut self.target {
            let live = file.try_clone().and_then(|live| {
                move_to(file, temporary.take(), final_path, self.existing)?;
                Ok(Target::Live(live))
            });
            self.target = live.map_err(|source| error(&self.shown, "write to", source))?;
        }
        Ok(())
    }

    /// The file's name in messages: as the user wrote it, or "standard output".
    #[must_use]
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// The output is JSON, if it is written to a terminal.
    #[must_use]
    pub fn as_json(mut self) -> OutFile {
        if let Target::Stdout(stdout) = &mut self.target {
            stdout.set_escapes(Escapes::Json);
        }
        self
    }

    /// Whether bytes are visible as they are written, as in a pipe.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        !matches!(self.target, Target::Replaced { .. })
    }

    /// Makes the file appear under its name, with all that was written.
    ///
    /// # Errors
    ///
    /// The disk is full, the file system failed, or the reader of a pipe has gone. The temporary
    /// file is removed, and the earlier file of this name still exists.
    pub fn finish(self) -> Result<(), OutFileError> {
        let result = match self.target {
            Target::Direct(mut file) => file.flush(),
            // Delayed allocation may find only now that the disk is full.
            Target::Live(file) => file.sync_all().inspect(|()| ours::mark(&file)),
            Target::Stdout(mut stdout) => stdout.flush(),
            Target::Replaced { file, temporary, final_path } => {
                replace(&file, temporary, &final_path, self.existing)
            }
        };
        result.map_err(|source| error(&self.shown, "finish", source))
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.target {
            Target::Direct(file) | Target::Live(file) | Target::Replaced { file, .. } => file.write(bytes),
            Target::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Direct(file) | Target::Live(file) | Target::Replaced { file, .. } => file.flush(),
            Target::Stdout(stdout) => stdout.flush(),
        }
    }
}

impl Target {
    fn open(path: &Path, mode: u32, existing: Existing) -> io::Result<Target> {
        if ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path.as_os_str() == *name) {
            return Ok(Target::Stdout(terminal::stdout(Escapes::Text)));
        }
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() || is_system_path(path) => {
                return OpenOptions::new().write(true).open(path).map(Target::Direct);
            }
            // A file that its owner protected isn't replaced behind their back.
            Ok(there) => {
                drop(OpenOptions::new().write(true).open(path)?);
                if !may_replace(&there, folder_of(&follow_links(path)?)) {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                if !existing.is_forced && !ours::is_ours(path) {
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, NOT_OURS));
                }
            }
            // A rename onto such a name would fail at the end.
            Err(_) if names_a_folder(path) => return Err(io::ErrorKind::IsADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let final_path = follow_links(path)?;
        match unnamed(folder_of(&final_path), mode) {
            Ok(file) => Ok(Target::Replaced { file, temporary: None, final_path }),
            // Old file systems report unsupported operations in several ways; a real error occurs
            // again here.
            Err(_) => {
                let (file, temporary) = create_temporary(&final_path, |temporary| {
                    OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)
                })?;
                Ok(Target::Replaced { file, temporary: Some(temporary), final_path })
            }
        }
    }
}

/// Whether the kernel lets us put another file in the place of this one: in a sticky folder that is
/// its owner's and the folder's matter. Else it would be found out at the end.
fn may_replace(there: &fs::Metadata, folder: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(folder).map_or(true, |folder| {
        folder.mode() & STICKY == 0 || user == 0 || [there.uid(), folder.uid()].contains(&user)
    })
}

/// Gives the file that has this name another one, if it has to stay: `NAME.old`, in place of an
/// earlier one that everycall wrote.
fn set_aside(path: &Path, existing: Existing) -> io::Result<()> {
    if !fs::symlink_metadata(path).is_ok_and(|there| there.is_file() && there.len() > 0) {
        return Ok(());
    }
    // A file of others came while this one was written.
    let stays = if ours::is_ours(path) { existing.is_kept } else { !existing.is_forced };
    if !stays {
        return Ok(());
    }
    let named = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let mut old = named(".old");
    if fs::symlink_metadata(&old).is_ok() && !ours::is_own_file(&old) {
        old = named(&format!(".old-{}", std::process::id()));
    }
    fs::rename(path, old)
}

fn replace(
    file: &File,
    temporary: Option<Temporary>,
    final_path: &Path,
    existing: Existing,
) -> io::Result<()> {
    // Delayed allocation may find only now that the disk is full.
    file.sync_all()?;
    ours::mark(file);
    move_to(file, temporary, final_path, existing)?;
    // Without this, a power failure may undo the rename; a folder that can't be synced is not an
    // error.
    if let Ok(folder) = File::open(folder_of(final_path)) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Gives `file` its name.
fn move_to(
    file: &File,
    temporary: Option<Temporary>,
    final_path: &Path,
    existing: Existing,
) -> io::Result<()> {
    let temporary = match temporary {
        Some(temporary) => temporary,
        // A link can't replace a name, so the file gets a passing one first.
        None => {
            let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
            let link = |name: &Path| Ok(linkat(CWD, &*unnamed, CWD, name, AtFlags::SYMLINK_FOLLOW)?);
            create_temporary(final_path, link)?.1
        }
    };
    set_aside(final_path, existing)?;
    fs::rename(&temporary.0, final_path)?;
    std::mem::forget(temporary);
    Ok(())
}

fn unnamed(folder: &Path, mode: u32) -> io::Result<File> {
    let flags = i32::try_from(OFlags::TMPFILE.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new().write(true).mode(mode).custom_flags(flags).open(folder)?;
    // Without /proc it could never get a name.
    fs::symlink_metadata(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(file)
}

/// Calls `make` with hidden names beside `final_path` until one is free.
fn create_temporary<T>(
    final_path: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, Temporary)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // File names have at most 255 bytes, and the suffix needs some of them.
    let name = final_path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(48).collect();
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = folder_of(final_path).join(format!(".{name}.{}-{count}.tmp", std::process::id()));
        match make(&temporary) {
            Ok(made) => return Ok((made, Temporary(temporary))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Where `path` leads to, which need not be there yet.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(next) => path = folder_of(&path).join(next),
            Err(_) if path.file_name().is_none() => return Err(io::ErrorKind::InvalidFilename.into()),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// The folder of `path`: `.` for a plain name.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Whether only a folder can have this name, as `out/`.
fn names_a_folder(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    [&b"/"[..], b"/."].iter().any(|end| name.ends_with(end))
}

fn is_system_path(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm") || path.starts_with("/proc")
}

fn error(path: &Path, attempt: &'static str, source: io::Error) -> OutFileError {
    OutFileError { path: path.to_owned(), attempt, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of file systems that have no unnamed files.
    #[test]
    fn named_temporaries_are_renamed_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let final_path = folder.path().join("out");
        let make = || {
            let open = |name: &Path| OpenOptions::new().write(true).create_new(true).open(name);
            create_temporary(&final_path, open).unwrap()
        };
        let count = || fs::read_dir(folder.path()).unwrap().count();

        let given_up = make();
        assert_eq!(count(), 1);
        drop(given_up);
        assert_eq!(count(), 0);

        let (mut file, temporary) = make();
        file.write_all(b"whole").unwrap();
        replace(&file, Some(temporary), &final_path, Existing::default()).unwrap();
        assert_eq!(fs::read(&final_path).unwrap(), b"whole");
        assert_eq!(count(), 1);
    }
}
