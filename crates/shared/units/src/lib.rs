//! Times, sizes and counts: reads them as users write them, and prints them for users.
//!
//! Used by both sides: the runtime reads its variables with it, the command its options, triggers
//! and outputs. Everything here is exact integer arithmetic without allocation.
//!
//! - [`time`]: `1.5ms` to nanoseconds, and nanoseconds to `1.50 ms`.
//! - [`size`]: `64K` to bytes, and bytes to `64 KiB`.
//! - [`count`]: `1,234,567`, and `1 call` or `2 calls`.
//!
//! Not here: what they are of.
//!
//! Checked by: every spelling, limits, round trips.

#![cfg_attr(not(test), no_std)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)
)]

pub mod count;
pub mod size;
pub mod time;

pub use count::{COUNT_MAX, Count, Several};
pub use size::{OptionSize, Size, parse_size};
pub use time::{Duration, TimeError, UNITS_ALLOWED, parse_time, parse_time_bytes};
