//! Builds with options that change the code around calls, and programs under other tools: the same
//! results as without everycall, no reports by sanitizers, and every call in the trace.
//! `EVERYCALL_FULL=1` takes every option in every mode.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everycall_tests::{Mode, Place, Recording, Tally, everycall, is_full, successful};

/// Calls of [`everycall_tests::programs`]' `builds.cpp`: function, entries, exits.
const CALLS: [(&str, u64, u64); 5] = [
    ("work(int)", 4, 4),
    ("catcher(int)", 2400, 2400),
    ("thrower(int)", 2400, 1600),
    ("leaf(int)", 1600, 1600),
    ("main", 1, 1),
];
const PRINTED: &str = "480800\n";

const OPTIONS: [&[&str]; 17] = [
    &["-O1", "-fsanitize=address"],
    &["-O1", "-fsanitize=undefined"],
    &["-O1", "-fsanitize=thread"],
    &["-O2", "-fcf-protection=full"],
    &["-O2", "-fno-plt"],
    &["-O2", "-fPIE", "-pie", "-ffunction-sections", "-Wl,--gc-sections"],
    &["-O0"],
    &["-O3"],
    &["-Os"],
    &["-O2", "-g", "-gsplit-dwarf"],
    &["-O2", "-static"],
    &["-O2", "-fPIE", "-static-pie"],
    &["-O2", "-no-pie"],
    &["-O2", "-fno-omit-frame-pointer"],
    &["-O2", "-fstack-protector-all"],
    &["-O2", "-fstack-clash-protection"],
    &["-O2", "-march=native"],
];

/// Whether the compiler can do it without us: clang's sanitizers are in a package of their own.
fn is_possible(place: &Place, mode: Mode, options: &[&str]) -> bool {
    let source = place.write("empty.cpp", "int main() {}");
    let mut command = place.command(mode.cxx);
    let output = command.args(options).arg(source).args(["-o", "empty"]).output();
    output.is_ok_and(|output| output.status.success())
}

fn check(recording: &Recording, note: &str) {
    assert!(recording.output.status.success(), "{note}: {recording:?}");
    assert_eq!(recording.stdout(), PRINTED, "{note}: {recording:?}");
    let said = String::from_utf8_lossy(&recording.output.stderr);
    for word in ["Sanitizer", "runtime error", "ERROR", "WARNING"] {
        assert!(!said.contains(word), "{note}: {said}");
    }
    let trace = recording.trace();
    let tallies = trace.tallies();
    for (name, entries, exits) in CALLS {
        assert_eq!(tallies.get(name), Some(&Tally { entries, exits }), "{note}: {name}");
    }
    assert_eq!((trace.losses(), trace.threads.len()), (0, 5), "{note}");
    assert!(trace.threads.iter().all(|thread| thread.orphans == 0), "{note}");
}

#[test]
fn every_option_in_every_mode() {
    let place = Place::new("builds");
    for (place_of_mode, mode) in Mode::ALL.into_iter().enumerate() {
        for (number, options) in OPTIONS.iter().enumerate() {
            // Each option in one mode at least, each mode with some.
            let is_chosen = number % Mode::ALL.len() == place_of_mode || number < 3 && mode == Mode::GCC_NOPS;
            if !(is_full() || is_chosen) || !is_possible(&place, mode, options) {
                continue;
            }
            let arguments = [*options, &["builds.cpp", "-pthread"]].concat();
            let program = place.build(mode, &arguments, "builds");
            let recording = place.record(&["--ring-size", "4M"], &program, &[]);
            check(&recording, &format!("{mode:?} {options:?}"));
        }
    }
}

/// Objects of two compilers and four modes, whose functions call each other and throw through each
/// other.
#[test]
fn objects_of_both_compilers_in_one_program() {
    let place = Place::new("both");
    let modes = [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT];
    let text = std::fs::read_to_string(everycall_tests::programs().join("builds.cpp")).unwrap();
    // One function an object: the others are declared.
    let functions = ["int leaf(int v)", "int thrower(int v)", "int catcher(int v)", "void work(int count)"];
    let mut objects = Vec::new();
    for (number, (function, mode)) in functions.into_iter().zip(modes).enumerate() {
        let mut part = text
            .replace("static std::mutex lock;", "extern std::mutex lock;")
            .replace("static long total;", "extern long total;");
        part.truncate(part.find("int main()").unwrap());
        for other in functions.into_iter().filter(|other| *other != function) {
            let begin = part.find(&format!("{other} {{")).unwrap();
            let end = begin + part[begin..].find("\n}\n").unwrap() + 2;
            part.replace_range(begin..end, &format!("{other};"));
        }
        let source = place.write(&format!("part-{number}.cpp"), &part);
        let arguments = ["-O1", "-fPIE", "-c", source.to_str().unwrap()];
        objects.push(place.build(mode, &arguments, &format!("part-{number}.o")));
    }
    let mut main = text
        .replace("static std::mutex lock;", "std::mutex lock;")
        .replace("static long total;", "long total;");
    for function in functions {
        let begin = main.find(&format!("{function} {{")).unwrap();
        let end = begin + main[begin..].find("\n}\n").unwrap() + 2;
        main.replace_range(begin..end, &format!("{function};"));
    }
    let source = place.write("main.cpp", &main);
    let objects: Vec<&str> = objects.iter().map(|path| path.to_str().unwrap()).collect();
    let arguments = [&["-O1", source.to_str().unwrap()], &objects[..], &["-pthread"]].concat();
    let program = place.build(Mode::GCC_NOPS, &arguments, "both");
    check(&place.record(&["--ring-size", "4M"], &program, &[]), "both compilers");
}

/// A stripped program has the same calls, under other names.
#[test]
fn stripped() {
    let place = Place::new("stripped");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FINSTRUMENT] {
        let program = place.build(mode, &["-O2", "-s", "builds.cpp", "-pthread"], "builds");
        let whole = place.build(mode, &["-O2", "builds.cpp", "-pthread"], "whole");
        let calls = |program: &Path| {
            let recording = place.record(&["--ring-size", "4M"], program, &[]);
            assert_eq!(recording.stdout(), PRINTED, "{mode:?}: {recording:?}");
            // Clones share a name where there are names.
            recording.tallies().tallies().values().map(|tally| tally.entries).sum::<u64>()
        };
        assert_eq!(calls(&program), calls(&whole), "{mode:?}");
    }
}

/// Under gdb, valgrind, strace and perf the program behaves as without everycall, and is traced.
/// (perf may not be allowed to count everywhere.)
#[test]
fn under_other_tools() {
    let place = Place::new("tools");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "builds.cpp", "-pthread"], "builds");
    let program = program.to_str().unwrap();
    let perf = ["perf", "record", "-q", "-e", "cpu-clock", "-g", "-o", "/dev/null"];
    let may_count = Command::new("perf").args(&perf[1..]).arg("true").output().unwrap().status.success();
    if !may_count {
        eprintln!("not run under perf: it may not count here");
    }
    let under_perf = [&perf[..], &[program]].concat();
    let tools: [&[&str]; 3] = [
        &["valgrind", "-q", "--error-exitcode=9", program],
        &["strace", "-f", "-o", "/dev/null", program],
        &["gdb", "-q", "-batch", "-ex", "run", "--args", program],
    ];
    for tool in tools.into_iter().chain(may_count.then_some(&under_perf[..])) {
        let plain = Command::new(tool[0]).args(&tool[1..]).output().unwrap();
        assert!(String::from_utf8_lossy(&plain.stdout).contains(PRINTED), "{tool:?}: {plain:?}");
        assert!(plain.status.success(), "{tool:?}: {plain:?}");
        let recording = place.record(&["--ring-size", "4M"], Path::new(tool[0]), &tool[1..]);
        assert!(recording.stdout().contains(PRINTED), "{tool:?}: {recording:?}");
        assert!(recording.output.status.success(), "{tool:?}: {recording:?}");
        let tallies = recording.trace().tallies();
        for (name, entries, exits) in CALLS {
            assert_eq!(tallies.get(name), Some(&Tally { entries, exits }), "{tool:?}: {name}");
        }
    }
}

/// How far stacks go isn't found out by anything that valgrind complains about.
#[test]
fn deep_stacks_under_valgrind() {
    let place = Place::new("deep-stacks");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "deep_stacks.c", "-pthread"], "deep_stacks");
    let valgrind = ["-q", "--error-exitcode=9", program.to_str().unwrap()];
    let output = Command::new("valgrind").args(valgrind).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "main 5000\nthread 5000\nfiber 100\n");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let recording = place.record(&[], Path::new("valgrind"), &valgrind);
    assert!(recording.output.status.success(), "{recording:?}");
    assert_eq!(recording.trace().calls("deep"), 2 * 5001 + 101);
}

/// The shared objects that a file needs, by `readelf`.
fn needed(file: &Path) -> Vec<String> {
    let said = successful(Command::new("readelf").arg("-dW").arg(file));
    let mut needed: Vec<String> =
        said.lines().filter(|line| line.contains("(NEEDED)")).map(str::to_owned).collect();
    needed.sort();
    needed
}

/// C's cleanups are wrapped only if there are some: other programs in C don't need the unwinder's
/// library.
#[test]
fn programs_in_c_need_the_libraries_that_they_need_without_us() {
    let place = Place::new("needed");
    let plain = place.file("plain");
    // (gcc's finstrument calls exit hooks in cleanups, so it has some everywhere.)
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        for source in ["../trees/jumps.c", "../trees/cleanups.c"] {
            let lld = if mode.cc == "gcc" { &[][..] } else { &["-fuse-ld=lld"] };
            let split = if mode.cc == "gcc" { &["-fsplit-stack"][..] } else { &[] };
            for more in [&[][..], &["-shared", "-fPIC", "-Wl,-z,defs"], &["-flto"], &["-static"], lld, split]
            {
                // The prefix refuses this pair.
                let is_refused = mode.name == "xray" && more.contains(&"-flto");
                let mode = if is_refused { Mode::CLANG19_AFTER_INLINING } else { mode };
                let options = [&["-O2", "-pthread", "-fexceptions"], more, &[source]].concat();
                let traced = place.build(mode, &options, "traced");
                successful(
                    Command::new(mode.cc)
                        .args(&options)
                        .arg("-o")
                        .arg(&plain)
                        .current_dir(everycall_tests::programs()),
                );
                assert_eq!(needed(&traced), needed(&plain), "{mode:?} {options:?}");
                if !more.contains(&"-shared") {
                    successful(&mut Command::new(&traced));
                }
            }
        }
    }
}

/// Debian 12's own clang and the one after it: sleds, as newer versions make them.
#[test]
fn older_versions_of_clang() {
    let place = Place::new("older-clang");
    for mode in [Mode::CLANG14_XRAY, Mode::CLANG16_XRAY] {
        for (number, options) in OPTIONS.iter().enumerate() {
            let is_chosen = number % 4 == 2 * usize::from(mode == Mode::CLANG14_XRAY);
            if !(is_full() || is_chosen) || !is_possible(&place, mode, options) {
                continue;
            }
            let program = place.file("builds");
            let mut command = place.command(everycall());
            command.args(["cc", "--", mode.cxx]).args(*options).arg("-pthread");
            command.arg(everycall_tests::programs().join("builds.cpp")).arg("-o").arg(&program);
            successful(&mut command);
            let recording = place.record(&["--ring-size", "4M"], &program, &[]);
            check(&recording, &format!("{mode:?} {options:?}"));
        }
        let program = place.build(mode, &["-O2", "-g", "walks.cpp", "-ldl"], &mode.label());
        let printed = successful(place.command(&program).arg("gcc"));
        assert!(printed.contains(", 0 walks were wrong"), "{}: {printed}", mode.label());
    }
}

/// A program that refuses what an older version doesn't know, and otherwise is the real one.
fn older(place: &Place, name: &str, unknown: &str) -> PathBuf {
    let folder = place.file(&format!("older-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(name);
    let text = format!(
        "#!/bin/bash\n\
         [ {name} = as ] && text=$(mktemp) && cat ${{@: -1}} | tee $text | grep -q '{unknown}' && exit 1\n\
         for word in \"$@\"; do case \"$word\" in {unknown}) echo \"{name}: unknown $word\" >&2; exit 1;; esac; done\n\
         [ {name} = as ] && exec /usr/bin/as \"${{@:1:$#-1}}\" $text\n\
         exec /usr/bin/{name} \"$@\"\n"
    );
    std::fs::write(&file, text).expect("a script");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a script");
    file
}

fn prefixed(place: &Place, arguments: &[&str]) -> Output {
    place.command(everycall()).arg("cc").args(arguments).output().expect("everycall runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// gcc 8, and the assembler and linker of older distributions.
#[test]
fn older_tools_get_what_they_know_or_are_named() {
    let place = Place::new("older-tools");
    place.write("one.c", "__attribute__((noinline)) int one(int x) { __asm__ volatile(\"\"); return x + 1; }\nint main(void) { return one(2) - 3; }\n");
    let records = |program: &str| {
        let recording = place.record(&[], &place.file(program), &[]);
        recording.tallies().tallies().get("one").copied()
    };
    let one = Some(Tally { entries: 1, exits: 1 });

    let ld = older(&place, "ld", "--export-dynamic-symbol*");
    let folder = format!("-B{}", ld.parent().expect("its folder").display());
    let output = prefixed(&place, &["--", "gcc", &folder, "-O2", "one.c", "-o", "by-ld"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(records("by-ld"), one);

    let gcc = older(&place, "gcc", "-minstrument-return=*|-p|-specs=*");
    let gcc = gcc.to_str().expect("a path");
    let output = prefixed(&place, &["--", gcc, "-O2", "one.c", "-o", "by-gcc"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(records("by-gcc"), one);
    let output = prefixed(&place, &["--mode", "nops", "--", gcc, "-O2", "one.c", "-o", "refused"]);
    let text = said(&output);
    assert!(output.status.code() == Some(2) && text.contains("use mode finstrument"), "{text}");
    assert!(text.contains(gcc), "{text}");

    // gcc puts our step for its assembler.
    let assembler = older(&place, "as", "\"ao\"");
    let folder = format!("-B{}", assembler.parent().expect("its folder").display());
    let output = prefixed(&place, &["--mode", "nops", "--", "gcc", &folder, "-c", "one.c"]);
    let text = said(&output);
    assert!(output.status.code() == Some(2) && text.contains("binutils 2.35"), "{text}");
    let output = prefixed(&place, &["--", "gcc", &folder, "-O2", "-c", "one.c", "-o", "one.o"]);
    assert!(output.status.success(), "{}", said(&output));
    let listed = successful(place.command("nm").arg("one.o"));
    assert!(listed.contains("__fentry__"), "{listed}");
}

/// Interface units of modules, in one step and in two.
#[test]
fn modules_are_traced_in_clangs_default_mode() {
    let place = Place::new("modules");
    place.write(
        "m.cppm",
        "export module m;\nexport __attribute__((noinline)) int twice(int x) { __asm__ volatile(\"\"); return x * 2; }\n",
    );
    place.write(
        "main.cpp",
        "import m;\nint main() { int s = 0; for (int i = 0; i < 10; i++) s += twice(i); return s == 90 ? 0 : 1; }\n",
    );
    for compiler in ["clang++-16", "clang++-19", "clang++-22"] {
        let run = |line: &str| {
            let words = line.split(' ').filter(|word| !word.is_empty());
            let output = prefixed(
                &place,
                &["--", compiler, "-std=c++20", "-O1", "-Werror"]
                    .into_iter()
                    .chain(words)
                    .collect::<Vec<_>>(),
            );
            assert!(output.status.success(), "{compiler} {line}: {}", said(&output));
        };
        for steps in [
            &["-fmodule-output=m.pcm -c m.cppm -o m.o"][..],
            &["--precompile m.cppm -o m.pcm", "-c m.pcm -o m.o"],
        ] {
            steps.iter().for_each(|step| run(step));
            run("-fmodule-file=m=m.pcm -c main.cpp -o main.o");
            run("main.o m.o -o app");
            let tallies = place.record(&[], &place.file("app"), &[]).tallies().tallies();
            let twice = Some(&Tally { entries: 10, exits: 10 });
            assert_eq!(tallies.get("twice@m(int)"), twice, "{compiler} {steps:?}: {tallies:?}");
        }
    }
    for (line, named) in [
        ("clang++-19 -std=c++20 -c m.cppm", "in interface units of C++20 modules"),
        ("clang++-19 -c m.pcm", "from a module's compiled form"),
    ] {
        let words = ["--mode", "xray", "--"].into_iter().chain(line.split(' ')).collect::<Vec<_>>();
        let output = prefixed(&place, &words);
        assert!(
            output.status.code() == Some(2) && said(&output).contains(named),
            "{line}: {}",
            said(&output)
        );
    }
}

/// A profile of a build without hooks.
#[test]
fn profiles_of_untraced_builds() {
    let place = Place::new("crossed-profile");
    place.write(
        "a.c",
        "static int f(int x) { return x % 3 ? x + 1 : x * 2; }\n\
         int main(int c, char** v) { int s = 0; for (int i = 0; i < 99; i++) s += f(i + c); return s == 0; }\n",
    );
    successful(place.command("gcc").args(["-O2", "-fprofile-generate", "a.c", "-o", "counted"]));
    successful(&mut place.command("./counted"));
    let profile =
        std::fs::read_dir(place.path()).expect("the folder").flatten().map(|entry| entry.file_name());
    let profile: Vec<_> = profile.filter(|name| name.to_string_lossy().ends_with(".gcda")).collect();
    std::fs::rename(place.path().join(&profile[0]), place.file("a.gcda")).expect("the profile");
    for mode in ["nops", "fentry", "finstrument"] {
        let output = prefixed(&place, &["--mode", mode, "--", "gcc", "-O2", "-fprofile-use", "-c", "a.c"]);
        assert!(output.status.success(), "{mode}: {}", said(&output));
    }
}

/// The result refers to no function that the linker's inputs don't refer to.
#[test]
fn links_refer_to_no_function_that_no_input_names() {
    let place = Place::new("references");
    place.write("f.c", "int f(int x) { return x + 1; }\n");
    place.write("main.c", "int f(int);\nint main(void) { return f(-1); }\n");
    let undefined = |file: &str| -> Vec<String> {
        let text = successful(place.command("nm").args(["-u", file]));
        let names = text.lines().filter_map(|line| line.split_whitespace().last());
        // Weak references of the runtime itself.
        let ours = ["everycall", "rseq", "environ", "_r_debug", "atfork", "__errno_location"];
        names.filter(|name| !ours.iter().any(|part| name.contains(part))).map(str::to_owned).collect()
    };
    for (compiler, mode) in
        [("gcc", "nops"), ("gcc", "fentry"), ("clang-14", "xray"), ("clang-19", "after-inlining")]
    {
        for link in [&["-shared", "f.o", "-o"][..], &["f.o", "main.o", "-o"]] {
            successful(place.command(compiler).args(["-O2", "-fPIC", "-c", "f.c", "main.c"]));
            successful(place.command(compiler).args(link).arg("plain"));
            for traced in [
                &["--mode", mode, "--", compiler, "-O2", "-fPIC", "-c", "f.c", "main.c"][..],
                &[&["--mode", mode, "--", compiler], link, &["traced"]].concat(),
            ] {
                let output = prefixed(&place, traced);
                assert!(output.status.success(), "{}", said(&output));
            }
            assert_eq!(undefined("traced"), undefined("plain"), "{compiler} {mode} {link:?}");
        }
    }
}

/// A weak reference takes no wrapper out of an archive.
#[test]
fn weak_references_to_wrapped_functions_stay() {
    let place = Place::new("weak");
    place.write(
        "weak.c",
        "#include <pthread.h>\n#pragma weak pthread_exit\n#pragma weak pthread_cancel\nint main(void) { return !pthread_exit + !pthread_cancel; }\n",
    );
    for arguments in [&["-c", "weak.c"][..], &["weak.o", "-o", "app"]] {
        let output = prefixed(&place, &[&["--", "gcc"], arguments].concat());
        assert!(output.status.success(), "{}", said(&output));
    }
    successful(&mut place.command("./app"));
    successful(place.command("ar").args(["rcs", "libweak.a", "weak.o"]));
    let output =
        prefixed(&place, &["--", "gcc", "-Wl,--whole-archive,libweak.a,--no-whole-archive", "-o", "app"]);
    assert!(output.status.success(), "{}", said(&output));
    successful(&mut place.command("./app"));
}

/// Prints whether `leaf` is on: its site is no NOP then.
const IS_ON: &str = "#include <stdio.h>\n\
    __attribute__((noinline)) int leaf(int x) { __asm__ volatile(\"\"); return x + 1; }\n\
    int main(void) { const unsigned char* code = (const unsigned char*)leaf; int on = 0;\n\
    for (int i = 0; i < 16; i++) on |= code[i] == 0xe8; printf(\"%d %d\\n\", leaf(1), on); return 0; }\n";

/// Build files carry the choice as the prefix does.
#[test]
fn build_files_choose_that_programs_start_off() {
    let place = Place::new("starts-off-files");
    place.write("app.c", IS_ON);
    for (start, is_on) in [("off", 0), ("on", 1)] {
        successful(place.command(everycall()).args(["integrate", start, "--start", start]));
        let mut flags = place.command("pkg-config");
        flags.args(["--cflags", "--libs", "everycall-nops"]);
        let flags = successful(flags.env("PKG_CONFIG_PATH", place.file(start).join("lib/pkgconfig")));
        successful(place.command("gcc").args(["-O2", "app.c", "-o", "app"]).args(flags.split_whitespace()));
        let run = |variable: &str, value: &str| successful(place.command("./app").env(variable, value));
        assert_eq!(run("NOTHING", ""), format!("2 {is_on}\n"), "{start}");
        assert_eq!(run("EVERYCALL_START", "on"), "2 1\n", "{start}");
        assert_eq!(place.record(&[], &place.file("app"), &[]).stdout(), "2 1\n", "{start}");
    }
}

/// The build's choice holds where nothing records, and only there.
#[test]
fn a_build_chooses_that_programs_start_off() {
    let place = Place::new("starts-off");
    place.write("app.c", IS_ON);
    for more in [&[][..], &["-static"], &["-static-pie", "-fPIE"]] {
        for (start, is_on) in [("off", 0), ("on", 1)] {
            let output = prefixed(
                &place,
                &[&["--start", start, "--", "gcc", "-O2"], more, &["app.c", "-o", "app"]].concat(),
            );
            assert!(output.status.success(), "{}", said(&output));
            let run = |variable: &str, value: &str| successful(place.command("./app").env(variable, value));
            assert_eq!(run("NOTHING", ""), format!("2 {is_on}\n"), "{start} {more:?}");
            assert_eq!(run("EVERYCALL_START", "on"), "2 1\n", "{start} {more:?}");
            assert_eq!(run("EVERYCALL_START", "off"), "2 0\n", "{start} {more:?}");
            let folder = place.path().display().to_string();
            assert_eq!(run("EVERYCALL_CRASH", &folder), "2 1\n", "{start} {more:?}");
            let recording = place.record(&[], &place.file("app"), &[]);
            assert_eq!(recording.stdout(), "2 1\n", "{start} {more:?}");
            let leaf = recording.tallies().tallies().get("leaf").copied();
            assert_eq!(leaf, Some(Tally { entries: 1, exits: 1 }), "{start} {more:?}");
        }
    }
}

/// BOLT moves code and doesn't know of lists of sites: its files are named, unless their hooks are
/// calls.
#[test]
fn files_that_bolt_rewrote_are_named_or_complete() {
    if everycall_tests::found("llvm-bolt-19").is_none() {
        return;
    }
    let place = Place::new("bolt");
    for (mode, is_complete) in
        [(Mode::GCC_NOPS, false), (Mode::CLANG19_XRAY, false), (Mode::GCC_FENTRY, true)]
    {
        let program = place.build(mode, &["-O2", "-Wl,-q", "builds.cpp", "-pthread"], "linked");
        let rewritten = place.file("rewritten");
        let options = ["-reorder-blocks=ext-tsp", "-split-functions", "-o"];
        successful(place.command("llvm-bolt-19").arg(&program).args(options).arg(&rewritten));
        let recording = place.record(&["--ring-size", "4M"], &rewritten, &[]);
        assert_eq!(recording.stdout(), PRINTED, "{mode:?}");
        let text = String::from_utf8_lossy(&recording.output.stderr).into_owned();
        assert_eq!(text.contains("was rewritten after its link, by BOLT"), !is_complete, "{mode:?}: {text}");
        assert!(!text.contains("check what the program calls"), "{mode:?}: {text}");
        // Whoever gets the trace learns it, too.
        for verb in ["info", "report"] {
            let shown = place.command(everycall()).arg(verb).arg(&recording.file).output().unwrap();
            let all = [&shown.stdout[..], &shown.stderr[..]].concat();
            let text = String::from_utf8_lossy(&all);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let is_named = text.contains("was rewritten after its link, by BOLT");
            assert_eq!(is_named, !is_complete, "{mode:?} {verb}: {text}");
        }
        if is_complete {
            check(&recording, &format!("{mode:?}"));
        }
    }
}
