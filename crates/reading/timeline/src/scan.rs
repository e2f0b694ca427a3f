//! The first pass over a thread: which events exist, and which time they cover.

use everycall_format::label;
use everycall_reader::event::{EventKind, Events};
use everycall_reader::{Source, ThreadKey, Warning};

use crate::marks::{MarkNames, with_name};
use crate::task_list::Tasks;

/// The result of the first pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadScan {
    pub events: u64,
    pub entries: u64,
    pub losses: u64,
    /// Events of missing segments, as far as they were counted.
    pub missing: u64,
    pub gaps: u64,
    pub gaps_ticks: u64,
    pub suspended: u64,
    pub suspended_ticks: u64,
    pub malformed_words: u64,
    pub segments_lost: u64,
    pub open_calls: u64,
    /// The first recorded count of dropped calls, and the last one.
    pub dropped: Option<(u64, u64)>,
    /// Whether all of its segments exist, from the first on.
    pub is_complete: bool,
    /// Tasks that run in it.
    pub tasks: Tasks,
    /// First and last time of an event.
    pub reach_ticks: Option<(u64, u64)>,
    /// The earliest time that the thread knows of, open calls included.
    pub earliest_ticks: Option<u64>,
}

/// Goes once over the words of a thread; `names` learns what its marks are called.
pub(crate) fn scan_thread(
    source: &dyn Source,
    key: ThreadKey,
    names: &mut MarkNames,
    warnings: &mut Vec<Warning>,
) -> ThreadScan {
    let mut scan = ThreadScan::default();
    let process = source.recording().snapshots[key.snapshot].process;
    let mut segments = source.segments(key);
    let mut words = Vec::new();
    let mut expected = None;
    let mut first_segment = None;
    let mut found = 0;
    let mut is_whole = true;
    let (mut first, mut last) = (u64::MAX, 0);
    while let Some(segment) = segments.next_segment(&mut words) {
        match segment {
            Ok(number) => {
                let jump = expected.map_or(0, |expected| number.saturating_sub(expected));
                scan.segments_lost = scan.segments_lost.saturating_add(jump);
                is_whole &= !segments.is_cut_before();
                let is_behind_loss = jump > 0 || segments.is_cut_before();
                expected = number.checked_add(1);
                found += 1;
                first_segment.get_or_insert(number);
                scan.missing = scan.missing.saturating_add(segments.lost_before());
                scan.tasks.begin_segment(number, segments.place(), is_behind_loss);
                scan.segment(&words, (process, names), &mut first, &mut last);
            }
            Err(warning) => warning.add_to(warnings),
        }
    }
    scan.missing = scan.missing.saturating_add(segments.lost_before());
    if first <= last {
        scan.reach_ticks = Some((first, last));
    }
    let thread = &source.recording().snapshots[key.snapshot].threads[key.thread];
    let missing = thread.segments.saturating_sub(found);
    scan.segments_lost = scan.segments_lost.max(missing);
    if missing > 0 {
        Warning::SegmentsMissing { tid: thread.tid, count: missing }.add_to(warnings);
    }
    scan.is_complete = first_segment == Some(0) && scan.segments_lost == 0 && is_whole;
    scan.note_open_calls(source, key);
    scan
}

/// Looks at the first and the last part of a thread only: what it covers is known then, and its
/// events aren't counted.
pub(crate) fn scan_ends(source: &dyn Source, key: ThreadKey) -> ThreadScan {
    let parts = source.parts(key);
    let mut ends = ThreadScan::default();
    let (mut first, mut last) = (u64::MAX, 0);
    let mut words = Vec::new();
    let (mut names, mut of_end) = (MarkNames::default(), ThreadScan::default());
    let (begin, end) = (0, parts.saturating_sub(1));
    for part in [Some(begin), (end > begin).then_some(end)].into_iter().flatten() {
        let Some(mut segments) = source.part(key, part) else { continue };
        while let Some(segment) = segments.next_segment(&mut words) {
            if segment.is_ok() {
                of_end.segment(&words, (0, &mut names), &mut first, &mut last);
            }
        }
    }
    ends.reach_ticks = (first <= last).then_some((first, last));
    ends.note_open_calls(source, key);
    ends
}

impl ThreadScan {
    /// Calls that were open when the snapshot was taken.
    fn note_open_calls(&mut self, source: &dyn Source, key: ThreadKey) {
        let thread = &source.recording().snapshots[key.snapshot].threads[key.thread];
        let open_calls = source.open_calls(key);
        self.open_calls = open_calls.len() as u64;
        // A call can't be older than its thread; one that claims to be is damaged.
        let starts = open_calls.iter().map(|call| call.ticks).filter(|ticks| *ticks >= thread.start_ticks);
        self.earliest_ticks = starts.chain(self.reach_ticks.map(|(first, _)| first)).min();
    }

    /// Goes over the words of a segment.
    pub(crate) fn segment(
        &mut self,
        words: &[u64],
        (process, names): (usize, &mut MarkNames),
        first: &mut u64,
        last: &mut u64,
    ) {
        let mut events = Events::new(words);
        loop {
            let plain = events.plain_run();
            let (all, entries) = plain.counts();
            (self.events, self.entries) = (self.events + all, self.entries + entries);
            if let Some((least, most)) = plain.reach() {
                (*first, *last) = (least.min(*first), most.max(*last));
            }
            let Some(event) = events.next() else { return };
            match event.kind {
                EventKind::Entry { .. } | EventKind::UnknownEntry { .. } => {
                    self.entries += 1;
                    self.events += 1;
                }
                EventKind::Exit { .. }
                | EventKind::UnknownExit { .. }
                | EventKind::TailExit { .. }
                | EventKind::OrphanExit { .. } => self.events += 1,
                EventKind::Unwound { .. } | EventKind::Caller { .. } | EventKind::Other { .. } => {}
                EventKind::Label { detail, value } if label::is_task(detail) => {
                    self.tasks.mark(words, event.slot, detail, value, event.ticks);
                    if label::is_numbered_step(detail, value) {
                        with_name(words, event.slot, |name| names.count(process, name, detail));
                    }
                }
                EventKind::Label { detail, .. } => {
                    with_name(words, event.slot, |name| names.count(process, name, detail));
                    if detail & label::CLASS_MASK == label::THROW {
                        names.values.add_exception(words, event.slot);
                    }
                }
                EventKind::Values { .. } => {
                    names.values.add(words, event.slot);
                    continue;
                }
                EventKind::Log => names.logs.add(words, event.slot, process, event.ticks),
                EventKind::XrayEvent => {
                    with_name(words, event.slot, |name| names.count(process, name, label::INSTANT))
                }
                EventKind::Resumed { from_ticks, .. } => {
                    self.suspended += 1;
                    let ticks = event.ticks.saturating_sub(from_ticks);
                    self.suspended_ticks = self.suspended_ticks.saturating_add(ticks);
                }
                EventKind::Gap { from_ticks, .. } => {
                    self.gaps += 1;
                    let ticks = event.ticks.saturating_sub(from_ticks);
                    self.gaps_ticks = self.gaps_ticks.saturating_add(ticks);
                }
                EventKind::Loss { count, .. } | EventKind::Hole { count } => {
                    self.losses = self.losses.saturating_add(count);
                }
                EventKind::Malformed => {
                    self.malformed_words += 1;
                    continue;
                }
                EventKind::Dropped { count } => {
                    self.dropped.get_or_insert((count, count)).1 = count;
                    continue;
                }
                EventKind::Segment { .. } => continue,
            }
            *first = event.ticks.min(*first);
            *last = event.ticks.max(*last);
        }
    }
}
