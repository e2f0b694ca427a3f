//! Bytes and blocks of counted calls.

/// Bytes and blocks that were allocated and freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Bytes allocated.
    pub allocated: u64,
    /// Blocks allocated.
    pub blocks: u64,
    /// Bytes freed.
    pub freed: u64,
    /// Blocks freed.
    pub freed_blocks: u64,
}

impl Allocations {
    /// All numbers.
    fn all(self) -> [u64; 4] {
        [self.allocated, self.blocks, self.freed, self.freed_blocks]
    }

    fn all_mut(&mut self) -> [&mut u64; 4] {
        [&mut self.allocated, &mut self.blocks, &mut self.freed, &mut self.freed_blocks]
    }

    /// Adds others.
    pub(crate) fn add(&mut self, other: Allocations) {
        for (sum, more) in self.all_mut().into_iter().zip(other.all()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// The increase since an earlier reading.
    pub(crate) fn since(mut self, before: Allocations) -> Allocations {
        for (now, before) in self.all_mut().into_iter().zip(before.all()) {
            *now = now.saturating_sub(before);
        }
        self
    }

    /// Whether nothing was allocated or freed.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Allocations::default()
    }
}
