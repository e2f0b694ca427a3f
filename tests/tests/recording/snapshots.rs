//! Snapshots of running programs: whatever their threads do, however many snapshots are taken at
//! the same time, and whatever happens to the processes that take them.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use everycall_format::arena::{PINNERS, PINNERS_OFFSET, thread_state};
use everycall_tests::{Mode, Place, Standing, TraceView, everycall, own_calls, wait};

fn program(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "standing.c", "-pthread"], "standing")
}

/// The expected trace: blocked threads complete, busy ones without gap, and each with only its own
/// calls.
fn check(trace: &TraceView, blocked: usize, busy: usize, calls: u64, note: &str) {
    assert_eq!(trace.warnings, [] as [String; 0], "{note}");
    let named =
        |name: &str| trace.threads.iter().filter(|thread| &*thread.info.name == name).collect::<Vec<_>>();
    let waiting = named("blocked");
    assert_eq!(waiting.len(), blocked, "{note}");
    for thread in waiting {
        assert_eq!(thread.tallies["waiting_leaf"].exits, calls, "{note}");
        let [call] = &thread.calls[..] else { panic!("{note}: {:?}", thread.calls) };
        assert!(call.text().ends_with("wait_for_ever~)"), "{note}: {}", call.text());
        assert_eq!(thread.losses, 0, "{note}");
    }
    for number in 0..busy {
        let threads = named(&format!("busy-{number}"));
        let [thread] = &threads[..] else { panic!("{note}: {number}") };
        assert_eq!((thread.losses, thread.orphans), (0, 0), "{note}");
        let own = [format!("work{}", number % 8), format!("leaf{}", number % 8), "busy".to_owned()];
        assert!(thread.tallies.keys().all(|name| own.contains(name)), "{note}: {:?}", thread.tallies);
        let [call] = &thread.calls[..] else { panic!("{note}: {}", thread.calls.len()) };
        let work = format!("{}({} {})", own[0], own[1], own[1]);
        // The first and the last one may be truncated.
        let inner = call.inside.len().saturating_sub(1);
        for call in call.inside.get(1..inner).unwrap_or_default() {
            assert_eq!(call.text(), work, "{note}");
        }
        assert!(call.inside.len() > 1, "{note}");
    }
    for thread in named("brief") {
        assert_eq!(thread.losses, 0, "{note}");
        assert!(thread.tallies.keys().all(|name| name.starts_with("brief")), "{note}: {:?}", thread.tallies);
    }
}

#[test]
fn programs_of_every_mode_with_and_without_a_recorder() {
    let place = Place::new("snapshot");
    for mode in Mode::in_turn(1) {
        let program = program(&place, mode);
        let arguments = ["3", "1", "1", "100"];
        for recorded in [false, true] {
            let standing = match recorded {
                false => Standing::alone(&program, &arguments),
                true => Standing::recorded(&place, &program, &arguments),
            };
            for _ in 0..2 {
                let (file, said) = standing.snapshot(&place, &[]);
                let note = format!("{mode:?} {recorded} {said}");
                // A loaded machine may let threads overwrite events before they can be pinned. This
                // is counted, and the rest is right.
                if said.contains("were overwritten before") {
                    own_calls::check(&file).unwrap_or_else(|why| panic!("{why}\n{note}"));
                } else {
                    check(&TraceView::open(&file), 3, 1, 100, &note);
                }
                assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            }
            assert_eq!(standing.pinned(), (0, 0), "{mode:?} {recorded}");
        }
    }
}

#[test]
fn eight_busy_threads_while_others_come_and_go() {
    let place = Place::new("busy");
    let program = program(&place, Mode::GCC_NOPS);
    // Who asks comes before all these threads, or ten thousand snapshots take hours where there are
    // few CPUs.
    let mut command = Command::new("nice");
    let standing = Standing::start(command.args(["-n", "19"]).arg(&program).args(["0", "8", "8", "0"]));
    let count = std::env::var("EVERYCALL_SNAPSHOTS").map_or(8, |text| text.parse().unwrap());
    let (mut late, mut events, mut threads) = (0, 0, 0);
    for number in 0..count {
        let (file, said) = standing.snapshot(&place, &[]);
        let note = || format!("{number}: {said}");
        let found = own_calls::check(&file).unwrap_or_else(|why| panic!("{why}\n{}", note()));
        // On a slow machine the program may fill all memory first, which is counted. The rest is
        // right nevertheless.
        if said.contains("were overwritten before") {
            late += 1;
        } else {
            assert_eq!(found.busy, 8, "{}", note());
            assert!(found.least > 100, "{found:?}: {}", note());
        }
        (events, threads) = (events + found.events, threads + found.brief);
        if number % 100 == 0 && !said.contains("were overwritten before") {
            check(&TraceView::open(&file), 0, 8, 0, &note());
        }
        if number % 500 == 499 {
            println!("{} snapshots, {late} late, {events} events, {threads} short threads", number + 1);
        }
    }
    assert!(late == count || threads > 0, "none came and went in {count} snapshots");
    assert_eq!(standing.pinned(), (0, 0));
}

/// Everything that the rings contained is in the snapshot, also if they are full; `--last` writes
/// less of it.
#[test]
fn full_rings_of_blocked_threads_and_the_last_part_of_them() {
    let place = Place::new("full");
    let program = program(&place, Mode::GCC_NOPS);
    let mut command = Command::new(&program);
    let standing = Standing::start(command.args(["4", "0", "0", "50000"]).env("EVERYCALL_RING_SIZE", "128K"));
    let (file, _) = standing.snapshot(&place, &[]);
    let whole = TraceView::tallies_only(&file);
    let blocked = |trace: &TraceView| {
        let threads = trace.threads.iter().filter(|thread| &*thread.info.name == "blocked");
        threads.map(|thread| thread.tallies["waiting_leaf"].exits).collect::<Vec<u64>>()
    };
    // 16 segments of 1024 words, the newest of them partly.
    let counts = blocked(&whole);
    assert!(counts.len() == 4 && counts.iter().all(|count| (7_500..8_192).contains(count)), "{counts:?}");
    assert_eq!(whole.losses(), 0);
    std::thread::sleep(Duration::from_millis(50));
    let (file, _) = standing.snapshot(&place, &["--last", "1ms"]);
    let last = TraceView::open(&file);
    // The newest segment always stays: it says which calls are open.
    assert!(blocked(&last).iter().all(|count| *count < 512), "{:?}", blocked(&last));
    assert_eq!(last.losses(), 0);
    for thread in last.threads.iter().filter(|thread| &*thread.info.name == "blocked") {
        let [call] = &thread.calls[..] else { panic!("{:?}", thread.calls) };
        assert!(call.text().starts_with("blocked~(") && call.text().ends_with("wait_for_ever~)"));
    }
    assert_eq!(standing.pinned(), (0, 0));
}

#[test]
fn several_ask_at_once_and_for_several() {
    let place = Place::new("several");
    let program = program(&place, Mode::GCC_NOPS);
    let standing = Standing::alone(&program, &["2", "1", "1", "100"]);
    let other = Standing::alone(&program, &["1", "0", "0", "70"]);
    let askers: Vec<Child> = (0..4)
        .map(|number| {
            let mut command = place.command(everycall());
            command.args(["snapshot", "-q", "-o", &format!("{number}.ect"), &standing.pid.to_string()]);
            command.spawn().unwrap()
        })
        .collect();
    for (number, mut asker) in askers.into_iter().enumerate() {
        assert!(asker.wait().unwrap().success());
        check(&TraceView::open(&place.file(&format!("{number}.ect"))), 2, 1, 100, "at once");
    }
    let pids = [standing.pid.to_string(), "4194304".to_owned(), other.pid.to_string()];
    let output = place.command(everycall()).args(["snapshot", "-q"]).args(&pids).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "one of them isn't there");
    check(&TraceView::open(&place.file(&format!("standing-{}.ect", pids[0]))), 2, 1, 100, "first");
    check(&TraceView::open(&place.file(&format!("standing-{}.ect", pids[2]))), 1, 0, 70, "last");
    assert_eq!(standing.pinned(), (0, 0));

    let listed = place.command(everycall()).args(["ps", "-f", "json"]).output().unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let of = |pid: u32| {
        let all = listed["processes"].as_array().unwrap();
        all.iter().find(|process| process["pid"] == pid).unwrap().clone()
    };
    assert_eq!((of(other.pid)["threads"].as_u64(), of(other.pid)["on"].as_bool()), (Some(2), Some(true)));
    // Two threads: main and its call of read's wrapper are not traced; the other made 70 calls and
    // has two open.
    assert_eq!(of(other.pid)["events"].as_u64(), Some(1 + 2 * 70 + 2));
    assert_eq!(of(other.pid)["program"], "standing");
    assert!(of(standing.pid)["recorder_pid"].is_null());
}

/// A process that finishes first takes nothing from the others: the ring's contents at the request
/// are complete, except for a segment.
#[test]
fn two_ask_at_once_again_and_again_and_each_gets_all() {
    let place = Place::new("overlap");
    let program = program(&place, Mode::GCC_NOPS);
    let standing = Standing::alone(&program, &["0", "1", "0", "0"]);
    // 16 segments of 8,192 words.
    wait::until("the ring is full", || standing.header().segments_taken >= 17);
    let (segment, ring) = (8192 - 12, 16);
    let ask = |who: usize| {
        (0..12)
            .filter(|round| {
                let name = format!("{who}-{round}.ect");
                let mut command = place.command(everycall());
                command.args(["snapshot", "-o", &name, &standing.pid.to_string()]);
                let output = command.output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{said}");
                if said.contains("were overwritten before") {
                    return false;
                }
                let trace = TraceView::tallies_only(&place.file(&name));
                let busy = trace.threads.iter().find(|thread| &*thread.info.name == "busy-0").unwrap();
                let events: u64 = busy.tallies.values().map(|tally| tally.entries + tally.exits).sum();
                // The segment that is being cleared is missing, and the newest one may just have
                // begun.
                assert!(events >= (ring - 2) * segment, "{who} {round}: {events}\n{said}");
                std::fs::remove_file(place.file(&name)).unwrap();
                true
            })
            .count()
    };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| ask(1));
        (ask(2), one.join().unwrap())
    });
    assert!(one + two > 4, "{one} {two}");
    let header = standing.header();
    assert_eq!(standing.pinned(), (0, 0));
    assert_eq!(header.grow_until, 0, "nobody asks any more");
}

/// If a process is killed while it has segments pinned, the next one unpins them.
#[test]
fn askers_that_die() {
    let place = Place::new("dying");
    let program = program(&place, Mode::GCC_NOPS);
    let standing = Standing::alone(&program, &["2", "2", "0", "3000"]);
    // The pipe has no reader, so segments that couldn't be written yet stay pinned.
    let mut command = place.command(everycall());
    let mut stuck = command
        .args(["snapshot", "-q", "-o", "/dev/stdout", &standing.pid.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait::until("somebody has pinned segments", || standing.pinned().1 > 0);
    check(&TraceView::open(&standing.snapshot(&place, &[]).0), 2, 2, 3000, "while another one has pinned");
    stuck.kill().unwrap();
    stuck.wait().unwrap();
    let mut killed = 0;
    for number in 0..24 {
        let mut command = place.command(everycall());
        let mut asker =
            command.args(["snapshot", "-q", "-o", "never.ect", &standing.pid.to_string()]).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(number * 1500));
        asker.kill().unwrap();
        killed += usize::from(!asker.wait().unwrap().success());
    }
    assert!(killed > 0);
    // On a slow machine the program may fill all memory first, which is counted: not each time.
    let mut snapshots = (0..20).map(|_| standing.snapshot(&place, &[]));
    let (file, said) =
        snapshots.find(|(_, said)| !said.contains("were overwritten before")).expect("one in time");
    check(&TraceView::open(&file), 2, 2, 3000, &said);
    assert_eq!(standing.pinned(), (0, 0));
    // Memory is returned: segments beyond the rings' size go as threads continue.
    wait::until("memory beyond the rings is given back", || {
        let header = standing.header();
        header.segments_in_use <= header.ring_segments
    });
}

#[test]
fn bad_requests_end_in_a_sentence_and_the_program_goes_on() {
    let place = Place::new("refused");
    let program = program(&place, Mode::GCC_NOPS);
    let standing = Standing::alone(&program, &["1", "1", "0", "100"]);
    let said = |arguments: &[&str], code: i32, words: &[&str]| {
        let output = place.command(everycall()).arg("snapshot").args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
    };
    let pid = standing.pid.to_string();
    said(&["4194304"], 1, &["process 4194304: there is no such process", "everycall ps"]);
    said(&[&std::process::id().to_string()], 1, &["isn't traced", "everycall cc"]);
    said(&["x"], 2, &["invalid value"]);
    said(&["-o", "x.ect", &pid, &pid], 2, &["names one file"]);
    said(&["-o", "nowhere/x.ect", &pid], 1, &["can't write to nowhere/x.ect", "the folder must exist"]);
    said(&["-o", "/dev/full", &pid], 1, &["can't write /dev/full", "free some space"]);
    said(&["--last", "soon", &pid], 2, &["--last"]);
    std::os::unix::fs::symlink("/etc/hostname", place.file(&format!("standing-{pid}.ect"))).unwrap();
    said(&[&pid], 1, &["symbolic link", "-o"]);
    let everycall = everycall().display();
    let shell = |script: &str, words: &[&str]| {
        let output = place.command("sh").args(["-c", script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{script}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{script}: {text}");
        assert!(!place.file("small.ect").exists(), "{script}");
    };
    shell(&format!("ulimit -f 1; {everycall} snapshot -o small.ect {pid}"), &["small.ect", "ulimit -f"]);
    shell(
        &format!("ulimit -v 4000000; {everycall} snapshot -o small.ect {pid}"),
        &["can't be mapped", "ulimit -v"],
    );
    // Another user, where we may become one.
    let nobody = place.command("setpriv").args(["--reuid=65534", "--clear-groups", "true"]).output();
    if nobody.is_ok_and(|output| output.status.success()) {
        shell(
            &format!("setpriv --reuid=65534 --clear-groups {everycall} snapshot -o small.ect {pid}"),
            &["only the process's own user and root"],
        );
    }
    // A program that has ended, and waits for its parent.
    let mut ended = Command::new("true").spawn().unwrap();
    wait::until_ended(ended.id());
    said(&[&ended.id().to_string()], 1, &["has ended", "everycall record"]);
    ended.wait().unwrap();
    // A version to come.
    let (memory, base) = standing.memory();
    memory.write_all_at(&99_u32.to_le_bytes(), base + 8).unwrap();
    said(&[&pid], 1, &["another version", "99"]);
    memory.write_all_at(&everycall_format::arena::ARENA_VERSION.to_le_bytes(), base + 8).unwrap();
    let (file, _) = standing.snapshot(&place, &[]);
    check(&TraceView::open(&file), 1, 1, 100, "afterwards");
    assert_eq!(standing.pinned(), (0, 0));
}

/// A program whose shared segment was refused reports it, and runs.
#[test]
fn programs_that_the_system_refuses_a_segment() {
    let place = Place::new("unreachable");
    let program = program(&place, Mode::GCC_NOPS);
    // A new IPC namespace has limits of its own.
    let script = "echo 0 > /proc/sys/kernel/shmmni && exec \"$0\" 1 0 0 10";
    let can =
        Command::new("unshare").args(["--ipc", "sh", "-c", "echo 0 > /proc/sys/kernel/shmmni"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("not run: it needs root");
        return;
    }
    let standing = Standing::start(Command::new("unshare").args(["--ipc", "sh", "-c", script]).arg(&program));
    let output = standing.ask(&place, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("can't be reached from outside") && said.contains("shmmax"), "{said}");
    drop(standing);
    let elsewhere =
        Standing::start(Command::new("unshare").arg("--ipc").arg(&program).args(["1", "0", "0", "10"]));
    let output = elsewhere.ask(&place, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("another container") && said.contains("nsenter"), "{said}");
}

/// Shared memory is untrusted input like any file: whatever it contains, a command ends with a file
/// or an error message.
#[test]
fn scribbled_memory() {
    let place = Place::new("scribbled");
    let program = program(&place, Mode::GCC_NOPS);
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for round in 0..6 {
        let standing = Standing::alone(&program, &["3", "0", "0", "3000"]);
        let header = standing.header();
        let (memory, base) = standing.memory();
        for _ in 0..6 {
            for _ in 0..=random(24) {
                let (from, size) = match random(6) {
                    0 => (0, 512),
                    1 => (PINNERS_OFFSET, u64::from(PINNERS) * 32),
                    2 => (header.modules_offset, 256),
                    3 => (header.segment_table_offset, u64::from(header.segments_taken) * 40),
                    4 => (header.threads_offset, u64::from(header.threads) * 128),
                    _ => (header.segments_offset, u64::from(header.segments_taken) * header.segment_size),
                };
                let value = [u64::MAX, 0, 1 << 63, 1 << 32, random(u64::MAX), thread_state::USED.into()];
                let at = base + from + random(size / 8) * 8;
                memory.write_all_at(&value[random(6) as usize].to_le_bytes(), at).unwrap();
            }
            let output = standing.ask(&place, &["-q", "-o", "scribbled.ect"]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{round}: {:?} {said}", output.status);
            assert!(!said.contains("panicked"), "{said}");
            if output.status.success() {
                let mut start = [0; 16];
                File::open(place.file("scribbled.ect")).unwrap().read_exact(&mut start).unwrap();
                assert_eq!(&start, b"everycall trace\n");
            }
            let listed = place.command(everycall()).args(["ps", "-f", "json"]).output().unwrap();
            assert!(listed.status.success());
        }
    }
}
