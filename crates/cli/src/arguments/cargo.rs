//! `cargo`, which `cargo everycall` runs.

use clap::Args;

use super::record::RecordArguments;

/// `cargo`.
#[derive(Debug, Args)]
pub struct CargoArguments {
    /// Trace the crates of all dependencies, too; by default, those of the workspace
    #[arg(long)]
    pub all: bool,
    /// Trace this dependency, too, by the name of its package
    #[arg(long = "crate", value_name = "NAME")]
    pub crates: Vec<String>,
    /// How the program is recorded. Its `command` is the rest: cargo's verb and arguments
    #[command(flatten)]
    pub record: RecordArguments,
}
