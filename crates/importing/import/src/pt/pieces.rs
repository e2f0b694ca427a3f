//! The trace of one CPU or thread, cut into pieces that can be decoded by themselves: each begins
//! at a synchronization point.

use std::io::{Read, Seek};

use everycall_intel_pt::{Gap, find_psb};

use super::file::{Stream, bytes_at};
use crate::error::ImportError;

/// Bytes of a synchronization point, at most.
const POINT_BYTES: usize = 512;
/// Bytes in which the beginning of a synchronization point may be cut.
const CUT_BYTES: usize = 15;
/// The most bytes that are read at once.
const READ_BYTES: u64 = 256 << 10;
/// The most bytes without a synchronization point.
const PIECE_MAX: usize = 80 << 20;

/// A part of a trace.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// From a synchronization point on; the one of the next piece may follow.
    pub bytes: Vec<u8>,
    /// Without that.
    pub own: usize,
    /// Why something between the piece before and this one is missing, if it is.
    pub lost: Option<Gap>,
}

/// The trace of one CPU or thread.
#[derive(Debug)]
pub(crate) struct Source {
    pub stream: Stream,
    /// Bytes of a piece, about.
    size: usize,
    bytes: Vec<u8>,
    /// Where the bytes begin among all that the CPU wrote.
    offset: u64,
    /// The part that is read, and how much of it.
    part: usize,
    read: u64,
    /// The next loss.
    loss: usize,
    /// Why something before the bytes is missing, if it is.
    lost: Option<Gap>,
    /// Whether the bytes begin with a synchronization point.
    begins: bool,
    pub is_truncated: bool,
}

/// What follows the bytes that are there.
enum More {
    Bytes,
    Loss,
    End,
}

impl Source {
    /// `size`: bytes of a piece, about.
    pub fn new(stream: Stream, size: usize) -> Source {
        Source {
            stream,
            size,
            bytes: Vec::new(),
            offset: 0,
            part: 0,
            read: 0,
            loss: 0,
            lost: None,
            begins: false,
            is_truncated: false,
        }
    }

    /// The next piece; `None` behind the last one.
    ///
    /// # Errors
    ///
    /// The input's.
    pub fn next(&mut self, input: &mut (impl Read + Seek)) -> Result<Option<Piece>, ImportError> {
        loop {
            if !self.begins {
                if let Some(at) = find_psb(self.whole()) {
                    self.skip(at);
                    self.begins = true;
                    continue;
                }
                // Its beginning may be there.
                self.skip(self.whole().len().saturating_sub(CUT_BYTES));
                match self.more(input)? {
                    More::Bytes => {}
                    More::Loss => self.lose(Gap::Recorder),
                    More::End => return Ok(None),
                }
                continue;
            }
            let whole = self.whole();
            let from = self.size.min(whole.len());
            let found = whole.get(from..).and_then(find_psb).map(|at| from + at);
            if found.is_none_or(|at| whole.len() - at < POINT_BYTES) {
                let is_too_long = self.bytes.len() >= PIECE_MAX;
                match if is_too_long { More::Loss } else { self.more(input)? } {
                    More::Bytes => continue,
                    More::Loss | More::End if found.is_none() => {
                        return Ok(Some(self.last(if is_too_long { Gap::Packets } else { Gap::Recorder })));
                    }
                    More::Loss | More::End => {}
                }
            }
            return Ok(found.map(|at| self.cut(at)));
        }
    }

    /// The bytes up to the next loss.
    fn whole(&self) -> &[u8] {
        self.loss_at().and_then(|at| self.bytes.get(..at)).unwrap_or(&self.bytes)
    }

    /// Where among the bytes the next loss is.
    fn loss_at(&self) -> Option<usize> {
        let lost = self.stream.losses.get(self.loss)?.saturating_sub(self.offset);
        usize::try_from(lost).ok().filter(|at| *at <= self.bytes.len())
    }

    fn skip(&mut self, count: usize) {
        self.offset = self.offset.saturating_add(count as u64);
        self.bytes.drain(..count.min(self.bytes.len()));
    }

    /// The bytes up to a synchronization point.
    fn cut(&mut self, at: usize) -> Piece {
        let end = (at + POINT_BYTES).min(self.whole().len());
        let rest = self.bytes.get(at..).unwrap_or_default().to_vec();
        let mut bytes = std::mem::replace(&mut self.bytes, rest);
        bytes.truncate(end);
        self.offset = self.offset.saturating_add(at as u64);
        Piece { bytes, own: at, lost: self.lost.take() }
    }

    /// All bytes up to a loss, or to the end.
    fn last(&mut self, why: Gap) -> Piece {
        let bytes = self.whole().to_vec();
        let piece = Piece { own: bytes.len(), bytes, lost: self.lost.take() };
        self.lose(why);
        piece
    }

    /// Goes on behind a loss.
    fn lose(&mut self, why: Gap) {
        match self.loss_at() {
            Some(at) => {
                self.skip(at);
                self.loss += 1;
            }
            None => {
                self.skip(self.bytes.len());
                if let Some(part) = self.stream.parts.get(self.part).filter(|_| self.read == 0) {
                    self.offset = part.offset;
                }
            }
        }
        (self.lost, self.begins) = (Some(why), false);
    }

    /// Reads on, up to the next loss.
    fn more(&mut self, input: &mut (impl Read + Seek)) -> Result<More, ImportError> {
        loop {
            if self.loss_at().is_some() {
                return Ok(More::Loss);
            }
            let Some(part) = self.stream.parts.get(self.part).copied() else { return Ok(More::End) };
            if self.read >= part.size {
                self.part += 1;
                self.read = 0;
                continue;
            }
            if self.part == 0 && self.read == 0 {
                self.offset = part.offset;
            }
            let end = self.offset.saturating_add(self.bytes.len() as u64);
            if self.read == 0 && part.offset < end {
                // A snapshot repeats what the one before had.
                self.read = (end - part.offset).min(part.size);
                continue;
            }
            if self.read == 0 && part.offset > end {
                return Ok(More::Loss);
            }
            let wanted = (part.size - self.read).min(8 * self.size as u64);
            let more = bytes_at(input, part.at.saturating_add(self.read), wanted, READ_BYTES)?;
            if more.is_empty() {
                self.is_truncated = true;
                self.part = usize::MAX;
                return Ok(More::End);
            }
            self.read += more.len() as u64;
            self.bytes.extend(more);
            return Ok(More::Bytes);
        }
    }
}
