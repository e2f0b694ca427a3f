//! A linker name: it is split where it says, and demangled to something that can be shown.

#![no_main]

use everycall_symbols::{demangle, split_part};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|name: &str| {
    let (whole, part) = split_part(name);
    match part {
        Some(part) => assert_eq!(format!("{whole}.{part}"), name),
        None => assert_eq!(whole, name),
    }
    assert!(name.is_empty() || !demangle(whole).is_empty());
});
