//! Code of a process, in blocks: from an address up to the branch behind it.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use rustc_hash::FxHashMap;

/// The most bytes of a block.
const BLOCK_BYTES: usize = 4096;
/// The most blocks of a process that are kept.
const BLOCKS_MAX: usize = 4 << 20;
/// A block that is not linked yet.
pub(crate) const UNLINKED: u32 = u32::MAX;

/// Bytes of code, and where functions begin.
pub trait Image {
    /// Bytes from this address on; none if they aren't known.
    fn bytes(&self, address: u64) -> &[u8];
    /// The first address of the function at this address; 0 if it isn't known.
    fn function(&self, address: u64) -> u64;
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A conditional branch.
    Conditional,
    /// A jump to a known place.
    Jump,
    /// A call of a known place.
    Call,
    /// A jump by a register or memory.
    IndirectJump,
    /// A call by a register or memory.
    IndirectCall,
    /// A return.
    Return,
    /// A system call, an interrupt, or another far transfer.
    Far,
    /// The block has no branch: another one follows.
    Next,
    /// No known bytes.
    Missing,
}

/// Code from an address up to a branch.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// The first address.
    pub start: u64,
    /// The branch's address.
    pub last: u64,
    /// The address behind the branch.
    pub next: u64,
    /// Where the branch leads to, if it says so.
    pub target: u64,
    /// The first address of the function; 0 if it isn't known.
    pub function: u64,
    /// How it ends.
    pub kind: Kind,
    /// The block at `target`, the one at `next`.
    pub(crate) taken: u32,
    pub(crate) behind: u32,
}

impl Block {
    /// Code of which not even the address is known.
    pub(crate) const NOWHERE: Block = Block {
        start: 0,
        last: 0,
        next: 0,
        target: 0,
        function: 1,
        kind: Kind::Missing,
        taken: UNLINKED,
        behind: UNLINKED,
    };

    /// Where it begins.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { start: self.start, function: self.function, kind: self.kind }
    }
}

/// A place of a program, without what is needed to go on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its address.
    pub start: u64,
    /// The first address of the function; 0 if it isn't known.
    pub function: u64,
    /// How the code up to the next branch ends.
    pub kind: Kind,
}

impl Place {
    /// Whether its address is a function's first.
    #[must_use]
    pub fn begins_function(&self) -> bool {
        self.function == self.start
    }
}

/// The blocks of a process that have been met.
#[derive(Debug, Default)]
pub struct Code {
    blocks: Vec<Block>,
    by_address: FxHashMap<u64, u32>,
    /// Changes when indices of blocks become invalid.
    generation: u32,
}

impl Code {
    /// Forgets all blocks: code was mapped or unmapped.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.by_address.clear();
        self.generation = self.generation.wrapping_add(1);
    }

    /// Forgets the blocks that have code within these addresses: it was replaced.
    pub fn forget(&mut self, start: u64, end: u64) {
        // A block that can't be linked to any more may stay where it is.
        let overlaps =
            |block: &Block| block.start < end && start < block.next.max(block.start.saturating_add(1));
        let before = self.by_address.len();
        let blocks = &self.blocks;
        self.by_address.retain(|_, index| !blocks.get(*index as usize).is_some_and(overlaps));
        if self.by_address.len() == before {
            return;
        }
        let is_gone: Vec<bool> = self.blocks.iter().map(overlaps).collect();
        let is_gone = |index: u32| is_gone.get(index as usize).is_some_and(|is_gone| *is_gone);
        for block in &mut self.blocks {
            if is_gone(block.taken) {
                block.taken = UNLINKED;
            }
            if is_gone(block.behind) {
                block.behind = UNLINKED;
            }
        }
        self.generation = self.generation.wrapping_add(1);
    }

    /// Changes when indices become invalid.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn begin(&mut self) {
        if self.blocks.len() >= BLOCKS_MAX {
            self.clear();
        }
    }

    #[inline]
    pub(crate) fn block(&self, index: u32) -> Option<&Block> {
        self.blocks.get(index as usize)
    }

    /// The block at an address.
    pub(crate) fn at(&mut self, image: &impl Image, address: u64) -> u32 {
        if let Some(index) = self.by_address.get(&address) {
            return *index;
        }
        let index = self.blocks.len() as u32;
        self.blocks.push(decode(image, address));
        self.by_address.insert(address, index);
        index
    }

    /// The block that a branch leads to if it is taken.
    #[inline]
    pub(crate) fn taken(&mut self, image: &impl Image, index: u32) -> u32 {
        let Some(block) = self.block(index) else { return index };
        let (known, target) = (block.taken, block.target);
        if known != UNLINKED {
            return known;
        }
        let found = self.at(image, target);
        if let Some(block) = self.blocks.get_mut(index as usize) {
            block.taken = found;
        }
        found
    }

    /// The block behind a branch.
    #[inline]
    pub(crate) fn behind(&mut self, image: &impl Image, index: u32) -> u32 {
        let Some(block) = self.block(index) else { return index };
        let (known, next) = (block.behind, block.next);
        if known != UNLINKED {
            return known;
        }
        let found = self.at(image, next);
        if let Some(block) = self.blocks.get_mut(index as usize) {
            block.behind = found;
        }
        found
    }
}

fn decode(image: &impl Image, address: u64) -> Block {
    let bytes = image.bytes(address);
    let bytes = bytes.get(..BLOCK_BYTES).unwrap_or(bytes);
    let mut block = Block {
        start: address,
        last: address,
        next: address,
        target: 0,
        function: image.function(address),
        kind: Kind::Missing,
        taken: UNLINKED,
        behind: UNLINKED,
    };
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            // Cut by the block's size, or no instruction: the next block says which.
            break;
        }
        block.last = instruction.ip();
        block.next = instruction.next_ip();
        block.kind = match instruction.flow_control() {
            FlowControl::Next | FlowControl::XbeginXabortXend => Kind::Next,
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Kind::Jump,
            FlowControl::ConditionalBranch => Kind::Conditional,
            FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => Kind::IndirectJump,
            FlowControl::Call if instruction.is_call_near() => Kind::Call,
            FlowControl::IndirectCall if instruction.is_call_near_indirect() => Kind::IndirectCall,
            FlowControl::Return if is_near_return(&instruction) => Kind::Return,
            _ => Kind::Far,
        };
        if matches!(block.kind, Kind::Jump | Kind::Conditional | Kind::Call) {
            block.target = instruction.near_branch_target();
        }
        if block.kind == Kind::Call && block.target == block.next {
            // It gets its own address: no call, and CPUs don't take it for one.
            block.kind = Kind::Jump;
        }
        if block.kind != Kind::Next {
            break;
        }
    }
    block
}

fn is_near_return(instruction: &Instruction) -> bool {
    instruction.mnemonic() == iced_x86::Mnemonic::Ret
}
