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
/// Most places of code that are kept.
const IMAGES_MAX: usize = 1 << 20;

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

/// Code whose bytes a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its first address.
    pub start: u64,
    /// Bytes; the file may end before the last one.
    pub size: u64,
    /// From when on it was there, in ticks.
    pub loaded: u64,
    /// Where its bytes lie in the file.
    pub at: u64,
}

/// Code in the order in which it was loaded, and the place of what was at an address last.
#[derive(Debug, Default)]
struct Images {
    list: Vec<Image>,
    places: HashMap<u64, u64>,
}

impl Images {
    fn add(&mut self, image: Image) {
        if self.list.len() < IMAGES_MAX {
            self.places.insert(image.start, image.at);
            self.list.push(image);
        }
    }
}

/// The clock of a file's times, and when it was opened by that.
///
/// # Errors
///
/// [`Error`].
pub fn opened(mut input: impl Read) -> Result<(Clock, u64), Error> {
    let header = header(&mut input)?;
    Ok((clock_of(&header), u64_at(&header, 24)))
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
    records(input, table, ticks, None)
}

/// Adds the records of a file as [`read`] does, and returns where it has the code's bytes: at most
/// a million places, in the order in which the code was loaded.
///
/// # Errors
///
/// [`Error`]; what was read before is in the table.
pub fn read_with_images(
    input: impl Read + Seek,
    table: &mut Table,
    ticks: &dyn Fn(Clock, u64) -> u64,
) -> Result<Vec<Image>, Error> {
    let mut images = Images::default();
    records(input, table, ticks, Some(&mut images))?;
    Ok(images.list)
}

fn header(input: &mut impl Read) -> Result<[u8; HEADER_SIZE], Error> {
    let header: [u8; HEADER_SIZE] = take(input)?.ok_or(Error::NoJitdump)?;
    match u32_at(&header, 0) {
        MAGIC => {}
        other if other == MAGIC.swap_bytes() => return Err(Error::ByteOrder),
        _ => return Err(Error::NoJitdump),
    }
    match u32_at(&header, 4) {
        1 => Ok(header),
        other => Err(Error::Version(other)),
    }
}

fn clock_of(header: &[u8; HEADER_SIZE]) -> Clock {
    if u64_at(header, 32) & 1 != 0 { Clock::Ticks } else { Clock::Monotonic }
}

fn records(
    input: impl Read + Seek,
    table: &mut Table,
    ticks: &dyn Fn(Clock, u64) -> u64,
    mut images: Option<&mut Images>,
) -> Result<(), Error> {
    let mut input = BufReader::new(input);
    let header = header(&mut input)?;
    let clock = clock_of(&header);
    let more = i64::from(u32_at(&header, 8)) - HEADER_SIZE as i64;
    input.seek_relative(more.max(0))?;
    let mut place = HEADER_SIZE as u64 + more.max(0).unsigned_abs();
    let mut pending = HashMap::new();
    for _ in 0..RECORDS_MAX {
        let Some(record) = take::<16>(&mut input)? else { return Ok(()) };
        let Some(size_of_body) = u32_at(&record, 4).checked_sub(RECORD_SIZE) else {
            // The rest can't be parsed.
            table.lost += 1;
            return Ok(());
        };
        let at = ticks(clock, u64_at(&record, 8));
        let mut body = input.by_ref().take(u64::from(size_of_body));
        let is_whole = match u32_at(&record, 0) {
            kind::LOAD => match load(&mut body, at, &mut pending, table)? {
                Some((start, size)) => {
                    if let Some(images) = &mut images {
                        let head = u64::from(RECORD_SIZE) + u64::from(size_of_body) - body.limit();
                        let size = size.min(body.limit());
                        images.add(Image { start, size, loaded: at, at: place + head });
                    }
                    true
                }
                None => false,
            },
            kind::MOVE => match relocate(&mut body, at, table)? {
                Some((from, start, size)) => {
                    if let Some(images) = &mut images
                        && let Some(place) = images.places.get(&from).copied()
                    {
                        images.add(Image { start, size, loaded: at, at: place });
                    }
                    true
                }
                None => false,
            },
            kind::LINES => lines(&mut body, &mut pending)?,
            kind::CLOSE => return Ok(()),
            _ => true,
        };
        table.lost += u64::from(!is_whole);
        place += u64::from(RECORD_SIZE) + u64::from(size_of_body);
        let rest = i64::try_from(body.limit()).unwrap_or(i64::MAX);
        input.seek_relative(rest)?;
    }
    table.lost += 1;
    Ok(())
}

/// Files and lines of code that is loaded next, by its address.
type Pending = HashMap<u64, (Vec<u8>, u32)>;

/// Returns the code's first address and its size; `None` if the record is cut.
fn load(
    body: &mut impl Read,
    at: u64,
    pending: &mut Pending,
    table: &mut Table,
) -> io::Result<Option<(u64, u64)>> {
    let Some(head) = take::<LOAD_SIZE>(body)? else { return Ok(None) };
    let (start, size) = (u64_at(&head, 16), u64_at(&head, 24));
    let Some(name) = text(body)? else { return Ok(None) };
    let (file, line) = pending.remove(&start).unwrap_or_default();
    table.load(Code { start, size, loaded: at, name, file, line, ..Code::default() });
    Ok(Some((start, size)))
}

/// Returns the old first address, the new one, and the size; `None` if the record is cut.
fn relocate(body: &mut impl Read, at: u64, table: &mut Table) -> io::Result<Option<(u64, u64, u64)>> {
    let Some(head) = take::<MOVE_SIZE>(body)? else { return Ok(None) };
    let (from, to, size) = (u64_at(&head, 16), u64_at(&head, 24), u64_at(&head, 32));
    table.relocate(from, to, size, at);
    Ok(Some((from, to, size)))
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
    fn code_has_its_bytes() {
        let sample = sample();
        let mut table = Table::default();
        let images = read_with_images(Cursor::new(&sample), &mut table, &|_, time| time).unwrap();
        let shown: Vec<_> = images.iter().map(|image| (image.start, image.size, image.loaded)).collect();
        assert_eq!(shown, [(0x1000, 16, 10), (0x2000, 16, 20), (0x3000, 16, 30), (0x1000, 16, 40)]);
        for image in &images {
            let at = image.at as usize;
            assert_eq!((&sample[at - 1..at], &sample[at..at + 16]), (&[0][..], &[0xc3; 16][..]));
        }
        assert_eq!(images[2].at, images[0].at);
        assert_eq!(opened(&sample[..]).unwrap(), (Clock::Monotonic, 5));
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
