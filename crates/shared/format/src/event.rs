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
//! - *ticks*: the low half of the time-stamp counter. The upper half is in the segment's first
//!   record, and in an EPOCH record whenever it changes.
//! - *code offset*: an address in the function, in the space of 31-bit offsets in which each module
//!   has a range ([`crate::arena::ModuleEntry`]).
//! - A word whose low half is zero was never completed (an exit hook writes the ticks first). If
//!   the writer has reserved it, it is one lost event.
//!
//! Offsets from [`ESCAPE_FIRST`] up are not code: they mark each word of a longer record, so that
//! reading may start at any slot:
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
//! Slot order is the order of reservation, not of time: the events of a signal handler that runs
//! between a hook's clock read and its reservation precede the hook's event. Readers sort by time.
//!
//! If you change this, change `docs/format.md`, [`crate::arena::ARENA_VERSION`] and
//! [`crate::ect::VERSION_MINOR`].

/// Set in a word that reports an exit.
pub const EXIT: u32 = 1 << 31;
/// The code offset's bits in the low half of a word.
pub const OFFSET_MASK: u32 = EXIT - 1;
/// First code offset that marks a word of a longer record; the code space ends here.
pub const ESCAPE_FIRST: u32 = 0x7f00_0000;
/// Code offsets from here to [`ESCAPE_FIRST`] are shared by all modules that found no range of
/// their own. They identify no module.
pub const NO_PLACE_FIRST: u32 = 0x7e00_0000;
/// First code offset that a module may have: so no event word is zero.
pub const OFFSET_FIRST: u32 = 0x1000;
/// Bytes of a word.
pub const WORD_SIZE: usize = 8;

/// Kinds of longer records. The numbers are part of the format.
pub mod kind {
    /// First record of each segment: `[ticks high half, open calls, segment number]`.
    /// The second payload is the number of calls that were open before the first event in it.
    pub const SEGMENT: u8 = 1;
    /// The upper half of ticks changed: `[ticks high half]`.
    pub const EPOCH: u8 = 2;
    /// Frames were unwound (exception, longjmp, thread end): `[open calls afterwards, frames
    /// unwound]`. Every call above that depth ended at this time or shortly before it. The second
    /// payload may be missing. Detail is one of [`super::unwound`].
    pub const UNWOUND: u8 = 3;
    /// An orphan exit: `[code offset]`. Its entry is not on the open-call stack, so it ends no
    /// call.
    pub const ORPHAN_EXIT: u8 = 4;
    /// An entry or exit with a clock read before an EPOCH record and a slot after it: `[low half of
    /// its word, ticks high half]`. The low half of its ticks is in the first word.
    pub const LATE: u8 = 5;
    /// Events were lost here: `[count low, count high]`. Detail is one of [`super::loss`].
    pub const LOSS: u8 = 6;
    /// Entry or exit of an address outside all registered modules: `[address low, address high]`,
    /// detail 1 for an exit.
    pub const UNKNOWN_CODE: u8 = 7;
    /// Reserved for tail exits: `[code offset]`. Readers treat it as an exit.
    pub const TAIL_EXIT: u8 = 8;
    /// Where the next call was made: `[code offset of the last byte of the calling instruction]`;
    /// empty if that is in no registered module. It is written after a [`GAP`] with
    /// [`super::resumed::MAYBE_ANOTHER`], before calls of a thread that has announced its end, and
    /// before an [`UNWOUND`] with [`super::unwound::INLINED`] or
    /// [`super::unwound::INLINED_IN_CLEANUP`]. Detail is 0 or one of [`super::caller`].
    pub const CALLER: u8 = 9;
    /// A label, instant, span or counter of the program: `[value low, value high, name...]`; see
    /// [`crate::label`]. Detail is its class, with flags.
    pub const LABEL: u8 = 10;
    /// Arguments or results of a call: `[capture id, bytes, the capture...]`; see
    /// [`crate::capture`]. It comes directly before the word of the call's entry or exit, in the
    /// same segment, and has the same ticks. Detail is one of [`super::values`].
    pub const VALUES: u8 = 11;
    /// Recording was off and is on again: `[ticks low, ticks high, open calls afterwards, frames
    /// ended, thread, flags]`. It is written before the first event after the gap. Detail is one of
    /// [`super::gap`].
    ///
    /// - *Ticks*: when recording went off.
    /// - *Frames ended*: frames that, by their stack pointers, ended in the gap in an unknown way.
    ///   This payload and the one before it may be missing.
    /// - *Thread*, *flags*: for [`super::gap::SUSPENDED`] only: kernel id of the thread that
    ///   resumes the stack, and a set of [`super::resumed`].
    pub const GAP: u8 = 12;
    /// Reserved: kernel events.
    pub const KERNEL: u8 = 13;
    /// Fills a slot whose event took another slot, and the rest of a segment. No event is lost.
    pub const FILLER: u8 = 14;
    /// A log line, formatted when it is shown; see [`crate::log_line`].
    pub const LOG: u8 = 17;
    /// Short calls that were dropped so far in the thread's slot, by it and by the threads that had
    /// the slot before: `[count low, count high]`. It is written at the start of each of the
    /// thread's segments, and when the upper half of ticks changes. See [`crate::dropped`].
    pub const DROPPED: u8 = 18;
    /// XRay's custom event: `[bytes, data...]`; see [`crate::xray_event`].
    pub const XRAY_CUSTOM_EVENT: u8 = 19;
    /// XRay's typed event: `[type, bytes, data...]`.
    pub const XRAY_TYPED_EVENT: u8 = 20;
}

/// How it is known that frames were unwound (detail of [`kind::UNWOUND`]).
pub mod unwound {
    /// The runtime was notified when it happened; in files before 2.5, any of the cases here.
    pub const KNOWN: u8 = 0;
    /// Stack pointers showed it at the next call or return: the frames ended some time before.
    pub const NOTICED: u8 = 1;
    /// An exception handler has begun in a frame that these calls share, because they were inlined
    /// into its function. A [`super::kind::CALLER`] before it has the handler's place. The calls
    /// that the handler isn't part of were unwound. The others continue, and their exits are
    /// [`super::kind::ORPHAN_EXIT`]s.
    pub const INLINED: u8 = 2;
    /// As [`INLINED`], for a frame that cleans up and makes the next call. A
    /// [`super::kind::CALLER`] before it has the place of that call.
    pub const INLINED_IN_CLEANUP: u8 = 3;
}

/// Which values a [`kind::VALUES`] has (its detail).
pub mod values {
    /// Arguments: those of the entry that follows.
    pub const ARGUMENTS: u8 = 0;
    /// The result: that of the exit that follows.
    pub const RESULT: u8 = 1;
}

/// Whose code a [`kind::CALLER`] names (its detail).
pub mod caller {
    /// The called function's own, which was inlined there.
    pub const CALLEES: u8 = 1;
}

/// Why events were lost (detail of [`kind::LOSS`]).
pub mod loss {
    /// A hook was abandoned before it wrote the slot that it had reserved.
    pub const HOLE: u8 = 1;
    /// The slow path was busy in this thread.
    pub const BUSY: u8 = 2;
}

/// Why nothing was recorded (detail of [`kind::GAP`]).
pub mod gap {
    /// The program excluded this thread.
    pub const THREAD: u8 = 1;
    /// Tracing was disabled.
    pub const DISABLED: u8 = 2;
    /// No thread ran this stack. All calls that were open are still open.
    pub const SUSPENDED: u8 = 3;
}

/// Facts about a stack that is resumed (sixth payload of [`kind::GAP`] for [`gap::SUSPENDED`]).
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
    /// Whether it is an entry or exit, or the first word of a record of one.
    #[must_use]
    pub const fn is_event(self) -> bool {
        match self {
            Word::Entry { .. } | Word::Exit { .. } => true,
            Word::Record { kind, .. } => matches!(kind, kind::LATE | kind::ORPHAN_EXIT | kind::UNKNOWN_CODE),
            Word::Empty | Word::Payload { .. } => false,
        }
    }

    /// Decodes `word`. Every value has a meaning.
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
