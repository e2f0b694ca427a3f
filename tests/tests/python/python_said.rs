//! Records of `python -m everycall` besides calls of Python functions: those in C, arguments and
//! results, imports, records of logging, collections of garbage.

use std::collections::BTreeMap;

use everycall_tests::python::{Calls, Python, script};
use everycall_tests::{everycall, successful};
use serde_json::Value;

fn file() -> String {
    script("said.py").display().to_string()
}

/// Calls of functions in C, by name.
fn in_c(calls: &Calls) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for line in calls.of_kind("call").filter(|line| line["file"].is_empty()) {
        *counts.entry(line["function"].clone()).or_default() += 1;
    }
    counts
}

#[test]
fn functions_in_c_are_those_that_the_interpreter_counts() {
    for python in Python::all() {
        let file = file();
        let printed = String::from_utf8(python.run(&[&file, "count"]).stdout).unwrap();
        let counted = printed.lines().map(|line| {
            let (count, name) = line.split_once(' ').unwrap();
            (name.to_owned(), count.parse::<i64>().unwrap())
        });
        let counted: BTreeMap<String, i64> = counted.collect();
        assert!(counted["list.remove"] == 1 && counted["math.gcd"] == 3, "{counted:?}");
        let record = |times: &str| {
            let (output, calls) =
                python.record(&["--ring-size", "16M", "--c-functions", &file, "run", times]);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            calls
        };
        let (once, thrice) = (record("1"), record("3"));
        let (fewer, more) = (in_c(&once), in_c(&thrice));
        for (name, times) in &counted {
            let traced = more[name] - fewer.get(name).copied().unwrap_or(0);
            assert_eq!(traced, 2 * times, "{name}, {}", python.version());
        }
        // Of another thread.
        assert_eq!(more["math.factorial"], 1, "{}", python.version());
        let left = |name: &str| {
            let calls = thrice.of_kind("call").filter(|line| line["function"] == name);
            calls.filter(|line| line["remarks"].contains("unwound")).count()
        };
        assert_eq!((left("list.remove"), left("math.sqrt"), left("math.gcd")), (3, 3, 0));
        // They are not there if they aren't asked for.
        let (_, calls) = python.record(&[&file, "run", "1"]);
        assert!(in_c(&calls).is_empty(), "{:?}", in_c(&calls));
    }
}

#[test]
fn arguments_and_results_are_shown() {
    for python in Python::all() {
        let file = file();
        let plain = python.run(&[&file, "run", "1"]);
        let (output, calls) = python.record(&["--ring-size", "64M", "--arguments", &file, "run", "1"]);
        assert_eq!((&output.stdout, output.status.code()), (&plain.stdout, Some(0)), "{output:?}");
        let replay = successful(python.place.command(everycall()).args(["replay", "t.ect"]));
        let lines: Vec<&str> =
            replay.lines().filter_map(|line| line.split_once("> ")).map(|(_, line)| line).collect();
        let has = |text: &str| lines.iter().any(|line| line.starts_with(text));
        for text in [
            "(a=1, b='two', key=<Odd instance at 0x",
            "(a=<Odder, whose repr raised KeyboardInterrupt>, b=<Endless instance at 0x",
            "returned [1, 'two']",
            "(value=7)",
            "returned 7",
            "yielded 5",
            "(n=99900)",
        ] {
            assert!(has(text), "{text}, {}", python.version());
        }
        // Calls that make these texts aren't recorded: `Shown` is shown by logging once.
        assert_eq!(calls.count("inner_of_repr"), 1, "{}", python.version());
    }
}

#[test]
fn imports_records_and_collections_are_on_the_timeline() {
    for python in Python::all() {
        let file = file();
        let plain = python.run(&[&file, "run", "1"]);
        let (output, calls) = python.record(&["--ring-size", "16M", "--events", "all", &file, "run", "1"]);
        assert_eq!((&output.stdout, output.status.code()), (&plain.stdout, Some(0)), "{output:?}");
        let named = |kind, name: &str| calls.of_kind(kind).filter(|line| line["function"] == name).count();
        assert_eq!(named("span", "import colorsys"), 1, "{}", python.version());
        assert_eq!(named("span", "import logging"), 1);
        assert!(calls.of_kind("span").any(|line| line["function"] == "gc" && line["value"] == "2"));
        assert!(named("instant", "gc collected") > 0);
        let replay = successful(python.place.command(everycall()).args(["replay", "t.ect"]));
        let lines = |text: &str| replay.lines().filter(|line| line.ends_with(text)).count();
        assert_eq!((lines("> WARNING app: hello you"), lines("> ERROR app: shown")), (1, 1));
        assert_eq!(lines("not at this level"), 0);
        let (_, calls) = python.record(&[&file, "run", "1"]);
        assert_eq!(calls.of_kind("span").count() + calls.of_kind("instant").count(), 0);
    }
    let python = &Python::all()[0];
    let output = python.run(&["-m", "everycall", "--events", "import,prints", "x.py"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not 'prints'"), "{output:?}");
}

/// Outputs show facts of functions and threads: modules, sources, threading's names.
#[test]
fn modules_sources_and_names_of_threads_are_shown() {
    for python in Python::all() {
        let place = &python.place;
        std::fs::copy(script("shown.py"), place.file("shown.py")).unwrap();
        std::fs::write(place.file("shown_library.py"), "def user(n):\n    return n\n").unwrap();
        let plain = python.run(&["shown.py"]);
        let output = python.recorded(&["shown.py"]);
        assert_eq!((&output.stdout, output.status.code()), (&plain.stdout, Some(0)), "{output:?}");
        let run = |arguments: &[&str]| {
            let output = place.command(everycall()).args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?} {output:?}");
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
        };
        let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");

        let info = json(&run(&["info", "-f", "json", "t.ect"]).0);
        let threads: Vec<&str> = info["threads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|thread| thread["name"].as_str().unwrap())
            .collect();
        assert_eq!(threads[1..], ["a worker with a long name", "renamed meanwhile"], "{}", python.version());
        assert!(threads[0].starts_with("python"), "{threads:?}");

        let (report, _) = run(&["report", "--limit", "0", "t.ect"]);
        let rows = |name: &str| report.lines().filter(|line| line.ends_with(name)).count();
        assert_eq!(
            (rows("  shown.user"), rows("  shown_library.user"), rows("  user")),
            (1, 1, 0),
            "{report}"
        );
        let report = json(&run(&["report", "-f", "json", "--function", "^shown.user$", "t.ect"]).0);
        let row = &report["rows"][0];
        let expected = (&Value::from("user"), &Value::from("shown"), &Value::from(3));
        assert_eq!((&row["name"], &row["module"], &row["calls"]), expected, "{report}");

        let source = std::fs::read_to_string(script("shown.py")).unwrap();
        let has_source = |file: &str| {
            let (text, said) = run(&["export", "-f", "vizviewer", "-o", "-", file]);
            assert!(!said.contains("shown.py") && !said.contains("<frozen"), "{said}");
            let files = json(&text)["file_info"]["files"].clone();
            let files = files.as_object().unwrap().iter();
            files.filter(|(path, _)| path.ends_with("shown.py")).any(|(_, file)| file[0] == source)
        };
        assert!(has_source("t.ect"), "{}", python.version());
        run(&["view", "--html", "t.html", "t.ect"]);
        assert!(std::fs::read_to_string(place.file("t.html")).is_ok());
        run(&["embed", "t.ect"]);
        std::fs::remove_file(place.file("shown.py")).unwrap();
        assert!(has_source("t.ect"), "{}", python.version());
    }
}
