//! The complete answer about a call, as values. Times are nanoseconds; moments count from the
//! trace's origin.

use std::path::PathBuf;

use everycall_analysis::{CallPlace, Function};
use everycall_timeline::StateTimes;

/// A function, as outputs name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The displayed name.
    pub name: String,
    /// The complete name.
    pub full_name: String,
    /// File name of its program or library.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Line of its declaration.
    pub line: Option<u32>,
}

impl Named {
    pub(crate) fn of(function: Option<&Function>) -> Named {
        let Some(function) = function else { return Named::default() };
        let identity = function.identity.clone();
        Named {
            name: function.name.clone(),
            full_name: identity.name,
            module: identity.module,
            file: identity.file,
            line: identity.line,
        }
    }
}

/// How the call was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// It was asked for.
    Asked,
    /// Of the calls that triggers kept, the slowest that was recorded from its entry to its exit.
    SlowestKept,
    /// It is the slowest of the functions that were asked for.
    SlowestOf,
    /// Of functions with many calls, the one whose slowest call is farthest above its median.
    FarthestAboveMedian,
    /// No function was called often: it is the longest call that called something.
    Longest,
}

impl Chosen {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Chosen::Asked => "asked",
            Chosen::SlowestKept => "slowest_kept_call",
            Chosen::SlowestOf => "slowest_of_function",
            Chosen::FarthestAboveMedian => "farthest_above_median",
            Chosen::Longest => "longest",
        }
    }
}

/// The call that is explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneCall {
    /// Its function.
    pub function: Named,
    /// Where it is.
    pub place: CallPlace,
    /// Name of its thread.
    pub thread: String,
    /// When it ended.
    pub end_ns: u64,
    /// Its time without that of the calls that it made.
    pub own_ns: u64,
    /// The least and the most that it took, where events had no times of their own.
    pub bounds: Option<(u64, u64)>,
    /// Whether its duration is a bound, because its entry or exit isn't known.
    pub is_uncertain: bool,
    /// Whether it took at most so long: what it jumped to isn't traced.
    pub is_at_most: bool,
    /// Whether it was unwound.
    pub is_unwound: bool,
    /// Whether it ended in a tail call that its duration doesn't include.
    pub is_before_tail: bool,
    /// Its number, if a trigger kept it.
    pub kept: Option<usize>,
    /// Its arguments: as people read them, and as JSON.
    pub arguments: Option<(String, String)>,
    /// Its result, likewise.
    pub result: Option<(String, String)>,
    /// Its labels.
    pub labels: Vec<(String, Option<u64>)>,
}

impl OneCall {
    /// How long it took, as far as it was recorded.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.place.start_ns)
    }
}

/// Calls around the median of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Median {
    /// The median of all durations.
    pub p50_ns: u64,
    /// How many calls are around it.
    pub calls: u64,
    /// How long these took on average.
    pub average_ns: f64,
    /// The call that is nearest to the median.
    pub nearest: Option<(CallPlace, u64)>,
}

/// The reason why a part or a function takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Median calls don't call it.
    OnlyHere,
    /// It was called more often.
    MoreCalls,
    /// Its calls took longer.
    SlowerCalls,
    /// The thread waited.
    Waiting,
    /// The thread waited for a CPU.
    WaitingForCpu,
    /// The function itself, with what isn't traced; whether it waited isn't known or isn't the
    /// reason.
    OwnTime,
    /// It didn't take longer.
    NotMore,
}

impl Cause {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::OnlyHere => "only_here",
            Cause::MoreCalls => "more_calls",
            Cause::SlowerCalls => "slower_calls",
            Cause::Waiting => "waiting",
            Cause::WaitingForCpu => "waiting_for_cpu",
            Cause::OwnTime => "own_time",
            Cause::NotMore => "not_more",
        }
    }
}

/// A part of a call: its own time, or its calls of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct PartOfCall {
    /// `own`, `suspended`, `tail` or `call`.
    pub kind: &'static str,
    /// The called function.
    pub function: Option<Named>,
    /// Its time in the call.
    pub call_ns: u64,
    /// Its time in calls around the median, per call; `None` if there is nothing to compare with.
    pub median_ns: Option<f64>,
    /// Calls of the function.
    pub call_calls: u64,
    /// Calls of the function in those around the median, per call.
    pub median_calls: Option<f64>,
    /// Why it is longer.
    pub cause: Cause,
}

impl PartOfCall {
    /// How much longer it is.
    #[must_use]
    pub fn more_ns(&self) -> f64 {
        self.call_ns as f64 - self.median_ns.unwrap_or(0.0)
    }
}

/// A call on the way to where the time went.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its function.
    pub function: Named,
    /// Where it is.
    pub place: CallPlace,
    /// When it ended.
    pub end_ns: u64,
    /// How long it took, with its tail call if these are followed.
    pub duration_ns: u64,
    /// How many calls of its function have a known duration.
    pub timed_calls: u64,
    /// Those it is compared with.
    pub median: Option<Median>,
    /// Its parts, the largest difference first.
    pub parts: Vec<PartOfCall>,
    /// How many more there are.
    pub further_parts: usize,
    /// The pattern that means its function, for `report`.
    pub pattern: String,
}

/// Sums of a function in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowNumbers {
    /// Its calls.
    pub calls: u64,
    /// Time in it and what it called.
    pub total_ns: u64,
    /// Its own time.
    pub own_ns: u64,
    /// How its thread spent that; `None` without thread states.
    pub own_states: Option<StateTimes>,
}

/// A function in the call and in a median call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoRows {
    /// The function.
    pub function: Named,
    /// In the call.
    pub call: RowNumbers,
    /// In the median call, if there is one.
    pub median: Option<RowNumbers>,
    /// Why its own time is longer.
    pub cause: Cause,
}

impl TwoRows {
    /// How much longer its own time is.
    #[must_use]
    pub fn more_ns(&self) -> i128 {
        i128::from(self.call.own_ns) - i128::from(self.median.map_or(0, |row| row.own_ns))
    }
}

/// What the own time of a function in the call went into, by sampled stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The function.
    pub function: Named,
    /// How many samples were at each place, most first.
    pub places: Vec<(String, u64)>,
}

/// Calls with one value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRow {
    /// The argument.
    pub name: String,
    /// Its value in the call.
    pub value: String,
    /// Calls with this value.
    pub calls: u64,
    /// The shortest of them.
    pub min_ns: Option<u64>,
    /// Their median.
    pub p50_ns: Option<u64>,
    /// How many values there are.
    pub values: u64,
    /// Whether it is the largest number of several.
    pub is_largest: bool,
}

/// The thread that held what a call waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub tid: u32,
    /// Its name, if it is in the trace.
    pub thread: Option<String>,
}

/// A call that waited for something known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCall {
    /// Its function.
    pub function: Named,
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Its labels: `lock: cache_lock`, `held by: in load`.
    pub labels: Vec<(String, Option<u64>)>,
    /// Who held it.
    pub holder: Option<Holder>,
}

/// The waits of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How its thread spent the time; `None` without thread states.
    pub states: Option<StateTimes>,
    /// That of the median call.
    pub median_states: Option<StateTimes>,
    /// In which system calls it was blocked, as far as they are known.
    pub blocked_in: Vec<(&'static str, u64)>,
    /// The thread that ended the longest wait, and its name.
    pub woken_by: Option<(u32, Option<String>)>,
    /// Calls in it that waited for something known, the longest first.
    pub calls: Vec<WaitingCall>,
    /// How many more there are.
    pub further_calls: usize,
}

/// Which claims something that is missing concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The numbers of other calls.
    Comparison,
    /// The inside of the call.
    Call,
    /// Whether it waited.
    Waiting,
    /// The values of arguments.
    Values,
    /// All of them.
    All,
}

impl Concern {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Concern::Comparison => "comparison",
            Concern::Call => "call",
            Concern::Waiting => "waiting",
            Concern::Values => "values",
            Concern::All => "all",
        }
    }
}

/// Something that the trace lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its name for programs.
    pub what: &'static str,
    /// How many, if they were counted.
    pub count: Option<u64>,
    /// For people.
    pub sentence: String,
    /// The claims that it concerns.
    pub concern: Concern,
    /// Whether a claim may be wrong because of it, or is only missing.
    pub is_doubt: bool,
}

/// A statement about the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name for programs.
    pub kind: &'static str,
    /// A sentence.
    pub text: String,
    /// Why it could be wrong.
    pub doubts: Vec<String>,
    /// Commands that show more.
    pub next: Vec<String>,
}

/// Everything about one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// The file.
    pub file: PathBuf,
    /// How the call was chosen.
    pub chosen: Chosen,
    /// How many calls triggers kept.
    pub kept_calls: usize,
    /// Whether durations include tail calls.
    pub follows_tails: bool,
    /// The call.
    pub call: OneCall,
    /// From the call down to where the time went. The first one is the call itself.
    pub steps: Vec<Step>,
    /// All functions in the call, the largest difference of own time first.
    pub functions: Vec<TwoRows>,
    /// How many more there are.
    pub further_functions: usize,
    /// Its arguments, beside other values.
    pub values: Vec<ValueRow>,
    /// Its waits.
    pub waits: Waits,
    /// What own times in it went into, by sampled stacks: functions with most samples first.
    pub samples: Vec<Sampled>,
    /// Things that the trace lacks.
    pub missing: Vec<Missing>,
    /// The statements.
    pub claims: Vec<Claim>,
}
