//! Call graphs as text for Graphviz and Mermaid: functions as boxes with their times, an arrow from
//! each caller to each callee.
//!
//! A graph is read by people, so it shows the [`BOXES_MAX`] functions with the most time, and none
//! with less than half a percent of all. It says how many it leaves out.

use std::fmt::Write as _;
use std::io;

use everycall_units::{Count, Duration, Several};

use crate::driver::Export;
use crate::frames::in_a_line;
use crate::names::Functions;
use crate::pairs::{Costs, Pairs};
use crate::portions::Portions;
use crate::source::Source;

/// Largest number of functions that are shown.
const BOXES_MAX: usize = 100;
/// Largest number of arrows: Mermaid draws no graph with more than 500.
const ARROWS_MAX: usize = 400;
/// Functions with less than one part in so many of the whole time aren't shown.
const PARTS: u64 = 200;
/// Characters of a name in a box.
const NAME_WIDTH: usize = 60;

/// Language of a graph.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Language {
    /// Graphviz.
    Dot,
    /// Mermaid.
    Mermaid,
}

/// The contents of a graph.
struct Shown {
    /// Positions of functions, in the order in which they were called first.
    boxes: Vec<usize>,
    /// Positions of caller and callee, calls, time.
    arrows: Vec<(usize, usize, u64, u64)>,
    /// How many functions were called.
    functions: usize,
    /// How many pairs of shown functions have no arrow.
    without_arrow: usize,
    total_ns: u64,
}

impl Shown {
    fn of(pairs: &Pairs) -> Shown {
        let functions = pairs.functions();
        let total_ns = pairs.total_ns;
        let mut boxes: Vec<usize> = (0..functions.len()).collect();
        boxes.sort_by_key(|&position| std::cmp::Reverse(functions[position].total_ns));
        boxes.truncate(BOXES_MAX);
        boxes.retain(|&position| functions[position].total_ns >= total_ns / PARTS);
        boxes.sort_unstable();
        let mut arrows = Vec::new();
        for &caller in &boxes {
            let shown = functions[caller].callees.iter();
            let shown = shown.filter(|pair| boxes.binary_search(&pair.callee).is_ok());
            arrows.extend(shown.map(|pair| (caller, pair.callee, pair.calls, pair.inclusive_ns)));
        }
        let all = arrows.len();
        arrows.sort_by_key(|&(.., ns)| std::cmp::Reverse(ns));
        arrows.truncate(ARROWS_MAX);
        arrows.sort_unstable_by_key(|&(caller, callee, ..)| (caller, callee));
        Shown { boxes, without_arrow: all - arrows.len(), arrows, functions: functions.len(), total_ns }
    }

    /// The graph's title, with counts of what it leaves out.
    fn title(&self, program: &str, lost: u64) -> String {
        let mut title = format!("{program}: {}", Duration { ns: self.total_ns });
        let hidden = (self.functions - self.boxes.len()) as u64;
        if hidden > 0 {
            // Writing to a string can't fail.
            let _ = write!(title, "; {} with less time not shown", Several(hidden, "function", "functions"));
        }
        if self.without_arrow > 0 {
            let _ = write!(title, "; {} arrows not shown", Count(self.without_arrow as u64));
        }
        if lost > 0 {
            let _ = write!(title, "; {} events are missing", Count(lost));
        }
        title
    }

    /// The lines of a function's box.
    fn lines(&self, costs: &Costs, functions: &Functions<'_>) -> [String; 4] {
        let share = |ns: u64| ns as f64 * 100.0 / self.total_ns.max(1) as f64;
        let time = |what: &str, ns: u64| format!("{what} {} ({:.1} %)", Duration { ns }, share(ns));
        let (total, own) = (time("total", costs.total_ns), time("own", costs.own_ns));
        [name(costs, functions), total, own, Several(costs.calls, "call", "calls").to_string()]
    }

    /// The box's colour: the more own time, the more saturated.
    fn colour(&self, costs: &Costs) -> String {
        let rest = 1.0 - costs.own_ns as f64 / self.total_ns.max(1) as f64;
        let part = |full: f64| (full + (255.0 - full) * rest.clamp(0.0, 1.0)) as u8;
        format!("#{:02x}{:02x}{:02x}", 255, part(160.0), part(80.0))
    }

    fn dot(&self, pairs: &Pairs, title: &str, functions: &Functions<'_>) -> String {
        let mut text = String::from("digraph calls {\n");
        let fonts = "fontname=\"sans-serif\", fontsize=10";
        let _ = writeln!(text, "  graph [label={}, labelloc=t, {fonts}];", dot_text(&[title]));
        let _ = writeln!(text, "  node [shape=box, style=\"filled,rounded\", {fonts}];");
        let _ = writeln!(text, "  edge [fontname=\"sans-serif\", fontsize=9, color=\"#555555\"];");
        for &position in &self.boxes {
            let costs = &pairs.functions()[position];
            let label = dot_text(&self.lines(costs, functions));
            let _ = writeln!(text, "  f{position} [label={label}, fillcolor=\"{}\"];", self.colour(costs));
        }
        for &(caller, callee, calls, ns) in &self.arrows {
            let width = 1.0 + 3.0 * ns as f64 / self.total_ns.max(1) as f64;
            let label = dot_text(&[arrow(calls, ns)]);
            let _ = writeln!(text, "  f{caller} -> f{callee} [label={label}, penwidth={width:.1}];");
        }
        text.push_str("}\n");
        text
    }

    fn mermaid(&self, pairs: &Pairs, title: &str, functions: &Functions<'_>) -> String {
        // YAML takes a JSON string.
        let mut quoted = Vec::new();
        crate::json::put_string(&mut quoted, title);
        let mut text = format!("---\ntitle: {}\n---\nflowchart TD\n", String::from_utf8_lossy(&quoted));
        for &position in &self.boxes {
            let costs = &pairs.functions()[position];
            let label = mermaid_text(&self.lines(costs, functions));
            let _ = writeln!(text, "  f{position}[{label}]");
            let _ = writeln!(text, "  style f{position} fill:{},stroke:#555,color:#000", self.colour(costs));
        }
        for &(caller, callee, calls, ns) in &self.arrows {
            let _ = writeln!(text, "  f{caller} -->|{}| f{callee}", mermaid_text(&[arrow(calls, ns)]));
        }
        text
    }
}

/// The function's name, cut to fit.
fn name(costs: &Costs, functions: &Functions<'_>) -> String {
    let whole = costs.frame.name(functions);
    let mut name: String = whole.chars().take(NAME_WIDTH).collect();
    if name.len() < whole.len() {
        name.push_str("...");
    }
    in_a_line(&name, None).into_owned()
}

/// The text of an arrow. Recursive calls have no time of their own.
fn arrow(calls: u64, ns: u64) -> String {
    let calls = Several(calls, "call", "calls");
    if ns == 0 { calls.to_string() } else { format!("{calls}, {}", Duration { ns }) }
}

/// A string of DOT with these lines.
fn dot_text<T: AsRef<str>>(lines: &[T]) -> String {
    let lines: Vec<String> =
        lines.iter().map(|line| line.as_ref().replace('\\', "\\\\").replace('"', "\\\"")).collect();
    format!("\"{}\"", lines.join("\\n"))
}

/// A string of Mermaid with these lines. What could be markup or Markdown is spelled as a number.
fn mermaid_text<T: AsRef<str>>(lines: &[T]) -> String {
    let mut text = String::from("\"");
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            text.push_str("<br/>");
        }
        for c in line.as_ref().chars() {
            match c {
                'a'..='z' | 'A'..='Z' | '0'..='9' | ' ' | '_' | ':' | ',' | '.' | '%' | '(' | ')' => {
                    text.push(c)
                }
                _ if c.is_alphanumeric() => text.push(c),
                _ => {
                    let _ = write!(text, "#{};", c as u32);
                }
            }
        }
    }
    text.push('"');
    text
}

/// Writes the graph.
pub(crate) fn write<S: Source>(
    language: Language,
    pairs: &Pairs,
    export: &Export<'_, S>,
    portions: &mut Portions<'_>,
) -> io::Result<()> {
    let shown = Shown::of(pairs);
    let program = export.source.processes().first().map_or("", |process| &process.name);
    let title = shown.title(&in_a_line(program, None), export.summary.lost_events);
    let text = match language {
        Language::Dot => shown.dot(pairs, &title, &export.functions),
        Language::Mermaid => shown.mermaid(pairs, &title, &export.functions),
    };
    portions.put(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_literally() {
        assert_eq!(dot_text(&["a\\n\"b\"", "<i>"]), r#""a\\n\"b\"\n<i>""#);
        assert_eq!(
            mermaid_text(&["`**f**`</script>", "#quot;"]),
            r##""#96;#42;#42;f#42;#42;#96;#60;#47;script#62;<br/>#35;quot#59;""##
        );
    }
}
