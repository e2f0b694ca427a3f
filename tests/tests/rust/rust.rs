//! `cargo everycall`: the calls of a Rust workspace are those that its own counters count, however
//! it is built, and what isn't traced is built as ever.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use everycall_tests::rust::{cargo_everycall, command, copied, lock, said};
use everycall_tests::{Place, Tally, TraceView, everycall, found, successful};

/// A copy of the workspace in `tests/rust`.
fn workspace(place: &Place) -> PathBuf {
    copied(place, "rust", "app/Cargo.toml")
}

/// The program's own counts: name, entries, returns.
fn own_counts(printed: &str) -> BTreeMap<String, Tally> {
    let line = |line: &str| {
        let (name, counts) = line.split_once(" = ").unwrap();
        let (entries, exits) = counts.split_once(' ').unwrap();
        (name.to_owned(), Tally { entries: entries.parse().unwrap(), exits: exits.parse().unwrap() })
    };
    printed.lines().map(line).collect()
}

/// Compares the trace with the program's own counters, and with known counts of functions that
/// don't count: the two with the same code, and those in C.
fn check(trace: &Path, printed: &str, note: &str) {
    let trace = TraceView::tallies_only(trace);
    let tallies = trace.tallies();
    let counted = own_counts(printed);
    assert!(counted.len() >= 9, "{note}: {printed}");
    for (name, own) in &counted {
        assert_eq!(tallies.get(name), Some(own), "{note}: {name} in {tallies:#?}");
    }
    for (name, calls) in [("app::first_of_two", 4), ("app::second_of_two", 7), ("in_c", 3), ("below_in_c", 3)]
    {
        assert_eq!(tallies.get(name), Some(&Tally { entries: calls, exits: calls }), "{note}: {name}");
    }
    assert_eq!(trace.losses(), 0, "{note}");
    assert!(trace.threads.iter().all(|thread| thread.orphans == 0), "{note}");
}

#[test]
fn calls_are_those_that_the_program_counts() {
    let place = Place::new("rust");
    let folder = workspace(&place);
    for (profile, build, with_panics) in [
        ("dev", "debug", true),
        ("release", "release", true),
        ("fat", "fat", true),
        ("thin", "thin", true),
        ("abort", "abort", false),
    ] {
        let trace = place.file(&format!("{profile}.ect"));
        let trace_name = trace.to_str().unwrap();
        successful(&mut cargo_everycall(&folder, &["build", "--offline", "--profile", profile]));
        let plugin = folder.join("target/everycall").join(build).join("libplugin.so");
        let mut run = cargo_everycall(
            &folder,
            &["-o", trace_name, "run", "-q", "--offline", "--profile", profile, "--"],
        );
        run.arg(if with_panics { "--panics" } else { "--no-panics" }).arg(plugin);
        let printed = successful(&mut run);
        check(&trace, &printed, profile);
        let tree = successful(command(everycall(), place.path()).arg("replay").arg(&trace));
        for said in ["a span", "answer", "42", "level", "-3", "a moment"] {
            assert!(tree.contains(said), "{profile}: {said} in {tree}");
        }
        assert!(!tree.contains("leaves_nothing"), "{profile}: {tree}");
        let counted = own_counts(&printed);
        assert_eq!(counted.contains_key("app::throws"), with_panics, "{profile}: {printed}");
        if with_panics {
            assert_eq!(tree.matches("* throw panic").count(), 4 + 1, "{profile}: {tree}");
            // A thread catches its panic, too.
            assert_eq!(tree.matches("* catch panic").count(), 4 + 1, "{profile}: {tree}");
            assert!(!tree.contains("exact time unknown"), "{profile}: {tree}");
        }
    }
}

#[test]
fn what_isnt_traced_is_built_as_ever() {
    let place = Place::new("rust-rest");
    let folder = workspace(&place);
    let plain = |words: &[&str]| command(env!("CARGO"), &folder).args(words).output().unwrap();
    assert!(plain(&["build", "--offline"]).status.success());
    successful(&mut cargo_everycall(&folder, &["build", "--offline"]));
    // Ordinary builds are in another folder, and have no hooks.
    let again = said(&plain(&["build", "--offline"]));
    assert!(again.contains("Finished") && !again.contains("Compiling"), "{again}");
    let has_runtime = |path: &Path| {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // A variable that it reads.
        let word = b"EVERYCALL_RING_SIZE";
        bytes.windows(word.len()).any(|window| window == word)
    };
    assert!(
        !has_runtime(&folder.join("target/debug/app"))
            && has_runtime(&folder.join("target/everycall/debug/app"))
    );
    // Programs that cargo and rustc run themselves are without the runtime.
    let mut own = Vec::new();
    for entry in fs::read_dir(folder.join("target/everycall/debug/build")).unwrap() {
        own.push(entry.unwrap().path().join("build-script-build"));
    }
    for entry in fs::read_dir(folder.join("target/everycall/debug/deps")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("libcounted-") && name.ends_with(".so") {
            own.push(path);
        }
    }
    own.retain(|path| path.exists());
    assert_eq!(own.len(), 2, "{own:?}");
    assert!(own.iter().all(|path| !has_runtime(path)), "{own:?}");
}

#[test]
fn tests_are_in_one_file_and_errors_are_cargos() {
    let place = Place::new("rust-tests");
    let folder = workspace(&place);
    // As people call it.
    let subcommand = everycall().with_file_name("cargo-everycall");
    let mut test = command(&subcommand, &folder);
    let output = test
        .args(["everycall", "test", "--offline", "-o", "tests.ect", "--", "--test-threads=2"])
        .output()
        .unwrap();
    assert!(output.status.success() && said(&output).contains("2 passed"), "{}", said(&output));
    let trace = TraceView::tallies_only(&folder.join("tests.ect"));
    assert_eq!(trace.tallies().get("app::is_left"), Some(&Tally { entries: 2, exits: 1 }));
    assert!(trace.processes.len() >= 3, "{:?}", trace.processes);

    // A failing test, and a source that can't be compiled: cargo's status and its messages, alone.
    let main = folder.join("app/src/main.rs");
    let source = fs::read_to_string(&main).unwrap();
    fs::write(&main, source.replace("is_left(1), 2", "is_left(1), 3")).unwrap();
    let words = ["-o", "failing.ect", "test", "-q", "--offline", "-p", "app"];
    let output = cargo_everycall(&folder, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(101), "{}", said(&output));
    assert!(folder.join("failing.ect").exists(), "{}", said(&output));
    fs::write(&main, source.replace("fn main() {", "fn main() { let unused = 1;")).unwrap();
    let output = cargo_everycall(&folder, &["build", "--offline"]).output().unwrap();
    let text = said(&output);
    assert!(output.status.success() && text.contains("unused variable") && !text.contains("CSV"), "{text}");
    fs::write(&main, "fn main() { undefined(); }").unwrap();
    let output = cargo_everycall(&folder, &["run", "--offline"]).output().unwrap();
    assert_eq!(output.status.code(), Some(101), "{}", said(&output));
    assert!(said(&output).contains("cannot find function `undefined`"), "{}", said(&output));
}

#[test]
fn wrappers_are_kept_and_what_cannot_be_traced_is_said() {
    let place = Place::new("rust-wrappers");
    let folder = workspace(&place);
    let (log, wrapper) = (place.file("log"), place.file("wrapper"));
    fs::write(&wrapper, format!("#!/bin/sh\necho \"$*\" >> '{}'\nexec \"$@\"\n", log.display())).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    // As the environment names it, then as cargo's configuration does.
    for is_configured in [false, true] {
        let mut build =
            cargo_everycall(&folder, &["--crate", "nothing", "build", "--offline", "-p", "parts"]);
        if is_configured {
            fs::create_dir_all(folder.join(".cargo")).unwrap();
            let text = format!("[build]\nrustc-wrapper = {:?}\n", wrapper.to_str().unwrap());
            fs::write(folder.join(".cargo/config.toml"), text).unwrap();
        } else {
            build.env("RUSTC_WRAPPER", &wrapper);
        }
        fs::write(folder.join("parts/src/more.rs"), "").unwrap();
        let _ = fs::remove_dir_all(folder.join("target"));
        successful(&mut build);
        let calls = fs::read_to_string(&log).unwrap();
        let calls: Vec<_> = calls.lines().filter(|call| call.contains("--crate-name parts")).collect();
        assert!(calls.len() == 1 && calls[0].contains("-forceattrs-csv-path="), "{calls:?}");
        fs::remove_file(&log).unwrap();
    }
    for (words, sentence) in [
        (&["check"][..], "`check` is not a verb of `cargo everycall`"),
        (
            &["build", "--offline", "-p", "parts", "--target", "aarch64-unknown-linux-gnu"],
            "only Linux on x86-64",
        ),
        // Without an operating system.
        (
            &["build", "--offline", "-p", "parts", "--target", "x86_64-unknown-none"],
            "x86_64-unknown-none can't be traced",
        ),
    ] {
        let output = cargo_everycall(&folder, words).output().unwrap();
        let text = said(&output);
        assert!(!output.status.success() && text.contains(sentence), "{text}");
    }
    let output = cargo_everycall(place.path(), &["build"]).output().unwrap();
    assert!(
        !output.status.success() && said(&output).contains("could not find `Cargo.toml`"),
        "{}",
        said(&output)
    );
}

/// The build's choice holds until somebody records.
#[test]
fn a_build_chooses_that_programs_start_off() {
    let place = Place::new("rust-starts-off");
    let folder = place.file("waiter");
    fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = "[package]\nname = \"waiter\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let source = "#[inline(never)]\nfn work(n: u32) -> u32 { std::hint::black_box(n) + 1 }\n\
                  fn main() {\n\
                  println!(\"{}\", (0..5).map(work).sum::<u32>());\n\
                  std::io::stdin().read_line(&mut String::new()).unwrap();\n}\n";
    fs::write(folder.join("src/main.rs"), source).unwrap();
    let words = ["-o", "on.ect", "--start", "off", "run", "-q", "--offline"];
    assert_eq!(successful(&mut cargo_everycall(&folder, &words)), "15\n");
    let trace = TraceView::tallies_only(&folder.join("on.ect"));
    assert_eq!(trace.tallies().get("waiter::work"), Some(&Tally { entries: 5, exits: 5 }));

    let program = folder.join("target/everycall-start-off/debug/waiter");
    let mut child = command(&program, &folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let snapshot = ["snapshot", "-o", "off.ect", &child.id().to_string()];
    let output = command(everycall(), &folder).args(snapshot).output().unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let text = said(&output);
    assert!(text.contains("as EVERYCALL_START or the build (--start off) says"), "{text}");
    let output = cargo_everycall(&folder, &["run", "--offline", "--stream"]).output().unwrap();
    let text = said(&output);
    assert!(!output.status.success() && text.contains("cargo everycall --stream run"), "{text}");
}

/// A program of its own, linked as its configuration says.
#[test]
fn linkers_and_targets_of_the_project_work() {
    let place = Place::new("rust-linkers");
    let folder = place.file("a program");
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::create_dir_all(folder.join(".cargo")).unwrap();
    let manifest = "[package]\nname = \"linked\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let source = "#[inline(never)]\nfn work(n: u32) -> u32 { std::hint::black_box(n) + 1 }\n\
                  fn main() {\n\
                  let panics = || if std::env::args().count() > 1 { panic!() };\n\
                  let caught = std::panic::catch_unwind(panics).is_err();\n\
                  println!(\"{} {caught}\", (0..5).map(work).sum::<u32>());\n}\n";
    fs::write(folder.join("src/main.rs"), source).unwrap();
    let sysroot = successful(command("rustc", &folder).args(["--print", "sysroot"]));
    let has_musl = Path::new(sysroot.trim()).join("lib/rustlib/x86_64-unknown-linux-musl").exists();
    let with_clang = |option: &str| format!("linker = \"clang-19\"\nrustflags = [{option}]");
    for (target, configuration, is_possible) in [
        ("x86_64-unknown-linux-gnu", with_clang(""), true),
        ("x86_64-unknown-linux-gnu", with_clang("\"-Clink-arg=-fuse-ld=lld\""), true),
        ("x86_64-unknown-linux-gnu", with_clang("\"-Clink-arg=-fuse-ld=mold\""), found("mold").is_some()),
        ("x86_64-unknown-linux-musl", String::new(), has_musl),
        ("x86_64-unknown-linux-musl", "linker = \"rust-lld\"".to_owned(), has_musl),
    ] {
        if !is_possible {
            continue;
        }
        let configuration = format!("[target.{target}]\n{configuration}\n");
        fs::write(folder.join(".cargo/config.toml"), &configuration).unwrap();
        let words = ["-o", "linked.ect", "run", "-q", "--offline", "--target", target, "--", "panics"];
        let output = cargo_everycall(&folder, &words).output().unwrap();
        assert!(said(&output).starts_with("15 true\n"), "{configuration}: {}", said(&output));
        let trace = TraceView::tallies_only(&folder.join("linked.ect"));
        let five = Tally { entries: 5, exits: 5 };
        assert_eq!(trace.tallies().get("linked::work"), Some(&five), "{configuration}");
        let tree = successful(command(everycall(), &folder).args(["replay", "linked.ect"]));
        assert_eq!(tree.matches("* catch panic").count(), 1, "{configuration}: {tree}");
    }
}

/// Spans and events of `tracing` and lines of `log` are on the timeline, in the calls that made
/// them.
#[test]
fn spans_and_lines_of_tracing_and_log_are_on_the_timeline() {
    let place = Place::new("rust-lines");
    let folder = copied(&place, "rust-lines", "Cargo.toml");
    lock(&folder);
    let printed = successful(&mut cargo_everycall(&folder, &["-o", "lines.ect", "run", "-q", "--offline"]));
    assert_eq!(printed, "ended\n");
    let shown = successful(command(everycall(), &folder).args(["replay", "lines.ect"]));
    // Without the time before and the duration after.
    let said: Vec<String> = shown
        .lines()
        .filter_map(|line| {
            let at = ["[ ", "] ", "> "].into_iter().find_map(|mark| line.find(&format!("  {mark}")))?;
            Some(line[at..].trim().to_owned())
        })
        .collect();
    let of_work = |id: u32| {
        let poll = |poll: u32, fields: &str| {
            vec![
                "[ work".to_owned(),
                format!("> id={id}{fields}"),
                format!("> WARN lines: slow poll={poll} name=a name"),
            ]
        };
        [poll(0, ""), poll(1, " left=1")].map(|poll| [poll, vec!["] work".to_owned()]].concat()).concat()
    };
    let long = format!("> ERROR lines: {}", "long ".repeat(200));
    let logged = [
        "> INFO lines: ready".to_owned(),
        long[..482].trim().to_owned(),
        ">".to_owned(),
        "> é is 130".to_owned(),
    ];
    // A thread after the other.
    let wanted = [of_work(7), logged.to_vec(), of_work(8)].concat();
    let said: Vec<String> = said
        .into_iter()
        .map(|line| if line.starts_with("] work") { "] work".to_owned() } else { line })
        .collect();
    assert_eq!(said, wanted);
}
