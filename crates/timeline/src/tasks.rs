//! Tasks: what threads do in the steps of a task is on a track of its own, where the steps follow
//! each other and calls that were suspended between them go on.
//!
//! A thread's events are divided by their place among the marks of steps
//! ([`everycall_format::label::TASK_BEGIN`]). So a source in which tasks are further threads is all
//! that is needed: each of them reads the segments of its thread, and leaves out what isn't its own.

use std::collections::HashMap;

use everycall_format::event::{EXIT, OFFSET_MASK, Word, call_word, gap, kind, payload_word, record_word};
use everycall_format::label;
use everycall_reader::event::label_name;
use everycall_reader::{OpenCall, Recording, SegmentCursor, SegmentPlace, Source, ThreadKey, Warning};

use crate::thread_info::TASKS_FROM;

/// Tasks of a thread that get tracks; the calls of further ones stay on the thread's.
pub(crate) const TASKS_MAX: usize = 4096;
/// Less time between two steps isn't shown: an exception passes through coroutines in several.
const SHORT_TICKS: u64 = 2000;

/// A task in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Task {
    number: u32,
    /// The one it had last.
    name: Vec<u8>,
    begun_ticks: u64,
    /// Where to begin to read.
    first: Option<SegmentPlace>,
    /// Number of the last segment with a step of it.
    last: u64,
}

/// The tasks that a thread's events name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tasks {
    all: Vec<Task>,
    by_number: HashMap<u32, usize>,
    /// Whether there were more than get tracks.
    pub are_too_many: bool,
    /// The segment that is looked through.
    number: u64,
    place: Option<SegmentPlace>,
}

impl Tasks {
    pub fn begin_segment(&mut self, number: u64, place: Option<SegmentPlace>) {
        (self.number, self.place) = (number, place);
    }

    /// A mark of the segment, if it is one of a step.
    pub fn mark(&mut self, words: &[u64], slot: u32, detail: u8, value: u64, ticks: u64) {
        let number = value as u32;
        match detail & label::CLASS_MASK {
            label::TASK_BEGIN => {
                let name = label_name(words, slot);
                if let Some(task) = self.task(number) {
                    if task.name != name.bytes() {
                        task.name = name.bytes().to_vec();
                    }
                } else if self.all.len() < TASKS_MAX {
                    self.by_number.insert(number, self.all.len());
                    self.all.push(Task {
                        number,
                        name: name.bytes().to_vec(),
                        begun_ticks: ticks,
                        first: self.place,
                        last: self.number,
                    });
                } else {
                    self.are_too_many = true;
                }
            }
            label::TASK_END => {
                let last = self.number;
                if let Some(task) = self.task(number) {
                    task.last = last;
                }
            }
            _ => {}
        }
    }

    fn task(&mut self, number: u32) -> Option<&mut Task> {
        self.all.get_mut(*self.by_number.get(&number)?)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn has(&self, number: u32) -> bool {
        self.by_number.contains_key(&number)
    }
}

/// Where the events of a thread of a [`Divided`] source are.
struct Track {
    /// The thread that ran them.
    host: ThreadKey,
    task: Task,
}

/// A source whose tasks are threads.
pub(crate) struct Divided<'a> {
    source: Box<dyn Source + 'a>,
    recording: Recording,
    hosts: HashMap<ThreadKey, Tasks>,
    tracks: HashMap<ThreadKey, Track>,
}

impl<'a> Divided<'a> {
    /// Divides the threads with tasks, `hosts`. Also returns the keys of the tasks.
    pub fn new(
        source: Box<dyn Source + 'a>,
        hosts: Vec<(ThreadKey, Tasks)>,
    ) -> (Divided<'a>, Vec<ThreadKey>) {
        let mut recording = source.recording().clone();
        let mut tracks = HashMap::new();
        let mut keys = Vec::new();
        for (host, tasks) in &hosts {
            let threads = &mut recording.snapshots[host.snapshot].threads;
            for task in &tasks.all {
                let mut thread = threads[host.thread].clone();
                thread.name.clone_from(&task.name);
                thread.fiber = Some(TASKS_FROM.saturating_add(task.number));
                thread.start_ticks = task.begun_ticks;
                (thread.first_segment, thread.segments) = (0, 0);
                (thread.unwound, thread.orphan_exits, thread.lost_busy, thread.deep) = (0, 0, 0, 0);
                thread.dropped = 0;
                let key = ThreadKey { snapshot: host.snapshot, thread: threads.len() };
                threads.push(thread);
                tracks.insert(key, Track { host: *host, task: task.clone() });
                keys.push(key);
            }
        }
        (Divided { source, recording, hosts: hosts.into_iter().collect(), tracks }, keys)
    }

    fn tid(&self, key: ThreadKey) -> u32 {
        self.recording
            .snapshots
            .get(key.snapshot)
            .and_then(|all| all.threads.get(key.thread))
            .map_or(0, |thread| thread.tid)
    }

    fn lane<'s>(
        &'s self,
        key: ThreadKey,
        segments: Box<dyn SegmentCursor + 's>,
    ) -> Box<dyn SegmentCursor + 's> {
        let (host, task) = match self.tracks.get(&key) {
            Some(track) => (track.host, Some(&track.task)),
            None => (key, None),
        };
        let Some(tasks) = self.hosts.get(&host) else { return segments };
        let mut lane = Lane::new(segments, tasks, self.tid(host));
        lane.own = task.map(|task| task.number);
        lane.last = task.map_or(u64::MAX, |task| task.last);
        Box::new(lane)
    }
}

impl Source for Divided<'_> {
    fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The calls of steps that weren't over, and those that are suspended, aren't told apart from
    /// the thread's by the list: the events show them.
    fn open_calls(&self, key: ThreadKey) -> Vec<OpenCall> {
        if self.tracks.contains_key(&key) {
            return Vec::new();
        }
        let mut calls = self.source.open_calls(key);
        if self.hosts.contains_key(&key)
            && let Some(begun) = self.last_step(key)
        {
            calls.retain(|call| call.ticks < begun);
        }
        calls
    }

    fn segments(&self, key: ThreadKey) -> Box<dyn SegmentCursor + '_> {
        let track = self.tracks.get(&key);
        let host = track.map_or(key, |track| track.host);
        let first = track.and_then(|track| self.source.segments_from(host, track.task.first?));
        self.lane(key, first.unwrap_or_else(|| self.source.segments(host)))
    }

    fn segments_from(&self, key: ThreadKey, first: SegmentPlace) -> Option<Box<dyn SegmentCursor + '_>> {
        if self.tracks.contains_key(&key) {
            return None;
        }
        Some(self.lane(key, self.source.segments_from(key, first)?))
    }

    fn parts(&self, key: ThreadKey) -> usize {
        let is_divided = self.tracks.contains_key(&key) || self.hosts.contains_key(&key);
        if is_divided { 0 } else { self.source.parts(key) }
    }

    fn part(&self, key: ThreadKey, part: usize) -> Option<Box<dyn SegmentCursor + '_>> {
        if part < self.parts(key) { self.source.part(key, part) } else { None }
    }

    fn part_begin(&self, key: ThreadKey, part: usize) -> Option<u64> {
        if part < self.parts(key) { self.source.part_begin(key, part) } else { None }
    }
}

impl Divided<'_> {
    /// When the outermost step began that is open at the end of a thread.
    fn last_step(&self, key: ThreadKey) -> Option<u64> {
        let mut lane = Lane::new(self.source.segments(key), self.hosts.get(&key)?, 0);
        let mut words = Vec::new();
        while lane.next_segment(&mut words).is_some() {}
        lane.steps.first().map(|(_, ticks)| *ticks)
    }
}

/// Leaves the words of one task, or those of no task, in a thread's segments.
struct Lane<'s> {
    segments: Box<dyn SegmentCursor + 's>,
    tasks: &'s Tasks,
    /// Of the thread that runs the steps.
    tid: u32,
    /// The task; `None`: what is no task's.
    own: Option<u32>,
    /// Number of the last segment that may have something.
    last: u64,
    /// Number of the segment that comes next: a task's are numbered anew.
    number: u64,
    /// Number of the segment in the thread that was read last.
    read: Option<u64>,
    /// Open steps, the innermost last, and when they began.
    steps: Vec<(u32, u64)>,
    /// Whether one was open when the segment began.
    begins_in_step: bool,
    words: Vec<u64>,
    /// The upper half of the clock.
    high: u64,
    /// Calls that are open on this track.
    depth: u32,
    /// Calls that are suspended, outermost first; so many of them go on again.
    suspended: Vec<u32>,
    resumed: usize,
    /// Calls that are open in the innermost suspended one, that one included, after an exception
    /// was thrown into it: those around it still wait.
    inside: u32,
    /// When the last step ended.
    left_ticks: Option<u64>,
    is_over: bool,
}

impl<'s> Lane<'s> {
    fn new(segments: Box<dyn SegmentCursor + 's>, tasks: &'s Tasks, tid: u32) -> Lane<'s> {
        Lane {
            segments,
            tasks,
            tid,
            own: None,
            last: u64::MAX,
            number: 0,
            read: None,
            steps: Vec::new(),
            begins_in_step: false,
            words: Vec::new(),
            high: 0,
            depth: 0,
            suspended: Vec::new(),
            resumed: 0,
            inside: 0,
            left_ticks: None,
            is_over: false,
        }
    }

    /// Whether what comes now is on this track.
    fn is_in(&self) -> bool {
        self.steps.last().map(|(number, _)| *number) == self.own
    }

    fn divide(&mut self, words: &[u64], out: &mut Vec<u64>) {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let length = match Word::decode(*word) {
                Word::Record { count, kind, .. } => {
                    let length = 1 + usize::from(count);
                    let is_whole = words.get(at + 1..at + length).is_some_and(|rest| {
                        rest.iter().all(|word| matches!(Word::decode(*word), Word::Payload { kind: of, .. } if of == kind))
                    });
                    if is_whole { length } else { 1 }
                }
                _ => 1,
            };
            let record = words.get(at..at + length).unwrap_or_default();
            self.record(record, out);
            at += length;
        }
    }

    fn record(&mut self, record: &[u64], out: &mut Vec<u64>) {
        let [first, rest @ ..] = record else { return };
        let payload = |index: usize| rest.get(index).map_or(0, |word| (*word >> 32) as u32);
        match Word::decode(*first) {
            Word::Entry { ticks_low, offset } => {
                if self.is_in() && !self.goes_on(offset, ticks_low, out) {
                    self.depth = self.depth.saturating_add(1);
                    out.push(*first);
                }
            }
            Word::Exit { ticks_low, offset } => {
                if self.is_in() {
                    self.leaves(Some(offset), ticks_low, out);
                    self.depth = self.depth.saturating_sub(1);
                    out.push(*first);
                }
            }
            Word::Record { kind: kind::SEGMENT, .. } if rest.len() >= 3 => {
                self.high = u64::from(payload(0)) << 32;
                if self.own.is_none() && self.steps.is_empty() {
                    self.depth = payload(1);
                }
                out.push(*first);
                out.push(rest[0]);
                out.push(payload_word(self.depth, kind::SEGMENT, 2));
                out.push(payload_word(self.number as u32, kind::SEGMENT, 3));
                out.extend(&rest[3..]);
            }
            Word::Record { kind: kind::EPOCH, .. } if !rest.is_empty() => {
                self.high = u64::from(payload(0)) << 32;
                out.extend(record);
            }
            Word::Record { kind: kind::LABEL, detail, ticks_low, .. } if rest.len() >= 2 => {
                let ticks = self.high | u64::from(ticks_low);
                match detail & label::CLASS_MASK {
                    label::TASK_BEGIN => self.begin(payload(0), ticks, out),
                    label::TASK_END => self.end(payload(0), payload(1), ticks, out),
                    _ if self.is_in() => out.extend(record),
                    _ => {}
                }
            }
            Word::Record { kind: kind::UNWOUND, detail, ticks_low, .. } if rest.len() >= 2 => {
                if self.is_in() {
                    let left = payload(1);
                    for _ in 0..left {
                        if self.suspended.is_empty() {
                            break;
                        }
                        self.leaves(None, ticks_low, out);
                    }
                    self.depth = self.depth.saturating_sub(left);
                    out.push(record_word(u64::from(ticks_low), kind::UNWOUND, 2, detail));
                    out.push(payload_word(self.depth, kind::UNWOUND, 1));
                    out.push(payload_word(left, kind::UNWOUND, 2));
                }
            }
            Word::Record { kind: kind::LATE, .. } => {
                if self.is_in() {
                    let is_exit = payload(0) & EXIT != 0;
                    self.depth =
                        if is_exit { self.depth.saturating_sub(1) } else { self.depth.saturating_add(1) };
                    out.extend(record);
                }
            }
            Word::Record { kind: kind::FILLER, .. } => {}
            _ if self.is_in() => out.extend(record),
            _ => {}
        }
    }

    fn begin(&mut self, number: u32, ticks: u64, out: &mut Vec<u64>) {
        if !self.tasks.has(number) {
            return;
        }
        self.steps.push((number, ticks));
        let Some(left) = self.left_ticks.filter(|_| self.own == Some(number)) else { return };
        if ticks.saturating_sub(left) < SHORT_TICKS {
            return;
        }
        out.push(record_word(ticks, kind::GAP, 6, gap::SUSPENDED));
        let values = [left as u32, (left >> 32) as u32, self.depth, 0, self.tid, 0];
        out.extend(values.iter().zip(1..).map(|(value, index)| payload_word(*value, kind::GAP, index)));
    }

    /// A step ends, and those in it. The exits of its suspended calls are taken back.
    fn end(&mut self, number: u32, suspended: u32, ticks: u64, out: &mut Vec<u64>) {
        let Some(at) = self.steps.iter().rposition(|(of, _)| *of == number) else { return };
        self.steps.truncate(at + 1);
        if self.own == Some(number) {
            self.left_ticks = Some(ticks);
            if self.resumed > 0 {
                self.leave_those_left(ticks as u32, out);
            }
            self.inside = 0;
            for _ in 0..suspended {
                let Some(Word::Exit { offset, .. }) = out.last().map(|word| Word::decode(*word)) else {
                    break;
                };
                out.pop();
                self.depth = self.depth.saturating_add(1);
                self.suspended.push(offset & OFFSET_MASK);
            }
        }
        self.steps.truncate(at);
    }

    /// Whether the entry of a function continues a suspended call.
    fn goes_on(&mut self, offset: u32, ticks_low: u32, out: &mut Vec<u64>) -> bool {
        let Some(next) = self.suspended.get(self.resumed) else { return false };
        if self.inside > 0 {
            self.inside += 1;
            return false;
        }
        if *next == offset {
            self.resumed += 1;
            if self.resumed == self.suspended.len() {
                self.suspended.clear();
                self.resumed = 0;
            }
            return true;
        }
        if self.resumed == 0 && self.suspended.last() == Some(&offset) {
            // An exception is thrown into the innermost one.
            self.suspended.pop();
            self.inside = 1;
            return true;
        }
        self.leave_those_left(ticks_low, out);
        false
    }

    /// A call ends, of the function with this offset as far as it is known.
    fn leaves(&mut self, offset: Option<u32>, ticks_low: u32, out: &mut Vec<u64>) {
        if self.inside > 0 {
            self.inside -= 1;
        } else if self.resumed > 0 && offset.is_none_or(|offset| self.suspended.last() == Some(&offset)) {
            // The innermost one went on alone, and its function is that of an outer one, too.
            self.suspended.pop();
            self.resumed = 0;
        } else {
            self.leave_those_left(ticks_low, out);
        }
    }

    /// Those suspended calls have ended that didn't go on with the ones around them.
    fn leave_those_left(&mut self, ticks_low: u32, out: &mut Vec<u64>) {
        while self.suspended.len() > self.resumed
            && let Some(offset) = self.suspended.pop()
        {
            out.push(call_word(ticks_low.into(), offset | EXIT));
            self.depth = self.depth.saturating_sub(1);
        }
        self.suspended.clear();
        self.resumed = 0;
        self.inside = 0;
    }
}

impl SegmentCursor for Lane<'_> {
    fn next_segment(&mut self, out: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        loop {
            if self.is_over {
                return None;
            }
            let mut words = std::mem::take(&mut self.words);
            let segment = self.segments.next_segment(&mut words);
            let result = match segment {
                None => None,
                // The thread's own track says so.
                Some(Err(_)) if self.own.is_some() => Some(Err(())),
                Some(Err(warning)) => {
                    self.words = words;
                    return Some(Err(warning));
                }
                Some(Ok(number)) => Some(Ok(number)),
            };
            let Some(result) = result else {
                self.is_over = true;
                return None;
            };
            let Ok(number) = result else {
                self.words = words;
                continue;
            };
            self.is_over = number >= self.last;
            if self.read.is_some_and(|read| number != read.wrapping_add(1)) {
                // What was open there isn't known.
                self.steps.clear();
            }
            self.read = Some(number);
            if self.own.is_none() {
                self.number = number;
            }
            self.begins_in_step = !self.steps.is_empty();
            out.clear();
            self.divide(&words, out);
            let has_some = out.iter().skip(1).any(|word| {
                !matches!(
                    Word::decode(*word),
                    Word::Payload { kind: kind::SEGMENT | kind::EPOCH, .. }
                        | Word::Record { kind: kind::EPOCH, .. }
                )
            });
            self.words = words;
            if self.own.is_some() {
                if !has_some {
                    continue;
                }
                self.number += 1;
                return Some(Ok(self.number - 1));
            }
            return Some(Ok(number));
        }
    }

    fn lost_before(&self) -> u64 {
        if self.own.is_some() { 0 } else { self.segments.lost_before() }
    }

    fn place(&self) -> Option<SegmentPlace> {
        if self.own.is_some() || self.begins_in_step { None } else { self.segments.place() }
    }
}
