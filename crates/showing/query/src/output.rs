//! Results as text: a table that fits the terminal, CSV, JSON lines.

use std::fmt::Write as _;
use std::io::{self, Write};

use everycall_io::terminal::line as visible;
use rusqlite::types::ValueRef;

use crate::database::Output;

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table for people.
    Text,
    /// Comma-separated values, as RFC 4180 describes them, with a header.
    Csv,
    /// A JSON object per line.
    Json,
}

/// Rows by which the widths of a table's columns are chosen.
const MEASURED: usize = 1000;
/// Bytes of rows that are held for that.
const HELD_MAX: usize = 16 << 20;
/// Columns aren't filled up with spaces to more characters.
const PADDED_MAX: usize = 1000;
/// Columns of text aren't made narrower than this.
const NARROW: usize = 8;
/// Space between two columns.
const BETWEEN: &str = "  ";

/// Writes a result.
pub struct Table<'o> {
    out: &'o mut dyn Write,
    format: Format,
    /// Width of the terminal, if it is one.
    width: Option<usize>,
    /// Whether characters that could steer a terminal are written as escapes.
    escapes: bool,
    names: Vec<String>,
    /// Rows until the widths are chosen.
    held: Vec<Vec<Cell>>,
    held_bytes: usize,
    widths: Option<Vec<usize>>,
    /// By column: whether it has numbers only.
    numbers: Vec<bool>,
    rows: u64,
}

struct Cell {
    text: String,
    is_number: bool,
}

impl<'o> Table<'o> {
    /// Writes to `out`, which is a terminal with `width` columns, or none. CSV to a terminal has
    /// escapes in the place of characters that could steer it; tables always have.
    pub fn new(out: &'o mut dyn Write, format: Format, width: Option<usize>) -> Self {
        let escapes = format == Format::Text || width.is_some();
        let (names, held, numbers) = (Vec::new(), Vec::new(), Vec::new());
        Table { out, format, width, escapes, names, held, held_bytes: 0, widths: None, numbers, rows: 0 }
    }

    /// The number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    fn cell(&self, value: ValueRef<'_>) -> Cell {
        let is_number = !matches!(value, ValueRef::Text(_) | ValueRef::Blob(_));
        let text = plain(value);
        Cell { text: if self.escapes { visible(&text).into_owned() } else { text }, is_number }
    }

    /// Chooses the widths, and writes what was held.
    fn lay_out(&mut self) -> io::Result<()> {
        let measured = |column: usize| self.held.iter().filter_map(move |row| row.get(column));
        self.numbers =
            (0..self.names.len()).map(|column| measured(column).all(|cell| cell.is_number)).collect();
        let widest = |(column, name): (usize, &String)| {
            measured(column).map(|cell| length(&cell.text)).max().unwrap_or(0).max(length(name))
        };
        let mut widths: Vec<usize> = self.names.iter().enumerate().map(widest).collect();
        if let Some(width) = self.width {
            fit(&mut widths, &self.numbers, width);
        }
        // In a pipe, a single long cell would make every line as long.
        widths.iter_mut().for_each(|width| *width = (*width).min(PADDED_MAX));
        self.widths = Some(widths);
        let names = self
            .names
            .iter()
            .map(|name| Cell { text: visible(name).into_owned(), is_number: false })
            .collect();
        self.line(names)?;
        for row in std::mem::take(&mut self.held) {
            self.line(row)?;
        }
        Ok(())
    }

    fn line(&mut self, row: Vec<Cell>) -> io::Result<()> {
        let widths = self.widths.as_deref().unwrap_or_default();
        let mut line = String::new();
        for (number, ((cell, width), is_number)) in row.iter().zip(widths).zip(&self.numbers).enumerate() {
            if number > 0 {
                line.push_str(BETWEEN);
            }
            let text = if self.width.is_some() { cut(&cell.text, *width) } else { cell.text.clone() };
            let space = width.saturating_sub(length(&text));
            if *is_number {
                line.extend(std::iter::repeat_n(' ', space));
                line.push_str(&text);
            } else {
                line.push_str(&text);
                line.extend(std::iter::repeat_n(' ', space));
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        self.out.write_all(line.as_bytes())
    }
}

impl Output for Table<'_> {
    fn columns(&mut self, names: &[String]) -> io::Result<()> {
        self.names = names.to_vec();
        match self.format {
            Format::Text => Ok(()),
            Format::Csv => {
                let line: Vec<String> = names.iter().map(|name| field(name)).collect();
                writeln!(self.out, "{}", line.join(","))
            }
            Format::Json => {
                unique(&mut self.names);
                self.names.iter_mut().for_each(|name| *name = quoted(name));
                Ok(())
            }
        }
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        self.rows += 1;
        match self.format {
            Format::Text => {
                let row = values.iter().map(|value| self.cell(*value)).collect();
                if self.widths.is_some() {
                    return self.line(row);
                }
                self.held_bytes += row.iter().map(|cell: &Cell| cell.text.len()).sum::<usize>();
                self.held.push(row);
                let is_enough = self.held.len() >= MEASURED || self.held_bytes >= HELD_MAX;
                if is_enough { self.lay_out() } else { Ok(()) }
            }
            Format::Csv => {
                let line: Vec<String> = values.iter().map(|value| field(&self.cell(*value).text)).collect();
                writeln!(self.out, "{}", line.join(","))
            }
            Format::Json => {
                let mut line = String::from("{");
                for (number, (name, value)) in self.names.iter().zip(values).enumerate() {
                    let comma = if number > 0 { "," } else { "" };
                    let _ = write!(line, "{comma}{name}:{}", json(*value));
                }
                line.push_str("}\n");
                self.out.write_all(line.as_bytes())
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        if self.format == Format::Text && self.widths.is_none() {
            self.lay_out()?;
        }
        self.out.flush()
    }
}

/// Makes columns of text narrower until a line fits.
fn fit(widths: &mut [usize], numbers: &[bool], terminal: usize) {
    let between = BETWEEN.len() * widths.len().saturating_sub(1);
    loop {
        let total = widths.iter().sum::<usize>() + between;
        let Some(excess) = total.checked_sub(terminal).filter(|excess| *excess > 0) else { return };
        let texts =
            || widths.iter().zip(numbers).filter(|(_, is_number)| !**is_number).map(|(width, _)| *width);
        let Some(widest) = texts().max().filter(|widest| *widest > NARROW) else { return };
        // Down to the next one, so that long columns get shorter before short ones do.
        let next = texts().filter(|width| *width < widest).max().unwrap_or(0).max(NARROW);
        let several = texts().filter(|width| *width == widest).count();
        let less = (widest - next).min(excess.div_ceil(several)).max(1);
        for (width, is_number) in widths.iter_mut().zip(numbers) {
            if !is_number && *width == widest {
                *width -= less;
            }
        }
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// A field of CSV.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Later columns of a name that an earlier one has get a number.
pub(crate) fn unique(names: &mut [String]) {
    for place in 1..names.len() {
        let (earlier, later) = names.split_at_mut(place);
        let Some(name) = later.first_mut() else { return };
        let asked = name.clone();
        let mut number = 2;
        while earlier.contains(name) {
            *name = format!("{asked}_{number}");
            number += 1;
        }
    }
}

/// A value as text: null is empty, blobs are hexadecimal.
pub(crate) fn plain(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => format!("{number:?}"),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => hexadecimal(bytes),
    }
}

fn json(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) if number.is_finite() => format!("{number:?}"),
        ValueRef::Real(_) => "null".to_owned(),
        ValueRef::Text(text) => quoted(&String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => quoted(&hexadecimal(bytes)),
    }
}

/// A text of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format, width: Option<usize>, names: &[&str], rows: &[&[ValueRef<'_>]]) -> String {
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, format, width);
        table.columns(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        rows.iter().for_each(|row| table.row(row).unwrap());
        table.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    const TEXT: ValueRef<'_> = ValueRef::Text("a\x1b[2J,\"b\"\u{202e}".as_bytes());

    #[test]
    fn terminals_are_not_steered_and_values_stay_what_they_are() {
        let row: &[ValueRef<'_>] = &[ValueRef::Integer(-5), ValueRef::Null, ValueRef::Real(0.5), TEXT];
        let names = ["n", "none", "real", "name"];
        let table = written(Format::Text, None, &names, &[row]);
        assert_eq!(table, " n  none  real  name\n-5         0.5  a\\u{1b}[2J,\"b\"\\u{202e}\n");
        let csv = written(Format::Csv, None, &names, &[row]);
        assert_eq!(csv, "n,none,real,name\n-5,,0.5,\"a\x1b[2J,\"\"b\"\"\u{202e}\"\n");
        assert!(!written(Format::Csv, Some(80), &names, &[row]).contains('\x1b'));
        let json = written(Format::Json, None, &["n", "n", "real", "name"], &[row]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["n"], -5);
        assert_eq!(
            (&json["n_2"], &json["name"]),
            (&serde_json::Value::Null, &"a\x1b[2J,\"b\"\u{202e}".into())
        );
    }

    #[test]
    fn tables_fit_the_terminal() {
        let long = "x".repeat(300);
        let row: &[ValueRef<'_>] =
            &[ValueRef::Integer(1_000_000_007), ValueRef::Text(long.as_bytes()), ValueRef::Text(b"short")];
        for line in written(Format::Text, Some(40), &["n", "name", "other"], &[row]).lines() {
            assert!(line.chars().count() <= 40, "{line}");
        }
        assert!(written(Format::Text, None, &["n", "name", "other"], &[row]).contains(&long));
        // Columns that can't be made narrower run over.
        assert!(written(Format::Text, Some(5), &["n", "name", "other"], &[row]).contains("1000000007"));
    }

    #[test]
    fn long_cells_are_no_reason_to_fail() {
        let long = "x".repeat(200_000);
        let row: &[ValueRef<'_>] =
            &[ValueRef::Integer(1), ValueRef::Text(long.as_bytes()), ValueRef::Integer(2)];
        let short: &[ValueRef<'_>] = &[ValueRef::Integer(1), ValueRef::Text(b"y"), ValueRef::Integer(2)];
        for width in [None, Some(80)] {
            let table = written(Format::Text, width, &["a", "b", "c"], &[row, short]);
            assert_eq!(table.contains(&long), width.is_none());
            // The others aren't filled up to its length.
            assert!(table.lines().last().unwrap().len() < 1100, "{width:?}");
        }
    }
}
