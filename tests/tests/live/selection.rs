//! Other processes choose which functions a running program records.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use everycall_control::SelectionSet;
use everycall_format::Wire;
use everycall_format::control_socket::{Request, SOCKET_NAME};
use everycall_live::{Control, ControlError, LiveArena, attach};
use everycall_reader::{Source as _, TraceFile};
use everycall_tests::selections::{file_with_only, only};
use everycall_tests::slow::KEEP_ALL;
use everycall_tests::{Mode, Place, Standing, TraceView, Waiting, everycall, is_full, successful, wait};

/// Modes whose sites are switched, and those whose hooks look for themselves.
const MODES: [Mode; 5] = [
    Mode::GCC_NOPS,
    Mode::CLANG19_XRAY,
    Mode::GCC_FENTRY,
    Mode::GCC_FINSTRUMENT,
    Mode::CLANG19_AFTER_INLINING,
];

fn has_sites(mode: Mode) -> bool {
    matches!(mode.name, "nops" | "xray")
}
const PATIENCE: Duration = Duration::from_secs(30);

fn program(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O2", "selected.c", "-pthread"], &format!("selected-{}", mode.label()))
}

/// A program, and the library that it loads later.
fn loads_later(place: &Place, mode: Mode) -> (PathBuf, PathBuf) {
    let label = mode.label();
    let flags = ["-O2", "-DLIBRARY", "-shared", "-fPIC", "loads_later.c"];
    let library = place.build(mode, &flags, &format!("later-{label}.so"));
    (place.build(mode, &["-O2", "loads_later.c"], &format!("loads-later-{label}")), library)
}

fn arena(standing: &Standing) -> LiveArena {
    attach(standing.pid).unwrap()
}

/// How often red, green and blue were recorded so far.
fn counts(place: &Place, standing: &Standing) -> [u64; 3] {
    let (file, _) = standing.snapshot(place, &["-q"]);
    let trace = TraceView::open(&file);
    ["red", "green", "blue"].map(|name| trace.calls(name))
}

#[test]
fn functions_are_recorded_as_selected() {
    let place = Place::new("selection");
    for mode in MODES {
        let program = program(&place, mode);
        let mut standing = Standing::alone(&program, &[]);
        assert_eq!(counts(&place, &standing), [20, 20, 10], "{mode:?}");
        // The request is noticed at the next event of an epoch of the clock.
        let arena = arena(&standing);
        let mut control = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| Control::connect(&arena, PATIENCE));
            while !connecting.is_finished() {
                standing.go_on();
                std::thread::sleep(Duration::from_millis(50));
            }
            connecting.join().unwrap().unwrap()
        });
        let [_, green, blue] = counts(&place, &standing);
        let (now, set) = control.now().unwrap();
        assert!(set.is_empty() && now.on == 1 && now.has_base == 0 && now.pid == standing.pid, "{now:?}");

        let reply = control.set(true, None, &only(&program, &["red"])).unwrap();
        assert!(!has_sites(mode) || reply.sites_on > 0 && reply.sites_off > 0, "{reply:?}");
        assert_eq!((reply.foreign, reply.failed), (0, 0), "{reply:?}");
        let before = counts(&place, &standing);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [before[0] + 20, green, blue], "{mode:?}");
        // The selection outlives the connection.
        drop(control);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [before[0] + 40, green, blue], "{mode:?}");

        // The process listens on, so a request needs no event.
        let mut control = Control::connect(&arena, PATIENCE).unwrap();
        let (_, set) = control.now().unwrap();
        assert_eq!(SelectionSet::rules_of(&set).unwrap().rules, ["+ red"]);
        assert_eq!(control.set(false, None, &[]).unwrap().sites_on, 0);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [before[0] + 40, green, blue], "{mode:?}");
        assert_eq!(control.set(true, None, &[]).unwrap().sites_off, 0);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [before[0] + 60, green + 20, blue + 10], "{mode:?}");
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    }
}

/// Children that are forked while nothing is recorded are listed, controlled and looked at like
/// any process.
#[test]
fn children_forked_while_tracing_is_off_are_reached() {
    let place = Place::new("selection-forked");
    for mode in MODES {
        let program =
            place.build(mode, &["-O2", "fork_server.c", "-pthread"], &format!("server-{}", mode.label()));
        let mut standing = Standing::start(place.command(&program).env("EVERYCALL_START", "off"));
        standing.go_on();
        let direct = wait::children(standing.pid);
        let children: Vec<u32> =
            direct.iter().flat_map(|&pid| wait::children(pid).into_iter().chain([pid])).collect();
        assert_eq!(children.len(), 3, "{children:?}");
        for &child in &children {
            // Each has an arena of its own a moment after the fork.
            wait::until("the child listens", || attach(child).is_ok());
            let listed = successful(place.command(everycall()).arg("ps"));
            assert!(
                listed.lines().any(|line| line.trim_start().starts_with(&format!("{child} "))),
                "{listed}"
            );
            let calls = || {
                let file = place.file(&format!("child-{child}.ect"));
                let _ = std::fs::remove_file(&file);
                let (file_text, pid) = (file.to_str().unwrap(), child.to_string());
                successful(place.command(everycall()).args(["snapshot", "-q", "-o", file_text, &pid]));
                TraceView::open(&file).calls("red")
            };
            assert_eq!(calls(), 0, "{mode:?}");
            let mut control = Control::connect(&attach(child).unwrap(), PATIENCE).unwrap();
            let reply = control.set(true, None, &only(&program, &["red"])).unwrap();
            assert_eq!((reply.pid, reply.failed), (child, 0), "{reply:?}");
            standing.go_on();
            assert_eq!(calls(), 20, "{mode:?}");
            assert_eq!(control.set(false, None, &[]).unwrap().sites_on, 0);
            standing.go_on();
            assert_eq!(calls(), 20, "{mode:?}");
        }
        assert!(standing.end().0.success());
    }
}

/// A session records its functions in addition, and ends with its owner.
#[test]
fn sessions_end_with_their_connections() {
    let place = Place::new("selection-sessions");
    for mode in MODES {
        let program = program(&place, mode);
        let mut command = place.command(&program);
        let mut standing = Standing::start(command.arg("1").env("EVERYCALL_START", "off"));
        let arena = arena(&standing);
        let mut reds = Control::connect(&arena, PATIENCE).unwrap();
        let mut blues = Control::connect(&arena, PATIENCE).unwrap();
        reds.open("reds", None, &only(&program, &["red"])).unwrap();
        blues.open("blues", None, &only(&program, &["blue", "red"])).unwrap();
        assert_eq!(blues.now().unwrap().0.sites_on, 0, "not active yet");
        assert!(reds.activate().unwrap().sites_on > 0 || !has_sites(mode));
        standing.go_on();
        assert_eq!(counts(&place, &standing), [20, 0, 0], "{mode:?}");
        blues.activate().unwrap();
        let (_, sessions) = reds.sessions().unwrap();
        let named = |index: usize| everycall_format::until_nul(&sessions[index].name).to_vec();
        assert_eq!((named(0), named(1), sessions.len()), (b"reds".to_vec(), b"blues".to_vec(), 2));
        assert!(sessions.iter().all(|session| session.active == 1 && session.since > 0));
        assert_eq!(sessions[0].owner, std::process::id());
        standing.go_on();
        assert_eq!(counts(&place, &standing), [40, 0, 10], "{mode:?}");
        drop(blues);
        wait::until("the session is gone", || reds.sessions().unwrap().1.len() == 1);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [60, 0, 10], "{mode:?}");
        drop(reds);
        let mut control = Control::connect(&arena, PATIENCE).unwrap();
        wait::until("all is off", || control.sessions().unwrap().1.is_empty());
        standing.go_on();
        assert_eq!(counts(&place, &standing), [60, 0, 10], "{mode:?}");
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    }
}

/// From the first call on, with a selection in a file.
#[test]
fn a_program_starts_with_a_selection() {
    let place = Place::new("selection-only");
    for mode in MODES {
        let program = program(&place, mode);
        let only = file_with_only(&place, &program, &["green", "blue"]);
        let mut command = place.command(&program);
        let mut standing = Standing::start(command.arg("2").env("EVERYCALL_ONLY", &only));
        assert_eq!(counts(&place, &standing), [0, 20, 10], "{mode:?}");
        standing.go_on();
        assert_eq!(counts(&place, &standing), [0, 40, 20], "{mode:?}");
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    }
}

/// Sessions come and go at random while threads run what they switch: in the end every site is as
/// it was.
#[test]
fn a_hundred_sessions_come_and_go() {
    let place = Place::new("selection-random");
    let functions = ["red", "green", "blue", "work_one", "work_two", "step"];
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let program = program(&place, mode);
        let sets: Vec<_> = functions.map(|name| only(&program, &[name, "work_two"])).into();
        let mut command = place.command(&program);
        let mut standing = Standing::start(command.arg("2").env("EVERYCALL_START", "off"));
        let arena = arena(&standing);
        let mut random = 88172645463325252_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut open: Vec<Control> = Vec::new();
        for opened in 0..100 {
            let mut control = Control::connect(&arena, PATIENCE).unwrap();
            control.open(&format!("session {opened}"), None, &sets[next(6) as usize]).unwrap();
            if next(4) > 0 {
                control.activate().unwrap();
            }
            open.push(control);
            if next(3) == 0 {
                standing.go_on();
            }
            while !open.is_empty() && next(2) == 0 {
                let gone = next(open.len() as u64) as usize;
                drop(open.swap_remove(gone));
            }
        }
        assert!(!open.is_empty());
        drop(open);
        let mut control = Control::connect(&arena, PATIENCE).unwrap();
        wait::until("all sessions are gone", || control.sessions().unwrap().1.is_empty());
        let (now, _) = control.now().unwrap();
        assert_eq!((now.sites_on, now.foreign, now.failed, now.on), (0, 0, 0, 0), "{mode:?}");
        let before = counts(&place, &standing);
        standing.go_on();
        assert_eq!(counts(&place, &standing), before, "{mode:?}");
        control.set(true, None, &[]).unwrap();
        standing.go_on();
        let [red, green, blue] = before;
        assert_eq!(counts(&place, &standing), [red + 20, green + 20, blue + 10], "{mode:?}");
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    }
}

/// An invalid request ends its own connection, and has no other effect.
#[test]
fn hostile_clients_of_the_socket_have_no_effect() {
    let place = Place::new("selection-strangers");
    let program = program(&place, Mode::GCC_NOPS);
    let mut command = place.command(&program);
    let standing = Standing::start(command.env("EVERYCALL_START", "off"));
    let arena = arena(&standing);
    let mut control = Control::connect(&arena, PATIENCE).unwrap();
    control.open("red", None, &only(&program, &["red"])).unwrap();
    let before = control.activate().unwrap();
    let good = only(&program, &["green"]);
    // Damaged sets are refused, and the current session stays.
    for (place, change) in [(0, 1), (8, 1), (24, 1), (good.len() - 1, 1), (40, 255)] {
        let mut bad = good.clone();
        bad[place] ^= change;
        assert!(matches!(control.set(true, None, &bad), Err(ControlError::Rejected(_))), "{place}");
        assert!(matches!(control.open("bad", None, &bad), Err(ControlError::Rejected(_))), "{place}");
    }
    assert!(matches!(control.open("cut", None, &good[..good.len() - 1]), Err(ControlError::Rejected(_))));
    let request = |magic: u64, version: u32, operation: u32, length: u64| {
        Request { magic, version, operation, length, ..Request::default() }.to_bytes().to_vec()
    };
    let magic = everycall_format::control_socket::MAGIC;
    let strange = [
        request(magic ^ 1, 1, 1, 0),
        request(magic, 2, 1, 0),
        request(magic, 1, 99, 0),
        request(magic, 1, 2, u64::MAX),
        request(magic, 1, 2, 64 << 20),
        vec![0xff; 4096],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        Vec::new(),
    ];
    for bytes in &strange {
        let mut stream = connect(&standing);
        stream.write_all(bytes).unwrap();
        // Some are closed by the other side, some wait for more.
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let _ = stream.read(&mut [0; 4096]);
    }
    // As many as there is room for, each with half a request, and more.
    let mut crowd: Vec<_> = (0..127).map(|_| connect(&standing)).collect();
    for stream in &mut crowd {
        stream.write_all(&request(magic, 1, 1, 0)[..20]).unwrap();
    }
    wait::until("no room is left", || {
        let mut one_more = Control::connect(&arena, PATIENCE).unwrap();
        matches!(one_more.now(), Err(ControlError::TooMany | ControlError::Io(_)))
    });
    let (now, _) = control.now().unwrap();
    assert_eq!((now.sites_on, now.sessions, now.on), (before.sites_on, 1, 0));
    drop(crowd);
    wait::until("there is room again", || {
        Control::connect(&arena, PATIENCE).is_ok_and(|mut control| control.now().is_ok())
    });
    let (status, printed) = standing.end();
    assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
}

/// A plain connection to a program's control socket.
fn connect(standing: &Standing) -> UnixStream {
    let name = standing.header().control_name.to_le_bytes();
    let address = SocketAddr::from_abstract_name(&name[..SOCKET_NAME]).unwrap();
    UnixStream::connect_addr(&address).unwrap()
}

/// The exit code of a command, and both of its outputs.
fn asked(place: &Place, words: &[&str]) -> (Option<i32>, String) {
    let output = place.command(everycall()).args(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// A command that must succeed. Returns its output.
fn done(place: &Place, words: &[&str]) -> String {
    let (code, said) = asked(place, words);
    assert_eq!(code, Some(0), "{words:?}: {said}");
    said
}

/// Ends a session early, after what was to be in it. Whether it succeeded.
fn interrupted(tracing: &mut std::process::Child) -> bool {
    let pid = tracing.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    tracing.wait().unwrap().success()
}

/// The trace of a session while the program takes a step.
fn traced(place: &Place, standing: &mut Standing, options: &[&str]) -> TraceView {
    let pid = standing.pid.to_string();
    let mut command = place.command(everycall());
    command.args(["trace", &pid, "-q", "--for", "1000s", "-o", "session.ect"]).args(options);
    let mut tracing = command.spawn().unwrap();
    wait::until("the session is there", || {
        done(place, &["sessions", "-f", "json", &pid]).contains("\"active\": true")
    });
    standing.go_on();
    assert!(interrupted(&mut tracing), "{options:?}");
    TraceView::open(&place.file("session.ect"))
}

/// A session's file shows what it asked for, though the rings have all calls of all threads.
#[test]
fn a_session_shows_its_own_calls() {
    let place = Place::new("selection-own");
    let modes = [Mode::GCC_NOPS, Mode::CLANG19_AFTER_INLINING, Mode::GCC_FENTRY];
    for mode in modes.into_iter().take(if is_full() { 3 } else { 2 }) {
        let program = program(&place, mode);
        let mut command = place.command(&program);
        let mut standing = Standing::start(command.arg("1").env("EVERYCALL_RING_SIZE", "1M"));
        // The report doesn't count the change that the session itself makes.
        let pid = standing.pid.to_string();
        let said = done(&place, &["trace", &pid, "red", "--for", "1ms", "-o", "first.ect"]);
        assert!(said.contains("first.ect") && !said.contains("changed which"), "{said}");
        let mut shown = |options: &[&str]| {
            let trace = traced(&place, &mut standing, options);
            ["step", "red", "green", "blue"].map(|name| trace.calls(name))
        };
        assert_eq!(shown(&["red"]), [0, 20, 0, 0], "{mode:?}");
        assert_eq!(shown(&["red", "green", "--within", "blue"]), [0, 10, 10, 0], "{mode:?}");
        assert_eq!(shown(&["--within", "blue"]), [0, 10, 10, 10], "{mode:?}");
        assert_eq!(shown(&["*", "--thread", "new"]), [0; 4], "{mode:?}");
        assert_eq!(shown(&["*", "--thread", "selected-*"]), [10, 20, 20, 10], "{mode:?}");
        // `main` began long ago, and all callers are in the same module.
        assert_eq!(shown(&["--crossing"]), [0; 4], "{mode:?}");
        let main = standing.pid.to_string();
        let trace = traced(&place, &mut standing, &["*", "--thread", &main, "--name", "the main one"]);
        assert_eq!((trace.threads.len(), trace.calls("step"), trace.calls("work_one")), (1, 10, 0));
        let info = done(&place, &["info", "session.ect"]);
        assert!(info.contains("calls of * that began during the session, in the threads below"), "{info}");
        let replayed = done(&place, &["replay", "session.ect"]);
        assert!(!replayed.contains("main") && replayed.contains("step"), "{replayed}");

        // Two threads that never stop reach any limit.
        for (option, said_of) in [("--max-events", "--max-events"), ("--max-rate", "--max-rate")] {
            let begin = std::time::Instant::now();
            let said =
                done(&place, &["trace", &main, "work*", "--for", "1h", option, "100k", "-o", "short.ect"]);
            assert!(said.contains("session ended after") && said.contains(said_of), "{said}");
            assert!(begin.elapsed() < Duration::from_secs(3000));
        }
        // Single events are counted, not ring segments of 8,192.
        let few = ["trace", &main, "work*", "--for", "1h", "--max-events", "100", "-o", "short.ect"];
        let said = done(&place, &few);
        let (_, rest) = said.split_once(" s: ").expect("why it ended");
        let events: u64 = rest.split_once(" events").expect("a count").0.replace(',', "").parse().unwrap();
        assert!(events >= 100 && !events.is_multiple_of(8_192), "{said}");
        const MOST: u64 = 1 << 20;
        let limited =
            ["trace", &main, "work*", "--for", "1h", "--stream", "--max-size", "1M", "-o", "short.ect"];
        let said = done(&place, &limited);
        assert!(said.contains("session ended after") && said.contains("--max-size"), "{said}");
        assert!(std::fs::metadata(place.file("short.ect")).unwrap().len() >= MOST);
        assert!(TraceView::open(&place.file("short.ect")).calls("work_one") > 0);
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    }
}

/// `--crossing` shows calls that other code made: also where calls were open when recording began,
/// and where code without hooks calls back.
#[test]
fn crossing_calls_are_those_of_other_code() {
    let place = Place::new("selection-crossing");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        let program =
            place.build(mode, &["-O2", "crossing.c", "-pthread"], &format!("crossing-{}", mode.label()));
        // `rounds` was open, and ends: what it called before isn't shown. The call of it that
        // follows is made by `main`, which doesn't end.
        for (start, rounds) in [("on", 0), ("off", 1)] {
            let mut command = place.command(&program);
            // A program that is recorded notices a session at its next call.
            command.env("EVERYCALL_START", start).args((start == "on").then_some("busy"));
            let mut standing = Standing::start(&mut command);
            traced(&place, &mut standing, &["--crossing"]);
            let replayed = done(&place, &["replay", "session.ect"]);
            let count = |is: &dyn Fn(&&str) -> bool| replayed.lines().filter(is).count();
            let shown = ["rounds", "sorts", "step", "leaf", "compared"].map(|name| {
                count(&|line| {
                    line.contains(&format!("ms  {name} ")) || line.contains(&format!("ms    {name} "))
                })
            });
            assert_eq!(shown, [rounds, 0, 0, 0, 2], "{mode:?} {start}: {replayed}");
            // The second comparison is shown under `rounds`, which didn't make it itself.
            let unsure = count(&|line| line.contains("caller uncertain"));
            assert_eq!(unsure, 2 * rounds, "{mode:?} {start}: {replayed}");
            assert!(standing.end().0.success());
        }
    }
}

/// `--thread children-of:TID` shows what descends from a thread.
#[test]
fn a_session_can_have_the_threads_that_one_thread_starts() {
    let place = Place::new("selection-children");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "thread_children.c", "-pthread"], "thread-children");
    for stream in [false, true] {
        let mut command = place.command(&program);
        let mut standing = Standing::start(command.arg(place.file("tids")).env("EVERYCALL_START", "off"));
        let tids = std::fs::read_to_string(place.file("tids")).unwrap();
        let tid = tids.split_whitespace().next().unwrap();
        let pid = standing.pid.to_string();
        let chosen = format!("children-of:{tid}");
        let mut command = place.command(everycall());
        command.args(["trace", &pid, "*_one", "*_two", "--thread", &chosen, "-q", "--for", "1h"]);
        command.args(stream.then_some("--stream")).args(["-o", "children.ect"]);
        let mut tracing = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let is_active = || done(&place, &["sessions", "-f", "json", &pid]).contains("\"active\": true");
        let mut refused = None;
        wait::until("the session is there, or is refused", || {
            refused = tracing.try_wait().unwrap();
            refused.is_some() || is_active()
        });
        if refused.is_some() {
            // Where the kernel doesn't allow it, the sentence says what is needed.
            let said = String::from_utf8(tracing.wait_with_output().unwrap().stderr).unwrap();
            assert!(said.contains("children-of") && said.contains("perf_event"), "{said}");
            return;
        }
        for _ in 0..50 {
            standing.go_on();
        }
        let (status, _) = standing.end();
        assert!(status.success() && tracing.wait().unwrap().success());
        let trace = TraceView::open(&place.file("children.ect"));
        let names = ["child_of_one", "grandchild_of_one", "parent_one", "child_of_two", "grandchild_of_two"];
        assert_eq!(names.map(|name| trace.calls(name)), [50, 50, 0, 0, 0], "{stream}");
    }
    let standing = Standing::alone(&program, &[]);
    let words =
        ["trace", &standing.pid.to_string(), "*_one", "--for", "1s", "--thread", "children-of:4000000"];
    let (code, said) = asked(&place, &words);
    assert!(code == Some(1) && said.contains("children-of:4000000 isn't possible"), "{said}");
    let (code, said) = asked(&place, &[&words[..6], &["children-of:x"]].concat());
    assert!(code == Some(2) && said.contains("names no thread"), "{said}");
    assert!(standing.end().0.success());
}

/// `trace --stream` has more than the rings hold, whether the command, the program or its time ends
/// first.
#[test]
fn a_streamed_session_has_more_than_the_rings() {
    const ROUNDS: u64 = 10_000;
    const RING: u64 = 1 << 20;
    let place = Place::new("selection-stream");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY] {
        let program = program(&place, mode);
        for (end, thread) in [("time", "selected*"), ("killed", "*"), ("program", "*")] {
            let mut command = place.command(&program);
            let mut standing = Standing::start(
                command.env("EVERYCALL_START", "off").env("EVERYCALL_RING_SIZE", RING.to_string()),
            );
            let pid = standing.pid.to_string();
            let mut command = place.command(everycall());
            command
                .args(["trace", &pid, "red", "green", "--stream", "--thread", thread, "-q", "--for", "1h"]);
            let mut tracing = command.args(["-o", "stream.ect"]).spawn().unwrap();
            let is_active = || done(&place, &["sessions", "-f", "json", &pid]).contains("\"active\": true");
            wait::until("the session is there", is_active);
            for _ in 0..ROUNDS {
                standing.go_on();
            }
            let shown = || {
                let trace = TraceView::open(&place.file("stream.ect"));
                let calls = ["red", "green", "blue"].map(|name| trace.calls(name));
                let info = done(&place, &["info", "-f", "json", "stream.ect"]);
                let info: serde_json::Value = serde_json::from_str(&info).unwrap();
                (calls, info["threads"][0]["lost_events"].as_u64().unwrap())
            };
            let mut lasting = Some(standing);
            match end {
                "time" => {
                    successful(place.command("kill").args(["-INT", &tracing.id().to_string()]));
                    assert!(tracing.wait().unwrap().success(), "{mode:?}");
                }
                "killed" => {
                    // Segments that threads had finished are there, and are shown as the session's.
                    wait::until("most of it is in the file", || shown().0[0] > RING / 8 / 4);
                    tracing.kill().unwrap();
                    tracing.wait().unwrap();
                    let ([red, green, blue], _) = shown();
                    assert!(
                        red <= 20 * ROUNDS && red.abs_diff(green) <= 1 && blue == 0,
                        "{mode:?}: {red} {green}"
                    );
                    wait::until("the session has ended", || !is_active());
                }
                _ => {
                    let (status, _) = lasting.take().unwrap().end();
                    assert!(status.success());
                    assert!(tracing.wait().unwrap().success(), "{mode:?}");
                }
            }
            if end != "killed" {
                // Where the command got no CPU for long, what is missing is counted.
                let ([red, green, blue], lost) = shown();
                assert!(red > RING / 8 / 4 || lost > 0, "{mode:?}, {end}: {red}, {lost} lost");
                assert_eq!(
                    (2 * (red + green) + lost, blue),
                    (80 * ROUNDS, 0),
                    "{mode:?}, {end}: {lost} lost"
                );
            }
            if let Some(standing) = lasting {
                assert!(standing.end().0.success());
            }
        }
    }
}

/// Libraries that are loaded while a session lasts belong to it, too.
#[test]
fn a_session_goes_on_in_libraries_that_are_loaded_later() {
    let place = Place::new("selection-later");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        let label = mode.label();
        let (program, library) = loads_later(&place, mode);
        let mut standing =
            Standing::start(place.command(&program).arg(&library).env("EVERYCALL_START", "off"));
        let pid = standing.pid.to_string();
        let mut command = place.command(everycall());
        command.args(["trace", &pid, "chosen*", "-q", "--for", "1h", "-o", "later.ect"]);
        let mut tracing = command.spawn().unwrap();
        let is_active = || done(&place, &["sessions", "-f", "json", &pid]).contains("\"active\": true");
        wait::until("the session is there", is_active);
        standing.go_on();
        standing.tell("load\n");
        let mut steps = 1;
        let recorded = |standing: &Standing| {
            let (file, _) = standing.snapshot(&place, &["-q"]);
            TraceView::open(&file).calls("chosen_later")
        };
        wait::until("the library's function is recorded", || {
            standing.go_on();
            steps += 1;
            recorded(&standing) > 0
        });
        let before = recorded(&standing);
        standing.go_on();
        steps += 1;
        successful(place.command("kill").args(["-INT", &tracing.id().to_string()]));
        assert!(tracing.wait().unwrap().success(), "{label}");
        let trace = TraceView::open(&place.file("later.ect"));
        let calls = ["chosen", "chosen_later", "other", "other_later"].map(|name| trace.calls(name));
        assert_eq!(calls, [10 * steps, before + 10, 0, 0], "{label}");
        // Everything is as before.
        assert!(!is_active());
        standing.go_on();
        assert_eq!(recorded(&standing), before + 10, "{label}");
        let (status, _) = standing.end();
        assert!(status.success());
    }
}

/// `record` applies its selection to libraries that are loaded later before any of their code runs,
/// and to programs that are started later.
#[test]
fn what_record_selects_holds_in_libraries_that_are_loaded_later() {
    let place = Place::new("selection-record-later");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let label = mode.label();
        let (program, library) = loads_later(&place, mode);
        let names = [
            "chosen",
            "chosen_early",
            "chosen_later",
            "other",
            "other_early",
            "other_later",
            "on_load",
            "main",
        ];
        let recorded = |options: &[&str], shell: bool| {
            let mut command = place.command(everycall());
            command.args(["record", "-o", "later.ect"]).args(options).arg("--");
            if shell {
                command.args(["sh", "-c", "echo; exec \"$0\" \"$1\""]);
            }
            command.arg(&program).arg(&library);
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
            let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(b"step\nload\nstep\nstep\n").unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{label}: {said}");
            (names.map(|name| TraceView::open(&place.file("later.ect")).calls(name)), said)
        };
        let (calls, said) = recorded(&["--only", "chosen*"], false);
        assert_eq!(calls, [30, 1, 20, 0, 0, 0, 0, 0], "{label}: {said}");
        let (calls, said) = recorded(&["--not", "other*", "--not", "nothing_*"], false);
        assert_eq!(calls, [30, 1, 20, 0, 0, 0, 1, 1], "{label}: {said}");
        assert!(said.contains("`nothing_*` matched no function, also not in 1 library"), "{said}");
        // The shell has no traced functions, and starts a program that has.
        let (calls, said) = recorded(&["--only", "*_later"], true);
        assert_eq!(calls, [0, 0, 20, 0, 0, 20, 0, 0], "{label}: {said}");
        assert!(said.contains("`*_later` matches nothing yet"), "{said}");
        assert!(!said.contains("matched no function"), "{said}");
    }
}

#[test]
fn enable_can_stay_for_libraries_that_are_loaded_later() {
    let place = Place::new("selection-enable-later");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY] {
        let label = mode.label();
        let (program, library) = loads_later(&place, mode);
        let mut standing =
            Standing::start(place.command(&program).arg(&library).env("EVERYCALL_START", "off"));
        let pid = standing.pid.to_string();
        let (code, said) = asked(&place, &["enable", "--only", &pid, "*_later"]);
        assert!(code == Some(1) && said.contains("no traced function"), "{said}");
        let mut command = place.command(everycall());
        let mut staying =
            command.args(["enable", "--later", "-q", "--only", &pid, "*_later"]).spawn().unwrap();
        let arena = arena(&standing);
        wait::until("the selection is there", || {
            let (now, _) = Control::connect(&arena, PATIENCE).unwrap().now().unwrap();
            now.on == 1 && now.has_base == 1
        });
        standing.tell("load\n");
        wait::until("the library's functions are recorded", || {
            standing.go_on();
            let (file, _) = standing.snapshot(&place, &["-q"]);
            let trace = TraceView::open(&file);
            assert_eq!((trace.calls("chosen"), trace.calls("other")), (0, 0), "{label}");
            trace.calls("chosen_later") > 0 && trace.calls("other_later") > 0
        });
        let (status, _) = standing.end();
        assert!(status.success());
        assert!(staying.wait().unwrap().success(), "{label}");
    }
}

#[test]
fn functions_are_switched_by_commands() {
    let place = Place::new("selection-commands");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FINSTRUMENT] {
        let program = place.build(
            mode,
            &["-O2", "-g", "selected.c", "-pthread"],
            &format!("selected-{}", mode.label()),
        );
        let mut command = place.command(&program);
        let mut standing = Standing::start(command.arg("1").env("EVERYCALL_START", "off"));
        let pid = standing.pid.to_string();
        let step = |standing: &mut Standing| {
            let before = counts(&place, standing);
            standing.go_on();
            let after = counts(&place, standing);
            [after[0] - before[0], after[1] - before[1], after[2] - before[2]]
        };
        assert_eq!(step(&mut standing), [0, 0, 0], "{mode:?}");
        let said = done(&place, &["enable", &pid, "re?", "/^gre+n$/"]);
        assert!(
            said.contains("`re?` matches 1 function") && said.contains("recording 2 of 8 functions"),
            "{said}"
        );
        assert_eq!(step(&mut standing), [20, 20, 0], "{mode:?}");
        // A pattern that matches nothing changes nothing.
        for (words, wanted) in [
            (&["enable", &pid, "blau"][..], "there is blue"),
            (&["disable", &pid, "red", "gren"], "there is green"),
            (&["disable", &pid, "size:<1"], "`everycall functions"),
        ] {
            let (code, said) = asked(&place, words);
            assert!(code == Some(1) && said.contains(wanted), "{words:?}: {code:?} {said}");
        }
        for (words, wanted) in [
            (&["enable", &pid, "/(/"][..], "isn't a regular expression"),
            (&["enable", &pid, "size:many"], "size:<20"),
            (&["enable", &pid, "@nowhere.txt"], "nowhere.txt can't be read"),
            (&["trace", &pid], "PATTERN"),
        ] {
            let (code, said) = asked(&place, words);
            assert!(code == Some(2) && said.contains(wanted), "{words:?}: {code:?} {said}");
        }
        assert_eq!(step(&mut standing), [20, 20, 0], "{mode:?}");
        place.write(
            "list.txt",
            "# by source, then some less\n+ file:selected.c\n- gre*\n- work*  # threads\n",
        );
        done(&place, &["enable", "--only", &pid, "@list.txt"]);
        assert_eq!(step(&mut standing), [20, 0, 10], "{mode:?}");
        let listed = done(&place, &["functions", &pid]);
        let state = |name: &str| {
            let line = listed.lines().find(|line| line.ends_with(&format!("  {name}"))).unwrap();
            line.split(' ').next().unwrap().to_owned()
        };
        let states = ["red", "green", "blue", "step", "work_one"].map(state);
        assert_eq!(states, ["on", "off", "on", "on", "off"], "{listed}");
        done(&place, &["disable", &pid, "addr:0x0-0xffffffff"]);
        assert_eq!(step(&mut standing), [0, 0, 0], "{mode:?}");

        // A session for a moment, beside nothing. Its file shows nothing else.
        let mut tracing = place
            .command(everycall())
            .args(["trace", &pid, "blue", "--for", "1000s", "-o", "traced.ect", "--name", "blues"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        wait::until("the session is there", || {
            done(&place, &["sessions", "-f", "json", &pid]).contains("\"active\": true")
        });
        assert!(done(&place, &["sessions", &pid]).contains("blues"), "{mode:?}");
        let listed: serde_json::Value =
            serde_json::from_str(&done(&place, &["functions", "-f", "json", &pid])).expect("JSON");
        for function in listed["functions"].as_array().expect("functions") {
            let is_blue = function["name"] == "blue";
            assert_eq!(function["on"], is_blue, "{mode:?}: {function}");
            let sessions: &[&str] = if is_blue { &["blues"] } else { &[] };
            assert_eq!(function["sessions"], serde_json::json!(sessions), "{mode:?}: {function}");
        }
        standing.go_on();
        assert!(interrupted(&mut tracing));
        let trace = TraceView::open(&place.file("traced.ect"));
        assert_eq!((trace.calls("blue"), trace.calls("red")), (10, 0), "{mode:?}");
        assert_eq!(step(&mut standing), [0, 0, 0], "{mode:?}: the session is over");

        // So is one whose owner is killed.
        let mut tracing = place
            .command(everycall())
            .args(["trace", &pid, "red", "--for", "100s", "-o", "killed.ect"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        wait::until("the session is there", || {
            done(&place, &["sessions", "-f", "json", &pid]).contains("\"active\": true")
        });
        tracing.kill().unwrap();
        tracing.wait().unwrap();
        wait::until("it is gone", || !done(&place, &["sessions", "-f", "json", &pid]).contains("active"));
        assert_eq!(step(&mut standing), [0, 0, 0], "{mode:?}");
        done(&place, &["enable", &pid]);
        assert_eq!(step(&mut standing), [20, 20, 10], "{mode:?}");
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");

        let recording =
            place.record(&["--only", "blue", "--only", "green", "--not", "gr*"], &program, &["1"]);
        let trace = recording.trace();
        assert_eq!(["red", "green", "blue"].map(|name| trace.calls(name)), [0, 0, 10], "{mode:?}");
        let info = done(&place, &["info", recording.file.to_str().unwrap()]);
        assert_eq!(info.contains("their functions are not selected"), has_sites(mode), "{info}");
    }
    let (code, said) = asked(&place, &["enable", &std::process::id().to_string(), "red"]);
    assert!(code == Some(1) && said.contains("gets no hooks: no traced function"), "{said}");
    let (code, said) = asked(&place, &["functions", "/bin/true"]);
    assert!(code == Some(1) && said.contains("has no traced functions"), "{said}");
}

/// Argument and result of each call.
type CallValues = Vec<(Option<i64>, Option<i64>)>;

/// `everycall trace` with values, with its messages in a file.
struct Tracing {
    child: std::process::Child,
    file: PathBuf,
    messages: PathBuf,
}

impl Tracing {
    fn start(place: &Place, standing: &Standing, name: &str, words: &[&str]) -> Tracing {
        let (file, messages) = (place.file(&format!("{name}.ect")), place.file(&format!("{name}.err")));
        let mut command = place.command(everycall());
        command.args(["trace", "-o"]).arg(&file).arg(standing.pid.to_string()).args(words);
        let child = command.stderr(std::fs::File::create(&messages).unwrap()).spawn().unwrap();
        let mut tracing = Tracing { child, file, messages };
        wait::until("the session to be active", || {
            assert!(tracing.child.try_wait().unwrap().is_none(), "{}", tracing.messages());
            let sessions = Control::connect(&arena(standing), PATIENCE).unwrap().sessions().unwrap().1;
            sessions.iter().any(|session| session.owner == tracing.child.id() && session.active != 0)
        });
        tracing
    }

    fn messages(&self) -> String {
        std::fs::read_to_string(&self.messages).unwrap()
    }

    /// Ends it. Returns arguments and results of the calls of two functions, in their order, and
    /// its messages.
    fn end(mut self, place: &Place) -> ([CallValues; 2], String) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.messages());
        let values = ["red", "green"].map(|name| {
            let query = format!(
                "select arguments ->> 'n' as n, result from slices where function = '{name}' order by start_ns"
            );
            let mut command = place.command(everycall());
            let rows = successful(command.args(["sql", "-f", "csv"]).arg(&self.file).arg(query));
            let number = |text: &str| text.trim_matches('"').parse().ok();
            let row = |line: &str| {
                let (argument, result) = line.split_once(',').unwrap();
                (number(argument), number(result))
            };
            rows.lines().skip(1).map(row).collect()
        });
        (values, self.messages())
    }
}

/// Where a text stands in the program's source.
fn line_of(text: &str) -> String {
    let source = include_str!("../../programs/selected.c");
    format!("selected.c:{}", source.lines().position(|line| line.contains(text)).unwrap() + 1)
}

/// The code of a function in a running program.
fn code(standing: &Standing, program: &std::path::Path, name: &str) -> Vec<u8> {
    use object::{Object, ObjectSymbol};
    use std::os::unix::fs::FileExt;
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
    let start = arena(standing).modules()[0].0.base + symbol.address();
    let mut code = vec![0; symbol.size() as usize];
    let memory = std::fs::File::open(format!("/proc/{}/mem", standing.pid)).unwrap();
    memory.read_exact_at(&mut code, start).unwrap();
    code
}

/// Values are recorded as long as somebody wants them, of all functions that anybody names, while
/// threads run these; then functions have the hooks that they had.
#[test]
fn values_of_a_running_program_come_and_go() {
    let place = Place::new("selection-values");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        let name = format!("valued-{}", mode.label());
        let program = place.build(mode, &["-O2", "-g", "selected.c", "-pthread"], &name);
        let mut standing = Standing::start(place.command(&program).arg("3").env("EVERYCALL_START", "off"));
        // Entries of mode `xray` keep their hook while threads run them.
        let has_entries = mode != Mode::CLANG19_XRAY;
        let mut control = Control::connect(&arena(&standing), PATIENCE).unwrap();
        control.set(true, None, &only(&program, &["red", "green", "work_one"])).unwrap();
        let before = code(&standing, &program, "work_one");
        for round in 0..3 {
            // The numbers of its first step.
            let first = |rounds: i64| 10 * (1 + 3 * round + rounds);
            let of_one = ["red", "work_one", "--args", "red", "--results", "work_one", "--call-sites=red"];
            let one = Tracing::start(&place, &standing, "one", &of_one);
            standing.go_on();
            let of_two = ["red", "green", "--results", "green", "--args", "green(n)", "--args", "red(n + 1)"];
            let two = Tracing::start(&place, &standing, "two", &of_two);
            standing.go_on();
            let ([red, green], messages) = two.end(&place);
            // Arguments of nobody are recorded where entries keep their hook.
            let shadowed = messages.contains("of 1 function others record other values already");
            assert_eq!(shadowed, has_entries, "{messages}");
            let both = |from: i64, to: i64| (from..to).flat_map(|n| [n, n]);
            let argument = |n: i64| has_entries.then_some(n);
            let expected = |from, to, adds: Option<i64>| -> Vec<_> {
                both(from, to).map(|n| (argument(n), adds.map(|adds| n + adds))).collect()
            };
            assert_eq!(red, expected(first(1), first(2), None), "{mode:?}");
            assert_eq!(green, expected(first(1), first(2), Some(2)), "{mode:?}");
            // The other one's values go on, and it doesn't get those that it hasn't asked for.
            standing.go_on();
            let file = one.file.clone();
            let ([red, _], messages) = one.end(&place);
            if has_entries {
                let sites = "select arguments ->> 'call_site' as at from slices where function = 'red' order by start_ns limit 4";
                let asked = || {
                    successful(place.command(everycall()).args(["sql", "-f", "csv"]).arg(&file).arg(sites))
                };
                let (step, blue) =
                    (line_of("return red(n) + green(n) + blue(n);"), line_of("long blue(long n)"));
                let expected = format!("at\n{step}\n{blue}\n{step}\n{blue}\n");
                assert_eq!(asked(), expected);
                // Embedded symbols have the lines, too.
                successful(place.command(everycall()).args(["embed", "-q"]).arg(&file));
                let away = program.with_extension("away");
                std::fs::rename(&program, &away).unwrap();
                assert_eq!(asked(), expected);
                std::fs::rename(&away, &program).unwrap();
            }
            assert_eq!(messages.contains("mode `xray`"), !has_entries, "{messages}");
            assert_eq!(red, expected(first(0), first(3), None), "{mode:?}");
            assert_eq!(code(&standing, &program, "work_one"), before, "{mode:?}");
        }
        clients_judge_values(&place, &mut standing, &mut control, has_entries, &format!("{mode:?}"));
        drop(control);
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    }
}

/// Triggers and traces with conditions, of several clients at once: each gets what it wants, and
/// leaves out nothing that another one wants. `has_entries`: whether arguments are recorded. The
/// program's next step has number 100.
fn clients_judge_values(
    place: &Place,
    standing: &mut Standing,
    control: &mut Control,
    has_entries: bool,
    label: &str,
) {
    // How many calls of each trigger are kept in a file; all of them are.
    let kept = |name: &str| -> Vec<usize> {
        let bytes = std::fs::read(place.file(name)).unwrap();
        let recording = TraceFile::open(&bytes).unwrap();
        let recording = recording.recording();
        let of = |number| recording.kept.iter().filter(|call| call.trigger == number).count();
        let counts: Vec<usize> = (0..recording.triggers.len()).map(of).collect();
        let fired: Vec<usize> = recording.triggers.iter().map(|trigger| trigger.fired as usize).collect();
        assert_eq!(counts, fired, "{label} {name}: {:?}", recording.triggers);
        counts
    };
    let trigger = |standing: &Standing, words: &[&str]| {
        Waiting::start(place, standing.pid, &[words, &KEEP_ALL].concat())
    };
    let fourths = |from: i64, to: i64| (from..to).flat_map(|n| [n, n]).map(|n| (n % 4 == 0).then_some(n));
    let of_one = ["red", "--args", "red(n) if n % 4 == 0"];
    if !has_entries {
        let waiting = trigger(standing, &["green returned > 107", "-o", "results.ect"]);
        standing.go_on();
        let _ = waiting.interrupt();
        assert_eq!(kept("results.ect"), [8], "{label}");
        return;
    }
    // The base selection has all calls of `red`.
    let one = Tracing::start(place, standing, "fourth", &of_one);
    standing.go_on();
    let ([red, _], _) = one.end(place);
    let arguments = |calls: CallValues| -> Vec<_> { calls.into_iter().map(|(n, _)| n).collect() };
    assert_eq!(arguments(red), fourths(100, 110).collect::<Vec<_>>(), "{label}");
    // Without it, and beside triggers for a while.
    control.set(false, None, &[]).unwrap();
    let one = Tracing::start(place, standing, "fourths", &of_one);
    standing.go_on();
    let first = trigger(standing, &["red entered if n % 10 < 3", "-o", "first.ect"]);
    let second = [
        "red entered if n % 10 == 7",
        "green returned > 127",
        "blue > 1ns if n % 2 == 0",
        "green returned > 0 if n == 129",
        "-o",
        "second.ect",
    ];
    let second = trigger(standing, &second);
    standing.go_on();
    let _ = (first.interrupt(), second.interrupt());
    wait::until("the triggers' sessions to be gone", || control.sessions().unwrap().1.len() == 1);
    standing.go_on();
    let ([red, _], _) = one.end(place);
    let only_fourths = |from, to| fourths(from, to).filter(Option::is_some);
    let expected = only_fourths(110, 120).chain(fourths(120, 130)).chain(only_fourths(130, 140));
    assert_eq!(arguments(red), expected.collect::<Vec<_>>(), "{label}");
    assert_eq!((kept("first.ect"), kept("second.ect")), (vec![6], vec![2, 8, 5, 2]), "{label}");
}
