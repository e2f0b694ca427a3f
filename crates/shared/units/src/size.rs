//! Numbers of bytes.

use core::fmt;

/// Reads a size such as `65536`, `64K`, `1M`, `1G` or `1T` (also `KiB`, `MiB`, `KB`, any case), in
/// bytes. `None` if it isn't a size, or exceeds 16 EiB.
#[must_use]
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at_checked(digits).filter(|(number, _)| !number.is_empty())?;
    let number = number.iter().try_fold(0_u64, |number, byte| {
        number.checked_mul(10)?.checked_add(u64::from(byte.wrapping_sub(b'0')))
    })?;
    let (unit, tail) = unit.split_first().map_or((None, &[][..]), |(unit, tail)| (Some(unit), tail));
    let factor: u64 = match unit.map(u8::to_ascii_lowercase) {
        None => 1,
        Some(b'k') => 1 << 10,
        Some(b'm') => 1 << 20,
        Some(b'g') => 1 << 30,
        Some(b't') => 1 << 40,
        Some(_) => return None,
    };
    let unit_ends_well =
        tail.is_empty() || tail.eq_ignore_ascii_case(b"ib") || tail.eq_ignore_ascii_case(b"b");
    unit_ends_well.then(|| number.checked_mul(factor)).flatten()
}

/// A number of bytes, with a unit chosen for its size: `1 byte`, `1.5 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(
    /// Bytes.
    pub u64,
);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.0 {
            0..0x400 => return write!(out, "{} {}", self.0, if self.0 == 1 { "byte" } else { "bytes" }),
            0x400..0x10_0000 => ("KiB", 10),
            0x10_0000..0x4000_0000 => ("MiB", 20),
            0x4000_0000..0x100_0000_0000 => ("GiB", 30),
            _ => ("TiB", 40),
        };
        let (name, shift) = unit;
        // `f64` is exact for the digits that are shown: at most one decimal, and none from 100 on.
        let scaled = self.0 as f64 / (1_u64 << shift) as f64;
        let has_fraction = self.0 & ((1_u64 << shift) - 1) != 0;
        let digits = usize::from(scaled < 100.0 && has_fraction);
        write!(out, "{scaled:.digits$} {name}")
    }
}

/// A size as options and variables take it: `8M`; rounded down to whole kibibytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSize(
    /// Bytes.
    pub u64,
);

impl fmt::Display for OptionSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            size if size.is_multiple_of(1 << 30) => write!(out, "{}G", size >> 30),
            size if size.is_multiple_of(1 << 20) => write!(out, "{}M", size >> 20),
            size => write!(out, "{}K", size >> 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("65536", 65536),
            ("64k", 65536),
            ("1MiB", 1 << 20),
            ("2GB", 2 << 30),
            ("3T", 3 << 40),
            ("0", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text.as_bytes()), Some(bytes), "{text}");
        }
        for bad in
            ["", "k", "1x", "1Mx", "-1", " 1", "99999999999999999999", "18446744073709551615G", "16777216T"]
        {
            assert_eq!(parse_size(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        let text = |size| Size(size).to_string();
        assert_eq!(
            [text(0), text(1), text(1 << 20), text(1_600_000), text(5 << 40)],
            ["0 bytes", "1 byte", "1 MiB", "1.5 MiB", "5 TiB"]
        );
        let option = |size| OptionSize(size).to_string();
        assert_eq!([option(64 << 10), option(8 << 20), option(1 << 30)], ["64K", "8M", "1G"]);
    }

    #[test]
    fn what_is_printed_for_options_is_read_again() {
        for size in [64 << 10, 96 << 10, 1 << 20, 3 << 20, 1 << 30, 7 << 30] {
            assert_eq!(parse_size(OptionSize(size).to_string().as_bytes()), Some(size));
        }
    }
}
