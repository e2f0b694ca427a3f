//! `everycall report`: every number about every function.
//!
//! ```text
//! load      files -> Profile: opening, filtering, what is said of them
//! text      the table for people;  columns: what stands in it
//! machine   CSV and JSON
//! corrected --corrected: total and own times without what hooks cost
//! part      FILE@RANGE and FILE@LABEL of --diff
//! views     callers, callees, tree, slowest, explain;  never;  compare: --diff and --fail-if
//! notes     what is missing in the numbers, as sentences
//! ```

mod columns;
mod compare;
pub mod corrected;
mod load;
mod machine;
mod never;
mod notes;
mod part;
mod text;
mod views;

use std::process::ExitCode;

use everycall_analysis::{Grouping, Key, Order, Profile, Row};
use everycall_export::NameLength;

use crate::arguments::{ReportArguments, TableFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Room, clean, print_as};
pub use load::{Load, Run, mixed};

/// Default number of rows in text.
const ROWS: usize = 50;

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
    let runs = load.add_all(&arguments.traces, &mut profile)?;
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
    let style = text::Style { room: room(arguments), by: &arguments.by, sort, correction };
    print_as(
        arguments.format.escapes(),
        &match arguments.format {
            TableFormat::Text => text::table(&profile, shown, &style),
            TableFormat::Csv => machine::csv(&profile, shown, correction.as_ref()),
            TableFormat::Json => machine::json(&profile, shown, &runs, correction.as_ref()),
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
    let style = text::Style { room, by: profile.grouping(), sort: order, correction: None };
    print_as(
        format.escapes(),
        &match format {
            TableFormat::Text => text::table(profile, shown, &style),
            TableFormat::Csv => machine::csv(profile, shown, None),
            TableFormat::Json => machine::json(profile, shown, runs, None),
        },
    )?;
    notes::print_measures(profile, order);
    notes::print_notes(&profile.notes, &[]);
    if shown.len() < all.len() && format == TableFormat::Text {
        notes::more_rows(all.len() - shown.len());
    }
    Ok(())
}

/// The number by which rows are sorted by default. It decides what the table is about, too.
fn usual_sort(profile: &Profile) -> Order {
    match profile.counts_memory || profile.memory().is_some() {
        true => Order::OwnAllocated,
        false if profile.is_untimed() => Order::Calls,
        false => Order::OwnTime,
    }
}

/// The number of rows to show.
fn limit(arguments: &ReportArguments) -> usize {
    match arguments.limit {
        Some(0) => usize::MAX,
        Some(limit) => limit,
        None if arguments.format == TableFormat::Text => ROWS,
        None => usize::MAX,
    }
}

/// The room for the table.
fn room(arguments: &ReportArguments) -> Room {
    let names = arguments.symbols.name_length();
    match arguments.width {
        Some(width) => Room { width: Some(width.into()), names },
        None => Room::of_terminal(names),
    }
}

/// The heading of the groups' column.
pub fn heading(by: &Grouping) -> &str {
    match by {
        Grouping::Function => "function",
        Grouping::Symbol => "symbol",
        Grouping::Thread => "thread",
        Grouping::Process => "process",
        Grouping::Module => "module",
        Grouping::File => "source file",
        Grouping::Label(name) => name,
        Grouping::Value(of) => &of.value,
        Grouping::Path => "path",
    }
}

/// The displayed name of a row, on one line.
fn shown_key(profile: &Profile, row: &Row<'_>, names: NameLength) -> String {
    let functions = profile.functions();
    match row.key {
        Key::Path(path) if !path.is_empty() => {
            let name = |number| functions.get(number).map_or("", |function| &function.name);
            let shown = path.iter().map(|number| names.shown(&clean(name(*number)), None));
            shown.collect::<Vec<_>>().join(" > ")
        }
        key => clean(&key.shown(functions)),
    }
}
