//! Reads the kernel's facts about a process.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Bytes of a command line that are kept; of one that is longer, the last word ends in [`CUT`]. Linux allows so many where the
/// stack may have 8 MiB.
const COMMAND_MAX: usize = 2 << 20;
/// Bytes of a command line that are asked for at first: most have less.
const COMMAND_FIRST: usize = 4096;
/// Mark at the place where a command line was cut.
const CUT: &[u8] = b"...";
/// Bytes of a `stat` that are looked at; they are some hundred.
const STAT_MAX: u64 = 4096;

/// Bytes of `maps` that are looked at: 65,530 mappings are allowed.
const MAPS_MAX: u64 = 16 << 20;

/// Bytes of a `status` that are looked at; it is longer with more CPUs.
const STATUS_MAX: u64 = 64 << 10;

/// A name as the kernel keeps it: at most 15 bytes, padded with zeros.
pub type Name = [u8; 16];

/// The words of its command line, each ended by a zero byte. `None` where the process is gone or
/// has none.
#[must_use]
pub fn command_line(pid: u32) -> Option<Vec<u8>> {
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    let (mut command, is_whole) = in_one_read(COMMAND_FIRST, COMMAND_MAX, |to| file.read_at(to, 0))?;
    if !is_whole {
        return Some(ended(command));
    }
    if command.last() != Some(&0) {
        command.push(0);
    }
    Some(command)
}

/// The bytes that `read` gives from the beginning, and whether they are all. The kernel gives a
/// command line to one read whole, also if the process ends meanwhile, but nothing to the reads
/// that follow: pieces of several reads could end anywhere. So a buffer that is filled is read
/// again with a larger one. `None` where nothing is there.
fn in_one_read(
    first: usize,
    max: usize,
    read: impl Fn(&mut [u8]) -> io::Result<usize>,
) -> Option<(Vec<u8>, bool)> {
    let mut buffer = vec![0; first];
    let mut length = read(&mut buffer).ok().filter(|length| *length > 0)?;
    while length == buffer.len() && length < max {
        let mut larger = vec![0; length.saturating_mul(32).min(max)];
        let all = read(&mut larger).unwrap_or(0);
        if all < length {
            break;
        }
        (buffer, length) = (larger, all);
    }
    let is_whole = length < buffer.len();
    buffer.truncate(length);
    Some((buffer, is_whole))
}

/// A command line that was cut, so that this can be seen.
#[must_use]
pub fn ended(mut command: Vec<u8>) -> Vec<u8> {
    command.extend(CUT);
    command.push(0);
    command
}

/// Its name.
#[must_use]
pub fn name(pid: u32) -> Option<Name> {
    name_in(pid, "comm")
}

/// The name of its thread `tid`.
#[must_use]
pub fn thread_name(pid: u32, tid: u32) -> Option<Name> {
    name_in(pid, &format!("task/{tid}/comm"))
}

/// When its thread `tid` began, in the kernel's ticks since boot; `None` where it is gone.
#[must_use]
pub fn thread_began(pid: u32, tid: u32) -> Option<u64> {
    parse_stat(&read(pid, &format!("task/{tid}/stat"), STAT_MAX).ok()?).map(|stat| stat.started)
}

fn name_in(pid: u32, file: &str) -> Option<Name> {
    let mut text = Name::default();
    // The kernel gives all of it at once.
    let length = File::open(format!("/proc/{pid}/{file}")).ok()?.read(&mut text).ok()?;
    let text = text.get(..length)?;
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut name = Name::default();
    let length = text.len().min(name.len() - 1);
    name[..length].copy_from_slice(&text[..length]);
    Some(name)
}

/// Whether it has mapped files with all of these names, without their folders; `None` where it has
/// ended. Processes that this one may not look into, because they have other privileges, load no
/// libraries of ours.
#[must_use]
pub fn has_mapped(pid: u32, names: &[Vec<u8>]) -> Option<bool> {
    let maps = match read(pid, "maps", MAPS_MAX) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Some(false),
        maps => maps.ok().filter(|maps| !maps.is_empty())?,
    };
    let ends = |name: &Vec<u8>| maps.split(|byte| *byte == b'\n').any(|line| is_of(line, name));
    Some(names.iter().all(ends))
}

/// Whether a line of `maps` is of a file with this name.
fn is_of(line: &[u8], name: &[u8]) -> bool {
    let line = line.strip_suffix(b" (deleted)").unwrap_or(line);
    line.strip_suffix(name).is_some_and(|path| path.ends_with(b"/"))
}

/// The needed fields of a process's `stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its name: at most 15 bytes, which may be any.
    pub name: Vec<u8>,
    /// Whether it has ended and only its parent hasn't noticed.
    pub has_ended: bool,
    /// Whether it is stopped, by a signal or by a debugger.
    pub is_stopped: bool,
    /// Its parent; 0 where that is outside our namespace.
    pub parent: u32,
    /// When it began, in the kernel's ticks since boot.
    pub started: u64,
}

/// Reads the `stat` of process `pid`.
///
/// # Errors
///
/// There is none, it isn't ours to look at, or it can't be parsed.
pub fn stat(pid: u32) -> io::Result<Stat> {
    parse_stat(&read(pid, "stat", STAT_MAX)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_stat(stat: &[u8]) -> Option<Stat> {
    // The name in parentheses may hold anything, also parentheses. State and parent follow; the start is the 20th from there.
    let from = stat.iter().position(|byte| *byte == b'(')?;
    let to = stat.iter().rposition(|byte| *byte == b')')?;
    let name = stat.get(from + 1..to)?.to_vec();
    let mut fields = str::from_utf8(stat.get(to + 1..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let (has_ended, is_stopped) = (matches!(state, "Z" | "X"), matches!(state, "T" | "t"));
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Stat { name, has_ended, is_stopped, parent, started })
}

/// The needed fields of a process's `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its id in its own namespace.
    pub own_pid: u32,
    /// Its effective user.
    pub user: u32,
}

/// Reads the `status` of process `pid`; `None` where the process is gone or its status can't be
/// parsed.
#[must_use]
pub fn status(pid: u32) -> Option<Status> {
    parse_status(&read(pid, "status", STATUS_MAX).ok()?)
}

fn parse_status(status: &[u8]) -> Option<Status> {
    let field = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        Some(str::from_utf8(line).ok()?.split_ascii_whitespace())
    };
    let user = field(b"Uid:")?.nth(1)?.parse().ok()?;
    Some(Status { own_pid: field(b"NSpid:")?.next_back()?.parse().ok()?, user })
}

/// The ids of all processes that there are, ascending.
#[must_use]
pub fn all_processes() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut all: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

fn read(pid: u32, file: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/{file}"))?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A process that ends after `reads` reads of its 100 bytes.
    fn of_100(reads: usize, first: usize, max: usize) -> Option<(usize, bool)> {
        let left = Cell::new(reads);
        let read = |to: &mut [u8]| {
            let lives = left.get() > 0;
            left.set(left.get().saturating_sub(1));
            Ok(if lives { to.len().min(100) } else { 0 })
        };
        in_one_read(first, max, read).map(|(bytes, is_whole)| (bytes.len(), is_whole))
    }

    #[test]
    fn command_lines_are_whole_or_known_to_be_cut() {
        assert_eq!(of_100(0, 4, 1000), None);
        assert_eq!(of_100(1, 200, 1000), Some((100, true)));
        assert_eq!(of_100(1, 4, 1000), Some((4, false)));
        assert_eq!(of_100(2, 4, 1000), Some((100, true)));
        assert_eq!(of_100(9, 4, 1000), Some((100, true)));
        assert_eq!(of_100(9, 4, 64), Some((64, false)));
        assert_eq!(of_100(9, 100, 1000), Some((100, true)));
    }

    #[test]
    fn mapped_files_are_known_by_their_names() {
        let own = std::process::id();
        let program = std::env::current_exe().unwrap();
        let name = program.file_name().unwrap().as_encoded_bytes().to_vec();
        assert_eq!(has_mapped(own, &[]), Some(true));
        assert_eq!(has_mapped(own, std::slice::from_ref(&name)), Some(true));
        assert_eq!(has_mapped(own, &[name.clone(), name[1..].to_vec()]), Some(false));
        assert_eq!(has_mapped(u32::MAX, &[name]), None);
    }

    #[test]
    fn this_process_is_known() {
        let own = std::process::id();
        let command = command_line(own).unwrap();
        assert_eq!(command.iter().filter(|byte| **byte == 0).count(), std::env::args_os().count());
        assert!(name(own).unwrap()[0] != 0);
        let stat = stat(own).unwrap();
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
        assert!(!stat.has_ended && stat.started > 0);
        assert_eq!(command_line(u32::MAX), None);
        assert!(super::stat(u32::MAX).is_err());
        let all = all_processes();
        assert!(all.is_sorted() && all.contains(&own));
    }

    #[test]
    fn ids_of_inner_namespaces_are_known() {
        let own = status(std::process::id()).unwrap();
        assert_eq!(own.user, rustix::process::geteuid().as_raw());
        let text = b"Name:\tNSpid:\nUid:\t1\t2\t3\t4\nNSpid:\t900\t17\n";
        assert_eq!(parse_status(text), Some(Status { own_pid: 17, user: 2 }));
        assert_eq!(parse_status(b"Uid:\t1\nNSpid:\t2\n"), None);
    }

    #[test]
    fn this_thread_is_known() {
        let named = std::thread::Builder::new().name("named one".into());
        let thread = named.spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            let name = thread_name(std::process::id(), tid.unsigned_abs()).unwrap();
            assert_eq!(&name[..10], b"named one\0");
        });
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn names_may_hold_anything() {
        let stat = parse_stat(b"7 (a) b (c) Z 5 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 8642 0 0").unwrap();
        assert_eq!(
            stat,
            Stat { name: b"a) b (c".to_vec(), has_ended: true, is_stopped: false, parent: 5, started: 8642 }
        );
        let stopped = parse_stat(b"7 (a) T 5 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 8642 0 0").unwrap();
        assert!(stopped.is_stopped && !stopped.has_ended);
        for bad in [&b""[..], b"7", b"7 )(", b"7 (x", b"7 (x) \xff", b"7 (x) S 1 7", b"7 (x) S y 7"] {
            assert_eq!(parse_stat(bad), None, "{bad:?}");
        }
    }
}
