//! The live table of `count PID --every`: what it shows and how keys change that. Knows nothing of the terminal.

use std::collections::HashMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use everycall_analysis::{Grouping, Profile, Sums};
use everycall_export::shortened_name;
use everycall_units::{Count, Duration, Size};

use crate::output::clean;
use crate::verbs::report::heading;

/// A number of a group between two readings.
struct Column {
    heading: &'static str,
    /// Whether it is about the time between two readings.
    is_rate: bool,
    number: fn(&Interval<'_>) -> f64,
    text: fn(f64) -> String,
}

/// The calls of a group.
struct Interval<'r> {
    /// Since the process began.
    all: &'r Sums,
    /// Since the reading before.
    since: &'r Sums,
    seconds: f64,
}

/// All columns. Those that are 0 in all rows aren't shown.
const COLUMNS: [Column; 8] = [
    Column {
        heading: "calls/s",
        is_rate: true,
        number: |of| of.since.calls as f64 / of.seconds,
        text: |number| Count(number.round() as u64).to_string(),
    },
    Column {
        heading: "total/s",
        is_rate: true,
        number: |of| of.since.total_ns as f64 / of.seconds,
        text: |number| Duration { ns: number.round() as u64 }.to_string(),
    },
    Column {
        heading: "own/s",
        is_rate: true,
        number: |of| of.since.own_ns as f64 / of.seconds,
        text: |number| Duration { ns: number.round() as u64 }.to_string(),
    },
    Column {
        heading: "avg",
        is_rate: true,
        number: |of| of.since.total_ns as f64 / of.since.calls.max(1) as f64,
        text: |number| Duration { ns: number.round() as u64 }.to_string(),
    },
    Column {
        heading: "calls",
        is_rate: false,
        number: |of| of.all.calls as f64,
        text: |number| Count(number as u64).to_string(),
    },
    Column {
        heading: "own-allocated/s",
        is_rate: true,
        number: |of| of.since.own_memory.allocated as f64 / of.seconds,
        text: |number| Size(number.round() as u64).to_string(),
    },
    Column {
        heading: "own-blocks/s",
        is_rate: true,
        number: |of| of.since.own_memory.blocks as f64 / of.seconds,
        text: |number| Count(number.round() as u64).to_string(),
    },
    Column {
        heading: "own-allocated",
        is_rate: false,
        number: |of| of.all.own_memory.allocated as f64,
        text: |number| Size(number as u64).to_string(),
    },
];

/// Columns that are shown even then.
const ALWAYS: [&str; 2] = ["calls/s", "calls"];

/// Lines above the rows.
const HEAD: usize = 3;

/// The state after a reading.
#[derive(Debug, Default)]
pub struct Reading {
    /// The process that is counted, and its program.
    pub title: String,
    grouping: Grouping,
    rows: Vec<Line>,
    calls: u64,
    others: u64,
    /// Calls per second, if there was a reading before.
    rate: Option<f64>,
}

/// A row: the name and the numbers of [`COLUMNS`].
#[derive(Debug)]
struct Line {
    name: String,
    numbers: [f64; COLUMNS.len()],
}

impl Reading {
    /// The calls until `now`, and those since the reading before with the seconds since then, if there was one.
    pub fn new(title: String, now: &Profile, before: Option<(&Profile, f64)>) -> Reading {
        let order = everycall_analysis::Order::Calls;
        let seconds = before.map_or(1.0, |(_, seconds)| seconds.max(1e-9));
        let since = before.map(|(before, _)| now.since(before)).unwrap_or_default();
        let of_interval = since.rows(order);
        let of_interval: HashMap<_, _> = of_interval.iter().map(|row| (row.key, row.sums)).collect();
        let none = Sums::default();
        let line = |row: &everycall_analysis::Row<'_>| {
            let since = of_interval.get(row.key).copied().unwrap_or(&none);
            let interval = Interval { all: row.sums, since, seconds };
            Line {
                name: clean(&row.key.shown(now.functions())),
                numbers: COLUMNS.map(|column| (column.number)(&interval)),
            }
        };
        Reading {
            title,
            grouping: now.grouping().clone(),
            rows: now.rows(order).iter().map(line).collect(),
            calls: now.calls,
            others: now.notes.counted_others,
            rate: before.map(|_| since.calls as f64 / seconds),
        }
    }

    /// The columns that some row needs.
    fn columns(&self) -> Vec<usize> {
        let is_needed = |column: &usize| self.rows.iter().any(|row| row.numbers[*column] > 0.0);
        (0..COLUMNS.len())
            .filter(|column| ALWAYS.contains(&COLUMNS[*column].heading) || is_needed(column))
            .collect()
    }
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The table may look different.
    Draw,
    /// The end.
    Quit,
}

/// How readings are shown.
#[derive(Debug, Default)]
pub struct LiveTable {
    /// Index in [`COLUMNS`].
    sort: usize,
    filter: String,
    /// Whether keys are added to the filter.
    is_typing: bool,
    /// Number of the first shown row.
    first: usize,
    /// Rows that fitted in last time.
    page: usize,
    /// Whether new readings are left out.
    pub is_paused: bool,
}

impl LiveTable {
    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent, reading: &Reading) -> Answer {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if has_control => return Answer::Quit,
            KeyCode::Char('u') if has_control => self.filter.clear(),
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => self.first += 1,
            KeyCode::PageUp => self.first = self.first.saturating_sub(self.page.max(1)),
            KeyCode::PageDown => self.first += self.page.max(1),
            KeyCode::Home => self.first = 0,
            KeyCode::Right => self.sort_by_next(reading, true),
            KeyCode::Left => self.sort_by_next(reading, false),
            KeyCode::Char(character) if self.is_typing && !has_control => {
                self.filter.push(character);
                self.first = 0;
            }
            KeyCode::Char(_) if has_control => {}
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s' | '>') => self.sort_by_next(reading, true),
            KeyCode::Char('<') => self.sort_by_next(reading, false),
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('q') => return Answer::Quit,
            _ => {}
        }
        Answer::Draw
    }

    fn sort_by_next(&mut self, reading: &Reading, forward: bool) {
        let columns = reading.columns();
        let at = columns.iter().position(|column| *column == self.sort).unwrap_or(0);
        let step = if forward { 1 } else { columns.len() - 1 };
        self.sort = columns[(at + step) % columns.len()];
        self.first = 0;
    }

    /// The table in so many columns and lines.
    pub fn lines(&mut self, reading: &Reading, width: usize, height: usize) -> Vec<String> {
        let columns = reading.columns();
        if !columns.contains(&self.sort) {
            self.sort = 0;
        }
        let wanted = self.filter.to_lowercase();
        let mut rows: Vec<&Line> =
            reading.rows.iter().filter(|row| row.name.to_lowercase().contains(&wanted)).collect();
        // The order of those with equal numbers is that of all calls, and so it stays.
        rows.sort_by(|one, other| other.numbers[self.sort].total_cmp(&one.numbers[self.sort]));
        self.page = height.saturating_sub(HEAD);
        self.first = self.first.min(rows.len().saturating_sub(self.page));
        let all = reading.rows.len();
        let mut lines = vec![self.title(reading), self.line_of_keys(rows.len(), all)];
        let shown = &rows[self.first..rows.len().min(self.first + self.page)];
        let cells: Vec<Vec<String>> = columns
            .iter()
            .map(|column| {
                let of = &COLUMNS[*column];
                let mark = if *column == self.sort { "▼" } else { "" };
                let heading = format!("{}{mark}", of.heading);
                let text = |row: &Line| match reading.rate {
                    None if of.is_rate => String::new(),
                    _ => (of.text)(row.numbers[*column]),
                };
                // Widths depend on all rows, so that columns stand still while rows change places.
                let width = rows.iter().map(|row| text(row).chars().count()).max();
                let width = width.unwrap_or(0).max(of.heading.chars().count() + 1);
                let texts = shown.iter().map(|row| text(row));
                std::iter::once(heading).chain(texts).map(|text| format!("{text:>width$}  ")).collect()
            })
            .collect();
        for number in 0..=shown.len() {
            let numbers: String = cells.iter().map(|column| column[number].as_str()).collect();
            let room = width.saturating_sub(numbers.chars().count());
            let name = match number.checked_sub(1).and_then(|number| shown.get(number)) {
                None => heading(&reading.grouping).to_owned(),
                Some(row) if row.name.chars().count() <= room => row.name.clone(),
                Some(row) => shortened_name(&row.name, room),
            };
            lines.push(numbers + &name);
        }
        lines.truncate(height);
        lines.into_iter().map(|line| line.chars().take(width).collect()).collect()
    }

    fn title(&self, reading: &Reading) -> String {
        let others = match reading.others {
            0 => String::new(),
            others => format!(", {} of functions that aren't known", Count(others)),
        };
        let paused = if self.is_paused { "  (paused)" } else { "" };
        let rate = match reading.rate {
            Some(rate) => format!("{} calls/s, ", Count(rate.round() as u64)),
            None => String::new(),
        };
        format!("{}: {rate}{} calls in all{others}{paused}", reading.title, Count(reading.calls))
    }

    fn line_of_keys(&self, shown: usize, all: usize) -> String {
        if self.is_typing || !self.filter.is_empty() {
            let cursor = if self.is_typing { "_" } else { "" };
            return format!(
                "/{}{cursor}  {} of {} (Esc: all)",
                clean(&self.filter),
                Count(shown as u64),
                Count(all as u64)
            );
        }
        format!("{} in all   / filter   s sort by next column   space pause   q end", Count(all as u64))
    }

    /// Which line is the heading.
    pub const HEADING: usize = HEAD - 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(rows: &[(&str, f64, f64)]) -> Reading {
        let line = |(name, rate, calls): &(&str, f64, f64)| Line {
            name: (*name).to_owned(),
            numbers: [*rate, 0.0, 0.0, 0.0, *calls, 0.0, 0.0, 0.0],
        };
        let rows = rows.iter().map(line).collect();
        Reading { title: "process 1".to_owned(), rows, rate: Some(1.0), ..Reading::default() }
    }

    fn press(table: &mut LiveTable, reading: &Reading, keys: &[KeyCode]) -> Answer {
        keys.iter().fold(Answer::Draw, |_, key| table.key(KeyEvent::from(*key), reading))
    }

    fn names(table: &mut LiveTable, reading: &Reading, height: usize) -> Vec<String> {
        let lines = table.lines(reading, 60, height);
        assert!(lines.len() <= height && lines.iter().all(|line| line.chars().count() <= 60), "{lines:#?}");
        let rows = lines.iter().skip(HEAD);
        rows.map(|line| line.split_whitespace().last().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn keys_sort_filter_scroll_and_end() {
        use KeyCode::{Backspace, Char, Down, Enter, Esc, Home, PageDown};
        let all = reading(&[("often", 1.0, 900.0), ("Now", 50.0, 60.0), ("not_now", 0.0, 70.0)]);
        let mut table = LiveTable::default();
        assert_eq!(names(&mut table, &all, 10), ["Now", "often", "not_now"]);
        assert!(table.lines(&all, 60, 10)[LiveTable::HEADING].contains("calls/s▼"));
        press(&mut table, &all, &[Char('s')]);
        assert_eq!(names(&mut table, &all, 10), ["often", "not_now", "Now"]);
        assert!(table.lines(&all, 60, 10)[LiveTable::HEADING].contains("calls▼"));
        press(&mut table, &all, &[Char('s'), Char('/'), Char('N'), Char('o'), Char('w')]);
        assert_eq!(names(&mut table, &all, 10), ["Now", "not_now"]);
        // The key that ends the table elsewhere is a character of the filter here.
        assert_eq!(press(&mut table, &all, &[Char('q')]), Answer::Draw);
        assert!(names(&mut table, &all, 10).is_empty());
        press(&mut table, &all, &[Backspace, Backspace, Backspace, Char('f'), Enter]);
        assert!(names(&mut table, &all, 10).is_empty());
        assert!(table.lines(&all, 60, 10)[1].starts_with("/Nf  0 of 3"));
        press(&mut table, &all, &[Esc]);
        assert_eq!(names(&mut table, &all, 10).len(), 3);
        // Two rows fit in.
        press(&mut table, &all, &[Down]);
        assert_eq!(names(&mut table, &all, HEAD + 2), ["often", "not_now"]);
        press(&mut table, &all, &[PageDown, Down, Down]);
        assert_eq!(names(&mut table, &all, HEAD + 2), ["often", "not_now"]);
        press(&mut table, &all, &[Home]);
        assert_eq!(names(&mut table, &all, HEAD + 2), ["Now", "often"]);
        assert_eq!(press(&mut table, &all, &[Char('q')]), Answer::Quit);
        let control = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
        assert_eq!(table.key(control, &all), Answer::Quit);
    }

    #[test]
    fn it_fits_whatever_size_the_terminal_has() {
        let long =
            "std::vector<std::map<int, std::string> >::emplace_back<int, char const*>(int, char const*)";
        let all = reading(&[(long, 1e9, 1e14), ("f", 0.0, 3.0)]);
        let mut table = LiveTable::default();
        for width in 0..200 {
            for height in [0, 1, 2, 3, 4, 5, 50] {
                let lines = table.lines(&all, width, height);
                assert!(lines.len() <= height);
                assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
            }
        }
        assert!(
            table.lines(&all, 60, 9)[HEAD].ends_with("emplace_back<…>(…)"),
            "{:#?}",
            table.lines(&all, 60, 9)
        );
    }
}
