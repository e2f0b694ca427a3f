//! Programs that were written for XRay behave the same with its own runtime and with everycall's.
//!
//! Their output with compiler-rt's XRay is in `golden/xray_*.txt`. If that runtime is installed
//! (Debian: `libclang-rt-19-dev`, or the folders of such packages in `EVERYCALL_COMPILER_RT`,
//! separated by colons), they are run with it, too.

use everycall_tests::{Mode, Place, everycall, number_asked, programs, successful};
use std::path::{Path, PathBuf};
use std::process::Command;

const MODES: [Mode; 2] = [Mode::CLANG19_XRAY, Mode::CLANG22_XRAY];
const USUAL: [&str; 4] = ["-std=c++17", "-Wall", "-Wextra", "-fxray-instrument"];
/// How such programs are built: levels at which they make the same calls, linkers, kinds of
/// executables.
const BUILDS: [&[&str]; 4] = [
    &["-O1"],
    &["-O2", "-fuse-ld=lld"],
    &["-O1", "-static"],
    &["-O1", "-no-pie", "-fno-xray-function-index"],
];

fn golden(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    std::fs::read_to_string(path).expect("what XRay's own runtime printed")
}

/// A library of compiler-rt for this compiler.
fn compiler_rt(compiler: &str, name: &str) -> Option<PathBuf> {
    let version = compiler.rsplit_once('-').expect("a compiler with a version").1;
    let file = format!("lib/llvm-{version}/lib/clang/{version}/lib/linux/libclang_rt.{name}-x86_64.a");
    let roots = std::env::var("EVERYCALL_COMPILER_RT").unwrap_or_default();
    let roots = roots.split(':').filter(|root| !root.is_empty()).map(PathBuf::from);
    roots.chain([PathBuf::from("/usr")]).map(|root| root.join(&file)).find(|path| path.exists())
}

/// Builds with compiler-rt's XRay, if that is installed.
fn build_for_xray(
    place: &Place,
    mode: Mode,
    library: &str,
    arguments: &[&str],
    output: &str,
) -> Option<PathBuf> {
    let Some(runtime) = compiler_rt(mode.cxx, library) else {
        eprintln!("{}: compiler-rt's {library} isn't there, so only what it printed is compared", mode.cxx);
        return None;
    };
    let mut command = place.command(mode.cxx);
    command.args(USUAL).args(["-fxray-instruction-threshold=1", "-fno-xray-link-deps"]);
    for argument in arguments {
        let bundled = programs().join(argument);
        if bundled.exists() {
            command.arg(bundled)
        } else {
            command.arg(argument)
        };
    }
    command.arg("-Wl,--whole-archive").arg(runtime).arg("-Wl,--no-whole-archive");
    command.args(["-Wl,--export-dynamic", "-lpthread", "-lrt", "-lm", "-ldl", "-o"]).arg(place.file(output));
    successful(&mut command);
    Some(place.file(output))
}

fn build(place: &Place, mode: Mode, arguments: &[&str], output: &str) -> PathBuf {
    place.build(mode, &[&USUAL[..], arguments].concat(), output)
}

const PREMAIN: (&str, &str) = ("XRAY_OPTIONS", "verbosity=0 patch_premain=true");

#[test]
fn programs_for_xray_do_the_same() {
    let place = Place::new("xray-interface");
    let (all, premain) = (golden("xray_interface.txt"), golden("xray_premain.txt"));
    for mode in MODES {
        for (number, options) in BUILDS.into_iter().enumerate() {
            let name = format!("{}-{number}", mode.label());
            let program = build(&place, mode, &[options, &["xray_interface.cpp"]].concat(), &name);
            assert_eq!(successful(&mut place.command(&program)), all, "{name}");
            let mut command = place.command(&program);
            assert_eq!(successful(command.arg("premain").env(PREMAIN.0, PREMAIN.1)), premain, "{name}");
            // Handlers don't depend on what is recorded.
            let mut command = place.command(&program);
            assert_eq!(successful(command.env("EVERYCALL_START", "off")), all, "{name}");
        }
        if let Some(program) = build_for_xray(
            &place,
            mode,
            "xray",
            &["-O1", "xray_interface.cpp"],
            &format!("{}-rt", mode.label()),
        ) {
            assert_eq!(successful(&mut place.command(&program)), all, "{mode:?}: compiler-rt");
            let mut command = place.command(&program);
            assert_eq!(successful(command.arg("premain").env(PREMAIN.0, PREMAIN.1)), premain, "{mode:?}");
        }
    }
}

#[test]
fn compiled_and_linked_apart() {
    let place = Place::new("xray-apart");
    for mode in MODES {
        let object = build(&place, mode, &["-O1", "-c", "xray_interface.cpp"], "apart.o");
        for link in [&["-fxray-instrument"][..], &[], &["-fxray-instrument", "-fno-xray-link-deps"]] {
            let arguments = [link, &[object.to_str().unwrap()]].concat();
            let mut command = place.command(everycall());
            command.args(["cc", "--", mode.cxx]).args(arguments).args(["-o", "apart"]);
            successful(&mut command);
            let program = place.file("apart");
            assert_eq!(
                successful(&mut place.command(program)),
                golden("xray_interface.txt"),
                "{mode:?} {link:?}"
            );
        }
    }
}

/// Objects have numbers since clang 20.
#[test]
fn libraries_are_objects_of_their_own() {
    let place = Place::new("xray-objects");
    let mode = Mode::CLANG22_XRAY;
    let (linked, loaded) = (golden("xray_linked.txt"), golden("xray_loaded.txt"));
    let shared = ["-O1", "-fPIC", "-shared", "-fxray-shared", "xray_library.cpp"];
    let link = ["-O1", "-DLINKED", "xray_objects.cpp", "-L.", "-lobjects", "-Wl,-rpath,$ORIGIN"];
    let check = |program: &Path, library: &Path, how: &str| {
        assert_eq!(successful(&mut place.command(place.file(&format!("linked{how}")))), linked, "{how}");
        assert_eq!(successful(place.command(program).arg(library)), loaded, "{how}");
    };
    let library = build(&place, mode, &shared, "libobjects.so");
    build(&place, mode, &link, "linked-ours");
    let program = build(&place, mode, &["-O1", "xray_objects.cpp"], "loaded-ours");
    check(&program, &library, "-ours");
    // Of both, every call is recorded but those of unpatched functions.
    let trace = place.record(&[], &program, &[library.to_str().unwrap()]).trace();
    assert!(trace.calls("library_leaf") > 0 && trace.calls("own(int)") > 0);

    let Some(library) = build_for_xray(&place, mode, "xray-dso", &shared, "libobjects.so") else { return };
    build_for_xray(&place, mode, "xray", &link, "linked-rt");
    let program = build_for_xray(&place, mode, "xray", &["-O1", "xray_objects.cpp"], "loaded-rt");
    check(&program.expect("built"), &library, "-rt");
}

/// Handlers that throw, jump, set errno and registers, fork, are cancelled; threads that patch at
/// random.
#[test]
fn xray_patching_harms_no_program() {
    let place = Place::new("xray-harm");
    let times = number_asked("EVERYCALL_TOGGLES").unwrap_or(5_000).to_string();
    for mode in MODES {
        for (number, options) in
            [&["-O1"][..], &["-O2", "-fuse-ld=lld"], &["-O1", "-static"]].into_iter().enumerate()
        {
            let name = format!("{}-{number}", mode.label());
            let program = build(&place, mode, &[options, &["-pthread", "xray_harm.cpp"]].concat(), &name);
            assert_eq!(successful(place.command(&program).arg(&times)), "unharmed\n", "{name}");
            let mut command = place.command(&program);
            assert_eq!(successful(command.arg(&times).env("EVERYCALL_START", "off")), "unharmed\n", "{name}");
            let recording = place.record(&[], &program, &[&times]);
            assert_eq!(recording.stdout(), "unharmed\n", "{name}");
            let trace = recording.tallies();
            assert!(trace.warnings.is_empty(), "{name}: {:?}", trace.warnings);
            assert!(trace.calls("work(int)") > 0, "{name}");
        }
    }
}

/// Calls of functions that the program has unpatched aren't recorded, all others are.
#[test]
fn what_is_recorded() {
    let place = Place::new("xray-recorded");
    // In each phase `leaf` is called four times: by `caller` twice, by `jumper`, by `custom`.
    for (what, phases) in [("patching", 6), ("events", 3), ("arguments", 4)] {
        for mode in MODES {
            let program = build(&place, mode, &["-O1", "xray_interface.cpp"], &mode.label());
            let trace = place.record(&[], &program, &[what]).trace();
            assert_eq!(trace.losses(), 0);
            let calls = |name: &str| trace.calls(name);
            let found = ["leaf(int)", "caller(int)", "jumper(int)", "logged(long)", "custom(int)"].map(calls);
            assert_eq!(found, [4, 1, 1, 1, 1].map(|each| each * phases), "{mode:?} {what}");
            assert_eq!(calls("never(int)") + calls("handler(int, XRayEntryType)"), 0);
        }
    }
}

/// Selections of others don't change for which functions handlers are called.
#[test]
fn handlers_and_selections_are_apart() {
    let place = Place::new("xray-selected");
    for mode in MODES {
        let program = build(&place, mode, &["-O1", "xray_interface.cpp"], &mode.label());
        let recording = place.record(&["--not", "leaf*"], &program, &[]);
        assert_eq!(recording.stdout(), golden("xray_interface.txt"), "{mode:?}");
        let trace = recording.trace();
        assert!(trace.calls("caller(int)") > 0 && trace.calls("leaf(int)") == 0, "{mode:?}");
        // Events keep the short calls in which they are.
        let recording = place.record(&["--min-duration", "10ms"], &program, &["events"]);
        let trace = recording.trace();
        assert_eq!(trace.calls("custom(int)"), 3, "{mode:?}");
    }
}

#[test]
fn events_are_in_the_trace() {
    let place = Place::new("xray-events");
    for mode in MODES {
        let program = build(&place, mode, &["-O1", "xray_interface.cpp"], &mode.label());
        let recording = place.record(&[], &program, &["events"]);
        let shown = successful(place.command(everycall()).arg("replay").arg(&recording.file));
        let count = |text: &str| shown.matches(text).count();
        // Three phases; in the third one without handlers. An empty event has no data.
        assert_eq!(count("! custom event \"request\"\n"), 3, "{mode:?}\n{shown}");
        assert_eq!(count("! custom event\n"), 3, "{mode:?}\n{shown}");
        let typed = format!("! typed event 1 \"{}\" (100 bytes)\n", "x".repeat(48));
        assert_eq!(count(&typed), 3, "{mode:?}\n{shown}");
        let page = successful(place.command(everycall()).arg("info").arg(&recording.file));
        assert!(page.contains("custom event \"request\""), "{mode:?}\n{page}");
        for format in ["vizviewer", "chrome", "perfetto"] {
            let mut command = place.command(everycall());
            command.args(["export", "-f", format, "-o", "events"]).arg(&recording.file);
            successful(&mut command);
            let bytes = std::fs::read(place.file("events")).unwrap();
            assert!(bytes.windows(12).any(|part| part == b"custom event"), "{mode:?} {format}");
        }
    }
}

/// The header that the kit brings for compilers without their own: in C and C++.
#[test]
fn the_kits_own_headers_are_sound() {
    let place = Place::new("xray-headers");
    let text = "#include <xray/xray_log_interface.h>\n#include <xray/xray_interface.h>\n\
                int main(void) { return XRAY_LOG_UNINITIALIZED + (int)NOT_INITIALIZED; }\n";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/building/kit/include/compat");
    for (compiler, standard, file) in [
        ("gcc", "c99", "a.c"),
        ("g++", "c++11", "a.cpp"),
        ("clang-19", "c11", "a.c"),
        ("clang++-22", "c++20", "a.cpp"),
    ] {
        place.write(file, text);
        let mut command = Command::new(compiler);
        command.args([
            &format!("-std={standard}"),
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
            folder,
        ]);
        command.current_dir(place.path()).args([file, "-o", "a"]);
        successful(&mut command);
        successful(&mut place.command(place.file("a")));
    }
}
