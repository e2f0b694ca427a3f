//! The prefix behaves like the compiler: files, diagnostics, exit codes, queries, caches, time.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;

use object::{Object, ObjectSection};
use support::image::Image;
use support::{CLANGS, Lab, text};

const PROGRAM: &str = "#include <stdio.h>\n#include \"one.h\"\nint t_one(int x) { return x + ONE; }\nint main(void) { printf(\"%d\\n\", t_one(4)); return 0; }\n";

fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("one.c", PROGRAM);
    lab.write("one.h", "#define ONE 1\n");
    lab.write("two.c", "int t_two(int x) { return x * 2; }\n");
    lab
}

/// Every supported pair of compiler and mode with `EVERYCALL_FULL`; otherwise each compiler and each
/// mode, all modes of gcc and of one clang.
fn pairs() -> Vec<(String, &'static str)> {
    let mut pairs: Vec<_> = ["nops", "fentry", "finstrument"].map(|mode| ("gcc".to_owned(), mode)).into();
    let is_full = support::env_is_set("EVERYCALL_FULL");
    let modes = ["xray", "finstrument", "after-inlining"];
    for (version, own) in CLANGS.into_iter().zip([0, 2, 1, 0]) {
        for (number, mode) in modes.into_iter().enumerate() {
            if is_full || version == "19" || number == own {
                pairs.push((format!("clang-{version}"), mode));
            }
        }
    }
    pairs
}

fn functions_in_c(count: u64) -> String {
    (0..count).map(|number| format!("int f{number}(int x) {{ return x * {number}; }}\n")).collect()
}

fn sites(lab: &Lab, file: &str, mode: &str) -> usize {
    Image::read(&lab.work().join(file), mode).places.len()
}

#[test]
fn dependency_files_and_outputs_are_the_compilers_own() {
    let lab = lab();
    let lines = [
        "-MD -c one.c",
        "-MMD -MP -MF deps -c one.c -o out.o",
        "-M one.c",
        "-MM -MT x -MQ $y one.c",
        "-MD one.c two.c",
        "-MD one.c -o app",
        "-MMD one.c -o sub/app",
        "-E one.c",
        "-E -dM one.c",
        "-fsyntax-only one.c",
        "-MD -S one.c",
        "-g0 -save-temps -MD -c one.c",
        "-gsplit-dwarf -g -c one.c",
        "-gsplit-dwarf -c one.c",
    ];
    for (compiler, mode) in pairs() {
        for line in lines {
            let mut seen: Vec<BTreeMap<String, Vec<u8>>> = Vec::new();
            for prefix in ["", &format!("everycall cc --mode {mode} -- ")] {
                lab.clear();
                fs::create_dir(lab.work().join("sub")).unwrap();
                lab.write("one.c", PROGRAM);
                lab.write("one.h", "#define ONE 1\n");
                lab.write("two.c", "int t_two(int x) { return x * 2; }\n");
                let printed = lab.sh(&format!("{prefix}{compiler} {line}"));
                let mut files = BTreeMap::from([("printed".to_owned(), printed.into_bytes())]);
                for name in lab.names() {
                    let is_text = name.ends_with(".d") || name == "deps";
                    files.insert(name.clone(), if is_text { lab.read(&name) } else { Vec::new() });
                }
                seen.push(files);
            }
            if mode == "xray" && line.contains("-gsplit-dwarf") {
                // With an external assembler, clang splits off debug information even if there is
                // none.
                seen.iter_mut().for_each(|files| drop(files.remove("one.dwo")));
            }
            assert_eq!(seen[0], seen[1], "{compiler} {line}, mode {mode}");
        }
    }
}

#[test]
fn diagnostics_and_exit_codes_are_the_compilers_own() {
    let lab = lab();
    lab.write("bad.c", "int f(void) { return undeclared; }\nint g(int x) { if (x = 1) return 0; }\n");
    lab.write("warned.c", "int g(int x) { int unused; if (x = 1) return 0; return 1; }\n");
    lab.write("assembler.c", "void f(void) { __asm__(\"no such instruction\"); }\n");
    lab.write("unresolved.c", "int h(void); int main(void) { return h(); }\n");
    let lines = [
        "-c bad.c",
        "-Wall -Wextra -c warned.c -o /dev/null",
        "-c missing.c",
        "-c one.c -o no/such/folder/x.o",
        "--no-such-option -c one.c",
        "-c one.c two.c -o both.o",
        "-v",
        "",
        "--version",
        "-dumpmachine",
        "-print-prog-name=as",
        "-print-file-name=crt1.o",
        "-dumpversion",
        "-Wall -Wextra -Wuninitialized -c one.c",
        "-E missing.c",
        "-c one.c -o",
        "-xno-such-language one.c",
    ];
    for (compiler, mode) in pairs() {
        for line in lines {
            let plain = lab.output(&format!("{compiler} {line}"));
            let ours = lab.output(&format!("everycall cc --mode {mode} -- {compiler} {line}"));
            assert_eq!(plain.status, ours.status, "{compiler} {line}");
            if mode == "xray" && line.contains("no/such/folder") {
                // Reported by the assembler, which is another clang process here.
                assert!(text(&ours.stderr).contains("unable to open output file 'no/such/folder/x.o'"));
                continue;
            }
            assert_eq!(text(&plain.stderr), text(&ours.stderr), "{compiler} {line}, mode {mode}");
            assert_eq!(text(&plain.stdout), text(&ours.stdout), "{compiler} {line}");
        }
        // Names of temporary files differ from call to call.
        for line in ["-c assembler.c", "-pipe -c assembler.c", "unresolved.c"] {
            let plain = lab.output(&format!("{compiler} {line}"));
            let ours = lab.output(&format!("everycall cc --mode {mode} -- {compiler} {line}"));
            assert_eq!(plain.status, ours.status, "{compiler} {line}");
            let count = |bytes: &[u8]| text(bytes).lines().count();
            if mode == "xray" && line.contains("assembler.c") {
                // As with -fno-integrated-as: the assembler names its own text.
                assert!(text(&ours.stderr).contains("no such instruction"), "{}", text(&ours.stderr));
                assert!(!text(&ours.stderr).contains("everycall:"), "{}", text(&ours.stderr));
                continue;
            }
            assert_eq!(
                count(&plain.stderr),
                count(&ours.stderr),
                "{compiler} {line}: {}",
                text(&ours.stderr)
            );
            assert!(!text(&ours.stderr).contains("everycall:"), "{}", text(&ours.stderr));
        }
    }
    assert!(!lab.names().iter().any(|name| name.ends_with(".o") && name != "one.o" && name != "warned.o"));
}

/// A small text is rewritten in memory, a large one while the assembler works, and gcc may pipe it: the objects are the same.
#[test]
fn texts_of_any_size_become_the_same_objects() {
    let lab = lab();
    for functions in [3, 3000] {
        lab.write("many.c", &functions_in_c(functions));
        let mut objects = Vec::new();
        for line in ["-c many.c -o many.o", "-pipe -c many.c -o many.o"] {
            lab.sh(&format!("everycall cc --mode nops -- gcc -O2 {line}"));
            objects.push(lab.read("many.o"));
        }
        assert!(objects[0] == objects[1], "{functions} functions");
        let sites = object::File::parse(&objects[0][..]).unwrap();
        let sites = sites.section_by_name("everycall_sites").unwrap().size();
        assert_eq!(sites, 2 * 12 * functions, "{functions} functions");
        lab.sh("everycall cc --mode nops -- gcc -O2 -S many.c -o many.s");
        assert_eq!(lab.read("many.s").len() > 64 << 10, functions == 3000);
    }
}

#[test]
fn refusals_say_what_to_do() {
    let lab = lab();
    let cases = [
        (
            "everycall cc --mode xray -- gcc -c one.c",
            2,
            "gcc does not support mode xray; its modes are nops, fentry, finstrument",
        ),
        (
            "everycall cc --mode nops -- clang-19 -c one.c",
            2,
            "clang does not support mode nops; its modes are finstrument, after-inlining, xray",
        ),
        ("everycall cc --mode quick -- gcc -c one.c", 2, "`quick` is not a mode; the modes are nops, fentry"),
        ("everycall cc -- no-such-gcc -c one.c", 127, "no program `no-such-gcc` was found"),
        ("everycall cc -- ./no/gcc -c one.c", 127, "no program `./no/gcc` was found"),
        ("everycall cc -- cat -c one.c", 2, "is neither gcc nor clang"),
        ("everycall cc", 2, "no compiler is named"),
        ("everycall cc --quick -- gcc", 2, "unknown option `--quick`"),
        ("everycall cc -- gcc -m32 -c one.c", 2, "-m32 compiles for another machine"),
        ("everycall cc -- gcc -mcmodel=large -c one.c", 2, "use -mcmodel=medium"),
        ("everycall cc -- gcc -pg -c one.c", 2, "-pg already uses gcc's entry and exit hooks"),
        ("everycall cc --mode fentry -- gcc -masm=intel -c one.c", 2, "AT&T syntax"),
        ("everycall cc -- gcc -fuse-ld=gold one.c", 2, "-fuse-ld=bfd or -fuse-ld=lld"),
        ("everycall-gcc --everycall-mode=fast -c one.c", 2, "`fast` is not a mode"),
        ("everycall cc --mode xray -- clang-19 -flto -c one.c", 2, "use mode after-inlining"),
        ("everycall cc --mode xray -- clang-19 -flto=thin one.c", 2, "or leave out -flto"),
        ("everycall cc -- clang-19 -flto -fxray-instrument -c one.c", 2, "would be recorded twice"),
        ("everycall cc --mode finstrument -- clang-19 -fxray-instrument -c one.c", 2, "or use mode xray"),
    ];
    for (line, code, sentence) in cases {
        let output = lab.output(line);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {errors}");
        assert!(errors.contains(sentence) && errors.lines().count() == 1, "{line}: {errors}");
    }
    assert_eq!(lab.names().len(), 3);
}

#[test]
fn assembler_sources_and_inline_assembler_pass_unharmed() {
    let lab = lab();
    lab.write("raw.s", "\t.globl raw\n\t.type raw, @function\nraw:\n\tpushq\t%r10\n\tpopq\t%r10\n\tmovl $7, %eax\n\tret\n\t.section .note.GNU-stack,\"\",@progbits\n");
    lab.write("pre.S", "#define VALUE 9\n\t.globl pre\npre:\tmovl $VALUE, %eax\n\tret\n\t.section .note.GNU-stack,\"\",@progbits\n");
    for (compiler, mode) in pairs() {
        for source in ["raw.s", "pre.S"] {
            lab.sh(&format!("{compiler} -c {source} -o plain.o"));
            lab.sh(&format!("everycall cc --mode {mode} -- {compiler} -c {source} -o ours.o"));
            assert_eq!(lab.read("plain.o"), lab.read("ours.o"), "{compiler} {source}");
        }
    }
    // Mixed with C in one command; what -S wrote becomes an object with sites.
    lab.write("both.c", "#include <stdio.h>\nint raw(void), pre(void);\nint main(void) { printf(\"%d\\n\", raw() + pre()); return 0; }\n");
    lab.sh("everycall-gcc -O2 both.c raw.s pre.S -o both");
    assert_eq!(lab.sh("./both"), "16\n");
    assert_eq!(sites(&lab, "both", "nops"), 2);
    lab.sh("everycall-gcc -O2 -S two.c");
    lab.sh("everycall-gcc -c two.s");
    let listing = lab.sh("objdump -h two.o");
    assert!(listing.contains("everycall_sites"), "{listing}");
    lab.sh("everycall-gcc -masm=intel -O2 one.c two.c -o intel");
    assert_eq!(lab.sh("./intel"), "5\n");
}

#[test]
fn commands_of_every_shape_link_and_run() {
    let lab = lab();
    fs::create_dir(lab.work().join("a folder")).unwrap();
    for (compiler, mode) in pairs() {
        let prefix = format!("everycall cc --mode {mode} -- {compiler}");
        lab.sh(&format!("{prefix} -c two.c"));
        lab.sh(&format!("{prefix} -O2 one.c two.o -o app"));
        assert_eq!(lab.sh("./app"), "5\n");
        let expected = sites(&lab, "app", mode);
        assert!(expected >= 4, "{prefix}: {expected}");
        for line in [
            "-pipe -O2 one.c two.o -o app",
            "@arguments",
            "-O2 two.o -x c one.c -o app",
            "-O2 one.c two.o -o app -Wl,--as-needed -lm",
            "-ffreestanding -O2 one.c two.o -o app",
            "-fomit-frame-pointer -O2 one.c two.o -o app",
            "-O2 -Wp,-DX one.c -Xlinker two.o -o app",
            "-Werror -O2 one.c two.o -o app",
            "-O2 -fcf-protection one.c two.o -o app",
            "-O2 -g3 one.c two.o -o app",
        ] {
            lab.write("arguments", "-O2 'one.c'\n\"two.o\" -o app\n");
            fs::remove_file(lab.work().join("app")).unwrap();
            lab.sh(&format!("{prefix} {line}"));
            assert_eq!(lab.sh("./app"), "5\n", "{prefix} {line}");
            assert!(sites(&lab, "app", mode) >= expected, "{prefix} {line}");
        }
        lab.sh(&format!("{prefix} -O2 -nostdlib -r one.c two.c -o joined.o"));
        lab.sh(&format!("{prefix} joined.o -o app"));
        assert_eq!(lab.sh("./app"), "5\n");
        assert!(sites(&lab, "app", mode) >= expected);
        // Untraced objects.
        lab.sh(&format!("{compiler} -c one.c -o plain.o"));
        lab.sh(&format!("{prefix} plain.o -o app"));
        assert_eq!(lab.sh("./app"), "5\n");
        lab.sh(&format!("{prefix} -Werror -o app plain.o -static"));
        assert_eq!(lab.sh("./app"), "5\n");
    }
    assert!(!lab.names().contains("gmon.out"));
}

#[test]
fn line_information_is_there_unless_the_user_says_otherwise() {
    let lab = lab();
    for (compiler, _) in pairs() {
        let has_lines = |options: &str| {
            lab.sh(&format!("everycall cc -- {compiler} {options} -c one.c"));
            lab.sh("objdump -h one.o").contains(".debug_line ")
        };
        assert!(has_lines("") && has_lines("-g"));
        assert!(!has_lines("-g0") && !has_lines("-gz=none"));
    }
}

#[test]
fn modes_mix_in_one_program() {
    let lab = lab();
    lab.take_programs();
    lab.sh("everycall cc --mode nops -- gcc -O2 -c plain.c");
    lab.sh("everycall cc --mode fentry -- g++ -O2 -c shapes.cpp");
    lab.sh("everycall cc --mode xray -- clang++-19 -O2 -c main.cpp");
    lab.sh("everycall cc -- g++ main.o shapes.o plain.o -pthread -o mixed");
    let printed = lab.ok(lab.command("./mixed").env("ORACLE_OUT", "counts"));
    assert!(printed.ends_with("106 42400 42400\n"), "{printed}");
    for (mode, function) in [("nops", "t_leaf"), ("fentry", "_ZN2tt3useEi"), ("xray", "main")] {
        let image = Image::read(&lab.work().join("mixed"), mode);
        assert!(
            image.places.iter().any(|place| image.function_at(place.address) == Some(function)),
            "{function}"
        );
    }
}

#[test]
fn compiler_caches_in_front_and_behind() {
    for (before, after) in [("", "ccache "), ("ccache ", "")] {
        let lab = lab();
        let statistics = |name: &str| -> u64 {
            let all = lab.sh("ccache --print-stats");
            all.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
        };
        let hits = || statistics("direct_cache_hit") + statistics("preprocessed_cache_hit");
        let compile = |mode: &str| match after {
            "" => lab.sh(&format!("{before}{}/everycall-gcc {mode} -O2 -c two.c", lab.bin().display())),
            _ => lab.sh(&format!("everycall cc -- {after}gcc {mode} -O2 -c two.c")),
        };
        compile("");
        let first = lab.read("two.o");
        assert_eq!(hits(), 0);
        compile("");
        assert_eq!((hits(), lab.read("two.o") == first), (1, true), "{before}{after}");
        compile("--everycall-mode=finstrument");
        assert_eq!(hits(), 1, "another mode is another object");
        assert!(lab.read("two.o") != first);
        compile("");
        assert_eq!((hits(), lab.read("two.o") == first), (2, true));
        assert!(lab.sh("objdump -h two.o").contains("everycall_sites"));
        // A cache never confuses objects compiled with and without the prefix.
        lab.sh("ccache gcc -O2 -c two.c");
        assert!(!lab.sh("objdump -h two.o").contains("everycall_sites"));
        lab.sh("everycall-gcc -O2 two.o one.c -o app");
        assert_eq!(lab.sh("./app"), "5\n");
    }
}

/// A cache takes the first word for the compiler. It may compile all the same, without caching.
#[test]
fn a_cache_before_the_prefix_is_told_where_it_belongs() {
    let lab = lab();
    let output = lab.run(&mut lab.command("ccache everycall cc -- gcc -O2 -c two.c"));
    let said = text(&output.stderr);
    assert!(said.contains("write it behind: everycall cc -- ccache gcc -c a.c"), "{said}");
    assert!(!output.status.success() || lab.sh("objdump -h two.o").contains("everycall_sites"));
    let output = lab.run(&mut lab.command("everycall cc -- ccache gcc -O2 -c two.c"));
    assert_eq!((text(&output.stderr), output.status.success()), (String::new(), true));
}

#[test]
fn the_environment_changes_no_object_code() {
    let lab = lab();
    lab.sh("everycall-gcc -O2 -c one.c -o first.o");
    let names = ["EVERYCALL_MODE", "EVERYCALL_RING_SIZE", "EVERYCALL_START", "EVERYCALL_CC", "MODE"];
    let mut command = lab.command("everycall-gcc -O2 -c one.c -o second.o");
    lab.ok(command.envs(names.map(|name| (name, "fentry"))));
    assert_eq!(lab.read("first.o"), lab.read("second.o"));
    // Without a home folder, the assembler step is elsewhere; the object is the same.
    let mut command = lab.command("env -u XDG_CACHE_HOME -u HOME everycall-gcc -O2 -c one.c -o third.o");
    lab.ok(&mut command);
    assert_eq!(lab.read("first.o"), lab.read("third.o"));
    // gcc's parallel link-time optimisation can't use folders with spaces; ours is elsewhere then,
    // too.
    let spaced = lab.work().join("it's a home");
    let mut shell = lab.command("env");
    shell
        .arg(format!("XDG_CACHE_HOME={}", spaced.display()))
        .args("everycall-gcc -O2 -flto=2 one.c two.c -o app".split(' '));
    lab.ok(&mut shell);
    assert!(!spaced.exists() && sites(&lab, "app", "nops") >= 2);
}

#[test]
fn make_runs_many_at_once_from_an_empty_cache() {
    let lab = Lab::new();
    let mut makefile = String::from("all: app\n");
    let mut objects = String::from("main.o");
    for index in 0..24 {
        lab.write(&format!("f{index}.c"), &format!("int t_f{index}(int x) {{ return x + {index}; }}\n"));
        objects += &format!(" f{index}.o");
    }
    lab.write("main.c", "int t_f3(int x); int main(void) { return t_f3(1) - 4; }\n");
    makefile += &format!("app: {objects}\n\t$(CC) $^ -o $@\n");
    lab.write("Makefile", &makefile);
    let mut command = lab.command("make -s -j8");
    lab.ok(command.arg("CC=everycall cc -- gcc"));
    lab.sh("./app");
    assert!(sites(&lab, "app", "nops") >= 50);
}

#[test]
fn a_killed_assembler_ends_the_step_by_the_same_signal() {
    let lab = lab();
    fs::create_dir(lab.work().join("fake")).unwrap();
    std::os::unix::fs::symlink(lab.bin().join("everycall"), lab.work().join("as")).unwrap();
    // The assembler replaces the step, or is its child.
    for functions in [3, 3000] {
        lab.write("many.c", &functions_in_c(functions));
        lab.sh("everycall-gcc -O2 -S many.c");
        lab.write("fake/as", "#!/bin/sh\nkill -KILL $$\n");
        lab.sh("chmod +x fake/as");
        let mut command = lab.command("./as -o many.o many.s");
        let output = lab.run(command.env("COMPILER_PATH", lab.work().join("fake")));
        assert_eq!(output.status.signal(), Some(9));
        lab.write("fake/as", "#!/bin/sh\nexit 7\n");
        let output = lab.run(&mut command);
        assert_eq!(output.status.code(), Some(7));
        assert!(!lab.names().contains("many.o"));
    }
}

#[test]
fn integration_files_build_traced_programs() {
    let lab = lab();
    let folder = lab.work().join("kit here");
    lab.ok(lab.command("everycall integrate").arg(&folder));
    for (compiler, mode) in pairs() {
        let flags = |what: &str, module: &str| {
            let mut command = lab.command(&format!("pkg-config {what}"));
            let name = format!("everycall-{mode}{module}");
            let printed = lab.ok(command.arg(name).env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig")));
            // pkg-config quotes the space in the folder's name.
            printed.trim().replace("\\ ", "?")
        };
        let run = |line: String| {
            let mut words = line.split_whitespace().map(|word| word.replace('?', " "));
            let mut command = std::process::Command::new(words.next().unwrap());
            lab.ok(command.args(words));
        };
        run(format!("{compiler} -O2 -fPIC {} -c two.c", flags("--cflags", "-module")));
        run(format!("{compiler} -shared two.o -o libtwo.so {}", flags("--libs", "-module")));
        run(format!("{compiler} -O2 {} -c one.c", flags("--cflags", "")));
        run(format!("{compiler} one.o ./libtwo.so -o app {}", flags("--libs", "")));
        assert_eq!(lab.ok(lab.command("./app").env("ORACLE_OUT", "counts")), "5\n");
        assert!(text(&lab.read("counts")).contains(" app "), "{compiler} {mode}");
        assert!(sites(&lab, "libtwo.so", mode) >= 2);
    }
    lab.write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\nfind_package(everycall REQUIRED)\n\
         add_library(two SHARED two.c)\ntarget_link_libraries(two PRIVATE everycall::everycall)\n\
         add_executable(app one.c)\ntarget_link_libraries(app PRIVATE two everycall::everycall)\n",
    );
    for (compiler, mode) in [("gcc", "nops"), ("clang-19", "xray")] {
        let build = lab.work().join(format!("build-{mode}"));
        let mut configure = lab.command(&format!(
            "cmake -GNinja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER={compiler} -S . -B"
        ));
        let output = lab.run(configure.arg(&build).arg(format!("-DCMAKE_PREFIX_PATH={}", folder.display())));
        assert!(output.status.success(), "{}", text(&output.stderr));
        lab.ok(lab.command("cmake --build").arg(&build));
        let app = lab.work().join(format!("build-{mode}/app"));
        assert_eq!(lab.ok(&mut std::process::Command::new(app)), "5\n");
        assert!(
            sites(&lab, &format!("build-{mode}/app"), mode) >= 4
                && sites(&lab, &format!("build-{mode}/libtwo.so"), mode) >= 2
        );
    }
}

#[test]
fn cmake_launchers() {
    let lab = lab();
    lab.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.21)\nproject(app C CXX)\nadd_library(two SHARED two.c)\nadd_executable(app one.c)\ntarget_link_libraries(app two)\n");
    let mut configure = lab.command("cmake -GNinja -S . -B build -DCMAKE_C_COMPILER_LAUNCHER=everycall;cc;-- -DCMAKE_C_LINKER_LAUNCHER=everycall;cc;--");
    let output = lab.run(&mut configure);
    assert!(output.status.success(), "{}", text(&output.stderr));
    lab.sh("cmake --build build");
    assert_eq!(lab.sh("build/app"), "5\n");
    assert!(sites(&lab, "build/app", "nops") >= 4 && sites(&lab, "build/libtwo.so", "nops") >= 2);
}
