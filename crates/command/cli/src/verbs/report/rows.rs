//! Rows of tables: how many, in which order, and what their names are.

use everycall_analysis::{Grouping, Key, Order, Profile, Row};
use everycall_export::NameLength;

use crate::arguments::{ReportArguments, TableFormat};
use crate::output::{Room, clean};

/// Default number of rows in text.
pub const ROWS: usize = 50;

/// The number by which rows are sorted by default. It decides what the table is about, too.
pub fn usual_sort(profile: &Profile) -> Order {
    match profile.counts_memory || profile.memory().is_some() {
        true => Order::OwnAllocated,
        false if profile.is_untimed() => Order::Calls,
        false => Order::OwnTime,
    }
}

/// The number of rows to show.
pub fn limit(arguments: &ReportArguments) -> usize {
    match arguments.limit {
        Some(0) => usize::MAX,
        Some(limit) => limit,
        None if arguments.format == TableFormat::Text => ROWS,
        None => usize::MAX,
    }
}

/// The room for the table.
pub fn room(arguments: &ReportArguments) -> Room {
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
pub fn shown_key(profile: &Profile, row: &Row<'_>, names: NameLength) -> String {
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

/// A table whose last column is a name that may be shortened.
pub fn fitted<const N: usize>(lines: &[[String; N]], room: Room) -> String {
    let column = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N - 1).map(column).collect();
    let taken: usize = widths.iter().map(|width| width + 2).sum();
    let mut text = String::new();
    for (row, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{cell:>width$}  "));
        }
        let name = &line[N - 1];
        let width = room.width.map(|width| width.saturating_sub(taken).max(10));
        if row > 0 {
            text.push_str(&room.names.shown(name, width))
        } else {
            text.push_str(name)
        }
        text.push('\n');
    }
    text
}
