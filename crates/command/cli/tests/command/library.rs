//! A Rust program reads traces without the command line, and gets the same numbers.

use crate::common::Workplace;
use serde_json::Value;

#[path = "../../../../../examples/reader/src/main.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod profile;

#[test]
fn a_program_of_its_own_names_functions_and_sums_up_their_time() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o app.ect -- ./app");
    let mut out = Vec::new();
    profile::print_profile(&here.path("app.ect"), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();

    let info: Value = serde_json::from_str(&here.succeed("info -f json app.ect").stdout).unwrap();
    let listed = info["most_own_time"].as_array().unwrap();
    assert_eq!(listed.len() as u64, info["functions"].as_u64().unwrap(), "the program has few functions");
    let rows: Vec<&str> = out.lines().skip(1).filter(|line| !line.starts_with("note: ")).collect();
    assert_eq!(rows.len(), listed.len(), "{out}");
    let mut calls = 0;
    for (row, function) in rows.iter().zip(listed) {
        let count = row.split_whitespace().next().unwrap().replace(',', "");
        assert_eq!(count, function["calls"].to_string(), "{row}");
        calls += function["calls"].as_u64().unwrap();
        let name = function["name"].as_str().unwrap();
        // JSON has complete names of template functions.
        assert!(name.contains('<') || row.contains(name), "{row}: {name}");
    }
    assert_eq!(calls, info["calls"].as_u64().unwrap());
    let leaf = rows.iter().find(|row| row.contains("shop::leaf(int)")).unwrap();
    assert!(leaf.contains(" 200 ") && leaf.ends_with("app.cpp:9)"), "{leaf}");
}
