//! The model that encoder and decoder build from the words so far.

use alloc::boxed::Box;
use alloc::vec;

const RECENT_BITS: u32 = 13;
const CALLED_BITS: u32 = 12;
const KNOWN_BITS: u32 = 12;
const RECENT: usize = 1 << RECENT_BITS;
const CALLED: usize = 1 << CALLED_BITS;
/// Places of the dictionary.
pub const KNOWN: usize = 1 << KNOWN_BITS;
/// Bits by which each word shifts `history`: the hash depends on the last 11 words.
const HISTORY_SHIFT: u32 = 6;
/// 2⁶⁴ divided by the golden ratio: spreads keys over the upper bits of a product.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Low halves with these bits have no ticks above them, but a payload.
const PAYLOAD: u32 = 0xff00_0000;
/// Low halves without bit 31 from here up aren't functions.
const ESCAPE_FIRST: u32 = 0x7f00_0000;
const EXIT: u32 = 1 << 31;

/// State derived from the words so far, to predict the next one.
pub struct Model {
    /// By [`Model::history`]: the low half that came next.
    recent: Box<[u32; RECENT]>,
    /// By the last word and the innermost open call: the low half that came next, if `recent` was
    /// wrong.
    called: Box<[u32; CALLED]>,
    /// Low halves, by themselves.
    known: Box<[u32; KNOWN]>,
    /// Low halves of the open calls' entries; older ones are overwritten.
    open: [u32; 256],
    /// Place of the innermost.
    top: u8,
    history: u64,
    low: u32,
    ticks: u32,
    /// The difference in the word before.
    difference: u32,
}

fn zeros<const LENGTH: usize>() -> Box<[u32; LENGTH]> {
    // Through a vector, because an array of this size should not be on the stack.
    vec![0; LENGTH].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([0; LENGTH]))
}

impl Model {
    pub fn new() -> Model {
        Model {
            recent: zeros(),
            called: zeros(),
            known: zeros(),
            open: [0; 256],
            top: 0,
            history: 0,
            low: 0,
            ticks: 0,
            difference: 0,
        }
    }

    #[inline(always)]
    fn recent_place(&self) -> usize {
        (self.history.wrapping_mul(SPREAD) >> (u64::BITS - RECENT_BITS)) as usize
    }

    #[inline(always)]
    fn called_place(&self) -> usize {
        let key = u64::from(self.low) << 32 | u64::from(self.open[usize::from(self.top)]);
        (key.wrapping_mul(SPREAD) >> (u64::BITS - CALLED_BITS)) as usize
    }

    /// The place of a low half in the dictionary.
    #[inline(always)]
    pub fn known_place(low: u32) -> usize {
        (u64::from(low).wrapping_mul(SPREAD) >> (u64::BITS - KNOWN_BITS)) as usize
    }

    /// The predicted next low half.
    #[inline(always)]
    pub fn recent(&self) -> u32 {
        self.recent[self.recent_place()]
    }

    /// The second prediction, if `recent` is wrong.
    #[inline(always)]
    pub fn called(&self) -> u32 {
        self.called[self.called_place()]
    }

    /// The dictionary's entry at a place below [`KNOWN`].
    #[inline(always)]
    pub fn known(&self, place: usize) -> u32 {
        self.known[place % KNOWN]
    }

    /// The word before.
    #[inline(always)]
    pub fn word(&self) -> u64 {
        // Its difference was relative to `ticks` at that time, which only matters for payloads.
        let high = if has_ticks(self.low) { self.ticks } else { self.difference };
        u64::from(high) << 32 | u64::from(self.low)
    }

    /// The difference in the word before.
    #[inline(always)]
    pub fn last_difference(&self) -> u32 {
        self.difference
    }

    /// The base of the difference for the high half above `low`.
    #[inline(always)]
    pub fn base(&self, low: u32) -> u32 {
        if has_ticks(low) { self.ticks } else { 0 }
    }

    /// Learns that `recent` was wrong. Before [`Model::advance`].
    #[inline(always)]
    pub fn correct(&mut self, low: u32) {
        self.recent[self.recent_place()] = low;
        self.called[self.called_place()] = low;
        self.known[Model::known_place(low)] = low;
    }

    /// Updates the state with a word with this low half; returns the word.
    #[inline(always)]
    pub fn advance(&mut self, low: u32, difference: u32) -> u64 {
        let high = self.base(low).wrapping_add(difference);
        if has_ticks(low) {
            self.ticks = high;
        }
        self.difference = difference;
        self.history = self.history << HISTORY_SHIFT ^ u64::from(low);
        // The place above the innermost call is free, so no check is needed.
        self.open[usize::from(self.top.wrapping_add(1))] = low;
        let is_call = low & !EXIT < ESCAPE_FIRST;
        let step = if low & EXIT == 0 { 1 } else { u8::MAX };
        self.top = self.top.wrapping_add(if is_call { step } else { 0 });
        self.low = low;
        u64::from(high) << 32 | u64::from(low)
    }
}

/// Whether a word with this low half has ticks in its upper one: neither an empty one nor a
/// record's following word.
#[inline(always)]
fn has_ticks(low: u32) -> bool {
    low != 0 && low < PAYLOAD
}
