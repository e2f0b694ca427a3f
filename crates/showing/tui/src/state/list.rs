//! A cursor in rows, of which some are seen.

/// The cursor and the first row that is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List {
    pub cursor: usize,
    pub top: usize,
}

impl List {
    /// Moves the cursor by so many rows.
    pub fn step(&mut self, rows: isize) {
        self.cursor = self.cursor.saturating_add_signed(rows);
    }

    /// Keeps the cursor within `count` rows, and in sight in a window of `height`.
    pub fn settle(&mut self, count: usize, height: usize) {
        let height = height.max(1);
        self.cursor = self.cursor.min(count.saturating_sub(1));
        self.top = self.top.min(self.cursor).max((self.cursor + 1).saturating_sub(height));
        self.top = self.top.min(count.saturating_sub(height));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_stays_in_sight() {
        let mut list = List::default();
        list.step(7);
        list.settle(100, 5);
        assert_eq!(list, List { cursor: 7, top: 3 });
        list.step(-5);
        list.settle(100, 5);
        assert_eq!(list, List { cursor: 2, top: 2 });
        list.step(1000);
        list.settle(100, 5);
        assert_eq!(list, List { cursor: 99, top: 95 });
        list.settle(3, 5);
        assert_eq!(list, List { cursor: 2, top: 0 });
        list.step(-9);
        list.settle(0, 0);
        assert_eq!(list, List { cursor: 0, top: 0 });
    }
}
