//! A timeline that continues at a checkpoint is the rest of the whole one.

use everycall_reader::TraceFile;
use everycall_synth::{File, Module, Process, Ring, Rng, Thread};
use everycall_timeline::{Location, TimelineEvent, Trace};

const START: u64 = 1 << 40;

/// Calls by chance, some of them of signal handlers that interrupt hooks.
fn file(capacity: usize, seed: u64) -> Vec<u8> {
    let mut ring = Ring::new(8192, capacity, START);
    let mut rng = Rng::new(seed);
    let (mut now, mut open) = (START, Vec::new());
    for _ in 0..500_000 {
        now += 20 + rng.below(40);
        if open.is_empty() || open.len() < 60 && rng.one_in(2) {
            let offset = 0x1000 + 64 * rng.below(5000) as u32;
            if rng.one_in(30_000) {
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
