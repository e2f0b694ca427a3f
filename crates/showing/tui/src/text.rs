//! Texts of others on a screen: what would control the terminal or turn its lines around is shown
//! as an escape, and every text fits into its columns.

use unicode_width::UnicodeWidthChar as _;

/// The text on one line, without anything that a terminal acts upon.
pub fn shown(text: &str) -> String {
    everycall_io::terminal::line(text).into_owned()
}

/// Columns that the text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(|character| character.width().unwrap_or(0)).sum()
}

/// As much of the text as fits into `columns`, with `…` where something is missing.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut left = columns.saturating_sub(1);
    for character in text.chars() {
        let width = character.width().unwrap_or(0);
        if width > left {
            break;
        }
        left -= width;
        out.push(character);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// The text as [`fit`] returns it, filled up to `columns` with spaces behind it.
pub fn padded(text: &str, columns: usize) -> String {
    let mut out = fit(text, columns);
    out.extend(std::iter::repeat_n(' ', columns.saturating_sub(width(&out))));
    out
}

/// The text as [`fit`] returns it, filled up to `columns` with spaces before it.
pub fn right(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(&text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_upon_is_shown_as_an_escape() {
        assert_eq!(shown("a\u{1b}[31mb\u{202e}c\td\n\u{9b}2J"), r"a\u{1b}[31mb\u{202e}c\td\n\u{9b}2J");
        assert_eq!(shown("größe 漢字 e\u{301}"), "größe 漢字 e\u{301}");
        for code in 0..=0x10_ffff_u32 {
            let Some(character) = char::from_u32(code) else { continue };
            let is_kept = shown(&character.to_string()).starts_with(character) && character != '\\';
            assert!(!is_kept || !character.is_control(), "{code:x}");
        }
    }

    #[test]
    fn texts_fit_into_columns() {
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit("abcd", 4), "abcd");
        assert_eq!(fit("漢字漢字", 6), "漢字…");
        assert_eq!(fit("漢字", 1), "…");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(padded("漢", 4), "漢  ");
        assert_eq!(right("12", 4), "  12");
        for columns in 0..9 {
            assert_eq!(width(&padded("a漢e\u{301}字bcd漢", columns)), columns);
        }
    }
}
