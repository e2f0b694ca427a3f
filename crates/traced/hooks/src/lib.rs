//! All assembly of the traced side. There is one folder for each architecture; all folders offer
//! the same names.
//!
//! Each traced object carries a copy of the hooks under hidden names, next to its
//! [`ModuleDescriptor`], from which the hooks read the object's range of the code space. So they
//! need no procedure linkage table and no symbol lookup. An object with a blank descriptor is off.
//!
//! The fast path of a hook:
//!
//! ```text
//! find this thread's control block (thread-local slot)   none -> slow path
//! compare the stack pointer with the block's bounds      another stack -> slow path
//!                                                        thread excluded -> return
//! read the clock
//! reserve a slot                                         beyond the end -> slow path
//! compare the clock's upper half                         changed -> slow path
//! entry: push {word, stack pointer, upper half}          dead frames below -> slow path
//! exit:  compare the innermost open call's frame         another frame -> slow path
//! exit:  compare the call's time with the floor          longer -> drop the call, or slow path
//! write the word
//! exit:  pop
//! ```
//!
//! The order of these steps matters:
//!
//! - The clock is read before the slot is reserved, and its upper half is compared afterwards. So a
//!   word always belongs to the last epoch recorded before its slot.
//! - An entry is pushed before its word is written, and an exit's word is written before the entry
//!   is popped. So a signal handler that jumps away in between leaves one open call too many, never
//!   one too few. Its stack pointer shows that its frame is dead.
//!
//! Hooks preserve every general register and use no other registers. They don't change `errno` or
//! the processor's control words either. The slow path also preserves the lower halves of the
//! vector registers, and doesn't use the upper halves. It runs with signals blocked, on a stack of
//! its own if one is free.
//!
//! Not here: policy, allocation.
//!
//! Checked by: disassembly, single-stepping, every calling convention, unwinders.
#![no_std]

#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
pub mod arch;
#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
pub mod arch;

mod descriptor;

#[cfg(any(feature = "executable", feature = "module"))]
pub use arch::describe_object;
pub use arch::frames;
#[cfg(any(feature = "executable", feature = "shared"))]
pub use arch::own_descriptor;
#[cfg(feature = "executable")]
pub use arch::starts_off;
pub use arch::{
    add_own, call_on_stack, exchange_own, is_stepping, spawn, stack_pointer, syscall, thread_pointer, ticks,
};
#[cfg(any(feature = "executable", feature = "shared"))]
pub use arch::{everycall_frame_enter, everycall_frame_leave};
#[cfg(any(feature = "executable", feature = "shared"))]
pub use arch::{handler_end, local_thread_slot};
pub use descriptor::{
    BLOCKED_SIGNALS, ByteSink, CAPTURES, COPY_PAGES, COPY_ROOM, COUNT_ALL, COUNTS, CapturePlace,
    CapturePlaces, Copies, CopyItem, CopyTest, ModuleDescriptor, RuntimeTable, SLOW_FRAME_SIZE,
    SLOW_STACK_SIZE, SLOW_STACKS, ShortMap, SlowCall, Switched, THREAD_HOME, THREAD_SLOT_SIZE, TRAP_SIGNAL,
    XrayCall, XrayObject, copied, copies, frame, memory_change, short_map, site, slow,
};
