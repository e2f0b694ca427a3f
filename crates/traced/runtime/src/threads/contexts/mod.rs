//! Contexts: which stack a thread runs, its own or a fiber's.
//!
//! ```text
//! over      stacks that have ended
//! growth    stacks that extend beyond their known bounds
//! switch    a thread begins a context, or switches to another one
//! current   which context a stack pointer belongs to
//! told      stacks that the program registers, and jumps that it announces
//! ```

mod current;
mod growth;
mod over;
mod switch;
mod told;

pub(crate) use current::current;
pub(crate) use switch::Found;
#[cfg(test)]
pub(crate) use switch::begin_home;
pub(crate) use told::{register, runs_own_stack, shares_frame, stays_in_jump, unregister};
