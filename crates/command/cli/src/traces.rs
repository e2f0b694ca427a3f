//! Shared by all verbs that read traces: opening a trace, and reporting what is damaged, missing or
//! empty.

use std::io;
use std::path::Path;

use everycall_analysis::counters::counted_doubts;
use everycall_analysis::{
    Function, Functions, Grouping, NameOptions, NameWarning, NoPrices, OpenError, Profile, Selection,
    SymbolNames, TraceView,
};
use everycall_export::{self as export, Calendar, Source as _, Times};
use everycall_io::say;
use everycall_patterns::NamePattern;
use everycall_reader::TraceFile;
use everycall_timeline::{TimelineEvent, Trace};
use everycall_units::Several;

use crate::arguments::{Clock, SymbolArguments};
use crate::failure::Failure;

/// Largest number of messages about symbols; further ones are counted.
const WARNINGS_SHOWN: usize = 10;

/// Opens a trace file or a crash file.
pub fn open(path: &Path) -> Result<TraceFile<'static>, Failure> {
    // Every reader of a trace writes an output afterwards.
    everycall_recorder::outlive_size_limit();
    let opened = everycall_analysis::open(path).map_err(|error| {
        let advice = match &error {
            OpenError::Unreadable(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "; ask its owner for it: traces are private unless their owner shares them"
            }
            OpenError::Unreadable(_) => "; name an existing trace file, as written by `everycall record`",
            OpenError::NotRegular => "; name a trace file made by `everycall record`",
            _ => "",
        };
        Failure::of(path, format!("{error}{advice}"))
    })?;
    for warning in &opened.warnings {
        say!("everycall: {}: {warning}", path.display());
    }
    Ok(opened.file)
}

/// Reduces the file to kept call `number`, counted from 1; without a number, to the recording.
pub fn select(file: &mut TraceFile<'static>, number: Option<usize>, path: &Path) -> Result<(), Failure> {
    let selection = number.map_or(Selection::Recording, Selection::KeptCall);
    everycall_analysis::select(file, selection).map_err(|count| {
        let there = match count {
            0 => "no calls were kept; `everycall record --trigger` keeps them".to_owned(),
            count => format!("its kept calls have numbers from 1 to {count}; `everycall info` lists them"),
        };
        Failure::of(path, there)
    })
}

/// Lets a filter for kept call `number` begin with that call, unless it says where to begin.
pub fn begin_at_kept(trace: &Trace<'_>, number: Option<usize>, filter: &mut export::Filter) {
    let has_begin = filter.since_ns.is_some() || filter.since_wall.is_some() || filter.last_ns.is_some();
    let kept = number.and_then(|number| trace.kept_calls().get(number.checked_sub(1)?));
    if let Some(kept) = kept.filter(|kept| kept.is_call && !has_begin) {
        filter.since_ns = Some(trace.clock_in_ns().ns(kept.start_ticks));
    }
}

/// The timeline of an opened file.
pub fn trace<'a>(file: &'a TraceFile<'static>, path: &Path) -> Result<Trace<'a>, Failure> {
    Trace::open(file).map_err(|error| Failure::of(path, error))
}

/// The timeline of an opened file, for outputs in these times.
pub fn trace_by<'a>(file: &'a TraceFile<'static>, path: &Path, clock: Clock) -> Result<Trace<'a>, Failure> {
    match clock {
        Clock::Raw => Trace::open_in_ticks(file).map_err(|error| Failure::of(path, error)),
        Clock::Trace | Clock::Wall => trace(file, path),
    }
}

/// How times in a trace are shown.
pub fn times<'t>(
    trace: &'t Trace<'_>,
    path: &Path,
    clock: Clock,
    calendar: &'t Calendar,
) -> Result<Times<'t>, Failure> {
    match clock {
        Clock::Trace => Ok(Times::Trace),
        Clock::Raw => Ok(Times::Raw(trace.clock_in_ns())),
        Clock::Wall if trace.clock_in_ns().wall().is_none() => Err(no_wall(path)),
        Clock::Wall => Ok(Times::Wall(calendar)),
    }
}

/// Fails if a filter asks for calendar time and the trace has none.
pub fn check_filter(trace: &Trace<'_>, path: &Path, filter: &export::Filter) -> Result<(), Failure> {
    let asks = filter.since_wall.is_some() || filter.until_wall.is_some();
    if asks && trace.clock_in_ns().wall().is_none() { Err(no_wall(path)) } else { Ok(()) }
}

fn no_wall(path: &Path) -> Failure {
    Failure::of(
        path,
        "contains no reading of the system's clock, so calendar times aren't known; use times since its beginning",
    )
}

/// The options for names.
pub fn name_options(arguments: &SymbolArguments) -> NameOptions {
    NameOptions {
        binary_maps: arguments.map_path.clone(),
        source_maps: arguments.map_source.clone(),
        debug_dirs: arguments.debug_dir.clone(),
        full_names: arguments.full_names(),
        ..NameOptions::default()
    }
}

/// Reports what is damaged or missing in a trace.
pub fn warn(trace: &Trace<'_>, path: &Path) {
    for warning in trace.warnings() {
        say!("everycall: {}: {warning}", path.display());
    }
    let doubts = counted_doubts(trace);
    if !doubts.is_empty() {
        let path = path.display();
        say!("everycall: {path}: calls are missing or in doubt: {}", doubts.join("; "));
    }
}

/// Prints why functions of some modules have no names or lines.
pub fn warn_of_names(names: &SymbolNames<'_>) {
    say_warnings(&names.warnings());
}

/// Prints collected warnings about names or lines.
pub fn say_warnings(warnings: &[NameWarning]) {
    for warning in warnings.iter().take(WARNINGS_SHOWN) {
        say!("everycall: {warning}");
    }
    if warnings.len() > WARNINGS_SHOWN {
        say!("everycall: and {} more of this kind", warnings.len() - WARNINGS_SHOWN);
    }
    if warnings.iter().any(|warning| warning.is_mended_by_path_map()) {
        say!(
            "everycall: paths are mapped with --map-path OLD=NEW (binaries) and --map-source OLD=NEW (sources)"
        );
    }
}

/// If it is the filter's pattern that lets no call through: what it could have been meant to match,
/// as the end of a sentence.
pub fn near_functions(view: &TraceView<'_>, filter: &export::Filter) -> Option<String> {
    let pattern = filter.function.as_ref()?;
    let mut profile = Profile::by(Grouping::Function);
    profile.add_trace(view, &export::Filter { function: None, ..filter.clone() });
    // Functions that are only called in calls that other options leave out.
    let functions = profile.functions();
    let is_meant = |function: &Function| {
        [&function.name, &function.identity.name].iter().any(|name| pattern.is_match(name))
    };
    if profile.calls == 0 || functions.all().iter().any(is_meant) {
        return None;
    }
    let plain = NamePattern::new(pattern.as_str().trim_matches(['^', '$'])).ok();
    Some(plain.map_or_else(String::new, |plain| near(&plain, functions)))
}

/// Functions whose names are similar to a pattern, as the end of a sentence.
pub fn near(pattern: &NamePattern, functions: &Functions) -> String {
    let plain = |function: &Function| {
        let name = &function.identity.name;
        name.split('(').next().filter(|plain| !plain.is_empty()).unwrap_or(name).to_owned()
    };
    let names: Vec<String> = functions.all().iter().map(plain).collect();
    match pattern.near(names.iter().map(String::as_str)).as_slice() {
        [] => "; `everycall report FILE` lists those that were".to_owned(),
        [one] => format!("; there is {one}"),
        [some @ .., last] => format!("; there are {} and {last}", some.join(", ")),
    }
}

/// Explains why an output is empty.
pub fn explain_emptiness(
    summary: &export::Summary,
    filter: &export::Filter,
    view: &TraceView<'_>,
    trace: &Path,
) {
    if summary.slices > 0 {
        return;
    }
    if let Some(label) = &filter.label
        && !view.has_label(&label.name)
    {
        say_no_label(&label.name, trace);
    } else if filter.values.is_some() && !view.has_values() {
        say!(
            "everycall: {} has no arguments and no results, on which --where depends; `everycall record --args` records them",
            trace.display()
        );
    } else if let Some(near) = near_functions(view, filter) {
        let pattern = filter.function.as_ref().map_or("", |pattern| pattern.as_str());
        say!(
            "everycall: no function that was called in {} matches --function `{pattern}`{near}",
            trace.display()
        );
    } else if has_calls(view) {
        let trace = trace.display();
        say!("everycall: no call in {trace} matches the filter options; remove some of them");
    } else if has_only_counts(view) {
        let trace = trace.display();
        say!(
            "everycall: the calls in {trace} were counted, not recorded; `everycall report {trace}` shows them"
        );
    } else {
        let trace = trace.display();
        say!("everycall: {trace} contains no calls; `everycall info {trace}` shows what was recorded");
    }
}

/// Whether a trace has recorded calls. One with marks alone has none.
pub fn has_calls(view: &TraceView<'_>) -> bool {
    let is_call = |event: TimelineEvent| matches!(event, TimelineEvent::Begin(_));
    (0..view.threads().len()).any(|thread| view.timeline(thread).any(is_call))
}

/// Whether the calls of a trace were counted, and none recorded.
pub fn has_only_counts(view: &TraceView<'_>) -> bool {
    let trace = view.trace();
    let is_counted = !trace.counts().is_empty() || !trace.value_counts().is_empty();
    is_counted && !has_calls(view)
}

/// If a trace's calls were counted by their values, says how these are shown.
pub fn say_counted_by_value(view: &TraceView<'_>, trace: &Path) {
    let counts = view.trace().value_counts().iter();
    let calls =
        counts.flat_map(|counts| counts.values.iter().map(|value| value.calls).chain([counts.others]));
    let calls = calls.fold(0, u64::saturating_add);
    if calls > 0 {
        let trace = trace.display();
        say!(
            "everycall: {} counted by values; everycall report --by 'FUNCTION(ARGUMENT)' {trace} shows them",
            Several(calls, "call was", "calls were")
        );
    }
}

/// Says that a trace has no label of this name.
pub fn say_no_label(name: &str, trace: &Path) {
    let trace = trace.display();
    say!("everycall: no label in {trace} is named `{name}`; `everycall info {trace}` lists them");
}

/// Why the times of a file can't be corrected.
pub fn not_corrected(path: &Path, why: NoPrices) -> Failure {
    Failure::of(
        path,
        match why {
            NoPrices::Missing => {
                "doesn't say what tracing cost, so times can't be corrected: it was recorded by an older version, \
                counted or imported; record the program anew"
            }
            NoPrices::Failed => {
                "says that what tracing costs could not be measured when the program started, so times can't be \
                corrected; record the program anew, on a machine with less load"
            }
            NoPrices::Bounded => {
                "has events without a time of their own, whose price isn't known, so times can't be corrected; record \
                the program with `--clock exact`"
            }
        },
    )
}
