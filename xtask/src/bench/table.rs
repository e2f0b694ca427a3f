//! Results: tables for people, JSON for programs.

use serde_json::{Map, Value, json};

use super::stats::Spread;

/// One field of a table.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number, how many decimals are shown.
    Number(f64, usize),
    /// A measured number with its spread, how many decimals are shown.
    Measured(Spread, usize),
    /// A number that must not be exceeded (or reached at least) and whether it is kept.
    Target(Target, f64),
    /// Nothing to say.
    Empty,
}

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most so much.
    Most(f64),
    /// At least so much.
    Least(f64),
}

impl Target {
    /// Whether a figure reaches its target, to the decimals that the target has.
    pub fn is_met(self, figure: f64) -> bool {
        match self {
            Target::Most(limit) => figure <= limit,
            Target::Least(limit) => figure >= limit,
        }
    }
}

impl Cell {
    /// Words.
    pub fn text(words: impl Into<String>) -> Cell {
        Cell::Text(words.into())
    }

    fn shown(&self) -> String {
        match self {
            Cell::Text(words) => words.clone(),
            Cell::Number(number, decimals) => format!("{number:.decimals$}"),
            Cell::Measured(Spread { median, low, high, .. }, decimals) => {
                format!("{median:.decimals$} ({low:.decimals$}..{high:.decimals$})")
            }
            Cell::Target(target, figure) => {
                let (sign, limit) = match target {
                    Target::Most(limit) => ("<=", limit),
                    Target::Least(limit) => (">=", limit),
                };
                format!("{sign} {limit} {}", if target.is_met(*figure) { "yes" } else { "NO" })
            }
            Cell::Empty => "-".to_owned(),
        }
    }

    fn value(&self) -> Value {
        match self {
            Cell::Text(words) => json!(words),
            Cell::Number(number, _) => json!(number),
            Cell::Measured(Spread { median, low, high, count }, _) => {
                json!({ "median": median, "quartiles": [low, high], "count": count })
            }
            Cell::Target(target, figure) => match target {
                Target::Most(limit) => json!({ "most": limit, "met": target.is_met(*figure) }),
                Target::Least(limit) => json!({ "least": limit, "met": target.is_met(*figure) }),
            },
            Cell::Empty => Value::Null,
        }
    }
}

/// A table with its explanation.
#[derive(Clone, Debug)]
pub struct Table {
    title: &'static str,
    notes: Vec<String>,
    columns: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty one.
    pub fn new(title: &'static str, columns: &'static [&'static str]) -> Table {
        Table { title, notes: Vec::new(), columns, rows: Vec::new() }
    }

    /// Adds a line of explanation.
    pub fn note(&mut self, sentence: impl Into<String>) {
        self.notes.push(sentence.into());
    }

    /// Adds a row; missing cells at its end are empty.
    pub fn row(&mut self, mut cells: Vec<Cell>) {
        debug_assert!(cells.len() <= self.columns.len(), "a cell without a column in {}", self.title);
        cells.resize(self.columns.len(), Cell::Empty);
        self.rows.push(cells);
    }

    /// Adds a row for something that could not be measured: its name and why.
    pub fn failure(&mut self, name: &str, why: &str) {
        eprintln!("bench: {name}: {why}");
        let line = why.lines().next().unwrap_or_default();
        self.row(vec![Cell::text(name), Cell::text("failed")]);
        self.note(format!("{name}: {line}"));
    }

    /// For people: a Markdown table.
    pub fn shown(&self) -> String {
        let head = self.columns.iter().map(|&column| column.to_owned()).collect::<Vec<_>>();
        let mut lines = vec![head];
        lines.extend(self.rows.iter().map(|row| row.iter().map(Cell::shown).collect()));
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let width = |line: &Vec<String>| line.get(column).map_or(0, |cell| cell.chars().count());
                lines.iter().map(width).max().unwrap_or(0)
            })
            .collect();
        let mut text = format!("## {}\n\n", self.title);
        for (number, line) in lines.iter().enumerate() {
            let cells: Vec<String> = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(
                    |(column, (cell, &width))| {
                        if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                    },
                )
                .collect();
            text += &format!("| {} |\n", cells.join(" | "));
            if number == 0 {
                let rule = |(column, &width): (usize, &usize)| {
                    format!("{}{}", "-".repeat(width + 1), if column == 0 { "-" } else { ":" })
                };
                text += &format!("|{}|\n", widths.iter().enumerate().map(rule).collect::<Vec<_>>().join("|"));
            }
        }
        for note in &self.notes {
            text += &format!("\n* {note}");
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text
    }

    /// For programs.
    pub fn value(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let fields = self.columns.iter().zip(row);
                fields
                    .map(|(column, cell)| ((*column).to_owned(), cell.value()))
                    .collect::<Map<_, _>>()
                    .into()
            })
            .collect();
        json!({ "title": self.title, "notes": self.notes, "rows": rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let mut table = Table::new("Cost", &["mode", "ratio", "target"]);
        let spread = Spread { median: 1.234, low: 1.2, high: 1.3, count: 31 };
        let target = Cell::Target(Target::Most(1.05), spread.median);
        table.row(vec![Cell::text("nops"), Cell::Measured(spread, 2), target]);
        table.row(vec![Cell::text("none")]);
        table.note("Warm.");
        assert_eq!(
            table.shown(),
            "## Cost\n\n\
             | mode |             ratio |     target |\n\
             |------|------------------:|-----------:|\n\
             | nops | 1.23 (1.20..1.30) | <= 1.05 NO |\n\
             | none |                 - |          - |\n\
             \n* Warm.\n"
        );
        let value = table.value();
        assert_eq!(value["rows"][0]["ratio"]["median"], 1.234);
        assert_eq!(value["rows"][0]["target"], json!({ "most": 1.05, "met": false }));
        assert_eq!(value["rows"][1]["ratio"], Value::Null);
    }
}
