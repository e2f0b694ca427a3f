//! `tui`.

use std::path::PathBuf;

use clap::Args;

use super::common::{FilterArguments, SymbolArguments};

/// `tui`.
#[derive(Debug, Args)]
pub struct TuiArguments {
    /// Trace file
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
}
