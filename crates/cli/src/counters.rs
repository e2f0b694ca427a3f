//! The meanings of the runtime's counters.

use everycall_format::arena::counter;

/// By number: first what is missing, then why.
const MEANINGS: [&str; counter::COUNT] = [
    "threads not recorded: no free ring",
    "rings of ended threads reused for new threads; the calls in them are lost",
    "ring segments of ended threads reused for new threads; the calls in them are lost",
    "modules not traced: too large for the remaining code space",
    "sites that could not be switched on",
    "modules whose path could not be found",
    "forked children not recorded",
    "events of code outside all modules",
    "modules whose file `record` could not open in time; symbolized only if the file is unchanged",
    "second runtimes in the process; they stay off",
    "modules of another version of everycall; they stay off",
    "ticks that threads waited until their events were stored",
    "modules without room in the module table; their calls are shown as those of an unknown module",
    "module table entries of unloaded modules reused for others",
    "times that a crash file got no more disk space: rings stayed shorter, or threads were not recorded",
    "snapshot signals coalesced with one already in progress",
    "snapshots for signals that could not be written: no folder, no disk space, or too many at once",
    "events of fibers not recorded: no free ring",
    "times that `everycall enable`, `disable` or `trace` changed which functions are recorded",
    "sites off at the end because their functions are not selected; their calls are missing",
    "threads whose calls are not in the counts of all calls: no disk space for them",
    "modules whose calls are not in the counts of all calls: no memory for them",
];

/// The meaning of the counter with this number; `None` if this version doesn't know it.
pub fn meaning(number: usize) -> Option<&'static str> {
    MEANINGS.get(number).copied()
}
