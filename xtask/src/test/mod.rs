//! All checks, in one command.

mod binaries;
mod models;
mod options;
mod plan;
mod report;

use std::collections::VecDeque;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use binaries::{Job, Outcome};
pub use models::models;
pub use options::Options;

use crate::packages;
use crate::step::{Step, target_folder, workspace};

/// How long the soak takes here; `cargo xtask soak` takes an hour.
const SOAK_SECONDS: &str = "20";

/// Formatting, lints, all tests, the model checker; or the quick selection of the tests.
///
/// # Errors
/// What failed, as a sentence.
pub fn run(options: &Options) -> Result<(), String> {
    packages::ensure(&packages::TESTS)?;
    let mut phases = Phases::default();
    let cargo = |arguments: &[&str]| Step::new(&workspace(), "cargo").args(arguments);
    let is_whole = !options.is_quick && options.only.is_none();
    if options.only.is_none() {
        phases.time("formatting", || cargo(&["fmt", "--all", "--check"]).run())?;
    }
    if is_whole {
        let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
        phases.time("lints", || cargo(&lints).run())?;
    }
    let selection = if options.is_quick { plan::quick_selection() } else { Vec::new() };
    let mut built = phases.time("building the tests", || binaries::build(&selection))?;
    if let Some(only) = &options.only {
        built.binaries.retain(|binary| binary.name.contains(only));
    }

    let mut environment = vec![("EVERYCALL_SOAK_SECONDS".to_owned(), SOAK_SECONDS.to_owned())];
    let everycall = built.everycall.as_ref().ok_or("cargo didn't build everycall")?;
    environment.push(("EVERYCALL_TEST_BINARY".to_owned(), everycall.display().to_string()));
    let times_file = target_folder().join("test-times.txt");
    let mut times = plan::read_times(&times_file);
    let (beside, alone) = match options.is_quick {
        true => (plan::quick(&built.binaries, &times), Vec::new()),
        false => plan::whole(&built.binaries, &times),
    };
    let mut outcomes = phases.time("tests", || run_all(beside, options.jobs, &environment))?;
    if !alone.is_empty() {
        println!("$ tests that need a quiet machine, one by one");
        outcomes.extend(phases.time("tests that run alone", || run_all(alone, 1, &environment))?);
    }
    times.extend(outcomes.iter().map(|outcome| (outcome.label.clone(), outcome.wall.as_secs_f64())));
    plan::write_times(&times_file, &times);

    let mut result = Ok(());
    if is_whole {
        let doc_tests = ["test", "--workspace", "--doc", "--quiet"];
        // What fails here doesn't hide what failed before.
        result = phases
            .time("examples in the documentation", || cargo(&doc_tests).run())
            .and(phases.time("model checker", models::model_checker));
    }
    print!("{}", report::report(&outcomes, &phases.0));
    let failed = outcomes.iter().filter(|outcome| !outcome.is_good()).count();
    if failed > 0 {
        let also = result.err().map(|error| format!("; {error}")).unwrap_or_default();
        return Err(format!(
            "{failed} test binaries failed; whole outputs: {}{also}",
            logs_folder().display()
        ));
    }
    result
}

/// What took how long.
#[derive(Default)]
struct Phases(Vec<(String, Duration)>);

impl Phases {
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        self.0.push((name.to_owned(), begin.elapsed()));
        done
    }
}

fn logs_folder() -> std::path::PathBuf {
    target_folder().join("test-logs")
}

/// Runs the jobs, so many at a time, in their order.
fn run_all(
    jobs: Vec<Job>,
    at_a_time: usize,
    environment: &[(String, String)],
) -> Result<Vec<Outcome>, String> {
    let logs = logs_folder();
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    println!("$ {} test binaries, {at_a_time} at a time; outputs: {}", jobs.len(), logs.display());
    let count = jobs.len();
    let waiting = Mutex::new(VecDeque::from(jobs));
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(job) = job else { break };
            let outcome = binaries::run(&job, environment, &logs);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push(outcome);
            println!("{}", progress(done.len(), count, &done[done.len() - 1]));
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(work);
        }
    });
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn progress(number: usize, count: usize, outcome: &Outcome) -> String {
    let [passed, failed, _] = outcome.counts();
    let verdict = if outcome.is_good() { "ok" } else { "FAILED" };
    let mut line = format!(
        "[{number:3}/{count}] {verdict:6} {:6.1} s ({:.1} s of CPU time)  {}: {passed} passed",
        outcome.wall.as_secs_f64(),
        outcome.cpu.as_secs_f64(),
        outcome.label
    );
    if !outcome.is_good() {
        line = format!("{line}, {failed} failed: {}", outcome.failures().join(" "));
    }
    line
}
