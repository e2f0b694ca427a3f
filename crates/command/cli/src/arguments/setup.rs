//! The command itself: `man`, `completions`, `setup-tracefs`.

use std::path::PathBuf;

use clap::Args;

/// `man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// Verb whose page to print [default: the page of the whole command]
    #[arg(conflicts_with = "install")]
    pub verb: Option<String>,
    /// Write all pages into the folder man1 below this one
    #[arg(long, value_name = "FOLDER")]
    pub install: Option<PathBuf>,
}

/// `setup-tracefs`.
#[derive(Debug, Args)]
pub struct SetupTracefsArguments {
    /// User, by name or number
    #[arg(long)]
    pub user: String,
    /// Take it back
    #[arg(long)]
    pub undo: bool,
}

/// `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// Shell
    pub shell: clap_complete::Shell,
}
