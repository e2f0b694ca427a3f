//! A stand-in for a traced program, for the tests of this crate: it does to the arena what a runtime would do, by
//! plain writes. Its arguments are commands:
//!
//! ```text
//! claim                 takes an arena
//! child COMMANDS        starts itself with these commands, separated by commas, as if forked from it; waits for it
//! leave COMMANDS        the same, without waiting
//! become COMMANDS       executes itself with these commands, separated by +
//! thread NAME CALLS     writes a thread with so many calls into its ring
//! module PATH           registers a module and waits for the recorder's answer
//! together              waits until the recorder has seen what was done
//! spares                prints how many arenas are ready
//! remove PATH           deletes a file
//! scribble              writes noise over the whole arena
//! state                 prints what a program inherits
//! say WORD              prints a line
//! sleep MILLISECONDS
//! exit CODE | raise SIGNAL
//! ```

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use everycall_format::Wire;
use everycall_format::arena::{
    ArenaHeader, ModuleEntry, OpenCall, SegmentEntry, ThreadHeader, module_flags, module_state, pinned_by,
    thread_state,
};
use everycall_format::event::{EXIT, call_word, kind, payload_word, record_word};
use everycall_format::hub::{HubHeader, origin};

/// Longer than a recorder waits for a CPU.
const PATIENCE: Duration = Duration::from_secs(60);
const CODE: u32 = 0x1000;

fn main() {
    let mut words = std::env::args().skip(1);
    let mut next = || words.next();
    while let Some(command) = next() {
        let mut argument = || next().unwrap();
        match &*command {
            "claim" => claim(std::env::var("FORKED_FROM").map_or(0, |pid| pid.parse().unwrap())),
            "thread" => Arena::open().write_thread(&argument(), argument().parse().unwrap()),
            "module" => Arena::open().register(&argument()),
            "remove" => std::fs::remove_file(argument()).unwrap(),
            "together" => Hub::open().ring_and_wait(),
            "spares" => {
                let spares = Hub::open().header().spares;
                println!("{} arenas", spares.iter().filter(|spare| **spare != 0).count());
            }
            "scribble" => Arena::open().scribble(),
            "state" => print_state(),
            "child" => assert!(child(&argument()).wait().unwrap().success()),
            "leave" => drop(child(&argument())),
            "become" => panic!("{}", itself(&argument(), '+').env_remove("FORKED_FROM").exec()),
            "sleep" => std::thread::sleep(Duration::from_millis(argument().parse().unwrap())),
            "say" => println!("{}", argument()),
            "exit" => std::process::exit(argument().parse().unwrap()),
            "raise" => everycall_recorder::die_of(argument().parse().unwrap()),
            _ => panic!("{command}?"),
        }
    }
}

fn itself(commands: &str, separator: char) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(commands.split(separator));
    command
}

fn child(commands: &str) -> Child {
    let mut command = itself(commands, ',');
    if CLAIMED.with_borrow(Option::is_some) {
        command.env("FORKED_FROM", std::process::id().to_string());
    }
    command.spawn().unwrap()
}

struct Arena(File);

thread_local! {
    static CLAIMED: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Takes an arena, as if forked from the traced process `forked_from`.
fn claim(forked_from: u32) {
    let hub = Hub::open();
    let begin = Instant::now();
    loop {
        let header = hub.header();
        let place = header.spares.iter().position(|spare| *spare != 0);
        if let Some(place) = place {
            hub.set(offset_of!(HubHeader, spares) + place * 4, 0);
            let path = format!("/proc/{}/fd/{}", header.recorder_pid, header.spares[place] - 1);
            CLAIMED.set(Some(path.into()));
            let arena = Arena::open();
            arena.set(offset_of!(ArenaHeader, parent_pid), std::os::unix::process::parent_id());
            if forked_from != 0 {
                arena.set(offset_of!(ArenaHeader, origin), origin::FORK);
                arena.set(offset_of!(ArenaHeader, forked_from), forked_from);
            }
            arena.set(offset_of!(ArenaHeader, target_pid), std::process::id());
            hub.ring();
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "the recorder makes arenas");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Hub(File);

impl Hub {
    fn open() -> Hub {
        let path = std::env::var_os(everycall_format::env::RECORDER).expect("runs under a recorder");
        Hub(OpenOptions::new().read(true).write(true).open(path).unwrap())
    }

    fn header(&self) -> HubHeader {
        let mut bytes = [0; HubHeader::SIZE];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        HubHeader::read(&bytes).unwrap()
    }

    fn set(&self, offset: usize, value: u32) {
        self.0.write_all_at(&value.to_le_bytes(), offset as u64).unwrap();
    }

    /// Nothing wakes the recorder here: it looks by itself, if less often.
    fn ring(&self) -> u32 {
        let doorbell = self.header().doorbell + 1;
        self.set(offset_of!(HubHeader, doorbell), doorbell);
        doorbell
    }

    fn ring_and_wait(&self) {
        let doorbell = self.ring();
        let begin = Instant::now();
        while self.header().acknowledged != doorbell {
            assert!(begin.elapsed() < PATIENCE, "the recorder answers");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Arena {
    fn open() -> Arena {
        let path = CLAIMED.with_borrow(Clone::clone).expect("an arena was claimed");
        Arena(OpenOptions::new().read(true).write(true).open(path).unwrap())
    }

    fn header(&self) -> ArenaHeader {
        let mut bytes = [0; ArenaHeader::SIZE];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        ArenaHeader::read(&bytes).unwrap()
    }

    fn set(&self, offset: usize, value: u32) {
        self.0.write_all_at(&value.to_le_bytes(), offset as u64).unwrap();
    }

    fn put(&self, offset: u64, value: &impl Wire) {
        let mut bytes = vec![0; 4096];
        value.write(&mut bytes);
        self.0.write_all_at(&bytes[..size_of_wire(value)], offset).unwrap();
    }

    /// A thread that makes `calls` calls, each an entry and an exit one tick later, and then one that stays open.
    fn write_thread(&self, name: &str, calls: u64) {
        let header = self.header();
        let slot = header.thread_at(header.threads);
        let words_per_segment = header.segment_size / 8;
        let segments = header.ring_size / header.segment_size;
        let mut ticks = header.start.ticks.max(1 << 33);
        let mut words: Vec<u64> = vec![];
        let mut segment = 0;
        let mut push = |word: u64, ticks: u64| {
            if words.len() as u64 == words_per_segment {
                self.write_segment(&header, segment, segments, &words);
                segment += 1;
                words.clear();
            }
            if words.is_empty() {
                words.push(record_word(ticks, kind::SEGMENT, 3, 0));
                let payloads = [(ticks >> 32) as u32, 0, segment as u32];
                words.extend(
                    payloads.iter().zip(1..).map(|(payload, n)| payload_word(*payload, kind::SEGMENT, n)),
                );
            }
            words.push(word);
        };
        for _ in 0..calls {
            push(call_word(ticks, CODE), ticks);
            push(call_word(ticks + 1, CODE | EXIT), ticks + 1);
            ticks += 2;
        }
        push(call_word(ticks, CODE + 0x10), ticks);
        self.write_segment(&header, segment, segments, &words);
        let open = OpenCall {
            word: call_word(ticks, CODE + 0x10),
            ticks_high: (ticks >> 32) as u32,
            ..OpenCall::default()
        };
        self.put(header.open_calls_at(header.threads) + OpenCall::SIZE as u64, &open);
        let mut thread = ThreadHeader {
            state: thread_state::USED,
            tid: header.threads + 1_000_000,
            segment,
            open_calls: header.threads + 1,
            ..ThreadHeader::default()
        };
        thread.name[..name.len()].copy_from_slice(name.as_bytes());
        self.put(slot, &thread);
        self.set(offset_of!(ArenaHeader, threads), header.threads + 1);
        self.set(offset_of!(ArenaHeader, segments_taken), header.segments_taken + segments as u32);
    }

    fn write_segment(&self, header: &ArenaHeader, number: u64, segments: u64, words: &[u64]) {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(header.segment_size as usize, 0);
        // The thread's part of the pool.
        let index = header.segments_taken + (number % segments) as u32;
        self.0.write_all_at(&bytes, header.segment_at(index)).unwrap();
        let entry =
            SegmentEntry { pins: pinned_by::OWNER, slot: header.threads, number, ..SegmentEntry::default() };
        self.put(header.segment_entry_at(index), &entry);
    }

    fn register(&self, path: &str) {
        let header = self.header();
        let file = std::fs::metadata(path).unwrap();
        let module = ModuleEntry {
            state: module_state::COMPLETE,
            flags: module_flags::NOPS,
            path_offset: header.paths as u32,
            path_length: path.len() as u32,
            start: 0x5000_0000,
            end: 0x5000_2000,
            code_start: CODE,
            device: file.dev(),
            inode: file.ino(),
            ..ModuleEntry::default()
        };
        self.0.write_all_at(path.as_bytes(), header.paths_offset + header.paths).unwrap();
        let paths = header.paths + path.len() as u64;
        self.0.write_all_at(&paths.to_le_bytes(), offset_of!(ArenaHeader, paths) as u64).unwrap();
        self.put(header.modules_offset + u64::from(header.modules) * ModuleEntry::SIZE as u64, &module);
        self.set(offset_of!(ArenaHeader, modules), header.modules + 1);
        Hub::open().ring_and_wait();
    }

    fn scribble(&self) {
        let size = self.header().arena_size.min(64 << 20);
        let noise: Vec<u8> =
            (0..1_u64 << 20).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        for offset in (0..size).step_by(noise.len()) {
            self.0.write_all_at(&noise[..noise.len().min((size - offset) as usize)], offset).unwrap();
        }
    }
}

fn size_of_wire<T: Wire>(_: &T) -> usize {
    T::SIZE
}

fn print_state() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    // Rust's own start has ignored SIGPIPE here, so tests ask another program for the dispositions.
    status.lines().filter(|line| line.starts_with("SigBlk")).for_each(|line| println!("{line}"));
    println!("group {:?}", rustix::process::getpgrp());
    println!(
        "{:?}",
        std::env::vars_os().filter(|(name, _)| name != everycall_format::env::RECORDER).collect::<Vec<_>>()
    );
}
