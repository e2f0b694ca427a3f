//! Options of `cargo xtask test`.

/// What to run, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The selection that takes two minutes.
    pub is_quick: bool,
    /// Test binaries that run at the same time.
    pub jobs: usize,
    /// Only test binaries whose names contain this, and neither lints nor what isn't a test binary.
    pub only: Option<String>,
}

/// Each test binary uses all cores by itself; but many of its tests wait, for programs or for
/// moments.
const JOBS: usize = 3;

const USAGE: &str = "usage: cargo xtask test [--quick] [--jobs N] [--only NAME]; N test binaries run at the same time (default: 3); NAME is a part of \
                     the names of binaries, such as everycall-tests/walks";

impl Options {
    /// # Errors
    /// How it is used.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { is_quick: false, jobs: JOBS, only: None };
        while let Some(word) = words.next() {
            match &word[..] {
                "--quick" => options.is_quick = true,
                "--jobs" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    options.jobs = number.filter(|number| *number > 0).ok_or(USAGE)?;
                }
                "--only" => options.only = Some(words.next().ok_or(USAGE)?),
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(|&word| word.to_owned()));
        assert_eq!(parse(&[]), Ok(Options { is_quick: false, jobs: JOBS, only: None }));
        let quick = Options { is_quick: true, jobs: 2, only: Some("walks".to_owned()) };
        assert_eq!(parse(&["--jobs", "2", "--quick", "--only", "walks"]), Ok(quick));
        for wrong in [&["--only"][..], &["--jobs"], &["--jobs", "0"], &["--fast"], &["walks"]] {
            assert_eq!(parse(wrong), Err(USAGE.to_owned()), "{wrong:?}");
        }
    }
}
