//! Environment variables that a traced process reads. All begin with `EVERYCALL_`; programs that run
//! with elevated rights (`AT_SECURE`) ignore them.

/// Path of the recorder's [hub](crate::hub). Set by `record`, not by people.
pub const RECORDER: &str = "EVERYCALL_RECORDER";
/// Path of the arena that the recorder made. Set by `record`, not by people.
pub const ARENA: &str = "EVERYCALL_ARENA";
/// Bytes of each thread's ring: a power of two, such as `1M` or `65536`.
pub const RING_SIZE: &str = "EVERYCALL_RING_SIZE";
/// `on` (default) or `off`: whether tracing starts with the program.
pub const START: &str = "EVERYCALL_START";

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
}
