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

const SWALLOWING: &str = r#"
extern "C" bool swallows(void (*call)(int), int id) { try { call(id); return false; } catch (...) { return true; } }
"#;

/// Calls at random that throw, catch, throw again, jump, and clean up by code that throws and
/// catches. Prints of each that didn't return its number, what it threw, the text, and whether the
/// program's traced code caught that.
const THROWING: &str = r#"
#include <csetjmp>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
extern "C" bool swallows(void (*call)(int), int id);
struct Own : std::runtime_error { using runtime_error::runtime_error; };
static unsigned long state = 88172645463325252UL;
static unsigned draw(unsigned end) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return (state >> 20) % end; }
static std::vector<int> open;
static std::string left, text;
static const char *what = "";
static int next;
static volatile int sink;
static std::jmp_buf target;
static void unwound(size_t depth, const char *what, const std::string &text, bool is_sure) {
    for (; open.size() > depth; open.pop_back()) left += std::to_string(open.back()) + "," + what + "," + text + "," + (is_sure ? "1" : "0") + "\n";
}
void inside(int id);
[[gnu::noinline]] void catches(int id);
struct Part {
    int n;
    ~Part() {
        const char *what_now = what;
        const std::string text_now = text;
        if (n % 3 == 0) catches(next++);
        what = what_now, text = text_now;
    }
};
static void deeper(int id) {
    if (open.size() > 10) return;
    const unsigned how = draw(12);
    text = "no " + std::to_string(id);
    switch (how) {
    case 0: what = "std::out_of_range"; throw std::out_of_range(text);
    case 1: what = "Own"; throw Own(text);
    case 2: what = "int"; text.clear(); throw id;
    default: for (unsigned i = draw(4); i > 0; i--) inside(next++);
    }
}
[[gnu::noinline]] void plain(int id) { open.push_back(id); deeper(id); sink = sink + 1; open.pop_back(); }
[[gnu::noinline]] void cleans(int id) { open.push_back(id); { Part part{id}; deeper(id); } sink = sink + 1; open.pop_back(); }
[[gnu::noinline]] void catches(int id) {
    open.push_back(id);
    const size_t depth = open.size();
    try { deeper(id); } catch (...) { unwound(depth, what, text, true); }
    sink = sink + 1;
    open.pop_back();
}
[[gnu::noinline]] void again(int id) {
    open.push_back(id);
    const size_t depth = open.size();
    try { deeper(id); } catch (...) { unwound(depth, what, text, true); text.clear(); throw; }
    sink = sink + 1;
    open.pop_back();
}
[[gnu::noinline]] void untraced(int id) {
    open.push_back(id);
    const size_t depth = open.size();
    if (swallows(plain, next++)) unwound(depth, what, text, false);
    sink = sink + 1;
    open.pop_back();
}
void inside(int id) {
    static void (*const all[])(int) = {plain, cleans, catches, again, untraced};
    all[draw(5)](id);
}
[[gnu::noinline]] void throws(int id) { open.push_back(id); what = "Own"; text = "swallowed"; throw Own(text); }
[[gnu::noinline]] void jumps(int id) {
    open.push_back(id);
    const size_t depth = open.size();
    if (id % 2) { swallows(throws, next++); unwound(depth, what, text, false); }
    unwound(1, "", "", true);
    std::longjmp(target, 1);
}
[[gnu::noinline]] void turn(int id) {
    open.push_back(id);
    if (setjmp(target) == 0) jumps(next++);
    sink = sink + 1;
    open.pop_back();
}
int main() {
    while (next < 3000) { turn(next++); catches(next++); }
    std::fputs(left.c_str(), stdout);
}
"#;

/// Beside a call that an exception has left stands its type and text, as the program knows them,
/// and beside no other one.
#[test]
fn calls_say_what_they_threw() {
    let place = Place::new("threw");
    place.write("swallowing.cpp", SWALLOWING);
    place.write("throwing.cpp", THROWING);
    let mut command = place.command("g++");
    successful(command.args(["-O2", "-shared", "-fPIC", "swallowing.cpp", "-o", "libswallowing.so"]));
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let label = mode.label();
        let flags = ["-O2", "-g", "throwing.cpp", "-L.", "-lswallowing", "-Wl,-rpath,$ORIGIN"];
        let program = place.build(mode, &flags, &format!("throwing-{label}"));
        let mut command = place.command(everycall());
        command.args(["record", "-q", "-o", "trace.ect"]);
        for function in ["plain", "cleans", "catches", "again", "untraced", "throws", "jumps", "turn"] {
            command.args(["--args", &format!("{function}(id)")]);
        }
        command.arg("--");
        let printed = successful(command.arg(&program));
        let mut expected = std::collections::HashMap::new();
        for line in printed.lines() {
            let [id, what, text, is_sure] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert_eq!(expected.insert(id, (what, text, is_sure == "1")), None, "{label}: {line}");
        }
        let query = "select arg(arguments, 'id'), ifnull(arg(result, 'threw'), ''), \
                     ifnull(arg(result, 'text'), '') from slices where arguments is not null";
        let rows =
            successful(place.command(everycall()).args(["sql", "--format", "csv", "trace.ect", query]));
        let (mut seen, mut swallowed) = (0, 0);
        for row in rows.lines().skip(1) {
            let [id, what, text] = row.split(',').collect::<Vec<_>>()[..] else { panic!("{label}: {row}") };
            let (own_what, own_text, is_sure) = expected.remove(id).unwrap_or(("", "", true));
            let is_nothing = what.is_empty() && text.is_empty();
            assert!(
                (what, text) == (own_what, own_text) || is_nothing && !is_sure,
                "{label}: {row}, but it was {own_what}: {own_text}"
            );
            seen += usize::from(!what.is_empty());
            swallowed += usize::from(!is_sure);
        }
        assert!(expected.is_empty() && seen > 300 && swallowed > 100, "{label}: {seen}, {swallowed}");
    }
    // Other outputs have it where results are.
    let shown = |arguments: &[&str]| successful(place.command(everycall()).args(arguments).arg("trace.ect"));
    let ints = shown(&["replay", "--where", "threw == \"int\""]);
    assert!(ints.contains(" threw int "), "{ints}");
    let replayed = shown(&["replay"]);
    assert!(replayed.contains(" threw std::out_of_range: \"no "), "{replayed}");
    let json = shown(&["replay", "--format", "json"]);
    assert!(json.contains(r#""result":{"threw":"std::out_of_range","text":"no "#), "{json}");
    let table = shown(&["report", "--by", "plain(threw)", "--format", "csv"]);
    assert!(table.contains("std::out_of_range"), "{table}");
    let csv = shown(&["export", "-f", "csv", "-o", "-"]);
    assert!(csv.contains("threw"), "{csv}");
}
