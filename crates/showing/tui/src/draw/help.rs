//! The keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::palette::Palette;
use super::parts::put;
use crate::text::padded;

/// Keys and what they do; without keys, a heading.
pub const LINES: [(&str, &str); 55] = [
    ("", "Everywhere"),
    ("1 2 3, Tab", "timeline, tree, table"),
    ("/", "search for a part of a name, or /REGEX/"),
    ("n N", "next hit, previous hit"),
    ("?", "this help; j and k scroll it"),
    ("q, Ctrl-C", "quit"),
    ("Ctrl-Z", "suspend; `fg` comes back"),
    ("", ""),
    ("", "Timeline"),
    ("h l, ← →, a d", "pan"),
    ("< >", "pan by a whole window"),
    ("+ -, w s", "zoom, around what is selected or the middle"),
    ("j k, ↑ ↓, PgUp PgDn", "scroll"),
    ("0", "show all of the trace"),
    ("g", "go to a time"),
    ("H L, Shift-← →", "select the call before, behind"),
    ("J, Shift-↓", "select the longest call that the selected one made"),
    ("K, Shift-↑", "select the caller"),
    ("Enter", "the selected call fills the window"),
    ("x", "the slowest calls of its function"),
    ("m M", "next mark in sight, previous mark"),
    ("f F", "fold a thread, all threads"),
    ("Esc", "select nothing"),
    ("░", "several calls, too short for a column each"),
    ("« » ?", "began before, ended after the recording; caller uncertain"),
    ("x ~", "at a call's end: unwound; took at most so long"),
    ("━ ╍ ·", "the thread was running, runnable, blocked"),
    ("• ◆ = ¶", "label, instant, span, log line or output"),
    ("x c ! + ░", "throw, catch, loss, module; nothing was recorded"),
    ("!░░░", "events of this time were overwritten"),
    ("", ""),
    ("", "Tree"),
    ("j k, ↑ ↓, PgUp PgDn", "move"),
    ("l h, → ←", "unfold, or go inwards; fold, or go outwards"),
    ("Space", "fold or unfold"),
    ("e", "expand the hottest path from here"),
    ("E C", "unfold all below; fold everything"),
    ("z Z", "show only what is below this call; back"),
    ("Enter, x", "the slowest calls of the function"),
    ("r", "count the window of the timeline, or all"),
    ("", ""),
    ("", "Table"),
    ("j k, ↑ ↓, PgUp PgDn", "move"),
    ("< >, s S, ← →", "sort by the next column, the one before"),
    ("R", "reverse the order"),
    ("f", "filter by a part of a name, or /REGEX/, as you type"),
    ("Esc", "no filter"),
    ("Enter, x", "the slowest calls of the function"),
    ("r", "count the window of the timeline, or all"),
    ("", ""),
    ("", "Slowest calls"),
    ("Enter", "show the call in the timeline"),
    ("Esc", "back to the table"),
    ("", ""),
    ("", "Numbers are those of `everycall report`. docs/reference/tui.md says more."),
];

/// Draws it.
pub fn draw(first: usize, palette: &Palette, area: Rect, out: &mut Buffer) {
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            if let Some(cell) = out.cell_mut((x, y)) {
                cell.reset();
            }
        }
    }
    let first = first.min(LINES.len().saturating_sub(area.height.into()));
    for (row, (keys, what)) in LINES.iter().skip(first).take(area.height.into()).enumerate() {
        let column = if keys.is_empty() { 1 } else { 24 };
        put(out, area, 2, row, &padded(keys, 21), palette.strong());
        put(out, area, column, row, what, if keys.is_empty() { palette.strong() } else { Style::default() });
    }
}
