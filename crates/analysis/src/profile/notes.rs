//! Losses that make the numbers of a profile incomplete.

use everycall_export::Thread;
use everycall_timeline::{Gap, GapKind, Loss, ThreadInfo};

/// Numbers of [`Notes`].
const NUMBERS: usize = 12;

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
    pub(crate) fn thread(&mut self, thread: &Thread, info: Option<&ThreadInfo>) {
        self.dropped_short = self.dropped_short.saturating_add(thread.dropped);
        self.beginning_overwritten += u64::from(info.is_some_and(|info| info.is_cut));
    }

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

    /// The names of the numbers in machine-readable outputs.
    pub const NAMES: [&'static str; NUMBERS] = [
        "lost_events",
        "losses_not_counted",
        "orphan_exits",
        "calls_too_deep",
        "dropped_short_calls",
        "counted_calls_left_out",
        "counted_calls_of_unknown_functions",
        "threads_beginning_overwritten",
        "gaps",
        "processes_with_memory_not_seen",
        "processes_without_block_sizes",
        "processes_with_own_allocator",
    ];

    /// All numbers, in the order of [`Notes::NAMES`].
    #[must_use]
    pub fn numbers(&self) -> [u64; NUMBERS] {
        [
            self.lost,
            self.losses_uncounted,
            self.orphan_exits,
            self.too_deep,
            self.dropped_short,
            self.counted_only,
            self.counted_others,
            self.beginning_overwritten,
            self.gaps,
            self.memory_not_seen,
            self.memory_without_sizes,
            self.memory_own_allocator,
        ]
    }

    pub(crate) fn numbers_mut(&mut self) -> [&mut u64; NUMBERS] {
        [
            &mut self.lost,
            &mut self.losses_uncounted,
            &mut self.orphan_exits,
            &mut self.too_deep,
            &mut self.dropped_short,
            &mut self.counted_only,
            &mut self.counted_others,
            &mut self.beginning_overwritten,
            &mut self.gaps,
            &mut self.memory_not_seen,
            &mut self.memory_without_sizes,
            &mut self.memory_own_allocator,
        ]
    }
}
