//! Conditions of a query on rows, as far as they can be decided before SQLite sees the rows.
//!
//! SQLite looks at each row again: a condition here may let through too much, never too little.

use everycall_export::Row;
use rusqlite::types::ValueRef;
use rusqlite::vtab::IndexConstraintOp;

use crate::lanes::Lane;

/// Positions of columns in the table of all events.
pub(crate) mod column {
    pub(crate) const KIND: i32 = 0;
    pub(crate) const PID: i32 = 1;
    pub(crate) const TID: i32 = 3;
    pub(crate) const ID: i32 = 5;
    pub(crate) const PARENT: i32 = 6;
    pub(crate) const START: i32 = 9;
    pub(crate) const DURATION: i32 = 11;
    pub(crate) const FUNCTION: i32 = 13;
    pub(crate) const MODULE: i32 = 14;
    pub(crate) const FILE: i32 = 15;
    pub(crate) const LINE: i32 = 16;
    pub(crate) const TRACE: i32 = 23;
}

/// The first and the last value that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Default for Range {
    fn default() -> Self {
        Range { first: i64::MIN, last: i64::MAX }
    }
}

impl Range {
    /// Narrows it to what passes a comparison with one of these values.
    fn add(&mut self, comparison: Comparison, values: &[ValueRef<'_>]) {
        match (comparison, values) {
            (Comparison::OneOf, _) => self.narrow_to_any(values),
            (_, [value]) => self.narrow(comparison, *value),
            _ => {}
        }
    }

    /// Narrows it; values that are no numbers are left to SQLite.
    fn narrow(&mut self, comparison: Comparison, value: ValueRef<'_>) {
        let (floor, ceiling) = match value {
            ValueRef::Integer(value) => (value, value),
            // Conversions saturate.
            ValueRef::Real(value) if !value.is_nan() => (value.floor() as i64, value.ceil() as i64),
            _ => return,
        };
        if comparison != Comparison::Most {
            self.first = self.first.max(floor);
        }
        if comparison != Comparison::Least {
            self.last = self.last.min(ceiling);
        }
    }

    /// Narrows it to where one of these values is. A text may be a number to SQLite.
    fn narrow_to_any(&mut self, values: &[ValueRef<'_>]) {
        if values.iter().any(|value| matches!(value, ValueRef::Text(_) | ValueRef::Blob(_))) {
            return;
        }
        let mut of_all = Range { first: i64::MAX, last: i64::MIN };
        for value in values {
            let mut of_one = Range::default();
            of_one.narrow(Comparison::Equal, *value);
            if of_one != Range::default() {
                of_all.first = of_all.first.min(of_one.first);
                of_all.last = of_all.last.max(of_one.last);
            }
        }
        self.first = self.first.max(of_all.first);
        self.last = self.last.min(of_all.last);
    }

    fn has(self, value: i64) -> bool {
        (self.first..=self.last).contains(&value)
    }
}

/// Comparisons the table can apply itself. SQLite re-checks exclusive bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// With one value.
    Equal,
    /// With several.
    OneOf,
    /// It is at least so much.
    Least,
    /// It is at most so much.
    Most,
}

impl Comparison {
    pub(crate) fn of(operator: &IndexConstraintOp) -> Option<Comparison> {
        Some(match operator {
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => Comparison::Equal,
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => {
                Comparison::Least
            }
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => {
                Comparison::Most
            }
            _ => return None,
        })
    }

    /// As a letter of a plan.
    pub(crate) fn letter(self) -> char {
        match self {
            Comparison::Equal => '=',
            Comparison::OneOf => 'i',
            Comparison::Least => '>',
            Comparison::Most => '<',
        }
    }

    pub(crate) fn of_letter(letter: char) -> Option<Comparison> {
        [Comparison::Equal, Comparison::OneOf, Comparison::Least, Comparison::Most]
            .into_iter()
            .find(|comparison| comparison.letter() == letter)
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Conditions {
    kinds: Option<Vec<String>>,
    pids: Option<Vec<i64>>,
    tids: Option<Vec<i64>>,
    pub(crate) functions: Option<Vec<String>>,
    pub(crate) start: Range,
    duration: Range,
}

impl Conditions {
    /// Adds one: the column is compared with one of these values.
    pub(crate) fn add(&mut self, column: i32, comparison: Comparison, values: &[ValueRef<'_>]) {
        match column {
            column::KIND => self.kinds = texts(values),
            column::FUNCTION => self.functions = texts(values),
            column::PID => self.pids = numbers(values),
            column::TID => self.tids = numbers(values),
            column::START => self.start.add(comparison, values),
            column::DURATION => self.duration.add(comparison, values),
            _ => {}
        }
    }

    /// Whether the lane may have rows that pass.
    pub(crate) fn admit_lane(&self, lane: &Lane) -> bool {
        let admits =
            |list: &Option<Vec<i64>>, number| list.as_ref().is_none_or(|list| list.contains(&number));
        admits(&self.pids, lane.pid) && admits(&self.tids, lane.tid)
    }

    /// Whether the row may pass, as far as its function isn't concerned.
    #[inline]
    pub(crate) fn admit(&self, row: &Row) -> bool {
        self.start.has(row.start_ns)
            && self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| kind == row.kind))
            && (self.duration == Range::default() || row.duration_ns.is_some_and(|ns| self.duration.has(ns)))
    }

    /// Whether what has this name passes.
    pub(crate) fn admit_name(&self, name: &str) -> bool {
        self.functions.as_ref().is_none_or(|functions| functions.iter().any(|function| function == name))
    }
}

/// All values as texts; `None` if one of them is none: SQLite decides.
fn texts(values: &[ValueRef<'_>]) -> Option<Vec<String>> {
    values.iter().map(|value| value.as_str().ok().map(str::to_owned)).collect()
}

fn numbers(values: &[ValueRef<'_>]) -> Option<Vec<i64>> {
    values.iter().map(|value| value.as_i64().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_let_through_what_may_pass() {
        let mut range = Range::default();
        range.narrow(Comparison::Least, ValueRef::Real(1.5));
        range.narrow(Comparison::Most, ValueRef::Integer(9));
        range.narrow(Comparison::Most, ValueRef::Text(b"3"));
        range.narrow(Comparison::Least, ValueRef::Null);
        assert_eq!(range, Range { first: 1, last: 9 });
        range.narrow(Comparison::Least, ValueRef::Real(1e300));
        assert!(!range.has(9) && range.first == i64::MAX);
    }

    #[test]
    fn one_of_several_values_may_be_any_of_them() {
        let of = |values: &[ValueRef<'_>]| {
            let mut range = Range::default();
            range.add(Comparison::OneOf, values);
            range
        };
        let (one, nine) = (ValueRef::Integer(1), ValueRef::Real(8.5));
        assert_eq!(of(&[nine, one, ValueRef::Null]), Range { first: 1, last: 9 });
        assert_eq!(of(&[one, ValueRef::Text(b"20")]), Range::default());
        assert!(!of(&[ValueRef::Null]).has(0));
    }
}
