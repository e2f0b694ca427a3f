//! The calls of a track, from columns of numbers.

use std::iter::Peekable;
use std::ops::Range;

use everycall_calls::{EndKind, FIBERS_FROM, TASKS_FROM, Thread};
use everycall_profile::{Split, Thunk};

use super::head::{Head, TrackHead};
use crate::scope::Place;
use crate::{Answered, bits};

/// Beside [`bits::BY_TAIL`]: it isn't sure that the call before it made it.
pub const MAYBE_TAIL: u64 = 256;

/// Beside [`bits::UNTRACED`]: the call that led there isn't in the page.
pub const WITHOUT_CALL: u64 = 512;

/// The kind of a place in code, as a page has it in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceKind {
    /// If it is a thunk: how it continues in its function.
    pub thunk: Option<Thunk>,
    /// Whether it was split.
    pub split: Split,
}

impl PlaceKind {
    /// The number.
    #[must_use]
    pub fn number(self) -> u8 {
        let thunk = match self.thunk {
            None => 0,
            Some(Thunk::This) => 1,
            Some(Thunk::Result) => 2,
        };
        let split = match self.split {
            Split::No => 0,
            Split::Whole => 1,
            Split::Part => 2,
        };
        3 * thunk + split
    }

    /// The kind with a number.
    #[must_use]
    pub fn of(number: u8) -> PlaceKind {
        let thunk = match number / 3 {
            1 => Some(Thunk::This),
            2 => Some(Thunk::Result),
            _ => None,
        };
        let split = match number % 3 {
            1 => Split::Whole,
            2 => Split::Part,
            _ => Split::No,
        };
        PlaceKind { thunk, split }
    }
}

/// Columns of each track: begins, durations, places, depths, bits, and what calls lack.
const COLUMNS: usize = 6;

/// A track with calls.
pub(super) struct Track {
    pub id: u32,
    pub thread: Thread,
    count: u64,
    columns: [Range<usize>; COLUMNS],
}

impl Track {
    /// The tracks of a page.
    pub fn all(head: &Head, pieces: &[Range<usize>]) -> Answered<Vec<Track>> {
        let truncated = || "the page's data is truncated".to_owned();
        let mut pieces = pieces.chunks_exact(COLUMNS);
        let track = |(id, count): (&u32, &u64)| {
            let columns = pieces.next().and_then(|piece| piece.to_vec().try_into().ok());
            let thread = thread(head, *id).ok_or_else(|| format!("there is no track {id}"))?;
            Ok(Track { id: *id, thread, count: *count, columns: columns.ok_or_else(truncated)? })
        };
        head.order.iter().zip(&head.counts).map(track).collect()
    }

    /// Its calls, by begin, callers before what they call.
    pub fn slices<'b>(&self, bytes: &'b [u8]) -> Slices<'b> {
        let column = |index: usize| {
            Numbers(self.columns.get(index).and_then(|of| bytes.get(of.clone())).unwrap_or_default())
        };
        Slices {
            left: self.count,
            index: 0,
            from: 0,
            depth: 0,
            froms: column(0),
            durations: column(1),
            places: column(2),
            depths: column(3),
            bits: Some(Exceptions::new(column(4)).peekable()),
            less: Some(Less::new(column(5)).peekable()),
        }
    }
}

/// The thread of a track.
fn thread(head: &Head, id: u32) -> Option<Thread> {
    let processes = head.trace.processes.iter().enumerate();
    let mut all = processes.flat_map(|(process, of)| of.tracks.iter().map(move |track| (process, track)));
    let (process, TrackHead { pid, tid, name, kind, .. }) = all.find(|(_, track)| track.id == id)?;
    let from = match kind.as_str() {
        "fiber" => FIBERS_FROM,
        "task" => FIBERS_FROM + TASKS_FROM,
        _ => 0,
    };
    Some(Thread {
        process,
        pid: *pid,
        tid: tid.saturating_add(from),
        name: name.clone(),
        dropped: 0,
        is_sampled: kind == "counter",
    })
}

/// A call, or code that isn't traced.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slice {
    pub from: u64,
    pub duration: u64,
    pub place: u64,
    pub depth: u32,
    pub bits: u64,
    /// Nanoseconds in all of its callees, and in which its stack was suspended, where the page
    /// doesn't have all callees, or it was.
    pub less: Option<(u64, u64)>,
}

impl Slice {
    pub fn to(&self) -> u64 {
        self.from.saturating_add(self.duration)
    }

    pub fn has(&self, bit: u8) -> bool {
        self.bits & u64::from(bit) != 0
    }

    pub fn is_untraced(&self) -> bool {
        self.has(bits::UNTRACED)
    }

    pub fn place_in(&self, track: u32) -> Place {
        Place { track, from: self.from, to: self.to(), depth: self.depth as usize }
    }

    /// How it ended.
    pub fn how(&self) -> EndKind {
        match () {
            () if self.has(bits::CUT_END) => EndKind::TruncatedAtEnd,
            () if self.has(bits::TAIL) => EndKind::Jumped,
            () if self.has(bits::UNWOUND) && self.has(bits::AT_MOST) => EndKind::UnwoundLate,
            () if self.has(bits::UNWOUND) => EndKind::Unwound,
            () if self.has(bits::AT_MOST) => EndKind::ReturnedAfterGap,
            () => EndKind::Returned,
        }
    }
}

/// Reads the calls of a track.
#[derive(Default)]
pub(super) struct Slices<'b> {
    left: u64,
    index: u64,
    from: u64,
    depth: i64,
    froms: Numbers<'b>,
    durations: Numbers<'b>,
    places: Numbers<'b>,
    depths: Numbers<'b>,
    bits: Option<Peekable<Exceptions<'b>>>,
    less: Option<Peekable<Less<'b>>>,
}

impl Iterator for Slices<'_> {
    type Item = Slice;

    fn next(&mut self) -> Option<Slice> {
        self.left = self.left.checked_sub(1)?;
        let index = self.index;
        self.index += 1;
        self.from = self.from.saturating_add(self.froms.next()?);
        let difference = self.depths.next()?;
        let difference = (difference >> 1).cast_signed() ^ -(difference & 1).cast_signed();
        self.depth = self.depth.saturating_add(difference);
        Some(Slice {
            from: self.from,
            duration: self.durations.next()?,
            place: self.places.next()?,
            depth: u32::try_from(self.depth).unwrap_or(0),
            bits: self
                .bits
                .as_mut()
                .and_then(|bits| bits.next_if(|(at, _)| *at == index))
                .map_or(0, |(_, bits)| bits),
            less: self
                .less
                .as_mut()
                .and_then(|less| less.next_if(|(at, ..)| *at == index))
                .map(|(_, inner, suspended)| (inner, suspended)),
        })
    }
}

/// Numbers in LEB128.
#[derive(Default)]
struct Numbers<'b>(&'b [u8]);

impl Iterator for Numbers<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

/// Bits of the few calls that have some, with their indices.
struct Exceptions<'b> {
    numbers: Numbers<'b>,
    index: u64,
}

impl<'b> Exceptions<'b> {
    fn new(numbers: Numbers<'b>) -> Exceptions<'b> {
        Exceptions { numbers, index: 0 }
    }
}

impl Iterator for Exceptions<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        self.index = self.index.saturating_add(self.numbers.next()?);
        Some((self.index, self.numbers.next()?))
    }
}

/// Times of calls that the page doesn't have all of, with their indices.
struct Less<'b> {
    numbers: Numbers<'b>,
    index: u64,
}

impl<'b> Less<'b> {
    fn new(numbers: Numbers<'b>) -> Less<'b> {
        Less { numbers, index: 0 }
    }
}

impl Iterator for Less<'_> {
    type Item = (u64, u64, u64);

    fn next(&mut self) -> Option<(u64, u64, u64)> {
        self.index = self.index.saturating_add(self.numbers.next()?);
        Some((self.index, self.numbers.next()?, self.numbers.next()?))
    }
}
