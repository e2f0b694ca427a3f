//! Stacks can be walked from anywhere in a traced function and its hooks: by a profiler's signal
//! handler, by a crash handler, by the C library when it cancels a thread.
//!
//! | oracle | what it looks at |
//! |---|---|
//! | `walks.cpp` | each instruction: all frames, and all registers that functions have to restore, by three unwinders |
//! | `cancelled_anywhere.c` | asynchronous cancellation; `EVERYCALL_CANCELS=100000` threads, fewer by default |
//! | `profiler.c` | real programs under 10,000 samples a second; gperftools where it is installed |
//! | perf | samples whose stacks it walks afterwards |

use std::path::{Path, PathBuf};

use everycall_tests::workloads::{Build, Linkage, Workload};
use everycall_tests::{Mode, Place, is_full, number_asked, successful};

/// At most one of them is missing on a machine that passes the tests: the second is LLVM's own, the
/// third comes with profilers.
const LLVM_UNWINDERS: [&str; 2] =
    ["/usr/lib/llvm-19/lib/libunwind.so.1", "/usr/lib/llvm-22/lib/libunwind.so.1"];
const OLD_UNWINDER: &str = "/usr/lib/x86_64-linux-gnu/libunwind.so.8";
const GPERFTOOLS: &str = "/usr/lib/x86_64-linux-gnu/libprofiler.so.0";

/// Options that determine the form of epilogues.
const FLAGS: [&[&str]; 3] = [&["-O0"], &["-O2"], &["-O2", "-fno-omit-frame-pointer"]];

fn unwinders() -> Vec<Vec<&'static str>> {
    let llvm = LLVM_UNWINDERS.into_iter().find(|path| Path::new(path).exists());
    let llvm = llvm.expect("LLVM's unwinder (Debian: libunwind-19)");
    let old = Path::new(OLD_UNWINDER).exists().then_some(vec!["nongnu", OLD_UNWINDER]);
    [vec!["gcc"], vec!["llvm", llvm]].into_iter().chain(old).collect()
}

#[test]
fn every_instruction_of_hooks_and_epilogues_can_be_walked_from() {
    let place = Place::new("walks");
    for (index, mode) in Mode::ALL.into_iter().enumerate() {
        // Without `EVERYCALL_FULL`, each mode has one level, and each level several modes.
        let levels =
            FLAGS.iter().enumerate().filter(|(number, _)| is_full() || *number == index % FLAGS.len());
        for (number, flags) in levels {
            let arguments = [&["-g", "walks.cpp", "-ldl"], *flags].concat();
            let program = place.build(mode, &arguments, &format!("{}-{number}", mode.label()));
            let mut unwinders = unwinders();
            if !is_full() {
                // Each of them at another level or mode.
                unwinders = vec![unwinders.swap_remove((index / FLAGS.len() + number) % unwinders.len())];
            }
            for unwinder in unwinders {
                let printed = successful(place.command(&program).args(&unwinder));
                let label = format!("{} {flags:?} {unwinder:?}: {printed}", mode.label());
                assert!(printed.contains(", 0 walks were wrong"), "{label}");
                let in_hooks = printed.split(" steps, ").nth(1).and_then(|rest| rest.split(' ').next());
                let in_hooks: u32 = in_hooks.expect("a count").parse().expect("a number");
                assert!(in_hooks > 5000, "{label}");
            }
        }
    }
}

/// gcc makes code at the link by way of the assembler, so that code, too, is complete. clang's
/// linker doesn't: the modes that work with `-flto` have no sites in epilogues.
#[test]
fn code_that_is_made_at_the_link_can_be_walked_through() {
    let place = Place::new("walks-lto");
    for mode in [
        Mode::GCC_NOPS,
        Mode::GCC_FENTRY,
        Mode::GCC_FINSTRUMENT,
        Mode::CLANG19_FINSTRUMENT,
        Mode::CLANG19_AFTER_INLINING,
    ] {
        let program = place.build(mode, &["-O2", "-flto", "-g", "walks.cpp", "-ldl"], &mode.label());
        let printed = successful(place.command(&program).arg("gcc"));
        assert!(printed.contains(", 0 walks were wrong"), "{}: {printed}", mode.label());
    }
}

#[test]
fn threads_can_be_cancelled_anywhere() {
    let place = Place::new("cancelled-anywhere");
    let threads = number_asked("EVERYCALL_CANCELS").unwrap_or(300).to_string();
    for mode in Mode::in_turn(1) {
        for (flags, starts) in [(FLAGS[0], &["on", "off"][..]), (FLAGS[2], &["on"])] {
            let arguments = [&["cancelled_anywhere.c", "-pthread"], flags].concat();
            let program = place.build(mode, &arguments, &format!("{}{}", mode.label(), flags[0]));
            for start in starts {
                let printed = successful(place.command(&program).arg(&threads).env("EVERYCALL_START", start));
                let expected = format!("{threads} threads, 0 wrong\n");
                assert_eq!(printed, expected, "{} {flags:?}", mode.label());
            }
        }
    }
}

fn profiler(place: &Place) -> PathBuf {
    let source = everycall_tests::programs().join("profiler.c");
    let library = place.file("profiler.so");
    let options = ["-O2", "-shared", "-fPIC", "-Wall", "-Werror"];
    successful(place.command("gcc").args(options).arg(source).arg("-o").arg(&library).arg("-ldl"));
    library
}

/// SQLite as other tests compile it, too; LevelDB with frame pointers, which programs for profiling
/// are compiled with.
#[test]
fn profilers_walk_real_programs() {
    let place = Place::new("profiled");
    let library = profiler(&place);
    let with_frame_pointers: &[&str] = &["-O2", "-fno-omit-frame-pointer"];
    let programs = if is_full() { 2 } else { 1 };
    for (workload, flags, modes) in [
        // First the mode in which others compile it, too.
        (Workload::SQLITE, &["-O1"][..], [Mode::GCC_NOPS, Mode::CLANG19_XRAY]),
        (Workload::LEVELDB, with_frame_pointers, [Mode::GCC_FENTRY, Mode::CLANG19_XRAY]),
    ]
    .into_iter()
    .take(programs)
    {
        for mode in modes.into_iter().take(programs) {
            let build = Build { workload, mode: Some(mode), flags };
            let label = build.label();
            let program = place.file(&label);
            build.link(Linkage::Traced, &program);
            let run = || {
                let mut command = place.command(&program);
                command.args(workload.large);
                command
            };
            let plain = successful(&mut run());
            let report = place.file("report");
            let profiled = successful(run().env("LD_PRELOAD", &library).env("PROFILER_OUT", &report));
            assert_eq!(plain, profiled, "{label}");
            let report = std::fs::read_to_string(&report).expect("the profiler's report");
            let mut numbers = report.split_whitespace().map_while(|word| word.parse::<u64>().ok());
            let (walks, broken) = (numbers.next(), numbers.next());
            assert!(walks > Some(100), "{label}: {report}");
            assert_eq!(broken, Some(0), "{label}: {report}");
            if Path::new(GPERFTOOLS).exists() {
                let file = place.file("profile");
                let mut command = run();
                command.env("LD_PRELOAD", GPERFTOOLS).env("CPUPROFILE", &file);
                assert_eq!(plain, successful(command.env("CPUPROFILE_FREQUENCY", "4000")), "{label}");
                assert!(file.metadata().is_ok_and(|data| data.len() > 1000), "{label}");
            }
        }
    }
}

/// perf copies the stack at each sample and walks it later. (The slow path has stacks of its own,
/// where perf finds the runtime's frames alone.)
#[test]
fn perf_finds_the_callers_of_hooks() {
    let place = Place::new("perf");
    let data = place.file("perf.data");
    let record = |program: &Path| {
        let mut command = place.command("perf");
        command.args(["record", "-q", "-e", "cpu-clock:u", "-F", "5000", "--call-graph", "dwarf,2048", "-o"]);
        command.arg(&data).arg("--").arg(program);
        command
    };
    if !record(Path::new("true")).output().is_ok_and(|output| output.status.success()) {
        eprintln!("perf may not look at programs here (kernel.perf_event_paranoid, seccomp): not tried");
        return;
    }
    for (mode, clock) in [
        (Mode::GCC_NOPS, "exact"),
        (Mode::GCC_NOPS, "bounded"),
        (Mode::GCC_FENTRY, "exact"),
        (Mode::CLANG19_XRAY, "exact"),
    ] {
        let flags = ["-O2", "-fno-omit-frame-pointer", "-g", "profiled.c"];
        let program = place.build(mode, &flags, &mode.label());
        successful(record(&program).env("EVERYCALL_CLOCK", clock));
        let script = successful(place.command("perf").args(["script", "-F", "ip,sym", "-i"]).arg(&data));
        let (mut in_hooks, mut samples, mut broken) = (0, 0, Vec::new());
        for sample in script.split("\n\n") {
            let frames: Vec<&str> = sample.lines().filter_map(|line| line.trim().split(' ').nth(1)).collect();
            let is_ours = |name: &&str| ["leaf", "saves", "jumps", "outer"].contains(name);
            let is_hook = |name: &str| match clock {
                "exact" => matches!(name, "everycall_entry" | "everycall_exit"),
                _ => name.starts_with("everycall_unstamped_") || name.starts_with("everycall_stamped_"),
            };
            let in_hook = frames.first().is_some_and(|name| is_hook(name));
            if in_hook || frames.first().is_some_and(is_ours) {
                in_hooks += u32::from(in_hook);
                samples += 1;
                if !frames.contains(&"main") {
                    broken.push(frames.join(" "));
                }
            }
        }
        // Once in some 40,000 samples, on a busy machine, a walk of perf's own has ended early, in
        // a function without a hook. One instruction with wrong unwind information is seen in every
        // hundredth sample at least.
        assert!(
            broken.len() * 500 <= samples,
            "{}, {clock}: {} of {samples}: {:?}",
            mode.label(),
            broken.len(),
            broken.first()
        );
        assert!(in_hooks > 100, "{}, {clock}: {in_hooks} samples in hooks", mode.label());
    }
}
