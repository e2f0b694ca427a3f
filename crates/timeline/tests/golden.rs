//! Old files are read as they always were.

mod text;

use everycall_reader::TraceFile;
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
    check(include_bytes!("golden/v1.0-basic.ect"), include_str!("golden/v1.0-basic.txt"), text::text);
}

/// Labels, spans and gaps.
#[test]
fn version_2_0_marks() {
    check(include_bytes!("golden/v2.0-marks.ect"), include_str!("golden/v2.0-marks.txt"), text::text);
}

/// The first version that contains several processes.
#[test]
fn version_2_0() {
    check(include_bytes!("golden/v2.0-family.ect"), include_str!("golden/v2.0-family.txt"), with_processes);
}

/// The first version that stores events in compact form: another form of the first version's file.
#[test]
fn version_2_1() {
    check(include_bytes!("golden/v2.1-compact.ect"), include_str!("golden/v1.0-basic.txt"), text::text);
}

/// The first version that contains streams: the same processes as in the process tree's file, event
/// for event.
#[test]
fn version_2_2() {
    check(include_bytes!("golden/v2.2-stream.ect"), include_str!("golden/v2.0-family.txt"), with_processes);
}

/// The first version that records what isn't known: of unwound frames, and of stacks that are
/// resumed.
#[test]
fn version_2_5() {
    check(include_bytes!("golden/v2.5-unsure.ect"), include_str!("golden/v2.5-unsure.txt"), text::text);
}

/// The first version that says where a call was made that may be another stack's.
#[test]
fn version_2_6() {
    check(include_bytes!("golden/v2.6-callers.ect"), include_str!("golden/v2.6-callers.txt"), text::text);
}

/// The first version that says from where a frame that cleans up makes its calls.
#[test]
fn version_2_7() {
    check(include_bytes!("golden/v2.7-cleanups.ect"), include_str!("golden/v2.7-cleanups.txt"), text::text);
}

/// The first version with counters, log lines, XRay's events and dropped short calls.
#[test]
fn version_2_8() {
    check(include_bytes!("golden/v2.8-counters.ect"), include_str!("golden/v2.8-counters.txt"), text::text);
}

/// The first version with output of the program, symbols and sources. It was recorded.
#[test]
fn version_2_9() {
    let bytes = include_bytes!("golden/v2.9-output.ect");
    check(bytes, include_str!("golden/v2.9-output.txt"), text::text);
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

/// The synthetic samples still have the bytes of these versions.
#[test]
fn the_samples_are_these_files() {
    let bytes = everycall_synth::File::of(&everycall_synth::basic());
    assert!(bytes == include_bytes!("golden/v1.0-basic.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_compact(&everycall_synth::basic());
    assert!(bytes == include_bytes!("golden/v2.1-compact.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes(&everycall_synth::process_tree());
    assert!(bytes == include_bytes!("golden/v2.0-family.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_stream(&everycall_synth::process_tree());
    assert!(bytes == include_bytes!("golden/v2.2-stream.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes(&[everycall_synth::marks()]);
    assert!(bytes == include_bytes!("golden/v2.0-marks.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes_in(5, &[everycall_synth::unsure()]);
    assert!(bytes == include_bytes!("golden/v2.5-unsure.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes_in(6, &[everycall_synth::callers()]);
    assert!(bytes == include_bytes!("golden/v2.6-callers.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes_in(7, &[everycall_synth::cleanups()]);
    assert!(bytes == include_bytes!("golden/v2.7-cleanups.ect"), "raise the version and add a file instead");
    let bytes = everycall_synth::File::of_processes_in(8, &[everycall_synth::counters()]);
    assert!(bytes == include_bytes!("golden/v2.8-counters.ect"), "raise the version and add a file instead");
}
