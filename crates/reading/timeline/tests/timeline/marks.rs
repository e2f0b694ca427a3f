//! Labels, spans and gaps against a model that sees all events at once.

use everycall_reader::TraceFile;
use everycall_synth::{File, Process, Ring, Rng};
use everycall_timeline::{EndKind, GapKind, Mark, MarkKind, SpanEndKind, TimelineEvent, Trace};

const START: u64 = 1000;

/// Name and value of a span.
type Key = (String, Option<u64>);

/// A span as the model and the timeline give it, in ticks.
type Span = (String, Option<u64>, u64, u64, bool, SpanEndKind);

#[test]
fn spans_pair_by_name_and_value_whatever_overlaps() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        // Half of the rings wrap.
        let capacity = if seed % 2 == 0 { 4096 } else { 4 };
        let mut ring = Ring::new(64, capacity, START);
        let mut now = START;
        // Segment, ticks, whether it begins, key.
        let mut said: Vec<(u64, u64, bool, Key)> = Vec::new();
        let mut depth = 0;
        for _ in 0..rng.below(400) {
            now += 1 + rng.below(50);
            let value = [None, Some(0), Some(1 << 40)][rng.below(3) as usize];
            let name = ["a", "request", "a longer name than others"][rng.below(3) as usize];
            match rng.below(6) {
                0 => {
                    ring.enter(now, 0x1100);
                    depth += 1;
                }
                1 if depth > 0 => {
                    ring.exit(now, 0x1110);
                    depth -= 1;
                }
                what => {
                    let begins = what < 4;
                    ring.mark(now, if begins { 3 } else { 4 }, name, value);
                    said.push((ring.newest_segment(), now, begins, (name.to_owned(), value)));
                }
            }
        }
        let first = ring.first_segment();
        let rim_words = ring.segments().next().unwrap();
        let rim_ticks = rim_words[1] & !0xffff_ffff | rim_words[0] >> 32;
        let process = Process::of_one_thread(ring, START, now + 10);
        let bytes = File::of(&process);
        let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
        let origin = trace.clock().origin_ticks();

        let mut open: Vec<(u64, Key, bool)> = Vec::new();
        let mut wanted: Vec<Span> = Vec::new();
        let mut orphans = 0;
        for (_, ticks, begins, key) in said.into_iter().filter(|(segment, ..)| *segment >= first) {
            if begins {
                open.push((ticks, key, false));
            } else if let Some(at) = open.iter().rposition(|(_, open, _)| *open == key) {
                let (start, (name, value), cut) = open.remove(at);
                wanted.push((name, value, start, ticks, cut, SpanEndKind::Ended));
            } else if first > 0 {
                // It began before the rim. The timeline itself says below where exactly the events
                // begin.
                wanted.push((key.0, key.1, 0, ticks, true, SpanEndKind::Ended));
            } else {
                orphans += 1;
            }
        }
        let open_at_end = open.len();

        let mut got: Vec<Span> = Vec::new();
        let mut begun = std::collections::BTreeMap::new();
        let mut last = 0;
        let mut events = trace.thread_events(0);
        for event in events.by_ref() {
            let TimelineEvent::Mark(Mark { at_ns, name, value, kind }) = event else { continue };
            let name = trace.mark_names().text(name).to_owned();
            match kind {
                MarkKind::SpanBegin { span, cut } => {
                    assert!(begun.is_empty() || span > last, "numbers grow");
                    last = span;
                    assert!(begun.insert(span, (at_ns, name, value, cut)).is_none());
                }
                MarkKind::SpanEnd { span, start_ns, start_cut, how } => {
                    assert_eq!(begun.remove(&span), Some((start_ns, name.clone(), value, start_cut)));
                    if start_cut {
                        assert!(start_ns + origin >= rim_ticks, "it is cut at the rim");
                    }
                    let start = if start_cut { 0 } else { origin + start_ns };
                    got.push((name, value, start, origin + at_ns, start_cut, how));
                }
                MarkKind::OrphanSpanEnd => orphans -= 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(begun.is_empty(), "every begin has its end");
        let cut = got.split_off(got.len() - open_at_end);
        assert!(cut.iter().all(|span| span.5 == SpanEndKind::TruncatedAtEnd), "seed {seed}");
        assert_eq!((got, orphans), (wanted, 0), "seed {seed}");
        let mut cut: Vec<_> =
            cut.into_iter().map(|(name, value, start, ..)| (start, (name, value))).collect();
        cut.sort();
        assert_eq!(
            cut,
            open.into_iter().map(|(start, key, _)| (start, key)).collect::<Vec<_>>(),
            "seed {seed}"
        );
    }
}

/// Calls as `function how` and gaps, in the order of their ends.
fn ends(ring: Ring) -> Vec<String> {
    let bytes = File::of(&Process::of_one_thread(ring, START, START + 1000));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let same = |entry: everycall_timeline::Location, exit: everycall_timeline::Location| {
        Some(entry.image_address >> 8 == exit.image_address >> 8)
    };
    let origin = trace.clock().origin_ticks();
    let mut ends = Vec::new();
    for event in trace.thread_events_checked(0, Some(&same)) {
        match event {
            TimelineEvent::End(end) => {
                let at = origin + end.end_ns;
                ends.push(format!("{:x} {:?}@{at}", end.location.image_address, end.how));
            }
            TimelineEvent::Gap(gap) => {
                assert_eq!(gap.why, GapKind::Disabled);
                ends.push(format!("off {}..{}", origin + gap.at_ns, origin + gap.until_ns));
            }
            TimelineEvent::Instant(instant) => {
                ends.push(format!("{:?}@{}", instant.kind, origin + instant.at_ns))
            }
            _ => {}
        }
    }
    ends
}

#[test]
fn what_happened_to_calls_in_a_gap_is_not_guessed() {
    let mut ring = Ring::new(512, 16, START);
    for (place, offset) in [0x1100, 0x1200, 0x1300, 0x1400].into_iter().enumerate() {
        ring.enter(1010 + place as u64, offset);
    }
    // 1400 is known to be gone.
    ring.gap(1050, 1080, 2, 3);
    ring.enter(1090, 0x1500);
    ring.exit(1091, 0x1508);
    ring.exit(1092, 0x1308);
    ring.enter(1093, 0x1600);
    ring.exit(1094, 0x1608);
    // The exit of a call that took 1200's place: its entry is missing, and so is 1200's exit.
    ring.exit(1095, 0x1708);
    ring.exit(1096, 0x1108);
    let wanted = [
        "1400 TruncatedAtGap@1050",
        "off 1050..1080",
        "1500 Returned@1091",
        "1300 ReturnedAfterGap@1092",
        "1600 Returned@1094",
        "InferredOrphanExit(Location { module: 0, image_address: 5896 })@1095",
        "1200 ExitLost@1096",
        "1100 ReturnedAfterGap@1096",
    ];
    assert_eq!(ends(ring), wanted);
}

#[test]
fn a_gap_that_lies_about_its_times_keeps_the_order() {
    for from in [0, 1005, 1015, 1500, u64::MAX] {
        let mut ring = Ring::new(512, 16, START);
        ring.enter(1010, 0x1100);
        ring.enter(1020, 0x1200);
        ring.gap(from, 1080, 2, 1);
        ring.exit(1090, 0x1108);
        let at = from.clamp(1020, 1080);
        let wanted = [
            format!("1200 TruncatedAtGap@{at}"),
            format!("off {at}..1080"),
            "1100 ReturnedAfterGap@1090".to_owned(),
        ];
        assert_eq!(ends(ring), wanted);
    }
}

#[test]
fn a_gap_in_an_overwritten_beginning_counts_the_calls_before_it() {
    let mut ring = Ring::new(64, 2, START);
    ring.enter(1001, 0x1100);
    ring.enter(1002, 0x1200);
    ring.enter(1003, 0x1300);
    while ring.first_segment() == 0 {
        ring.busy(1010, 1);
    }
    // 1300 and 1200 ended in it; their entries are gone.
    ring.gap(1020, 1030, 2, 1);
    ring.exit(1040, 0x1108);
    let bytes = File::of(&Process::of_one_thread(ring, START, 2000));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let mut events = trace.thread_events(0);
    let ends: Vec<_> = events
        .by_ref()
        .filter_map(
            |event| if let TimelineEvent::End(end) = event { Some((end.start_cut, end.how)) } else { None },
        )
        .collect();
    assert_eq!(ends, [(true, EndKind::ReturnedAfterGap)]);
    assert_eq!(events.stats().unnamed, 2);
    assert_eq!((trace.threads()[0].gaps, trace.threads()[0].gaps_ns), (1, 10));
}

/// Kinds 19 and 20 by the numbers that docs/format.md gives.
#[test]
fn xray_events_are_instants_that_show_their_data() {
    let mut ring = Ring::new(512, 16, START);
    ring.enter(1010, 0x1100);
    ring.record(1020, 19, 0, &[5, 0x6c6c_6568, 0x6f]);
    ring.record(1030, 20, 0, &[7, 200, 0xff00_0102]);
    // Too short for their kinds.
    ring.record(1040, 19, 0, &[]);
    ring.record(1050, 20, 0, &[7]);
    ring.exit(1060, 0x1108);
    let bytes = File::of(&Process::of_one_thread(ring, START, START + 1000));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let origin = trace.clock().origin_ticks();
    let mut shown = Vec::new();
    let mut losses = 0;
    for event in trace.thread_events(0) {
        match event {
            TimelineEvent::Mark(Mark { at_ns, name, value: None, kind: MarkKind::Instant }) => {
                shown.push((origin + at_ns, trace.mark_names().text(name).to_owned()));
            }
            TimelineEvent::Loss(_) => losses += 1,
            TimelineEvent::Begin(_) | TimelineEvent::End(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let wanted = [(1020, "custom event \"hello\""), (1030, "typed event 7 02 01 00 ff (200 bytes)")];
    assert_eq!(shown, wanted.map(|(at, text)| (at, text.to_owned())));
    assert_eq!(losses, 2);
    let counted = trace.mark_names().all();
    assert!(counted.iter().all(|named| named.instants == 1) && counted.len() == 2, "{counted:?}");
}

#[test]
fn log_lines_have_the_format_of_the_module_that_lay_there() {
    let mut process = everycall_synth::basic();
    let module = process.modules[0].clone();
    let mut ring = Ring::new(64, 64, START);
    let address = module.start + 0x123;
    ring.mark(START + 1, 12, "queue", Some(-5_i64 as u64));
    ring.mark(START + 2, 13, "share", Some(0.5_f64.to_bits()));
    ring.log(START + 3, 1, address, &[7]);
    ring.log(START + 4, 1, address, &[8]);
    ring.log(START + 5, 1, address, &[7]);
    ring.log(START + 6, 1, 0x10, &[7]);
    ring.log(START + 7, 0x3fff_ffff, u64::MAX, &[u32::MAX; 5]);
    ring.log(START + 8, 5, address, &[u32::MAX, 1]);
    process.threads.truncate(1);
    process.threads[0].ring = ring;
    process.threads[0].start_ticks = START;
    let bytes = File::of(&process);
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let marks: Vec<Mark> = trace
        .thread_events(0)
        .filter_map(|event| if let TimelineEvent::Mark(mark) = event { Some(mark) } else { None })
        .collect();
    let values: Vec<_> = marks.iter().map(|mark| (mark.kind, mark.value)).take(2).collect();
    let real = Some(0.5_f64.to_bits());
    assert_eq!(values, [(MarkKind::Counter, Some(-5_i64 as u64)), (MarkKind::CounterReal, real)]);
    let image = address - module.base;
    let line = |mark: &Mark| {
        assert_eq!((mark.kind, mark.value), (MarkKind::Log, None));
        trace.log_lines().text(mark.name, |at| {
            assert_eq!((at.module, at.image_address), (0, image));
            Some(b"number %d".to_vec())
        })
    };
    let shown: Vec<String> = marks[2..].iter().map(line).collect();
    assert_eq!(shown[..3], ["number 7", "number 8", "number 7"]);
    assert!(shown[3].ends_with("is not available) 7") && shown[4].contains("not available"), "{shown:?}");
    assert_eq!((shown.len(), trace.log_lines().count()), (6, 6));
    assert_eq!((marks[2].name, marks[2].name == marks[3].name), (marks[4].name, false), "each is kept once");
}

/// The calls of a step that hasn't ended are the task's up to the thread's last event, however many
/// segments they take.
#[test]
fn a_step_that_is_not_over_has_all_calls_of_its_thread() {
    for steps_before in [0, 1, 2] {
        let mut ring = Ring::new(40, 1 << 10, START);
        let mut now = START;
        let mut next = || {
            now += 10;
            now
        };
        for _ in 0..steps_before {
            ring.mark(next(), 14, "fetch", Some(7));
            ring.enter(next(), 0x1200);
            ring.exit(next(), 0x1200);
            ring.mark(next(), 15, "", Some(7));
        }
        ring.mark(next(), 14, "fetch", Some(7));
        ring.enter(next(), 0x1100);
        for _ in 0..200 {
            ring.enter(next(), 0x1200);
            ring.exit(next(), 0x1200);
        }
        let last = next();
        ring.exit(last, 0x1100);
        assert!(ring.newest_segment() > 5);
        let bytes = File::of(&Process::of_one_thread(ring, START, last + 10));
        let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
        let task = trace.threads().iter().find(|thread| thread.fiber.is_some()).unwrap();
        assert_eq!(task.entries, 201 + steps_before, "{steps_before}");
        let ends = trace.thread_events(task.index).filter_map(|event| match event {
            TimelineEvent::End(end) => Some((end.end_ns, end.how)),
            _ => None,
        });
        let ends: Vec<_> = ends.collect();
        let end_ns = trace.clock().ns(last);
        assert_eq!((ends.len() as u64, ends.last()), (task.entries, Some(&(end_ns, EndKind::Returned))));
    }
}
