//! `why`.

use std::path::PathBuf;

use clap::Args;
use everycall_units::parse_time;

use super::common::{SymbolArguments, TextFormat};

/// `why`.
#[derive(Debug, Args)]
pub struct WhyArguments {
    /// Output format: a page for people, or everything for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// Explain the slowest call of this function: a name with * and ?, or /REGEX/ [default: the
    /// slowest kept call, or the call that is farthest above the median of its function]
    #[arg(long, value_name = "FUNCTION")]
    pub function: Option<String>,
    /// Explain the call that began at this time, such as 1.204123456s, as `everycall report
    /// --slowest` prints it
    ///
    /// Of calls within each other that began then, the outermost, or with --function the outermost
    /// one of these functions.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub call: Option<u64>,
    /// Only calls of this thread, fiber or task, such as 1234 or 'task 4'
    #[arg(long, value_name = "TID", value_parser = thread)]
    pub tid: Option<u32>,
    /// Explain the kept call with this number in `everycall info`
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["function", "call", "tid"])]
    pub kept: Option<usize>,
    /// Count the time of tail calls, as `report --tails` does; on for a kept call that was found by
    /// its tail call
    #[arg(long)]
    pub tails: bool,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// One thread, as `--tid` of other verbs takes several.
fn thread(text: &str) -> Result<u32, String> {
    match everycall_export::parse_threads(text).map_err(|error| error.to_string())?.as_slice() {
        [one] => Ok(*one),
        _ => Err("write one thread".to_owned()),
    }
}
