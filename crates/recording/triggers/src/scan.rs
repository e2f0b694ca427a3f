//! Scans the events that threads write for entries of functions, and for the durations of their
//! calls, for percentile thresholds.

use std::collections::{HashMap, VecDeque};

use everycall_format::frame::FIRST;
use everycall_format::trigger::{TriggerSite, TriggeredCall, call_flags};
use everycall_reader::event::{EventKind, Events};
use everycall_recorder::TriggeredProcess;
use everycall_recorder::scan::{News, Owner, Scan};

use crate::frames::NamedFrames;
use crate::trigger::{Condition, Trigger};

/// A function needs this many calls before its percentiles are used.
const ARMED_AFTER: usize = 1000;
/// Largest number of calls of a function that are stored.
const CALLS_MAX: usize = 1 << 16;
/// Largest number of open calls of armed functions that are stored for a thread.
const OPEN_MAX: usize = 256;

/// The durations of a function's recent calls.
#[derive(Debug, Default)]
struct Durations {
    /// End and duration of each call in ticks, in the order in which they were found.
    calls: VecDeque<(u64, u64)>,
    count: usize,
}

impl Durations {
    fn add(&mut self, end: u64, took: u64) {
        if self.calls.len() == CALLS_MAX {
            self.calls.pop_front();
        }
        self.calls.push_back((end, took));
        self.count = self.count.saturating_add(1);
    }

    /// The percentile of the calls that ended at `since` or later; `None` if there are too few.
    fn percentile(&mut self, percent: f64, since: u64) -> Option<u64> {
        self.calls.retain(|(end, _)| *end >= since);
        if self.count < ARMED_AFTER || self.calls.is_empty() {
            return None;
        }
        let mut took: Vec<u64> = self.calls.iter().map(|(_, took)| *took).collect();
        let place = ((took.len() as f64 * percent / 100.0).ceil() as usize).clamp(1, took.len()) - 1;
        Some(*took.select_nth_unstable(place).1)
    }
}

/// Results for one process.
#[derive(Debug, Default)]
pub(crate) struct ScannedProcess {
    scan: Scan,
    /// Durations by the function's first code offset, or by [`frames_key`].
    durations: HashMap<u32, Durations>,
    /// Open calls by thread: first code offset of the function, and when it was entered.
    open: HashMap<Owner, Vec<(u32, u64)>>,
}

/// The key of all frames by id that a trigger names: their calls are taken together.
pub(crate) fn frames_key(rule: u32) -> u32 {
    FIRST + rule
}

/// Whether a trigger needs this scan.
pub(crate) fn is_scanned(trigger: &Trigger) -> bool {
    match trigger.condition {
        // With a condition on arguments, the traced process decides.
        Condition::Entered(_) => trigger.when.is_none(),
        Condition::Percentile(..) => true,
        _ => false,
    }
}

impl ScannedProcess {
    /// Segments that were overwritten before they were scanned.
    pub fn missed(&self) -> u64 {
        self.scan.missed
    }

    /// Scans the new events of a process. Returns the entries that triggers wait for.
    /// `frames` are those that the triggers name, `renew` adds those that were named meanwhile.
    pub fn look(
        &mut self,
        process: &TriggeredProcess,
        triggers: &[Trigger],
        frames: &mut NamedFrames,
        mut renew: impl FnMut(&mut NamedFrames),
    ) -> Vec<TriggeredCall> {
        let of = |site: &TriggerSite| triggers.get(site.rule as usize).is_some_and(is_scanned);
        let sites: Vec<TriggerSite> = process.triggers.all_sites().filter(of).collect();
        if sites.is_empty() && !frames.are_any() {
            return Vec::new();
        }
        let of_frame = |rule: &u32| triggers.get(*rule as usize).is_some_and(is_scanned);
        let rules_at = |frames: &NamedFrames, code: u32| {
            let frames = frames.rules_at(code).filter(of_frame).map(|rule| (frames_key(rule), rule));
            frames.chain(sites_at(&sites, code).map(|site| (site.first, site.rule)))
        };
        let keys_at = |frames: &NamedFrames, code: u32| {
            let mut keys: Vec<u32> = rules_at(frames, code).map(|(key, _)| key).collect();
            keys.dedup();
            keys
        };
        let mut entered = Vec::new();
        let (durations, open) = (&mut self.durations, &mut self.open);
        process.triggers.scan(&*process.arena, &mut self.scan, &mut |news: News<'_>| {
            // A frame is named before its first entry, so now all are named that have one here.
            renew(frames);
            let calls = open.entry(news.owner).or_default();
            if news.is_cut {
                calls.clear();
            }
            for event in Events::new(news.words).filter(|event| event.slot as usize >= news.seen) {
                match event.kind {
                    EventKind::Entry { offset } => {
                        for (_, rule) in rules_at(frames, offset) {
                            if let Some(Condition::Entered(_)) =
                                triggers.get(rule as usize).map(|trigger| &trigger.condition)
                            {
                                entered.push(TriggeredCall {
                                    rule,
                                    code: offset,
                                    slot: news.owner.0,
                                    generation: news.owner.1,
                                    tid: news.tid,
                                    flags: call_flags::ENTERED,
                                    start_ticks: event.ticks,
                                    end_ticks: event.ticks,
                                    ..TriggeredCall::default()
                                });
                            }
                        }
                        if calls.len() < OPEN_MAX {
                            calls.extend(keys_at(frames, offset).into_iter().map(|key| (key, event.ticks)));
                        }
                    }
                    EventKind::Exit { offset } | EventKind::TailExit { offset } => {
                        for key in keys_at(frames, offset).into_iter().rev() {
                            // Open calls inside it were unwound.
                            if let Some(place) = calls.iter().rposition(|(of, _)| *of == key) {
                                let took = event.ticks.saturating_sub(calls[place].1);
                                calls.truncate(place);
                                durations.entry(key).or_default().add(event.ticks, took);
                            }
                        }
                    }
                    _ => {}
                }
            }
        });
        entered.sort_by_key(|call| call.end_ticks);
        entered
    }

    /// The threshold of a function, from the calls that ended at `since` or later; `None` if there
    /// are too few.
    pub fn threshold(&mut self, first: u32, percent: f64, since: u64) -> Option<u64> {
        self.durations.get_mut(&first)?.percentile(percent, since)
    }
}

/// Of the sorted `sites`, those that contain `code`.
fn sites_at(sites: &[TriggerSite], code: u32) -> impl Iterator<Item = &TriggerSite> {
    let first = sites.partition_point(|site| site.end <= code);
    sites[first..].iter().take_while(move |site| site.first <= code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_after_a_thousand_calls_and_forget() {
        let mut durations = Durations::default();
        for number in 1..=999 {
            durations.add(number, number);
        }
        assert_eq!(durations.percentile(99.0, 0), None);
        durations.add(1000, 1000);
        assert_eq!(durations.percentile(99.0, 0), Some(990));
        assert_eq!(durations.percentile(50.0, 0), Some(500));
        assert_eq!(durations.percentile(100.0, 0), Some(1000));
        assert_eq!(durations.percentile(50.0, 901), Some(950), "of the last hundred");
        assert_eq!(durations.percentile(50.0, 2000), None);
    }
}
