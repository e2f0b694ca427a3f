//! What is printed at the end of a test run.

use std::fmt::Write as _;
use std::time::Duration;

use super::binaries::Outcome;

/// Slowest test binaries that are listed.
const SLOWEST: usize = 10;

/// The closing lines. What failed comes last, so that it is at the end of a log.
pub fn report(outcomes: &[Outcome], phases: &[(String, Duration)]) -> String {
    let mut text = String::from("\nSlowest test binaries (seconds, of CPU time in brackets):\n");
    let mut by_time: Vec<&Outcome> = outcomes.iter().collect();
    by_time.sort_by_key(|outcome| std::cmp::Reverse(outcome.wall));
    for outcome in by_time.iter().take(SLOWEST) {
        let (wall, cpu) = (outcome.wall.as_secs_f64(), outcome.cpu.as_secs_f64());
        let _ = writeln!(text, "{wall:8.1} {:>9}  {}", format!("({cpu:.1})"), outcome.label);
    }
    text.push_str("\nPhases (seconds):\n");
    for (name, time) in phases {
        let _ = writeln!(text, "{:8.1}  {name}", time.as_secs_f64());
    }
    let total: Duration = phases.iter().map(|(_, time)| *time).sum();
    let _ = writeln!(text, "{:8.1}  total", total.as_secs_f64());

    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.is_good()).collect();
    for outcome in &failed {
        let how = outcome.status.map_or("did not end".to_owned(), |status| status.to_string());
        let _ = writeln!(text, "\n==== {} failed ({how}) ====\n{}", outcome.label, outcome.output.trim_end());
    }
    if !failed.is_empty() {
        text.push_str("\nFailed:\n");
        for outcome in &failed {
            let names = outcome.failures();
            let names = if names.is_empty() { "(no test by name)".to_owned() } else { names.join(" ") };
            let _ = writeln!(text, "  {}: {names}", outcome.label);
        }
    }
    let [passed, failures, ignored] = outcomes.iter().fold([0; 3], |sums: [u64; 3], outcome| {
        let counts = outcome.counts();
        std::array::from_fn(|index| sums[index] + counts[index])
    });
    let result = if failed.is_empty() { "ok" } else { "FAILED" };
    let _ = writeln!(
        text,
        "\ntest result: {result}. {passed} passed; {failures} failed; {ignored} ignored; in {} binaries, {} of which failed",
        outcomes.len(),
        failed.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn outcome(number: u64, code: i32, output: &str) -> Outcome {
        Outcome {
            label: format!("package/test-{number}"),
            status: Some(ExitStatus::from_raw(code << 8)),
            wall: Duration::from_secs(number),
            cpu: Duration::from_secs(2 * number),
            output: output.to_owned(),
        }
    }

    #[test]
    fn failures_stand_at_the_end_as_a_whole() {
        let good = "test one ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n";
        let bad = "test two ... FAILED\n---- two stdout ----\nleft: 1, right: 2\n\ntest result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured\n";
        let mut outcomes: Vec<Outcome> = (0..12).map(|number| outcome(number, 0, good)).collect();
        outcomes.push(outcome(12, 101, bad));
        let phases =
            [("lints".to_owned(), Duration::from_secs(3)), ("tests".to_owned(), Duration::from_secs(40))];
        let text = report(&outcomes, &phases);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} isn't in:\n{text}"));
        assert!(at("43.0  total") < at("==== package/test-12 failed"));
        assert!(at("left: 1, right: 2") < at("  package/test-12: two"));
        assert!(text.ends_with(
            "test result: FAILED. 15 passed; 1 failed; 0 ignored; in 13 binaries, 1 of which failed\n"
        ));
        assert!(at("(24.0)  package/test-12") < at("(22.0)  package/test-11"));
        assert!(!text.contains("package/test-2\n"), "the ten slowest alone:\n{text}");
    }

    #[test]
    fn good_ends_say_so() {
        let text =
            report(&[outcome(1, 0, "test result: ok. 7 passed; 0 failed; 2 ignored; 0 measured")], &[]);
        assert!(
            text.ends_with(
                "test result: ok. 7 passed; 0 failed; 2 ignored; in 1 binaries, 0 of which failed\n"
            )
        );
    }
}
