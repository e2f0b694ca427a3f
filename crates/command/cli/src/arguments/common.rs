//! Arguments that several verbs share: filters, moments, names, sizes.

use std::path::PathBuf;

use clap::builder::TypedValueParser as _;
use clap::{Args, ValueEnum};
use everycall_arguments::RecordedCondition;
use everycall_export::{
    Calendar, Filter, LabelPattern, NameLength, ParseError, ValueCondition, WallTime, parse_function,
    parse_ids, parse_threads,
};
use everycall_io::terminal::Escapes;
use everycall_symbols::PathMap;
use everycall_units::{parse_size, parse_time};
use regex::Regex;

/// Whether an output may replace any file.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Force {
    /// Replace an existing file even if everycall didn't write it
    #[arg(long)]
    pub force: bool,
}

/// Which calls are shown.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArguments {
    /// Processes, such as 1234 or 1234,1240
    #[arg(long, value_name = "PIDS")]
    pid: Vec<String>,
    /// Threads, fibers and tasks, such as 1234 or 1234,'task 4': the numbers in the titles of
    /// `everycall replay` and in `everycall info`
    #[arg(long, value_name = "TIDS")]
    tid: Vec<String>,
    /// Start at this time, such as 1.5ms after the beginning of the trace, or a calendar time such
    /// as 2026-11-23T10:00:00.5Z or 10:00:00.5
    ///
    /// Without time zone, times are of this machine's zone (TZ sets another one); without date, of
    /// the day on which the trace begins, or a later one that the trace contains.
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
    /// Only calls whose recorded arguments and result meet this condition, and all that they call,
    /// such as 'len > 4096 and path starts with "/api"' or 'returned < 0'
    #[arg(long, value_name = "CONDITION", value_parser = value_condition)]
    r#where: Option<ValueCondition>,
    /// Only the snapshot of this kept call, by its number in `everycall info`; `replay` and `view`
    /// begin at the call
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
        type Parse = fn(&str) -> Result<Vec<u32>, ParseError>;
        let ids = |options: &[String], parse: Parse| {
            let lists = options.iter().map(|text| parse(text).map_err(|error| error.to_string()));
            lists.collect::<Result<Vec<_>, _>>().map(|lists| lists.concat())
        };
        Ok(Filter {
            pids: ids(&self.pid, parse_ids)?,
            tids: ids(&self.tid, parse_threads)?,
            since_ns: self.since.as_ref().and_then(Moment::after),
            until_ns: self.until.as_ref().and_then(Moment::after),
            since_wall: self.since.and_then(Moment::wall),
            until_wall: self.until.and_then(Moment::wall),
            last_ns: self.last,
            min_duration_ns: self.min_duration.unwrap_or(0),
            function: self.function,
            label: self.label,
            values: self.r#where,
            depth: self.depth,
            call: None,
        })
    }
}

/// Parses a condition on recorded values.
fn value_condition(text: &str) -> Result<ValueCondition, String> {
    let condition = RecordedCondition::parse(text).map_err(|error| error.to_string())?;
    Ok(ValueCondition::new(move |values| condition.holds(values)))
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
    #[command(flatten)]
    names: NameArguments,
}

impl SymbolArguments {
    /// Whether names have everything that compilers write.
    pub fn full_names(&self) -> bool {
        self.names.full_names
    }

    /// How much of names text for people shows.
    pub fn name_length(&self) -> NameLength {
        self.names.length()
    }
}

/// How functions are named.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Names")]
pub struct NameArguments {
    /// Show full names: `std::vector<int, std::allocator<int> >` instead of `std::vector<int>`, and
    /// long ones to their end
    ///
    /// By default, the standard library's default arguments, inline namespaces and ABI tags are
    /// left out. In text, names of more than 200 characters, or than the terminal has room for,
    /// are shortened: first what is in their brackets. Patterns match all forms. JSON always has
    /// full names.
    #[arg(long)]
    full_names: bool,
}

impl NameArguments {
    /// How much of a name text for people shows.
    pub fn length(self) -> NameLength {
        if self.full_names { NameLength::Whole } else { NameLength::Fitting }
    }
}

/// How `info` and `replay` write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl TextFormat {
    /// How what could steer a terminal is written on one.
    pub fn escapes(self) -> Escapes {
        match self {
            TextFormat::Text => Escapes::Text,
            TextFormat::Json => Escapes::Json,
        }
    }
}

/// A folder that exists: a mistyped one would be ignored silently.
pub(super) fn existing_folder() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
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

pub(super) fn process_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "write a process id; `everycall ps` lists the traced processes".to_owned())
}

/// A number of bytes, such as `64K`, `256M` or `1G`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text.as_bytes()).filter(|bytes| (1..=SIZE_MAX).contains(bytes));
    bytes.ok_or_else(|| "write a size such as 64K, 256M or 1G".to_owned())
}

/// A number of bytes that holds a few segments at least.
pub(super) fn large_size(text: &str) -> Result<u64, String> {
    let bytes = size(text).ok().filter(|bytes| *bytes >= SIZE_MIN);
    bytes.ok_or_else(|| "write a size of 64K at least, such as 64M or 1G".to_owned())
}

fn path_map() -> impl clap::builder::TypedValueParser<Value = PathMap> {
    use clap::builder::{OsStringValueParser, TypedValueParser};
    OsStringValueParser::new().try_map(|text| PathMap::parse(&text))
}
