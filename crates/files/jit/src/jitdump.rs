//! `jit-PID.dump`: code with its names, lines and times (Linux:
//! `tools/perf/Documentation/jitdump-specification.txt`).
//!
//! ```text
//! 40 bytes: magic u32, version u32, bytes of this header u32, ELF machine u32, 0 u32, pid u32,
//!           time u64, flags u64 (1: times are ticks, otherwise nanoseconds of CLOCK_MONOTONIC)
//! records:  kind u32, bytes of the record u32, time u64, then
//!   0 load   pid u32, tid u32, vma u64, address u64, bytes u64, index u64, name, 0, the code
//!   1 move   pid u32, tid u32, vma u64, old address u64, new address u64, bytes u64, index u64
//!   2 lines  address u64, count u64, then each: address u64, line u32, discriminator u32, file, 0
//!   3 close
//! ```
//!
//! Numbers have the byte order of the machine that wrote them: another one isn't read. Lines come
//! before the code that they belong to.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufReader, Read, Seek};

use crate::table::{Code, Table};

const MAGIC: u32 = 0x4a69_5444;
const HEADER_SIZE: usize = 40;
const RECORD_SIZE: u32 = 16;
/// Bytes of a load record before its name.
const LOAD_SIZE: usize = 40;
/// Bytes of a move record.
const MOVE_SIZE: usize = 48;
/// Bytes of a lines record before its first line.
const LINES_SIZE: usize = 16;
/// Bytes of one line before its file.
const LINE_SIZE: usize = 16;
/// Bytes of a name or path that are looked at.
const TEXT_MAX: usize = 4096;
/// Most records that are read.
const RECORDS_MAX: u32 = 1 << 24;
/// Most places whose code hasn't been loaded yet.
const PENDING_MAX: usize = 1 << 12;

mod kind {
    pub const LOAD: u32 = 0;
    pub const MOVE: u32 = 1;
    pub const LINES: u32 = 2;
    pub const CLOSE: u32 = 3;
}

/// The clock of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    Monotonic,
    /// Ticks of the CPU's counter.
    Ticks,
}

/// Why a file isn't read.
#[derive(Debug)]
pub enum Error {
    /// It doesn't begin as such a file.
    NoJitdump,
    /// A machine with another byte order wrote it.
    ByteOrder,
    /// It has another version than 1.
    Version(u32),
    /// It can't be read.
    Input(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoJitdump => f.write_str("it is no jitdump file"),
            Error::ByteOrder => f.write_str("its numbers have another byte order"),
            Error::Version(version) => write!(f, "it has version {version} instead of 1"),
            Error::Input(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Input(error)
    }
}

/// Adds the records of a file, up to where it is truncated. `ticks` converts times.
///
/// # Errors
///
/// [`Error`]; what was read before is in the table.
pub fn read(
    input: impl Read + Seek,
    table: &mut Table,
    ticks: &dyn Fn(Clock, u64) -> u64,
) -> Result<(), Error> {
    let mut input = BufReader::new(input);
    let header: [u8; HEADER_SIZE] = take(&mut input)?.ok_or(Error::NoJitdump)?;
    match u32_at(&header, 0) {
        MAGIC => {}
        other if other == MAGIC.swap_bytes() => return Err(Error::ByteOrder),
        _ => return Err(Error::NoJitdump),
    }
    if u32_at(&header, 4) != 1 {
        return Err(Error::Version(u32_at(&header, 4)));
    }
    let clock = if u64_at(&header, 32) & 1 != 0 { Clock::Ticks } else { Clock::Monotonic };
    let more = i64::from(u32_at(&header, 8)) - HEADER_SIZE as i64;
    input.seek_relative(more.max(0))?;
    let mut pending = HashMap::new();
    for _ in 0..RECORDS_MAX {
        let Some(record) = take::<16>(&mut input)? else { return Ok(()) };
        let Some(size) = u32_at(&record, 4).checked_sub(RECORD_SIZE) else {
            // The rest can't be parsed.
            table.lost += 1;
            return Ok(());
        };
        let at = ticks(clock, u64_at(&record, 8));
        let mut body = input.by_ref().take(u64::from(size));
        let is_whole = match u32_at(&record, 0) {
            kind::LOAD => load(&mut body, at, &mut pending, table)?,
            kind::MOVE => relocate(&mut body, at, table)?,
            kind::LINES => lines(&mut body, &mut pending)?,
            kind::CLOSE => return Ok(()),
            _ => true,
        };
        table.lost += u64::from(!is_whole);
        let rest = i64::try_from(body.limit()).unwrap_or(i64::MAX);
        input.seek_relative(rest)?;
    }
    table.lost += 1;
    Ok(())
}

/// Files and lines of code that is loaded next, by its address.
type Pending = HashMap<u64, (Vec<u8>, u32)>;

fn load(body: &mut impl Read, at: u64, pending: &mut Pending, table: &mut Table) -> io::Result<bool> {
    let Some(head) = take::<LOAD_SIZE>(body)? else { return Ok(false) };
    let start = u64_at(&head, 16);
    let Some(name) = text(body)? else { return Ok(false) };
    let (file, line) = pending.remove(&start).unwrap_or_default();
    table.load(Code { start, size: u64_at(&head, 24), loaded: at, name, file, line, ..Code::default() });
    Ok(true)
}

fn relocate(body: &mut impl Read, at: u64, table: &mut Table) -> io::Result<bool> {
    let Some(head) = take::<MOVE_SIZE>(body)? else { return Ok(false) };
    table.relocate(u64_at(&head, 16), u64_at(&head, 24), u64_at(&head, 32), at);
    Ok(true)
}

/// Keeps the first line, which is the function's own.
fn lines(body: &mut impl Read, pending: &mut Pending) -> io::Result<bool> {
    let Some(head) = take::<LINES_SIZE>(body)? else { return Ok(false) };
    if u64_at(&head, 8) == 0 {
        return Ok(true);
    }
    let Some(line) = take::<LINE_SIZE>(body)? else { return Ok(false) };
    let Some(file) = text(body)? else { return Ok(false) };
    if pending.len() < PENDING_MAX {
        pending.insert(u64_at(&head, 0), (file, u32_at(&line, 8)));
    }
    Ok(true)
}

/// A text up to its zero; `None` if it is cut or too long.
fn text(body: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let mut byte = [0];
    while text.len() < TEXT_MAX && body.read(&mut byte)? == 1 {
        match byte {
            [0] => return Ok(Some(text)),
            [other] => text.push(other),
        }
    }
    Ok(None)
}

/// The next bytes; `None` if the input ends before.
fn take<const SIZE: usize>(input: &mut impl Read) -> io::Result<Option<[u8; SIZE]>> {
    let mut bytes = [0; SIZE];
    match input.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |number| u32::from_ne_bytes(*number))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |number| u64::from_ne_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::FOREVER;
    use std::io::Cursor;

    fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = [kind, 16 + body.len() as u32].map(u32::to_ne_bytes).concat();
        bytes.extend(time.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn numbers(numbers: &[u64]) -> Vec<u8> {
        [7_u32, 7]
            .iter()
            .flat_map(|id| id.to_ne_bytes())
            .chain(numbers.iter().flat_map(|n| n.to_ne_bytes()))
            .collect()
    }

    fn loaded(time: u64, address: u64, name: &str) -> Vec<u8> {
        let mut body = numbers(&[address, address, 16, 1]);
        body.extend(name.bytes());
        body.push(0);
        body.extend([0xc3; 16]);
        record(0, time, &body)
    }

    fn lined(address: u64, file: &str, line: u32) -> Vec<u8> {
        let mut body: Vec<u8> = [address, 2].iter().flat_map(|n| n.to_ne_bytes()).collect();
        for at in 0..2 {
            body.extend((address + at).to_ne_bytes());
            body.extend((line + at as u32).to_ne_bytes());
            body.extend(0_u32.to_ne_bytes());
            body.extend(file.bytes());
            body.push(0);
        }
        record(2, 1, &body)
    }

    fn header(flags: u64) -> Vec<u8> {
        let mut bytes = [MAGIC, 1, 40, 62, 0, 7].map(u32::to_ne_bytes).concat();
        bytes.extend([5, flags].iter().flat_map(|n: &u64| n.to_ne_bytes()));
        bytes
    }

    fn sample() -> Vec<u8> {
        [
            header(0),
            loaded(10, 0x1000, "fib"),
            lined(0x2000, "add.js", 42),
            record(4, 12, &[0; 24]),
            loaded(20, 0x2000, "add"),
            record(1, 30, &numbers(&[0x3000, 0x1000, 0x3000, 16, 1])),
            loaded(40, 0x1000, "other"),
            record(3, 50, &[]),
            loaded(60, 0x9000, "behind the end"),
        ]
        .concat()
    }

    fn read_all(bytes: &[u8]) -> Result<(Vec<Code>, u64), Error> {
        let mut table = Table::default();
        read(Cursor::new(bytes), &mut table, &|clock, time| {
            time * if clock == Clock::Ticks { 1 } else { 2 }
        })?;
        Ok(table.finish())
    }

    #[test]
    fn code_has_its_times_and_lines() {
        let (codes, lost) = read_all(&sample()).unwrap();
        let shown: Vec<_> = codes
            .iter()
            .map(|code| (&*code.name, code.start, code.loaded, code.replaced, &*code.file, code.line))
            .collect();
        let expected = [
            (&b"fib"[..], 0x1000, 20, 60, &b""[..], 0),
            (b"add", 0x2000, 40, FOREVER, b"add.js", 42),
            (b"fib", 0x3000, 60, FOREVER, b"", 0),
            (b"other", 0x1000, 80, FOREVER, b"", 0),
        ];
        assert_eq!((shown, lost), (expected.into(), 0));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(matches!(read_all(b"short"), Err(Error::NoJitdump)));
        assert!(matches!(read_all(&[7; 100]), Err(Error::NoJitdump)));
        let mut swapped = sample();
        swapped[..4].reverse();
        assert!(matches!(read_all(&swapped), Err(Error::ByteOrder)));
        let mut newer = sample();
        newer[4] = 2;
        assert!(matches!(read_all(&newer), Err(Error::Version(2))));
    }

    #[test]
    fn what_is_before_a_cut_is_kept() {
        let sample = sample();
        for end in 40..sample.len() {
            let (codes, lost) = read_all(&sample[..end]).unwrap();
            assert!(codes.len() <= 4 && lost <= 1, "{end}");
        }
        let mut lie = [header(1), loaded(10, 0x1000, "fib")].concat();
        lie[44..48].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(read_all(&lie).unwrap().0[0].loaded, 10);
        lie[44..48].copy_from_slice(&3_u32.to_ne_bytes());
        assert_eq!(read_all(&lie).unwrap(), (vec![], 1));
    }
}
