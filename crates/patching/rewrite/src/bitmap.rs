//! One bit for each byte of a file's code.

/// Bits for the addresses of one range.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bitmap {
    base: u64,
    length: u64,
    words: Vec<u64>,
}

impl Bitmap {
    /// No bit is set. The caller bounds the range.
    pub(crate) fn new(start: u64, end: u64) -> Self {
        let length = end.saturating_sub(start);
        Self { base: start, length, words: vec![0; length.div_ceil(64) as usize] }
    }

    fn index(&self, at: u64) -> Option<u64> {
        at.checked_sub(self.base).filter(|&index| index < self.length)
    }

    pub(crate) fn get(&self, at: u64) -> bool {
        self.index(at)
            .and_then(|index| self.words.get((index / 64) as usize).map(|word| word >> (index % 64) & 1 != 0))
            .unwrap_or_default()
    }

    /// Addresses outside of the range are ignored.
    pub(crate) fn set(&mut self, at: u64) {
        if let Some(index) = self.index(at)
            && let Some(word) = self.words.get_mut((index / 64) as usize)
        {
            *word |= 1 << (index % 64);
        }
    }

    fn clear(&mut self, at: u64) {
        if let Some(index) = self.index(at)
            && let Some(word) = self.words.get_mut((index / 64) as usize)
        {
            *word &= !(1 << (index % 64));
        }
    }

    /// `start..end` within the range.
    fn clamp(&self, start: u64, end: u64) -> std::ops::Range<u64> {
        let last = self.base.saturating_add(self.length);
        start.max(self.base)..end.min(last)
    }

    pub(crate) fn set_all(&mut self, start: u64, end: u64) {
        self.clamp(start, end).for_each(|at| self.set(at));
    }

    pub(crate) fn clear_all(&mut self, start: u64, end: u64) {
        self.clamp(start, end).for_each(|at| self.clear(at));
    }

    /// The first set bit in `start..end`.
    pub(crate) fn first(&self, start: u64, end: u64) -> Option<u64> {
        let range = self.clamp(start, end);
        let mut at = range.start;
        while at < range.end {
            let index = at - self.base;
            let word = self.words.get((index / 64) as usize)? >> (index % 64);
            if word != 0 {
                let found = at + u64::from(word.trailing_zeros());
                return (found < range.end).then_some(found);
            }
            at += 64 - index % 64;
        }
        None
    }

    pub(crate) fn any(&self, start: u64, end: u64) -> bool {
        self.first(start, end).is_some()
    }

    /// Sets the bits of another bitmap, whose words have to begin at addresses of this one's words.
    pub(crate) fn merge(&mut self, other: &Self) {
        let Some(first) = other.base.checked_sub(self.base) else { return };
        let words = self.words.iter_mut().skip((first / 64) as usize);
        words.zip(&other.words).for_each(|(word, theirs)| *word |= theirs);
    }

    /// How many bits from `at` on are set, at most `limit`.
    pub(crate) fn run(&self, at: u64, limit: u64) -> u64 {
        (0..limit).find(|offset| !self.get(at.saturating_add(*offset))).unwrap_or(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::Bitmap;

    #[test]
    fn bits_are_found_in_ranges() {
        let mut bits = Bitmap::new(1000, 1300);
        for at in [1000, 1063, 1064, 1299] {
            bits.set(at);
        }
        bits.set(999);
        bits.set(1300);
        assert_eq!(bits.first(0, u64::MAX), Some(1000));
        assert_eq!(bits.first(1001, 1064), Some(1063));
        assert_eq!(bits.first(1001, 1063), None);
        assert_eq!(bits.first(1065, u64::MAX), Some(1299));
        assert!(!bits.any(1065, 1299));
        assert!(!bits.get(999) && !bits.get(1300));
        assert_eq!(bits.run(1063, 9), 2);
        bits.clear_all(1000, 1100);
        assert_eq!(bits.first(0, u64::MAX), Some(1299));
    }
}
