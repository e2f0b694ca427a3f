//! Errors of a query, as sentences: the fault, its place, similar names, and the existing ones.

use std::fmt;
use std::io;

use rusqlite::Error;
use rusqlite::ffi::ErrorCode;

use crate::schema::{TABLES, TableFacts};

/// Why a query has no result.
#[derive(Debug)]
pub enum QueryError {
    /// The query is wrong.
    Query(String),
    /// It failed while it ran.
    Run(String),
    /// Its result can't be written.
    Output(io::Error),
}

impl fmt::Display for QueryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Query(text) | QueryError::Run(text) => out.write_str(text),
            QueryError::Output(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for QueryError {}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        QueryError::Output(error)
    }
}

/// Names are near from this similarity on.
const NEAR: f64 = 0.8;
/// Characters of a line of the query that are shown around the place.
const AROUND: usize = 60;

impl QueryError {
    /// There is nothing to run.
    pub(crate) fn empty() -> Self {
        QueryError::Query("the query is empty; write one such as `select * from functions`".to_owned())
    }

    /// Wraps SQLite's error; `refused` is the forbidden action that the query attempted.
    pub(crate) fn of(error: &Error, refused: Option<String>) -> Self {
        if let Some(what) = refused {
            let text = format!(
                "a query may only read the traces' tables (refused: {what}); write a `select`, and keep its result with -o FILE"
            );
            return QueryError::Query(text);
        }
        match error {
            Error::SqlInputError { msg, sql, offset, .. } => {
                let place =
                    usize::try_from(*offset).ok().map(|offset| place(sql, offset)).unwrap_or_default();
                QueryError::Query(format!("{msg}{}{place}", advice(msg)))
            }
            Error::Empty => QueryError::empty(),
            Error::SqliteFailure(_, Some(said)) if said.contains("Recursion limit") => {
                QueryError::Query("the query is nested too deeply".to_owned())
            }
            Error::MultipleStatement => {
                QueryError::Query("these are several queries; write one, or run them one by one".to_owned())
            }
            Error::SqliteFailure(code, text) => {
                let said = text.clone().unwrap_or_else(|| code.to_string());
                match code.code {
                    ErrorCode::OutOfMemory => QueryError::Run(
                        "the query needs more than the 1 GiB of memory that it may have; select fewer rows or columns before sorting or \
                         joining them"
                            .to_owned(),
                    ),
                    ErrorCode::DiskFull | ErrorCode::SystemIoFailure => QueryError::Run(format!(
                        "{said}; temporary files are in the folder that TMPDIR names, or SQLITE_TMPDIR: free some space, or name another folder"
                    )),
                    ErrorCode::Unknown => QueryError::Query(format!("{said}{}", advice(&said))),
                    _ => QueryError::Run(said),
                }
            }
            error => QueryError::Run(error.to_string()),
        }
    }
}

/// The line and column of a byte of a query, with that line.
fn place(sql: &str, offset: usize) -> String {
    let before = sql.get(..offset).unwrap_or(sql);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before.get(line_start..).unwrap_or_default().chars().count();
    let line = sql.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let first = column.saturating_sub(AROUND);
    let shown: String =
        line.chars().skip(first).take(2 * AROUND).map(|c| if c == '\t' { ' ' } else { c }).collect();
    format!(
        "\n  line {number}, column {}:\n  {shown}\n  {:>width$}",
        column + 1,
        "^",
        width = column - first + 1
    )
}

/// Advice for a message of SQLite: similar names, or where to look.
fn advice(said: &str) -> String {
    let after = |start: &str| said.strip_prefix(start).map(str::trim);
    if let Some(name) = after("no such table:") {
        let names = || TABLES.iter().map(|table| table.name);
        // Common names of the table of calls.
        let near = match name.to_ascii_lowercase().as_str() {
            "call" | "calls" | "trace" => vec!["slices"],
            _ => nearest(name, names()),
        };
        let list = names().collect::<Vec<_>>().join(", ");
        return format!("{}; there are {list}", meant(&near));
    }
    if let Some(name) = after("no such column:") {
        let name = name.split(" - ").next().unwrap_or(name);
        let column = name.rsplit('.').next().unwrap_or(name);
        let known = |table: &&TableFacts| table.columns.iter().any(|(known, ..)| *known == column);
        let tables: Vec<&str> = TABLES.iter().filter(known).map(|table| table.name).collect();
        if !tables.is_empty() {
            return format!("; it is a column of {}", tables.join(", "));
        }
        let near = nearest(column, TABLES.iter().flat_map(|table| table.columns).map(|(name, ..)| *name));
        return format!("{}; `everycall sql --schema` lists the columns", meant(&near));
    }
    if said.contains("syntax error") || said.contains("incomplete input") {
        return "; docs/reference/sql.md has examples".to_owned();
    }
    String::new()
}

fn meant(near: &[&str]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

/// The known names that are like this one, the most similar one first.
fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let name = name.to_lowercase();
    let mut near: Vec<(f64, &str)> = known
        .map(|known| {
            let holds = name.len() > 2 && known.contains(&name);
            (if holds { 1.0 } else { strsim::jaro_winkler(&name, known) }, known)
        })
        .filter(|(similarity, _)| *similarity >= NEAR)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.dedup();
    near.into_iter().map(|(_, name)| name).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested() {
        assert!(advice("no such table: slice").starts_with("; did you mean slices?"));
        assert!(advice("no such table: calls").starts_with("; did you mean slices?"));
        assert!(advice("no such column: s.duration").contains("duration_ns"));
        assert!(advice("no such column: woken_by").ends_with("it is a column of states"));
    }

    #[test]
    fn places_are_shown_with_their_line() {
        let shown = place("select *\nform slices", 9);
        assert_eq!(shown, "\n  line 2, column 1:\n  form slices\n  ^");
        let long = format!("select {} x", "1,".repeat(500));
        assert!(place(&long, long.len() - 1).lines().all(|line| line.chars().count() < 130));
        assert!(place("é", 1).contains("line 1"));
    }
}
