//! States where the recorder can't write its file: in a core of the program, and when the recorder
//! was killed before the program was looked at.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use everycall_tests::{Mode, Place, everycall, successful, wait};

use super::{Killed, TraceFs, check_naps, info, lines, one_line};

struct Naps {
    recorder: Child,
    program: Killed,
}

/// `naps` under `record`, in the test's folder, where it leaves a core.
fn start(place: &Place, program: &Path, source: &str) -> Naps {
    let mut command = place.command("sh");
    command.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh"]).arg(everycall());
    command.args(["record", "-q", &format!("--states={source}"), "-o", "whole.ect", "--"]).arg(program);
    let recorder = command.stdout(Stdio::null()).spawn().unwrap();
    let program = Killed(wait::until_started(recorder.id(), program));
    Naps { recorder, program }
}

fn snapshot(program: &Killed, file: &Path) -> Command {
    let mut command = Command::new(everycall());
    command.args(["snapshot", "-q", "-o"]).arg(file).arg(program.0.to_string());
    command
}

/// Waits until a snapshot has slept often enough.
fn until_it_has_slept(program: &Killed, file: &Path) {
    wait::until("it has slept often", || {
        // At first, it isn't known to be traced.
        let is_taken = snapshot(program, file).output().unwrap().status.success();
        is_taken && lines(file).iter().filter(|line| line["name"] == "naps").count() > 40
    });
}

fn abort(program: &Killed) {
    successful(Command::new("kill").args(["-ABRT", &program.0.to_string()]));
    wait::until_ended(program.0);
}

#[test]
fn cores_and_programs_of_killed_recorders_have_states() {
    let place = Place::new("states-cores");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "naps.c", "-pthread"], "naps");
    let tracefs = TraceFs::find();
    let (part, core, of_core) = (place.file("part.ect"), place.file("core"), place.file("core.ect"));
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    assert!(
        !pattern.starts_with(['|', '/', '@']),
        "cores go to {pattern:?}; for this test: echo core > /proc/sys/kernel/core_pattern"
    );
    let read_core = |pid: u32| {
        let _ = std::fs::rename(place.file(&format!("core.{pid}")), &core);
        successful(place.command(everycall()).args(["core", "-q", "-o", "core.ect", "core"]));
        std::fs::remove_file(&core).unwrap();
    };
    for source in ["perf", "tracefs", "schedstat"] {
        if source == "tracefs" && tracefs.is_none() {
            continue;
        }
        // The program crashes.
        let mut naps = start(&place, &program, source);
        until_it_has_slept(&naps.program, &part);
        if info(&part)["states"]["source"].is_null() {
            println!("{source} is refused here");
            continue;
        }
        abort(&naps.program);
        naps.recorder.wait().unwrap();
        read_core(naps.program.0);
        assert_eq!(info(&of_core)["states"]["source"], source);
        assert!(check_naps(&of_core) > 20);
        // The recorder is killed, then the program is looked at while it runs, and crashes.
        let mut naps = start(&place, &program, source);
        until_it_has_slept(&naps.program, &part);
        naps.recorder.kill().unwrap();
        naps.recorder.wait().unwrap();
        let until = |file: &Path| {
            assert_eq!(info(file)["states"]["source"], source);
            info(file)["states"]["unknown_at_end_ns"].as_u64().unwrap()
        };
        wait::until("it goes on without its recorder", || {
            successful(&mut snapshot(&naps.program, &part));
            until(&part) > 20_000_000
        });
        assert!(check_naps(&part) > 20);
        let page = one_line(&part);
        assert!(page.contains("are unknown, as the recorder hadn't read them"), "{page}");
        abort(&naps.program);
        read_core(naps.program.0);
        assert!(until(&of_core) > 20_000_000);
        assert!(check_naps(&of_core) > 20);
    }
    // A core of a program that was recorded without says what would help.
    let mut command = place.command("sh");
    command.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh"]).arg(&program);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let alone = Killed(pid);
    wait::until("it runs", || {
        let file = place.file("alone.ect");
        let mut command = Command::new(everycall());
        let taken = command.args(["snapshot", "-q", "-o"]).arg(&file).arg(pid.to_string()).output().unwrap();
        taken.status.success()
    });
    successful(Command::new("kill").args(["-ABRT", &alone.0.to_string()]));
    child.wait().unwrap();
    read_core(pid);
    assert!(info(&of_core)["states"].is_null());
}
