//! Calls that were counted: instead of recording them, or beside that.

use crate::functions::{Function, Functions};
use crate::group::{Grouping, Key};
use crate::notes::Notes;
use crate::sums::Sums;
use crate::table::Cells;

/// The profile to which counted calls are added.
pub struct Counts<'p> {
    /// How it groups calls.
    pub grouping: &'p Grouping,
    /// The trace's number.
    pub number: usize,
    /// Its functions.
    pub functions: &'p mut Functions,
    pub(crate) cells: &'p mut Cells,
    /// Losses that make its numbers incomplete.
    pub notes: &'p mut Notes,
}

impl Counts<'_> {
    /// Adds to the sums of a group.
    pub fn add(&mut self, key: Key, sums: &Sums) {
        self.cells.add(key, sums);
    }

    /// Adds calls of a function that were counted outside of traces.
    pub(crate) fn add_function(&mut self, function: Function, calls: u64) {
        let identity = function.identity.clone();
        let key = match self.grouping {
            Grouping::Module => Key::Module(identity.module),
            Grouping::File => Key::File(identity.file),
            _ => Key::Function(self.functions.number(function)),
        };
        let sums = Sums { calls, untimed: calls, all_calls: calls, ..Sums::default() };
        self.add(key, &sums);
    }
}
