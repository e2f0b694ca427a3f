//! `everycall resolve` and `EVERYCALL_TRIGGERS`: calls that took too long by the program's own
//! clock become files, without `record`.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use everycall_reader::{KeptCall, Reason, Source as _, TraceFile, Trigger};
use everycall_tests::slow::{KEEP_ALL, OwnCall, SLOW, SlowWays, own_calls};
use everycall_tests::{Mode, Place, TraceView, everycall, successful};

/// A run of a program that has a set.
struct Run {
    output: Output,
    /// Kept calls by their files' numbers, of each process id.
    kept: BTreeMap<(String, u32), (PathBuf, KeptCall, Vec<Trigger>)>,
}

impl Run {
    fn of(command: &mut Command, place: &Place) -> Run {
        let folder = place.file("kept");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let printed = place.file("printed");
        command.env("EVERYCALL_SNAPSHOT_FOLDER", &folder).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdout(File::create(&printed).unwrap()).spawn().unwrap();
        // A program that keeps running is done when it says so and no more files are written.
        let tasks = format!("/proc/{}/task", child.id());
        let is_busy = || fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() != 1);
        let is_over = || fs::read_to_string(&printed).is_ok_and(|text| text.ends_with("\nend\n"));
        let deadline = Instant::now() + Duration::from_secs(120);
        while child.try_wait().unwrap().is_none() && (!is_over() || is_busy()) {
            assert!(Instant::now() < deadline, "{command:?} doesn't end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut output = child.wait_with_output().unwrap();
        output.stdout = fs::read(&printed).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
        let mut kept = BTreeMap::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
            // NAME-PID-kept-NUMBER.ect
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let mut parts = name.rsplit('-');
            let number: u32 = parts.next().unwrap().parse().unwrap();
            assert_eq!(parts.next(), Some("kept"), "{name}");
            let pid = parts.next().unwrap().to_owned();
            let file = TraceFile::open(File::open(&path).unwrap()).unwrap();
            let recording = file.recording();
            assert_eq!(recording.warnings, [], "{path:?}");
            assert_eq!(recording.snapshots.len(), 1, "{path:?}");
            assert_eq!(recording.snapshots[0].reason, Reason::Trigger, "{path:?}");
            assert_eq!(recording.kept.len(), 1, "{path:?}");
            let facts = (path, recording.kept[0].clone(), recording.triggers.clone());
            kept.insert((pid, number), facts);
        }
        Run { output, kept }
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The result of the only trigger after the last call was kept.
    fn trigger(&self) -> &Trigger {
        let (_, _, triggers) = self.kept.values().next_back().expect("a kept call");
        let [trigger] = &triggers[..] else { panic!("{triggers:?}") };
        trigger
    }
}

fn resolve(place: &Place, options: &[&str], files: &[&Path]) -> PathBuf {
    let set = place.file("set.ecs");
    successful(place.command(everycall()).arg("resolve").args(options).arg("-o").arg(&set).args(files));
    assert_eq!(fs::metadata(&set).unwrap().permissions().mode() & 0o7777, 0o600);
    set
}

fn run(place: &Place, set: &Path, program: &Path, arguments: &[&str]) -> Run {
    Run::of(place.command(program).args(arguments).env("EVERYCALL_TRIGGERS", set), place)
}

#[test]
fn exactly_the_slow_calls_become_files() {
    const THRESHOLD_US: u64 = 2000;
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let label = mode.label();
        let place = Place::new("sets");
        let program = place.build(mode, &SLOW, "slow");
        let set = resolve(&place, &[&["--trigger", "handle > 2ms"][..], &KEEP_ALL].concat(), &[&program]);
        let run = run(&place, &set, &program, &["60000", "10000", "4000", "7", "2", "0", "stay"]);
        assert_eq!(run.stderr(), "", "{label}");
        let (rate, own) = own_calls(&run.stdout());
        let (micro, threshold) = (rate / 1_000_000, rate / 1_000_000 * THRESHOLD_US);
        let trigger = run.trigger();
        assert_eq!((&trigger.text[..], trigger.functions), (&b"handle > 2ms"[..], 1), "{label}");
        assert_eq!(trigger.kept, run.kept.len() as u64, "{label}");
        for (_, call, _) in run.kept.values() {
            let took = call.end_ticks - call.start_ticks;
            assert!(took > call.threshold_ticks, "{label}: {call:?}");
            assert!(call.threshold_ticks.abs_diff(threshold) <= micro, "{label}: {call:?}, {threshold}");
            let matching = own.iter().filter(|(tid, own)| *tid == call.tid && own.is(call)).count();
            assert_eq!(matching, 1, "{label}: {call:?} is none of the program's");
        }
        // Those that waited for their turn have much of what came since.
        let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
        let mut whole: Vec<_> = run.kept.values().filter(|(_, call, _)| call.missing == 0).collect();
        whole.sort_by_key(|(path, ..)| size(path));
        assert!(!whole.is_empty(), "{label}");
        for (path, call, _) in whole.into_iter().take(2) {
            let (trace, begin, end) = TraceView::moment(path, call);
            let thread = trace.threads.iter().find(|thread| thread.info.tid == call.tid).unwrap();
            let found = thread.call_at("handle", begin).unwrap_or_else(|| panic!("{label}: {call:?}"));
            assert_eq!(found.text(), "handle(work(leaf leaf) work(leaf leaf))", "{label}");
            assert_eq!(found.end_ns, end, "{label}");
        }
        assert_eq!(trigger.fired, trigger.kept + trigger.missed, "{label}");
        let surely = own.iter().filter(|(_, own)| own.last - own.first > threshold + micro);
        let is_kept = |(tid, own): &(u32, OwnCall)| {
            run.kept.values().any(|(_, call, _)| call.tid == *tid && own.is(call))
        };
        let missing = surely.clone().filter(|own| !is_kept(own)).count() as u64;
        assert!(surely.count() > 4, "{label}");
        assert!(missing <= trigger.missed, "{label}: {missing} calls weren't kept, {trigger:?}");
    }
}

/// Each file is a trace of its own: no option is needed to choose the call.
#[test]
fn a_kept_call_is_shown_without_its_number() {
    let place = Place::new("sets-shown");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    let set = resolve(&place, &["--trigger", "handle > 2ms", "--keep", "1"], &[&program]);
    let run = run(&place, &set, &program, &["20000", "5000", "4000", "7", "1", "0", "stay"]);
    let (path, ..) = run.kept.values().next().expect("a kept call");
    let shown = |arguments: &[&str]| successful(place.command(everycall()).args(arguments).arg(path));
    let plain = shown(&["replay"]);
    assert!(plain.contains("handle") && plain.contains("leaf"), "{plain}");
    // With its number, it begins at the call.
    assert_eq!(plain, shown(&["replay", "--kept", "1", "--since", "0"]));
    // It is marked in every output.
    let lines: Vec<&str> = plain.lines().collect();
    let marked: Vec<usize> =
        (0..lines.len()).filter(|line| lines[*line].contains("@ kept call = 1")).collect();
    assert!(marked.len() == 1 && lines[marked[0] - 1].contains("handle"), "{marked:?}");
    let json = shown(&["replay", "--format", "json"]);
    let labelled: Vec<&str> =
        json.lines().filter(|line| line.contains("\"labels\":{\"kept call\":1}")).collect();
    assert!(labelled.len() == 1 && labelled[0].contains("\"name\":\"handle\""), "{labelled:?}");
    let only = shown(&["replay", "--label", "kept call"]);
    assert_eq!(only.matches("handle").count(), 1, "{only}");
    for (format, text) in [("vizviewer", "\"kept call\":1"), ("perfetto", "kept call")] {
        shown(&["export", "-f", format, "-o", "exported"]);
        let bytes = fs::read(place.file("exported")).unwrap();
        assert!(bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{format}");
    }
    let info = shown(&["info"]);
    assert!(info.contains("1 kept call") && info.contains("ended       not yet"), "{info}");
    assert!(info.contains("Most calls"), "{info}");
}

/// The files that remain are those that the options select, in the folder; the other calls are
/// counted.
#[test]
fn files_of_calls_that_go_are_removed() {
    let place = Place::new("sets-policy");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    for (by, every) in [("slowest", "0"), ("first", "0"), ("newest", "0"), ("slowest", "1s")] {
        let options = ["--trigger", "handle > 500us", "--keep", "3", "--keep-by", by, "--keep-every", every];
        let set = resolve(&place, &options, &[&program]);
        let run = run(&place, &set, &program, &["200000", "20000", "3000", "3", "1", "0", "stay"]);
        let (_, own) = own_calls(&run.stdout());
        let label = format!("{by} {every}");
        let trigger = run.trigger();
        let is_one = every != "0";
        assert!(run.kept.len() <= 3 && (is_one || run.kept.len() == 3), "{label}: {}", run.kept.len());
        assert_eq!(trigger.kept, run.kept.len() as u64, "{label}");
        let numbers: Vec<u32> = run.kept.keys().map(|(_, number)| *number).collect();
        let kept: Vec<&KeptCall> = run.kept.values().map(|(_, call, _)| call).collect();
        let least = kept.iter().map(|call| call.end_ticks - call.start_ticks).min().unwrap();
        let slower = own.iter().filter(|(_, own)| own.last - own.first > least).count() as u64;
        match by {
            "first" => {
                assert_eq!(numbers, [1, 2, 3], "{label}");
                let last = kept.iter().map(|call| call.end_ticks).max().unwrap();
                let before = own.iter().filter(|(_, own)| own.end < last).count();
                assert!(before as u64 <= 3 + trigger.missed + trigger.fired, "{label}");
            }
            "newest" => assert!(numbers[0] > 1 || own.len() <= 3, "{label}: {numbers:?}"),
            _ if is_one => assert!(kept.len() <= 3, "{label}"),
            // No call that was announced in time and was clearly slower is missing.
            _ => assert!(slower <= 3 + trigger.missed, "{label}: {slower}, {trigger:?}"),
        }
    }
}

/// Calls that the clock's upper half changes in, that are left by an exception, of forked children
/// and of libraries that come late.
#[test]
fn slow_calls_of_every_kind() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_FINSTRUMENT] {
        let label = mode.label();
        let place = Place::new("sets-ways");
        let ways = SlowWays::build(&place, mode);
        let set = resolve(&place, &ways.options(), &[&ways.program, &ways.plugin]);
        for crash in [false, true] {
            let mut command = place.command(&ways.program);
            command.arg(&ways.plugin).arg("3000").env("EVERYCALL_TRIGGERS", &set);
            if crash {
                let folder = place.file("crash");
                let _ = fs::create_dir(&folder);
                fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
                command.env("EVERYCALL_CRASH", &folder);
            }
            let run = Run::of(&mut command, &place);
            assert_eq!(run.stderr(), "", "{label}");
            let pids: Vec<&String> = run.kept.keys().map(|(pid, _)| pid).collect();
            for (rule, name) in SlowWays::FUNCTIONS.iter().enumerate() {
                let own = SlowWays::own_call(&run.stdout(), name);
                let found: Vec<_> =
                    run.kept.iter().filter(|(_, (_, call, _))| call.trigger == rule).collect();
                let [((pid, _), (_, call, triggers))] = &found[..] else {
                    panic!("{label}: {name}: {found:?}")
                };
                assert_eq!((triggers[rule].fired, triggers[rule].functions), (1, 1), "{label}: {name}");
                assert!(own.is(call), "{label}: {name}: {call:?}, {own:?}");
                assert_eq!(call.missing, 0, "{label}: {name}");
                let others = pids.iter().filter(|other| **other == pid).count();
                assert_eq!(others, if *name == "in_child" { 1 } else { 4 }, "{label}: {name}");
            }
        }
    }
}

/// An unusable set causes one message, and the program continues.
#[test]
fn sets_that_are_none() {
    let place = Place::new("sets-bad");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    let set = resolve(&place, &["--trigger", "handle > 1ms", "--keep-every", "1h"], &[&program]);
    let whole = fs::read(&set).unwrap();
    let file = |name: &str, content: &[u8], mode: u32| {
        let path = place.file(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    };
    let changed = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    let pipe = place.file("pipe.ecs");
    successful(Command::new("mkfifo").arg(&pipe));
    let cases = [
        (place.file("nothing.ecs"), "isn't there"),
        (place.path().to_owned(), "is no regular file"),
        (pipe, "is no regular file"),
        (program.clone(), "is none of the files that everycall resolve writes"),
        (file("empty.ecs", b"", 0o600), "is none of the files"),
        (file("cut.ecs", &whole[..whole.len() - 1], 0o600), "is damaged"),
        (file("changed.ecs", &changed(80), 0o600), "is damaged"),
        (file("version.ecs", &changed(8), 0o600), "another version"),
        (file("open.ecs", &whole, 0o620), "may be written by others"),
        (PathBuf::from(""), "is no path"),
        (PathBuf::from("x".repeat(2000)), "is no path"),
    ];
    let arguments = ["3000", "1000", "2000", "7", "1", "0", "stay"];
    for (set, hint) in cases {
        let run = run(&place, &set, &program, &arguments);
        let said = run.stderr();
        assert!(said.contains(hint) && said.contains("Going on without triggers"), "{set:?}: {said}");
        assert_eq!((said.lines().count(), run.kept.len()), (1, 0), "{set:?}: {said}");
        assert!(run.stdout().starts_with("rate "), "{set:?}");
    }
    // A valid file works through a link, too, and if others can read it.
    let link = place.file("link.ecs");
    std::os::unix::fs::symlink(file("shared.ecs", &whole, 0o644), &link).unwrap();
    let good = run(&place, &link, &program, &arguments);
    assert_eq!((good.stderr().as_str(), good.kept.len()), ("", 1));
    // No room for files, no folder.
    let mut limited = place.command("sh");
    limited.args(["-c", "ulimit -f 16; exec \"$@\"", "sh"]).arg(&program).args(arguments);
    let run = Run::of(limited.env("EVERYCALL_TRIGGERS", &set), &place);
    assert_eq!((run.stderr().as_str(), run.kept.len()), ("", 0));
    let mut command = place.command(&program);
    command
        .args(arguments)
        .env("EVERYCALL_TRIGGERS", &set)
        .env("EVERYCALL_SNAPSHOT_FOLDER", "/nowhere/at/all");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("EVERYCALL_SNAPSHOT_FOLDER") && said.contains("no triggers"),
        "{said}"
    );
    // Under record, its own triggers count.
    let mut command = place.command(everycall());
    command.args(["record", "-q", "-o", "trace.ect", "--"]).arg(&program).args(arguments);
    let output = command.env("EVERYCALL_TRIGGERS", &set).stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().contains("-kept-")));
    // Another build of the same program.
    let program = place.build(Mode::GCC_NOPS, &[&SLOW[..], &["-g3"]].concat(), "slow");
    let run = self::run(&place, &set, &program, &arguments);
    let said = run.stderr();
    assert!(said.contains("another build id") && said.contains("everycall resolve"), "{said}");
    assert_eq!((said.lines().count(), run.kept.len()), (1, 0), "{said}");
}

#[test]
fn what_can_not_be_resolved_is_said() {
    let place = Place::new("sets-resolve");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    let loader = place.build(Mode::GCC_NOPS, &["-O1", "slow_ways.cpp", "-ldl"], "slow_ways");
    let nameless = place.build(Mode::GCC_NOPS, &[&SLOW[..], &["-Wl,--build-id=none"]].concat(), "nameless");
    let text = place.write("text", "no program\n");
    for (options, program, hint) in [
        (&["--trigger", "handel > 1ms"][..], &program, "there is handle"),
        (&["--trigger", "plugged > 1ms"], &loader, "name that file, too"),
        (&["--trigger", "handle > p99"], &program, "needs `everycall record`"),
        (&["--trigger", "handle entered"], &program, "needs `everycall record`"),
        (&["--trigger", "signal USR1"], &program, "EVERYCALL_SNAPSHOT_SIGNAL"),
        (&[], &program, "--trigger"),
        (&["--keep", "3"], &program, "--trigger"),
        (&["--trigger", "handle > 1ms"], &nameless, "build id"),
        (&["--trigger", "handle > 1ms"], &text, "ELF"),
        (&["--trigger", "handle > 1ms"], &place.file("nowhere"), "nowhere"),
        (&["--trigger", "handle > 1ms", "-o", "/nowhere/at/all.ecs"], &program, "/nowhere"),
    ] {
        let mut command = place.command(everycall());
        let output = command.arg("resolve").args(options).arg(program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(hint), "{options:?}: {said}");
        assert!(!output.status.success(), "{options:?}: {said}");
    }
    assert!(!place.file("slow.ecs").exists());
    let mut command = place.command(everycall());
    let output = command.args(["resolve", "--trigger", "w?rk > 1ms", "slow"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("names 1 function") && said.contains("EVERYCALL_TRIGGERS="),
        "{said}"
    );
    assert!(place.file("slow.ecs").exists());
}

/// Programs with more rights than the user who started them ignore the variable; others only accept
/// a set from their user or from root.
#[test]
fn sets_of_strangers() {
    let place = Place::new("sets-strangers");
    let program = place.build(Mode::GCC_NOPS, &SLOW, "slow");
    let set = resolve(&place, &["--trigger", "handle > 1ms"], &[&program]);
    let can = Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("not run: it needs root");
        return;
    }
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(place.path(), 0o755);
    let said_to_nobody = || {
        let mut command = place.command("setpriv");
        command.args(["--reuid=65534", "--clear-groups"]).arg(&program).args(["1000", "100", "2000", "7"]);
        let output = command.env("EVERYCALL_TRIGGERS", &set).output().unwrap();
        assert!(output.status.success() && output.stdout.starts_with(b"rate "));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said_to_nobody().contains("can't be read by this program's user"));
    mode(&set, 0o644);
    assert_eq!(said_to_nobody(), "");
    std::os::unix::fs::chown(&set, Some(12345), None).unwrap();
    assert!(said_to_nobody().contains("may be written by others than this program's user and root"));
    // Not even a word.
    mode(&program, 0o4755);
    assert_eq!(said_to_nobody(), "");
}
