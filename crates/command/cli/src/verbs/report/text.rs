//! The text table, as wide as the terminal.

use everycall_analysis::{Correction, Grouping, Key, Order, OwnSamples, Profile, Row};
use everycall_units::Duration;

use super::columns::{self, Column, Scale};
use super::rows::{heading, shown_key};
use super::samples;
use crate::output::Room;

/// How the table is laid out.
pub struct Style<'a> {
    pub room: Room,
    pub by: &'a Grouping,
    /// The number by which the rows are sorted. If it is one of memory, the table is about memory.
    pub sort: Order,
    /// How times are corrected; then, the table has corrected times alone.
    pub correction: Option<Correction>,
    /// Sampled stacks in own times: below each function.
    pub own: Option<&'a OwnSamples>,
}

/// Smallest width of names, unless all are shorter.
const NAME_LEAST: usize = 30;

/// The table, with a newline after each row.
pub fn table(profile: &Profile, rows: &[Row<'_>], style: &Style<'_>) -> String {
    let scale = Scale::of(rows.iter().map(|row| row.sums));
    let all_own = profile.rows(Order::OwnTime);
    let scale = Scale { correction: style.correction.unwrap_or_default(), ..scale };
    let own = |row: &Row<'_>| match style.correction {
        Some(_) => scale.corrected(row.sums, Order::OwnTime).time.value,
        None => row.sums.own_ns,
    };
    let own_ns = all_own.iter().map(own).fold(0, u64::saturating_add);
    let is_counted = profile.is_untimed() && matches!(profile.grouping(), Grouping::Value(_));
    let counted_by_value = if is_counted { profile.calls } else { 0 };
    let scale = Scale { own_ns, counted_by_value, ..scale };
    let names: Vec<String> = rows.iter().map(|row| shown_key(profile, row, style.room.names)).collect();
    let mut cells: Vec<(u8, Vec<String>)> = Vec::new();
    let columns: &[(Column, u8)] =
        if style.correction.is_some() { &columns::CORRECTED } else { &columns::ALL };
    for &(column, rank) in columns.iter().filter(|(column, _)| column.is_about(style.sort)) {
        let of_rows: Vec<String> = rows.iter().map(|row| column.cell(row.sums, &scale)).collect();
        if !((column.is_optional() || profile.is_untimed()) && of_rows.iter().all(String::is_empty)) {
            cells.push((rank, std::iter::once(column.heading().to_owned()).chain(of_rows).collect()));
        }
    }
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    if let Some(width) = style.room.width {
        make_room(&mut cells, width.saturating_sub(longest.min(NAME_LEAST)));
    }
    let width = style.room.width.map(|width| width.saturating_sub(taken(&cells)));
    let room = Room { width, ..style.room };
    // Found once: there may be a hundred thousand rows.
    let widths: Vec<usize> = cells.iter().map(|(_, column)| column_width(column)).collect();
    let mut text = String::new();
    for row in 0..=rows.len() {
        for ((_, column), width) in cells.iter().zip(&widths) {
            text.push_str(&format!("{:>width$}  ", column[row]));
        }
        match row.checked_sub(1).and_then(|row| rows.get(row).zip(names.get(row))) {
            None => text.push_str(heading(style.by)),
            Some((of, name)) => text.push_str(&fitting(of.key, name, room)),
        }
        text.push('\n');
        let row = row.checked_sub(1).and_then(|row| rows.get(row));
        if let Some(line) = style.own.zip(row).and_then(|(own, row)| samples::line(own, profile, row)) {
            let line = format!("own: {line}");
            let indent = widths.iter().map(|width| width + 2).sum::<usize>() + 2;
            // Further to the left where it has no room below the name.
            let room = style.room.width.map_or(indent, |width| width.saturating_sub(line.chars().count()));
            text.push_str(&format!("{:indent$}{line}\n", "", indent = indent.min(room)));
        }
    }
    let has_histogram = cells.iter().any(|(_, column)| column[0] == Column::Histogram.heading());
    if let Some((min, max)) = scale.reach.filter(|_| has_histogram) {
        let (min, max) = (Duration { ns: min }, Duration { ns: max });
        text.push_str(&format!("\nhistogram: from {min} to {max}, logarithmic\n"));
    }
    text
}

fn column_width(column: &[String]) -> usize {
    column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
}

fn taken(cells: &[(u8, Vec<String>)]) -> usize {
    cells.iter().map(|(_, column)| column_width(column) + 2).sum()
}

/// Removes columns, those of the highest rank first, until the others fit.
fn make_room(cells: &mut Vec<(u8, Vec<String>)>, width: usize) {
    while taken(cells) > width {
        let Some(rank) = cells.iter().map(|(rank, _)| *rank).max().filter(|rank| *rank > 0) else { return };
        let at = cells.iter().rposition(|(of, _)| *of == rank);
        at.map(|at| cells.remove(at));
    }
}

/// A name, shortened to the room that it has.
fn fitting(key: &Key, name: &str, room: Room) -> String {
    match (key, room.width.filter(|width| name.chars().count() > *width)) {
        (Key::Function(_), _) => room.names.shown(name, room.width),
        (_, None) => name.to_owned(),
        // The end of a name is the most informative part.
        (_, Some(width)) => {
            let skipped = name.chars().count() - width.saturating_sub(1);
            std::iter::once('…').chain(name.chars().skip(skipped)).collect()
        }
    }
}
