//! `record --trigger` while the recorder is slow: functions of a library are armed from their first
//! call on, and if the program couldn't wait for that, the report says so.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use everycall_reader::{Source, TraceFile, Trigger};
use everycall_tests::slow::KEEP_ALL;
use everycall_tests::{Mode, Place, Recording, everycall};

const TRIGGER: [&str; 2] = ["--trigger", "plugged > 2ms"];
const SIGCONT: &str = "18";
const SIGKILL: &str = "9";

fn build(place: &Place) -> (PathBuf, PathBuf) {
    place.write("plugin.c", "#include <unistd.h>\nvoid plugged(void) { usleep(5000); }\n");
    let plugin = place.build(Mode::GCC_NOPS, &["-O1", "-shared", "-fPIC", "plugin.c"], "plugin.so");
    (place.build(Mode::GCC_NOPS, &["-O1", "late_names.c", "-ldl"], "late_names"), plugin)
}

/// Milliseconds that loading took, the trigger's result, and `record`'s messages.
fn outcome(recording: &Recording) -> (u64, Trigger, String) {
    let took = recording.stdout().trim().parse().unwrap();
    let file = TraceFile::open(File::open(&recording.file).unwrap()).unwrap();
    let [trigger] = &file.recording().triggers[..] else { panic!("one trigger") };
    (took, trigger.clone(), String::from_utf8_lossy(&recording.output.stderr).into_owned())
}

#[test]
fn a_library_waits_until_its_functions_are_named() {
    let place = Place::new("triggers-late");
    let (program, plugin) = build(&place);
    let options = [&TRIGGER[..], &KEEP_ALL].concat();
    let recording = place.record(&options, &program, &[plugin.to_str().unwrap(), "500", SIGCONT]);
    let (took, trigger, said) = outcome(&recording);
    assert!((400..9000).contains(&took), "{took} ms");
    assert_eq!((trigger.functions, trigger.late, trigger.fired), (1, 0, 1), "{said}");
    assert!(!said.contains("were not checked"), "{said}");
}

#[test]
fn functions_named_too_late_are_counted() {
    let place = Place::new("triggers-too-late");
    let (program, plugin) = build(&place);
    let options = [&TRIGGER[..], &KEEP_ALL].concat();
    let recording = place.record(&options, &program, &[plugin.to_str().unwrap(), "20000", SIGCONT]);
    let (took, trigger, said) = outcome(&recording);
    assert!((9900..19_900).contains(&took), "{took} ms");
    assert_eq!((trigger.functions, trigger.late, trigger.fired), (1, 1, 0), "{said}");
    assert!(said.contains("never, in 1 function; the first calls of 1 function were not checked"), "{said}");
    let info = place.command(everycall()).arg("info").arg(&recording.file).output().unwrap();
    let page = String::from_utf8_lossy(&info.stdout).replace("\n  ", " ");
    assert!(page.contains("the first calls of 1 function"), "{page}");
    let info =
        place.command(everycall()).args(["info", "--format", "json"]).arg(&recording.file).output().unwrap();
    assert!(String::from_utf8_lossy(&info.stdout).contains("\"functions_named_late\": 1"));
}

/// A recorder that dies doesn't delay the program.
#[test]
fn programs_dont_wait_for_a_dead_recorder() {
    let place = Place::new("triggers-dead");
    let (program, plugin) = build(&place);
    let mut command: Command = place.command(everycall());
    command.arg("record").args(TRIGGER).arg("-o").arg(place.file("dead.ect")).arg("--").arg(&program);
    // Its standard output is the program's, which ends later.
    let output = command.arg(&plugin).args(["300", SIGKILL]).output().unwrap();
    let took: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!((250..9900).contains(&took), "{took} ms");
}

/// A recorder that gets no CPU for a second finds all of a kept call, whatever happened to its
/// thread meanwhile.
#[test]
fn kept_calls_wait_for_a_recorder_that_is_late() {
    let place = Place::new("triggers-kept-late");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-pthread", "kept_late.c"], "kept_late");
    let options =
        [&["--trigger", "ending > 5ms", "--trigger", "staying > 5ms", "--ring-size", "64K"][..], &KEEP_ALL]
            .concat();
    let file = place.file("kept.ect");
    // Ended threads make room for others at once.
    let mut command: Command = place.command(everycall());
    command.env("EVERYCALL_KEEP_ENDED", "0").arg("record").args(options).arg("-o").arg(&file).arg("--");
    let output = command.arg(&program).arg("1000").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let file = TraceFile::open(File::open(file).unwrap()).unwrap();
    let recording = file.recording();
    let fired: Vec<u64> = recording.triggers.iter().map(|trigger| trigger.fired).collect();
    assert_eq!((&fired[..], recording.kept.len()), (&[1, 1][..], 2), "{said}");
    for call in &recording.kept {
        assert!(call.thread.is_some() && call.missing == 0, "{call:?}: {said}");
    }
}
