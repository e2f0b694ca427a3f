//! Counters of a process that the recorder has sampled, as the event words that a thread would have
//! written: readers and viewers show them like the program's own counters.

use std::collections::VecDeque;

use everycall_format::event::{WORD_SIZE, kind, payload_word, record_word};
use everycall_format::label;

use crate::sys::usage::{NAMES, Observed, Usage};

/// Bytes of a segment: half a second of a busy process at the default interval.
pub const SEGMENT_SIZE: u64 = 8192;
const SEGMENT_WORDS: usize = SEGMENT_SIZE as usize / WORD_SIZE;
/// Segments of a process that are kept: 4 MiB, some minutes.
const SEGMENTS_MAX: usize = 512;
/// Words that one sample takes at most: a change of the ticks' upper half, and all counters.
const SAMPLE_MAX: usize = 2 + NAMES.len() * label::WORDS_MAX;

/// The samples of one process.
#[derive(Debug)]
pub struct Samples {
    observed: Observed,
    /// The last one is being written.
    segments: VecDeque<Vec<u64>>,
    /// Number of the first of them.
    pub first_segment: u64,
    /// Upper half of the ticks of the last sample.
    high: u32,
    last: Usage,
    pub start_ticks: u64,
}

impl Samples {
    /// Of the process `pid`, from `ticks` on.
    pub fn new(pid: u32, ticks: u64) -> Samples {
        Samples {
            observed: Observed::new(pid),
            segments: VecDeque::new(),
            first_segment: 0,
            high: 0,
            last: Usage::default(),
            start_ticks: ticks,
        }
    }

    /// Takes a sample. Counters that haven't changed are left out, unless it `is_last`.
    pub fn take(&mut self, is_last: bool, ticks: impl FnOnce() -> u64) {
        if let Some(usage) = self.observed.read() {
            self.add(usage, ticks(), is_last);
        }
    }

    fn add(&mut self, usage: Usage, ticks: u64, is_last: bool) {
        let high = (ticks >> 32) as u32;
        let fits = |words: &Vec<u64>| words.len() + SAMPLE_MAX <= SEGMENT_WORDS;
        let is_new = !self.segments.back().is_some_and(fits);
        if is_new {
            self.begin(ticks);
        }
        let Some(words) = self.segments.back_mut() else { return };
        if !is_new && high != self.high {
            words.push(record_word(ticks, kind::EPOCH, 1, 0));
            words.push(payload_word(high, kind::EPOCH, 1));
        }
        self.high = high;
        let all = is_new || is_last;
        for ((name, value), last) in NAMES.iter().zip(usage.values).zip(self.last.values) {
            if value.is_some() && (all || value != last) {
                words.extend(label::record(label::COUNTER, ticks, value, name.as_bytes()).words());
            }
        }
        self.last = usage;
    }

    /// Begins a segment, in which all counters come first: those before it may be dropped.
    fn begin(&mut self, ticks: u64) {
        if let Some(full) = self.segments.back_mut() {
            full.resize(SEGMENT_WORDS, record_word(0, kind::FILLER, 0, 0));
        }
        if self.segments.len() >= SEGMENTS_MAX {
            self.segments.pop_front();
            self.first_segment += 1;
        }
        let number = self.first_segment + self.segments.len() as u64;
        let payloads = [(ticks >> 32) as u32, 0, number as u32];
        let mut words = vec![record_word(ticks, kind::SEGMENT, payloads.len() as u8, 0)];
        words.extend((1..).zip(payloads).map(|(index, payload)| payload_word(payload, kind::SEGMENT, index)));
        self.segments.push_back(words);
    }

    /// Takes the segments that are finished, with `all` also the last one, and the number of the
    /// first of them.
    pub fn take_segments(&mut self, all: bool) -> (u64, Vec<Vec<u64>>) {
        let count = self.segments.len().saturating_sub(usize::from(!all));
        let first = self.first_segment;
        self.first_segment += count as u64;
        (first, self.segments.drain(..count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::event::Word;

    fn usage(number: u64) -> Usage {
        Usage { values: [Some(number), Some(7), None, Some(number), Some(7), Some(number)] }
    }

    fn records(words: &[u64], wanted: u8) -> usize {
        let is_wanted =
            |word: &&u64| matches!(Word::decode(**word), Word::Record { kind, .. } if kind == wanted);
        words.iter().filter(is_wanted).count()
    }

    #[test]
    fn only_changes_are_stored_and_each_segment_stands_alone() {
        let mut samples = Samples::new(1, 0);
        samples.add(usage(1), 5, false);
        samples.add(usage(1), 6, false);
        samples.add(usage(2), 7, false);
        samples.add(usage(2), 8 + (1 << 32), true);
        let words = samples.segments.back().unwrap();
        assert_eq!(records(words, kind::LABEL), 5 + 3 + 5);
        assert_eq!((records(words, kind::SEGMENT), records(words, kind::EPOCH)), (1, 1));
        for number in 3..50_000 {
            samples.add(usage(number), number, false);
        }
        assert_eq!(samples.segments.len(), SEGMENTS_MAX);
        assert!(samples.first_segment > 0);
        let first = samples.segments.front().unwrap();
        assert_eq!(first.len(), SEGMENT_WORDS);
        assert_eq!(records(&first[..4], kind::SEGMENT), 1);
        let (number, taken) = samples.take_segments(false);
        assert_eq!(taken.len(), SEGMENTS_MAX - 1);
        let (next, last) = samples.take_segments(true);
        assert_eq!((next, last.len()), (number + taken.len() as u64, 1));
    }
}
