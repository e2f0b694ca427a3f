//! The arguments with which gcc runs `as`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::response;

/// The input of `as`, and its other arguments.
pub(super) struct Arguments {
    pub input: Input,
    /// The arguments without the input.
    pub others: Vec<OsString>,
}

/// Where the text comes from.
pub(super) enum Input {
    Stdin,
    File(OsString),
    /// Several files, or a query such as `--version`: not from gcc, so nothing is rewritten.
    Other,
}

/// Options of `as` whose value is the next argument.
const TAKE_NEXT: &[&str] = &[
    "-o",
    "-I",
    "--MD",
    "--defsym",
    "--debug-prefix-map",
    "--listing-lhs-width",
    "--listing-lhs-width2",
    "--listing-rhs-width",
    "--listing-cont-lines",
];

const QUERIES: &[&str] = &["--version", "--help", "--target-help", "--dump-config", "--statistics"];

impl Arguments {
    pub fn read(args: &[OsString]) -> Arguments {
        let mut inputs = Vec::new();
        let mut others = Vec::new();
        let mut query = false;
        let mut rest = response::expand(args).into_iter();
        while let Some(arg) = rest.next() {
            let text = arg.to_str().unwrap_or_default();
            query |= QUERIES.contains(&text);
            if TAKE_NEXT.contains(&text) {
                others.push(arg);
                others.extend(rest.next());
            } else if text == "--" || is_input(&arg) {
                inputs.push(arg);
            } else {
                others.push(arg);
            }
        }
        let input = match (query, inputs.len(), inputs.pop()) {
            (true, ..) => Input::Other,
            (_, 0, _) => Input::Stdin,
            (_, 1, Some(name)) if name == "-" || name == "--" => Input::Stdin,
            (_, 1, Some(name)) => Input::File(name),
            _ => Input::Other,
        };
        Arguments { input, others }
    }
}

fn is_input(arg: &OsStr) -> bool {
    arg == "-" || !arg.as_bytes().starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (String, usize) {
        let parsed = Arguments::read(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        let input = match parsed.input {
            Input::Stdin => "-".to_owned(),
            Input::File(name) => name.into_string().unwrap(),
            Input::Other => "?".to_owned(),
        };
        (input, parsed.others.len())
    }

    #[test]
    fn inputs() {
        assert_eq!(read("-I x --64 -o a.o a.s"), ("a.s".into(), 5));
        assert_eq!(read("--64 -o a.o"), ("-".into(), 3));
        assert_eq!(read("--64 -o a.o -"), ("-".into(), 3));
        assert_eq!(read("a.s b.s"), ("?".into(), 0));
        assert_eq!(read("--version").0, "?");
        assert_eq!(read("--defsym x=1 --MD deps a.s"), ("a.s".into(), 4));
    }
}
