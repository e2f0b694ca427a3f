//! Snapshots from gdb and from cores contain the same calls as `record`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::Workplace;
use everycall_reader::{OpenCall, Source, ThreadKey, TraceFile};
use serde_json::Value;

/// Calls in three threads, one of which has ended, one of which waits; then a crash.
const CRASH: &str = r#"
#include <csignal>
#include <cstdlib>
#include <pthread.h>
#include <semaphore.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>

static sem_t ready;

namespace shop {
__attribute__((noinline)) int leaf(int x) { asm volatile(""); return 2 * x; }
__attribute__((noinline)) void fail(int depth) {
    if (depth == 0) throw std::runtime_error("deliberate");
    fail(depth - 1);
    asm volatile("");
}
__attribute__((noinline)) void work() {
    for (int i = 0; i < 100; ++i) leaf(i);
    try { fail(1); } catch (const std::exception&) {}
}
__attribute__((noinline)) void crash() { leaf(1); abort(); }
__attribute__((noinline)) void wait_for_ever() { leaf(2); sem_post(&ready); for (;;) pause(); }
}

int main(int, char** words) {
    // The thread's second event takes the slow path.
    try { shop::fail(0); } catch (const std::exception&) {}
    sem_init(&ready, 0, 0);
    std::thread([] { pthread_setname_np(pthread_self(), "ended"); shop::work(); }).join();
    std::thread sleeper([] { pthread_setname_np(pthread_self(), "sleeper"); shop::work(); shop::wait_for_ever(); });
    sem_wait(&ready);
    for (int times = words[1] ? atoi(words[1]) : 1; times > 0; --times) shop::work();
    shop::crash();
}
"#;

fn build(here: &Workplace, options: &str) {
    here.write("crash.cpp", CRASH);
    here.succeed(&format!("cc {options} -pthread crash.cpp -o crash"));
}

/// Each call's thread, depth, function, and whether it was unwound.
fn calls(here: &Workplace, trace: &str) -> Vec<(String, u64, String, String)> {
    let text = here.succeed(&format!("replay --format json {trace}")).stdout;
    let call = |line: &str| {
        let call: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        (text("thread"), call["depth"].as_u64().unwrap(), text("name"), call["remarks"].to_string())
    };
    // The other lines are marks: jumps, ends of threads.
    let mut calls: Vec<_> = text.lines().filter(|line| line.contains("\"depth\":")).map(call).collect();
    // Threads run concurrently.
    calls.sort_by(|one, other| one.0.cmp(&other.0));
    calls
}

/// Everything that was written of one thread: name, generation, segments, open calls.
type Written = (String, u32, Vec<(u64, Vec<u64>)>, Vec<OpenCall>);

/// Everything that a trace contains, exactly.
fn written(here: &Workplace, trace: &str) -> Vec<Written> {
    let file = TraceFile::open(here.read(trace)).unwrap();
    let mut all = Vec::new();
    for (thread, known) in file.recording().snapshots[0].threads.iter().enumerate() {
        let key = ThreadKey { snapshot: 0, thread };
        let mut cursor = file.segments(key);
        let (mut segments, mut words) = (Vec::new(), Vec::new());
        while let Some(number) = cursor.next_segment(&mut words) {
            segments.push((number.unwrap(), words.clone()));
        }
        all.push((known.name_lossy().into_owned(), known.generation, segments, file.open_calls(key)));
    }
    all
}

/// Runs a shell line that leaves a core, which is then named `core`.
fn leave_core(here: &Workplace, line: &str) {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    assert!(
        !pattern.starts_with(['|', '/', '@']),
        "cores go to {pattern:?}; for this test: echo core > /proc/sys/kernel/core_pattern"
    );
    let _ = std::fs::remove_file(here.path("core"));
    here.shell(&format!("ulimit -c unlimited; {line}; for core in core.[0-9]*; do mv $core core; done"));
    assert!(here.path("core").exists(), "{line} left no core: {:?}", here.files());
}

/// One run, by `record` and from its core: events, open calls, modules and threads are equal.
#[test]
fn a_core_holds_what_record_sees_in_every_mode() {
    let modes = [
        "--mode nops -- g++ -O1 -g",
        "--mode nops -- g++ -O1 -g -static",
        "--mode nops -- g++ -O1 -g -static-pie -fPIE",
        "--mode nops -- g++ -O1 -g -no-pie",
        "--mode fentry -- g++ -O1 -g",
        "--mode fentry -- g++ -O1 -g -static",
        "--mode finstrument -- g++ -O1 -g",
        "--mode finstrument -- g++ -O1 -g -static-pie -fPIE",
        "--mode xray -- clang++-19 -O1 -g",
        "--mode xray -- clang++-19 -O1 -g -static",
        "--mode finstrument -- clang++-19 -O1 -g",
        "--mode after-inlining -- clang++-19 -O1 -g",
    ];
    for mode in modes {
        let here = Workplace::new();
        build(&here, mode);
        leave_core(&here, "$EVERYCALL record -q --launcher -o record.ect -- env ./crash");
        let said = here.succeed("core core").stderr;
        assert!(said.contains("core of crash (process "), "{mode}: {said}");
        assert!(said.contains("ended by signal 6 (SIGABRT), with 2 live threads"), "{mode}: {said}");
        assert!(said.contains("3 threads") && said.contains("complete: every thread"), "{mode}: {said}");
        assert_eq!(written(&here, "core.ect"), written(&here, "record.ect"), "{mode}");
        let recorded = calls(&here, "record.ect");
        let of = |thread: &str, function: &str| {
            recorded.iter().filter(|call| call.0 == thread && call.2.starts_with(function)).count()
        };
        assert_eq!((of("ended", "shop::leaf"), of("sleeper", "shop::wait_for_ever")), (100, 1), "{mode}");
        assert_eq!(calls(&here, "core.ect"), recorded, "{mode}");
        let modules = |trace: &str| {
            let file = TraceFile::open(here.read(trace)).unwrap();
            file.recording().modules.clone()
        };
        assert_eq!(modules("core.ect"), modules("record.ect"), "{mode}");

        // Without record, another run, the same calls.
        leave_core(&here, "./crash");
        here.succeed("core -q -o alone.ect core");
        assert_eq!(calls(&here, "alone.ect"), recorded, "{mode}");
    }
}

/// Overwritten events are missing from the core as from the recording, and the rest is equal.
#[test]
fn rings_that_were_overwritten_are_the_same() {
    let here = Workplace::new();
    build(&here, "-- g++ -O1 -g");
    leave_core(&here, "$EVERYCALL record -q --launcher --ring-size 64K -o record.ect -- env ./crash 1000");
    let said = here.succeed("core core").stderr;
    assert!(said.contains("1 thread lost its oldest calls") && said.contains("--ring-size 2M"), "{said}");
    let recorded = written(&here, "record.ect");
    assert!(recorded.iter().any(|(_, _, segments, _)| segments[0].0 > 0), "a ring that was overwritten");
    assert_eq!(written(&here, "core.ect"), recorded);
    // Thread by thread: id, events, and what is missing.
    let figures = |trace: &str| {
        let info = here.succeed(&format!("info --format json {trace}")).stdout;
        let info: Value = serde_json::from_str(&info).unwrap();
        let of = |thread: &Value| {
            ["tid", "events", "lost_events", "segments_overwritten", "open_calls"]
                .map(|name| thread[name].as_u64().unwrap())
        };
        info["threads"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(figures("core.ect"), figures("record.ect"));
}

#[test]
fn cores_grow_by_what_was_recorded() {
    let here = Workplace::new();
    build(&here, "-- g++ -O1 -g");
    leave_core(&here, "./crash");
    // Size on disk, without holes.
    let size = |path: &Path| std::fs::metadata(path).unwrap().blocks() * 512;
    let traced = size(&here.path("core"));
    assert_eq!(here.shell("g++ -O1 -g -pthread crash.cpp -o crash").code, Some(0));
    leave_core(&here, "./crash");
    let plain = size(&here.path("core"));
    // Of three threads with one segment of 64 KiB each; segments come in packs of 1 MiB.
    assert!(traced - plain < 2 << 20, "{traced} bytes, {plain} without tracing");
}

#[test]
fn libraries_that_were_unloaded_are_in_the_core() {
    let here = Workplace::new();
    here.write("plugin.cpp", "extern \"C\" __attribute__((noinline)) int plugged(int x) { return x + 1; }\n");
    here.write(
        "host.cpp",
        r#"
#include <cstdlib>
#include <dlfcn.h>
int main() {
    for (int i = 0; i < 3; ++i) {
        void* library = dlopen("./plugin.so", RTLD_NOW);
        reinterpret_cast<int (*)(int)>(dlsym(library, "plugged"))(i);
        dlclose(library);
    }
    *static_cast<volatile int*>(nullptr) = 1;
}
"#,
    );
    here.succeed("cc -- g++ -O1 -g -shared -fPIC plugin.cpp -o plugin.so");
    here.succeed("cc -- g++ -O1 -g host.cpp -o host");
    leave_core(&here, "./host");
    let said = here.succeed("core core").stderr;
    assert!(said.contains("SIGSEGV"), "{said}");
    let functions: Vec<_> = calls(&here, "core.ect").into_iter().map(|call| call.2).collect();
    assert_eq!(functions.iter().filter(|name| *name == "plugged").count(), 3, "{functions:?}");

    // The program's file may be at another path.
    assert_eq!(here.shell("mv host moved").code, Some(0));
    here.succeed("core -q --exe moved -o moved.ect core");
    assert!(calls(&here, "moved.ect").iter().any(|call| call.2 == "main"));
    here.fail("core --exe nowhere core", 1, &["nowhere", "--exe"]);
}

#[test]
fn cut_cores_and_cores_without_our_memory_say_so() {
    let here = Workplace::new();
    build(&here, "-- g++ -O1 -g");
    leave_core(&here, "echo 1 > /proc/self/coredump_filter; ./crash");
    here.fail("core core", 1, &["core: no memory of everycall is in the core of crash", "coredump_filter"]);
    leave_core(
        &here,
        "$EVERYCALL record -q --launcher -o record.ect -- sh -c 'echo 1 > /proc/self/coredump_filter; exec ./crash'",
    );
    here.fail("core core", 1, &["lists everycall's memory", "coredump_filter"]);

    leave_core(&here, "./crash");
    let core = here.read("core");
    // Memory begins at page boundaries of the file; other places may hold copies of the header.
    let mut pages = (0..core.len()).step_by(4096);
    let version = everycall_format::arena::ARENA_VERSION.to_le_bytes();
    let header = [&b"everycal"[..], &version].concat();
    let at = pages.rfind(|at| core[*at..].starts_with(&header)).unwrap();
    here.write("headers", &core[..500]);
    here.fail("core headers", 1, &["truncated at byte 500", "ulimit -c unlimited"]);
    here.write("early", &core[..at]);
    here.fail("core early", 1, &["is truncated", "bytes are missing", "ulimit -c unlimited"]);
    here.write("late", &core[..at + (200 << 10)]);
    let said = here.succeed("core late").stderr;
    assert!(said.contains("the core is truncated") && said.contains("are missing in it"), "{said}");
    assert!(!said.contains("complete: every thread"), "{said}");
    here.succeed("replay late.ect");

    // The kernel's own truncation: it stops within the file, and doesn't count holes.
    leave_core(&here, "ulimit -c 100; ./crash");
    let said = here.run("core -o tiny.ect core").stderr;
    assert!(said.contains("is truncated") && said.contains("ulimit -c unlimited"), "{said}");
    assert!(!said.contains("no traced function") && !said.contains("complete: every thread"), "{said}");

    assert_eq!(here.shell("g++ -O1 -g -pthread crash.cpp -o crash").code, Some(0));
    leave_core(&here, "./crash");
    here.fail("core core", 1, &["core of crash", "everycall cc -- g++"]);
    assert!(!here.files().iter().any(|name| name == "core.ect"));
}

/// gdb's own cores, and gdb's view of a core.
#[test]
fn cores_of_gdb_and_cores_in_gdb() {
    let here = Workplace::new();
    build(&here, "-- g++ -O1 -g");
    let script = here.succeed("gdb-script").stdout;
    here.write("everycall.py", script);
    let said = here.shell(
        "gdb -nx -q -batch -ex 'source everycall.py' -ex run -ex 'generate-core-file core' -ex 'everycall snapshot live.ect' ./crash",
    );
    let said_of_core = here.succeed("core core").stderr;
    assert!(said_of_core.contains("stopped by signal 6"), "{said:?} {said_of_core}");
    let in_gdb = here
        .shell("gdb -nx -q -batch -ex 'source everycall.py' -ex 'everycall snapshot seen.ect' ./crash core");
    assert!(in_gdb.stderr.contains("3 threads"), "{in_gdb:?}");
    let live = written(&here, "live.ect");
    assert_eq!(live.len(), 3);
    assert_eq!(written(&here, "core.ect"), live);
    assert_eq!(written(&here, "seen.ect"), live);
}

#[test]
fn a_snapshot_in_gdb_has_the_calls_of_record() {
    let here = Workplace::new();
    build(&here, "-- g++ -O1 -g");
    assert_eq!(here.shell("$EVERYCALL record -q -o record.ect -- ./crash; true").code, Some(0));
    let script = here.succeed("gdb-script").stdout;
    here.write("everycall.py", script);
    // As separate commands: gdb continues after one that fails.
    let lines = "-ex 'source everycall.py' -ex 'everycall snapshot early.ect' -ex run -ex 'everycall snapshot' \
                 -ex 'everycall snapshot nowhere/x.ect' -ex 'everycall snapshot live.ect'";
    let said = here.shell(&format!("gdb -nx -q -batch {lines} ./crash"));
    assert!(said.stderr.contains("there is no process"), "{said:?}");
    assert!(said.stderr.contains("name one file"), "{said:?}");
    let nowhere = format!("there is no folder {}", here.path("nowhere").display());
    assert!(said.stderr.contains(&nowhere), "{said:?}");
    assert!(said.stderr.contains("3 threads") && said.stderr.contains("replay"), "{said:?}");
    let recorded = calls(&here, "record.ect");
    assert!(recorded.iter().any(|(thread, _, name, _)| thread == "ended" && name == "shop::leaf(int)"));
    assert_eq!(calls(&here, "live.ect"), recorded);
    assert!(!here.files().iter().any(|name| name.starts_with(".everycall") || name == "early.ect"));

    // Without a traced program.
    let said = here.shell(
        "gdb -nx -q -batch -ex 'source everycall.py' -ex starti -ex 'everycall snapshot x.ect' /bin/true",
    );
    assert!(said.stderr.contains("this process has no everycall arena"), "{said:?}");
}

#[test]
fn what_is_no_core_is_refused_with_a_sentence() {
    let here = Workplace::new();
    here.write("text", "hello\n");
    here.write("program", std::fs::read("/bin/true").unwrap());
    here.fail("core nowhere", 1, &["nowhere", "name a core"]);
    here.fail("core .", 1, &["is not a regular file"]);
    here.fail("core text", 1, &["text: expected a core dump and found text"]);
    here.fail("core program", 1, &["a program or a library", "coredumpctl"]);
    here.fail("core", 2, &["<CORE>"]);
    assert_eq!(here.files(), ["program", "text"]);
}
