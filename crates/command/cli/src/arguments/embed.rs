//! `embed`, and what `record` embeds.

use std::path::PathBuf;

use clap::Args;

use super::common::{SymbolArguments, existing_folder};

/// `embed`.
#[derive(Debug, Args)]
pub struct EmbedArguments {
    /// Put in symbols only, no source code
    #[arg(long)]
    pub no_sources: bool,
    /// Take symbols and sources out again
    #[arg(long, conflicts_with_all = ["no_sources", "any_source", "source_folder"])]
    pub remove: bool,
    /// Also put in sources below this folder; repeatable
    ///
    /// Always put in are sources below the compiler's working folder (of interpreters: the folder in
    /// which the program was recorded) or one of its parents, in --map-source targets, and in system
    /// folders such as /usr/include.
    #[arg(long, value_name = "FOLDER", value_parser = existing_folder())]
    pub source_folder: Vec<PathBuf>,
    /// Put in sources from any folder, even if they changed since compilation
    #[arg(long)]
    pub any_source: bool,
    /// Print no report
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace files
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
}

/// Options of `record` for embedding.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct EmbedChoice {
    /// Put the symbols of the recorded functions and their sources into the trace, so that it needs
    /// no other file any more
    ///
    /// By default, symbols without sources are put in where that takes at most 50 ms and a tenth of
    /// the recording's time. `everycall embed` does it later.
    #[arg(long)]
    pub embed: bool,
    /// Put no symbols into the trace
    #[arg(long, conflicts_with = "embed")]
    pub no_embed: bool,
    /// With --embed, put in symbols only, no source code
    #[arg(long, requires = "embed")]
    pub no_sources: bool,
}
