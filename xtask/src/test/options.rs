//! Options of `cargo xtask test`.

use std::thread;

/// The tests to run, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The selection that takes 90 seconds.
    pub is_quick: bool,
    /// Tests that run at the same time.
    pub jobs: usize,
    /// The machine whose programs are tested by an emulator, instead of all tests on this one.
    pub target: Option<String>,
}

const USAGE: &str = "usage: cargo xtask test [--quick] [--jobs N] [--target aarch64]; N tests run at the same time (default: two for each CPU); \
                     a target's programs run by an emulator. \
                     For some tests alone: cargo nextest run -p everycall-tests --test building walks::";

impl Options {
    /// # Errors
    /// How it is used.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { is_quick: false, jobs: jobs(), target: None };
        while let Some(word) = words.next() {
            match &word[..] {
                "--quick" => options.is_quick = true,
                "--jobs" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    options.jobs = number.filter(|number| *number > 0).ok_or(USAGE)?;
                }
                "--target" => {
                    options.target = Some(words.next().filter(|name| name == "aarch64").ok_or(USAGE)?);
                }
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }
}

/// Many tests wait: for programs, or for moments.
fn jobs() -> usize {
    2 * thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(|&word| word.to_owned()));
        assert_eq!(parse(&[]), Ok(Options { is_quick: false, jobs: jobs(), target: None }));
        let target = Some("aarch64".to_owned());
        assert_eq!(parse(&["--target", "aarch64"]).map(|options| options.target), Ok(target));
        assert_eq!(parse(&["--jobs", "3", "--quick"]), Ok(Options { is_quick: true, jobs: 3, target: None }));
        for wrong in [
            &["--only"][..],
            &["--jobs"],
            &["--jobs", "0"],
            &["--fast"],
            &["walks"],
            &["--target"],
            &["--target", "arm"],
        ] {
            assert_eq!(parse(wrong), Err(USAGE.to_owned()), "{wrong:?}");
        }
    }
}
