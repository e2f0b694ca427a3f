//! Programs with the TRACE instruction, in QEMU with the plugin that is the device: their calls are
//! those that hooks record.

use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::outline::whole_outline;
use everycall_tests::{Place, everycall, is_full, successful};

const QEMU: &str = "qemu-x86_64";

/// A compiler, the mode of hooks that has the same places, a level.
const BUILDS: [(&str, &str, &str); 4] = [
    ("gcc", "nops", "-O0"),
    ("gcc", "nops", "-O2"),
    ("clang-19", "xray", "-O0"),
    ("clang-19", "xray", "-O2"),
];

/// Frames by id, reported to the hooks or to the device.
const IDS: &str = r#"
#include "everycall.h"
#include <setjmp.h>
#ifdef DEVICE
#define NAME(id, name) everycall_trace_name(id, name)
#define ENTER(id) everycall_trace_enter(id)
#define LEAVE(id) everycall_trace_leave(id)
#else
#define NAME(id, name) everycall_frame_name(id, name, 0, 0)
#define ENTER(id) everycall_frame_enter(id)
#define LEAVE(id) everycall_frame_leave(id)
#endif
static jmp_buf failed;
__attribute__((noinline)) int native(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) int run(int n) {
    int sum = 0;
    ENTER(1);
    for (int i = 0; i < n; i++) {
        ENTER(2);
        ENTER(3);
        sum += native(i);
        LEAVE(3);
        if (i == 2)
            longjmp(failed, 1);
        sum += i < 2 ? run(i) : 0;
        LEAVE(2);
    }
    LEAVE(1);
    return sum;
}
int main(void) {
    NAME(1, "script_main");
    NAME(2, "a name that is longer than eight bytes");
    NAME(3, "leaf");
    int sum = native(0);
    if (setjmp(failed) == 0)
        sum += run(2), sum += run(4);
    return native(sum) == 0;
}
"#;

/// The plugin, built in a folder of its own: nothing that is tested links it.
fn plugin() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace-plugin");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "everycall-trace-plugin", "--target-dir"]);
    successful(build.arg(&target).current_dir(root));
    target.join("debug/libeverycall_trace_plugin.so")
}

/// Calls left by an exception or `longjmp`, and whose caller's next call has more arguments
/// on the stack: that lies below them, so the stack pointer doesn't show that they have ended.
const UNSEEN: &str = "s_with_arguments";

/// Names of ids by their order, as an imported file has them: the outline doesn't read its names.
const NAMES: [(&str, &str); 3] = [
    ("ids+0x0", "script_main"),
    ("ids+0x10", "a name that is longer than eight bytes"),
    ("ids+0x20", "leaf"),
];

/// Calls with their depths, without how they ended and what happened in them: the device doesn't
/// know of exceptions, and sees later that a call is gone.
fn calls(path: &Path) -> Vec<String> {
    let lines = whole_outline(path, |name| name.contains(UNSEEN)).into_iter();
    lines
        .filter(|line| !line.trim_start().starts_with('*'))
        .map(|line| {
            let line = line.trim_end_matches(['!', '?', '~', '=', '>', ' ']);
            let (depth, name) = line.split_at(line.len() - line.trim_start().len());
            let known = NAMES.iter().find(|(known, _)| *known == name);
            format!("{depth}{}", known.map_or(name, |(_, name)| name))
        })
        .collect()
}

#[test]
fn the_device_records_what_hooks_record() {
    let version =
        Command::new(QEMU).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).into_owned();
    let major =
        version.split_once(" version ").and_then(|(_, rest)| rest.split('.').next()?.parse::<u32>().ok());
    if !major.is_some_and(|major| (7..9).contains(&major)) {
        println!("skipped: {QEMU} 7 or 8 isn't there (Debian 12: qemu-user): {version}");
        return;
    }
    let place = Place::new("trace-insn");
    let plugin = plugin();
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("trees");
    let ids = place.write("ids.c", IDS);
    for (number, (compiler, hooks, level)) in BUILDS.into_iter().enumerate() {
        let sources = [trees.join("exceptions.cpp"), trees.join("jumps.c"), ids.clone()];
        // Else each compiler with another level for each of them.
        let is_chosen = |source: usize| is_full() || (source + number / 2 + number).is_multiple_of(2);
        for (_, source) in sources.iter().enumerate().filter(|(source, _)| is_chosen(*source)) {
            let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
            let compiler = match (compiler, is_cpp) {
                ("gcc", true) => "g++",
                ("clang-19", true) => "clang++-19",
                _ => compiler,
            };
            let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let label = format!("{name}{level}-{compiler}");
            let build = |mode: &str, options: &[&str]| {
                let output = place.file(&format!("{label}-{mode}"));
                let mut command = place.command(everycall());
                command.args(["cc", "--mode", mode, "--", compiler, level, "-w", "-pthread"]).args(options);
                successful(command.arg(source).arg("-o").arg(&output));
                output
            };
            let recording = place.record(&["--quiet"], &build(hooks, &[]), &[]);
            let traced = build("trace-insn", &["-DDEVICE"]);
            // On this CPU, the instructions do nothing.
            let alone = place.command(&traced).output().expect("the program runs");
            assert_eq!(alone.status, recording.output.status, "{label}");
            let device = place.file(&format!("{label}.device"));
            let argument = format!("{},out={}", plugin.display(), device.display());
            let mut emulated = place.command(QEMU);
            let emulated = emulated.args(["-plugin", &argument]).arg(&traced).output().expect("QEMU runs");
            assert_eq!((emulated.status, &emulated.stdout), (alone.status, &alone.stdout), "{label}");
            let imported = place.file(&format!("{label}.ect"));
            successful(
                place.command(everycall()).args(["import", "--quiet", "-o"]).arg(&imported).arg(&device),
            );
            let (expected, seen) = (calls(&recording.file), calls(&imported));
            assert!(expected.len() > 15, "{label}: {expected:#?}");
            assert_eq!(seen, expected, "{label}");
        }
    }
}
