//! Dividing a thread's segments: for one track, and once for all of them.

use std::collections::HashMap;

use everycall_format::event::{Word, kind};
use everycall_format::label;
use everycall_reader::{OpenCall, SegmentCursor, SegmentPlace, ThreadKey, Warning};

use super::track::Track;
use crate::marks::MarkNames;
use crate::scan::ThreadScan;
use crate::task_list::Tasks;

/// The steps that are open in a thread.
struct Steps<'s> {
    tasks: &'s Tasks,
    /// Tasks and when their steps began; the innermost last.
    open: Vec<(u32, u64)>,
    /// The upper half of the clock.
    high: u64,
    /// Number of the segment that was read last.
    read: Option<u64>,
}

/// What a record is for.
enum For {
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
    fn new(tasks: &'s Tasks) -> Steps<'s> {
        Steps { tasks, open: Vec::new(), high: 0, read: None }
    }

    fn running(&self) -> Option<u32> {
        self.open.last().map(|(number, _)| *number)
    }

    /// Begins segment `number`.
    fn begin_segment(&mut self, number: u64) {
        if self.read.is_some_and(|read| number != read.wrapping_add(1)) {
            // What was open there isn't known.
            self.open.clear();
        }
        self.read = Some(number);
    }

    fn of(&mut self, record: &[u64]) -> For {
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
fn give(track: &mut Track, record: &[u64], ticks: u64, out: &mut Vec<u64>) {
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

/// The words of the record that begins at `at`; of a record that isn't whole, its first word.
fn record_at(words: &[u64], at: usize) -> &[u64] {
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

/// Leaves the words of one task, or those of no task, in a thread's segments.
pub(super) struct Lane<'s> {
    segments: Box<dyn SegmentCursor + 's>,
    steps: Steps<'s>,
    track: Track,
    /// The task; `None`: what is no task's.
    own: Option<u32>,
    /// Number of the last segment that may have something.
    last: u64,
    /// Number of the segment that comes next: a task's are numbered anew.
    number: u64,
    /// Whether a step was open when the segment began.
    begins_in_step: bool,
    words: Vec<u64>,
    is_over: bool,
}

impl<'s> Lane<'s> {
    /// `last`: the number of the last segment that may have something of it.
    pub fn new(
        segments: Box<dyn SegmentCursor + 's>,
        tasks: &'s Tasks,
        tid: u32,
        own: Option<u32>,
        last: u64,
    ) -> Lane<'s> {
        Lane {
            segments,
            steps: Steps::new(tasks),
            track: Track::new(tid),
            own,
            last,
            number: 0,
            begins_in_step: false,
            words: Vec::new(),
            is_over: false,
        }
    }

    /// Whether anything but the segment's own record was there.
    fn divide(&mut self, words: &[u64], out: &mut Vec<u64>) -> bool {
        let mut at = 0;
        let mut has_some = false;
        while at < words.len() {
            let record = record_at(words, at);
            at += record.len().max(1);
            match self.steps.of(record) {
                For::Running(ticks) if self.steps.running() == self.own => {
                    has_some = true;
                    give(&mut self.track, record, ticks, out);
                }
                For::Begin(number, ticks) if self.own == Some(number) => {
                    has_some = true;
                    self.track.begin(ticks, out);
                }
                For::End(number, suspended, ticks) if self.own == Some(number) => {
                    has_some = true;
                    self.track.end(suspended, ticks, out);
                }
                For::Segment(depth) => {
                    if self.own.is_none() && self.steps.running().is_none() {
                        self.track.is_at_depth(depth);
                    }
                    self.track.segment(self.steps.high, self.number, out);
                }
                For::Epoch => out.extend(record),
                _ => {}
            }
        }
        has_some
    }
}

impl SegmentCursor for Lane<'_> {
    fn next_segment(&mut self, out: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        while !self.is_over {
            let mut words = std::mem::take(&mut self.words);
            let segment = self.segments.next_segment(&mut words);
            self.is_over = match &segment {
                None => true,
                Some(Ok(number)) => *number >= self.last,
                Some(Err(_)) => false,
            };
            let number = match segment {
                None => return None,
                Some(Ok(number)) => number,
                // The thread's own track says so.
                Some(Err(_)) if self.own.is_some() => {
                    self.words = words;
                    continue;
                }
                Some(Err(warning)) => {
                    self.words = words;
                    return Some(Err(warning));
                }
            };
            self.steps.begin_segment(number);
            self.begins_in_step = self.steps.running().is_some();
            if self.own.is_none() {
                self.number = number;
            }
            out.clear();
            let has_some = self.divide(&words, out);
            self.words = words;
            if self.own.is_none() {
                return Some(Ok(number));
            }
            if has_some {
                self.number += 1;
                return Some(Ok(self.number - 1));
            }
        }
        None
    }

    fn lost_before(&self) -> u64 {
        if self.own.is_some() { 0 } else { self.segments.lost_before() }
    }

    fn place(&self) -> Option<SegmentPlace> {
        if self.own.is_some() || self.begins_in_step { None } else { self.segments.place() }
    }
}

/// What is known of a track after the whole thread was looked through.
pub(super) struct Scanned {
    pub scan: ThreadScan,
    /// Calls that were open at the end; for what is no task's, those of before aren't among them.
    pub open: Vec<OpenCall>,
}

/// A track that is looked through.
struct Looked {
    track: Track,
    scan: ThreadScan,
    reach: (u64, u64),
    out: Vec<u64>,
    number: u64,
}

impl Looked {
    fn new(tid: u32) -> Looked {
        let (scan, out) = (ThreadScan::default(), Vec::new());
        Looked { track: Track::new(tid), scan, reach: (u64::MAX, 0), out, number: 0 }
    }
}

/// Looks once through a thread's segments. Returns what is known of each task, by its number, of
/// what is no task's (`None`), and when the outermost step that is open at the end began.
pub(super) fn scan_tracks(
    mut segments: Box<dyn SegmentCursor + '_>,
    tasks: &Tasks,
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
        steps.begin_segment(number);
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
                For::Begin(_, ticks) => looked.track.begin(ticks, &mut looked.out),
                For::End(_, suspended, ticks) => looked.track.end(suspended, ticks, &mut looked.out),
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
    let done = tracks.into_iter().map(|(of, mut looked)| {
        let (first, last) = looked.reach;
        looked.scan.reach_ticks = (first <= last).then_some((first, last));
        looked.scan.earliest_ticks = looked.scan.reach_ticks.map(|(first, _)| first);
        looked.scan.is_complete = true;
        let open = looked.track.into_open();
        looked.scan.open_calls = open.len() as u64;
        (of, Scanned { scan: looked.scan, open })
    });
    (done.collect(), steps.open.first().map(|(_, ticks)| *ticks))
}
