//! Unknown facts are shown as unknown: frames that were found unwound, the thread that continues a
//! stack, and calls whose caller is uncertain.

use everycall_reader::TraceFile;
use everycall_synth::{File, Process, Ring};
use everycall_timeline::{Code, EndKind, GapKind, Location, MarkKind, TimelineEvent, Trace};

const START: u64 = 1000;

/// Begins, ends and gaps, in the order of time.
fn shown(ring: Ring) -> Vec<String> {
    shown_with(ring, None)
}

fn shown_with(ring: Ring, code: Option<&dyn Code>) -> Vec<String> {
    let bytes = File::of(&Process::of_one_thread(ring, START, START + 1000));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let origin = trace.clock().origin_ticks();
    let line = |event| match event {
        TimelineEvent::Begin(begin) => {
            let unsure = if begin.caller_unsure { " unsure" } else { "" };
            Some(format!("{:x}{unsure}", begin.location.image_address))
        }
        TimelineEvent::End(end) if end.how == EndKind::Returned => None,
        TimelineEvent::End(end) => {
            Some(format!("{:x} {:?}@{}", end.location.image_address, end.how, origin + end.end_ns))
        }
        TimelineEvent::Gap(gap) => {
            assert_eq!(gap.why, GapKind::Suspended);
            let (from, until) = (origin + gap.at_ns, origin + gap.until_ns);
            Some(format!("suspended {from}..{until} {:?}", gap.resumed_by))
        }
        TimelineEvent::Mark(mark) if mark.kind == MarkKind::Catch => Some("catch".to_owned()),
        other => panic!("{other:?}"),
    };
    trace.thread_events_checked(0, code).filter_map(line).collect()
}

#[test]
fn frames_say_whether_their_time_is_known() {
    let mut ring = Ring::new(512, 16, START);
    for offset in [0x1100, 0x1200, 0x1300, 0x1400] {
        ring.enter(1010, offset);
    }
    ring.unwind_noticed(1020, 3);
    ring.unwind_counted(1030, 2);
    // As in older files, without a number.
    ring.unwind(1040, 1);
    let calls = ["1100", "1200", "1300", "1400"];
    let ends =
        ["1400 UnwoundLate@1020", "1300 Unwound@1030", "1200 Unwound@1040", "1100 TruncatedAtEnd@2000"];
    assert_eq!(shown(ring), [calls, ends].concat());
}

#[test]
fn frames_that_may_have_ended_in_a_gap_are_not_said_to_be_left() {
    let mut ring = Ring::new(512, 16, START);
    ring.enter(1010, 0x1100);
    ring.enter(1020, 0x1200);
    ring.gap(1030, 1040, 2, 2);
    ring.unwind_noticed(1050, 1);
    let bytes = File::of(&Process::of_one_thread(ring, START, 2000));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let mut events = trace.thread_events(0);
    let ends: Vec<_> = events
        .by_ref()
        .filter_map(|event| if let TimelineEvent::End(end) = event { Some(end.how) } else { None })
        .collect();
    assert_eq!(ends, [EndKind::ExitLost, EndKind::TruncatedAtEnd]);
    assert_eq!((events.stats().unwound, events.stats().exits_lost), (0, 1));
}

#[test]
fn suspended_stacks_say_who_goes_on_with_them() {
    let mut ring = Ring::new(512, 16, START);
    ring.enter(1010, 0x1100);
    ring.resumed(1020, 1030, 4711);
    // As written by a recorder that doesn't know it.
    ring.resumed(1040, 1050, 0);
    ring.record(1070, 12, 3, &[1060, 0]);
    // It lies about the time.
    ring.resumed(9999, 1080, 4712);
    let wanted = [
        "1100",
        "suspended 1020..1030 Some(4711)",
        "suspended 1040..1050 None",
        "suspended 1060..1070 None",
        "suspended 1080..1080 Some(4712)",
        "1100 TruncatedAtEnd@2000",
    ];
    assert_eq!(shown(ring), wanted);
}

#[test]
fn the_first_call_on_what_may_be_another_stack_is_unsure() {
    let mut ring = Ring::new(512, 16, START);
    ring.enter(1010, 0x1100);
    ring.enter(1020, 0x1200);
    ring.resumed_unsurely(1030, 1040, 7);
    ring.unwind_noticed(1050, 1);
    ring.enter(1050, 0x1300);
    ring.enter(1060, 0x1400);
    ring.exit(1070, 0x1400);
    ring.exit(1080, 0x1300);
    ring.enter(1081, 0x1500);
    ring.exit(1082, 0x1500);
    // An exit comes first.
    ring.resumed_unsurely(1090, 1100, 7);
    ring.exit(1110, 0x1100);
    ring.enter(1120, 0x1600);
    // Nothing is open.
    ring.exit(1130, 0x1600);
    ring.resumed_unsurely(1140, 1150, 7);
    ring.enter(1160, 0x1700);
    // Facts about one switch don't hold for the next one.
    ring.resumed_unsurely(1170, 1180, 7);
    ring.resumed(1190, 1200, 7);
    ring.enter(1210, 0x1800);
    // Functions that are open made the call: another stack's come from elsewhere.
    for (at, caller) in [(1220, 0x1800), (1230, 0x1700), (1240, 0x1500)] {
        ring.resumed_unsurely(at, at + 1, 7);
        ring.caller(at + 1, Some(caller));
        ring.enter(at + 2, 0x1900);
        ring.exit(at + 3, 0x1900);
    }
    let wanted = [
        "1100",
        "1200",
        "suspended 1030..1040 Some(7)",
        "1200 UnwoundLate@1050",
        "1300 unsure",
        "1400",
        "1500",
        "suspended 1090..1100 Some(7)",
        "1600",
        "suspended 1140..1150 Some(7)",
        "1700",
        "suspended 1170..1180 Some(7)",
        "suspended 1190..1200 Some(7)",
        "1800",
        "suspended 1220..1221 Some(7)",
        "1900",
        "suspended 1230..1231 Some(7)",
        "1900",
        "suspended 1240..1241 Some(7)",
        "1900 unsure",
        "1800 TruncatedAtEnd@2000",
        "1700 TruncatedAtEnd@2000",
    ];
    assert_eq!(shown(ring), wanted);
}

#[test]
fn calls_of_a_thread_that_ends_are_unsure_unless_a_frame_cleans_up() {
    const CATCH: u8 = 8;
    const CLEANUP: u8 = 9;
    const THREAD_END: u8 = 10;
    let mut ring = Ring::new(512, 16, START);
    for (at, offset) in [(1010, 0x1100), (1011, 0x1200), (1012, 0x1300)] {
        ring.enter(at, offset);
    }
    ring.mark(1020, THREAD_END, "", None);
    // The innermost frame has a destructor, which calls something.
    ring.mark(1021, THREAD_END, "", Some(1));
    ring.mark(1021, CLEANUP, "", Some(1));
    ring.enter(1022, 0x1400);
    ring.enter(1023, 0x1500);
    ring.exit(1024, 0x1500);
    ring.exit(1025, 0x1400);
    // The next one catches, and calls something.
    ring.unwind_counted(1030, 2);
    ring.mark(1030, THREAD_END, "", Some(1));
    ring.mark(1030, CATCH, "", None);
    ring.enter(1031, 0x1600);
    ring.exit(1032, 0x1600);
    // The outermost one has neither: thread-local objects.
    ring.unwind_noticed(1040, 1);
    ring.enter(1040, 0x1700);
    ring.enter(1041, 0x1800);
    ring.exit(1042, 0x1800);
    ring.exit(1043, 0x1700);
    ring.enter(1044, 0x1900);
    ring.exit(1045, 0x1900);
    let calls = ["1100", "1200", "1300", "1400", "1500", "1300 Unwound@1030", "catch", "1600"];
    let ends = ["1200 UnwoundLate@1040", "1700 unsure", "1800", "1900 unsure", "1100 Unwound@1045"];
    assert_eq!(shown(ring), [&calls[..], &ends[..]].concat());
}

/// The function that is entered at 0x1100 has code up to 0x1200. At 0x1150, the function at 0x1200
/// was inlined, and the one at 0x1300 was not.
struct Inlined;

impl Code for Inlined {
    fn same_function(&self, entry: Location, exit: Location) -> Option<bool> {
        Some(entry == exit || (entry.image_address, exit.image_address & !0xff) == (0x1100, 0x1100))
    }

    fn is_inlined(&self, code: Location, entry: Location, is_callees: bool) -> Option<bool> {
        Some((code.image_address, entry.image_address) == (0x1150, 0x1200) && !is_callees)
    }
}

#[test]
fn a_handler_goes_on_with_the_calls_that_it_is_part_of() {
    let handled = |caller| {
        let mut ring = Ring::new(512, 16, START);
        for offset in [0x1100, 0x1200, 0x1300] {
            ring.enter(1010, offset);
        }
        ring.caller(1020, caller);
        ring.unwind_inlined(1020, 1);
        ring.enter(1030, 0x1400);
        ring
    };
    // It returns; it doesn't, as another exception leaves them all.
    let mut ring = handled(Some(0x1150));
    ring.exit(1040, 0x1400);
    ring.orphan_exit(1050, 0x1200);
    ring.exit(1060, 0x1100);
    let calls = ["1100", "1200", "1300", "1300 Unwound@1020", "1400"];
    assert_eq!(shown_with(ring, Some(&Inlined)), calls);
    let mut ring = handled(Some(0x1150));
    ring.unwind_counted(1050, 0);
    let ends = ["1400 Unwound@1050", "1200 Unwound@1050", "1100 Unwound@1050"];
    assert_eq!(shown_with(ring, Some(&Inlined)), [&calls[..], &ends].concat());
    // It is part of neither, or that is unknown.
    let calls = ["1100", "1200", "1300", "1300 Unwound@1020", "1200 Unwound@1020"];
    for (caller, code, next) in [
        (Some(0x1160), Some(&Inlined as &dyn Code), "1400"),
        (None, Some(&Inlined), "1400 unsure"),
        (Some(0x1150), None, "1400 unsure"),
    ] {
        let mut ring = handled(caller);
        ring.exit(1040, 0x1400);
        ring.exit(1060, 0x1100);
        assert_eq!(shown_with(ring, code), [&calls[..], &[next]].concat());
    }
}

#[test]
fn a_frame_that_cleans_up_ends_the_inlined_calls_that_it_is_done_with() {
    const CLEANUP: u8 = 9;
    const HANDLER: u8 = 11;
    // Three calls share a frame.
    let cleans_up = || {
        let mut ring = Ring::new(512, 16, START);
        for offset in [0x1100, 0x1200, 0x1300] {
            ring.enter(1010, offset);
        }
        ring.mark(1020, CLEANUP, "", Some(3));
        ring
    };
    let calls = |ring: &mut Ring, at, caller, inlined| {
        match inlined {
            true => ring.caller_inlined(at, caller),
            false => ring.caller(at, Some(caller)),
        }
        ring.unwind_inlined_in_cleanup(at, 1);
        ring.enter(at, 0x1400);
        ring.exit(at + 1, 0x1400);
    };
    // One after the other; a function that was inlined at 0x1150 isn't called by itself.
    let mut ring = cleans_up();
    calls(&mut ring, 1030, 0x1150, false);
    calls(&mut ring, 1040, 0x1150, true);
    ring.unwind_counted(1050, 0);
    let ends = ["1300 Unwound@1030", "1400", "1200 Unwound@1040", "1400", "1100 Unwound@1050"];
    assert_eq!(shown_with(ring, Some(&Inlined)), [&["1100", "1200", "1300"], &ends[..]].concat());
    // Called by code outside this frame: the caller is unknown.
    let mut ring = cleans_up();
    calls(&mut ring, 1030, 0x1950, false);
    calls(&mut ring, 1040, 0x1160, false);
    ring.exit(1050, 0x1100);
    let ends = ["1400 unsure", "1300 Unwound@1040", "1200 Unwound@1040", "1400", "1100 Unwound@1050"];
    assert_eq!(shown_with(ring, Some(&Inlined)), [&["1100", "1200", "1300"], &ends[..]].concat());
    // The middle one handled it after all and returns; the one inside it had ended. The outermost
    // one returns as well.
    let mut ring = cleans_up();
    calls(&mut ring, 1030, 0x1950, false);
    ring.mark(1040, HANDLER, "", Some(1));
    ring.orphan_exit(1050, 0x1200);
    ring.exit(1060, 0x1100);
    let ends = ["1400 unsure", "1300 UnwoundLate@1050"];
    assert_eq!(shown_with(ring, Some(&Inlined)), [&["1100", "1200", "1300"], &ends[..]].concat());
    // The frame's own function returns first.
    let mut ring = cleans_up();
    calls(&mut ring, 1030, 0x1150, false);
    ring.mark(1040, HANDLER, "", Some(1));
    ring.exit(1060, 0x1100);
    let ends = ["1300 Unwound@1030", "1400", "1200 UnwoundLate@1060"];
    assert_eq!(shown_with(ring, Some(&Inlined)), [&["1100", "1200", "1300"], &ends[..]].concat());
}

/// Calls whose entries have been overwritten are left: those around them return.
#[test]
fn inlined_calls_that_are_left_may_have_begun_before_the_events() {
    let mut ring = Ring::new(64, 2, START);
    for offset in [0x1000, 0x1100, 0x1200, 0x1300] {
        ring.enter(1010, offset);
    }
    for at in 1020..1200 {
        ring.enter(at, 0x1900);
        ring.exit(at, 0x1900);
    }
    ring.caller(1300, Some(0x1150));
    ring.unwind_inlined_in_cleanup(1300, 2);
    ring.enter(1300, 0x1400);
    ring.exit(1301, 0x1400);
    ring.exit(1310, 0x1100);
    ring.exit(1320, 0x1000);
    let bytes = File::of(&Process::of_one_thread(ring, START, 2000));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let mut events = trace.thread_events_checked(0, Some(&Inlined));
    let left = events.by_ref().filter(|event| matches!(event, TimelineEvent::Instant(_))).count();
    let stats = events.stats();
    assert_eq!(
        (left, stats.orphan_exits, stats.inferred_orphan_exits, stats.unnamed),
        (0, 0, 0, 2),
        "{stats:?}"
    );
}

/// Code of compilers that report exits in cleanups; the code of the function at 0x1000 is not read.
struct Reporting;

impl Code for Reporting {
    fn same_function(&self, entry: Location, exit: Location) -> Option<bool> {
        Some(entry == exit)
    }

    fn reports_exits_in_cleanups(&self, code: Location) -> Option<bool> {
        Some(matches!(code.image_address, 0x1100 | 0x1200))
    }
}

#[test]
fn calls_whose_exits_are_reported_end_at_them() {
    let mut ring = Ring::new(512, 16, START);
    for offset in [0x1100, 0x1200, 0x1300] {
        ring.enter(1010, offset);
    }
    ring.mark(1020, 9, "", Some(2));
    ring.caller(1030, Some(0x1110));
    ring.unwind_inlined_in_cleanup(1030, 1);
    ring.enter(1030, 0x1400);
    ring.exit(1031, 0x1400);
    ring.orphan_exit(1040, 0x1300);
    ring.caller(1050, Some(0x1110));
    ring.unwind_inlined(1050, 1);
    ring.mark(1050, 11, "", Some(0));
    ring.enter(1060, 0x1500);
    ring.exit(1061, 0x1500);
    ring.orphan_exit(1070, 0x1200);
    ring.exit(1080, 0x1100);
    let calls = ["1100", "1200", "1300", "1400", "1300 Unwound@1040", "1500"];
    assert_eq!(shown_with(ring, Some(&Reporting)), calls);
}

/// A function that was inlined into itself: the runtime mistakes the exit of the call that it
/// doesn't count for that of the other.
#[test]
fn an_exit_that_the_runtime_mistakes_ends_the_right_call() {
    let mut ring = Ring::new(512, 16, START);
    for offset in [0x1000, 0x1200, 0x1200] {
        ring.enter(1010, offset);
    }
    ring.caller(1020, Some(0x1150));
    ring.unwind_inlined(1020, 2);
    ring.enter(1030, 0x1400);
    ring.exit(1031, 0x1400);
    ring.exit(1040, 0x1200);
    ring.enter(1050, 0x1500);
    ring.exit(1051, 0x1500);
    ring.orphan_exit(1060, 0x1200);
    ring.exit(1070, 0x1000);
    assert_eq!(shown_with(ring, Some(&Reporting)), ["1000", "1200", "1200", "1400", "1500"]);
}
