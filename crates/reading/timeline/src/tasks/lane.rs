//! Dividing a thread's segments: for the track of events outside tasks, and once for all tracks.

use std::collections::{HashMap, HashSet};

use everycall_format::event::{Word, kind};
use everycall_format::label;
use everycall_reader::{OpenCall, SegmentCursor, SegmentPlace, ThreadKey, Warning};

use super::track::Track;
use crate::marks::MarkNames;
use crate::scan::ThreadScan;
use crate::task_list::Tasks;

/// The steps that are open in a thread.
pub(super) struct Steps<'s> {
    tasks: &'s Tasks,
    /// Tasks and when their steps began; the innermost last.
    open: Vec<(u32, u64)>,
    /// The upper half of the clock.
    pub high: u64,
    /// Number of the segment that was read last.
    read: Option<u64>,
}

/// The effect of a record on tracks.
pub(super) enum For {
    /// The track that runs, with the full ticks of the record.
    Running(u64),
    /// A step of this task begins, or ends with so many suspended calls.
    Begin(u32, u64),
    End(u32, u32, u64),
    Segment(u32),
    Epoch,
    Nothing,
}

impl<'s> Steps<'s> {
    pub fn new(tasks: &'s Tasks) -> Steps<'s> {
        Steps { tasks, open: Vec::new(), high: 0, read: None }
    }

    pub fn forget_open(&mut self) {
        self.open.clear();
    }

    pub fn running(&self) -> Option<u32> {
        self.open.last().map(|(number, _)| *number)
    }

    /// Begins segment `number`.
    /// `is_behind_cut`: [`SegmentCursor::is_cut_before`].
    pub fn begin_segment(&mut self, number: u64, is_behind_cut: bool) {
        if is_behind_cut || self.read.is_some_and(|read| number != read.wrapping_add(1)) {
            // The open calls there aren't known.
            self.forget_open();
        }
        self.read = Some(number);
    }

    pub fn of(&mut self, record: &[u64]) -> For {
        let [first, rest @ ..] = record else { return For::Nothing };
        let payload = |index: usize| rest.get(index).map_or(0, |word| (*word >> 32) as u32);
        match Word::decode(*first) {
            Word::Record { kind: kind::SEGMENT, .. } if rest.len() >= 3 => {
                self.high = u64::from(payload(0)) << 32;
                For::Segment(payload(1))
            }
            Word::Record { kind: kind::EPOCH, .. } if !rest.is_empty() => {
                self.high = u64::from(payload(0)) << 32;
                For::Epoch
            }
            Word::Record { kind: kind::LABEL, detail, ticks_low, .. }
                if label::is_task(detail) && rest.len() >= 2 =>
            {
                let (number, ticks) = (payload(0), self.high | u64::from(ticks_low));
                if !self.tasks.has(number) {
                    return For::Nothing;
                }
                if detail & label::CLASS_MASK == label::TASK_BEGIN {
                    self.open.push((number, ticks));
                    return For::Begin(number, ticks);
                }
                let Some(at) = self.open.iter().rposition(|(of, _)| *of == number) else {
                    return For::Nothing;
                };
                self.open.truncate(at);
                For::End(number, payload(1), ticks)
            }
            Word::Record { kind: kind::FILLER, .. } => For::Nothing,
            Word::Record { ticks_low, .. } | Word::Entry { ticks_low, .. } | Word::Exit { ticks_low, .. } => {
                For::Running(self.high | u64::from(ticks_low))
            }
            _ => For::Running(self.high),
        }
    }
}

/// Gives a track a record that is its own.
pub(super) fn give(track: &mut Track, record: &[u64], ticks: u64, out: &mut Vec<u64>) {
    let [first, rest @ ..] = record else { return };
    let payload = |index: usize| rest.get(index).map_or(0, |word| (*word >> 32) as u32);
    match Word::decode(*first) {
        Word::Entry { offset, .. } => track.enter(*first, offset, ticks, out),
        Word::Exit { offset, ticks_low } => track.exit(*first, offset, ticks_low, out),
        Word::Record { kind: kind::UNWOUND, detail, ticks_low, .. } if rest.len() >= 2 => {
            track.unwound(payload(1), detail, ticks_low, out);
        }
        Word::Record { kind: kind::LATE, ticks_low, .. } if rest.len() >= 2 => {
            let ticks = u64::from(payload(1)) << 32 | u64::from(ticks_low);
            track.late(payload(0), ticks, record, out);
        }
        _ => out.extend(record),
    }
}

/// Begins a step of a track, whose `record` stays if it says which step that is.
pub(super) fn begin(track: &mut Track, record: &[u64], ticks: u64, out: &mut Vec<u64>) {
    track.begin(ticks, out);
    if record.get(2).is_some_and(|upper| upper >> 32 != 0) {
        out.extend(record);
    }
}

/// The words of the record that begins at `at`; of a record that isn't whole, its first word.
pub(super) fn record_at(words: &[u64], at: usize) -> &[u64] {
    let length = match words.get(at).map(|word| Word::decode(*word)) {
        Some(Word::Record { count, kind, .. }) => {
            let length = 1 + usize::from(count);
            let is_payload =
                |word: &u64| matches!(Word::decode(*word), Word::Payload { kind: of, .. } if of == kind);
            let is_whole = words.get(at + 1..at + length).is_some_and(|rest| rest.iter().all(is_payload));
            if is_whole { length } else { 1 }
        }
        _ => 1,
    };
    words.get(at..at + length).unwrap_or_default()
}

/// Leaves the words that are no task's in a thread's segments.
pub(super) struct Lane<'s> {
    segments: Box<dyn SegmentCursor + 's>,
    steps: Steps<'s>,
    track: Track,
    /// Whether a step was open when the segment began.
    begins_in_step: bool,
    words: Vec<u64>,
}

impl<'s> Lane<'s> {
    pub fn new(segments: Box<dyn SegmentCursor + 's>, tasks: &'s Tasks, tid: u32) -> Lane<'s> {
        let (steps, track) = (Steps::new(tasks), Track::new(tid));
        Lane { segments, steps, track, begins_in_step: false, words: Vec::new() }
    }

    fn divide(&mut self, words: &[u64], number: u64, out: &mut Vec<u64>) {
        let mut at = 0;
        while at < words.len() {
            let record = record_at(words, at);
            at += record.len().max(1);
            match self.steps.of(record) {
                For::Running(ticks) if self.steps.running().is_none() => {
                    give(&mut self.track, record, ticks, out);
                }
                For::Segment(depth) => {
                    if self.steps.running().is_none() {
                        self.track.is_at_depth(depth);
                    }
                    self.track.segment(self.steps.high, number, out);
                }
                For::Epoch => out.extend(record),
                _ => {}
            }
        }
    }
}

impl SegmentCursor for Lane<'_> {
    fn next_segment(&mut self, out: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        let mut words = std::mem::take(&mut self.words);
        let segment = self.segments.next_segment(&mut words);
        if let Some(Ok(number)) = segment {
            self.steps.begin_segment(number, self.segments.is_cut_before());
            self.begins_in_step = self.steps.running().is_some();
            out.clear();
            self.divide(&words, number, out);
        }
        self.words = words;
        segment
    }

    fn lost_before(&self) -> u64 {
        self.segments.lost_before()
    }

    fn is_cut_before(&self) -> bool {
        self.segments.is_cut_before()
    }

    fn place(&self) -> Option<SegmentPlace> {
        if self.begins_in_step { None } else { self.segments.place() }
    }
}

/// The result for a track after the whole thread was scanned.
pub(super) struct Scanned {
    pub scan: ThreadScan,
    /// Calls that were open at the end; for the track outside tasks, without those of before.
    pub open: Vec<OpenCall>,
    /// When each step began and ended, 0 if that isn't known: of a task that other threads run,
    /// too.
    pub steps: Vec<(u64, u64)>,
    /// Whether a step has left calls suspended.
    pub suspends: bool,
}

impl Scanned {
    /// `reach`: the first and the last ticks, in this order if there are any.
    pub fn new(mut scan: ThreadScan, (first, last): (u64, u64), open: Vec<OpenCall>) -> Scanned {
        scan.reach_ticks = (first <= last).then_some((first, last));
        scan.earliest_ticks = scan.reach_ticks.map(|(first, _)| first);
        scan.is_complete = true;
        scan.open_calls = open.len() as u64;
        Scanned { scan, open, steps: Vec::new(), suspends: false }
    }
}

/// A track that is looked through.
struct Looked {
    track: Track,
    scan: ThreadScan,
    reach: (u64, u64),
    out: Vec<u64>,
    number: u64,
    steps: Vec<(u64, u64)>,
    suspends: bool,
}

impl Looked {
    fn new(tid: u32) -> Looked {
        Looked {
            track: Track::new(tid),
            scan: ThreadScan::default(),
            reach: (u64::MAX, 0),
            out: Vec::new(),
            number: 0,
            steps: Vec::new(),
            suspends: false,
        }
    }

    fn into_scanned(self) -> Scanned {
        let scanned = Scanned::new(self.scan, self.reach, self.track.into_open());
        Scanned { steps: self.steps, suspends: self.suspends, ..scanned }
    }
}

/// Looks once through a thread's segments. Returns what is known of each task, by its number, of
/// what is no task's (`None`), and when the outermost step that is open at the end began. `shared`:
/// tasks that other threads run, too.
pub(super) fn scan_tracks(
    mut segments: Box<dyn SegmentCursor + '_>,
    (tasks, shared): (&Tasks, &HashSet<u32>),
    tid: u32,
    key: ThreadKey,
) -> (HashMap<Option<u32>, Scanned>, Option<u64>) {
    let mut steps = Steps::new(tasks);
    let mut tracks: HashMap<Option<u32>, Looked> = HashMap::new();
    // All names are known already.
    let mut names = MarkNames::default();
    let mut words = Vec::new();
    let mut touched: Vec<Option<u32>> = Vec::new();
    while let Some(segment) = segments.next_segment(&mut words) {
        let Ok(number) = segment else { continue };
        steps.begin_segment(number, segments.is_cut_before());
        let mut at = 0;
        while at < words.len() {
            let record = record_at(&words, at);
            at += record.len().max(1);
            let is_for = steps.of(record);
            let of = match is_for {
                For::Running(_) => steps.running(),
                For::Begin(number, _) | For::End(number, ..) => Some(number),
                For::Segment(depth) => {
                    if steps.running().is_none() {
                        tracks.entry(None).or_insert_with(|| Looked::new(tid)).track.is_at_depth(depth);
                    }
                    continue;
                }
                For::Epoch => {
                    for of in &touched {
                        if let Some(looked) = tracks.get_mut(of) {
                            looked.out.extend(record);
                        }
                    }
                    continue;
                }
                For::Nothing => continue,
            };
            let looked = tracks.entry(of).or_insert_with(|| Looked::new(tid));
            if looked.out.is_empty() {
                looked.track.segment(steps.high, looked.number, &mut looked.out);
                looked.number += 1;
                touched.push(of);
            }
            match is_for {
                For::Running(ticks) => give(&mut looked.track, record, ticks, &mut looked.out),
                For::Begin(number, ticks) => {
                    if shared.contains(&number) {
                        looked.steps.push((ticks, 0));
                    }
                    begin(&mut looked.track, record, ticks, &mut looked.out);
                }
                For::End(_, suspended, ticks) => {
                    looked.suspends |= suspended > 0;
                    if let Some((_, end)) = looked.steps.last_mut() {
                        *end = ticks;
                    }
                    looked.track.end(suspended, ticks, &mut looked.out);
                }
                _ => {}
            }
        }
        for of in touched.drain(..) {
            if let Some(looked) = tracks.get_mut(&of) {
                let (first, last) = &mut looked.reach;
                looked.scan.segment(&looked.out, (key.snapshot, &mut names), first, last);
                looked.out.clear();
            }
        }
    }
    let done = tracks.into_iter().map(|(of, looked)| (of, looked.into_scanned()));
    (done.collect(), steps.open.first().map(|(_, ticks)| *ticks))
}
