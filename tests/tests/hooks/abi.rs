//! Calls are left as they were: every argument and result, every register, in every mode.
//!
//! By default each program makes some ten thousand calls a run; with `EVERYCALL_FULL=1` there are
//! more functions, and more than a million calls a run.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use everycall_tests::abi::{Dialect, PROBE_ASSEMBLY, PROBE_BROKEN, PROBE_C, generate};
use everycall_tests::{Mode, Place, TraceView, everycall, is_full, successful};

/// Where the generator's random numbers begin.
const SEED: u64 = 7;
/// Rings of the smallest size: the slow path at every few hundred events.
const RING_SIZE_MIN: &str = "64K";

/// Runs jobs on all processors.
fn in_parallel<T: Send>(jobs: Vec<T>, run: impl Fn(T) + Sync) {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = Mutex::new(jobs);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = { jobs.lock().expect("no worker panics with the lock").pop() } {
                    run(job);
                }
            });
        }
    });
}

/// A generated program in one language, one optimisation level, and the modes that share a
/// compiler.
struct Generated {
    is_cxx: bool,
    level: &'static str,
    modes: Vec<Mode>,
}

fn generated() -> Vec<Generated> {
    let mut all = Vec::new();
    for level in ["-O0", "-O2"] {
        for is_cxx in [false, true] {
            for compiler in ["gcc", "clang-19", "clang-22"] {
                let of_compiler = Mode::ALL.into_iter().filter(|mode| mode.cc == compiler);
                // C++ adds little that hooks could notice.
                let modes = of_compiler.take(if is_cxx && !is_full() { 1 } else { usize::MAX }).collect();
                if is_full() || !is_cxx || compiler != "clang-22" {
                    all.push(Generated { is_cxx, level, modes });
                }
            }
        }
    }
    all
}

#[test]
fn arguments_and_results_of_every_class_are_kept() {
    let place = Place::new("abi");
    let (functions, calls) = if is_full() { (400, "1000000") } else { (96, "40000") };
    let source = |dialect: Dialect, name: &str| {
        let name = format!("{name}.{}", dialect.extension());
        place.write(&name, &generate(dialect, functions, SEED));
        name
    };
    let sources = [
        [source(Dialect::GccC, "gcc"), source(Dialect::GccCxx, "gcc")],
        [source(Dialect::ClangC, "clang"), source(Dialect::ClangCxx, "clang")],
    ];
    everycall();
    in_parallel(generated(), |Generated { is_cxx, level, modes }| {
        let first = modes[0];
        let compiler = if is_cxx { first.cxx } else { first.cc };
        let source = &sources[usize::from(first.cc != "gcc")][usize::from(is_cxx)];
        // Warnings are about vectors in functions with attributes: gcc mentions that its ABI has
        // changed.
        let flags = ["-w", level, "-pthread", source];
        let untraced = place.file(&format!("untraced-{compiler}{level}"));
        successful(place.command(compiler).args(flags).arg("-o").arg(&untraced));
        let expected = successful(place.command(&untraced).arg(calls));
        assert!(
            expected.ends_with("changed: errno 0, MXCSR 0, x87 control word 0, x87 stack 0, direction 0\n"),
            "without hooks already: {expected}"
        );
        for mode in modes {
            let name = format!("{}{level}{}", mode.label(), if is_cxx { "-cxx" } else { "" });
            let copies = copies_values(mode) && !is_cxx && level == "-O2";
            let debug: &[&str] = if copies { &["-g"] } else { &[] };
            let program = place.build(mode, &[&flags[..], debug].concat(), &name);
            if copies {
                let captures = captures(&place, &program, &["f_*"], &["f_*"]);
                for ring_size in ["1M", RING_SIZE_MIN] {
                    let mut command = place.command(&program);
                    command.arg(calls).env("EVERYCALL_RING_SIZE", ring_size).env("EVERYCALL_ARGS", &captures);
                    let found = successful(&mut command);
                    assert_same(&expected, &found, &format!("{name}, values are copied, {ring_size}"));
                }
            }
            for (variable, value) in [
                ("EVERYCALL_RING_SIZE", "1M"),
                ("EVERYCALL_RING_SIZE", RING_SIZE_MIN),
                ("EVERYCALL_START", "off"),
            ] {
                let found = successful(place.command(&program).arg(calls).env(variable, value));
                assert_same(&expected, &found, &format!("{name}, {variable}={value}"));
            }
            assert_all_are_traced(&place, &name, &program);
        }
    });
}

/// Modes with hooks that copy values: each kind of hooks once.
fn copies_values(mode: Mode) -> bool {
    [Mode::GCC_NOPS, Mode::CLANG19_XRAY].contains(&mode)
}

/// A file with what is copied of the calls of these functions, for `EVERYCALL_ARGS`.
fn captures(place: &Place, program: &Path, arguments: &[&str], results: &[&str]) -> PathBuf {
    let file = program.with_extension("eca");
    let mut resolve = place.command(everycall());
    resolve.arg("resolve");
    for (option, values) in [("--args", arguments), ("--results", results)] {
        values.iter().for_each(|value| {
            resolve.args([option, value]);
        });
    }
    successful(resolve.arg("-o").arg(&file).arg(program));
    file
}

/// The first line that differs, by name.
fn assert_same(expected: &str, found: &str, what: &str) {
    let different = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(different.is_none(), "{what}: expected, found {different:?}");
    assert_eq!(expected.lines().count(), found.lines().count(), "{what}");
}

/// The hooks must have run in each call; otherwise the rest shows nothing.
fn assert_all_are_traced(place: &Place, name: &str, program: &Path) {
    let recording = place.record(&["--ring-size", "8M"], program, &["3000"]);
    assert!(recording.output.status.success(), "{name}: {:?}", recording.output);
    let trace = TraceView::tallies_only(&recording.file);
    assert_eq!(trace.losses(), 0, "{name}");
    let tallies = trace.tallies();
    let called = |function: &str| -> u64 {
        // Without what compilers add to names of nested functions, of copies and for calling
        // conventions, and without a signature.
        let is_it = |name: &str| {
            name.trim_start_matches("__regcall3__").split(['.', '(', '@']).next() == Some(function)
        };
        tallies.iter().filter(|(name, _)| is_it(name)).map(|(_, tally)| tally.entries).sum()
    };
    for line in recording.stdout().lines() {
        let Some((function, rest)) = line.split_once(": ").filter(|(name, _)| name.starts_with("f_")) else {
            continue;
        };
        let calls: u64 = rest.split(' ').next().and_then(|count| count.parse().ok()).expect("calls");
        assert_eq!(called(function), calls, "{name}: entries of {function}");
    }
}

fn write_probe(place: &Place) {
    place.write("probe.c", PROBE_C);
    place.write("probe.S", PROBE_ASSEMBLY);
    place.write("probe_broken.S", PROBE_BROKEN);
    place.write(
        "host.c",
        "int probe_main(int, char **);\nint main(int argc, char **argv) { return probe_main(argc, argv); }\n",
    );
}

/// The flags with which the compilers' own code changes no register in the tested functions.
const PROBE_FLAGS: [&str; 6] = ["-w", "-O2", "-fomit-frame-pointer", "-pthread", "probe.c", "probe.S"];

#[test]
fn every_register_is_kept() {
    let place = Place::new("registers");
    write_probe(&place);
    let calls = if is_full() { "150000" } else { "2000" };
    everycall();
    in_parallel(Mode::ALL.to_vec(), |mode| {
        let mut flags = PROBE_FLAGS.to_vec();
        if !mode.is_body() {
            flags.push("-DSITES");
        }
        let label = mode.label();
        probe(&place, mode, &place.build(mode, &flags, &label), calls);

        // The hooks of shared objects reach their thread's control block in another way.
        let library = format!("lib{label}.so");
        let options = [
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-Dmain=__attribute__((visibility(\"default\"))) probe_main",
        ];
        place.build(mode, &[&flags[..], &options].concat(), &library);
        let link = ["host.c", &format!("-l{label}"), "-L.", "-Wl,-rpath,$ORIGIN"];
        probe(&place, mode, &place.build(mode, &link, &format!("{label}-host")), calls);
    });
}

/// Runs the probe with large and small rings, off, and under the recorder.
fn probe(place: &Place, mode: Mode, program: &Path, calls: &str) {
    let what = program.file_name().unwrap_or_default().to_string_lossy();
    for ring_size in ["1M", RING_SIZE_MIN] {
        let mut command = place.command(program);
        command.arg(calls).env("EVERYCALL_RING_SIZE", ring_size);
        // Seconds: the clock's upper half changes that rarely.
        if is_full() || ring_size == "1M" && mode == Mode::GCC_NOPS {
            command.arg("clock");
        }
        let printed = successful(&mut command);
        assert!(printed.contains(" 0 differences"), "{what}: {printed}");
    }
    if copies_values(mode) && !what.ends_with("-host") {
        // The registers needn't hold addresses.
        let values = "(arg1:long, arg2:str, arg3:str, fparg1:f64, fparg8:f32)";
        let wanted = ["made_plain", "made_tail_target"].map(|function| format!("{function}{values}"));
        let captures = captures(place, program, &wanted.each_ref().map(String::as_str), &[]);
        let mut command = place.command(program);
        command.arg(calls).env("EVERYCALL_ARGS", captures);
        let printed = successful(&mut command);
        assert!(printed.contains(" 0 differences"), "{what}, values are copied: {printed}");
    }
    successful(place.command(program).arg("500").env("EVERYCALL_START", "off"));
    let recording = place.record(&["--ring-size", "8M"], program, &["500"]);
    assert!(recording.output.status.success(), "{what}: {:?}", recording.output);
    let tallies = TraceView::tallies_only(&recording.file).tallies();
    let by_hand = ["hand_fentry", "hand_fentry_tail", "hand_fentry_target", "hand_cyg", "hand_cyg_jump"];
    let made = ["made_plain", "made_tail", "made_tail_target"];
    for function in by_hand.iter().chain(made.iter().filter(|_| !mode.is_body())) {
        let entries = tallies.get(*function).map_or(0, |tally| tally.entries);
        assert!(entries >= 500, "{what}: {function} has {entries} entries");
    }
}

#[test]
fn a_hook_that_changes_anything_is_seen() {
    let place = Place::new("broken");
    write_probe(&place);
    let run = |name: &str, change: &str| {
        let program: PathBuf = place.file("probe");
        successful(
            place
                .command("gcc")
                .args(PROBE_FLAGS)
                .arg("probe_broken.S")
                .arg(format!("-DBREAK={change}"))
                .arg("-o")
                .arg(&program),
        );
        let output = place.command(&program).arg("5").output().expect("the probe runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(i32::from(!name.is_empty())), "{change}: {printed}");
        assert!(
            name.is_empty() || printed.contains(&format!(": {name} isn't what it was")),
            "{change}: {printed}"
        );
    };
    run("", "nop");
    for register in ["rax", "rcx", "rdx", "rbx", "rsi", "rdi", "rbp"] {
        run(register, &format!("not %{register}"));
    }
    for number in 8..16 {
        run(&format!("r{number}"), &format!("not %r{number}"));
    }
    run("xmm", "pcmpeqd %xmm15, %xmm15");
    run("x87 control word", "fldcw 2(%rsp)");
    run("x87 status word", "fincstp");
    run("x87 tags", "ffree %st(3)");
    run("MXCSR", "ldmxcsr usual(%rip); .pushsection .rodata; usual: .long 0x1f80; .popsection");
    run("direction flag", "pushfq; xorl $0x400, (%rsp); popfq");
    if std::is_x86_feature_detected!("avx") {
        run("upper halves of ymm", "vzeroupper");
    }
    if std::is_x86_feature_detected!("avx512f") {
        run("masks", "kxorw %k3, %k3, %k3");
        run("upper halves of zmm", "vmovaps %ymm4, %ymm4");
        run("zmm16-31", "vpxord %zmm20, %zmm20, %zmm20");
    }
}

#[test]
fn the_generated_program_notices_what_hooks_must_not_do() {
    let place = Place::new("noticing");
    place.write("gcc.c", &generate(Dialect::GccC, 96, SEED));
    place.write("broken.S", PROBE_BROKEN);
    let object = place.file("gcc.o");
    let hooks = ["-w", "-pg", "-mfentry", "-minstrument-return=call", "-c", "gcc.c", "-o"];
    successful(place.command("gcc").args(hooks).arg(&object));
    let program = place.file("program");
    let run = |change: &str| {
        let mut link = place.command("gcc");
        link.args(["-pthread", "broken.S"]).arg(&object).arg(format!("-DBREAK={change}"));
        successful(link.arg("-o").arg(&program));
        let output = place.command(&program).arg("3000").output().expect("the program runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let good = run("nop").expect("hooks that do nothing harm nothing");
    // Not r10, the static chain: gcc itself saves it around the call. The probe checks it.
    let mut changes = vec![
        "xorl %eax, %eax", // results; variadic arguments in vector registers
        "xorl %edx, %edx", // arguments, second halves of results
        "xorl %edi, %edi",
        "xorl %esi, %esi",
        "xorl %ecx, %ecx",
        "xorl %r8d, %r8d",
        "xorl %r9d, %r9d",
        "pxor %xmm0, %xmm0",
        "pxor %xmm1, %xmm1",
        "pxor %xmm7, %xmm7",
        "fninit", // results on the x87 stack
        "ffree %st(1)",
    ];
    if std::is_x86_feature_detected!("avx") {
        changes.push("vzeroupper");
    }
    if std::is_x86_feature_detected!("avx512f") {
        changes.push("vmovaps %ymm0, %ymm0"); // the upper half of what 512 bits hold
    }
    for change in changes {
        assert!(run(change).as_ref() != Some(&good), "{change} makes no difference");
    }
}
