//! Bytes to words.

use alloc::vec::Vec;
use core::fmt;

use crate::model::{KNOWN, Model};
use crate::token::{self, AGAIN, LONG, PLAIN, SAME, SHORT, difference};

/// Why bytes aren't valid encoded words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// They end before the last word.
    Short,
    /// There are more words than expected.
    Long,
    /// A place outside the dictionary.
    Place,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Short => "the bytes end before all words are there",
            Error::Long => "there are more words than expected",
            Error::Place => "a place is named that the dictionary doesn't have",
        })
    }
}

impl core::error::Error for Error {}

/// Decodes `bytes` and appends the `count` words to `out`, which grows by no more than these. A few
/// bytes may encode very many words, so the caller should check `count`. Takes 64 KiB besides the
/// output.
///
/// # Errors
/// `bytes` don't encode exactly `count` words. The words before the damage have been appended then;
/// if the bytes were only truncated, these words are right.
pub fn decode(bytes: &[u8], count: usize, out: &mut Vec<u64>) -> Result<(), Error> {
    let mut model = Model::new();
    let end = out.len().saturating_add(count);
    let mut input = Input { bytes };
    while out.len() < end {
        step(&mut model, &mut input, end, out)?;
    }
    if input.bytes.is_empty() { Ok(()) } else { Err(Error::Long) }
}

/// Decodes the words of one first byte. `out` hasn't reached `end` yet.
#[inline(always)]
fn step(model: &mut Model, input: &mut Input<'_>, end: usize, out: &mut Vec<u64>) -> Result<(), Error> {
    let first = input.byte()?;
    if u32::from(first) < SHORT {
        let low = model.recent();
        out.push(model.advance(low, u32::from(first)));
    } else if first < LONG {
        let difference = model.last_difference();
        let count = usize::from(first - AGAIN) + 1;
        let fits = count.min(end - out.len());
        for _ in 0..fits {
            let low = model.recent();
            out.push(model.advance(low, difference));
        }
        if fits < count {
            return Err(Error::Long);
        }
    } else if first < SAME {
        let above = u32::from(first - LONG) << 8 | u32::from(input.byte()?);
        let low = model.recent();
        out.push(model.advance(low, SHORT + above));
    } else if first == SAME {
        let count = usize::from(input.two()?) + 1;
        let fits = count.min(end - out.len());
        out.resize(out.len() + fits, model.word());
        if fits < count {
            return Err(Error::Long);
        }
    } else {
        out.push(plain(model, first, input)?);
    }
    Ok(())
}

fn plain(model: &mut Model, first: u8, input: &mut Input<'_>) -> Result<u64, Error> {
    debug_assert!(first >= PLAIN);
    let difference = match first & 3 {
        difference::SAME => model.last_difference(),
        difference::BYTE => u32::from(input.byte()?),
        difference::TWO => u32::from(input.two()?),
        _ => input.four()?,
    };
    let low = match first >> 2 & 3 {
        token::low::RECENT => model.recent(),
        token::low::CALLED => model.called(),
        token::low::KNOWN => match usize::from(input.two()?) {
            place @ ..KNOWN => model.known(place),
            _ => return Err(Error::Place),
        },
        _ => input.four()?,
    };
    if first >> 2 & 3 != token::low::RECENT {
        model.correct(low);
    }
    Ok(model.advance(low, difference))
}

/// The unread bytes.
struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    #[inline(always)]
    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Error> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Error::Short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    #[inline(always)]
    fn byte(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_le_bytes)
    }

    fn two(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    fn four(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }
}
