//! Campaigns take minutes or hours: tests that run longer, or oftener, than `cargo xtask test` lets
//! them.

use crate::packages;
use crate::step::{Step, workspace};

/// A long run of one of the tests.
struct Campaign {
    name: &'static str,
    /// The option that says how long or how many, and its value where it isn't given.
    option: (&'static str, u64),
    /// The runs: a group of `tests/tests`, the test, the variable that it reads, and by what the
    /// number is multiplied for it.
    runs: &'static [(&'static str, &'static str, &'static str, f64)],
}

const CAMPAIGNS: [Campaign; 5] = [
    Campaign {
        name: "soak",
        option: ("--minutes", 60),
        runs: &[("recording", "soak::no_resource_grows", "EVERYCALL_SOAK_SECONDS", 60.0)],
    },
    // Under `record`, half of them for each of the two programs; as many again with crash files.
    Campaign {
        name: "kills",
        option: ("--count", 1000),
        runs: &[("recording", "kills::", "EVERYCALL_KILLS", 0.5)],
    },
    Campaign {
        name: "storms",
        option: ("--count", 10_000),
        runs: &[
            ("recording", "snapshots::eight_busy_threads", "EVERYCALL_SNAPSHOTS", 1.0),
            ("recording", "forks_and_snapshots::", "EVERYCALL_FORKS", 1.0),
        ],
    },
    Campaign {
        name: "scribbles",
        option: ("--minutes", 10),
        runs: &[("hooks", "scribbles::whatever", "EVERYCALL_SCRIBBLE_SECONDS", 60.0)],
    },
    // Parts of CPython's test suite, in each interpreter of the machine: with hooks from the start, and
    // with hooks that come and go.
    Campaign {
        name: "untouched",
        option: ("--count", 20),
        runs: &[
            ("python", "python_suite::cpythons_own_tests_pass_with_hooks", "EVERYCALL_SUITE_PARTS", 1.0),
            ("python", "python_suite::cpythons_own_tests_pass_while_hooks", "EVERYCALL_SUITE_PARTS", 1.0),
        ],
    },
];

/// The campaigns' names.
pub fn names() -> impl Iterator<Item = &'static str> {
    CAMPAIGNS.iter().map(|campaign| campaign.name)
}

/// Runs the campaign `name` with the words behind it.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(name: &str, words: impl Iterator<Item = String>) -> Result<(), String> {
    let campaign = CAMPAIGNS.iter().find(|campaign| campaign.name == name).ok_or("no such campaign")?;
    let number = campaign.number(words)?;
    packages::ensure(&packages::TESTS)?;
    for (group, test, variable, factor) in campaign.runs {
        let value = ((number as f64 * factor).ceil() as u64).to_string();
        Step::new(&workspace(), "cargo")
            .env(variable, &value)
            .args([
                "test",
                "--release",
                "--package",
                "everycall-tests",
                "--test",
                group,
                "--",
                "--nocapture",
                test,
            ])
            .run()?;
    }
    Ok(())
}

impl Campaign {
    fn number(&self, mut words: impl Iterator<Item = String>) -> Result<u64, String> {
        let (option, usual) = self.option;
        let usage = format!("usage: cargo xtask {} [{option} N]; N is {usual} unless it is given", self.name);
        match (words.next(), words.next(), words.next()) {
            (None, ..) => Ok(usual),
            (Some(word), Some(number), None) if word == option => {
                number.parse().ok().filter(|number| *number > 0).ok_or(usage)
            }
            _ => Err(usage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let number = |words: &[&str]| CAMPAIGNS[0].number(words.iter().map(|&word| word.to_owned()));
        assert_eq!(number(&[]), Ok(60));
        assert_eq!(number(&["--minutes", "3"]), Ok(3));
        for wrong in [&["--minutes"][..], &["--minutes", "0"], &["--minutes", "x"], &["--count", "3"], &["3"]]
        {
            assert!(number(wrong).unwrap_err().contains("[--minutes N]"), "{wrong:?}");
        }
    }
}
