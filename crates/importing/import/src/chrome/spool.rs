//! Events in the order of their threads and times, or of their ids and times, in bounded memory:
//! pieces that are sorted and written to a temporary file, then merged.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Bytes of a record in the file.
const SIZE: usize = 29;
/// Bytes of each piece that are read at once.
const READ: usize = 256 << 10;

/// An event's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Begin,
    End,
    Instant,
    SpanBegin,
    SpanEnd,
    /// A span that begins and ends at one time.
    SpanWhole,
    Counter,
    CounterReal,
    Complete,
}

const KINDS: [Kind; 9] = [
    Kind::Begin,
    Kind::End,
    Kind::Instant,
    Kind::SpanBegin,
    Kind::SpanEnd,
    Kind::SpanWhole,
    Kind::Counter,
    Kind::CounterReal,
    Kind::Complete,
];

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub thread: u32,
    pub kind: Kind,
    pub ns: i64,
    pub name: u32,
    /// The category of a begin or end; the number of a span's pair; the group of an asynchronous
    /// event.
    pub group: u32,
    /// A duration in nanoseconds, a span's id, or a counter's value.
    pub value: u64,
}

/// The sort key of records; those with equal keys keep their order.
type Key = (u64, u64, u64);

/// Times, negative ones too, as numbers of the same order.
fn ordered(ns: i64) -> u64 {
    ns.cast_unsigned() ^ (1 << 63)
}

impl Record {
    /// At one time, ends of spans come first; and complete slices last, the longest first: shorter
    /// ones are inside it.
    fn by_thread(&self) -> Key {
        let rank = match self.kind {
            Kind::SpanEnd => 0,
            Kind::Complete => u64::MAX - self.value.min(u64::MAX - 2),
            _ => 1,
        };
        (u64::from(self.thread), ordered(self.ns), rank)
    }

    fn by_id(&self) -> Key {
        (u64::from(self.group), self.value, ordered(self.ns))
    }

    fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let fields = [
            &self.thread.to_le_bytes()[..],
            &self.name.to_le_bytes(),
            &self.group.to_le_bytes(),
            &self.ns.to_le_bytes(),
            &self.value.to_le_bytes(),
            &[self.kind as u8],
        ];
        bytes.iter_mut().zip(fields.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        bytes
    }

    fn of(bytes: [u8; SIZE]) -> Record {
        let half =
            |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
        let whole =
            |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
        let kind = KINDS.get(usize::from(bytes[SIZE - 1])).copied().unwrap_or(Kind::Instant);
        Record {
            thread: half(0),
            name: half(4),
            group: half(8),
            ns: whole(12).cast_signed(),
            value: whole(20),
            kind,
        }
    }
}

/// Takes records in any order.
pub(super) struct Spool {
    key: fn(&Record) -> Key,
    /// Records that are in memory at once, of 32 bytes each.
    size: usize,
    piece: Vec<Record>,
    file: Option<BufWriter<File>>,
    /// Where the pieces in the file begin and end.
    pieces: Vec<(u64, u64)>,
    written: u64,
}

impl Spool {
    /// Sorts by threads and times.
    pub fn by_thread() -> Spool {
        Spool {
            key: Record::by_thread,
            size: 2 << 20,
            piece: Vec::new(),
            file: None,
            pieces: Vec::new(),
            written: 0,
        }
    }

    /// Sorts by groups, ids and times.
    pub fn by_id() -> Spool {
        Spool { key: Record::by_id, size: 1 << 19, ..Spool::by_thread() }
    }

    #[inline]
    pub fn add(&mut self, record: Record) -> io::Result<()> {
        self.piece.push(record);
        if self.piece.len() >= self.size { self.store() } else { Ok(()) }
    }

    #[cold]
    fn store(&mut self) -> io::Result<()> {
        self.piece.sort_by_key(self.key);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::with_capacity(READ, tempfile::tempfile()?)),
        };
        for record in self.piece.drain(..) {
            file.write_all(&record.bytes())?;
            self.written += SIZE as u64;
        }
        let begin = self.pieces.last().map_or(0, |(_, end)| *end);
        self.pieces.push((begin, self.written));
        Ok(())
    }

    /// All records, sorted.
    pub fn sorted(&mut self) -> io::Result<Sorted<'_>> {
        self.piece.sort_by_key(self.key);
        if let Some(file) = &mut self.file {
            file.flush()?;
        }
        let file = self.file.as_ref().map(BufWriter::get_ref);
        let mut sources = Vec::new();
        for (begin, end) in &self.pieces {
            let Some(file) = file else { continue };
            sources.push(Source::File(BufReader::with_capacity(READ, Part { file, at: *begin, end: *end })));
        }
        sources.push(Source::Memory(self.piece.iter()));
        let mut sorted = Sorted { key: self.key, sources, heads: BinaryHeap::new() };
        for number in 0..sorted.sources.len() {
            sorted.advance(number)?;
        }
        Ok(sorted)
    }
}

/// A part of a file.
struct Part<'s> {
    file: &'s File,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(bytes.len());
        let count = self.file.read_at(bytes.get_mut(..left).unwrap_or_default(), self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Part<'_> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Ok(self.at)
    }
}

enum Source<'s> {
    File(BufReader<Part<'s>>),
    Memory(std::slice::Iter<'s, Record>),
}

/// The first record of a source that isn't given yet.
struct Head {
    key: Key,
    record: Record,
    source: usize,
}

impl Head {
    fn key(&self) -> (Key, usize) {
        (self.key, self.source)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    /// The first one is the greatest.
    fn cmp(&self, other: &Head) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Gives the records in their order.
pub(super) struct Sorted<'s> {
    key: fn(&Record) -> Key,
    sources: Vec<Source<'s>>,
    heads: BinaryHeap<Head>,
}

impl Sorted<'_> {
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        if let ([Source::Memory(records)], true) = (&mut self.sources[..], self.heads.is_empty()) {
            return Ok(records.next().copied());
        }
        let Some(head) = self.heads.pop() else { return Ok(None) };
        if self.sources.len() > 1 {
            self.advance(head.source)?;
        }
        Ok(Some(head.record))
    }

    fn advance(&mut self, source: usize) -> io::Result<()> {
        let record = match self.sources.get_mut(source) {
            Some(Source::Memory(records)) => records.next().copied(),
            Some(Source::File(input)) => {
                let mut bytes = [0; SIZE];
                match input.read_exact(&mut bytes) {
                    Ok(()) => Some(Record::of(bytes)),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
                    Err(error) => return Err(error),
                }
            }
            None => None,
        };
        self.heads.extend(record.map(|record| Head { key: (self.key)(&record), record, source }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_merged_in_order() {
        for spool in [Spool::by_thread, Spool::by_id] {
            check(spool());
        }
    }

    fn check(mut spool: Spool) {
        let mut all = Vec::new();
        let mut state = 1_u64;
        for number in 0..30_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let record = Record {
                thread: (state >> 60) as u32 & 3,
                kind: KINDS[(state >> 50) as usize % KINDS.len()],
                ns: (state >> 40 & 0xff).cast_signed() - 100,
                name: number,
                group: (state >> 45) as u32 & 3,
                value: state >> 33 & 7,
            };
            all.push(record);
            spool.add(record).unwrap();
            if number % 7_000 == 0 {
                spool.store().unwrap();
            }
        }
        all.sort_by_key(spool.key);
        let mut sorted = spool.sorted().unwrap();
        let mut given = Vec::new();
        while let Some(record) = sorted.next_record().unwrap() {
            given.push(record);
        }
        assert!(given == all);
    }
}
