//! Numbers of things.

use core::fmt;

/// No program counts this far: a larger value was overwritten, or the file is damaged.
pub const COUNT_MAX: u64 = 1_000_000_000_000_000;

/// A number with thousands separators: `1,234,567`; `damaged` if it can't be right, above
/// [`COUNT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(
    /// The number.
    pub u64,
);

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > COUNT_MAX {
            return out.pad("damaged");
        }
        // At most five groups of three digits, and one digit before them.
        let mut group = 1_u64;
        while self.0 / group >= 1_000 {
            group = group.saturating_mul(1_000);
        }
        write!(out, "{}", self.0 / group)?;
        while group > 1 {
            group /= 1_000;
            write!(out, ",{:03}", self.0 / group % 1_000)?;
        }
        Ok(())
    }
}

/// A number of things: `1 thread`, `12 threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several<'a>(
    /// The number.
    pub u64,
    /// The word for one of them.
    pub &'a str,
    /// The word for none or several of them.
    pub &'a str,
);

impl fmt::Display for Several<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", Count(self.0), if self.0 == 1 { self.1 } else { self.2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        for (number, text) in [
            (0, "0"),
            (123, "123"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
            (1_000_001, "1,000,001"),
            (COUNT_MAX, "1,000,000,000,000,000"),
            (COUNT_MAX + 1, "damaged"),
            (u64::MAX, "damaged"),
        ] {
            assert_eq!(Count(number).to_string(), text);
        }
        assert_eq!(Several(1, "call", "calls").to_string(), "1 call");
        assert_eq!(Several(2_000, "call", "calls").to_string(), "2,000 calls");
        assert_eq!(Several(0, "call", "calls").to_string(), "0 calls");
    }
}
