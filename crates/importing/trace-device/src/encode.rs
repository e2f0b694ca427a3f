//! From events to bytes.
//!
//! A record's first byte:
//!
//! ```text
//! bits 7..6  0 leave, 1 enter at a known place, 2 enter at another address, 3 see the next byte
//! bits 5..4  stack pointer: 0 as predicted, 1 a byte follows (times 8), 2 a number follows
//! bits 3..0  units of time since the record before: 0..13, 14 a byte follows, 15 a number follows
//! ```
//!
//! Then, in this order: the byte of kind 3, time, stack pointer, place. Numbers are in groups of
//! seven bits; differences that may be negative have their sign in the lowest bit. A known place
//! is its slot in the table. Addresses and ids are differences to the last one that was written.
//!
//! | second byte of kind 3 | record | what follows |
//! |---|---|---|
//! | 0 | head of a block | units of time, stack pointer, as numbers |
//! | 1 | enter with an id that isn't known | the difference |
//! | 2 | leave of an id | |
//! | 3 | leave by a jump | |
//! | 4 | events were lost | how many |
//! | 5 | a word | the number |
//! | 15 | the rest of the block is empty | |

use crate::event::{Event, Place};
use crate::parameters::Parameters;
use crate::predictor::Predictor;
use crate::varint::{put, zigzag};

/// More bytes than a record and the mark of an empty rest have.
pub(crate) const RECORD_MAX: usize = 48;

pub(crate) mod kind {
    pub const LEAVE: u8 = 0;
    pub const ENTER_KNOWN: u8 = 1;
    pub const ENTER_CODE: u8 = 2;
    pub const OTHER: u8 = 3;
}

pub(crate) mod other {
    pub const HEAD: u8 = 0;
    pub const ENTER_ID: u8 = 1;
    pub const LEAVE_ID: u8 = 2;
    pub const LEAVE_BY_JUMP: u8 = 3;
    pub const LOST: u8 = 4;
    pub const WORD: u8 = 5;
    pub const EMPTY: u8 = 15;
}

/// Times up to this many units are in the first byte.
pub(crate) const TIME_BYTE: u8 = 14;
pub(crate) const TIME_NUMBER: u8 = 15;
/// The first time that needs more than one further byte.
pub(crate) const TIME_LONG: u64 = TIME_BYTE as u64 + 256;

/// Encodes the events of one thread.
#[derive(Clone, Debug)]
pub struct Encoder {
    parameters: Parameters,
    predictor: Predictor,
    block: Vec<u8>,
}

impl Encoder {
    /// A device with nothing in its tables.
    #[must_use]
    pub fn new(parameters: Parameters) -> Encoder {
        let predictor = Predictor::new(&parameters);
        Encoder { parameters, predictor, block: Vec::new() }
    }

    /// Bytes of the block that isn't complete yet.
    #[must_use]
    pub fn block(&self) -> &[u8] {
        &self.block
    }

    /// Writes an event. Returns how many bytes it added, and a block that became complete before
    /// it. A time before the last one's counts as that.
    pub fn put(&mut self, at_ns: u64, event: Event) -> (usize, Option<Vec<u8>>) {
        let units = (at_ns / self.parameters.unit_ns).max(self.predictor.units);
        let complete = (self.block.len() + RECORD_MAX > self.parameters.block_bytes).then(|| self.finish());
        let before = self.block.len();
        if self.block.is_empty() {
            self.head(units);
        }
        self.record(units, &event);
        (self.block.len() - before, complete)
    }

    /// Ends the block and fills it up.
    fn finish(&mut self) -> Vec<u8> {
        self.block.extend([kind::OTHER << 6, other::EMPTY]);
        self.block.resize(self.parameters.block_bytes, 0);
        std::mem::take(&mut self.block)
    }

    fn head(&mut self, units: u64) {
        self.predictor.clear();
        self.predictor.units = units;
        self.block.extend([kind::OTHER << 6, other::HEAD]);
        put(&mut self.block, units);
        put(&mut self.block, self.predictor.stack);
    }

    fn record(&mut self, units: u64, event: &Event) {
        let predictor = &self.predictor;
        let passed = units - predictor.units;
        let time = if passed < u64::from(TIME_BYTE) {
            passed as u8
        } else if passed < TIME_LONG {
            TIME_BYTE
        } else {
            TIME_NUMBER
        };
        let (kind, second, stack) = match *event {
            Event::Enter { place, stack } => {
                let kind = match place {
                    _ if predictor.known(predictor.slot_of(place)) == Some(place) => kind::ENTER_KNOWN,
                    Place::Code(_) => kind::ENTER_CODE,
                    Place::Id(_) => kind::OTHER,
                };
                (kind, other::ENTER_ID, Some((stack, predictor.next_enter())))
            }
            Event::Leave { stack } => (kind::LEAVE, 0, Some((stack, predictor.next_leave()))),
            Event::LeaveByJump { stack } => {
                (kind::OTHER, other::LEAVE_BY_JUMP, Some((stack, predictor.next_leave())))
            }
            Event::LeaveId { stack } => (kind::OTHER, other::LEAVE_ID, Some((stack, predictor.next_leave()))),
            Event::Word { .. } => (kind::OTHER, other::WORD, None),
            Event::Lost { .. } => (kind::OTHER, other::LOST, None),
        };
        let difference = stack.map_or(0, |(stack, predicted)| stack.wrapping_sub(predicted) as i64);
        let small = i8::try_from(difference / 8).ok().filter(|_| difference % 8 == 0);
        let size = match (difference, small) {
            (0, _) => 0,
            (_, Some(_)) => 1,
            _ => 2,
        };
        let out = &mut self.block;
        out.push(kind << 6 | size << 4 | time);
        if kind == kind::OTHER {
            out.push(second);
        }
        match time {
            TIME_BYTE => out.push((passed - u64::from(TIME_BYTE)) as u8),
            TIME_NUMBER => put(out, passed - TIME_LONG),
            _ => {}
        }
        match (size, small) {
            (1, Some(small)) => out.push(small as u8),
            (2, _) => put(out, zigzag(difference)),
            _ => {}
        }
        match *event {
            Event::Enter { place, .. } if kind == kind::ENTER_KNOWN => {
                out.push(predictor.slot_of(place) as u8)
            }
            Event::Enter { place: Place::Code(code), .. } => {
                put(out, zigzag(code.wrapping_sub(predictor.code) as i64));
            }
            Event::Enter { place: Place::Id(id), .. } => {
                put(out, zigzag(id.wrapping_sub(predictor.id) as i64));
            }
            Event::Word { value: number } | Event::Lost { count: number } => put(out, number),
            _ => {}
        }
        self.predictor.units = units;
        self.predictor.apply(event);
    }
}
