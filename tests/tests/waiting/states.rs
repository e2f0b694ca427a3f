//! `record --states`: when the kernel ran each thread. The program's own measure of each phase and the
//! kernel's counts of the thread are compared with what the trace says.

mod cores;
mod refused;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use everycall_tests::{Mode, Place, everycall, successful, wait};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

/// How often each of the short phases comes.
const SHORT: usize = 20;
/// Nanoseconds by which states may be wrong at either end.
const EDGE: u64 = 100_000;
const MILLISECOND: u64 = 1_000_000;
/// By which the kernel's clock may differ from that of calls, unless the file says that it is more.
const CLOCKS: u64 = 1_000;

/// Gives a byte to and fro between two threads as often as its argument says, when it gets one
/// itself.
const PING_PONG: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int to[2], fro[2];
static void pass(int from, int into, long count)
{
    char byte;
    for (long i = 0; i < count; i++)
        if (read(from, &byte, 1) != 1 || write(into, &byte, 1) != 1)
            abort();
}
static long count;
static void *other(void *unused)
{
    pass(to[0], fro[1], count);
    return unused;
}
int main(int argc, char **argv)
{
    pthread_t thread;
    count = argc > 1 ? atol(argv[1]) : 1;
    if (pipe(to) || pipe(fro) || getchar() == EOF)
        return 1;
    pthread_create(&thread, 0, other, 0);
    if (write(to[1], "x", 1) != 1)
        return 1;
    pass(fro[0], to[1], count - 1);
    pthread_join(thread, 0);
    puts("done");
    return 0;
}
"#;

/// The program's own record of a phase.
#[derive(Debug)]
struct Phase {
    tid: u64,
    begin: u64,
    end: u64,
    cpu: u64,
    runnable: u64,
}

/// The trace's facts about a call.
#[derive(Debug, Default)]
struct Told {
    /// Who ended its longest time off the CPU.
    woken_by: u64,
    /// The system calls in which it waited, as far as they are known.
    calls: BTreeSet<String>,
    duration: u64,
    blocked: u64,
    runnable: u64,
    unknown: u64,
}

impl Told {
    fn running(&self) -> u64 {
        // Unknown time may reach behind the call.
        self.duration.saturating_sub(self.blocked + self.runnable + self.unknown)
    }
}

fn phases(text: &str) -> BTreeMap<String, Phase> {
    all_phases(text).into_iter().collect()
}

/// In the order in which they ended.
fn all_phases(text: &str) -> Vec<(String, Phase)> {
    let phase = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        let mut number =
            || words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        let tid = number();
        (name, Phase { tid, begin: number(), end: number(), cpu: number(), runnable: number() })
    };
    text.lines().map(phase).collect()
}

fn lines(file: &Path) -> Vec<Value> {
    let text = successful(Command::new(everycall()).args(["replay", "-f", "json"]).arg(file));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// By name, with the thread's id. Each function of the program is called once.
fn told(file: &Path) -> BTreeMap<String, (u64, Told)> {
    all_told(file).into_iter().collect()
}

/// In the order of their beginnings.
fn all_told(file: &Path) -> Vec<(String, (u64, Told))> {
    let lines = lines(file);
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap_or(0);
    let mut calls: Vec<&Value> = lines.iter().filter(|line| line["name"].is_string()).collect();
    calls.sort_by_key(|line| number(line, "start_ns"));
    let calls = calls.into_iter().map(|line| {
        let (tid, start, duration) = (number(line, "tid"), number(line, "start_ns"), number(line, "dur_ns"));
        let mut told = Told { duration, ..Told::default() };
        let mut longest = 0;
        for off in lines.iter().filter(|off| off["off_cpu_ns"].is_u64() && number(off, "tid") == tid) {
            let (at, length) = (number(off, "at_ns"), number(off, "off_cpu_ns"));
            if at >= start && at < start + duration {
                let parts = ["blocked_ns", "runnable_ns", "unknown_ns"].map(|name| number(off, name));
                assert_eq!(parts.iter().sum::<u64>(), length, "{off}");
                // A thread that isn't on a CPU doesn't return.
                assert!(at + length <= start + duration + EDGE || parts[2] > 0, "{off} {line}");
                if length > longest {
                    (longest, told.woken_by) = (length, number(off, "woken_by"));
                }
                told.calls.extend(off["blocked_in"].as_str().map(str::to_owned));
                told.blocked += parts[0];
                told.runnable += parts[1];
                told.unknown += parts[2];
            }
        }
        (line["name"].as_str().unwrap().to_owned(), (tid, told))
    });
    calls.collect()
}

fn program(place: &Place) -> PathBuf {
    place.build(Mode::GCC_NOPS, &["-O1", "phases.c", "-pthread"], "phases")
}

/// The part of the call around the phase, in which results are printed.
fn around(told: &Told, phase: &Phase) -> u64 {
    around_of(told.duration, phase)
}

fn around_of(duration: u64, phase: &Phase) -> u64 {
    duration.saturating_sub(phase.end - phase.begin)
}

/// How far the trace's time of waiting for a CPU is from the kernel's count. Since Linux 6.12, a
/// thread that has just begun to sleep stays in its CPU's queue for a while; if it is moved to
/// another CPU's meanwhile, the count has the rest of the sleep, too.
fn waited_error(told: &Told, phase: &Phase) -> u64 {
    let counted = phase.runnable;
    told.runnable.saturating_sub(counted).max(counted.saturating_sub(told.runnable + told.blocked))
}

/// Checks the facts that each source must have.
fn check(source: &str, said: &BTreeMap<String, Phase>, told: &BTreeMap<String, (u64, Told)>) {
    let all: Vec<&String> = said.keys().collect();
    assert_eq!(all.len(), 7, "{all:?}");
    let of = |name: &str| {
        let ((tid, told), phase) = (&told[name], &said[name]);
        assert_eq!(*tid, phase.tid, "{name}");
        assert_eq!(told.unknown, 0, "{name}: {told:?}");
        // The phase lies in its call. Behind it, it is printed.
        assert!(told.duration + EDGE >= phase.end - phase.begin, "{name}: {told:?} {phase:?}");
        (told, phase)
    };
    for name in all {
        let (told, phase) = of(name);
        // A hypervisor may take the CPU away between the two moments at which the kernel reads its clocks
        // for a switch.
        let tolerance = EDGE + told.duration / 10;
        assert!(told.running() + tolerance >= phase.cpu, "{name}: {told:?} {phase:?}");
        if source.contains("tracefs") {
            // How long it waited for a CPU, by the kernel's count.
            let tolerance = MILLISECOND + phase.runnable / 20 + around(told, phase);
            assert!(waited_error(told, phase) < tolerance, "{name}: {told:?} {phase:?}");
        }
    }
    let (spins, _) = of("spins");
    assert!(spins.running() + EDGE >= 5 * MILLISECOND, "{spins:?}");
    let (sleeps, _) = of("sleeps");
    assert!(sleeps.blocked + EDGE >= 20 * MILLISECOND, "{sleeps:?}");
    // By a timer.
    assert_eq!(sleeps.woken_by, 0, "{sleeps:?}");
    // Around each phase, results are read from files.
    for (name, call) in [
        ("sleeps", "clock_nanosleep"),
        ("waits_for_lock", "futex"),
        ("waits_for_pipe", "read"),
        ("is_preempted", ""),
    ] {
        let (told, _) = of(name);
        let is_right = |told: &String| told == call || told == "openat" || told == "read";
        assert!(told.calls.iter().all(is_right), "{name}: {told:?}");
    }
    let (preempted, counted) = of("is_preempted");
    assert!(preempted.runnable >= 5 * MILLISECOND, "{preempted:?}");
    // Its time waiting for a CPU, by the kernel's count.
    let tolerance = MILLISECOND + counted.runnable / 20 + around(preempted, counted);
    assert!(waited_error(preempted, counted) < tolerance, "{preempted:?} {counted:?}");
    // Until the other thread let go.
    for (waits, ends) in [("waits_for_lock", "holds_lock"), ("waits_for_pipe", "fills_pipe")] {
        let (waiting, phase) = of(waits);
        let both = said[ends].end.min(phase.end).saturating_sub(phase.begin);
        let off = waiting.blocked + waiting.runnable;
        assert!(off + MILLISECOND >= both, "{waits}: {waiting:?} {phase:?} {both}");
        if both < 2 * MILLISECOND {
            // On a busy machine, the other thread may have let go already.
            continue;
        }
        assert!(waiting.blocked > 0, "{waits}: {waiting:?}");
        if source.contains("tracefs") {
            assert_eq!(waiting.woken_by, said[ends].tid, "{waits}: {waiting:?}");
        }
    }
}

/// How far a time of the trace is from that of the phase in it, which is at most so much shorter.
fn error(told: u64, said: u64, around: u64) -> u64 {
    said.saturating_sub(told).max(told.saturating_sub(said + around))
}

/// Most of many short phases are right within [`EDGE`], whatever their length; where the kernel left
/// switches out, as `info` says, those that are known.
fn check_many(source: &str, has_holes: bool, said: &[(String, Phase)], told: &[(String, Told)]) {
    let mut errors: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for (name, _) in said.iter().take(7) {
        let phases = said.iter().filter(|(other, _)| other == name).map(|(_, phase)| phase);
        let calls = told.iter().filter(|(other, _)| other == name).map(|(_, told)| told);
        assert_eq!((phases.clone().count(), calls.clone().count()), (SHORT, SHORT), "{name}");
        for (phase, told) in phases.zip(calls).filter(|(_, told)| told.unknown == 0) {
            let around = around(told, phase);
            let off = (phase.end - phase.begin).saturating_sub(phase.cpu);
            let mut add = |what, error| errors.entry((name, what)).or_default().push(error);
            add("running", error(told.running(), phase.cpu, around));
            add("off the CPU", error(told.blocked + told.runnable, off, around));
            if source.contains("tracefs") {
                add("runnable", error(told.runnable, phase.runnable, around));
            }
        }
    }
    assert!(
        has_holes || errors.len() == if source.contains("tracefs") { 21 } else { 14 },
        "{source}: {errors:?}"
    );
    for ((name, what), mut errors) in errors {
        errors.sort_unstable();
        assert!(has_holes || errors.len() > SHORT / 2, "{source}: {name}: {} are known", errors.len());
        let three_of_four = errors[errors.len() * 3 / 4];
        assert!(three_of_four < EDGE, "{source}: {name}: {what}: {errors:?}");
    }
}

/// `report` has the same times by function.
fn check_report(file: &Path, told: &BTreeMap<String, (u64, Told)>) {
    let text = successful(Command::new(everycall()).args(["report", "-f", "json"]).arg(file));
    let report: Value = serde_json::from_str(&text).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    let mut all = [0; 2];
    for row in rows {
        let name = row["name"].as_str().unwrap();
        let states = ["running_ns", "runnable_ns", "blocked_ns"].map(|name| number(row, name));
        let own = ["own_running_ns", "own_runnable_ns", "own_blocked_ns"].map(|name| number(row, name));
        assert!(states.iter().sum::<u64>() <= number(row, "total_ns"), "{row}");
        assert!(own.iter().sum::<u64>() <= number(row, "own_ns"), "{row}");
        let (_, told) = &told[name];
        let told = [told.running(), told.runnable, told.blocked];
        let is_same = |(reported, told): (&u64, u64)| reported.abs_diff(told) < EDGE;
        assert!(states.iter().zip(told).all(is_same), "{row} {told:?}");
        if name == "main" {
            // All else is called by it, or in the other thread.
            let others: u64 = ["spins", "sleeps", "waits_for_lock", "waits_for_pipe", "is_preempted"]
                .map(|name| rows.iter().find(|row| row["name"] == name).unwrap())
                .iter()
                .map(|row| number(row, "blocked_ns"))
                .sum();
            assert_eq!(own[2] + others, states[2], "{row}");
        } else {
            assert_eq!(own, states, "{row}");
        }
        all[0] += own[0];
        all[1] += number(row, "own_ns");
    }
    let table = successful(Command::new(everycall()).args(["report", "--sort", "blocked"]).arg(file));
    let most = rows.iter().max_by_key(|row| number(row, "own_blocked_ns")).unwrap();
    let first = table.lines().nth(1).unwrap_or_default();
    assert!(first.ends_with(most["name"].as_str().unwrap()), "{table}");
    assert!(all[0] < all[1], "{all:?}");
}

fn info(file: &Path) -> Value {
    let text = successful(Command::new(everycall()).args(["info", "-f", "json"]).arg(file));
    serde_json::from_str(&text).unwrap()
}

/// tracefs, where this user can have it. If it isn't mounted, it is for this thread and what it
/// starts, in mounts of their own.
struct TraceFs {
    place: PathBuf,
    /// One test at a time: instances of recorders that have ended are counted.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl TraceFs {
    /// Says so if there is none.
    fn find() -> Option<TraceFs> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mounts = std::fs::read_to_string("/proc/thread-self/mounts").unwrap();
        let mounted = mounts.lines().find(|line| line.split(' ').nth(2) == Some("tracefs"));
        let mounted = mounted.and_then(|line| line.split(' ').nth(1)).map(PathBuf::from);
        let place = mounted.map_or_else(mount_tracefs, Ok);
        let place = place.and_then(|place| {
            std::fs::read_dir(place.join("instances"))?;
            Ok(place)
        });
        match place {
            Ok(place) => Some(TraceFs { place, _turn: turn }),
            Err(error) => {
                println!("no tracefs here ({error}): what needs it was not tried");
                None
            }
        }
    }

    fn has_instance_of(&self, pid: u32) -> bool {
        self.place.join(format!("instances/everycall.{pid}")).exists()
    }

    /// Instances of recorders that have ended.
    fn instances(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.place.join("instances")).unwrap().flatten();
        let names = all.map(|instance| instance.file_name().to_string_lossy().into_owned());
        let has_ended = |name: &String| {
            let pid = name.strip_prefix("everycall.");
            pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        };
        names.filter(has_ended).collect()
    }
}

fn mount_tracefs() -> std::io::Result<PathBuf> {
    let nothing = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Others don't see what is mounted here.
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    let place = PathBuf::from("/sys/kernel/tracing");
    mount(Some("tracefs"), &place, Some("tracefs"), MsFlags::empty(), nothing)?;
    Ok(place)
}

#[test]
fn every_phase_is_in_its_state() {
    let place = Place::new("states");
    let program = program(&place);
    every_phase(&place, &program, "perf");
    short_phases(&place, &program, "perf");
    let Some(tracefs) = TraceFs::find() else { return };
    every_phase(&place, &program, "perf+tracefs");
    every_phase(&place, &program, "tracefs");
    short_phases(&place, &program, "perf+tracefs");
    short_phases(&place, &program, "tracefs");
    // A killed recorder's instance is removed without another one.
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--states=tracefs", "--launcher", "-o", "killed.ect", "--", "sleep", "60"]);
    let mut killed = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let pid = killed.id();
    wait::until("its instance is there", || {
        tracefs.has_instance_of(pid) || killed.try_wait().unwrap().is_some()
    });
    let was_there = tracefs.has_instance_of(pid);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(was_there, "it ended early");
    wait::until("its instance is gone", || !tracefs.has_instance_of(pid));
}

/// Which source is to be asked for.
/// Some kernels' tracefs leaves switches out now and then. Then something is unknown, and `info`
/// says so.
fn has_holes(file: &Path) -> bool {
    let states = &info(file)["states"];
    let missing = states["switches_missing"].as_u64().unwrap();
    assert!(missing == 0 || states["source"] == "tracefs", "{states}");
    let page = one_line(file);
    assert_eq!(page.contains("the kernel didn't tell"), missing > 0, "{page}");
    missing > 0
}

fn every_phase(place: &Place, program: &Path, source: &str) {
    for options in [&[][..], &["--stream"], &["--stream", "--file-age", "100ms"]] {
        let file = place.file("a.ect");
        let mut command = place.command(everycall());
        command.args(["record", "-q", &format!("--states={source}")]).args(options);
        command.arg("-o").arg(&file).arg("--").arg(program);
        if options.len() < 3 {
            let said = phases(&successful(&mut command));
            let told = told(&file);
            if !has_holes(&file) {
                check_report(&file, &told);
                check(source, &said, &told);
            }
            let states = &info(&file)["states"];
            assert_eq!(states["source"], source, "{states}");
            assert!(states["switches"].as_u64().unwrap() > 5 && states["events_lost"] == 0, "{states}");
        } else {
            successful(&mut command);
            // Each file has the states of its time.
            let files = std::fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.path());
            let files: Vec<_> = files.filter(|path| path.to_string_lossy().contains("a.0")).collect();
            assert!(files.len() > 1, "{files:?}");
            for file in &files {
                assert_eq!(info(file)["states"]["source"], source, "{}", file.display());
                std::fs::remove_file(file).unwrap();
            }
        }
    }
}

fn short_phases(place: &Place, program: &Path, source: &str) {
    let file = place.file("short.ect");
    let mut command = place.command(everycall());
    command.args(["record", "-q", &format!("--states={source}"), "-o"]).arg(&file);
    let said = all_phases(&successful(command.arg("--").arg(program).arg(SHORT.to_string())));
    let told: Vec<_> = all_told(&file).into_iter().map(|(name, (_, told))| (name, told)).collect();
    check_many(source, has_holes(&file), &said, &told);
}

/// A wait that goes on has the name of its system call, from each source, also in a snapshot.
#[test]
fn waits_have_the_name_of_their_call() {
    let place = Place::new("states-calls");
    place.write("ping_pong.c", PING_PONG);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "ping_pong.c", "-pthread"], "ping_pong");
    let tracefs = TraceFs::find();
    for source in ["perf", "tracefs", "perf+tracefs", "schedstat"] {
        if source.contains("tracefs") && tracefs.is_none() {
            continue;
        }
        let (file, part) = (place.file("a.ect"), place.file("part.ect"));
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--stream", &format!("--states={source}"), "-o"]).arg(&file);
        command
            .arg("--")
            .arg(&program)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null());
        let mut recorder = command.spawn().unwrap();
        let pid = wait::until_started(recorder.id(), &program);
        let program_runs = Killed(pid);
        let names = |file: &Path, name: &str| {
            let all = lines(file);
            all.iter().filter(|line| line["blocked_in"] == name).count()
        };
        wait::until("it waits for its input, by name", || {
            let mut command = Command::new(everycall());
            let taken = command.args(["snapshot", "-q", "-o"]).arg(&part).arg(pid.to_string()).output();
            taken.unwrap().status.success() && (info(&part)["states"].is_null() || names(&part, "read") > 0)
        });
        let mut stdin = recorder.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"x").unwrap();
        recorder.wait().unwrap();
        drop(program_runs);
        if info(&file)["states"]["source"].is_null() {
            println!("{source} is refused here");
            continue;
        }
        assert!(names(&file, "read") > 0, "{source}");
        let text = successful(Command::new(everycall()).arg("replay").arg(&file));
        assert!(text.contains(" blocked in read"), "{text}");
        let text = successful(Command::new(everycall()).args(["export", "-f", "csv", "-o", "-"]).arg(&file));
        assert!(text.contains("blocked in read"), "{text}");
    }
}

/// Naps for 20 ms under one name, and then has another one.
const RENAMED: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
__attribute__((noinline)) void loads(void)
{
    pthread_setname_np(pthread_self(), "loader");
    usleep(20000);
}
__attribute__((noinline)) void serves(void)
{
    pthread_setname_np(pthread_self(), "server");
}
static void *thread(void *unused)
{
    loads();
    serves();
    return unused;
}
int main(void)
{
    pthread_t other;
    pthread_create(&other, 0, thread, 0);
    return pthread_join(other, 0);
}
"#;

/// A thread that had another name during its slow call isn't shown by its last name only.
#[test]
fn threads_that_change_their_name_have_both() {
    let place = Place::new("states-names");
    place.write("renamed.c", RENAMED);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "renamed.c", "-pthread"], "renamed");
    let tracefs = TraceFs::find();
    for source in ["perf", "tracefs", "perf+tracefs"] {
        if source.contains("tracefs") && tracefs.is_none() {
            continue;
        }
        let file = place.file("a.ect");
        let mut command = place.command(everycall());
        command.args(["record", "-q", &format!("--states={source}"), "-o"]).arg(&file);
        successful(command.arg("--").arg(&program));
        let facts = info(&file);
        if facts["states"]["source"].is_null() {
            println!("{source} is refused here");
            continue;
        }
        let threads = facts["threads"].as_array().unwrap();
        let server = threads.iter().find(|thread| thread["name"] == "server").expect("the thread");
        let renames = server["renames"].as_array().unwrap();
        let names =
            |name: &str| -> Vec<_> { renames.iter().map(|one| one[name].as_str().unwrap()).collect() };
        assert!(names("before").ends_with(&["loader"]), "{source}: {server}");
        assert!(names("name").ends_with(&["server"]), "{source}: {server}");
        let said = |arguments: &[&str]| successful(Command::new(everycall()).args(arguments).arg(&file));
        for arguments in [&["replay"][..], &["export", "-f", "perfetto", "-o", "-"]] {
            let output = Command::new(everycall()).args(arguments).arg(&file).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("server (before: loader)"), "{source}: {text}");
        }
        assert!(said(&["info"]).contains(" loader until "), "{source}");
        // Its other thread, and a recording without states, have one name.
        assert!(threads.iter().filter(|thread| thread["renames"] == serde_json::json!([])).count() > 0);
    }
}

/// Without privileges, as `nobody`.
#[test]
fn without_privileges() {
    let place = Place::new("states-nobody");
    let program = program(&place);
    if !may_be_another() {
        // The other test was without privileges already.
        return;
    }
    let output = as_user(&place, &program, NOBODY, "perf");
    let file = place.file(NOBODY).join("a.ect");
    if may_use_perf() {
        check("perf", &phases(&output), &told(&file));
    } else {
        let text = info(&file)["states"]["text"].as_str().unwrap_or_default().to_owned();
        assert!(text.contains("sysctl kernel.perf_event_paranoid=2"), "{text}");
    }
}

/// A user without privileges.
const NOBODY: &str = "65534";

/// Whether tests may do something as that user.
fn may_be_another() -> bool {
    let can = Command::new("setpriv").args([&format!("--reuid={NOBODY}"), "--clear-groups", "true"]).output();
    can.is_ok_and(|can| can.status.success())
}

fn as_user(place: &Place, program: &Path, uid: &str, source: &str) -> String {
    folder_of_user(place, program, uid);
    let mut command = user_command(place, uid);
    command.arg(format!("--states={source}"));
    successful(command.args(["-o", "a.ect", "--", "./phases"]))
}

/// A folder with all that the user needs: the user may read nothing else.
fn folder_of_user(place: &Place, program: &Path, uid: &str) -> PathBuf {
    let folder = place.file(uid);
    if !folder.exists() {
        std::fs::create_dir(&folder).unwrap();
        for (from, to) in [(everycall(), "everycall"), (program, "phases")] {
            std::fs::copy(from, folder.join(to)).unwrap();
        }
        successful(Command::new("chown").args(["-R", uid]).arg(&folder));
    }
    folder
}

/// `record` as another user, in a folder of its own.
fn user_command(place: &Place, uid: &str) -> Command {
    let folder = place.file(uid);
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={uid}"), "--clear-groups", "env", "-C"]).arg(&folder);
    command.arg(format!("XDG_CACHE_HOME={}", folder.display()));
    command.args(["./everycall", "record", "-q"]);
    command
}

/// Whether users may use `perf_event_open`.
fn may_use_perf() -> bool {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    paranoid.trim().parse::<i32>().is_ok_and(|level| level <= 2)
}

/// With an instance of tracefs that root has made for the user.
#[test]
fn root_gives_a_user_access() {
    // No user of most machines, and another one in each run.
    let uid = (2_000_000_000 + std::process::id()).to_string();
    let place = Place::new("states-delegated");
    let program = program(&place);
    let mut give = Command::new(everycall());
    give.args(["setup-tracefs", "--user", &uid]);
    let Some(tracefs) = TraceFs::find() else {
        let output = give.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("only root") || said.contains("can't be m"), "{said}");
        return;
    };
    let folder = PathBuf::from(format!("/run/everycall/tracefs-{uid}"));
    let instance = tracefs.place.join(format!("instances/everycall-user-{uid}"));
    // The second time, it is there already.
    for _ in 0..2 {
        successful(&mut give);
        assert!(folder.join("tracing_on").exists() && instance.exists());
    }
    // No more than a recorder needs.
    let owner =
        |name: &str| std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(folder.join(name)).unwrap());
    assert_eq!(
        (owner("events/sched/sched_switch/filter").to_string(), owner("current_tracer")),
        (uid.clone(), 0)
    );
    // The kernel's memory is root's to give.
    assert_eq!(owner("buffer_size_kb"), 0);
    let file = place.file(&uid).join("a.ect");
    for source in ["perf+tracefs", "best", "tracefs"] {
        if source == "perf+tracefs" && !may_use_perf() {
            continue;
        }
        let said = phases(&as_user(&place, &program, &uid, source));
        let told_source = info(&file)["states"]["source"].as_str().unwrap().to_owned();
        let is_best = source == "best" && told_source.contains("tracefs");
        assert!(told_source == source || is_best, "{told_source}");
        if !has_holes(&file) {
            check(&told_source, &said, &told(&file));
        }
    }
    // Of a killed recorder, nothing stays on.
    let mut recorder = user_command(&place, &uid);
    recorder.args(["--states=tracefs", "--launcher", "-o", "killed.ect", "--", "sleep", "60"]);
    let mut recorder = recorder.stdout(std::process::Stdio::null()).spawn().unwrap();
    let setting = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap().trim().to_owned();
    wait::until("it records", || setting("tracing_on") == "1" || recorder.try_wait().unwrap().is_some());
    // Meanwhile, it can't be removed, but is of no use any more.
    let mut undo = Command::new(everycall());
    undo.args(["setup-tracefs", "--undo", "--user", &uid]);
    let refused = undo.output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.trim().lines().count() == 1, "{said}");
    assert!(said.contains("(`everycall`)") && said.contains("files of it open, which"), "{said}");
    assert_eq!((owner("tracing_on"), owner("events/sched/sched_switch/enable")), (0, 0));
    assert_eq!(setting("events/sched/sched_switch/enable"), "0");
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    wait::until("all is off", || {
        setting("tracing_on") == "0" && setting("events/sched/sched_switch/enable") == "0"
    });
    let is_on = std::fs::read_to_string(folder.join("tracing_on")).unwrap();
    assert_eq!(is_on.trim(), "0");
    successful(&mut undo);
    assert!(!folder.exists() && !instance.exists());
    let again = undo.output().unwrap();
    assert!(String::from_utf8(again.stderr).unwrap().contains("had no instance"));
    let unknown =
        Command::new(everycall()).args(["setup-tracefs", "--user", "no such user"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}

/// From what the kernel counts alone: bounds, and the truth lies within them.
#[test]
fn samples_give_bounds() {
    let place = Place::new("states-samples");
    let program = program(&place);
    let file = place.file("a.ect");
    for options in [&[][..], &["--stream"]] {
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--states=schedstat"]).args(options);
        let said = phases(&successful(command.arg("-o").arg(&file).arg("--").arg(&program)));
        check_bounds(&file, &said);
    }
    if may_be_another() {
        let said = phases(&as_user(&place, &program, NOBODY, "schedstat"));
        check_bounds(&place.file(NOBODY).join("a.ect"), &said);
    }
}

fn check_bounds(file: &Path, said: &BTreeMap<String, Phase>) {
    let states = &info(file)["states"];
    assert_eq!(states["source"], "schedstat", "{states}");
    assert!(states["text"].as_str().unwrap().contains("read from /proc every millisecond"), "{states}");
    let lines = lines(file);
    let number = |line: &Value, name: &str| line[name].as_u64();
    let text = successful(Command::new(everycall()).args(["report", "-f", "json"]).arg(file));
    let report: Value = serde_json::from_str(&text).unwrap();
    for (name, phase) in said {
        let call = lines.iter().find(|line| line["name"] == name.as_str()).unwrap();
        let duration = number(call, "dur_ns").unwrap();
        let off = (phase.end - phase.begin).saturating_sub(phase.cpu);
        // Its thread lives for some 60 ms: a recorder that gets no CPU meanwhile doesn't see it.
        let is_known =
            ["off_cpu_at_most_ns", "voluntary_switches"].iter().any(|name| number(call, name).is_some());
        if !is_known && ["holds_lock", "fills_pipe"].contains(&&name[..]) {
            continue;
        }
        // All is known where it ran without a switch.
        let least = number(call, "off_cpu_at_least_ns").unwrap_or(0);
        let most = number(call, "off_cpu_at_most_ns").unwrap_or(0);
        assert!(least <= most && most <= duration, "{call}");
        // Around the phase, results are printed. A hypervisor's share counts as CPU time.
        assert!(least <= off + around_of(duration, phase) + EDGE + duration / 10, "{call} {phase:?}");
        assert!(most + EDGE + duration / 10 >= off, "{call} {phase:?}");
        let row = report["rows"].as_array().unwrap().iter().find(|row| row["name"] == name.as_str());
        let row = row.unwrap();
        assert_eq!(number(row, "off_cpu_at_most_ns").unwrap_or(0), most, "{row} {call}");
        assert_eq!(number(row, "blocked_ns").unwrap_or(0), least, "{row} {call}");
    }
    // Each wait that is shown lies in the call that waited.
    for off in lines.iter().filter(|line| number(line, "blocked_ns").is_some()) {
        let at = number(off, "at_ns").unwrap();
        let around = |line: &&Value| {
            let start = number(line, "start_ns").unwrap_or(u64::MAX);
            line["tid"] == off["tid"] && start <= at && at <= start + number(line, "dur_ns").unwrap_or(0)
        };
        let calls = lines.iter().filter(|line| line["name"].is_string()).filter(around);
        let names: Vec<&str> = calls.map(|line| line["name"].as_str().unwrap()).collect();
        assert!(!names.contains(&"spins") && !names.contains(&"is_preempted"), "{off} {names:?}");
    }
}

/// A recorder that doesn't come to read loses events, and says how many.
#[test]
fn events_without_room_are_counted() {
    let place = Place::new("states-lost");
    place.write("ping_pong.c", PING_PONG);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "ping_pong.c", "-pthread"], "ping_pong");
    let tracefs = TraceFs::find();
    for source in ["perf", "tracefs", "perf+tracefs"] {
        if source == "perf" || tracefs.is_some() {
            events_without_room(&place, &program, source);
        }
    }
}

fn events_without_room(place: &Place, program: &Path, source: &str) {
    let file = place.file("a.ect");
    // The program's CPU is its own: no further event there makes the kernel say what was lost.
    let (of_program, of_recorder) = two_cpus();
    let mut command = place.command("taskset");
    command.args(["-c", &of_recorder]).arg(everycall());
    command.args(["record", "-q", &format!("--states={source}"), "-o"]).arg(&file);
    command.args(["--", "taskset", "-c", &of_program]).arg(program).arg("60000");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut recorder = command.spawn().unwrap();
    wait::until_started(recorder.id(), program);
    let pid = recorder.id().to_string();
    let signal = |name: &str| {
        successful(Command::new("kill").args([name, &pid]));
    };
    signal("-STOP");
    let mut stdin = recorder.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"x").unwrap();
    let mut done = [0; 5];
    std::io::Read::read_exact(recorder.stdout.as_mut().unwrap(), &mut done).unwrap();
    signal("-CONT");
    recorder.wait().unwrap();
    let states = &info(&file)["states"];
    if source == "perf" && states["source"].is_null() {
        return;
    }
    assert_eq!(states["source"], source, "{states}");
    let page = one_line(&file);
    // Who woke a thread, and switches, are of different rings.
    let kinds = [("events_lost", "events lost"), ("wake_ups_lost", "wake-ups lost")];
    let wanted = if source == "perf+tracefs" { &kinds[..] } else { &kinds[..1] };
    for (name, words) in wanted {
        let lost = states[name].as_u64().unwrap();
        assert!(lost > 0 && page.contains(words), "{source}: {states}\n{page}");
    }
    // All calls are there.
    let lines = lines(&file);
    assert_eq!(lines.iter().filter(|line| line["name"] == "pass").count(), 2);
}

/// The first and the last CPU that this process may use.
fn two_cpus() -> (String, String) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let number = |part: Option<&str>| part.unwrap().to_owned();
    (number(list.split([',', '-']).next()), number(list.rsplit([',', '-']).next()))
}

/// `info`, each field in a line.
fn one_line(file: &Path) -> String {
    let page = successful(Command::new(everycall()).arg("info").arg(file));
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A trace from a killed recorder has states.
#[test]
fn killed_recorders_leave_states() {
    let place = Place::new("states-recorder");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "naps.c", "-pthread"], "naps");
    let file = place.file("a.ect");
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--stream", "--states=perf", "--ring-size", "64K", "-o"]).arg(&file);
    let mut recorder = command.arg("--").arg(&program).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut pid = 0;
    wait::until("the program runs", || {
        pid = wait::children(recorder.id()).first().copied().unwrap_or(0);
        pid != 0
    });
    let _program_runs = Killed(pid);
    let naps = || {
        let output = Command::new(everycall()).args(["replay", "-f", "json"]).arg(&file).output().unwrap();
        String::from_utf8(output.stdout).unwrap().matches("\"naps\"").count()
    };
    wait::until("much is written", || naps() > 20);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    if !info(&file)["states"]["source"].is_null() {
        assert!(check_naps(&file) > 10);
    }
}

/// Whether each call of `naps` was off the CPU for the time that it slept, and none of `spins` was
/// blocked, up to the moment until which states are known. Returns how many.
fn check_naps(file: &Path) -> usize {
    let (lines, facts) = (lines(file), info(file));
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap_or(0);
    let end = number(&facts, "duration_ns");
    let until = end - number(&facts["states"], "unknown_at_end_ns");
    let calls = lines.iter().filter(|line| line["name"].is_string() && line["remarks"].is_null());
    let clocks = CLOCKS.max(number(&facts["clock"], "error_ns"));
    let (mut naps, mut told) = (0, 0);
    for call in calls {
        let (start, duration) = (number(call, "start_ns"), number(call, "dur_ns"));
        let within = lines.iter().filter(|off| off["off_cpu_ns"].is_u64() && off["tid"] == call["tid"]);
        let within = within.filter(|off| (start..start + duration).contains(&number(off, "at_ns")));
        let sum = |name: &str| within.clone().map(|off| number(off, name)).sum::<u64>();
        let (blocked, unknown) = (sum("blocked_ns"), sum("unknown_ns"));
        // Unknown time may reach behind the call.
        assert!(blocked + sum("runnable_ns") <= duration + EDGE || unknown > 0, "{call}");
        // The kernel puts the thread on a CPU before the call ends: the clocks agree so well.
        let is_back =
            |off: &Value| number(off, "at_ns") + number(off, "off_cpu_ns") <= start + duration + clocks;
        assert!(within.clone().all(is_back) || unknown > 0, "{call}");
        if start + duration > until {
            continue;
        }
        if call["name"] == "naps" {
            // The kernel sleeps for the whole time or longer.
            told += usize::from(blocked + unknown + EDGE >= 5 * MILLISECOND);
            naps += 1;
        } else if call["name"] == "spins" {
            assert!(blocked < 4 * MILLISECOND || unknown > 0, "{blocked} {call}");
        }
    }
    // Some kernels leave out a switch now and then.
    let least = if facts["states"]["source"] == "perf" { naps - naps / 5 } else { 1 };
    assert!(told >= least, "{told}, {naps} naps");
    // Times off the CPU that are still open end where the trace does, or where nothing more is
    // known.
    let offs = lines.iter().filter(|off| off["off_cpu_ns"].is_u64());
    offs.for_each(|off| {
        assert!(number(off, "at_ns") + number(off, "off_cpu_ns") <= until + 1, "{off} {until}")
    });
    naps
}

/// Kills a program when a test ends in whichever way.
struct Killed(u32);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0.to_string()]).output();
    }
}

/// A snapshot gets the states of its time from the recorder; the program's file has them after
/// SIGKILL, and so have kept calls.
#[test]
fn snapshots_and_killed_programs_have_states() {
    let place = Place::new("states-snapshots");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "naps.c", "-pthread"], "naps");
    let tracefs = TraceFs::find();
    for source in ["perf", "tracefs"] {
        if source == "tracefs" && tracefs.is_none() {
            continue;
        }
        let kinds: [&[&str]; 3] =
            [&[], &["--stream"], &["--trigger", "naps > 4ms", "--keep", "2", "--keep-by", "first"]];
        for options in kinds.into_iter().take(if source == "perf" { 3 } else { 1 }) {
            let file = place.file("whole.ect");
            let mut command = place.command(everycall());
            command.args(["record", "-q", &format!("--states={source}")]).args(options);
            command.arg("-o").arg(&file).arg("--").arg(&program);
            let mut recorder = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
            let mut ready = [0; 6];
            std::io::Read::read_exact(recorder.stdout.as_mut().unwrap(), &mut ready).unwrap();
            let mut pid = 0;
            wait::until("the program runs", || {
                let children = wait::children(recorder.id());
                pid = children.first().copied().unwrap_or(0);
                pid != 0
            });
            let program_runs = Killed(pid);
            let part = place.file("part.ect");
            let snapshot = || {
                let mut command = Command::new(everycall());
                successful(
                    command.args(["snapshot", "-q", "--last", "1s", "-o"]).arg(&part).arg(pid.to_string()),
                );
            };
            wait::until("it has slept often", || {
                snapshot();
                lines(&part).iter().filter(|line| line["name"] == "naps").count() > 20
            });
            assert_eq!(info(&part)["states"]["source"], source);
            assert!(check_naps(&part) > 10);
            drop(program_runs);
            recorder.wait().unwrap();
            assert_eq!(info(&file)["states"]["source"], source);
            if options.first() == Some(&"--trigger") {
                let kept =
                    Command::new(everycall()).args(["replay", "--kept", "1"]).arg(&file).output().unwrap();
                let text = String::from_utf8(kept.stdout).unwrap();
                assert!(text.contains("naps") && text.contains(" blocked"), "{text}");
            } else {
                assert!(check_naps(&file) > 20);
            }
        }
    }
}
