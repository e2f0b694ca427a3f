//! Samples the counters of all recorded processes, on a thread of its own if one can be started.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use everycall_machine::clock::ticks;

use crate::process::samples::Samples;
use crate::sys::lock::lock;
use crate::tree::process_tree::ProcessTree;

/// Part of a CPU that sampling may take: with very many threads, samples come less often.
const SHARE: u32 = 20;

/// The samples of all processes, by number; `None` for those that are in the file.
pub(crate) type AllSamples = Mutex<BTreeMap<u32, Option<Samples>>>;

/// The sampler.
#[derive(Debug)]
pub(crate) struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// When the next samples are due, without a thread.
    due: Instant,
}

#[derive(Debug)]
struct Shared {
    tree: Arc<Mutex<ProcessTree>>,
    samples: Arc<AllSamples>,
    interval: Duration,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Shared {
    /// Samples all processes, or those with this id. Returns the time until the next samples.
    fn sample(&self, only: Option<u32>) -> Duration {
        let begin = Instant::now();
        let processes: Vec<(u32, u32)> = lock(&self.tree)
            .of_program()
            .filter(|member| only.is_none_or(|pid| pid == member.pid))
            .map(|member| (member.number, member.pid))
            .collect();
        for (number, pid) in processes {
            // Only for one process at a time: who writes the file waits for it.
            let mut all = lock(&self.samples);
            let samples = all.entry(number).or_insert_with(|| Some(Samples::new(pid, ticks())));
            if let Some(samples) = samples {
                samples.take(only.is_some(), ticks);
            }
        }
        let took = begin.elapsed();
        self.interval.saturating_sub(took).max(took * SHARE)
    }

    fn run(&self) {
        let mut pause = self.interval;
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            let waited = self.over.wait_timeout(is_over, pause);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            is_over = guard;
            if timeout.timed_out() && !*is_over {
                drop(is_over);
                pause = self.sample(None);
                is_over = lock(&self.is_over);
            }
        }
    }
}

impl Sampler {
    /// Starts the thread. If that fails, [`Sampler::poll`] must be called often.
    pub fn attend(tree: Arc<Mutex<ProcessTree>>, interval: Duration) -> Sampler {
        let samples = Arc::default();
        let is_over = Mutex::new(false);
        let shared = Arc::new(Shared { tree, samples, interval, is_over, over: Condvar::new() });
        let sampling = Arc::clone(&shared);
        let thread = Builder::new().name("counters".to_owned()).spawn(move || sampling.run()).ok();
        Sampler { shared, thread, due: Instant::now() }
    }

    /// The samples.
    pub fn samples(&self) -> Arc<AllSamples> {
        Arc::clone(&self.shared.samples)
    }

    /// Takes samples if there is no thread and it is time. Returns the time until the next ones if
    /// there is no thread.
    pub fn poll(&mut self) -> Option<Duration> {
        if self.thread.is_some() {
            return None;
        }
        if self.due <= Instant::now() {
            self.due = Instant::now() + self.shared.sample(None);
        }
        Some(self.due.saturating_duration_since(Instant::now()))
    }

    /// Takes the last samples of a process that has ended and whose number is still its own.
    pub fn last_of(&self, pid: u32) {
        self.shared.sample(Some(pid));
    }

    /// Ends the thread.
    pub fn stop(self) {
        *lock(&self.shared.is_over) = true;
        self.shared.over.notify_all();
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}
