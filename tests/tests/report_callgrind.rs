//! `report` counts the calls of real programs as callgrind does, which runs the same code without any hook of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use everycall_tests::workloads::{Build, Linkage, Workload};
use everycall_tests::{Mode, Place, everycall, successful};
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

/// The number of calls of each function of a program, by the linker's name: out of callgrind's file, which has the calls of each pair of
/// functions.
fn calls_by_callgrind(text: &str, program: &Path) -> BTreeMap<String, u64> {
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
                // Without an object of its own, it is the caller's. Deeper recursion has a name of its own: `f'2`.
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

fn check(workload: Workload) {
    let place = Place::new(&format!("callgrind-{}", workload.name));
    // One level of optimisation for which no function has a part elsewhere: callgrind takes jumps into it for calls.
    let build = Build { workload, mode: Some(Mode::GCC_NOPS), flags: &["-O1"] };
    let (plain, traced) = (place.file("plain"), place.file("traced"));
    build.link(Linkage::Plain, &plain);
    build.link(Linkage::Traced, &traced);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/drivers/work.lua");
    let script = (workload.name == "lua").then_some(script);
    let counts = place.file("callgrind.out");
    let mut callgrind = place.command("valgrind");
    callgrind.args(["--quiet", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", counts.display()));
    successful(callgrind.arg(&plain).args(&script).args(workload.small));
    let expected = calls_by_callgrind(&std::fs::read_to_string(&counts).expect("callgrind's file"), &plain);

    let file = place.file("traced.ect");
    let mut record = place.command(everycall());
    record.args(["record", "-q", "--ring-size", "256M", "-o"]).arg(&file).arg("--");
    successful(record.arg(&traced).args(&script).args(workload.small));
    let report = successful(place.command(everycall()).args(["report", "-f", "json"]).arg(&file));
    compare(&expected, &report, "report");
    // The same by counting alone.
    let counts = place.file("counts.ect");
    let mut count = place.command(everycall());
    count.args(["count", "-o"]).arg(&counts).arg("--");
    successful(count.arg(&traced).args(&script).args(workload.small));
    let report = successful(place.command(everycall()).args(["report", "-f", "json"]).arg(&counts));
    compare(&expected, &report, "count");
}

/// Compares what callgrind has found with a table.
fn compare(expected: &BTreeMap<String, u64>, report: &str, what: &str) {
    let report: Value = serde_json::from_str(report).expect("JSON");
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for row in report["rows"].as_array().expect("rows") {
        let symbols = row["symbols"].as_array().expect("symbols");
        assert_eq!(symbols.len(), 1, "a function of C has one name: {row}");
        let name = symbols[0].as_str().expect("a name").to_owned();
        *found.entry(name).or_default() += row["calls"].as_u64().expect("calls");
    }
    let names: BTreeSet<&String> = found.keys().collect();
    assert!(names.len() > 200, "{} functions", names.len());
    let different: Vec<_> = names
        .into_iter()
        .filter(|name| expected.get(*name) != found.get(*name))
        .map(|name| format!("{name}: {:?} by callgrind, {:?} here", expected.get(name), found.get(name)))
        .collect();
    assert!(
        different.is_empty(),
        "{what}: {} of {} differ:\n{}",
        different.len(),
        found.len(),
        different.join("\n")
    );
}

#[test]
fn calls_of_lua_are_those_that_callgrind_counts() {
    check(Workload::LUA);
}

#[test]
fn calls_of_sqlite_are_those_that_callgrind_counts() {
    check(Workload::SQLITE);
}
