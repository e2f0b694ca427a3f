//! `threw TYPE` as a trigger's condition: by the program's own account, each exception is counted
//! once, and what is kept is the call that it was thrown in, with what led there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_reader::{KeptCall, Source, TraceFile, Trigger};
use everycall_tests::slow::KEEP_ALL;
use everycall_tests::{Call, Mode, Place, Standing, TraceView, Waiting, everycall, successful};

const MODES: [Mode; 4] = [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT];

fn program(place: &Place, mode: Mode, options: &[&str]) -> PathBuf {
    let arguments = [&["-O2", "-pthread", "live_calls.cpp"][..], options].concat();
    place.build(mode, &arguments, &format!("live-{}", mode.label()))
}

/// An exception that the program knows of.
struct Thrown {
    of: String,
    tid: u32,
    before: u64,
    after: u64,
    /// The first thing in the call of `risk` around it.
    outer: u64,
}

fn thrown(printed: &str) -> Vec<Thrown> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("threw "));
    let one = |line: &str| {
        let mut words = line.rsplitn(5, ' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (outer, after, before, tid) = (number(), number(), number(), number() as u32);
        Thrown { of: words.next().unwrap().to_owned(), tid, before, after, outer }
    };
    lines.map(one).collect()
}

fn kept(file: &Path) -> (Vec<Trigger>, Vec<(KeptCall, String)>) {
    let names = TraceView::kept_functions(file);
    let file = TraceFile::open(File::open(file).unwrap()).unwrap();
    let recording = file.recording();
    assert_eq!(recording.warnings, []);
    (recording.triggers.clone(), recording.kept.iter().cloned().zip(names).collect())
}

/// A trigger on exceptions: its text, the function, and the types.
type Wanted<'a> = (&'a str, Option<&'a str>, fn(&str) -> bool);

const WANTED: [Wanted<'_>; 6] = [
    ("risk threw app::Error", Some("risk"), |of| of == "app::Error"),
    ("risk threw std::bad_alloc", Some("risk"), |of| of == "std::bad_alloc"),
    ("threw app::*", None, |of| of.starts_with("app::")),
    ("threw", None, |_| true),
    ("inner threw int", Some("inner"), |of| of == "int"),
    ("handle threw", Some("handle"), |_| false),
];

fn options() -> Vec<&'static str> {
    let triggers = WANTED.iter().flat_map(|(text, ..)| ["--trigger", text]);
    triggers.chain(["--keep", "40", "--keep-every", "0"]).collect()
}

/// A kept call is one of those in which the program threw.
fn check_kept(call: &KeptCall, name: &str, wanted: &Wanted<'_>, all: &[Thrown], label: &str) {
    assert!(call.is_throw && !call.is_entry, "{label}: {call:?}");
    assert!(wanted.1.is_none_or(|function| name.contains(function)), "{label}: {name}");
    let is_it = |thrown: &&Thrown| {
        thrown.tid == call.tid
            && (wanted.2)(&thrown.of)
            && (thrown.before..=thrown.after).contains(&call.end_ticks)
            && (wanted.1 != Some("risk") || call.start_ticks <= thrown.outer)
            && (wanted.1 != Some("inner") || call.start_ticks >= thrown.outer)
    };
    assert_eq!(all.iter().filter(is_it).count(), 1, "{label}: {call:?} of {name}");
}

fn check_all(file: &Path, all: &[Thrown], label: &str) {
    let (triggers, kept) = kept(file);
    for (rule, wanted) in WANTED.iter().enumerate() {
        let label = format!("{label}, {}", wanted.0);
        let count = all.iter().filter(|thrown| (wanted.2)(&thrown.of)).count() as u64;
        assert_eq!(triggers[rule].fired, count, "{label}");
        let own: Vec<_> = kept.iter().filter(|(call, _)| call.trigger == rule).collect();
        assert_eq!(triggers[rule].kept, own.len() as u64, "{label}");
        assert!(count == 0 || !own.is_empty(), "{label}: {:?}", triggers[rule]);
        own.iter().for_each(|(call, name)| check_kept(call, name, wanted, all, &label));
    }
}

/// The calls that led to an exception are there.
fn check_moment(file: &Path, label: &str) {
    let (_, kept) = kept(file);
    let whole = |(call, _): &&(KeptCall, String)| call.trigger == 0 && call.missing == 0;
    let (call, _) = kept.iter().find(whole).expect(label);
    let (trace, begin, _) = TraceView::moment(file, call);
    let thread = trace.threads.iter().find(|thread| thread.info.tid == call.tid).unwrap();
    // Some modes also show what was inlined.
    const OWN: [&str; 4] = ["risk", "inner", "fling", "leaf"];
    let names: Vec<&str> = everycall_tests::all(&thread.calls)
        .into_iter()
        .filter(|found: &&Call| found.start_ns >= begin)
        .map(|found| found.name.split('(').next().unwrap())
        .filter(|name| OWN.contains(name))
        .collect();
    assert!(names.starts_with(&["risk", "leaf", "inner", "leaf", "fling", "leaf"]), "{label}: {names:?}");
}

#[test]
fn exceptions_are_kept_with_what_led_there() {
    for mode in MODES {
        let place = Place::new("throws");
        let program = program(&place, mode, &[]);
        let label = mode.label();
        let mut command = place.command(everycall());
        command.arg("record").args(options()).args(["-q", "-o", "thrown.ect", "--"]).arg(&program);
        let mut standing = Standing::start(command.args(["1", "2", "9", "throw"]));
        (0..3).for_each(|_| standing.go_on());
        let (status, printed) = standing.end();
        assert!(status.success(), "{label}: {status}");
        let all = thrown(&printed);
        assert!(all.len() > 50, "{label}: {}", all.len());
        check_all(&place.file("thrown.ect"), &all, &label);
        check_moment(&place.file("thrown.ect"), &label);
    }
}

/// The C++ library in the program: what it throws itself goes through the program's wrappers.
#[test]
fn exceptions_of_a_static_library() {
    let place = Place::new("throws-static");
    let mode = Mode::GCC_NOPS;
    for options in [&["-static-libstdc++", "-static-libgcc"][..], &["-static"]] {
        let program = program(&place, mode, options);
        let mut command = place.command(everycall());
        command.arg("record").args(self::options()).args(["-q", "-o", "thrown.ect", "--"]).arg(&program);
        let mut standing = Standing::start(command.args(["1", "1", "3", "throw"]));
        (0..3).for_each(|_| standing.go_on());
        let (status, printed) = standing.end();
        assert!(status.success(), "{status}");
        check_all(&place.file("thrown.ect"), &thrown(&printed), options[0]);
    }
}

/// Without `record`, each call is a file.
#[test]
fn exceptions_are_kept_without_record() {
    let place = Place::new("throws-alone");
    let program = program(&place, Mode::GCC_NOPS, &[]);
    let mut command = place.command(everycall());
    command.args(["resolve", "-q", "--trigger", "risk threw app::Rare", "--trigger", "threw std::bad_*"]);
    let said = successful(command.args(KEEP_ALL).args(["-o", "set.ecs"]).arg(&program));
    assert_eq!(said, "");
    let mut command = place.command(&program);
    command.args(["1", "2", "4", "throw"]).env("EVERYCALL_TRIGGERS", place.file("set.ecs"));
    let mut standing = Standing::start(&mut command);
    let pid = standing.pid;
    (0..3).for_each(|_| standing.go_on());
    let (status, printed) = standing.end();
    assert!(status.success());
    let all = thrown(&printed);
    let wanted: [Wanted<'_>; 2] = [
        ("risk threw app::Rare", Some("risk"), |of| of == "app::Rare"),
        ("threw std::bad_*", None, |of| of == "std::bad_alloc"),
    ];
    let files = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_kept = |path: &PathBuf| path.to_string_lossy().contains(&format!("-{pid}-kept-"));
    let mut counts = [0; 2];
    for file in files.filter(is_kept) {
        let (_, kept) = kept(&file);
        let [(call, name)] = &kept[..] else { panic!("{kept:?}") };
        check_kept(call, name, &wanted[call.trigger], &all, "alone");
        counts[call.trigger] += 1;
    }
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
}

/// Triggers on exceptions are armed in a program that runs already.
#[test]
fn exceptions_of_a_running_program() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FINSTRUMENT] {
        let place = Place::new("throws-live");
        let program = program(&place, mode, &[]);
        let mut standing = Standing::alone(&program, &["1", "2", "8", "throw"]);
        let from = everycall_hooks::ticks();
        let words = WANTED.map(|(text, ..)| text);
        let options = ["--keep", "40", "--keep-every", "0", "-o", "thrown.ect"];
        let waiting = Waiting::start(&place, standing.pid, &[&words[..], &options].concat());
        standing.go_on();
        waiting.interrupt();
        let to = everycall_hooks::ticks();
        let (status, printed) = standing.end();
        assert!(status.success());
        let mut all = thrown(&printed);
        all.retain(|thrown| thrown.before > from && thrown.after < to);
        let (triggers, kept) = kept(&place.file("thrown.ect"));
        for (rule, wanted) in WANTED.iter().enumerate() {
            let count = all.iter().filter(|thrown| (wanted.2)(&thrown.of)).count() as u64;
            assert!(
                triggers[rule].fired <= count && (triggers[rule].fired > 0 || count == 0),
                "{}",
                wanted.0
            );
            let own = kept.iter().filter(|(call, _)| call.trigger == rule);
            own.for_each(|(call, name)| check_kept(call, name, wanted, &all, wanted.0));
        }
    }
}

/// One that nobody catches ends the program, and is there all the same; so is one that a library
/// throws which is loaded later.
#[test]
fn exceptions_that_end_the_program_and_those_of_plugins() {
    let place = Place::new("throws-ends");
    place.write(
        "plugin.cpp",
        "#include <stdexcept>\nstruct Plugged : std::runtime_error { using runtime_error::runtime_error; };\n\
         static volatile int sink;\n__attribute__((noinline)) static void deeper(int) { sink = sink + 1; throw Plugged(\"x\"); }\n\
         extern \"C\" void plug(int n) { deeper(n); sink = sink + n; }\n",
    );
    place.write(
        "host.cpp",
        "#include <dlfcn.h>\n#include <stdio.h>\nstruct Fatal { int n; };\nstatic volatile int sink;\n\
         __attribute__((noinline)) void last(int n) { sink = sink + n; throw Fatal{n}; }\n\
         __attribute__((noinline)) void guarded(void (*plug)(int)) { try { plug(1); } catch (const std::exception&) { sink = 7; } }\n\
         int main(int, char** argv) {\n\
           auto* plug = (void (*)(int))dlsym(dlopen(argv[1], RTLD_NOW), \"plug\");\n\
           guarded(plug);\n  last(3);\n  return 0;\n}\n",
    );
    let text = std::fs::read_to_string(place.file("host.cpp")).unwrap();
    std::fs::write(place.file("host.cpp"), format!("#include <exception>\n{text}")).unwrap();
    let host = place.build(Mode::GCC_NOPS, &["-O2", "host.cpp", "-ldl"], "host");
    let traced = place.build(Mode::GCC_NOPS, &["-O2", "-shared", "-fPIC", "plugin.cpp"], "traced.so");
    let untraced = place.file("untraced.so");
    let mut command = place.command("g++");
    successful(command.args(["-O2", "-shared", "-fPIC", "plugin.cpp", "-o"]).arg(&untraced));
    for (plugin, thrower) in [(&traced, "deeper"), (&untraced, "guarded")] {
        let mut command = place.command(everycall());
        command.args([
            "record",
            "-q",
            "--trigger",
            "threw Plugged",
            "--trigger",
            "main threw Fatal",
            "-o",
            "end.ect",
            "--",
        ]);
        let status = command.arg(&host).arg(plugin).stderr(std::process::Stdio::null()).status().unwrap();
        assert!(!status.success(), "{status}");
        let (triggers, kept) = kept(&place.file("end.ect"));
        assert_eq!((triggers[0].fired, triggers[1].fired), (1, 1), "{thrower}: {triggers:?}");
        let names: Vec<(usize, &str)> =
            kept.iter().map(|(call, name)| (call.trigger, name.split('(').next().unwrap())).collect();
        assert_eq!(names, [(0, thrower), (1, "main")]);
    }
}

#[test]
fn unknown_exception_types_are_reported() {
    let place = Place::new("throws-unknown");
    let program = program(&place, Mode::GCC_NOPS, &[]);
    let mut command: Command = place.command(everycall());
    command.args(["resolve", "--trigger", "threw app::Eror", "-o", "set.ecs"]);
    let output = command.arg(&program).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("there is app::Error"), "{said}");
}
