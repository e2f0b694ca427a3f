//! The subjects of answers: calls, ranges of time, searches.

use serde::Serialize;

/// Where a call is: a moment and a depth at which it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its track.
    pub track: u32,
    /// The moment, in nanoseconds since the trace's begin.
    pub at: u64,
    /// Number of enclosing calls.
    pub depth: usize,
}

/// Where a call is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its track.
    pub track: u32,
    /// Begin, in nanoseconds since the trace's.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Number of enclosing calls.
    pub depth: usize,
}

/// The calls that sums cover: all that pass the library's filter, in a part of the time, of some
/// tracks, or one call and what it called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Begin, in nanoseconds since the trace's.
    pub from: Option<u64>,
    /// End.
    pub to: Option<u64>,
    /// The tracks.
    pub tracks: Option<Vec<u32>>,
    /// The call, instead of all others.
    pub call: Option<Position>,
}

/// One side of a comparison.
#[derive(Clone, Debug)]
pub enum Side {
    /// Calls of the file at this place among all.
    Range(usize, Scope),
    /// A call.
    Call(Position),
}

/// The calls and marks that a search is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The calls of a function, by its number.
    Function(u32),
    /// Calls of functions, and marks, by a part of their name or by `/REGEX/`.
    Text(String),
}
