//! Sampled stacks of a track: neighbouring samples of one call that were at one place are a run.
//! Where there are too many, neighbours of one depth are merged.

use std::sync::Arc;

use everycall_analysis::{SamplePlaces, SampledCalls};
use everycall_export::Thread;
use everycall_timeline::TimelineEvent;
use rustc_hash::{FxHashMap, FxHashSet};

/// Runs of a track that are kept.
const KEPT_MAX: usize = 1 << 18;

/// Samples within one call, at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// When the first was taken, in nanoseconds since the origin.
    pub at: u64,
    /// When the last was taken.
    pub to: u64,
    /// Where it is drawn: below the call.
    pub depth: usize,
    /// The place; of merged runs, that of the longest.
    pub text: Arc<str>,
    /// How many samples there are.
    pub count: u32,
    /// How many of them were at the place.
    pub most: u32,
}

/// The runs of a track, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    /// Neighbours closer than this were merged.
    width: u64,
    /// The longest of them.
    longest: u64,
    /// Levels that they need.
    depths: usize,
}

impl Runs {
    /// Adds those that came next.
    pub fn extend(&mut self, runs: impl Iterator<Item = Run>) {
        for run in runs {
            self.longest = self.longest.max(run.to.saturating_sub(run.at));
            self.depths = self.depths.max(run.depth + 1);
            self.runs.push(run);
        }
        while self.runs.len() >= KEPT_MAX && self.width < u64::MAX / 8 {
            self.width = (self.width * 4).max(1 << 20);
            self.runs = merged(self.runs.iter(), self.width);
            self.longest = self.runs.iter().map(|run| run.to.saturating_sub(run.at)).max().unwrap_or(0);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Levels of a track that they need, from the outermost calls on.
    pub fn depths(&self) -> usize {
        self.depths
    }

    /// All runs that may reach into a window.
    fn around(&self, from: u64, to: u64) -> impl Iterator<Item = &Run> {
        let first = self.runs.partition_point(|run| run.at < from.saturating_sub(self.longest));
        let rest = self.runs.get(first..).unwrap_or_default().iter();
        rest.take_while(move |run| run.at <= to).filter(move |run| run.to >= from)
    }

    /// Those in a window: of those closer than a pixel, one for each depth.
    pub fn within(&self, from: u64, to: u64, pixels: u64) -> Vec<Run> {
        merged(self.around(from, to), to.saturating_sub(from) / pixels.max(1))
    }

    /// The samples in the own time of a call: how many at each place, most first.
    pub fn own(&self, depth: usize, from: u64, to: u64) -> Vec<(String, u64)> {
        let is_own = |run: &&Run| run.depth == depth + 1 && run.at >= from && run.at < to;
        let mut sums: FxHashMap<&str, u64> = FxHashMap::default();
        for run in self.around(from, to).filter(is_own) {
            *sums.entry(&run.text).or_default() += u64::from(run.count);
        }
        let mut sums: Vec<_> = sums.into_iter().map(|(text, count)| (text.to_owned(), count)).collect();
        sums.sort_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
        sums
    }
}

/// Merges neighbours of one depth that lie within `width`.
fn merged<'r>(runs: impl Iterator<Item = &'r Run>, width: u64) -> Vec<Run> {
    let mut last: FxHashMap<usize, usize> = FxHashMap::default();
    let mut out: Vec<Run> = Vec::new();
    for run in runs {
        let slot = last.get(&run.depth).copied();
        if let Some(grown) = slot.and_then(|at| out.get_mut(at))
            && run.to.saturating_sub(grown.at) < width
        {
            let is_same = grown.text == run.text;
            if !is_same && run.most > grown.most {
                grown.text = Arc::clone(&run.text);
            }
            grown.most = if is_same { grown.most.saturating_add(run.most) } else { grown.most.max(run.most) };
            grown.count = grown.count.saturating_add(run.count);
            grown.to = grown.to.max(run.to);
            continue;
        }
        last.insert(run.depth, out.len());
        out.push(run.clone());
    }
    out
}

/// Makes runs of a thread's samples while its events pass.
pub(crate) struct Sampling {
    calls: SampledCalls,
    texts: FxHashSet<Arc<str>>,
    /// The last one, which may still grow.
    growing: Option<Run>,
    ready: Vec<Run>,
    /// Samples further apart than this are of different runs.
    apart_ns: u64,
}

impl Sampling {
    pub fn new(places: &SamplePlaces<'_>, thread: &Thread) -> Sampling {
        Sampling {
            calls: SampledCalls::new(places.of_thread(thread).to_vec()),
            texts: FxHashSet::default(),
            growing: None,
            ready: Vec::new(),
            apart_ns: 3_000_000_000 / u64::from(places.rate().max(1)),
        }
    }

    /// Follows an event of the thread.
    #[inline]
    pub fn event(&mut self, event: &TimelineEvent, places: &mut SamplePlaces<'_>) {
        if self.calls.is_empty() {
            return;
        }
        let Sampling { calls, texts, growing, ready, apart_ns } = self;
        calls.event(event, &mut |at, sample, open| {
            let function = open.last().map(|call| places.functions().number(*call));
            let place = places.place(sample, function);
            let function = function.and_then(|of| places.functions().functions().get(of));
            let label = place.label(function.map_or("", |function| &function.identity.module));
            let depth = open.len();
            if let Some(run) = growing
                && (run.depth, &*run.text) == (depth, &*label)
                && at.saturating_sub(run.to) <= *apart_ns
            {
                (run.to, run.count, run.most) = (at, run.count + 1, run.most + 1);
                return;
            }
            let text = texts.get(&*label).cloned().unwrap_or_else(|| {
                let text: Arc<str> = label.into();
                texts.insert(Arc::clone(&text));
                text
            });
            ready.extend(growing.replace(Run { at, to: at, depth, text, count: 1, most: 1 }));
        });
        if matches!(event, TimelineEvent::Begin(_) | TimelineEvent::End(_)) {
            // Those behind it are of another call, or another part of one.
            self.ready.extend(self.growing.take());
        }
    }

    /// The runs that are complete.
    pub fn take(&mut self, is_last: bool) -> impl Iterator<Item = Run> {
        if is_last {
            self.ready.extend(self.growing.take());
        }
        self.ready.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(at: u64, to: u64, depth: usize, text: &str, count: u32) -> Run {
        Run { at, to, depth, text: text.into(), count, most: count }
    }

    #[test]
    fn runs_closer_than_a_pixel_are_one_with_the_longest_place() {
        let mut runs = Runs::default();
        runs.extend(
            [
                run(0, 40, 2, "memcpy", 5),
                run(50, 50, 2, "itself", 1),
                run(60, 90, 3, "page faults", 3),
                run(95, 99, 2, "itself", 6),
                run(1000, 1000, 2, "itself", 1),
            ]
            .into_iter(),
        );
        let shown = |pixels| {
            let found = runs.within(0, 1000, pixels).into_iter();
            found.map(|run| (run.at, run.to, run.depth, run.text.to_string(), run.count)).collect::<Vec<_>>()
        };
        assert_eq!((shown(1000).len(), runs.depths()), (5, 4));
        assert_eq!(
            shown(10),
            [
                (0, 99, 2, "itself".to_owned(), 12),
                (60, 90, 3, "page faults".to_owned(), 3),
                (1000, 1000, 2, "itself".to_owned(), 1)
            ]
        );
        assert_eq!(runs.own(1, 0, 200), [("itself".to_owned(), 7), ("memcpy".to_owned(), 5)]);
        assert_eq!(runs.own(2, 0, 60), [] as [(String, u64); 0], "the end is outside");
        assert_eq!(runs.own(2, 60, 61), [("page faults".to_owned(), 3)]);
    }

    #[test]
    fn too_many_runs_are_merged() {
        let mut runs = Runs::default();
        let all = KEPT_MAX as u64 + 9;
        runs.extend((0..all).map(|at| run(at << 18, at << 18, at as usize % 2, "itself", 1)));
        assert!(runs.runs.len() < KEPT_MAX);
        assert_eq!(runs.runs.iter().map(|run| u64::from(run.count)).sum::<u64>(), all);
    }
}
