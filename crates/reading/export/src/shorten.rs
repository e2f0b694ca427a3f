//! Shortens names: first the text in their parentheses and angle brackets is removed, then their
//! scopes, then their end.

/// A text with its shorter forms.
#[derive(Clone, Default)]
pub(crate) struct Shortable {
    pub(crate) whole: String,
    whole_columns: usize,
    elided: String,
    elided_columns: usize,
}

pub(crate) fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

impl Shortable {
    pub(crate) fn new(whole: String) -> Shortable {
        let elided = elide_brackets(&whole);
        Shortable { whole_columns: columns(&whole), elided_columns: columns(&elided), whole, elided }
    }

    /// A text in which brackets and scopes have no meaning.
    pub(crate) fn plain(whole: String) -> Shortable {
        let whole_columns = columns(&whole);
        Shortable { elided: whole.clone(), elided_columns: whole_columns, whole, whole_columns }
    }

    /// Appends what fits into `room` columns. Returns its width.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>, room: usize) -> usize {
        if self.whole_columns <= room {
            bytes.extend_from_slice(self.whole.as_bytes());
            return self.whole_columns;
        }
        if self.elided_columns <= room {
            bytes.extend_from_slice(self.elided.as_bytes());
            return self.elided_columns;
        }
        // Removes outer scopes first; the function's own name stays.
        for (at, _) in self.elided.match_indices("::") {
            let own = &self.elided[at..];
            let width = 1 + columns(own);
            if width <= room {
                bytes.extend_from_slice("…".as_bytes());
                bytes.extend_from_slice(own.as_bytes());
                return width;
            }
        }
        let kept = room.saturating_sub(1);
        let end = self.elided.char_indices().nth(kept).map_or(self.elided.len(), |(end, _)| end);
        bytes.extend_from_slice(&self.elided.as_bytes()[..end]);
        bytes.extend_from_slice("…".as_bytes());
        kept + 1
    }

    pub(crate) fn fitting(&self, room: usize) -> String {
        let mut bytes = Vec::new();
        self.put(&mut bytes, room);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A function's name in at most `width` columns, as `replay` shows it: template and call arguments
/// are removed first, then outer scopes.
#[must_use]
pub fn shortened_name(name: &str, width: usize) -> String {
    Shortable::new(name.to_owned()).fitting(width)
}

/// How much text for people shows of functions' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameLength {
    /// As many columns as fit, and never more than [`NameLength::MAX`].
    #[default]
    Fitting,
    /// All of it.
    Whole,
}

impl NameLength {
    /// Largest number of columns of a name where lines may have any length.
    pub const MAX: usize = 200;

    /// The number of columns for a name. `room`: those that the line has left, if it is limited.
    #[must_use]
    pub fn columns(self, room: Option<usize>) -> usize {
        match self {
            NameLength::Fitting => room.map_or(Self::MAX, |room| room.min(Self::MAX)),
            NameLength::Whole => usize::MAX,
        }
    }

    /// The text that is shown for a name.
    #[must_use]
    pub fn shown(self, name: &str, room: Option<usize>) -> String {
        let most = self.columns(room);
        if columns(name) <= most { name.to_owned() } else { shortened_name(name, most) }
    }
}

/// `f<…>(…)` for `f<int>(std::vector<int>)`; the symbol of an `operator` stays.
fn elide_brackets(name: &str) -> String {
    let mut short = String::new();
    let mut nesting = 0u32;
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        if nesting == 0 && (rest.starts_with("operator") || rest.starts_with("(anonymous namespace)")) {
            let symbol = |c: char| !c.is_alphanumeric() && !matches!(c, ' ' | '_');
            let word = if rest.starts_with('(') { "(anonymous namespace)" } else { "operator" };
            let end = match &rest[word.len()..] {
                _ if word.starts_with('(') => word.len(),
                after if after.starts_with("()") => word.len() + 2,
                after => word.len() + after.find(|c| !symbol(c) || c == '(').unwrap_or(after.len()),
            };
            short.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let closes = matches!(character, ')' | '>') && !short.ends_with('-');
        if closes && nesting > 0 {
            nesting -= 1;
        }
        if nesting == 0 {
            short.push(character);
        }
        if matches!(character, '(' | '<') {
            if nesting == 0 && !rest[1..].starts_with([')', '>']) {
                short.push('…');
            }
            nesting += 1;
        }
        rest = &rest[character.len_utf8()..];
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_limit_unless_all_is_wanted() {
        let name = format!("f<{}>(int)", "std::string, ".repeat(40));
        assert_eq!(NameLength::Fitting.shown(&name, None), "f<…>(…)");
        assert_eq!(NameLength::Fitting.shown(&name, Some(6)), "f<…>(…");
        assert_eq!(NameLength::Fitting.shown("f<int>(int)", None), "f<int>(int)");
        assert_eq!(NameLength::Whole.shown(&name, Some(6)), name);
        let limit = "x".repeat(NameLength::MAX);
        assert_eq!(NameLength::Fitting.shown(&limit, Some(1_000)), limit);
        assert_eq!(columns(&NameLength::Fitting.shown(&(limit + "x"), Some(1_000))), NameLength::MAX);
    }

    #[test]
    fn long_names_lose_their_arguments_first() {
        let name = "ns::f<std::map<int, char> >(std::vector<int> const&, long) const";
        let label = Shortable::new(name.to_owned());
        assert_eq!(label.fitting(200), name);
        assert_eq!(label.fitting(30), "ns::f<…>(…) const");
        assert_eq!(label.fitting(16), "…::f<…>(…) const");
        assert_eq!(label.fitting(10), "ns::f<…>(…");
        assert_eq!(label.put(&mut Vec::new(), 10), 10);
        assert_eq!(label.put(&mut Vec::new(), 16), 16);
        for (name, short) in [
            ("f()", "f()"),
            ("(anonymous namespace)::g(int)", "(anonymous namespace)::g(…)"),
            ("A::operator()(int) const", "A::operator()(…) const"),
            ("operator<<(std::ostream&, A)", "operator<<(…)"),
            ("A::operator->() const", "A::operator->() const"),
            ("A<1>::operator std::vector<int>()", "A<…>::operator std::vector<…>()"),
            (">)(<", ">)(…"),
            ("<T as U<V>>::f", "<…>::f"),
        ] {
            assert_eq!(elide_brackets(name), short);
        }
    }
}
