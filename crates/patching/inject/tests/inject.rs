//! Programs that run are changed, and mustn't notice.
//!
//! # Safety
//!
//! The tests play a debugger and a killer by `ptrace`, with memory of their own.
#![allow(unsafe_code)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Debugger, Subject, WAIT, functions, helper_command, patched, program, unpatched};
use everycall_inject::{
    Access, InjectError, Outcome, Patch, PatchSet, Process, check, mappings, on_tracer, start,
};

#[test]
fn a_busy_program_computes_the_same() {
    for mode in [&["busy"][..], &["storm", "with signals"]] {
        let subject = Subject::start(mode);
        let (mut done, mut counted) = (0, 0);
        on_tracer(|| {
            for _ in 0..10 {
                let mut process = Process::open(subject.pid())?;
                let patch = subject.map(&mut process)?;
                for _ in 0..10 {
                    if patched(&mut process, &patch)? == Outcome::Done {
                        done += 1;
                        while unpatched(&mut process, &patch)? != Outcome::Done {}
                    }
                }
                counted += patch.count(&process);
                patch.unmap(&mut process)?;
            }
            Ok(())
        })
        .expect("rounds");
        assert!(done > 80 && counted > 0, "{mode:?}: {done}, {counted}");
        subject.ends_right();
    }
}

#[test]
fn threads_are_born_meanwhile() {
    let subject = Subject::start(&["births"]);
    on_tracer(|| {
        for _ in 0..60 {
            let mut process = Process::open(subject.pid())?;
            let patch = subject.map(&mut process)?;
            if patched(&mut process, &patch)? == Outcome::Done {
                while unpatched(&mut process, &patch)? != Outcome::Done {}
            }
            patch.unmap(&mut process)?;
        }
        Ok(())
    })
    .expect("rounds");
    subject.ends_right();
}

/// How long all threads are stopped: `cargo nextest run -p everycall-inject --run-ignored all
/// --no-capture how_long`.
#[test]
#[ignore = "a measurement"]
fn how_long_a_stop_takes() {
    for count in [10_000, 100_000] {
        let subject = Subject::start(&["storm"]);
        on_tracer(|| {
            let mut process = Process::open(subject.pid())?;
            // A function of 150 bytes has two patches.
            let code = vec![0x90; count * 150];
            let module = mappings(subject.pid())?[0].range.clone();
            let at = process.with_thread(WAIT, |thread| thread.map_near(module, &code, Access::Execute))?;
            let patch = |at: u64| Patch { at, old: vec![0x90; 5], new: vec![0xe9, 0, 0, 0, 0] };
            let sets: Vec<PatchSet> = (0..count as u64)
                .map(|index| PatchSet {
                    patches: vec![patch(at + 150 * index), patch(at + 150 * index + 140)],
                    moves: vec![],
                })
                .collect();
            let (mut applied, mut undone) = (Vec::new(), Vec::new());
            for _ in 0..5 {
                let begin = Instant::now();
                process.with_all_stopped(WAIT, |stopped| stopped.apply(&sets))?;
                applied.push(begin.elapsed());
                let begin = Instant::now();
                process.with_all_stopped(WAIT, |stopped| stopped.undo(&sets))?;
                undone.push(begin.elapsed());
            }
            println!("{count} functions: applied in {applied:.1?}, undone in {undone:.1?}");
            Ok(())
        })
        .expect("rounds");
        subject.ends_right();
    }
}

#[test]
fn functions_are_called() {
    for mode in [&["busy"][..], &["storm", "with signals"], &["alone"]] {
        let subject = Subject::start(mode);
        on_tracer(|| {
            let before = mappings(subject.pid())?.len();
            for round in 0..40 {
                let mut process = Process::open(subject.pid())?;
                let call = common::function(&process, subject.window, functions::CALL_ME);
                process.with_thread(WAIT, |thread| {
                    for a in 0..3 {
                        assert_eq!(thread.call_function(call, [a, 2, 3, 4, 5, round])?, a + 54 + 6 * round);
                    }
                    Ok(())
                })?;
            }
            // Workers' stacks and heaps may have come meanwhile.
            assert!(mappings(subject.pid())?.len() < before + 30);
            Ok(())
        })
        .expect("rounds");
        subject.ends_right();
    }
}

#[test]
fn functions_that_fail_or_dont_return() {
    let subject = Subject::start(&["alone"]);
    on_tracer(|| {
        let mut process = Process::open(subject.pid())?;
        let [call, fail] = [functions::CALL_ME, functions::FAIL]
            .map(|index| common::function(&process, subject.window, index));
        process.with_thread(WAIT, |thread| {
            let error = thread.call_function(fail, [8, 0, 0, 0, 0, 0]).expect_err("an invalid address");
            assert!(matches!(error, InjectError::Faulted { signal: libc::SIGSEGV, .. }), "{error}");
            assert_eq!(thread.call_function(call, [1, 0, 0, 0, 0, 0])?, 1);
            Ok(())
        })
    })
    .expect("a round");
    subject.ends_right();

    let subject = Subject::start(&["alone"]);
    let is_left = on_tracer(|| {
        let mut process = Process::open(subject.pid())?;
        let [wait, released] = [functions::WAIT_FOR_RELEASE, functions::RELEASED]
            .map(|index| common::function(&process, subject.window, index));
        // Enough to get to the function on a busy machine.
        let result = process.with_thread(Duration::from_secs(2), |thread| {
            let result = thread.call_function(wait, [0; 6]);
            // It does nothing more for us.
            let next = thread.call_function(wait, [0; 6]);
            assert!(matches!(next, Err(InjectError::NotReturned { .. })), "{next:?}");
            result
        });
        let (tracer, blocked) = (subject.status("TracerPid"), subject.status("SigBlk"));
        process.write(released, &[1])?;
        Ok(((tracer == "0", blocked.trim_matches('0').is_empty()), result))
    });
    assert!(matches!(is_left, Ok(((true, true), Err(InjectError::NotReturned { .. })))), "{is_left:?}");
    subject.ends_right();

    let subject = Subject::start(&["alone"]);
    let result = on_tracer(|| {
        let mut process = Process::open(subject.pid())?;
        let end = common::function(&process, subject.window, functions::END_THE_PROGRAM);
        process.with_thread(WAIT, |thread| thread.call_function(end, [0; 6]))
    });
    assert!(matches!(result, Err(InjectError::Ended { .. })), "{result:?}");
}

#[test]
fn libraries_are_loaded() {
    let modes = [&["busy"][..], &["storm", "with signals"], &["alone"], &["births"]];
    let blocked = WAYS.map(|way| ["blocked", way]);
    // Its release would come before its time.
    let blocked = blocked.iter().filter(|mode| mode[1] != "futex-time").map(|mode| &mode[..]);
    for mode in modes.into_iter().chain(blocked) {
        let subject = Subject::start(mode);
        let result = on_tracer(|| {
            for _ in 0..3 {
                common::load(&mut Process::open(subject.pid())?, WAIT)?;
            }
            Ok(())
        });
        // Those with a timeout may have ended.
        assert!(
            matches!(result, Ok(()) | Err(InjectError::Ended { .. })) || subject.has_ended(),
            "{mode:?}: {result:?}"
        );
        subject.ends_right();
    }
}

#[test]
fn libraries_that_cant_be_loaded() {
    let why = |subject: &Subject, contents: &[u8], patience: Duration| {
        let result = on_tracer(|| {
            let mut process = Process::open(subject.pid())?;
            process.with_calm_thread(patience, |thread| thread.load_library(contents, "/none".as_ref()))
        });
        match result {
            Err(InjectError::Refused(why)) => why,
            other => format!("{other:?}"),
        }
    };
    let subject = Subject::start(&["busy"]);
    let said = why(&subject, b"not a library", WAIT);
    assert!(said.contains("refuses a library") && said.contains("file too short"), "{said}");
    subject.signal(libc::SIGSTOP);
    subject.wait_for_state("T");
    let said = why(&subject, &common::library(), WAIT);
    assert!(said.contains("kill -CONT"), "{said}");
    subject.signal(libc::SIGCONT);
    subject.ends_right();

    // A signal handler waits; it may have interrupted the allocator.
    let subject = Subject::start(&["loop"]);
    Debugger::attach(subject.pid()).park_at(subject.window, libc::SIGUSR1);
    subject.wait_until_blocked();
    let end = Instant::now() + WAIT;
    loop {
        let said = why(&subject, &common::library(), Duration::from_millis(300));
        if said.contains("at which a library can be loaded") {
            break;
        }
        // On a busy machine, it may not have been stopped in this time.
        assert!(said.contains("NotStopped") && Instant::now() < end, "{said}");
    }
    subject.line();
    subject.ends_right();

    let subject = Subject::start_program(&program(true), &["busy"]);
    let said = why(&subject, &common::library(), WAIT);
    assert!(said.contains("statically linked"), "{said}");
    subject.ends_right();
}

#[test]
fn libraries_are_loaded_in_containers() {
    let options = ["--user", "--map-root-user", "--pid", "--mount", "--fork", "--mount-proc"];
    let can = Command::new("unshare").args(options).arg("true").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        return;
    }
    let program = program(false);
    let words = [&options[..], &[program.to_str().expect("a path"), "storm", "with signals"]].concat();
    let subject = Subject::start_program(Path::new("unshare"), &words);
    let children = format!("/proc/{pid}/task/{pid}/children", pid = subject.pid());
    let children = std::fs::read_to_string(children).expect("its child");
    let inner: i32 = children.trim().parse().expect("one child");
    on_tracer(|| {
        let mut process = Process::open(inner)?;
        common::load(&mut process, WAIT)?;
        let patch = common::Patching::map(inner, subject.window, &mut process)?;
        while patched(&mut process, &patch)? != Outcome::Done {}
        while unpatched(&mut process, &patch)? != Outcome::Done {}
        Ok(())
    })
    .expect("a round");
    subject.ends_right();
}

/// Ways to wait, one each.
const WAYS: [&str; 16] = [
    "nanosleep",
    "poll-time",
    "futex-time",
    "clock",
    "poll",
    "ppoll",
    "select",
    "read",
    "futex",
    "epoll",
    "epoll_pwait",
    "semop",
    "msgrcv",
    "sigtimedwait",
    "sigsuspend",
    "wait",
];

#[test]
fn system_calls_that_block_go_on() {
    let subjects: Vec<Subject> = WAYS.iter().map(|way| Subject::start(&["blocked", way])).collect();
    for subject in &subjects {
        subject.wait_until_blocked();
    }
    for _ in 0..5 {
        for subject in &subjects {
            let result = on_tracer(|| {
                let mut process = Process::open(subject.pid())?;
                let patch = subject.map(&mut process)?;
                process.with_all_stopped(WAIT, |_| Ok(()))?;
                patch.unmap(&mut process)
            });
            // Those with a timeout may have ended.
            assert!(
                matches!(result, Ok(()) | Err(InjectError::Ended { .. })) || subject.has_ended(),
                "{result:?}"
            );
        }
    }
    for subject in subjects {
        subject.ends_right();
    }
}

#[test]
fn a_thread_inside_of_a_window_is_moved() {
    // The boundaries, and one that no instruction begins at.
    for (offset, expected) in [(0, Outcome::Done), (1, Outcome::Done), (4, Outcome::Done), (7, Outcome::Done)]
    {
        for keeps_moves in [true, false] {
            let subject = Subject::start(&["loop"]);
            Debugger::attach(subject.pid()).park_at(subject.window + offset, libc::SIGSTOP);
            let mut count = 0;
            let outcome = on_tracer(|| {
                let mut process = Process::open(subject.pid())?;
                let mut patch = subject.map(&mut process)?;
                if !keeps_moves {
                    patch.set.moves.clear();
                }
                let outcome = patched(&mut process, &patch)?;
                subject.signal(libc::SIGCONT);
                if outcome == Outcome::Done {
                    let end = Instant::now() + WAIT;
                    while patch.count(&process) < 100 && Instant::now() < end {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                count = patch.count(&process);
                Ok(outcome)
            })
            .expect("a round");
            let is_inside = offset == 1 || offset == 4;
            if is_inside && !keeps_moves {
                assert_eq!((outcome, count), (Outcome::InUse, 0), "{offset}");
            } else {
                assert_eq!(outcome, expected, "{offset}");
                assert!(count >= 100, "{offset}: {count}");
            }
            subject.ends_right();
        }
    }
}

#[test]
fn a_signal_frame_inside_of_a_window_is_found() {
    for arguments in [&["loop"][..], &["loop", "alternate"], &["loop", "nested"]] {
        let subject = Subject::start(arguments);
        Debugger::attach(subject.pid()).park_at(subject.window + 4, libc::SIGUSR1);
        // In the handler, which waits for a line.
        subject.wait_until_blocked();
        on_tracer(|| {
            let mut process = Process::open(subject.pid())?;
            let patch = subject.map(&mut process)?;
            assert_eq!(patched(&mut process, &patch)?, Outcome::InUse, "{arguments:?}");
            if arguments.contains(&"nested") {
                subject.signal(libc::SIGUSR2);
                subject.wait_until_handled(libc::SIGUSR2);
                assert_eq!(patched(&mut process, &patch)?, Outcome::InUse, "{arguments:?}");
                subject.line();
            }
            subject.line();
            let end = Instant::now() + WAIT;
            while patched(&mut process, &patch)? != Outcome::Done {
                assert!(Instant::now() < end);
            }
            Ok(())
        })
        .expect("rounds");
        subject.ends_right();
    }
}

#[test]
fn a_thread_that_cant_be_stopped_is_left_alone() {
    let subject = Subject::start(&["vfork"]);
    subject.wait_for_state("D");
    let result = on_tracer(|| {
        let mut process = Process::open(subject.pid())?;
        process.with_all_stopped(Duration::from_millis(20), |_| Ok(()))
    });
    assert!(matches!(result, Err(InjectError::NotStopped { state: 'D', .. })), "{result:?}");
    // Traced threads end in a stop with the next signal.
    assert_eq!(subject.status("TracerPid"), "0");
    let children = format!("/proc/{pid}/task/{pid}/children", pid = subject.pid());
    let children = std::fs::read_to_string(children).expect("its child");
    let why = check(children.trim().parse().expect("one child")).expect_err("a child of vfork");
    assert!(why.to_string().contains("shares its memory with its parent"), "{why}");
    subject.ends_right();
}

#[test]
fn foreign_bytes_stay() {
    let subject = Subject::start(&["busy"]);
    on_tracer(|| {
        let mut process = Process::open(subject.pid())?;
        let mut patch = subject.map(&mut process)?;
        patch.set.patches[0].old[6] ^= 1;
        assert_eq!(patched(&mut process, &patch)?, Outcome::Foreign);
        assert_eq!(unpatched(&mut process, &patch)?, Outcome::Foreign);
        Ok(())
    })
    .expect("a round");
    subject.ends_right();
}

#[test]
fn refusals_are_sentences() {
    let refused = |pid: i32| match check(pid) {
        Err(InjectError::Refused(why)) => why,
        other => format!("{other:?}"),
    };
    let subject = Subject::start(&["seccomp"]);
    subject.wait_until_blocked();
    assert!(refused(subject.pid()).contains("(seccomp)"), "{}", refused(subject.pid()));
    subject.line();

    let subject = Subject::start(&["busy"]);
    let debugger = Debugger::attach(subject.pid());
    assert!(refused(subject.pid()).contains("is traced by process"), "{}", refused(subject.pid()));
    debugger.detach(0);
    subject.ends_right();

    let mut gone = Command::new("true").spawn().expect("true");
    gone.wait().expect("true");
    assert!(matches!(check(gone.id() as i32), Err(InjectError::Ended { .. })));

    if let Some(mut small) = common::small_program() {
        let why = refused(small.id() as i32);
        let _ = (small.kill(), small.wait());
        assert!(why.contains("32-bit"), "{why}");
    }
    // Root may change those.
    let subject = Subject::start(&["undumpable"]);
    subject.wait_until_blocked();
    if !common::is_root() {
        assert!(refused(subject.pid()).contains("dumpable"), "{}", refused(subject.pid()));
    }
    subject.ends_right();
}

#[test]
fn code_is_mapped_where_nothing_may_become_executable() {
    let subject = Subject::start(&["mdwe"]);
    subject.wait_until_blocked();
    on_tracer(|| {
        let mut process = Process::open(subject.pid())?;
        let patch = subject.map(&mut process)?;
        assert_eq!(patched(&mut process, &patch)?, Outcome::Done);
        while unpatched(&mut process, &patch)? != Outcome::Done {}
        Ok(())
    })
    .expect("a round");
    subject.ends_right();
}

#[test]
fn a_program_is_stopped_at_its_entry() {
    for is_static in [false, true] {
        let mut command = Command::new(program(is_static));
        command.args(["start", "argument"]).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut count = 0;
        let child = on_tracer(|| {
            let mut started = start(command, WAIT)?;
            let process = started.process.as_mut().expect("stopped at the entry");
            let pid = started.child.id() as i32;
            let window = common::window_of(pid, is_static);
            let patch = common::Patching::map(pid, window, process)?;
            assert_eq!(patched(process, &patch)?, Outcome::Done);
            let plain = common::function(process, window, functions::PLAIN);
            for a in 1..4 {
                let product =
                    process.with_thread(WAIT, |thread| thread.call_function(plain, [a, 5, 0, 0, 0, 0]))?;
                assert_eq!(product, 5 * a);
            }
            let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("memory");
            drop(started.process);
            // It ends soon, and its memory with it.
            let end = Instant::now() + WAIT;
            while Instant::now() < end {
                match common::number_at(&memory, patch.counter) {
                    Some(now) => count = now,
                    None => break,
                }
                if count == 6000 {
                    break;
                }
            }
            Ok(started.child)
        })
        .expect("a start");
        let output = child.wait_with_output().expect("its output");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{is_static}: {output:?}");
        assert!(text.ends_with("\nargument\nright\n") && !text.contains("differs"), "{is_static}: {text}");
        assert!(count <= 6000, "{is_static}: {count}");
    }
}

#[test]
fn a_program_that_cant_be_started_is_an_error() {
    let result = on_tracer(|| start(Command::new("/nonexistent/program"), WAIT).map(|_| ()));
    assert!(matches!(result, Err(InjectError::System { .. })), "{result:?}");
}

/// Where a tracer is killed: at each of its requests to the kernel that change something.
#[test]
fn a_tracer_that_is_killed_leaves_the_program_right() {
    let mut step = 1;
    loop {
        let mut is_finished = false;
        // The borrowed thread waits in a system call, or computes.
        for mode in if step <= 24 && step % 2 == 0 { &["storm", "alone"][..] } else { &["storm"] } {
            let subject = Subject::start(&[mode]);
            let mut helper = helper_command("rounds", &format!("{} {:x}", subject.pid(), subject.window));
            is_finished = Debugger::kill_at(&mut helper, step);
            subject.ends_right();
        }
        if is_finished {
            break;
        }
        // Functions make many system calls, at each of which the same happens.
        step += if step < 24 { 1 } else { 3 };
    }
    assert!(step > 40, "{step}");
}

#[test]
fn a_tracer_that_is_killed_at_the_start_leaves_the_program_right() {
    let mut step = 1;
    loop {
        let folder = tempfile::tempdir().expect("a folder");
        let output = folder.path().join("output");
        let mut helper = helper_command("starts", output.to_str().expect("a path"));
        let is_finished = Debugger::kill_at(&mut helper, step);
        let end = Instant::now() + WAIT;
        let mut text = String::new();
        // Before the program is executed, nothing was started.
        let pid = || std::fs::read_to_string(folder.path().join("output")).ok();
        while Instant::now() < end {
            text = pid().unwrap_or_default();
            if text.ends_with("right\n") || (text.is_empty() && step == 1) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(text.ends_with("\nright\n") || (text.is_empty() && step == 1), "{step}: {text:?}");
        if is_finished {
            break;
        }
        // The loader makes many system calls, at each of which the same happens.
        step += if step < 24 { 1 } else { 23 };
    }
    assert!(step > 40, "{step}");
}

#[test]
fn a_tracer_that_is_killed_while_it_loads_leaves_the_program_right() {
    let mut step = 1;
    loop {
        let mode = if step % 2 == 0 { "storm" } else { "alone" };
        let subject = Subject::start(&[mode]);
        let mut helper = helper_command("loads", &subject.pid().to_string());
        let is_finished = Debugger::kill_at(&mut helper, step);
        // It still works with another tracer.
        on_tracer(|| common::load(&mut Process::open(subject.pid())?, WAIT)).expect("another round");
        subject.ends_right();
        if is_finished {
            break;
        }
        step += if step < 12 { 1 } else { 9 };
    }
    assert!(step > 40, "{step}");
}

/// Runs in a process of its own, which is killed.
#[test]
#[ignore = "the helper of other tests"]
fn helper() {
    let argument = std::env::var("ARGUMENT").expect("an argument");
    let mut text = String::new();
    // Until its parent observes it.
    std::io::stdin().read_line(&mut text).expect("a line");
    let result = match std::env::var("HELPER").as_deref() {
        Ok("rounds") => {
            let (pid, window) = argument.split_once(' ').expect("two numbers");
            let (pid, window) =
                (pid.parse().expect("a process"), u64::from_str_radix(window, 16).expect("an address"));
            on_tracer(|| {
                let mut process = Process::open(pid)?;
                let call = common::function(&process, window, functions::CALL_ME);
                let result =
                    process.with_thread(WAIT, |thread| thread.call_function(call, [7, 0, 0, 0, 0, 0]))?;
                assert_eq!(result, 7);
                let patch = common::Patching::map(pid, window, &mut process)?;
                while patched(&mut process, &patch)? != Outcome::Done {}
                while unpatched(&mut process, &patch)? != Outcome::Done {}
                patch.unmap(&mut process)
            })
        }
        Ok("loads") => {
            on_tracer(|| common::load(&mut Process::open(argument.parse().expect("a process"))?, WAIT))
        }
        _ => on_tracer(|| {
            let mut command = Command::new(program(false));
            let output = std::fs::File::create(&argument).expect("a file");
            command.arg("start").stdin(Stdio::null()).stdout(output);
            let mut started = start(command, WAIT)?;
            let process = started.process.as_mut().expect("stopped at the entry");
            process.with_thread(WAIT, |thread| {
                let at = everycall_inject::mappings(started.child.id() as i32)?[0].range.clone();
                thread.map_near(at, b"\xcc", Access::Execute)
            })?;
            Ok(())
        }),
    };
    result.expect("a round");
}
