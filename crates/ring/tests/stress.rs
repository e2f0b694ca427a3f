//! One writer at full speed, two readers: real threads, real atomics. Every word that a reader believes is the
//! one that belongs there, or, in the newest segment, not yet written.
//!
//! `RING_STRESS_SECONDS=5 cargo test --release -p everycall-ring --test stress -- --nocapture`; also under
//! ThreadSanitizer and Miri, see `docs/design/memory-model.md`.
#![cfg(not(loom))]

mod model;

use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, ThreadHeader, thread_state};
use everycall_format::event::WORD_SIZE;
use everycall_reader::{ArenaImage, ReadAt, Source, ThreadKey};
use everycall_ring::{Reach, SEGMENT_RECORD_WORDS};
use model::{Memory, Writer, expected};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, fence};
use std::time::{Duration, Instant};

/// Words that were believed, and segments that weren't.
#[derive(Debug, Default)]
struct Tally {
    words: u64,
    not_yet_written: u64,
    segments: u64,
    refused: u64,
}

impl Tally {
    /// Looks at a segment that a reader believes.
    fn judge(&mut self, memory: &Memory, newest: u64, number: u64, words: &[u64]) {
        self.segments += 1;
        for (index, word) in words.iter().enumerate() {
            let right = expected(memory, number, index);
            if *word == right {
                self.words += 1;
                continue;
            }
            let coming = *word == 0 || *word == right & !u64::from(u32::MAX);
            assert!(
                number == newest && index >= SEGMENT_RECORD_WORDS && coming,
                "word {index} of segment {number}, newest {newest}: {word:#x} for {right:#x}"
            );
            self.not_yet_written += 1;
        }
    }
}

/// Takes segment after segment by the published number before and after.
fn read_by_reach(memory: &Memory, done: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut back = 0;
    let mut words = Vec::with_capacity(memory.segment_words);
    loop {
        let last_time = done.load(Acquire);
        let before = memory.published.load(Acquire);
        back = (back + 1) % memory.segments();
        let number = before.saturating_sub(back);
        words.clear();
        words.extend(memory.place(number).iter().map(|word| word.load(Relaxed)));
        fence(Acquire);
        let after = memory.published.load(Relaxed);
        match Reach::between(before, after, memory.segments()) {
            Some(reach) if (reach.first..=reach.last).contains(&number) => {
                tally.judge(memory, before, number, &words);
            }
            _ => tally.refused += 1,
        }
        if last_time {
            return tally;
        }
    }
}

/// The memory as an arena, for the reader that ships: everything but the ring stands still.
struct Arena<'m> {
    header: ArenaHeader,
    /// The arena's header and the thread's, as words.
    header_words: Vec<u64>,
    thread_words: Vec<u64>,
    memory: &'m Memory,
}

impl Arena<'_> {
    fn new(memory: &Memory) -> Arena<'_> {
        let ring_size = (memory.words.len() * WORD_SIZE) as u64;
        let header = ArenaHeader { threads: 1, ..ArenaHeader::with_layout(ring_size, 1) };
        assert_eq!(header.segment_size, (memory.segment_words * WORD_SIZE) as u64);
        let thread = ThreadHeader { state: thread_state::USED, tid: 1, ..ThreadHeader::default() };
        Arena { header, header_words: words_of(&header), thread_words: words_of(&thread), memory }
    }

    /// The word at `offset`, a multiple of its size.
    fn word(&self, offset: u64) -> u64 {
        let at = |words: &[u64], first: u64| {
            words.get(usize::try_from(offset.checked_sub(first)?).ok()? / WORD_SIZE).copied()
        };
        let thread = self.header.threads_offset;
        let ring = thread + self.header.ring_in_slot();
        if offset == thread + offset_of!(ThreadHeader, segment) as u64 {
            self.memory.published.load(Acquire)
        } else if offset >= ring {
            self.memory.words[(offset - ring) as usize / WORD_SIZE].load(Relaxed)
        } else {
            at(&self.header_words, 0).or_else(|| at(&self.thread_words, thread)).unwrap_or(0)
        }
    }
}

fn words_of(structure: &impl Wire) -> Vec<u64> {
    let mut bytes = vec![0; size_of_val(structure).next_multiple_of(WORD_SIZE)];
    structure.write(&mut bytes);
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

impl ReadAt for Arena<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(offset.is_multiple_of(WORD_SIZE as u64) && buffer.len().is_multiple_of(WORD_SIZE));
        for (place, at) in buffer.as_chunks_mut().0.iter_mut().zip((offset..).step_by(WORD_SIZE)) {
            *place = self.word(at).to_le_bytes();
        }
        // As good as a system call, or a copy on x86-64: what is read next is read later.
        fence(Acquire);
        Ok(buffer.len())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.header.arena_size)
    }
}

/// Takes all segments through `everycall-reader`.
fn read_as_arena(memory: &Memory, done: &AtomicBool) -> Tally {
    let arena = Arena::new(memory);
    let mut tally = Tally::default();
    let mut words = Vec::new();
    loop {
        let last_time = done.load(Acquire);
        let image = ArenaImage::open(&arena).unwrap();
        let thread = &image.recording().snapshots[0].threads[0];
        let newest = thread.first_segment + thread.segments - 1;
        let mut segments = image.segments(ThreadKey { snapshot: 0, thread: 0 });
        while let Some(segment) = segments.next_segment(&mut words) {
            match segment {
                Ok(number) => tally.judge(memory, newest, number, &words),
                Err(_) => tally.refused += 1,
            }
        }
        if last_time {
            return tally;
        }
    }
}

#[test]
fn a_writer_at_full_speed() {
    // Under Miri: some laps of a ring that is too small for an arena. Else for a while.
    let (segments, segment_words) = if cfg!(miri) { (4, 32) } else { (16, 8192) };
    let seconds = std::env::var("RING_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let memory = Memory::new(segments, segment_words);
    let done = AtomicBool::new(false);
    let mut writer = Writer::start(&memory, true);
    let (by_reach, as_arena) = std::thread::scope(|scope| {
        let by_reach = scope.spawn(|| read_by_reach(&memory, &done));
        let as_arena = scope.spawn(|| if cfg!(miri) { None } else { Some(read_as_arena(&memory, &done)) });
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut goal = memory.segments();
        while goal <= 4 * memory.segments() || !cfg!(miri) && Instant::now() < end {
            goal += 4;
            writer.reach(goal, true);
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        (by_reach.join().unwrap(), as_arena.join().unwrap())
    });
    println!("{} events written", writer.next);
    println!("by the published number: {by_reach:?}");
    // The last time nobody writes any more: all but the segment that may be next, and all.
    assert!(by_reach.words >= segment_words as u64 / 2 || by_reach.segments == 0);
    if let Some(as_arena) = as_arena {
        println!("as an arena, by everycall-reader: {as_arena:?}");
        assert!(as_arena.words >= memory.events_per_segment() * (memory.segments() - 1));
    }
}
