//! From the words of a segment to events with full time.
//!
//! Each segment can be decoded alone: its first record contains the upper half of the counter, and
//! a plain event uses the last upper half before it in slot order. Events come in slot order, which
//! is not the order of time (a signal handler that runs between a hook's clock read and its slot
//! writes first).

pub use everycall_format::label::Name;

use everycall_format::event::{ESCAPE_FIRST, EXIT, OFFSET_MASK, Word, caller, gap, kind, resumed};

/// An event of one slot, or of a few that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time in ticks. An event without a time of its own has that of the event before it.
    pub ticks: u64,
    /// Place of its first word within the segment.
    pub slot: u32,
    /// Its kind.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A function was entered.
    Entry {
        /// Code offset.
        offset: u32,
    },
    /// A function was left.
    Exit {
        /// Code offset.
        offset: u32,
    },
    /// A function was left by jumping into another.
    TailExit {
        /// Code offset.
        offset: u32,
    },
    /// A segment begins.
    Segment {
        /// Its number, lower half.
        number: u32,
        /// Calls that were open when it began.
        open_calls: u32,
    },
    /// Frames were left without an exit.
    Unwound {
        /// Calls that are open afterwards.
        open_calls: u32,
        /// Frames that were left, where the record says.
        left: Option<u32>,
        /// One of [`everycall_format::event::unwound`].
        how: u8,
    },
    /// An exit whose entry the runtime did not know.
    OrphanExit {
        /// Code offset.
        offset: u32,
    },
    /// Code outside all modules was entered.
    UnknownEntry {
        /// Process address.
        address: u64,
    },
    /// Code outside all modules was left.
    UnknownExit {
        /// Process address.
        address: u64,
    },
    /// The program said something: a label, an instant, the begin or end of a span. [`label_name`]
    /// gives its name.
    Label {
        /// A class and flags of [`everycall_format::label`].
        detail: u8,
        /// Its value; 0 if the flags say that it has none.
        value: u64,
    },
    /// The program wrote a log line. [`crate::log_line`] shows it.
    Log,
    /// Arguments of the entry that follows, or the result of the exit that follows, at the same
    /// time. [`crate::values`] has the capture.
    Values {
        /// One of [`everycall_format::event::values`].
        what: u8,
    },
    /// The program emitted an event by XRay's interface. [`crate::xray_event::xray_event_text`]
    /// shows it.
    XrayEvent,
    /// Recording was off, and is on again from here. Not of stacks: [`EventKind::Resumed`].
    Gap {
        /// When recording went off, in ticks.
        from_ticks: u64,
        /// Calls that ended meanwhile, as far as stack pointers show it.
        left: u32,
        /// One of [`everycall_format::event::gap`].
        why: u8,
    },
    /// No thread ran this stack, and one runs it again from here:
    /// [`everycall_format::event::gap::SUSPENDED`]. No call ended meanwhile.
    Resumed {
        /// When it was left, in full ticks.
        from_ticks: u64,
        /// The kernel's id of the thread that continues the stack; 0 if the record doesn't say.
        thread: u32,
        /// It may be another stack in the same memory, so the open calls may not be the callers of
        /// the next call.
        maybe_another: bool,
    },
    /// Where the next call was made, because open calls don't show its caller:
    /// [`everycall_format::event::kind::CALLER`].
    Caller {
        /// The last byte of the instruction that called; `None` where that is in no module.
        offset: Option<u32>,
        /// It is one of the called function's own, which was inlined there.
        is_callees: bool,
    },
    /// Short calls that the thread, and its slot's threads before it, have dropped so far.
    Dropped {
        /// How many.
        count: u64,
    },
    /// The runtime counted events that it did not write.
    Loss {
        /// How many.
        count: u64,
        /// One of [`everycall_format::event::loss`].
        why: u8,
    },
    /// Slots that were reserved but never written, or only partly: so many events are missing.
    Hole {
        /// How many.
        count: u64,
    },
    /// A record that this version doesn't know; it is complete.
    Other {
        /// Its kind.
        kind: u8,
    },
    /// A word that is part of no complete record.
    Malformed,
}

/// Whether `words` begin with the record of segment `number`, as the words of every valid segment
/// do.
#[must_use]
pub fn begins_segment(words: &[u64], number: u64) -> bool {
    matches!(
        Events::new(words).next(),
        Some(Event { kind: EventKind::Segment { number: low, .. }, .. }) if low == number as u32
    )
}

/// The name in the label record that begins at `slot` of `words`; empty where there is none.
#[must_use]
pub fn label_name(words: &[u64], slot: u32) -> Name {
    let mut record = words.get(slot as usize..).unwrap_or_default().iter().copied().map(Word::decode);
    let count = match record.next() {
        Some(Word::Record { kind: kind::LABEL, count, .. }) => usize::from(count),
        _ => 0,
    };
    let payloads = record.take(count).map_while(|word| match word {
        Word::Payload { payload, kind: kind::LABEL, .. } => Some(payload),
        _ => None,
    });
    Name::from_payloads(payloads.skip(2))
}

/// The events of one segment.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    words: &'a [u64],
    next: usize,
    /// Upper half of the counter, shifted into place.
    high: u64,
    /// Of the last event, for those without a time of their own.
    ticks: u64,
}

impl<'a> Events<'a> {
    /// The events in `words`, which begin with a segment's first record.
    #[must_use]
    pub fn new(words: &'a [u64]) -> Events<'a> {
        Events { words, next: 0, high: 0, ticks: 0 }
    }

    /// The entries and exits up to the next event of another kind, as many as possible at once:
    /// most events are in such runs. [`Iterator::next`] continues behind them.
    #[inline]
    pub fn plain_run(&mut self) -> PlainRun<'a> {
        let rest = self.words.get(self.next..).unwrap_or_default();
        let count = rest.iter().position(|word| !is_plain(*word)).unwrap_or(rest.len());
        let words = &rest[..count];
        if let Some(last) = words.last() {
            self.ticks = self.high | last >> 32;
        }
        self.next += count;
        PlainRun { high: self.high, words }
    }

    /// Anything but a plain entry or exit. `None` for epoch records and fillers, which are no
    /// events.
    #[cold]
    fn longer(&mut self, slot: usize, word: u64) -> Option<EventKind> {
        let (ticks_low, kind, count, detail) = match Word::decode(word) {
            Word::Empty => {
                let zeros = self.words[slot..].iter().take_while(|word| **word as u32 == 0).count();
                self.next = slot + zeros;
                return Some(EventKind::Hole { count: zeros as u64 });
            }
            Word::Record { ticks_low, kind, count, detail } => (ticks_low, kind, usize::from(count), detail),
            Word::Payload { .. } | Word::Entry { .. } | Word::Exit { .. } => {
                return Some(EventKind::Malformed);
            }
        };
        let Some(payload) = self.payload(slot + 1, kind, count) else {
            return Some(EventKind::Malformed);
        };
        self.next = slot + 1 + count;
        if kind == kind::FILLER {
            // Its time may belong to the next epoch already.
            return None;
        }
        let wide = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let plain = |word: u32| word & OFFSET_MASK < ESCAPE_FIRST;
        let event = match (kind, &payload.values[..payload.count]) {
            (kind::SEGMENT, [high, open_calls, number, ..]) => {
                self.high = u64::from(*high) << 32;
                EventKind::Segment { number: *number, open_calls: *open_calls }
            }
            (kind::EPOCH, [high, ..]) => {
                self.high = u64::from(*high) << 32;
                self.ticks = self.high | u64::from(ticks_low);
                return None;
            }
            (kind::UNWOUND, [open_calls, rest @ ..]) => {
                EventKind::Unwound { open_calls: *open_calls, left: rest.first().copied(), how: detail }
            }
            (kind::ORPHAN_EXIT, [offset, ..]) if plain(*offset) => {
                EventKind::OrphanExit { offset: offset & OFFSET_MASK }
            }
            (kind::TAIL_EXIT, [offset, ..]) if plain(*offset) => {
                EventKind::TailExit { offset: offset & OFFSET_MASK }
            }
            (kind::LATE, [low, high, ..]) if plain(*low) => {
                self.ticks = u64::from(*high) << 32 | u64::from(ticks_low);
                return Some(plain_event(*low));
            }
            (kind::CALLER, rest) => {
                let offset = rest.first().copied().filter(|offset| plain(*offset));
                let is_callees = detail & caller::CALLEES != 0;
                EventKind::Caller { offset: offset.map(|offset| offset & OFFSET_MASK), is_callees }
            }
            (kind::LABEL, [low, high, ..]) => EventKind::Label { detail, value: wide(*low, *high) },
            (kind::GAP, [low, high, rest @ ..]) if detail == gap::SUSPENDED => {
                let thread = rest.get(2).copied().unwrap_or(0);
                let maybe_another = rest.get(3).is_some_and(|flags| flags & resumed::MAYBE_ANOTHER != 0);
                EventKind::Resumed { from_ticks: wide(*low, *high), thread, maybe_another }
            }
            (kind::GAP, [low, high, rest @ ..]) => {
                let left = rest.get(1).copied().unwrap_or(0);
                EventKind::Gap { from_ticks: wide(*low, *high), left, why: detail }
            }
            (kind::LOSS, [low, high, ..]) => EventKind::Loss { count: wide(*low, *high), why: detail },
            (kind::DROPPED, [low, high, ..]) => EventKind::Dropped { count: wide(*low, *high) },
            (kind::UNKNOWN_CODE, [low, high, ..]) if detail & 1 == 0 => {
                EventKind::UnknownEntry { address: wide(*low, *high) }
            }
            (kind::UNKNOWN_CODE, [low, high, ..]) => EventKind::UnknownExit { address: wide(*low, *high) },
            (kind::XRAY_CUSTOM_EVENT, [_, ..]) | (kind::XRAY_TYPED_EVENT, [_, _, ..]) => EventKind::XrayEvent,
            (kind::LOG, [_, _, ..]) => EventKind::Log,
            (kind::VALUES, [_, _, ..]) => EventKind::Values { what: detail },
            (
                kind::SEGMENT..=kind::TAIL_EXIT
                | kind::LABEL
                | kind::LOG
                | kind::VALUES
                | kind::GAP
                | kind::DROPPED
                | kind::XRAY_CUSTOM_EVENT
                | kind::XRAY_TYPED_EVENT,
                _,
            ) => EventKind::Malformed,
            (kind, _) => EventKind::Other { kind },
        };
        self.ticks = self.high | u64::from(ticks_low);
        Some(event)
    }

    /// Whether all `count` following words of a record exist, and the first of their payloads.
    fn payload(&self, from: usize, kind: u8, count: usize) -> Option<Payload> {
        let mut payload = Payload { values: [0; Payload::KEPT], count: count.min(Payload::KEPT) };
        for (place, word) in self.words.get(from..from + count)?.iter().enumerate() {
            match Word::decode(*word) {
                Word::Payload { payload: value, kind: of, index }
                    if of == kind && usize::from(index) == place + 1 =>
                {
                    if let Some(kept) = payload.values.get_mut(place) {
                        *kept = value;
                    }
                }
                _ => return None,
            }
        }
        Some(payload)
    }
}

/// The payloads of a record that today's kinds use; later ones may have more.
struct Payload {
    values: [u32; Payload::KEPT],
    count: usize,
}

impl Payload {
    const KEPT: usize = 6;
}

impl Iterator for Events<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            let slot = self.next;
            let word = *self.words.get(slot)?;
            self.next = slot + 1;
            let kind = if is_plain(word) {
                self.ticks = self.high | word >> 32;
                plain_event(word as u32)
            } else if let Some(kind) = self.longer(slot, word) {
                kind
            } else {
                continue;
            };
            return Some(Event { ticks: self.ticks, slot: slot as u32, kind });
        }
    }
}

/// An entry or exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainEvent {
    /// Time in ticks.
    pub ticks: u64,
    /// Code offset.
    pub offset: u32,
    /// Whether it is an entry.
    pub is_entry: bool,
}

/// Entries and exits that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct PlainRun<'a> {
    /// Upper half of the counter, shifted into place.
    high: u64,
    words: &'a [u64],
}

impl<'a> PlainRun<'a> {
    /// Each of them.
    #[inline]
    pub fn events(self) -> impl ExactSizeIterator<Item = PlainEvent> + use<'a> {
        self.words.iter().map(move |word| {
            let low = *word as u32;
            PlainEvent { ticks: self.high | word >> 32, offset: low & OFFSET_MASK, is_entry: low & EXIT == 0 }
        })
    }

    /// How many there are, and how many of them are entries.
    #[must_use]
    pub fn counts(self) -> (u64, u64) {
        let exits: u64 = self.words.iter().map(|word| u64::from(*word as u32 / EXIT)).sum();
        let all = self.words.len() as u64;
        (all, all - exits)
    }

    /// The least and the greatest ticks; `None` without events.
    #[must_use]
    pub fn reach(self) -> Option<(u64, u64)> {
        let upper = |word: &u64| (word >> 32) as u32;
        let (mut least, mut most) = (u32::MAX, 0);
        for word in self.words {
            (least, most) = (upper(word).min(least), upper(word).max(most));
        }
        let full = |upper: u32| self.high | u64::from(upper);
        (!self.words.is_empty()).then(|| (full(least), full(most)))
    }
}

/// Whether a word is an entry or exit with code offset.
#[inline]
fn is_plain(word: u64) -> bool {
    let low = word as u32;
    low & OFFSET_MASK < ESCAPE_FIRST && low != 0
}

/// An entry or exit from the low half of its word.
#[inline]
fn plain_event(low: u32) -> EventKind {
    if low & EXIT == 0 {
        EventKind::Entry { offset: low }
    } else {
        EventKind::Exit { offset: low & OFFSET_MASK }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events, where those in runs are taken from the runs.
    fn by_runs(words: &[u64]) -> Vec<(u64, EventKind)> {
        let mut events = Events::new(words);
        let mut all = Vec::new();
        loop {
            let run = events.plain_run();
            let plain: Vec<PlainEvent> = run.events().collect();
            let entries = plain.iter().filter(|event| event.is_entry).count();
            assert_eq!(run.counts(), (plain.len() as u64, entries as u64));
            let ticks = plain.iter().map(|event| event.ticks);
            assert_eq!(run.reach(), ticks.clone().min().zip(ticks.max()));
            let kind = |event: PlainEvent| match event {
                PlainEvent { offset, is_entry: true, .. } => EventKind::Entry { offset },
                PlainEvent { offset, .. } => EventKind::Exit { offset },
            };
            all.extend(plain.into_iter().map(|event| (event.ticks, kind(event))));
            let Some(event) = events.next() else { return all };
            all.push((event.ticks, event.kind));
        }
    }

    #[test]
    fn runs_have_the_events_that_come_one_by_one() {
        let mut state = 1_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..2_000 {
            // Mostly entries and exits; empty words, parts of records and any others between them.
            let word = |bits: u64, low: u64| match bits % 16 {
                0 => 0,
                1 => bits,
                2 => bits | u64::from(ESCAPE_FIRST),
                _ => low & !(0x7f << 24) | 1,
            };
            let words: Vec<u64> = (0..random() % 60).map(|_| word(random(), random())).collect();
            let one_by_one: Vec<_> = Events::new(&words).map(|event| (event.ticks, event.kind)).collect();
            assert_eq!(by_runs(&words), one_by_one, "{words:x?}");
        }
    }
}
