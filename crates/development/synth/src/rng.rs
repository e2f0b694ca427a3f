//! Reproducible random numbers.

/// A small generator of random numbers (xorshift64*): the same for the same seed, on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that begins with `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.number() >> 11).checked_rem(end).unwrap_or(0)
    }

    /// True in one of `count` cases.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
