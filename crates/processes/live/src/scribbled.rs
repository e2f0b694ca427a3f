//! Arenas that are written over while snapshots are taken of them: by seeds, so that failures can
//! be repeated.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everycall_format::Wire;
use everycall_format::arena::{
    ArenaHeader, ModuleEntry, OpenCall, PINNERS, PINNERS_OFFSET, PinnerEntry, SegmentEntry, ThreadHeader,
    module_state, pinned_by, thread_state,
};
use everycall_format::env::RING_SIZE_MIN;
use everycall_format::event::{call_word, kind, payload_word, record_word};
use everycall_reader::TraceFile;
use rustix::fs::{MemfdFlags, SealFlags};

use crate::arena::LiveArena;
use crate::take::take;

const THREADS: u32 = 4;
const SEGMENTS: u32 = 24;
/// A file may be larger than twice the memory by so many bytes.
const SLACK: u64 = 1 << 20;
/// The longest that a snapshot may take.
const LONGEST: Duration = Duration::from_secs(10);

struct Pen {
    file: OwnedFd,
    layout: ArenaHeader,
    state: u64,
}

impl Pen {
    fn new(seed: u64) -> Pen {
        let layout = ArenaHeader::with_layout(RING_SIZE_MIN, 16, 1 << 20).with_states();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("everycall-test", flags).unwrap();
        rustix::fs::ftruncate(&file, layout.arena_size).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        Pen { file, layout, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn random(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 9) % limit.max(1)
    }

    fn put<T: Wire>(&self, at: u64, value: &T) {
        rustix::io::pwrite(&self.file, value.to_bytes().as_ref(), at).unwrap();
    }

    fn fill(&self) {
        let layout = self.layout;
        self.put(
            0,
            &ArenaHeader {
                target_pid: 1,
                modules: 1,
                threads: THREADS,
                segments_taken: SEGMENTS,
                segments_in_use: SEGMENTS,
                ..layout
            },
        );
        let module = ModuleEntry { state: module_state::COMPLETE, path_length: 9, ..Default::default() };
        self.put(layout.modules_offset, &module);
        for slot in 0..THREADS {
            let state = if slot == 3 { thread_state::ENDED } else { thread_state::USED };
            let segment = u64::from(SEGMENTS / THREADS - 1);
            let thread = ThreadHeader {
                state,
                segment,
                open_calls: slot + 1,
                ring_segments: 16,
                ..Default::default()
            };
            self.put(layout.thread_at(slot), &thread);
            let call = OpenCall { word: call_word(5, 0x1000), ..Default::default() };
            self.put(layout.open_calls_at(slot) + OpenCall::SIZE as u64, &call);
        }
        for index in 0..SEGMENTS {
            let number = u64::from(index / THREADS);
            let slot = index % THREADS;
            let entry = SegmentEntry { pins: pinned_by::OWNER, slot, number, ..Default::default() };
            self.put(layout.segment_entry_at(index), &entry);
            let mut words = vec![
                record_word(1, kind::SEGMENT, 3, 0),
                payload_word(0, kind::SEGMENT, 1),
                payload_word(0, kind::SEGMENT, 2),
                payload_word(number as u32, kind::SEGMENT, 3),
            ];
            words.extend((0..100).map(|ticks| call_word(ticks, 0x1000)));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            rustix::io::pwrite(&self.file, &bytes, layout.segment_at(index)).unwrap();
        }
    }

    fn scribble(&mut self) {
        let layout = self.layout;
        let (first, size) = match self.random(7) {
            0 => (0, ArenaHeader::SIZE as u64),
            1 => (layout.modules_offset, 3 * ModuleEntry::SIZE as u64),
            2 => (layout.segment_table_offset, u64::from(SEGMENTS) * SegmentEntry::SIZE as u64),
            3 => (layout.threads_offset, u64::from(THREADS + 2) * ThreadHeader::SIZE as u64),
            4 => (layout.open_calls_offset, 2 * layout.open_call_stride),
            5 => (PINNERS_OFFSET, u64::from(PINNERS) * PinnerEntry::SIZE as u64),
            _ => (layout.segments_offset, u64::from(SEGMENTS) * layout.segment_size),
        };
        let at = first + self.random(size / 8) * 8;
        let values = [0, 1, 2, 3, 16, 1 << 31, 1 << 32, 1 << 62, u64::MAX, u64::MAX - 1, 3 << 32 | 1];
        let value = match self.random(4) {
            0 => self.random(u64::MAX),
            _ => values[self.random(values.len() as u64) as usize],
        };
        let count = if self.random(16) == 0 { 64 } else { 1 };
        let bytes = value.to_le_bytes().repeat(count);
        let bytes = &bytes[..(bytes.len() as u64).min(layout.arena_size - at) as usize];
        rustix::io::pwrite(&self.file, bytes, at).unwrap();
    }

    fn allocated(&self) -> u64 {
        rustix::fs::fstat(&self.file).unwrap().st_blocks as u64 * 512
    }
}

#[test]
fn an_arena_that_is_written_over() {
    let mut taken = 0;
    for seed in 1..=100 {
        let begin = Instant::now();
        let mut pen = Pen::new(seed);
        pen.fill();
        for _ in 0..=pen.random(40) {
            pen.scribble();
        }
        let file = pen.file.try_clone().unwrap();
        let arena = LiveArena::of_file(file.as_fd(), &pen.layout, 1).unwrap();
        let (mut out, done) = (Vec::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (done, pen) = (&done, &mut pen);
            let writes = std::thread::Builder::new().spawn_scoped(scope, move || {
                while seed % 2 == 0 && !done.load(Ordering::Relaxed) {
                    pen.scribble();
                }
            });
            // All entries for pinners may seem taken.
            if let Ok(snapshot) = take(&arena, Some(seed << 20).filter(|_| seed % 3 == 0)) {
                snapshot.write(&mut out, "0").unwrap();
                taken += 1;
            }
            done.store(true, Ordering::Relaxed);
            writes.unwrap().join().unwrap();
        });
        let memory = pen.allocated();
        assert!(out.len() as u64 <= 2 * memory + SLACK, "seed {seed}: {} bytes of {memory}", out.len());
        assert!(begin.elapsed() < LONGEST, "seed {seed} took {:?}", begin.elapsed());
        if !out.is_empty() {
            TraceFile::open(&out[..]).unwrap();
        }
    }
    assert!(taken > 50, "{taken}");
}
