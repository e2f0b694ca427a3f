//! `everycall info`: what a trace contains, and what it lost.
//!
//! - `facts`: all that is shown; `page`: as text, in this `layout`; `json`: machine-readable.
//! - Each of the others is a section: its text, and its JSON.

mod budget;
mod children;
mod clock;
mod dropped;
mod facts;
mod functions;
mod json;
mod layout;
mod marks;
mod modules;
mod page;
mod processes;
mod recording;
mod runtime_counts;
mod sampled;
mod stacks;
mod states;
mod threads;
mod triggers;

use std::process::ExitCode;

use everycall_analysis::{
    NameOptions, Order, Profile, SymbolNames, TraceView, budget, dropped_calls, event_intervals, kept_calls,
    sampled_counters,
};
use everycall_export::Calendar;

use self::facts::Report;
use crate::arguments::{InfoArguments, TextFormat};
use crate::failure::Failure;
use crate::output::print_as;
use crate::traces;

/// Functions that are listed in each order.
const FUNCTIONS_LISTED: usize = 10;

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
