//! The segments of a task's track, from all threads that ran its steps. A task's steps don't
//! overlap, so they follow each other in the order of their begins.

use everycall_reader::{SegmentCursor, SegmentPlace, ThreadKey, Warning};

use super::lane::{For, Scanned, Steps, begin, give, record_at};
use super::track::{SHORT_TICKS, Track};
use crate::marks::MarkNames;
use crate::scan::ThreadScan;
use crate::task_list::{Task, Tasks};

/// The steps of a task in one thread, as pieces of its segments.
struct Pieces<'s> {
    segments: Box<dyn SegmentCursor + 's>,
    steps: Steps<'s>,
    tid: u32,
    own: u32,
    /// Number of the last segment with something of the task.
    last: u64,
    /// The segment that is read, and how far.
    words: Vec<u64>,
    at: usize,
    is_over: bool,
    /// A part of a step, within one segment: its records, without those of steps within it.
    piece: Vec<u64>,
    /// The first one's ticks, and the clock's upper half there.
    ticks: u64,
    high: u64,
    /// Whether a step begins with it.
    begins: bool,
    /// Whether the step goes on in the next piece.
    goes_on: bool,
}

impl<'s> Pieces<'s> {
    fn new(segments: Box<dyn SegmentCursor + 's>, tasks: &'s Tasks, tid: u32, task: &Task) -> Pieces<'s> {
        let mut pieces = Pieces {
            segments,
            steps: Steps::new(tasks),
            tid,
            own: task.number,
            last: task.last,
            words: Vec::new(),
            at: 0,
            is_over: false,
            piece: Vec::new(),
            ticks: 0,
            high: 0,
            begins: false,
            goes_on: false,
        };
        pieces.advance();
        pieces
    }

    /// Reads the next piece, which stays empty at the end.
    fn advance(&mut self) {
        self.piece.clear();
        self.goes_on = false;
        while self.piece.is_empty() {
            if self.at >= self.words.len() && !self.read_segment() {
                return;
            }
            self.read_piece();
        }
    }

    /// Whether there is one more.
    fn read_segment(&mut self) -> bool {
        while !self.is_over {
            match self.segments.next_segment(&mut self.words) {
                Some(Ok(number)) => {
                    self.is_over = number >= self.last;
                    self.steps.begin_segment(number, self.segments.is_cut_before());
                    self.at = 0;
                    return true;
                }
                // The thread's own track says so.
                Some(Err(_)) => {}
                None => self.is_over = true,
            }
        }
        self.words.clear();
        self.at = 0;
        false
    }

    /// Reads to the end of a step or of the segment.
    fn read_piece(&mut self) {
        while self.at < self.words.len() {
            let record = record_at(&self.words, self.at);
            self.at += record.len().max(1);
            let high = self.steps.high;
            let is_for = self.steps.of(record);
            let ticks = match is_for {
                For::Running(ticks) if self.steps.running() == Some(self.own) => ticks,
                For::Begin(number, ticks) | For::End(number, _, ticks) if number == self.own => ticks,
                For::Epoch if !self.piece.is_empty() => self.ticks,
                _ => continue,
            };
            if self.piece.is_empty() {
                (self.ticks, self.high) = (ticks, high);
                self.begins = matches!(is_for, For::Begin(..));
            }
            self.piece.extend(record);
            if matches!(is_for, For::End(..)) {
                return;
            }
        }
        self.goes_on = !self.piece.is_empty();
    }
}

/// A task's track.
pub(super) struct Joined<'s> {
    threads: Vec<Pieces<'s>>,
    steps: Steps<'s>,
    track: Track,
    /// The thread whose step goes on.
    current: Option<usize>,
    number: u64,
}

impl<'s> Joined<'s> {
    /// `hosts`: segments of each thread that ran the task, the thread's tasks and id, and the task
    /// there.
    pub fn new(
        hosts: impl Iterator<Item = (Box<dyn SegmentCursor + 's>, &'s Tasks, u32, &'s Task)>,
    ) -> Option<Joined<'s>> {
        let mut tasks = None;
        let threads: Vec<_> = hosts
            .map(|(segments, of_thread, tid, task)| {
                tasks = Some(of_thread);
                Pieces::new(segments, of_thread, tid, task)
            })
            .collect();
        let tid = threads.first()?.tid;
        let (steps, track) = (Steps::new(tasks?), Track::new(tid));
        Some(Joined { threads, steps, track, current: None, number: 0 })
    }

    /// The thread whose piece comes next.
    fn next_thread(&self) -> Option<usize> {
        let has_piece = |at: &usize| self.threads.get(*at).is_some_and(|thread| !thread.piece.is_empty());
        let goes_on =
            |at: &usize| has_piece(at) && self.threads.get(*at).is_some_and(|thread| !thread.begins);
        self.current.filter(goes_on).or_else(|| {
            let with_piece = (0..self.threads.len()).filter(has_piece);
            with_piece.min_by_key(|at| self.threads.get(*at).map_or(u64::MAX, |thread| thread.ticks))
        })
    }

    /// Looks through the whole track.
    pub fn scan(mut self, key: ThreadKey) -> Scanned {
        let mut scan = ThreadScan::default();
        // All names are known already.
        let mut names = MarkNames::default();
        let (mut first, mut last) = (u64::MAX, 0);
        let mut words = Vec::new();
        while let Some(segment) = self.next_segment(&mut words) {
            if segment.is_ok() {
                scan.segment(&words, (key.snapshot, &mut names), &mut first, &mut last);
            }
        }
        Scanned::new(scan, (first, last), self.track.into_open())
    }
}

impl SegmentCursor for Joined<'_> {
    fn next_segment(&mut self, out: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        let at = self.next_thread()?;
        let thread = self.threads.get_mut(at)?;
        out.clear();
        self.track.runs_on(thread.tid);
        self.track.segment(thread.high, self.number, out);
        if thread.begins {
            // Of the one before, the end may be missing.
            self.steps.forget_open();
        }
        self.steps.high = thread.high;
        let mut place = 0;
        while place < thread.piece.len() {
            let record = record_at(&thread.piece, place);
            place += record.len().max(1);
            match self.steps.of(record) {
                For::Running(ticks) => give(&mut self.track, record, ticks, out),
                For::Begin(_, ticks) => begin(&mut self.track, record, ticks, out),
                For::End(_, suspended, ticks) => self.track.end(suspended, ticks, out),
                For::Epoch => out.extend(record),
                For::Segment(_) | For::Nothing => {}
            }
        }
        self.current = thread.goes_on.then_some(at);
        thread.advance();
        self.number += 1;
        Some(Ok(self.number - 1))
    }

    fn place(&self) -> Option<SegmentPlace> {
        None
    }
}

/// Combines the scans of a task's track in each thread. `None`: its calls continue in other
/// threads, so the track itself has to be scanned.
pub(super) fn merged(threads: Vec<Scanned>) -> Option<Scanned> {
    if threads.iter().any(|thread| thread.suspends) {
        return None;
    }
    let mut scan = ThreadScan::default();
    let (mut first, mut last) = (u64::MAX, 0);
    let (mut open, mut steps) = (Vec::new(), Vec::new());
    for thread in threads {
        scan.events += thread.scan.events;
        scan.entries += thread.scan.entries;
        scan.losses = scan.losses.saturating_add(thread.scan.losses);
        scan.gaps += thread.scan.gaps;
        scan.gaps_ticks = scan.gaps_ticks.saturating_add(thread.scan.gaps_ticks);
        scan.malformed_words += thread.scan.malformed_words;
        if let Some((begin, end)) = thread.scan.reach_ticks {
            (first, last) = (begin.min(first), end.max(last));
        }
        open.extend(thread.open);
        steps.extend(thread.steps);
    }
    open.sort_by_key(|call| call.ticks);
    steps.sort_unstable();
    // As the track has them.
    let mut left = None;
    for (begin, end) in steps {
        let between = left.map(|left| begin.saturating_sub(left)).filter(|ticks| *ticks >= SHORT_TICKS);
        if let Some(ticks) = between {
            scan.suspended += 1;
            scan.suspended_ticks = scan.suspended_ticks.saturating_add(ticks);
        }
        left = Some(end).filter(|end| *end > 0).or(left);
    }
    Some(Scanned::new(scan, (first, last), open))
}
