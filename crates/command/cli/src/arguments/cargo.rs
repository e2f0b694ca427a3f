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
    /// Whether tracing is on when what is built starts by itself; `record` and EVERYCALL_START go
    /// before it
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub start: everycall_compiler::Start,
    /// How the program is recorded. Its `command` is the rest: cargo's verb and arguments
    #[command(flatten)]
    pub record: RecordArguments,
}
