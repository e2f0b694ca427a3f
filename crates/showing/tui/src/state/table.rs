//! Rows of functions, by a column and a filter, and the slowest calls of one of them.

use std::cmp::Reverse;

use super::list::List;
use super::pattern::Pattern;
use crate::data::{COLUMNS, Function, Row, Slow, Table};

/// The column of names, behind those with numbers.
pub const NAME: usize = COLUMNS.len();

/// The table.
#[derive(Clone, Debug)]
pub struct TableView {
    pub table: Table,
    pub is_there: bool,
    /// Index in [`COLUMNS`], or [`NAME`].
    pub sort: usize,
    pub is_reversed: bool,
    pub filter: String,
    /// Indices of the rows that pass the filter, in their order.
    pub order: Vec<usize>,
    pub list: List,
    /// Rows that are seen.
    pub height: usize,
    pub instances: Option<Instances>,
}

/// The slowest calls of a function.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    pub function: u32,
    pub rows: Vec<Slow>,
    pub is_there: bool,
    pub list: List,
}

impl TableView {
    /// Sorted by own time, as `report` is.
    pub fn new() -> TableView {
        TableView {
            table: Table::default(),
            is_there: false,
            sort: 1,
            is_reversed: false,
            filter: String::new(),
            order: Vec::new(),
            list: List::default(),
            height: 0,
            instances: None,
        }
    }

    /// Shows other rows.
    pub fn show(&mut self, table: Table, functions: &[Function]) {
        (self.table, self.is_there) = (table, true);
        self.arrange(functions);
    }

    /// The row at the cursor.
    pub fn row(&self) -> Option<&Row> {
        self.table.rows.get(*self.order.get(self.list.cursor)?)
    }

    /// Sorts and filters; the cursor stays at its row, if it is still there.
    pub fn arrange(&mut self, functions: &[Function]) {
        let at = self.row().map(|row| row.function);
        let name =
            |row: &Row| functions.get(row.function as usize).map_or("", |function| function.name.as_str());
        // A pattern that is being typed may be none yet.
        let pattern = Some(&self.filter).filter(|filter| !filter.is_empty());
        let pattern = pattern.and_then(|filter| Pattern::new(filter).ok());
        let rows = &self.table.rows;
        let is_shown = |row: &Row| pattern.as_ref().is_none_or(|pattern| pattern.is_match(name(row)));
        let mut order: Vec<usize> =
            (0..rows.len()).filter(|at| rows.get(*at).is_some_and(is_shown)).collect();
        if self.sort == NAME {
            order.sort_by_key(|at| rows.get(*at).map(name));
        } else {
            order.sort_by_key(|at| {
                Reverse(rows.get(*at).and_then(|row| row.numbers.get(self.sort).copied().flatten()))
            });
        }
        if self.is_reversed {
            order.reverse();
        }
        self.order = order;
        let place = at.and_then(|at| {
            self.order.iter().position(|of| self.table.rows.get(*of).is_some_and(|row| row.function == at))
        });
        self.list.cursor = place.unwrap_or(0);
        self.settle();
    }

    /// Keeps the cursors in sight.
    pub fn settle(&mut self) {
        self.list.settle(self.order.len(), self.height);
        if let Some(instances) = &mut self.instances {
            instances.list.settle(instances.rows.len(), self.height);
        }
    }

    /// Sorts by the column behind or before the one that it is sorted by, of those that are seen.
    pub fn sort_by_next(&mut self, columns: &[usize], is_forward: bool, functions: &[Function]) {
        let all: Vec<usize> = columns.iter().copied().chain([NAME]).collect();
        let at = all.iter().position(|column| *column == self.sort).unwrap_or(0);
        let step = if is_forward { 1 } else { all.len() - 1 };
        self.sort = all.get((at + step) % all.len()).copied().unwrap_or(0);
        self.is_reversed = false;
        self.arrange(functions);
        self.list = List::default();
    }

    /// Goes to the next row whose function matches, or the one before; false if there is none.
    pub fn find(&mut self, is_meant: impl Fn(u32) -> bool, is_forward: bool) -> bool {
        let count = self.order.len();
        let is_hit = |place: &usize| {
            let row = self.order.get(*place).and_then(|at| self.table.rows.get(*at));
            row.is_some_and(|row| is_meant(row.function))
        };
        let steps = 1..=count;
        let at = self.list.cursor;
        let mut places =
            steps.map(|step| if is_forward { (at + step) % count } else { (at + count - step) % count });
        let found = places.find(is_hit);
        if let Some(place) = found {
            self.list.cursor = place;
            self.settle();
        }
        found.is_some()
    }
}
