//! Names that programs give themselves: threads that name themselves and then wait, titles that are
//! written over the command line, other folders. A trace has the newest names, and the command line
//! and folder of the start, whichever command writes it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use everycall_reader::{Source, TraceFile};
use everycall_tests::{Mode, Place, everycall, successful, wait};

const WORDS: [&str; 4] = ["-x", "a b", "", "z"];

/// Starts the program, which has done all that it does when this returns.
fn start(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// The traced process: `child`, or what `record` started.
fn traced(child: &Child, recorded: bool) -> u32 {
    let own = child.id();
    if !recorded {
        return own;
    }
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    children.trim().parse().unwrap()
}

fn check(file: &Path, program: &Path, words: &[&str], label: &str) {
    let trace = TraceFile::open(File::open(file).unwrap()).unwrap();
    let recording = trace.recording();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut names: Vec<String> =
        recording.snapshots[0].threads.iter().map(|thread| text(&thread.name)).collect();
    names.sort();
    assert_eq!(names, ["names", "waits 0", "waits 1", "waits 2"], "{label}");
    let mut wanted = vec![program.display().to_string()];
    wanted.extend(words.iter().map(ToString::to_string));
    let command = |words: &[Vec<u8>]| words.iter().map(|word| text(word)).collect::<Vec<_>>();
    assert_eq!(command(&recording.meta.arguments), wanted, "{label}");
    assert_eq!(command(&recording.processes[0].command), wanted, "{label}");
    let folder = program.parent().unwrap().canonicalize().unwrap();
    assert_eq!(text(&recording.meta.working_folder), folder.display().to_string(), "{label}");
}

#[test]
fn names_are_the_newest_and_commands_those_of_the_start() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        let place = Place::new("names");
        let program = place.build(mode, &["-O1", "-pthread", "names.c"], "names");
        for how in ["alone", "crash", "record", "stream"] {
            let label = format!("{} {how}", mode.label());
            let recorded = !matches!(how, "alone" | "crash");
            let [own, asked, recording] =
                ["own", "asked", "recording"].map(|name| place.file(&format!("{name}-{how}.ect")));
            let mut command = match how {
                "alone" | "crash" => place.command(&program),
                _ => {
                    let mut command = place.command(everycall());
                    command.args(["record", "-q", "-o"]).arg(&recording);
                    command.args((how == "stream").then_some("--stream")).arg("--").arg(&program);
                    command
                }
            };
            if how == "crash" {
                command.env("EVERYCALL_CRASH", place.path());
            }
            let own_name = own.display().to_string();
            let words: Vec<&str> = [&[own_name.as_str()][..], &WORDS].concat();
            let mut child = start(command.args(&words));
            let pid = traced(&child, recorded).to_string();
            successful(place.command(everycall()).args(["snapshot", "-q", &pid, "-o"]).arg(&asked));
            check(&own, &program, &words, &format!("{label}, its own"));
            check(&asked, &program, &words, &format!("{label}, asked"));
            let listed = successful(place.command(everycall()).arg("ps"));
            let line = listed.lines().find(|line| line.split_whitespace().next() == Some(&pid)).unwrap();
            assert!(line.ends_with("names (title *:7394)"), "{label}: {line}");
            assert!(
                listed.lines().any(|line| line.ends_with("names (names: worker 1)")),
                "{label}: {listed}"
            );
            let is_workers = |line: &&str| line.ends_with("names (names: worker 1)");
            let worker = listed.lines().find(is_workers).and_then(|line| line.split_whitespace().next());
            let of_worker = place.file(&format!("worker-{how}.ect"));
            let mut snapshot = place.command(everycall());
            successful(snapshot.args(["snapshot", "-q", worker.unwrap(), "-o"]).arg(&of_worker));
            let trace = TraceFile::open(File::open(&of_worker).unwrap()).unwrap();
            assert_eq!(trace.recording().processes[0].command, [b"names: worker 1"], "{label}");
            if recorded {
                // Two rounds of the recorder at least: a title is seen while its process lives.
                let reads = || std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
                let reads = || reads().lines().nth(2).unwrap()[7..].parse::<u64>().unwrap();
                let before = reads();
                wait::until("the recorder reads names", || reads() > before + 60);
            }
            if how == "crash" {
                child.kill().unwrap();
            }
            drop(child.stdin.take());
            child.wait().unwrap();
            if recorded {
                check(&recording, &program, &words, &format!("{label}, recorded"));
                let mut info = place.command(everycall());
                let info = successful(info.args(["info"]).arg(&recording));
                assert!(info.contains("names: worker 1 (fork)"), "{label}: {info}");
            }
            if how == "crash" {
                let left = place.file(&format!("names-{pid}.arena"));
                successful(place.command(everycall()).args(["core", "-o"]).arg(&asked).arg(left));
                let trace = TraceFile::open(File::open(&asked).unwrap()).unwrap();
                let meta = &trace.recording().meta;
                assert_eq!(meta.arguments.len(), 1 + words.len(), "{label}");
                assert_eq!(
                    meta.working_folder,
                    place.path().canonicalize().unwrap().as_os_str().as_encoded_bytes(),
                    "{label}"
                );
            }
        }
    }
}

/// Linux allows command lines of megabytes. An arena has room for 1.8 KB.
#[test]
fn command_lines_are_there_to_their_ends() {
    let long = "x".repeat(100_000);
    let many = vec!["w"; 40_000];
    let place = Place::new("names-long");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-pthread", "names.c"], "names");
    let own = place.file("own.ect").display().to_string();
    let words = [&[own.as_str(), long.as_str()][..], &many].concat();
    let mut child = start(place.command(&program).args(&words));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    check(Path::new(&own), &program, &words, "its own");
    // With a command line that isn't changed, and that `record` reads from the kernel while the
    // process runs.
    let program = place.build(Mode::GCC_NOPS, &["-O1", "process_tree.c", "-pthread"], "process_tree");
    let words = [&["fork", long.as_str()][..], &many].concat();
    let recording = place.record(&["-q"], &program, &words);
    let trace = recording.trace();
    for process in &trace.processes {
        let command: Vec<&[u8]> = process.command[1..].iter().map(Vec::as_slice).collect();
        let is_whole = command.iter().copied().eq(words.iter().map(|word| word.as_bytes()));
        // If the process has ended before `record` reads it, the command line is visibly truncated.
        let is_cut = command.last().is_some_and(|word| word.ends_with(b"..."));
        assert!(is_whole || is_cut, "{} words", command.len());
    }
}

/// If the program is in another namespace of process ids, its threads have other ids here.
#[test]
fn names_of_threads_in_other_namespaces() {
    let place = Place::new("names-namespace");
    let can = place.command("unshare").args(["--fork", "--pid", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!("no right to make a namespace of process ids: nothing was tested");
        return;
    }
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-pthread", "names.c"], "names");
    let asked = place.file("asked.ect");
    let own = place.file("own.ect").display().to_string();
    let words: Vec<&str> = [&[own.as_str()][..], &WORDS].concat();
    let mut command = place.command("unshare");
    let mut child = start(command.args(["--fork", "--pid", "--kill-child"]).arg(&program).args(&words));
    let pid = traced(&child, true).to_string();
    successful(place.command(everycall()).args(["snapshot", "-q", &pid, "-o"]).arg(&asked));
    check(&asked, &program, &words, "another namespace");
    drop(child.stdin.take());
    child.wait().unwrap();
}
