//! Times of events without a stamp, against a program's own readings of the clock between any two
//! events.
//!
//! With `EVERYCALL_FULL=1`: 100 million events, and 10,000 disturbances in each mode.

use std::path::Path;

use everycall_reader::TraceFile;
use everycall_tests::{Mode, Place, is_full};
use everycall_timeline::{Intervals, TimelineEvent, Trace};

/// Marks a reading after which the program disturbed itself.
const DISTURBED: u64 = 1 << 63;
/// Ticks: a disturbance takes a millisecond at least, at any usual frequency of the counter.
const LONG: u64 = 900_000;
/// Ticks that an event may be placed away from its readings.
const NEAR: u64 = 300_000;

/// What the program read, in order.
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

/// The events inside `main`.
fn events(file: &Path) -> Vec<Event> {
    let bytes = std::fs::read(file).expect("the trace");
    let trace =
        Trace::open_in_ticks(TraceFile::open(&bytes).expect("a trace")).expect("the trace is readable");
    let longest = (0..trace.threads().len()).max_by_key(|index| trace.threads()[*index].events);
    let mut thread = trace.thread_events(longest.expect("a thread"));
    let mut intervals = Intervals::default();
    let mut all = Vec::new();
    loop {
        let some = thread.next_some();
        if some.is_empty() {
            break;
        }
        for event in some {
            intervals.event(event);
            let at = match event {
                TimelineEvent::Begin(begin) if begin.depth > 0 => begin.start_ns,
                TimelineEvent::End(end) if end.depth > 0 => end.end_ns,
                _ => continue,
            };
            let interval = intervals.at(at);
            all.push(Event { at, from: interval.from_ns, until: interval.until_ns });
        }
    }
    all
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
    let program = place.build(Mode::GCC_NOPS, &["-O2", "bracketed_calls.c"], "bracketed");
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
        assert!(seen.unstamped > undisturbed / 2, "{clock}: {} of {undisturbed}", seen.unstamped);
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
