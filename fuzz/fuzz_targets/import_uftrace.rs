//! uftrace's folders, their files one after the other with a mark between them: a trace that can be
//! read is written of whatever is found.
#![no_main]

mod pairing;

use everycall_import::{ImportOptions, MemoryFolder, import_folder};
use everycall_reader::TraceFile;
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 6] = ["info", "task.txt", "sid-ab.map", "app.sym", "5.dat", "6.dat"];
const MARK: &[u8] = b"\n====\n";

fuzz_target!(|bytes: &[u8]| {
    let mut folder = MemoryFolder::default();
    let mut rest = bytes;
    for name in NAMES {
        let end = rest.windows(MARK.len()).position(|window| window == MARK);
        let (file, behind) = rest.split_at(end.unwrap_or(rest.len()));
        folder.0.insert(name.to_owned(), file.to_vec());
        rest = behind.get(MARK.len()..).unwrap_or_default();
    }
    let mut trace = Vec::new();
    if import_folder(&folder, &ImportOptions::default(), &mut trace, "fuzz").is_ok() {
        pairing::check(TraceFile::open(&trace[..]).expect("an import writes a trace file"));
    }
});
