//! All assembly of the traced side. There is one folder for each architecture, with the same names
//! in each.
//!
//! Each traced object carries a copy of the hooks under hidden names, next to its
//! [`ModuleDescriptor`], from which they read the object's range of the code space. So no procedure
//! linkage tables, symbol lookups or options slow them down, and a module with a blank descriptor
//! is off.
//!
//! The fast path of a hook:
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
//! The order of these steps matters:
//!
//! - The clock is read before the slot is reserved, and its upper half is compared afterwards. So a
//!   word always belongs to the last epoch recorded before its slot.
//! - An entry is pushed before its word is written, and an exit's word is written before the entry
//!   is popped. So a signal handler that jumps away in between leaves one frame too many, never one
//!   too few. Dead frames are found by their stack pointers.
//!
//! Hooks preserve every general register and use no other registers. They don't change `errno`, the
//! direction flag, MXCSR or the x87 control word either. The slow path also preserves the lower
//! halves of the vector registers, and doesn't use the upper halves. It runs with signals blocked,
//! on a stack of its own if one is free.
#![no_std]

#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
pub mod arch;

mod descriptor;

#[cfg(any(feature = "executable", feature = "module"))]
pub use arch::describe_object;
pub use arch::{
    add_own, call_on_stack, exchange_own, is_stepping, spawn, stack_pointer, syscall, thread_pointer, ticks,
};
#[cfg(any(feature = "executable", feature = "shared"))]
pub use arch::{handler_end, local_thread_slot};
pub use descriptor::{
    BLOCKED_SIGNALS, ByteSink, COUNT_ALL, COUNTS, ModuleDescriptor, RuntimeTable, SLOW_FRAME_SIZE,
    SLOW_STACK_SIZE, SLOW_STACKS, ShortMap, SlowCall, THREAD_HOME, THREAD_SLOT_SIZE, TRAP_SIGNAL, XrayCall,
    XrayObject, short_map, slow,
};
