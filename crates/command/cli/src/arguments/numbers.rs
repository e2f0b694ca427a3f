//! Tables: `count`, `report`, `merge`, `cull`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use everycall_analysis::{Grouping, Order, ValueOf};
use everycall_arguments::{Moment, Wanted};
use everycall_io::terminal::Escapes;
use everycall_units::parse_time;

use super::common::{Clock, FilterArguments, Force, SymbolArguments};
use super::selection::OnlyArguments;

/// `cull`.
#[derive(Debug, Args)]
pub struct CullArguments {
    /// What tracing may cost: a share of the program's own time, such as 3%
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "3%", allow_hyphen_values = true)]
    pub budget: u32,
    /// What an event (entry or exit) costs, such as 10ns [default: what a trace of record --budget
    /// says, else 10ns]
    #[arg(long, value_name = "TIME", value_parser = event_cost)]
    pub event_cost: Option<u64>,
    /// Write the list of functions to this file
    #[arg(short, long, value_name = "LIST")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
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
    #[command(flatten)]
    pub force: Force,
    /// Output format: a table for people, or all numbers for programs
    #[arg(short, long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
    /// What to group calls by: function, symbol (linker's name), thread, process, module, file
    /// (source file), or a function's argument, such as 'handle(path)'
    ///
    /// An argument is written as for `record --args`, also with a condition: 'handle(path) if len >
    /// 4096'. Only such functions' calls are counted then; docs/reference/count.md says more.
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = counted_by)]
    pub by: CountedBy,
    /// Print only this many rows; 0 for all [default: 50 in text, all in csv and json]
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Show the calls again and again at this interval, such as 1s, until ctrl-C or the program's
    /// end
    ///
    /// On a terminal as a live table: / filters as you type, s sorts by the next column, q ends.
    /// Otherwise as lines, with the calls since the last table.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub every: Option<u64>,
    /// Show what came since an earlier reading of the same process, which -o has kept in this file
    ///
    /// So counts begin from 0 again, for you alone: the process counts on. With -o, the new file
    /// has all counts.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "every"])]
    pub since: Option<PathBuf>,
    /// Measure the calls' times, too: total, own, shortest, longest and percentiles
    #[arg(long)]
    pub time: bool,
    /// Count what the calls allocate and free, too: bytes and blocks, with and without what they
    /// call
    ///
    /// A library is loaded into the program for it (LD_PRELOAD), so the program must not be linked
    /// statically. Times are measured, too: `report` shows them.
    #[arg(long)]
    pub memory: bool,
    /// Count in a program as it is, built without everycall: hooks are written into its code when it
    /// starts
    ///
    /// x86-64 programs, also stripped ones. Forked children count with it; a program that it
    /// executes doesn't. docs/reference/untouched.md says more.
    #[arg(long)]
    pub untouched: bool,
    /// With --untouched: count in the program and in libraries that match, of those that are loaded
    /// at its start, such as 'libssl*,libcrypto*' [default: those in the program's folder]
    #[arg(long, value_name = "GLOB", value_delimiter = ',', requires = "untouched")]
    pub modules: Vec<String>,
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

/// The groups of calls that `count` makes.
#[derive(Clone, Debug)]
pub struct CountedBy {
    pub grouping: Grouping,
    /// If that is a value: what to copy, as for `record --args`, and the pattern of the functions.
    pub value: Option<(String, String)>,
}

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Output format: a table for people, or all numbers for programs
    #[arg(short, long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
    /// What to group calls by: function, symbol (linker's name), thread, process, module, file
    /// (source file), label:NAME, path (of calls), or a recorded value, such as 'handle(len)'
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = grouping)]
    pub by: Grouping,
    /// Sort by this column, largest first: calls, total, own, avg, min, p50, p90, p99, p99.9, max
    /// or throws; allocated, own-allocated, blocks, own-blocks, freed or own-freed after `count
    /// --memory` [default: own]
    #[arg(short, long, value_name = "COLUMN", value_parser = order)]
    pub sort: Option<Order>,
    /// Print only this many rows; 0 for all [default: 50 in text, all in csv and json]
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Count the time of tail calls: a call lasts until the function that it jumps to has ended
    ///
    /// As --trigger does, in the table, in comparisons, with --slowest and --explain. If that
    /// function isn't traced, the time is an upper limit. Without this option, such a call ends at
    /// its jump, as in `replay`. On with --kept, if that call was found by its tail call.
    #[arg(long, conflicts_with_all = ["callers", "callees", "tree", "never"])]
    pub tails: bool,
    /// Leave the time in which a thread waited out of the own times of the table
    ///
    /// The trace must have thread states: `everycall record --states`. Total times and percentiles
    /// stay as they are.
    #[arg(long, conflicts_with_all = ["diff", "callers", "callees", "tree", "slowest", "explain", "never"])]
    pub no_blocked: bool,
    /// Subtract what tracing cost from total and own times, with error bars
    ///
    /// What hooks cost was measured when the program started. In functions that call much, the
    /// bars are wide, because hooks cost more or less beside other code; --untraced makes them
    /// narrower.
    #[arg(long, conflicts_with_all = ["diff", "against", "fail_if", "callers", "callees", "tree", "slowest", "explain", "never", "tails", "no_blocked"])]
    pub corrected: bool,
    /// CPU time of the same work without tracing, for --corrected; repeatable
    ///
    /// A time such as 1.2s (user and system), or a file that `EVERYCALL_START=off everycall record`
    /// wrote. The corrected times then add up to that, or to what is between several.
    #[arg(long, value_name = "TIME|FILE", requires = "corrected")]
    pub untraced: Vec<String>,
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

/// Views that `report` shows instead of the table.
#[derive(Debug, Args)]
#[command(next_help_heading = "One function, or another view")]
#[group(multiple = false)]
pub struct ReportViewArguments {
    /// Who called this function: calls and time by caller, and by line with --call-sites
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
    /// Record five or more of each, old and new ones alternately.
    /// `--diff old.ect new.ect` compares two files. A run can be part of a file: a range of time,
    /// `app.ect@1s..2s`, or the calls with a label, `app.ect@request=7`.
    #[arg(long, value_name = "OLD", num_args = 1.., conflicts_with_all = ["callers", "callees", "tree", "slowest", "never", "explain", "traces"])]
    pub diff: Vec<PathBuf>,
    /// The new runs
    #[arg(long, value_name = "NEW", num_args = 1.., requires = "diff")]
    pub against: Vec<PathBuf>,
    /// End with exit code 3 if this holds, such as 'p99(handle) > +10%'; repeatable
    ///
    /// calls, total, own, avg, min, p50, p90, p99, p99.9, max or throws of a function; a change in
    /// percent or by an amount ('+10%', '+2ms', '-5%'), or without + and - the new number
    /// ('p99(handle) > 20ms', which needs no --diff). Between runs, exit code 4 means that they
    /// differ too much to tell; a change of a time needs several runs on each side.
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,
}

/// `merge`.
#[derive(Debug, Args)]
pub struct MergeArguments {
    /// File to write, for `report`
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub force: Force,
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

impl TableFormat {
    /// How what could steer a terminal is written on one.
    pub fn escapes(self) -> Escapes {
        if self == TableFormat::Json { Escapes::Json } else { Escapes::Text }
    }
}

/// The process whose counts are read.
fn counted_pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("it is not a process id; a program stands behind --, as in: everycall count -- {text}")
    })
}

/// Parses the permitted cost of tracing, in millionths.
fn share(text: &str) -> Result<u32, String> {
    everycall_format::budget::parse(text.as_bytes()).ok_or_else(|| {
        format!("write {}, as in: everycall cull --budget 3% app.ect", everycall_format::budget::ALLOWED)
    })
}

/// Parses the cost of an event.
fn event_cost(text: &str) -> Result<u64, String> {
    match parse_time(text) {
        Ok(time @ 1..=1_000_000) => Ok(time),
        Ok(_) => Err("write a time of 1ns to 1ms, such as 10ns".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The second names are those of perf and uftrace.
fn grouping(text: &str) -> Result<Grouping, String> {
    Ok(match text {
        "function" | "sym" => Grouping::Function,
        "symbol" => Grouping::Symbol,
        "thread" | "tid" | "task" => Grouping::Thread,
        "process" | "pid" => Grouping::Process,
        "module" | "dso" => Grouping::Module,
        "file" | "srcfile" => Grouping::File,
        "path" => Grouping::Path,
        _ => match text.strip_prefix("label:").filter(|name| !name.is_empty()) {
            Some(name) => Grouping::Label(name.to_owned()),
            None => match ValueOf::parse(text) {
                Some(value) => Grouping::Value(value),
                None => {
                    return Err(
                        "write function, symbol, thread, process, module, file, label:NAME, path, or a function with one of its \
                         recorded values, such as 'handle(len)'"
                            .to_owned(),
                    );
                }
            },
        },
    })
}

/// As [`grouping`], where a value is written as for `record --args`.
fn counted_by(text: &str) -> Result<CountedBy, String> {
    const ONE: &str = "write a function with one argument, such as 'handle(path)'";
    if !text.contains('(') {
        return grouping(text).map(|grouping| CountedBy { grouping, value: None });
    }
    let wanted = Wanted::parse(text, Moment::Entry).map_err(|error| error.to_string())?;
    let value = match wanted.value_names().as_deref() {
        Some(["returned"]) => {
            return Err("calls are counted when they begin, and have no result then; record the program with --results, \
                        and use everycall report --by"
                .to_owned());
        }
        Some([value]) => (*value).to_owned(),
        _ => return Err(ONE.to_owned()),
    };
    let function = wanted.function().to_owned();
    let grouping = Grouping::Value(ValueOf { function: function.clone(), value });
    Ok(CountedBy { grouping, value: Some((text.to_owned(), function)) })
}

fn order(text: &str) -> Result<Order, String> {
    Order::parse(text).ok_or_else(|| {
        // Other tools group and sort with one option.
        if let Some(key) = text.split(',').find(|key| Order::parse(key).is_none() && grouping(key).is_ok()) {
            return format!("`{key}` says what a row is, for which there is another option: --by {key}");
        }
        if let Some(first) = text.split(',').next().filter(|first| Order::parse(first).is_some()) {
            return format!("rows are sorted by one column: --sort {first}");
        }
        let names: Vec<_> = Order::NAMED.iter().map(|(name, _)| *name).collect();
        format!("write one of: {}", names.join(", "))
    })
}
