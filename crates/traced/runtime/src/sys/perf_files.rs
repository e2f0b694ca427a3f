//! The files by which a just-in-time compiler tells perf the names of its code. Others may have
//! left traps there: they are read if they are regular files of this user or of root, as perf does
//! it, under no other name.

use crate::sys::disk;
use crate::sys::file::File;
use crate::sys::name::Name;

/// The path of a process's `perf-PID.map`, with its NUL at the end.
pub(crate) fn map_path(pid: u32) -> Name {
    let mut path = Name::empty();
    path.put(b"/tmp/perf-");
    path.put_number(pid);
    path.put(b".map");
    path
}

/// Opens such a file, and returns its size too. The path ends with NUL.
pub(crate) fn open(path: &[u8]) -> Option<(File, u64)> {
    let file = File::open_no_link(path).ok()?;
    let facts = disk::facts_of(&file)?;
    (facts.is_regular && facts.is_own && facts.links == 1).then_some((file, facts.size))
}
