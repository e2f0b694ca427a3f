//! The timeline of one thread while it is being written: events are available as soon as their
//! words are written.
//!
//! Everything that needs later words is left out: calls that began before the first word are known
//! only if they are listed as open. Events of a signal handler that interrupted a hook are ordered
//! within the words that are read at once.

use std::cell::RefCell;

use everycall_reader::OpenCall;
use everycall_reader::event::Events;

use crate::code::Code;
use crate::location::ModuleMap;
use crate::marks::{MarkNames, with_name};
use crate::pairing::{Cuts, ListedCall, Pairing};
use crate::placing::{self, Run};
use crate::slots::{SlotDepth, Step, StepKind};
use crate::thread::has_unstamped;
use crate::trace::Trace;
use everycall_calls::Location;
use everycall_calls::ValuesNumber;
use everycall_calls::{Mark, MarkKind, TimelineEvent};

/// One thread's timeline, as far as it was written.
pub struct LiveThread<'t> {
    modules: &'t ModuleMap,
    depth: SlotDepth,
    pairing: Pairing<'t>,
    names: RefCell<MarkNames>,
    process: usize,
    /// Whether there was an event.
    has_begun: bool,
    /// The latest time so far.
    latest: u64,
    steps: Vec<Step>,
    /// Where events may have no stamp: those of the steps that are read.
    runs: Option<Vec<Run>>,
    /// The steps that are read had happened then, ticks.
    read_ticks: u64,
}

/// The state that is kept when the modules of a process change and everything else is rebuilt.
#[derive(Clone, Debug)]
pub struct LiveCarry {
    depth: SlotDepth,
    open: Vec<(u64, Location)>,
    latest: u64,
}

impl<'t> LiveThread<'t> {
    /// A thread of process `process` of `trace`, which has the modules and the clock. `code` as in
    /// [`Trace::thread_events_checked`]; `carry` is the state of the previous one.
    #[must_use]
    pub fn new(
        trace: &'t Trace<'_>,
        process: usize,
        code: Option<&'t dyn Code>,
        carry: Option<LiveCarry>,
    ) -> LiveThread<'t> {
        let modules = trace.modules_of(process);
        let mut thread = LiveThread {
            modules,
            depth: SlotDepth::default(),
            pairing: Pairing::new(trace.clock().walk(), modules, code),
            names: RefCell::new(trace.mark_names().clone()),
            process,
            has_begun: false,
            latest: 0,
            steps: Vec::new(),
            runs: has_unstamped(trace.processes().get(process)).then(Vec::new),
            read_ticks: 0,
        };
        if thread.runs.is_some() {
            thread.pairing.may_be_unstamped();
        }
        if let Some(LiveCarry { depth, open, latest }) = carry {
            let listed: Vec<ListedCall> = open
                .into_iter()
                .map(|(ticks, location)| ListedCall { ticks, location: Some(location) })
                .collect();
            // They were begun already.
            thread.pairing.begin(u64::MAX, &listed, Cuts::default(), &mut Vec::new());
            (thread.depth, thread.latest, thread.has_begun) = (depth, latest, true);
        }
        thread
    }

    /// Its present state.
    #[must_use]
    pub fn carry(&self) -> LiveCarry {
        LiveCarry { depth: self.depth.clone(), open: self.pairing.open_now(), latest: self.latest }
    }

    /// Reads the words after the first `done` words of a segment; `words` are all of its written
    /// words. `open` are the calls that were open before, if nothing was read yet.
    pub fn read(&mut self, words: &[u64], done: usize, open: &[OpenCall], out: &mut Vec<TimelineEvent>) {
        let names = &self.names;
        names.borrow_mut().values.forget_old();
        let process = self.process;
        let name = |slot, detail| {
            with_name(words, slot, |name| {
                let mut names = names.borrow_mut();
                names.count(process, name, detail);
                names.number(process, name, detail)
            })
        };
        let line = |slot, ticks| {
            let mut names = names.borrow_mut();
            names.logs.add(words, slot, process, ticks);
            names.logs.step(words, slot, process, ticks)
        };
        let values = |slot| {
            let mut names = names.borrow_mut();
            names.values.add(words, slot);
            names.values.number(words, slot)
        };
        let exception = |slot| {
            let mut names = names.borrow_mut();
            names.values.add_exception(words, slot);
            names.values.exception(words, slot)
        };
        let mut steps = std::mem::take(&mut self.steps);
        for event in Events::new(words) {
            if (event.slot as usize) < done {
                continue;
            }
            if let Some(mut step) = self.depth.step(event, name, line, values, exception) {
                step.ticks = step.ticks.max(self.latest);
                steps.push(step);
            }
        }
        if !steps.is_sorted_by_key(|step| step.ticks) {
            steps.sort_by_key(|step| step.ticks);
        }
        if let (false, Some(first)) = (self.has_begun, steps.first()) {
            self.has_begun = true;
            let listed = self.listed(open);
            self.pairing.begin(first.ticks, &listed, Cuts::default(), out);
        }
        let mut runs = self.runs.take();
        if let Some(runs) = &mut runs {
            let begins = done > 0 || steps.first().is_some_and(|step| step.ticks == self.latest);
            placing::find_runs(&steps, begins, None, runs);
            if let Some(last) = runs.last_mut().filter(|run| run.first + run.count == steps.len()) {
                (last.until, last.is_open) = (last.until.max(self.read_ticks), true);
            }
        }
        let mut unstamped = runs.iter().flatten().peekable();
        for (number, step) in steps.iter().enumerate() {
            if let StepKind::Throw(..) = step.kind {
                self.pairing.look_ahead(step, steps.iter().skip(number + 1));
            }
            while unstamped.next_if(|run| run.first + run.count <= number).is_some() {}
            match unstamped.peek().filter(|run| run.first <= number) {
                None => self.pairing.step(step, out),
                Some(run) => self.pairing.unstamped_step(step, run, number, out),
            }
            self.finish_step(out);
            if !matches!(step.kind, StepKind::Gap(..) | StepKind::Resumed(..)) {
                self.latest = self.latest.max(step.ticks);
            }
        }
        steps.clear();
        (self.steps, self.runs) = (steps, runs);
    }

    /// The words that are read next had happened by then, ticks: this bounds the times of the last
    /// events, if events may have no times of their own.
    pub fn had_happened_by(&mut self, ticks: u64) {
        self.read_ticks = ticks;
    }

    /// Segments with this many events were lost; `open` are the calls that are open now.
    pub fn lose(&mut self, count: u64, open: &[OpenCall], out: &mut Vec<TimelineEvent>) {
        let listed = self.listed(open);
        self.pairing.gap(&listed, Some(count), out);
        self.finish_step(out);
        self.depth.forget();
        // Calls that began in the gap and are open are listed.
        self.has_begun = false;
    }

    /// It writes no more, and `open` are the calls that it has left open: the others had ended.
    pub fn finish(&mut self, open: &[OpenCall], out: &mut Vec<TimelineEvent>) {
        let listed = self.listed(open);
        self.pairing.finish(listed, 0, None, false);
        self.finish_step(out);
    }

    fn listed(&self, open: &[OpenCall]) -> Vec<ListedCall> {
        let mut cursor = 0;
        let mut location =
            |call: &OpenCall| call.offset.map(|offset| self.modules.locate(&mut cursor, offset, call.ticks));
        open.iter().map(|call| ListedCall { ticks: call.ticks, location: location(call) }).collect()
    }

    fn finish_step(&mut self, out: &mut Vec<TimelineEvent>) {
        while self.pairing.is_busy() {
            self.pairing.go_on(out);
        }
    }

    /// Layout id and bytes of a capture in the events that were read last.
    #[must_use]
    pub fn capture(&self, number: ValuesNumber) -> Option<(u32, Vec<u8>)> {
        let names = self.names.borrow();
        names.values.get(number).map(|(id, bytes)| (id, bytes.to_vec()))
    }

    /// The text of a mark: its name, or a log line, whose format `format_at` reads. `task_at` gives
    /// the names of tasks that are named by code, by its address.
    #[must_use]
    pub fn mark_text(
        &self,
        mark: &Mark,
        format_at: impl FnOnce(Location) -> Option<Vec<u8>>,
        task_at: impl FnOnce(u64) -> Option<String>,
    ) -> String {
        let names = self.names.borrow();
        match mark.kind {
            MarkKind::Log | MarkKind::Output(_) => names.logs.text(mark.name, format_at),
            MarkKind::Wake | MarkKind::Step => names.text_with(mark.name, task_at),
            _ => names.text(mark.name).to_owned(),
        }
    }
}

/// How many of the words of a segment were written before a time in ticks, as far as this is known.
#[must_use]
pub fn settled_words(words: &[u64], before: u64) -> usize {
    let young = Events::new(words).find(|event| event.ticks >= before);
    young.map_or(words.len(), |event| event.slot as usize)
}

impl std::fmt::Debug for LiveThread<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveThread").field("latest", &self.latest).finish_non_exhaustive()
    }
}
