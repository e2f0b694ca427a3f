//! Arenas that are overwritten before and while they are read. Seeds make failures repeatable.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everycall_format::Wire;
use everycall_format::arena::{
    ArenaHeader, ModuleEntry, OpenCall, SegmentEntry, ThreadHeader, module_state, pinned_by, thread_state,
};
use everycall_format::env::RING_SIZE_MIN;
use everycall_format::event::{call_word, kind, payload_word, record_word};
use everycall_format::trigger::{TriggerHeader, TriggeredCall, call_at, call_state};
use everycall_machine::clock::ticks;
use everycall_tracefile::{ChunkWriter, Runs};

use crate::memory::arena::{Arena, Unrecorded};
use crate::memory::capacity::{Capacity, Stream};
use crate::memory::open_calls::OpenCallBudget;
use crate::memory::scan::Scan;
use crate::memory::shared_triggers::SharedTriggers;
use crate::output::stream::arena_stream::ArenaStream;
use crate::process::module_files::Files;
use crate::process::modules::Modules;
use crate::process::names::Names;

const THREADS: u32 = 4;
const SEGMENTS: u32 = 24;
/// A file may exceed twice the size in memory by this many bytes.
const SLACK: u64 = 1 << 20;
/// Longest time for reading an arena.
const LONGEST: Duration = Duration::from_secs(10);

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 9) % limit.max(1)
    }
}

/// Writes into an arena like the program that has it mapped.
struct Pen<'a> {
    arena: &'a Arena,
    random: Random,
}

impl Pen<'_> {
    fn put<T: Wire>(&self, at: u64, value: &T) {
        rustix::io::pwrite(self.arena.file().as_fd(), value.to_bytes().as_ref(), at).unwrap();
    }

    /// Writes what a program with a few calls leaves.
    fn fill(&self) {
        let layout = *self.arena.layout();
        self.put(
            0,
            &ArenaHeader {
                target_pid: std::process::id(),
                modules: 2,
                threads: THREADS,
                segments_taken: SEGMENTS,
                segments_in_use: SEGMENTS,
                ..layout
            },
        );
        for index in 0..2_u32 {
            let at = layout.modules_offset + u64::from(index) * ModuleEntry::SIZE as u64;
            let module = ModuleEntry { state: module_state::COMPLETE, path_length: 9, ..Default::default() };
            self.put(at, &module);
        }
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
            self.put(
                layout.segment_entry_at(index),
                &SegmentEntry {
                    pins: pinned_by::OWNER | pinned_by::RECORDER,
                    slot: index % THREADS,
                    number,
                    events_before: number * 8000,
                    ..Default::default()
                },
            );
            let mut words = vec![
                record_word(1, kind::SEGMENT, 3, 0),
                payload_word(0, kind::SEGMENT, 1),
                payload_word(0, kind::SEGMENT, 2),
                payload_word(number as u32, kind::SEGMENT, 3),
            ];
            words.extend((0..100).map(|ticks| call_word(ticks, 0x1000)));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            rustix::io::pwrite(self.arena.file().as_fd(), &bytes, layout.segment_at(index)).unwrap();
        }
        for index in 0..4 {
            let at = layout.triggers_at().unwrap() + call_at(index);
            self.put(at, &TriggeredCall { state: call_state::POSTED, ..Default::default() });
        }
    }

    /// Overwrites something that is in use.
    fn scribble(&mut self) {
        let layout = *self.arena.layout();
        let (first, size) = match self.random.below(7) {
            0 => (0, ArenaHeader::SIZE as u64),
            1 => (layout.modules_offset, 3 * ModuleEntry::SIZE as u64),
            2 => (layout.segment_table_offset, u64::from(SEGMENTS) * SegmentEntry::SIZE as u64),
            3 => (layout.threads_offset, u64::from(THREADS + 2) * ThreadHeader::SIZE as u64),
            4 => (layout.open_calls_offset, 2 * layout.open_call_stride),
            5 => (layout.segments_offset, u64::from(SEGMENTS) * layout.segment_size),
            _ => (layout.triggers_at().unwrap(), (TriggerHeader::SIZE + 8 * TriggeredCall::SIZE) as u64),
        };
        let at = first + self.random.below(size / 8) * 8;
        let values = [0, 1, 2, 3, 16, 1 << 31, 1 << 32, 1 << 62, u64::MAX, u64::MAX - 1, 3 << 32 | 1];
        let value = match self.random.below(4) {
            0 => self.random.below(u64::MAX),
            _ => values[self.random.below(values.len() as u64) as usize],
        };
        let count = if self.random.below(16) == 0 { 64 } else { 1 };
        let bytes = value.to_le_bytes().repeat(count);
        let bytes = &bytes[..(bytes.len() as u64).min(layout.arena_size - at) as usize];
        rustix::io::pwrite(self.arena.file().as_fd(), bytes, at).unwrap();
    }
}

/// Everything that reads an arena.
fn look(arena: &Arc<Arena>, out: &mut Vec<u8>) {
    let mut file = ChunkWriter::begin(out).unwrap();
    let mut runs = Runs::default();
    let mut stream = ArenaStream::new(Arc::clone(arena), 0, 1, ticks()).unwrap();
    for _ in 0..3 {
        let _ = stream.pass(&mut file, &mut runs, u64::MAX).unwrap();
        runs.write(&mut file).unwrap();
    }
    stream.finish(&mut file, &mut runs, |_, header| header.name).unwrap();
    stream.give_up();
    let _ = stream.summaries();
    file.end().unwrap().1.flush().unwrap();
    let mut calls = OpenCallBudget::default();
    let bytes: usize = (0..arena.thread_count())
        .map(|slot| arena.open_calls_within(slot, &mut calls).len() * OpenCall::SIZE)
        .sum();
    assert!(bytes as u64 <= arena.allocated());
    let mut modules = Modules::default();
    modules.look(arena, &mut Files::default());
    let paths: usize = modules.table(arena).iter().map(|(_, path)| path.len()).sum();
    assert!(paths as u64 <= 2 * arena.layout().paths_size);
    Names::default().poll(arena, 1024);
    let triggers = SharedTriggers::map(arena).unwrap().unwrap();
    let _ = (triggers.take_posted(), triggers.fired(u32::MAX), triggers.all_sites().count());
    triggers.scan(&**arena, &mut Scan::default(), &mut |_| {});
}

#[test]
fn an_arena_that_is_written_over() {
    let stream = Stream { stall: true, memory: 1 << 20 };
    let capacity =
        Capacity::find(RING_SIZE_MIN, Some(stream), Some(1 << 20), Unrecorded::Nothing, false, 0).unwrap();
    for seed in 1..=60 {
        let begin = Instant::now();
        let arena = Arc::new(capacity.arena().unwrap());
        let mut pen = Pen { arena: &arena, random: Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)) };
        pen.fill();
        for _ in 0..=pen.random.below(40) {
            pen.scribble();
        }
        let (mut out, done) = (Vec::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let done = &done;
            let writes = std::thread::Builder::new().spawn_scoped(scope, move || {
                while seed % 2 == 0 && !done.load(Ordering::Relaxed) {
                    pen.scribble();
                }
            });
            look(&arena, &mut out);
            done.store(true, Ordering::Relaxed);
            writes.unwrap().join().unwrap();
        });
        let memory = arena.allocated();
        // A program that keeps writing may produce any number of segments.
        let limit = if seed % 2 == 0 { 8 * memory } else { 2 * memory } + SLACK;
        assert!(out.len() as u64 <= limit, "seed {seed}: {} bytes of {memory}", out.len());
        assert!(begin.elapsed() < LONGEST, "seed {seed} took {:?}", begin.elapsed());
    }
}
