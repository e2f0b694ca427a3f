//! Sums over a whole trace.

use everycall_format::arena::COUNTERS;
use everycall_timeline::{NamedMarks, ThreadInfo, Trace};
use everycall_units::OptionSize;

/// The runtime's counters, summed over all processes; indexed by
/// `everycall_format::arena::counter`.
#[must_use]
pub fn runtime_counts(trace: &Trace<'_>) -> [u64; COUNTERS] {
    // Counters only grow, so a process's last snapshot contains all of its counts.
    let mut last = vec![None; trace.processes().len()];
    for snapshot in trace.snapshots() {
        if let Some(last) = last.get_mut(snapshot.process) {
            *last = Some(&snapshot.counters);
        }
    }
    let mut sums = [0_u64; COUNTERS];
    for counters in last.into_iter().flatten() {
        sums.iter_mut().zip(counters).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
    sums
}

/// The size of rings that would have kept all events of each thread, if some were overwritten;
/// `None` if none were, or no ring is that large.
#[must_use]
pub fn ring_that_keeps_all(trace: &Trace<'_>) -> Option<OptionSize> {
    const RING_MAX: u64 = 1 << 32;
    let of_thread = |thread: &ThreadInfo| {
        let snapshot = trace.snapshots().get(thread.key.snapshot)?;
        let written = snapshot.threads.get(thread.key.thread)?.segments;
        let all = thread.segments_overwritten.saturating_add(written).saturating_add(thread.segments_lost);
        let bytes = all.saturating_mul(snapshot.segment_size);
        (thread.segments_overwritten > 0).then(|| bytes.max(snapshot.ring_size))
    };
    let bytes = trace.threads().iter().filter_map(of_thread).max()?;
    bytes.checked_next_power_of_two().filter(|bytes| *bytes <= RING_MAX).map(OptionSize)
}

/// Number of a thread's events that are known to be lost.
#[must_use]
pub fn lost_events(thread: &ThreadInfo) -> u64 {
    thread.losses.saturating_add(thread.missing)
}

/// The names of labels, instants, spans and counters, sorted by frequency.
#[must_use]
pub fn marks_by_count<'t>(trace: &'t Trace<'_>) -> Vec<&'t NamedMarks> {
    let count = |named: &NamedMarks| {
        let all = [named.labels, named.instants, named.spans, named.counters];
        all.into_iter().fold(0, u64::saturating_add)
    };
    // Types of exceptions are names too.
    let mut names: Vec<_> = trace.mark_names().all().iter().filter(|named| count(named) > 0).collect();
    names.sort_by_key(|named| (std::cmp::Reverse(count(named)), &named.name));
    names
}
