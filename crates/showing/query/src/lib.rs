//! SQL over traces, by SQLite: see `docs/reference/sql.md` for its tables, and `docs/design/sql.md`
//! for why it is SQLite.
//!
//! ```text
//! database    Opened traces -> Database, which runs one query after the other, and only reads
//! schema      the tables and their columns, as users see them
//! events      the table that all rows of a timeline make, read while a query runs
//! calls       calls by their numbers, for joins: in a temporary file
//! groups      calls in the order of their functions, for `group by`: likewise
//! aggregation sums of calls by groups, without SQLite seeing each call
//! limits      how long a query may run, and how much it may write into temporary files
//! lists       tables that are small: threads, processes, modules, sums of functions
//! functions   functions of SQL that SQLite doesn't have
//! output      results as table, CSV and JSON lines
//! parquet     results as Parquet
//! error       what is wrong with a query, and similar names
//! ```
//!
//! Not here: numbers of its own: rows are `export`'s.
//!
//! Checked by: sums against `report`, rows against Parquet in DuckDB; queries that are wrong, write
//! or never end.

#![deny(missing_docs, clippy::missing_errors_doc)]
// This library returns its findings; printing them is the caller's task.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod aggregation;
mod calls;
mod conditions;
mod database;
mod error;
mod events;
mod functions;
mod groups;
mod lanes;
mod limits;
mod lists;
mod output;
mod parquet;
mod records;
mod schema;
mod traces;

pub use database::{Database, Output};
pub use error::QueryError;
pub use lanes::OpenTrace;
pub use limits::Limits;
pub use output::{Format, Table};
pub use parquet::Parquet;
pub use schema::schema;
