//! A timeline that continues at a checkpoint is the rest of the whole one, and one of a part has
//! calls of the whole one. Where events have no times of their own, what is said of them is true.

use everycall_reader::TraceFile;
use everycall_reader::event::Events;
use everycall_synth::{File, Module, Process, Ring, Rng, Thread};
use everycall_timeline::{
    Checkpoint, EndKind, Intervals, LiveThread, Location, ThreadEvents, TimelineEvent, Trace,
};

const START: u64 = 1 << 40;

/// Calls by chance, some of them of signal handlers that interrupt hooks.
fn file(capacity: usize, seed: u64) -> Vec<u8> {
    file_with(capacity, seed, true)
}

/// The checkpoints of a thread, with the numbers of the events at which they were made, and the
/// number of all events.
fn checkpoints(events: &mut ThreadEvents<'_>) -> (Vec<(usize, Checkpoint)>, usize) {
    events.make_checkpoints();
    let (mut checkpoints, mut at) = (Vec::new(), 0);
    while events.next().is_some() {
        checkpoints.extend(events.take_checkpoint().map(|checkpoint| (at, checkpoint)));
        at += 1;
    }
    (checkpoints, at)
}

fn file_with(capacity: usize, seed: u64, has_handlers: bool) -> Vec<u8> {
    let mut ring = Ring::new(8192, capacity, START);
    let mut rng = Rng::new(seed);
    let (mut now, mut open) = (START, Vec::new());
    for _ in 0..500_000 {
        now += 20 + rng.below(40);
        if open.is_empty() || open.len() < 60 && rng.one_in(2) {
            let offset = 0x1000 + 64 * rng.below(5000) as u32;
            if has_handlers && rng.one_in(30_000) {
                ring.enter(now + 10, 0x1000);
                ring.exit(now + 15, 0x1000);
            }
            ring.enter(now, offset);
            open.push(offset);
        } else if let Some(offset) = open.pop() {
            ring.exit(now, offset + 16);
        }
    }
    let start = 0x40_0000;
    let module = Module {
        base: start - 0x1000,
        start,
        end: start + 0x10_0000,
        code_start: 0x1000,
        ..Module::default()
    };
    let thread = Thread { tid: 1, name: "main".into(), start_ticks: START, ring };
    File::of(&Process { modules: vec![module], threads: vec![thread], ..Process::default() })
}

#[test]
fn what_follows_a_checkpoint_is_the_rest() {
    let same = |entry: Location, exit: Location| Some(entry.image_address / 64 == exit.image_address / 64);
    for (capacity, seed) in [(4096, 1), (4096, 2), (400, 3)] {
        let trace = Trace::open(TraceFile::open(file(capacity, seed)).unwrap()).unwrap();
        let whole: Vec<TimelineEvent> = trace.thread_events_checked(0, Some(&same)).collect();
        let mut events = trace.thread_events_checked(0, Some(&same));
        let (checkpoints, at) = checkpoints(&mut events);
        assert_eq!(at, whole.len());
        assert!(checkpoints.len() >= 2, "{}", checkpoints.len());
        for (at, checkpoint) in checkpoints {
            let rest: Vec<TimelineEvent> =
                trace.thread_events_from(0, Some(&same), &checkpoint).unwrap().collect();
            assert!(rest == whole[at..], "from event {at} of {}", whole.len());
        }
    }
}

#[test]
fn without_late_events_a_checkpoint_needs_no_waiting() {
    let trace = Trace::open(TraceFile::open(file_with(4096, 5, false)).unwrap()).unwrap();
    let whole: Vec<TimelineEvent> = trace.thread_events(0).collect();
    let mut events = trace.thread_events(0);
    let (checkpoints, _) = checkpoints(&mut events);
    assert!(events.is_in_order() && checkpoints.len() >= 2);
    for (at, checkpoint) in checkpoints {
        let mut events = trace.thread_events_from(0, None, &checkpoint).unwrap();
        events.without_late();
        assert!(events.eq(whole[at..].iter().copied()), "from event {at}");
    }

    let trace = Trace::open(TraceFile::open(file(4096, 1)).unwrap()).unwrap();
    let mut events = trace.thread_events(0);
    events.by_ref().for_each(drop);
    assert!(!events.is_in_order(), "signal handlers' events come late");
}

/// Begin, end, depth and place of the calls that lie in a stretch of time with both ends.
fn calls(
    events: impl Iterator<Item = TimelineEvent>,
    depth: u32,
    (from, to): (u64, u64),
) -> Vec<(u64, u64, u32, Location)> {
    let ends = events.filter_map(|event| match event {
        TimelineEvent::End(end) if end.how == EndKind::Returned && !end.start_cut => Some(end),
        _ => None,
    });
    let within = ends.filter(|end| end.start_ns >= from && end.end_ns <= to);
    within.map(|end| (end.start_ns, end.end_ns, end.depth + depth, end.location)).collect()
}

#[test]
fn a_part_has_the_calls_that_lie_in_it() {
    let bytes = file_with(4096, 7, false);
    let trace = Trace::open(TraceFile::open(bytes.clone()).unwrap()).unwrap();
    let whole: Vec<TimelineEvent> = trace.thread_events(0).collect();
    let unread = Trace::open_unread(TraceFile::open(bytes).unwrap()).unwrap();
    assert_eq!(unread.threads()[0].reach, trace.threads()[0].reach);
    assert_eq!(unread.clock().origin_ticks(), trace.clock().origin_ticks());
    assert_eq!(unread.threads()[0].events, 0, "they aren't counted");
    assert!(unread.parts(0) > 0 && unread.part(0, None, unread.parts(0)..unread.parts(0) + 1).is_none());
    let (mut segments, mut found) = (0, 0);
    for number in 0..unread.parts(0) {
        let part = unread.part(0, None, number..number + 1).unwrap();
        assert_eq!(unread.part_begin(0, number), Some(part.begins()[0]));
        let count = part.begins().len();
        segments += count;
        for (first, behind) in [(0, count), (0, 1), (count / 2, count), (count / 3, count / 3 + 2)] {
            let Some(read) = part.events(first..behind.min(count)) else { continue };
            let depth = read.depth;
            let events: Vec<TimelineEvent> = read.events.collect();
            let reach = (events[0].at_ns(), events.last().unwrap().at_ns());
            let (some, all) =
                (calls(events.into_iter(), depth, reach), calls(whole.iter().copied(), 0, reach));
            assert!(some == all, "segments {first}..{behind} of part {number}");
            found += some.len();
        }
    }
    assert!(segments > 50 && found > 100_000, "{segments} {found}");
}

/// Which events have no times of their own: as in [`everycall_format::stamp`].
const BOUNDED: u32 = 1;
const ORDER: u32 = 2;

/// A thread in two forms: as it was, and with times left out as hooks do it.
struct Twice {
    exact: Ring,
    ring: Ring,
    stamps: u32,
    /// The last stamp, and how many events have it.
    last: (u64, u64),
}

impl Twice {
    fn new(stamps: u32, segment_words: usize, capacity: usize) -> Twice {
        let ring = || Ring::new(segment_words, capacity, START);
        Twice { exact: ring(), ring: ring(), stamps, last: (START, 0) }
    }

    /// An event, written by `write`. `is_stopped`: the thread was stopped before it.
    fn event(&mut self, now: u64, is_stopped: bool, write: impl Fn(&mut Ring, u64)) {
        write(&mut self.exact, now);
        let (last, count) = self.last;
        let is_due = self.stamps == BOUNDED && count > 12;
        // The first event of a segment has a time.
        let written = self.ring.segments().last().map_or(0, <[u64]>::len);
        let is_first = written + 8 > self.ring.segment_words();
        if !is_stopped && !is_due && !is_first {
            self.last.1 += 1;
            return write(&mut self.ring, last);
        }
        self.last = (now, 1);
        write(&mut self.ring, now);
    }

    fn run(mut self, seed: u64, count: u64) -> [Process; 2] {
        let mut rng = Rng::new(seed);
        let (mut now, mut open) = (START, Vec::new());
        for number in 0..count {
            // Now and then, the kernel stops the thread, or the program says something.
            let is_stopped = number == 0 || rng.one_in(if self.stamps == ORDER { 500 } else { 30 });
            now += if is_stopped && rng.one_in(4) { 5_000_000 } else { 20 + rng.below(700) };
            if rng.one_in(200) {
                self.event(now, true, |ring, ticks| ring.mark(ticks, 2, "here", Some(7)));
                self.last.1 = u64::MAX;
                continue;
            }
            // Behind what the slow path has written, an event has a time.
            let is_stopped = is_stopped || self.last.1 == u64::MAX;
            if open.is_empty() || open.len() < 60 && rng.one_in(2) {
                let offset = 0x1000 + 64 * rng.below(50) as u32;
                self.event(now, is_stopped, |ring, ticks| ring.enter(ticks, offset));
                open.push(offset);
            } else if let Some(offset) = open.pop() {
                self.event(now, is_stopped, |ring, ticks| ring.exit(ticks, offset + 16));
            }
        }
        [self.exact, self.ring].map(|ring| Process::of_one_thread(ring, START, now + 50))
    }
}

/// An event without its time, when it happened, and the duration of the call that it ends: each at
/// the earliest, as shown, and at the latest.
type Seen = (String, [u64; 3], Option<[u64; 3]>);

fn seen(trace: &Trace<'_>, events: impl Iterator<Item = TimelineEvent>) -> Vec<Seen> {
    let origin = trace.clock().origin_ticks();
    let mut intervals = Intervals::default();
    let mut latest = 0;
    let mut seen = Vec::new();
    for event in events {
        assert!(event.at_ns() >= latest, "{event:?} at {latest}");
        latest = event.at_ns();
        let bars = intervals.event(&event);
        let at = intervals.at(latest);
        let (what, took) = match event {
            TimelineEvent::Begin(begin) => (format!("{} {:?}", begin.depth, begin.location), None),
            TimelineEvent::End(end) => {
                let took = end.end_ns - end.start_ns;
                let took = bars.map_or([took; 3], |bars| [bars.low, bars.value, bars.high]);
                (format!("{} {:?} {:?}", end.depth, end.how, end.location), Some(took))
            }
            TimelineEvent::Mark(mark) => (format!("{:?}", mark.kind), None),
            TimelineEvent::Unstamped(_) => continue,
            other => panic!("{other:?}"),
        };
        seen.push((what, [at.from_ns, latest, at.until_ns].map(|at| origin + at), took));
    }
    seen
}

/// The bounds of the events contain the exact times.
fn is_true(seen: &[Seen], exact: &[Seen], what: &str) {
    assert_eq!(seen.len(), exact.len(), "{what}");
    for ((found, at, took), (wanted, [_, was_at, _], was)) in seen.iter().zip(exact) {
        assert_eq!(found, wanted, "{what}");
        let holds = |[low, shown, high]: [u64; 3], was: u64| {
            low <= was && was <= high && low <= shown && shown <= high
        };
        assert!(holds(*at, *was_at), "{what}: {found} at {at:?}, was at {was_at}");
        assert!(took.is_none_or(|took| holds(took, was.unwrap()[1])), "{what}: {found} took {took:?}");
    }
}

#[test]
fn events_without_times_happened_when_they_are_said_to() {
    for (stamps, segment_words, capacity) in [(BOUNDED, 128, 4096), (ORDER, 8192, 400), (ORDER, 128, 8)] {
        for seed in 1..12 {
            let [exact, process] = Twice::new(stamps, segment_words, capacity).run(seed, 9000);
            let bytes = File::of(&exact);
            let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
            let wanted = seen(&trace, trace.thread_events(0));
            assert!(!trace.has_bounds() && wanted.iter().all(|(_, at, _)| at[0] == at[2]));
            let bytes = File::of_unstamped(&process, stamps);
            let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
            assert_eq!(trace.warnings(), []);
            let found = seen(&trace, trace.thread_events(0));
            let what = format!("{stamps} {segment_words} {seed}");
            // Calls that began before what the ring holds begin with it.
            let is_whole = process.threads[0].ring.first_segment() == 0;
            assert_eq!(is_whole, capacity > 8);
            is_true(&found, &wanted, &what);
            let without = found.iter().filter(|(_, at, _)| at[0] < at[2]).count();
            assert!(without * 2 > found.len(), "{what}: {without} of {} have no time", found.len());
            // A stop is in the call that was open, not between those before it.
            let spread = found.iter().map(|(_, [from, at, _], _)| at - from).max().unwrap();
            let longest = if stamps == BOUNDED { 12 } else { 8192 };
            assert!(spread <= 250 * longest, "{what}: {spread} ns behind a stamp");
        }
    }
}

#[test]
fn events_without_times_are_read_while_they_are_written() {
    for stamps in [BOUNDED, ORDER] {
        let [exact, process] = Twice::new(stamps, 512, 4096).run(5, 4000);
        let bytes = File::of(&exact);
        let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
        let is_known = |(what, ..): &Seen| !what.contains("TruncatedAtEnd");
        let wanted: Vec<Seen> = seen(&trace, trace.thread_events(0)).into_iter().filter(is_known).collect();
        let bytes = File::of_unstamped(&process, stamps);
        let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
        let mut thread = LiveThread::new(&trace, 0, None, None);
        let mut rng = Rng::new(3);
        let mut events = Vec::new();
        let rings = [&process, &exact].map(|process| &process.threads[0].ring);
        for (words, exact) in rings[0].segments().zip(rings[1].segments()) {
            let written = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            let mut done = 0;
            // Each event at its slot: slots are the same in both.
            let times: Vec<(usize, u64)> =
                Events::new(exact).map(|event| (event.slot as usize, event.ticks)).collect();
            for pair in times.windows(2) {
                let (at, by) = (pair[1].0, pair[0].1);
                if rng.one_in(7) && at > done && at < written {
                    thread.had_happened_by(by);
                    thread.read(&words[..at], done, &[], &mut events);
                    done = at;
                }
            }
            thread.had_happened_by(times.last().unwrap().1);
            thread.read(&words[..written], done, &[], &mut events);
        }
        thread.finish(&[], &mut events);
        let found: Vec<Seen> = seen(&trace, events.into_iter()).into_iter().filter(is_known).collect();
        is_true(&found, &wanted, &format!("{stamps}"));
    }
}

#[test]
fn what_follows_a_checkpoint_is_placed_likewise() {
    for stamps in [BOUNDED, ORDER] {
        let [_, process] = Twice::new(stamps, 8192, 4096).run(1, 300_000);
        let trace = Trace::open(TraceFile::open(File::of_unstamped(&process, stamps)).unwrap()).unwrap();
        let whole: Vec<TimelineEvent> = trace.thread_events(0).collect();
        let mut events = trace.thread_events(0);
        let (checkpoints, _) = checkpoints(&mut events);
        assert!(checkpoints.len() >= 2, "{}", checkpoints.len());
        for (at, checkpoint) in checkpoints {
            let mut rest = trace.thread_events_from(0, None, &checkpoint).unwrap();
            rest.without_late();
            assert!(rest.eq(whole[at..].iter().copied()), "{stamps}: from event {at} of {}", whole.len());
        }
    }
}
