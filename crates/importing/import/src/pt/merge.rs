//! The branches of all CPUs in the order of their times, as calls of threads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Read, Seek, Write};

use everycall_format::arena::ClockReading;
use everycall_intel_pt::{CallSink, Calls, Gap, Time};
use rustc_hash::FxHashMap;

use super::decode::{Event, Task, What};
use super::pieces::Source;
use super::pool::Pool;
use super::space::{Maps, Space};
use super::world::World;
use crate::error::ImportError;
use crate::output::{Code, ModuleFacts, Output, ProcessFacts, ProcessId, ThreadId};

/// The trace of one CPU or thread.
pub(crate) struct Queue {
    source: Source,
    /// Pieces that are being decoded, the first one's number, and whether there are more.
    ahead: VecDeque<Slot>,
    first: u64,
    has_more: bool,
    events: Vec<Event>,
    at: usize,
    /// The time that was reached.
    now: u64,
    /// Where the program is, if the piece before ended there.
    here: Option<u64>,
    /// Which thread runs.
    thread: Option<usize>,
}

enum Slot {
    Running,
    Ready(Box<Task>),
}

impl Queue {
    pub fn new(source: Source) -> Queue {
        Queue {
            source,
            ahead: VecDeque::new(),
            first: 0,
            has_more: true,
            events: Vec::new(),
            at: 0,
            now: 0,
            here: None,
            thread: None,
        }
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub gaps: FxHashMap<Gap, u64>,
    pub missing: u64,
    pub shown: u64,
    pub bad: u64,
    pub jumps: u64,
    pub has_times: bool,
    pub is_truncated: bool,
}

/// Takes the events of all queues.
pub(crate) struct Merger<'w, W> {
    world: &'w World,
    out: &'w mut Output<W>,
    queues: Vec<Queue>,
    threads: Vec<Thread>,
    by_tid: FxHashMap<(u32, u32), usize>,
    shown: FxHashMap<u32, Shown>,
    pub counts: Counts,
}

/// A process that has calls.
struct Shown {
    id: ProcessId,
    space: Space,
    codes: FxHashMap<(u64, u64), Option<Code>>,
    /// First address, last address and code offset of the file that was met last.
    recent: (u64, u64, u32),
}

/// No file was met yet.
const NO_CODE: (u64, u64, u32) = (1, 0, 0);

struct Thread {
    process: u32,
    id: ThreadId,
    calls: Calls,
    last: u64,
}

impl<'w, W: Write> Merger<'w, W> {
    pub fn new(world: &'w World, queues: Vec<Queue>, out: &'w mut Output<W>) -> Merger<'w, W> {
        Merger {
            world,
            out,
            queues,
            threads: Vec::new(),
            by_tid: FxHashMap::default(),
            shown: FxHashMap::default(),
            counts: Counts::default(),
        }
    }

    /// Takes all events: those of each queue in their order, and always the earliest.
    pub fn run(&mut self, input: &mut (impl Read + Seek), pool: &mut Pool<'w>) -> Result<(), ImportError> {
        let mut waiting = BinaryHeap::new();
        for index in 0..self.queues.len() {
            if let Some(now) = self.next(index, input, pool)? {
                waiting.push(Reverse((now, index)));
            }
        }
        while let Some(Reverse((_, index))) = waiting.pop() {
            let limit = waiting.peek().map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
            while let Some(now) = self.next(index, input, pool)? {
                if (now, index) > limit {
                    waiting.push(Reverse((now, index)));
                    break;
                }
                self.take(index).map_err(ImportError::Unwritable)?;
            }
        }
        // What the CPU's last packets tell of happened before it.
        for (index, shown) in &self.shown {
            self.out.lasted(shown.id, self.world.last(*index));
        }
        self.counts.is_truncated = self.queues.iter().any(|queue| queue.source.is_truncated);
        Ok(())
    }

    /// When the next event of a queue happened; `None` if it has no more.
    fn next(
        &mut self,
        index: usize,
        input: &mut (impl Read + Seek),
        pool: &mut Pool<'w>,
    ) -> Result<Option<u64>, ImportError> {
        loop {
            let Some(queue) = self.queues.get_mut(index) else { return Ok(None) };
            if let Some(event) = queue.events.get(queue.at) {
                return Ok(Some(queue.now.max(event.at.ticks)));
            }
            while queue.has_more && queue.ahead.len() < pool.ahead {
                let Some(piece) = queue.source.next(input)? else {
                    queue.has_more = false;
                    break;
                };
                let number = queue.first + queue.ahead.len() as u64;
                let whose = (queue.source.stream.cpu, queue.source.stream.tid);
                pool.send(Box::new(Task::new(index, number, piece, whose, self.world)));
                queue.ahead.push_back(Slot::Running);
            }
            match queue.ahead.pop_front() {
                None => return Ok(None),
                Some(Slot::Ready(mut task)) => {
                    queue.events.clear();
                    queue.at = 0;
                    std::mem::swap(&mut queue.events, &mut task.events);
                    if task.is_done() {
                        queue.first += 1;
                        let (has_time, jumps) = task.times();
                        self.counts.bad += task.bad;
                        self.counts.jumps += jumps;
                        self.counts.has_times |= has_time;
                    } else {
                        pool.send(task);
                        queue.ahead.push_front(Slot::Running);
                    }
                }
                Some(Slot::Running) => {
                    queue.ahead.push_front(Slot::Running);
                    let Some(task) = pool.receive() else {
                        return Err(ImportError::Version("can't be decoded: a thread has failed".to_owned()));
                    };
                    if let Some(queue) = self.queues.get_mut(task.queue)
                        && let Some(slot) = queue.ahead.get_mut((task.number - queue.first) as usize)
                    {
                        *slot = Slot::Ready(task);
                    }
                }
            }
        }
    }

    /// Takes a queue's next event.
    fn take(&mut self, index: usize) -> io::Result<()> {
        let Some(queue) = self.queues.get_mut(index) else { return Ok(()) };
        let Some(event) = queue.events.get(queue.at).copied() else { return Ok(()) };
        queue.at += 1;
        queue.now = queue.now.max(event.at.ticks);
        let now = Time { ticks: queue.now, is_exact: event.at.is_exact && queue.now == event.at.ticks };
        if let What::Runs(process, tid) = event.what {
            let before = queue.thread;
            let thread = self.thread(process, tid)?;
            let Some(queue) = self.queues.get_mut(index) else { return Ok(()) };
            queue.thread = Some(thread);
            if before != Some(thread) && queue.here.take().is_some() {
                // Where it was left isn't known.
                queue.thread = before;
                self.apply(index, now, What::Gap(Gap::Packets))?;
                if let Some(queue) = self.queues.get_mut(index) {
                    queue.thread = Some(thread);
                }
            }
            return Ok(());
        }
        match event.what {
            What::Begin(start) => match (queue.here.take(), start) {
                (Some(here), Some(start)) if here == start.start => Ok(()),
                (None, None) => Ok(()),
                (None, Some(start)) => self.apply(index, now, What::Enter(start)),
                (Some(_), start) => {
                    self.apply(index, now, What::Gap(Gap::Packets))?;
                    start.map_or(Ok(()), |start| self.apply(index, now, What::Enter(start)))
                }
            },
            What::End(here) => {
                queue.here = here;
                self.apply(index, now, event.what)
            }
            other => self.apply(index, now, other),
        }
    }

    #[inline]
    fn apply(&mut self, index: usize, now: Time, what: What) -> io::Result<()> {
        let Some(queue) = self.queues.get_mut(index) else { return Ok(()) };
        if matches!(what, What::Gap(_)) {
            queue.here = None;
        }
        let Some(thread) = queue.thread.and_then(|thread| self.threads.get_mut(thread)) else {
            return Ok(());
        };
        let Some(shown) = self.shown.get_mut(&thread.process) else { return Ok(()) };
        if shown.space.reach(now.ticks) {
            shown.recent = NO_CODE;
        }
        let mut emit = Emit {
            out: self.out,
            thread: thread.id,
            last: &mut thread.last,
            shown,
            world: self.world,
            count: &mut self.counts.shown,
            failed: None,
        };
        let calls = &mut thread.calls;
        match what {
            What::Call { to, return_to } => calls.call(now, &to, return_to, &mut emit),
            What::Ret { from, to } => calls.ret(now, &from, &to, &mut emit),
            What::Jump { from, to } => calls.jump(now, &from, &to, &mut emit),
            What::Leave { from, next } => calls.leave(from, next),
            What::Enter(to) => calls.enter(now, &to, &mut emit),
            What::Gap(why) => {
                *self.counts.gaps.entry(why).or_default() += 1;
                calls.gap(now, &mut emit);
            }
            What::Missing => {
                self.counts.missing += 1;
                calls.missing();
            }
            // Whatever has no later time happened before.
            What::End(_) => emit.out.lasted(emit.shown.id, now.ticks),
            What::Runs(..) | What::Begin(_) => {}
        }
        emit.failed.map_or(Ok(()), Err)
    }

    /// A thread of a process, by their numbers.
    fn thread(&mut self, process: u32, tid: u32) -> io::Result<usize> {
        if let Some(index) = self.by_tid.get(&(process, tid)) {
            return Ok(*index);
        }
        let owner = self.show(process)?;
        let id = self.out.thread(owner, tid, self.world.name(tid), true);
        let index = self.threads.len();
        self.threads.push(Thread { process, id, calls: Calls::default(), last: 0 });
        self.by_tid.insert((process, tid), index);
        Ok(index)
    }

    fn show(&mut self, index: u32) -> io::Result<ProcessId> {
        if let Some(shown) = self.shown.get(&index) {
            return Ok(shown.id);
        }
        let known = self.world.processes.get(index as usize);
        let parent = known.and_then(|process| process.parent);
        let facts = ProcessFacts {
            pid: known.map_or(0, |process| process.pid),
            parent_pid: parent.and_then(|at| self.world.processes.get(at)).map_or(0, |parent| parent.pid),
            parent: parent.and_then(|parent| self.shown.get(&(parent as u32))).map(|shown| shown.id),
            is_fork: known.is_some_and(|process| process.is_fork),
            name: known.map(|process| process.name.clone()).unwrap_or_default(),
            command: Vec::new(),
        };
        let id = self.out.process(facts)?;
        let space = Space::new(self.world.code(index as usize));
        let (names, lost) = self.world.code_names(index as usize);
        self.out.code_names(id, names, lost);
        self.shown.insert(index, Shown { id, space, codes: FxHashMap::default(), recent: NO_CODE });
        Ok(id)
    }

    /// The notes and the clock of the import.
    pub fn finish(self, notes: Vec<String>) {
        let (clocks, counts, out) = (self.world.clocks, self.counts, self.out);
        out.facts.clock = if clocks.are_known {
            "the CPU's time-stamp counter and its rate".to_owned()
        } else {
            "the CPU's time-stamp counter, without its rate".to_owned()
        };
        if let Some((first, last)) = out.reach().filter(|_| clocks.are_known) {
            let reading = |ticks: u64| ClockReading {
                ticks,
                monotonic_raw_ns: clocks.ns(ticks),
                ..ClockReading::default()
            };
            out.facts.readings =
                [first, last.max(first.saturating_add(1))].into_iter().map(reading).collect();
        }
        out.facts.has_bounds = counts.has_times;
        let list = &mut out.facts.notes;
        list.push("functions in which the trace begins, or goes on behind a gap, began earlier".to_owned());
        list.extend(notes);
        list.extend(self.world.notes());
        let mut gaps: Vec<(Gap, u64)> = counts.gaps.into_iter().collect();
        gaps.sort_unstable();
        for (gap, count) in gaps {
            let why = match gap {
                Gap::Overflow => "the CPU could not write the trace fast enough",
                Gap::Packets => "packets are damaged or missing",
                Gap::Code => {
                    "the trace and the code of the files don't agree (code that changed while it ran, or other builds)"
                }
                Gap::Recorder => "perf lost a part of the trace",
            };
            list.push(format!("in {count} places {why}: calls there are missing"));
        }
        if counts.bad > 0 {
            list.push(format!("{} packets are of no known kind", counts.bad));
        }
        if counts.missing > 0 {
            list.push(format!(
                "the program was {} times in code that isn't known: calls within it are missing",
                counts.missing
            ));
        }
        if counts.jumps > 0 {
            list.push(format!(
                "the time-stamp counter went back {} times: times wait until it is where it was",
                counts.jumps
            ));
        }
        if !counts.has_times {
            list.push("the trace has no times: it was recorded with tsc=0".to_owned());
        }
        if counts.is_truncated {
            list.push("the file is truncated within the trace".to_owned());
        }
    }
}

/// Where the calls of a thread go.
struct Emit<'e, W> {
    out: &'e mut Output<W>,
    thread: ThreadId,
    last: &'e mut u64,
    shown: &'e mut Shown,
    world: &'e World,
    count: &'e mut u64,
    failed: Option<io::Error>,
}

impl<W: Write> Emit<'_, W> {
    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.failed = Some(error);
        }
    }

    /// The time of an event of the thread.
    fn time(&mut self, at: Time) -> u64 {
        // CPUs' counters may differ a little.
        if at.ticks > *self.last {
            *self.last = at.ticks;
            if !at.is_exact {
                let result = self.out.no_earlier(self.thread, at.ticks);
                self.note(result);
            }
        }
        *self.last
    }

    #[inline]
    fn code(&mut self, address: u64) -> Option<Code> {
        let (start, end, code) = self.shown.recent;
        if (start..end).contains(&address) {
            return Some(Code(code + (address - start) as u32));
        }
        let maps: &Maps = &self.shown.space.maps;
        let map = maps.find(address)?;
        let files = &self.world.files;
        if map.is_generated() || map.file.is_none() && files.is_memory(map.number) {
            return None;
        }
        let key = (map.start, map.offset ^ u64::from(map.number) << 48);
        let code = match self.shown.codes.get(&key).copied() {
            Some(code) => code,
            None => {
                let name = files.name(map.number);
                let build_id = match map.file.as_ref() {
                    Some(file) => file.build_id.clone(),
                    None => name.map(|name| name.build_id.clone()).unwrap_or_default(),
                };
                let base = map
                    .file
                    .as_ref()
                    .map_or(map.start.wrapping_sub(map.offset), |file| file.bias(map.start, map.offset));
                let facts = ModuleFacts {
                    path: name.map(|name| name.path.clone()).unwrap_or_default(),
                    build_id,
                    base,
                    start: map.start,
                    end: map.end,
                    loaded: map.from,
                    image: None,
                };
                let code = self.out.module(self.shown.id, facts);
                self.shown.codes.insert(key, code);
                code
            }
        };
        let code = code?;
        self.shown.recent = (map.start, map.end, code.0);
        Some(Code(code.0 + (address - map.start) as u32))
    }

    fn call(&mut self, at: Time, address: u64, is_exit: bool) {
        *self.count += 1;
        let ticks = self.time(at);
        let code = self.code(address);
        let result = crate::modules::call(self.out, self.thread, ticks, (address, code), is_exit);
        self.note(result);
    }
}

impl<W: Write> CallSink for Emit<'_, W> {
    #[inline]
    fn entry(&mut self, at: Time, address: u64) {
        self.call(at, address, false);
    }

    #[inline]
    fn exit(&mut self, at: Time, address: u64) {
        self.call(at, address, true);
    }

    fn unwound(&mut self, at: Time, count: u32) {
        let ticks = self.time(at);
        let result = self.out.unwound(self.thread, ticks, count);
        self.note(result);
    }

    fn lose(&mut self, at: Time) {
        self.time(at);
        let result = self.out.lose(self.thread, None);
        self.note(result);
    }
}
