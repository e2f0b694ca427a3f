//! `follow`.

use std::ffi::OsString;

use clap::Args;
use everycall_units::parse_time;

use super::common::{Clock, NameArguments};
use super::recorded::ValueArguments;
use super::selection::{PATTERNS, parse_count};

/// `follow`.
#[derive(Debug, Args)]
#[command(after_help = PATTERNS)]
pub struct FollowArguments {
    /// Process id, as `everycall ps` lists it, and functions; only functions if a program is
    /// started
    #[arg(value_name = "PID|PATTERN")]
    pub words: Vec<String>,
    /// How much is shown of functions; repeatable, and the last one that matches a function counts
    ///
    /// 0: nothing. 1: one line for each call, with its duration, and nothing of what it calls. 2:
    /// the call, and the chosen functions that it calls [default for PATTERN]. 3: the call, and all
    /// that is recorded within it, by anybody.
    #[arg(long, value_name = "LEVEL:PATTERN", value_parser = LevelRule::parse)]
    pub level: Vec<LevelRule>,
    #[command(flatten)]
    pub values: ValueArguments,
    /// How long to follow, such as 10s [default: until Ctrl-C or the end of the program]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub time: Option<u64>,
    /// End when the process has written this many events; what it writes until that is seen, at
    /// most some milliseconds later, is shown, too
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub max_events: Option<u64>,
    /// In which time moments are shown; trace: since this command began
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Clock::Wall)]
    pub clock: Clock,
    /// Read commands from standard input: `LEVEL PATTERN` changes what is shown, `quit` ends
    /// [default: on a terminal, unless a program is started, whose input it is]
    #[arg(long, conflicts_with = "command")]
    pub commands: bool,
    /// Print no messages
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub names: NameArguments,
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
    /// Whether the user has named the level: it then precedes that of the functions' attributes.
    pub is_named: bool,
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
                Ok(LevelRule { level, pattern: pattern.trim().to_owned(), is_named: true })
            }
            _ => Err(format!(
                "write a level from 0 to {} and a pattern, such as 1{separator}parse_*",
                LevelRule::MAX
            )),
        }
    }
}
