//! The options of a recording, and its memory.

use std::time::Duration;

use everycall_sched::Choice;

use crate::memory::arena::Unrecorded;
use crate::memory::capacity::{Capacity, Stream};
use crate::memory::hub::Hub;
use crate::process::selector::SelectFunctions;
use crate::process::triggers::{KeepCalls, Triggers};
use crate::sys::error::RecordError;
use crate::tree::process_tree::ProcessTree;

/// The options of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of each thread's ring.
    pub ring_size: u64,
    /// Whether processes that descend from the program are recorded, too.
    pub follow: bool,
    /// Whether and how everything is written while the program runs; otherwise the newest events
    /// are kept.
    pub stream: Option<Stream>,
    /// Which calls are counted instead of recorded.
    pub unrecorded: Unrecorded,
    /// Whether it is recorded when the kernel ran the threads, and from which source.
    pub states: Option<Choice>,
    /// How many functions of a process can have counts, a power of two. Each takes 64 KiB of
    /// address space, of which some programs have little: valgrind's, for example.
    pub functions: u32,
    /// The time between two samples of the processes' counters, if these are recorded.
    pub counters: Option<Duration>,
    /// How many stacks are sampled in each second in which a thread runs, if any are; at most
    /// 10,000.
    pub samples: Option<u32>,
}

/// The memory of a recording whose program hasn't been started.
#[derive(Debug)]
pub struct Recorder {
    pub(super) tree: ProcessTree,
    pub(super) keep: Option<KeepBox>,
    /// Signals that are passed to the keeper.
    pub(super) signals: Vec<i32>,
    pub(super) states: Option<Choice>,
    pub(super) counters: Option<Duration>,
    pub(super) samples: Option<u32>,
    pub(super) hooks: Option<HooksBox>,
}

/// Writes hooks into processes that ask for them.
pub(super) struct HooksBox(pub Box<dyn FnMut(u32) + Send>);

impl std::fmt::Debug for HooksBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HooksBox")
    }
}

/// The keeper of calls.
pub(super) struct KeepBox(pub Box<dyn KeepCalls>);

impl std::fmt::Debug for KeepBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeepBox")
    }
}

impl Recorder {
    /// Creates the memory.
    ///
    /// # Errors
    ///
    /// There isn't enough memory, or limits forbid it.
    pub fn create(options: Options) -> Result<Recorder, RecordError> {
        Recorder::with_triggers(options, None)
    }

    /// Makes the memory for a recording with triggers.
    ///
    /// # Errors
    ///
    /// As for [`Recorder::create`].
    pub fn with_triggers(options: Options, triggers: Option<Triggers>) -> Result<Recorder, RecordError> {
        let memory = triggers.as_ref().map(|triggers| triggers.memory);
        let has_states = options.states.is_some();
        let capacity = Capacity::find(
            options.ring_size,
            options.stream,
            memory,
            options.unrecorded,
            has_states,
            options.functions,
        )?;
        let signals = triggers.as_ref().map(|triggers| triggers.signals.clone()).unwrap_or_default();
        let (sites, keep) = triggers.map(|triggers| (triggers.sites, KeepBox(triggers.keep))).unzip();
        let no_memory = |source| RecordError::Arena { ring_size: options.ring_size, source };
        let hub = Hub::create(options.follow).map_err(no_memory)?;
        let tree = ProcessTree::new(hub, capacity, options.follow, sites).map_err(no_memory)?;
        let Options { states, counters, samples, .. } = options;
        Ok(Recorder { tree, keep, signals, states, counters, samples, hooks: None })
    }

    /// Passes each module that a process loads to `selector`.
    pub fn select_with(&mut self, selector: Box<dyn SelectFunctions>) {
        self.tree.select_with(selector);
    }

    /// Processes that start, execute another program or load libraries are passed to `write`, and
    /// wait until it returns. The recorder answers their other messages meanwhile.
    pub fn hook_with(&mut self, write: impl FnMut(u32) + Send + 'static) {
        self.hooks = Some(HooksBox(Box::new(write)));
    }

    /// Passes each module that a process loads to `capturer`, which adds to the capture set.
    pub fn capture_with(&mut self, capturer: Box<dyn SelectFunctions>) {
        self.tree.capture_with(capturer);
    }
}
