//! Bytes to words.

use alloc::vec::Vec;
use core::fmt;

use crate::model::{KNOWN, Model};
use crate::token::{self, AGAIN, LONG, PLAIN, SAME, SHORT, difference};

/// Why bytes are not what words became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// They end before all words are there.
    Short,
    /// There are more words than expected.
    Long,
    /// A place that the dictionary doesn't have.
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

/// Appends the `count` words that became `bytes` to `out`, which grows by no more than these: a few bytes may stand for
/// very many words, so `count` should have been checked. Beside the output it takes 64 KiB.
///
/// # Errors
/// Where `bytes` aren't those of so many words. The words before the damage have been appended then; of bytes that
/// were merely cut they are right.
pub fn decode(bytes: &[u8], count: usize, out: &mut Vec<u64>) -> Result<(), Error> {
    let mut model = Model::new();
    let end = out.len().saturating_add(count);
    let mut input = Input { bytes };
    while out.len() < end {
        step(&mut model, &mut input, end, out)?;
    }
    if input.bytes.is_empty() { Ok(()) } else { Err(Error::Long) }
}

/// Decodes what one first byte stands for. `out` hasn't reached `end` yet.
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

/// Bytes that haven't been looked at.
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
