//! Event words of one thread, in segments of 64 words, each behind a valid segment record.
#![no_main]

mod pairing;

use everycall_reader::{
    OpenCall, Process, Reason, Recording, SegmentCursor, Snapshot, Source, Thread, ThreadKey, Warning,
};
use libfuzzer_sys::fuzz_target;

/// Words of a segment behind its record.
const SEGMENT: usize = 60;

struct Words {
    recording: Recording,
    words: Vec<u64>,
    first: u64,
}

struct Cursor<'a> {
    segments: std::slice::Chunks<'a, u64>,
    number: u64,
}

impl SegmentCursor for Cursor<'_> {
    fn next_segment(&mut self, words: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        let segment = self.segments.next()?;
        let number = self.number;
        // A segment is missing now and then.
        self.number += 1 + u64::from(segment[0] & 0xf == 0xf);
        let depth = u64::from(segment[0] as u8);
        words.clear();
        words.extend([
            0x7f01_0300,
            1 << 32 | 0xff01_0100,
            depth << 32 | 0xff01_0200,
            number << 32 | 0xff01_0300,
        ]);
        words.extend(segment);
        Some(Ok(number))
    }
}

impl Source for Words {
    fn recording(&self) -> &Recording {
        &self.recording
    }
    fn open_calls(&self, _key: ThreadKey) -> Vec<OpenCall> {
        let calls = self.words.iter().take(4);
        calls.map(|word| OpenCall { ticks: word >> 16, offset: Some(*word as u32) }).collect()
    }
    fn segments(&self, _key: ThreadKey) -> Box<dyn SegmentCursor + '_> {
        Box::new(Cursor { segments: self.words.chunks(SEGMENT), number: self.first })
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let thread = Thread {
        fiber: None,
        is_sampled: false,
        pid: 1,
        tid: 1,
        slot: 0,
        generation: 0,
        name: b"fuzz".to_vec(),
        start_ticks: 0,
        first_segment: 0,
        segments: words.len().div_ceil(SEGMENT) as u64,
        unwound: 0,
        orphan_exits: 0,
        lost_busy: 0,
        deep: 0,
        dropped: 0,
    };
    let snapshot = Snapshot {
        process: 0,
        number: 0,
        reason: Reason::ProcessEnd,
        pid: 1,
        ticks: Some(1 << 40),
        ring_size: 0,
        segment_size: 512,
        counters: [0; 32],
        threads: vec![thread],
    };
    let recording =
        Recording { processes: vec![Process::default()], snapshots: vec![snapshot], ..Recording::default() };
    pairing::check(Words { recording, words, first: u64::from(first % 3) });
});
