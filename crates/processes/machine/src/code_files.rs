//! The files by which just-in-time compilers tell perf the names of their code: `perf-PID.map` in
//! the process's `/tmp`, and the jitdump file, which the process has mapped with the right to
//! execute.
//!
//! A map is opened when names are wanted, a jitdump file as soon as it is found, because its path
//! is unknown once the process has ended. Whoever may write to `/tmp` can leave files there for
//! others: like perf, this reads regular files of the process's user, of root, and its own.

use std::fs::{File, Metadata};
use std::io::{BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use everycall_format::arena::ClockReading;
use everycall_format::frame::IDS;
use everycall_jit::{Code, Table, jitdump, perf_map, ticks_of_monotonic};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::proc_files;

/// Where maps are.
const FOLDER: &str = "/tmp";
/// Bytes of a process's `maps` that are looked at.
const MAPS_MAX: u64 = 16 << 20;
/// Time between the first two searches for a jitdump file.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest time between two searches.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The pause after a search is at least this multiple of its duration.
const PAUSE_SHARE: u32 = 50;
/// How much later than a process's newest event a file that it has left may have been written.
const LATER_MAX: Duration = Duration::from_secs(1);
/// How much earlier than the begin of tracing, as clocks of files are coarse.
const EARLIER_MAX: Duration = Duration::from_millis(20);
/// Forefathers whose code a forked process may have.
const FOREFATHERS_MAX: usize = 8;

/// Which names are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSet {
    /// All.
    All,
    /// Those of frames by id: the ids are what the map has in place of addresses.
    Ids,
}

/// The names of a process's code.
#[derive(Clone, Debug, Default)]
pub struct CodeNames {
    /// Ranges of code with their names and times.
    pub codes: Vec<Code>,
    /// Lines and records that made no sense or for which there was no room.
    pub lost: u64,
    /// Sentences about files that were not read.
    pub warnings: Vec<String>,
}

/// A process that has ended, and may have left files.
#[derive(Clone, Copy, Debug)]
pub struct EndedProcess {
    /// Its id, in its own namespace.
    pub pid: u32,
    /// The process that it was forked from; 0 for none.
    pub forked_from: u32,
    /// Its user.
    pub user: u32,
    /// When its tracing began.
    pub begin: SystemTime,
    /// Its newest event.
    pub end: SystemTime,
}

/// The files of one process, and of those that it was forked from.
#[derive(Clone, Debug)]
pub struct CodeFiles {
    /// Those that it was forked from first, itself last.
    processes: Vec<ProcessFiles>,
}

#[derive(Clone, Debug)]
struct ProcessFiles {
    pid: u32,
    /// Its number in its own namespace.
    own_pid: u32,
    /// Its effective user.
    user: u32,
    /// Its `/tmp`, if that isn't ours.
    folder: Option<std::sync::Arc<OwnedFd>>,
    /// Its jitdump file.
    dump: Option<(PathBuf, std::sync::Arc<File>)>,
    /// When its files were last written, if it may be known only by that that they are its own.
    written: Option<(SystemTime, SystemTime)>,
    search_due: Instant,
    pause: Duration,
}

impl CodeFiles {
    /// The files of process `pid`, which was forked from one with the files `parent`, if any.
    #[must_use]
    pub fn new(pid: u32, parent: Option<&CodeFiles>) -> CodeFiles {
        let mut processes = parent.map_or_else(Vec::new, |parent| parent.processes.clone());
        processes.drain(..processes.len().saturating_sub(FOREFATHERS_MAX));
        processes.push(ProcessFiles::new(pid));
        CodeFiles { processes }
    }

    /// The files that a process has left. Later processes with its id may have replaced them, so
    /// only those are read that were last written while it ran.
    #[must_use]
    pub fn left(process: &EndedProcess) -> CodeFiles {
        let one = |pid, begin| ProcessFiles {
            pid,
            own_pid: pid,
            user: process.user,
            folder: None,
            dump: None,
            written: Some((begin, process.end + LATER_MAX)),
            search_due: Instant::now(),
            pause: PAUSE_MIN,
        };
        let parent = Some(process.forked_from).filter(|pid| *pid != 0);
        // When that one began isn't known.
        let parent = parent.map(|pid| one(pid, SystemTime::UNIX_EPOCH));
        let begin = process.begin.checked_sub(EARLIER_MAX).unwrap_or(process.begin);
        CodeFiles { processes: parent.into_iter().chain([one(process.pid, begin)]).collect() }
    }

    /// Searches for the jitdump file, if it is time. The process still lives.
    pub fn look(&mut self) {
        if let Some(own) = self.processes.last_mut()
            && own.dump.is_none()
            && own.search_due <= Instant::now()
        {
            own.search();
        }
    }

    /// Reads the names. `None` if there are none, nor files that could not be read. `readings`
    /// convert times.
    #[must_use]
    pub fn read(&self, wanted: NameSet, readings: &[ClockReading]) -> Option<CodeNames> {
        let mut table = Table::default();
        let mut warnings = Vec::new();
        let mut seen: Vec<(u64, u64)> = Vec::new();
        for process in &self.processes {
            process.read_map(&mut table, &mut warnings);
            if wanted == NameSet::All {
                process.read_dump(&mut table, readings, &mut seen, &mut warnings);
            }
        }
        let (mut codes, lost) = table.finish();
        if wanted == NameSet::Ids {
            codes.retain(|code| code.start < u64::from(IDS));
        }
        let is_any = !codes.is_empty() || !warnings.is_empty() || lost > 0 && wanted == NameSet::All;
        is_any.then_some(CodeNames { codes, lost, warnings })
    }
}

impl ProcessFiles {
    fn new(pid: u32) -> ProcessFiles {
        let status = proc_files::status(pid);
        let theirs = open_folder(&format!("/proc/{pid}/root{FOLDER}"));
        let is_ours = || {
            let stat = |folder: &OwnedFd| rustix::fs::fstat(folder).map(|stat| (stat.st_dev, stat.st_ino));
            let ours = open_folder(FOLDER)?;
            Some(stat(theirs.as_ref()?).ok()? == stat(&ours).ok()?)
        };
        let is_ours = is_ours() != Some(false);
        ProcessFiles {
            pid,
            own_pid: status.map_or(pid, |status| status.own_pid),
            user: status.map_or_else(own_user, |status| status.user),
            folder: theirs.filter(|_| !is_ours).map(std::sync::Arc::new),
            dump: None,
            written: None,
            search_due: Instant::now(),
            pause: PAUSE_MIN,
        }
    }

    /// Searches its mappings for a jitdump file.
    fn search(&mut self) {
        let begin = Instant::now();
        if let Ok(mut maps) = File::open(format!("/proc/{}/maps", self.pid)) {
            let mut bytes = Vec::new();
            let _ = maps.by_ref().take(MAPS_MAX).read_to_end(&mut bytes);
            if let Some(path) = bytes.split(|byte| *byte == b'\n').find_map(mapped_dump) {
                let there = PathBuf::from(format!("/proc/{}/root{}", self.pid, path.display()));
                if let Ok(Some(file)) = self.open(None, &there) {
                    self.dump = Some((path, std::sync::Arc::new(file)));
                }
            }
        }
        self.pause = (self.pause * 2).max(begin.elapsed() * PAUSE_SHARE).clamp(PAUSE_MIN, PAUSE_MAX);
        self.search_due = Instant::now() + self.pause;
    }

    fn read_map(&self, table: &mut Table, warnings: &mut Vec<String>) {
        let name = format!("perf-{}.map", self.own_pid);
        let (folder, path) = match &self.folder {
            Some(folder) => (Some(&**folder), PathBuf::from(&name)),
            None => (None, Path::new(FOLDER).join(&name)),
        };
        let read = |file| perf_map::read(BufReader::new(file), table).map_err(|error| error.to_string());
        if let Err(why) = self.open(folder, &path).and_then(|file| file.map_or(Ok(()), read)) {
            warnings.push(not_read(&Path::new(FOLDER).join(name), &why));
        }
    }

    fn read_dump(
        &self,
        table: &mut Table,
        readings: &[ClockReading],
        seen: &mut Vec<(u64, u64)>,
        warnings: &mut Vec<String>,
    ) {
        let Some((path, file)) = self.dump.clone().or_else(|| self.dump_left()) else { return };
        let identity = file.metadata().map_or((0, 0), |data| (data.dev(), data.ino()));
        if seen.contains(&identity) {
            return;
        }
        seen.push(identity);
        let ticks = |of, time| match of {
            jitdump::Clock::Ticks => time,
            jitdump::Clock::Monotonic => ticks_of_monotonic(readings, time),
        };
        // Threads may have the file open at another place.
        let again = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*file)));
        let done = again.map_err(jitdump::Error::from).and_then(|file| jitdump::read(file, table, &ticks));
        if let Err(error) = done {
            warnings.push(not_read(&path, &error.to_string()));
        }
    }

    /// The jitdump file of a process that has ended, where compilers put it by default: in the
    /// folder in which the process began, or where maps are.
    fn dump_left(&self) -> Option<(PathBuf, std::sync::Arc<File>)> {
        let name = format!("jit-{}.dump", self.own_pid);
        [Path::new("."), Path::new(FOLDER)].iter().find_map(|folder| {
            let path = folder.join(&name);
            let file = self.open(None, &path).ok()??;
            Some((path, std::sync::Arc::new(file)))
        })
    }

    /// Opens a file that may be someone else's trap. `None` if there is none; `Err` says what is
    /// wrong with it.
    fn open(&self, folder: Option<&OwnedFd>, path: &Path) -> Result<Option<File>, String> {
        let Some((file, data)) = open_of(folder, path, self.user)? else { return Ok(None) };
        self.check(&data).map(|()| Some(file))
    }

    fn check(&self, data: &Metadata) -> Result<(), String> {
        let written = data.modified().map_err(|error| error.to_string())?;
        match self.written {
            Some((from, _)) if written < from => Err("it was written before the process ran".to_owned()),
            Some((_, to)) if written > to => Err("it was written after the process's last call".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Opens a file with names of code that anyone may have put there: a regular one of this process's
/// user or of root. `None` if there is none.
///
/// # Errors
///
/// A sentence that says what is wrong with it.
pub fn open_code_file(path: &Path) -> Result<Option<(File, Metadata)>, String> {
    open_of(None, path, own_user())
}

/// Opens a regular file of this user, of root or of our own user.
fn open_of(folder: Option<&OwnedFd>, path: &Path, user: u32) -> Result<Option<(File, Metadata)>, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match folder {
        Some(folder) => openat(folder, path, flags, Mode::empty()),
        None => openat(CWD, path, flags, Mode::empty()),
    };
    let file = match opened {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => return Err("it is a symbolic link".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let data = file.metadata().map_err(|error| error.to_string())?;
    if !data.is_file() {
        return Err("it is no regular file".to_owned());
    }
    match data.uid() {
        its if its == user || its == 0 || its == own_user() => Ok(Some((file, data))),
        other => Err(format!("it belongs to user {other}, and the program to user {user}")),
    }
}

fn not_read(path: &Path, why: &str) -> String {
    format!("the names of code in {} were not read: {why}", path.display())
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn open_folder(path: &str) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).ok()
}

/// The path in a line of `maps`, if it is that of a jitdump file which was mapped with the right to
/// execute: that is how compilers tell perf of it.
fn mapped_dump(line: &[u8]) -> Option<PathBuf> {
    let line = str::from_utf8(line).ok()?;
    let mut fields = line.splitn(6, ' ');
    let may_execute = fields.nth(1)?.as_bytes().get(2) == Some(&b'x');
    let path = Path::new(fields.nth(3)?.trim_start());
    let digits = path.file_name()?.to_str()?.strip_prefix("jit-")?.strip_suffix(".dump")?;
    let is_dump = may_execute && !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    (is_dump && path.is_absolute()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mapped_dumps_are_found() {
        let dump = |line: &str| mapped_dump(line.as_bytes());
        let line = "7f0000000000-7f0000001000 r-xp 00000000 00:2f 1234                     /a b/jit-77.dump";
        assert_eq!(dump(line), Some("/a b/jit-77.dump".into()));
        for other in [
            line.replace("r-xp", "r--p"),
            line.replace("jit-77", "jit-"),
            line.replace("jit-77", "jit-7x"),
            line.replace(".dump", ".dump (deleted)"),
            line.replace("/a b/", ""),
            "7f0000000000-7f0000001000 r-xp 00000000 00:00 0 ".to_owned(),
            String::new(),
        ] {
            assert_eq!(dump(&other), None, "{other}");
        }
    }

    #[test]
    fn only_what_a_process_has_written_is_read_when_it_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        std::fs::write(&path, "").unwrap();
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        let open = |begin: i64, end: i64| {
            let at = |seconds: i64| {
                let by = Duration::from_secs(seconds.unsigned_abs());
                if seconds < 0 { written - by } else { written + by }
            };
            let (pid, user) = (std::process::id(), own_user());
            let left = EndedProcess { pid, forked_from: 0, user, begin: at(begin), end: at(end) };
            CodeFiles::left(&left).processes[0].open(None, &path).map(|file| file.is_some())
        };
        assert_eq!(open(-1, 5), Ok(true));
        assert_eq!(open(-5, 0), Ok(true));
        assert_eq!(open(1, 5), Err("it was written before the process ran".to_owned()));
        assert_eq!(open(-5, -2), Err("it was written after the process's last call".to_owned()));
    }

    #[test]
    fn traps_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files = ProcessFiles::new(std::process::id());
        let open = |name: &str| files.open(None, &folder.path().join(name)).map(|file| file.is_some());
        assert_eq!(open("none"), Ok(false));
        std::fs::write(folder.path().join("map"), "").unwrap();
        assert_eq!(open("map"), Ok(true));
        std::os::unix::fs::symlink(folder.path().join("map"), folder.path().join("link")).unwrap();
        assert_eq!(open("link"), Err("it is a symbolic link".to_owned()));
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(open("fifo"), Err("it is no regular file".to_owned()));
        assert!(open(".").is_err());
        if own_user() == 0 {
            std::os::unix::fs::chown(folder.path().join("map"), Some(12_345), None).unwrap();
            assert_eq!(open("map"), Err("it belongs to user 12345, and the program to user 0".to_owned()));
        }
    }
}
