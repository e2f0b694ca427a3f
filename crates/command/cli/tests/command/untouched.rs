//! `count --untouched`: calls of programs that were built without everycall.

use std::collections::BTreeMap;

use crate::common::Workplace;
use serde_json::Value;

/// Counts its own calls, in two processes with four threads each, and prints them at its end.
const COUNTED: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define N __attribute__((noinline, noclone))
// No call is made a loop.
#define KEEP(x) __asm__ volatile("" : "+r"(x))
#define NAMES X(leaf) X(fib) X(tail) X(jumper) X(by_pointer) X(sum) X(leaves) X(work)
#define X(name) long name;
static struct { NAMES } *own;
#undef X
#define CALLED(name) __atomic_add_fetch(&own->name, 1, __ATOMIC_RELAXED)
N int leaf(int x) { CALLED(leaf); return x * 3; }
N int fib(int n) { CALLED(fib); if (n < 2) return n; int a = fib(n - 1), b = fib(n - 2); KEEP(b); return a + b; }
N int tail(int x) { CALLED(tail); return leaf(x + 1); }
N int jumper(int x) { CALLED(jumper); switch (x) { case 0: return leaf(x); case 1: return tail(x); case 2: return x * 7;
    case 3: return fib(3); case 4: return -x; case 5: return leaf(2) + 1; default: return 0; } }
N int by_pointer(int x) { CALLED(by_pointer); return x ^ 5; }
N double sum(double a, float b, long double c) { CALLED(sum); return a * 0.5 + b + c; }
N void leaves(jmp_buf to, int n) { CALLED(leaves); if (n == 0) longjmp(to, 1); leaves(to, n - 1); KEEP(n); leaf(n); }
int (*volatile pointer)(int) = by_pointer;
N void *work(void *unused) {
    CALLED(work);
    long all = 0; double real = 0;
    for (int i = 0; i < 20000; i++) { all += leaf(i) + tail(i) + jumper(i % 8) + pointer(i); real += sum(i, i, i); }
    all += fib(18);
    jmp_buf to;
    if (!setjmp(to)) leaves(to, 3);
    return (void *)(all + (long)real);
}
int main(int count, char **words) {
    own = mmap(0, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, work, 0);
    long all = 0;
    for (int i = 0; i < 4; i++) { void *one; pthread_join(threads[i], &one); all += (long)one; }
    if (!child) _exit(all & 1);
    waitpid(child, 0, 0);
    printf("result %ld\n", all);
#define X(name) printf("%s %ld\n", #name, own->name);
    NAMES
    fflush(stdout);
    if (count > 1 && !strcmp(words[1], "killed")) kill(getpid(), 9);
    if (count > 1 && !strcmp(words[1], "crash")) *(volatile int *)8 = 0;
    return 7;
}
"#;

/// The program's standard output, and the rows of everycall's JSON behind it.
fn split(stdout: &str) -> (&str, Vec<Value>) {
    let (own, json) = stdout.split_at(stdout.find("{\n").unwrap_or_else(|| panic!("{stdout}")));
    let value: Value = serde_json::from_str(json).unwrap();
    assert_eq!(value["by"], "function");
    (own, value["rows"].as_array().unwrap().clone())
}

fn by_name(rows: &[Value]) -> BTreeMap<&str, u64> {
    rows.iter().map(|row| (row["name"].as_str().unwrap(), row["calls"].as_u64().unwrap())).collect()
}

#[test]
fn counts_are_those_that_a_program_has_itself() {
    let here = Workplace::new();
    here.write("counted.c", COUNTED);
    for options in ["-O2", "-O2 -no-pie", "-O2 -static"] {
        assert_eq!(here.shell(&format!("gcc {options} -pthread counted.c -o counted")).code, Some(0));
        let plain = here.shell("./counted");
        assert_eq!(plain.code, Some(7));
        let counted = here.run("count --untouched -f json -- ./counted");
        assert_eq!(counted.code, Some(7), "{options}: {counted:?}");
        let (own, rows) = split(&counted.stdout);
        assert_eq!(own, plain.stdout, "{options}");
        let counts = by_name(&rows);
        for line in own.lines().skip(1) {
            let (name, calls) = line.split_once(' ').unwrap();
            assert_eq!(counts.get(name).copied(), calls.parse().ok(), "{options}: {name} in {counts:?}");
        }
        assert_eq!(counts["main"], 1, "{options}");
    }
    // A program that is ended loses no count.
    assert_eq!(here.shell("gcc -O2 -pthread counted.c -o counted").code, Some(0));
    let whole = here.run("count --untouched -f json -- ./counted");
    let whole = by_name(&split(&whole.stdout).1).get("leaf").copied();
    for (way, code) in [("killed", 137), ("crash", 139)] {
        let ended = here.shell(&format!("$EVERYCALL count --untouched -f json -- ./counted {way}; exit $?"));
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(by_name(&split(&ended.stdout).1).get("leaf").copied(), whole, "{way}");
    }
    // A stripped program has addresses, and the same numbers.
    let address =
        here.shell("nm counted | sed -n 's/^0*\\([0-9a-f]*\\) T fib$/counted+0x\\1/p'; strip counted");
    let stripped = here.run("count --untouched -f json -- ./counted");
    let (own, rows) = split(&stripped.stdout);
    let calls = by_name(&rows).get(address.stdout.trim()).copied();
    assert!(calls.is_some() && own.contains(&format!("fib {}\n", calls.unwrap())), "{address:?} {rows:?}");
}

/// Exceptions, a library in the program's folder, and the table for people.
#[test]
fn exceptions_and_libraries_are_counted() {
    const LIBRARY: &str = "__attribute__((noinline)) long thrower(long n) { if (n % 7 == 0) throw n; return n + 1; }\n\
        long (*volatile by)(long) = thrower;\n\
        long middle(long n) { try { return by(n) + 1; } catch (int) { return 0; } }";
    const MAIN: &str = "#include <cstdio>\nlong middle(long);\n\
        int main() { long all = 0, caught = 0; for (long i = 0; i < 700; i++) try { all += middle(i); } catch (long n) { caught += n; }\n\
        std::printf(\"%ld %ld\\n\", all, caught); }";
    let here = Workplace::new();
    here.write("library.cpp", LIBRARY);
    here.write("main.cpp", MAIN);
    let build =
        "g++ -O2 -shared -fPIC library.cpp -o libthrows.so && g++ -O2 main.cpp ./libthrows.so -o program";
    assert_eq!(here.shell(build).code, Some(0));
    let plain = here.shell("./program");
    let counted = here.succeed("count --untouched -- ./program");
    let table = counted.stdout.strip_prefix(&plain.stdout).unwrap_or_else(|| panic!("{counted:?}"));
    let row = |name: &str| table.lines().find(|line| line.ends_with(name)).unwrap_or_default().trim_start();
    assert!(row("middle(long)").starts_with("700 "), "{table}");
    assert!(row("thrower(long)").starts_with("700 "), "{table}");
    assert!(row(" main").starts_with("1 "), "{table}");
    assert!(counted.stderr.contains("functions have hooks; `everycall functions --untouched"), "{counted:?}");
    let one = here.succeed("count --untouched --modules nothing -- ./program");
    assert!(!one.stdout.contains("thrower"), "{one:?}");
}

#[test]
fn what_cant_be_counted_isnt_started() {
    let here = Workplace::new();
    here.write("script", "#!/bin/sh\ntouch started\n");
    here.write("text", "touch started\n");
    here.write(
        "program.c",
        "#include <stdio.h>\nint main(void) { fclose(fopen(\"started\", \"w\")); return 0; }",
    );
    let build = "chmod +x script text && gcc -O2 program.c -o plain && $EVERYCALL cc gcc -O2 program.c -o traced \
        && cp plain privileged && chmod 4755 privileged && head -c 200 plain > cut && chmod +x cut";
    assert_eq!(here.shell(build).code, Some(0));
    for (line, code, words) in [
        ("--time -- ./plain", 2, "leave out --time"),
        ("--memory -- ./plain", 2, "leave out --memory"),
        ("--every 1s -- ./plain", 2, "leave out --every"),
        ("-o file -- ./plain", 2, "leave out -o"),
        ("--only main -- ./plain", 2, "leave out --only"),
        ("--by thread -- ./plain", 2, "function, symbol, module or file"),
        ("1", 2, "starts a program"),
        ("-- ./script", 125, "is a script; name the program that runs it"),
        ("-- ./text", 125, "not an ELF file"),
        ("-- ./cut", 125, "./cut: "),
        ("-- ./traced", 125, "without --untouched"),
        ("-- ./privileged", 125, "setuid"),
        ("-- ./nowhere", 127, "nowhere"),
    ] {
        here.fail(&format!("count --untouched {line}"), code, &[words]);
        assert!(!here.path("started").exists(), "{line}");
    }
    // Only options that were given are to be left out.
    here.fail("record --all -- ./traced", 125, &["built with everycall; leave out --all\n"]);
    here.fail("record --untouched --all -- ./traced", 125, &["leave out --untouched and --all\n"]);
}

/// A process without anything of everycall gets the runtime: it listens as after a start with
/// tracing off.
#[test]
fn a_runtime_is_loaded_into_a_process() {
    use everycall_inject::{Process, on_tracer};

    let here = Workplace::new();
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let pid = child.id().cast_signed();
    let patience = std::time::Duration::from_secs(60);
    let settings = [("EVERYCALL_START", "off"), ("EVERYCALL_RING_SIZE", "256K")];
    let library = everycall_kit::library_with_settings(&settings).unwrap();
    // It has executed its program, and sleeps.
    let is_asleep = || {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        // clock_nanosleep; restart_syscall, once it was interrupted.
        exe.ends_with("sleep") && ["230 ", "219 "].iter().any(|number| call.starts_with(number))
    };
    while !is_asleep() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let table = on_tracer(|| {
        let mut process = Process::open(pid)?;
        let start = process
            .with_calm_thread(patience, |thread| thread.load_library(&library, "/lib/it.so".as_ref()))?;
        Ok(process.symbol(start, "everycall_runtime_v1"))
    });
    let listed = here.run("ps");
    let functions = here.run(&format!("functions {pid}"));
    // Somebody is asked: its thread answers.
    let enabled = here.run(&format!("enable {pid}"));
    let snapshot = here.run(&format!("snapshot {pid} -o s.ect"));
    let info = here.run("info s.ect");
    let sleeps = is_asleep();
    let _ = (child.kill(), child.wait());
    assert!(matches!(table, Ok(Some(_))), "{table:?}");
    let is_listed = |line: &str| line.contains(&format!("{pid} ")) && line.contains("256K  off");
    assert!(listed.stdout.lines().any(is_listed), "{listed:?}");
    assert!(functions.stderr.contains("it has loaded no module with traced functions"), "{functions:?}");
    assert!(enabled.stderr.contains("all functions are recorded"), "{enabled:?}");
    assert_eq!(snapshot.code, Some(0), "{snapshot:?}");
    assert!(info.stdout.contains("sleep 600"), "{info:?}");
    assert!(sleeps);
}

/// Files whose code in a process isn't what is in the file.
fn changed_files(pid: u32) -> Vec<String> {
    use std::os::unix::fs::FileExt as _;
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut changed = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" r-xp ") && line.contains(" /")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
        let (start, end) = words[0].split_once('-').unwrap();
        let mut now = vec![0; (number(end) - number(start)) as usize];
        memory.read_exact_at(&mut now, number(start)).unwrap();
        let Ok(file) = std::fs::File::open(words[5]) else { continue };
        let mut then = vec![0; now.len()];
        let size = file.read_at(&mut then, number(words[2])).unwrap();
        if now[..size] != then[..size] {
            changed.push(words[5].to_owned());
        }
    }
    changed
}

/// Threads that check what they compute, while hooks come and go.
#[test]
fn hooks_come_into_a_process_that_runs_and_go() {
    let here = Workplace::new();
    here.write(
        "busy.c",
        "#include <alloca.h>\n#include <pthread.h>\n#include <setjmp.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         static int wrong;\n\
         static __thread jmp_buf here;\n\
         __attribute__((noinline)) int leaf(int x) { return x ^ 5; }\n\
         __attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) + leaf(5); }\n\
         __attribute__((noinline)) int jumps(int n) { if (!n) longjmp(here, 1); return jumps(n - 1) + leaf(n); }\n\
         __attribute__((noinline)) int after(volatile char *p) { return p[0] = 1; }\n\
         __attribute__((noinline)) int lands(int n) { return setjmp(here) ? after(alloca(n)) : jumps(3); }\n\
         void *work(void *data) { for (;;) { if (fib(12) != 144 || lands(500) != 1) wrong = 1; usleep(100); } return data; }\n\
         int main(void) { pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(t + i, 0, work, 0);\n\
         char c; puts(\"ready\"); fflush(stdout); while (read(0, &c, 1) > 0) {} return wrong; }\n",
    );
    assert_eq!(here.shell("gcc -O1 -pthread busy.c -o busy").code, Some(0));
    let mut child = std::process::Command::new(here.path("busy"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    let pid = child.id();
    for round in 0..3 {
        let attached = here.run(&format!("attach --all {pid}"));
        assert!(attached.code == Some(0) && attached.stderr.contains("recording"), "{attached:?}");
        // It is busy: soon each of its functions was called.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            here.succeed(&format!("snapshot {pid} --force -o taken.ect"));
            let table = here.succeed("report -f csv taken.ect").stdout;
            if ["fib", "leaf", "after"].iter().all(|name| table.lines().any(|row| row.contains(name))) {
                break;
            }
            assert!(std::time::Instant::now() < end, "{round}: {table}");
        }
        // Calls that a jump leaves end with it, though the stack has grown where it leads.
        let calls = here.succeed("replay -f json taken.ect").stdout;
        let after: Vec<&str> = calls.lines().filter(|call| call.contains("\"after\"")).collect();
        let has_depth = |call: &str, depth: u32| call.contains(&format!("\"depth\":{depth},"));
        // At most once a thread, its caller was open when it was attached.
        assert_eq!(after.iter().find(|call| !has_depth(call, 0) && !has_depth(call, 1)), None);
        assert!(after.iter().any(|call| has_depth(call, 1)), "{after:?}");
        // Clients know its functions.
        let listed = here.succeed(&format!("functions {pid} fib leaf"));
        assert!(listed.stdout.contains("fib") && listed.stdout.contains("leaf"), "{listed:?}");
        // Which functions have hooks, and why others don't: `_start` can't.
        let info = here.succeed("info taken.ect").stdout;
        for text in [&listed.stderr, &info] {
            assert!(text.contains("hooks in ") && text.contains("1 can't: return twice, start"), "{text}");
        }
        here.succeed(&format!("trace {pid} leaf --for 100ms --force -o leaf.ect"));
        let table = here.succeed("report -f csv leaf.ect").stdout;
        assert!(table.contains("leaf") && !table.contains("fib"), "{table}");
        let detached = here.run(&format!("detach {pid}"));
        assert_eq!(detached.code, Some(0), "{detached:?}");
        assert_eq!(changed_files(pid), Vec::<String>::new());
    }
    // A process gets hooks once: in functions that had none before, it gets none, and goes on.
    let few = "attach --only leaf --only fib";
    let mut other = std::process::Command::new(here.path("busy"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for verb in [few, few, "detach", "attach --all"] {
        let done = here.succeed(&format!("{verb} {}", other.id()));
        let is_told = done.stderr.contains("more got no hooks when it was attached first");
        assert_eq!(is_told, verb == "attach --all", "{done:?}");
        assert!(verb == "detach" || done.stderr.contains("recording 2 of"), "{done:?}");
    }
    here.succeed(&format!("detach {}", other.id()));
    drop(other.stdin.take());
    assert_eq!(other.wait().unwrap().code(), Some(0));
    // The hooks come back for a session.
    let traced = here.succeed(&format!("trace {pid} leaf --for 200ms --force -o leaf.ect"));
    assert!(traced.stderr.contains("got its hooks back"), "{traced:?}");
    let table = here.succeed("report -f csv leaf.ect").stdout;
    assert!(table.contains("leaf") && !table.contains("fib"), "{table}");
    here.succeed(&format!("detach {pid}"));
    assert_eq!(changed_files(pid), Vec::<String>::new());
    let rows = |run: &str| {
        here.succeed(&format!("snapshot {pid} --force -o {run}"));
        here.succeed(&format!("replay -f json {run}")).stdout.lines().count()
    };
    assert_eq!(rows("one.ect"), rows("two.ect"), "nothing is recorded any more");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    here.fail(&format!("attach {pid}"), 1, &[]);
}

/// A program whose slow calls are kept is recorded without a rebuild; what is named and can't be
/// recorded is reported.
#[test]
fn calls_that_triggers_name_are_kept() {
    let here = Workplace::new();
    here.write(
        "slow.c",
        "#include <unistd.h>\n\
         __attribute__((noinline)) int leaf(int x) { return x ^ 5; }\n\
         __attribute__((noinline)) int request(int us) { if (us < 0) return 3; int a = leaf(us); if (us) usleep(us); return leaf(a); }\n\
         int main(void) { int sum = 0; for (int i = 0; i < 200; i++) sum += request(i == 70 ? 400000 : 0); return sum == 1; }\n",
    );
    assert_eq!(here.shell("gcc -O1 -g slow.c -o slow").code, Some(0));
    // Small as it is, it gets hooks.
    let said = here.succeed("record --trigger request>300ms -o slow.ect -- ./slow").stderr;
    assert!(said.contains("request>300ms: 1 call, 1 kept"), "{said}");
    let calls = here.succeed("replay -f json --kept 1 slow.ect").stdout;
    assert!(calls.contains("\"request\"") && !calls.contains("\"leaf\""), "{calls}");
    here.fail("record --trigger reqest>1ms -- ./slow", 125, &["matches `reqest`; there is request"]);
    here.fail("record --untouched --only laef -- ./slow", 125, &["matches `laef`; there is leaf"]);
    here.fail(
        "record --untouched --only _start -- ./slow",
        125,
        &["`_start` gets no hooks, as those that return twice, start the program", "matches `_start`"],
    );
}

/// `trace`, `trigger` and others write hooks into a process that isn't traced.
#[test]
fn sessions_bring_hooks_into_a_process() {
    let here = Workplace::new();
    here.write(
        "slow.c",
        "#include <poll.h>\n#include <unistd.h>\n\
         __attribute__((noinline)) int leaf(int x) { return x ^ 5; }\n\
         #define STEP(k) s ^= s * (k + 3) + (x >> (k & 7)); s += x * (k + 11); s ^= x << (k % 5); s *= k | 1;\n\
         #define STEPS(k) STEP(k) STEP(k + 1) STEP(k + 2) STEP(k + 3)\n\
         __attribute__((noinline)) int large(int x) { volatile int s = x; STEPS(1) STEPS(5) STEPS(9) STEPS(13) return s; }\n\
         __attribute__((noinline)) int request(int us) { if (us < 0) return 3; int a = leaf(us); if (us) usleep(us); return leaf(a) + large(a); }\n\
         int main(void) { struct pollfd input = {0, POLLIN, 0}; int sum = 0;\n\
         for (int i = 0; poll(&input, 1, 1) == 0; i++) sum += request(i % 5 ? 0 : 40000); return sum == 1; }\n",
    );
    assert_eq!(here.shell("gcc -O1 -g slow.c -o slow").code, Some(0));
    for verb in ["trace PID request --for 200ms", "trigger PID request>20ms --limit 1"] {
        let input = std::process::Stdio::piped();
        let mut child = std::process::Command::new(here.path("slow")).stdin(input).spawn().unwrap();
        let pid = child.id();
        let of = |verb: &str| verb.replace("PID", &pid.to_string());
        let typo = of("trigger PID reqest>20ms --limit 1");
        here.fail(&typo, 1, &["was built without everycall, and gets no hooks", "there is request"]);
        assert_eq!(changed_files(pid), Vec::<String>::new());
        let done = here.succeed(&format!("{} --force -o session.ect", of(verb)));
        let table = here.succeed("report -f csv session.ect").stdout;
        assert!(table.contains("request") && !table.contains("leaf"), "{table}");
        // A kept call is there with what it called, as far as that has hooks.
        assert_eq!(table.contains("large"), verb.starts_with("trigger"), "{verb}: {table}");
        assert!(done.stderr.contains("so it got hooks"), "{}", done.stderr);
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    // A program that has small functions alone.
    let text = String::from_utf8(here.read("slow.c")).unwrap().replace(" + large(a)", "");
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("STEP")).collect();
    here.write("slow.c", lines.join("\n") + "\n");
    assert_eq!(here.shell("gcc -O1 -g slow.c -o slow").code, Some(0));
    for verb in ["follow PID request --for 200ms", "enable PID request"] {
        let input = std::process::Stdio::piped();
        let mut child = std::process::Command::new(here.path("slow")).stdin(input).spawn().unwrap();
        let done = here.succeed(&verb.replace("PID", &child.id().to_string()));
        assert!(done.stderr.contains("so it got hooks"), "{verb}: {}", done.stderr);
        // Its functions are smaller than what is counted without being named.
        let detached = here.succeed(&format!("detach {}", child.id()));
        assert!(detached.stderr.contains("what it was"), "{detached:?}");
        here.fail(&format!("count {}", child.id()), 1, &["`everycall attach --all", "takes small ones"]);
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

/// Libraries that are loaded later, also more than once, and programs that are executed.
#[test]
fn what_comes_later_is_recorded() {
    let here = Workplace::new();
    here.write("one.c", "__attribute__((noinline)) int inner(int x) { return x ^ 5; }\nint later(int x) { return inner(x) + inner(x + 1); }\n");
    here.write(
        "two.cpp",
        "__attribute__((noinline)) int after(int x) { return x ^ 5; }\n\
         __attribute__((noinline)) int throws(int n) { if (n == 0) throw 7; return throws(n - 1) + 1; }\n\
         extern \"C\" int catches(int n) { try { return throws(n); } catch (int e) { return after(e); } }\n",
    );
    here.write(
        "main.c",
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         __attribute__((noinline)) int use(const char *file, const char *name, int flags) {\n\
           void *library = dlopen(file, flags);\n\
           if (!library) { puts(dlerror()); exit(3); }\n\
           int (*function)(int) = (int (*)(int))dlsym(library, name);\n\
           int sum = 0; for (int i = 0; i < 10; i++) sum += function(i);\n\
           dlclose(library); return sum; }\n\
         void *work(void *data) { return (void *)(long)use(\"./libtwo.so\", \"catches\", RTLD_NOW | RTLD_DEEPBIND); }\n\
         __attribute__((noinline)) int last(int x) { return x ^ 5; }\n\
         int main(int count, char **words) {\n\
           int sum = 0;\n\
           if (count > 1) { for (int i = 0; i < 6; i++) sum += last(i); return sum; }\n\
           for (int i = 0; i < 3; i++) sum += use(\"./libone.so\", \"later\", RTLD_LAZY);\n\
           pthread_t thread; void *result; pthread_create(&thread, 0, work, 0); pthread_join(thread, &result); sum += (long)result;\n\
           pid_t child = fork();\n\
           if (!child) { use(\"./libone.so\", \"later\", RTLD_NOW); execl(words[0], words[0], \"child\", (char *)0); }\n\
           int status; waitpid(child, &status, 0);\n\
           printf(\"%d %d\\n\", sum, WEXITSTATUS(status)); return 0; }\n",
    );
    let build = "gcc -O1 -shared -fPIC one.c -o libone.so && g++ -O2 -shared -fPIC two.cpp -o libtwo.so && gcc -O1 -pthread main.c -o main";
    assert_eq!(here.shell(build).code, Some(0));
    let plain = here.shell("./main");
    let recorded = here.succeed("record --all -o later.ect -- ./main");
    assert_eq!(recorded.stdout, plain.stdout);
    let once = |file: &str| recorded.stderr.matches(file).count() == 1;
    assert!(once("libone.so: recording 2 of") && once("libtwo.so: recording 3 of"), "{}", recorded.stderr);
    let json = here.succeed("replay -f json later.ect").stdout;
    let calls = |name: &str| -> Vec<&str> {
        let names = [format!("\"name\":\"{name}\""), format!("\"name\":\"{name}(int)\"")];
        json.lines().filter(|call| names.iter().any(|name| call.contains(name))).collect()
    };
    let counts = [("later", 40), ("inner", 80), ("catches", 10), ("throws", 10), ("after", 10), ("last", 6)];
    for (name, count) in counts {
        assert_eq!(calls(name).len(), count, "{name}: {json}");
    }
    // Calls that an exception leaves end with it, though the unwinder came with the library.
    assert!(calls("after").iter().all(|call| call.contains("\"depth\":3,")), "{:?}", calls("after"));
    // More programs at the same time than have a place to ask in.
    let storm = "$EVERYCALL record --all -o many.ect -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do ./main child & done; wait'";
    let stormed = here.shell(storm);
    assert_eq!(stormed.code, Some(0));
    let json = here.succeed("replay -f json many.ect").stdout;
    let calls = json.matches("\"name\":\"last\"").count();
    // Programs wait for hooks for a bounded time. Those that ran on without them are counted.
    let is_late = stormed.stderr.contains("could not open in time");
    assert!(
        calls == 24 * 6 || is_late && calls.is_multiple_of(6) && calls >= 12 * 6,
        "{calls}: {}",
        stormed.stderr
    );
}

/// While `attach --stay` stays, libraries that a process loads later have hooks before their first
/// function runs. They may be unloaded, and loaded again elsewhere, whoever is there meanwhile.
#[test]
fn libraries_of_an_attached_process_come_and_go() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    let here = Workplace::new();
    here.write(
        "one.c",
        "__attribute__((noinline)) int inner(int x) { __asm__ volatile(\"\"); return x ^ 5; }\n\
         __attribute__((noinline)) int early(int x) { __asm__ volatile(\"\"); return x + 7; }\n\
         int state;\n\
         __attribute__((constructor)) void begins(void) { state = early(1); }\n\
         int later(int x) { return inner(x) + inner(x + 1) + state; }\n",
    );
    // Each line of its input is a word of one letter.
    here.write(
        "main.c",
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <sys/mman.h>\n\
         __attribute__((noinline)) int own(int x) { __asm__ volatile(\"\"); return x * 3; }\n\
         int main(void) { void *library = 0; Dl_info info = {0}; char line[16]; int (*later)(int) = 0;\n\
         while (fgets(line, sizeof line, stdin)) { int sum = own(1);\n\
           switch (line[0]) {\n\
           case 'l': library = dlopen(\"./libone.so\", RTLD_NOW); if (!library) return 3;\n\
             later = (int (*)(int))dlsym(library, \"later\"); dladdr((void *)later, &info); break;\n\
           case 'c': for (int i = 0; i < 10; i++) sum += later(i); break;\n\
           case 'd': dlclose(library); break;\n\
           case 'b': if (mmap(info.dli_fbase, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED) return 4; }\n\
           printf(\"%d\\n\", sum); fflush(stdout); }\n\
         return 7; }\n",
    );
    let build = "gcc -O1 -shared -fPIC one.c -o libone.so && gcc -O1 main.c -o main";
    assert_eq!(here.shell(build).code, Some(0));
    let mut program = Command::new(here.path("main"));
    program.current_dir(here.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let pid = child.id();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut does = |words: &str| {
        words.chars().for_each(|word| writeln!(input, "{word}").unwrap());
        let answers = words.chars().map(|_| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line.trim().to_owned()
        });
        answers.collect::<Vec<String>>().join(" ")
    };
    let mut line = String::new();
    let stays = || {
        let mut command = here.command();
        command.args(["attach", "--all", "--stay", &pid.to_string()]).stderr(Stdio::piped());
        let mut staying = command.spawn().unwrap();
        let mut said = BufReader::new(staying.stderr.take().unwrap());
        let (mut line, mut all) = (String::new(), String::new());
        while !line.contains("libraries that it loads get hooks") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "{all}");
            all.push_str(&line);
        }
        // It writes there later, too.
        (staying, said)
    };
    let count = |name: &str| {
        here.succeed(&format!("snapshot {pid} --force -o taken.ect"));
        let calls = here.succeed("replay -f json taken.ect").stdout;
        calls.lines().filter(|call| call.contains(&format!("\"name\":\"{name}\""))).count()
    };
    assert_eq!(does("x"), "3");
    let (mut staying, said) = stays();
    let sums = "3 199 3 3 3 199";
    assert_eq!(does("lcdblc"), sums);
    // Also what the library does when it is loaded.
    assert_eq!(["early", "later", "inner", "own"].map(count), [2, 20, 40, 6]);
    here.shell(&format!("kill -INT {}", staying.id()));
    assert_eq!(staying.wait().unwrap().code(), Some(0));
    drop(said);
    assert_eq!(changed_files(pid), Vec::<String>::new());
    assert_eq!(does("c"), "199");
    assert_eq!(count("later"), 20);
    // Killed: the loader waits for half a second, and no more.
    let (mut staying, said) = stays();
    assert_eq!(does("c"), "199");
    assert_eq!(count("later"), 30);
    let _ = (staying.kill(), staying.wait());
    drop(said);
    assert_eq!(does("dlcdlc"), "3 3 199 3 3 199");
    // Another one finds what there is; `detach` ends it.
    let (mut staying, mut said) = stays();
    assert_eq!(does("cdlc"), "199 3 3 199");
    assert!(count("later") >= 50);
    here.fail(&format!("attach --all --stay {pid}"), 1, &["another `everycall attach --stay` attends"]);
    assert_eq!(does("d"), "3");
    here.succeed(&format!("detach {pid}"));
    assert_eq!(staying.wait().unwrap().code(), Some(0));
    while said.read_line(&mut line).unwrap() > 0 {}
    assert!(line.contains("were taken out"), "{line}");
    assert_eq!(changed_files(pid), Vec::<String>::new());
    assert_eq!(does("lc"), "3 199");
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

/// Unwinders find the callers of each instruction of trampolines and hooks: libgcc's from handlers
/// of signals, and gdb step by step; also in a process that was attached.
#[test]
fn stacks_are_walked_from_each_instruction() {
    const STEPS: &str = r#"
import gdb
valid = {"inner": ("branches", "saves"), "branches": ("saves", "outer"), "saves": ("outer",), "outer": ("main",)}
elsewhere = wrong = 0
for step in range(400):
    frame, names = gdb.newest_frame(), []
    while frame is not None:
        names.append(frame.name())
        frame = frame.older()
    elsewhere += names[0] not in valid and names[0] != "main"
    names = [name for name in names if name in valid or name == "main"]
    wrong += not (names and names[-1] == "main" and all(b in valid[a] for a, b in zip(names, names[1:])))
    gdb.execute("stepi", to_string=True)
gdb.execute("set var *(int *)&is_over = 1")
print("%s elsewhere, %d wrong" % ("many" if elsewhere > 50 else "few", wrong))
"#;
    let here = Workplace::new();
    here.write("walked.c", include_str!("../programs/walked.c"));
    here.write("steps.py", STEPS);
    let build = "gcc -O2 -fno-optimize-sibling-calls -pthread walked.c -o walked";
    assert_eq!(here.shell(build).code, Some(0));
    let ticks = here.succeed("record -q --untouched --all -o ticks.ect -- ./walked ticks");
    assert_eq!(ticks.stdout, "many elsewhere, 0 wrong\n", "{ticks:?}");
    if std::process::Command::new("gdb").arg("--version").output().is_err() {
        println!("skipped: no gdb");
        return;
    }
    let gdb = "timeout -k 1 300 gdb -q -nx -batch -x steps.py -p";
    let recorded = here.shell(&format!(
        "$EVERYCALL record -q --untouched --all -o gdb.ect -- ./walked > said &\n\
         until grep -q begun said; do sleep 0.05; done; {gdb} $(pgrep -x walked -P $!) < /dev/null; wait"
    ));
    assert!(recorded.stdout.contains("many elsewhere, 0 wrong\n"), "{recorded:?}");
    let attached = here.shell(&format!(
        "./walked > said & until grep -q begun said; do sleep 0.05; done\n\
         $EVERYCALL attach --all $! && {gdb} $! < /dev/null; wait"
    ));
    assert!(attached.stdout.contains("many elsewhere, 0 wrong\n"), "{attached:?}");
}
