//! From source to every output, as a user does it.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;

use crate::common::Workplace;
use serde_json::Value;

/// The calls; marks, such as throws and catches, have lines of their own.
fn lines(text: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line.get("depth").is_some()).collect()
}

fn calls_by_name(calls: &[Value]) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for name in calls.iter().filter_map(|call| call["name"].as_str()) {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

#[test]
fn a_program_is_built_recorded_and_shown() {
    let here = Workplace::new();
    here.build_app();
    let run = here.run("record -o app.ect -- ./app 7");
    assert_eq!((run.code, &*run.stdout), (Some(7), "done\n"), "{run:?}");
    assert!(
        run.stderr.contains("2 threads") && run.stderr.contains("complete: every thread"),
        "{}",
        run.stderr
    );

    let calls = here.succeed("replay --format json app.ect");
    let calls = lines(&calls.stdout);
    let counts = calls_by_name(&calls);
    assert_eq!(counts["shop::leaf(int)"], 200);
    assert_eq!(counts["shop::fail(int)"], 4);
    assert_eq!(counts["shop::work()"], 2);
    assert_eq!(counts["main"], 1);
    let call_of = |name: &str| calls.iter().find(|call| call["name"] == name).unwrap();
    assert!(call_of("shop::fail(int)")["remarks"].to_string().contains("unwound"));
    let leaf = call_of("shop::leaf(int)");
    assert_eq!(leaf["line"], 9);
    assert!(leaf["file"].as_str().unwrap().ends_with("/app.cpp"));
    assert!(calls.iter().any(|call| call["thread"] == "helper"));

    let tree = here.succeed("replay app.ect").stdout;
    assert!(tree.contains("main {") && tree.contains("shop::leaf(int)"), "{tree}");

    here.succeed("export -f vizviewer -o app.json app.ect");
    let json: Value = serde_json::from_slice(&here.read("app.json")).unwrap();
    let slices = json["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(slices, calls.len());
    let source = &json["file_info"]["functions"]["shop::leaf(int) (app.cpp:9)"];
    let text = &json["file_info"]["files"][source[0].as_str().unwrap()][0];
    assert!(text.as_str().unwrap().contains("return 2 * x;"));

    here.succeed("export -f perfetto app.ect");
    assert!(here.read("app.perfetto-trace").len() > 1000);
    here.succeed("export -f chrome -o - app.ect");
    let told = here.succeed("export -f csv app.ect");
    assert!(told.stderr.contains("in app.csv; load it into"), "{told:?}");
    let csv = String::from_utf8(here.read("app.csv")).unwrap();
    assert_eq!(csv.lines().filter(|line| line.starts_with("call,")).count(), calls.len());
    let leaf = csv.lines().find(|line| line.contains(",shop::leaf(int),app,")).unwrap();
    // No arguments and results: others have them, as the program throws.
    assert!(leaf.ends_with("/app.cpp,9,,,,"), "{leaf}");

    let info: Value = serde_json::from_str(&here.succeed("info --format json app.ect").stdout).unwrap();
    assert_eq!(info["most_calls"][0]["name"], "shop::leaf(int)");
    assert_eq!(info["most_calls"][0]["calls"], 200);
    assert_eq!(info["ended"]["exit_status"], 7);
    assert_eq!(info["command"], serde_json::json!(["./app", "7"]));
    assert_eq!(info["threads"].as_array().unwrap().len(), 2);
    let page = here.succeed("info app.ect").stdout;
    assert!(page.contains("shop::leaf(int)") && page.contains("with exit status 7"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80 || line.contains('/')), "{page}");
}

#[test]
fn filters_leave_out_what_they_say() {
    let here = Workplace::new();
    here.build_app();
    here.run("record -q -o app.ect -- ./app");
    let shown =
        |options: &str| lines(&here.succeed(&format!("replay --format json {options} app.ect")).stdout);
    assert_eq!(calls_by_name(&shown("--function ^shop::leaf"))["shop::leaf(int)"], 200);
    assert!(shown("--function ^shop::leaf").iter().all(|call| call["name"] == "shop::leaf(int)"));
    assert!(shown("--depth 1").iter().all(|call| call["depth"] == 0));
    let tid = shown("--function ^main$")[0]["tid"].to_string();
    assert!(shown(&format!("--tid {tid}")).iter().all(|call| call["thread"] != "helper"));
    let none = here.succeed("replay --min-duration 1h app.ect");
    assert!(none.stdout.is_empty() || !none.stdout.contains("main"), "{none:?}");
    assert!(none.stderr.contains("no call"), "{none:?}");
}

/// A ring that is too small is reported, with the size that would have been enough.
#[test]
fn the_ring_size_that_is_named_holds_everything() {
    let here = Workplace::new();
    here.write("loop.c", "__attribute__((noinline)) void f(void) { __asm__(\"\"); }\nint main(void) { for (int i = 0; i < 30000; i++) f(); }\n");
    here.succeed("cc -- gcc -O1 loop.c -o loop");
    let small = here.run("record --ring-size 64K -o small.ect -- ./loop").stderr;
    assert!(small.contains("--ring-size 512K would have held everything"), "{small}");
    let enough = here.run("record --ring-size 512K -o enough.ect -- ./loop").stderr;
    assert!(enough.contains("complete: every thread"), "{enough}");
    let info: Value = serde_json::from_str(&here.succeed("info --format json enough.ect").stdout).unwrap();
    assert_eq!(info["calls"], 30_001);
    // Overwritten events are missing, but main's beginning is known.
    let info: Value = serde_json::from_str(&here.succeed("info --format json small.ect").stdout).unwrap();
    assert!(info["calls"].as_u64().unwrap() < 5_000);
    assert_eq!(info["threads"][0]["beginning_overwritten"], true);
    assert_eq!(info["most_own_time"].as_array().unwrap().len(), 2);
}

#[test]
fn a_crash_is_recorded_and_passed_on() {
    let here = Workplace::new();
    here.write("crash.c", "__attribute__((noinline)) int f(int* p) { return *p; }\nint main(int c, char** v) { return f((int*)(long)(c - 1)); }\n");
    here.succeed("cc -- gcc -O1 -g crash.c -o crash");
    let status = here.command().args(["record", "-o", "crash.ect", "--", "./crash"]).output().unwrap().status;
    assert_eq!((status.signal(), status.core_dumped()), (Some(11), false));
    let page = here.succeed("info crash.ect").stdout;
    assert!(page.contains("by signal 11 (SIGSEGV)"), "{page}");
    let calls = lines(&here.succeed("replay --format json crash.ect").stdout);
    assert_eq!(calls_by_name(&calls)["f"], 1);
    assert!(calls[0]["remarks"].to_string().contains("truncated at end"), "{calls:?}");
}

/// A plugin in an untraced host, and in its child.
#[test]
fn plugins_in_a_plain_host_and_children() {
    let here = Workplace::new();
    here.write("plugin.c", "__attribute__((noinline)) static int inner(int x) { __asm__(\"\"); return x + 1; }\nint plugin(int n) { int s = 0; while (n--) s += inner(n); return s; }\n");
    here.write(
        "host.c",
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         int main(void) { int (*f)(int) = dlsym(dlopen(\"./plugin.so\", RTLD_NOW), \"plugin\"); printf(\"%d\\n\", f(10));\n\
         fflush(stdout); if (fork() == 0) { printf(\"child %d\\n\", f(3)); fflush(stdout); _exit(0); } wait(0); return 4; }\n",
    );
    here.succeed("cc -- gcc -O1 -g -shared -fPIC plugin.c -o plugin.so");
    assert_eq!(here.shell("gcc -O1 host.c -o host -ldl").code, Some(0));
    // The host as it is, with the plugin that was built with hooks.
    let mixed = here.run("record --all --untouched --no-embed -o mixed.ect -- ./host");
    assert_eq!((mixed.code, &*mixed.stdout), (Some(4), "55\nchild 6\n"), "{mixed:?}");
    let mixed = lines(&here.succeed("replay --format json mixed.ect").stdout);
    let calls = calls_by_name(&mixed);
    assert_eq!((calls["main"], calls["plugin"], calls["inner"]), (1, 2, 13), "{calls:?}");
    let run = here.run("record --preload --no-embed -o host.ect -- ./host");
    assert_eq!((run.code, &*run.stdout), (Some(4), "55\nchild 6\n"), "{run:?}");
    assert!(run.stderr.contains("of 2 threads in 2 processes"), "{}", run.stderr);
    let alone = here.run("record --preload --no-follow -o alone.ect -- ./host");
    assert_eq!((alone.code, &*alone.stdout), (Some(4), "55\nchild 6\n"), "{alone:?}");
    assert!(alone.stderr.contains("not followed: 1 child process: "), "{}", alone.stderr);
    let page = here.succeed("info host.ect").stdout;
    assert!(page.contains("2 processes") && page.contains("host (fork)"), "{page}");
    let info: Value = serde_json::from_str(&here.succeed("info --format json host.ect").stdout).unwrap();
    let processes = info["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{info}");
    let child = processes.iter().find(|process| process["origin"] == "fork").unwrap();
    let of_child = here.succeed(&format!("replay --format json --pid {} host.ect", child["pid"])).stdout;
    assert_eq!(calls_by_name(&lines(&of_child))["inner"], 3);
    let odd = here
        .command()
        .env("XDG_CACHE_HOME", here.path("a b"))
        .args(["record", "--preload", "./host"])
        .output();
    let odd = String::from_utf8_lossy(&odd.unwrap().stderr).into_owned();
    assert!(odd.contains("a b/") && odd.contains("XDG_CACHE_HOME"), "{odd}");
    // The plugin changes afterwards: the loaded version is kept or refused, never replaced by the
    // new one.
    let calls = lines(&here.succeed("replay --format json host.ect").stdout);
    assert_eq!(calls_by_name(&calls)["inner"], 10 + 3);
    here.write("plugin.c", "int other(void) { return 0; }\nint plugin(int n) { return other() + n; }\nint inner_2(void) { return 2; }\n");
    here.succeed("cc -- gcc -O1 -g -shared -fPIC plugin.c -o plugin.so");
    let changed = here.succeed("replay host.ect");
    assert!(
        changed.stderr.contains("is not the file that was traced") && changed.stderr.contains("--map-path"),
        "{changed:?}"
    );
    assert!(changed.stdout.contains("plugin.so+0x") && !changed.stdout.contains("inner"), "{changed:?}");
}

/// Deleted while the program runs, as just-in-time compilers and updates do.
#[test]
fn files_deleted_during_the_run_keep_their_names() {
    let here = Workplace::new();
    here.build_app();
    here.write("script", "#!/bin/sh\n./app\n");
    here.write("plugin.c", "int plugin(int n) { return n + 1; }\n");
    here.write(
        "host.c",
        "#include <dlfcn.h>\n#include <unistd.h>\n\
         int main(void) { int (*f)(int) = dlsym(dlopen(\"./plugin.so\", RTLD_NOW), \"plugin\"); unlink(\"plugin.so\"); return f(1); }\n",
    );
    here.succeed("cc -- gcc -O1 -g -shared -fPIC plugin.c -o built.so");
    here.succeed("cc -- gcc -O1 -g host.c -o host -ldl");
    // A program waits 10 ms for its recorder. If the recorder gets no CPU for that long, the file
    // is gone, and the trace says so.
    let is_named = (0..50).any(|_| {
        assert_eq!(here.shell("cp built.so plugin.so").code, Some(0));
        assert_eq!(here.run("record -o host.ect -- ./host").code, Some(2));
        let calls = lines(&here.succeed("replay --format json host.ect").stdout);
        let count = calls_by_name(&calls).get("plugin").copied().unwrap_or_default();
        let info = here.succeed("info host.ect").stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(count == 1 || info.contains("in time"), "{calls:?} {info}");
        count == 1
    });
    assert!(is_named);
}

/// The compilers' names, and the package files that need no prefix.
#[test]
fn other_ways_to_build() {
    let here = Workplace::new();
    here.write("app.c", "int main(void) { return 0; }\n");
    let build = "ln -s $EVERYCALL everycall-gcc && ./everycall-gcc -O1 -g app.c -o named";
    assert_eq!(here.shell(build).code, Some(0));
    here.succeed("integrate build-files");
    let build = "export PKG_CONFIG_PATH=$PWD/build-files/lib/pkgconfig && \
                 gcc -O1 -g $(pkg-config --cflags everycall-nops) app.c -o packaged $(pkg-config --libs everycall-nops)";
    let outcome = here.shell(build);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for program in ["named", "packaged"] {
        here.succeed(&format!("record -q -o {program}.ect -- ./{program}"));
        let calls = lines(&here.succeed(&format!("replay --format json {program}.ect")).stdout);
        assert_eq!(calls_by_name(&calls)["main"], 1, "{program}");
    }
}

#[test]
fn scripts_may_start_traced_programs() {
    let here = Workplace::new();
    here.build_app();
    here.write("script", "#!/bin/sh\n./app 3\n");
    assert_eq!(here.shell("chmod +x script").code, Some(0));
    let run = here.run("record -o script.ect -- ./script");
    assert_eq!((run.code, &*run.stdout), (Some(3), "done\n"), "{run:?}");
    let off = here.command().env("EVERYCALL_START", "off").args(["record", "--", "./app"]).output().unwrap();
    let off = String::from_utf8_lossy(&off.stderr);
    assert!(off.contains("tracing was off from the start, as EVERYCALL_START"), "{off}");
    let nothing = here.run("record -o nothing.ect -- sh -c true");
    assert_eq!(nothing.code, Some(0));
    assert!(
        nothing.stderr.contains("nothing was traced")
            && nothing.stderr.contains("everycall cc --")
            && nothing.stderr.contains("--preload")
    );
    assert_eq!(calls_by_name(&lines(&here.succeed("replay --format json script.ect").stdout))["main"], 1);
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let here = Workplace::new();
    here.build_app();
    here.run("record -q -o app.ect -- ./app");
    for verb in [
        "replay app.ect",
        "replay --format json app.ect",
        "export -f chrome -o - app.ect",
        "info app.ect",
        "--help",
    ] {
        // The reader closes the pipe before the first byte.
        let outcome =
            here.shell(&format!("$EVERYCALL {verb} | (exec <&-; sleep 0.3); exit ${{PIPESTATUS[0]}}"));
        assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{verb}: {outcome:?}");
    }
}

/// The rows of `report --format csv` by their first column, with their calls.
fn calls_of_rows(here: &Workplace, line: &str) -> HashMap<String, u64> {
    let text = here.succeed(&format!("report --format json {line}")).stdout;
    let report: Value = serde_json::from_str(&text).unwrap();
    let rows = report["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            let name = row["name"].as_str().or(row["module"].as_str()).unwrap();
            (name.to_owned(), row["calls"].as_u64().unwrap())
        })
        .collect()
}

#[test]
fn a_call_that_continues_in_a_split_part_counts_once() {
    let here = Workplace::new();
    here.write(
        "part.c",
        "#include <stdio.h>
volatile int sink;
__attribute__((noinline)) static void slow(int x) { for (int i = 0; i < x; i++) sink += i; }
int f(int x) {
    if (__builtin_expect(x < 10, 1)) return 1;
    for (int i = 0; i < x; i++) { slow(i); sink += i * 3; if (sink == 77) printf(\"x\"); sink ^= x; }
    for (int i = 0; i < x; i++) { sink += i * 5; if (sink == 79) printf(\"y\"); }
    return sink;
}
__attribute__((noinline)) int g(int i) { return f(i) + 1; }
int (*volatile p)(int) = f;
int main(void) {
    for (int i = 0; i < 40; i++) g(i);
    for (int i = 0; i < 40; i++) p(i);
    return 0;
}
",
    );
    here.succeed("cc -- gcc -O2 -g part.c -o part");
    here.succeed("record -o part.ect -- ./part");
    // All of the pointer's calls, and those of g's that go beyond the beginning, which is inlined.
    for options in ["part.ect", "--tails part.ect"] {
        assert_eq!(calls_of_rows(&here, options)["f"], 40 + 30, "{options}");
    }
    let symbols = calls_of_rows(&here, "--by symbol part.ect");
    assert_eq!((symbols["f"], symbols["f.part.0"]), (40, 60));
    let numbered = here.succeed("replay --numbers part.ect").stdout;
    assert!(numbered.contains(" g #40") && !numbered.contains(" g #41"), "{numbered}");
}

#[test]
fn inlined_functions_of_untraced_libraries_have_names() {
    let here = Workplace::new();
    here.write(
        "text.cpp",
        "#include <string>
#include <sstream>
int main() {
    size_t n = 0;
    for (int i = 0; i < 100; i++) {
        std::string s = \"hello\";
        s += std::to_string(i);
        std::ostringstream o;
        o << s << i;
        n += o.str().size();
    }
    return n != 850;
}
",
    );
    here.succeed("cc --mode finstrument -- g++ -O2 -g text.cpp -o text");
    let recorded = here.run("record --ring-size 8M -o text.ect -- ./text");
    assert!(!recorded.stderr.contains("outside all modules"), "{recorded:?}");
    let calls = here.succeed("replay text.ect").stdout;
    assert!(!calls.contains("outside of all modules"), "{calls}");
    let modules = calls_of_rows(&here, "--by module text.ect");
    assert!(modules.keys().any(|module| module.starts_with("libstdc++")), "{modules:?}");
}

#[test]
fn a_program_that_was_only_linked_through_the_prefix_is_named_as_such() {
    let here = Workplace::new();
    here.write("app.c", "int main(void) { return 3; }\n");
    assert_eq!(here.shell("gcc -O1 -c app.c -o app.o").code, Some(0));
    here.succeed("cc -- gcc app.o -o app");
    let what = "was linked through the prefix, but none of its functions was compiled through it";
    here.fail("functions ./app", 1, &[what]);
    let recorded = here.run("record -o app.ect -- ./app");
    assert!(recorded.code == Some(3) && recorded.stderr.contains(what), "{recorded:?}");
    // Plain hooks without symbols: nobody can tell which functions call them.
    here.succeed("cc --mode finstrument -- gcc -O1 -g app.c -o traced");
    assert_eq!(here.shell("strip traced").code, Some(0));
    here.fail("functions ./traced", 1, &["is stripped"]);
    assert!(here.run("record -o app.ect -- ./traced").stderr.contains("2 events"));
}
