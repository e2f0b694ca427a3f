//! Counts of calls by callgrind, and their comparison with a report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// Texts of callgrind's file: `(12) name` the first time, `(12)` from then on.
#[derive(Default)]
struct Texts<'t>(BTreeMap<&'t str, &'t str>);

impl<'t> Texts<'t> {
    fn read(&mut self, value: &'t str) -> &'t str {
        let (id, text) = value.split_once(' ').unwrap_or((value, ""));
        if !text.is_empty() {
            self.0.insert(id, text);
        }
        self.0[id]
    }
}

/// The number of calls of each function of a program, by the linker's name: out of callgrind's
/// file, which has the calls of each pair of functions.
#[must_use]
pub fn calls_by_callgrind(text: &str, program: &Path) -> BTreeMap<String, u64> {
    let (mut names, mut objects) = (Texts::default(), Texts::default());
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    let (mut callee, mut object, mut of_callee) = ("", "", None);
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "ob" => object = objects.read(value),
            "cob" => of_callee = Some(objects.read(value)),
            "fn" => _ = names.read(value),
            "cfn" => callee = names.read(value),
            "calls" => {
                let count = value.split(' ').next().and_then(|count| count.parse::<u64>().ok());
                // Without an object of its own, it is the caller's. Deeper recursion has a name of
                // its own: `f'2`.
                if Path::new(of_callee.take().unwrap_or(object)) == program {
                    let name = callee.split('\'').next().unwrap_or(callee);
                    *calls.entry(name.to_owned()).or_default() += count.expect("a number of calls");
                }
            }
            _ => {}
        }
    }
    calls
}

/// Compares what callgrind has found with a table. Returns the names of each function in it.
#[must_use]
pub fn compare_table(expected: &BTreeMap<String, u64>, report: &str, what: &str) -> Vec<BTreeSet<String>> {
    let report: Value = serde_json::from_str(report).expect("JSON");
    // A function may have several names, of which callgrind takes one; and several functions that
    // aren't global may have one name.
    let mut found: BTreeMap<BTreeSet<String>, u64> = BTreeMap::new();
    for row in report["rows"].as_array().expect("rows") {
        let symbols = row["symbols"].as_array().expect("symbols");
        let names = symbols.iter().map(|name| name.as_str().expect("a name").to_owned()).collect();
        *found.entry(names).or_default() += row["calls"].as_u64().expect("calls");
    }
    let different: Vec<_> = found
        .iter()
        .map(|(names, found)| (names, names.iter().filter_map(|name| expected.get(name)).sum(), *found))
        .filter(|(_, expected, found): &(_, u64, u64)| expected != found)
        .map(|(names, expected, found)| format!("{names:?}: {expected} by callgrind, {found} here"))
        .collect();
    assert!(
        different.is_empty(),
        "{what}: {} of {} differ:\n{}",
        different.len(),
        found.len(),
        different.join("\n")
    );
    found.into_keys().collect()
}
