//! All checks, in one command. `.config/nextest.toml` says how each test runs, and which are quick.

mod models;
mod options;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

pub use models::models;
pub use options::Options;

use crate::packages;
use crate::step::{Step, target_folder, workspace};

/// How long the soak takes here; `cargo xtask soak` takes an hour.
const SOAK_SECONDS: &str = "20";

/// Formatting, lints, all tests, the model checker; or the quick selection of the tests.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(options: &Options) -> Result<(), String> {
    packages::ensure(&packages::TESTS)?;
    packages::ensure_nextest()?;
    packages::add_runtime_target();
    let mut phases = Phases::default();
    let cargo = |arguments: &[&str]| Step::new(&workspace(), "cargo").args(arguments);
    if let Some(target) = &options.target {
        return emulated(target, options.jobs);
    }
    phases.time("formatting", || cargo(&["fmt", "--all", "--check"]).run())?;
    if !options.is_quick {
        let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
        phases.time("lints", || cargo(&lints).run())?;
    }
    phases.time("dependencies", dependencies)?;
    let tests = ["nextest", "run", "--workspace", "--cargo-quiet"];
    phases.time("building the tests", || cargo(&tests).args(["--no-run"]).run())?;
    let everycall = target_folder().join("debug/everycall");
    let run_tests = || {
        let profile = if options.is_quick { "quick" } else { "default" };
        let jobs = options.jobs.to_string();
        cargo(&tests)
            .args(["--profile", profile, "--test-threads", &jobs])
            .env("EVERYCALL_SOAK_SECONDS", SOAK_SECONDS)
            // Tests would otherwise build it once more, with other features of its dependencies.
            .env("EVERYCALL_TEST_BINARY", &everycall.to_string_lossy())
            .run()
    };
    let tested = if options.is_quick {
        phases.time("tests", run_tests)
    } else {
        // The closing lines of the tests come last. What fails here doesn't hide what fails there.
        let documented = phases.time("examples in the documentation", || {
            cargo(&["test", "--workspace", "--doc", "--quiet"]).run()
        });
        let modelled = phases.time("model checker", models::model_checker);
        phases.time("tests", run_tests).and(documented).and(modelled)
    };
    print!("{}", phases.report());
    tested
}

/// Suites whose programs run by an emulator, too: they build by gcc, and look at traces only.
const EMULATED: &str = "package(everycall-tests) & \
    (test(every_program_shows_its_tree) | test(the_calls_of_generated_programs))";

/// Tests with the programs of another machine, by an emulator.
fn emulated(target: &str, jobs: usize) -> Result<(), String> {
    let cargo = |arguments: &[&str]| Step::new(&workspace(), "cargo").args(arguments);
    let jobs = jobs.to_string();
    cargo(&["nextest", "run", "--workspace", "--cargo-quiet", "--test-threads", &jobs, "-E", EMULATED])
        .env("EVERYCALL_TARGET", target)
        .run()
}

/// Licences, versions and sources of dependencies, as `deny.toml` says, without the network.
fn dependencies() -> Result<(), String> {
    if packages::found("cargo-deny").is_none() {
        println!(
            "dependencies aren't checked: cargo-deny is missing; to install it: cargo install --locked cargo-deny"
        );
        return Ok(());
    }
    let check = ["deny", "--offline", "--workspace", "check", "bans", "licenses", "sources"];
    Step::new(&workspace(), "cargo").args(check).run()
}

/// Durations of phases.
#[derive(Default)]
struct Phases(Vec<(&'static str, Duration)>);

impl Phases {
    fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        self.0.push((name, begin.elapsed()));
        done
    }

    fn report(&self) -> String {
        let mut text = String::from("\nPhases (seconds):\n");
        for (name, time) in &self.0 {
            let _ = writeln!(text, "{:8.1}  {name}", time.as_secs_f64());
        }
        let total: Duration = self.0.iter().map(|(_, time)| *time).sum();
        let _ = writeln!(text, "{:8.1}  total", total.as_secs_f64());
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A test that is renamed would silently run under other conditions, or no longer in the quick
    /// run. nextest itself refuses binaries that aren't there.
    #[test]
    fn the_runners_configuration_names_tests_that_are_there() {
        let configuration = fs::read_to_string(workspace().join(".config/nextest.toml")).unwrap();
        let mut files: Vec<PathBuf> = ["crates", "tests"].map(|folder| workspace().join(folder)).into();
        let mut text = String::new();
        while let Some(path) = files.pop() {
            match fs::read_dir(&path) {
                Ok(entries) => files.extend(entries.map(|entry| entry.unwrap().path())),
                Err(_) if path.extension().is_some_and(|extension| extension == "rs") => {
                    text += &fs::read_to_string(&path).unwrap();
                }
                Err(_) => {}
            }
        }
        let is_there = |name: &str| {
            // Parts of names count, too.
            ["fn ", "mod ", "_"].iter().any(|before| text.contains(&format!("{before}{name}")))
        };
        let mut count = 0;
        let mut rest = &configuration[..];
        while let Some((_, behind)) = rest.split_once("test(") {
            rest = behind;
            let end = if behind.starts_with('/') { "/)" } else { ")" };
            let (pattern, _) = behind.split_once(end).expect("an end of the pattern");
            let names = pattern.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            for name in names.filter(|name| !name.is_empty()) {
                assert!(is_there(name), "{name} in {pattern}");
                count += 1;
            }
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn phases_are_listed_with_their_sum() {
        let phases = Phases(vec![("lints", Duration::from_secs(3)), ("tests", Duration::from_secs(40))]);
        assert_eq!(
            phases.report(),
            "\nPhases (seconds):\n     3.0  lints\n    40.0  tests\n    43.0  total\n"
        );
    }
}
