//! Recordings of earlier versions, summed up by the example program.

use std::path::Path;

#[path = "../../../../examples/reader/src/main.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod profile;

fn profile_of(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../timeline/tests/golden").join(name);
    let mut out = Vec::new();
    profile::print_profile(&path, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn both_forms_of_a_recording_have_one_profile() {
    let plain = profile_of("v1.0-basic.ect");
    assert_eq!(plain, profile_of("v2.1-compact.ect"));
    // Its modules are not on this machine: functions are named by module and address, and a note
    // says why.
    let mut lines = plain.lines();
    assert_eq!(lines.next(), Some("       calls         own       total  function"));
    assert!(plain.contains("         351 ") && plain.contains("  app+0x1a00\n"), "{plain}");
    assert!(plain.contains("note: ") && plain.contains("can't be read"), "{plain}");
}

#[test]
fn what_is_no_trace_is_an_error_with_a_sentence() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, words) in [
        (manifest.join("Cargo.toml"), "trace"),
        (manifest.to_owned(), "is not a regular file"),
        (manifest.join("nothing"), "can't be read"),
    ] {
        let error = profile::print_profile(&path, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
