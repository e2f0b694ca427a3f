//! `everycall report`: every number about every function.
//!
//! ```text
//! meant     functions that options name;  whole: totals of a process
//! rows      how many rows, in which order
//! load      files -> Profile: opening, filtering, what is said of them
//! text      the table for people;  columns: what stands in it
//! machine   CSV and JSON
//! corrected --corrected: total and own times without what hooks cost
//! samples   what own times went into, by sampled stacks
//! part      FILE@RANGE and FILE@LABEL of --diff
//! views     callers, callees, tree, slowest, explain;  never;  compare: --diff and --fail-if
//! notes     what is missing in the numbers, as sentences
//! ```

mod columns;
mod compare;
pub mod corrected;
mod load;
mod machine;
mod meant;
mod never;
mod notes;
mod part;
mod rows;
mod samples;
mod text;
mod views;
mod whole;

use std::process::ExitCode;

use everycall_analysis::{Grouping, OwnSamples, Profile};
use everycall_export::NameLength;

use crate::arguments::{ReportArguments, TableFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Room, print_as};
pub use load::{Load, Run, mixed};
pub use meant::{is_meant, pattern};
pub use rows::heading;
use rows::{ROWS, limit, room, usual_sort};
pub use views::ONLY_COUNTED;

/// Runs the verb.
pub fn run(arguments: ReportArguments) -> Result<ExitCode, Failure> {
    let load = Load::new(&arguments)?;
    if !arguments.diff.diff.is_empty() {
        return compare::run(&arguments, &load);
    }
    let view = &arguments.view;
    if let Some(function) = &view.callers {
        return views::edges(&arguments, &load, function, true);
    }
    if let Some(function) = &view.callees {
        return views::edges(&arguments, &load, function, false);
    }
    if view.tree {
        return views::tree(&arguments, &load);
    }
    if view.never {
        return never::run(&arguments, &load);
    }
    let is_with_tails = arguments.by != Grouping::Path && !arguments.corrected;
    let load = if is_with_tails { load.with_tail_of_kept(&arguments.traces) } else { load };
    if let Some(function) = &view.slowest {
        return views::slowest(&arguments, &load, function);
    }
    if let Some(function) = &view.explain {
        return views::explain(&arguments, &load, function);
    }
    table(&arguments, &load)
}

/// The table.
fn table(arguments: &ReportArguments, load: &Load) -> Result<ExitCode, Failure> {
    let conditions = compare::conditions(arguments)?;
    if !conditions.is_empty() && arguments.by != Grouping::Function {
        return Err(Failure::new(exit_code::USAGE, "--fail-if is about functions; leave out --by"));
    }
    if arguments.tails && arguments.by == Grouping::Path {
        return Err(Failure::new(
            exit_code::USAGE,
            "--tails can't be combined with paths, in which a tail call is beside the call that it ends",
        ));
    }
    if arguments.corrected {
        corrected::check(arguments)?;
    }
    let mut profile = load.profile(arguments.by.clone());
    let mut own = OwnSamples::default();
    let runs = load.add_all_with(&arguments.traces, &mut profile, &mut own)?;
    let own = Some(&own).filter(|own| !own.is_empty());
    if arguments.no_blocked && !profile.leave_out_blocked() {
        return Err(Failure::new(
            exit_code::USAGE,
            "--no-blocked needs to know when threads waited; record with `everycall record --states`",
        ));
    }
    let sort = match arguments.sort.filter(|sort| sort.is_memory() || !profile.is_untimed()) {
        Some(sort) => sort,
        None => usual_sort(&profile),
    };
    let mut all = profile.rows_of_all_calls(sort);
    let correction =
        arguments.corrected.then(|| corrected::correction(arguments, &profile, &runs)).transpose()?;
    if let Some(correction) = &correction {
        corrected::sort(correction, &mut all, sort);
    }
    let shown = &all[..limit(arguments).min(all.len())];
    let style = text::Style { room: room(arguments), by: &arguments.by, sort, correction, own };
    print_as(
        arguments.format.escapes(),
        &match arguments.format {
            TableFormat::Text => text::table(&profile, shown, &style),
            TableFormat::Csv => machine::csv(&profile, shown, correction.as_ref()),
            TableFormat::Json => machine::json(&profile, shown, &runs, correction.as_ref(), own),
        },
    )?;
    load.explain(&profile, &runs, &arguments.traces, sort);
    if let Some(correction) = &correction {
        corrected::explain(correction, &profile, &all, !arguments.untraced.is_empty());
    }
    if shown.len() < all.len() && arguments.format == TableFormat::Text {
        notes::more_rows(all.len() - shown.len());
    }
    compare::check(arguments, &conditions, &profile)
}

/// The table of a profile, as `report` prints it, with what it lacks.
pub fn print_table(
    profile: &Profile,
    runs: &[Run],
    format: TableFormat,
    limit: Option<usize>,
    names: NameLength,
) -> Result<(), Failure> {
    let order = usual_sort(profile);
    let all = profile.rows_of_all_calls(order);
    let most = match limit {
        Some(0) => usize::MAX,
        Some(limit) => limit,
        None if format == TableFormat::Text => ROWS,
        None => usize::MAX,
    };
    let shown = &all[..most.min(all.len())];
    let room = Room::of_terminal(names);
    let style = text::Style { room, by: profile.grouping(), sort: order, correction: None, own: None };
    print_as(
        format.escapes(),
        &match format {
            TableFormat::Text => text::table(profile, shown, &style),
            TableFormat::Csv => machine::csv(profile, shown, None),
            TableFormat::Json => machine::json(profile, shown, runs, None, None),
        },
    )?;
    notes::print_measures(profile, order);
    notes::print_notes(&profile.notes, &[]);
    if shown.len() < all.len() && format == TableFormat::Text {
        notes::more_rows(all.len() - shown.len());
    }
    Ok(())
}
