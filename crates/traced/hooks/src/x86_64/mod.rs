//! x86-64.
//!
//! # Registers
//!
//! Hooks save every register that they use, because any of them may be live:
//!
//! - at a function's entry, `rax` counts the vector registers of variadic calls, and `r10` is the
//!   static chain;
//! - at its exit, `rax` and `rdx` hold results;
//! - at a tail exit, every argument register is live, and `r11` or `rax` may hold the target;
//! - `preserve_none` functions take arguments in `r11`, `rax` and in most other registers.
//!
//! The flags are free in all of these places.
//!
//! # Stack
//!
//! ```text
//!   [rsp+32]  return address: an address in the function
//!   [rsp+24]  rax
//!   [rsp+16]  rdx
//!   [rsp+8]   rcx
//!   [rsp]     rsi       <- the stack pointer that goes into the open-call stack
//! ```
//!
//! Entry and exit hooks both push four registers. So if a function calls both at the same stack
//! pointer, both hooks have the same stack pointer.
//!
//! # How hooks enter the slow path
//!
//! | from | rsi | edi |
//! |---|---|---|
//! | no control block, another stack, or no space | null | 0, EXIT, BODY |
//! | clock's upper half changed | reserved slot | 0, EXIT, BODY |
//! | dead frames below an entry | reserved slot | PUSHED, BODY |
//! | an exit of another frame | reserved slot with the exit's ticks | EXIT, BODY |
//! | an exit of a call that took long | reserved slot with the exit's ticks | EXIT, BODY |
//! | a tail exit of an armed function | reserved slot with the exit's ticks | EXIT |
//! | the first counted call of a function or a thread | null | COUNT, BODY |
//! | as above, of a frame by id | as above | BODY and FRAME |

#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod body;
#[cfg(any(feature = "executable", feature = "shared"))]
pub mod calibration;
pub mod capture;
pub mod code;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod copying;
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
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod times;
#[cfg(any(feature = "executable", feature = "module", feature = "shared"))]
mod unstamped;

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
pub const USER_END: u64 = 1 << 47;
/// The most bytes that the kernel puts onto a stack for a signal handler, with all register state
/// including `AMX` tiles.
pub const SIGNAL_FRAME: u64 = 12 << 10;
