//! The event word and the longer records.
//!
//! A call's entry or exit is one 8-byte word:
//!
//! ```text
//!  63            32 31 30                        0
//! +----------------+--+---------------------------+
//! | ticks, low half| X|        code offset        |
//! +----------------+--+---------------------------+
//!   X: 1 for an exit
//! ```
//!
//! - *ticks*: the low 32 bits of the time-stamp counter. The upper half stands in the segment's
//!   first record and in an epoch record whenever it changes.
//! - *code offset*: an address in the function, minus the bias of its module
//!   ([`crate::arena::ModuleEntry`]). Modules are laid out densely in this 31-bit space.
//! - A word whose low half is zero was never completed (a hook may write the ticks first): within
//!   what the writer has reserved it is one lost event.
//!
//! Offsets from [`ESCAPE_FIRST`] up are not code: they mark the words of longer records, every
//! word of them, so that reading may start at any slot:
//!
//! ```text
//!  63            32 31 30    24 23    16 15     8 7      0
//! +----------------+--+--------+--------+--------+--------+
//! | ticks, low half| 0|  0x7f  |  kind  | count  | detail |   first word; `count` words follow
//! +----------------+--+--------+--------+--------+--------+
//! |     payload    | 1|  0x7f  |  kind  | index  |    0   |   following words, index 1..=count
//! +----------------+--+--------+--------+--------+--------+
//! ```
//!
//! Slot order is the order of reservation, not of time: a signal handler that runs between a
//! hook's clock read and its reservation writes its events first. Readers order by time.
//!
//! If you change this, change `docs/format.md`, [`crate::arena::ARENA_VERSION`] and
//! [`crate::ect::VERSION_MINOR`].

/// Set in a word that reports an exit.
pub const EXIT: u32 = 1 << 31;
/// The code offset's bits in the low half of a word.
pub const OFFSET_MASK: u32 = EXIT - 1;
/// Code offsets from here up are escapes; the code space ends here.
pub const ESCAPE_FIRST: u32 = 0x7f00_0000;
/// Code offsets from here to [`ESCAPE_FIRST`] are shared by all modules for which there was no
/// range: which of them the code belongs to is unknown.
pub const NO_PLACE_FIRST: u32 = 0x7e00_0000;
/// Code offsets below this are never given to a module, so that no event word is zero.
pub const OFFSET_FIRST: u32 = 0x1000;
/// Bytes of a word.
pub const WORD_SIZE: usize = 8;

/// Kinds of longer records. The numbers are part of the format.
pub mod kind {
    /// First record of each segment: `[ticks high half, open calls, segment number]`.
    /// The open calls are the depth of the open-call stack when the segment began.
    pub const SEGMENT: u8 = 1;
    /// The upper half of the counter changed: `[ticks high half]`.
    pub const EPOCH: u8 = 2;
    /// Frames were unwound (exception, longjmp, thread end): `[open calls afterwards, frames
    /// left]`. Every call above that depth ended at this time or shortly before it. The second
    /// payload may be missing; it is right if a signal handler unwinds while the hook that it
    /// interrupted has its slot and not yet its open call. Detail is a [`super::unwound`].
    pub const UNWOUND: u8 = 3;
    /// An exit whose entry is not on the open-call stack: `[code offset]`. It closes no call.
    pub const ORPHAN_EXIT: u8 = 4;
    /// An event that got its slot after an epoch record although it happened before it: `[code
    /// offset and exit bit, ticks high half]`, the low half is in the first word.
    pub const LATE: u8 = 5;
    /// Events are known to be missing here: `[count low, count high]`; detail is a [`super::loss`].
    pub const LOSS: u8 = 6;
    /// Entry or exit of an address outside all registered modules: `[address low, address high]`,
    /// detail 1 for an exit.
    pub const UNKNOWN_CODE: u8 = 7;
    /// Reserved: the function was left by jumping into another: `[code offset]`.
    pub const TAIL_EXIT: u8 = 8;
    /// Where the next call was made: `[code offset of the last byte of the instruction that
    /// called]`; empty if that is in no registered module. It is written after a [`GAP`] with
    /// [`super::resumed::MAYBE_ANOTHER`], and before outermost calls of a thread that has announced
    /// its end.
    pub const CALLER: u8 = 9;
    /// A label, instant or span of the program's own: `[value low, value high, name...]`, see
    /// [`crate::label`]; detail is its class, with flags.
    pub const LABEL: u8 = 10;
    /// Reserved: an argument or result value.
    pub const ARGUMENT: u8 = 11;
    /// Recording was off and is on again: `[ticks low, ticks high, open calls afterwards, frames
    /// left]`; the ticks are the time when it went off; detail is a [`super::gap`]. It is written
    /// before the first event after the gap. The frames left are those that stack pointers show
    /// gone, as in [`UNWOUND`]: they ended in the gap in an unknown way. The last two payloads may
    /// be missing. A fifth one, for [`super::gap::SUSPENDED`], is the thread that continues, by its
    /// kernel id; a sixth one is a set of [`super::resumed`].
    pub const GAP: u8 = 12;
    /// Reserved: kernel events.
    pub const KERNEL: u8 = 13;
    /// Fills a slot that was reserved for an event which then took another one: no event is lost.
    pub const FILLER: u8 = 14;
    /// A log line, formatted when it is shown: see [`crate::log_line`].
    pub const LOG: u8 = 17;
    /// Short calls that the thread has dropped so far, and those of the slot's threads before it:
    /// `[count low, count high]`. It is written at the begin of a thread's segments, and when the
    /// upper half of the counter changes. See [`crate::dropped`].
    pub const DROPPED: u8 = 18;
    /// XRay's custom event: `[bytes, data...]`, see [`crate::xray_event`].
    pub const XRAY_CUSTOM_EVENT: u8 = 19;
    /// XRay's typed event: `[type, bytes, data...]`.
    pub const XRAY_TYPED_EVENT: u8 = 20;
}

/// How it is known that frames were left (detail of [`kind::UNWOUND`]).
pub mod unwound {
    /// The runtime was notified when it happened, or the record doesn't say.
    pub const KNOWN: u8 = 0;
    /// Stack pointers showed it, at the next call or return: it happened some time before.
    pub const NOTICED: u8 = 1;
    /// A handler of an exception has begun in a frame that these calls share, into whose function
    /// they were inlined: the calls that don't contain the handler's code were unwound. A
    /// [`super::kind::CALLER`] before it says where the handler is. The exit of a call that wasn't
    /// unwound is an [`super::kind::ORPHAN_EXIT`].
    pub const INLINED: u8 = 2;
    /// The same, where the frame cleans up and makes the next call: a [`super::kind::CALLER`]
    /// before it says from where.
    pub const INLINED_IN_CLEANUP: u8 = 3;
}

/// Further facts about a [`kind::CALLER`]'s code (its detail).
pub mod caller {
    /// It is the called function's own, which was inlined there.
    pub const CALLEES: u8 = 1;
}

/// Why events are missing (detail of [`kind::LOSS`]).
pub mod loss {
    /// A hook was left before it wrote the slot that it had reserved.
    pub const HOLE: u8 = 1;
    /// The slow path was busy in this thread.
    pub const BUSY: u8 = 2;
}

/// Why nothing was recorded (detail of [`kind::GAP`]).
pub mod gap {
    /// The program left this thread out.
    pub const THREAD: u8 = 1;
    /// Tracing was disabled.
    pub const DISABLED: u8 = 2;
    /// No thread ran this stack: all calls that were open are open still.
    pub const SUSPENDED: u8 = 3;
}

/// What is known of a stack that is run again (sixth payload of [`kind::GAP`] for
/// [`gap::SUSPENDED`]).
pub mod resumed {
    /// It may be another stack in the same memory: the open calls may not be the callers of the
    /// next call.
    pub const MAYBE_ANOTHER: u32 = 1;
}

/// The most words that may follow the first word of a record.
pub const RECORD_MAX_PAYLOAD: usize = 255;

/// The word of an entry or exit. `low` is the code offset, with [`EXIT`] for an exit.
#[must_use]
pub const fn call_word(ticks: u64, low: u32) -> u64 {
    (ticks << 32) | low as u64
}

/// The first word of a longer record.
#[must_use]
pub const fn record_word(ticks: u64, kind: u8, count: u8, detail: u8) -> u64 {
    (ticks << 32) | (ESCAPE_FIRST | (kind as u32) << 16 | (count as u32) << 8 | detail as u32) as u64
}

/// A following word of a longer record; `index` counts from 1.
#[must_use]
pub const fn payload_word(payload: u32, kind: u8, index: u8) -> u64 {
    (payload as u64) << 32 | (EXIT | ESCAPE_FIRST | (kind as u32) << 16 | (index as u32) << 8) as u64
}

/// The meaning of one word, on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Never written, or not completed.
    Empty,
    /// A function was entered.
    Entry {
        /// Low half of the counter.
        ticks_low: u32,
        /// Code offset.
        offset: u32,
    },
    /// A function was left.
    Exit {
        /// Low half of the counter.
        ticks_low: u32,
        /// Code offset.
        offset: u32,
    },
    /// The first word of a longer record.
    Record {
        /// Low half of the counter.
        ticks_low: u32,
        /// One of [`kind`].
        kind: u8,
        /// Words that follow.
        count: u8,
        /// Eight bits whose meaning depends on the kind.
        detail: u8,
    },
    /// A following word of a longer record.
    Payload {
        /// The 32 bits that it carries.
        payload: u32,
        /// One of [`kind`].
        kind: u8,
        /// Its place in the record, from 1.
        index: u8,
    },
}

impl Word {
    /// Whether it is an entry or exit, or begins a record of one.
    #[must_use]
    pub const fn is_event(self) -> bool {
        match self {
            Word::Entry { .. } | Word::Exit { .. } => true,
            Word::Record { kind, .. } => matches!(kind, kind::LATE | kind::ORPHAN_EXIT | kind::UNKNOWN_CODE),
            Word::Empty | Word::Payload { .. } => false,
        }
    }

    /// Tells what `word` is. Total: every value has a meaning.
    #[must_use]
    pub const fn decode(word: u64) -> Word {
        let high = (word >> 32) as u32;
        let low = word as u32;
        let offset = low & OFFSET_MASK;
        if low == 0 {
            Word::Empty
        } else if offset < ESCAPE_FIRST {
            if low & EXIT == 0 {
                Word::Entry { ticks_low: high, offset }
            } else {
                Word::Exit { ticks_low: high, offset }
            }
        } else {
            let kind = (low >> 16) as u8;
            let middle = (low >> 8) as u8;
            if low & EXIT == 0 {
                Word::Record { ticks_low: high, kind, count: middle, detail: low as u8 }
            } else {
                Word::Payload { payload: high, kind, index: middle }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_decode_to_what_they_were_made_from() {
        let ticks = 0xabcd_0123_4567_89ef;
        assert_eq!(Word::decode(0), Word::Empty);
        assert_eq!(Word::decode(0x1234_5678_0000_0000), Word::Empty);
        assert_eq!(
            Word::decode(call_word(ticks, 0x1234)),
            Word::Entry { ticks_low: 0x4567_89ef, offset: 0x1234 }
        );
        assert_eq!(
            Word::decode(call_word(ticks, EXIT | 0x1234)),
            Word::Exit { ticks_low: 0x4567_89ef, offset: 0x1234 }
        );
        assert_eq!(
            Word::decode(record_word(ticks, kind::LOSS, 2, loss::BUSY)),
            Word::Record { ticks_low: 0x4567_89ef, kind: kind::LOSS, count: 2, detail: loss::BUSY }
        );
        assert_eq!(
            Word::decode(payload_word(77, kind::LOSS, 2)),
            Word::Payload { payload: 77, kind: kind::LOSS, index: 2 }
        );
    }

    #[test]
    fn bit_positions_are_the_documented_ones() {
        assert_eq!(call_word(0x1_0000_0002, EXIT | 3), 0x0000_0002_8000_0003);
        assert_eq!(record_word(5, 0x12, 0x34, 0x56), 0x0000_0005_7f12_3456);
        assert_eq!(payload_word(5, 0x12, 0x34), 0x0000_0005_ff12_3400);
    }
}
