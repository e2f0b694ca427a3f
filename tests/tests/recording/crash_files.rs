//! `EVERYCALL_CRASH`: the file of a process that dies, in whichever way; a process that ends
//! normally leaves none.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use everycall_tests::{Mode, Mount, Place, TraceView, everycall, successful};

/// A folder that other users may not write to.
fn folder(place: &Place, name: &str) -> PathBuf {
    let path = place.file(name);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn program(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "dying.c", "-pthread"], &format!("dying-{}", mode.label()))
}

fn left(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn run(program: &Path, folder: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).env("EVERYCALL_CRASH", folder).output().unwrap()
}

/// The trace of a crash file, made by `everycall core`.
fn trace(place: &Place, file: &Path) -> TraceView {
    TraceView::open(&converted(place, file))
}

fn converted(place: &Place, file: &Path) -> PathBuf {
    let out = place.file("crash.ect");
    let _ = fs::remove_file(&out);
    successful(place.command(everycall()).args(["core", "-q", "-o", "crash.ect"]).arg(file));
    out
}

fn of_main(trace: &TraceView) -> &everycall_tests::ThreadTrace {
    let mut threads = trace.threads.iter().filter(|thread| thread.tallies.contains_key("main"));
    let main = threads.next().unwrap();
    assert!(threads.next().is_none());
    main
}

#[test]
fn every_death_leaves_all_but_what_was_just_being_written() {
    let place = Place::new("crash-deaths");
    let deaths =
        [("kill", Some(9)), ("segv", Some(11)), ("abort", Some(6)), ("_exit", None), ("overflow", Some(11))];
    for mode in Mode::in_turn(0) {
        let program = program(&place, mode);
        for (how, signal) in deaths {
            let crashes = folder(&place, &format!("{how}-{}", mode.label()));
            let output = run(&program, &crashes, &[how, "1000", "2"]);
            assert_eq!(output.status.signal(), signal, "{mode:?} {how}");
            assert_eq!(output.stderr, b"", "{mode:?} {how}");
            let [file] = &left(&crashes)[..] else { panic!("{mode:?} {how}: {:?}", left(&crashes)) };
            let facts = fs::metadata(file).unwrap();
            assert_eq!(facts.permissions().mode() & 0o7777, 0o600);
            // Some thousand open calls are a tree too high.
            let trace = TraceView::tallies_only(&converted(&place, file));
            assert_eq!(trace.warnings, [] as [String; 0], "{mode:?} {how}");
            let main = of_main(&trace);
            assert_eq!((main.losses, main.orphans), (0, 0), "{mode:?} {how}");
            if how != "overflow" {
                assert_eq!(main.tallies["leaf"].exits, 1000, "{mode:?} {how}");
                assert_eq!(main.tallies["die"].entries, 1, "{mode:?} {how}");
            } else {
                assert!(main.tallies["endless"].entries > 1000, "{mode:?} {how}");
            }
            for number in 0..2 {
                let thread = trace
                    .threads
                    .iter()
                    .find(|thread| *thread.info.name == format!("thread-{number}"))
                    .unwrap();
                assert_eq!((thread.tallies["leaf"].exits, thread.losses), (1000, 0), "{mode:?} {how}");
            }
            fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn a_normal_end_leaves_no_crash_file() {
    let place = Place::new("crash-ends");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FINSTRUMENT] {
        let program = program(&place, mode);
        let crashes = folder(&place, &format!("ends-{}", mode.label()));
        for how in ["exit", "return", "quiet-child", "spawn", "child-exit", "child-return"] {
            let output = run(&program, &crashes, &[how, "100", "1"]);
            assert!(output.status.success(), "{mode:?} {how}: {output:?}");
            assert_eq!(output.stderr, b"", "{mode:?} {how}");
            assert_eq!(left(&crashes), [] as [PathBuf; 0], "{mode:?} {how}");
        }
        // These run no cleaning up: they count as deaths.
        for how in ["_exit", "quick_exit"] {
            assert!(run(&program, &crashes, &[how, "100"]).status.success());
            let [file] = &left(&crashes)[..] else { panic!("{how}") };
            fs::remove_file(file).unwrap();
        }
        // Under record, the recorder has it all.
        let output = place
            .command(everycall())
            .args(["record", "-q", "-o", "recorded.ect", "--"])
            .arg(&program)
            .args(["kill", "10"])
            .env("EVERYCALL_CRASH", &crashes)
            .output()
            .unwrap();
        assert!(!output.status.success());
        assert_eq!(left(&crashes), [] as [PathBuf; 0], "{mode:?}");
    }
}

#[test]
fn children_have_files_of_their_own() {
    let place = Place::new("crash-children");
    let program = program(&place, Mode::GCC_NOPS);
    let crashes = folder(&place, "crashes");
    for how in ["child-kill", "child-segv", "child-_exit"] {
        let output = run(&program, &crashes, &[how, "500", "2"]);
        assert!(output.status.success(), "{how}");
        let child = String::from_utf8(output.stdout).unwrap();
        let [file] = &left(&crashes)[..] else { panic!("{how}: {:?}", left(&crashes)) };
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(name, format!("dying-gcc-nops-{}.arena", child.trim()), "{how}");
        let trace = trace(&place, file);
        assert_eq!((trace.calls("child_leaf"), trace.calls("leaf")), (500, 0), "{how}");
        assert_eq!(trace.losses(), 0);
        fs::remove_file(file).unwrap();
    }
}

/// A program that waits for the end of its input.
struct Waiting(Child);

impl Waiting {
    fn start(program: &Path, folder: &Path) -> Waiting {
        let mut command = Command::new(program);
        command.args(["wait", "1000", "2"]).env("EVERYCALL_CRASH", folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Waiting(child)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn ps(place: &Place, folder: &Path) -> serde_json::Value {
    let mut command = place.command(everycall());
    serde_json::from_str(&successful(command.args(["ps", "-f", "json"]).arg(folder))).unwrap()
}

#[test]
fn found_and_read_while_its_process_lives_and_after() {
    let place = Place::new("crash-live");
    let program = program(&place, Mode::GCC_NOPS);
    let crashes = folder(&place, "crashes");
    let mut waiting = Waiting::start(&program, &crashes);
    let pid = waiting.0.id();
    let [file] = &left(&crashes)[..] else { panic!() };
    let shown = |verb: &[&str]| successful(place.command(everycall()).args(verb).arg(file));
    let listed = ps(&place, &crashes);
    let of = listed["processes"].as_array().unwrap().iter().find(|process| process["pid"] == pid).unwrap();
    assert_eq!(of["crash_file"].as_str().unwrap(), file.to_str().unwrap());
    assert!(of["recorder_pid"].is_null());
    // Folders of other running programs are searched, too: those of the tests that run at the same
    // time.
    let files_of = |listed: &serde_json::Value| {
        let all = listed["crash_files"].as_array().unwrap();
        all.iter().filter(|file| file["pid"] == pid).cloned().collect::<Vec<_>>()
    };
    assert_eq!(files_of(&listed), [] as [serde_json::Value; 0]);
    // A snapshot by its number, and the file itself.
    let id = pid.to_string();
    successful(place.command(everycall()).args(["snapshot", "-q", "-o", "live.ect", &id]));
    let live = TraceView::open(&place.file("live.ect"));
    assert_eq!((live.calls("leaf"), live.losses()), (3000, 0));
    assert!(shown(&["info"]).contains("not yet"));
    assert!(shown(&["replay", "--function", "^die$"]).contains("die"));

    waiting.0.kill().unwrap();
    waiting.0.wait().unwrap();
    let listed = ps(&place, &crashes);
    assert!(!listed["processes"].as_array().unwrap().iter().any(|process| process["pid"] == pid));
    let [found] = &files_of(&listed)[..] else { panic!("{listed}") };
    assert_eq!((found["pid"].as_u64(), found["threads"].as_u64()), (Some(pid.into()), Some(3)));
    let words = [program.to_str().unwrap(), "wait", "1000", "2"];
    assert_eq!(found["command"], serde_json::json!(words));
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
        - found["last_realtime_ns"].as_u64().unwrap();
    assert!(age < 120_000_000_000, "{age}");
    assert!(found["bytes_on_disk"].as_u64().unwrap() < 64 << 20);
    let page = shown(&["info"]);
    assert!(
        page.contains("terminated abnormally (cause not recorded in a crash file)")
            && page.contains("wait 1000 2"),
        "{page}"
    );
    assert!(shown(&["replay"]).contains("leaf"));
    successful(place.command(everycall()).args(["export", "-f", "vizviewer", "-o", "x.json"]).arg(file));
    // It is a file like any other: if it is overwritten or truncated, commands end with an error
    // message.
    let bytes = place.file("cut.arena");
    for size in [0, 7, 100, 4096, 10_000, 5_000_000] {
        successful(place.command("cp").arg("--sparse=always").arg(file).arg(&bytes));
        fs::OpenOptions::new().write(true).open(&bytes).unwrap().set_len(size).unwrap();
        let output = place.command(everycall()).arg("info").arg(&bytes).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{size}: {said}");
        assert!(said.contains("cut.arena: ") && !said.contains("panicked"), "{size}: {said}");
    }
}

/// Which folders are allowed, and the messages for others. The program runs as usual, and snapshots
/// can be taken of it.
#[test]
fn folders_that_will_not_do() {
    let place = Place::new("crash-folders");
    let program = program(&place, Mode::GCC_NOPS);
    let good = folder(&place, "good");
    let check = |path: &Path, words: &str| {
        let output = run(&program, path, &["_exit", "100"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(said.starts_with("everycall: EVERYCALL_CRASH="), "{said}");
        assert!(
            said.contains(words) && said.ends_with("Going on without a crash file.\n"),
            "{words}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    check(&place.file("missing"), "is not there, or is no folder; make it with mkdir -m 700");
    check(&place.write("plain", "x"), "is not there, or is no folder");
    check(Path::new(""), "is no path");
    check(Path::new(&format!("/{}", "x".repeat(1100))), "is no path");
    let link = place.file("link");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    check(&link, "is a symbolic link");
    check(&link.join(""), "is a symbolic link");
    let open = folder(&place, "open");
    for mode in [0o777, 0o1777, 0o770] {
        fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        check(&open, "others may write to it");
    }
    check(Path::new("/proc/self/task"), "can't keep room for a mapped file");
    assert_eq!(left(&good), [] as [PathBuf; 0]);
    // A relative one works, wherever the program goes.
    let output =
        place.command(&program).args(["kill", "10"]).env("EVERYCALL_CRASH", "good/").output().unwrap();
    assert_eq!((output.status.signal(), left(&good).len()), (Some(9), 1));
    fs::remove_file(&left(&good)[0]).unwrap();

    let shell = |script: &str, signal: Option<i32>| {
        let mut command = place.command("sh");
        command.args(["-c", script]).arg(&program).env("EVERYCALL_CRASH", &good);
        let output = command.output().unwrap();
        assert_eq!(output.status.signal(), signal, "{script}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // Files of 1 MiB at most: no signal of that, only a sentence.
    let said = shell("ulimit -f 1024; exec \"$0\" exit 100", None);
    assert!(said.contains("ulimit -f"), "{said}");
    // Some hundred MiB are enough for fewer threads.
    assert_eq!(shell("ulimit -f 400000; exec \"$0\" kill 100", Some(9)), "");
    let [file] = &left(&good)[..] else { panic!() };
    assert!(fs::metadata(file).unwrap().len() <= 400_000 << 10);
    assert_eq!(trace(&place, file).calls("leaf"), 100);
    fs::remove_file(file).unwrap();
    // Little address space.
    assert_eq!(shell("ulimit -v 1000000; exec \"$0\" kill 100", Some(9)), "");
    fs::remove_file(&left(&good)[0]).unwrap();
}

/// A disk that is full at the start, and one that becomes full while the program runs: it runs to
/// its end.
#[test]
fn full_disks_and_those_that_become_full() {
    let place = Place::new("crash-full");
    let program = program(&place, Mode::GCC_NOPS);
    let mut disks = Vec::new();
    if let Some(mount) = Mount::tmpfs(&place, "small", "1m") {
        let output = run(&program, mount.path(), &["_exit", "100"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && said.contains("lies on a disk without room; free some space"),
            "{said}"
        );
        assert_eq!(left(mount.path()), [] as [PathBuf; 0], "nothing stays");
        Command::new("mount").args(["-o", "remount,ro"]).arg(mount.path()).status().unwrap();
        let output = run(&program, mount.path(), &["_exit", "100"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("can't be written to"), "{said}");
    }
    disks.extend(Mount::tmpfs(&place, "tmpfs", "12m"));
    let image = place.file("image");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image).status();
    if made.is_ok_and(|status| status.success()) {
        disks.extend(Mount::new(&place, "ext4", &["-o", "loop", image.to_str().unwrap()]));
    }
    for disk in &disks {
        let crashes = disk.path().join("crashes");
        fs::create_dir(&crashes).unwrap();
        fs::set_permissions(&crashes, fs::Permissions::from_mode(0o700)).unwrap();
        // 40 threads would fill 20 MiB and more.
        let output = run(&program, &crashes, &["_exit", "40000", "40"]);
        assert!(output.status.success(), "{disk:?}: {output:?}", disk = disk.path());
        let [file] = &left(&crashes)[..] else { panic!() };
        let out = place.file("full.ect");
        let _ = fs::remove_file(&out);
        let output = place.command(everycall()).args(["core", "-o", "full.ect"]).arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("got no more disk space"), "{said}");
        let trace = TraceView::open(&out);
        assert!(trace.threads.len() >= 3, "{}", trace.threads.len());
        for thread in &trace.threads {
            assert!(thread.losses == 0 && thread.tallies["leaf"].exits > 1000, "{:?}", thread.tallies);
        }
        fs::remove_file(file).unwrap();
    }
}

/// Programs with more rights than the user who started them ignore the variable.
#[test]
fn setuid_programs_write_no_file() {
    let place = Place::new("crash-setuid");
    let program = program(&place, Mode::GCC_NOPS);
    let crashes = folder(&place, "crashes");
    let can = Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("not run: it needs root");
        return;
    }
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(fs::metadata(&program).unwrap().uid(), 0);
    let as_nobody = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups"]).arg(program).args(["kill", "10"]);
        // The C library takes this one out of the environment, which moves the others.
        command.env("LD_LIBRARY_PATH", "/nowhere");
        command.env("EVERYCALL_CRASH", &crashes).output().unwrap()
    };
    let output = as_nobody(&program);
    assert_eq!((output.status.signal(), &output.stderr[..]), (Some(9), &b""[..]));
    assert_eq!(left(&crashes), [] as [PathBuf; 0]);
    // Without those rights, it looks, and may not.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let said = as_nobody(&program).stderr;
    assert!(String::from_utf8_lossy(&said).contains("Going on without a crash file"));
}
