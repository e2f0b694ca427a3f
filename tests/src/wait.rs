//! Waiting for a condition. How long something takes on a loaded machine is no test's business:
//! limits here only end what hangs.

use std::path::Path;
use std::time::{Duration, Instant};

/// A test that waits longer than this has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `is_so`.
///
/// # Panics
/// After [`PATIENCE`], with what was waited for.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not so after {PATIENCE:?}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until a file's size is the same, and not 0, in 20 readings at 25 ms distance: its writer
/// has stopped.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_written(file: &Path) {
    let (mut size, mut looks) = (0, 0);
    until(&format!("{} doesn't grow any more", file.display()), || {
        std::thread::sleep(PAUSE * 4);
        let now = std::fs::metadata(file).map_or(0, |data| data.len());
        looks = if now == size && now > 0 { looks + 1 } else { 0 };
        size = now;
        looks == 20
    });
}

/// Waits until a process has ended, even if its parent hasn't waited for it yet.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_ended(pid: u32) {
    until(&format!("process {pid} has ended"), || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    });
}

/// Waits until the threads of a process have run for some more time: unlike after a pause, they
/// have then done something, however busy the machine is.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_worked(pid: u32, more: Duration) {
    let ran = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let of = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(tasks.filter_map(of).sum())
    };
    let begin = ran();
    until(&format!("process {pid} has worked for {more:?}"), || ran() >= begin + more);
}

/// Processes that a process has started and not buried.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Waits until a recorder has started `program`; its process.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_started(recorder: u32, program: &Path) -> u32 {
    let program = program.canonicalize().expect("the program");
    let mut started = 0;
    until(&format!("{} runs", program.display()), || {
        let is_it =
            |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
        started = children(recorder).into_iter().find(is_it).unwrap_or_default();
        started != 0
    });
    started
}
