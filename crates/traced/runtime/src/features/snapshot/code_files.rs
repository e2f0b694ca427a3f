//! The files by which a just-in-time compiler in this process tells perf the names of its code:
//! `perf-PID.map` in `/tmp`, and a jitdump file, which the process has mapped with the right to
//! execute. Snapshots contain them as they are, because they change, and others may have the
//! process's id later.

use crate::sys::file::File;
use crate::sys::mapping;
use crate::sys::perf_files;
use everycall_format::ect::code_file;

/// Which files are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All.
    All,
    /// Maps: they may name frames by id, too.
    Maps,
}

/// Calls `each` with those that there are, their kinds, and how many bytes of them to read: first
/// the map of the process that this one was forked from (0 for none), then its own. `line` has room
/// for a line of `/proc/self/maps`.
pub(super) fn each(
    wanted: Wanted,
    pids: [u32; 2],
    line: &mut [u8],
    mut each: impl FnMut(&File, u32, u64) -> Result<(), i32>,
) -> Result<(), i32> {
    let mut take = |path: &[u8], kind| match perf_files::open(path) {
        Some((file, size @ 1..)) => each(&file, kind, size.min(code_file::BYTES_MAX)),
        _ => Ok(()),
    };
    for pid in pids.into_iter().filter(|pid| *pid != 0) {
        take(perf_files::map_path(pid).text(), code_file::PERF_MAP)?;
    }
    match mapping::executable(line, is_dump).filter(|_| wanted == Wanted::All) {
        Some(path) => take(path, code_file::JITDUMP),
        None => Ok(()),
    }
}

/// Whether a path is that of a jitdump file: `jit-`, digits, `.dump`.
fn is_dump(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let digits = name.strip_prefix(b"jit-").and_then(|name| name.strip_suffix(b".dump"));
    path.first() == Some(&b'/')
        && digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dumps_are_found() {
        assert!(is_dump(b"/a b/jit-77.dump"));
        for other in ["/jit-.dump", "/jit-7x.dump", "jit-7.dump", "/jit-7.dump (deleted)", "/jit-7.so", ""] {
            assert!(!is_dump(other.as_bytes()), "{other}");
        }
    }
}
