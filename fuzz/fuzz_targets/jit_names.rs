//! Files by which just-in-time compilers name their code: a byte says which; the codes of a table
//! are valid, bounded, and the last ones don't overlap.
#![no_main]

use std::io::Cursor;

use everycall_jit::{FOREVER, Table, jitdump, perf_map};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut table = Table::default();
    // Where a file is no jitdump, it may be text.
    if jitdump::read(Cursor::new(bytes), &mut table, &|_, time| time).is_err() {
        perf_map::read(bytes, &mut table).expect("memory can be read");
    }
    let (mut codes, _) = table.finish();
    codes.sort_by_key(|code| code.start);
    for code in &codes {
        assert!(code.size > 0 && code.start.checked_add(code.size).is_some());
        assert!(!code.name.is_empty() && code.name.len() <= 1024 && code.file.len() <= 1024);
        assert!(code.loaded < code.replaced);
    }
    codes.retain(|code| code.replaced == FOREVER);
    for two in codes.windows(2) {
        assert!(two[0].start + two[0].size <= two[1].start, "{two:?}");
    }
});
