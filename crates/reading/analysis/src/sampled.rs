//! Counters of processes that the recorder has sampled (`record --counters`).

use everycall_timeline::{MarkKind, MarkName, TimelineEvent, Trace};

/// A counter of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledCounter {
    /// Its name.
    pub name: String,
    /// Samples in which it was new or had changed.
    pub samples: u64,
    /// Its last value.
    pub last: i64,
    /// Its highest value.
    pub highest: i64,
}

/// The counters of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledCounters {
    /// Index in [`Trace::processes`].
    pub process: usize,
    /// The kernel's number of the process.
    pub pid: u32,
    /// When the first and the last sample were taken, in nanoseconds since the origin.
    pub reach: (u64, u64),
    /// In the order in which they first occur.
    pub counters: Vec<SampledCounter>,
}

/// The counters of all processes that have some.
#[must_use]
pub fn sampled_counters(trace: &Trace<'_>) -> Vec<SampledCounters> {
    let sampled = trace.threads().iter().filter(|thread| thread.is_sampled);
    let of = sampled.filter_map(|thread| {
        let mut counters: Vec<(MarkName, SampledCounter)> = Vec::new();
        for event in trace.thread_events(thread.index) {
            let TimelineEvent::Mark(mark) = event else { continue };
            let (MarkKind::Counter, Some(value)) = (mark.kind, mark.value) else { continue };
            let value = value.cast_signed();
            match counters.iter_mut().find(|(name, _)| *name == mark.name) {
                Some((_, counter)) => {
                    counter.samples += 1;
                    counter.last = value;
                    counter.highest = counter.highest.max(value);
                }
                None => {
                    let name = trace.mark_names().text(mark.name).to_owned();
                    counters
                        .push((mark.name, SampledCounter { name, samples: 1, last: value, highest: value }));
                }
            }
        }
        let counters = counters.into_iter().map(|(_, counter)| counter).collect();
        Some(SampledCounters { process: thread.process, pid: thread.pid, reach: thread.reach?, counters })
    });
    of.collect()
}
