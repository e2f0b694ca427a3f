//! Missing events show as missing, and nothing else changes because of them.

use everycall_reader::TraceFile;
use everycall_synth::{File, Process, Ring};
use everycall_timeline::{Code, EndKind, InstantKind, Location, LossKind, TimelineEvent, Trace};

const START: u64 = 1000;
/// Functions are 0x100 apart.
const FUNCTION: u64 = 0x100;

fn process(ring: Ring) -> Process {
    Process::of_one_thread(ring, START, START + 100_000)
}

/// The timeline, one short text per event: `+2000@5` begins, `-2000@9 Returned` ends.
fn texts(trace: &Trace<'_>, symbols: bool) -> Vec<String> {
    let same = |entry: Location, exit: Location| {
        Some(entry.image_address / FUNCTION == exit.image_address / FUNCTION)
    };
    let same = symbols.then_some(&same as &dyn Code);
    let origin = trace.clock().origin_ticks();
    let name = |location: Location| format!("{:x}", location.image_address / FUNCTION * FUNCTION);
    trace
        .thread_events_checked(0, same)
        .map(|event| {
            let at = origin + event.at_ns();
            match event {
                TimelineEvent::Begin(begin) => {
                    format!("+{}@{at}{}", name(begin.location), if begin.cut { " cut" } else { "" })
                }
                TimelineEvent::End(end) => format!("-{}@{at} {:?}", name(end.location), end.how),
                TimelineEvent::Loss(loss) => format!("?{:?} {:?}@{at}", loss.count, loss.why),
                TimelineEvent::Instant(instant) => match instant.kind {
                    InstantKind::OrphanExit(location) => format!("orphan {}@{at}", name(location)),
                    InstantKind::InferredOrphanExit(location) => format!("inferred {}@{at}", name(location)),
                },
                TimelineEvent::Untraced(untraced) => {
                    format!("untraced@{at} until {}", origin + untraced.until_ns)
                }
                TimelineEvent::Unstamped(_) => panic!("all events have times"),
                TimelineEvent::Returned(_) => panic!("no results are recorded"),
                TimelineEvent::Gap(gap) => format!("off@{at} until {} {:?}", origin + gap.until_ns, gap.why),
                TimelineEvent::Mark(mark) => {
                    format!("{}@{at} {:?}", trace.mark_names().text(mark.name), mark.kind)
                }
            }
        })
        .collect()
}

fn check(ring: Ring, symbols: bool, wanted: &[&str]) {
    let bytes = File::of(&process(ring));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    assert_eq!(texts(&trace, symbols), wanted);
}

#[test]
fn a_lost_exit_is_found_by_symbols() {
    let mut ring = Ring::new(512, 16, START);
    ring.enter(1010, 0x1100);
    ring.enter(1020, 0x1200);
    ring.hole(1030);
    ring.enter(1040, 0x1300);
    ring.exit(1050, 0x1310);
    ring.exit(1060, 0x1110);
    // The open-call stack of the process knew of the exit.
    ring.unwind(1070, 0);
    let wanted = [
        "+1100@1010",
        "+1200@1020",
        "?Some(1) Hole@1020",
        "+1300@1040",
        "-1300@1050 Returned",
        "-1200@1060 ExitLost",
        "-1100@1060 Returned",
    ];
    check(ring, true, &wanted);
}

#[test]
fn an_orphan_exit_closes_no_call() {
    let mut ring = Ring::new(512, 16, START);
    ring.enter(1010, 0x1100);
    ring.exit(1020, 0x1900);
    ring.orphan_exit(1025, 0x1800);
    ring.exit(1030, 0x1110);
    ring.exit(1040, 0x1700);
    let wanted =
        ["+1100@1010", "inferred 1900@1020", "orphan 1800@1025", "-1100@1030 Returned", "inferred 1700@1040"];
    check(ring, true, &wanted);
}

#[test]
fn a_missing_segment_cuts_what_was_open() {
    let mut ring = Ring::new(64, 16, START);
    ring.enter(1010, 0x1100);
    ring.enter(1020, 0x1200);
    // Fills the rest of segment 0 with a busy record for every event that isn't of interest.
    while ring.newest_segment() == 0 {
        ring.busy(1030, 1);
    }
    // In segment 1, which will be missing: 1200 ends, 1300 begins and stays open, 1400 begins and
    // ends later.
    ring.exit(1040, 0x1210);
    ring.enter(1050, 0x1300);
    ring.enter(1060, 0x1400);
    while ring.newest_segment() == 1 {
        ring.busy(1070, 1);
    }
    ring.exit(1080, 0x1410);
    ring.enter(1090, 0x1500);
    ring.exit(1095, 0x1510);

    let process = process(ring);
    let whole = File::of(&process);
    let mut file = File::default();
    // As `File::of`, but for the segment; chunk by chunk from the whole one.
    let mut at = 32;
    while at < whole.len() {
        let number = |from: usize| u32::from_le_bytes(whole[at + from..at + from + 4].try_into().unwrap());
        let (kind, length) = (number(4), number(16) as usize);
        if kind != 7 && kind != 15 {
            file.chunk(kind, &whole[at + 32..at + 32 + length]);
        }
        at += 32 + length.next_multiple_of(8);
    }
    let segments: Vec<&[u64]> = process.threads[0].ring.segments().collect();
    file.events(0, 0, &segments[..1]);
    file.events(0, 2, &segments[2..]);
    let bytes = file.end();
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    assert_eq!(trace.threads()[0].segments_lost, 1);
    assert_eq!(trace.warnings().len(), 1, "{:?}", trace.warnings());
    let texts: Vec<String> = texts(&trace, true).into_iter().filter(|text| !text.contains("Busy")).collect();
    let wanted = [
        "+1100@1010",
        "+1200@1020",
        "?None Segments@1030",
        "-1200@1030 TruncatedAtLoss",
        // Open at the end, so its true start is known though it was lost.
        "+1300@1050",
        "+1400@1070 cut",
        "-1400@1080 Returned",
        "+1500@1090",
        "-1500@1095 Returned",
        "-1300@101000 TruncatedAtEnd",
        "-1100@101000 TruncatedAtEnd",
    ];
    assert_eq!(texts, wanted);
}

#[test]
fn an_event_later_than_the_window_keeps_its_slot() {
    let mut ring = Ring::new(512, 1024, START);
    ring.enter(1010, 0x1100);
    // A hook read its clock at 1020; then a handler made 100,000 calls.
    for call in 0..100_000 {
        ring.enter(1030 + 10 * call, 0x1300);
        ring.exit(1035 + 10 * call, 0x1310);
    }
    ring.enter(1020, 0x1200);
    ring.exit(1_002_000, 0x1210);
    ring.exit(1_002_010, 0x1110);
    let bytes = File::of(&process(ring));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let mut events = trace.thread_events(0);
    let ends: Vec<_> = events
        .by_ref()
        .filter_map(|event| if let TimelineEvent::End(end) = event { Some(end) } else { None })
        .collect();
    assert_eq!(events.stats().clamped, 1);
    assert_eq!(ends.len(), 100_002);
    assert!(ends.iter().all(|end| end.how == EndKind::Returned && end.end_ns >= end.start_ns));
    let late = ends[100_000];
    assert_eq!((late.location.image_address, late.depth), (0x1200, 1));
    assert_eq!(late.start_ns + trace.clock().origin_ticks(), 1035 + 10 * 99_999, "when its slot was");
}

#[test]
fn an_event_within_the_window_finds_its_place() {
    let mut ring = Ring::new(512, 1024, START);
    ring.enter(1010, 0x1100);
    for call in 0..30_000 {
        ring.enter(1030 + 10 * call, 0x1300);
        ring.exit(1035 + 10 * call, 0x1310);
    }
    ring.enter(1020, 0x1200);
    ring.exit(1_002_000, 0x1210);
    let bytes = File::of(&process(ring));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let second = trace.thread_events(0).nth(1).unwrap();
    assert_eq!(trace.clock().origin_ticks() + second.at_ns(), 1020);
    assert_eq!(trace.thread_events(0).filter(|event| matches!(event, TimelineEvent::End(_))).count(), 30_002);
}

#[test]
fn a_thread_that_only_waits_shows_its_open_calls() {
    let mut ring = Ring::new(512, 1, START);
    ring.enter(1010, 0x1100);
    ring.enter(1020, 0x1200);
    while ring.newest_segment() < 2 {
        ring.busy(1030, 1);
    }
    let bytes = File::of(&process(ring));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let texts: Vec<String> = texts(&trace, false).into_iter().filter(|text| !text.contains("Busy")).collect();
    let wanted = ["+1100@1010", "+1200@1020", "-1200@101000 TruncatedAtEnd", "-1100@101000 TruncatedAtEnd"];
    assert_eq!(texts, wanted);
    assert!(trace.thread_events(0).any(
        |event| matches!(event, TimelineEvent::Loss(loss) if loss.why == LossKind::Busy && loss.count == Some(1))
    ));
}

#[test]
fn deep_recursion_is_whole() {
    let mut ring = Ring::new(8192, 64, START);
    for level in 0..100_000 {
        ring.enter(2000 + level, 0x1100);
    }
    for level in 0..100_000 {
        ring.exit(200_000 + level, 0x1110);
    }
    let bytes = File::of(&process(ring));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let mut events = trace.thread_events(0);
    let deepest = events.by_ref().filter_map(|event| match event {
        TimelineEvent::End(end) => Some(end.depth),
        _ => None,
    });
    assert_eq!(deepest.max(), Some(99_999));
    assert_eq!((events.stats().calls, events.stats().too_deep), (100_000, 0));
}
