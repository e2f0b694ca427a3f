//! When the kernel ran the threads of a program, and when it didn't: scheduling events of the
//! processes that the calling thread starts, and of all their descendants.
//!
//! ```text
//! tracefs    switches and wake-ups (root) ──┐
//! perf       switches (no privileges) ──────┼─> Store ──> SCHED chunks of the trace file
//! schedstat  samples (where both are closed)┘
//! ```
//!
//! tracefs and perf together are `joined`, where tracefs may lack switches. `docs/design/states.md`
//! says why.
//!
//! [`Children`] finds the threads that descend from a thread of a running process.
//!
//! Nothing runs in the traced program for it, and nothing is left in the kernel when the recorder
//! ends, however it ends.
//!
//! Not here: what they say of calls.
//!
//! Checked by: phases of a program against its own measure and the kernel's counts, as root and
//! not, refused.

// Messages go through the caller.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

#[path = "x86_64.rs"]
mod arch;
mod children;
mod complete;
pub mod delegated;
mod excerpt;
mod joined;
mod names;
mod pages;
mod perf;
mod schedstat;
mod store;
#[cfg(test)]
mod testing;
mod tracefs;
mod waits;
mod watcher;

use std::os::fd::BorrowedFd;

use everycall_format::Wire;
use everycall_format::kept_states::{KEPT_MAGIC, KEPT_TEXT_MAX, KeptHeader};
use everycall_format::sched::{SchedEvent, SchedRecord, clock, source};

pub use crate::children::Children;
use crate::joined::Joined;
use crate::perf::Perf;
pub use crate::perf::{explain as why_refused, online as online_cpus};
use crate::schedstat::Schedstat;
use crate::store::Store;
use crate::tracefs::{Instance, Tracefs};
use crate::waits::Waits;

/// Where the events come from.
#[derive(Debug)]
enum Source {
    Tracefs(Box<Tracefs>),
    Perf(Perf),
    Joined(Box<Joined>),
    Schedstat(Schedstat),
}

/// Which source is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The most informative source that the kernel allows.
    Best,
    /// An instance of tracefs, or none.
    Tracefs,
    /// tracefs, with switches by `perf_event_open`, or none.
    Joined,
    /// `perf_event_open`, or none.
    Perf,
    /// Samples of `/proc`, or none.
    Schedstat,
}

/// The scheduling events of a recording.
#[derive(Debug)]
pub struct Sched {
    source: Option<Source>,
    store: Store,
    waits: Waits,
    /// The source's limits, and why there is no better one.
    text: String,
    /// Whether a chunk was written.
    is_told: bool,
}

impl Sched {
    /// Begins to record the processes that the calling thread starts from now on, and all their
    /// descendants. At most `bytes` of events are kept; newer ones overwrite older ones. If the
    /// kernel refuses, no events are recorded, and the chunk says why.
    #[must_use]
    pub fn of_processes_to_come(choice: Choice, bytes: usize) -> Sched {
        let (source, text) = open(choice);
        Sched {
            source,
            store: Store::new(bytes / SchedEvent::SIZE),
            waits: Waits::default(),
            text,
            is_told: false,
        }
    }

    /// Sets the processes that a sampling source samples. They are recorded from now on.
    pub fn attend(&mut self, processes: impl Fn() -> Vec<u32> + Send + 'static) {
        if let Some(Source::Schedstat(schedstat)) = &mut self.source {
            schedstat.attend(Box::new(processes));
        }
    }

    /// Descriptors that are readable when many events wait for [`Sched::drain`].
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match &self.source {
            Some(Source::Tracefs(tracefs)) => tracefs.descriptors().collect(),
            Some(Source::Perf(perf)) => perf.descriptors().collect(),
            Some(Source::Joined(joined)) => joined.descriptors().collect(),
            Some(Source::Schedstat(_)) | None => Vec::new(),
        }
    }

    /// Takes what the kernel has recorded so far.
    pub fn drain(&mut self) {
        self.take_events();
        if self.waits.ask() {
            // A thread that has left its CPU, and isn't said to have been woken now either, was in
            // that call.
            self.take_events();
            self.waits.answered().into_iter().for_each(|event| self.store.push(event));
        }
    }

    fn take_events(&mut self) {
        let (store, waits) = (&mut self.store, &mut self.waits);
        let take = |event| {
            waits.note(&event);
            store.push(event);
        };
        match &mut self.source {
            Some(Source::Tracefs(tracefs)) => tracefs.drain(take),
            Some(Source::Perf(perf)) => perf.drain(take),
            Some(Source::Joined(joined)) => joined.drain(take),
            Some(Source::Schedstat(schedstat)) => schedstat.drain(take),
            None => {}
        }
    }

    /// Ends sampling, and takes the last events.
    pub fn finish(&mut self) {
        if let Some(Source::Schedstat(schedstat)) = &mut self.source {
            schedstat.end();
        }
        self.take_events();
        self.waiting().into_iter().for_each(|event| self.store.push(event));
    }

    /// How many events there were so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.store.count()
    }

    /// The events after the first `seen`, as far as they are kept, in the order in which they came.
    pub fn since(&self, seen: u64) -> impl Iterator<Item = &SchedEvent> {
        self.store.since(seen)
    }

    /// Header and text of the events in an arena; `None` if there is no source. The counts are 0.
    #[must_use]
    pub fn kept_header(&self) -> Option<(KeptHeader, &str)> {
        let (source, clock) = self.source_and_clock();
        let whole = (0..=KEPT_TEXT_MAX.min(self.text.len())).rev().find_map(|end| self.text.get(..end));
        let text = whole.unwrap_or_default();
        let header = KeptHeader {
            magic: KEPT_MAGIC,
            record_size: KeptHeader::SIZE as u32,
            event_size: SchedEvent::SIZE as u32,
            source,
            clock,
            text_length: text.len() as u32,
            ..KeptHeader::default()
        };
        self.source.as_ref().map(|_| (header, text))
    }

    /// The newest samples of waiting threads, which are stored when the wait ends.
    fn waiting(&self) -> Vec<SchedEvent> {
        match &self.source {
            Some(Source::Schedstat(schedstat)) => schedstat.waiting(),
            _ => Vec::new(),
        }
    }

    /// The payload of a SCHED chunk with the first events since the last one; `None` if there are
    /// none.
    pub fn take_chunk(&mut self) -> Option<Vec<u8>> {
        let (events, overwritten) = self.store.take();
        if self.is_told && events.is_empty() {
            return None;
        }
        // It is the same in all chunks.
        let text = if self.is_told { "" } else { &self.text };
        self.is_told = true;
        Some(self.payload(text, &events, overwritten))
    }

    /// The payload of a SCHED chunk for another file, with the events of process `pid` from a
    /// moment on; `None` if there is no source. The moment is given on both clocks that sources
    /// have.
    #[must_use]
    pub fn excerpt(&self, pid: u32, since_ticks: u64, since_raw_ns: u64) -> Option<Vec<u8>> {
        let since = match self.source.as_ref()? {
            Source::Tracefs(tracefs) if tracefs.clock == clock::TICKS => since_ticks,
            _ => since_raw_ns,
        };
        let waiting = self.waiting();
        let events = excerpt::excerpt(self.store.all().chain(&waiting), pid, since);
        Some(self.payload(&self.text, &events, 0))
    }

    fn source_and_clock(&self) -> (u32, u32) {
        match &self.source {
            Some(Source::Tracefs(tracefs)) => (source::TRACEFS, tracefs.clock),
            Some(Source::Perf(_)) => (source::PERF, clock::MONOTONIC_RAW),
            Some(Source::Joined(_)) => (source::PERF_AND_TRACEFS, clock::MONOTONIC_RAW),
            Some(Source::Schedstat(_)) => (source::SCHEDSTAT, clock::MONOTONIC_RAW),
            None => (source::NONE, clock::MONOTONIC_RAW),
        }
    }

    fn payload(&self, text: &str, events: &[SchedEvent], overwritten: u64) -> Vec<u8> {
        let (source, clock) = self.source_and_clock();
        let record = SchedRecord {
            record_size: SchedRecord::SIZE as u32,
            source,
            clock,
            event_size: SchedEvent::SIZE as u32,
            events: events.len() as u64,
            overwritten,
            text_length: text.len() as u32,
            reserved: 0,
            until: 0,
        };
        let text_size = text.len().next_multiple_of(8);
        let mut payload = vec![0; SchedRecord::SIZE + text_size + events.len() * SchedEvent::SIZE];
        let (head, rest) = payload.split_at_mut(SchedRecord::SIZE);
        record.write(head);
        rest[..text.len()].copy_from_slice(text.as_bytes());
        for (bytes, event) in rest[text_size..].chunks_exact_mut(SchedEvent::SIZE).zip(events) {
            event.write(bytes);
        }
        payload
    }

    /// Begins a further file, which needs all facts again.
    pub fn begin_file(&mut self) {
        self.is_told = false;
    }
}

/// The source, if there is one, and its limits, or why there is no better one.
fn open(choice: Choice) -> (Option<Source>, String) {
    let wants = |one: Choice| choice == one || choice == Choice::Best;
    let mut why = Vec::new();
    let mut source = None;
    if wants(Choice::Tracefs) || choice == Choice::Joined {
        source = of_tracefs(choice, &mut why).map_err(|reason| why.push(reason)).ok();
    }
    if source.is_none() && wants(Choice::Perf) {
        source = Perf::open().map(Source::Perf).map_err(|reason| why.push(reason)).ok();
        source.iter().for_each(|_| why.insert(0, perf::TEXT.to_owned()));
    }
    if source.is_none() && wants(Choice::Schedstat) {
        source = Schedstat::open().map(Source::Schedstat).map_err(|reason| why.push(reason)).ok();
        source.iter().for_each(|_| why.insert(0, schedstat::TEXT.to_owned()));
    }
    (source, why.join("; "))
}

/// tracefs, with perf where tracefs may lack switches. Limits are added to `why`.
fn of_tracefs(choice: Choice, why: &mut Vec<String>) -> Result<Source, String> {
    let instance = Instance::open()?;
    let unsure =
        if choice == Choice::Best { complete::unsure(&instance, &perf::online()) } else { Vec::new() };
    let perf = if choice == Choice::Joined {
        Some(Perf::open()?)
    } else if unsure.is_empty() {
        None
    } else {
        let numbers: Vec<String> = unsure.iter().map(usize::to_string).collect();
        let lacks = format!(
            "tracefs may lack switches of CPU {}, and nothing is known of what a thread did then",
            numbers.join(", ")
        );
        Perf::open().map_err(|reason| why.extend([lacks, reason])).ok()
    };
    let tracefs = Tracefs::begin(instance, perf.is_some())?;
    Ok(match perf {
        Some(perf) => Source::Joined(Box::new(Joined::new(perf, tracefs))),
        None => Source::Tracefs(Box::new(tracefs)),
    })
}
