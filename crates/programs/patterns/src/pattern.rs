//! Patterns that functions match or don't.
//!
//! A pattern consists of conditions combined by ` & `, all of which must be true. `!` before a
//! condition negates it:
//!
//! | condition | functions |
//! |---|---|
//! | `handle_*` | of this name: see [`NamePattern`] |
//! | `/^std::.*sort/` | whose demangled or mangled name matches the regular expression |
//! | `file:net/*.c` | declared in this source file |
//! | `module:libfoo.so*` | in this program or library |
//! | `section:fast*` | in this section of the file |
//! | `addr:0x1234`, `addr:0x1000-0x2000` | that begin at, or from and up to, this image address |
//! | `size:<20`, `size:>=100` | with so many instructions |
//! | `has:loop` | with a jump backward within the function |

use std::fmt;
use std::path::Path;

use regex::Regex;

use crate::code::Code;
use crate::functions::FunctionTable;
use crate::names::{NamePattern, Names};

/// The conditions that exist, for messages.
const ALLOWED: &str = "a name such as handle_*, /REGEX/, file:GLOB, module:GLOB, section:GLOB, addr:0x1234, size:<20 or \
has:loop, or several combined by ' & '";
/// Longest pattern.
const LENGTH_MAX: usize = 4000;
/// Most conditions in one.
const CONDITIONS_MAX: usize = 16;

/// A pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug)]
struct Condition {
    is_not: bool,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Name(NamePattern),
    File(Regex),
    Module(Regex),
    Section(Regex),
    /// Begins from the first up to the second, that included.
    Address(u64, u64),
    Size(Comparison, u32),
    Loop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// The pattern is invalid. The error continues a sentence that begins with the pattern: what is
    /// wrong, what is allowed.
    pub fn new(text: &str) -> Result<Pattern, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err(format!("is empty; write {ALLOWED}"));
        }
        if text.ends_with(" &") || text.starts_with("& ") {
            return Err(format!("has an empty condition; write {ALLOWED}"));
        }
        if text.len() > LENGTH_MAX {
            return Err(format!("has more than {LENGTH_MAX} bytes"));
        }
        let conditions = split(text).into_iter().map(Condition::new).collect::<Result<Vec<_>, _>>()?;
        if conditions.len() > CONDITIONS_MAX {
            return Err(format!("has more than {CONDITIONS_MAX} conditions"));
        }
        Ok(Pattern { text: text.to_owned(), conditions })
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name pattern, if the pattern consists of nothing else.
    #[must_use]
    pub fn name(&self) -> Option<&NamePattern> {
        match self.conditions.as_slice() {
            [Condition { is_not: false, kind: Kind::Name(name) }] => Some(name),
            _ => None,
        }
    }

    /// The names among its conditions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &NamePattern> {
        self.conditions.iter().filter_map(|condition| match &condition.kind {
            Kind::Name(name) => Some(name),
            _ => None,
        })
    }

    /// Whether it needs facts that are only known of linked functions.
    #[must_use]
    pub fn asks_for_link(&self) -> bool {
        self.conditions
            .iter()
            .any(|condition| matches!(condition.kind, Kind::Module(_) | Kind::Section(_) | Kind::Address(..)))
    }

    /// Whether it means this function.
    pub(crate) fn matches(&self, function: &mut impl Looked) -> bool {
        // Quick conditions first.
        let is_slow =
            |condition: &&Condition| matches!(condition.kind, Kind::Size(..) | Kind::Loop | Kind::File(_));
        let (slow, quick): (Vec<_>, Vec<_>) = self.conditions.iter().partition(is_slow);
        quick.into_iter().chain(slow).all(|condition| condition.is_met(function) != condition.is_not)
    }
}

/// A function that patterns are compared with.
pub(crate) trait Looked {
    /// None where it has no name.
    fn names(&mut self) -> Option<&Names>;
    fn code(&mut self) -> Code;
    fn file(&mut self) -> Option<&str>;
    /// None before it is linked.
    fn module(&self) -> Option<&Path>;
    /// Its section; none before it is linked.
    fn section(&self) -> Option<&str>;
    /// Its first address; none before it is linked.
    fn start(&self) -> Option<u64>;
}

/// A function of a file: facts that patterns need are found out once.
pub(crate) struct InTable<'t> {
    table: &'t mut FunctionTable,
    index: usize,
    names: Option<Names>,
    code: Option<Code>,
    file: Option<Option<String>>,
}

impl<'t> InTable<'t> {
    pub fn at(table: &'t mut FunctionTable, index: usize) -> InTable<'t> {
        InTable { table, index, names: None, code: None, file: None }
    }
}

impl Looked for InTable<'_> {
    fn names(&mut self) -> Option<&Names> {
        let linkage_name = &self.table.functions().get(self.index)?.linkage_name;
        if linkage_name.is_empty() {
            return None;
        }
        Some(self.names.get_or_insert_with(|| Names::of(linkage_name)))
    }

    fn code(&mut self) -> Code {
        *self.code.get_or_insert_with(|| self.table.code(self.index))
    }

    fn file(&mut self) -> Option<&str> {
        let find = || Some(self.table.source(self.index)?.0.to_string_lossy().into_owned());
        self.file.get_or_insert_with(find).as_deref()
    }

    fn module(&self) -> Option<&Path> {
        Some(self.table.path())
    }

    fn section(&self) -> Option<&str> {
        self.table.section(self.index)
    }

    fn start(&self) -> Option<u64> {
        self.table.functions().get(self.index).map(|function| function.start)
    }
}

/// A function as a compiler made it, before it is linked.
#[derive(Clone, Debug)]
pub struct Compiled {
    names: Names,
    code: Code,
    file: Option<String>,
}

impl Compiled {
    /// A function with this name of the linker's, and the source file that declares it.
    #[must_use]
    pub fn new(linkage_name: &str, code: Code, file: Option<String>) -> Compiled {
        Compiled { names: Names::of(linkage_name), code, file }
    }
}

impl Looked for Compiled {
    fn names(&mut self) -> Option<&Names> {
        Some(&self.names)
    }

    fn code(&mut self) -> Code {
        self.code
    }

    fn file(&mut self) -> Option<&str> {
        self.file.as_deref()
    }

    fn module(&self) -> Option<&Path> {
        None
    }

    fn section(&self) -> Option<&str> {
        None
    }

    fn start(&self) -> Option<u64> {
        None
    }
}

impl Condition {
    fn new(text: &str) -> Result<Condition, String> {
        let (is_not, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, text),
        };
        if rest.is_empty() {
            return Err(format!("has an empty condition; write {ALLOWED}"));
        }
        Ok(Condition { is_not, kind: Kind::new(rest)? })
    }

    fn is_met(&self, function: &mut impl Looked) -> bool {
        match &self.kind {
            Kind::Name(name) => function.names().is_some_and(|names| name.matches_names(names)),
            Kind::File(glob) => function.file().is_some_and(|file| glob.is_match(file)),
            Kind::Module(glob) => {
                function.module().is_some_and(|path| glob.is_match(&path.to_string_lossy()))
            }
            Kind::Section(glob) => function.section().is_some_and(|name| glob.is_match(name)),
            Kind::Address(first, last) => {
                function.start().is_some_and(|start| (*first..=*last).contains(&start))
            }
            Kind::Size(comparison, size) => comparison.holds(function.code().instructions, *size),
            Kind::Loop => function.code().has_loop,
        }
    }
}

impl Kind {
    fn new(text: &str) -> Result<Kind, String> {
        if let Some(expression) = text.strip_prefix('/') {
            let Some(expression) = expression.strip_suffix('/').filter(|text| !text.is_empty()) else {
                return Err(
                    "begins with / and doesn't end with one; a regular expression is /^net_.*/".to_owned()
                );
            };
            let name = NamePattern::regex(text, expression);
            // The error's other lines repeat the expression and point into it.
            let reason = |error: String| {
                let last = error.lines().last().unwrap_or_default().trim();
                format!("isn't a regular expression: {}", last.trim_start_matches("error: "))
            };
            return name.map(Kind::Name).map_err(reason);
        }
        // `file::open` is a name.
        let keyed = |key: &str| text.strip_prefix(key).filter(|rest| !rest.starts_with(':'));
        if let Some(pattern) = keyed("file:") {
            return Ok(Kind::File(path_glob(pattern, "file:net/*.c")?));
        }
        if let Some(pattern) = keyed("module:") {
            return Ok(Kind::Module(path_glob(pattern, "module:libfoo.so*")?));
        }
        if let Some(pattern) = keyed("section:") {
            return Ok(Kind::Section(path_glob(pattern, "section:.text.unlikely")?));
        }
        if let Some(range) = keyed("addr:") {
            return address(range);
        }
        if let Some(size) = keyed("size:") {
            return self::size(size);
        }
        match keyed("has:") {
            Some("loop") => return Ok(Kind::Loop),
            Some(other) => {
                return Err(format!("has the unknown condition has:{other}; only has:loop is possible"));
            }
            None => {}
        }
        NamePattern::new(text).map(Kind::Name)
    }
}

/// The conditions of a pattern: ` & ` separates them, which no name and no part of one contains;
/// not within a regular expression.
fn split(text: &str) -> Vec<&str> {
    let mut conditions = Vec::new();
    let mut rest = text;
    loop {
        let begin = rest.trim_start().strip_prefix('!').map_or(rest.trim_start(), str::trim_start);
        let skipped = rest.len() - begin.len();
        // A regular expression ends with the last slash before a separator.
        let from = match begin.strip_prefix('/') {
            Some(expression) => expression.find("/ & ").map_or(rest.len(), |found| skipped + 1 + found + 1),
            None => skipped,
        };
        match rest[from..].find(" & ") {
            Some(found) => {
                conditions.push(rest[..from + found].trim());
                rest = &rest[from + found + 3..];
            }
            None => {
                conditions.push(rest.trim());
                return conditions;
            }
        }
    }
}

/// A glob over paths, or other names. It is enough for the end of the path to match, from a slash
/// on.
fn path_glob(pattern: &str, example: &str) -> Result<Regex, String> {
    if pattern.is_empty() {
        return Err(format!("names no path; write one such as {example}"));
    }
    let mut expression = String::from("^(?s:.*/)?");
    for character in pattern.chars() {
        match character {
            '*' => expression.push_str("(?s:.*)"),
            '?' => expression.push_str("(?s:.)"),
            other => expression.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push('$');
    Regex::new(&expression).map_err(|error| error.to_string())
}

fn address(text: &str) -> Result<Kind, String> {
    let number = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    let parsed = match text.split_once('-') {
        None => number(text).map(|at| (at, at)),
        Some((first, end)) => number(first).zip(number(end).and_then(|end| end.checked_sub(1))),
    };
    match parsed {
        Some((first, last)) if first <= last => Ok(Kind::Address(first, last)),
        _ => Err(format!(
            "has the invalid address {text:?}; write addresses as `nm` shows them: addr:0x1234 or addr:0x1000-0x2000"
        )),
    }
}

fn size(text: &str) -> Result<Kind, String> {
    let comparisons = [
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
        ("=", Comparison::Equal),
    ];
    let parsed = comparisons.into_iter().find_map(|(sign, comparison)| {
        let number = text.trim().strip_prefix(sign)?.trim().parse().ok()?;
        Some(Kind::Size(comparison, number))
    });
    parsed.ok_or_else(|| {
        format!(
            "has the invalid size {text:?}; write a number of instructions: size:<20, size:>=100 or size:=1"
        )
    })
}

impl Comparison {
    fn holds(self, left: u32, right: u32) -> bool {
        match self {
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
            Comparison::Equal => left == right,
            Comparison::GreaterOrEqual => left >= right,
            Comparison::Greater => left > right,
        }
    }
}

/// Whether a path's end matches a glob, for those who have paths and no functions.
#[must_use]
pub fn path_matches(glob: &str, path: &Path) -> bool {
    path_glob(glob, "*").is_ok_and(|glob| glob.is_match(&path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names() {
        for name in [
            "handle_*",
            "Server::handle(Request&)",
            "f(int const&, char)",
            "operator&",
            "file::open",
            "size::of",
            "std::operator!=<int>",
            "loop",
        ] {
            let pattern = Pattern::new(name).unwrap();
            assert!(pattern.name().is_some(), "{name}");
            assert_eq!(pattern.to_string(), name);
        }
    }

    #[test]
    fn conditions_are_read() {
        for (text, count) in [
            ("!size:<20", 1),
            ("size:>=20 & has:loop", 2),
            ("file:net/*.c & !handle_* & size:<100", 3),
            ("/a & b/ & size:<3", 2),
            ("/a|b/", 1),
            ("addr:0x10-0x20", 1),
            ("section:.init* & size:>3", 2),
        ] {
            assert_eq!(Pattern::new(text).unwrap().conditions.len(), count, "{text}");
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for (text, reason) in [
            ("", "is empty"),
            ("a & ", "empty condition"),
            ("!", "empty condition"),
            ("/(/", "isn't a regular expression"),
            ("/open", "doesn't end"),
            ("size:20", "size:<20"),
            ("size:<-1", "size:<20"),
            ("addr:12", "addr:0x1234"),
            ("addr:0x20-0x10", "addr:0x1234"),
            ("has:loops", "has:loop"),
            ("file:", "names no path"),
            ("section:", "section:.text"),
            ("/a{1000}{1000}{1000}/", "isn't a regular expression"),
        ] {
            let error = Pattern::new(text).map(|_| ()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn paths_match_from_a_slash_on() {
        for (glob, path, is_match) in [
            ("net.c", "/src/net.c", true),
            ("net.c", "/src/subnet.c", false),
            ("src/*.c", "/a/src/net.c", true),
            ("*net.c", "/src/subnet.c", true),
            ("/src/net.c", "/src/net.c", true),
            ("/net.c", "/src/net.c", false),
        ] {
            assert_eq!(path_matches(glob, Path::new(path)), is_match, "{glob} {path}");
        }
    }
}
