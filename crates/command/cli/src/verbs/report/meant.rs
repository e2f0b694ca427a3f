//! Functions that options name, and what is said if there are none.

use everycall_analysis::{Function, Functions};
use everycall_patterns::NamePattern;

use crate::arguments::ReportArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::traces::near;

/// A pattern as `--trigger` and `enable` take it: a name with `*` and `?`, or `/REGEX/`.
pub fn pattern(text: &str) -> Result<NamePattern, Failure> {
    let expression = text.strip_prefix('/').and_then(|text| text.strip_suffix('/'));
    let pattern = match expression {
        Some(expression) => NamePattern::regex(text, expression),
        None => NamePattern::new(text),
    };
    pattern.map_err(|error| Failure::new(exit_code::USAGE, format!("`{text}`: {error}")))
}

/// Whether a pattern matches a function by one of its names.
pub fn is_meant(pattern: &NamePattern, function: &Function) -> bool {
    pattern.matches(&function.identity.name) || function.symbols.iter().any(|symbol| pattern.matches(symbol))
}

/// The message that no called function matches, with similar names.
pub fn nothing_matches(pattern: &NamePattern, functions: &Functions, arguments: &ReportArguments) -> Failure {
    let near = near(pattern, functions);
    let diff = arguments.diff.diff.iter().chain(&arguments.diff.against);
    let files: Vec<_> = arguments.traces.iter().chain(diff).map(|path| path.display().to_string()).collect();
    Failure::new(
        exit_code::FAILED,
        format!("no function that was called in {} matches `{pattern}`{near}", files.join(", ")),
    )
}
