//! Which function names a pattern matches.
//!
//! A pattern is a name in which `*` stands for any text and `?` for any character. It is compared
//! with these names of a function:
//!
//! - mangled, as the linker has it;
//! - demangled;
//! - demangled without the return type that templates have;
//! - demangled without parameters;
//! - demangled with the part's suffix, as traces show it: `gen(int) [resume]`.
//!
//! If the pattern does not begin with the outermost scope, the end of the name is enough: `handle` also matches
//! `Server::handle(Request&)`.

use std::fmt;

use everycall_symbols::{demangle, short_name, shown_name, split_part};
use regex::{Regex, RegexBuilder};

/// Longest pattern.
const LENGTH_MAX: usize = 1000;
/// Bytes of a compiled regular expression.
const REGEX_SIZE_MAX: usize = 1 << 20;
/// Limit on suggested names for a name without a match.
const NEAR_MAX: usize = 3;
/// The name that compilers give a scope without a name.
const ANONYMOUS: &str = "(anonymous namespace)";
/// How similar they have to be.
const NEAR_ENOUGH: f64 = 0.75;

/// A pattern for names.
#[derive(Clone, Debug)]
pub struct NamePattern {
    text: String,
    regex: Regex,
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl NamePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// It is too long, as a sentence.
    pub fn new(text: &str) -> Result<NamePattern, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("it has more than {LENGTH_MAX} bytes"));
        }
        let mut expression = String::from("^(?s:.*::)?");
        for character in text.chars() {
            match character {
                '*' => expression.push_str("(?s:.*)"),
                '?' => expression.push_str("(?s:.)"),
                other => expression.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
            }
        }
        expression.push('$');
        let regex = Regex::new(&expression).map_err(|error| error.to_string())?;
        Ok(NamePattern { text: text.to_owned(), regex })
    }

    /// A regular expression, which may match any part of a name. `text` is how it is shown.
    ///
    /// # Errors
    ///
    /// It isn't one, or would take too much memory; as a sentence.
    pub fn regex(text: &str, expression: &str) -> Result<NamePattern, String> {
        if expression.len() > LENGTH_MAX {
            return Err(format!("it has more than {LENGTH_MAX} bytes"));
        }
        let regex = RegexBuilder::new(expression).size_limit(REGEX_SIZE_MAX).build();
        let regex = regex.map_err(|error| error.to_string())?;
        Ok(NamePattern { text: text.to_owned(), regex })
    }

    /// Whether it means the function with this name of the linker's.
    #[must_use]
    pub fn matches(&self, linkage_name: &str) -> bool {
        let names = Names::of(linkage_name);
        self.matches_names(&names)
    }

    /// Whether it means the function with these names.
    #[must_use]
    pub fn matches_names(&self, names: &Names) -> bool {
        let [called_full, bare] = called(&names.full);
        let [called_short, bare_short] = called(&names.short);
        let of_full = [&names.linkage, &names.full, called_full, bare, &names.plain, &names.shown];
        of_full
            .into_iter()
            .chain([&names.short, called_short, bare_short])
            .any(|name| self.regex.is_match(name))
    }

    /// Whether it matches this demangled name, in full or in short form.
    #[must_use]
    pub fn matches_text(&self, name: &str) -> bool {
        self.regex.is_match(name) || self.regex.is_match(&short_name(name))
    }

    /// Those of `names` that are most similar to the pattern, best first.
    pub fn near<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<String> {
        let wanted = last(&self.text).to_lowercase();
        let mut found: Vec<(f64, &str)> = names
            .map(|name| (strsim::jaro_winkler(&wanted, &last(name).to_lowercase()), name))
            .filter(|(likeness, _)| *likeness >= NEAR_ENOUGH)
            .collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        found.dedup_by(|a, b| a.1 == b.1);
        found.into_iter().take(NEAR_MAX).map(|(_, name)| name.to_owned()).collect()
    }
}

/// The innermost part of a name.
fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// A function's names.
#[derive(Clone, Debug)]
pub struct Names {
    /// The linker's name without the suffix of a part.
    linkage: String,
    /// For people.
    full: String,
    /// That as people would have written it: without what the standard library adds.
    short: String,
    /// That without parameters, template arguments and result.
    pub plain: String,
    /// As traces show it: `gen(int) [resume]`.
    shown: String,
}

impl Names {
    /// Those of the function with this name of the linker's.
    #[must_use]
    pub fn of(linkage_name: &str) -> Names {
        let (linkage, _) = split_part(linkage_name);
        let full = demangle(linkage);
        let shown = shown_name(linkage_name);
        Names { linkage: linkage.to_owned(), plain: plain(&full), short: short_name(&full), full, shown }
    }
}

/// A name without its result, and that without its parameters: `foo::bar<int>(int) const` and `foo::bar<int>` for
/// `int foo::bar<int>(int) const`.
fn called(name: &str) -> [&str; 2] {
    let (mut begin, mut at, mut nesting) = (0, 0, 0_u32);
    while let Some(character) = name[at..].chars().next() {
        let rest = &name[at..];
        if nesting == 0 && rest.starts_with(ANONYMOUS) {
            at += ANONYMOUS.len();
            continue;
        }
        if nesting == 0
            && (at == begin || name[..at].ends_with("::"))
            && let Some(after) = rest.strip_prefix("operator")
            && !after.starts_with(is_word)
        {
            let symbols = if after.starts_with("()") { 2 } else { 0 };
            let parameters = after[symbols..].find('(').map_or(after.len(), |found| symbols + found);
            return [&name[begin..], &name[begin..name.len() - after.len() + parameters]];
        }
        match (character, nesting) {
            ('(', 0) => return [&name[begin..], &name[begin..at]],
            (' ', 0) => begin = at + 1,
            ('<' | '(', _) => nesting += 1,
            ('>' | ')', 1..) => nesting -= 1,
            _ => {}
        }
        at += character.len_utf8();
    }
    [&name[begin..], &name[begin..]]
}

/// A name without result, template arguments, parameters and qualifiers: `foo::bar` for `int
/// foo::bar<int>(int) const`.
fn plain(name: &str) -> String {
    let mut plain = String::new();
    let mut nesting = 0_u32;
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        if nesting == 0 {
            if rest.starts_with(ANONYMOUS) {
                plain.push_str(ANONYMOUS);
                rest = &rest[ANONYMOUS.len()..];
                continue;
            }
            let begins_word = plain.is_empty() || plain.ends_with("::") || plain.ends_with(' ');
            if begins_word
                && let Some(after) = rest.strip_prefix("operator")
                && !after.starts_with(is_word)
            {
                let begin = if after.starts_with("()") { 2 } else { 0 };
                let symbols = after[begin..].find('(').map_or(after.len(), |end| begin + end);
                plain.push_str("operator");
                plain.push_str(&after[..symbols]);
                return plain;
            }
            match character {
                '(' => return plain,
                // The text so far was the result.
                ' ' => plain.clear(),
                '<' => nesting = 1,
                _ => plain.push(character),
            }
        } else if matches!(character, '<' | '(') {
            nesting += 1;
        } else if matches!(character, '>' | ')') {
            nesting -= 1;
        }
        rest = &rest[character.len_utf8()..];
    }
    plain
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names() {
        for (name, want) in [
            ("main", "main"),
            ("foo::bar(int)", "foo::bar"),
            ("void foo<int>(int)", "foo"),
            ("std::vector<int> a::b<std::pair<int, int> >::c(int (*)(char)) const", "a::b::c"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("A::operator()(int) const", "A::operator()"),
            ("A::operator>(A const&)", "A::operator>"),
            ("A::operator bool() const", "A::operator bool"),
            ("my_operator(int)", "my_operator"),
            ("core::fmt::write", "core::fmt::write"),
        ] {
            assert_eq!(plain(name), want, "{name}");
        }
    }

    #[test]
    fn names_match() {
        let handle = "_ZN6Server6handleER7Request"; // Server::handle(Request&)
        for (pattern, name, is_match) in [
            ("handle", handle, true),
            ("Server::handle", handle, true),
            ("Server::handle(Request&)", handle, true),
            (handle, handle, true),
            ("Server::*", handle, true),
            ("*", handle, true),
            ("h?ndle", handle, true),
            ("C::g", "_ZThn8_N1C1gEi", true),
            ("C::g(int)", "_ZThn8_N1C1gEi", true),
            ("_ZN1C1gEi", "_ZThn8_N1C1gEi", false),
            ("handl", handle, false),
            ("andle", handle, false),
            ("server::handle", handle, false),
            ("Other::handle", handle, false),
            ("handle", "handle", true),
            ("handle", "handle.part.0", true),
            ("gen", "_Z3geni.resume", true),
            ("gen(int) [resume]", "_Z3geni.resume", true),
            ("gen(int) [resume]", "_Z3genPZ3geniE13_Z3geni.Frame.actor", true),
            ("gen(int) [resume]", "_Z3geni.destroy", false),
            ("gen(int) [resume]", "_Z3geni", false),
            ("handle", "my_handle", false),
            ("han.le", "handle", false),
            ("*", "_ZN3a\n", true),
        ] {
            assert_eq!(NamePattern::new(pattern).unwrap().matches(name), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn near_names_are_found() {
        let names = ["handle_request", "handle_response", "main", "Server::handle_requests"];
        let near = |text: &str| NamePattern::new(text).unwrap().near(names.into_iter());
        assert_eq!(near("handel_request")[0], "handle_request");
        assert_eq!(near("HandleRequest").len(), 3);
        assert!(near("zzz").is_empty());
    }

    #[test]
    fn templates_are_named_without_their_result() {
        for (full, without, bare) in [
            ("int tmpl<int>(int)", "tmpl<int>(int)", "tmpl<int>"),
            (
                "std::pair<int, char> a::f<b (*)(int)>(long) const",
                "a::f<b (*)(int)>(long) const",
                "a::f<b (*)(int)>",
            ),
            (
                "void (anonymous namespace)::f<int>()",
                "(anonymous namespace)::f<int>()",
                "(anonymous namespace)::f<int>",
            ),
            ("bool a::operator()<int>(int)", "a::operator()<int>(int)", "a::operator()<int>"),
            ("operator new(unsigned long)", "operator new(unsigned long)", "operator new"),
            ("plain", "plain", "plain"),
            ("odd>name <", "<", "<"),
            ("", "", ""),
        ] {
            assert_eq!(called(full), [without, bare], "{full}");
        }
        // int tmpl<int>(int)
        for pattern in ["tmpl<int>", "tmpl<int>(int)", "int tmpl<int>(int)", "tmpl", "tmpl<*>"] {
            assert!(NamePattern::new(pattern).unwrap().matches("_Z4tmplIiEiT_"), "{pattern}");
        }
        assert!(!NamePattern::new("tmpl<char>").unwrap().matches("_Z4tmplIiEiT_"));
    }
}
