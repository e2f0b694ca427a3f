//! The rows of Parquet files, read back: they are the lines of CSV, and more.

// A test may panic.
#![allow(clippy::disallowed_methods)]

use crate::common;
use everycall_export::{Filter, Format, Names, Source, export};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

fn exported(format: Format, source: &impl Source, names: &dyn Names) -> Vec<u8> {
    let mut bytes = Vec::new();
    export(format, source, names, &Filter::default(), &mut |_| {}, &mut bytes).unwrap();
    bytes
}

fn rows(bytes: Vec<u8>) -> Vec<Row> {
    let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    file.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

/// A cell as CSV has it.
fn cell(row: &Row, name: &str) -> String {
    let (_, field) = row.get_column_iter().find(|(known, _)| *known == name).unwrap();
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Double(number) => format!("{number:?}"),
        Field::Long(number) if name == "value" && cell(row, "kind") != "counter" => {
            number.cast_unsigned().to_string()
        }
        other => other.to_string(),
    }
}

/// The fields of each line but the header.
fn fields(csv: &str) -> Vec<Vec<String>> {
    let (mut lines, mut line, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    for c in csv.chars() {
        match c {
            '"' => {
                if quoted || field.is_empty() {
                    quoted = !quoted;
                }
            }
            ',' | '\n' if !quoted => {
                line.push(std::mem::take(&mut field));
                if c == '\n' {
                    lines.push(std::mem::take(&mut line));
                }
            }
            c => field.push(c),
        }
    }
    lines.split_off(1)
}

fn same_as_csv(source: &impl Source, names: &dyn Names) -> Vec<Row> {
    let csv = String::from_utf8(exported(Format::Csv, source, names)).unwrap();
    let (lines, rows) = (fields(&csv), rows(exported(Format::Parquet, source, names)));
    assert_eq!(lines.len(), rows.len());
    assert!(lines.len() > 3);
    let columns = [
        "kind",
        "pid",
        "tid",
        "thread",
        "depth",
        "start_ns",
        "duration_ns",
        "function",
        "module",
        "file",
        "line",
    ];
    for (line, row) in lines.iter().zip(&rows) {
        for (column, expected) in columns.iter().zip(line) {
            // In these tests, no name contains a quote.
            assert_eq!(cell(row, column).replace('"', ""), *expected, "{column}: {row} {line:?}");
        }
        let value = if cell(row, "real_value").is_empty() { "value" } else { "real_value" };
        assert_eq!(cell(row, value), line[11], "{row} {line:?}");
        // A number here is a remark there.
        assert!(line[12].starts_with(&cell(row, "remarks")), "{row} {line:?}");
    }
    rows
}

#[test]
fn rows_are_the_lines_of_csv() {
    let (program, book) = common::everything();
    let rows = same_as_csv(&program, &book);
    let is_within = |row: &&Row| cell(row, "kind") == "label" && !cell(row, "parent").is_empty();
    let marks: Vec<&Row> = rows.iter().filter(is_within).collect();
    assert!(!marks.is_empty());
    for mark in marks {
        let caller = rows.iter().find(|row| cell(row, "id") == cell(mark, "parent")).unwrap();
        assert_eq!(cell(caller, "kind"), "call");
    }
    same_as_csv(&common::counters(), &common::Book::default());
    let states = same_as_csv(&common::states(), &common::Book::default());
    let off: Vec<&Row> = states.iter().filter(|row| cell(row, "kind") == "off cpu").collect();
    assert!(off.iter().any(|row| cell(row, "blocked_ns") != "0" && !cell(row, "blocked_ns").is_empty()));
    same_as_csv(&common::process_tree(), &common::Book::default());
}

#[test]
fn own_times_add_up_to_the_outermost_calls() {
    let (program, book) = common::everything();
    let rows = rows(exported(Format::Parquet, &program, &book));
    let number = |row: &Row, name: &str| cell(row, name).parse::<u64>().unwrap();
    let calls: Vec<&Row> = rows.iter().filter(|row| cell(row, "kind") == "call").collect();
    let own: u64 = calls.iter().map(|row| number(row, "own_ns")).sum();
    let outermost = calls.iter().filter(|row| cell(row, "parent").is_empty());
    let all: u64 = outermost.map(|row| number(row, "duration_ns")).sum();
    let suspended = rows.iter().filter(|row| cell(row, "kind") == "suspended");
    let suspended: u64 = suspended.map(|row| number(row, "duration_ns")).sum();
    assert_eq!(own + suspended, all);
    assert!(all > 0);
}
