//! Tail calls: an exit that jumps, and the entry right behind it.

use everycall_reader::TraceFile;
use everycall_synth::{File, Process, Ring, Rng};
use everycall_timeline::{Code, EndKind, Location, TailCall, TimelineEvent, Trace};

const START: u64 = 1000;
const FUNCTION: u64 = 0x100;

/// Functions have 256 bytes. Exits at `f0` jump to the function whose number is theirs plus one,
/// those at `f8` anywhere.
struct Jumpy;

impl Code for Jumpy {
    fn same_function(&self, entry: Location, exit: Location) -> Option<bool> {
        Some(entry.image_address / FUNCTION == exit.image_address / FUNCTION)
    }

    fn jumps(&self, exit: Location) -> bool {
        exit.image_address % FUNCTION >= 0xf0
    }

    fn jumps_to(&self, exit: Location, entry: Location) -> Option<bool> {
        let next = exit.image_address / FUNCTION + 1 == entry.image_address / FUNCTION;
        (exit.image_address % FUNCTION == 0xf0).then_some(next)
    }
}

fn process(ring: Ring) -> Process {
    Process::of_one_thread(ring, START, START + 10_000_000)
}

/// `+2` begins function 2, `=>+3` as a certain tail call, `=>?+4` perhaps; `-2` ends it, `-2=>` by a jump.
fn texts(ring: Ring) -> Vec<String> {
    let bytes = File::of(&process(ring));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let number = |location: Location| location.image_address / FUNCTION;
    let mut depth = 0;
    trace
        .thread_events_checked(0, Some(&Jumpy))
        .filter_map(|event| match event {
            TimelineEvent::Begin(begin) => {
                assert_eq!(begin.depth, depth);
                depth += 1;
                let arrow = match begin.tail_call {
                    TailCall::No => "",
                    TailCall::Perhaps => "=>?",
                    TailCall::Yes => "=>",
                };
                Some(format!("{arrow}+{}", number(begin.location)))
            }
            TimelineEvent::End(end) => {
                depth -= 1;
                let how = match end.how {
                    EndKind::Returned => String::new(),
                    EndKind::Jumped => "=>".to_owned(),
                    other => format!(" {other:?}"),
                };
                Some(format!("-{}{how}", number(end.location)))
            }
            TimelineEvent::Loss(_) => Some("loss".to_owned()),
            _ => None,
        })
        .collect()
}

/// Code offsets by function.
fn entry(function: u32) -> u32 {
    function * FUNCTION as u32
}
fn returns(function: u32) -> u32 {
    entry(function) + 0x20
}
fn jumps(function: u32) -> u32 {
    entry(function) + 0xf0
}
fn jumps_anywhere(function: u32) -> u32 {
    entry(function) + 0xf8
}

#[test]
fn adjacent_calls_are_linked() {
    let mut ring = Ring::new(64, 4096, START);
    let mut at = START;
    let mut next = || {
        at += 10;
        at
    };
    ring.enter(next(), entry(40));
    // A chain.
    ring.enter(next(), entry(20));
    ring.exit(next(), jumps(20));
    ring.enter(next(), entry(21));
    ring.exit(next(), jumps(21));
    ring.enter(next(), entry(22));
    ring.exit(next(), returns(22));
    // Into a function that isn't traced; the caller continues.
    ring.enter(next(), entry(20));
    ring.exit(next(), jumps(20));
    ring.enter(next(), entry(30));
    ring.exit(next(), returns(30));
    // The target isn't known.
    ring.enter(next(), entry(20));
    ring.exit(next(), jumps_anywhere(20));
    ring.enter(next(), entry(30));
    ring.exit(next(), returns(30));
    // A signal's handler, a loss, a label, a gap, an exit of the caller: each comes between.
    ring.enter(next(), entry(20));
    ring.exit(next(), jumps(20));
    ring.enter(next(), entry(35));
    ring.exit(next(), returns(35));
    ring.enter(next(), entry(21));
    ring.exit(next(), jumps(21));
    ring.busy(next(), 1);
    ring.enter(next(), entry(22));
    ring.exit(next(), jumps(22));
    ring.mark(next(), 1, "label", None);
    ring.enter(next(), entry(23));
    ring.exit(next(), jumps_anywhere(23));
    let from = next();
    ring.gap(from, next(), 1, 1);
    ring.enter(next(), entry(24));
    ring.exit(next(), jumps_anywhere(24));
    ring.exit(next(), returns(40));
    ring.enter(next(), entry(25));
    ring.exit(next(), jumps(25));
    let got = texts(ring).join(" ");
    assert_eq!(
        got,
        "+40 +20 -20=> =>+21 -21=> =>+22 -22 +20 -20=> +30 -30 +20 -20=> =>?+30 -30 \
         +20 -20=> +35 -35 +21 -21=> loss +22 -22=> +23 -23=> +24 -24=> -40 ReturnedAfterGap +25 -25=>"
    );
}

/// A call that was open in a gap: the next call isn't linked to it.
#[test]
fn a_jump_after_a_gap_links_no_calls() {
    let mut ring = Ring::new(64, 4096, START);
    ring.enter(START + 10, entry(21));
    ring.gap(START + 20, START + 30, 1, 1);
    ring.exit(START + 40, jumps(21));
    ring.enter(START + 50, entry(22));
    ring.exit(START + 60, jumps(22));
    ring.enter(START + 70, entry(23));
    ring.exit(START + 80, returns(23));
    assert_eq!(texts(ring).join(" "), "+21 -21 ReturnedAfterGap +22 -22=> =>+23 -23");
}

/// The handler's events are written first and are later in time: the order of time counts.
#[test]
fn order_is_that_of_time() {
    let mut ring = Ring::new(64, 4096, START);
    ring.enter(START + 10, entry(20));
    ring.exit(START + 20, jumps(20));
    // The hook of the tail call has read its clock; a handler runs before it has its slot.
    ring.enter(START + 40, entry(35));
    ring.exit(START + 50, returns(35));
    ring.enter(START + 30, entry(21));
    ring.exit(START + 60, returns(21));
    assert_eq!(texts(ring).join(" "), "+20 -20=> =>+21 +35 -35 -21");
}

/// An exit at its function's own address is what the code says of it: a function may be one jump.
#[test]
fn without_code_no_exit_is_a_jump() {
    let mut ring = Ring::new(64, 4096, START);
    ring.enter(START + 10, jumps(20));
    ring.exit(START + 20, jumps(20));
    ring.enter(START + 30, entry(21));
    ring.exit(START + 40, jumps(21));
    let bytes = File::of(&process(ring));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let ends = |code: Option<&dyn Code>| -> Vec<EndKind> {
        let ends = trace.thread_events_checked(0, code).filter_map(|event| match event {
            TimelineEvent::End(end) => Some(end.how),
            _ => None,
        });
        ends.collect()
    };
    assert_eq!(ends(Some(&Jumpy)), [EndKind::Jumped, EndKind::Jumped]);
    assert_eq!(ends(None), [EndKind::Returned, EndKind::Returned]);
}

/// Whatever is around them, also where the ring has wrapped.
#[test]
fn a_million_tail_calls_stay_at_one_depth() {
    let mut ring = Ring::new(1 << 13, 4096, START);
    let mut rng = Rng::new(7);
    let mut at = START;
    ring.enter(at, entry(20));
    for step in 0..1_000_000_u32 {
        let (of, to) = (20 + step % 2, 20 + (step + 1) % 2);
        at += 1 + rng.below(3);
        // Even ones jump to the next, odd ones to an unknown function.
        ring.exit(at, if of == 20 { jumps(of) } else { jumps_anywhere(of) });
        ring.enter(at, entry(to));
    }
    ring.exit(at + 1, returns(20));
    let texts = texts(ring);
    assert_eq!(texts.len(), 2_000_002);
    assert_eq!(texts.iter().filter(|text| *text == "=>+21").count(), 500_000);
    assert_eq!(texts.iter().filter(|text| *text == "=>?+20").count(), 500_000);
}

/// The untraced targets of jumps: between which times they ran.
fn untraced(ring: Ring) -> Vec<(u64, u64)> {
    let bytes = File::of(&process(ring));
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let origin = trace.clock().origin_ticks();
    trace
        .thread_events_checked(0, Some(&Jumpy))
        .filter_map(|event| match event {
            TimelineEvent::Untraced(untraced) => {
                Some((origin + untraced.at_ns - START, origin + untraced.until_ns - START))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn what_is_not_traced_goes_on_until_the_next_event() {
    let mut ring = Ring::new(512, 16, START);
    ring.enter(START + 10, entry(1));
    // Into the next function, which is traced.
    ring.enter(START + 20, entry(2));
    ring.exit(START + 30, jumps(2));
    ring.enter(START + 31, entry(3));
    // Elsewhere: until the next entry, and until the caller's exit.
    ring.exit(START + 50, jumps(3));
    ring.enter(START + 90, entry(9));
    ring.exit(START + 100, jumps(9));
    ring.exit(START + 170, returns(1));
    // The target is unknown: it is the next call, if that comes at once.
    ring.enter(START + 200, entry(4));
    ring.exit(START + 210, jumps_anywhere(4));
    ring.enter(START + 220, entry(5));
    ring.exit(START + 230, jumps_anywhere(5));
    ring.enter(START + 9000, entry(6));
    // Nothing comes any more.
    ring.exit(START + 9010, jumps(6));
    assert_eq!(untraced(ring), [(50, 90), (100, 170), (230, 9000), (9010, 10_000_000)]);
}
