//! Losses that make the numbers of a profile incomplete.

use everycall_calls::{Gap, GapKind, Loss};

use crate::numbers::named_numbers;

/// Losses in the traces of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Lost events, as far as they were counted.
    pub lost: u64,
    /// Number of losses of unknown size.
    pub losses_uncounted: u64,
    /// Exits whose entry is not in the trace.
    pub orphan_exits: u64,
    /// Calls beyond the depth limit: no other number includes them.
    pub too_deep: u64,
    /// Short calls that were dropped while recording: no other number includes them.
    pub dropped_short: u64,
    /// Calls that were counted and not recorded, and that are in no other number, as they can't be
    /// filtered or grouped as was asked for.
    pub counted_only: u64,
    /// Counted calls whose functions aren't known: they are in no other number.
    pub counted_others: u64,
    /// Threads whose beginning was overwritten.
    pub beginning_overwritten: u64,
    /// Times that recording was off in a thread.
    pub gaps: u64,
    /// Processes whose allocations were not seen.
    pub memory_not_seen: u64,
    /// Processes whose allocator doesn't report the size of blocks.
    pub memory_without_sizes: u64,
    /// Programs whose own file defines `malloc`.
    pub memory_own_allocator: u64,
    /// By thread index in the trace that was added last: exits of thunks, which have no entry.
    pub thunk_exits: Vec<u64>,
}

impl Notes {
    pub(crate) fn gap(&mut self, gap: &Gap) {
        self.gaps += u64::from(gap.why != GapKind::Suspended);
    }

    pub(crate) fn loss(&mut self, loss: &Loss) {
        self.lost = self.lost.saturating_add(loss.count.unwrap_or(0));
        self.losses_uncounted += u64::from(loss.count.is_none());
    }

    /// Adds the notes of another run.
    pub fn add(&mut self, other: &Notes) {
        for (sum, more) in self.numbers_mut().into_iter().zip(other.numbers()) {
            *sum = sum.saturating_add(more);
        }
    }
}

// Profiles in files have them in this order: new ones are last.
named_numbers!(Notes {
    "lost_events": lost,
    "losses_not_counted": losses_uncounted,
    "orphan_exits": orphan_exits,
    "calls_too_deep": too_deep,
    "dropped_short_calls": dropped_short,
    "counted_calls_left_out": counted_only,
    "counted_calls_of_unknown_functions": counted_others,
    "threads_beginning_overwritten": beginning_overwritten,
    "gaps": gaps,
    "processes_with_memory_not_seen": memory_not_seen,
    "processes_without_block_sizes": memory_without_sizes,
    "processes_with_own_allocator": memory_own_allocator,
});
