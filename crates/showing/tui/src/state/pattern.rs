//! Searches: as in the viewer's page, a part of a name in any case, or `/REGEX/`.

use regex::{Regex, RegexBuilder};

/// A search.
#[derive(Clone, Debug)]
pub struct Pattern {
    pub text: String,
    regex: Regex,
}

impl Pattern {
    /// The meaning of a text; an error is a sentence.
    pub fn new(text: &str) -> Result<Pattern, String> {
        let expression = text.strip_prefix('/').and_then(|text| text.strip_suffix('/'));
        let (expression, is_exact) = match expression {
            Some(expression) => (expression.to_owned(), true),
            None => (regex::escape(text), false),
        };
        let built = RegexBuilder::new(&expression).case_insensitive(!is_exact).build();
        let regex = built.map_err(|_| format!("{text} is no regular expression"))?;
        Ok(Pattern { text: text.to_owned(), regex })
    }

    /// Whether the text matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}
