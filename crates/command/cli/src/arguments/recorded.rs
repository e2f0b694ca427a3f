//! Options about recorded events that several verbs have: values of calls, and times.

use clap::{Args, ValueEnum};
use everycall_format::stamp;

/// Values of calls.
#[derive(Clone, Debug, Default, Args)]
pub struct ValueArguments {
    /// Record arguments of these functions' calls: all, as in 'handle_*', or some, as in
    /// 'handle(path, req->method, len)'; repeatable
    ///
    /// Names and types come from the debugging information (-g). Without it: 'f(arg1:int,
    /// arg2:str, fparg1:f64)'. Of 'f(path) if len > 4096', only such calls are recorded.
    /// docs/reference/arguments.md has the whole language.
    #[arg(long, value_name = "FUNCTION(VALUES)")]
    pub args: Vec<String>,
    /// Record what these functions return; repeatable
    #[arg(long, value_name = "FUNCTION")]
    pub results: Vec<String>,
    /// Record from where these functions are called: the line of each call in its caller; PATTERN
    /// as for --only [default: all functions]; repeatable
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub call_sites: Vec<String>,
    /// Record at most this many bytes of each text
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub args_text: u32,
}

impl ValueArguments {
    /// Whether nothing of calls is recorded.
    pub fn are_none(&self) -> bool {
        self.args.is_empty() && self.results.is_empty() && self.call_sites.is_empty()
    }
}

/// Which events get a time of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventTimes {
    /// All
    Exact,
    /// Those that don't closely follow another one, every 17th, and the first after the thread was
    /// stopped
    Bounded,
    /// Only the first after the thread was stopped, and some others
    Order,
}

impl EventTimes {
    /// One of [`everycall_format::stamp`].
    pub fn stamps(self) -> u32 {
        match self {
            EventTimes::Exact => stamp::EXACT,
            EventTimes::Bounded => stamp::BOUNDED,
            EventTimes::Order => stamp::ORDER,
        }
    }

    /// The value of the program's environment variable.
    pub fn name(self) -> &'static str {
        match self {
            EventTimes::Exact => "exact",
            EventTimes::Bounded => "bounded",
            EventTimes::Order => "order",
        }
    }
}
