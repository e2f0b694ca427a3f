//! `everycall trigger`: what is kept of a running program is what took too long by the program's own
//! clock, and afterwards the program is as before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use everycall_format::Wire;
use everycall_format::trigger::{LIVE_AREAS, TriggerHeader};
use everycall_reader::{KeptCall, Source, TraceFile, Trigger};
use everycall_tests::slow::{KEEP_ALL, OwnCall};
use everycall_tests::{Mode, Place, Standing, TraceView, Waiting, everycall, wait};

const MODES: [Mode; 4] = [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT];

fn program(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O2", "-pthread", "live_calls.cpp"], &format!("live-{}", mode.label()))
}

/// A call that the program knows of.
struct Own {
    name: String,
    tid: u32,
    call: OwnCall,
}

/// Reads the program's output: ticks in a second, and its calls.
fn own_calls(printed: &str) -> (u64, Vec<Own>) {
    let rate = printed.lines().find_map(|line| line.strip_prefix("rate ")).expect("a rate");
    let calls = printed.lines().filter_map(|line| line.strip_prefix("call ")).map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut next = || words.next().expect("a word");
        let (name, tid) = (next().to_owned(), next().parse().expect("a number"));
        Own { name, tid, call: OwnCall::of(next()) }
    });
    (rate.parse().expect("a number"), calls.collect())
}

fn kept(file: &Path) -> (Vec<Trigger>, Vec<(KeptCall, String)>) {
    let names = TraceView::kept_functions(file);
    let file = TraceFile::open(File::open(file).unwrap()).unwrap();
    let recording = file.recording();
    assert_eq!(recording.warnings, []);
    (recording.triggers.clone(), recording.kept.iter().cloned().zip(names).collect())
}

/// The kept calls are exactly those of the functions that took longer, from one time to another.
fn check(
    file: &Path,
    own: &(u64, Vec<Own>),
    is_meant: impl Fn(&str) -> bool,
    us: u64,
    (from, to): (u64, u64),
    label: &str,
) -> usize {
    let (rate, own) = own;
    let (threshold, micro) = (rate / 1_000_000 * us, rate / 1_000_000);
    let (triggers, kept) = kept(file);
    assert!(kept.len() < 1000, "{label}: not all were kept");
    let [trigger] = &triggers[..] else { panic!("{label}: {triggers:?}") };
    for (call, name) in &kept {
        assert!(is_meant(name), "{label}: {name}");
        assert!(call.end_ticks - call.start_ticks > call.threshold_ticks, "{label}: {call:?}");
        assert!(
            call.threshold_ticks.abs_diff(threshold) <= threshold / 500,
            "{label}: {call:?}, {threshold}"
        );
        // The program remembers calls of 1.5 ms and more: a shorter one need not be there.
        if call.tail.is_none_or(|tail| !tail.is_at_most) {
            let matching =
                own.iter().filter(|own| own.tid == call.tid && own.name == *name && own.call.is(call));
            assert_eq!(matching.count(), 1, "{label}: {call:?} of {name} is none of the program's");
        }
    }
    let surely = own.iter().filter(|own| {
        is_meant(&own.name)
            && own.call.begin > from
            && own.call.end < to
            && own.call.last - own.call.first > threshold + threshold / 500 + micro
    });
    let mut missed = 0;
    let mut count = 0;
    for own in surely {
        count += 1;
        missed += u64::from(!kept.iter().any(|(call, name)| {
            *name == own.name
                && own.tid == call.tid
                && (own.call.begin..=own.call.first).contains(&call.start_ticks)
        }));
    }
    assert!(missed <= trigger.missed, "{label}: {missed} of {count} weren't kept, {trigger:?}");
    count
}

/// The program's code, as it is in memory: of one mapping or of several.
fn code(pid: u32, program: &Path) -> Vec<u8> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let is_code = |line: &&str| line.contains(" r-x") && line.ends_with(program.to_str().unwrap());
    let lines = maps.lines().filter(is_code);
    let read = |line: &str| {
        let (first, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [first, end] = [first, end].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut bytes = vec![0; (end - first) as usize];
        memory.read_exact_at(&mut bytes, first).unwrap();
        bytes
    };
    lines.flat_map(read).collect()
}

/// The areas for clients.
fn areas(standing: &Standing) -> impl Iterator<Item = TriggerHeader> {
    let (memory, base) = standing.memory();
    let header = standing.header();
    (0..LIVE_AREAS).map(move |index| {
        let mut bytes = [0; TriggerHeader::SIZE];
        memory.read_exact_at(&mut bytes, base + header.live_triggers_at(index).unwrap()).unwrap();
        TriggerHeader::read(&bytes).unwrap()
    })
}

/// Areas that clients have.
fn areas_in_use(standing: &Standing) -> u32 {
    areas(standing).map(|area| area.in_use).sum()
}

/// Functions that clients have armed.
fn sites(standing: &Standing) -> u32 {
    areas(standing).filter(|area| area.in_use != 0).map(|area| area.sites & !(1 << 31)).sum()
}

#[test]
fn slow_calls_of_a_running_program_are_kept() {
    for mode in MODES {
        let place = Place::new("live-triggers");
        let program = program(&place, mode);
        let label = mode.label();
        let mut standing = Standing::alone(&program, &["3000", "2", "5"]);
        let before = code(standing.pid, &program);
        let waiting = Waiting::start(
            &place,
            standing.pid,
            &[&["handle* > 2ms", "-o", "kept.ect"][..], &KEEP_ALL].concat(),
        );
        let from = everycall_hooks::ticks();
        assert_eq!(areas_in_use(&standing), 1, "{label}");
        if mode.name == "fentry" || mode.name == "nops" || mode.name == "xray" {
            assert!(code(standing.pid, &program) != before, "{label}: no tail exit has its hook");
        }
        standing.go_on();
        let to = everycall_hooks::ticks();
        let said = waiting.interrupt();
        wait::until("the area is free", || areas_in_use(&standing) == 0);
        assert!(code(standing.pid, &program) == before, "{label}: code has changed");
        let (status, printed) = standing.end();
        assert!(status.success(), "{label}: {status}");
        let is_meant = |name: &str| name.starts_with("handle");
        let count = check(&place.file("kept.ect"), &own_calls(&printed), is_meant, 2000, (from, to), &label);
        assert!(count > 20, "{label}: {count} calls");
        assert!(said.contains("calls of live-"), "{said}");
    }
}

/// Whichever way a client ends, the program is as before.
#[test]
fn killed_clients_leave_no_triggers_behind() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let place = Place::new("live-triggers-killed");
        let program = program(&place, mode);
        let standing = Standing::alone(&program, &["3000", "2"]);
        let before = code(standing.pid, &program);
        for round in 0..5 {
            let waiting = Waiting::start(&place, standing.pid, &["handle* > 1ms", "-o", "kept.ect"]);
            assert_eq!(areas_in_use(&standing), 1);
            std::thread::sleep(std::time::Duration::from_millis(20 * round));
            waiting.kill();
            wait::until("the area is free", || areas_in_use(&standing) == 0);
            assert!(code(standing.pid, &program) == before, "{}: code has changed", mode.label());
        }
        assert!(!place.file("kept.ect").exists());
        let (status, _) = standing.end();
        assert!(status.success());
    }
}

/// Several at once, beside `record --trigger`: each keeps what it asked for.
#[test]
fn several_clients_and_record_at_once() {
    let place = Place::new("live-triggers-several");
    let program = program(&place, Mode::GCC_NOPS);
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--trigger", "other > 2ms"]).args(KEEP_ALL).args([
        "-o",
        "recorded.ect",
        "--",
    ]);
    let mut standing = Standing::start(command.arg(&program).args(["3000", "2", "11"])).find_traced();
    let from = everycall_hooks::ticks();
    let words = |pattern: &'static str, file: &'static str| [&[pattern, "-o", file][..], &KEEP_ALL].concat();
    let first = Waiting::start(&place, standing.pid, &words("handle > 2ms", "first.ect"));
    let second = Waiting::start(&place, standing.pid, &words("handle_tail > 1ms", "second.ect"));
    let third = Waiting::start(&place, standing.pid, &words("o*r > 2ms", "third.ect"));
    let armed = everycall_hooks::ticks();
    standing.go_on();
    let to = everycall_hooks::ticks();
    first.interrupt();
    // The others go on.
    standing.go_on();
    let later = everycall_hooks::ticks();
    second.interrupt();
    third.interrupt();
    wait::until("all areas are free", || areas_in_use(&standing) == 0);
    let (status, printed) = standing.end();
    assert!(status.success());
    let own = own_calls(&printed);
    let is = |wanted: &'static str| move |name: &str| name == wanted;
    for (file, name, us, times) in [
        ("first.ect", "handle", 2000, (armed, to)),
        ("second.ect", "handle_tail", 1000, (armed, later)),
        ("third.ect", "other", 2000, (armed, later)),
        ("recorded.ect", "other", 2000, (from, later)),
    ] {
        let count = check(&place.file(file), &own, is(name), us, times, file);
        assert!(count > 5, "{file}: {count}");
    }
}

fn asked(place: &Place, words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        place.command(everycall()).arg("trigger").args(words).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn impossible_requests_are_refused_without_effect() {
    let place = Place::new("live-triggers-errors");
    let program = program(&place, Mode::GCC_NOPS);
    let standing = Standing::alone(&program, &["3000", "1"]);
    let before = code(standing.pid, &program);
    let pid = &standing.pid.to_string()[..];
    let own = &std::process::id().to_string()[..];
    for (words, hint) in [
        (&[pid, "handel > 2ms"][..], "there are handle"),
        (&[pid, "handle > 2ms", "nothing_like_it > 1ms"], "no function in"),
        (&[pid, "handle"], "has no condition"),
        (&[pid, "signal USR1"], "everycall snapshot"),
        (&[own, "handle > 2ms"], "was built without everycall"),
        (&["4194303", "handle > 2ms"], "process 4194303"),
        (&[pid, "handle > 2ms", "-o", "/nowhere/kept.ect"], "/nowhere"),
    ] {
        let (code, said) = asked(&place, words);
        assert!(code.is_some_and(|code| code != 0) && said.contains(hint), "{words:?}: {code:?} {said}");
    }
    let mut all: Vec<Waiting> = (0..LIVE_AREAS)
        .map(|_| Waiting::start(&place, standing.pid, &["other > 2ms", "-o", "kept.ect"]))
        .collect();
    let (code_of_fifth, said) = asked(&place, &[pid, "handle > 2ms"]);
    assert!(code_of_fifth == Some(1) && said.contains("4 other"), "{code_of_fifth:?} {said}");
    all.pop().unwrap().interrupt();
    let (code_then, said) =
        asked(&place, &[pid, "handle > 1ms", "--limit", "3", "--keep-every", "0", "-o", "limit.ect"]);
    assert_eq!(code_then, Some(0), "{said}");
    assert_eq!(kept(&place.file("limit.ect")).1.len(), 3, "{said}");
    all.into_iter().for_each(|waiting| drop(waiting.interrupt()));
    wait::until("all areas are free", || areas_in_use(&standing) == 0);
    assert!(code(standing.pid, &program) == before);
    let (status, _) = standing.end();
    assert!(status.success());
}

/// Functions of a library that is loaded while a command waits are armed, too.
#[test]
fn libraries_that_are_loaded_meanwhile() {
    let place = Place::new("live-triggers-library");
    place.write(
        "plugin.cpp",
        "#include <unistd.h>\nstatic volatile int calls;\n\
         extern \"C\" void plugged(int us) { usleep(us); calls = calls + 1; }\n",
    );
    place.write(
        "player.cpp",
        "#include <dlfcn.h>\n#include <poll.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         static volatile int calls;\n\
         extern \"C\" __attribute__((noinline)) void played(int us) { usleep(us); calls = calls + 1; }\n\
         int main(int, char** argv) {\n  void (*play)(int) = played;\n  int more = 0;\n  printf(\"ready\\n\"); fflush(stdout);\n\
           for (;;) {\n    pollfd input = {0, POLLIN, 0};\n    if (poll(&input, 1, 0)) {\n      char byte;\n\
               if (read(0, &byte, 1) <= 0) return 0;\n\
               if (byte == 'l') play = (void (*)(int))dlsym(dlopen(argv[1], RTLD_NOW), \"plugged\");\n\
               more = 10;\n    }\n    play(3000);\n\
             if (more && --more == 0) { printf(\"ready\\n\"); fflush(stdout); }\n  }\n}\n",
    );
    let plugin = place.build(Mode::GCC_NOPS, &["-O2", "-shared", "-fPIC", "plugin.cpp"], "plugin.so");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "player.cpp", "-ldl"], "player");
    let mut standing = Standing::alone(&program, &[plugin.to_str().unwrap()]);
    let words = [&["pl*ed > 1ms", "-o", "kept.ect"][..], &KEEP_ALL].concat();
    let waiting = Waiting::start(&place, standing.pid, &words);
    // Ten more calls each time, those of the library once its function is armed.
    standing.go_on();
    standing.tell("l");
    wait::until("both functions are armed", || sites(&standing) == 2);
    standing.go_on();
    waiting.interrupt();
    let (triggers, kept) = kept(&place.file("kept.ect"));
    let count = |wanted: &str| kept.iter().filter(|(_, name)| name == wanted).count();
    assert!(count("played") > 5 && count("plugged") > 5, "{} {}", count("played"), count("plugged"));
    assert_eq!((triggers[0].functions, triggers[0].late), (2, 1));
    let (status, _) = standing.end();
    assert!(status.success());
}

/// A forked child has no clients: its tail exits are as before.
#[test]
fn forked_children_begin_without_clients() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let place = Place::new("live-triggers-fork");
        place.write(
            "forks.cpp",
            "#include <poll.h>\n#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
             static volatile int calls;\n\
             extern \"C\" {\n__attribute__((noinline)) void rest(int n) { calls = calls + n; }\n\
             __attribute__((noinline)) void handle(int n) { calls = calls + n; rest(n + 1); }\n}\n\
             static bool is_over() { pollfd input = {0, POLLIN, 0}; return poll(&input, 1, 1) != 0; }\n\
             int main() {\n  printf(\"ready\\n\"); fflush(stdout);\n  while (!is_over()) handle(1);\n  char byte;\n  if (read(0, &byte, 1) <= 0) return 1;\n\
               pid_t child = fork();\n  if (child == 0) {\n    handle(2);\n    printf(\"ready\\n\"); fflush(stdout);\n    while (!is_over()) handle(3);\n    _exit(0);\n  }\n\
               int status;\n  waitpid(child, &status, 0);\n  return status;\n}\n",
        );
        let program = place.build(mode, &["-O2", "forks.cpp"], "forks");
        let mut standing = Standing::alone(&program, &[]);
        let before = code(standing.pid, &program);
        let waiting = Waiting::start(&place, standing.pid, &["handle > 1ms", "-o", "kept.ect"]);
        assert!(code(standing.pid, &program) != before, "{}", mode.label());
        standing.go_on();
        let [child] = wait::children(standing.pid)[..] else { panic!("one child") };
        wait::until("the child's code is as before", || code(child, &program) == before);
        assert!(code(standing.pid, &program) != before, "{}", mode.label());
        waiting.interrupt();
        let (status, _) = standing.end();
        assert!(status.success(), "{status}");
    }
}
