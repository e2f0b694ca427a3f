//! Code and stubs of x86-64.

mod calls;
mod instructions;
mod stubs;

pub(crate) use calls::targets;
pub(crate) use instructions::{
    INSTRUCTION_SIZE_MAX, LONGEST_CALL, ends_in_call, first_call, is_indirect_thunk, is_return_thunk, leaving,
};
pub(crate) use stubs::{STUB_SECTIONS, jump_slot, stub_size};
