//! Which functions and threads: `enable`, `disable`, `functions`, `trace`, `sessions`, `--only`.

use std::path::PathBuf;

use clap::Args;
use everycall_units::parse_time;

use super::common::{Force, NameArguments, TextFormat, large_size, process_id};
use super::recorded::{EventTimes, ValueArguments};

/// The description of patterns for `--help`.
pub(super) const PATTERNS: &str = "\
A PATTERN is a function's name, demangled or mangled, in which * stands for any text and ? for any character; or
  /REGEX/            matches the demangled or mangled name
  file:GLOB          declared in this source file
  module:GLOB        in this program or library
  section:GLOB       in this section of the file
  addr:0x1234        at this address, as `nm` shows it; also addr:0x1000-0x2000
  size:<20           number of instructions; also <=, =, >=, >
  has:loop           contains a loop
  @FILE              the patterns in this file, one per line, each after
                     + (record) or - (leave out)
Combine conditions with ' & ' and negate them with '!': 'net_* & !size:<20'";

/// `enable`.
#[derive(Debug, Args)]
pub struct EnableArguments {
    #[command(flatten)]
    pub select: SelectArguments,
    /// Which events get a time of their own from now on; the others are cheaper, and their times
    /// have bounds. Nothing is recorded for a moment if that changes [default: as now; if nothing is
    /// recorded, as the process was started]
    #[arg(long, value_enum, value_name = "TIMES", hide_possible_values = true)]
    pub clock: Option<EventTimes>,
    #[command(flatten)]
    pub values: ValueArguments,
}

/// `disable`, and most of `enable`.
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
    /// Functions [default: all]; with --untouched, more files
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Of programs and libraries as they are, built without everycall: count the functions that
    /// could get hooks at their entry and every exit, and why others couldn't
    ///
    /// docs/reference/untouched.md describes the output.
    #[arg(long)]
    pub untouched: bool,
    /// Output format: text for people, JSON for programs
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    #[command(flatten)]
    pub names: NameArguments,
}

/// `trace`.
#[derive(Debug, Args)]
#[command(after_help = PATTERNS)]
pub struct TraceArguments {
    /// Process id, as `everycall ps` lists it; a program that was built without everycall gets
    /// hooks
    #[arg(value_name = "PID", value_parser = process_id)]
    pub pid: u32,
    /// Functions, beside those of --args and --results; required unless --within or --crossing is
    /// given [default then: all]
    #[arg(required_unless_present_any = ["within", "crossing", "args", "results"], value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// How long to record, such as 10s [default: until Ctrl-C or the end of the program]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub time: Option<u64>,
    #[command(flatten)]
    pub values: ValueArguments,
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
    /// End the session early when the process has written this many events; the file also has what
    /// it writes until that is seen, at most some milliseconds later
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub max_events: Option<u64>,
    /// End the session early when the process writes more events than this per second
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub max_rate: Option<u64>,
    /// End the session early when the file has this size, such as 1G; what the threads have written
    /// until then is added
    #[arg(long, value_name = "SIZE", value_parser = large_size, requires = "stream")]
    pub max_size: Option<u64>,
    /// Which events get a time of their own; the others are cheaper, and their times have bounds
    /// [default: as now; if nothing is recorded, as the process was started]
    #[arg(long, value_enum, value_name = "TIMES", conflicts_with = "counts")]
    pub clock: Option<EventTimes>,
    /// Write only how often each function was called during the session, exactly, and no calls
    #[arg(long, conflicts_with_all = ["within", "crossing", "stream", "max_size", "args", "results"])]
    pub counts: bool,
    /// Trace file to write [default: PROGRAM-PID.ect in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// The session's name, for `everycall sessions` [default: the patterns]
    #[arg(long)]
    pub name: Option<String>,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
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
pub(super) fn parse_count(text: &str) -> Result<u64, String> {
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
