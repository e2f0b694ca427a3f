//! Programs that overwrite the shared memory that they are recorded in, while their threads run and
//! fork: whatever they write, every command ends in time, with a file or an error message, and no
//! file becomes larger than the memory allows.
//!
//! `EVERYCALL_SCRIBBLE_SECONDS` is how long; `cargo xtask scribbles` takes ten minutes.
//! `EVERYCALL_SCRIBBLE_SEED` repeats one run.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use everycall_tests::{Mode, Place, everycall, number_asked, wait};

/// The default time.
const SECONDS: u64 = 15;
/// How long a program runs.
const RUN: Duration = Duration::from_millis(500);
/// A program that has overwritten its own hooks' memory may run for ever: then it is killed.
const PROGRAM_MAX: Duration = Duration::from_secs(3);
/// The longest that a command of ours takes on a machine that has time for it.
const COMMAND_MAX: Duration = Duration::from_secs(10);
/// Where it has to share its CPU, it may take longer, as long as it has used no more of it than
/// this, ...
const CPU_MAX: Duration = Duration::from_secs(5);
/// ... up to this.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Bytes that a file may contain beyond the contents of memory: tables, descriptions of the
/// machine, one buffer.
const SLACK: u64 = 4 << 20;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// How a program is recorded; each is followed by its turn.
const WAYS: [&[&str]; 8] = [
    &[],
    &["--stream"],
    &["--stream", "--stall"],
    &["--stream", "--file-size", "1M", "--keep-files", "3"],
    &["--stream", "--stall", "--wait", "--ring-size", "64K"],
    &["--trigger", "tree > 1us", "--keep-every", "0"],
    &["--trigger", "tree entered", "--trigger", "leaf > p99"],
    &["--wait", "--states"],
];

/// A command, and its description in failures.
struct Running {
    child: Child,
    what: String,
    said: PathBuf,
    began: Instant,
}

impl Running {
    fn start(command: &mut Command, said: PathBuf) -> Running {
        let what = format!("{command:?}");
        let output = File::create(&said).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        Running { child, what, said, began: Instant::now() }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.said).unwrap_or_default()).into_owned()
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args([&format!("-{signal}"), &pid]).stderr(Stdio::null()).status();
    }

    /// Whether it takes too long, since `since`, when it had taken so much of a CPU.
    fn is_late(&self, since: Instant, cpu: Duration) -> bool {
        let used = cpu_time(self.child.id()).saturating_sub(cpu);
        let wall = since.elapsed();
        wall > COMMAND_MAX && (used > CPU_MAX || wall > BUSY_MAX || !is_busy())
    }

    /// # Panics
    /// Where it doesn't end in time, panics, or a signal ends it that nobody sent.
    fn ends_well(mut self) -> ExitStatus {
        let (since, cpu) = (Instant::now(), cpu_time(self.child.id()));
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.is_late(since, cpu) {
                // Where it hangs, for debugging.
                let pid = self.child.id().to_string();
                let stacks = ["-p", &pid, "-batch", "-ex", "thread apply all bt 16"];
                let stacks = Command::new("gdb").args(stacks).output();
                println!(
                    "{}",
                    stacks.map_or_else(
                        |_| String::new(),
                        |out| String::from_utf8_lossy(&out.stdout).into_owned()
                    )
                );
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                panic!("{} took {:?} and more\n{}", self.what, self.began.elapsed(), self.said());
            }
            std::thread::sleep(PAUSE);
        };
        let said = self.said();
        assert!(!said.contains("panicked") && status.code() != Some(101), "{}: {status}\n{said}", self.what);
        status
    }
}

/// The CPU time of a process.
fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    // In hundredths of a second.
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Whether more threads want to run than there are CPUs.
fn is_busy() -> bool {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    load.split(' ').next().and_then(|load| load.parse::<f64>().ok()).is_some_and(|load| load > 1.5 * cpus)
}

/// A reading verb: it ends with 0, or with 1 and a message, and its output contains no impossible
/// number.
fn looks(place: &Place, words: &[&str]) -> String {
    let mut command = place.command(everycall());
    command.args(words);
    let running = Running::start(&mut command, place.file("looked"));
    let (what, output) = (running.what.clone(), running.said.clone());
    let status = running.ends_well();
    let said = String::from_utf8_lossy(&fs::read(output).unwrap()).into_owned();
    assert!(matches!(status.code(), Some(0 | 1)), "{what}: {status}\n{said}");
    said
}

/// Numbers as people read them: none is negative, none has more than 16 digits.
fn is_plausible(text: &str) -> bool {
    // Build ids and paths have letters in them.
    let is_short = |word: &str| {
        word.contains(char::is_alphabetic) || word.chars().filter(char::is_ascii_digit).count() <= 16
    };
    let is_negative = |word: &str| {
        word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    text.split_whitespace().all(|word| is_short(word) && !is_negative(word))
}

/// Processes of group `group` that live.
fn living(group: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        let Some((_, rest)) = stat.rsplit_once(')') else { return false };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        !matches!(fields[0], "Z" | "X") && fields[2] == group.to_string()
    })
    .collect()
}

/// Memory that arenas take which process `pid` has open, by file.
fn measure(pid: u32, sizes: &mut HashMap<u64, u64>) {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return };
    for entry in entries.flatten() {
        let name = fs::read_link(entry.path()).unwrap_or_default();
        if name.to_string_lossy().contains("memfd:everycall-arena")
            && let Ok(data) = fs::metadata(entry.path())
        {
            let known = sizes.entry(data.ino()).or_default();
            *known = (*known).max(data.blocks() * 512);
        }
    }
}

/// Bytes of the files in a folder.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}

fn child_of(pid: u32) -> Option<u32> {
    wait::children(pid).into_iter().next()
}

fn kill_group(group: u32) {
    // The group was made by the program that we have started.
    let _ = Command::new("kill").args(["-9", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
}

/// The program's group while it runs; its processes are ended when this is dropped.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        if !living(self.0).is_empty() {
            kill_group(self.0);
        }
    }
}

/// Records the program, runs reading commands meanwhile if `asks`, and kills it when it takes too
/// long.
fn recorded(place: &Place, program: &Path, seed: u64) {
    let way = WAYS[(seed % WAYS.len() as u64) as usize];
    let (asks, is_told_to_end) = ((seed / 8).is_multiple_of(3), seed / 8 % 3 == 1);
    let folder = place.file("out");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let mut command = place.command(everycall());
    command.arg("record").args(way).arg("-o").arg(folder.join("trace.ect")).arg("--").arg(program);
    command.args([seed.to_string(), RUN.as_millis().to_string()]);
    let recorder = Running::start(&mut command, place.file("recorded"));
    let (pid, what) = (recorder.child.id(), recorder.what.clone());
    let mut sizes = HashMap::new();
    let mut group = None;
    let mut recorder = recorder;
    let mut at_death = None;
    loop {
        if recorder.child.try_wait().unwrap().is_some() {
            break;
        }
        measure(pid, &mut sizes);
        group = group.or_else(|| child_of(pid).map(Group));
        let Some(Group(leader)) = group else {
            assert!(recorder.began.elapsed() < BUSY_MAX, "{what} starts nothing\n{}", recorder.said());
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let is_over = living(leader).is_empty() && child_of(pid).is_none_or(|child| child != leader)
            || living(leader).is_empty() && recorder.began.elapsed() > RUN;
        if is_over {
            at_death = Some(size_of(&folder));
            break;
        }
        if asks && recorder.began.elapsed() > RUN / 2 {
            looks(place, &["snapshot", "-o", "live.ect", &leader.to_string()]);
            looks(place, &["ps"]);
            looks(place, &["ps", "-f", "json"]);
        }
        if is_told_to_end && recorder.began.elapsed() > RUN {
            recorder.signal("TERM");
        }
        if recorder.began.elapsed() > PROGRAM_MAX {
            kill_group(leader);
        }
        std::thread::sleep(PAUSE);
    }
    if at_death.is_some() && is_told_to_end {
        recorder.signal("TERM");
    }
    let said = recorder.said.clone();
    recorder.ends_well();
    drop(group);
    let memory: u64 = sizes.values().sum();
    if let Some(at_death) = at_death {
        let more = size_of(&folder).saturating_sub(at_death);
        assert!(more <= 2 * memory + SLACK, "{what} wrote {more} bytes of {memory} after the program's end");
    }
    let said = String::from_utf8_lossy(&fs::read(said).unwrap()).into_owned();
    assert!(is_plausible(&said), "{what}\n{said}");
    for entry in fs::read_dir(&folder).unwrap().flatten() {
        outputs(place, &entry.path());
    }
    let live = place.file("live.ect");
    if live.exists() {
        outputs(place, &live);
        fs::remove_file(live).unwrap();
    }
}

/// Without a recorder: a snapshot from outside, then what is in its crash file.
fn alone(place: &Place, program: &Path, seed: u64) {
    let crashes = place.file("crashes");
    let _ = fs::remove_dir_all(&crashes);
    fs::DirBuilder::new().mode(0o700).create(&crashes).unwrap();
    let mut command = place.command(program);
    command.args([seed.to_string(), RUN.as_millis().to_string()]);
    if seed.is_multiple_of(2) {
        command.env("EVERYCALL_CRASH", &crashes);
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let group = Group(child.id());
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > RUN / 3 {
            looks(place, &["snapshot", "-o", "live.ect", &child.id().to_string()]);
            looks(place, &["ps", "crashes"]);
        }
        if began.elapsed() > PROGRAM_MAX {
            kill_group(group.0);
        }
        std::thread::sleep(PAUSE);
    }
    drop(group);
    for entry in fs::read_dir(&crashes).unwrap().flatten() {
        let (file, memory) = (entry.path(), entry.metadata().unwrap().blocks() * 512);
        let shown = file.to_str().unwrap();
        looks(place, &["ps", "crashes"]);
        looks(place, &["core", "-o", "crash.ect", shown]);
        let trace = place.file("crash.ect");
        if trace.exists() {
            let size = fs::metadata(&trace).unwrap().len();
            assert!(size <= 2 * memory + SLACK, "{size} bytes of a crash file of {memory}");
            outputs(place, &trace);
            fs::remove_file(trace).unwrap();
        }
        let said = looks(place, &["info", shown]);
        assert!(is_plausible(&said), "{said}");
    }
    let live = place.file("live.ect");
    if live.exists() {
        outputs(place, &live);
        fs::remove_file(live).unwrap();
    }
}

/// Every verb that takes a trace.
fn outputs(place: &Place, trace: &Path) {
    let shown = trace.to_str().unwrap();
    let said = looks(place, &["info", shown]);
    assert!(is_plausible(&said), "{said}");
    looks(place, &["info", "-f", "json", shown]);
    looks(place, &["replay", "--min-duration", "50us", shown]);
    looks(place, &["export", "-f", "chrome", "--min-duration", "50us", "-o", "out.json", shown]);
}

#[test]
fn whatever_is_written_over_shared_memory() {
    let place = Place::new("scribbles");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "scribbler.c", "-pthread"], "scribbler");
    if let Some(seed) = number_asked("EVERYCALL_SCRIBBLE_SEED") {
        return run(&place, &program, seed);
    }
    let seconds = number_asked("EVERYCALL_SCRIBBLE_SECONDS");
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    // A slice goes through the same runs each time; a campaign through others.
    let first = seconds.map_or(0, |_| u64::from(std::process::id()) << 20);
    let mut runs = 0;
    for seed in first.. {
        if Instant::now() > until {
            break;
        }
        run(&place, &program, seed);
        runs += 1;
    }
    println!("{runs} runs, from EVERYCALL_SCRIBBLE_SEED={first} on");
}

fn run(place: &Place, program: &Path, seed: u64) {
    // A failed run shows its seed.
    println!("EVERYCALL_SCRIBBLE_SEED={seed}");
    match seed % 5 {
        4 => alone(place, program, seed / 5),
        _ => recorded(place, program, seed),
    }
}

#[test]
fn numbers_that_cannot_be() {
    for good in ["lost 1,234 of 5", "2026-11-22", "everycall-7.ect", "1,000,000,000,000,000 events", "a -o b"]
    {
        assert!(is_plausible(good), "{good}");
    }
    for bad in ["lost -28,464,144,128,335,875", "18,446,744,073,709,551,615 events", "took -5 ms"] {
        assert!(!is_plausible(bad), "{bad}");
    }
    // A signal's exit code is a shell's.
    assert_eq!(ExitStatus::from_raw(9).signal(), Some(9));
}
