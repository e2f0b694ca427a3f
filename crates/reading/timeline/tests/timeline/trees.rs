//! Random call trees, written as the runtime would write them, come back as they were.

use std::collections::HashMap;

use everycall_reader::event::Events;
use everycall_reader::{ArenaImage, TraceFile};
use everycall_synth::{File, Process, Ring, Rng, arena_image};
use everycall_timeline::{EndKind, LiveThread, Location, PairingStats, TimelineEvent, Trace};

/// Something that a thread did, in slot order.
#[derive(Clone, Debug)]
struct Op {
    ticks: u64,
    what: What,
    segment: u64,
}

#[derive(Clone, Debug)]
enum What {
    Enter(u32),
    Exit(u32),
    /// These calls were left, innermost first.
    Unwind(Vec<u32>),
}

/// A program that makes calls by chance.
struct Program {
    ring: Ring,
    rng: Rng,
    now: u64,
    next_offset: u32,
    /// Offsets of the open calls: the open-call stack.
    open: Vec<u32>,
    ops: Vec<Op>,
    /// Calls that it may still make.
    budget: usize,
    handlers: usize,
}

const START: u64 = 0xffff_0000;

impl Program {
    fn new(seed: u64, segment_words: usize, capacity: usize, budget: usize) -> Program {
        Program {
            ring: Ring::new(segment_words, capacity, START),
            rng: Rng::new(seed),
            now: START,
            next_offset: 0x1000,
            open: Vec::new(),
            ops: Vec::new(),
            budget,
            handlers: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.now += if self.rng.one_in(40) { 0x7000_0000 } else { 1 + self.rng.below(20) };
        self.now
    }

    fn log(&mut self, ticks: u64, what: What) {
        self.ops.push(Op { ticks, what, segment: self.ring.newest_segment() });
    }

    /// A signal handler may run between a hook's clock read and its slot.
    fn maybe_interrupt(&mut self) {
        if self.handlers < 2 && self.rng.one_in(12) {
            self.handlers += 1;
            for _ in 0..=self.rng.below(3) {
                self.call(1);
            }
            self.handlers -= 1;
        }
    }

    fn enter(&mut self) -> u32 {
        let offset = self.next_offset;
        self.next_offset += 16;
        self.budget = self.budget.saturating_sub(1);
        let ticks = self.tick();
        self.maybe_interrupt();
        // A handler may also run when the slot is reserved and the call not yet opened.
        let slot = if self.rng.one_in(3) { self.ring.reserve(ticks) } else { None };
        if let Some(slot) = slot {
            let segment = self.ring.newest_segment();
            let at = self.ops.len();
            self.maybe_interrupt();
            self.ring.fill(slot, ticks, offset);
            self.ops.insert(at, Op { ticks, what: What::Enter(offset), segment });
        } else {
            self.ring.enter(ticks, offset);
            self.log(ticks, What::Enter(offset));
        }
        self.open.push(offset);
        offset
    }

    /// Calls that are never left by an exit.
    fn enter_many(&mut self) {
        for _ in 0..=self.rng.below(4) {
            self.enter();
        }
    }

    fn call(&mut self, level: u64) {
        let offset = self.enter();
        let depth = self.open.len();
        while self.budget > 0 && self.rng.below(level + 2) < 2 {
            self.call(level + 1);
        }
        let throws = self.rng.one_in(10);
        if throws {
            self.enter_many();
        }
        let ticks = self.tick();
        if throws {
            let left: Vec<u32> = self.open.drain(depth..).rev().collect();
            self.ring.unwind_counted(ticks, depth);
            self.log(ticks, What::Unwind(left));
        } else {
            self.maybe_interrupt();
        }
        self.ring.exit(ticks, offset);
        self.open.pop();
        self.log(ticks, What::Exit(offset));
    }

    fn run(mut self) -> Program {
        while self.budget > 0 {
            self.call(0);
        }
        self.enter_many();
        self
    }

    fn process(&self) -> Process {
        Process::of_one_thread(self.ring.clone(), START, self.now + 100)
    }
}

/// A begin or end, as the test compares it; times in ticks, because a tick is a nanosecond here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seen {
    Begin { depth: u32, offset: u64, start: u64, cut: bool },
    End { offset: u64, start: u64, end: u64, how: EndKind, cut: bool },
}

/// The timeline of the only thread, its strict nesting checked.
fn seen(trace: &Trace<'_>, checked: bool) -> (Vec<Seen>, PairingStats) {
    let same = |entry: Location, exit: Location| Some(entry == exit);
    let mut events =
        if checked { trace.thread_events_checked(0, Some(&same)) } else { trace.thread_events(0) };
    let seen = strict(trace, events.by_ref());
    (seen, events.stats())
}

/// Events, their strict nesting checked.
fn strict(trace: &Trace<'_>, events: impl Iterator<Item = TimelineEvent>) -> Vec<Seen> {
    let origin = trace.clock().origin_ticks();
    let mut stack = Vec::new();
    let mut now = 0;
    let mut seen = Vec::new();
    for event in events {
        assert!(event.at_ns() >= now, "{event:?} at {now}");
        now = event.at_ns();
        match event {
            TimelineEvent::Begin(begin) => {
                assert_eq!(begin.depth as usize, stack.len());
                stack.push(begin);
                let offset = begin.location.image_address;
                seen.push(Seen::Begin {
                    depth: begin.depth,
                    offset,
                    start: origin + begin.start_ns,
                    cut: begin.cut,
                });
            }
            TimelineEvent::End(end) => {
                let begin = stack.pop().expect("an end has its begin");
                assert_eq!(
                    (begin.depth, begin.location, begin.start_ns),
                    (end.depth, end.location, end.start_ns)
                );
                let offset = end.location.image_address;
                let (start, end_ticks) = (origin + end.start_ns, origin + end.end_ns);
                seen.push(Seen::End { offset, start, end: end_ticks, how: end.how, cut: end.start_cut });
            }
            _ => {}
        }
    }
    assert!(stack.is_empty(), "every begin has its end");
    seen
}

/// The events of the operations, none of which is missing.
fn expected(program: &Program, end: u64) -> Vec<Seen> {
    let mut ops = program.ops.clone();
    ops.sort_by_key(|op| op.ticks);
    let mut stack: Vec<(u32, u64)> = Vec::new();
    let mut expected = Vec::new();
    let close = |(offset, start): (u32, u64), end, how| Seen::End {
        offset: offset.into(),
        start,
        end,
        how,
        cut: false,
    };
    for op in ops {
        match op.what {
            What::Enter(offset) => {
                let depth = stack.len() as u32;
                expected.push(Seen::Begin { depth, offset: offset.into(), start: op.ticks, cut: false });
                stack.push((offset, op.ticks));
            }
            What::Exit(offset) => {
                let top = stack.pop().expect("balanced");
                assert_eq!(top.0, offset, "the generator is sound");
                expected.push(close(top, op.ticks, EndKind::Returned));
            }
            What::Unwind(left) => {
                for offset in left {
                    let top = stack.pop().expect("balanced");
                    assert_eq!(top.0, offset, "the generator is sound");
                    expected.push(close(top, op.ticks, EndKind::Unwound));
                }
            }
        }
    }
    while let Some(top) = stack.pop() {
        expected.push(close(top, end, EndKind::TruncatedAtEnd));
    }
    expected
}

#[test]
fn a_ring_that_held_everything_gives_the_whole_tree() {
    for seed in 1..300 {
        let program = Program::new(seed, 128, 4096, 400).run();
        assert_eq!(program.ring.first_segment(), 0);
        let process = program.process();
        let bytes = File::of(&process);
        let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
        assert_eq!(trace.warnings(), []);
        let wanted = expected(&program, process.end_ticks);
        for checked in [false, true] {
            let (seen, stats) = seen(&trace, checked);
            assert_eq!(seen, wanted, "seed {seed}");
            // A segment that begins in a handler may give a depth without the call that was
            // interrupted.
            let PairingStats { calls, unwound, depth_disagreements, .. } = stats;
            assert_eq!(
                stats,
                PairingStats { calls, unwound, depth_disagreements, ..PairingStats::default() }
            );
        }
    }
}

#[test]
fn a_ring_that_is_read_meanwhile_gives_the_whole_tree() {
    for seed in 1..300 {
        let mut program = Program::new(seed, 128, 4096, 400);
        // Words that an interrupted hook writes after its handler have no place before those that
        // were read.
        program.handlers = 2;
        let program = program.run();
        let process = program.process();
        let bytes = File::of(&process);
        let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
        let same = |entry: Location, exit: Location| Some(entry == exit);
        let mut rng = Rng::new(seed);
        let mut thread = LiveThread::new(&trace, 0, Some(&same), None);
        let mut events = Vec::new();
        for words in program.ring.segments() {
            let written = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            let words = &words[..written];
            let mut done = 0;
            for event in Events::new(words) {
                let at = event.slot as usize;
                if at > done && rng.one_in(5) {
                    thread.read(&words[..at], done, &[], &mut events);
                    done = at;
                    if rng.one_in(3) {
                        // The modules of the process have changed.
                        thread = LiveThread::new(&trace, 0, Some(&same), Some(thread.carry()));
                    }
                }
            }
            thread.read(words, done, &[], &mut events);
        }
        thread.finish(&[], &mut events);
        // Here, the trace's end and the calls that were open then aren't known.
        let all = |seen: Vec<Seen>| -> Vec<Seen> {
            let at_end = |seen: &Seen| match *seen {
                Seen::End { offset, start, end, how: EndKind::Returned | EndKind::Unwound, cut: false } => {
                    Seen::End { offset, start, end, how: EndKind::Returned, cut: false }
                }
                Seen::End { offset, start, .. } => {
                    Seen::End { offset, start, end: 0, how: EndKind::TruncatedAtEnd, cut: false }
                }
                begin @ Seen::Begin { .. } => begin,
            };
            seen.iter().map(at_end).collect()
        };
        let wanted = expected(&program, process.end_ticks);
        assert_eq!(all(strict(&trace, events.into_iter())), all(wanted), "seed {seed}");
    }
}

#[test]
fn an_arena_gives_the_same_as_a_file() {
    for seed in 1..40 {
        let program = Program::new(seed, 512, 16, 400).run();
        let process = program.process();
        let bytes = arena_image(&process);
        let trace = Trace::open(ArenaImage::open(&bytes[..]).unwrap()).unwrap();
        assert_eq!(trace.warnings(), []);
        let last = program.ops.iter().map(|op| op.ticks).max().unwrap();
        assert_eq!(seen(&trace, false).0, expected(&program, last), "seed {seed}");
    }
}

#[test]
fn a_ring_that_wrapped_shows_its_rim() {
    let mut wrapped = 0;
    for seed in 1..400 {
        let program = Program::new(seed, 64, 8, 300).run();
        let process = program.process();
        let bytes = File::of(&process);
        let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
        let first = program.ring.first_segment();
        wrapped += u64::from(first > 0);
        let (seen, stats) = seen(&trace, true);

        // The truth about every call, as far as the surviving slots show it. An event earlier than
        // the first of their segments gets the time of the event before it.
        let mut latest =
            program.ring.segments().next().map_or(0, |words| words[1] & !0xffff_ffff | words[0] >> 32);
        let floor = latest;
        let mut ops = program.ops.clone();
        let mut clamped = 0;
        for op in ops.iter_mut().filter(|op| op.segment >= first) {
            if op.ticks < floor {
                op.ticks = latest;
                clamped += 1;
            }
            latest = latest.max(op.ticks);
        }
        let rim = ops.iter().filter(|op| op.segment >= first).map(|op| op.ticks).min().unwrap();
        let mut entries: HashMap<u32, &Op> = HashMap::new();
        let mut ends: HashMap<u32, (&Op, EndKind)> = HashMap::new();
        for op in &ops {
            match &op.what {
                What::Enter(offset) => _ = entries.insert(*offset, op),
                What::Exit(offset) => _ = ends.insert(*offset, (op, EndKind::Returned)),
                What::Unwind(left) => {
                    left.iter().for_each(|offset| _ = ends.insert(*offset, (op, EndKind::Unwound)));
                }
            }
        }
        let mut wanted = Vec::new();
        let mut unnamed = 0;
        for (offset, entry) in &entries {
            let offset_wide = u64::from(*offset);
            let entered = entry.segment >= first;
            match ends.get(offset) {
                Some((end, how)) if end.segment >= first => {
                    if entered || *how == EndKind::Returned {
                        let (start, cut) = if entered { (entry.ticks, false) } else { (rim, true) };
                        wanted.push(Seen::End { offset: offset_wide, start, end: end.ticks, how: *how, cut });
                    } else {
                        unnamed += 1;
                    }
                }
                Some(_) => assert!(!entered, "ends come after entries"),
                None => wanted.push(Seen::End {
                    offset: offset_wide,
                    start: entry.ticks,
                    end: process.end_ticks,
                    how: EndKind::TruncatedAtEnd,
                    cut: false,
                }),
            }
        }
        let ends = seen.iter().filter(|seen| matches!(seen, Seen::End { .. })).copied();
        let by_offset = |seen: &Seen| match seen {
            Seen::Begin { offset, .. } | Seen::End { offset, .. } => *offset,
        };
        let mut got: Vec<Seen> = ends.collect();
        got.sort_by_key(by_offset);
        wanted.sort_by_key(by_offset);
        let different = got.iter().zip(&wanted).find(|(got, wanted)| got != wanted);
        assert_eq!((different, got.len()), (None, wanted.len()), "seed {seed}");
        let wanted = PairingStats {
            depth_disagreements: stats.depth_disagreements,
            calls: stats.calls,
            unwound: stats.unwound,
            unnamed,
            clamped,
            ..Default::default()
        };
        assert_eq!(stats, wanted, "seed {seed}");
    }
    assert!(wrapped > 350, "{wrapped} of the rings wrapped");
}
