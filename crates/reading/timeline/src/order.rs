//! From slot order to the order of time.
//!
//! A signal handler that runs between a hook's clock read and its slot writes its events first, and
//! there may be many. So the last [`WINDOW`] steps are held back and sorted, stably. If later
//! events were returned already, or an event is older than the first existing segment, it keeps its
//! place among the slots, where it nests correctly; it gets the time of the steps before it, and is
//! counted.

use std::collections::VecDeque;

use everycall_reader::event::Events;
use everycall_reader::{SegmentCursor, SegmentPlace};

use crate::marks::{MarkNames, with_name};
use crate::placing::{self, Run};
use crate::slots::{SlotDepth, Step};

/// Steps that an event may be late by and still find its place.
pub(crate) const WINDOW: usize = 1 << 16;

/// Steps behind the present one that are always known, if there are so many.
pub(crate) const AHEAD: usize = 1 << 12;

/// Stretches that are out of order and kept apart.
const DISORDERED_MAX: usize = 1024;

/// Steps of one stamp that are held back until the next one is known. Hooks write fewer, because
/// each segment begins with a stamp.
const RUN_MAX: usize = 4 * WINDOW;

/// The next part of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// [`Ordered::steps`].
    Steps,
    /// Segments are missing here, with so many events if that is known.
    Gap(Option<u64>),
}

/// Where reading can begin again, with the steps that follow the last batch.
#[derive(Clone, Debug)]
pub(crate) struct OrderedPlace {
    /// The segment with the first of them.
    pub segment: SegmentPlace,
    number: u64,
    /// Steps of the segment before that one.
    done: usize,
    /// When the segment begins.
    depth: SlotDepth,
    latest: u64,
    /// After the last batch.
    floor: u64,
    first_segment: u64,
}

/// A segment whose steps may be held back.
#[derive(Debug)]
struct Held {
    segment: Option<SegmentPlace>,
    number: u64,
    /// Number of its first step, from the first one of the thread.
    first: u64,
    depth: SlotDepth,
    latest: u64,
}

/// Steps in two parts, which take turns: the first one is returned as a whole while the second one
/// has those that are held back. So no step is ever moved.
#[derive(Default)]
struct Steps {
    first: Vec<Step>,
    second: Vec<Step>,
}

impl Steps {
    fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    fn get(&self, index: usize) -> Option<&Step> {
        self.first.get(index).or_else(|| self.second.get(index.checked_sub(self.first.len())?))
    }

    /// Where the next steps belong, if `window` steps are held back.
    fn next(&mut self, window: usize) -> &mut Vec<Step> {
        let is_filled = !self.second.is_empty() || self.first.len() >= window.max(1);
        if is_filled { &mut self.second } else { &mut self.first }
    }

    /// Whether there are enough steps behind the first part.
    fn can_spare_first(&self, window: usize) -> bool {
        !self.first.is_empty() && self.second.len() >= window
    }

    /// Moves steps that have the last time of the first part into it. All are in order.
    fn complete_first(&mut self) {
        if let Some(last) = self.first.last().map(|step| step.ticks) {
            let same = self.second.partition_point(|step| step.ticks <= last);
            self.first.extend(self.second.drain(..same));
        }
    }

    /// Whether what has the last time of the first part is all there. All are in order.
    fn is_first_complete(&self) -> bool {
        let last = |steps: &[Step]| steps.last().map(|step| step.ticks);
        last(&self.second) > last(&self.first)
    }

    /// Forgets the first part.
    fn advance(&mut self) {
        self.first.clear();
        std::mem::swap(&mut self.first, &mut self.second);
    }

    /// Forgets the first steps, of the first part.
    fn forget(&mut self, count: usize) {
        self.first.drain(..count.min(self.first.len()));
    }

    fn sort(&mut self) {
        let count = self.first.len();
        self.first.append(&mut self.second);
        self.first.sort_by_key(|step| step.ticks);
        self.second.extend(self.first.drain(count..));
    }
}

/// A thread's steps in the order of time, in batches.
pub(crate) struct Ordered<'a> {
    segments: Box<dyn SegmentCursor + 'a>,
    names: &'a MarkNames,
    /// The thread's process.
    process: usize,
    /// Words of the current segment.
    words: Vec<u64>,
    depth: SlotDepth,
    steps: Steps,
    /// Whether the first ones were returned.
    is_handed_out: bool,
    /// Whether `steps` are in order.
    sorted: bool,
    /// No step may be earlier: earlier steps are missing, or were returned already.
    floor: u64,
    /// The latest time so far.
    latest: u64,
    clamped: u64,
    /// Number of the segment that should come next, once there was one.
    expected: Option<u64>,
    /// Number of the first segment since the last gap.
    first_segment: u64,
    state: State,
    /// Steps that are gone.
    gone: u64,
    /// Segments from that of the first step in `steps` on.
    held: VecDeque<Held>,
    /// First and last number of steps that are not in the order of their slots, or will not be.
    disordered: VecDeque<(u64, u64)>,
    /// Places in `steps` of those that came late in the current segment.
    late: Vec<usize>,
    /// Steps that are held back.
    window: usize,
    is_in_order: bool,
    /// Where events may have no stamp.
    unstamped: Option<Unstamped>,
}

/// The state of events without stamps.
#[derive(Default)]
struct Unstamped {
    /// Those of the last batch.
    runs: Vec<Run>,
    /// Whether the next batch's first event may have the stamp of one that isn't there.
    begins: bool,
    /// When everything had happened, ticks.
    end: Option<u64>,
    /// The stamp of an event that came late. The next events may have it, although they happened
    /// after the events that came before it.
    stale: Option<u64>,
}

/// The begin of the next batch.
enum State {
    /// Reading segments.
    Read,
    /// The current words come behind a gap; the steps before the gap are returned first.
    BehindGap { lost: Option<u64>, number: u64 },
    /// There are no more segments; whether some are missing behind the last one, and how many
    /// events they had.
    Ending { is_cut: bool, lost: Option<u64> },
}

impl<'a> Ordered<'a> {
    pub fn new(segments: Box<dyn SegmentCursor + 'a>, names: &'a MarkNames, process: usize) -> Ordered<'a> {
        Ordered {
            segments,
            names,
            process,
            words: Vec::new(),
            depth: SlotDepth::default(),
            steps: Steps::default(),
            is_handed_out: false,
            sorted: true,
            floor: 0,
            latest: 0,
            clamped: 0,
            expected: None,
            first_segment: 0,
            state: State::Read,
            gone: 0,
            held: VecDeque::new(),
            disordered: VecDeque::new(),
            late: Vec::new(),
            window: WINDOW,
            is_in_order: true,
            unstamped: None,
        }
    }

    /// Allows events without a stamp. They had all happened at `end_ticks`, if that is known.
    #[must_use]
    pub fn with_unstamped(self, end_ticks: Option<u64>) -> Ordered<'a> {
        Ordered { unstamped: Some(Unstamped { end: end_ticks, ..Unstamped::default() }), ..self }
    }

    /// The steps of the last batch that have no stamp.
    pub fn runs(&self) -> &[Run] {
        self.unstamped.as_ref().map_or(&[], |unstamped| &unstamped.runs)
    }

    /// Whether no step came late so far.
    pub fn is_in_order(&self) -> bool {
        self.is_in_order
    }

    /// From now on, only so many steps are held back as throws look ahead.
    pub fn without_late(&mut self) {
        self.window = AHEAD;
    }

    /// Continues at a place, with these segments. `unstamped` is what
    /// [`Ordered::with_unstamped`] gets, if events may have no stamp.
    pub fn resumed(
        segments: Box<dyn SegmentCursor + 'a>,
        names: &'a MarkNames,
        process: usize,
        place: &OrderedPlace,
        unstamped: Option<Option<u64>>,
    ) -> Ordered<'a> {
        let mut ordered = Ordered::new(segments, names, process);
        if let Some(end_ticks) = unstamped {
            ordered = ordered.with_unstamped(end_ticks);
        }
        ordered.expected = Some(place.number);
        ordered.first_segment = place.first_segment;
        ordered.depth = place.depth.clone();
        ordered.latest = place.latest;
        // Nothing is clamped again: what comes before the place is dropped.
        ordered.floor = 0;
        ordered.read();
        ordered.steps.forget(place.done);
        ordered.gone = place.done as u64;
        ordered.floor = place.floor;
        ordered
    }

    /// Where the steps behind the last batch begin; `None` if reading can't begin again there.
    pub fn place(&self) -> Option<OrderedPlace> {
        if !matches!(self.state, State::Read) {
            return None;
        }
        let next = self.gone + self.steps().len() as u64;
        let index = self.held.partition_point(|held| held.first <= next).checked_sub(1)?;
        let held = self.held.get(index)?;
        // Segments that come out of order do so again, unless a part of them has been returned.
        if self.disordered.iter().any(|(first, last)| *first < next && *last >= held.first) {
            return None;
        }
        Some(OrderedPlace {
            segment: held.segment?,
            number: held.number,
            done: usize::try_from(next - held.first).ok()?,
            depth: held.depth.clone(),
            latest: held.latest,
            floor: self.floor,
            first_segment: self.first_segment,
        })
    }

    /// Events that were later than the window and got another time.
    pub fn clamped(&self) -> u64 {
        self.clamped
    }

    /// Times that the depth written by the runtime differed from the depth counted here.
    pub fn depth_disagreements(&self) -> u64 {
        self.depth.disagreements
    }

    /// Whether nothing is missing before the steps of the first batch, or of the first one after a
    /// gap, because they begin with the thread's first segment.
    pub fn begins_with_thread(&self) -> bool {
        self.first_segment == 0
    }

    /// The steps that the last batch consists of, in the order of time.
    pub fn steps(&self) -> &[Step] {
        if self.is_handed_out { &self.steps.first } else { &[] }
    }

    /// Those from the one with this index on, and steps of the next batch, as far as these are known.
    pub fn steps_from(&self, index: usize) -> impl Iterator<Item = &Step> {
        self.steps().get(index..).unwrap_or_default().iter().chain(&self.steps.second)
    }

    /// Prepares the next batch. No step is later than one of the next batch; a gap starts a new
    /// order.
    pub fn next_batch(&mut self) -> Option<Batch> {
        if std::mem::take(&mut self.is_handed_out) {
            self.gone += self.steps.first.len() as u64;
            self.steps.advance();
        }
        while self.held.get(1).is_some_and(|next| next.first <= self.gone) {
            self.held.pop_front();
        }
        let begin = self.held.front().map_or(0, |held| held.first);
        while self.disordered.front().is_some_and(|(_, last)| *last < begin) {
            self.disordered.pop_front();
        }
        loop {
            let is_reading = matches!(self.state, State::Read);
            if is_reading && self.steps.can_spare_first(self.window) && self.is_complete() {
                return Some(self.hand_out());
            }
            match self.state {
                State::Read => self.read(),
                _ if self.steps.len() > 0 => return Some(self.hand_out()),
                State::BehindGap { lost, number } => {
                    self.state = State::Read;
                    self.begin(number);
                    return Some(Batch::Gap(lost));
                }
                State::Ending { is_cut: false, .. } => return None,
                State::Ending { is_cut: true, lost } => {
                    self.state = State::Ending { is_cut: false, lost: None };
                    return Some(Batch::Gap(lost));
                }
            }
        }
    }

    /// Whether the next batch has the whole of its last run, or can't have.
    fn is_complete(&mut self) -> bool {
        if self.unstamped.is_none() || self.steps.second.len() >= RUN_MAX {
            return true;
        }
        self.sort();
        self.steps.is_first_complete()
    }

    fn read(&mut self) {
        let mut damaged = false;
        loop {
            match self.segments.next_segment(&mut self.words) {
                Some(Ok(number)) => {
                    let jump = self.expected.map_or(0, |expected| number.saturating_sub(expected));
                    let begun = self.expected.is_some();
                    self.expected = number.checked_add(1);
                    // Events of a damaged segment weren't lost when they were counted.
                    let lost = Some(self.segments.lost_before()).filter(|lost| *lost > 0 && !damaged);
                    if begun && (jump > 0 || damaged || self.segments.is_cut_before()) {
                        self.state = State::BehindGap { lost, number };
                    } else if begun {
                        self.decode();
                    } else {
                        self.begin(number);
                    }
                    return;
                }
                // Its number is not always known; if it is, the next segment's number gives the
                // count.
                Some(Err(_)) => damaged = true,
                None => {
                    let lost = Some(self.segments.lost_before()).filter(|lost| *lost > 0);
                    let is_cut = self.expected.is_some() && (damaged || lost.is_some());
                    self.state = State::Ending { is_cut, lost: lost.filter(|_| !damaged) };
                    return;
                }
            }
        }
    }

    fn decode(&mut self) {
        let first = self.gone + self.steps.len() as u64;
        if self.held.back().is_some_and(|held| held.first == first) {
            // It had no steps.
            self.held.pop_back();
        }
        self.held.push_back(Held {
            segment: self.segments.place(),
            number: self.expected.unwrap_or(0).wrapping_sub(1),
            first,
            depth: self.depth.clone(),
            latest: self.latest,
        });
        let (process, window) = (self.process, self.window);
        let Ordered { words, names, depth, steps, sorted, floor, latest, clamped, late, unstamped, .. } =
            self;
        let clamped_before = *clamped;
        let mut stale = unstamped.as_mut().map(|unstamped| &mut unstamped.stale);
        let name = |slot, detail| with_name(words, slot, |name| names.number(process, name, detail));
        let line = |slot, ticks| names.logs.step(words, slot, process, ticks);
        let values = |slot| names.values.number(words, slot);
        let exception = |slot| names.values.exception(words, slot);
        let mut latest_now = *latest;
        let mut place = steps.len();
        let steps = steps.next(window);
        let mut in_order = |mut step: Step| {
            if step.ticks < latest_now {
                let is_stale =
                    stale.as_mut().is_some_and(|stale| stale.replace(step.ticks) == Some(step.ticks));
                if is_stale {
                    step.ticks = latest_now;
                } else if step.ticks < *floor {
                    *clamped += 1;
                    step.ticks = latest_now;
                } else {
                    *sorted = false;
                    late.push(place);
                }
            }
            place += 1;
            latest_now = latest_now.max(step.ticks);
            step
        };
        let mut events = Events::new(words);
        loop {
            let plain = events.plain_run().events();
            steps.extend(plain.map(|event| in_order(depth.plain(event))));
            let Some(event) = events.next() else { break };
            steps.extend(depth.step(event, name, line, values, exception).map(&mut in_order));
        }
        *latest = latest_now;
        self.is_in_order &= self.late.is_empty() && self.clamped == clamped_before;
        if !self.late.is_empty() {
            self.note_disorder();
        }
    }

    /// Notes which steps change their places because of those that came late.
    #[cold]
    fn note_disorder(&mut self) {
        for last in self.late.drain(..) {
            let Some(ticks) = self.steps.get(last).map(|step| step.ticks) else { continue };
            let mut first = last;
            loop {
                let before = first.checked_sub(1).and_then(|before| self.steps.get(before));
                if before.is_some_and(|before| before.ticks > ticks) {
                    first -= 1;
                    continue;
                }
                // Others that came late before it go further back.
                let number = self.gone + first as u64;
                match self.disordered.back() {
                    Some((begin, end)) if number > *begin && number <= end + 1 && *begin >= self.gone => {
                        first = (begin - self.gone) as usize;
                        self.disordered.pop_back();
                    }
                    _ => break,
                }
            }
            self.disordered.push_back((self.gone + first as u64, self.gone + last as u64));
            if self.disordered.len() > DISORDERED_MAX
                && let (Some((first, _)), Some((_, last))) =
                    (self.disordered.pop_front(), self.disordered.pop_front())
            {
                self.disordered.push_front((first, last));
            }
        }
    }

    /// Starts again with the current segment.
    fn begin(&mut self, number: u64) {
        self.first_segment = number;
        self.floor = Events::new(&self.words).next().map_or(0, |event| event.ticks);
        self.latest = self.floor;
        if let Some(unstamped) = &mut self.unstamped {
            (unstamped.begins, unstamped.stale) = (number > 0, None);
        }
        self.depth.forget();
        self.decode();
    }

    fn hand_out(&mut self) -> Batch {
        self.sort();
        if self.unstamped.is_some() {
            self.steps.complete_first();
            self.find_runs();
        }
        self.is_handed_out = true;
        self.floor = self.steps().last().map_or(self.floor, |step| step.ticks);
        Batch::Steps
    }

    fn sort(&mut self) {
        if !self.sorted {
            self.steps.sort();
            self.sorted = true;
        }
    }

    /// Finds the events without a stamp in the first part of the steps.
    fn find_runs(&mut self) {
        let Some(unstamped) = &mut self.unstamped else { return };
        let next = self.steps.second.first().map(placing::begin).or_else(|| match self.state {
            State::BehindGap { .. } => Events::new(&self.words).next().map(|event| event.ticks),
            State::Read | State::Ending { .. } => unstamped.end,
        });
        let begins = std::mem::take(&mut unstamped.begins);
        placing::find_runs(&self.steps.first, begins, next, &mut unstamped.runs);
    }
}
