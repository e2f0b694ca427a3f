//! Cutting the events chunks of a file into segments.

use std::ops::Range;

use everycall_format::arena::{PAGE, SEGMENT_SIZE_MAX};
use everycall_format::event::{RECORD_MAX_PAYLOAD, WORD_SIZE};

use crate::chunks::Chunk;
use crate::error::Warning;
use crate::event::begins_segment;
use crate::model::{SegmentCursor, SegmentPlace};

/// The segments of an events chunk that belong to a thread: all of them, or those that no other
/// snapshot of the thread has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub chunk: Chunk,
    /// Number of the chunk's first segment, and its event words.
    pub first: u64,
    pub words: u64,
    /// Numbers of the first segment that is used, and of the first one behind that isn't.
    pub from: u64,
    pub until: u64,
    /// Whether a snapshot ends with it, so that its last segment may be unwritten at the end.
    pub ends: bool,
    /// Whether the end of the segment before it is missing.
    pub is_behind_cut: bool,
}

impl Piece {
    pub fn new(chunk: Chunk, first: u64, words: u64) -> Piece {
        Piece { chunk, first, words, from: first, until: u64::MAX, ends: false, is_behind_cut: false }
    }

    /// The numbers of the chunk's segments.
    pub fn numbers(&self, segment_words: u64) -> Range<u64> {
        self.first..self.first.saturating_add(self.words.div_ceil(segment_words.max(1)))
    }

    /// Whether the chunk's last segment isn't written to its end.
    pub fn ends_early(&self, segment_words: u64) -> bool {
        !self.words.is_multiple_of(segment_words.max(1))
    }
}

/// Words of a segment of `segment_size` bytes, if that is plausible.
pub(crate) fn segment_words(segment_size: u64) -> Option<u64> {
    let plausible = segment_size.is_multiple_of(8) && (64..=SEGMENT_SIZE_MAX).contains(&segment_size);
    plausible.then_some(segment_size / WORD_SIZE as u64)
}

/// A file whose events chunks can be read.
pub(crate) trait EventWords {
    /// The event words of an events chunk, the number of their first segment, and how many events
    /// are lost before that. Of a chunk that the file's end cuts, the words that are there; their
    /// checksum is lost.
    fn event_words(&self, chunk: &Chunk) -> Result<(u64, Vec<u64>, u32), Warning>;
}

/// Goes through a thread's chunks, holding one of them.
pub(crate) struct FileSegments<'f> {
    file: &'f dyn EventWords,
    chunks: std::slice::Iter<'f, Piece>,
    /// The current one.
    piece: Option<Piece>,
    is_cut_before: bool,
    /// Place of the next chunk among those of the thread.
    next_chunk: usize,
    /// The segment that was returned last.
    place: Option<SegmentPlace>,
    tid: u32,
    /// Words of a segment; 0 where the snapshot's facts are lost.
    segment_words: usize,
    /// The words of the current chunk.
    words: Vec<u64>,
    /// Where in them the next segment begins.
    at: usize,
    /// Number of the next segment.
    number: u64,
    /// The lowest number that may come.
    lowest: u64,
    /// Events lost before the segment that comes next, and before the one that came last.
    lost: u64,
    lost_before: u64,
}

impl<'f> FileSegments<'f> {
    /// The segments in `chunks`; `segment_size` is what the snapshot says.
    pub fn new(
        file: &'f dyn EventWords,
        chunks: &'f [Piece],
        tid: u32,
        segment_size: u64,
    ) -> FileSegments<'f> {
        let segment_words = segment_words(segment_size).map_or(0, |words| words as usize);
        FileSegments {
            file,
            chunks: chunks.iter(),
            piece: None,
            is_cut_before: false,
            next_chunk: 0,
            place: None,
            tid,
            segment_words,
            words: Vec::new(),
            at: 0,
            number: 0,
            lowest: 0,
            lost: 0,
            lost_before: 0,
        }
    }

    /// The segments from one on that was returned before; `None` if it can't be read.
    pub fn from(
        file: &'f dyn EventWords,
        chunks: &'f [Piece],
        tid: u32,
        segment_size: u64,
        first: SegmentPlace,
    ) -> Option<FileSegments<'f>> {
        let piece = chunks.get(first.chunk)?;
        let mut segments = FileSegments::new(file, chunks.get(first.chunk + 1..)?, tid, segment_size);
        let (_, words, _) = file.event_words(&piece.chunk).ok()?;
        segments.words = words;
        segments.piece = Some(*piece);
        segments.next_chunk = first.chunk + 1;
        (segments.at, segments.number, segments.lowest) = (first.at, first.number, first.number);
        Some(segments)
    }

    fn is_last(&self) -> bool {
        self.at >= self.words.len() && self.chunks.as_slice().is_empty()
    }
}

impl SegmentCursor for FileSegments<'_> {
    fn next_segment(&mut self, words: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        self.is_cut_before = false;
        while self.at >= self.words.len() {
            let Some(piece) = self.chunks.next() else {
                self.lost_before = std::mem::take(&mut self.lost);
                return None;
            };
            self.next_chunk += 1;
            self.words.clear();
            self.at = 0;
            self.piece = Some(*piece);
            self.is_cut_before = piece.is_behind_cut;
            match self.file.event_words(&piece.chunk) {
                Ok((number, words, lost)) => {
                    self.words = words;
                    self.number = number;
                    if piece.from > number {
                        let count = usize::try_from(piece.from - number).unwrap_or(usize::MAX);
                        self.at = count.saturating_mul(self.segment_words);
                        self.number = piece.from;
                    }
                    self.lost = self.lost.saturating_add(lost.into());
                }
                Err(warning) => return Some(Err(warning)),
            }
        }
        let rest = &self.words[self.at..];
        let length = match self.segment_words {
            0 => guess_length(rest, self.number),
            count => count,
        };
        let part = &rest[..length.min(rest.len())];
        let at = self.at;
        self.at += part.len();
        words.clear();
        words.extend_from_slice(part);
        let number = self.number;
        self.number = number.wrapping_add(1);
        if self.piece.is_some_and(|piece| self.number >= piece.until) {
            self.at = self.words.len();
        }
        if number < self.lowest || !begins_segment(words, number) {
            return Some(Err(Warning::SegmentInvalid { tid: self.tid, segment: number }));
        }
        self.lowest = number.saturating_add(1);
        self.place = Some(SegmentPlace { chunk: self.next_chunk.saturating_sub(1), at, number });
        self.lost_before = std::mem::take(&mut self.lost);
        let ends = self.piece.is_some_and(|piece| piece.ends) && self.at >= self.words.len();
        if ends || self.is_last() {
            trim(words);
        }
        Some(Ok(number))
    }

    fn lost_before(&self) -> u64 {
        self.lost_before
    }

    fn is_cut_before(&self) -> bool {
        self.is_cut_before
    }

    fn place(&self) -> Option<SegmentPlace> {
        self.place
    }
}

/// Leaves out words at the end that were never written.
pub(crate) fn trim(words: &mut Vec<u64>) {
    let written = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
    words.truncate(written);
}

/// Words of the segment at the beginning of `words` if its size isn't known: up to the beginning of
/// the next segment.
fn guess_length(words: &[u64], number: u64) -> usize {
    let sizes = (PAGE.ilog2()..=SEGMENT_SIZE_MAX.ilog2()).map(|bits| (1 << bits) / WORD_SIZE);
    let begins_next = |size: &usize| {
        // Passes only the record's words: the rest may be long, and this runs once for each size.
        let rest = words.get(*size..).unwrap_or_default();
        begins_segment(&rest[..rest.len().min(1 + RECORD_MAX_PAYLOAD)], number.wrapping_add(1))
    };
    sizes.into_iter().find(begins_next).unwrap_or(words.len())
}
