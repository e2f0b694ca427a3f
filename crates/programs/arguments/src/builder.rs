//! Instructions with labels, made into a program.

use everycall_format::Wire;
use everycall_format::capture::{ERRNO, Instruction, MAGIC, ProgramHeader, REGISTERS, operation, status};

/// A place in the program that isn't known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

#[derive(Clone, Debug, Default)]
pub(crate) struct Builder {
    instructions: Vec<Instruction>,
    pool: Vec<u8>,
    /// By label, the index of an instruction.
    labels: Vec<Option<usize>>,
    /// Instructions whose `size` is a label's number.
    jumps: Vec<usize>,
    next_register: usize,
    is_full: bool,
}

impl Builder {
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is the place of the next instruction.
    pub(crate) fn place(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(self.instructions.len());
        }
    }

    /// A free register; the last one again and again if there is none, which `has_room` says.
    pub(crate) fn register(&mut self) -> u8 {
        let register = self.next_register.min(REGISTERS - 1);
        self.is_full |= self.next_register >= REGISTERS;
        self.next_register += 1;
        register as u8
    }

    /// Whether there were registers enough.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full
    }

    /// Registers in use; to give back by `release`.
    pub(crate) fn in_use(&self) -> usize {
        self.next_register
    }

    pub(crate) fn release(&mut self, in_use: usize) {
        self.next_register = in_use;
    }

    pub(crate) fn emit(&mut self, operation: u8, target: u8, left: u8, right: u8, size: u32, value: u64) {
        self.instructions.push(Instruction { operation, target, left, right, size, value });
    }

    pub(crate) fn jump(&mut self, operation: u8, left: u8, to: Label) {
        self.jumps.push(self.instructions.len());
        self.emit(operation, 0, left, 0, to.0 as u32, 0);
    }

    /// If what came after `start` is an item that copies a register, it loses its status, and has 4
    /// or 8 bytes. Returns whether it was one.
    pub(crate) fn shorten_item(&mut self, start: usize) -> bool {
        let Some([item, load, emit]) = self.instructions.get(start..) else { return false };
        let is_register = item.operation == operation::ITEM
            && load.operation == operation::REGISTER
            && load.size != ERRNO
            && (operation::EMIT, load.target) == (emit.operation, emit.left);
        if !is_register {
            return false;
        }
        let size = if emit.size > 4 { 8 } else { 4 };
        let (load, emit) = (*load, Instruction { size, ..*emit });
        self.instructions.truncate(start);
        self.instructions.extend([load, emit]);
        self.jumps.retain(|jump| *jump < start);
        true
    }

    /// Instructions so far.
    pub(crate) fn length(&self) -> usize {
        self.instructions.len()
    }

    /// Begins an item that ends at a label.
    pub(crate) fn item(&mut self, end: Label) {
        self.jump(operation::ITEM, 0, end);
    }

    /// An item without a value, which ends at a label.
    pub(crate) fn absent_item(&mut self, end: Label) {
        self.item(end);
        if let Some(item) = self.instructions.last_mut() {
            item.value = u64::from(status::ABSENT);
        }
    }

    pub(crate) fn constant(&mut self, value: u64) -> u8 {
        let target = self.register();
        self.emit(operation::CONSTANT, target, 0, 0, 0, value);
        target
    }

    pub(crate) fn binary(&mut self, operation: u8, how: u32, left: u8, right: u8) -> u8 {
        let target = self.register();
        self.emit(operation, target, left, right, how, 0);
        target
    }

    /// Puts a text into the pool; the value that an instruction names it by.
    pub(crate) fn text(&mut self, text: &[u8]) -> u64 {
        let at = self.pool.len() as u64;
        self.pool.extend_from_slice(text);
        at | (text.len() as u64) << 32
    }

    /// The program's bytes. Labels that were never placed are its end.
    pub(crate) fn finish(&self, id: u32) -> Vec<u8> {
        let mut instructions = self.instructions.clone();
        let end = instructions.len();
        for &jump in &self.jumps {
            if let Some(instruction) = instructions.get_mut(jump) {
                let place = self.labels.get(instruction.size as usize).copied().flatten();
                instruction.size = place.unwrap_or(end) as u32;
            }
        }
        if instructions.is_empty() {
            instructions.push(Instruction::default());
        }
        let header = ProgramHeader {
            magic: MAGIC,
            id,
            instructions: instructions.len() as u32,
            pool: self.pool.len() as u32,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(instructions.iter().flat_map(Wire::to_bytes));
        bytes.extend_from_slice(&self.pool);
        bytes
    }
}
