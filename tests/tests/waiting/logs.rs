//! Log lines and counters: what `printf` of the C library writes, in the same order, in every
//! thread, handler and process; in C and C++.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use everycall_tests::{Mode, Place, Recording, everycall, programs, successful};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
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
    let recording = place.record(&["--no-embed"], &program, &["refused"]);
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
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../crates/building/kit/include");
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
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../crates/building/kit/include");
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

/// A program's output according to `replay`: function, stream, number of the line, text.
fn output_of(events: &[Value]) -> Vec<(String, u64, String)> {
    let mut of: Vec<(String, u64, String)> = Vec::new();
    for event in events {
        if let Some(text) = event["output"].as_str() {
            let stream = event["stream"].as_str().unwrap().to_owned();
            of.push((stream, event["line"].as_u64().unwrap(), text.to_owned()));
        }
    }
    of
}

/// The kernel doesn't look at what is written to /dev/null, nor does it care whether the memory of
/// a write is unmapped meanwhile: the recorder's libraries may not read what they can't.
#[test]
fn memory_that_cannot_be_read_is_not_read() {
    let place = Place::new("unreadable");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-w", "unreadable.c", "-pthread"], "unreadable");
    for (options, destination) in
        [(["--with-output", "--waits"], "/dev/null"), (["--waits", "--with-output"], "/dev/zero")]
    {
        let null = std::fs::File::options().write(true).open(destination).unwrap();
        let mut command = place.command(everycall());
        command
            .args(["record", "-q", "--ring-size", "16M", "-o", "unreadable.ect"])
            .args(options)
            .arg("--")
            .arg(&program);
        let output = command.stdout(null).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let plain = "10 10 20 bad address bad address\n";
        assert!(output.status.success() && said.ends_with(plain), "{destination}: {output:?}");
        let text = successful(place.command(everycall()).args(["replay", "unreadable.ect"]));
        assert!(text.contains("readable and then ... (4 more bytes)"), "{destination}: {text}");
        assert!(text.contains("1| ... (10 more bytes)"), "{destination}: {text}");
    }
}

#[test]
fn output_stays_as_it_is_and_is_recorded_where_it_is_written() {
    let place = Place::new("output");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "-pthread", "output.cpp"], "output");
    let plain = place.command(&program).output().unwrap();
    let recording = place.record(&["--with-output", "-q", "--embed"], &program, &[]);
    assert_eq!(recording.output.stdout, plain.stdout);
    assert_eq!(recording.output.stderr, plain.stderr);
    let events = events(&place, &recording);
    let mut written = output_of(&events);
    let child = written.iter().position(|(_, _, text)| text == "child").unwrap();
    let (stream, _, _) = written.remove(child);
    assert_eq!(stream, "stdout");
    let at = |stream: &str, line, text: &str| (stream.to_owned(), line, text.to_owned());
    let long = format!("{}... (2328 more bytes)", "x".repeat(672));
    let mut expected = vec![
        at("stdout", 1, "terminal 0"),
        at("stdout", 2, "buffered 1"),
        at("stdout", 3, "buffered 2"),
        at("stderr", 1, "red: \u{1b}[31mtext\u{1b}[0m"),
        at("stderr", 2, "perror: No such file or directory"),
        at("stdout", 4, "first"),
        at("stdout", 5, "half"),
        at("stdout", 5, " of it"),
        at("stdout", 6, "vector"),
        at("stdout", 7, "zero\\0byte"),
        at("stdout", 8, "cout"),
        at("stderr", 3, "cerr"),
        at("stdout", 9, &long),
        at("stdout", 10, "thread"),
    ];
    written.sort();
    expected.sort();
    assert_eq!(written, expected);
    // The lines stand in the calls that wrote them, and nothing of them reaches a terminal.
    let text = successful(place.command(everycall()).arg("replay").arg(&recording.file));
    assert!(!text.contains('\u{1b}'), "{text}");
    let lines: Vec<&str> = text.lines().map(|line| line.get(14..).unwrap_or_default()).collect();
    let around = |what: &str| {
        let place = lines.iter().position(|line| line.trim() == what).unwrap();
        lines[..place].iter().rev().find(|line| line.ends_with('{')).unwrap().trim()
    };
    assert_eq!(around("1| buffered 2"), "flush() {");
    assert_eq!(around("1| vector"), "direct() {");
    assert_eq!(around("2| cerr"), "streams() {");
    for format in ["chrome", "perfetto", "csv", "vizviewer"] {
        let mut command = place.command(everycall());
        let output = command.args(["export", "-f", format, "-o", "-"]).arg(&recording.file).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("buffered 2"), "{format}");
    }
}

/// A pseudo-terminal: our side, and the program's.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (File::from(ours), theirs)
}

/// Everything shown until the last program has closed its side.
fn read_all(mut terminal: File) -> String {
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    // Then reading fails (EIO).
    while let Ok(count @ 1..) = terminal.read(&mut block) {
        bytes.extend_from_slice(&block[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_terminal_stays_a_terminal() {
    let place = Place::new("output-terminal");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "-pthread", "output.cpp"], "output");
    let (terminal, shown) = terminal();
    let mut command = place.command(everycall());
    command.args(["record", "--with-output", "-q", "-o", "t.ect", "--"]).arg(&program);
    let mut child = command.stdout(shown.try_clone().unwrap()).stderr(shown).spawn().unwrap();
    drop(command);
    let text = read_all(terminal);
    assert!(child.wait().unwrap().success());
    assert!(text.contains("terminal 1\r\n") && text.contains("cout"), "{text}");
    let written = successful(place.command(everycall()).args(["replay", "t.ect"]));
    assert!(written.contains("1| terminal 1"), "{written}");
}

#[test]
fn lines_of_a_log_file_are_placed_by_their_times() {
    let place = Place::new("log-file");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "-pthread", "output.cpp"], "output");
    place.write("app.log", "[2001-01-01 00:00:00.000000000+0000] of an earlier run\n");
    let timed = "--log=app.log:[%Y-%m-%d %H:%M:%S%.f%z]";
    let recording = place.record(&["-q", timed], &program, &["app.log"]);
    let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
    assert!(said.contains("1 line begin"), "{said}");
    let events = events(&place, &recording);
    let lines = output_of(&events);
    let numbers: Vec<u64> = lines.iter().map(|(_, line, _)| *line).collect();
    assert_eq!(numbers, [2, 3, 4, 5], "{lines:?}");
    assert!(lines[1].2.ends_with("entry 1") && lines[2].2.contains("continued"), "{lines:?}");
    // Each within the call that wrote it.
    let calls: Vec<_> =
        events.iter().filter(|event| event["name"].as_str() == Some("logs(char const*, int)")).collect();
    assert_eq!(calls.len(), 3);
    let times = events.iter().filter(|event| {
        event["stream"] == "file" && !event["output"].as_str().unwrap().contains("continued")
    });
    for (call, at) in calls.iter().zip(times) {
        let (start, at) = (call["start_ns"].as_u64().unwrap(), at["at_ns"].as_u64().unwrap());
        // The clocks' readings are exact to some microseconds.
        assert!(
            at + 1_000_000 > start && at < start + call["dur_ns"].as_u64().unwrap() + 1_000_000,
            "{call} {at}"
        );
    }
    let text = successful(place.command(everycall()).arg("replay").arg(&recording.file));
    assert!(text.contains("== log file app.log of process") && !text.contains('\u{1b}'), "{text}");
    // Without a format, they are there when they are found.
    let recording = place.record(&["-q", "--log", "new.log"], &program, &["new.log"]);
    let found = output_of(&self::events(&place, &recording));
    assert_eq!(found.iter().map(|(_, line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 4], "{found:?}");
}

#[test]
fn what_is_no_log_file_is_refused() {
    let place = Place::new("log-refused");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "-pthread", "output.cpp"], "output");
    place.write("text", "no time\nat all\n");
    successful(place.command("mkfifo").arg("pipe"));
    let refused = |log: &str, code: i32, words: &str| {
        let mut command = place.command(everycall());
        let output =
            command.args(["record", "-q", "--log", log, "-o", "r.ect", "--"]).arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(words), "{log}: {output:?}");
        assert!(output.stdout.is_empty(), "the program wasn't started");
    };
    for log in ["pipe", "/dev/null", "/dev/zero", "."] {
        refused(log, 125, "not a regular file");
    }
    for format in ["%", "%Y", "%Q%H", "%H:%M", "%I:%M:%S", "%I:%M:%S %"] {
        refused(&format!("text:{format}"), 2, "strftime");
    }
    // A log without times: the program runs, and it is said that none could be placed.
    let recording = place.record(&["-q", "--log", "fresh.log:%H:%M:%S"], &program, &["fresh.log"]);
    let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
    assert!(
        recording.output.status.success() && said.contains("none of 4 lines begins with a time"),
        "{said}"
    );
    assert!(output_of(&events(&place, &recording)).is_empty());
}
