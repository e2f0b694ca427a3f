//! A program that does everything that programs do, for any time, alone and under `record`, while
//! snapshots are taken from outside and by itself: nothing grows, nothing fails.
//!
//! `EVERYCALL_SOAK_SECONDS` is how long; `cargo xtask soak` takes an hour.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use everycall_tests::{Mode, Place, Standing, TraceView, wait};

/// The default time.
const SECONDS: u64 = 10;
/// Between two readings of the processes; snapshots are taken at every fourth.
const PAUSE: Duration = Duration::from_millis(250);
/// So that memory of ended threads is soon as much as it may become.
const SETTINGS: [(&str, &str); 2] = [("EVERYCALL_KEEP_ENDED", "2M"), ("EVERYCALL_RING_SIZE", "128K")];
/// Names of the program's functions.
const FUNCTIONS: [&str; 15] = [
    "main",
    "leaf",
    "tree",
    "throws",
    "catches",
    "on_signal",
    "works",
    "is_brief",
    "makes_threads",
    "forks",
    "loads_again",
    "takes_snapshots",
    "library_work",
    "library_throw",
    "shapes::inner",
];

/// Resources of a process at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    resident_kib: u64,
    descriptors: u64,
    mappings: u64,
    threads: u64,
    segments: u64,
}

impl Use {
    fn of(pid: u32, segments: u64) -> Use {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let status = std::fs::read_to_string(proc.join("status")).expect("it runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
            line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
        };
        let maps = std::fs::read_to_string(proc.join("maps")).expect("it runs");
        Use {
            resident_kib: field("VmRSS:"),
            descriptors: std::fs::read_dir(proc.join("fd")).expect("it runs").count() as u64,
            mappings: maps.lines().count() as u64,
            threads: field("Threads:"),
            segments,
        }
    }

    fn fields(self) -> [(&'static str, u64); 5] {
        [
            ("KiB resident", self.resident_kib),
            ("descriptors", self.descriptors),
            ("mappings", self.mappings),
            ("threads", self.threads),
            ("segments", self.segments),
        ]
    }

    /// The least of each: snapshots that are just being taken, and threads that just begin, don't
    /// show, even on a machine so busy that nearly always there are some. A leak raises the least.
    fn least(all: &[Use]) -> Use {
        let least = |field: fn(&Use) -> u64| all.iter().map(field).min().unwrap_or_default();
        Use {
            resident_kib: least(|one| one.resident_kib),
            descriptors: least(|one| one.descriptors),
            mappings: least(|one| one.mappings),
            threads: least(|one| one.threads),
            segments: least(|one| one.segments),
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields().map(|(name, number)| format!("{number} {name}"));
        out.write_str(&fields.join(", "))
    }
}

/// A process over time.
struct Watched {
    name: &'static str,
    pid: u32,
    uses: Vec<Use>,
}

impl Watched {
    /// Its resources in the second quarter of the time, and in the last one. In the first one,
    /// pools fill.
    fn early_and_late(&self) -> (Use, Use) {
        let quarter = self.uses.len() / 4;
        (Use::least(&self.uses[quarter..2 * quarter]), Use::least(&self.uses[3 * quarter..]))
    }

    /// # Panics
    /// Where it has more at the end, beyond what is known to grow.
    fn check(&self, known: Use) {
        let (early, late) = self.early_and_late();
        for (number, ((name, early), known)) in early.fields().into_iter().zip(known.fields()).enumerate() {
            let late = late.fields()[number].1;
            let over_time: Vec<u64> = self.uses.iter().map(|one| one.fields()[number].1).collect();
            assert!(
                late <= early + known.1,
                "{} {name}: {early} early, {late} late: {over_time:?}",
                self.name
            );
        }
    }
}

/// Permitted growth from early to the end: if more snapshots than before coincide, threads take
/// segments that were never used before, which stay in the pool; if ended threads aren't noticed
/// for a while, others begin with open-call stacks that were never used before, which stay as well
/// and are two mappings each; a batch of brief threads; and half a KiB for each of `things` that
/// are retained to the end.
fn known_growth(things: u64) -> Use {
    Use { resident_kib: (6 << 10) + things / 2, descriptors: 1, mappings: 160, threads: 4, segments: 64 }
}

/// Permitted growth of `record`, which retains the arenas of the 64 processes that ended last: on a
/// slow machine, these come late.
fn known_growth_of_recorder(things: u64) -> Use {
    Use { descriptors: 1 + 64, ..known_growth(things) }
}

/// Known defects of snapshots (docs/reference/limits.md).
#[derive(Clone, Copy, Debug, Default)]
struct Odd {
    /// Some calls have no names: those of a library have none in a snapshot that is taken at the
    /// very moment in which the library's entry is rewritten.
    nameless: u32,
    /// The snapshot waited so long for a CPU that segments were overwritten meanwhile, which it
    /// reports.
    late: u32,
}

/// Looks at a snapshot. `said` is what `everycall snapshot` said of it, if that took it.
fn check_snapshot(file: &Path, said: &str, odd: &mut Odd) {
    let note = said;
    let mut is_named = true;
    let trace = TraceView::tallies_only(file);
    assert_eq!(trace.warnings, [""; 0], "{note}");
    odd.late += u32::from(said.contains("were overwritten before"));
    assert!(trace.threads.len() > 5, "{note}");
    for thread in &trace.threads {
        is_named &= !thread.tallies.keys().any(|name| name.starts_with('?'));
        let other = thread.tallies.keys().filter(|name| !name.starts_with('?')).find(|name| {
            !FUNCTIONS.iter().any(|known| *name == known || name.starts_with(&format!("{known}(")))
                && !name.contains("shapes::")
                && !name.contains("library.cpp")
        });
        assert_eq!(other, None, "{note}: {:?}", thread.info);
        assert_eq!((thread.losses, thread.info.malformed_words), (0, 0), "{note}: {:?}", thread.info);
    }
    odd.nameless += u32::from(!is_named);
}

#[test]
fn no_resource_grows_and_no_run_fails() {
    let seconds =
        std::env::var("EVERYCALL_SOAK_SECONDS").map_or(SECONDS, |text| text.parse().expect("a number"));
    let place = Place::new("soak");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "soak.cpp", "-pthread", "-ldl"], "soak");
    let plugin = place.build(Mode::GCC_NOPS, &["-O1", "-g", "-fPIC", "-shared", "library.cpp"], "plugin.so");
    let folders = ["alone", "recorded"].map(|name| place.file(name));
    let start = |command: &mut Command, folder: &Path| {
        std::fs::create_dir(folder).expect("a folder");
        let settings = SETTINGS.into_iter();
        Standing::start(command.arg(&plugin).arg(folder).envs(settings).current_dir(folder))
    };
    // Who asks comes before all these threads.
    let after_others = || {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]);
        command
    };
    let alone = start(after_others().arg(&program), &folders[0]);
    let mut command = after_others();
    command.arg(everycall_tests::everycall());
    command.args(["record", "-q", "-o", "recorded.ect", "--"]).arg(&program);
    let recorded = start(&mut command, &folders[1]).find_traced();
    let watch = |name, pid| Watched { name, pid, uses: Vec::new() };
    let mut all =
        [watch("alone", alone.pid), watch("recorded", recorded.pid), watch("recorder", recorded.started())];

    // After all others, their threads begin late on a busy machine.
    for standing in [&alone, &recorded] {
        wait::until("its threads make calls", || {
            let (file, _) = standing.snapshot(&place, &[]);
            TraceView::tallies_only(&file).threads.len() > 5
        });
    }
    let begin = Instant::now();
    let (mut asked, mut odd) = (0, Odd::default());
    for turn in 0.. {
        if begin.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        for (watched, standing) in all.iter_mut().zip([Some(&alone), Some(&recorded), None]) {
            let segments = standing.map_or(0, |standing| standing.header().segments_in_use);
            watched.uses.push(Use::of(watched.pid, segments.into()));
        }
        if turn % 4 == 0 {
            for standing in [&alone, &recorded] {
                let (file, said) = standing.snapshot(&place, &[]);
                check_snapshot(&file, &said, &mut odd);
                asked += 1;
            }
        }
        for folder in &folders {
            let inner = folder.join("inner.ect");
            if turn % 16 == 5 && inner.exists() {
                // The next one takes its name while this one is open.
                check_snapshot(&inner, "inner", &mut odd);
            }
        }
        std::thread::sleep(PAUSE);
    }
    for standing in [&alone, &recorded] {
        // It may be at a snapshot of itself.
        let is_free = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            standing.pinned() == (0, 0)
        });
        assert!(is_free, "{:?} are pinned", standing.pinned());
    }
    let pids = [alone.pid, recorded.pid];
    for standing in [alone, recorded] {
        let (status, printed) = standing.end();
        println!("{}", printed.trim());
        assert!(status.success(), "{status:?}: {printed}");
    }
    let Odd { nameless, late } = odd;
    println!("{asked} snapshots from outside; {nameless} have calls without names, {late} were late");
    assert!(nameless <= 1 + asked / 50, "{nameless} of {asked} have calls without names");
    let trace = TraceView::tallies_only(&folders[1].join("recorded.ect"));
    assert_eq!(trace.warnings, [""; 0]);
    let children = trace.processes.len() as u64;
    println!("{children} processes recorded");
    // The recorder keeps some figures of each process and module that will be in the file.
    let modules = seconds * 40;
    for watched in &all {
        let (early, late) = watched.early_and_late();
        println!("{}: early {early}; late {late}", watched.name);
    }
    let known = [known_growth(0), known_growth(0), known_growth_of_recorder(children + modules)];
    for (watched, known) in all.iter().zip(known) {
        watched.check(known);
    }
    let left = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let left = left.lines().skip(1).filter_map(|line| line.split_whitespace().nth(4)?.parse::<u32>().ok());
    assert!(left.into_iter().all(|creator| !pids.contains(&creator)), "memory is left behind");
    for (folder, wanted) in folders.iter().zip([&["inner.ect"][..], &["inner.ect", "recorded.ect"]]) {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, wanted, "files");
    }
}
