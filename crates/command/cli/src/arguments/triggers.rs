//! Triggers: `record --trigger`, `trigger`, `resolve`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use everycall_triggers::Trigger;
use everycall_units::parse_time;

use super::common::{Force, size};
use super::recorded::ValueArguments;
use super::selection::OnlyArguments;

/// Which calls are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Slow calls")]
pub struct TriggerArguments {
    /// Save a snapshot when a call takes longer, as in 'handle_request > 20ms'; repeatable
    ///
    /// Each kept call adds a snapshot to the trace: all that it called, and the newest events of
    /// all other threads.
    ///
    /// The function's name may be mangled or demangled, with or without scope, return type and
    /// parameters; * matches anything.
    ///
    /// Conditions: 'f > 20ms' (a time); 'f > p99' (slower than 99% of its calls in the last ten
    /// seconds); 'f entered' (every call); 'f threw std::bad_alloc' (a C++ exception of this type
    /// is thrown in it; 'f threw': of any type; 'threw app::*': in whatever call); 'signal USR1' or
    /// 'signal USR2' (sent to this command, not to the program). 'f returned < 0' keeps calls by
    /// their results. With 'if', only calls whose arguments are such are meant: 'f > 20ms if len >
    /// 4096', 'f entered if req->method == "POST"'. docs/reference/arguments.md has the whole
    /// language.
    ///
    /// If f ends in a tail call, the time includes the function that it jumps to ('f+tail > 20ms'
    /// means the same). If that function isn't traced, the time ends at the thread's next event and
    /// is shown as "at most". Such a call, which may have been shorter than the time, never takes
    /// the place of one that was certainly longer. 'f-tail > 20ms' excludes tail calls.
    #[arg(long, value_name = "CONDITION")]
    pub trigger: Vec<Trigger>,
    #[command(flatten)]
    pub keep: KeepArguments,
}

/// How many calls are kept, and which.
#[derive(Debug, Default, Args)]
pub struct KeepArguments {
    /// Keep at most this many calls of each trigger [default: as many as --keep-size allows]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "trigger")]
    pub keep: Option<u32>,
    /// Which calls to keep if there are more [default: slowest]
    #[arg(long, value_enum, requires = "trigger")]
    pub keep_by: Option<KeepBy>,
    /// Disk space for the snapshots of all kept calls together, such as 1G [default: 256M]
    ///
    /// Each trigger gets an equal part. When it is full, --keep-by says which calls stay.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "trigger")]
    pub keep_size: Option<u64>,
    /// Keep at most one call of each trigger per interval, such as 1s [default: no limit]
    ///
    /// With --keep-by slowest, it is the slowest call of the interval.
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "trigger")]
    pub keep_every: Option<u64>,
    /// Memory for events of calls that may be kept, in addition to each thread's ring, such as 256M
    /// [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "trigger")]
    pub trigger_memory: Option<u64>,
}

/// `trigger`.
#[derive(Debug, Args)]
pub struct LiveTriggerArguments {
    /// Process id, as `everycall ps` lists it; a program that was built without everycall gets
    /// hooks
    #[arg(value_name = "PID")]
    pub pid: u32,
    /// Which calls: 'f > 20ms', 'f > p99', 'f entered', 'f threw std::bad_alloc'; see --trigger in
    /// `everycall record --help`
    #[arg(id = "trigger", required = true, value_name = "CONDITION")]
    pub conditions: Vec<Trigger>,
    /// How long to keep calls, such as 10s [default: until Ctrl-C or the end of the program]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub time: Option<u64>,
    #[command(flatten)]
    pub values: ValueArguments,
    /// End when this many calls are kept
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
    /// Trace file to write [default: PROGRAM-PID.ect in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// Print no report
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub keep: KeepArguments,
}

/// `resolve`.
#[derive(Debug, Args)]
pub struct ResolveArguments {
    /// File to write, with triggers, a selection, or values [default: FILE.ecs in the current
    /// folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub functions: OnlyArguments,
    #[command(flatten)]
    pub values: ValueArguments,
    #[command(flatten)]
    pub triggers: TriggerArguments,
    /// The program, and the libraries that it loads at run time; libraries that it links are found
    /// automatically
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Which calls stay where there are more than are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeepBy {
    /// The slowest ones.
    Slowest,
    /// The first ones.
    First,
    /// The newest ones.
    Newest,
}
