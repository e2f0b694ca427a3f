//! The tree of call paths.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::palette::Palette;
use super::parts::{count, instead, part, put, time};
use crate::data::Request;
use crate::layout::NUMBER;
use crate::state::App;
use crate::text::{right, shown};

/// Draws it.
pub fn draw(app: &App, palette: &Palette, out: &mut Buffer) {
    let (area, view) = (app.layout.body, &app.tree);
    let headings: String =
        ["total", "%", "own", "calls"].iter().zip(WIDTHS).map(|(text, width)| right(text, width)).collect();
    let root = view.tree.nodes.get(view.root()).copied().unwrap_or_default();
    let zoomed = view.function(view.root()).map(|function| format!("below {} (Z: back)", app.name(function)));
    let parts: Vec<String> = zoomed.into_iter().chain([part(app)]).filter(|part| !part.is_empty()).collect();
    let further = if view.tree.further > 0 {
        format!("; {} calls on further paths", count(view.tree.further))
    } else {
        String::new()
    };
    put(
        out,
        area,
        0,
        0,
        &shown(&format!("{headings}  call path  {}{further}", parts.join(", "))),
        palette.strong(),
    );
    let rows = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    if view.rows.is_empty() {
        let text = if view.is_there {
            instead(app, |_| false)
        } else {
            instead(app, |request| matches!(request, Request::Tree(_)))
        };
        put(out, rows, 1, 0, &text, palette.quiet());
        return;
    }
    for (row, place) in (view.list.top..view.rows.len()).take(view.height).enumerate() {
        let Some((node, level)) = view.rows.get(place).copied() else { continue };
        let Some(sums) = view.tree.nodes.get(node) else { continue };
        let tenths = u128::from(sums.total_ns) * 1000 / u128::from(root.total_ns.max(1));
        let percent = format!("{}.{} %", tenths / 10, tenths % 10);
        let numbers = [time(sums.total_ns), percent, time(sums.own_ns), count(sums.calls)];
        let numbers: String = numbers.iter().zip(WIDTHS).map(|(text, width)| right(text, width)).collect();
        let (has_more, is_open) = view.fold_state(node);
        let is_open = is_open || node == view.root();
        let fold = match (has_more, is_open) {
            (true, true) => "▾",
            (true, false) => "▸",
            _ => " ",
        };
        let is_here = place == view.list.cursor;
        let function = view.function(node).unwrap_or(u32::MAX);
        let mut style = if app.is_meant(function) { palette.hit(Style::default()) } else { Style::default() };
        if is_here {
            style = palette.cursor();
            out.set_style(Rect { y: rows.y + row as u16, height: 1, ..rows }, style);
        }
        let column = put(out, rows, 0, row, &numbers, if is_here { style } else { Style::default() });
        // Deep paths stay in sight.
        let indent = (2 * level).min(usize::from(rows.width.saturating_sub(60)).max(24) / 2 * 2);
        let deeper = if indent < 2 * level { format!("+{} ", level - indent / 2) } else { String::new() };
        let text = format!("  {}{deeper}{fold} ", " ".repeat(indent));
        let column =
            column + put(out, rows, column, row, &text, if is_here { style } else { palette.quiet() });
        put(out, rows, column, row, &shown(app.name(function)), style);
    }
}

const WIDTHS: [usize; 4] = [NUMBER - 1, 9, NUMBER, NUMBER + 1];
