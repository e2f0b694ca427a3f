//! All that is shown about a trace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use everycall_analysis::{
    Budget, DroppedCalls, EventIntervals, FunctionRow, KeptCall, Order, Profile, SampledCounters,
};
use everycall_export::{Calendar, NameLength};
use everycall_reader::{Module, TraceFile};
use everycall_timeline::Trace;
use everycall_untouched::Hooked;

use crate::arguments::Clock;

/// Everything that is shown about a trace.
pub struct Report<'a> {
    pub path: &'a Path,
    pub file: &'a TraceFile<'static>,
    pub trace: &'a Trace<'a>,
    pub profile: Profile,
    pub by_calls: Vec<FunctionRow>,
    pub by_own_time: Vec<FunctionRow>,
    pub kept: Vec<KeptCall>,
    pub dropped: Option<DroppedCalls>,
    pub budget: Option<Budget>,
    pub sampled: Vec<SampledCounters>,
    /// `None` if all events have times of their own.
    pub intervals: Option<EventIntervals>,
    /// Sentences about damage and about names, in this order.
    pub warnings: Vec<String>,
    /// How much is shown of functions' names.
    pub names: NameLength,
    /// In which time moments are shown.
    pub clock: Clock,
    pub calendar: Calendar,
}

impl Report<'_> {
    /// Whether a counter of this name was sampled.
    pub fn is_sampled(&self, name: &str) -> bool {
        self.sampled.iter().flat_map(|process| &process.counters).any(|counter| counter.name == name)
    }

    /// All calls that the processes made while they recorded, as they counted them; 0 if nothing
    /// was counted.
    pub fn all_calls(&self) -> u64 {
        let rows = self.profile.rows_of_all_calls(Order::Calls);
        rows.iter().map(|row| row.sums.all_calls).fold(0, u64::saturating_add)
    }
}

/// How many functions of a module that was built without hooks have some. `None` for others, and if
/// its file isn't there any more.
pub fn hooked(trace: &Trace<'_>, module: &Module) -> Option<Hooked> {
    if module.trampolines == 0 {
        return None;
    }
    let origins = trace.origins_of(module).collect();
    Hooked::of(Path::new(OsStr::from_bytes(&module.path)), &module.build_id, &origins).ok()?
}

/// The displayed name of a kept call's function.
pub fn kept_function(kept: &KeptCall) -> &str {
    match &kept.function {
        Some(function) => function,
        None if kept.is_throw => "(no call was open)",
        None if !kept.is_call => "(no call: asked for)",
        None => "unknown",
    }
}
