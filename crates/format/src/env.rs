//! Environment variables that a traced process reads. All begin with `EVERYCALL_`; programs that run
//! with elevated rights (`AT_SECURE`) ignore them.

/// Path of the recorder's [hub](crate::hub). Set by `record`, not by people.
pub const RECORDER: &str = "EVERYCALL_RECORDER";
/// Bytes of each thread's ring: a power of two, such as `1M` or `65536`.
pub const RING_SIZE: &str = "EVERYCALL_RING_SIZE";
/// `on` (default) or `off`: whether tracing starts with the program.
pub const START: &str = "EVERYCALL_START";

/// How much of ended threads is kept, and how long: a size, and a number of seconds after a comma, such as `64M` or `16M,10`.
pub const KEEP_ENDED: &str = "EVERYCALL_KEEP_ENDED";

/// What is kept of ended threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepEnded {
    /// Bytes of all of them together; the longest ended ones go first.
    pub bytes: u64,
    /// Nanoseconds after their end; [`u64::MAX`] for ever.
    pub nanoseconds: u64,
}

impl KeepEnded {
    /// Unless told otherwise.
    pub const DEFAULT: KeepEnded = KeepEnded { bytes: 64 << 20, nanoseconds: u64::MAX };
}

/// What [`KEEP_ENDED`] allows, for messages.
pub const KEEP_ENDED_ALLOWED: &str = "a size and perhaps seconds, such as 0, 64M or 16M,10";

/// Reads [`KEEP_ENDED`]. `None` where it isn't understood.
#[must_use]
pub fn parse_keep_ended(text: &[u8]) -> Option<KeepEnded> {
    let mut parts = text.splitn(2, |byte| *byte == b',');
    let bytes = parts.next().and_then(parse_size)?;
    let nanoseconds = match parts.next() {
        None => u64::MAX,
        Some(seconds) if seconds.iter().all(u8::is_ascii_digit) => {
            parse_size(seconds)?.checked_mul(1_000_000_000)?
        }
        Some(_) => return None,
    };
    Some(KeepEnded { bytes, nanoseconds })
}

/// Smallest ring.
pub const RING_SIZE_MIN: u64 = 64 << 10;
/// Largest ring.
pub const RING_SIZE_MAX: u64 = 1 << 30;
/// Ring unless told otherwise.
pub const RING_SIZE_DEFAULT: u64 = 1 << 20;

/// Reads a size such as `65536`, `64K`, `1M` or `1G` (also `KiB`, `MiB`, `GiB`, any case).
/// `None` where it is none.
#[must_use]
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number = number
        .iter()
        .try_fold(0_u64, |number, byte| number.checked_mul(10)?.checked_add(u64::from(byte - b'0')))?;
    let (unit, tail) = unit.split_first().map_or((None, &[][..]), |(unit, tail)| (Some(unit), tail));
    let shift = match unit.map(u8::to_ascii_lowercase) {
        None => 0,
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(_) => return None,
    };
    let unit_ends_well =
        tail.is_empty() || tail.eq_ignore_ascii_case(b"ib") || tail.eq_ignore_ascii_case(b"b");
    (digits > 0 && unit_ends_well).then(|| number.checked_mul(1 << shift)).flatten()
}

/// Reads a ring size: [`parse_size`], a power of two from [`RING_SIZE_MIN`] to [`RING_SIZE_MAX`].
#[must_use]
pub fn parse_ring_size(text: &[u8]) -> Option<u64> {
    parse_size(text).filter(|size| size.is_power_of_two() && (RING_SIZE_MIN..=RING_SIZE_MAX).contains(size))
}

/// What [`RING_SIZE`] allows, for messages.
pub const RING_SIZE_ALLOWED: &str = "a power of two from 64K to 1G, such as 65536, 256K or 1M";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size(b"65536"), Some(65536));
        assert_eq!(parse_size(b"64k"), Some(65536));
        assert_eq!(parse_size(b"1MiB"), Some(1 << 20));
        assert_eq!(parse_size(b"2GB"), Some(2 << 30));
        for bad in [&b""[..], b"k", b"1x", b"1Mx", b"-1", b"99999999999999999999", b"18446744073709551615G"] {
            assert_eq!(parse_size(bad), None, "{:?}", core::str::from_utf8(bad));
        }
        assert_eq!(parse_ring_size(b"1M"), Some(1 << 20));
        assert_eq!(parse_ring_size(b"32K"), None);
        assert_eq!(parse_ring_size(b"100000"), None);
        assert_eq!(parse_ring_size(b"2G"), None);
    }

    #[test]
    fn kept_of_ended_threads() {
        let kept = |bytes, nanoseconds| Some(KeepEnded { bytes, nanoseconds });
        assert_eq!(parse_keep_ended(b"0"), kept(0, u64::MAX));
        assert_eq!(parse_keep_ended(b"16M,10"), kept(16 << 20, 10_000_000_000));
        for bad in [&b""[..], b",", b"1M,", b"1M,2K", b"1M,2,3", b"x", b"1,99999999999999"] {
            assert_eq!(parse_keep_ended(bad), None, "{:?}", core::str::from_utf8(bad));
        }
    }
}
