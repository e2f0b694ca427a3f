//! From bytes to events. `encode` has the layout.

use std::fmt;

use crate::encode::{TIME_BYTE, TIME_LONG, TIME_NUMBER, kind, other};
use crate::event::{Event, Place, Stamped};
use crate::parameters::Parameters;
use crate::predictor::Predictor;
use crate::varint::{signed, take};

/// Why a block can't be decoded any further; the next one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the record.
    pub offset: usize,
    /// The mistake in it.
    pub what: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for DecodeError {}

/// Decodes blocks that follow each other; the last one may be incomplete.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    parameters: Parameters,
    predictor: Predictor,
    bytes: &'a [u8],
    offset: usize,
}

enum Step {
    Record(Stamped),
    Head,
    Empty,
}

impl<'a> Decoder<'a> {
    /// Of bytes that begin with a block.
    #[must_use]
    pub fn new(parameters: Parameters, bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { parameters, predictor: Predictor::new(&parameters), bytes, offset: 0 }
    }

    fn block_end(&self) -> usize {
        let size = self.parameters.block_bytes;
        ((self.offset / size + 1) * size).min(self.bytes.len())
    }

    fn step(&mut self, end: usize) -> Result<Step, &'static str> {
        const CUT: &str = "a record isn't whole";
        let all = self.bytes.get(self.offset..end).unwrap_or_default();
        let mut rest = all;
        let byte = |rest: &mut &[u8]| {
            let (&first, others) = rest.split_first().ok_or(CUT)?;
            *rest = others;
            Ok::<u8, &'static str>(first)
        };
        let number = |rest: &mut &[u8]| take(rest).ok_or("a number isn't whole");
        let first = byte(&mut rest)?;
        let is_begin = self.offset.is_multiple_of(self.parameters.block_bytes);
        let kind = first >> 6;
        let second = if kind == kind::OTHER { byte(&mut rest)? } else { 0 };
        match (kind, second) {
            (kind::OTHER, other::HEAD) => {
                self.predictor.clear();
                self.predictor.units = number(&mut rest)?;
                self.predictor.stack = number(&mut rest)?;
                self.offset += all.len() - rest.len();
                return Ok(Step::Head);
            }
            _ if is_begin => return Err("a block doesn't begin with its head"),
            (kind::OTHER, other::EMPTY) => return Ok(Step::Empty),
            _ => {}
        }
        let passed = match first & 15 {
            TIME_BYTE => u64::from(TIME_BYTE) + u64::from(byte(&mut rest)?),
            TIME_NUMBER => number(&mut rest)?.checked_add(TIME_LONG).ok_or("a time is too large")?,
            units => u64::from(units),
        };
        let units = self.predictor.units.checked_add(passed).ok_or("a time is too large")?;
        let at_ns = units.checked_mul(self.parameters.unit_ns).ok_or("a time is too large")?;
        let difference = match first >> 4 & 3 {
            0 => 0,
            1 => i64::from(byte(&mut rest)? as i8) * 8,
            2 => signed(number(&mut rest)?),
            _ => return Err("no such form of a stack pointer"),
        };
        let leave = self.predictor.next_leave().wrapping_add(difference as u64);
        let enter = self.predictor.next_enter().wrapping_add(difference as u64);
        let event = match (kind, second) {
            (kind::LEAVE, _) => Event::Leave { stack: leave },
            (kind::ENTER_KNOWN, _) => {
                let slot = usize::from(byte(&mut rest)?);
                let place = self.predictor.known(slot).ok_or("a place that no record before had")?;
                Event::Enter { place, stack: enter }
            }
            (kind::ENTER_CODE, _) => {
                let code = self.predictor.code.wrapping_add(signed(number(&mut rest)?) as u64);
                Event::Enter { place: Place::Code(code), stack: enter }
            }
            (_, other::ENTER_ID) => {
                let id = self.predictor.id.wrapping_add(signed(number(&mut rest)?) as u64);
                Event::Enter { place: Place::Id(id), stack: enter }
            }
            (_, other::LEAVE_ID) => Event::LeaveId { stack: leave },
            (_, other::LEAVE_BY_JUMP) => Event::LeaveByJump { stack: leave },
            (_, other::WORD) => Event::Word { value: number(&mut rest)? },
            (_, other::LOST) => Event::Lost { count: number(&mut rest)? },
            _ => return Err("no such record"),
        };
        self.predictor.units = units;
        self.predictor.apply(&event);
        self.offset += all.len() - rest.len();
        Ok(Step::Record(Stamped { at_ns, event }))
    }
}

impl Iterator for Decoder<'_> {
    type Item = Result<Stamped, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.offset < self.bytes.len() {
            let end = self.block_end();
            match self.step(end) {
                Ok(Step::Record(stamped)) => return Some(Ok(stamped)),
                Ok(Step::Head) => {}
                Ok(Step::Empty) => self.offset = end,
                Err(what) => {
                    let offset = std::mem::replace(&mut self.offset, end);
                    return Some(Err(DecodeError { offset, what }));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Encoder;

    /// Pseudo-random numbers of a seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }

        fn any(&mut self) -> u64 {
            let bits = self.below(64);
            self.below(1 << 31) << 33 >> bits
        }
    }

    /// Calls that nest, are left in all ways, and among them values that no program has.
    fn stream(seed: u64, count: usize) -> Vec<Stamped> {
        let mut random = Random(seed);
        let (mut at, mut stack) = (random.any() / 8 * 4, 1 << 47);
        let mut open: Vec<(u64, bool)> = Vec::new();
        let mut events = Vec::new();
        for _ in 0..count {
            let pause = match random.below(100) {
                0 => 1 << 40,
                1..=9 => 5000,
                _ => 60,
            };
            at += random.below(pause) * 4;
            let event = match random.below(1000) {
                0 if random.below(2) == 0 => Event::Word { value: random.any() },
                0 => Event::Lost { count: random.any() },
                1 => Event::Enter { place: Place::Code(random.any()), stack: random.any() },
                2 => Event::Leave { stack: random.any() },
                3..550 => {
                    let is_id = random.below(5) == 0;
                    stack -= if is_id { random.below(2) * 16 } else { 16 + random.below(9) * 16 };
                    open.push((stack, is_id));
                    let value = random.below(400) * 64 + if random.below(50) == 0 { 1 << 40 } else { 0 };
                    let place = if is_id { Place::Id(value) } else { Place::Code(0x7f00_0000_0000 + value) };
                    Event::Enter { place, stack }
                }
                550..570 => {
                    // An exception: some calls end without an exit.
                    open.truncate(open.len() - random.below(open.len() as u64 + 1) as usize);
                    stack = open.last().map_or(1 << 47, |open| open.0);
                    continue;
                }
                _ => match open.pop() {
                    None => continue,
                    Some((at_stack, is_id)) => {
                        stack = open.last().map_or(1 << 47, |open| open.0);
                        match (is_id, random.below(10)) {
                            (true, _) => Event::LeaveId { stack: at_stack },
                            (false, 0) => Event::LeaveByJump { stack: at_stack },
                            (false, _) => Event::Leave { stack: at_stack },
                        }
                    }
                },
            };
            events.push(Stamped { at_ns: at, event });
        }
        events
    }

    fn encoded(parameters: Parameters, events: &[Stamped]) -> Vec<u8> {
        let mut encoder = Encoder::new(parameters);
        let mut bytes = Vec::new();
        for stamped in events {
            let (_, complete) = encoder.put(stamped.at_ns, stamped.event);
            bytes.extend(complete.into_iter().flatten());
        }
        bytes.extend(encoder.block());
        bytes
    }

    const SMALL: Parameters = Parameters { unit_ns: 4, places: 16, frames: 4, block_bytes: 512 };

    #[test]
    fn streams_are_read_back() {
        for seed in 0..10 {
            for parameters in [SMALL, Parameters::DEVICE] {
                let events = stream(seed, 5000);
                let bytes = encoded(parameters, &events);
                let read: Result<Vec<_>, _> = Decoder::new(parameters, &bytes).collect();
                assert!(read.expect("valid bytes") == events, "seed {seed}, {parameters:?}");
            }
        }
    }

    #[test]
    fn each_block_is_read_alone() {
        let events = stream(7, 5000);
        let bytes = encoded(SMALL, &events);
        let mut read = Vec::new();
        for block in bytes.chunks(SMALL.block_bytes) {
            read.extend(Decoder::new(SMALL, block).map(|event| event.expect("valid bytes")));
        }
        assert!(read == events);
    }

    #[test]
    fn damage_costs_one_block() {
        let events = stream(3, 3000);
        let whole = encoded(SMALL, &events);
        let mut random = Random(1);
        for _ in 0..100 {
            let mut bytes = whole.clone();
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] = random.below(256) as u8;
            bytes.truncate(bytes.len() - random.below(64) as usize);
            let read: Vec<_> = Decoder::new(SMALL, &bytes).collect();
            assert!(read.iter().filter(|event| event.is_err()).count() <= 2);
            let first = place / SMALL.block_bytes * SMALL.block_bytes;
            let before = Decoder::new(SMALL, &whole[..first]).count();
            assert!(read[..before].iter().zip(&events).all(|(read, event)| read.as_ref() == Ok(event)));
        }
    }

    #[test]
    fn calls_of_a_loop_take_three_bytes() {
        let mut encoder = Encoder::new(Parameters::DEVICE);
        let mut sizes = Vec::new();
        for round in 0..100 {
            let enter = Event::Enter { place: Place::Code(0x5555_0000_1000), stack: 0x7ffc_0000_1000 };
            sizes.push(encoder.put(round * 40, enter).0);
            sizes.push(encoder.put(round * 40 + 20, Event::Leave { stack: 0x7ffc_0000_1000 }).0);
        }
        assert_eq!(sizes[2..4].iter().sum::<usize>(), 3, "{sizes:?}");
    }
}
