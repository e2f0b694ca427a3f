//! Commands that show more of a call, as a shell takes them.

use std::path::Path;

use everycall_analysis::Functions;
use everycall_export::without_parameters;

/// A word for a shell, in quotes where it needs them.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A time in a trace, exact enough for `--since`.
#[must_use]
pub fn moment(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{}.{:03}us", ns / 1_000, ns % 1_000),
        1_000_000..1_000_000_000 => format!("{}.{:06}ms", ns / 1_000_000, ns % 1_000_000),
        _ => format!("{}.{:09}s", ns / 1_000_000_000, ns % 1_000_000_000),
    }
}

/// The regular expression that only this name matches, for `--function` of `replay` and `report`.
#[must_use]
pub fn only(name: &str) -> String {
    format!("^{}$", regex::escape(name))
}

/// A pattern for `--slowest` and the like that only the functions with this name match: a name that
/// is easy to read, where it means no other function of the trace.
#[must_use]
pub fn pattern(name: &str, functions: &Functions) -> String {
    let bare = without_parameters(name);
    let is_plain = !bare.is_empty()
        && bare.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':'));
    let is_meant = |other: &str| {
        let other = without_parameters(other);
        other == bare || other.strip_suffix(bare).is_some_and(|scope| scope.ends_with("::"))
    };
    let others = functions.all().iter().filter(|other| other.identity.name != name);
    if is_plain && !others.into_iter().any(|other| is_meant(&other.identity.name)) {
        return bare.to_owned();
    }
    format!("/{}/", only(name))
}

/// The commands about one file.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    file: String,
    tails: &'static str,
}

/// A call as options name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) tid: u32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

impl Span {
    fn options(&self) -> String {
        format!("--tid {} --since {} --until {}", self.tid, moment(self.start_ns), moment(self.end_ns))
    }
}

impl Commands {
    pub(crate) fn new(file: &Path, follows_tails: bool) -> Commands {
        let tails = if follows_tails { "--tails " } else { "" };
        Commands { file: quoted(&file.display().to_string()), tails }
    }

    pub(crate) fn slowest(&self, pattern: &str) -> String {
        format!("everycall report --slowest {} {}{}", quoted(pattern), self.tails, self.file)
    }

    pub(crate) fn explain(&self, pattern: &str) -> String {
        format!("everycall report --explain {} {}{}", quoted(pattern), self.tails, self.file)
    }

    pub(crate) fn by_value(&self, function: &str, value: &str) -> String {
        let by = quoted(&format!("{function}({value})"));
        format!("everycall report --by {by} --sort p50 {}", self.file)
    }

    /// The callees of one call.
    pub(crate) fn callees(&self, pattern: &str, span: Span) -> String {
        format!("everycall report --callees {} {} {}", quoted(pattern), span.options(), self.file)
    }

    /// The functions in one call.
    pub(crate) fn table(&self, name: &str, span: Span) -> String {
        format!("everycall report {} --function {} {}", span.options(), quoted(&only(name)), self.file)
    }

    /// One call as a tree, without what is much shorter.
    pub(crate) fn replay(&self, name: &str, span: Span) -> String {
        let shortest = (span.end_ns.saturating_sub(span.start_ns)) / 50;
        format!(
            "everycall replay {} --function {} --min-duration {} {}",
            span.options(),
            quoted(&only(name)),
            moment(shortest),
            self.file
        )
    }

    /// The calls of another thread meanwhile.
    pub(crate) fn meanwhile(&self, span: Span) -> String {
        format!("everycall replay {} {}", span.options(), self.file)
    }

    /// The slowest call of a function, with its tail calls.
    pub(crate) fn why_with_tails(&self, pattern: &str) -> String {
        format!("everycall why --tails --function {} {}", quoted(pattern), self.file)
    }

    pub(crate) fn info(&self) -> String {
        format!("everycall info {}", self.file)
    }
}

#[cfg(test)]
mod tests {
    use everycall_analysis::{Function, FunctionIdentity};

    use super::*;

    #[test]
    fn words_and_moments() {
        assert_eq!(quoted("a/b.ect"), "a/b.ect");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(
            [moment(5), moment(1_204_123_456), moment(2_000_001)],
            ["0.005us", "1.204123456s", "2.000001ms"]
        );
    }

    #[test]
    fn a_name_that_others_have_as_well_is_written_whole() {
        let mut functions = Functions::default();
        for name in ["load(int)", "Cache::load(int)", "Cache::find(int)"] {
            let identity = FunctionIdentity { name: name.to_owned(), ..FunctionIdentity::default() };
            functions.number(Function::of(identity));
        }
        assert_eq!(pattern("Cache::find(int)", &functions), "Cache::find");
        assert_eq!(pattern("Cache::load(int)", &functions), "Cache::load");
        assert_eq!(pattern("load(int)", &functions), r"/^load\(int\)$/");
    }
}
