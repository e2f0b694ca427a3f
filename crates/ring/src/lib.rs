//! The ring buffer that one thread writes and anybody may read, and the control block through which
//! the hooks write it.
//!
//! ```text
//!            ring (shared memory)                       Control (private memory)
//!   +---------+---------+---------+---------+             position  next free slot
//!   |segment 4|segment 5|segment 2|segment 3|             end       slot behind the last usable one
//!   +---------+---------+---------+---------+             ...
//!              ^writing   ^cleared and taken next
//! ```
//!
//! Protocol:
//! - A hook reserves a slot by adding to `position` in one instruction that no signal can split, and
//!   goes to the slow path where the slot isn't below `end`. Nothing else moves `position`
//!   but [`Ring::advance`], which runs with signals blocked, in the same thread.
//! - [`Ring::advance`] clears the next segment from its first word on, writes its segment record,
//!   publishes its number in the shared header (release) and opens it to the hooks.
//! - A reader reads the number (acquire), copies, reads the number again; segments that may have been
//!   reused meanwhile are dropped ([`Reach`]).
//!
//! This room knows the segment record and fillers, because it writes them, and no other record. It knows nothing of threads,
//! modules or how a snapshot is saved.
#![cfg_attr(not(loom), no_std)]

mod clear;
mod control;
mod primitive;
mod reach;
mod ring;

pub use control::{Control, state};
pub use reach::Reach;
pub use ring::{Ring, SEGMENT_RECORD_WORDS, SPARE_WORDS};
