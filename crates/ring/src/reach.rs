//! What a reader may believe of a ring that is being written.

/// The segments that a reader can take from a ring, by the numbers it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Oldest segment that is whole.
    pub first: u64,
    /// Segment that was being written.
    pub last: u64,
}

impl Reach {
    /// Segments that may be taken from a ring of `segments` segments, when `before` was the number being
    /// written before the copy and `after` the number after it. Segment `after + 1` may be in the course
    /// of being cleared, which destroys `after + 1 - segments`. `None` where nothing is left.
    #[must_use]
    pub fn between(before: u64, after: u64, segments: u64) -> Option<Reach> {
        let first = (after + 2).saturating_sub(segments);
        (first <= before).then_some(Reach { first, last: before })
    }

    /// Segments of a ring that nobody writes any more: the oldest one is whole unless it was being
    /// cleared, which its segment record tells.
    #[must_use]
    pub fn at_rest(segment: u64, segments: u64) -> Reach {
        Reach { first: (segment + 1).saturating_sub(segments), last: segment }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach() {
        assert_eq!(Reach::between(0, 0, 16), Some(Reach { first: 0, last: 0 }));
        assert_eq!(Reach::between(14, 14, 16), Some(Reach { first: 0, last: 14 }));
        assert_eq!(Reach::between(15, 15, 16), Some(Reach { first: 1, last: 15 }));
        assert_eq!(Reach::between(15, 29, 16), Some(Reach { first: 15, last: 15 }));
        assert_eq!(Reach::between(15, 30, 16), None);
        assert_eq!(Reach::at_rest(15, 16), Reach { first: 0, last: 15 });
        assert_eq!(Reach::at_rest(16, 16), Reach { first: 1, last: 16 });
    }
}
