//! `record --waits`: calls that wait, what they wait for, and who held it. The program knows, and
//! says what each call returned: the same without `--waits`.

use std::path::Path;
use std::process::Command;

use everycall_tests::{Mode, Place, everycall, is_full, successful};
use serde_json::Value;

fn lines(file: &Path) -> Vec<Value> {
    let text = successful(Command::new(everycall()).args(["replay", "-f", "json"]).arg(file));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn label<'a>(call: &'a Value, name: &str) -> &'a Value {
    &call["labels"][name]
}

/// The labels without a value.
fn texts(call: &Value) -> Vec<&str> {
    let labels = call["labels"].as_object();
    labels.into_iter().flatten().filter(|(_, value)| value.is_null()).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn calls_that_wait_say_for_what_and_for_whom() {
    let rounds = if is_full() { "10000" } else { "300" };
    let place = Place::new("waits");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let label_of_mode = mode.label();
        let name = format!("waits-{label_of_mode}");
        let program = place.build(mode, &["-O2", "-g", "-Wno-unused", "waits.c", "-pthread"], &name);
        let is_result = |line: &&str| !line.starts_with("held by ");
        let plain = successful(place.command(&program).arg("20"));
        let file = place.file("a.ect");
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--waits", "--ring-size", "64M", "-o"]).arg(&file).arg("--");
        let printed = successful(command.arg(&program).arg(rounds));
        let results = |text: &'static str| text.lines().filter(is_result).collect::<Vec<_>>();
        assert_eq!(results(printed.clone().leak()), results(plain.leak()), "{label_of_mode}");

        let lines = lines(&file);
        let calls = |name: &'static str| lines.iter().filter(move |line| line["name"] == name);
        let main = calls("main").next().unwrap()["tid"].clone();
        let of_main = |name: &'static str| calls(name).filter(|call| call["tid"] == main);
        // Each time, the thread that held the lock, and where it was.
        let locks: Vec<&Value> =
            of_main("pthread_mutex_lock").filter(|call| texts(call).contains(&"lock: queue_mutex")).collect();
        let wanted: Vec<&str> = printed.lines().filter(|line| !is_result(line)).collect();
        assert!(locks.len() >= wanted.len() && wanted.len().to_string() == rounds, "{}", locks.len());
        let mut at_edges = 0;
        for (call, wanted) in locks.iter().zip(&wanted) {
            let words: Vec<&str> = wanted.split(' ').collect();
            assert_eq!(label(call, "held by").to_string(), words[2], "{wanted}: {call}");
            let place = texts(call).into_iter().find(|text| text.starts_with("held by: in ")).unwrap();
            // Processors read the clock out of order: by some hundred nanoseconds, the holder's
            // function may have ended before the wait began.
            at_edges += usize::from(place.ends_with("in holder"));
            // Functions that were inlined have calls of their own in some modes.
            let is_right = [words[4], "until_contended", "in holder"].iter().any(|end| place.ends_with(end));
            assert!(is_right, "{wanted}: {call}");
        }
        assert!(at_edges <= wanted.len() / 20, "{at_edges} of {}", wanted.len());
        // Everything else has what it waits for.
        for (name, wanted, text) in [
            ("pthread_cond_wait", "condition", "condition: condition"),
            ("sem_wait", "semaphore", "the queue's room"),
            ("pthread_rwlock_rdlock", "lock", "lock: table_lock"),
            ("poll", "fd", ""),
            ("read", "fd", ""),
            ("syscall", "futex", "futex: word"),
            ("connect", "fd", "127.0.0.1:"),
            ("recv", "fd", ""),
            ("nanosleep", "", ""),
            ("waitpid", "child", ""),
        ] {
            let mut found = calls(name);
            let is_it = |call: &Value| {
                (wanted.is_empty() || label(call, wanted).is_u64())
                    && (text.is_empty() || texts(call).iter().any(|label| label.starts_with(text)))
            };
            assert!(found.any(is_it), "{label_of_mode}: {name}: {:?}", calls(name).collect::<Vec<_>>());
        }
        // Functions that don't wait aren't there.
        assert_eq!(calls("pthread_mutex_unlock").count() + calls("sem_init").count(), 0);
        assert_eq!(of_main("accept").count(), 0);
        assert_eq!(calls("accept").count(), 1, "in the child");
        // Cancelled while they waited, their last call among them.
        let cancelled = calls("cancelled").collect::<Vec<_>>();
        assert_eq!(cancelled.len(), 20);
        assert!(
            cancelled.iter().all(|call| call["remarks"] == serde_json::json!(["unwound"])),
            "{cancelled:?}"
        );
    }
}

#[test]
fn with_other_options_and_programs() {
    let place = Place::new("waits-options");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "-g", "waits.c", "-pthread"], "waits");
    let file = place.file("a.ect");
    // Chosen functions alone, and calls that wait.
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--waits", "--only", "connects", "-o"]).arg(&file).arg("--");
    successful(command.arg(&program).arg("3"));
    let lines_of_both = lines(&file);
    let names: Vec<&str> = lines_of_both.iter().filter_map(|line| line["name"].as_str()).collect();
    assert!(names.contains(&"connects") && names.contains(&"pthread_mutex_lock"), "{names:?}");
    assert!(!names.contains(&"main"), "{names:?}");
    // A trigger may name them.
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--waits", "--trigger", "pthread_join > 1us", "-o"]).arg(&file).arg("--");
    successful(command.arg(&program).arg("3"));
    let kept = successful(place.command(everycall()).args(["info", "-f", "json"]).arg(&file));
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let is_join = |call: &Value| call["function"] == "pthread_join";
    assert!(kept["kept_calls"].as_array().is_some_and(|all| all.iter().any(is_join)));
    // Through a program that isn't traced.
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--waits", "-o"]).arg(&file).args(["--", "sh", "-c"]);
    successful(command.arg(format!("echo started | cat; {} 3", program.display())));
    assert!(lines(&file).iter().any(|line| line["name"] == "pthread_mutex_lock"));
    // With a sanitizer that insists on being loaded first.
    let flags = ["-O1", "-g", "-fsanitize=address", "-Wno-unused", "waits.c", "-pthread"];
    let sanitized = place.build(Mode::GCC_NOPS, &flags, "waits-asan");
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--waits", "-o"]).arg(&file).arg("--").arg(&sanitized).arg("3");
    successful(command.env("ASAN_OPTIONS", "detect_leaks=0"));
    assert!(lines(&file).iter().any(|line| line["name"] == "pthread_mutex_lock"));
    // Without a dynamic linker.
    let fixed = place.build(Mode::GCC_NOPS, &["-O2", "-static", "waits.c", "-pthread"], "waits-static");
    let output = place.command(everycall()).args(["record", "--waits", "--"]).arg(&fixed).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is linked statically; link it without -static, or leave out --waits"), "{said}");
}

/// An allocator that locks mutexes, such as jemalloc: what looks up the C library's function may
/// allocate, too.
#[test]
fn an_allocator_may_lock_a_mutex() {
    let place = Place::new("waits-allocator");
    place.write(
        "allocator.c",
        r#"
            #include <pthread.h>
            #include <stdio.h>
            #include <stdlib.h>
            extern void *__libc_malloc(size_t);
            static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
            void *malloc(size_t size) {
                pthread_mutex_lock(&lock);
                void *found = __libc_malloc(size);
                pthread_mutex_unlock(&lock);
                return found;
            }
            static void *allocates(void *unused) {
                for (int i = 0; i < 1000; i++) free(malloc(100));
                return unused;
            }
            int main(void) {
                pthread_t thread;
                if (pthread_create(&thread, 0, allocates, 0)) return 1;
                allocates(0);
                pthread_join(thread, 0);
                puts("done");
            }
        "#,
    );
    let program = place.build(Mode::GCC_NOPS, &["-O1", "allocator.c", "-pthread"], "allocator");
    let file = place.file("a.ect");
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--waits", "-o"]).arg(&file).arg("--");
    assert_eq!(successful(command.arg(&program)), "done\n");
    assert_eq!(lines(&file).iter().filter(|line| line["name"] == "pthread_join").count(), 1);
}

/// Children that change their user or their root inherit LD_PRELOAD, and can't open what is in it:
/// the dynamic linker's error is not to be among what they write.
#[test]
fn children_that_cannot_reach_the_libraries_run_without_them() {
    if !std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        return;
    }
    let place = Place::new("out-of-reach");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-w", "out_of_reach.c"], "out_of_reach");
    let plain = place.command(&program).output().unwrap();
    assert!(String::from_utf8_lossy(&plain.stderr).matches("one\n").count() == 10, "{plain:?}");
    for option in ["--waits", "--with-output"] {
        // A folder that is the user's alone.
        let cache = place.file("cache");
        let mut command = place.command(everycall());
        command.env("XDG_CACHE_HOME", &cache).args(["record", option, "-q", "-o", "r.ect", "--"]);
        let output = command.arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("ld.so") && said.matches("one\n").count() == 10, "{option}: {said}");
    }
    // Five of the ten ways take an environment; those with one of their own can't be recorded.
    let mut command = place.command(everycall());
    command.args(["record", "--waits", "-q", "-o", "own.ect", "--"]).arg(&program).arg("own");
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).matches("one\n").count() == 10, "{output:?}");
    let replay = successful(place.command(everycall()).args(["replay", "own.ect"]));
    let said = "not recorded: what is executed here, its environment was cleared";
    assert_eq!(replay.matches(said).count(), 5, "{replay}");
}
