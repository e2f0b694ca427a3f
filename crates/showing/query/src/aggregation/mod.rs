//! Queries that add up calls, without SQLite seeing each call.
//!
//! ```text
//! select function, sum(duration_ns) from slices where depth > 2 group by function order by 2 desc
//!        \_______/     \___________/                  \_______/          \______/
//!         a key          an aggregate               a condition           a key
//! ```
//!
//! Keys, aggregates and conditions are found here while a timeline is read; SQLite gets a row for
//! each group, and does the rest: expressions over these, `having`, `order by`, `limit`.
//!
//! ```text
//! plan        a query's text -> Plan, if the query is of this kind; what remains of it for SQLite
//! resolve     its expressions over columns
//! expression  their values, as SQLite has them
//! sums        a group's aggregates
//! scan        Plan and traces -> Groups
//! ```
//!
//! All else is left to SQLite, which has understood the query before. Where a
//! value turns out to be one that SQLite treats in its own way (an overflow), SQLite starts anew.

mod expression;
mod plan;
mod resolve;
mod scan;
mod sums;
#[cfg(test)]
mod tests;

pub(crate) use plan::plan;
pub(crate) use scan::Ended;

use rusqlite::types::Value;

/// Keys of a query, at most.
const KEYS_MAX: usize = 8;
/// Different aggregates of a query, at most.
const SUMS_MAX: usize = 32;

/// A group: its keys and its aggregates, each in the place of its column.
pub(crate) type Group = Vec<Value>;

/// Columns of the table of groups: for each key one of each affinity, because comparisons depend
/// on it, then the aggregates, which have none.
pub(crate) fn columns() -> Vec<(String, &'static str)> {
    let key =
        |number| [Affinity::Integer, Affinity::Text, Affinity::None].map(|one| (one.column(number), one));
    let keys = (0..KEYS_MAX).flat_map(key).map(|(name, affinity)| (name, affinity.of_sqlite()));
    keys.chain((0..SUMS_MAX).map(|number| (sum_column(number), ""))).collect()
}

fn sum_column(number: usize) -> String {
    format!("sum{number}")
}

/// The affinity of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Affinity {
    Integer,
    Text,
    /// Of an expression.
    None,
}

impl Affinity {
    fn of_sqlite(self) -> &'static str {
        match self {
            Affinity::Integer => "integer",
            Affinity::Text => "text",
            Affinity::None => "",
        }
    }

    /// The column of the key with a number that has this affinity.
    fn column(self, number: usize) -> String {
        match self {
            Affinity::Integer => format!("integer{number}"),
            Affinity::Text => format!("text{number}"),
            Affinity::None => format!("any{number}"),
        }
    }

    /// Its place in the table of groups.
    fn place(self, number: usize) -> usize {
        number * 3 + self as usize
    }
}
