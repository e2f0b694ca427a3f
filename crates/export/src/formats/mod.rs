//! The formats that `everycall export` writes: one module for each.
//!
//! A new format needs a module with a [`Sink`](crate::driver::Sink) or a
//! [`DrawnSink`](crate::driver::DrawnSink), a line in each item of this file, and its golden file
//! in `tests/golden.rs`. The command, its help and its messages use the tables below.

mod chrome;
mod csv;
mod perfetto;
mod protobuf;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use crate::driver;
use crate::filter::Filter;
use crate::names::Names;
use crate::parse::ParseError;
use crate::source::Source;
use crate::summary::{Note, Summary};

/// A format that `export` can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Chrome JSON, with source code for vizviewer's panel.
    Vizviewer,
    /// Chrome JSON alone.
    Chrome,
    /// Perfetto's native format.
    Perfetto,
    /// Comma-separated values, one line per call.
    Csv,
}

/// Facts about a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatFacts {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub description: &'static str,
    /// File name extension, without the dot.
    pub ending: &'static str,
    /// How to view such a file; `{}` stands for the file's path.
    pub viewer: &'static str,
    /// Whether it contains source code, which may be confidential.
    pub has_sources: bool,
    /// Whether each slice repeats the calls that were inlined into its function, which makes large
    /// files much larger.
    pub repeats_inlined_calls: bool,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] = [Format::Vizviewer, Format::Chrome, Format::Perfetto, Format::Csv];

    /// The facts about it.
    #[must_use]
    pub fn facts(self) -> FormatFacts {
        match self {
            Format::Vizviewer => FormatFacts {
                name: "vizviewer",
                description: "Chrome JSON with source code",
                ending: "json",
                viewer: "open it with `vizviewer {}`",
                has_sources: true,
                repeats_inlined_calls: true,
            },
            Format::Chrome => FormatFacts {
                name: "chrome",
                description: "Chrome JSON",
                ending: "json",
                viewer: "open it at https://ui.perfetto.dev",
                has_sources: false,
                repeats_inlined_calls: true,
            },
            Format::Perfetto => FormatFacts {
                name: "perfetto",
                description: "Perfetto's protobuf",
                ending: "perfetto-trace",
                viewer: "open it at https://ui.perfetto.dev",
                has_sources: false,
                repeats_inlined_calls: false,
            },
            Format::Csv => FormatFacts {
                name: "csv",
                description: "one line per call, for spreadsheets and data frames",
                ending: "csv",
                viewer: "load it into a spreadsheet or a data frame",
                has_sources: false,
                repeats_inlined_calls: false,
            },
        }
    }
}

/// Writes what passes `filter` of `source` in a format.
pub(crate) fn write(
    format: Format,
    source: &impl Source,
    names: &dyn Names,
    filter: &Filter,
    notify: &mut dyn FnMut(Note),
    out: &mut dyn Write,
) -> io::Result<Summary> {
    match format {
        Format::Vizviewer => driver::draw(source, names, filter, notify, chrome::Chrome::new(out, true)),
        Format::Chrome => driver::draw(source, names, filter, notify, chrome::Chrome::new(out, false)),
        Format::Perfetto => driver::draw(source, names, filter, notify, perfetto::Perfetto::new(out)),
        Format::Csv => driver::run(source, names, filter, &mut csv::Csv::new(out)),
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.facts().name)
    }
}

impl FromStr for Format {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Format, ParseError> {
        Format::ALL.into_iter().find(|format| format.facts().name == text).ok_or_else(|| {
            let names = Format::ALL.map(|format| format.facts().name).join(", ");
            ParseError { text: text.to_owned(), reason: format!("is not a format; choose one of {names}") }
        })
    }
}
