//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use everycall_export::{Filter, Format, LabelPattern, parse_function, parse_ids};
use everycall_format::env::{RING_SIZE_ALLOWED, parse_ring_size};
use everycall_symbols::PathMap;
use everycall_triggers::Trigger;
use everycall_units::{parse_size, parse_time};
use regex::Regex;

const EXAMPLES: &str = "\
Records every function call of a program, and shows what happened.

  everycall cc -- g++ -O2 -g app.cpp -o app           builds it for tracing
  everycall record -o app.ect -- ./app args           runs it and writes a trace
  everycall replay app.ect                            the calls as a tree
  everycall export -f vizviewer -o app.json app.ect   for vizviewer";

/// Records every function call of a program, and shows what happened.
#[derive(Debug, Parser)]
#[command(name = "everycall", version, about = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a compiler so that what it builds can be traced
    ///
    /// Also as everycall-gcc, everycall-g++, everycall-clang and everycall-clang++, which are other names of this
    /// program. `everycall cc --help` tells more.
    #[command(disable_help_flag = true)]
    Cc {
        /// [--mode MODE] -- COMPILER ARGUMENTS...
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a program and write its trace
    ///
    /// The program finds everything as without everycall, and this command ends with its exit status or signal.
    #[command(override_usage = "everycall record [OPTIONS] [--] PROGRAM [ARGUMENTS]...")]
    Record(RecordArguments),
    /// Find the functions of triggers, for programs that are started without record
    ///
    /// Writes a file that EVERYCALL_TRIGGERS names where the program is started, by whomever: each call that is kept becomes a trace
    /// in the folder that the program starts in, or that EVERYCALL_SNAPSHOT_FOLDER names. The file is for these very builds of the program and its
    /// libraries.
    Resolve(ResolveArguments),
    /// Get the trace of a running program, without touching it
    ///
    /// The program needs not run under record. It gets no signal, and nothing in it waits: what its threads' rings hold at this moment
    /// is held in its memory, copied into a file, and released.
    Snapshot(SnapshotArguments),
    /// List the running programs of which snapshots can be taken, and the crash files of those that died
    Ps(PsArguments),
    /// Get the trace out of a core dump
    ///
    /// The program needs not have run under record. Cores packed by systemd-coredump (zstd, lz4) are read as they are, and so is
    /// what `everycall snapshot` writes in gdb (see gdb-script).
    Core(CoreArguments),
    /// Print a command for gdb that takes a snapshot of a live process or a core
    ///
    /// In gdb: source <(everycall gdb-script), or keep it in a file; then: everycall snapshot FILE
    GdbScript,
    /// Tell what a trace holds, and what it lost
    Info(InfoArguments),
    /// Print the calls as an indented tree, with durations
    Replay(ReplayArguments),
    /// Write a trace for a viewer
    Export(ExportArguments),
    /// Write pkg-config files and a CMake package for builds without a prefix
    Integrate {
        /// Where to; it is made if it isn't there
        folder: PathBuf,
    },
}

/// `record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// Trace file to write; PROGRAM.ect in the current folder unless told otherwise
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Memory for each thread's newest events: a power of two from 64K to 1G, 8 bytes for an event [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub ring_size: Option<u64>,
    /// Write all events to the file while the program runs, not the newest ones at its end
    ///
    /// Where the disk can't keep up, events are lost, and the file says where and how many.
    #[arg(long)]
    pub stream: bool,
    /// Let the program wait where the disk can't keep up, so that no event is lost
    #[arg(long, requires = "stream")]
    pub stall: bool,
    /// Memory for events that wait to be written, beside each thread's ring, such as 64M [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = large_size, requires = "stream")]
    pub stream_memory: Option<u64>,
    /// Go on in another file after so many bytes: app.0001.ect, app.0002.ect, ... [default with --keep-files: 1G]
    #[arg(long, value_name = "SIZE", value_parser = large_size, requires = "stream")]
    pub file_size: Option<u64>,
    /// Go on in another file after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = file_age, requires = "stream")]
    pub file_age: Option<u64>,
    /// Keep only the newest so many files, those of earlier runs with this name included
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), requires = "stream")]
    pub keep_files: Option<u32>,
    #[command(flatten)]
    pub triggers: TriggerArguments,
    /// Load the runtime into a program that carries none, for the traced plugins that it loads
    #[arg(long)]
    pub preload: bool,
    /// The program has no traced functions itself, but starts one that has
    #[arg(long)]
    pub launcher: bool,
    /// Record the program alone: what it forks or starts runs untraced and is listed
    #[arg(long)]
    pub no_follow: bool,
    /// Wait for every process that is recorded, not only for the program
    #[arg(long, conflicts_with = "no_follow")]
    pub wait: bool,
    /// Say nothing at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Which calls are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Slow calls")]
pub struct TriggerArguments {
    /// Keep the moment whenever a call takes longer, as in 'handle_request > 20ms'; may be given several times
    ///
    /// The function is named as people or the linker write it, with or without scope, result and parameters; * stands for anything. For each
    /// call that is kept, the trace gets a snapshot of its own: all that it called, and all other threads as far back as their
    /// memory reaches. Besides a time there are 'f > p99', longer than so many of a hundred of its calls in the last ten seconds; 'f entered'; and 'signal USR1' or
    /// 'signal USR2': this command gets the signal, the program doesn't.
    #[arg(long, value_name = "CONDITION")]
    pub trigger: Vec<Trigger>,
    /// Keep so many calls of each trigger at most [default: 20]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "trigger")]
    pub keep: Option<u32>,
    /// Which ones, where there are more [default: slowest]
    #[arg(long, value_enum, requires = "trigger")]
    pub keep_by: Option<KeepBy>,
    /// Keep at most one of each trigger in this time; 0 for all of them [default: 1s]
    ///
    /// With --keep-by slowest, it is the slowest one of that time.
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "trigger")]
    pub keep_every: Option<u64>,
    /// Memory for the events of calls that may be kept, beyond each thread's own, such as 256M [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "trigger")]
    pub trigger_memory: Option<u64>,
}

/// `resolve`.
#[derive(Debug, Args)]
pub struct ResolveArguments {
    /// File to write; FILE.ecs in the current folder unless told otherwise
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Say nothing at the end
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub triggers: TriggerArguments,
    /// The program, and libraries that it loads while it runs; those that it is linked with, of its own, are found
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// `snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArguments {
    /// Trace file to write; PROGRAM-PID.ect in the current folder unless told otherwise
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// At least the last so much, such as 200ms; everything that is there unless told otherwise
    ///
    /// Events are kept in pieces of 4 to 64 KiB, of which whole ones are written: the trace may reach back further.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub last: Option<u64>,
    /// Say nothing at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// Process ids, as `everycall ps` lists them
    #[arg(required = true, value_name = "PID")]
    pub pids: Vec<u32>,
}

/// `ps`.
#[derive(Debug, Args)]
pub struct PsArguments {
    /// Folders with crash files, besides that of EVERYCALL_CRASH and those of the programs that run
    #[arg(value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `core`.
#[derive(Debug, Args)]
pub struct CoreArguments {
    /// Trace file to write; the core's name with .ect behind it, in the current folder, unless told otherwise
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The program's file, where it isn't at the path that it ran from
    #[arg(long, value_name = "FILE")]
    pub exe: Option<PathBuf>,
    /// The calls of this process, where the core holds memory of several
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Say nothing at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// Core dump
    pub core: PathBuf,
}

/// `info`.
#[derive(Debug, Args)]
pub struct InfoArguments {
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// A tree for people, or one JSON object per line and call
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// Show below each call which calls the compiler inlined into its function: there are no times of these
    #[arg(long)]
    pub inlines: bool,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Colour::Auto, alias = "colour")]
    pub color: Colour,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Format to write
    #[arg(short, long, default_value = "vizviewer", value_parser = format())]
    pub format: Format,
    /// File to write, - for standard output; the trace's name with another ending unless told otherwise
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Tell in each slice's details which calls the compiler inlined [default: but in JSON of more than 1,000,000 calls]
    #[arg(long)]
    pub inlines: bool,
    /// Leave out which calls the compiler inlined
    #[arg(long, conflicts_with = "inlines")]
    pub no_inlines: bool,
    /// Include sources from below this folder, too
    ///
    /// Without it, they are those below the folder that the compiler ran in or below one around it, where --map-source says, and of the compilers' and
    /// packages' own folders, such as /usr/include.
    #[arg(long, value_name = "FOLDER")]
    pub source_folder: Vec<PathBuf>,
    /// Include sources wherever they lie, and where they aren't what was compiled
    #[arg(long)]
    pub any_source: bool,
    /// Let others read the output, also where it holds sources
    #[arg(long)]
    pub shared: bool,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// Which calls are shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which calls")]
pub struct FilterArguments {
    /// Processes, such as 1234 or 1234,1240
    #[arg(long, value_name = "PIDS")]
    pid: Vec<String>,
    /// Threads, and fibers, by the numbers that `everycall info` shows, such as 1234 or 1234,1000000003
    #[arg(long, value_name = "TIDS")]
    tid: Vec<String>,
    /// From this time on, such as 1.5ms, counted from the trace's beginning
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<u64>,
    /// Up to this time, counted from the trace's beginning
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<u64>,
    /// Only what happened in this time before the trace's last event, and what was open then
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    last: Option<u64>,
    /// Leave out calls that took less
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    min_duration: Option<u64>,
    /// Only calls of functions whose name matches, with all that they call
    #[arg(long, value_name = "REGEX", value_parser = parse_function)]
    function: Option<Regex>,
    /// Only calls that the program gave this label, with all that they call
    #[arg(long, value_name = "NAME[=VALUE]")]
    label: Option<LabelPattern>,
    /// Only the moment of this kept call, as `everycall info` numbers them
    #[arg(long, value_name = "NUMBER")]
    pub kept: Option<usize>,
    /// Only so many levels of nesting
    #[arg(long, value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
}

impl FilterArguments {
    /// The filter.
    ///
    /// # Errors
    ///
    /// A thread that is no number, as a sentence.
    pub fn filter(self) -> Result<Filter, String> {
        let ids = |options: &[String]| {
            let lists = options.iter().map(|text| parse_ids(text).map_err(|error| error.to_string()));
            lists.collect::<Result<Vec<_>, _>>().map(|lists| lists.concat())
        };
        Ok(Filter {
            pids: ids(&self.pid)?,
            tids: ids(&self.tid)?,
            since_ns: self.since,
            until_ns: self.until,
            last_ns: self.last,
            min_duration_ns: self.min_duration.unwrap_or(0),
            function: self.function,
            label: self.label,
            depth: self.depth,
        })
    }
}

/// Where binaries and sources lie.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Names")]
pub struct SymbolArguments {
    /// Binaries that were recorded below OLD lie below NEW
    #[arg(long, value_name = "OLD=NEW", value_parser = path_map())]
    pub map_path: Vec<PathMap>,
    /// Sources that were compiled below OLD lie below NEW
    #[arg(long, value_name = "OLD=NEW", value_parser = path_map())]
    pub map_source: Vec<PathMap>,
    /// Folder with debugging information, laid out like /usr/lib/debug
    #[arg(long, value_name = "FOLDER")]
    pub debug_dir: Vec<PathBuf>,
    /// Whole names: `std::vector<int, std::allocator<int> >`, not `std::vector<int>`
    ///
    /// Else names are shown without the standard library's defaults, inline namespaces and tags; patterns match both. JSON for programs always
    /// has whole names.
    #[arg(long)]
    pub full_names: bool,
}

/// How `info` and `replay` write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
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

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// More memory or larger files than this are mistakes.
const SIZE_MAX: u64 = 1 << 46;
/// Less than this is used up by what every file begins with, or by a few threads' segments.
const SIZE_MIN: u64 = 64 << 10;
/// Nanoseconds: files of less time are as many as the recorder's looks.
const FILE_AGE_MIN: u64 = 100_000_000;

fn ring_size(text: &str) -> Result<u64, String> {
    parse_ring_size(text.as_bytes()).ok_or_else(|| format!("write {RING_SIZE_ALLOWED}"))
}

/// A number of bytes, such as `64K`, `256M` or `1G`.
fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text.as_bytes()).filter(|bytes| (1..=SIZE_MAX).contains(bytes));
    bytes.ok_or_else(|| "write a size such as 64K, 256M or 1G".to_owned())
}

/// A number of bytes that holds a few segments at least.
fn large_size(text: &str) -> Result<u64, String> {
    let bytes = size(text).ok().filter(|bytes| *bytes >= SIZE_MIN);
    bytes.ok_or_else(|| "write a size of 64K at least, such as 64M or 1G".to_owned())
}

/// How long a file goes on.
fn file_age(text: &str) -> Result<u64, String> {
    let time = parse_time(text).map_err(|error| error.to_string())?;
    if time < FILE_AGE_MIN {
        return Err("write a time of 100ms at least, such as 10s or 5m".to_owned());
    }
    Ok(time)
}

fn format() -> impl clap::builder::TypedValueParser<Value = Format> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
    let values = Format::ALL.map(|format| {
        let facts = format.facts();
        PossibleValue::new(facts.name).help(facts.description)
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Format>())
}

fn path_map() -> impl clap::builder::TypedValueParser<Value = PathMap> {
    use clap::builder::{OsStringValueParser, TypedValueParser};
    OsStringValueParser::new().try_map(|text| PathMap::parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
