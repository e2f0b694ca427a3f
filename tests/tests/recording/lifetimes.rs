//! Code before `main`, after it, and at the ends of threads and processes: the program behaves as
//! without everycall, and the events that the design promises are recorded.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everycall_tests::{Mode, Place, Recording, Tally, everycall, programs, successful};

fn program(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "lifetimes.c", "-pthread"], &format!("lifetimes-{}", mode.label()))
}

/// Builds the program without hooks.
fn plain(place: &Place) -> PathBuf {
    let path = place.file("lifetimes-plain");
    let source = everycall_tests::programs().join("lifetimes.c");
    let status = Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&path).arg(source).status();
    assert!(status.expect("gcc runs").success());
    path
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().expect("the program runs")
}

fn same(mode: Mode, recording: &Recording, plain: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&recording.output.stdout), text(&plain.stdout), "{mode:?}");
    assert_eq!(recording.output.status.code(), plain.status.code(), "{mode:?}: {recording:?}");
    assert_eq!(recording.output.status.signal(), plain.status.signal(), "{mode:?}: {recording:?}");
}

#[test]
fn before_and_after_main_and_the_ends_of_threads() {
    let place = Place::new("life");
    let expected = run(&plain(&place), &["life"]);
    for mode in Mode::in_turn(1) {
        let program = program(&place, mode);
        // Without a recorder, with one, and switched off.
        assert_eq!(run(&program, &["life"]).stdout, expected.stdout, "{mode:?}");
        let off = Command::new(&program).arg("life").env("EVERYCALL_START", "off").output().unwrap();
        assert_eq!(off.stdout, expected.stdout, "{mode:?}");
        let recording = place.record(&["--ring-size", "16M"], &program, &["life"]);
        same(mode, &recording, &expected);

        let trace = recording.trace();
        // Twenty threads are cancelled at any instruction; within a hook that costs the event in
        // hand.
        assert!(trace.losses() <= 20, "{mode:?}: {} lost", trace.losses());
        for name in [
            "early_constructor",
            "constructor",
            "preinit",
            "at_exit",
            "destructor",
            "main",
            "key_destructor",
            "c11_thread",
        ] {
            assert_eq!(trace.calls(name), 1, "{mode:?}: {name}");
        }
        assert_eq!(trace.tallies()["resolved"], Tally { entries: 1, exits: 1 }, "{mode:?}");
        let names: Vec<&str> = trace.threads.iter().map(|thread| &*thread.info.name).collect();
        assert!(names.contains(&"exiting") && names.contains(&"cancelled"), "{mode:?}: {names:?}");
        assert_eq!(trace.threads.len(), 24, "{mode:?}: {names:?}");
        // pthread_exit leaves frames without an exit. Whether the destructors that follow are shown
        // inside them depends on how deep the C library calls them: stack pointers are all there is
        // to go by.
        let exiting = trace.threads.iter().find(|thread| thread.info.name == "exiting").unwrap();
        assert_eq!(exiting.tallies["deep_exit"].entries, 6, "{mode:?}");
        assert_eq!(exiting.tallies["key_destructor"], Tally { entries: 1, exits: 1 }, "{mode:?}");
        assert_eq!(exiting.tallies["leaf"], Tally { entries: 81, exits: 81 }, "{mode:?}");
    }
}

#[test]
fn ten_thousand_short_threads() {
    let place = Place::new("threads");
    // The first mode with so many that every slot has had several threads.
    for (mode, count) in
        [(Mode::GCC_NOPS, 24_000), (Mode::GCC_FINSTRUMENT, 10_000), (Mode::CLANG19_XRAY, 10_000)]
    {
        let arguments = ["storm", &count.to_string()];
        let expected = run(&plain(&place), &arguments);
        let program = program(&place, mode);
        let recording = place.record(&["--ring-size", "64K"], &program, &arguments);
        same(mode, &recording, &expected);
        let trace = recording.trace();
        // Rings of ended threads go to new ones where there are no others left, and are counted.
        let recycled = trace.counters[1];
        assert_eq!(trace.threads.len() as u64 + recycled, count + 1, "{mode:?}");
        assert_eq!(trace.counters[0], 0, "{mode:?}: threads without a ring");
        let calls = trace.calls("short_thread");
        assert_eq!(calls + recycled, count, "{mode:?}");
        for thread in &trace.threads {
            assert!(thread.tallies.len() <= 12, "{mode:?}: {:?}", thread.tallies);
        }
    }
}

#[test]
fn every_end_leaves_a_whole_trace() {
    let place = Place::new("ends");
    let plain = plain(&place);
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let program = program(&place, mode);
        for how in ["_exit", "abort", "segv", "kill", "main_thread_exits", "descriptors"] {
            let expected = run(&plain, &["end", how]);
            let recording = place.record(&[], &program, &["end", how]);
            same(mode, &recording, &expected);
            let trace = recording.trace();
            let main = trace.main();
            assert_eq!(main.info.name.get(..9), Some("lifetimes"), "{mode:?} {how}");
            let expected_leaves = 4 + match how {
                "_exit" | "segv" | "kill" => 2,
                "main_thread_exits" => 3,
                "descriptors" => 4,
                _ => 1,
            };
            assert_eq!(trace.calls("leaf"), expected_leaves, "{mode:?} {how}");
        }
    }
}

#[test]
fn limits_of_memory_and_file_size() {
    let place = Place::new("limits");
    let program = program(&place, Mode::GCC_NOPS);
    let expected = run(&program, &["life"]);
    for limit in [
        "ulimit -v 400000",
        "ulimit -v 220000",
        "ulimit -v 180000",
        "ulimit -f 100",
        "ulimit -n 16",
        "ulimit -s 512",
    ] {
        let script = format!("{limit}; exec {} life", program.display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(output.stdout, expected.stdout, "{limit}");
        assert!(output.status.success(), "{limit}: {output:?}");
    }
}

/// The runtime's memory, most of which is address space, doesn't count.
#[test]
fn all_memory_is_locked_but_the_runtimes() {
    let place = Place::new("lock-memory");
    let plain = place.file("plain");
    successful(place.command("gcc").args(["-O1", "lock_memory.c", "-o"]).arg(&plain).current_dir(programs()));
    let expected = successful(place.command(&plain).arg("rights"));
    assert!(expected.contains("current: 0 "), "{expected}");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        for more in [&[][..], &["-static"]] {
            let arguments = [&["-O1", "lock_memory.c"], more].concat();
            let name = format!("lock-memory-{}-{}", mode.label(), more.len());
            let program = place.build(mode, &arguments, &name);
            assert_eq!(place.record(&[], &program, &["rights"]).stdout(), expected, "{name}, recorded");
            assert_eq!(successful(place.command(&program).arg("rights")), expected, "{name}, alone");
        }
    }
}

/// The program limits its own memory, not the runtime's reservations.
#[test]
fn a_limit_of_address_space_is_the_programs_own() {
    let place = Place::new("address-limit");
    let plain = place.file("plain");
    successful(
        place.command("gcc").args(["-O1", "address_limit.c", "-o"]).arg(&plain).current_dir(programs()),
    );
    let expected = successful(&mut place.command(&plain));
    assert!(expected.contains("set: 512 1024 MB, malloc yes, 64 MB yes, 700 MB no, 8 GB no"), "{expected}");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        for more in [&[][..], &["-static"], &["-D_FILE_OFFSET_BITS=64"]] {
            let arguments = [&["-O1", "address_limit.c"], more].concat();
            let name = format!("address-limit-{}-{}", mode.label(), more.concat());
            let program = place.build(mode, &arguments, &name);
            let recording = place.record(&[], &program, &[]);
            assert_eq!(recording.stdout(), expected, "{name}, recorded: {recording:?}");
            assert_eq!(successful(&mut place.command(&program)), expected, "{name}, alone");
        }
    }
    // By libraries that are preloaded, also beside wrappers.
    for (option, name) in [("--preload", "plain"), ("--waits", "address-limit-gcc-nops-")] {
        let mut record = place.command(everycall());
        record.args(["record", "-q", option, "-o", "p.ect", "--"]).arg(place.file(name));
        assert_eq!(successful(&mut record), expected, "{option}");
    }
}

#[test]
fn a_bad_value_is_a_warning() {
    let place = Place::new("values");
    let program = program(&place, Mode::GCC_NOPS);
    for (name, value, used) in [
        ("EVERYCALL_RING_SIZE", "12", "Using 1M"),
        ("EVERYCALL_RING_SIZE", "", "Using 1M"),
        ("EVERYCALL_START", "maybe", "Using on"),
    ] {
        let output = Command::new(&program).arg("nothing").env(name, value).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.starts_with(&format!("everycall: {name}={value} isn't understood; allowed is ")),
            "{text}"
        );
        assert!(text.contains(used), "{text}");
        assert!(output.status.success());
    }
    // Control characters that a terminal would obey aren't passed on.
    for name in ["EVERYCALL_START", "EVERYCALL_RECORDER", "EVERYCALL_CRASH", "EVERYCALL_TRIGGERS"] {
        let mut command = Command::new(&program);
        let output = command.arg("nothing").env(name, "/\u{1b}]0;title\u{7}\n").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(&format!("{name}=/?]0;title?? ")), "{text:?}");
        assert!(output.status.success());
    }
}
