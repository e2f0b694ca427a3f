//! Parts of files for `--diff`: `FILE@2s..3s` is a range of time, `FILE@request=7` the calls with a label.

use std::path::{Path, PathBuf};

use everycall_export::LabelPattern;

use super::load::Load;
use crate::arguments::moment;
use crate::exit_code;
use crate::failure::Failure;

/// A file, or what is meant of it.
pub struct Part {
    pub path: PathBuf,
    /// The text behind the file's name.
    pub text: Option<String>,
}

impl Part {
    /// Parses a name: an existing file, or a part of one.
    pub fn parse(words: &Path) -> Part {
        let whole = Part { path: words.to_owned(), text: None };
        let Some(text) = words.to_str().filter(|_| words.symlink_metadata().is_err()) else { return whole };
        let mut places = text.match_indices('@').map(|(at, _)| text.split_at(at));
        match places.find(|(file, _)| Path::new(file).exists()) {
            Some((file, rest)) => Part { path: file.into(), text: Some(rest[1..].to_owned()) },
            None => whole,
        }
    }

    /// Adds its conditions to those of the options.
    pub fn load(&self, load: &Load) -> Result<Load, Failure> {
        let Some(text) = &self.text else { return Ok(load.clone()) };
        let file = self.path.display();
        let wrong = |reason: String| {
            Failure::new(
                exit_code::USAGE,
                format!(
                    "`{file}@{text}`: {reason}; write a range of time, such as {file}@1.5s..2s, or a label, such as {file}@request=7"
                ),
            )
        };
        let mut filter = load.filter.clone();
        for condition in text.split('@') {
            let twice = |what: &str| wrong(format!("{what} is given twice, here or by an option"));
            if let Some((from, to)) = condition.split_once("..") {
                let has_range =
                    filter.since_ns.is_some() || filter.since_wall.is_some() || filter.last_ns.is_some();
                if has_range || filter.until_ns.is_some() || filter.until_wall.is_some() {
                    return Err(twice("a range"));
                }
                let at = |text: &str| match text.trim() {
                    "" => Ok(None),
                    text => moment(text).map(Some).map_err(|error| wrong(format!("`{text}`: {error}"))),
                };
                let (from, to) = (at(from)?, at(to)?);
                (filter.since_ns, filter.since_wall) =
                    (from.as_ref().and_then(|of| of.after()), from.and_then(|of| of.wall()));
                (filter.until_ns, filter.until_wall) =
                    (to.as_ref().and_then(|of| of.after()), to.and_then(|of| of.wall()));
                if filter.since_ns.zip(filter.until_ns).is_some_and(|(since, until)| since > until) {
                    return Err(wrong("the range ends before it begins".to_owned()));
                }
            } else if moment(condition).is_ok() {
                return Err(wrong(format!("`{condition}` is one moment")));
            } else if filter.label.is_some() {
                return Err(twice("a label"));
            } else {
                let label: LabelPattern = condition.parse().map_err(|error| wrong(format!("{error}")))?;
                if label.name.is_empty() {
                    return Err(wrong("it names nothing".to_owned()));
                }
                filter.label = Some(label);
            }
        }
        Ok(load.of_part(filter, text))
    }
}
