//! Names whose values are never copied.

/// The list's default patterns.
const DEFAULT: [&str; 3] = ["password*", "*token*", "*secret*"];

/// Patterns of names, in which `*` stands for any letters. Case doesn't matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secrets {
    patterns: Vec<String>,
}

impl Default for Secrets {
    fn default() -> Self {
        Self { patterns: DEFAULT.iter().map(|&pattern| pattern.to_owned()).collect() }
    }
}

impl Secrets {
    /// A list with a pattern on each line. Empty lines and those that begin with `#` are left out.
    #[must_use]
    pub fn from_lines(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { patterns: lines.map(str::to_lowercase).collect() }
    }

    /// Whether a name is on the list.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
    }
}

/// Whether a name matches a pattern, in time bounded by the product of their lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while from < name.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            retry = Some((at, from));
        } else if pattern.get(at).is_some_and(|letter| Some(letter) == name.get(from)) {
            at += 1;
            from += 1;
        } else if let Some((star, begin)) = retry {
            at = star;
            from = begin + 1;
            retry = Some((star, from));
        } else {
            return false;
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_list() {
        let list = Secrets::default();
        for name in ["password", "Password2", "auth_token", "TOKEN", "client_secret_id"] {
            assert!(list.has(name), "{name}");
        }
        for name in ["pass", "old_password", "tok", "path", ""] {
            assert!(!list.has(name), "{name}");
        }
        let list = Secrets::from_lines("# of us\n\n pin*code \n");
        assert!(list.has("PIN_code") && !list.has("password"));
        assert!(!matches(b"*a*a*a*a*a*b", &[b'a'; 200]));
    }
}
