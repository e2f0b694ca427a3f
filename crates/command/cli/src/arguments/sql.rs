//! `sql`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use everycall_units::parse_time;

use super::common::{FilterArguments, Force, SymbolArguments, size};

/// `sql`.
#[derive(Debug, Args)]
pub struct SqlArguments {
    /// Output format: a table for people, CSV, JSON with one object per line and row, or Parquet
    #[arg(short, long, value_enum, default_value_t = ResultFormat::Text)]
    pub format: ResultFormat,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// End the query after this time, such as 30s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub timeout: Option<u64>,
    /// How much the query may write into temporary files [default: 8G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub temp_size: Option<u64>,
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

/// How `sql` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// For people.
    Text,
    /// One line for each row, with a line of names above.
    Csv,
    /// One object for each row.
    Json,
    /// For DuckDB, ClickHouse, Spark, data frames.
    Parquet,
}
