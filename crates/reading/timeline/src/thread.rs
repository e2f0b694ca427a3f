//! The timeline of one thread, as an iterator.

use std::sync::Arc;

use everycall_reader::{Ending, EventClock, Process, Reason, SegmentCursor, Source};

use crate::clock::Clock;
use crate::code::Code;
use crate::location::ModuleMap;
use crate::marks::MarkNames;
use crate::narrowing::{Narrowed, NarrowedState};
use crate::order::{Batch, Ordered, OrderedPlace};
use crate::pairing::{Cuts, ListedCall, Pairing, PairingState};
use crate::slots::StepKind;
use crate::thread_info::ThreadInfo;
use everycall_calls::PairingStats;
use everycall_calls::TimelineEvent;

/// Steps that are processed together; their results are stored until they are requested.
const STEPS_AT_ONCE: usize = 512;

/// A place in a thread's timeline, at which
/// [`Trace::thread_events_from`](crate::Trace::thread_events_from) continues.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    ordered: OrderedPlace,
    pairing: PairingState,
    narrowed: Option<NarrowedState>,
    cuts: Vec<Arc<Cuts>>,
    first_ticks: Option<u64>,
}

impl Checkpoint {
    /// Bytes that it occupies, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Checkpoint>() + self.pairing.bytes() + self.cuts.len() * size_of::<Arc<Cuts>>()
    }
}

/// The timeline of one thread. Memory stays the same however long the thread is.
pub struct ThreadEvents<'t> {
    out: Vec<TimelineEvent>,
    /// How many of `out` were given away.
    given: usize,
    /// `None` where there is no such thread.
    maker: Option<Maker<'t>>,
    stats: PairingStats,
    /// At the end: [`ThreadEvents::is_in_order`].
    was_in_order: bool,
    narrowed: Option<Narrowed<'t>>,
    /// Whether checkpoints are made, and the last one that wasn't taken.
    makes_checkpoints: bool,
    checkpoint: Option<Checkpoint>,
}

impl<'t> ThreadEvents<'t> {
    pub(crate) fn new(
        source: &'t dyn Source,
        thread: Option<&ThreadInfo>,
        clock: &'t Clock,
        modules: &'t ModuleMap,
        names: &'t MarkNames,
        code: Option<&'t dyn Code>,
        resumed: Option<&Checkpoint>,
    ) -> ThreadEvents<'t> {
        let cuts = resumed.map(|checkpoint| checkpoint.cuts.clone());
        ThreadEvents::of(thread.map(|thread| Maker::new(source, thread, clock, modules, names, code, cuts)))
    }

    /// The timeline of segments, as if nothing else of their thread existed, and how many calls
    /// that began before end in it. `unstamped`: events may have no stamp, and had happened then, in
    /// ticks, if that is known.
    pub(crate) fn alone<S: SegmentCursor + 't>(
        segments: impl Fn() -> S,
        pairing: impl Fn() -> Pairing<'t>,
        names: &'t MarkNames,
        process: usize,
        unstamped: Option<Option<u64>>,
    ) -> (ThreadEvents<'t>, u32) {
        let ordered = || Ordered::new(Box::new(segments()), names, process);
        let cuts = collect_cuts(ordered(), pairing());
        let begun = cuts.last().map_or(0, |cuts| cuts.open_calls());
        let ordered = || match unstamped {
            Some(end_ticks) => ordered().with_unstamped(end_ticks),
            None => ordered(),
        };
        (ThreadEvents::of(Some(Maker::of(ordered(), pairing(), cuts, names, process))), begun)
    }

    fn of(maker: Option<Maker<'t>>) -> ThreadEvents<'t> {
        ThreadEvents {
            out: Vec::new(),
            given: 0,
            maker,
            stats: PairingStats::default(),
            was_in_order: true,
            narrowed: None,
            makes_checkpoints: false,
            checkpoint: None,
        }
    }

    /// Continues at a checkpoint of the same thread; false if its segment can't be read any more.
    pub(crate) fn resume(
        &mut self,
        source: &'t dyn Source,
        key: everycall_reader::ThreadKey,
        at: &Checkpoint,
    ) -> bool {
        let (Some(maker), Some(segments)) = (&mut self.maker, source.segments_from(key, at.ordered.segment))
        else {
            return false;
        };
        maker.resume(segments, at);
        if let (Some(narrowed), Some(state)) = (&mut self.narrowed, &at.narrowed) {
            narrowed.resume(state);
        }
        true
    }

    /// Whether no event so far came later than others that happened after it.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.maker.as_ref().map_or(self.was_in_order, |maker| maker.ordered.is_in_order())
    }

    /// From now on, doesn't wait for events that come late: where it is known that there are none,
    /// the next events are there sooner.
    pub fn without_late(&mut self) {
        if let Some(maker) = &mut self.maker {
            maker.ordered.without_late();
        }
    }

    /// From now on, checkpoints are made now and then.
    pub fn make_checkpoints(&mut self) {
        self.makes_checkpoints = true;
    }

    /// A checkpoint directly before the event that was returned last, or before the first one of
    /// [`ThreadEvents::next_some`], if one was made there.
    pub fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        self.checkpoint.take()
    }

    /// Leaves only what a session requested.
    pub(crate) fn narrowed(self, narrowed: Option<Narrowed<'t>>) -> ThreadEvents<'t> {
        ThreadEvents { narrowed, ..self }
    }

    /// The counts of pairing so far; final when the iterator has ended.
    #[must_use]
    pub fn stats(&self) -> PairingStats {
        self.maker.as_ref().map_or(self.stats, Maker::stats)
    }

    /// The next events, several at once: for long timelines, this is faster than one by one. Empty
    /// at the end.
    pub fn next_some(&mut self) -> &[TimelineEvent] {
        if self.given >= self.out.len() {
            self.refill();
        }
        let given = std::mem::replace(&mut self.given, self.out.len());
        self.out.get(given..).unwrap_or_default()
    }

    /// Makes more events, none of which are given away; false at the end.
    #[cold]
    fn refill(&mut self) -> bool {
        self.out.clear();
        self.given = 0;
        self.checkpoint = None;
        while self.out.is_empty() {
            let Some(maker) = self.maker.as_mut() else { return false };
            if self.makes_checkpoints
                && let Some(mut checkpoint) = maker.checkpoint()
            {
                checkpoint.narrowed = self.narrowed.as_ref().map(Narrowed::state);
                self.checkpoint = Some(checkpoint);
            }
            if !maker.make(&mut self.out) {
                self.stats = maker.stats();
                self.was_in_order = maker.ordered.is_in_order();
                self.maker = None;
            }
            if let Some(narrowed) = &mut self.narrowed {
                narrowed.narrow(&mut self.out);
            }
        }
        true
    }
}

impl Iterator for ThreadEvents<'_> {
    type Item = TimelineEvent;

    #[inline]
    fn next(&mut self) -> Option<TimelineEvent> {
        if self.given >= self.out.len() && !self.refill() {
            return None;
        }
        let event = self.out.get(self.given).copied();
        self.given += 1;
        event
    }
}

impl std::fmt::Debug for ThreadEvents<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadEvents").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Makes a thread's timeline piece by piece.
struct Maker<'t> {
    ordered: Ordered<'t>,
    /// How many of the batch's steps were worked off.
    done: usize,
    /// The run of the batch with the next step without a stamp.
    next_run: usize,
    pairing: Pairing<'t>,
    /// Calls open at the end, outermost first.
    listed: Vec<ListedCall>,
    /// Calls and spans truncated at the beginning of each stretch without missing segments, the
    /// last stretch first.
    cuts: Vec<Arc<Cuts>>,
    names: &'t MarkNames,
    process: usize,
    /// Time of the first event, once there was one.
    first_ticks: Option<u64>,
    /// Whether the next steps begin a stretch.
    begins: bool,
    /// When the snapshot was taken.
    end_ticks: Option<u64>,
    /// Whether nothing ran any more when the list of open calls was made.
    is_exact: bool,
    /// Whether events may have no stamp.
    is_unstamped: bool,
    is_finished: bool,
}

impl<'t> Maker<'t> {
    fn new(
        source: &'t dyn Source,
        thread: &ThreadInfo,
        clock: &'t Clock,
        modules: &'t ModuleMap,
        names: &'t MarkNames,
        code: Option<&'t dyn Code>,
        cuts: Option<Vec<Arc<Cuts>>>,
    ) -> Maker<'t> {
        let key = thread.key;
        let mut cursor = 0;
        let listed = source
            .open_calls(key)
            .into_iter()
            .map(|call| ListedCall {
                ticks: call.ticks,
                location: call.offset.map(|offset| modules.locate(&mut cursor, offset, call.ticks)),
            })
            .collect();
        let ordered = || Ordered::new(source.segments(key), names, thread.process);
        let pairing = || Pairing::new(clock.walk(), modules, code);
        let cuts = match cuts {
            Some(cuts) => cuts,
            None if thread.is_complete => Vec::new(),
            None => collect_cuts(ordered(), pairing()),
        };
        let snapshot = source.recording().snapshots.get(key.snapshot);
        let process = source.recording().processes.get(thread.process);
        let is_over = process.is_some_and(|process| matches!(process.ending, Ending::Ended | Ending::Exec));
        let at_process_end = snapshot.is_some_and(|snapshot| match snapshot.reason {
            Reason::ProcessEnd => true,
            Reason::Stream => is_over && snapshot.ticks.is_some(),
            _ => false,
        });
        let end_ticks = snapshot.and_then(|snapshot| snapshot.ticks);
        let is_unstamped = has_unstamped(process) && !thread.is_sampled;
        let (mut ordered, mut pairing) = (ordered(), pairing());
        if is_unstamped {
            ordered = ordered.with_unstamped(end_ticks);
            pairing.may_be_unstamped();
        }
        Maker {
            listed,
            end_ticks,
            is_exact: at_process_end && thread.deep == 0,
            is_unstamped,
            ..Maker::of(ordered, pairing, cuts, names, thread.process)
        }
    }

    /// One that knows nothing of the thread's end.
    fn of(
        ordered: Ordered<'t>,
        pairing: Pairing<'t>,
        cuts: Vec<Arc<Cuts>>,
        names: &'t MarkNames,
        process: usize,
    ) -> Maker<'t> {
        Maker {
            ordered,
            done: 0,
            next_run: 0,
            pairing,
            listed: Vec::new(),
            cuts,
            names,
            process,
            first_ticks: None,
            begins: true,
            end_ticks: None,
            is_exact: false,
            is_unstamped: false,
            is_finished: false,
        }
    }

    /// The state between two batches.
    fn checkpoint(&self) -> Option<Checkpoint> {
        let is_between = self.done >= self.ordered.steps().len() && !self.begins && !self.is_finished;
        Some(Checkpoint {
            ordered: self.ordered.place().filter(|_| is_between)?,
            pairing: self.pairing.state()?,
            narrowed: None,
            cuts: self.cuts.clone(),
            first_ticks: self.first_ticks,
        })
    }

    fn resume(&mut self, segments: Box<dyn SegmentCursor + 't>, at: &Checkpoint) {
        let unstamped = self.is_unstamped.then_some(self.end_ticks);
        self.ordered = Ordered::resumed(segments, self.names, self.process, &at.ordered, unstamped);
        self.pairing.resume(&at.pairing);
        (self.done, self.next_run, self.first_ticks, self.begins) = (0, 0, at.first_ticks, false);
    }

    /// Makes a few more events; false when there will be none.
    fn make(&mut self, out: &mut Vec<TimelineEvent>) -> bool {
        if self.pairing.is_busy() {
            self.pairing.go_on(out);
            return true;
        }
        let steps = self.ordered.steps();
        if self.done < steps.len() {
            let until = steps.len().min(self.done + STEPS_AT_ONCE);
            let runs = self.ordered.runs();
            if !runs.is_empty() {
                while self.done < until && !self.pairing.is_busy() {
                    let (step, number) = (&steps[self.done], self.done);
                    self.done += 1;
                    if let StepKind::Throw(..) = step.kind {
                        self.pairing.look_ahead(step, self.ordered.steps_from(self.done));
                    }
                    match runs.get(self.next_run).filter(|run| run.first <= number) {
                        None => self.pairing.step(step, out),
                        Some(run) => {
                            self.pairing.unstamped_step(step, run, number, out);
                            self.next_run += usize::from(number + 1 == run.first + run.count);
                        }
                    }
                }
                return true;
            }
            for step in &steps[self.done..until] {
                self.done += 1;
                if let StepKind::Throw(..) = step.kind {
                    self.pairing.look_ahead(step, self.ordered.steps_from(self.done));
                }
                self.pairing.step(step, out);
                if self.pairing.is_busy() {
                    break;
                }
            }
            return true;
        }
        (self.done, self.next_run) = (0, 0);
        match self.ordered.next_batch() {
            Some(Batch::Steps) => self.begin(out),
            Some(Batch::Gap(count)) => {
                self.pairing.gap(&self.listed, count, out);
                self.begins = true;
            }
            None if self.is_finished => return false,
            None => {
                self.is_finished = true;
                if std::mem::take(&mut self.begins) {
                    self.pairing.begin(u64::MAX, &self.listed, Cuts::default(), out);
                }
                let listed = std::mem::take(&mut self.listed);
                let first = self.first_ticks.unwrap_or(u64::MAX);
                self.pairing.finish(listed, first, self.end_ticks, self.is_exact);
            }
        }
        true
    }

    fn begin(&mut self, out: &mut Vec<TimelineEvent>) {
        let Some(step) = self.ordered.steps().first() else { return };
        self.first_ticks.get_or_insert(step.ticks);
        if std::mem::take(&mut self.begins) {
            let cuts = self.cuts.pop().map(Arc::unwrap_or_clone).unwrap_or_default();
            self.pairing.begin(step.ticks, &self.listed, cuts, out);
        }
    }

    fn stats(&self) -> PairingStats {
        PairingStats {
            clamped: self.ordered.clamped(),
            depth_disagreements: self.ordered.depth_disagreements(),
            ..self.pairing.stats()
        }
    }
}

/// Whether events of a process may have no stamp.
pub(crate) fn has_unstamped(process: Option<&Process>) -> bool {
    process.is_some_and(|process| process.stamps.clock != EventClock::Exact)
}

/// Goes through a thread once to learn which calls and spans began before each stretch of events
/// and ended in it; the last stretch comes first.
fn collect_cuts(mut ordered: Ordered<'_>, mut pairing: Pairing<'_>) -> Vec<Arc<Cuts>> {
    let mut stretches = Vec::new();
    let mut out = Vec::new();
    let mut begins = true;
    while let Some(batch) = ordered.next_batch() {
        match batch {
            Batch::Steps => {
                if std::mem::take(&mut begins) {
                    pairing.collect(!ordered.begins_with_thread());
                }
                for step in ordered.steps() {
                    pairing.step(step, &mut out);
                    while pairing.is_busy() {
                        out.clear();
                        pairing.go_on(&mut out);
                    }
                    out.clear();
                }
            }
            Batch::Gap(_) => {
                if !begins {
                    stretches.push(Arc::new(pairing.collected()));
                }
                begins = true;
            }
        }
    }
    if !begins {
        stretches.push(Arc::new(pairing.collected()));
    }
    stretches.reverse();
    stretches
}
