//! How the page is laid out: 80 columns, headings, fields, paragraphs.

use std::fmt::{self, Write};

/// Columns of the page.
pub const WIDTH: usize = 80;

/// Columns for the names of fields.
const LABEL: usize = 12;

/// Largest number of threads, modules and children that are listed.
pub const LISTED: usize = 32;

/// A heading after an empty line.
pub fn heading(out: &mut String, text: &str) -> fmt::Result {
    writeln!(out, "\n{text}")
}

/// Says how many more there are than are listed.
pub fn more(out: &mut String, count: usize) -> fmt::Result {
    if count > LISTED { writeln!(out, "  ... and {} more", count - LISTED) } else { Ok(()) }
}

/// Writes a field; long text is wrapped between words.
pub fn field(out: &mut String, label: &str, text: &str) -> fmt::Result {
    let text = if text.is_empty() { "unknown" } else { text };
    for (number, line) in lines(text, WIDTH - LABEL).iter().enumerate() {
        writeln!(out, "{:<LABEL$}{line}", if number == 0 { label } else { "" })?;
    }
    Ok(())
}

/// Text, wrapped between words.
pub fn paragraph(out: &mut String, text: &str) -> fmt::Result {
    lines(text, WIDTH - 2).iter().try_for_each(|line| writeln!(out, "  {line}"))
}

fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Date and time in UTC, of nanoseconds since 1970.
pub fn utc(realtime_ns: u64) -> String {
    match jiff::Timestamp::from_nanosecond(realtime_ns.into()) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => "an unknown time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_827_696_000_000_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(utc(1_735_689_599_999_999_999), "2024-12-31 23:59:59 UTC");
        assert!(utc(u64::MAX).starts_with("2554-07-21"));
    }

    #[test]
    fn texts_keep_to_their_width() {
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
    }
}
