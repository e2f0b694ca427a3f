//! Programs that only copy registers, and texts whose addresses are in registers: as a list that
//! needs no interpreter.

use everycall_format::capture::{Instruction, UNTIL_ZERO, operation, status};

use crate::machine::Machine;
use crate::output::Output;
use crate::text::{self, Length};

/// The most items of such a program.
const ITEMS: usize = 8;
/// Bytes that an item's status and a register take.
const WIDTH: usize = 1 + size_of::<u64>();

/// One item.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Item {
    /// The register of the call.
    register: u8,
    /// Whether it is the address of a text.
    is_text: bool,
    /// The bytes that are written; of a text, at most.
    size: u16,
}

/// The items of such a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Copies {
    items: [Item; ITEMS],
    count: usize,
}

impl Copies {
    /// Those of a checked program; `None` if it does anything else.
    pub(crate) fn of(mut next: impl FnMut(usize) -> Option<Instruction>, count: usize) -> Option<Copies> {
        let mut copies = Copies { items: [Item::default(); ITEMS], count: 0 };
        let mut at = 0;
        while at < count {
            let begin = next(at)?;
            if begin.operation == operation::END {
                return Some(copies);
            }
            let (load, write) = (next(at + 1)?, next(at + 2)?);
            let is_item = begin.operation == operation::ITEM
                && begin.value == u64::from(status::PRESENT)
                && load.operation == operation::REGISTER
                && write.left == load.target;
            let is_text = match write.operation {
                operation::EMIT => false,
                operation::COPY_TEXT if write.right == UNTIL_ZERO => true,
                _ => return None,
            };
            let item = copies.items.get_mut(copies.count).filter(|_| is_item)?;
            *item = Item {
                register: u8::try_from(load.size).ok()?,
                is_text,
                size: u16::try_from(write.size).ok()?,
            };
            copies.count += 1;
            at += 3;
        }
        Some(copies)
    }

    /// Writes the items. Returns their bytes; `None` if there is too little room for this way, or a
    /// register isn't known.
    pub(crate) fn run(&self, machine: &impl Machine, output: &mut [u8]) -> Option<usize> {
        let mut length = 0;
        for item in self.items.get(..self.count)? {
            let value = machine.register(item.register.into())?;
            let place: &mut [u8; WIDTH] = output.get_mut(length..)?.first_chunk_mut()?;
            let [status, bytes @ ..] = place;
            *status = status::PRESENT;
            if item.is_text {
                let mut output = Output::from(output, length + 1);
                if !text::copy(machine, value, Length::UntilZero, item.size.into(), &mut output) {
                    return None;
                }
                length = output.length();
            } else {
                // Bytes beyond its size are written over by the next item.
                *bytes = value.to_le_bytes();
                length += 1 + usize::from(item.size);
            }
        }
        Some(length)
    }
}
