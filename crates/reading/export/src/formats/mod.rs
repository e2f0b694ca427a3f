//! The formats that `everycall export` writes: one module for each.
//!
//! A new format needs a module with a [`Sink`](crate::driver::Sink), a
//! [`DrawnSink`](crate::driver::DrawnSink) or a function of [`CallSums`](crate::driver::CallSums),
//! a line in each item of this file, its golden file in `tests/export/golden.rs`, and a row in
//! `docs/reference/exports.md`. The command, its help and its messages use the tables below.

mod callgrind;
mod chrome;
mod csv;
mod firefox;
mod flamegraph;
mod folded;
mod graph;
mod parquet;
mod perfetto;
mod pprof;
mod protobuf;
mod speedscope;

pub use flamegraph::flamegraph_against;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use crate::driver;
use crate::filter::Filter;
use crate::names::Names;
use crate::parse::ParseError;
use crate::replay_json::JsonLines;
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
    /// JSON lines, one per call.
    Jsonl,
    /// Parquet, one row per call.
    Parquet,
    /// speedscope's own format.
    Speedscope,
    /// The Firefox Profiler's processed profile.
    Firefox,
    /// Folded stacks, for flame graphs.
    Folded,
    /// A flame graph.
    Flamegraph,
    /// pprof's protobuf.
    Pprof,
    /// callgrind's profile format.
    Callgrind,
    /// A call graph for Graphviz.
    Dot,
    /// A call graph for Mermaid.
    Mermaid,
}

/// Facts about a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatFacts {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its description, in a few words.
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
    /// Whether it shows where events are missing.
    pub marks_losses: bool,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 14] = [
        Format::Vizviewer,
        Format::Chrome,
        Format::Perfetto,
        Format::Csv,
        Format::Jsonl,
        Format::Parquet,
        Format::Speedscope,
        Format::Firefox,
        Format::Folded,
        Format::Flamegraph,
        Format::Pprof,
        Format::Callgrind,
        Format::Dot,
        Format::Mermaid,
    ];

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
                marks_losses: true,
            },
            Format::Chrome => FormatFacts {
                name: "chrome",
                description: "Chrome JSON",
                ending: "json",
                viewer: "open it at https://ui.perfetto.dev",
                has_sources: false,
                repeats_inlined_calls: true,
                marks_losses: true,
            },
            Format::Perfetto => FormatFacts {
                name: "perfetto",
                description: "Perfetto's protobuf",
                ending: "perfetto-trace",
                viewer: "open it at https://ui.perfetto.dev",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: true,
            },
            Format::Csv => FormatFacts {
                name: "csv",
                description: "one line per call, for spreadsheets and data frames",
                ending: "csv",
                viewer: "load it into a spreadsheet or a data frame",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: true,
            },
            Format::Jsonl => FormatFacts {
                name: "jsonl",
                description: "one JSON object per call and line, as `replay --format json` prints",
                ending: "jsonl",
                viewer: "load it into a data frame, or read it with `jq`",
                has_sources: false,
                repeats_inlined_calls: true,
                marks_losses: true,
            },
            Format::Parquet => FormatFacts {
                name: "parquet",
                description: "one row per call, for DuckDB, Spark, ClickHouse and data frames",
                ending: "parquet",
                viewer: "query it with `duckdb` or a data frame",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: true,
            },
            Format::Speedscope => FormatFacts {
                name: "speedscope",
                description: "speedscope's timelines and flame graphs",
                ending: "speedscope.json",
                viewer: "open it at https://www.speedscope.app",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: true,
            },
            Format::Firefox => FormatFacts {
                name: "firefox",
                description: "stack charts, call trees and markers of the Firefox Profiler",
                ending: "firefox.json",
                viewer: "open it at https://profiler.firefox.com",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: true,
            },
            Format::Folded => FormatFacts {
                name: "folded",
                description: "own time of each call path, for flame graphs",
                ending: "folded",
                viewer: "draw it with `inferno-flamegraph --countname ns {} > flame.svg`",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: false,
            },
            Format::Flamegraph => FormatFacts {
                name: "flamegraph",
                description: "flame graph as an SVG picture that zooms and searches",
                ending: "svg",
                viewer: "open it in a browser",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: false,
            },
            Format::Pprof => FormatFacts {
                name: "pprof",
                description: "calls and own time of each call path",
                ending: "pb.gz",
                viewer: "open it with `go tool pprof -http=: {}`",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: false,
            },
            Format::Callgrind => FormatFacts {
                name: "callgrind",
                description: "own time of functions, calls and time of callers and callees",
                ending: "callgrind",
                viewer: "open it with `kcachegrind {}` or `callgrind_annotate {}`",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: false,
            },
            Format::Dot => FormatFacts {
                name: "dot",
                description: "call graph of the functions with the most time, for Graphviz",
                ending: "dot",
                viewer: "draw it with `dot -Tsvg -O {}`",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: false,
            },
            Format::Mermaid => FormatFacts {
                name: "mermaid",
                description: "the same for Mermaid, which GitHub and GitLab draw",
                ending: "mmd",
                viewer: "paste it into a Markdown file as a block of `mermaid`",
                has_sources: false,
                repeats_inlined_calls: false,
                marks_losses: false,
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
    let of = (source, names);
    let summary = match format {
        Format::Vizviewer => driver::draw(source, names, filter, notify, chrome::Chrome::new(out, true)),
        Format::Chrome => driver::draw(source, names, filter, notify, chrome::Chrome::new(out, false)),
        Format::Perfetto => driver::draw(source, names, filter, notify, perfetto::Perfetto::new(out)),
        Format::Csv => driver::run(source, names, filter, notify, &mut csv::Csv::new(out)),
        Format::Jsonl => driver::run(source, names, filter, notify, &mut JsonLines::new(out)),
        Format::Parquet => driver::run(source, names, filter, notify, &mut parquet::Parquet::new(out)),
        Format::Speedscope => {
            driver::run(source, names, filter, notify, &mut speedscope::Speedscope::new(out))
        }
        Format::Firefox => {
            let (since_ns, _) = filter.bounds(source);
            driver::run(source, names, filter, notify, &mut firefox::Firefox::new(out, since_ns))
        }
        Format::Folded => driver::sum(of, filter, notify, out, folded::write),
        Format::Flamegraph => driver::sum(of, filter, notify, out, flamegraph::write),
        Format::Pprof => driver::sum(of, filter, notify, out, pprof::write),
        Format::Callgrind => driver::sum(of, filter, notify, out, callgrind::write),
        Format::Dot | Format::Mermaid => driver::sum(of, filter, notify, out, |pairs, export, portions| {
            let is_dot = format == Format::Dot;
            let language = if is_dot { graph::Language::Dot } else { graph::Language::Mermaid };
            graph::write(language, pairs, export, portions)
        }),
    }?;
    if summary.deep_calls > 0 {
        notify(Note::DeepCalls { calls: summary.deep_calls });
    }
    if summary.other_calls > 0 {
        notify(Note::ManyPaths { calls: summary.other_calls });
    }
    Ok(summary)
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
