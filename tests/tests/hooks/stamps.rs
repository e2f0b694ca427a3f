//! Times of events without a stamp, against a program's own readings of the clock between any two
//! events.
//!
//! With `EVERYCALL_FULL=1`: 100 million events, and 10,000 disturbances in each mode.

use std::path::Path;
use std::time::Duration;

use everycall_format::stamp::{BOUNDED, EXACT, ORDER};
use everycall_live::{Control, ControlError, attach};
use everycall_reader::TraceFile;
use everycall_tests::{Mode, Place, Standing, everycall, is_full, successful, wait};
use everycall_timeline::{Intervals, TimelineEvent, Trace};

/// Marks a reading after which the program disturbed itself.
const DISTURBED: u64 = 1 << 63;
/// Ticks: a disturbance takes a millisecond at least, at any usual frequency of the counter.
const LONG: u64 = 900_000;
/// Ticks that an event may be placed away from its readings.
const NEAR: u64 = 300_000;

/// The program's readings of the clock, in order.
fn readings(file: &Path) -> Vec<u64> {
    let bytes = std::fs::read(file).expect("the program's readings");
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// An event, in ticks: where it is placed, and its interval.
struct Event {
    at: u64,
    from: u64,
    until: u64,
}

/// The entries and exits of a thread, with their depths.
fn events_of(trace: &Trace<'_>, thread: usize) -> Vec<(u32, Event)> {
    let mut thread = trace.thread_events(thread);
    let mut intervals = Intervals::default();
    let mut all = Vec::new();
    loop {
        let some = thread.next_some();
        if some.is_empty() {
            break;
        }
        for event in some {
            intervals.event(event);
            let (depth, at) = match event {
                TimelineEvent::Begin(begin) => (begin.depth, begin.start_ns),
                TimelineEvent::End(end) => (end.depth, end.end_ns),
                _ => continue,
            };
            let interval = intervals.at(at);
            all.push((depth, Event { at, from: interval.from_ns, until: interval.until_ns }));
        }
    }
    all
}

/// The events inside `main`.
fn events(file: &Path) -> Vec<Event> {
    let bytes = std::fs::read(file).expect("the trace");
    let trace =
        Trace::open_in_ticks(TraceFile::open(&bytes).expect("a trace")).expect("the trace is readable");
    let longest = (0..trace.threads().len()).max_by_key(|index| trace.threads()[*index].events);
    let all = events_of(&trace, longest.expect("a thread"));
    all.into_iter().filter(|(depth, _)| *depth > 0).map(|(_, event)| event).collect()
}

/// Disturbances that were seen where they were, those seen elsewhere, and events without a stamp.
#[derive(Default)]
struct Seen {
    right: usize,
    wrong: usize,
    planted: usize,
    planted_wrong: usize,
    unstamped: usize,
}

/// Compares a recording with the program's readings.
fn check(label: &str, events: &[Event], readings: &[u64]) -> Seen {
    assert_eq!(events.len() + 1, readings.len(), "{label}: there is one event between two readings");
    let mut seen = Seen::default();
    for (number, (event, pair)) in events.iter().zip(readings.windows(2)).enumerate() {
        let (before, after) = (pair[0] & !DISTURBED, pair[1] & !DISTURBED);
        assert!(
            event.from <= after && event.until >= before && event.from <= event.at && event.at <= event.until,
            "{label}: event {number} from {} until {}, read {before} and {after}",
            event.from,
            event.until
        );
        seen.unstamped += usize::from(event.from < event.until);
        if after - before < LONG {
            continue;
        }
        // The calls before it aren't longer by it, nor are those after it.
        let last = events[..number].last().is_none_or(|last| last.at <= before + NEAR);
        let next = events.get(number + 1).is_none_or(|next| next.at + NEAR >= after);
        let (is_right, is_planted) = (last && next, pair[0] & DISTURBED != 0);
        seen.right += usize::from(is_right);
        seen.wrong += usize::from(!is_right);
        seen.planted += usize::from(is_planted);
        seen.planted_wrong += usize::from(is_planted && !is_right);
    }
    seen
}

#[test]
fn events_lie_in_their_intervals_and_disturbances_in_the_calls_that_they_hit() {
    let place = Place::new("stamps");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "-pthread", "bracketed_calls.c"], "bracketed");
    let (rounds, undisturbed, disturbed) =
        if is_full() { (10, 10_000_000, 2_000_000) } else { (1, 400_000, 200_000) };
    for (clock, seed) in
        ["bounded", "order"].into_iter().flat_map(|clock| (1..=rounds).map(move |seed| (clock, seed)))
    {
        let seed = &seed.to_string()[..];
        let record = |events: usize, rarity: &[&str]| {
            let ring = (events / 65_536).next_power_of_two().to_string() + "M";
            let events = events.to_string();
            let file = place.file("readings");
            let arguments = [&[file.to_str().expect("a name"), seed, &events[..]], rarity].concat();
            let options = ["--clock", clock, "--ring-size", &ring];
            let recording = place.record(&options, &program, &arguments);
            assert!(recording.output.status.success(), "{clock}: {recording:?}");
            (self::events(&recording.file), readings(&file))
        };
        let (events, readings) = record(undisturbed, &[]);
        let seen = check(clock, &events, &readings);
        if seen.unstamped == 0 {
            // The C library or the kernel doesn't tell of stops.
            continue;
        }
        // A loaded machine stops it often, and each stop has stamps.
        assert!(seen.unstamped > undisturbed / 4, "{clock}: {} of {undisturbed}", seen.unstamped);
        let (events, readings) = record(disturbed, &["2000"]);
        let seen = check(&format!("{clock}, disturbed, {seed}"), &events, &readings);
        println!(
            "{clock}: {} disturbances, {} of them planted, {} elsewhere",
            seen.right, seen.planted, seen.wrong
        );
        assert!(seen.planted > disturbed / 4000, "{clock}: {} disturbances", seen.planted);
        if clock == "order" {
            // Up to 8,192 events have one stamp: the time of a stop may be spread over them.
            continue;
        }
        assert_eq!(seen.planted_wrong, 0, "{clock}");
        // The machine below the kernel may stop a thread, too.
        assert!(seen.wrong * 100 <= seen.right, "{clock}: {} of {} elsewhere", seen.wrong, seen.right);
    }
}

/// Of the events of all threads: all, and those without a stamp.
fn stamped(file: &Path) -> (usize, usize) {
    let bytes = std::fs::read(file).expect("the trace");
    let trace = Trace::open(TraceFile::open(&bytes).expect("a trace")).expect("the trace is readable");
    let events = (0..trace.threads().len()).flat_map(|thread| events_of(&trace, thread));
    events.fold((0, 0), |(all, unstamped), (_, event)| {
        (all + 1, unstamped + usize::from(event.from < event.until))
    })
}

#[test]
fn the_clock_of_a_running_process_is_chosen() {
    let place = Place::new("stamps-live");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let label = mode.label();
        let program = place.build(mode, &["-O2", "selected.c", "-pthread"], &format!("selected-{label}"));
        let mut command = place.command(&program);
        let mut standing = Standing::start(command.arg("2").env("EVERYCALL_START", "off"));
        let pid = standing.pid.to_string();
        let session = |clock: &[&str]| {
            let file = place.file("session.ect");
            let mut command = place.command(everycall());
            command.args(["trace", "-q", &pid, "work_*", "--for", "0.4s", "-o"]).arg(&file).args(clock);
            (command.output().expect("trace"), file)
        };
        let share = |clock: &[&str]| {
            let (output, file) = session(clock);
            assert!(output.status.success(), "{label}: {output:?}");
            let (all, unstamped) = stamped(&file);
            assert!(all > 10_000, "{label}, {clock:?}: {all} events");
            (unstamped as f64 / all as f64, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (bounded, said) = share(&["--clock", "bounded"]);
        if said.contains("restartable sequence") {
            // The C library or the kernel doesn't tell of stops.
            return;
        }
        assert!(bounded > 0.5, "{label}: {bounded}");
        let rows = |query: &str| {
            let mut command = place.command(everycall());
            command.args(["sql", "-f", "csv"]).arg(place.file("session.ect")).arg(query);
            let printed = successful(&mut command);
            printed.lines().nth(1).and_then(|line| line.parse::<u64>().ok()).expect("a number")
        };
        let order = "duration_low_ns <= duration_ns and duration_ns <= duration_high_ns";
        assert_eq!(rows(&format!("select count(*) from slices where not ({order})")), 0, "{label}");
        assert!(
            rows("select count(*) from slices where duration_low_ns < duration_high_ns") > 1000,
            "{label}"
        );
        let of_caller = "select count(*) from slices a join slices b on b.parent = a.id where b.duration_high_ns > a.duration_high_ns";
        assert_eq!(rows(of_caller), 0, "{label}");
        let (exact, _) = share(&[]);
        let with_bounds = "select count(*) from slices where duration_low_ns <> duration_ns";
        assert!(rows(with_bounds) < 10, "{label}: two events may have the same ticks");
        assert!(exact < 0.001, "{label}: {exact}");
        let (order, _) = share(&["--clock", "order"]);
        assert!(order > 0.9, "{label}: {order}");

        let arena = attach(standing.pid).expect("the process");
        let connect = || Control::connect(&arena, Duration::from_secs(30)).expect("its control socket");
        let mut base = connect();
        base.set(true, None, &[]).expect("all functions");
        let (output, _) = session(&["--clock", "bounded"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("another --clock"), "{label}: {said}");
        assert!(share(&[]).0 < 0.001, "{label}");
        base.set(true, Some(BOUNDED), &[]).expect("all functions with bounds");
        assert!(share(&[]).0 > 0.5 && share(&["--clock", "bounded"]).0 > 0.5, "{label}");

        // While threads run what is switched.
        let all = everycall_tests::selections::only(&program, &["work_one", "work_two", "step", "red"]);
        let some = everycall_tests::selections::only(&program, &["work_one", "work_two"]);
        for round in 0..150 {
            let clock = [EXACT, BOUNDED, ORDER][round * 7 % 3];
            let reply = base.set(true, Some(clock), if round % 2 == 0 { &all } else { &some });
            assert_eq!(reply.map(|reply| (reply.foreign, reply.failed)).ok(), Some((0, 0)), "{label}");
            base.set(false, None, &[]).expect("nothing");
            let (mut one, mut another) = (connect(), connect());
            let clock = [ORDER, EXACT, BOUNDED][round * 5 % 3];
            one.open("one", Some(clock), &some).expect("a session");
            one.activate().expect("a session");
            assert!(another.open("another", Some(clock), &all).is_ok(), "{label}");
            let refused = another.open("another", Some((clock + 1) % 3), &all);
            assert!(matches!(refused, Err(ControlError::OtherClock)), "{label}: {refused:?}");
            drop((one, another));
            wait::until("the sessions are gone", || base.sessions().expect("a list").1.is_empty());
        }
        standing.go_on();
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{label}: {printed}");
        let printed = successful(place.command(&program).arg("0").env("EVERYCALL_START", "off"));
        assert!(printed.ends_with(" 0 wrong\n"), "{label}: {printed}");
    }
}

/// Also before it is complete: its recorder may be killed.
#[test]
fn a_stream_tells_of_a_clock_that_is_chosen_meanwhile() {
    let place = Place::new("stamps-stream");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "selected.c", "-pthread"], "selected");
    let file = place.file("stream.ect");
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--stream", "-o"]).arg(&file).arg("--").arg(&program).arg("2");
    let mut standing = Standing::start(&mut command).find_traced();
    let arena = attach(standing.pid).expect("the process");
    let mut control = Control::connect(&arena, Duration::from_secs(30)).expect("its control socket");
    control.set(true, Some(ORDER), &[]).expect("the order of all functions");
    if arena.header().stamps != ORDER {
        // The C library doesn't tell of stops.
        return;
    }
    let is_told = || {
        let (all, unstamped) = stamped(&file);
        unstamped * 2 > all
    };
    wait::until("most events have no stamp", is_told);
    standing.go_on();
    let (status, printed) = standing.end();
    assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    assert!(is_told());
}
