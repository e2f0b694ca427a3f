//! Names of code that a process's just-in-time compilers made, from the files that it has left.

use std::time::{Duration, SystemTime};

use everycall_coredump::Snapshot;
use everycall_format::arena::{ArenaHeader, counter};
use everycall_machine::{CodeFiles, EndedProcess, NameSet};

/// Adds the names to the snapshot of a process that has ended, whose arena has this header. Files
/// are only looked for if it has called such code, or has frames by id, which may be named there.
/// `user` is the process's.
pub fn add(snapshot: &mut Snapshot<'_>, header: &ArenaHeader, user: u32) {
    let wanted = match header.counters.get(counter::UNKNOWN_CODE) {
        Some(1..) => NameSet::All,
        _ if snapshot.has_frames() => NameSet::Ids,
        _ => return,
    };
    let at = |ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
    let begin = snapshot.start().map_or(0, |start| start.realtime_ns);
    // Without clocks, the owner of the files is unknown.
    let Some(end) = snapshot.reached_realtime_ns().filter(|_| begin > 0) else { return };
    let (pid, forked_from) = (header.target_pid, header.forked_from);
    let files = CodeFiles::left(&EndedProcess { pid, forked_from, user, begin: at(begin), end: at(end) });
    if let Some(names) = files.read(wanted, snapshot.clock()) {
        if !names.codes.is_empty() || names.lost > 0 {
            snapshot.set_code_names(names.codes, names.lost);
        }
        names.warnings.into_iter().for_each(|warning| snapshot.add_warning(warning));
    }
}
