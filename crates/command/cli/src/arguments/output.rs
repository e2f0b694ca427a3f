//! Traces shown and written: `info`, `replay`, `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use everycall_export::Format;

use super::common::{Clock, FilterArguments, Force, SymbolArguments, TextFormat, existing_folder};

/// `info`.
#[derive(Debug, Args)]
pub struct InfoArguments {
    /// Output format: text for people, JSON for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// In which time moments are shown
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Trace)]
    pub clock: Clock,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Output format: an indented tree, or JSON with one object per line and call
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// Show below each call which calls the compiler inlined into its function; these have no times
    #[arg(long)]
    pub inlines: bool,
    /// Number the calls of each function within their thread, from 1, as far as they are shown (in
    /// text)
    #[arg(long)]
    pub numbers: bool,
    /// Show durations without what the hooks cost in them, with error bars; when calls begin and end
    /// stays as it was measured
    #[arg(long)]
    pub corrected: bool,
    /// In which time moments are shown
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Trace)]
    pub clock: Clock,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Colour::Auto, alias = "colour")]
    pub color: Colour,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Format to write
    #[arg(short, long, default_value = "vizviewer", value_parser = format())]
    pub format: Format,
    /// File to write, - for standard output [default: the trace's name with the format's extension]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// In which time moments are written
    ///
    /// csv has columns of calendar time or ticks; chrome and vizviewer name the beginning in
    /// calendar time in otherData; perfetto always contains calendar time.
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Trace)]
    pub clock: Clock,
    /// Colour a flame graph by what changed since this older trace
    ///
    /// Red paths have more own time than in the older trace, blue ones less. The filters select
    /// from both traces.
    #[arg(long, value_name = "TRACE")]
    pub against: Option<PathBuf>,
    /// Show in each slice's details which calls the compiler inlined [default: on, except for JSON
    /// with more than 1,000,000 calls]
    #[arg(long)]
    pub inlines: bool,
    /// Leave out which calls the compiler inlined
    #[arg(long, conflicts_with = "inlines")]
    pub no_inlines: bool,
    /// Also include sources below this folder; repeatable
    ///
    /// Always included are sources below the compiler's working folder (of interpreters: the folder in
    /// which the program was recorded) or one of its parents, in --map-source targets, and in system
    /// folders such as /usr/include.
    #[arg(long, value_name = "FOLDER", value_parser = existing_folder())]
    pub source_folder: Vec<PathBuf>,
    /// Include sources from any folder, even if they changed since compilation
    #[arg(long)]
    pub any_source: bool,
    /// Let other users read the output even if it contains sources
    #[arg(long)]
    pub shared: bool,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

pub(super) fn format() -> impl clap::builder::TypedValueParser<Value = Format> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
    let values = Format::ALL.map(|format| {
        let facts = format.facts();
        PossibleValue::new(facts.name).help(facts.description)
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Format>())
}
