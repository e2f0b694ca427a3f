//! Runs of the command, with limits on time and output.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Most bytes of standard output; what writes more is ended.
const STDOUT_MAX: u64 = 32 << 20;
/// Most bytes of standard error that are read.
const STDERR_MAX: u64 = 64 << 10;
/// How long a process that was asked to end may take.
const GRACE: Duration = Duration::from_secs(10);

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Whether it was ended because it took too long.
    pub(crate) is_late: bool,
    /// Whether it was ended because it wrote too much.
    pub(crate) is_cut: bool,
}

/// Runs a command in a folder. After `limit`, it is asked to end, which `record` takes as the end
/// of the recording; then it is killed.
///
/// Its output goes to files without a name: a process that it leaves behind can't keep anybody
/// waiting by an open pipe.
pub(crate) fn run(command: &Path, words: &[OsString], folder: &Path, limit: Duration) -> Result<Ran, String> {
    let failed = |error: io::Error| format!("{} can't be started: {error}", command.display());
    let (mut stdout, mut stderr) =
        (tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?);
    let mut child = Command::new(command)
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone().map_err(failed)?)
        .stderr(stderr.try_clone().map_err(failed)?)
        // Processes that it starts end with it.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut ran = Ran::default();
    wait(&mut child, limit, &stdout, &mut ran);
    (ran.stdout, ran.stderr) = (text_of(&mut stdout, STDOUT_MAX), text_of(&mut stderr, STDERR_MAX));
    Ok(ran)
}

/// The text that was written to a file, from its begin.
fn text_of(file: &mut File, most: u64) -> String {
    let mut bytes = Vec::new();
    // A part that can't be read is left out.
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(most).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the end.
fn wait(child: &mut Child, limit: Duration, stdout: &File, ran: &mut Ran) {
    let begin = Instant::now();
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                ran.code = status.code();
                break;
            }
            Ok(None) => {}
            Err(_) => break,
        }
        let passed = begin.elapsed();
        let is_large = stdout.metadata().is_ok_and(|facts| facts.len() > STDOUT_MAX);
        if is_large || passed > limit + GRACE {
            ran.is_cut |= is_large;
            let _ = kill_process_group(pid, Signal::KILL);
        } else if passed > limit && !ran.is_late {
            ran.is_late = true;
            let _ = kill_process(pid, Signal::TERM);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    let _ = kill_process_group(pid, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_ended() {
        let shell = |line: &str, limit: u64| {
            let words = ["-c".into(), line.into()];
            run("/bin/sh".as_ref(), &words, "/".as_ref(), Duration::from_millis(limit)).unwrap()
        };
        let ran = shell("pwd; echo no >&2; exit 3", 60_000);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code), ("/\n", "no\n", Some(3)));
        let ran = shell("trap 'echo ended; exit 0' TERM; sleep 1000 & wait", 200);
        assert_eq!((ran.stdout.as_str(), ran.is_late, ran.code), ("ended\n", true, Some(0)));
        let ran = shell("yes", 60_000);
        assert!(ran.is_cut && ran.code.is_none() && ran.stdout.len() as u64 == STDOUT_MAX);
        // A process that stays doesn't keep the answer.
        let ran = shell("sleep 1000 & echo begun", 60_000);
        assert_eq!((ran.stdout.as_str(), ran.is_late), ("begun\n", false));
    }
}
