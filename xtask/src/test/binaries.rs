//! Test binaries: what cargo builds, and what the run of one gives.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::step::workspace;

/// A test binary still running after this time is killed, with all that it has started, and has
/// failed: something hangs. On a quiet machine the longest one takes three minutes.
const TIME_MAX: Duration = Duration::from_secs(1200);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Ticks per second in `/proc/PID/stat`: the kernel's ABI on x86-64.
const TICKS_PER_SECOND: u64 = 100;

/// A test binary, as cargo built it.
#[derive(Clone, Debug, PartialEq)]
pub struct Binary {
    /// Package and target: `everycall-tests/walks`; `lib` and `bin` stand for unit tests.
    pub name: String,
    pub executable: PathBuf,
    /// The package's folder, in which its tests run.
    pub folder: PathBuf,
}

/// What cargo built.
#[derive(Debug, Default)]
pub struct Built {
    pub binaries: Vec<Binary>,
    /// The `everycall` binary, which end-to-end tests would otherwise build once more, with other
    /// features of its dependencies.
    pub everycall: Option<PathBuf>,
}

/// Builds the tests of the workspace that `selection` (arguments of `cargo test`) names, and lists
/// their binaries.
///
/// # Errors
/// When something doesn't compile.
pub fn build(selection: &[String]) -> Result<Built, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    cargo.args(selection).current_dir(workspace()).stderr(Stdio::inherit());
    let output = cargo.output().map_err(|error| format!("`cargo` can't be started: {error}"))?;
    if !output.status.success() {
        return Err("the tests don't compile".to_owned());
    }
    Ok(built(&String::from_utf8_lossy(&output.stdout)))
}

fn built(messages: &str) -> Built {
    let mut built = Built::default();
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(executable) = message["executable"].as_str() else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().unwrap_or(Path::new("")).to_owned();
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        if message["profile"]["test"] != true {
            if kind == "bin" && message["target"]["name"] == "everycall" {
                built.everycall = Some(executable.into());
            }
            continue;
        }
        let package = package_name(message["package_id"].as_str().unwrap_or_default());
        let target = match kind {
            "test" => message["target"]["name"].as_str().unwrap_or_default(),
            kind => kind,
        };
        let name = format!("{package}/{target}");
        built.binaries.push(Binary { name, executable: executable.into(), folder });
    }
    built
}

/// `path+file:///clone/crates/ring#everycall-ring@0.1.0`, or `...#0.1.0` when the folder has the
/// package's name.
fn package_name(id: &str) -> &str {
    let (path, rest) = id.rsplit_once('#').unwrap_or(("", id));
    match rest.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or_default(),
    }
}

/// A run of a test binary: of all its tests, or of some.
#[derive(Clone, Debug)]
pub struct Job {
    pub binary: Binary,
    /// Arguments of the test binary: names of tests, `--skip NAME`.
    pub arguments: Vec<String>,
}

impl Job {
    /// The binary's name, and which of its tests were selected.
    pub fn label(&self) -> String {
        let asked = self.arguments.iter().filter(|argument| !argument.starts_with("--"));
        let is_whole = self.arguments.is_empty() || self.arguments.contains(&"--skip".to_owned());
        let words = asked.map(|argument| format!(" {argument}"));
        let words: String = if is_whole { String::new() } else { words.collect() };
        format!("{}{words}", self.binary.name)
    }
}

/// How a run of a test binary ended.
#[derive(Debug)]
pub struct Outcome {
    pub label: String,
    /// `None`: it was killed after [`TIME_MAX`], or couldn't be started.
    pub status: Option<ExitStatus>,
    pub wall: Duration,
    /// CPU time of the binary and of the descendants that were waited for.
    pub cpu: Duration,
    /// Standard output and standard error.
    pub output: String,
}

impl Outcome {
    pub fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Tests that passed, failed and were ignored, by the closing line of the test binary.
    pub fn counts(&self) -> [u64; 3] {
        let lines = self.output.lines().filter(|line| line.starts_with("test result: "));
        let count = |line: &str, what: &str| {
            let before = line.split(what).next().unwrap_or_default();
            before.trim().rsplit(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or_default()
        };
        lines.fold([0; 3], |sums, line| {
            let of_line = ["passed", "failed", "ignored"].map(|what| count(line, what));
            std::array::from_fn(|index| sums[index] + of_line[index])
        })
    }

    /// Names of the tests that failed.
    pub fn failures(&self) -> Vec<&str> {
        let lines = self.output.lines().filter_map(|line| line.strip_prefix("test "));
        lines.filter_map(|line| line.strip_suffix(" ... FAILED")).collect()
    }
}

/// Runs a test binary. Its output goes to a file in `logs`, which stays.
pub fn run(job: &Job, environment: &[(String, String)], logs: &Path) -> Outcome {
    let label = job.label();
    let log = logs.join(format!("{}.txt", label.replace(['/', ' '], "-")));
    let begin = Instant::now();
    let done = run_into(job, environment, &log, TIME_MAX);
    let (status, cpu, note) = match done {
        Ok((Some(status), cpu)) => (Some(status), cpu, String::new()),
        Ok((None, cpu)) => (None, cpu, format!("\nkilled: it ran for more than {TIME_MAX:?}\n")),
        Err(error) => (None, Duration::ZERO, format!("{}: {error}\n", job.binary.executable.display())),
    };
    let output = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Outcome { label, status, wall: begin.elapsed(), cpu, output: output.unwrap_or_default() + &note }
}

fn run_into(
    job: &Job,
    environment: &[(String, String)],
    log: &Path,
    time_max: Duration,
) -> std::io::Result<(Option<ExitStatus>, Duration)> {
    let file = File::create(log)?;
    let mut command = Command::new(&job.binary.executable);
    command.args(&job.arguments).current_dir(&job.binary.folder).envs(environment.iter().cloned());
    command.env("CARGO_MANIFEST_DIR", &job.binary.folder);
    let mut child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let begin = Instant::now();
    loop {
        // Its CPU time is read while it is a zombie: afterwards it is not available.
        let (has_ended, cpu) = state(child.id());
        if has_ended {
            return Ok((Some(child.wait()?), cpu));
        }
        if begin.elapsed() > time_max {
            kill_all(child.id());
            child.wait()?;
            return Ok((None, cpu));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Kills a process and its descendants, which would otherwise run beside the tests that follow.
fn kill_all(pid: u32) {
    let mut all = vec![pid];
    let mut place = 0;
    while let Some(pid) = all.get(place) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists: String = tasks.flat_map(|task| fs::read_to_string(task.path().join("children"))).collect();
        all.extend(lists.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        place += 1;
    }
    let _ =
        Command::new("kill").arg("-9").args(all.iter().map(u32::to_string)).stderr(Stdio::null()).status();
}

/// Whether a child is a zombie, and the CPU time that it and its children took.
fn state(pid: u32) -> (bool, Duration) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(')') else { return (true, Duration::ZERO) };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let is_zombie = fields.first().is_some_and(|state| *state == "Z");
    // utime, stime, cutime, cstime.
    let ticks = fields.iter().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    (is_zombie, Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_of_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/ring#everycall-ring@0.1.0","manifest_path":"/w/crates/ring/Cargo.toml","target":{"kind":["lib"],"name":"everycall_ring"},"profile":{"test":true},"executable":"/t/ring-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/xtask#0.1.0","manifest_path":"/w/xtask/Cargo.toml","target":{"kind":["bin"],"name":"xtask"},"profile":{"test":true},"executable":"/t/xtask-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/tests#everycall-tests@0.1.0","manifest_path":"/w/tests/Cargo.toml","target":{"kind":["test"],"name":"walks"},"profile":{"test":true},"executable":"/t/walks-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/cli#everycall@0.1.0","manifest_path":"/w/crates/cli/Cargo.toml","target":{"kind":["bin"],"name":"everycall"},"profile":{"test":false},"executable":"/t/everycall"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"registry#object@0.40.0","target":{"kind":["lib"]},"profile":{"test":false},"executable":null}"#,
            "\n{\"reason\":\"build-finished\",\"success\":true}\n",
        );
        let built = built(messages);
        let names: Vec<&str> = built.binaries.iter().map(|binary| &*binary.name).collect();
        assert_eq!(names, ["everycall-ring/lib", "xtask/bin", "everycall-tests/walks"]);
        assert_eq!(built.binaries[2].folder, Path::new("/w/tests"));
        assert_eq!(built.everycall.as_deref(), Some(Path::new("/t/everycall")));
    }

    fn shell(script: &str) -> Job {
        let binary = Binary { name: "a/b".to_owned(), executable: "/bin/sh".into(), folder: "/".into() };
        Job { binary, arguments: vec!["-c".to_owned(), script.to_owned()] }
    }

    fn outcome(script: &str, name: &str) -> Outcome {
        let logs = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&logs).unwrap();
        let outcome = run(&shell(script), &[("WORD".to_owned(), "said".to_owned())], &logs);
        fs::remove_dir_all(&logs).unwrap();
        outcome
    }

    #[test]
    fn an_outcome_has_output_and_counts() {
        let lines = "test one ... ok\ntest two ... FAILED\ntest result: FAILED. 11 passed; 1 failed; 2 ignored; 0 measured";
        let outcome = outcome(&format!("echo '{lines}'; echo $WORD >&2; exit 3"), "counts");
        assert!(!outcome.is_good());
        assert_eq!((outcome.counts(), outcome.failures()), ([11, 1, 2], vec!["two"]));
        assert!(outcome.output.ends_with("said\n"), "{}", outcome.output);
    }

    #[test]
    fn what_hangs_is_killed_with_its_children() {
        let folder = std::env::temp_dir().join(format!("xtask-hang-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let said = folder.join("pid");
        let script = format!("sh -c 'echo $$ > {}; while :; do sleep 1; done'; true", said.display());
        let log = folder.join("log");
        // More time where the grandchild didn't come to begin.
        let mut limit = Duration::from_secs(1);
        let grandchild = loop {
            let (status, _) = run_into(&shell(&script), &[], &log, limit).unwrap();
            assert_eq!(status, None);
            match fs::read_to_string(&said) {
                Ok(text) if !text.is_empty() => break text.trim().to_owned(),
                _ => limit *= 2,
            }
        };
        // The signal is sent; the process ends when it next gets a CPU.
        let lives = || {
            let stat = fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z")
        };
        let begin = Instant::now();
        while lives() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{grandchild} goes on");
            thread::sleep(POLL_INTERVAL);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn children_count_as_cpu_time() {
        let outcome = outcome("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done'; true", "cpu");
        assert!(outcome.is_good() && outcome.cpu > Duration::ZERO, "{outcome:?}");
    }
}
