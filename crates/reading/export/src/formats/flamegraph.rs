//! Flame graphs as SVG pictures that need nothing else: they zoom and search in any browser.
//!
//! inferno draws them, from folded stacks. What takes a ten-thousandth of the time or less is too
//! narrow to be seen: such paths are left out, and their time is in their callers. This bounds
//! memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use everycall_units::Count;
use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection};

use crate::driver::{self, Export};
use crate::filter::Filter;
use crate::frames::in_a_line;
use crate::names::{Functions, Names};
use crate::paths::Paths;
use crate::portions::Portions;
use crate::source::Source;
use crate::summary::{Note, Summary};

/// A path with less than all time divided by this isn't drawn.
const NARROWEST: u64 = 10_000;

/// Separates frames while stacks are sorted: names have no control characters, and what sorts first
/// keeps callees with their caller.
const SEPARATOR: char = '\u{1}';

/// The time on a path and not on longer ones, in the older trace and in this one.
type Stacks = BTreeMap<String, [u64; 2]>;

/// Draws the stacks of a trace.
pub(crate) fn write<S: Source>(
    paths: &Paths,
    export: &Export<'_, S>,
    portions: &mut Portions<'_>,
) -> io::Result<()> {
    let mut stacks = Stacks::new();
    add(&mut stacks, 1, paths, &export.functions);
    picture(&stacks, None, export, portions)
}

/// Draws what passes `filter`, coloured by the difference to `old`, a trace called `old_name`.
///
/// # Errors
///
/// Errors of `out`, unchanged: a closed pipe is an [`io::ErrorKind::BrokenPipe`].
pub fn flamegraph_against(
    (source, names): (&impl Source, &dyn Names),
    (old, old_names, old_name): (&impl Source, &dyn Names, &str),
    filter: &Filter,
    notify: &mut dyn FnMut(Note),
    out: &mut dyn Write,
) -> io::Result<Summary> {
    let mut stacks = Stacks::new();
    driver::sum((old, old_names), filter, notify, &mut io::sink(), |paths, export, _| {
        add(&mut stacks, 0, paths, &export.functions);
        Ok(())
    })?;
    driver::sum((source, names), filter, notify, out, |paths, export, portions| {
        add(&mut stacks, 1, paths, &export.functions);
        picture(&stacks, Some(old_name), export, portions)
    })
}

/// The picture of stacks, or of what changed in them since a trace of this name.
fn picture<S: Source>(
    stacks: &Stacks,
    since: Option<&str>,
    export: &Export<'_, S>,
    portions: &mut Portions<'_>,
) -> io::Result<()> {
    let program = export.source.processes().first().map_or("", |process| &process.name);
    let program = picturable(program);
    let title = match since {
        None => format!("{program}: time by call path"),
        Some(old) => format!(
            "{program}: time by call path; red has more own time than in {}, blue less",
            picturable(old)
        ),
    };
    let mut options = Options::default();
    options.title = title;
    options.subtitle = missing(&export.summary);
    "ns".clone_into(&mut options.count_name);
    options.hash = true;
    // The outermost calls stand at the top: with deep recursion, they would be far below.
    options.direction = Direction::Inverted;
    // Names begin with their distinctive part.
    options.text_truncate_direction = TextTruncateDirection::Right;
    let bytes = &mut portions.bytes;
    draw(&mut options, stacks, since.is_none(), bytes)?;
    // So that a later picture may replace it.
    bytes.extend_from_slice(b"<!--everycall-->\n");
    Ok(())
}

/// Adds the stacks of a trace that are wide enough to be seen.
fn add(stacks: &mut Stacks, column: usize, paths: &Paths, functions: &Functions<'_>) {
    let widths = paths.total_ns();
    let least = (paths.iter().map(|path| path.own_ns).sum::<u64>() / NARROWEST).max(1);
    for (path, own_ns) in paths.wide(&widths, least) {
        let mut stack = String::new();
        for name in paths.names(path, functions) {
            if !stack.is_empty() {
                stack.push(SEPARATOR);
            }
            stack.push_str(&picturable(if name.is_empty() { "(no name)" } else { name }));
        }
        stacks.entry(stack).or_default()[column] += own_ns;
    }
}

/// A name in a folded stack and in XML, which has no control characters and not all others.
fn picturable(name: &str) -> Cow<'_, str> {
    let name = in_a_line(name, Some(';'));
    if name.contains(['\u{fffe}', '\u{ffff}']) {
        return name.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}").into();
    }
    name
}

/// The picture's losses, in words.
fn missing(summary: &Summary) -> Option<String> {
    (summary.lost_events > 0).then(|| format!("{} events are missing", Count(summary.lost_events)))
}

fn draw(options: &mut Options<'_>, stacks: &Stacks, alone: bool, out: &mut Vec<u8>) -> io::Result<()> {
    // They are in order already: inferno's own order is that of whole lines, in which a function
    // whose name begins with another's may come between that one and its callees. As a "flame
    // chart", it takes them from the last one to the first.
    options.flame_chart = true;
    let lines: Vec<String> = stacks.iter().rev().map(|(stack, times)| line(stack, *times, alone)).collect();
    flamegraph::from_lines(options, lines.iter().map(String::as_str), out)
}

/// A line as inferno reads it.
fn line(stack: &str, [old, new]: [u64; 2], alone: bool) -> String {
    let mut line = stack.replace(SEPARATOR, ";");
    // A last word of digits would be a number of the line, and what begins with a hash a comment.
    if let Some((before, last)) = line.rsplit_once(' ')
        && last.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        line = format!("{before}\u{a0}{last}");
    }
    if line.starts_with("# ") {
        line.replace_range(1..2, "\u{a0}");
    }
    if alone { format!("{line} {new}") } else { format!("{line} {old} {new}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(stacks: &[(&str, [u64; 2])], alone: bool) -> String {
        let stacks = stacks.iter().map(|(stack, times)| (stack.replace(';', "\u{1}"), *times)).collect();
        let mut bytes = Vec::new();
        draw(&mut Options::default(), &stacks, alone, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn callees_stay_with_their_caller() {
        let svg = svg(&[("t;f", [0, 10]), ("t;f(int)", [0, 5]), ("t;f;g", [0, 20])], true);
        assert_eq!(svg.matches("<title>f (30 samples").count(), 1, "{svg}");
    }

    #[test]
    fn names_like_numbers_and_comments_and_markup_stay_names() {
        let svg = svg(&[("# t;operator 42", [0, 7]), ("# t;</script>&", [0, 3])], true);
        assert!(svg.contains("<title>operator\u{a0}42 (7 samples, 70.00%)</title>"), "{svg}");
        assert!(svg.contains("<title>&lt;/script&gt;&amp; (3 samples"), "{svg}");
        assert!(picturable("a\u{0}\u{1b};\u{ffff}").chars().all(|c| !c.is_control() && c != '\u{ffff}'));
    }

    #[test]
    fn differences_have_signs() {
        let svg = svg(&[("t;more", [10, 30]), ("t;less", [40, 30])], false);
        assert!(svg.contains("<title>more (30 samples, 50.00%; +33.33%)</title>"), "{svg}");
        assert!(svg.contains("<title>less (30 samples, 50.00%; -16.67%)</title>"), "{svg}");
    }
}
