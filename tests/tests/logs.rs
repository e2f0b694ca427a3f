//! Log lines and counters: what `printf` of the C library writes, in the same order, in every
//! thread, handler and process; in C and C++.

use std::collections::BTreeMap;
use std::path::PathBuf;

use everycall_tests::{Mode, Place, Recording, everycall, programs, successful};
use serde_json::Value;

fn built(place: &Place, mode: Mode, source: &str, options: &[&str]) -> PathBuf {
    let text = std::fs::read_to_string(programs().join("logs.c")).unwrap();
    place.write("logs.cpp", &text);
    let name = format!("{}-{source}", mode.label()).replace('.', "-");
    let mut arguments = vec!["-Wall", "-Wextra", "-Werror"];
    arguments.extend(options);
    arguments.extend([source, "-pthread"]);
    place.build(mode, &arguments, &name)
}

fn events(place: &Place, recording: &Recording) -> Vec<Value> {
    let mut command = place.command(everycall());
    let text = successful(command.args(["replay", "--format", "json"]).arg(&recording.file));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines of each thread, in their order.
type Lines = BTreeMap<u64, Vec<String>>;

fn logged(events: &[Value]) -> Lines {
    let mut lines = Lines::new();
    for event in events {
        if let Some(text) = event["log"].as_str() {
            lines.entry(event["tid"].as_u64().unwrap()).or_default().push(text.to_owned());
        }
    }
    lines
}

fn journal(recording: &Recording) -> Lines {
    let mut lines = Lines::new();
    for line in recording.stdout().lines() {
        let (thread, text) = line.split_once(' ').unwrap();
        lines.entry(thread.parse().unwrap()).or_default().push(text.to_owned());
    }
    lines
}

#[test]
fn lines_are_what_printf_writes() {
    let place = Place::new("logs");
    for (mode, source, options) in [
        (Mode::GCC_NOPS, "logs.c", &["-O2"][..]),
        (Mode::GCC_NOPS, "logs.cpp", &["-O0"]),
        (Mode::GCC_FENTRY, "logs.c", &["-O1", "-static"]),
        (Mode::GCC_FINSTRUMENT, "logs.cpp", &["-O1", "-no-pie", "-fno-pie"]),
    ] {
        let program = built(&place, mode, source, options);
        let recording = place.record(&["--ring-size", "64M"], &program, &[]);
        assert!(recording.output.status.success(), "{mode:?}: {recording:?}");
        let events = events(&place, &recording);
        let (written, wanted) = (logged(&events), journal(&recording));
        // A handler may run between a line and its journal's: its own lines are in order, and so
        // are those that it interrupted.
        let part = |lines: &Lines, of_handler: bool| -> Lines {
            let is_it = |line: &&String| line.starts_with("handler") == of_handler;
            lines.iter().map(|(tid, lines)| (*tid, lines.iter().filter(is_it).cloned().collect())).collect()
        };
        for of_handler in [false, true] {
            let (written, wanted) = (part(&written, of_handler), part(&wanted, of_handler));
            for (tid, wanted) in &wanted {
                let written = written.get(tid).unwrap_or_else(|| panic!("{mode:?}: no lines of {tid}"));
                for (written, wanted) in written.iter().zip(wanted) {
                    assert_eq!(written, wanted, "{mode:?} {source}");
                }
                assert_eq!(written.len(), wanted.len(), "{mode:?} {source}");
            }
            assert_eq!(written.len(), wanted.len());
        }
        assert!(wanted.values().flatten().any(|line| line.starts_with("handler")), "no signal came");
        let values = |name: &str| -> Vec<f64> {
            let is_it = |event: &&Value| event["counter"] == name;
            events.iter().filter(is_it).map(|event| event["value"].as_f64().unwrap()).collect()
        };
        let of_three = |value: fn(u32) -> f64| -> Vec<f64> {
            (0..3).flat_map(|_| (3..3000).step_by(4).map(value)).collect()
        };
        assert_eq!(values("steps"), of_three(|i| f64::from(i) - 100.0));
        assert_eq!(values("share"), of_three(|i| f64::from(i) / 8.0));
    }
}

#[test]
fn refused_formats_long_texts_and_gaps_are_shown_as_such() {
    let place = Place::new("logs-refused");
    let program = {
        let text = std::fs::read_to_string(programs().join("logs.c")).unwrap();
        place.write("logs.c", &text);
        place.build(Mode::GCC_NOPS, &["-O1", "-Wno-format", "logs.c", "-pthread"], "refused")
    };
    let recording = place.record(&[], &program, &["refused"]);
    assert!(recording.output.status.success(), "{recording:?}");
    let events = events(&place, &recording);
    let lines: Vec<String> = logged(&events).into_values().flatten().collect();
    let cut = format!("{}...", "x".repeat(96));
    let long = vec![cut; 10].join("|");
    assert_eq!(lines, ["before main, 1", "written: %n", "null: (null)", &long]);
    assert!(!events.iter().any(|event| event["counter"] == "not seen"));
    // Without the program's file, the arguments are shown.
    std::fs::remove_file(&program).unwrap();
    let shown = successful(place.command(everycall()).arg("replay").arg(&recording.file));
    assert!(shown.contains("is not available) 1"), "{shown}");
}

#[test]
fn wrong_arguments_are_found_by_compilers() {
    let place = Place::new("logs-checked");
    place.write("wrong.c", "#include <everycall.h>\nint main(void) { return everycall_log(\"%s\", 1); }\n");
    place.write("wrong.cpp", "#include <everycall.h>\nint main() { return everycall_log(\"%s\", 1); }\n");
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../crates/kit/include");
    for (compiler, source) in
        [("gcc", "wrong.c"), ("g++", "wrong.cpp"), ("clang-19", "wrong.c"), ("clang++-19", "wrong.cpp")]
    {
        let mut command = place.command(compiler);
        command.args(["-Werror", "-Wformat", "-fsyntax-only", include, source]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains("format") && said.contains("char"),
            "{compiler}: {said}"
        );
    }
}

/// Every standard and warning that a program may be built with.
#[test]
fn the_header_has_no_warnings_of_its_own() {
    let place = Place::new("logs-standards");
    let text = "#include <everycall.h>\nint f(int i, const char *s);\nint f(int i, const char *s)\n{\n    \
                return everycall_log(\"%d %s\", i, s) + everycall_counter(\"c\", i) + everycall_log(\"x\");\n}\n";
    place.write("plain.c", text);
    place.write("plain.cpp", text);
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../crates/kit/include");
    for (compiler, source, standards) in [
        ("gcc", "plain.c", &["c89", "c99", "gnu17"][..]),
        ("clang-19", "plain.c", &["c89", "c99", "gnu17"]),
        ("g++", "plain.cpp", &["gnu++98", "c++11", "c++20"]),
        ("clang++-19", "plain.cpp", &["c++98", "c++11", "c++20"]),
    ] {
        for standard in standards {
            let mut command = place.command(compiler);
            command.arg(format!("-std={standard}")).args([
                "-O2",
                "-Wall",
                "-Wextra",
                "-Wconversion",
                "-Wshadow",
                "-Werror",
            ]);
            if *standard != "gnu++98" {
                command.arg("-pedantic-errors");
            }
            successful(command.args([include, "-fsyntax-only", source]));
        }
    }
}
