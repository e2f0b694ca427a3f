//! The ring that one thread writes and anybody may read, the pool of segments that rings are made of, and the control
//! block through which the hooks write.
//!
//! ```text
//!      pool of segments (shared memory)               Control (private memory)
//!   +-----+-----+-----+-----+-----+-----+               position  next free slot
//!   |A 4  |B 0  |A 5  |free |A 3  |B 1  | ...           end       slot behind the last usable one
//!   +-----+-----+-----+-----+-----+-----+               ...
//!           thread A is writing its segment 5
//! ```
//!
//! Protocol:
//! - A hook reserves a slot by adding to `position` in one instruction that no signal can split, and
//!   goes to the slow path where the slot isn't below `end`. Nothing else moves `position`
//!   but [`Ring::advance`], which runs with signals blocked, in the same thread.
//! - [`Ring::advance`] takes the next segment: from the pool while the ring isn't full, then the ring's oldest. Where others
//!   hold that one, they keep it and the ring takes another from the pool. It marks the segment, clears it from its
//!   first word on, writes its segment record, takes the mark away and publishes its number in the shared header (release).
//! - A reader holds the segments that it wants ([`Pool::hold`]), looks whose they are, copies, looks whether it still holds them and
//!   releases them. One who can't write the memory looks at the segment's record before and after instead.
//!
//! This room knows the segment record and fillers, because it writes them, and no other record. It knows nothing of threads,
//! modules or how a snapshot is saved.
#![cfg_attr(not(loom), no_std)]

mod clear;
mod control;
mod free_list;
mod keep;
mod pool;
mod primitive;
mod ring;

pub use control::{Control, left_out, running, state};
pub use free_list::FreeList;
pub use keep::Keep;
pub use pool::{Pool, SegmentEntry, Taken};
pub use ring::{Advance, Ring, SEGMENT_RECORD_WORDS, SPARE_WORDS, Shortage, Size};
