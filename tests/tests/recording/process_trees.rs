//! Programs that make processes: each runs as without everycall, and each is in the trace with its
//! own calls.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use everycall_reader::{Ending, Origin, Process};
use everycall_tests::{Mode, Place, Recording, Tally, ThreadTrace, TraceView, is_full, wait};

const MODES: [Mode; 3] = [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY];

fn program(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "process_tree.c", "-pthread"], &format!("process-tree-{}", mode.label()))
}

/// Builds the program without hooks.
fn plain(place: &Place) -> PathBuf {
    let path = place.file("process-tree-plain");
    let source = everycall_tests::programs().join("process_tree.c");
    let status = Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&path).arg(source).status();
    assert!(status.expect("gcc runs").success());
    path
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().expect("the program runs")
}

/// Records the program in each mode, compares its behaviour with that without hooks, and checks the
/// trace.
fn in_each_mode(name: &str, arguments: &[&str], options: &[&str], look: impl Fn(Mode, &TraceView)) {
    let place = Place::new(name);
    let expected = run(&plain(&place), arguments);
    for mode in MODES {
        let program = program(&place, mode);
        let alone = run(&program, arguments);
        same(mode, &alone, &expected);
        let recording: Recording = place.record(options, &program, arguments);
        same(mode, &recording.output, &expected);
        let trace = recording.trace();
        assert_eq!(trace.warnings, Vec::<String>::new(), "{mode:?}");
        assert_eq!(trace.losses(), 0, "{mode:?}");
        for thread in &trace.threads {
            let process = &trace.processes[thread.info.process];
            assert_eq!(thread.info.pid, process.pid, "{mode:?}");
            let (start, end) = (process.start_ticks.unwrap(), process.end_ticks.unwrap());
            assert!(start <= end, "{mode:?}: {process:?}");
        }
        look(mode, &trace);
    }
}

fn same(mode: Mode, output: &Output, expected: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), text(&expected.stdout), "{mode:?}: {output:?}");
    assert_eq!(output.status.code(), expected.status.code(), "{mode:?}: {output:?}");
    assert_eq!(output.status.signal(), expected.status.signal(), "{mode:?}: {output:?}");
}

/// Entries of a function in one process.
fn calls(trace: &TraceView, process: usize, function: &str) -> u64 {
    threads(trace, process).filter_map(|thread| thread.tallies.get(function)).map(|tally| tally.entries).sum()
}

fn threads(trace: &TraceView, process: usize) -> impl Iterator<Item = &ThreadTrace> {
    trace.threads.iter().filter(move |thread| thread.info.process == process)
}

/// The one process without a parent in the trace.
fn root(trace: &TraceView) -> usize {
    let roots: Vec<usize> =
        (0..trace.processes.len()).filter(|process| trace.processes[*process].parent.is_none()).collect();
    assert_eq!(roots.len(), 1, "{:#?}", trace.processes);
    roots[0]
}

fn of_origin(trace: &TraceView, origin: Origin) -> Vec<usize> {
    (0..trace.processes.len()).filter(|process| trace.processes[*process].origin == origin).collect()
}

fn words(process: &Process) -> Vec<String> {
    process.command.iter().skip(1).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[test]
fn both_sides_of_a_fork() {
    in_each_mode("fork", &["fork"], &[], |mode, trace| {
        let parent = root(trace);
        let [child] = of_origin(trace, Origin::Fork)[..] else { panic!("{mode:?}: {:#?}", trace.processes) };
        assert_eq!(trace.processes[child].parent, Some(parent));
        assert_eq!(trace.processes[child].parent_pid, trace.processes[parent].pid);
        assert_eq!(trace.processes[child].ending, Ending::Ended);
        assert_eq!(trace.processes[child].command, trace.processes[parent].command);
        assert_eq!(calls(trace, parent, "child_work"), 0, "{mode:?}");
        assert_eq!(calls(trace, parent, "leaf"), 10 + 1, "{mode:?}");
        assert_eq!(calls(trace, child, "child_work"), 1, "{mode:?}");
        assert_eq!(calls(trace, child, "parent_work"), 0, "{mode:?}");
        assert_eq!(calls(trace, child, "leaf"), 1000 + 1 + 1, "{mode:?}");
        assert_eq!(threads(trace, child).count(), 2, "{mode:?}");
        // Both use one clock: the child's calls are between the parent's fork and its end.
        let main = threads(trace, parent).next().unwrap();
        let span = (main.calls[0].start_ns, main.calls[0].end_ns);
        for thread in threads(trace, child) {
            let (first, last) = thread.info.reach.unwrap();
            assert!(span.0 < first && last <= span.1, "{mode:?}: {span:?} {first} {last}");
        }
    });
}

#[test]
fn forks_by_system_call() {
    in_each_mode("raw", &["raw"], &[], |mode, trace| {
        let children = of_origin(trace, Origin::Fork);
        assert_eq!(children.len(), 2, "{mode:?}");
        for child in children {
            assert_eq!(trace.processes[child].parent, Some(root(trace)));
            assert_eq!(calls(trace, child, "child_work"), 1, "{mode:?}");
            assert_eq!(calls(trace, child, "leaf"), 3, "{mode:?}");
        }
    });
}

#[test]
fn programs_that_start_programs() {
    for name in ["vfork", "spawn"] {
        in_each_mode(name, &[name], &[], |mode, trace| {
            let parent = root(trace);
            let [child] = of_origin(trace, Origin::Exec)[..] else {
                panic!("{mode:?}: {:#?}", trace.processes)
            };
            assert_eq!(trace.processes[child].parent, Some(parent), "{mode:?}");
            assert_eq!(words(&trace.processes[child]), ["leaf", "one two"], "{mode:?}");
            assert_eq!(calls(trace, child, "child_work"), 1, "{mode:?}");
            assert_eq!(calls(trace, child, "leaf"), 5, "{mode:?}");
            assert_eq!(calls(trace, parent, "child_work"), 0, "{mode:?}");
            assert_eq!(calls(trace, parent, "parent_work"), 1, "{mode:?}");
        });
    }
}

#[test]
fn exec_in_place() {
    in_each_mode("exec", &["exec"], &[], |mode, trace| {
        let before = root(trace);
        let [after] = of_origin(trace, Origin::Exec)[..] else { panic!("{mode:?}: {:#?}", trace.processes) };
        let (old, new) = (&trace.processes[before], &trace.processes[after]);
        assert_eq!((old.pid, new.parent), (new.pid, Some(before)), "{mode:?}");
        assert_eq!((old.ending, new.ending), (Ending::Exec, Ending::Ended), "{mode:?}");
        assert!(old.end_ticks <= new.start_ticks, "{mode:?}");
        assert_eq!(calls(trace, before, "parent_work"), 1, "{mode:?}");
        assert_eq!(calls(trace, after, "child_work"), 1, "{mode:?}");
        let last = threads(trace, before).next().unwrap().calls[0].end_ns;
        let first = threads(trace, after).next().unwrap().calls[0].start_ns;
        assert!(last <= first, "{mode:?}: {last} {first}");
    });
}

#[test]
fn a_shell_in_between() {
    in_each_mode("shell", &["shell"], &[], |mode, trace| {
        let started = of_origin(trace, Origin::Exec);
        assert_eq!(started.len(), 2, "{mode:?}: {:#?}", trace.processes);
        for child in started {
            assert_eq!(trace.processes[child].parent, Some(root(trace)), "{mode:?}");
            assert_ne!(trace.processes[child].parent_pid, trace.processes[root(trace)].pid, "{mode:?}");
            assert_eq!(calls(trace, child, "child_work"), 1, "{mode:?}");
        }
    });
}

#[test]
fn shell_scripts_are_followed() {
    let place = Place::new("script");
    let program = program(&place, Mode::GCC_NOPS);
    let script =
        place.write("script.sh", &format!("{0} leaf; {0} fork >/dev/null; exit 4", program.display()));
    let recording = place.record(&["--launcher"], Path::new("/bin/sh"), &[script.to_str().unwrap()]);
    assert_eq!(recording.output.status.code(), Some(4));
    let trace = recording.trace();
    assert_eq!(of_origin(&trace, Origin::Start).len(), 2, "{:#?}", trace.processes);
    assert_eq!(of_origin(&trace, Origin::Fork).len(), 1);
    assert_eq!(trace.calls("child_work"), 2);
}

#[test]
fn daemons() {
    in_each_mode("daemon", &["daemon"], &[], |mode, trace| {
        // The middle one has no traced call.
        let children = of_origin(trace, Origin::Fork);
        assert_eq!(children.len(), 1, "{mode:?}: {:#?}", trace.processes);
        assert_eq!(trace.processes[children[0]].parent, Some(root(trace)), "{mode:?}");
        assert_eq!(calls(trace, children[0], "leaf"), 6, "{mode:?}");
    });
    for (option, ending, leaves) in [("--ring-size=1M", Ending::Running, 6), ("--wait", Ending::Ended, 6 + 1)]
    {
        let begin = Instant::now();
        in_each_mode("daemon", &["daemon", "stays"], &[option], |mode, trace| {
            let [daemon] = of_origin(trace, Origin::Fork)[..] else {
                panic!("{mode:?}: {:#?}", trace.processes)
            };
            assert_eq!(trace.processes[daemon].ending, ending, "{mode:?} {option}");
            assert_eq!(calls(trace, daemon, "leaf"), leaves, "{mode:?} {option}");
        });
        assert!(begin.elapsed() < Duration::from_secs(120));
    }
}

/// A daemon that makes its first traced call long after its parent has ended is waited for, or
/// listed as not followed.
#[test]
fn daemons_that_begin_late() {
    let place = Place::new("late-daemon");
    for mode in MODES {
        let program = program(&place, mode);
        for options in [&["--wait"][..], &["--wait", "--stream"]] {
            let trace = place.record(options, &program, &["late-daemon"]).trace();
            let [daemon] = of_origin(&trace, Origin::Fork)[..] else {
                panic!("{mode:?} {options:?}: {:#?}", trace.processes)
            };
            assert_eq!(calls(&trace, daemon, "leaf"), 6, "{mode:?} {options:?}");
        }
        let recording = place.record(&[], &program, &["late-daemon"]);
        assert_eq!(recording.trace().children, 1, "{mode:?}");
        let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
        assert!(said.contains("not followed: 1 child process: "), "{mode:?}: {said}");
    }
}

/// The child returns from calls that its parent made.
#[test]
fn children_return_from_their_parents_calls() {
    in_each_mode("nested", &["nested"], &[], |mode, trace| {
        let parent = root(trace);
        let [child] = of_origin(trace, Origin::Fork)[..] else { panic!("{mode:?}: {:#?}", trace.processes) };
        let main = threads(trace, parent).next().unwrap();
        assert_eq!(main.tallies["nested"], Tally { entries: 21, exits: 21 }, "{mode:?}");
        assert_eq!(main.orphans, 0, "{mode:?}");
        let forked = threads(trace, child).next().unwrap();
        assert_eq!(forked.tallies["child_work"], Tally { entries: 2, exits: 2 }, "{mode:?}");
        assert_eq!(forked.tallies["leaf"], Tally { entries: 4, exits: 4 }, "{mode:?}");
    });
}

#[test]
fn children_of_children() {
    in_each_mode("lineage", &["lineage"], &[], |mode, trace| {
        assert_eq!(of_origin(trace, Origin::Fork).len(), 10, "{mode:?}");
        let mut process = (0..trace.processes.len())
            .find(|process| calls(trace, *process, "child_work") == 1)
            .expect("the youngest");
        let mut generations = 0;
        while let Some(parent) = trace.processes[process].parent {
            generations += 1;
            process = parent;
        }
        assert_eq!(generations, 10, "{mode:?}");
    });
}

#[test]
fn forks_among_threads() {
    in_each_mode("threads", &["threads"], &[], |mode, trace| {
        let children = of_origin(trace, Origin::Fork);
        assert_eq!(children.len(), 20, "{mode:?}");
        for child in children {
            assert_eq!(calls(trace, child, "child_work"), 1, "{mode:?}");
            assert_eq!(calls(trace, child, "thread_work"), 1, "{mode:?}");
            assert_eq!(calls(trace, child, "leaf"), 101, "{mode:?}");
            assert_eq!(calls(trace, child, "busy_thread"), 0, "{mode:?}");
            assert_eq!(threads(trace, child).count(), 2, "{mode:?}");
        }
        assert_eq!(calls(trace, root(trace), "busy_thread"), 3, "{mode:?}");
    });
}

#[test]
fn forks_in_signal_handlers() {
    in_each_mode("signal", &["signal"], &[], |mode, trace| {
        let children = of_origin(trace, Origin::Fork);
        assert_eq!(children.len(), 5, "{mode:?}");
        for child in children {
            assert_eq!(calls(trace, child, "child_work"), 1, "{mode:?}");
            assert_eq!(calls(trace, child, "leaf"), 4, "{mode:?}");
        }
        assert_eq!(calls(trace, root(trace), "handler"), 5, "{mode:?}");
    });
}

/// A child's first event takes little memory from the stack that it happens to be on.
#[test]
fn a_childs_first_event_needs_little_stack() {
    let place = Place::new("stack");
    let used = |output: &Output| -> u64 { String::from_utf8_lossy(&output.stdout).trim().parse().unwrap() };
    let expected = used(&run(&plain(&place), &["stack"]));
    for mode in MODES {
        let program = program(&place, mode);
        let recording = place.record(&[], &program, &["stack"]);
        assert_eq!(of_origin(&recording.trace(), Origin::Fork).len(), 1, "{mode:?}");
        for used in [used(&run(&program, &["stack"])), used(&recording.output)] {
            assert!(used <= expected + 512, "{mode:?}: {used} bytes, {expected} without hooks");
        }
    }
}

/// Every child has its own calls, its parent has its own, and no process hangs.
#[test]
fn thousands_of_forks() {
    let full = is_full();
    let children = if full { 10_000 } else { 300 };
    let place = Place::new("storm");
    let count = children.to_string();
    let expected = run(&plain(&place), &["storm", &count]);
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        let program = program(&place, mode);
        let begin = Instant::now();
        let recording = place.record(&["--ring-size", "64K"], &program, &["storm", &count]);
        same(mode, &recording.output, &expected);
        eprintln!("{mode:?}: {children} forks in {:?}", begin.elapsed());
        let trace = recording.tallies();
        let forked = of_origin(&trace, Origin::Fork);
        // A recorder that gets no CPU in time costs a child, which is said.
        let missing = children - forked.len();
        assert!(missing < children && trace.children >= missing, "{mode:?}: {missing} of {children}");
        let parent = root(&trace);
        for child in &forked {
            assert_eq!(trace.processes[*child].parent, Some(parent), "{mode:?}");
        }
        let mut seen = vec![0; trace.processes.len()];
        for thread in &trace.threads {
            seen[thread.info.process] += 1;
            let process = &trace.processes[thread.info.process];
            assert_eq!((thread.info.pid, thread.info.tid), (process.pid, process.pid), "{mode:?}");
            if thread.info.process != parent {
                assert_eq!(thread.tallies["child_work"], Tally { entries: 1, exits: 1 }, "{mode:?}");
                assert_eq!(thread.tallies["leaf"], Tally { entries: 5, exits: 5 }, "{mode:?}");
            }
        }
        assert!(seen.iter().all(|threads| *threads == 1), "{mode:?}");
        let main = trace.threads.iter().find(|thread| thread.info.process == parent).unwrap();
        assert_eq!(main.tallies.get("child_work"), None, "{mode:?}");
    }
}

#[test]
fn without_following_children_are_listed() {
    in_each_mode("alone", &["fork"], &["--no-follow"], |mode, trace| {
        assert_eq!((trace.processes.len(), trace.children), (1, 1), "{mode:?}");
        assert_eq!(trace.calls("child_work"), 0, "{mode:?}");
        assert_eq!(trace.calls("leaf"), 11, "{mode:?}");
    });
    in_each_mode("alone", &["spawn"], &["--no-follow"], |mode, trace| {
        assert_eq!((trace.processes.len(), trace.children), (1, 1), "{mode:?}");
    });
}

/// Any of them may make a traced call: also children of children that are only listed, or not even
/// that.
#[test]
fn without_following_grandchildren_are_listed() {
    for (arguments, children) in [("lineage", 10), ("daemon", 1)] {
        in_each_mode("alone-later", &[arguments], &["--no-follow"], |mode, trace| {
            assert_eq!((trace.processes.len(), trace.children), (1, children), "{mode:?} {arguments}");
        });
    }
}

/// Memory that they need without their parents' arenas is not taken from their limit.
#[test]
fn children_that_arent_followed_have_all_of_their_memory() {
    in_each_mode("limited", &["limited"], &["--no-follow"], |mode, trace| {
        assert_eq!((trace.processes.len(), trace.children), (1, 1), "{mode:?}");
    });
}

/// Forks succeed when no process follows them.
#[test]
fn a_killed_recorder_leaves_its_processes_running() {
    let place = Place::new("killed");
    for mode in MODES {
        let program = program(&place, mode);
        let proof = place.file(&format!("proof-{}", mode.label()));
        let mut command = place.command(everycall_tests::everycall());
        command.args(["record", "-o", "killed.ect", "--"]).arg(&program).arg("late").arg(&proof);
        let mut recorder = command.stderr(Stdio::null()).spawn().unwrap();
        wait::until_started(recorder.id(), &program);
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        wait::until(&format!("{mode:?}: the program ends its work"), || {
            std::fs::read_to_string(&proof).is_ok_and(|text| text == "done 3\n")
        });
    }
}
