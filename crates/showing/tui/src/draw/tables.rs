//! The table of functions, and the slowest calls of one of them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::palette::Palette;
use super::parts::{count, instead, moment, part, put, time};
use crate::data::{ALL_CALLS, CALLS, COLUMNS, Request};
use crate::layout::{NUMBER, table_columns};
use crate::state::App;
use crate::state::table::{Instances, NAME};
use crate::text::{right, shown};

/// Draws it.
pub fn draw(app: &App, palette: &Palette, out: &mut Buffer) {
    match &app.table.instances {
        Some(instances) => slowest(app, instances, palette, out),
        None => functions(app, palette, out),
    }
}

fn below(area: Rect) -> Rect {
    Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }
}

fn functions(app: &App, palette: &Palette, out: &mut Buffer) {
    let (area, view) = (app.layout.body, &app.table);
    let columns = table_columns(area.width.into(), view.sort, view.table.has_more_calls);
    let mark = |column: usize| match (view.sort == column, view.is_reversed) {
        (true, false) => "▼",
        (true, true) => "▲",
        _ => "",
    };
    let heading = |column: &usize| {
        let name = COLUMNS.get(*column).map_or("", |(name, _)| name);
        right(&format!("{name}{}", mark(*column)), NUMBER)
    };
    let headings: String = columns.iter().map(heading).collect();
    let filter = if view.filter.is_empty() { String::new() } else { format!("f {}  ", view.filter) };
    let functions = if view.order.len() == view.table.rows.len() {
        format!("{} functions", count(view.order.len() as u64))
    } else {
        format!("{} of {} functions", count(view.order.len() as u64), count(view.table.rows.len() as u64))
    };
    let note = if view.is_there {
        format!("{filter}{functions}, {} calls  {}", count(view.table.calls), part(app))
    } else {
        String::new()
    };
    put(out, area, 0, 0, &shown(&format!("{headings}  function{}  {note}", mark(NAME))), palette.strong());
    let rows = below(area);
    if view.order.is_empty() {
        let text = if view.is_there && !view.table.rows.is_empty() {
            "No function passes the filter; Esc removes it.".to_owned()
        } else {
            instead(app, |request| matches!(request, Request::Table(_)))
        };
        put(out, rows, 1, 0, &text, palette.quiet());
        return;
    }
    for (row, place) in (view.list.top..view.order.len()).take(view.height).enumerate() {
        let Some(of) = view.order.get(place).and_then(|at| view.table.rows.get(*at)) else { continue };
        let is_here = place == view.list.cursor;
        let text = |column: &usize| {
            let number = of.numbers.get(*column).copied().flatten();
            let shown = if [CALLS, ALL_CALLS].contains(column) { count } else { time };
            let number = number.map_or_else(|| "-".to_owned(), shown);
            right(&number, NUMBER)
        };
        let numbers: String = columns.iter().map(text).collect();
        let mut style =
            if app.is_meant(of.function) { palette.hit(Style::default()) } else { Style::default() };
        let mut plain = Style::default();
        if is_here {
            (style, plain) = (palette.cursor(), palette.cursor());
            out.set_style(Rect { y: rows.y + row as u16, height: 1, ..rows }, style);
        }
        let column = put(out, rows, 0, row, &format!("{numbers}  "), plain);
        put(out, rows, column, row, &shown(app.name(of.function)), style);
    }
}

fn slowest(app: &App, instances: &Instances, palette: &Palette, out: &mut Buffer) {
    let area = app.layout.body;
    let widths = [NUMBER, NUMBER, NUMBER + 8];
    let headings: String =
        ["duration", "own", "start"].iter().zip(widths).map(|(text, width)| right(text, width)).collect();
    let name = app.name(instances.function);
    put(
        out,
        area,
        0,
        0,
        &shown(&format!("{headings}  slowest calls of {name}  {}", part(app))),
        palette.strong(),
    );
    let rows = below(area);
    if instances.rows.is_empty() {
        let text = if instances.is_there {
            "None of its calls was recorded from entry to exit.".to_owned()
        } else {
            instead(app, |request| matches!(request, Request::Instances { .. }))
        };
        put(out, rows, 1, 0, &text, palette.quiet());
        return;
    }
    let places = instances.list.top..instances.rows.len();
    for (row, place) in places.take(app.layout.rows()).enumerate() {
        let Some(call) = instances.rows.get(place) else { continue };
        let numbers = [
            time(call.place.to - call.place.from.min(call.place.to)),
            time(call.own_ns),
            moment(call.place.from),
        ];
        let numbers: String = numbers.iter().zip(widths).map(|(text, width)| right(text, width)).collect();
        let track = app.timeline.tracks.iter().find(|track| track.id == call.place.track);
        let thread = track.map_or_else(String::new, |track| format!("{} {}", track.name, track.tid));
        let flag = if call.uncertain { "  caller uncertain" } else { "" };
        let style = if place == instances.list.cursor { palette.cursor() } else { Style::default() };
        if place == instances.list.cursor {
            out.set_style(Rect { y: rows.y + row as u16, height: 1, ..rows }, style);
        }
        put(out, rows, 0, row, &shown(&format!("{numbers}  {thread}{flag}")), style);
    }
}
