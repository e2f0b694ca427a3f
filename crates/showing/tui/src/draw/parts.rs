//! Parts that all views draw with: a line of text, times and numbers, and the text without rows.

use everycall_units::{Count, Duration};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use crate::data::Request;
use crate::state::App;
use crate::text::{fit, width};

/// Writes into one line of an area; returns the columns used.
pub fn put(out: &mut Buffer, area: Rect, column: usize, row: usize, text: &str, style: Style) -> usize {
    let room = usize::from(area.width).saturating_sub(column);
    if row >= usize::from(area.height) || room == 0 {
        return 0;
    }
    let text = fit(text, room);
    let (x, y) = (area.x + column as u16, area.y + row as u16);
    if out.area.contains(Position { x, y }) {
        out.set_stringn(x, y, &text, room, style);
    }
    width(&text)
}

/// A duration.
pub fn time(ns: u64) -> String {
    Duration { ns }.to_string()
}

/// A moment, to the nanosecond.
pub fn moment(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A moment beside others that are `step` nanoseconds away, with the digits that distinguish them.
pub fn tick(at: u64, step: u64, end: u64) -> String {
    let units = [("s", 9_u32), ("ms", 6), ("us", 3), ("ns", 0)];
    let (unit, zeros) = units.into_iter().find(|(_, zeros)| end >= 10_u64.pow(*zeros)).unwrap_or(("ns", 0));
    let decimals = zeros.saturating_sub(step.max(1).ilog10()) as usize;
    let (whole, rest) = (at / 10_u64.pow(zeros), at % 10_u64.pow(zeros));
    let digits = format!("{rest:0width$}", width = zeros as usize);
    match digits.get(..decimals).filter(|digits| !digits.is_empty()) {
        Some(digits) => format!("{whole}.{digits} {unit}"),
        None => format!("{whole} {unit}"),
    }
}

pub fn count(count: u64) -> String {
    Count(count).to_string()
}

/// The text in the place of rows that aren't there.
pub fn instead(app: &App, is_long: impl Fn(&Request) -> bool) -> String {
    if app.trace.is_opening {
        return "The file's events are being counted.".to_owned();
    }
    if app.waits.iter().any(is_long) { "Computing…".to_owned() } else { "There are no calls.".to_owned() }
}

/// Which part tree and table count, for their line of headings.
pub fn part(app: &App) -> String {
    match app.range {
        None => String::new(),
        Some((from, to)) => format!("from {} to {} (r: all)", time(from), time(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_on_the_ruler_differ() {
        assert_eq!(tick(0, 200_000_000, 507_000_000), "0 ms");
        assert_eq!(tick(364_000_000, 2_000_000, 507_000_000), "364 ms");
        assert_eq!(tick(364_123_400, 200, 364_200_000), "364.1234 ms");
        assert_eq!(tick(1_500_000_000, 500_000_000, 9_000_000_000), "1.5 s");
        assert_eq!(tick(123_456_789_012, 1, 123_456_789_020), "123.456789012 s");
        assert_eq!(tick(17, 5, 90), "17 ns");
        assert_eq!(moment(364_123_456), "0.364123456 s");
    }
}
