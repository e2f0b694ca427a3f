//! 64-bit Arm.
//!
//! # Registers
//!
//! A site is `mov x9, x30` and `bl hook`. So in a hook of sites, x30 is an address in the function,
//! and x9 is what the function's x30 was. The hook leaves x30 as it was before the site. It uses x9
//! to x15 and the flags, which a function doesn't need at its entry or exit: compilers keep a tail
//! call's target in x16 or x17. It uses neither those nor x18, which belongs to the platform or
//! holds the static chain.
//!
//! Hooks that compilers call use no other registers, though they might.
//!
//! # Stack
//!
//! A call puts nothing on the stack here. Still, of two open calls the inner one must have the lower
//! stack pointer, also where one has its hooks in its body. A function that makes a call has saved
//! x30, in a frame of at least 16 bytes. So a hook of sites reports a stack pointer 8 bytes below
//! the function's, and a hook in a body reports the body's:
//!
//! ```text
//!   S       stack pointer at the function's first instruction
//!   S - 8   its hooks of sites report this
//!   ...     its frame, at least 16 bytes
//!   B       stack pointer in its body, at most S - 16: its hooks there report this
//!   B - 8   hooks of sites of a function that it calls report this
//! ```
//!
//! A hook writes nothing onto the stack before it is in the slow path.
//!
//! # Order of memory accesses
//!
//! Other processes read rings and open-call stacks while hooks write them. The word of an event, and
//! that of an open call, are stored with release: whoever sees one sees what was written before it.
//! Whether a handler has run in between is a question of the order of instructions, as elsewhere.
//!
//! What x86-64 adds by one instruction is a pair of an exclusive load and store here: a signal in
//! between makes the store fail.
//!
//! # How hooks enter the slow path
//!
//! | from | x11 | w14 |
//! |---|---|---|
//! | no control block, another stack, or no space | null | 0, EXIT, BODY |
//! | clock's upper half changed | reserved slot | 0, EXIT, BODY |
//! | dead frames below an entry | reserved slot | PUSHED, BODY |
//! | an exit of another frame | reserved slot with the exit's ticks | EXIT, BODY |
//! | an exit of a long call, or of a short one where these are dropped | as above | EXIT, BODY |
//! | a tail exit of an armed function | reserved slot with the exit's ticks | EXIT |
//! | the first counted call of a function or a thread | null | COUNT, BODY |
//! | a call that is timed, whose values are copied, or a frame by id | null | 0, EXIT, BODY, FRAME |

#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod body;
#[cfg(any(feature = "executable", feature = "shared"))]
pub mod calibration;
pub mod capture;
pub mod code;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod counts;
mod errors;
pub mod floating;
#[cfg(any(feature = "executable", feature = "shared"))]
mod forked;
pub mod frame;
mod frames;
mod guard;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod hooks;
#[cfg(any(feature = "executable", feature = "module"))]
mod inlined;
pub mod interrupted;
pub mod jump;
pub mod kernel;
#[cfg(feature = "module")]
mod linked;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod memory;
pub mod number;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod object;
mod processor;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod saving;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod sites;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod slow_path;

pub use errors::{error_offset, has_namespaces};
#[cfg(any(feature = "executable", feature = "shared"))]
pub use forked::call_in_forked_children;
pub use frames::frames;
#[cfg(any(feature = "executable", feature = "shared"))]
pub use frames::{everycall_frame_enter, everycall_frame_leave};
pub use guard::{Sequence, guard_offset, is_cleared, is_guarded};
#[cfg(feature = "module")]
pub use linked::{debugger_objects, linked_runtime};
#[cfg(any(feature = "executable", feature = "module"))]
pub use object::describe_object;
#[cfg(any(feature = "executable", feature = "shared"))]
pub use object::own_descriptor;
#[cfg(feature = "executable")]
pub use object::starts_off;
pub use processor::{
    add_own, call_on_stack, exchange_own, is_stepping, spawn, stack_pointer, syscall, thread_pointer, ticks,
};
#[cfg(any(feature = "executable", feature = "shared"))]
pub use processor::{handler_end, local_thread_slot};

/// A program's own memory lies below this address.
pub const USER_END: u64 = 1 << 52;
/// The most bytes that the kernel puts onto a stack for a signal handler, with all register state
/// including the array of the matrix extension.
pub const SIGNAL_FRAME: u64 = 80 << 10;
