//! Errors that point at a place in what was written.

use std::fmt;
use std::ops::Range;

/// Why an expression can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError {
    /// The text as it was written.
    pub text: String,
    /// The part that is wrong.
    pub span: Range<usize>,
    /// The mistake, in one sentence without a full stop.
    pub message: String,
    /// Advice: the right spelling, or the names that there are.
    pub help: Option<String>,
}

impl ArgumentError {
    pub(crate) fn new(text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        Self { text: text.to_owned(), span, message: message.into(), help: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.span.start).map_or(0, |before| before.chars().count());
        let marked =
            self.text.get(self.span.clone()).map_or(1, |part| part.trim_end().chars().count().max(1));
        writeln!(out, "{}", self.message)?;
        writeln!(out, "  {}", self.text)?;
        write!(out, "  {}{}", " ".repeat(before), "^".repeat(marked))?;
        match &self.help {
            Some(help) => write!(out, "\n  {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ArgumentError {}
