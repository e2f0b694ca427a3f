//! Raw files of funtrace: a trace that can be read is written of whatever is found.
#![no_main]

mod pairing;

use everycall_import::{Format, ImportOptions, import_bytes};
use everycall_reader::TraceFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let format = Format::Funtrace;
    let mut trace = Vec::new();
    let input = std::io::Cursor::new(bytes);
    if import_bytes(input, format, &ImportOptions::default(), &mut trace, "fuzz").is_ok() {
        pairing::check(TraceFile::open(&trace[..]).expect("an import writes a trace file"));
    }
});
