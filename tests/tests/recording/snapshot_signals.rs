//! `EVERYCALL_SNAPSHOT_SIGNAL`: a signal writes a snapshot, without an effect on the program.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use everycall_tests::{Mode, Place, TraceView, everycall, successful, wait};

const USR2: u32 = 12;
/// Number of the next folder.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// As many times as `signalled spin` expects to be interrupted.
const SPIN_SIGNALS: usize = 20;
/// Threads of `signalled threads` when no snapshot is being written.
const THREADS: usize = 23;

fn program(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "signalled.c", "-pthread"], &format!("signalled-{}", mode.label()))
}

struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    fn start(
        place: &Place,
        program: &Path,
        arguments: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Running {
        let folder = place.file(&format!("snapshots-{}", NEXT.fetch_add(1, Relaxed)));
        fs::create_dir(&folder).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&folder).env("EVERYCALL_SNAPSHOT_SIGNAL", "USR2");
        prepare(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::with_capacity(1, child.stdout.as_mut().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{program:?}");
        Running { child, folder }
    }

    fn signal(&self, signal: u32) {
        successful(Command::new("kill").args([&format!("-{signal}"), &self.child.id().to_string()]));
    }

    fn files(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<PathBuf> =
            all.filter(|path| path.extension().is_some_and(|ending| ending == "ect")).collect();
        all.sort();
        all
    }

    fn wait_for(&self, count: usize) -> Vec<PathBuf> {
        wait::until(&format!("{count} files are there"), || self.files().len() >= count);
        self.files()
    }

    /// Waits until no thread writes a snapshot, and no signal waits to be delivered.
    fn wait_until_quiet(&self, threads: usize) {
        let process = format!("/proc/{}", self.child.id());
        let is_quiet = || {
            let status = fs::read_to_string(format!("{process}/status")).unwrap();
            let pending = |line: &&str| line.starts_with("SigPnd:") || line.starts_with("ShdPnd:");
            let none = |line: &str| {
                line.split_whitespace().nth(1).is_some_and(|mask| mask.bytes().all(|byte| byte == b'0'))
            };
            status.lines().filter(pending).all(none)
                && fs::read_dir(format!("{process}/task")).unwrap().count() == threads
        };
        // Between the delivery of a signal and the start of its thread, it looks quiet too.
        let mut looks = 0;
        wait::until("no signal is being served", || {
            std::thread::sleep(Duration::from_millis(50));
            looks = if is_quiet() { looks + 1 } else { 0 };
            looks == 6
        });
    }

    /// Ends it; returns its messages since it was ready.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn each_signal_writes_one_snapshot_without_disturbing_the_program() {
    let place = Place::new("signal-each");
    for mode in Mode::in_turn(0) {
        let program = program(&place, mode);
        let running = Running::start(&place, &program, &["quiet", "1000"], |_| ());
        let pid = running.child.id();
        for number in 1..=3 {
            running.signal(USR2);
            running.wait_for(number);
            // The file exists just before its thread has ended, and a signal that comes in between
            // is counted.
            while fs::read_dir(format!("/proc/{pid}/task")).unwrap().count() > 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for (file, number) in running.files().iter().zip(1..) {
            let facts = fs::metadata(file).unwrap();
            assert_eq!((facts.permissions().mode() & 0o7777, facts.is_file()), (0o600, true));
            // The kernel stores 15 bytes of a name.
            let name = program.file_name().unwrap().to_string_lossy().chars().take(15).collect::<String>();
            assert!(file.ends_with(format!("{name}-{pid}-{number}.ect")), "{file:?}");
            let trace = TraceView::open(file);
            assert_eq!(trace.warnings, [] as [String; 0]);
            assert_eq!((trace.calls("leaf"), trace.losses()), (1000, 0), "{mode:?}");
        }
        assert_eq!(running.end(), "done\n", "{mode:?}");
    }
}

#[test]
fn static_programs_and_those_whose_memory_is_large() {
    let place = Place::new("signal-static");
    let fixed = place.build(Mode::GCC_NOPS, &["-O1", "-static", "signalled.c", "-pthread"], "fixed");
    let running = Running::start(&place, &fixed, &["quiet", "500"], |_| ());
    running.signal(USR2);
    assert_eq!(TraceView::open(&running.wait_for(1)[0]).calls("leaf"), 500);
    assert_eq!(running.end(), "done\n");
    let program = program(&place, Mode::GCC_NOPS);
    let running = Running::start(&place, &program, &["large", "500"], |_| ());
    running.signal(USR2);
    assert_eq!(TraceView::open(&running.wait_for(1)[0]).calls("leaf"), 500);
    assert_eq!(running.end(), "done\n");
}

#[test]
fn threads_that_run_and_threads_that_are_blocked() {
    let place = Place::new("signal-threads");
    let program = program(&place, Mode::GCC_NOPS);
    let running = Running::start(&place, &program, &["threads", "200"], |_| ());
    for number in 1..=5 {
        running.signal(USR2);
        let file = &running.wait_for(number)[number - 1];
        let trace = TraceView::tallies_only(file);
        assert_eq!(trace.warnings, [] as [String; 0]);
        assert_eq!(trace.losses(), 0);
        let blocked: Vec<_> = trace.threads.iter().filter(|thread| &*thread.info.name == "blocked").collect();
        assert_eq!(blocked.len(), 20);
        assert!(blocked.iter().all(|thread| thread.tallies["leaf"].exits == 200));
        let busy = trace.threads.iter().filter(|thread| &*thread.info.name == "busy");
        assert_eq!(busy.filter(|thread| thread.tallies["leaf"].exits > 10).count(), 2);
    }
    // No thread of ours stays.
    let tasks = fs::read_dir(format!("/proc/{}/task", running.child.id())).unwrap().count();
    assert_eq!(tasks, THREADS);
    assert_eq!(running.end(), "done\n");
}

/// Signals in close succession: each writes a file or is counted.
#[test]
fn many_signals_are_written_or_counted() {
    let place = Place::new("signal-many");
    let program = program(&place, Mode::GCC_NOPS);
    let crashes = place.file("crashes");
    fs::create_dir(&crashes).unwrap();
    fs::set_permissions(&crashes, fs::Permissions::from_mode(0o700)).unwrap();
    let mut running = Running::start(&place, &program, &["threads", "200"], |command| {
        command.env("EVERYCALL_CRASH", &crashes).env("EVERYCALL_SNAPSHOT_SIGNAL", "RTMIN+1");
    });
    let pid = running.child.id().to_string();
    // One process that sends them all, without a pause.
    let script = "i=0; while [ $i -lt 400 ]; do kill -35 $0; i=$((i+1)); done";
    successful(Command::new("sh").args(["-c", script, &pid]));
    running.wait_until_quiet(THREADS);
    let files = running.files().len();
    assert!(files > 0);
    // The next one is heard again.
    running.signal(35);
    running.wait_for(files + 1);
    running.wait_until_quiet(THREADS);
    let files = running.files().len();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    for file in running.files() {
        assert_eq!(TraceView::tallies_only(&file).losses(), 0);
    }
    let file = fs::read_dir(&crashes).unwrap().next().unwrap().unwrap().path();
    let mut command = place.command(everycall());
    let output = command.args(["core", "-o", "end.ect"]).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().find(|line| line.contains("snapshot signals coalesced")).expect(&said);
    let counted: usize = line.trim().split(' ').next().unwrap().parse().unwrap();
    // The kernel queues real-time signals: none is lost.
    assert_eq!(files + counted, 401, "{files} {counted}");
    assert!(counted > 0);
    eprintln!("{files} files, {counted} counted of 401 signals");
}

/// The handler returns at once, whatever is to be written.
#[test]
fn the_handler_returns_at_once() {
    let place = Place::new("signal-spin");
    let program = program(&place, Mode::GCC_NOPS);
    let running = Running::start(&place, &program, &["spin", "70000"], |_| ());
    for number in 1..=SPIN_SIGNALS {
        running.signal(USR2);
        running.wait_for(number);
        // The file is there before its writer has ended, and a signal until then is counted only.
        let threads = || fs::read_dir(format!("/proc/{}/task", running.child.id())).unwrap().count();
        wait::until("the snapshot's thread has ended", || threads() == 1);
    }
    let said = running.end();
    let words: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [number, shortest, longest] = words[..] else { panic!("{said}") };
    eprintln!("the thread's CPU time for each of {number} signals: {shortest} to {longest} us");
    // Other things take time from the thread, too, but not each time.
    assert_eq!(number, SPIN_SIGNALS as u64);
    assert!(shortest < 1000, "{said}");
}

#[test]
fn the_programs_own_handler_wins_and_bad_values_are_reported() {
    let place = Place::new("signal-own");
    let program = program(&place, Mode::GCC_NOPS);
    let running = Running::start(&place, &program, &["own", "10"], |_| ());
    running.signal(USR2);
    running.wait_until_quiet(1);
    assert_eq!(running.files(), [] as [PathBuf; 0]);
    // The signal interrupts the program's own read, as it asked for no other way; signal() asks for
    // it.
    assert_eq!(running.end(), "own 1\ndone\n");
    let run = |signal: &str, folder: &str| {
        let mut command = place.command(&program);
        command.args(["quiet", "10"]).env("EVERYCALL_SNAPSHOT_SIGNAL", signal);
        if !folder.is_empty() {
            command.env("EVERYCALL_SNAPSHOT_FOLDER", folder);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout, b"ready\ndone\n");
        String::from_utf8(output.stderr).unwrap()
    };
    for bad in ["", "KILL", "SEGV", "11", "33", "UNKNOWN", "65"] {
        let said = run(bad, "");
        assert!(
            said.contains(&format!("EVERYCALL_SNAPSHOT_SIGNAL={bad} isn't understood; allowed is USR1")),
            "{said}"
        );
        assert!(said.ends_with("Using none.\n"), "{said}");
    }
    for bad in ["/nowhere/at/all", "/etc/hostname"] {
        let said = run("USR1", bad);
        assert!(
            said.contains("a folder that is there") && said.contains("no signal for snapshots"),
            "{said}"
        );
    }
    for good in ["USR1", "SIGUSR2", "10", "RTMIN+3"] {
        assert_eq!(run(good, "."), "");
    }
}

/// A folder of its own, links and other files in the way, no room.
#[test]
fn files_are_new_and_whole_or_not_there() {
    let place = Place::new("signal-files");
    let program = program(&place, Mode::GCC_NOPS);
    let folder = place.file("there");
    fs::create_dir(&folder).unwrap();
    let running = Running::start(&place, &program, &["quiet", "100"], |command| {
        command.env("EVERYCALL_SNAPSHOT_FOLDER", "../there").env("EVERYCALL_SNAPSHOT_SIGNAL", "RTMIN+1");
    });
    let name = |number: u32| folder.join(format!("signalled-gcc-n-{}-{number}.ect", running.child.id()));
    let victim = place.write("victim", "mine");
    std::os::unix::fs::symlink(&victim, name(1)).unwrap();
    std::os::unix::fs::symlink(place.file("nowhere"), name(2)).unwrap();
    fs::write(name(3), "older").unwrap();
    running.signal(35);
    wait::until("the fourth name is taken", || name(4).exists());
    assert_eq!(TraceView::open(&name(4)).calls("leaf"), 100);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert_eq!(fs::read_to_string(name(3)).unwrap(), "older");
    assert!(!place.file("nowhere").exists());
    assert_eq!(running.end(), "done\n");

    // Files of 1 KiB at most: none is written, no signal ends the program.
    let script = format!("ulimit -f 1; exec {} quiet 20000", program.display());
    let shell = Path::new("/bin/sh");
    let running = Running::start(&place, shell, &["-c", &script], |_| ());
    running.signal(USR2);
    running.wait_until_quiet(1);
    assert_eq!(fs::read_dir(&running.folder).unwrap().count(), 0);
    assert_eq!(running.end(), "done\n");
}
