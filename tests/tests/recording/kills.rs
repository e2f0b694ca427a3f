//! `kill -9` at random moments, and the kernel's out-of-memory killer: whatever the program was
//! doing, the file can be read, and at most one of each thread's last events is missing. The oracle
//! is a journal that the program itself writes into memory that outlives it.
//!
//! `EVERYCALL_KILLS` is how many there are to be of each program and keeper; `cargo xtask kills`
//! takes a thousand under `record` and a thousand with crash files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everycall_tests::journal::{self, Edge};
use everycall_tests::memory_limit::MemoryLimit;
use everycall_tests::workloads::{Build, Linkage, Workload};
use everycall_tests::{Mode, Place, everycall, wait};

/// Kills of one program by default.
const COUNT: u32 = 4;
/// The latest moment after the start.
const LATEST_MS: u64 = 400;
/// The longest time that a program takes to be ended by the kernel.
const LONGEST: Duration = Duration::from_secs(120);
/// Bytes after which the kernel ends a program that takes more.
const MEMORY: u64 = 64 << 20;
/// gcc's options so that functions call the journal, none is inlined, and the standard library's
/// are left out.
const JOURNALLED: [&str; 5] = [
    "-O1",
    "-fno-inline",
    "-finstrument-functions",
    "-finstrument-functions-exclude-file-list=/usr/include,/usr/lib",
    "-Wl,--wrap=__cyg_profile_func_enter,--wrap=__cyg_profile_func_exit",
];

/// Who keeps the events.
#[derive(Clone, Copy, Debug)]
enum Keeper {
    /// `everycall record` with these options.
    Record(&'static [&'static str]),
    /// `EVERYCALL_CRASH`, with rings of this size.
    CrashFile(&'static str),
}

/// Which process stores the events, and the least number of them in a thread's full ring: the
/// segment that was being cleared is missing, and each begins with a few words that aren't events.
#[derive(Clone, Copy, Debug)]
struct Way {
    keeper: Keeper,
    ring: Option<u64>,
}

const RECORDED: [Way; 4] = [
    Way { keeper: Keeper::Record(&[]), ring: Some(120_000) },
    Way { keeper: Keeper::Record(&["--ring-size", "64K"]), ring: Some(7_300) },
    Way { keeper: Keeper::Record(&["--stream", "--stall"]), ring: None },
    Way { keeper: Keeper::Record(&["--stream", "--ring-size", "64K", "--stall"]), ring: None },
];

const CRASH_FILES: [Way; 2] = [
    Way { keeper: Keeper::CrashFile("1M"), ring: Some(120_000) },
    Way { keeper: Keeper::CrashFile("64K"), ring: Some(7_300) },
];

/// Where the kernel finds no memory for more of the file, rings stay as they are.
const SHORT: [Way; 2] = [
    Way { keeper: Keeper::CrashFile("1M"), ring: Some(0) },
    Way { keeper: Keeper::CrashFile("64K"), ring: Some(0) },
];

/// Pseudo-random numbers, equal in each run of one number of kills.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The program that a recorder has started: none while it is still about to.
fn traced(recorder: &Child) -> Option<u32> {
    wait::children(recorder.id()).into_iter().next()
}

/// A program to be started, in a folder of its own.
struct Scene<'a> {
    place: &'a Place,
    program: &'a Path,
    /// The words that start it.
    words: &'a [PathBuf],
    /// Where its recorder is to run, if not outside of all groups.
    group: Option<&'a MemoryLimit>,
    /// Which functions its journal has.
    kept: &'a dyn Fn(&str) -> bool,
}

impl Scene<'_> {
    fn trace(&self) -> PathBuf {
        self.place.file("trace.ect")
    }

    fn journal(&self) -> PathBuf {
        self.place.file("journal")
    }

    /// Other users must not write to it.
    fn crashes(&self) -> PathBuf {
        self.place.file("crashes")
    }

    /// Starts it, kills it at the moment, if any, and returns its messages.
    fn run(&self, way: &Way, after: Option<Duration>) -> String {
        for file in [self.trace(), self.journal()] {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir_all(self.crashes());
        fs::DirBuilder::new().mode(0o700).create(self.crashes()).expect("a folder");
        let mut command = self.place.command(self.words.first().expect("a program"));
        match way.keeper {
            Keeper::Record(options) => {
                let recorder = vec![everycall().to_owned()];
                let recorder = self.group.map_or(recorder, |group| group.inside(everycall()));
                command = self.place.command(&recorder[0]);
                command
                    .args(&recorder[1..])
                    .arg("record")
                    .args(options)
                    .arg("-o")
                    .arg(self.trace())
                    .arg("--")
                    .args(self.words);
            }
            Keeper::CrashFile(ring) => {
                command.args(&self.words[1..]).env("EVERYCALL_RING_SIZE", ring);
                command.env("EVERYCALL_CRASH", self.crashes());
            }
        }
        command.env("JOURNAL", self.journal());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
        if let Some(after) = after {
            let pid = match way.keeper {
                Keeper::CrashFile(_) => child.id(),
                Keeper::Record(_) => loop {
                    match traced(&child) {
                        Some(pid) => break pid,
                        None => std::thread::sleep(Duration::from_micros(100)),
                    }
                },
            };
            std::thread::sleep(after);
            // The id can't be another process's: this one has not been waited for.
            let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
            assert!(status.expect("kill runs").success());
        }
        let end = Instant::now() + LONGEST;
        while after.is_none() && child.try_wait().expect("it was started").is_none() {
            if Instant::now() > end {
                child.kill().expect("it runs");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = std::io::read_to_string(child.stderr.take().expect("a pipe")).expect("text");
        let status = child.wait().expect("it was started");
        assert_eq!(status.signal(), Some(9), "{said}");
        match way.keeper {
            Keeper::Record(_) => said,
            Keeper::CrashFile(_) => self.convert(&said),
        }
    }

    /// Makes a trace of the crash file. Where the program died before it had one, there is none.
    fn convert(&self, said: &str) -> String {
        assert_eq!(said, "", "the program says nothing");
        let files: Vec<PathBuf> =
            fs::read_dir(self.crashes()).expect("a folder").map(|entry| entry.expect("one").path()).collect();
        let [file] = &files[..] else {
            assert_eq!(files, [] as [PathBuf; 0]);
            return "no crash file".to_owned();
        };
        let mut core = self.place.command(everycall());
        let output = core.arg("core").arg("-o").arg(self.trace()).arg(file).output().expect("everycall runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{said}");
        assert!(output.status.success() || journal::read(&self.journal()).is_empty(), "{said}");
        said
    }
}

/// Sums over all kills.
#[derive(Debug, Default)]
struct Sums {
    early: u32,
    compared: usize,
    edges: BTreeMap<&'static str, u32>,
}

impl Sums {
    fn add(&mut self, scene: &Scene<'_>, way: &Way, note: &str) {
        let accounts = journal::read(&scene.journal());
        if accounts.is_empty() {
            self.early += 1;
            return;
        }
        let agreements = journal::compare(&scene.trace(), scene.program, &accounts, way.ring, scene.kept)
            .unwrap_or_else(|why| panic!("{note}\n{why}"));
        self.early += u32::from(agreements.is_empty());
        for agreement in agreements {
            self.compared += agreement.compared;
            let edge = match agreement.edge {
                Edge::Same => "the same",
                Edge::OneMore => "an entry more",
                Edge::OneLess => "an exit less",
            };
            *self.edges.entry(edge).or_default() += 1;
        }
    }
}

fn campaign(scene: &Scene<'_>, ways: &[Way]) {
    let count = std::env::var("EVERYCALL_KILLS").map_or(COUNT, |text| text.parse().expect("a number"));
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + u64::from(count));
    let mut sums = Sums::default();
    for number in 0..count {
        let way = &ways[number as usize % ways.len()];
        // Some before `main`, and while the first threads begin.
        let latest = if number % 8 == 0 { 10_000 } else { LATEST_MS * 1000 };
        let after = Duration::from_micros(random.below(latest));
        let said = scene.run(way, Some(after));
        sums.add(scene, way, &format!("kill {number} after {after:?}, {:?}: {said}", way.keeper));
    }
    let Sums { early, compared, edges } = sums;
    println!(
        "{count} kills, {early} of them before the first call; {compared} events are as the program itself says; threads end with {edges:?}"
    );
    assert!(compared > 0, "nothing was compared");
}

fn sqlite(name: &str, ways: &[Way]) {
    let place = Place::new(name);
    let build = Build { workload: Workload::SQLITE_FOREVER, mode: Some(Mode::GCC_NOPS), flags: &JOURNALLED };
    let program = place.file("sqlite_forever");
    build.link(Linkage::Traced, &program);
    let words = [program.clone(), place.path().to_owned(), "3".into()];
    campaign(&Scene { place: &place, program: &program, words: &words, group: None, kept: &|_| true }, ways);
}

fn load(place: &Place) -> PathBuf {
    let flags = [&JOURNALLED[..], &["-std=c++17", "kill_load.cpp", "-pthread"]].concat();
    place.build(Mode::GCC_NOPS, &flags, "kill_load")
}

fn is_of_load(name: &str) -> bool {
    let own = ["_ZN4load", "_ZNK4load", "_ZZN4load", "_ZZNK4load"];
    name == "main" || own.iter().any(|start| name.starts_with(start))
}

fn threaded_cpp(name: &str, ways: &[Way]) {
    let place = Place::new(name);
    let program = load(&place);
    let words = [program.clone()];
    campaign(
        &Scene { place: &place, program: &program, words: &words, group: None, kept: &is_of_load },
        ways,
    );
}

#[test]
fn sqlite_under_record() {
    sqlite("kills-sqlite", &RECORDED);
}

#[test]
fn threaded_cpp_under_record() {
    threaded_cpp("kills-cpp", &RECORDED);
}

#[test]
fn sqlite_with_a_crash_file() {
    sqlite("kills-crash-sqlite", &CRASH_FILES);
}

#[test]
fn threaded_cpp_with_a_crash_file() {
    threaded_cpp("kills-crash-cpp", &CRASH_FILES);
}

/// The kernel kills it at any instruction that needs memory: in a group with its recorder, and in
/// one of its own.
#[test]
fn out_of_memory() {
    let Some(limit) = MemoryLimit::new("hungry", MEMORY) else { return };
    let place = Place::new("kills-memory");
    let program = load(&place);
    let words = |program: Vec<PathBuf>| [program, vec!["hungry".into()]].concat();
    let [plain, inside] = [vec![program.clone()], limit.inside(&program)].map(words);
    let scene = |words, group| Scene { place: &place, program: &program, words, group, kept: &is_of_load };
    let with_recorder = RECORDED.iter().map(|way| (way, scene(&plain, Some(&limit))));
    let alone = RECORDED.iter().chain(&SHORT).map(|way| (way, scene(&inside, None)));
    let mut sums = Sums::default();
    let mut count = 0;
    for (way, scene) in with_recorder.chain(alone) {
        let said = scene.run(way, None);
        sums.add(&scene, way, &format!("{:?}: {said}", way.keeper));
        count += 1;
        assert_eq!((sums.early, limit.kills()), (0, count), "{:?}: {said}", way.keeper);
    }
    println!("{count} times out of memory: {sums:?}");
    assert!(sums.compared > 0);
}
