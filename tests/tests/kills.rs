//! `kill -9` at random moments: whatever the program was doing, the file can be read, and of what each thread did last at most one event is
//! missing, by a journal that the program itself keeps in memory that outlives it.
//!
//! `EVERYCALL_KILLS` is how many of each program there are to be; `cargo xtask kills` takes a thousand of both together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use everycall_tests::journal::{self, Edge};
use everycall_tests::workloads::{Build, Linkage, Workload};
use everycall_tests::{Mode, Place, everycall};

/// Kills of one program where nobody says how many.
const COUNT: u32 = 10;
/// The latest moment after the start.
const LATEST_MS: u64 = 400;
/// What gcc is told so that functions call the journal, none is inlined, and the standard library's are left out.
const JOURNALLED: [&str; 5] = [
    "-O1",
    "-fno-inline",
    "-finstrument-functions",
    "-finstrument-functions-exclude-file-list=/usr/include,/usr/lib",
    "-Wl,--wrap=__cyg_profile_func_enter,--wrap=__cyg_profile_func_exit",
];

/// How the program is recorded, and how many events of a thread are there at least once its ring was full: the segment that was being
/// cleared is not, and each begins with a few words that aren't events.
struct Way {
    options: &'static [&'static str],
    ring: Option<u64>,
}

const WAYS: [Way; 4] = [
    Way { options: &[], ring: Some(120_000) },
    Way { options: &["--ring-size", "64K"], ring: Some(7_300) },
    Way { options: &["--stream", "--stall"], ring: None },
    Way { options: &["--stream", "--ring-size", "64K", "--stall"], ring: None },
];

/// The same numbers in each run of one number of kills.
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
    let tasks = std::fs::read_dir(format!("/proc/{}/task", recorder.id())).ok()?;
    let children = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("children")));
    children.flatten().find_map(|text| text.split_whitespace().next()?.parse().ok())
}

/// Starts the program, ends it at the moment, and gives what its recorder said.
fn killed(command: &mut Command, after: Duration) -> String {
    let mut recorder = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("everycall runs");
    let pid = loop {
        match traced(&recorder) {
            Some(pid) => break pid,
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    };
    std::thread::sleep(after);
    // It can't be another one's: `record` hasn't buried it.
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.expect("kill runs").success());
    let said = std::io::read_to_string(recorder.stderr.take().expect("a pipe")).expect("text");
    let status = recorder.wait().expect("it was started");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{said}");
    said
}

fn campaign(place: &Place, program: &Path, arguments: &[&str], kept: impl Fn(&str) -> bool) {
    let count = std::env::var("EVERYCALL_KILLS").map_or(COUNT, |text| text.parse().expect("a number"));
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + u64::from(count));
    let (trace, account) = (place.file("trace.ect"), place.file("journal"));
    let mut edges: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut compared, mut early) = (0, 0);
    for number in 0..count {
        let _ = std::fs::remove_file(&trace);
        let _ = std::fs::remove_file(&account);
        let way = &WAYS[number as usize % WAYS.len()];
        // Some before `main`, and while the first threads begin.
        let latest = if number % 8 == 0 { 10_000 } else { LATEST_MS * 1000 };
        let after = Duration::from_micros(random.below(latest));
        let mut command = place.command(everycall());
        command.arg("record").args(way.options).arg("-o").arg(&trace).arg("--").arg(program);
        let said = killed(command.args(arguments).env("JOURNAL", &account), after);
        let note = format!("kill {number} after {after:?}, {:?}: {said}", way.options);
        let accounts = journal::read(&account);
        let agreements = journal::compare(&trace, program, &accounts, way.ring, &kept)
            .unwrap_or_else(|why| panic!("{note}\n{why}"));
        early += u32::from(agreements.is_empty());
        for agreement in agreements {
            compared += agreement.compared;
            let edge = match agreement.edge {
                Edge::Same => "the same",
                Edge::OneMore => "an entry more",
                Edge::OneLess => "an exit less",
            };
            *edges.entry(edge).or_default() += 1;
        }
    }
    println!(
        "{count} kills, {early} of them before the first call; {compared} events are as the program itself says; threads end with {edges:?}"
    );
    assert!(compared > 0, "nothing was compared");
}

#[test]
fn sqlite() {
    let place = Place::new("kills-sqlite");
    let build = Build { workload: Workload::SQLITE_FOREVER, mode: Some(Mode::GCC_NOPS), flags: &JOURNALLED };
    let program = place.file("sqlite_forever");
    build.link(Linkage::Traced, &program);
    let folder = place.path().to_str().expect("a path").to_owned();
    campaign(&place, &program, &[&folder, "3"], |_| true);
}

#[test]
fn threaded_cpp() {
    let place = Place::new("kills-cpp");
    let flags = [&JOURNALLED[..], &["-std=c++17", "kill_load.cpp", "-pthread"]].concat();
    let program: PathBuf = place.build(Mode::GCC_NOPS, &flags, "kill_load");
    let own = ["_ZN4load", "_ZNK4load", "_ZZN4load", "_ZZNK4load"];
    campaign(&place, &program, &[], |name| name == "main" || own.iter().any(|start| name.starts_with(start)));
}
