//! Which frames by id a pattern matches. Both sides ask: the runtime when a frame is named, and the
//! recorder for its reports.
//!
//! - `*` stands for any text and `?` for any character, neither with a `/`.
//! - A pattern without a dot is compared with the frame's name: `handle`, `Server::*`.
//! - A pattern with a dot is also compared with the name behind that of its file, as of a module:
//!   `app.handle` means `handle` of `app.py`, `app.views.*` what `app/views.py` has. A `.` stands
//!   for `/`, too. Of `<frozen os>`, as Python calls the file of a frozen module, that is `os`.
//! - The end of that is enough if it begins a scope: behind `.`, `/` or `::`.

/// Longest pattern.
pub const PATTERN_MAX: usize = 1000;
/// The file that stands for its folder, in Python.
const OF_FOLDER: &[u8] = b"/__init__";

/// Whether `pattern` means the frame with this name and file (empty if it has none).
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8], file: &[u8]) -> bool {
    if pattern.is_empty() || pattern.len() > PATTERN_MAX {
        return false;
    }
    let has_dot = pattern.contains(&b'.');
    let text = Text { module: if has_dot { module_of(file) } else { &[] }, name, is_path: false };
    (0..text.len()).filter(|at| text.begins_scope(*at)).any(|at| text.matches_from(at, pattern))
}

/// Whether a rule of a selection records the frame with this name and file; `None` if the rule
/// doesn't match it. A rule is `+ PATTERN` or `- PATTERN`, as in `docs/reference/selection.md`. Of
/// its conditions, frames have names and `file:`; those about machine code, and regular
/// expressions, match no frame.
#[must_use]
pub fn rule_says(rule: &[u8], name: &[u8], file: &[u8]) -> Option<bool> {
    let (is_in, mut rest) = match rule.split_at_checked(2)? {
        (b"+ ", rest) => (true, rest),
        (b"- ", rest) => (false, rest),
        _ => return None,
    };
    loop {
        let end = rest.windows(AND.len()).position(|window| window == AND);
        let condition = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest).trim_ascii();
        let (is_not, condition) = match condition.strip_prefix(b"!") {
            Some(condition) => (true, condition.trim_ascii_start()),
            None => (false, condition),
        };
        if is_met(condition, name, file)? == is_not {
            return None;
        }
        match end {
            Some(end) => rest = rest.get(end + AND.len()..).unwrap_or_default(),
            None => return Some(is_in),
        }
    }
}

/// Between the conditions of a pattern.
const AND: &[u8] = b" & ";
/// Conditions that only machine code has.
const OF_CODE: [&[u8]; 5] = [b"module:", b"section:", b"addr:", b"size:", b"has:"];

/// Whether a frame meets a condition; `None` if none can.
fn is_met(condition: &[u8], name: &[u8], file: &[u8]) -> Option<bool> {
    // `file::open` is a name.
    let keyed = |key: &[u8]| condition.strip_prefix(key).filter(|rest| !rest.starts_with(b":"));
    if condition.starts_with(b"/") || OF_CODE.iter().any(|key| keyed(key).is_some()) {
        return None;
    }
    Some(match keyed(b"file:") {
        Some(glob) => file_matches(glob, file),
        None => matches(condition, name, file),
    })
}

/// Whether a glob means a file: its path, or the end of it from a slash on.
fn file_matches(glob: &[u8], file: &[u8]) -> bool {
    let text = Text { module: &[], name: file, is_path: true };
    let begins = |at: &usize| *at == 0 || text.at(*at - 1) == Some(b'/');
    !glob.is_empty() && (0..text.len()).filter(begins).any(|at| text.matches_from(at, glob))
}

/// The module that a file is: its path without its ending. Python's frozen modules have their name
/// in place of a path.
#[must_use]
pub fn module_of(file: &[u8]) -> &[u8] {
    if let Some(frozen) = file.strip_prefix(b"<frozen ").and_then(|rest| rest.strip_suffix(b">")) {
        return frozen;
    }
    let begin = file.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let dot = file.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > begin);
    let stem = file.get(..dot.unwrap_or(file.len())).unwrap_or(file);
    stem.strip_suffix(OF_FOLDER).unwrap_or(stem)
}

/// `module.name`, or the name alone.
struct Text<'a> {
    module: &'a [u8],
    name: &'a [u8],
    /// Whether it is a path, of which `*` stands for any part.
    is_path: bool,
}

impl Text<'_> {
    /// Where the name begins.
    fn name_at(&self) -> usize {
        if self.module.is_empty() { 0 } else { self.module.len() + 1 }
    }

    fn len(&self) -> usize {
        self.name_at() + self.name.len()
    }

    fn at(&self, at: usize) -> Option<u8> {
        match at.checked_sub(self.name_at()) {
            Some(at) => self.name.get(at).copied(),
            None => Some(self.module.get(at).copied().unwrap_or(b'.')),
        }
    }

    /// Whether `*` and `?` may stand for this byte.
    fn is_any(&self, byte: u8) -> bool {
        self.is_path || byte != b'/'
    }

    fn is_separator(&self, wanted: u8, byte: u8) -> bool {
        !self.is_path && wanted == b'.' && byte == b'/'
    }

    fn begins_scope(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else { return true };
        at == self.name_at()
            || match self.at(before) {
                Some(b'.' | b'/') => true,
                Some(b':') => before.checked_sub(1).is_some_and(|before| self.at(before) == Some(b':')),
                _ => false,
            }
    }

    /// Whether all of the text from `at` on is what the pattern says.
    fn matches_from(&self, mut at: usize, pattern: &[u8]) -> bool {
        let mut next = 0;
        // Where to go on if what follows the last `*` doesn't match: it takes one more byte.
        let mut star = None;
        loop {
            let found = self.at(at);
            match (pattern.get(next), found) {
                (Some(b'*'), _) => {
                    next += 1;
                    star = Some((next, at));
                    continue;
                }
                (None, None) => return true,
                (Some(b'?'), Some(byte)) if self.is_any(byte) => {
                    next += 1;
                    at += 1;
                    // All bytes of a character.
                    while self.at(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
                        at += 1;
                    }
                    continue;
                }
                (Some(wanted), Some(byte)) if *wanted == byte || self.is_separator(*wanted, byte) => {
                    next += 1;
                    at += 1;
                    continue;
                }
                _ => {}
            }
            match star {
                Some((behind, from)) if self.at(from).is_some_and(|byte| self.is_any(byte)) => {
                    star = Some((behind, from + 1));
                    (next, at) = (behind, from + 1);
                }
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_selections() {
        let (name, file) = (b"Views.handle", b"/srv/app/views.py");
        for (rule, expected) in [
            ("+ handle", Some(true)),
            ("- handle", Some(false)),
            ("- views.*", Some(false)),
            ("+ other", None),
            ("+ !other", Some(true)),
            ("+ !handle", None),
            ("+ file:app/*.py", Some(true)),
            ("+ file:srv/*", Some(true)),
            ("+ file:views.py", Some(true)),
            ("+ file:iews.py", None),
            ("+ file:*.lua", None),
            ("- file:app/* & !Views.*", None),
            ("- file:app/* & Views.*", Some(false)),
            ("+ /handle/", None),
            ("+ !/handle/", None),
            ("- module:lib*", None),
            ("- !has:loop", None),
            ("+ size:<20 & handle", None),
            ("handle", None),
            ("+ ", None),
            ("", None),
        ] {
            assert_eq!(rule_says(rule.as_bytes(), name, file), expected, "{rule}");
        }
        assert_eq!(rule_says(b"+ file::open", b"file::open", b""), Some(true));
    }

    #[test]
    fn names_are_matched_alone_and_behind_their_file() {
        for (pattern, name, file, expected) in [
            ("handle", "handle", "/srv/app.py", true),
            ("app.handle", "handle", "/srv/app.py", true),
            ("srv.app.handle", "handle", "/srv/app.py", true),
            ("app.handle", "handle", "app.py", true),
            ("pp.handle", "handle", "/srv/app.py", false),
            ("app.handle", "handler", "/srv/app.py", false),
            ("app.handle", "handle", "/srv/app/views.py", false),
            ("app.*", "handle", "/srv/app/views.py", true),
            ("app.*", "handle", "/srv/app/web/views.py", false),
            ("app.web.*", "Views.handle", "/srv/app/web/views.py", true),
            ("app.handle", "handle", "/srv/app/__init__.py", true),
            ("Views.handle", "Views.handle", "views.py", true),
            ("handle", "Views.handle", "views.py", true),
            ("Views.*", "Views.handle", "", true),
            ("views.Views.h?ndle", "Views.händle", "views.py", true),
            ("h?ndle", "händle", "", true),
            ("h?ndle", "hndle", "", false),
            // A pattern without a dot doesn't look at files.
            ("app*", "handle", "/srv/app.py", false),
            ("h*", "f", "/home/app.py", false),
            ("h*.f", "f", "/home/x/app.py", false),
            ("*", "f", "/home/x/app.py", true),
            ("*.f", "f", "/home/x/app.py", true),
            ("Account::*", "bank::Account::deposit", "bank.lua", true),
            ("Account:deposit", "Account:deposit", "bank.lua", true),
            ("bank.Account:*", "Account:deposit", "/lib/bank.lua", true),
            ("f.<locals>.<lambda>", "f.<locals>.<lambda>", "a.py", true),
            ("<lambda>", "f.<locals>.<lambda>", "a.py", true),
            ("a*b*c", "aXbYbZc", "", true),
            ("a*b*c", "aXbYbZ", "", false),
            ("frozen importlib._bootstrap>.f", "f", "<frozen importlib._bootstrap>", false),
            ("importlib._bootstrap.f", "f", "<frozen importlib._bootstrap>", true),
            ("_bootstrap.f", "f", "<frozen importlib._bootstrap>", true),
            ("<string>.f", "f", "<string>", true),
            ("", "", "", false),
            ("f", "", "", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes(), file.as_bytes()),
                expected,
                "{pattern} {name} {file}"
            );
        }
    }
}
