//! Where a process's arena is, and how we get at it.
//!
//! Under `record`, the arena is a memory file, which the recorder has open: it is opened through
//! the recorder's descriptors (root can open it through the process's own mappings). Without
//! `record`, it is a System V segment that was removed when it was made: Linux lets it be attached
//! by its number, which the list of mappings shows. With `EVERYCALL_CRASH`, it is a file of a name.
//!
//! Everything that is found is compared with what the list of mappings says: device and inode, or
//! the segment's number.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use everycall_format::crash::ENDING;
use everycall_format::env;
use everycall_machine::proc_files::all_processes;
use rustix::fs::{major, minor};

use crate::arena::LiveArena;
use crate::error::LiveError;
use crate::mapping::Mapping;
use crate::process::{self, ProcessFacts};

/// A recorder's arena in the list of mappings.
const FILE: &str = "/memfd:everycall-arena (deleted)";
/// A System V segment without a key.
const SEGMENT: &str = "/SYSV00000000 (deleted)";
/// An arena of our own that others can't map.
const ANONYMOUS: &str = "/dev/zero (deleted)";

/// A shared mapping.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shared {
    kind: SharedKind,
    /// Where it begins, for `/proc/PID/map_files`.
    range: String,
    /// The path of a crash file.
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SharedKind {
    File { device: (u32, u32), inode: u64 },
    CrashFile { inode: u64 },
    Segment(i32),
    Anonymous,
}

/// Reaches the arena of process `pid`.
///
/// # Errors
///
/// The process doesn't exist, belongs to another user or isn't traced, or its arena can't be
/// mapped.
pub fn attach(pid: u32) -> Result<LiveArena, LiveError> {
    let process = ProcessFacts::of(pid)?;
    if process.has_ended {
        return Err(LiveError::Ended);
    }
    let arena = attach_to(process)?;
    // The number may have become another process's meanwhile.
    match process::began(pid) {
        Some(started) if started == arena.process().started => Ok(arena),
        _ => Err(LiveError::Ended),
    }
}

fn attach_to(process: ProcessFacts) -> Result<LiveArena, LiveError> {
    let pid = process.pid;
    let maps = process::read(pid, "maps")?;
    let shared = shared_mappings(&String::from_utf8_lossy(&maps));
    let mut failure = None;
    let mut inherited = None;
    for shared in &shared {
        let mapped = match shared.kind {
            SharedKind::File { device, inode } => map_file(pid, device, inode, &shared.range),
            SharedKind::CrashFile { inode } => map_crash_file(pid, inode, shared),
            SharedKind::Segment(id) => map_segment(pid, id),
            SharedKind::Anonymous => continue,
        };
        let arena = match mapped.and_then(|mapping| LiveArena::open(mapping, &process)) {
            Ok(Some(arena)) if shared.path.is_empty() => arena,
            Ok(Some(arena)) => arena.in_file(PathBuf::from(&shared.path)),
            // Another program's segment.
            Ok(None) => continue,
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        let owner = arena.header().target_pid;
        if process.ids.contains(&owner) {
            return Ok(arena);
        }
        inherited = inherited.or(Some(owner).filter(|owner| *owner != 0));
    }
    let looks_unreachable = shared.iter().any(|shared| shared.kind == SharedKind::Anonymous)
        && String::from_utf8_lossy(&maps)
            .lines()
            .filter_map(Line::parse)
            .any(|line| line.is_large_anonymous());
    Err(match (failure, inherited) {
        (Some(failure), _) => failure,
        (None, Some(from)) => LiveError::Inherited { from },
        (None, None) if looks_unreachable => LiveError::Unreachable,
        (None, None) => LiveError::NotTraced,
    })
}

/// A line of `/proc/PID/maps`.
struct Line<'a> {
    range: &'a str,
    first: u64,
    end: u64,
    access: &'a str,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Line<'a>> {
        let mut fields = line.splitn(6, ' ');
        let range = fields.next()?;
        let (first, end) = range.split_once('-')?;
        let access = fields.next()?;
        let offset = fields.next()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode = fields.next()?.parse().ok()?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(Line {
            range,
            first: hex(first)?,
            end: hex(end)?,
            access,
            offset: hex(offset)?,
            device: (u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?),
            inode,
            path: fields.next().unwrap_or_default().trim_start(),
        })
    }

    /// The mapping that the line is the beginning of, if that may be an arena.
    fn shared(&self) -> Option<SharedKind> {
        if !self.access.ends_with('s') || self.offset != 0 {
            return None;
        }
        match self.path {
            FILE => Some(SharedKind::File { device: self.device, inode: self.inode }),
            // The inode is the segment's number.
            SEGMENT => Some(SharedKind::Segment(i32::try_from(self.inode).ok()?)),
            ANONYMOUS => Some(SharedKind::Anonymous),
            path if self.access.starts_with("rw") && crash_path(path).ends_with(ENDING) => {
                Some(SharedKind::CrashFile { inode: self.inode })
            }
            _ => None,
        }
    }

    /// Whether this may be a part of an arena that other processes can't map: those are larger than
    /// what programs map.
    fn is_large_anonymous(&self) -> bool {
        const LARGE: u64 = 16 << 20;
        self.path == ANONYMOUS && self.end.saturating_sub(self.first) >= LARGE
    }
}

/// The path of a mapped file, whether it is still there or not.
fn crash_path(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

fn shared_mappings(maps: &str) -> BTreeSet<Shared> {
    let mut all = BTreeSet::new();
    for line in maps.lines().filter_map(Line::parse) {
        if let Some(kind) = line.shared() {
            let path = if matches!(kind, SharedKind::CrashFile { .. }) { crash_path(line.path) } else { "" };
            all.insert(Shared { kind, range: line.range.to_owned(), path: path.to_owned() });
        }
    }
    all
}

fn map_segment(pid: u32, id: i32) -> Result<Mapping, LiveError> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/ipc")).ok();
    if namespace(&pid.to_string()) != namespace("self") {
        return Err(LiveError::OtherNamespace);
    }
    let mapping = Mapping::of_segment(id).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => LiveError::NotOurs(error),
        std::io::ErrorKind::OutOfMemory => LiveError::Map(error),
        // It went while we looked.
        _ => LiveError::Ended,
    })?;
    Ok(mapping)
}

fn map_file(pid: u32, device: (u32, u32), inode: u64, range: &str) -> Result<Mapping, LiveError> {
    let is_same = |file: &File| {
        file.metadata()
            .is_ok_and(|data| data.ino() == inode && (major(data.dev()), minor(data.dev())) == device)
    };
    let open = |path: &Path| {
        let file = OpenOptions::new().read(true).write(true).open(path).ok();
        file.filter(is_same)
    };
    let mut refused = None;
    let found = open(Path::new(&format!("/proc/{pid}/map_files/{range}")))
        .or_else(|| recorder_of(pid).and_then(|recorder| open_of(recorder, &open, &mut refused)))
        .or_else(|| all_processes().into_iter().find_map(|other| open_of(other, &open, &mut None)));
    match (found, refused) {
        (Some(file), _) => Mapping::of_file(file.as_fd()).map_err(LiveError::Map),
        (None, Some(error)) => Err(LiveError::NotOurs(error)),
        (None, None) => Err(LiveError::NoRecorder),
    }
}

/// Maps a crash file: through the process's own mappings, or by its path, as the process sees it
/// and as we do. Its device isn't compared: file systems with several layers show different ones.
fn map_crash_file(pid: u32, inode: u64, shared: &Shared) -> Result<Mapping, LiveError> {
    let paths = [
        format!("/proc/{pid}/map_files/{}", shared.range),
        format!("/proc/{pid}/root{}", shared.path),
        shared.path.clone(),
    ];
    let mut failure = None;
    for path in paths {
        // The other process chose the path: by now it may lead to a device, which must not be
        // opened.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let flags = if path.starts_with(&format!("/proc/{pid}/map_files/")) { 0 } else { flags };
        match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
            Ok(file) if file.metadata().is_ok_and(|data| data.ino() == inode) => {
                return Mapping::of_crash_file(file.as_fd()).map_err(|error| match error.kind() {
                    std::io::ErrorKind::PermissionDenied => LiveError::NotOurs(error),
                    _ => LiveError::Map(error),
                });
            }
            Ok(_) => {}
            Err(error) => failure = Some(error),
        }
    }
    Err(match failure {
        Some(error) if error.kind() == std::io::ErrorKind::PermissionDenied => LiveError::NotOurs(error),
        _ => LiveError::NoCrashFile(PathBuf::from(&shared.path)),
    })
}

/// The arena in a crash file, where the process that writes it runs.
#[must_use]
pub fn attach_to_file(file: &File) -> Option<LiveArena> {
    let inode = file.metadata().ok()?.ino();
    let is_mapped = |pid: &u32| {
        process::read(*pid, "maps").is_ok_and(|maps| {
            let shared = shared_mappings(&String::from_utf8_lossy(&maps));
            shared.into_iter().any(|shared| shared.kind == SharedKind::CrashFile { inode })
        })
    };
    let arenas = all_processes().into_iter().filter(is_mapped).filter_map(|pid| attach(pid).ok());
    arenas.into_iter().find(|arena| {
        arena.file().and_then(|path| std::fs::metadata(path).ok()).is_some_and(|data| data.ino() == inode)
    })
}

/// The recorder that the process's environment names.
fn recorder_of(pid: u32) -> Option<u32> {
    let environment = process::read(pid, "environ").ok()?;
    environment.split(|byte| *byte == 0).find_map(|variable| {
        let path = variable.strip_prefix(env::RECORDER.as_bytes())?.strip_prefix(b"=/proc/")?;
        let digits = path.split(|byte| *byte == b'/').next()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    })
}

/// The arena among the descriptors of process `pid`.
fn open_of(
    pid: u32,
    open: &impl Fn(&Path) -> Option<File>,
    refused: &mut Option<std::io::Error>,
) -> Option<File> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() == std::io::ErrorKind::PermissionDenied {
                *refused = Some(error);
            }
            return None;
        }
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    // Opening a device or a FIFO may do something.
    let named = |path: &PathBuf| std::fs::read_link(path).is_ok_and(|target| target == Path::new(FILE));
    paths.filter(named).find_map(|path| open(&path))
}

/// The mapping at `address` in a list of mappings, where its file was deleted or replaced.
pub(crate) fn deleted_range(maps: &str, address: u64) -> Option<&str> {
    let mut lines = maps.lines().filter_map(Line::parse);
    let line = lines.find(|line| (line.first..line.end).contains(&address))?;
    line.path.ends_with(" (deleted)").then_some(line.range)
}

/// Whether the list of mappings of process `pid` has something that may be an arena.
pub(crate) fn may_be_traced(pid: u32) -> bool {
    process::read(pid, "maps").is_ok_and(|maps| {
        let maps = String::from_utf8_lossy(&maps);
        let mut kinds = maps.lines().filter_map(Line::parse).filter_map(|line| line.shared());
        kinds.any(|kind| kind != SharedKind::Anonymous)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_may_be_arenas() {
        let maps = "\
55d0-55d1 r-xp 00000000 08:01 77 /usr/bin/a b
7f00-7f01 rw-s 00000000 00:01 4660                       /memfd:everycall-arena (deleted)
7f01-7f09 rw-s 00001000 00:01 4660                       /memfd:everycall-arena (deleted)
7f10-7f20 rw-s 00000000 00:01 32769                      /SYSV00000000 (deleted)
7f20-7f30 rw-s 00000000 00:01 5                          /SYSV00001234 (deleted)
7f30-7f40 rw-p 00000000 00:00 0
invalid
7f50-7f60 rw-s 00000000 00:01 99999999999 /SYSV00000000 (deleted)
7f80-7f90 rw-s 00000000 08:01 78                         /var/my crashes/app-7.arena
7f90-7fa0 r--s 00000000 08:01 79                         /var/other.arena
7fa0-7fb0 rw-s 00000000 08:01 80                         /var/gone-7.arena (deleted)
7f70-7f80 rw-s 00000000 00:01 9 /dev/zero (deleted)";
        let kinds: Vec<SharedKind> = shared_mappings(maps).into_iter().map(|shared| shared.kind).collect();
        assert_eq!(
            kinds,
            [
                SharedKind::File { device: (0, 1), inode: 4660 },
                SharedKind::CrashFile { inode: 78 },
                SharedKind::CrashFile { inode: 80 },
                SharedKind::Segment(32769),
                SharedKind::Anonymous
            ]
        );
    }

    #[test]
    fn a_process_without_everycall() {
        assert!(matches!(attach(std::process::id()), Err(LiveError::NotTraced)));
        assert!(matches!(attach(u32::MAX), Err(LiveError::NoProcess)));
    }
}
