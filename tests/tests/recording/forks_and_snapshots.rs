//! Forks while snapshots are taken of parent and children: no process hangs, and none has another
//! one's calls.
//!
//! `EVERYCALL_FORKS` is how many there are to be; `cargo xtask storms` takes ten thousand.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everycall_reader::Origin;
use everycall_tests::{Mode, Place, Standing, Tally, TraceView, everycall, wait};

/// The default number.
const FORKS: u32 = 400;
/// The time limit for a child, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(1);

fn forks() -> u32 {
    std::env::var("EVERYCALL_FORKS").map_or(FORKS, |text| text.parse().expect("a number"))
}

/// A snapshot of a process that may have ended. Returns its file.
fn ask(place: &Place, pid: u32) -> Option<PathBuf> {
    let file = place.file("asked.ect");
    let _ = std::fs::remove_file(&file);
    let mut command = place.command(everycall());
    let output = command.args(["snapshot", "-q", "-o", "asked.ect", &pid.to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?} {said}", output.status);
    assert!(!said.contains("panicked"), "{said}");
    output.status.success().then_some(file)
}

/// Whether all threads of the snapshot have calls of the parent alone, or of the child alone.
fn check_owner(file: &Path, is_child: bool) {
    let trace = TraceView::tallies_only(file);
    assert_eq!(trace.warnings, [""; 0]);
    for thread in &trace.threads {
        let is_foreign = |name: &&String| match is_child {
            // The calls that were open at the fork are the parent's.
            true => !name.starts_with("child_"),
            false => name.starts_with("child_"),
        };
        assert_eq!(thread.tallies.keys().find(is_foreign), None, "{is_child}: {:?}", thread.info);
        assert_eq!((thread.losses, thread.info.malformed_words), (0, 0), "{:?}", thread.info);
        assert!(!is_child || thread.info.tid == thread.info.pid, "{:?}", thread.info);
    }
}

fn storm(place: &Place, mut standing: Standing) {
    let begin = Instant::now();
    let over = AtomicBool::new(false);
    let (pid, mut of_parent, mut of_children) = (standing.pid, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            standing.go_on();
            over.store(true, Ordering::Relaxed);
        });
        loop {
            assert!(begin.elapsed() < Duration::from_secs(30) + forks() * PATIENCE, "somebody hangs");
            let file = ask(place, pid).expect("the parent is there");
            check_owner(&file, false);
            of_parent += 1;
            for child in wait::children(pid).into_iter().rev().take(2) {
                if let Some(file) = ask(place, child) {
                    check_owner(&file, true);
                    of_children += 1;
                }
            }
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    println!(
        "{} forks in {:?}, with {of_parent} snapshots of the parent and {of_children} of children",
        forks(),
        begin.elapsed()
    );
    assert_eq!(standing.pinned(), (0, 0));
    let (status, _) = standing.end();
    assert!(status.success(), "{status:?}: a child did something else");
}

#[test]
fn alone() {
    let place = Place::new("forks");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "forks.c", "-pthread"], "forks");
    let mut command = Command::new(&program);
    command.arg(forks().to_string()).env("EVERYCALL_RING_SIZE", "64K");
    storm(&place, Standing::start(&mut command));
}

#[test]
fn recorded() {
    let place = Place::new("forks");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "forks.c", "-pthread"], "forks");
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--ring-size", "64K", "-o", "recorded.ect", "--"]);
    command.arg(&program).arg(forks().to_string());
    storm(&place, Standing::start(&mut command).find_traced());

    let trace = TraceView::tallies_only(&place.file("recorded.ect"));
    let of = |origin| trace.processes.iter().filter(move |process| process.origin == origin).count();
    // A recorder that gets no CPU in time costs a child, which is said.
    let missing = forks() as usize - of(Origin::Fork);
    assert!(missing < forks() as usize && trace.children >= missing, "{missing}");
    for thread in &trace.threads {
        if trace.processes[thread.info.process].origin == Origin::Fork {
            assert_eq!(thread.tallies["child_work"], Tally { entries: 1, exits: 1 }, "{:?}", thread.info);
            assert_eq!(thread.tallies["child_leaf"], Tally { entries: 19, exits: 19 }, "{:?}", thread.info);
            assert_eq!(thread.tallies.len(), 2, "{:?}", thread.tallies);
        } else {
            assert!(!thread.tallies.contains_key("child_work"), "{:?}", thread.info);
        }
    }
}
