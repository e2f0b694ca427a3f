//! Frames that have the names which just-in-time compilers tell perf: `perf-PID.map`, jitdump.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use everycall_reader::{Source, TraceFile};
use everycall_tests::{Mode, Place, Recording, Standing, TraceView, everycall, successful, text};

/// Removes the maps of these processes, which stay in `/tmp` for perf.
struct Maps(Vec<u32>);

impl Drop for Maps {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
        }
    }
}

fn built(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "-g", "jit_code.c"], &format!("jit-code-{}", mode.label()))
}

/// The calls of `run`, of each process.
fn called(trace: &TraceView) -> Vec<String> {
    let of = |thread: &everycall_tests::ThreadTrace| {
        assert_eq!((thread.losses, thread.orphans), (0, 0), "{:?}", thread.info);
        let calls = everycall_tests::all(&thread.calls);
        let run = calls.into_iter().filter(|call| call.name.starts_with("run"));
        run.map(|call| text(&call.inside)).collect::<Vec<_>>().join(", ")
    };
    trace.threads.iter().map(of).collect()
}

/// The functions that were called, with the number of their calls. All of these have ended.
fn called_by_name(recording: &Recording) -> Vec<(String, u64)> {
    let trace = recording.trace();
    for thread in &trace.threads {
        let [losses, orphans, unwound] = [thread.losses, thread.orphans, thread.info.unwound];
        assert_eq!((losses, orphans, unwound), (0, 0, 0), "{:?}", thread.info);
    }
    let tallies = trace.tallies().into_iter();
    tallies
        .map(|(name, tally)| {
            assert_eq!(tally.entries, tally.exits, "{name}");
            (name, tally.entries)
        })
        .collect()
}

fn recorded(place: &Place, options: &[&str], arguments: &[&str]) -> (Recording, Maps) {
    let recording = place.record(options, &built(place, Mode::GCC_NOPS), arguments);
    assert!(recording.output.status.success(), "{recording:?}");
    let maps = Maps(recording.trace().processes.iter().map(|process| process.pid).collect());
    (recording, maps)
}

#[test]
fn a_map_names_addresses_and_ids() {
    let place = Place::new("jit-map");
    for options in [&[][..], &["--stream"]] {
        let (recording, _maps) = recorded(&place, options, &["map", "ids", "function"]);
        let [calls] = &called(&recording.trace())[..] else { panic!("{recording:?}") };
        // The last line of an address counts. What has no name has its address.
        let (named, rest) = calls.split_once(", ?0x").unwrap();
        assert_eq!(named, "js:fib app.js:1(work), js:add app.js:9(work)");
        let (_, rest) = rest.split_once("(work), ").unwrap();
        assert_eq!(rest, "told(work), six or seven(work), frame 8(work), work(work)");
    }
}

#[test]
fn code_with_hooks_of_its_own_has_names() {
    let place = Place::new("jit-hooks");
    let recording = place.record(&[], &built(&place, Mode::GCC_FINSTRUMENT), &["hooks"]);
    let trace = recording.trace();
    let _maps = Maps(trace.processes.iter().map(|process| process.pid).collect());
    assert_eq!(called(&trace), ["hooked(work)"], "{recording:?}");
}

#[test]
fn a_jitdump_names_addresses_at_each_time() {
    let place = Place::new("jit-dump");
    let (recording, _maps) = recorded(&place, &[], &["dump"]);
    let expected = "first(work), second(work), second(work), third(work)";
    assert_eq!(called(&recording.trace()), [expected], "{recording:?}");
    let mut export = place.command(everycall());
    export.args(["export", "-f", "csv", "-o", "-"]).arg(&recording.file);
    let rows = successful(&mut export);
    let first = rows.lines().find(|row| row.contains("first.lua")).unwrap();
    assert!(first.contains("/srv/first.lua") && first.contains('7'), "{first}");
}

#[test]
fn forked_processes_have_their_parents_code() {
    let place = Place::new("jit-fork");
    let (recording, _maps) = recorded(&place, &[], &["fork"]);
    let mut found = called(&recording.trace());
    found.sort();
    assert_eq!(found, ["of the parent(work)", "of the parent(work), of the child(work)"], "{recording:?}");
}

#[test]
fn a_snapshot_of_a_running_process_has_the_names() {
    let place = Place::new("jit-snapshot");
    let program = built(&place, Mode::GCC_NOPS);
    let standing = Standing::recorded(&place, &program, &["map", "dump", "wait"]);
    let _maps = Maps(vec![standing.pid]);
    let file = place.file("snapshot.ect");
    let mut snapshot = place.command(everycall());
    successful(snapshot.args(["snapshot", "-o"]).arg(&file).arg(standing.pid.to_string()));
    let found = called(&TraceView::open(&file));
    assert!(found[0].starts_with("js:fib app.js:1(work), js:add app.js:9(work), "), "{found:?}");
    assert!(found[0].ends_with(", first(work), second(work), second(work), third(work)"), "{found:?}");
}

#[test]
fn snapshots_of_its_own_and_crash_files_have_the_names() {
    let place = Place::new("jit-left");
    let program = built(&place, Mode::GCC_NOPS);
    let crashes = place.file("crashes");
    fs::create_dir(&crashes).unwrap();
    fs::set_permissions(&crashes, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = place.command(&program);
    command.args(["map", "dump", "snapshot", "abort"]).env("EVERYCALL_CRASH", &crashes);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let map = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
    let _maps = Maps(vec![child.id()]);
    assert_eq!(child.wait().unwrap().signal(), Some(6));

    let of_map = "js:fib app.js:1(work), js:add app.js:9(work), ";
    let crash = fs::read_dir(&crashes).unwrap().next().unwrap().unwrap().path();
    // The dump isn't where it is searched for: that took a process that still runs.
    let made = || {
        let file = place.file("crash.ect");
        let said = place.command(everycall()).args(["core", "-o"]).arg(&file).arg(&crash).output().unwrap();
        (called(&TraceView::open(&file)).concat(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    let (calls, said) = made();
    assert!(calls.starts_with(of_map), "{calls} {said}");
    let replayed = successful(place.command(everycall()).arg("replay").arg(&crash));
    assert!(replayed.contains("js:fib app.js:1"), "{replayed}");

    // Another process with its id has written it.
    fs::write(&map, fs::read_to_string(&map).unwrap().replace("js:", "other:")).unwrap();
    let later = SystemTime::now() + Duration::from_secs(9);
    fs::File::options().write(true).open(&map).unwrap().set_modified(later).unwrap();
    let (calls, said) = made();
    assert!(
        calls.starts_with("?0x") && said.contains("written after the process's last call"),
        "{calls} {said}"
    );

    // The snapshot has its own copy.
    let found = called(&TraceView::open(&place.file("own.ect"))).concat();
    assert!(found.starts_with(of_map), "{found}");
    assert!(found.ends_with(", first(work), second(work), second(work), third(work)"), "{found}");
}

/// Triggers, selections and counts use the names in a map.
#[test]
fn triggers_selections_and_counts_know_the_names() {
    let place = Place::new("jit-chosen");
    let (recording, _maps) = recorded(&place, &["--trigger", "js:slow* > 20ms"], &["map", "slow"]);
    let file = TraceFile::open(fs::File::open(&recording.file).unwrap()).unwrap();
    let kept = &file.recording().kept;
    assert_eq!(kept.len(), 1, "{recording:?}");
    assert!(kept[0].end_ticks - kept[0].start_ticks >= kept[0].threshold_ticks, "{kept:?}");
    // The calls' trace, then the process's.
    for calls in called(&recording.trace()) {
        assert!(calls.starts_with("js:fib app.js:1(work), js:add app.js:9(work), ?0x"), "{calls}");
    }

    let (recording, _maps) = recorded(&place, &["--only", "js:next*", "--only", "js:add*"], &["map", "slow"]);
    let expected = [("js:add app.js:9", 1), ("js:next app.js:30", 1)];
    assert_eq!(
        called_by_name(&recording),
        expected.map(|(name, calls)| (name.to_owned(), calls)),
        "{recording:?}"
    );

    let (recording, _maps) = recorded(&place, &["--only", "js:late*", "--only", "work"], &["late"]);
    assert_eq!(
        called_by_name(&recording),
        [("js:late app.js:40".to_owned(), 1), ("work".to_owned(), 1)],
        "{recording:?}"
    );

    let program = built(&place, Mode::GCC_NOPS);
    let mut count = place.command(everycall());
    count.args(["count", "-o", "count.ect", "--"]).arg(&program).args(["map", "slow", "fork"]);
    successful(&mut count);
    let report = place.command(everycall()).args(["report", "-f", "json", "count.ect"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let calls = |name: &str| {
        let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["name"] == name);
        rows.map(|row| row["calls"].as_u64().unwrap()).sum::<u64>()
    };
    let names =
        ["js:fib app.js:1", "js:slow app.js:20", "js:next app.js:30", "of the parent", "of the child"];
    assert_eq!(names.map(calls), [1, 3, 1, 2, 1], "{report}");
}

/// A process in a namespace has another id, by which its map is called, or another `/tmp`.
#[test]
fn maps_of_other_namespaces_are_found() {
    let place = Place::new("jit-namespace");
    let program = built(&place, Mode::GCC_NOPS);
    // The program is hidden by then, but the shell is in its folder.
    let (folder, name) = (program.parent().unwrap(), program.file_name().unwrap());
    let run = format!("cd {} && mount -t tmpfs none /tmp && ./{} map", folder.display(), name.display());
    let own_pid = ["--fork", "--pid"].map(str::to_owned).to_vec();
    let pid = [own_pid, vec![program.display().to_string(), "map".to_owned()]].concat();
    for arguments in [pid, ["--mount", "sh", "-c", &run].map(str::to_owned).to_vec()] {
        let flag = arguments.iter().take_while(|word| word.starts_with("--"));
        let can = place.command("unshare").args(flag).arg("true").status();
        if !can.is_ok_and(|status| status.success()) {
            return eprintln!("not run: no namespaces here");
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let recording = place.record(&[], &PathBuf::from("unshare"), &arguments);
        let trace = recording.trace();
        let _maps = Maps(trace.processes.iter().map(|process| process.pid).collect());
        let [calls] = &called(&trace)[..] else { panic!("{recording:?}") };
        assert!(calls.starts_with("js:fib app.js:1(work), js:add app.js:9(work), "), "{calls}");
    }
}

#[test]
fn files_of_others_and_garbage_do_no_harm() {
    let place = Place::new("jit-bad");
    let said = |arguments: &[&str]| {
        let (recording, _maps) = recorded(&place, &[], arguments);
        let calls = called(&recording.trace()).join("");
        (String::from_utf8_lossy(&recording.output.stderr).into_owned(), calls)
    };
    let unnamed = "?0x";
    for (trap, why) in [("fifo", "it is no regular file"), ("link", "it is a symbolic link")] {
        let (said, calls) = said(&[trap]);
        assert!(said.contains(".map were not read: ") && said.contains(why), "{said}");
        assert!(calls.starts_with(unnamed), "{calls}");
    }
    let (said, calls) = said(&["map", "garbage"]);
    assert!(!said.contains("not read"), "{said}");
    assert!(calls.ends_with("js:fib app.js:1(work)"), "{calls}");
    if rustix::process::geteuid().is_root() {
        let (recording, _maps) = recorded(&place, &[], &["map", "stranger"]);
        let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
        assert!(said.contains("it belongs to user 12345, and the program to user 0"), "{said}");
    }
}
