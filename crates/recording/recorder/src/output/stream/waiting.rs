//! Segments that wait to be written.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use everycall_format::arena::pinned_by;

use crate::memory::shared_pool::SharedPool;

/// Which thread a segment belongs to: slot, and its generation.
pub type Owner = (u32, u32);

/// A segment that waits: its thread, its number, its position.
pub type Found = (Owner, u64, u32);

/// The segments that are pinned for us, grouped by thread and sorted by number.
pub fn find(shared: &SharedPool) -> Vec<Found> {
    let pool = shared.pool();
    let taken = (pool.taken.load(Acquire) as usize).min(pool.entries.len());
    let mut found: Vec<Found> = (0..)
        .zip(&pool.entries[..taken])
        .filter(|(_, entry)| {
            entry.pins.load(Acquire) & (pinned_by::RECORDER | pinned_by::CLEARING) == pinned_by::RECORDER
        })
        .map(|(index, entry)| {
            let owner = (entry.slot.load(Relaxed), entry.generation.load(Relaxed));
            (owner, entry.number.load(Relaxed), index)
        })
        .collect();
    found.sort_unstable();
    found
}

/// Whether segments seem to be missing, if `next` is a thread's next expected number.
pub fn has_gaps(found: &[Found], next: impl Fn(Owner) -> u64) -> bool {
    let mut before: Option<(Owner, u64)> = None;
    found.iter().any(|&(owner, number, _)| {
        let expected = match before.replace((owner, number)) {
            Some((same, last)) if same == owner => last.saturating_add(1),
            _ => next(owner),
        };
        number > expected
    })
}

/// The segments found `now` that their thread finished before, or together with, those `seen`
/// earlier: up to these, none is missed. (A thread may finish two segments during a search, which
/// then finds only the later one.) Both lists are sorted.
pub fn seen_twice(seen: &[Found], mut now: Vec<Found>) -> Vec<Found> {
    now.retain(|&(owner, number, _)| {
        let end = seen.partition_point(|&(other, ..)| other <= owner);
        end.checked_sub(1)
            .and_then(|last| seen.get(last))
            .is_some_and(|&(other, last, _)| other == owner && number <= last)
    });
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_segments_that_end_meanwhile_none_is_overlooked() {
        let (one, other, third) = ((0, 1), (0, 2), (5, 1));
        // The search had passed the position of number 4 when it was finished, but not that of
        // number 5.
        let seen = [(one, 3, 10), (one, 5, 12), (other, 0, 20)];
        let now = vec![(one, 3, 10), (one, 4, 2), (one, 5, 12), (one, 7, 13), (other, 0, 20), (third, 0, 30)];
        let settled = seen_twice(&seen, now);
        assert_eq!(settled, [(one, 3, 10), (one, 4, 2), (one, 5, 12), (other, 0, 20)]);
        assert_eq!(seen_twice(&[], vec![(one, 0, 0)]), []);
        // Segments that were overwritten meanwhile are gone.
        assert_eq!(seen_twice(&seen, vec![(one, 5, 12)]), [(one, 5, 12)]);
    }
}
