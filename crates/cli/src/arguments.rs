//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use everycall_analysis::{Grouping, Order};
use everycall_export::{Calendar, Filter, Format, LabelPattern, WallTime, parse_function, parse_ids};
use everycall_format::dropped;
use everycall_format::env::{RING_SIZE_ALLOWED, parse_ring_size};
use everycall_symbols::PathMap;
use everycall_triggers::Trigger;
use everycall_units::{parse_size, parse_time};
use regex::Regex;

/// What the command is for, in one line.
pub const SUMMARY: &str = "Records every function call of a program, and shows what happened";

/// What `--help` opens with.
pub const EXAMPLES: &str = "\
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
    /// The same as everycall-gcc, everycall-g++, everycall-clang and everycall-clang++, if this
    /// program is linked under these names. `everycall cc --help` shows its options.
    #[command(disable_help_flag = true)]
    Cc {
        /// [--mode MODE] -- COMPILER ARGUMENTS...
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a program and write its trace
    ///
    /// The program's input, output and environment are unchanged. This command ends with its exit
    /// status or signal.
    #[command(override_usage = "everycall record [OPTIONS] [--] PROGRAM [ARGUMENTS]...")]
    Record(RecordArguments),
    /// Find the functions of triggers, for programs that run without `record`
    ///
    /// Writes a trigger file; set EVERYCALL_TRIGGERS to its path in the program's environment. Each
    /// kept call becomes a trace file in the program's starting folder, or in
    /// EVERYCALL_SNAPSHOT_FOLDER. The trigger file is valid only for these builds of the program
    /// and its libraries.
    Resolve(ResolveArguments),
    /// Write the trace of a running program, without stopping it
    ///
    /// The program does not need to be started with `record`. It gets no signal and never waits:
    /// the newest events of its threads are protected from being overwritten while they are copied
    /// into the file.
    Snapshot(SnapshotArguments),
    /// Record more functions of a running program, or all of them
    ///
    /// The program is not stopped. Without a pattern, all functions are recorded again.
    Enable(SelectArguments),
    /// Stop recording functions of a running program, or all of them
    ///
    /// Functions that are switched off cost nothing in modes nops and xray. Without a pattern, no
    /// function is recorded any more.
    Disable(SelectArguments),
    /// List the functions that can be recorded and, for a running program, which of them are on
    Functions(FunctionsArguments),
    /// Record some functions of a running program for a while, and write their trace
    ///
    /// Other recordings of the program are not affected. When this command ends, for any reason, the
    /// functions that only it recorded are switched off again.
    Trace(TraceArguments),
    /// Print calls of a running program as an indented tree while they happen
    ///
    /// `everycall follow PID PATTERN...` follows a running program, `everycall follow PATTERN... -- PROGRAM` starts one. The
    /// functions are recorded as with `everycall trace`: when this command ends, for any reason, those that only it recorded are
    /// switched off again. docs/follow.md describes the output.
    #[command(
        override_usage = "everycall follow [OPTIONS] PID PATTERN...\n       everycall follow [OPTIONS] PATTERN... -- PROGRAM [ARGUMENTS]..."
    )]
    Follow(FollowArguments),
    /// Keep calls of a running program that meet a condition, such as 'handle_request > 20ms'
    ///
    /// Like `everycall record --trigger`, for a program that is running, with or without `record`.
    /// When this command ends, for any reason, the program runs as before.
    Trigger(LiveTriggerArguments),
    /// List which processes record functions of a running program with `everycall trace`
    Sessions(SessionsArguments),
    /// List running traced programs, and crash files of programs that have died
    Ps(PsArguments),
    /// Extract the trace from a core dump
    ///
    /// The program does not need to have been started with `record`. Reads plain cores, cores
    /// compressed by systemd-coredump (zstd, lz4), and files that `everycall snapshot` writes in
    /// gdb (see gdb-script).
    Core(CoreArguments),
    /// Print a command for gdb that takes a snapshot of a live process or a core
    ///
    /// Save it as a file and load it in gdb with `source`; then run in gdb: everycall snapshot FILE
    GdbScript,
    /// Count the calls of each function, and record none
    ///
    /// Counts are exact, per function and thread, and cost about a tenth of recording. `everycall count -- ./app` prints them at the
    /// program's end; `everycall count PID` reads them while a program runs that was started with EVERYCALL_COUNT=calls or by `count`.
    /// docs/count.md says more.
    Count(Box<CountArguments>),
    /// Show what a trace contains, and what is missing in it
    Info(InfoArguments),
    /// Find the functions to leave out of a build so that tracing costs no more than a budget
    ///
    /// Says from a trace what these functions cost and what is lost without them. The list is for everycall cc --not @LIST,
    /// record --not @LIST and resolve --not @LIST.
    Cull(CullArguments),
    /// Print the calls as an indented tree, with durations
    Replay(ReplayArguments),
    /// Print calls, times and percentiles of all functions, as a table
    ///
    /// Also by thread, process, module, source file, label and call path; the callers and callees of a
    /// function, the tree of all paths, the slowest calls, and what changed between runs. docs/report.md
    /// says how each number is computed.
    Report(Box<ReportArguments>),
    /// Add up what several runs did, in one file for `report`
    ///
    /// The file holds calls, times and percentiles of each function and run, not the calls themselves.
    Merge(MergeArguments),
    /// Write a trace for a viewer
    Export(ExportArguments),
    /// As root, let a user record thread states with all details (`record --states`)
    ///
    /// The user gets an instance of tracefs, with the files that `record` needs, until the machine
    /// is restarted. Its events name all threads of the machine. docs/states.md has more.
    SetupTracefs(SetupTracefsArguments),
    /// Print a manual page, or install all of them
    ///
    /// `everycall man --install ~/.local/share/man` writes the pages of all verbs; then `man
    /// everycall` and `man everycall-record` show them.
    Man(ManArguments),
    /// Print a script that completes verbs and options in a shell
    ///
    /// bash: everycall completions bash > ~/.local/share/bash-completion/completions/everycall
    Completions(CompletionsArguments),
    /// Write pkg-config files and a CMake package for builds without a prefix
    Integrate {
        /// Folder to write to; created if it does not exist
        folder: PathBuf,
    },
}

/// `record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// Trace file to write [default: PROGRAM.ect in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Memory for each thread's newest events: a power of two from 64K to 1G; an event takes 8
    /// bytes [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub ring_size: Option<u64>,
    /// Write all events to the file while the program runs, instead of the newest ones at its end
    ///
    /// If the disk is too slow, events are lost; the file says where and how many.
    #[arg(long)]
    pub stream: bool,
    /// If the disk is too slow, make the program wait, so that no event is lost
    #[arg(long, requires = "stream")]
    pub stall: bool,
    /// Memory for events that wait to be written, in addition to each thread's ring, such as 64M
    /// [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = large_size, requires = "stream")]
    pub stream_memory: Option<u64>,
    /// Start a new file after this many bytes: app.0001.ect, app.0002.ect, ... [default with --keep-files: 1G]
    #[arg(long, value_name = "SIZE", value_parser = large_size, requires = "stream")]
    pub file_size: Option<u64>,
    /// Start a new file after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = file_age, requires = "stream")]
    pub file_age: Option<u64>,
    /// Keep only this many newest files, including those of earlier runs with this name
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), requires = "stream")]
    pub keep_files: Option<u32>,
    #[command(flatten)]
    pub functions: OnlyArguments,
    #[command(flatten)]
    pub triggers: TriggerArguments,
    /// Drop calls that are shorter than this and contain no recorded call, such as 500ns; up to
    /// 100ms
    ///
    /// The rings then cover a longer time. Dropped calls are counted for each function; `everycall
    /// info` shows the counts.
    #[arg(long, value_name = "TIME", value_parser = min_duration)]
    pub min_duration: Option<u64>,
    /// Keep the cost of tracing below this share of the program's CPU time, such as 3%
    ///
    /// The runtime measures what an event costs and switches off the functions that are called most, while the program
    /// runs, until the rest fits, and on again when the load falls. `everycall info` and the timeline show what was off,
    /// and when.
    #[arg(long, value_name = "SHARE", value_parser = budget, allow_hyphen_values = true)]
    pub budget: Option<String>,
    /// Record when the kernel ran each thread, when it was preempted and when it waited
    ///
    /// As root, with who woke it. Others need no privileges where `sysctl
    /// kernel.perf_event_paranoid` is at most 2. Costs nothing while no thread is switched.
    /// `everycall info` says what was recorded, and why if nothing was.
    #[arg(long, value_enum, value_name = "SOURCE", num_args = 0..=1, require_equals = true, default_missing_value = "best")]
    pub states: Option<StateSource>,
    /// Record counters of each process: memory, page faults, context switches, CPU time
    ///
    /// They are read every 10 ms, or as often as INTERVAL says, by the recorder and not by the
    /// program, and need no privileges. Viewers draw a curve for each.
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "10ms",
        value_parser = counters)]
    pub counters: Option<u64>,
    /// Record calls that wait, and what they wait for
    ///
    /// Locks that another thread holds, with its id; condition variables, semaphores, joins; reads,
    /// writes, polls, accepts, connects, sleeps, with their descriptors. They appear as calls of
    /// the C library's functions. A library is loaded into the program for it (LD_PRELOAD), so the
    /// program must not be linked statically.
    #[arg(long)]
    pub waits: bool,
    /// Calls are counted and not recorded: `count` asks for it.
    #[arg(skip)]
    pub only_counts: bool,
    /// Load the runtime into an untraced program, for traced plugins that it loads
    #[arg(long)]
    pub preload: bool,
    /// The program has no traced functions itself, but starts a traced program
    #[arg(long)]
    pub launcher: bool,
    /// Record only the program itself; its child processes are listed, but not traced
    #[arg(long)]
    pub no_follow: bool,
    /// Wait for all recorded processes, not only for the program
    #[arg(long, conflicts_with = "no_follow")]
    pub wait: bool,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Where thread states come from.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum StateSource {
    /// The one that tells most
    Best,
    /// An own instance of tracefs: also who woke a thread, and when; for root
    Tracefs,
    /// perf_event_open
    Perf,
}

impl From<StateSource> for everycall_recorder::StatesFrom {
    fn from(source: StateSource) -> Self {
        match source {
            StateSource::Best => Self::Best,
            StateSource::Tracefs => Self::Tracefs,
            StateSource::Perf => Self::Perf,
        }
    }
}

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
    /// seconds); 'f entered' (every call); 'f threw std::bad_alloc' (a C++ exception of this type is
    /// thrown in it; 'f threw': of any type; 'threw app::*': in whatever call); 'signal USR1' or 'signal USR2' (sent to this command,
    /// not to the program).
    ///
    /// If f ends in a tail call, the time includes the function that it jumps to ('f+tail > 20ms'
    /// means the same). If that function isn't traced, the time ends at the thread's next event and
    /// is shown as "at most". 'f-tail > 20ms' excludes tail calls.
    #[arg(long, value_name = "CONDITION")]
    pub trigger: Vec<Trigger>,
    #[command(flatten)]
    pub keep: KeepArguments,
}

/// How many calls are kept, and which.
#[derive(Debug, Default, Args)]
pub struct KeepArguments {
    /// Keep at most this many calls of each trigger [default: 20]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "trigger")]
    pub keep: Option<u32>,
    /// Which calls to keep if there are more [default: slowest]
    #[arg(long, value_enum, requires = "trigger")]
    pub keep_by: Option<KeepBy>,
    /// Keep at most one call of each trigger per interval; 0 for no limit [default: 1s]
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
    /// Process id, as `everycall ps` lists it
    #[arg(value_name = "PID")]
    pub pid: u32,
    /// Which calls: 'f > 20ms', 'f > p99', 'f entered', 'f threw std::bad_alloc'; see --trigger in
    /// `everycall record --help`
    #[arg(id = "trigger", required = true, value_name = "CONDITION")]
    pub conditions: Vec<Trigger>,
    /// How long to keep calls, such as 10s [default: until Ctrl-C or the end of the program]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub time: Option<u64>,
    /// End when this many calls are kept
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
    /// Trace file to write [default: PROGRAM-PID.ect in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print no report
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub keep: KeepArguments,
}

/// `resolve`.
#[derive(Debug, Args)]
pub struct ResolveArguments {
    /// Trigger file to write [default: FILE.ecs in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub functions: OnlyArguments,
    #[command(flatten)]
    pub triggers: TriggerArguments,
    /// The program, and the libraries that it loads at run time; libraries that it links are found
    /// automatically
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// What patterns are, for `--help`.
const PATTERNS: &str = "\
A PATTERN is a function's name, demangled or mangled, in which * stands for any text and ? for any character; or
  /REGEX/            matches the demangled or mangled name
  file:GLOB          declared in this source file
  module:GLOB        in this program or library
  addr:0x1234        at this address, as `nm` shows it; also addr:0x1000-0x2000
  size:<20           number of instructions; also <=, =, >=, >
  has:loop           contains a loop
  @FILE              the patterns in this file, one per line, each after
                     + (record) or - (leave out)
Combine conditions with ' & ' and negate them with '!': 'net_* & !size:<20'";

/// `enable` and `disable`.
#[derive(Debug, Args)]
#[command(after_help = PATTERNS)]
pub struct SelectArguments {
    /// Process id, as `everycall ps` lists it
    #[arg(value_name = "PID", value_parser = process_id)]
    pub pid: u32,
    /// Functions [default: all]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Replace the earlier selection: all other functions are off (`disable`: on)
    #[arg(long, requires = "patterns")]
    pub only: bool,
    /// Stay, and apply the selection to libraries that the process loads later, until it ends or
    /// Ctrl-C; patterns may match nothing yet
    #[arg(long, requires = "patterns")]
    pub later: bool,
    /// Print no report
    #[arg(short, long)]
    pub quiet: bool,
}

/// `functions`.
#[derive(Debug, Args)]
#[command(after_help = PATTERNS)]
pub struct FunctionsArguments {
    /// Process id, or path of a program or library
    #[arg(value_name = "PID|FILE")]
    pub of: String,
    /// Functions [default: all]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Output format: text for people, JSON for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `trace`.
#[derive(Debug, Args)]
#[command(after_help = PATTERNS)]
pub struct TraceArguments {
    /// Process id, as `everycall ps` lists it
    #[arg(value_name = "PID", value_parser = process_id)]
    pub pid: u32,
    /// Functions; required unless --within or --crossing is given [default then: all]
    #[arg(required_unless_present_any = ["within", "crossing"], value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// How long to record, such as 10s
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub time: u64,
    /// Record only calls of functions that this pattern matches, and all that they call; may be
    /// given several times
    #[arg(long, value_name = "PATTERN")]
    pub within: Vec<String>,
    /// Record only calls that come from another module or from code that isn't traced
    #[arg(long)]
    pub crossing: bool,
    /// Record only this thread: its number, its name (with * and ?), `new` for threads that
    /// start during the session, or `children-of:TID` for those that this thread starts during it,
    /// and theirs; may be given several times
    #[arg(long = "thread", value_name = "TID|NAME|new|children-of:TID", value_parser = ThreadChoice::parse)]
    pub threads: Vec<ThreadChoice>,
    /// Write the file while the session lasts, so that it may contain more than the rings hold
    #[arg(long)]
    pub stream: bool,
    /// End the session early when the process has written about this many events (counted in ring
    /// segments)
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub max_events: Option<u64>,
    /// End the session early when the process writes more events than this per second
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub max_rate: Option<u64>,
    /// End the session early when the file has this size, such as 1G; what the threads have written
    /// until then is added
    #[arg(long, value_name = "SIZE", value_parser = large_size, requires = "stream")]
    pub max_size: Option<u64>,
    /// Trace file to write [default: PROGRAM-PID.ect in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The session's name, for `everycall sessions` [default: the patterns]
    #[arg(long)]
    pub name: Option<String>,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
}

/// `follow`.
#[derive(Debug, Args)]
#[command(after_help = PATTERNS)]
pub struct FollowArguments {
    /// Process id, as `everycall ps` lists it, and functions; only functions if a program is started
    #[arg(value_name = "PID|PATTERN")]
    pub words: Vec<String>,
    /// How much is shown of functions; repeatable, and the last one that matches a function counts
    ///
    /// 0: nothing. 1: one line for each call, with its duration, and nothing of what it calls. 2: the call, and the
    /// chosen functions that it calls [default for PATTERN]. 3: the call, and all that is recorded within it, by anybody.
    #[arg(long, value_name = "LEVEL:PATTERN", value_parser = LevelRule::parse)]
    pub level: Vec<LevelRule>,
    /// How long to follow, such as 10s [default: until Ctrl-C or the end of the program]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub time: Option<u64>,
    /// End when the process has written about this many events (counted in ring segments)
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub max_events: Option<u64>,
    /// In which time moments are shown; trace: since this command began
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Wall)]
    pub clock: Clock,
    /// Read commands from standard input: `LEVEL PATTERN` changes what is shown, `quit` ends [default: on a terminal, unless
    /// a program is started, whose input it is]
    #[arg(long, conflicts_with = "command")]
    pub commands: bool,
    /// Print no messages
    #[arg(short, long)]
    pub quiet: bool,
    /// Print what the started program writes to its standard output and error among its calls
    #[arg(long, requires = "command")]
    pub with_output: bool,
    /// The program to start, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// How much is shown of some functions.
#[derive(Clone, Debug)]
pub struct LevelRule {
    /// From 0 to [`LevelRule::MAX`].
    pub level: u8,
    /// Which functions.
    pub pattern: String,
}

impl LevelRule {
    /// The highest level.
    pub const MAX: u8 = 3;

    fn parse(text: &str) -> Result<LevelRule, String> {
        LevelRule::split(text, ':')
    }

    /// Reads a level and a pattern with `separator` between them.
    pub fn split(text: &str, separator: char) -> Result<LevelRule, String> {
        let (level, pattern) = text.split_once(separator).unwrap_or((text, ""));
        match level.trim().parse() {
            Ok(level @ 0..=LevelRule::MAX) if !pattern.trim().is_empty() => {
                Ok(LevelRule { level, pattern: pattern.trim().to_owned() })
            }
            _ => Err(format!(
                "write a level from 0 to {} and a pattern, such as 1{separator}parse_*",
                LevelRule::MAX
            )),
        }
    }
}

/// Threads that a session records.
#[derive(Clone, Debug)]
pub enum ThreadChoice {
    /// Of this number.
    Number(u32),
    /// Whose names match this glob.
    Name(String),
    /// That start during the session.
    New,
    /// That this thread starts during the session, or that descend from those.
    ChildrenOf(u32),
}

impl ThreadChoice {
    fn parse(text: &str) -> Result<ThreadChoice, String> {
        match (text, text.parse()) {
            ("", _) => Err("is empty; name a thread by its number or name".to_owned()),
            ("new", _) => Ok(ThreadChoice::New),
            (text, _) if text.starts_with("children-of:") => {
                let number = text.split_once(':').and_then(|(_, number)| number.parse().ok());
                number
                    .map(ThreadChoice::ChildrenOf)
                    .ok_or_else(|| "names no thread; write children-of: and a thread's number".to_owned())
            }
            (_, Ok(number)) => Ok(ThreadChoice::Number(number)),
            (name, Err(_)) => Ok(ThreadChoice::Name(name.to_owned())),
        }
    }
}

/// A number above 0, such as 1000000, 1,000,000 or 1M.
fn parse_count(text: &str) -> Result<u64, String> {
    let plain = text.replace([',', '_'], "");
    let (digits, unit) = match plain.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => plain.strip_suffix('M').map_or((plain.as_str(), 1), |digits| (digits, 1_000_000)),
    };
    let count =
        digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit)).filter(|count| *count > 0);
    count.ok_or_else(|| "isn't a count; give a number above 0, such as 500k or 10M".to_owned())
}

/// `sessions`.
#[derive(Debug, Args)]
pub struct SessionsArguments {
    /// Process id, as `everycall ps` lists it
    #[arg(value_name = "PID", value_parser = process_id)]
    pub pid: u32,
    /// Output format: text for people, JSON for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// Which functions are recorded from the start on.
#[derive(Clone, Debug, Args)]
pub struct OnlyArguments {
    /// Record only functions that this pattern matches, or those of a list (@FILE); may be given
    /// several times
    ///
    /// `everycall enable --help` describes patterns.
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// Leave out functions that this pattern matches, or those of a list (@FILE); may be given
    /// several times
    #[arg(long = "not", value_name = "PATTERN")]
    pub not: Vec<String>,
}

/// `snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArguments {
    /// Trace file to write [default: PROGRAM-PID.ect in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
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

/// `info`.
#[derive(Debug, Args)]
pub struct InfoArguments {
    /// Output format: text for people, JSON for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// In which time moments are shown
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Trace)]
    pub clock: Clock,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// `cull`.
#[derive(Debug, Args)]
pub struct CullArguments {
    /// What tracing may cost: a share of the program's own time, such as 3%
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "3%", allow_hyphen_values = true)]
    pub budget: u32,
    /// What an event (entry or exit) costs, such as 10ns [default: what a trace of record --budget says, else 10ns]
    #[arg(long, value_name = "TIME", value_parser = event_cost)]
    pub event_cost: Option<u64>,
    /// Write the list of functions to this file
    #[arg(short, long, value_name = "LIST")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace file
    pub trace: PathBuf,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Output format: an indented tree, or JSON with one object per line and call
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// Show below each call which calls the compiler inlined into its function; these have no times
    #[arg(long)]
    pub inlines: bool,
    /// In which time moments are shown
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Trace)]
    pub clock: Clock,
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

/// `count`.
#[derive(Debug, Args)]
pub struct CountArguments {
    /// Keep the counts in this file, for `report`, `merge` and `cull`
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Output format: a table for people, or all numbers for programs
    #[arg(short, long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
    /// What to group calls by: function, thread, process, module or file (source file)
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = grouping)]
    pub by: Grouping,
    /// Print only this many rows; 0 for all [default: 50 in text, all in csv and json]
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Show the calls again and again at this interval, such as 1s, until ctrl-C or the program's end
    ///
    /// On a terminal as a live table: / filters as you type, s sorts by the next column, q ends. Otherwise as lines, with the calls
    /// since the last table.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub every: Option<u64>,
    #[command(flatten)]
    pub functions: OnlyArguments,
    /// Load the runtime into an untraced program, for traced plugins that it loads
    #[arg(long)]
    pub preload: bool,
    /// The program has no traced functions itself, but starts a traced program
    #[arg(long)]
    pub launcher: bool,
    /// Count only in the program itself, not in its child processes
    #[arg(long)]
    pub no_follow: bool,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Process that counts, as `everycall ps` lists it
    #[arg(value_name = "PID", value_parser = counted_pid, conflicts_with = "command", required_unless_present = "command")]
    pub pid: Option<u32>,
    /// The program and its arguments, behind --
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Output format: a table for people, or all numbers for programs
    #[arg(short, long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
    /// What to group calls by: function, thread, process, module, file (source file), label:NAME, or path (of calls)
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = grouping)]
    pub by: Grouping,
    /// Sort by this column, largest first: calls, total, own, avg, min, p50, p90, p99, p99.9, max or throws
    #[arg(long, value_name = "COLUMN", default_value = "own", value_parser = order)]
    pub sort: Order,
    /// Print only this many rows; 0 for all [default: 50 in text, all in csv and json]
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Count the time of tail calls: a call lasts until the function that it jumps to has ended
    ///
    /// As --trigger does, in the table and in comparisons. If that function isn't traced, the time is
    /// an upper limit. Without this option, such a call ends at its jump, as in `replay`.
    #[arg(long)]
    pub tails: bool,
    /// In which time --slowest shows when calls began
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Trace)]
    pub clock: Clock,
    /// Width of the table in characters [default: the terminal's width]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..))]
    pub width: Option<u16>,
    #[command(flatten)]
    pub view: ReportViewArguments,
    #[command(flatten)]
    pub diff: DiffArguments,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace files, and files that `everycall merge` wrote; their calls are added up
    #[arg(required_unless_present = "diff", value_name = "FILE")]
    pub traces: Vec<PathBuf>,
}

/// What `report` shows instead of the table.
#[derive(Debug, Args)]
#[command(next_help_heading = "One function, or another view")]
#[group(multiple = false)]
pub struct ReportViewArguments {
    /// Who called this function: calls and time by caller
    #[arg(long, value_name = "FUNCTION")]
    pub callers: Option<String>,
    /// What this function called: calls and time by callee
    #[arg(long, value_name = "FUNCTION")]
    pub callees: Option<String>,
    /// All call paths as a tree, with calls and times
    #[arg(long)]
    pub tree: bool,
    /// The slowest calls of this function, with their places in the trace
    #[arg(long, value_name = "FUNCTION")]
    pub slowest: Option<String>,
    /// Functions that could have been recorded, and were not called
    #[arg(long)]
    pub never: bool,
    /// What the slow calls of this function did that its median calls did not
    #[arg(long, value_name = "FUNCTION")]
    pub explain: Option<String>,
}

/// `report --diff`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparing runs")]
pub struct DiffArguments {
    /// Compare these runs, the old ones, with those of --against
    ///
    /// With several runs on each side, changes larger than the noise between runs are marked *.
    /// `--diff old.ect new.ect` compares two files. A run can be part of a file: a range of time, `app.ect@1s..2s`,
    /// or the calls with a label, `app.ect@request=7`.
    #[arg(long, value_name = "OLD", num_args = 1.., conflicts_with_all = ["callers", "callees", "tree", "slowest", "never", "explain", "traces"])]
    pub diff: Vec<PathBuf>,
    /// The new runs
    #[arg(long, value_name = "NEW", num_args = 1.., requires = "diff")]
    pub against: Vec<PathBuf>,
    /// End with exit code 3 if this holds, such as 'p99(handle) > +10%'; repeatable
    ///
    /// calls, total, own, avg, min, p50, p90, p99, p99.9, max or throws of a function; a change in percent or by
    /// an amount ('+10%', '+2ms', '-5%'), or without + and - the new number ('p99(handle) > 20ms', which needs no --diff).
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,
}

/// `merge`.
#[derive(Debug, Args)]
pub struct MergeArguments {
    /// File to write, for `report`
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Add up all runs, instead of storing each one for `report --diff`
    #[arg(long)]
    pub sum: bool,
    /// Count the time of tail calls, as `report --tails` does
    #[arg(long)]
    pub tails: bool,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Trace files, and files that `everycall merge` wrote
    #[arg(required = true, value_name = "FILE")]
    pub traces: Vec<PathBuf>,
}

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Format to write
    #[arg(short, long, default_value = "vizviewer", value_parser = format())]
    pub format: Format,
    /// File to write, - for standard output [default: the trace's name with the format's extension]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// In which time moments are written
    ///
    /// csv has columns of calendar time or ticks; chrome and vizviewer name the beginning in calendar time in otherData;
    /// perfetto always contains calendar time.
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Trace)]
    pub clock: Clock,
    /// Show in each slice's details which calls the compiler inlined [default: on, except for JSON
    /// with more than 1,000,000 calls]
    #[arg(long)]
    pub inlines: bool,
    /// Leave out which calls the compiler inlined
    #[arg(long, conflicts_with = "inlines")]
    pub no_inlines: bool,
    /// Also include sources below this folder; repeatable
    ///
    /// Always included are sources below the compiler's working folder or one of its parents, in --map-source targets, and in system
    /// folders such as /usr/include.
    #[arg(long, value_name = "FOLDER", value_parser = existing_folder())]
    pub source_folder: Vec<PathBuf>,
    /// Include sources from any folder, even if they changed since compilation
    #[arg(long)]
    pub any_source: bool,
    /// Let other users read the output even if it contains sources
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
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArguments {
    /// Processes, such as 1234 or 1234,1240
    #[arg(long, value_name = "PIDS")]
    pid: Vec<String>,
    /// Threads and fibers by their numbers in `everycall info`, such as 1234 or 1234,1000000003
    #[arg(long, value_name = "TIDS")]
    tid: Vec<String>,
    /// Start at this time, such as 1.5ms after the beginning of the trace, or a calendar time such as
    /// 2026-11-23T10:00:00.5Z or 10:00:00.5
    ///
    /// Without time zone, times are of this machine's zone (TZ sets another one); without date, of the day
    /// on which the trace begins, or a later one that the trace contains.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Moment>,
    /// Stop at this time after the beginning of the trace, or at this calendar time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Moment>,
    /// Only calls within this time before the trace's last event, including calls still open then
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    last: Option<u64>,
    /// Leave out shorter calls
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    min_duration: Option<u64>,
    /// Only calls of functions whose name matches, and all that they call
    #[arg(long, value_name = "REGEX", value_parser = parse_function)]
    function: Option<Regex>,
    /// Only calls with this label, and all that they call
    #[arg(long, value_name = "NAME[=VALUE]")]
    label: Option<LabelPattern>,
    /// Only the snapshot of this kept call, by its number in `everycall info`
    #[arg(long, value_name = "NUMBER")]
    pub kept: Option<usize>,
    /// Only this many levels of nesting
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
            since_ns: self.since.as_ref().and_then(Moment::after),
            until_ns: self.until.as_ref().and_then(Moment::after),
            since_wall: self.since.and_then(Moment::wall),
            until_wall: self.until.and_then(Moment::wall),
            last_ns: self.last,
            min_duration_ns: self.min_duration.unwrap_or(0),
            function: self.function,
            label: self.label,
            depth: self.depth,
        })
    }
}

/// A moment of a trace.
#[derive(Clone, Debug)]
pub enum Moment {
    /// Nanoseconds after its beginning.
    After(u64),
    /// Calendar time.
    Wall(WallTime),
}

impl Moment {
    /// As nanoseconds after the beginning.
    pub fn after(&self) -> Option<u64> {
        match self {
            Moment::After(ns) => Some(*ns),
            Moment::Wall(_) => None,
        }
    }

    /// As calendar time.
    pub fn wall(self) -> Option<WallTime> {
        match self {
            Moment::After(_) => None,
            Moment::Wall(time) => Some(time),
        }
    }
}

/// A moment, as `--since` takes it.
pub fn moment(text: &str) -> Result<Moment, String> {
    // Only calendar times have one of these.
    if text.contains(['-', ':']) {
        return Calendar::local().parse(text).map(Moment::Wall).map_err(|error| error.to_string());
    }
    parse_time(text)
        .map(Moment::After)
        .map_err(|error| format!("{error}; or a calendar time, such as 2026-11-23T10:00:00.5Z or 10:00:00.5"))
}

/// In which time moments are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    /// Time since the beginning of the trace
    #[default]
    Trace,
    /// Calendar time, in this machine's time zone (TZ sets another one)
    Wall,
    /// Ticks of the CPU's time-stamp counter, as recorded
    Raw,
}

/// Where binaries and sources lie.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Names")]
pub struct SymbolArguments {
    /// Look for binaries that were recorded below OLD in NEW
    #[arg(long, value_name = "OLD=NEW", value_parser = path_map())]
    pub map_path: Vec<PathMap>,
    /// Look for sources that were compiled below OLD in NEW
    #[arg(long, value_name = "OLD=NEW", value_parser = path_map())]
    pub map_source: Vec<PathMap>,
    /// Folder with debugging information, laid out like /usr/lib/debug
    #[arg(long, value_name = "FOLDER", value_parser = existing_folder())]
    pub debug_dir: Vec<PathBuf>,
    /// Show full names: `std::vector<int, std::allocator<int> >` instead of `std::vector<int>`
    ///
    /// By default, the standard library's default arguments, inline namespaces and ABI tags are
    /// left out. Patterns match both forms. JSON always has full names.
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

/// How `report` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// For people.
    Text,
    /// One line for each row, with a line of names above.
    Csv,
    /// One object.
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

/// A folder that exists: a mistyped one would be ignored silently.
fn existing_folder() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    clap::builder::PathBufValueParser::new().try_map(|folder| match folder.metadata() {
        Ok(facts) if facts.is_dir() => Ok(folder),
        Ok(_) => Err("this is not a folder".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err("this folder doesn't exist".to_owned())
        }
        Err(error) => Err(error.to_string()),
    })
}

/// More memory or larger files than this are mistakes.
const SIZE_MAX: u64 = 1 << 46;
/// Less than this is used up by what every file begins with, or by a few threads' segments.
const SIZE_MIN: u64 = 64 << 10;
/// Nanoseconds: files of less time are as many as the recorder's looks.
const FILE_AGE_MIN: u64 = 100_000_000;

fn process_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "write a process id; `everycall ps` lists the traced processes".to_owned())
}

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

/// From which duration on calls are recorded.
fn counted_pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("it is not a process id; a program stands behind --, as in: everycall count -- {text}")
    })
}

fn min_duration(text: &str) -> Result<u64, String> {
    dropped::parse(text.as_bytes()).ok_or_else(|| {
        let too_long = parse_time(text).is_ok();
        let why = if too_long { "that is longer than 100ms; " } else { "" };
        format!("{why}write {}, as in: everycall record --min-duration 500ns ./app", dropped::ALLOWED)
    })
}

/// What tracing may cost, in millionths.
fn share(text: &str) -> Result<u32, String> {
    everycall_format::budget::parse(text.as_bytes()).ok_or_else(|| {
        format!("write {}, as in: everycall cull --budget 3% app.ect", everycall_format::budget::ALLOWED)
    })
}

/// What an event costs.
fn event_cost(text: &str) -> Result<u64, String> {
    match parse_time(text) {
        Ok(time @ 1..=1_000_000) => Ok(time),
        Ok(_) => Err("write a time of 1ns to 1ms, such as 10ns".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn grouping(text: &str) -> Result<Grouping, String> {
    Ok(match text {
        "function" => Grouping::Function,
        "thread" => Grouping::Thread,
        "process" => Grouping::Process,
        "module" => Grouping::Module,
        "file" => Grouping::File,
        "path" => Grouping::Path,
        _ => match text.strip_prefix("label:").filter(|name| !name.is_empty()) {
            Some(name) => Grouping::Label(name.to_owned()),
            None => {
                return Err("write function, thread, process, module, file, label:NAME or path".to_owned());
            }
        },
    })
}

fn order(text: &str) -> Result<Order, String> {
    Order::parse(text).ok_or_else(|| {
        let names: Vec<_> = Order::NAMED.iter().map(|(name, _)| *name).collect();
        format!("write one of: {}", names.join(", "))
    })
}

/// The time between two samples of counters.
fn counters(text: &str) -> Result<u64, String> {
    const ALLOWED: std::ops::RangeInclusive<u64> = 1_000_000..=60_000_000_000;
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(cpu_counters(Path::new("/sys/bus/event_source/devices")));
    }
    let time = parse_time(text).map_err(|error| error.to_string())?;
    Some(time).filter(|time| ALLOWED.contains(time)).ok_or_else(|| {
        "counters are read every 1ms at most, and every 60s at least, as in: everycall record --counters=10ms ./app".to_owned()
    })
}

/// Why the CPU's counters aren't recorded. `devices` has what the kernel counts with.
fn cpu_counters(devices: &Path) -> String {
    let has_one = ["cpu", "cpu_core"].iter().any(|name| devices.join(name).is_dir());
    let why = if has_one {
        "this version doesn't record the CPU's own counters, such as cycles; `perf stat` counts them for a whole program"
    } else {
        "the CPU's own counters, such as cycles, need a CPU whose counters the kernel can use (/sys/bus/event_source/devices/cpu), \
        and this machine has none, as most virtual machines"
    };
    format!("{why}; `--counters` records memory, page faults, context switches and CPU time")
}

/// What tracing may cost: the text is the program's to read.
fn budget(text: &str) -> Result<String, String> {
    match everycall_format::budget::parse(text.as_bytes()) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!(
            "write {}, as in: everycall record --budget 3% ./app",
            everycall_format::budget::ALLOWED
        )),
    }
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
