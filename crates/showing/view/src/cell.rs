//! The drawing of one call, or of several neighbours.

use everycall_answers::Place;

/// A cell of several calls, where none took the most time, or of none.
pub(crate) const SEVERAL: u32 = u32::MAX;

/// A call, or several neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// When the first call begins, in nanoseconds since the origin.
    pub from: u64,
    /// When the last one ends.
    to_and_bits: u64,
    /// The function; of several calls, the one that takes the most time, as far as that is known.
    pub function: u32,
    /// How many calls.
    pub count: u32,
}

/// Times are below this; the bits above hold [`bits`](everycall_answers::bits).
const TIME_MAX: u64 = (1 << 56) - 1;

impl Cell {
    /// One call.
    pub fn call(from: u64, to: u64, function: u32, bits: u8) -> Cell {
        let (from, to) = (from.min(TIME_MAX), to.min(TIME_MAX).max(from.min(TIME_MAX)));
        Cell { from, to_and_bits: to | u64::from(bits) << 56, function, count: 1 }
    }

    /// This cell, for so many calls.
    pub fn times(self, count: u32) -> Cell {
        Cell { count, ..self }
    }

    /// This cell with another end and other facts.
    pub fn until(self, to: u64, bits: u8) -> Cell {
        Cell { to_and_bits: to.min(TIME_MAX) | u64::from(bits) << 56, ..self }
    }

    /// When the last call ends.
    pub fn to(&self) -> u64 {
        self.to_and_bits & TIME_MAX
    }

    /// Facts that hold for one of the calls.
    pub fn bits(&self) -> u8 {
        (self.to_and_bits >> 56) as u8
    }

    /// From the begin of the first call to the end of the last one.
    pub fn length(&self) -> u64 {
        self.to() - self.from
    }

    /// Where it is drawn.
    pub fn place(&self, track: u32, depth: usize) -> Place {
        Place { track, from: self.from, to: self.to(), depth }
    }
}
