//! Old files say for ever what they said.

mod text;

use everycall_reader::TraceFile;
use everycall_timeline::Trace;

/// The first version's file, and what it says. Neither file ever changes: a newer version of the format adds
/// files beside them. If the text differs, old recordings have come to mean something else.
#[test]
fn version_1_0() {
    let bytes = include_bytes!("golden/v1.0-basic.ect");
    let trace = Trace::open(TraceFile::open(&bytes[..]).unwrap()).unwrap();
    let wanted = include_str!("golden/v1.0-basic.txt");
    let got = text::text(&trace);
    assert!(got == wanted, "the file now says:\n{got}");
}

/// The synthetic sample still has the bytes of that version.
#[test]
fn the_sample_is_that_file() {
    let bytes = everycall_synth::File::of(&everycall_synth::basic());
    assert!(bytes == include_bytes!("golden/v1.0-basic.ect"), "raise the version and add a file instead");
}
