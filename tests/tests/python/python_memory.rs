//! Allocations of Python's functions, by a counter in Python's own allocators.

use std::collections::BTreeMap;
use std::process::Command;

use everycall_tests::python::{Python, header_folders, script};
use everycall_tests::successful;
use serde_json::Value;

/// Puts the counting module among the packages.
fn install_counter(python: &Python) {
    let interpreter = python.environment.bin.join("python3");
    let facts =
        "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_config_var('EXT_SUFFIX'))";
    let facts = successful(Command::new(interpreter).args(["-Ic", facts]));
    let (include, suffix) = facts.trim().split_once(' ').unwrap();
    let output = python.environment.packages.join(format!("_memory_counter{suffix}"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC"]).args(header_folders(include)).arg(script("_memory_counter.c"));
    successful(gcc.arg("-o").arg(output));
}

/// Blocks and bytes that each function allocates itself, or with what it calls.
fn counted(python: &Python, file: &str, runs: &str) -> (BTreeMap<String, [u64; 2]>, Value) {
    let output = python.run(&["-m", "everycall", "--memory", "-f", "json", file, runs]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (own, table) = printed.split_at(printed.find('{').unwrap());
    let counts = own.lines().map(|line| {
        let mut words = line.split(' ');
        let name = words.next().unwrap().to_owned();
        let mut number = || words.next().unwrap().parse().unwrap();
        (name, [number(), number()])
    });
    (counts.collect(), serde_json::from_str(table).unwrap())
}

#[test]
fn functions_allocate_what_pythons_allocators_are_asked_for() {
    for python in Python::all() {
        install_counter(&python);
        let file = script("memory.py").display().to_string();
        // Allocations that the first calls make once, such as names, are equal in both.
        let (few, few_table) = counted(&python, &file, "2");
        let (many, many_table) = counted(&python, &file, "12");
        for (name, [blocks, bytes]) in &many {
            let of = |table: &Value| {
                let rows = table["rows"].as_array().unwrap();
                let is_it = |row: &&Value| {
                    let function = row["name"].as_str().unwrap();
                    function == *name || function.starts_with(&format!("{name}.<locals>"))
                };
                let own = |row: &Value, column: &str| row[column].as_u64().unwrap();
                let rows: Vec<&Value> = rows.iter().filter(is_it).collect();
                assert!(!rows.is_empty(), "{name}: {table}");
                ["own_allocated_blocks", "own_allocated_bytes"]
                    .map(|column| rows.iter().map(|row| own(row, column)).sum::<u64>())
            };
            let [own_blocks, own_bytes] = std::array::from_fn(|at| of(&many_table)[at] - of(&few_table)[at]);
            let [few_blocks, few_bytes] = few[name];
            assert!(*blocks > few_blocks, "{name}");
            assert_eq!(
                (own_blocks, own_bytes),
                (blocks - few_blocks, bytes - few_bytes),
                "{name} of Python {}",
                python.version()
            );
        }
    }
}
