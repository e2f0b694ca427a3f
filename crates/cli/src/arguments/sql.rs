//! `sql`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::common::{FilterArguments, SymbolArguments};
use super::numbers::TableFormat;

/// `sql`.
#[derive(Debug, Args)]
pub struct SqlArguments {
    /// Output format: a table for people, CSV, or JSON with one object per line and row
    #[arg(short, long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the tables with their columns
    #[arg(long)]
    pub schema: bool,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace files, then the query; - reads the query from standard input, @FILE from a file
    #[arg(required_unless_present = "schema", value_name = "TRACE... QUERY", num_args = 1..)]
    pub words: Vec<OsString>,
}
