//! Arenas, core dumps and trace files made from a small description, healthy or hostile, for tests.
//!
//! Every number of the format is repeated here on purpose: nothing comes from the format crate, so
//! tests that read these bytes detect unintended layout changes. `docs/format.md` is the
//! specification for both.

mod arena;
mod compact;
mod core;
mod damage;
mod file;
mod pt;
mod ring;
mod rng;
mod sample;

pub use crate::core::Core;
pub use arena::arena_image;
pub use compact::compact;
pub use damage::mutate;
pub use file::{File, crc32};
pub use pt::{PerfData, PerfWhose, PtCall, PtEncoder, PtProgram, PtRun};
pub use ring::{OpenCall, Ring};
pub use rng::Rng;
pub use sample::{
    basic, callers, cleanups, counters, marks, process_tree, renames, samples, switches, switches_with_calls,
    tasks, unsure,
};

/// A traced process as its recording shows it.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Words of its command line.
    pub arguments: Vec<String>,
    /// Readings of the clocks.
    pub clock: Vec<Reading>,
    /// Its modules.
    pub modules: Vec<Module>,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// When the snapshot was taken, in ticks.
    pub end_ticks: u64,
}

impl Process {
    /// One with one thread, which began at `start_ticks`, and one module, whose code offset `0x1000
    /// + n` is address `n` of its image.
    #[must_use]
    pub fn of_one_thread(ring: Ring, start_ticks: u64, end_ticks: u64) -> Process {
        let start = 0x40_0000;
        let module = Module {
            base: start - 0x1000,
            start,
            end: start + 0x7000_0000,
            code_start: 0x1000,
            ..Module::default()
        };
        let thread = Thread { tid: 1, name: String::new(), start_ticks, ring };
        Process { pid: 1, modules: vec![module], threads: vec![thread], end_ticks, ..Process::default() }
    }
}

/// A process among others.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its number in the file, and its snapshot's.
    pub number: u32,
    /// Number of its parent; `u32::MAX` for none.
    pub parent: u32,
    /// 1 started, 2 forked, 3 executed.
    pub origin: u32,
    /// The process.
    pub process: Process,
}

/// One moment on all clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Time-stamp counter.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC_RAW`; the other clocks are made from it.
    pub raw_ns: u64,
    /// Ticks that the reading took.
    pub bracket: u64,
}

/// A scheduling event: its fields in the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduling {
    /// When.
    pub raw_ns: u64,
    /// The thread.
    pub tid: u32,
    /// Depends on the kind.
    pub other: u32,
    /// The CPU, or how long a sample took.
    pub cpu: u16,
    /// 1 on, 2 off, 3 woken, 4 ended, 5 lost, 6 wake-ups lost, 7 sample.
    pub kind: u8,
    /// Depends on the kind.
    pub state: u8,
}

/// A loaded object.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Path.
    pub path: String,
    /// Load bias.
    pub base: u64,
    /// First process address.
    pub start: u64,
    /// End of the address range (exclusive).
    pub end: u64,
    /// First code offset.
    pub code_start: u32,
    /// When it was registered.
    pub loaded_ticks: u64,
    /// When it was unloaded; 0 while it is loaded.
    pub unloaded_ticks: u64,
    /// Build id, 32 bytes at most.
    pub build_id: Vec<u8>,
}

/// A thread and its ring.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Kernel thread id.
    pub tid: u32,
    /// Name, 15 bytes at most.
    pub name: String,
    /// When it took its ring.
    pub start_ticks: u64,
    /// Its ring.
    pub ring: Ring,
}

/// Appends numbers, little endian.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn u16(&mut self, value: u16) -> &mut Bytes {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub fn u32(&mut self, value: u32) -> &mut Bytes {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub fn u64(&mut self, value: u64) -> &mut Bytes {
        self.0.extend(value.to_le_bytes());
        self
    }
    /// `text`, truncated or padded with zeros to `length`.
    pub fn padded(&mut self, text: &[u8], length: usize) -> &mut Bytes {
        let end = self.0.len() + length;
        self.0.extend(&text[..text.len().min(length)]);
        self.0.resize(end, 0);
        self
    }
    pub fn zeros(&mut self, count: usize) -> &mut Bytes {
        self.padded(&[], count)
    }
}

/// A module table entry, 128 bytes; its path begins at `path_offset`.
pub(crate) fn module_entry(bytes: &mut Bytes, module: &Module, path_offset: u32, executable: bool) {
    bytes.u32(1).u32(if executable { 3 } else { 2 });
    bytes.u32(path_offset).u32(module.path.len() as u32);
    bytes.u64(module.base).u64(module.start).u64(module.end);
    bytes.u32(module.code_start).u32(module.build_id.len() as u32).padded(&module.build_id, 32);
    bytes.u64(module.loaded_ticks).u64(module.unloaded_ticks);
    bytes.u32(10).u32(0).u64(0x801).u64(77).u64(0);
}

/// A clock reading, 40 bytes.
pub(crate) fn clock_reading(bytes: &mut Bytes, reading: &Reading) {
    bytes.u64(reading.ticks).u64(reading.raw_ns);
    bytes.u64(reading.raw_ns + 1_000).u64(reading.raw_ns + 1_700_000_000_000_000_000).u64(reading.bracket);
}

/// An open call, 24 bytes.
pub(crate) fn open_call(bytes: &mut Bytes, call: &OpenCall, place: usize) {
    bytes.u64(call.word).u64(0x7fff_0000_0000 - 64 * place as u64).u32(call.ticks_high).u32(0);
}
