//! When the kernel ran the threads of a program, and when it didn't: scheduling events of the
//! processes that the calling thread starts, and of all their descendants.
//!
//! ```text
//! perf    one buffer of the kernel's for each CPU ──┐
//!                                                   ├─> Store ──> SCHED chunks of the trace file
//! ```
//!
//! Nothing runs in the traced program for it, and nothing is left in the kernel when the recorder ends,
//! however it ends.

// Messages go through the caller.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod perf;
mod store;

use std::os::fd::BorrowedFd;

use everycall_format::Wire;
use everycall_format::sched::{SchedEvent, SchedRecord, clock, source};

use crate::perf::Perf;
use crate::store::Store;

/// The scheduling events of a recording.
#[derive(Debug)]
pub struct Sched {
    perf: Option<Perf>,
    store: Store,
    /// What the source can't tell, and why there is no better one.
    text: String,
    /// Whether a chunk was written.
    is_told: bool,
}

impl Sched {
    /// Begins to record the processes that the calling thread starts from now on, and all their descendants.
    /// At most `bytes` of events are kept; newer ones overwrite older ones. If the kernel refuses, no
    /// events are recorded, and the chunk says why.
    #[must_use]
    pub fn of_processes_to_come(bytes: usize) -> Sched {
        let store = Store::new(bytes / SchedEvent::SIZE);
        let (perf, text) = match Perf::open() {
            Ok(perf) => (Some(perf), perf::TEXT.to_owned()),
            Err(text) => (None, text),
        };
        Sched { perf, store, text, is_told: false }
    }

    /// Descriptors that are readable when many events wait for [`Sched::drain`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.perf.iter().flat_map(Perf::descriptors)
    }

    /// Takes what the kernel has recorded so far.
    pub fn drain(&mut self) {
        if let Some(perf) = &mut self.perf {
            let store = &mut self.store;
            perf.drain(|event| store.push(event));
        }
    }

    /// The payload of a SCHED chunk with the events since the last one; `None` if there are none.
    pub fn take_chunk(&mut self) -> Option<Vec<u8>> {
        let (events, overwritten) = self.store.take();
        if self.is_told && events.is_empty() {
            return None;
        }
        // It is the same in all chunks.
        let text = if self.is_told { "" } else { &self.text };
        self.is_told = true;
        let record = SchedRecord {
            record_size: SchedRecord::SIZE as u32,
            source: if self.perf.is_some() { source::PERF } else { source::NONE },
            clock: clock::MONOTONIC_RAW,
            event_size: SchedEvent::SIZE as u32,
            events: events.len() as u64,
            overwritten,
            text_length: text.len() as u32,
            reserved: [0; 3],
        };
        let text_size = text.len().next_multiple_of(8);
        let mut payload = vec![0; SchedRecord::SIZE + text_size + events.len() * SchedEvent::SIZE];
        let (head, rest) = payload.split_at_mut(SchedRecord::SIZE);
        record.write(head);
        rest[..text.len()].copy_from_slice(text.as_bytes());
        for (bytes, event) in rest[text_size..].chunks_exact_mut(SchedEvent::SIZE).zip(&events) {
            event.write(bytes);
        }
        Some(payload)
    }

    /// Begins a further file, which needs all facts again.
    pub fn begin_file(&mut self) {
        self.is_told = false;
    }
}
