//! Samples of stacks within functions' own times: a sample belongs to the innermost call
//! that is open on its thread at its time. What runs then is the call's function itself, or code
//! without hooks that it has called.

use std::collections::HashMap;
use std::rc::Rc;

use everycall_export::{Filter, Source as _};
use everycall_profile::{FunctionIdentity, FunctionNumber};
use everycall_units::{Count, Several};
use rustc_hash::FxHashMap;

use crate::sample_places::{SamplePlaces, SamplesIn};
use crate::sampled_calls::SampledCalls;
use crate::view::TraceView;

/// Samples within the own times of functions.
#[derive(Clone, Debug, Default)]
pub struct OwnSamples {
    functions: HashMap<FunctionIdentity, HashMap<SamplesIn, u64>>,
    /// Samples of recorded threads outside of all calls.
    pub outside: u64,
    /// Samples of threads of which the trace has no calls.
    pub of_others: u64,
}

impl OwnSamples {
    /// Adds the samples in calls of `view` whose thread and time pass `filter`.
    pub fn add_trace(&mut self, view: &TraceView<'_>, filter: &Filter) {
        let Some(mut places) = SamplePlaces::new(view) else { return };
        let (since_ns, until_ns) = filter.bounds(view);
        let is_within = |at_ns: u64| (since_ns..=until_ns).contains(&at_ns);
        let mut uses = vec![Use::OfOthers; places.len()];
        let mut in_calls: FxHashMap<(FunctionNumber, Rc<SamplesIn>), u64> = FxHashMap::default();
        for (index, thread) in view.threads().iter().enumerate() {
            let samples = places.of_thread(thread).to_vec();
            if samples.is_empty() {
                continue;
            }
            if !filter.admits_thread(thread) {
                samples.iter().for_each(|(_, sample)| uses[*sample] = Use::LeftOut);
                continue;
            }
            for (at_ns, sample) in &samples {
                // Threads of one id may follow each other.
                match is_within(*at_ns) {
                    false => uses[*sample] = Use::LeftOut,
                    true if uses[*sample] == Use::OfOthers => uses[*sample] = Use::Outside,
                    true => {}
                }
            }
            let mut calls = SampledCalls::new(samples);
            for event in view.timeline(view.trace_index(index).unwrap_or(usize::MAX)) {
                calls.event(&event, &mut |at_ns, sample, open| {
                    let Some(call) = open.last().filter(|_| is_within(at_ns)) else { return };
                    uses[sample] = Use::InCall;
                    let function = places.functions().number(*call);
                    let place = places.place(sample, Some(function));
                    *in_calls.entry((function, place)).or_default() += 1;
                });
            }
        }
        let count = |wanted: Use| uses.iter().filter(|of| **of == wanted).count() as u64;
        self.outside += count(Use::Outside);
        self.of_others += count(Use::OfOthers);
        let functions = places.functions().functions();
        for ((function, place), count) in in_calls {
            let Some(of) = functions.get(function) else { continue };
            let sums = self.functions.entry(of.identity.clone()).or_default();
            *sums.entry((*place).clone()).or_default() += count;
        }
    }

    /// Whether there are no samples in calls.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The samples in a function's own time, most first.
    #[must_use]
    pub fn of(&self, function: &FunctionIdentity) -> Vec<(&SamplesIn, u64)> {
        let Some(places) = self.functions.get(function) else { return Vec::new() };
        let mut places: Vec<(&SamplesIn, u64)> = places.iter().map(|(of, count)| (of, *count)).collect();
        places.sort_by(|one, other| (other.1, one.0).cmp(&(one.1, other.0)));
        places
    }

    /// The samples in a function's own time by the label of their places, most first: how a place was
    /// reached isn't in it.
    #[must_use]
    pub fn labels(&self, function: &FunctionIdentity) -> Vec<(String, u64)> {
        let mut labels: Vec<(String, u64)> = Vec::new();
        for (place, count) in self.of(function) {
            let label = place.label(&function.module);
            match labels.iter_mut().find(|(known, _)| *known == label) {
                Some((_, sum)) => *sum += count,
                None => labels.push((label, count)),
            }
        }
        labels.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        labels
    }
}

/// Most places in a line of text.
const SHOWN: usize = 5;

/// Places with their samples as a line of text: `62 % memcpy, 20 % page faults (of 812 samples)`.
/// `None` without samples.
#[must_use]
pub fn shares(places: &[(String, u64)]) -> Option<String> {
    let all: u64 = places.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return None;
    }
    let share = |count: u64| match 100.0 * count as f64 / all as f64 {
        share if share < 0.95 => "<1 %".to_owned(),
        share => format!("{share:.0} %"),
    };
    let mut parts: Vec<String> =
        places.iter().take(SHOWN).map(|(label, count)| format!("{} {label}", share(*count))).collect();
    if let Some(others) = places.len().checked_sub(SHOWN).filter(|others| *others > 0) {
        parts.push(format!("{} more", Count(others as u64)));
    }
    Some(format!("{} (of {})", parts.join(", "), Several(all, "sample", "samples")))
}

/// Where a sample is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    OfOthers,
    LeftOut,
    Outside,
    InCall,
}
