//! `view`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::common::{FilterArguments, Force, SymbolArguments, existing_folder, large_size};

/// `view`.
#[derive(Debug, Args)]
pub struct ViewArguments {
    /// Trace files, of which two can be compared; or the process id of a traced program that runs,
    /// as `everycall ps` lists it
    #[arg(required_unless_present = "command", value_name = "TRACE|PID", conflicts_with = "command")]
    pub traces: Vec<PathBuf>,
    /// Show a program while it runs: the process that is named, or the one that is started
    ///
    /// The timeline follows the newest calls. Of a program that is started, everything is shown from
    /// its first call on, as far as --keep has room.
    #[arg(long, conflicts_with_all = ["html", "kept", "since", "until"])]
    pub live: bool,
    /// With a running program: memory for its newest events, such as 64M; an event takes 8 bytes
    #[arg(long, value_name = "SIZE", value_parser = large_size, default_value = "32M")]
    pub keep: u64,
    /// Show the calls of this function as frames: a bar for each, the worst one, a histogram
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["html", "kept"])]
    pub frame: Option<String>,
    /// Print the page's address, and leave it to you to open it
    ///
    /// It serves until Ctrl-C.
    #[arg(long, alias = "print-url")]
    pub no_browser: bool,
    /// Port on this machine [default: any that is free]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Write one page that holds everything into this file, instead of serving
    ///
    /// It needs nothing else: it can be sent, and opened years later. It contains the sources of
    /// the functions shown, as far as they may be shown.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// With --html: let other users read the file
    #[arg(long, requires = "html")]
    pub shared: bool,
    /// Also show sources below this folder; repeatable
    ///
    /// Always shown are sources below the compiler's working folder (of interpreters: the folder in
    /// which the program was recorded) or one of its parents, in --map-source targets, and in system
    /// folders such as /usr/include.
    #[arg(long, value_name = "FOLDER", value_parser = existing_folder())]
    pub source_folder: Vec<PathBuf>,
    /// Show sources from any folder, even if they changed since compilation
    #[arg(long)]
    pub any_source: bool,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// With --live: the program to start, and its arguments
    #[arg(last = true, value_name = "PROGRAM", requires = "live")]
    pub command: Vec<OsString>,
}
