//! Sampled stacks of a program's threads: where they were at moments that the kernel chose, with
//! all callers, also in code that isn't traced.
//!
//! ```text
//! perf     samples and maps of code, by perf_event_open
//! maps     address of a process -> file and place in it
//! code     a file: address of a place in it, its unwind information
//! unwind   registers and a copied stack -> callers
//! kernel   names of the kernel's functions
//! store    samples -> STACKS chunks of the trace file
//! ```
//!
//! A thread of the recorder unwinds each sample when it has come, so that files have stacks and no
//! copies of memory. Nothing runs in the traced program for it, and nothing is left in the kernel
//! when the recorder ends, however it ends.
//!
//! Not here: to which call a sample belongs, names of functions of files.
//!
//! Checked by: its unit tests with made-up records and frames; a recorded program that spends its
//! time in known functions, of a library without hooks as well.

// Messages go through the caller.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

#[path = "x86_64.rs"]
mod arch;
mod code;
mod kernel;
mod maps;
mod perf;
mod store;
mod unwind;
mod unwinding;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use everycall_format::sched::clock;
use everycall_format::stacks::{StacksRecord, flags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::perf::{Perf, STACK_BYTES};
use crate::store::Store;
use crate::unwinding::Unwinding;

/// Samples a second of a thread that runs, unless another number is wanted.
pub const RATE: u32 = 1_000;
/// The highest rate: beyond it, sampling would be most of what the program does.
pub const RATE_MAX: u32 = 10_000;
/// Longest time between two looks at the buffers.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Samples of a chunk while a file is written in parts.
const CHUNK_SAMPLES: usize = 1 << 14;

/// Why no code of the kernel is sampled.
const USER_ONLY: &str = "only code of the program is sampled, not that of the kernel: system calls and page faults have no samples \
    (as root, or with `sudo sysctl kernel.perf_event_paranoid=1`, they have)";

/// The sampled stacks of a recording.
#[derive(Debug)]
pub struct Stacks {
    work: Arc<Work>,
    thread: Option<JoinHandle<()>>,
    rate: u32,
    flags: u32,
    /// Says which code isn't sampled, and why.
    text: String,
    /// Whether a chunk was written.
    is_told: bool,
}

/// The thread's part.
#[derive(Debug)]
struct Work {
    store: Mutex<Store>,
    is_over: AtomicBool,
    /// Wakes the thread for its end.
    end: Option<OwnedFd>,
}

impl Stacks {
    /// Begins to sample the programs that the calling thread executes from now on, and all their
    /// descendants, `rate` times in each second in which a thread runs. If the kernel refuses,
    /// there are no samples, and the chunk says why.
    #[must_use]
    pub fn of_programs_to_come(rate: u32) -> Stacks {
        let rate = rate.clamp(1, RATE_MAX);
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        let work = Arc::new(Work { store: Mutex::default(), is_over: AtomicBool::new(false), end });
        let mut stacks =
            Stacks { work, thread: None, rate: 0, flags: 0, text: String::new(), is_told: false };
        match Perf::open(rate) {
            Ok(perf) => stacks.begin(perf, rate),
            Err(reason) => stacks.text = reason,
        }
        stacks
    }

    fn begin(&mut self, perf: Perf, rate: u32) {
        let has_kernel = perf.has_kernel;
        let work = Arc::clone(&self.work);
        match Builder::new().name("stacks".to_owned()).spawn(move || work.run(perf)) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                self.text = format!("the recorder can't start a thread for it: {error}");
                return;
            }
        }
        self.rate = rate;
        match has_kernel {
            true => self.flags |= flags::KERNEL,
            false => self.text = USER_ONLY.to_owned(),
        }
    }

    /// Why nothing is sampled; `None` if samples are taken.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        (self.rate == 0).then_some(self.text.as_str())
    }

    /// Ends sampling, and takes the last samples.
    pub fn finish(&mut self) {
        self.work.is_over.store(true, Ordering::Release);
        if let Some(end) = &self.work.end {
            let _ = rustix::io::write(end, &1_u64.to_ne_bytes());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// The payload of a STACKS chunk with the samples since the last one; `None` if there are none,
    /// or, unless it `is_last`, not enough for a chunk.
    pub fn take_chunk(&mut self, is_last: bool) -> Option<Vec<u8>> {
        let mut store = self.work.store();
        let least = if is_last { 1 } else { CHUNK_SAMPLES };
        let is_enough = store.len() >= least || is_last && store.losses != Default::default();
        if self.is_told && !is_enough {
            return None;
        }
        // It is the same in all chunks.
        let text = if self.is_told { "" } else { &self.text };
        let record = StacksRecord {
            flags: self.flags,
            clock: clock::MONOTONIC_RAW,
            rate: self.rate,
            stack_bytes: if self.rate > 0 { STACK_BYTES } else { 0 },
            ..StacksRecord::default()
        };
        let payload = store.take(record, text);
        drop(store);
        self.is_told = true;
        Some(payload)
    }

    /// Begins a further file, which needs all facts again.
    pub fn begin_file(&mut self) {
        self.is_told = false;
    }
}

impl Work {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut perf: Perf) {
        let mut unwinding = Unwinding::default();
        loop {
            let is_over = self.is_over.load(Ordering::Acquire);
            unwinding.look(&mut perf, is_over, || self.store());
            if is_over {
                return;
            }
            let mut waited: Vec<PollFd<'_>> =
                perf.descriptors().map(|of| PollFd::from_borrowed_fd(of, PollFlags::IN)).collect();
            let end = self.end.iter().map(|end| PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN));
            waited.extend(end);
            // An interrupted wait is just shorter.
            let _ = poll(&mut waited, Some(&PAUSE));
        }
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        self.finish();
    }
}
