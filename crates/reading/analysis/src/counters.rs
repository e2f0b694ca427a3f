//! The meanings of the runtime's counters, and whether a trace is complete.

use everycall_format::arena::counter;
use everycall_timeline::Trace;
use everycall_tracefile::{Summary, ThreadSummary};
use everycall_units::{Count, Several};

use crate::totals::{lost_events, runtime_counts};

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
    "times that a command (`enable`, `trace`, `trigger`, ...) changed which functions are recorded",
    "sites off at the end because their functions are not selected; their calls are missing",
    "threads whose calls are not in the counts of all calls: no disk space for them",
    "modules whose calls are not in the counts of all calls: no memory for them",
    "frames ended on a stack of calls on which they hadn't begun: the nesting of calls is in doubt",
    "functions whose arguments and results can't be recorded: no hook is called at their first instruction (modes `finstrument` and `after-inlining` have none there)",
    "calls and returns without the values that were to be recorded",
    "calls left out because the condition on their arguments was false",
];

/// The meaning of the counter with this number; `None` if this version doesn't know it.
#[must_use]
pub fn meaning(number: usize) -> Option<&'static str> {
    MEANINGS.get(number).copied()
}

/// Why calls of a trace are missing, or may not lie where they were made; empty where it is
/// complete. The rule is that of the summary that is printed when a trace is written
/// ([`Summary::is_complete`]). Times that the program itself didn't want to be recorded
/// ([`gaps`](everycall_timeline::ThreadInfo::gaps)) aren't among them.
#[must_use]
pub fn doubts(trace: &Trace<'_>) -> Vec<String> {
    let counters = runtime_counts(trace);
    let thread = |thread: &everycall_timeline::ThreadInfo| ThreadSummary {
        lost: lost_events(thread),
        ..ThreadSummary::default()
    };
    let threads: Vec<ThreadSummary> = trace.threads().iter().map(thread).collect();
    let cut = trace.threads().iter().filter(|thread| thread.is_cut).count();
    let summary = Summary {
        traced: true,
        threads,
        counters,
        is_incomplete: !trace.warnings().is_empty(),
        ..Summary::default()
    };
    if cut == 0 && summary.is_complete(trace.is_of_run()) {
        return Vec::new();
    }
    let mut doubts = Vec::new();
    let mut add = |count: u64, one: &str, several: &str| {
        if count > 0 {
            doubts.push(Several(count, one, several).to_string());
        }
    };
    add(cut as u64, "thread has lost its oldest calls", "threads have lost their oldest calls");
    let lost = ["event lost within the recorded time", "events lost within the recorded time"];
    add(summary.lost(), lost[0], lost[1]);
    let unread = trace.warnings().len() as u64;
    add(unread, "part that can't be read", "parts that can't be read");
    doubts.extend(counted_doubts(trace));
    doubts.extend(changed_selections(trace));
    doubts
}

/// The counts among a trace's [`doubts`] that the runtime made.
#[must_use]
pub fn counted_doubts(trace: &Trace<'_>) -> Vec<String> {
    counted(&runtime_counts(trace), counter::MISSING.into_iter()).collect()
}

/// The one among a trace's [`doubts`] that a selection makes which was changed during a run: it
/// leaves a time without calls.
#[must_use]
pub fn changed_selections(trace: &Trace<'_>) -> Option<String> {
    let changed = Some(counter::SELECTIONS).filter(|_| trace.is_of_run());
    counted(&runtime_counts(trace), changed.into_iter()).next()
}

/// How often recording was off for threads, as the program or somebody else wanted: what a complete
/// trace is complete but for. `None` if it never was.
#[must_use]
pub fn gaps(gaps: u64) -> Option<String> {
    (gaps > 0).then(|| format!("{} that recording was off", Several(gaps, "time", "times")))
}

/// Those of the counters with these numbers that aren't 0, with their meanings.
fn counted(counters: &[u64], numbers: impl Iterator<Item = usize>) -> impl Iterator<Item = String> {
    numbers.filter_map(|number| {
        let count = counters.get(number).copied().filter(|count| *count > 0)?;
        said(number, count)
    })
}

/// A counter with its meaning, as `1 time that ...` or `2 times that ...`.
#[must_use]
pub fn said(number: usize, count: u64) -> Option<String> {
    let meaning = meaning(number)?;
    let (first, rest) = meaning.split_once(' ')?;
    let first = first.strip_suffix('s').filter(|_| count == 1).unwrap_or(first);
    Some(format!("{} {first} {rest}", Count(count)))
}
