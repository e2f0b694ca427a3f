//! Which events have a time of their own: a *stamp*.
//!
//! An event without a stamp has the ticks of the last stamp of its thread. It happened between that
//! stamp and the thread's next one.

/// Every event.
pub const EXACT: u32 = 0;
/// An event whose site usually follows the event before it closely, and is closely followed by the
/// next one, may have none. Several in a row may, up to [`BOUNDED_EVENTS`]. The first event after
/// the kernel has stopped the thread has one.
pub const BOUNDED: u32 = 1;
/// Only the first event after the kernel has stopped the thread, and those that the hooks can't
/// write alone.
pub const ORDER: u32 = 2;

/// Events from one stamp to the next, at most, if [`BOUNDED`].
pub const BOUNDED_EVENTS: u64 = 16;

/// The spellings, for messages.
pub const ALLOWED: &str = "exact, bounded or order";

/// Parses one of the spellings.
#[must_use]
pub fn parse(text: &[u8]) -> Option<u32> {
    match text {
        b"exact" => Some(EXACT),
        b"bounded" => Some(BOUNDED),
        b"order" => Some(ORDER),
        _ => None,
    }
}
