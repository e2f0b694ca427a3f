//! All assembly of the traced side. One folder per architecture, with the same names in each.
//!
//! Each traced object carries a copy of the hooks under hidden names, next to its
//! [`ModuleDescriptor`], from which they take the object's place in the code space. So there are no
//! procedure linkage tables, no symbol lookups and no options on the way, and a module whose
//! descriptor is blank is off.
//!
//! What a hook does when nothing is in its way:
//!
//! ```text
//! control block of this thread (thread-local slot)      none -> slow path
//! is the stack that block's?                            the thread is left out -> return; another one -> slow path
//! read the clock
//! reserve a slot                                        beyond the end -> slow path
//!                                                       upper half of the clock changed -> slow path
//! entry: push {word, stack pointer, upper half}         frames below are dead -> slow path
//! exit:  top of the open calls is this frame            not this frame -> slow path
//! write the word
//! exit:  pop
//! ```
//!
//! Order matters, and each order has its reason: the clock is read before the slot is reserved and
//! its upper half compared afterwards, so a word always belongs to the last epoch recorded before
//! its slot. An entry is pushed before it is written and an exit written before it is popped, so a
//! signal handler that jumps away in between leaves a frame too many, never one too few, and dead
//! frames are found by their stack pointers.
//!
//! Hooks keep every general register and touch no other one; `errno`, the direction flag, MXCSR and
//! the x87 control word aren't touched either. The slow path keeps the vector registers too (their
//! lower halves; it doesn't touch the upper ones) and runs with signals blocked, on a stack of its
//! own where the thread has one.
#![no_std]

#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
pub mod arch;

mod descriptor;

#[cfg(any(feature = "executable", feature = "module"))]
pub use arch::describe_object;
pub use arch::{call_on_stack, is_stepping, spawn, stack_pointer, syscall, thread_pointer, ticks};
#[cfg(any(feature = "executable", feature = "shared"))]
pub use arch::{handler_end, local_thread_slot};
pub use descriptor::{
    BLOCKED_SIGNALS, ByteSink, ModuleDescriptor, RuntimeTable, SLOW_FRAME_SIZE, SLOW_STACK_SIZE, SLOW_STACKS,
    SlowCall, THREAD_SLOT_SIZE, TRAP_SIGNAL, slow,
};
