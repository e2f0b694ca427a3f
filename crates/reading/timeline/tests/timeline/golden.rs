//! Old files are read as they always were.

use crate::text;
use everycall_reader::{MemoryOwner, TraceFile};
use everycall_timeline::{MarkName, Trace};

fn check(bytes: &[u8], wanted: &str, text: impl Fn(&Trace<'_>) -> String) {
    let trace = Trace::open(TraceFile::open(bytes).unwrap()).unwrap();
    let got = text(&trace);
    assert!(got == wanted, "the file now says:\n{got}");
}

fn with_processes(trace: &Trace<'_>) -> String {
    text::processes(trace) + &text::text(trace)
}

/// The first version's file, and its text. Neither file ever changes: a newer version of the format
/// adds files beside them. If the text differs, the meaning of old recordings has changed.
#[test]
fn version_1_0() {
    check(include_bytes!("../golden/v1.0-basic.ect"), include_str!("../golden/v1.0-basic.txt"), text::text);
}

/// Labels, spans and gaps.
#[test]
fn version_2_0_marks() {
    check(include_bytes!("../golden/v2.0-marks.ect"), include_str!("../golden/v2.0-marks.txt"), text::text);
}

/// The first version that contains several processes.
#[test]
fn version_2_0() {
    check(
        include_bytes!("../golden/v2.0-family.ect"),
        include_str!("../golden/v2.0-family.txt"),
        with_processes,
    );
}

/// The first version that stores events in compact form: another form of the first version's file.
#[test]
fn version_2_1() {
    check(include_bytes!("../golden/v2.1-compact.ect"), include_str!("../golden/v1.0-basic.txt"), text::text);
}

/// The first version that contains streams: the same processes as in the process tree's file, event
/// for event.
#[test]
fn version_2_2() {
    check(
        include_bytes!("../golden/v2.2-stream.ect"),
        include_str!("../golden/v2.0-family.txt"),
        with_processes,
    );
}

/// The first version that records what isn't known: of unwound frames, and of stacks that are
/// resumed.
#[test]
fn version_2_5() {
    check(include_bytes!("../golden/v2.5-unsure.ect"), include_str!("../golden/v2.5-unsure.txt"), text::text);
}

/// The first version that says where a call was made that may be another stack's.
#[test]
fn version_2_6() {
    check(
        include_bytes!("../golden/v2.6-callers.ect"),
        include_str!("../golden/v2.6-callers.txt"),
        text::text,
    );
}

/// The first version that says from where a frame that cleans up makes its calls.
#[test]
fn version_2_7() {
    check(
        include_bytes!("../golden/v2.7-cleanups.ect"),
        include_str!("../golden/v2.7-cleanups.txt"),
        text::text,
    );
}

/// The first version with counters, log lines, XRay's events and dropped short calls.
#[test]
fn version_2_8() {
    check(
        include_bytes!("../golden/v2.8-counters.ect"),
        include_str!("../golden/v2.8-counters.txt"),
        text::text,
    );
}

/// The first version with output of the program, symbols and sources. It was recorded.
#[test]
fn version_2_9_output() {
    let bytes = include_bytes!("../golden/v2.9-output.ect");
    check(bytes, include_str!("../golden/v2.9-output.txt"), text::text);
    let file = TraceFile::open(&bytes[..]).unwrap();
    let trace = Trace::open(&file).unwrap();
    let line = |number| trace.log_lines().text(MarkName(number), |_| None);
    assert_eq!([0, 1, 2, 3].map(line), ["half", " of it", "whole", "error"]);
    let symbols = file.symbols(0, &mut u64::MAX.clone()).unwrap().unwrap();
    for name in ["leaf", "main", "/tmp/emb/small.c"] {
        assert!(symbols.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
    }
    let (sources, damage) = file.sources(&mut u64::MAX.clone());
    let [source] = &sources[..] else { panic!("{sources:?}") };
    assert!(damage.is_empty() && source.text.starts_with("#include <stdio.h>\n") && !source.is_lossy);
    assert_eq!(file.end().unwrap().chunks, 10);
}

/// The first version with scheduling events of two sources at once, and with samples.
#[test]
fn version_2_9_states() {
    check(
        include_bytes!("../golden/v2.9-switches.ect"),
        include_str!("../golden/v2.9-switches.txt"),
        text::states,
    );
    check(
        include_bytes!("../golden/v2.9-samples.ect"),
        include_str!("../golden/v2.9-samples.txt"),
        text::states,
    );
}

/// The first version whose scheduling events may be known until a moment only.
#[test]
fn version_2_10() {
    check(
        include_bytes!("../golden/v2.10-until.ect"),
        include_str!("../golden/v2.10-until.txt"),
        text::states,
    );
}

/// The first version whose scheduling events have the system call in which a thread waited.
#[test]
fn version_2_10_calls() {
    check(
        include_bytes!("../golden/v2.10-calls.ect"),
        include_str!("../golden/v2.10-calls.txt"),
        text::states,
    );
}

/// The first version with renames of threads.
#[test]
fn version_2_11_names() {
    check(
        include_bytes!("../golden/v2.11-names.ect"),
        include_str!("../golden/v2.11-names.txt"),
        text::states,
    );
}

/// The first version with tasks.
#[test]
fn version_2_12() {
    check(include_bytes!("../golden/v2.12-tasks.ect"), include_str!("../golden/v2.12-tasks.txt"), text::text);
}

/// The first version with times of calls that weren't recorded: chunk 26.
#[test]
fn version_2_9() {
    let bytes = include_bytes!("../golden/v2.9-times.ect");
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let [counts] = trace.counts() else { panic!("{:?}", trace.counts()) };
    assert_eq!((counts.calls, counts.others), (12, 2));
    let [one] = &counts.functions[..] else { panic!("{:?}", counts.functions) };
    assert_eq!((one.offset, one.slot, one.ticks, one.calls), (Some(0x1010), 1, 5_000, 10));
    let times = one.times.as_deref().unwrap();
    assert_eq!((times.total, times.nested, times.own), (900, 70, 600));
    assert_eq!((times.shortest, times.longest, times.histogram[7]), (40, 250, 2));
    assert_eq!(times.histogram.iter().sum::<u64>(), 9);
}

/// The first version with what calls have allocated: chunk 27.
#[test]
fn version_2_10_memory() {
    let bytes = include_bytes!("../golden/v2.10-memory.ect");
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let [memory] = trace.memory() else { panic!("{:?}", trace.memory()) };
    assert_eq!((memory.is_seen, memory.has_sizes, memory.own_allocator), (true, true, false));
    assert_eq!((memory.elsewhere.allocated, memory.elsewhere.freed_blocks), (72_704, 0));
    let [one, thread] = &memory.calls[..] else { panic!("{:?}", memory.calls) };
    assert_eq!((one.whose, one.slot), (MemoryOwner::Function(0x1010, 5_000), 1));
    assert_eq!((one.own.allocated, one.own.allocated_blocks), (100, 2));
    assert_eq!((one.total.freed, one.total.freed_blocks), (300, 5));
    assert_eq!((thread.whose, thread.total.allocated), (MemoryOwner::Thread, 1_000));
}

/// The first version with counts of all calls beside events: chunk 28.
#[test]
fn version_2_10_all_calls() {
    let bytes = include_bytes!("../golden/v2.10-all-calls.ect");
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let [all] = trace.all_calls() else { panic!("{:?}", trace.all_calls()) };
    assert!(trace.counts().is_empty(), "{:?}", trace.counts());
    assert_eq!(
        (all.snapshot, all.process, all.is_timed, all.calls, all.others),
        (0, 0, false, 1_000_000_012, 2)
    );
    let found: Vec<_> =
        all.functions.iter().map(|one| (one.offset, one.slot, one.ticks, one.calls)).collect();
    assert_eq!(found, [(Some(0x1010), 0, 5_000, 1_000_000_000), (Some(0x1010), 1, 5_000, 10)]);
}

/// The first version with frames by id: chunk 29.
#[test]
fn version_2_11_frames() {
    let bytes = include_bytes!("../golden/v2.11-frames.ect");
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let [module] = trace.modules() else { panic!("{:?}", trace.modules()) };
    let frames = trace.frames_of(module).unwrap();
    assert_eq!((frames.process, frames.lost), (0, 4));
    let found = frames.names.iter().map(|frame| (frame.id, &*frame.name, &*frame.file, frame.line));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [(5, &b"five"[..], &b"a.lua"[..], Some(3)), (7, b"seven", b"", None)]
    );
    assert!(module.is_frames() && module.code_start == 0x7d80_0000, "{module:?}");
    let location = trace.locate(0, 0x7d80_0000 + 8 * 5, 100);
    assert_eq!((location.module, location.image_address), (0, 40));
}

/// The first version with names of just-in-time compilers' code: chunk 30.
#[test]
fn version_2_13_codes() {
    let bytes = include_bytes!("../golden/v2.13-codes.ect");
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let [module] = trace.modules() else { panic!("{:?}", trace.modules()) };
    let frames = trace.frames_of(module).unwrap();
    assert_eq!((frames.codes.len(), frames.codes_lost, frames.lost), (3, 4, 0));
    let found = frames.names.iter().map(|frame| (frame.id, &*frame.name, &*frame.file, frame.line));
    let first = 1 << 20;
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            (17, &b"id"[..], &b""[..], None),
            (first, b"old", b"", None),
            (first + 1, b"new", b"a.lua", Some(3)),
            (first + 2, b"id", b"", None),
        ]
    );
    let at = |ticks| trace.locate_outside(0, 0x7f00_0000_1004, ticks).image_address;
    assert_eq!([at(100), at(700)], [8 << 20, (8 << 20) + 8]);
}

/// The first version whose events may have no times of their own: chunk 31.
#[test]
fn version_2_14_stamps() {
    let wanted = include_str!("../golden/v2.14-stamps.txt");
    check(include_bytes!("../golden/v2.14-stamps.ect"), wanted, |trace| {
        format!("{:?}\n{}", trace.processes()[0].stamps, text::text(trace))
    });
}

/// Calls of which some have the ticks of the one before.
fn stamps_file() -> Vec<u8> {
    let mut ring = everycall_synth::Ring::new(512, 4, 1000);
    for (ticks, offset) in [(1000, 0x1100), (1000, 0x1200), (1000, 0x1300)] {
        ring.enter(ticks, offset);
    }
    ring.exit(1000, 0x1308);
    ring.exit(2000, 0x1208);
    ring.mark(2040, 2, "here", None);
    ring.enter(2050, 0x1200);
    ring.exit(2050, 0x1208);
    ring.gap(2100, 9000, 2, 1);
    ring.enter(9000, 0x1300);
    ring.exit(9000, 0x1308);
    let process = everycall_synth::Process::of_one_thread(ring, 1000, 9500);
    everycall_synth::File::of_unstamped(&process, 1)
}

fn numbers(bytes: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
}

/// A file of version 2.`minor` with one process and this chunk.
fn file_with(minor: u16, kind: u32, payload: &[u8]) -> Vec<u8> {
    let mut file = everycall_synth::File::new(2, minor);
    let mut process = [7_u32, 0, 1, 0].map(u32::to_le_bytes).concat();
    process.resize(64, 0);
    file.chunk(10, &process);
    file.chunk(kind, payload);
    file.end()
}

/// A file with names of frames by id: of 5 two, the last one of which counts.
fn frames_file() -> Vec<u8> {
    let mut records = Vec::new();
    for (id, line, name, file) in [(5_u32, 1_u32, "old", ""), (7, 0, "seven", ""), (5, 3, "five", "a.lua")] {
        let size = (24 + name.len() + file.len()).next_multiple_of(8);
        let at = records.len();
        let lengths = [name.len() as u32, file.len() as u32];
        records.extend([size as u32, id, line, lengths[0], lengths[1], 1].map(u32::to_le_bytes).concat());
        records.extend([name, file].concat().bytes());
        records.resize(at + size, 0);
    }
    // Bytes of this record, reserved, bytes of names, names that didn't fit, reserved.
    let mut payload = [32_u32, 0].map(u32::to_le_bytes).concat();
    numbers(&mut payload, &[records.len() as u64, 4, 0]);
    payload.extend(records);
    file_with(11, 29, &payload)
}

/// A file with names of code: two at one address, one after the other, and one of an id.
fn codes_file() -> Vec<u8> {
    let mut records = Vec::new();
    for (line, place, name, file) in [
        (0_u32, [0x7f00_0000_1000, 16, 0, 500], "old", ""),
        (3, [0x7f00_0000_1000, 16, 500, u64::MAX], "new", "a.lua"),
        (0, [17, 1, 0, u64::MAX], "id", ""),
    ] {
        let size = (56 + name.len() + file.len()).next_multiple_of(8);
        let at = records.len();
        records.extend([size as u32, line].map(u32::to_le_bytes).concat());
        numbers(&mut records, &place);
        records.extend([name.len() as u32, file.len() as u32].map(u32::to_le_bytes).concat());
        numbers(&mut records, &[0]);
        records.extend([name, file].concat().bytes());
        records.resize(at + size, 0);
    }
    // Bytes of this record, reserved, bytes of names, names that were lost, reserved.
    let mut payload = [32_u32, 0].map(u32::to_le_bytes).concat();
    numbers(&mut payload, &[records.len() as u64, 4, 0]);
    payload.extend(records);
    file_with(13, 30, &payload)
}

/// A file with the counts of one function in two thread slots, and of others.
fn all_calls_file() -> Vec<u8> {
    // Snapshot 0, 0, all calls, those without a place, reserved.
    let mut payload = [0_u32, 0].map(u32::to_le_bytes).concat();
    numbers(&mut payload, &[1_000_000_012, 2, 0, 0, 0]);
    // Two entries of 24 bytes.
    payload.extend([24_u32, 2].map(u32::to_le_bytes).concat());
    for (slot, calls) in [(0_u32, 1_000_000_000), (1, 10)] {
        payload.extend([0x1010, slot].map(u32::to_le_bytes).concat());
        numbers(&mut payload, &[5_000, calls]);
    }
    file_with(10, 28, &payload)
}

/// A file with the memory of one function, and of its thread.
fn memory_file() -> Vec<u8> {
    // Snapshot 0, a library sees allocations, those of threads without a slot, reserved.
    let mut payload = [0_u32, 1].map(u32::to_le_bytes).concat();
    numbers(&mut payload, &[72_704, 1, 0, 0, 0, 0, 0]);
    // Two entries of 88 bytes.
    payload.extend([88_u32, 2].map(u32::to_le_bytes).concat());
    payload.extend([0x1010_u32, 1].map(u32::to_le_bytes).concat());
    numbers(&mut payload, &[5_000, 100, 2, 50, 1, 400, 7, 300, 5, 0]);
    payload.extend([0_u32, 1].map(u32::to_le_bytes).concat());
    numbers(&mut payload, &[0, 600, 3, 0, 0, 1_000, 10, 300, 5, 1]);
    file_with(10, 27, &payload)
}

/// A file with the times of one function: ten calls, of which nine have ended.
fn times_file() -> Vec<u8> {
    // Of a COUNTS chunk: snapshot 0, calls are timed, all calls, those without a place, reserved.
    let mut payload = [0_u32, 2].map(u32::to_le_bytes).concat();
    numbers(&mut payload, &[12, 2, 0, 0, 0]);
    // One entry of 448 bytes.
    payload.extend([448_u32, 1].map(u32::to_le_bytes).concat());
    payload.extend([0x1010_u32, 1].map(u32::to_le_bytes).concat());
    numbers(&mut payload, &[5_000, 10, 900, 600, 40, 250, 70]);
    let mut histogram = [0; 48];
    (histogram[5], histogram[6], histogram[7]) = (3, 4, 2);
    numbers(&mut payload, &histogram);
    file_with(9, 26, &payload)
}

/// The synthetic samples still have the bytes of these versions.
#[test]
fn the_samples_are_these_files() {
    let bytes = everycall_synth::File::of(&everycall_synth::basic());
    assert!(bytes == include_bytes!("../golden/v1.0-basic.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_compact(&everycall_synth::basic());
    assert!(
        bytes == include_bytes!("../golden/v2.1-compact.ect"),
        "raise the version and add a file instead"
    );
    let bytes = everycall_synth::File::of_processes(&everycall_synth::process_tree());
    assert!(bytes == include_bytes!("../golden/v2.0-family.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_stream(&everycall_synth::process_tree());
    assert!(bytes == include_bytes!("../golden/v2.2-stream.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes(&[everycall_synth::marks()]);
    assert!(bytes == include_bytes!("../golden/v2.0-marks.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes_in(5, &[everycall_synth::unsure()]);
    assert!(bytes == include_bytes!("../golden/v2.5-unsure.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes_in(6, &[everycall_synth::callers()]);
    assert!(
        bytes == include_bytes!("../golden/v2.6-callers.ect"),
        "raise the version and add a file instead"
    );
    let bytes = everycall_synth::File::of_processes_in(7, &[everycall_synth::cleanups()]);
    assert!(
        bytes == include_bytes!("../golden/v2.7-cleanups.ect"),
        "raise the version and add a file instead"
    );
    let bytes = everycall_synth::File::of_processes_in(8, &[everycall_synth::counters()]);
    assert!(
        bytes == include_bytes!("../golden/v2.8-counters.ect"),
        "raise the version and add a file instead"
    );
    let basic = everycall_synth::basic();
    let bytes = everycall_synth::File::of_scheduled(&basic, 3, &everycall_synth::switches());
    assert!(
        bytes == include_bytes!("../golden/v2.9-switches.ect"),
        "raise the version and add a file instead"
    );
    let bytes = everycall_synth::File::of_scheduled(&basic, 4, &everycall_synth::samples());
    assert!(
        bytes == include_bytes!("../golden/v2.9-samples.ect"),
        "raise the version and add a file instead"
    );
    let bytes =
        everycall_synth::File::of_scheduled_until(&basic, &everycall_synth::switches(), 5_000_010_000);
    assert!(bytes == include_bytes!("../golden/v2.10-until.ect"), "raise the version and add a file instead");
    let calls = everycall_synth::switches_with_calls();
    let bytes = everycall_synth::File::of_scheduled_until(&basic, &calls, 5_000_010_000);
    assert!(bytes == include_bytes!("../golden/v2.10-calls.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_renamed(&basic, &everycall_synth::renames(), 5_000_010_000);
    assert!(bytes == include_bytes!("../golden/v2.11-names.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes_in(12, &[everycall_synth::tasks()]);
    assert!(bytes == include_bytes!("../golden/v2.12-tasks.ect"), "raise the version and add a file instead");
    assert!(
        times_file() == include_bytes!("../golden/v2.9-times.ect"),
        "raise the version and add a file instead"
    );
    assert!(
        memory_file() == include_bytes!("../golden/v2.10-memory.ect"),
        "raise the version and add a file instead"
    );
    assert!(
        all_calls_file() == include_bytes!("../golden/v2.10-all-calls.ect"),
        "raise the version and add a file instead"
    );
    assert!(
        frames_file() == include_bytes!("../golden/v2.11-frames.ect"),
        "raise the version and add a file instead"
    );
    assert!(
        stamps_file() == include_bytes!("../golden/v2.14-stamps.ect"),
        "raise the version and add a file instead"
    );
    assert!(
        codes_file() == include_bytes!("../golden/v2.13-codes.ect"),
        "raise the version and add a file instead"
    );
}
