//! Code and stubs of 64-bit Arm.

mod instructions;
mod stubs;

pub(crate) use instructions::{INSTRUCTION_SIZE, ends_in_call, leaving, targets};
pub(crate) use stubs::{jump_slot, stub_sizes};
