//! A timeline that continues at a checkpoint is the rest of the whole one, and one of a part has
//! calls of the whole one.

use everycall_reader::TraceFile;
use everycall_synth::{File, Module, Process, Ring, Rng, Thread};
use everycall_timeline::{EndKind, Location, TimelineEvent, Trace};

const START: u64 = 1 << 40;

/// Calls by chance, some of them of signal handlers that interrupt hooks.
fn file(capacity: usize, seed: u64) -> Vec<u8> {
    file_with(capacity, seed, true)
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
        events.make_checkpoints();
        let (mut checkpoints, mut at) = (Vec::new(), 0);
        while events.next().is_some() {
            checkpoints.extend(events.take_checkpoint().map(|checkpoint| (at, checkpoint)));
            at += 1;
        }
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
    events.make_checkpoints();
    let (mut checkpoints, mut at) = (Vec::new(), 0);
    while events.next().is_some() {
        checkpoints.extend(events.take_checkpoint().map(|checkpoint| (at, checkpoint)));
        at += 1;
    }
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
