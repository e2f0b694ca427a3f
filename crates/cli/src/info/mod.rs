//! `everycall info`: what a trace contains, and what it lost.
//!
//! - `page`: text; `json`: machine-readable.

mod json;
mod page;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use everycall_analysis::{
    Budget, DroppedCalls, EventIntervals, FunctionRow, KeptCall, NameOptions, Order, Profile,
    SampledCounters, SymbolNames, TraceView, budget, dropped_calls, event_intervals, kept_calls,
    sampled_counters,
};
use everycall_export::{Calendar, NameLength};
use everycall_reader::{Module, TraceFile};
use everycall_timeline::Trace;
use everycall_untouched::Hooked;

use crate::arguments::{Clock, InfoArguments, TextFormat};
use crate::failure::Failure;
use crate::output::print_as;
use crate::traces;
pub use page::signal_name;

/// Functions that are listed in each order.
const FUNCTIONS_LISTED: usize = 10;

/// Everything that is shown about a trace.
struct Report<'a> {
    path: &'a Path,
    file: &'a TraceFile<'static>,
    trace: &'a Trace<'a>,
    profile: Profile,
    by_calls: Vec<FunctionRow>,
    by_own_time: Vec<FunctionRow>,
    kept: Vec<KeptCall>,
    dropped: Option<DroppedCalls>,
    budget: Option<Budget>,
    sampled: Vec<SampledCounters>,
    /// `None` if all events have times of their own.
    intervals: Option<EventIntervals>,
    /// Sentences about damage and about names, in this order.
    warnings: Vec<String>,
    /// How much is shown of functions' names.
    names: NameLength,
    /// In which time moments are shown.
    clock: Clock,
    calendar: Calendar,
}

impl Report<'_> {
    /// Whether a counter of this name was sampled.
    fn is_sampled(&self, name: &str) -> bool {
        self.sampled.iter().flat_map(|process| &process.counters).any(|counter| counter.name == name)
    }
}

/// How many functions of a module that was built without hooks have some. `None` for others, and if
/// its file isn't there any more.
fn hooked(trace: &Trace<'_>, module: &Module) -> Option<Hooked> {
    if module.trampolines == 0 {
        return None;
    }
    let origins = trace.origins_of(module).collect();
    Hooked::of(Path::new(OsStr::from_bytes(&module.path)), &module.build_id, &origins).ok()?
}

/// The displayed name of a kept call's function.
fn kept_function(kept: &KeptCall) -> &str {
    match &kept.function {
        Some(function) => function,
        None if kept.is_throw => "(no call was open)",
        None if !kept.is_call => "(no call: asked for)",
        None => "unknown",
    }
}

impl Report<'_> {
    /// All calls that the processes made while they recorded, as they counted them; 0 if nothing
    /// was counted.
    fn all_calls(&self) -> u64 {
        let rows = self.profile.rows_of_all_calls(Order::Calls);
        rows.iter().map(|row| row.sums.all_calls).fold(0, u64::saturating_add)
    }
}

/// Runs the verb.
pub fn run(arguments: InfoArguments) -> Result<ExitCode, Failure> {
    let path = &arguments.trace;
    let mut file = traces::open(path)?;
    traces::select(&mut file, None, path)?;
    let mut trace = traces::trace(&file, path)?;
    let options = traces::name_options(&arguments.symbols);
    let full_names = options.full_names || arguments.format == TextFormat::Json;
    let names = SymbolNames::new(&file, &trace, NameOptions { full_names, ..options });
    names.name_tasks(&mut trace);
    let view = TraceView::new(&trace, &names);
    let profile = Profile::of(&view);
    let mut warnings: Vec<String> = trace.warnings().iter().map(ToString::to_string).collect();
    let by_calls = profile.top(Order::Calls, FUNCTIONS_LISTED);
    let by_own_time = profile.top(Order::OwnTime, FUNCTIONS_LISTED);
    let kept = kept_calls(&trace, &names);
    let dropped = dropped_calls(&trace, &names);
    let budget = budget(&trace, &names);
    let sampled = sampled_counters(&trace);
    let intervals = event_intervals(&trace, &names);
    warnings.extend(names.warnings().iter().map(ToString::to_string));
    let clock = arguments.clock;
    let calendar = Calendar::local();
    let report = Report {
        path,
        file: &file,
        trace: &trace,
        profile,
        by_calls,
        by_own_time,
        kept,
        dropped,
        budget,
        sampled,
        intervals,
        warnings,
        names: arguments.symbols.name_length(),
        clock,
        calendar,
    };
    print_as(
        arguments.format.escapes(),
        &match arguments.format {
            TextFormat::Text => page::page(&report),
            TextFormat::Json => json::json(&report),
        },
    )?;
    Ok(ExitCode::SUCCESS)
}
