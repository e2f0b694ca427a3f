//! Names without the standard library's noise: what people would have written.
//!
//! | in the full name | in the short one |
//! |---|---|
//! | inline namespaces of `std`: `std::__cxx11::`, `std::__1::`, `std::_V2::` | `std::` |
//! | tags: `name[abi:cxx11]` | `name` |
//! | arguments that are a standard template's defaults: `std::vector<int, std::allocator<int> >` | `std::vector<int>` |
//! | what has a name of its own: `std::basic_string<char>` | `std::string` |
//! | `> >` | `>>` |
//!
//! Everything else stays. The rules apply to text, so that names from debugging information are
//! shortened alike.

/// Brackets within each other; a name with more stays as it is.
const DEPTH_MAX: u32 = 128;

/// The short form of a function's or type's full name.
#[must_use]
pub fn short_name(full: &str) -> String {
    if !full.contains("std::") && !full.contains("[abi:") && !full.contains("> >") {
        return full.to_owned();
    }
    let mut reader = Reader { text: full, at: 0, depth: 0 };
    match reader.part() {
        // Brackets that don't pair: this is no C++.
        Some(short) if reader.at == full.len() => short,
        _ => full.to_owned(),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$')
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Text up to a comma or a closing bracket that isn't opened in it.
    fn part(&mut self) -> Option<String> {
        let mut out = String::new();
        // Start of the name that is being read, with its scopes.
        let mut begin = 0;
        while let Some(character) = self.rest().chars().next() {
            let is_boundary = !out.ends_with(is_word);
            if matches!(character, ',' | '>' | ')' | ']' | '}') {
                let is_arrow = character == '>' && out.ends_with('-');
                if is_arrow {
                    out.push('>');
                    self.at += 1;
                    continue;
                }
                return Some(out);
            }
            if self.rest().starts_with("[abi:") {
                self.at += self.rest().find(']')? + 1;
                continue;
            }
            if is_boundary && self.rest().starts_with("operator") && !self.rest()[8..].starts_with(is_word) {
                self.operator(&mut out);
                continue;
            }
            if is_boundary && out[begin..].starts_with("std::") && self.skips_namespace() {
                continue;
            }
            match character {
                '<' if out.ends_with(is_word) || out[begin..].contains("operator") => {
                    let arguments = self.brackets('>')?;
                    with_arguments(&mut out, begin, arguments);
                }
                '(' | '[' | '{' => {
                    let close = match character {
                        '(' => ')',
                        '[' => ']',
                        _ => '}',
                    };
                    let parts = self.brackets(close)?;
                    out.push(character);
                    out.push_str(&parts.join(", "));
                    out.push(close);
                }
                _ => {
                    out.push(character);
                    self.at += character.len_utf8();
                    if !is_word(character) && !matches!(character, ':' | '~') {
                        begin = out.len();
                    }
                }
            }
        }
        Some(out)
    }

    /// The bracketed text that the next character opens.
    fn brackets(&mut self, close: char) -> Option<Vec<String>> {
        if self.depth >= DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        self.at += 1;
        let mut parts = Vec::new();
        loop {
            let mut part = self.part()?;
            // In an expression, where it is an operator, not a bracket: `(a)>(b)`.
            while close != '>' && self.rest().starts_with('>') {
                self.at += 1;
                part.push('>');
                part.push_str(&self.part()?);
            }
            let next = self.rest().chars().next()?;
            self.at += next.len_utf8();
            if next == close {
                // `> >` is written for old compilers.
                if close == '>' {
                    part.truncate(part.trim_end().len());
                }
                if !(parts.is_empty() && part.is_empty()) {
                    parts.push(part);
                }
                break;
            }
            if next != ',' {
                return None;
            }
            self.at += usize::from(self.rest().starts_with(' '));
            parts.push(part);
        }
        self.depth -= 1;
        Some(parts)
    }

    /// `operator` with its symbols, which are no brackets.
    fn operator(&mut self, out: &mut String) {
        let after = &self.rest()[8..];
        let symbols = if after.starts_with("()") || after.starts_with("[]") {
            2
        } else {
            let is_symbol = |c: char| "+-*/%^&|~!=<>,".contains(c);
            let all = after.find(|c| !is_symbol(c)).unwrap_or(after.len());
            // `operator<<int>` is how some write `operator< <int>`; the longest operator is used.
            let longest = ["<=>", "<<=", ">>=", "->*"].iter().any(|op| after.starts_with(op));
            all.min(if longest { 3 } else { 2 })
        };
        out.push_str(&self.text[self.at..self.at + 8 + symbols]);
        self.at += 8 + symbols;
        // Before arguments: `operator< <int>`.
        if symbols > 0 && self.rest().starts_with(" <") {
            out.push(' ');
            self.at += 1;
        }
    }

    /// Whether an inline namespace of the library came next, which is omitted.
    fn skips_namespace(&mut self) -> bool {
        let Some(end) = self.rest().find("::") else { return false };
        let name = &self.rest()[..end];
        let is_numbered = |prefix| {
            name.strip_prefix(prefix)
                .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let is_inline = name == "__cxx11" || is_numbered("__ndk") || is_numbered("__") || is_numbered("_V");
        self.at += if is_inline { end + 2 } else { 0 };
        is_inline
    }
}

/// Appends template arguments to the name that begins at `begin`, except those that are defaults.
fn with_arguments(out: &mut String, begin: usize, mut arguments: Vec<String>) {
    if let Some(template) = out[begin..].strip_prefix("std::") {
        drop_defaults(template, &mut arguments);
        if let ([character], Some(plain)) = (arguments.as_slice(), template.strip_prefix("basic_")) {
            let prefix = match character.as_str() {
                "char" => Some(""),
                "wchar_t" => Some("w"),
                "char8_t" => Some("u8"),
                "char16_t" => Some("u16"),
                "char32_t" => Some("u32"),
                _ => None,
            };
            let is_narrow = matches!(character.as_str(), "char" | "wchar_t");
            let has_name = matches!(plain, "string" | "string_view") || is_narrow && NARROW.contains(&plain);
            if let (Some(prefix), true) = (prefix, has_name) {
                let name = format!("std::{prefix}{plain}");
                out.truncate(begin);
                out.push_str(&name);
                return;
            }
        }
    }
    out.push('<');
    out.push_str(&arguments.join(", "));
    out.push('>');
}

/// The names that `std::basic_...<char>` has besides `string`.
const NARROW: [&str; 16] = [
    "ios",
    "istream",
    "ostream",
    "iostream",
    "streambuf",
    "stringbuf",
    "istringstream",
    "ostringstream",
    "stringstream",
    "filebuf",
    "ifstream",
    "ofstream",
    "fstream",
    "regex",
    "syncbuf",
    "osyncstream",
];

/// Leaves out trailing arguments that the template of `std` has by default.
fn drop_defaults(template: &str, arguments: &mut Vec<String>) {
    while let Some(last) = arguments.len().checked_sub(1).filter(|last| *last > 0) {
        if default(template, last, arguments).is_none_or(|default| default != arguments[last]) {
            return;
        }
        arguments.pop();
    }
}

/// The default of the argument at `index`, in terms of those before.
fn default(template: &str, index: usize, arguments: &[String]) -> Option<String> {
    let of = |name: &str, what: &str| Some(format!("std::{name}<{what}>"));
    let first = arguments.first()?;
    let pair = || Some(format!("std::pair<{first} const, {}>", arguments.get(1)?));
    match (template, index) {
        ("vector" | "deque" | "list" | "forward_list", 1) => of("allocator", first),
        ("set" | "multiset", 1) | ("map" | "multimap", 2) => of("less", first),
        ("set" | "multiset", 2) => of("allocator", first),
        ("map" | "multimap", 3) | ("unordered_map" | "unordered_multimap", 4) => of("allocator", &pair()?),
        ("unordered_set" | "unordered_multiset", 1) | ("unordered_map" | "unordered_multimap", 2) => {
            of("hash", first)
        }
        ("unordered_set" | "unordered_multiset", 2) | ("unordered_map" | "unordered_multimap", 3) => {
            of("equal_to", first)
        }
        ("unordered_set" | "unordered_multiset", 3) => of("allocator", first),
        ("unique_ptr", 1) => of("default_delete", first),
        ("stack" | "queue", 1) => of("deque", first),
        ("priority_queue", 1) => of("vector", first),
        ("priority_queue", 2) => of("less", first),
        (
            "basic_string"
            | "basic_string_view"
            | "basic_ios"
            | "basic_istream"
            | "basic_ostream"
            | "basic_iostream"
            | "basic_streambuf"
            | "basic_stringbuf"
            | "basic_istringstream"
            | "basic_ostringstream"
            | "basic_stringstream"
            | "basic_filebuf"
            | "basic_ifstream"
            | "basic_ofstream"
            | "basic_fstream"
            | "istreambuf_iterator"
            | "ostreambuf_iterator"
            | "basic_syncbuf"
            | "basic_osyncstream",
            1,
        ) => of("char_traits", first),
        ("basic_regex", 1) => of("regex_traits", first),
        (
            "basic_string"
            | "basic_stringbuf"
            | "basic_istringstream"
            | "basic_ostringstream"
            | "basic_stringstream"
            | "basic_syncbuf"
            | "basic_osyncstream",
            2,
        ) => of("allocator", first),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_left_out() {
        for (full, short) in [
            ("f(int)", "f(int)"),
            (
                "f(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)",
                "f(std::string const&)",
            ),
            (
                "std::__1::vector<int, std::__1::allocator<int> >::push_back[abi:ne190107](int&&)",
                "std::vector<int>::push_back(int&&)",
            ),
            (
                "std::map<int, std::vector<A, std::allocator<A> >, std::less<int>, std::allocator<std::pair<int const, std::vector<A, std::allocator<A> > > > >::at(int const&) const",
                "std::map<int, std::vector<A>>::at(int const&) const",
            ),
            (
                "std::unordered_map<std::string, int, std::hash<std::string>, std::equal_to<std::string>, std::allocator<std::pair<std::string const, int> > >::find(std::string const&)",
                "std::unordered_map<std::string, int>::find(std::string const&)",
            ),
            // Not the default one.
            ("std::vector<int, std::allocator<long> >::f()", "std::vector<int, std::allocator<long>>::f()"),
            ("std::vector<int, my::pool<int> >::f()", "std::vector<int, my::pool<int>>::f()"),
            (
                "std::unique_ptr<A, std::default_delete<A> >::~unique_ptr()",
                "std::unique_ptr<A>::~unique_ptr()",
            ),
            ("my::vector<int, std::allocator<int> >::f()", "my::vector<int, std::allocator<int>>::f()"),
            ("my::__1::f()", "my::__1::f()"),
            ("std::chrono::_V2::steady_clock::now()", "std::chrono::steady_clock::now()"),
            (
                "std::filesystem::__cxx11::path::path(std::filesystem::__cxx11::path const&)",
                "std::filesystem::path::path(std::filesystem::path const&)",
            ),
            (
                "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <std::char_traits<char> >(std::basic_ostream<char, std::char_traits<char> >&, char const*)",
                "std::ostream& std::operator<< <std::char_traits<char>>(std::ostream&, char const*)",
            ),
            (
                "bool std::operator< <int>(std::pair<int, int>)",
                "bool std::operator< <int>(std::pair<int, int>)",
            ),
            ("A::operator->() const [std::x]", "A::operator->() const [std::x]"),
            ("std::f<(1)>(2), std::allocator<int> >", "std::f<(1)>(2), std::allocator<int> >"),
            ("std::f<((a)>(b))>(decltype ((x)->y))", "std::f<((a)>(b))>(decltype ((x)->y))"),
            (
                "std::g()::{lambda(std::vector<int, std::allocator<int> >&)#1}::operator()(std::vector<int, std::allocator<int> >&) const",
                "std::g()::{lambda(std::vector<int>&)#1}::operator()(std::vector<int>&) const",
            ),
            ("get[abi:cxx11]()", "get()"),
            ("std::string f[abi:cxx11](a::b)", "std::string f(a::b)"),
            ("<T as std::fmt::Display>::fmt", "<T as std::fmt::Display>::fmt"),
            ("std::f(", "std::f("),
            ("[abi:", "[abi:"),
        ] {
            assert_eq!(short_name(full), short, "{full}");
        }
    }

    /// Short names stay as they are.
    #[test]
    fn short_names_are_short() {
        let deep = format!("std::{}int{}", "A<".repeat(300), ">".repeat(300));
        assert_eq!(short_name(&deep), deep);
        let names = [
            "std::map<int, std::vector<A>>::at(int const&) const",
            "std::ostream& std::operator<<(std::ostream&, A)",
        ];
        for name in names {
            assert_eq!(short_name(name), name);
        }
    }
}
