//! perf's own file with a trace of Intel PT, and a jitdump file with the code: a trace that can be
//! read is written of whatever is found. The first four bytes say how long the jitdump file is.
#![no_main]

mod pairing;

use std::path::PathBuf;
use std::sync::OnceLock;

use everycall_import::{Format, ImportOptions, import_bytes};
use everycall_reader::TraceFile;
use libfuzzer_sys::fuzz_target;

/// A folder of this process.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| std::env::temp_dir().join(format!("everycall-fuzz-{}", std::process::id())))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return };
    let Some((dump, bytes)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else { return };
    std::fs::create_dir_all(folder()).expect("a temporary folder");
    std::fs::write(folder().join("jit-10.dump"), dump).expect("room in the folder");
    let options = ImportOptions { folder: Some(folder().clone()), ..ImportOptions::default() };
    let mut trace = Vec::new();
    let input = std::io::Cursor::new(bytes);
    if import_bytes(input, Format::PerfData, &options, &mut trace, "fuzz").is_ok() {
        pairing::check(TraceFile::open(&trace[..]).expect("an import writes a trace file"));
    }
    let _ = std::fs::remove_dir_all(folder());
});
