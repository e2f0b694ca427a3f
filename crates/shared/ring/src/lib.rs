//! The ring that one thread writes and any number of readers read, the pool of segments that rings
//! consist of, and the control block through which hooks write.
//!
//! ```text
//!      pool of segments (shared memory)               Control (private memory)
//!   +-----+-----+-----+-----+-----+-----+               position  next free slot
//!   |A 4  |B 0  |A 5  |free |A 3  |B 1  | ...           end       slot after the last usable one
//!   +-----+-----+-----+-----+-----+-----+               ...
//!           thread A is writing its segment 5
//! ```
//!
//! Protocol:
//! - A hook reserves a slot by adding to `position` in one instruction that no signal can split,
//!   and takes the slow path if the slot isn't below `end`. Only [`Ring::advance`] also moves
//!   `position`; it runs with signals blocked, in the same thread.
//! - [`Ring::advance`] takes the next segment: from the pool while the ring isn't full, then the
//!   ring's oldest. If others have pinned that one, they keep it and the ring takes another from
//!   the pool. It marks the segment, clears it from its first word on, writes its segment record,
//!   removes the mark and publishes its number in the shared header (release).
//! - A reader pins the segments that it wants ([`Pool::pin`]), reads their owners, copies them,
//!   checks that they are still pinned and unpins them. A reader without write access compares the
//!   segment's record before and after the copy instead.
//!
//! This crate writes the segment record and fillers, and knows no other record. It doesn't depend
//! on threads, modules or the storage of snapshots.
//!
//! Not here: what a record means, what a thread is.
//!
//! Checked by: loom, Miri, ThreadSanitizer.

// Every public item says what it is, in which unit, and when it fails.
#![deny(missing_docs, clippy::missing_errors_doc)]
#![cfg_attr(not(loom), no_std)]

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[path = "x86_64.rs"]
mod arch;
#[cfg(any(not(target_arch = "x86_64"), loom, miri))]
#[path = "portable.rs"]
mod arch;
mod control_block;
mod free_list;
mod grow;
mod pool;
mod primitive;
mod ring;

pub use control_block::{Control, NOTICED, left_out, running, state};
pub use free_list::FreeList;
pub use grow::GrowRequest;
pub use pool::{Pool, SegmentEntry, Taken};
pub use ring::{Advance, Ring, SEGMENT_RECORD_WORDS, SPARE_WORDS, Shortage, Size};
