//! Snapshots from outside: in gdb, from cores, from images. They have the calls that `record` has.

mod common;

use common::Workplace;
use serde_json::Value;

/// Calls in two threads, one of which has ended, then a crash in a third call of `work`.
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

int main() {
    sem_init(&ready, 0, 0);
    std::thread([] { pthread_setname_np(pthread_self(), "ended"); shop::work(); }).join();
    std::thread sleeper([] { pthread_setname_np(pthread_self(), "sleeper"); shop::wait_for_ever(); });
    sem_wait(&ready);
    shop::work();
    shop::crash();
}
"#;

fn build(here: &Workplace, options: &str) {
    here.write("crash.cpp", CRASH);
    here.succeed(&format!("cc {options} -pthread crash.cpp -o crash"));
}

/// Each call's thread, depth, function, and whether it was left otherwise than by returning.
fn calls(here: &Workplace, trace: &str) -> Vec<(String, u64, String, String)> {
    let text = here.succeed(&format!("replay --format json {trace}")).stdout;
    let call = |line: &str| {
        let call: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        (text("thread"), call["depth"].as_u64().unwrap(), text("name"), call["remarks"].to_string())
    };
    let mut calls: Vec<_> = text.lines().map(call).collect();
    // Threads run side by side.
    calls.sort_by(|one, other| one.0.cmp(&other.0));
    calls
}

#[test]
fn a_snapshot_in_gdb_has_the_calls_of_record() {
    let here = Workplace::new();
    build(&here, "-- g++ -O1 -g");
    assert_eq!(here.shell("$EVERYCALL record -q -o record.ect -- ./crash; true").code, Some(0));
    let script = here.succeed("gdb-script").stdout;
    here.write("everycall.py", script);
    // Each by itself: gdb goes on after one that fails.
    let lines = "-ex 'source everycall.py' -ex 'everycall snapshot early.ect' -ex run -ex 'everycall snapshot' \
                 -ex 'everycall snapshot live.ect'";
    let said = here.shell(&format!("gdb -nx -q -batch {lines} ./crash"));
    assert!(said.stderr.contains("there is no process"), "{said:?}");
    assert!(said.stderr.contains("name one file"), "{said:?}");
    assert!(said.stderr.contains("3 threads") && said.stderr.contains("replay"), "{said:?}");
    let recorded = calls(&here, "record.ect");
    assert!(recorded.iter().any(|(thread, _, name, _)| thread == "ended" && name == "shop::leaf(int)"));
    assert_eq!(calls(&here, "live.ect"), recorded);
    assert!(!here.files().iter().any(|name| name.starts_with(".everycall") || name == "early.ect"));

    // Without a traced program.
    let said = here.shell(
        "gdb -nx -q -batch -ex 'source everycall.py' -ex starti -ex 'everycall snapshot x.ect' /bin/true",
    );
    assert!(said.stderr.contains("no memory of everycall is in this process"), "{said:?}");
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
