//! Environment variables that a traced process reads. All begin with `EVERYCALL_`; programs that
//! run with elevated rights (`AT_SECURE`) ignore them.

use everycall_units::{parse_size, parse_time_bytes};

/// Path of the recorder's [hub](crate::hub). Set by `record`, not by people.
pub const RECORDER: &str = "EVERYCALL_RECORDER";
/// Bytes of each thread's ring: a power of two, such as `1M` or `65536`.
pub const RING_SIZE: &str = "EVERYCALL_RING_SIZE";
/// `on` or `off`: whether tracing is on when the program starts. By default as chosen at the link,
/// and on if that said nothing.
pub const START: &str = "EVERYCALL_START";
/// Variables that ask for something to be recorded: with one of them, tracing is on at the start,
/// whatever was chosen at the link.
pub const RECORDING: [&str; 4] = [COUNT, CRASH, SNAPSHOT_SIGNAL, TRIGGERS];

/// Calls that take less time, such as `500ns`, and contain no recorded call are
/// [dropped](crate::dropped).
pub const MIN_DURATION: &str = "EVERYCALL_MIN_DURATION";

/// `exact` (default), `bounded` or `order`: which events have a time of their own; see
/// [`crate::stamp`].
pub const CLOCK: &str = "EVERYCALL_CLOCK";

/// `calls`: calls are counted and not recorded; see [`crate::dropped::counting`].
pub const COUNT: &str = "EVERYCALL_COUNT";

/// Limit on the cost of tracing, as a share of the CPU time that the program takes without tracing;
/// see [`crate::budget`].
pub const BUDGET: &str = "EVERYCALL_BUDGET";

/// How many bytes of ended threads are retained, and optionally how long, after a comma: `64M` or
/// `16M,10s`. A time without a unit is in seconds.
pub const KEEP_ENDED: &str = "EVERYCALL_KEEP_ENDED";

/// Folder for [crash files](crate::crash). A process without a recorder then has its arena in a
/// file there. The file is removed if the process ends by `exit`; otherwise it stays.
pub const CRASH: &str = "EVERYCALL_CRASH";

/// Signal on which the process writes a snapshot; see [`parse_signal`].
pub const SNAPSHOT_SIGNAL: &str = "EVERYCALL_SNAPSHOT_SIGNAL";
/// Folder for these snapshots; by default, the working folder at the start.
pub const SNAPSHOT_FOLDER: &str = "EVERYCALL_SNAPSHOT_FOLDER";

/// A [site set](crate::site_set): triggers of a process without a recorder. Kept calls become files
/// in the folder of [`SNAPSHOT_FOLDER`].
pub const TRIGGERS: &str = "EVERYCALL_TRIGGERS";

/// A [selection](crate::site_set::purpose::SELECTION) of the functions that are recorded from the
/// start.
pub const ONLY: &str = "EVERYCALL_ONLY";

/// A [capture set](crate::capture_set): functions whose arguments and results are recorded.
pub const ARGS: &str = "EVERYCALL_ARGS";

/// Settings of a runtime that is loaded into a process that runs already, whose environment nobody
/// can change. Whoever loads it writes them into a copy of its library's file, behind this mark: in
/// [`SETTINGS_SIZE`] bytes, as `NAME=VALUE` texts that end in zero. If there is one, the
/// environment doesn't count.
pub const SETTINGS_MARK: [u8; 16] = *b"everycall\xffgiven\xff";
/// [`SETTINGS_MARK`].
pub const SETTINGS_SIZE: usize = 1008;

/// The values of [`SNAPSHOT_SIGNAL`], for messages.
pub const SNAPSHOT_SIGNAL_ALLOWED: &str =
    "USR1, USR2, HUP, QUIT, URG, WINCH, IO, PWR, RTMIN to RTMIN+30, or the number of one of these";

/// Parses the name or number of a signal that neither the kernel nor the C library uses itself.
/// `None` for all others.
#[must_use]
pub fn parse_signal(text: &[u8]) -> Option<u32> {
    const NAMED: [(&[u8], u32); 8] = [
        (b"USR1", 10),
        (b"USR2", 12),
        (b"HUP", 1),
        (b"QUIT", 3),
        (b"URG", 23),
        (b"WINCH", 28),
        (b"IO", 29),
        (b"PWR", 30),
    ];
    // The C library takes 32 and 33.
    const REAL_TIME: core::ops::RangeInclusive<u32> = 34..=64;
    let number = |text: &[u8]| {
        let is_short = (1..=2).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
        is_short.then(|| text.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
    };
    if let Some(number) = number(text) {
        let is_free = REAL_TIME.contains(&number) || NAMED.iter().any(|(_, named)| *named == number);
        return Some(number).filter(|_| is_free);
    }
    let is_long = text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"SIG"));
    let name = if is_long { text.get(3..)? } else { text };
    if let Some(rest) = name.get(..5).filter(|start| start.eq_ignore_ascii_case(b"RTMIN")).and(name.get(5..))
    {
        let more = if rest.is_empty() { Some(0) } else { rest.strip_prefix(b"+").and_then(number) };
        return Some(REAL_TIME.start() + more?).filter(|signal| REAL_TIME.contains(signal));
    }
    NAMED.iter().find(|(named, _)| name.eq_ignore_ascii_case(named)).map(|(_, signal)| *signal)
}

/// Limits on what is retained of ended threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepEnded {
    /// Bytes of all ended threads together. If there are more, the threads that ended first go.
    pub bytes: u64,
    /// Nanoseconds after a thread's end; [`u64::MAX`] for no limit.
    pub nanoseconds: u64,
}

impl KeepEnded {
    /// The limits if [`KEEP_ENDED`] isn't set.
    pub const DEFAULT: KeepEnded = KeepEnded { bytes: 64 << 20, nanoseconds: u64::MAX };
}

/// The values of [`KEEP_ENDED`], for messages.
pub const KEEP_ENDED_ALLOWED: &str = "a size and perhaps a time, such as 0, 64M or 16M,10s";

/// Parses [`KEEP_ENDED`]. `None` if it isn't valid.
#[must_use]
pub fn parse_keep_ended(text: &[u8]) -> Option<KeepEnded> {
    let mut parts = text.splitn(2, |byte| *byte == b',');
    let bytes = parts.next().and_then(parse_size)?;
    let nanoseconds = match parts.next() {
        None => u64::MAX,
        // A time without a unit is in seconds.
        Some(seconds) if seconds.iter().all(u8::is_ascii_digit) => {
            parse_size(seconds)?.checked_mul(1_000_000_000)?
        }
        Some(time) => parse_time_bytes(time).ok()?,
    };
    Some(KeepEnded { bytes, nanoseconds })
}

/// Smallest ring.
pub const RING_SIZE_MIN: u64 = 64 << 10;
/// Largest ring.
pub const RING_SIZE_MAX: u64 = 1 << 30;
/// The default ring size.
pub const RING_SIZE_DEFAULT: u64 = 1 << 20;

/// Parses a ring size: [`parse_size`], a power of two from [`RING_SIZE_MIN`] to [`RING_SIZE_MAX`].
#[must_use]
pub fn parse_ring_size(text: &[u8]) -> Option<u64> {
    parse_size(text).filter(|size| size.is_power_of_two() && (RING_SIZE_MIN..=RING_SIZE_MAX).contains(size))
}

/// The values of [`RING_SIZE`], for messages.
pub const RING_SIZE_ALLOWED: &str = "a power of two from 64K to 1G, such as 65536, 256K or 1M";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes() {
        assert_eq!(parse_ring_size(b"1M"), Some(1 << 20));
        assert_eq!(parse_ring_size(b"32K"), None);
        assert_eq!(parse_ring_size(b"100000"), None);
        assert_eq!(parse_ring_size(b"2G"), None);
    }

    #[test]
    fn signals() {
        for (text, signal) in [
            (&b"USR2"[..], 12),
            (b"sigusr1", 10),
            (b"10", 10),
            (b"HUP", 1),
            (b"RTMIN", 34),
            (b"SIGRTMIN+3", 37),
            (b"rtmin+30", 64),
            (b"64", 64),
        ] {
            assert_eq!(parse_signal(text), Some(signal), "{:?}", core::str::from_utf8(text));
        }
        for bad in [
            &b""[..],
            b"KILL",
            b"9",
            b"SEGV",
            b"11",
            b"0",
            b"32",
            b"33",
            b"65",
            b"RTMIN+31",
            b"RTMIN-1",
            b"SIG",
            b"USR3",
            b"12 ",
            b"-12",
            b"012",
            b"999999999999",
        ] {
            assert_eq!(parse_signal(bad), None, "{:?}", core::str::from_utf8(bad));
        }
    }

    #[test]
    fn kept_of_ended_threads() {
        let kept = |bytes, nanoseconds| Some(KeepEnded { bytes, nanoseconds });
        assert_eq!(parse_keep_ended(b"0"), kept(0, u64::MAX));
        assert_eq!(parse_keep_ended(b"16M,10"), kept(16 << 20, 10_000_000_000));
        assert_eq!(parse_keep_ended(b"16M,10s"), kept(16 << 20, 10_000_000_000));
        assert_eq!(parse_keep_ended(b"0,500ms"), kept(0, 500_000_000));
        for bad in [&b""[..], b",", b"1M,", b"1M,2K", b"1M,2,3", b"x", b"1,99999999999999"] {
            assert_eq!(parse_keep_ended(bad), None, "{:?}", core::str::from_utf8(bad));
        }
    }
}
