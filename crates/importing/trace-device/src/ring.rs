//! The ring in DRAM: the newest blocks of a thread.

use std::collections::VecDeque;

/// Blocks, of which the oldest are dropped.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    blocks: VecDeque<Vec<u8>>,
    blocks_max: usize,
    dropped: u64,
}

impl Ring {
    /// For so many blocks, at least one.
    #[must_use]
    pub fn new(blocks: usize) -> Ring {
        Ring { blocks: VecDeque::new(), blocks_max: blocks.max(1), dropped: 0 }
    }

    /// Adds a block that is complete.
    pub fn push(&mut self, block: Vec<u8>) {
        if self.blocks.len() == self.blocks_max {
            self.blocks.pop_front();
            self.dropped += 1;
        }
        self.blocks.push_back(block);
    }

    /// The bytes in it, the oldest first.
    pub fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        self.blocks.iter().map(Vec::as_slice)
    }

    /// Blocks that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
