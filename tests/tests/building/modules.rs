//! Traced code in executables of every kind, in shared objects, linked and loaded, in mixed modes,
//! and in hosts without the runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::{Mode, Place, Recording, Tally, TraceView};

fn source(name: &str) -> String {
    everycall_tests::programs().join(name).to_str().unwrap().to_owned()
}

fn compile(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Calls that `use` makes in the library and the host, once.
fn check_use(mode: Mode, trace: &TraceView, times: u64, loads: u64) {
    let tallies = trace.tallies();
    let both = |entries: u64, exits: u64| Tally { entries, exits };
    assert_eq!(tallies["library_work"], both(times, times), "{mode:?}");
    assert_eq!(
        tallies["shapes::Counter::add(int)"],
        both(10 * times + loads, 10 * times + loads),
        "{mode:?}"
    );
    assert_eq!(tallies["shapes::inner(int)"], both(10 * times + loads, 10 * times + loads), "{mode:?}");
    assert_eq!(tallies["library_throw"].entries, 4 * times, "{mode:?}");
    assert_eq!((trace.losses(), trace.main().orphans), (0, 0), "{mode:?}");
}

fn plain_stdout(place: &Place, linked: bool, plugins: &[&Path]) -> Vec<u8> {
    let (library, host) = (place.file("plain-library.so"), place.file("plain-host"));
    compile(
        Command::new("g++").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source("library.cpp")),
    );
    let mut command = Command::new("g++");
    command.args(["-O1", "-o"]).arg(&host).arg(source("host.cpp"));
    if linked {
        command.arg("-DLINKED").arg(&library);
    }
    compile(&mut command);
    Command::new(&host).args(plugins).output().unwrap().stdout
}

#[test]
fn linked_and_loaded() {
    let place = Place::new("modules");
    for mode in Mode::in_turn(1) {
        let label = mode.label();
        let library = place.build(mode, &["-O1", "-shared", "-fPIC", "library.cpp"], &format!("{label}.so"));
        let plugin =
            place.build(mode, &["-O1", "-shared", "-fPIC", "library.cpp"], &format!("{label}-plugin.so"));
        let library_name = library.to_str().unwrap().to_owned();
        let program = place.build(mode, &["-O1", "-DLINKED", "host.cpp", &library_name], &label);
        let expected = plain_stdout(&place, true, &[&plugin]);
        let recording = place.record(&[], &program, &[plugin.to_str().unwrap()]);
        assert_eq!(recording.output.stdout, expected, "{mode:?}: {recording:?}");
        let trace = recording.trace();
        check_use(mode, &trace, 2, 2);
        assert_eq!(trace.calls("main"), 1, "{mode:?}");
        assert_eq!(trace.calls("host_leaf(int)"), 4, "{mode:?}");
        // Initialisers of a library run before main, those of a plugin inside its dlopen.
        assert_eq!(trace.warnings, Vec::<String>::new(), "{mode:?}");
    }
}

#[test]
fn a_traced_plugin_in_an_untraced_host() {
    let place = Place::new("plugin");
    let host = place.file("host");
    compile(Command::new("g++").args(["-O1", "-o"]).arg(&host).arg(source("host.cpp")));
    for mode in Mode::in_turn(0) {
        let plugin =
            place.build(mode, &["-O1", "-shared", "-fPIC", "library.cpp"], &format!("{}.so", mode.label()));
        let expected = plain_stdout(&place, false, &[&plugin]);
        // Without a runtime the plugin's sites stay off.
        let alone = Command::new(&host).arg(&plugin).output().unwrap();
        assert_eq!(alone.stdout, expected, "{mode:?}");
        let recording: Recording = place.record(&["--preload"], &host, &[plugin.to_str().unwrap()]);
        assert_eq!(recording.output.stdout, expected, "{mode:?}: {recording:?}");
        check_use(mode, &recording.trace(), 1, 1);
    }
}

#[test]
fn a_traced_library_of_an_untraced_program() {
    let place = Place::new("needed");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let library =
            place.build(mode, &["-O1", "-shared", "-fPIC", "library.cpp"], &format!("{}.so", mode.label()));
        let host = place.file("host");
        compile(
            Command::new("g++")
                .args(["-O1", "-DLINKED", "-o"])
                .arg(&host)
                .arg(source("host.cpp"))
                .arg(&library),
        );
        let recording = place.record(&[], &host, &[]);
        assert_eq!(recording.output.stdout, plain_stdout(&place, true, &[]), "{mode:?}: {recording:?}");
        check_use(mode, &recording.trace(), 1, 1);
    }
}

#[test]
fn every_kind_of_executable() {
    let place = Place::new("kinds");
    let kinds: [&[&str]; 5] =
        [&["-no-pie"], &["-pie", "-fPIE"], &["-static"], &["-static-pie", "-fPIE"], &["-flto"]];
    for mode in Mode::in_turn(1) {
        for (number, kind) in kinds.iter().enumerate() {
            if kind == &["-flto"] && mode.cc != "gcc" {
                continue; // With clang it needs lld; crates/building/compiler tests that.
            }
            let arguments: Vec<&str> = [&["-O1", "-DNO_PREINIT", "lifetimes.c", "-pthread"], *kind].concat();
            let program = place.build(mode, &arguments, &format!("{}-{number}", mode.label()));
            let recording = place.record(&[], &program, &["end", "descriptors"]);
            assert!(recording.output.status.success(), "{mode:?} {kind:?}: {recording:?}");
            let trace = recording.trace();
            for name in ["main", "early_constructor", "constructor", "at_exit", "destructor"] {
                assert_eq!(trace.calls(name), 1, "{mode:?} {kind:?}: {name}");
            }
            assert_eq!(trace.calls("leaf"), 7, "{mode:?} {kind:?}");
            assert_eq!(trace.losses(), 0, "{mode:?} {kind:?}");
        }
    }
}

#[test]
fn modes_mix_in_one_program() {
    let place = Place::new("mixed");
    let object = |mode: Mode, number: u32| -> PathBuf {
        let path = place.file(&format!("part-{number}.o"));
        let text = format!(
            "__attribute__((noinline)) int part_leaf_{number}(int v) {{ __asm__ volatile(\"\" : \"+r\"(v)); return v + 1; }}\n\
             __attribute__((noinline)) int part_{number}(int v) {{ return part_leaf_{number}(v) * 2; }}\n"
        );
        let source = place.write(&format!("part-{number}.c"), &text);
        let mut command = place.command(everycall_tests::everycall());
        command.args(["cc", "--mode", mode.name, "--", mode.cc, "-O1", "-c", "-o"]).arg(&path).arg(source);
        compile(&mut command);
        path
    };
    let objects: Vec<PathBuf> = (0..).zip(Mode::ALL).map(|(number, mode)| object(mode, number)).collect();
    let calls: String = (0..objects.len()).map(|number| format!("sum += part_{number}(i);")).collect();
    let declarations: String = (0..objects.len()).map(|number| format!("int part_{number}(int);")).collect();
    place.write(
        "main.c",
        &format!("#include <stdio.h>\n{declarations}\nint main(void) {{ long sum = 0; for (int i = 0; i < 100; i++) {{ {calls} }} printf(\"%ld\\n\", sum); }}\n"),
    );
    let mut arguments = vec!["-O1", "main.c"];
    arguments.extend(objects.iter().map(|path| path.to_str().unwrap()));
    let program = place.build(Mode::GCC_NOPS, &arguments, "mixed");
    let recording = place.record(&[], &program, &[]);
    assert_eq!(recording.stdout(), format!("{}\n", 7 * 2 * (5050)), "{recording:?}");
    let trace = recording.trace();
    for number in 0..objects.len() {
        let expected = Tally { entries: 100, exits: 100 };
        assert_eq!(trace.tallies()[&format!("part_{number}")], expected, "{:?}", Mode::ALL[number]);
        assert_eq!(trace.tallies()[&format!("part_leaf_{number}")], expected, "{:?}", Mode::ALL[number]);
    }
    assert_eq!(trace.losses(), 0);
}
