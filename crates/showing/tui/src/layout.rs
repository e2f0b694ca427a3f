//! Where things are on a screen of some size.

use ratatui::layout::Rect;

use crate::data::{ALL_CALLS, COLUMNS};

/// Columns of a number in the table, with the space behind it.
pub const NUMBER: usize = 11;
/// Columns that names have at least.
const NAME_MIN: usize = 24;
/// Lines about what is selected in the timeline.
const DETAILS: u16 = 5;

/// The areas of a screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub columns: u16,
    pub lines: u16,
    /// The first line.
    pub title: Rect,
    /// All between the first and the last line.
    pub body: Rect,
    /// The last line.
    pub foot: Rect,
    /// Names of threads in the timeline.
    pub gutter: Rect,
    /// Times above the lanes.
    pub ruler: Rect,
    /// The lanes.
    pub lanes: Rect,
    /// Details of the selection.
    pub details: Rect,
}

impl Layout {
    /// The areas of a screen of so many columns and lines.
    pub fn of(columns: u16, lines: u16) -> Layout {
        let line = |y: u16| Rect { x: 0, y: y.min(lines), width: columns, height: u16::from(y < lines) };
        let body = Rect { x: 0, y: 1.min(lines), width: columns, height: lines.saturating_sub(2) };
        let gutter = (columns / 5).min(28);
        let details = if body.height >= 3 * DETAILS { DETAILS } else { body.height / 4 };
        let lanes = Rect {
            x: gutter,
            y: (body.y + 1).min(lines),
            width: columns - gutter,
            height: body.height.saturating_sub(1 + details),
        };
        Layout {
            columns,
            lines,
            title: line(0),
            body,
            foot: if lines > 1 { line(lines - 1) } else { Rect::default() },
            gutter: Rect { x: 0, width: gutter, ..lanes },
            ruler: Rect { y: body.y, height: body.height.min(1), ..lanes },
            lanes,
            details: Rect {
                x: 0,
                y: lanes.bottom(),
                width: columns,
                height: details.min(lines - lanes.bottom().min(lines)),
            },
        }
    }

    /// Rows of a list below a line of headings.
    pub fn rows(&self) -> usize {
        usize::from(self.body.height.saturating_sub(2))
    }
}

/// The columns of the table that fit, as indices in [`COLUMNS`]; the one that it is sorted by
/// always does. All calls have a column if they are more than those in the trace.
pub fn table_columns(width: usize, sort: usize, has_more_calls: bool) -> Vec<usize> {
    let room = width.saturating_sub(NAME_MIN) / NUMBER;
    let mut columns: Vec<usize> = (0..COLUMNS.len())
        .filter(|column| *column != ALL_CALLS || has_more_calls)
        .take(room.max(1))
        .collect();
    if sort < COLUMNS.len() && !columns.contains(&sort) {
        columns.pop();
        columns.push(sort);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_calls_have_a_column_where_they_are_more() {
        assert!(!table_columns(200, 1, false).contains(&ALL_CALLS));
        assert_eq!(table_columns(80, 1, true), [0, 1, 2, ALL_CALLS, 4]);
        assert_eq!(table_columns(80, 1, false), [0, 1, 2, 4, 5]);
    }

    #[test]
    fn areas_lie_on_the_screen() {
        for columns in 0..120 {
            for lines in 0..60 {
                let screen = Rect::new(0, 0, columns, lines);
                let layout = Layout::of(columns, lines);
                for area in [
                    layout.title,
                    layout.body,
                    layout.foot,
                    layout.gutter,
                    layout.ruler,
                    layout.lanes,
                    layout.details,
                ] {
                    assert!(
                        area.is_empty() || screen.intersection(area) == area,
                        "{columns}x{lines}: {area:?}"
                    );
                }
            }
        }
        assert_eq!(Layout::of(80, 24).lanes, Rect::new(16, 2, 64, 16));
    }
}
