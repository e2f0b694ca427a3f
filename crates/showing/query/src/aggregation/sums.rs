//! The aggregates of a group.

use std::collections::HashSet;

use rusqlite::types::Value;

use super::expression::{Cell, Expression, Surprise, Texts};
use crate::functions::between;

/// An aggregate of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sum {
    pub(super) how: How,
    /// Of which value; of none for `count(*)`.
    pub(super) of: Option<Expression>,
    /// `filter (where ...)`.
    pub(super) filter: Option<Expression>,
}

/// How values are added up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    Count,
    CountDistinct,
    Sum,
    Total,
    Average,
    Least,
    Most,
    /// A percentile, in percent.
    Percentile(f64),
}

/// A group's aggregate so far.
#[derive(Clone, Debug)]
pub(super) enum State {
    Count(i64),
    Distinct(HashSet<Cell, rustc_hash::FxBuildHasher>),
    /// Values and their sum.
    Sum(i64, i64),
    Extreme(Cell),
    Values(Vec<f64>),
}

impl How {
    pub(super) fn start(self) -> State {
        match self {
            How::Count => State::Count(0),
            How::CountDistinct => State::Distinct(HashSet::default()),
            How::Sum | How::Total | How::Average => State::Sum(0, 0),
            How::Least | How::Most => State::Extreme(Cell::Null),
            How::Percentile(_) => State::Values(Vec::new()),
        }
    }

    /// Adds a value. Returns the bytes that this took.
    #[inline]
    pub(super) fn add(self, state: &mut State, cell: Cell, texts: &Texts) -> Result<usize, Surprise> {
        if cell == Cell::Null {
            return Ok(0);
        }
        match state {
            State::Count(count) => *count += 1,
            State::Sum(count, sum) => {
                let Cell::Integer(value) = cell else { return Err(Surprise) };
                *count += 1;
                *sum = sum.checked_add(value).ok_or(Surprise)?;
            }
            State::Distinct(cells) => {
                // A set is at most three quarters full when it grows to twice its size.
                return Ok(if cells.insert(cell) { 2 * size_of::<Cell>() } else { 0 });
            }
            State::Extreme(known) => {
                let wanted =
                    if self == How::Least { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
                if *known == Cell::Null || texts.compare(cell, *known) == wanted {
                    *known = cell;
                }
            }
            State::Values(values) => {
                let Cell::Integer(value) = cell else { return Err(Surprise) };
                values.try_reserve(1).map_err(|_| Surprise)?;
                values.push(value as f64);
                return Ok(2 * size_of::<f64>());
            }
        }
        Ok(0)
    }

    /// The result.
    pub(super) fn value(self, state: State, texts: &Texts) -> Value {
        match (self, state) {
            (_, State::Count(count)) => Value::Integer(count),
            (_, State::Distinct(cells)) => Value::Integer(i64::try_from(cells.len()).unwrap_or(i64::MAX)),
            (How::Total, State::Sum(_, sum)) => Value::Real(sum as f64),
            (_, State::Sum(0, _)) => Value::Null,
            (How::Average, State::Sum(count, sum)) => Value::Real(sum as f64 / count as f64),
            (_, State::Sum(_, sum)) => Value::Integer(sum),
            (_, State::Extreme(cell)) => value(cell, texts),
            (How::Percentile(percent), State::Values(values)) => {
                between(percent, values).map_or(Value::Null, Value::Real)
            }
            (_, State::Values(_)) => Value::Null,
        }
    }
}

/// A value as SQLite takes it.
pub(super) fn value(cell: Cell, texts: &Texts) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(value) => Value::Integer(value),
        Cell::Text(number) => Value::Text(texts.text(number).to_owned()),
    }
}
