//! Processes and what is left of them: `snapshot`, `ps`, `core`.

use std::path::PathBuf;

use clap::Args;
use everycall_units::parse_time;

use super::common::{Force, TextFormat, process_id};
use super::record::ring_size;
use super::selection::OnlyArguments;

/// `snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArguments {
    /// Trace file to write [default: PROGRAM-PID.ect in the current folder]
    ///
    /// %p stands for the process id, %t for the local time, %% for a percent sign. An older
    /// recording of this name becomes NAME.old.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// Write only the newest events, covering at least this time, such as 200ms [default: all that
    /// the rings hold]
    ///
    /// Segments of 4 to 64 KiB are written whole, so the trace may reach back further.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub last: Option<u64>,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// Process ids, as `everycall ps` lists them
    #[arg(required = true, value_name = "PID", value_parser = process_id)]
    pub pids: Vec<u32>,
}

/// `attach`.
#[derive(Debug, Args)]
pub struct AttachArguments {
    /// Process id
    #[arg(value_name = "PID", value_parser = process_id)]
    pub pid: u32,
    /// Hooks in the program and libraries that match, such as 'libssl*,libcrypto*' [default: those
    /// in the program's folder]
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub modules: Vec<String>,
    /// Also small functions, which are left out otherwise
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub functions: OnlyArguments,
    /// Memory for each thread's newest events: a power of two from 64K to 1G; an event takes 8
    /// bytes [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub ring_size: Option<u64>,
    /// Stay, and write hooks into libraries that the process loads later; Ctrl-C takes all hooks out
    #[arg(long)]
    pub stay: bool,
}

/// `detach`.
#[derive(Debug, Args)]
pub struct DetachArguments {
    /// Process id
    #[arg(value_name = "PID", value_parser = process_id)]
    pub pid: u32,
}

/// `ps`.
#[derive(Debug, Args)]
pub struct PsArguments {
    /// Folders with crash files, in addition to EVERYCALL_CRASH and the folders of running programs
    #[arg(value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// Output format: text for people, JSON for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `core`.
#[derive(Debug, Args)]
pub struct CoreArguments {
    /// Trace file to write [default: the core's name and .ect, in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// The program's file, if it is no longer at the path that it ran from
    #[arg(long, value_name = "FILE")]
    pub exe: Option<PathBuf>,
    /// Process whose calls to extract, if the core contains the memory of several processes
    #[arg(long, value_name = "PID", value_parser = process_id)]
    pub pid: Option<u32>,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// Core dump
    pub core: PathBuf,
}
