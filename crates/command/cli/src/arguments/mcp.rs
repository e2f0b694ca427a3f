//! `mcp`.

use std::path::PathBuf;

use clap::Args;
use everycall_units::parse_time;

use super::common::{existing_folder, size};

/// `mcp`.
#[derive(Debug, Args)]
pub struct McpArguments {
    /// Folder with traces: only those in it are read, and new ones are written into it
    #[arg(long, value_name = "FOLDER", default_value = ".", value_parser = existing_folder())]
    pub folder: PathBuf,
    /// Also show source files below this folder; repeatable
    #[arg(long, value_name = "FOLDER", value_parser = existing_folder())]
    pub sources: Vec<PathBuf>,
    /// Let agents run this program, with any arguments, and record it; repeatable
    #[arg(long, value_name = "PROGRAM")]
    pub allow_record: Vec<PathBuf>,
    /// Let agents record traced programs of yours that run
    #[arg(long)]
    pub allow_attach: bool,
    /// How long one answer may take, and a recording last
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60s")]
    pub timeout: u64,
    /// Size of the data in one answer
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "32K")]
    pub answer_size: u64,
}
