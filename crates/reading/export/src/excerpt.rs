//! Excerpts of large source files.
//!
//! The page of vizviewer searches the whole text of a file each time a slice is selected, which
//! takes about 8 s per megabyte. Of a large file, only the lines of the functions that occurred are
//! therefore included. All lines keep their numbers: omitted lines are empty.

use std::borrow::Cow;

/// Size of the largest file that is included completely, in bytes.
const WHOLE_SIZE_MAX: usize = 512 << 10;
/// Number of lines to include per function: the first that keeps the text below that size, or else
/// the last.
const LINES: [usize; 6] = [800, 400, 200, 100, 50, 25];
/// Lines before a function's own, for its comment and its type.
const LINES_BEFORE: usize = 10;
/// Replaces the first of several omitted lines.
const LEFT_OUT: &str = "// ...\n";

/// The text; of a large one, only the lines from each of `starts` on, which are line numbers from
/// 1.
pub(crate) fn excerpt<'a>(text: Cow<'a, str>, starts: &[u32]) -> Cow<'a, str> {
    if text.len() <= WHOLE_SIZE_MAX {
        return text;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut given = String::new();
    for count in LINES {
        given = with_lines(&lines, starts, count);
        if given.len() <= WHOLE_SIZE_MAX {
            break;
        }
    }
    Cow::Owned(given)
}

fn with_lines(lines: &[&str], starts: &[u32], count: usize) -> String {
    let mut is_given = vec![false; lines.len()];
    for start in starts {
        let start = (*start as usize).saturating_sub(1);
        let (from, to) = (start.saturating_sub(LINES_BEFORE), start.saturating_add(count));
        if let Some(range) = is_given.get_mut(from..to.min(lines.len())) {
            range.fill(true);
        }
    }
    let behind = is_given.iter().rposition(|given| *given).map_or(0, |last| last + 1);
    let mut text = String::new();
    let mut was_given = true;
    for (line, given) in lines.iter().zip(is_given).take(behind) {
        text.push_str(match (given, was_given) {
            (true, _) => line,
            (false, true) => LEFT_OUT,
            (false, false) => "\n",
        });
        was_given = given;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> String {
        (1..=count).map(|number| format!("line {number}\n")).collect()
    }

    #[test]
    fn a_small_text_is_given_as_a_whole() {
        let text = numbered(1000);
        assert_eq!(excerpt(Cow::Borrowed(&text), &[3]), text);
    }

    #[test]
    fn a_large_text_keeps_its_line_numbers() {
        let text = numbered(200_000);
        let given = excerpt(Cow::Borrowed(&text), &[100_000, 5, 150_000, u32::MAX, 0]).into_owned();
        assert!(given.len() <= WHOLE_SIZE_MAX);
        let lines: Vec<&str> = given.lines().collect();
        assert_eq!(lines.len(), 150_799);
        for shown in [1, 5, 804, 99_990, 100_000, 100_799, 150_799] {
            assert_eq!(lines[shown - 1], format!("line {shown}"));
        }
        assert_eq!((lines[804], lines[805], lines[99_988]), ("// ...", "", ""));
    }

    #[test]
    fn many_functions_get_few_lines_each() {
        let text = numbered(200_000);
        let starts: Vec<u32> = (0..2_000).map(|index| index * 100 + 50).collect();
        let given = excerpt(Cow::Borrowed(&text), &starts);
        assert!(given.len() < text.len() / 2, "{}", given.len());
        let lines: Vec<&str> = given.lines().collect();
        assert_eq!((lines[49], lines[73], lines[74]), ("line 50", "line 74", "// ..."));
    }
}
