//! From ticks to nanoseconds, piecewise linear between the recording's clock readings, in exact
//! integer arithmetic.

use everycall_format::arena::ClockReading;

use crate::wall::WallClock;

/// Fraction bits of a rate.
const SHIFT: u32 = 52;
/// Without a reading that gives the rate, a tick is shown as a nanosecond.
const ASSUMED_RATE: u64 = 1 << SHIFT;
/// Rates outside 1 MHz..=100 GHz are no counter's.
const RATE_RANGE: std::ops::RangeInclusive<u64> = (1 << SHIFT) / 100..=1000 << SHIFT;
/// Readings nearer to each other than this would make more noise than they remove.
const DISTANCE_NS: u64 = 10_000_000;
/// How many wrong readings at the beginning are tolerated without affecting later ones.
const START_TRIALS: usize = 8;

/// Ticks to nanoseconds since the origin, the earliest moment that the trace knows of.
#[derive(Clone, Debug)]
pub struct Clock {
    /// By ticks; the first begins at the origin.
    pieces: Vec<Piece>,
    quality: ClockQuality,
    origin_ticks: u64,
    origin_realtime_ns: Option<u64>,
    origin_monotonic_ns: Option<u64>,
    origin_monotonic_raw_ns: Option<u64>,
    wall: Option<WallClock>,
    /// The clock in nanoseconds, if this one gives ticks.
    in_ns: Option<Box<Clock>>,
}

/// A stretch of constant rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Where it begins, in ticks.
    ticks: u64,
    /// Where it begins, in nanoseconds since the origin.
    ns: u64,
    /// Nanoseconds per tick, times `1 << SHIFT`.
    rate: u64,
}

impl Piece {
    #[inline]
    pub(crate) fn ns(&self, ticks: u64) -> u64 {
        self.ns.saturating_add(scale(ticks.saturating_sub(self.ticks), self.rate))
    }
}

/// `ticks` at `rate`, rounded down.
#[inline]
fn scale(ticks: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(ticks) * u128::from(rate)) >> SHIFT).unwrap_or(u64::MAX)
}

/// How good the conversion of ticks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockQuality {
    /// The rate was measured.
    Measured {
        /// Bound of the error between any two moments within the readings, in nanoseconds.
        error_ns: u64,
        /// Counter's rate over the whole recording, in ticks per second.
        ticks_per_second: u64,
        /// Readings that were used.
        readings: u32,
        /// Readings that contradicted the others and were left out.
        readings_refused: u32,
    },
    /// The rate isn't known: one tick is shown as one nanosecond.
    AssumedRate {
        /// Readings that contradicted each other.
        readings_refused: u32,
    },
}

impl Clock {
    /// The clock of `readings`, in any order. The origin is the earliest of them, or
    /// `earliest_ticks` where that is before.
    #[must_use]
    pub fn new(readings: &[ClockReading], earliest_ticks: Option<u64>) -> Clock {
        let (mut kept, refused) = plausible(readings);
        let origin_ticks =
            kept.first().map(|reading| reading.ticks).into_iter().chain(earliest_ticks).min().unwrap_or(0);
        let overall = match &kept[..] {
            [first, .., last] => rate(first, last),
            _ => None,
        };
        let Some(overall) = overall else {
            let piece = Piece { ticks: origin_ticks, ns: 0, rate: ASSUMED_RATE };
            let quality = ClockQuality::AssumedRate { readings_refused: refused };
            let wall = kept.first().and_then(|first| {
                let ns = first.ticks - origin_ticks;
                WallClock::new(&[(ns, *first)], first.bracket)
            });
            return Clock {
                pieces: vec![piece],
                quality,
                wall,
                ..Clock::origin(kept.first(), origin_ticks, piece)
            };
        };
        let used = thin(&mut kept);
        let mut pieces = vec![Piece { ticks: origin_ticks, ns: 0, rate: overall }];
        let first_ns = pieces[0].ns(kept[0].ticks);
        let since_origin = |reading: &ClockReading| {
            let ns = first_ns.saturating_add(reading.monotonic_raw_ns - kept[0].monotonic_raw_ns);
            (ns, *reading)
        };
        let read: Vec<(u64, ClockReading)> = kept.iter().map(since_origin).collect();
        for pair in kept.windows(2) {
            let ns = first_ns.saturating_add(pair[0].monotonic_raw_ns - kept[0].monotonic_raw_ns);
            pieces.push(Piece {
                ticks: pair[0].ticks,
                ns,
                rate: rate(&pair[0], &pair[1]).unwrap_or(overall),
            });
        }
        let last = &kept[kept.len() - 1];
        let ns = first_ns.saturating_add(last.monotonic_raw_ns - kept[0].monotonic_raw_ns);
        pieces.push(Piece { ticks: last.ticks, ns, rate: overall });
        let bracket = kept.iter().map(|reading| reading.bracket).max().unwrap_or(0);
        let quality = ClockQuality::Measured {
            // Half a bracket at either end, and one nanosecond of rounding each.
            error_ns: scale(bracket, overall).saturating_add(2),
            ticks_per_second: ((1_000_000_000_u128 << SHIFT) / u128::from(overall)) as u64,
            readings: used,
            readings_refused: refused,
        };
        let first_piece = pieces[0];
        let wall = WallClock::new(&read, scale(bracket, overall));
        Clock { pieces, quality, wall, ..Clock::origin(kept.first(), origin_ticks, first_piece) }
    }

    /// A clock that only has the facts about the origin.
    fn origin(first: Option<&ClockReading>, origin_ticks: u64, piece: Piece) -> Clock {
        let before = |ns: u64, ticks: u64| ns.saturating_sub(piece.ns(ticks));
        Clock {
            pieces: Vec::new(),
            quality: ClockQuality::AssumedRate { readings_refused: 0 },
            origin_ticks,
            origin_realtime_ns: first
                .filter(|reading| reading.realtime_ns != 0)
                .map(|reading| before(reading.realtime_ns, reading.ticks)),
            origin_monotonic_ns: first
                .filter(|reading| reading.monotonic_ns != 0)
                .map(|reading| before(reading.monotonic_ns, reading.ticks)),
            origin_monotonic_raw_ns: first.map(|reading| before(reading.monotonic_raw_ns, reading.ticks)),
            wall: None,
            in_ns: None,
        }
    }

    /// A clock that gives ticks as they are, instead of nanoseconds since the origin.
    #[must_use]
    pub(crate) fn raw(&self) -> Clock {
        let pieces = vec![Piece { ticks: 0, ns: 0, rate: ASSUMED_RATE }];
        Clock { pieces, in_ns: Some(Box::new(self.clone())), wall: None, ..self.clone() }
    }

    /// So many nanoseconds in the clock's unit, about.
    pub(crate) fn distance(&self, ns: u64) -> u64 {
        match self.quality {
            ClockQuality::Measured { ticks_per_second, .. } if self.in_ns.is_some() => {
                ns.saturating_mul(ticks_per_second) / 1_000_000_000
            }
            _ => ns,
        }
    }

    /// The first ticks that are at least so many nanoseconds after the origin: [`Clock::ns`] turned round, exactly.
    #[must_use]
    pub fn ticks(&self, ns: u64) -> u64 {
        let (mut from, mut to) = (self.origin_ticks, u64::MAX);
        while from < to {
            let middle = from + (to - from) / 2;
            if self.ns(middle) >= ns {
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        from
    }

    /// Calendar time; `None` without any reading of it.
    #[must_use]
    pub fn wall(&self) -> Option<&WallClock> {
        self.wall.as_ref()
    }

    /// Nanoseconds since the origin, rounded down; 0 before it. Never less for a later tick.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> u64 {
        self.piece(ticks).ns(ticks)
    }

    /// How good the conversion is.
    #[must_use]
    pub fn quality(&self) -> ClockQuality {
        self.quality
    }

    /// The origin in ticks.
    #[must_use]
    pub fn origin_ticks(&self) -> u64 {
        self.origin_ticks
    }

    /// The origin on `CLOCK_REALTIME`, in nanoseconds since 1970; `None` without any reading.
    #[must_use]
    pub fn origin_realtime_ns(&self) -> Option<u64> {
        self.origin_realtime_ns
    }

    /// The origin on `CLOCK_MONOTONIC`, in nanoseconds; `None` without any reading.
    #[must_use]
    pub fn origin_monotonic_ns(&self) -> Option<u64> {
        self.origin_monotonic_ns
    }

    /// The moment at which `CLOCK_MONOTONIC_RAW` was `ns`, in the clock's unit; 0 before the origin. Its
    /// error is that of the clock.
    #[must_use]
    pub fn at_monotonic_raw(&self, ns: u64) -> u64 {
        let ns = ns.saturating_sub(self.origin_monotonic_raw_ns.unwrap_or(0));
        match &self.in_ns {
            Some(in_ns) => in_ns.ticks(ns),
            None => ns,
        }
    }

    fn piece(&self, ticks: u64) -> &Piece {
        let behind = self.pieces.partition_point(|piece| piece.ticks <= ticks);
        &self.pieces[behind.saturating_sub(1)]
    }

    /// A converter for one thread, whose ticks come in order.
    pub(crate) fn walk(&self) -> ClockWalk<'_> {
        ClockWalk { piece: self.pieces[0], until: 0, clock: self }
    }
}

/// Converts ticks that mostly grow.
#[derive(Clone, Debug)]
pub(crate) struct ClockWalk<'a> {
    clock: &'a Clock,
    piece: Piece,
    /// First tick behind the piece.
    until: u64,
}

impl ClockWalk<'_> {
    /// As [`Clock::distance`].
    pub(crate) fn distance(&self, ns: u64) -> u64 {
        self.clock.distance(ns)
    }

    /// As [`Clock::ns`].
    #[inline]
    pub(crate) fn ns(&mut self, ticks: u64) -> u64 {
        if ticks < self.piece.ticks || ticks >= self.until {
            self.find(ticks);
        }
        self.piece.ns(ticks)
    }

    #[cold]
    fn find(&mut self, ticks: u64) {
        let pieces = &self.clock.pieces;
        let behind = pieces.partition_point(|piece| piece.ticks <= ticks);
        self.piece = pieces[behind.saturating_sub(1)];
        self.until = pieces.get(behind).map_or(u64::MAX, |next| next.ticks);
    }
}

/// Nanoseconds per tick between two readings, where that can be a counter's.
fn rate(from: &ClockReading, to: &ClockReading) -> Option<u64> {
    let ticks = to.ticks.checked_sub(from.ticks).filter(|ticks| *ticks > 0)?;
    let ns = to.monotonic_raw_ns.checked_sub(from.monotonic_raw_ns)?;
    u64::try_from((u128::from(ns) << SHIFT) / u128::from(ticks)).ok().filter(|rate| RATE_RANGE.contains(rate))
}

/// The readings that agree with each other, by ticks, and the number of the others.
fn plausible(readings: &[ClockReading]) -> (Vec<ClockReading>, u32) {
    let mut sorted = readings.to_vec();
    sorted.sort_by_key(|reading| (reading.ticks, reading.monotonic_raw_ns));
    sorted.dedup_by_key(|reading| (reading.ticks, reading.monotonic_raw_ns));
    let mut best = Vec::new();
    for start in 0..sorted.len().min(START_TRIALS) {
        let mut chain: Vec<ClockReading> = Vec::new();
        for reading in &sorted[start..] {
            if chain.last().is_none_or(|last| rate(last, reading).is_some()) {
                chain.push(*reading);
            }
        }
        if chain.len() > best.len() {
            best = chain;
        }
        if best.len() + start + 1 >= sorted.len() {
            break;
        }
    }
    let refused = sorted.len() - best.len();
    (best, u32::try_from(refused).unwrap_or(u32::MAX))
}

/// Leaves out readings too near to the one before, except the first and the last; returns how many
/// remain.
fn thin(kept: &mut Vec<ClockReading>) -> u32 {
    let Some(last) = kept.pop() else { return 0 };
    let mut previous: Option<u64> = None;
    kept.retain(|reading| {
        let near = |ns: u64| reading.monotonic_raw_ns - ns < DISTANCE_NS;
        let keep = previous.is_none_or(|ns| !near(ns))
            && (previous.is_none() || last.monotonic_raw_ns - reading.monotonic_raw_ns >= DISTANCE_NS);
        if keep {
            previous = Some(reading.monotonic_raw_ns);
        }
        keep
    });
    kept.push(last);
    u32::try_from(kept.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ticks: u64, ns: u64) -> ClockReading {
        ClockReading {
            ticks,
            monotonic_raw_ns: ns,
            monotonic_ns: ns + 5,
            realtime_ns: ns + 1_000_000,
            bracket: 100,
        }
    }

    #[test]
    fn readings_are_met_exactly() {
        let readings = [
            reading(1_000_000, 50_000_000),
            reading(81_000_000, 90_000_001),
            reading(161_000_000, 130_000_000),
        ];
        let clock = Clock::new(&readings, None);
        assert_eq!(clock.ns(1_000_000), 0);
        assert_eq!(clock.ns(81_000_000), 40_000_001);
        assert_eq!(clock.ns(161_000_000), 80_000_000);
        assert_eq!(clock.ns(161_000_002), 80_000_001, "extrapolated");
        assert_eq!(clock.ns(0), 0, "before the origin");
        assert_eq!(clock.origin_realtime_ns(), Some(51_000_000));
        let wanted = ClockQuality::Measured {
            error_ns: 52,
            ticks_per_second: 2_000_000_000,
            readings: 3,
            readings_refused: 0,
        };
        assert_eq!(clock.quality(), wanted);
    }

    #[test]
    fn ticks_are_found_again() {
        let clock = Clock::new(&[reading(1000, 10_000_000), reading(80_001_000, 50_000_000)], Some(200));
        for ns in [0, 1, 399, 400, 401, 40_000_399, 40_000_400, 50_000_000] {
            let ticks = clock.ticks(ns);
            assert_eq!(clock.ns(ticks), ns);
            assert!(ticks == 200 || clock.ns(ticks - 1) < ns);
        }
        let raw = clock.raw();
        assert_eq!((raw.ns(0), raw.ns(77), raw.ns(u64::MAX)), (0, 77, u64::MAX));
        assert_eq!((clock.distance(1000), raw.distance(1000)), (1000, 2000));
        let wall = clock.wall().unwrap();
        assert_eq!(wall.realtime_ns(400), 11_000_000);
        assert_eq!(wall.realtime_ns(40_000_400), 51_000_000);
    }

    #[test]
    fn events_before_the_first_reading_move_the_origin() {
        let clock = Clock::new(&[reading(1000, 10_000_000), reading(80_001_000, 50_000_000)], Some(200));
        assert_eq!((clock.ns(200), clock.ns(1000), clock.ns(80_001_000)), (0, 400, 40_000_400));
        assert_eq!(clock.origin_realtime_ns(), Some(11_000_000 - 400));
    }

    #[test]
    fn time_never_goes_back() {
        let mut readings = Vec::new();
        let mut ns = 7;
        for second in 0..20_u64 {
            readings.push(reading(second * 2_999_999_983, ns));
            ns += 1_000_000_000 + (second * 7919) % 90;
        }
        let clock = Clock::new(&readings, None);
        let mut walk = clock.walk();
        let mut last = 0;
        for step in 0..200_000_u64 {
            let ticks = step * 299_993;
            let ns = clock.ns(ticks);
            assert_eq!(ns, walk.ns(ticks));
            assert!(ns >= last, "{ticks}");
            last = ns;
        }
        assert_eq!(clock.ns(0), walk.ns(0), "a walk may go back");
    }

    #[test]
    fn without_a_rate_a_tick_is_a_nanosecond() {
        let liars: [&[ClockReading]; 5] = [
            &[],
            &[reading(500, 77)],
            &[reading(500, 77), reading(500, 77)],
            // Backwards, and no progress.
            &[reading(500, 1000), reading(600, 900)],
            &[reading(500, 1000), reading(u64::MAX, 1000)],
        ];
        for readings in liars {
            let clock = Clock::new(readings, Some(400));
            assert!(matches!(clock.quality(), ClockQuality::AssumedRate { .. }), "{readings:?}");
            assert_eq!((clock.ns(400), clock.ns(1400)), (0, 1000), "{readings:?}");
            assert!(clock.ns(u64::MAX) > 1 << 63);
        }
    }

    #[test]
    fn a_lie_among_good_readings_is_left_out() {
        let good = |index: u64| reading(index * 100_000_000, 1_000_000 + index * 50_000_000);
        for (place, lie) in
            [(0, reading(5, 1 << 62)), (3, reading(250_000_000, 3)), (1, reading(7, 900_000_000_000))]
        {
            let mut readings: Vec<ClockReading> = (0..6).map(good).collect();
            readings.insert(place, lie);
            let clock = Clock::new(&readings, None);
            let ClockQuality::Measured { ticks_per_second, readings_refused, .. } = clock.quality() else {
                panic!("{lie:?}: {:?}", clock.quality())
            };
            assert_eq!((ticks_per_second, readings_refused), (2_000_000_000, 1), "{lie:?}");
        }
    }
}
