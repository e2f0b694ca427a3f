//! Rules in order, and what they select.

use std::fmt;
use std::path::{Path, PathBuf};

use everycall_format::frame_pattern::rule_says;

use crate::functions::FunctionTable;
use crate::pattern::{Compiled, InTable, Pattern};

/// Largest list.
const LIST_SIZE_MAX: u64 = 16 << 20;

/// One rule of a selection.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Whether the functions that it matches are recorded; otherwise they are left out.
    pub is_in: bool,
    /// The pattern.
    pub pattern: Pattern,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_in { '+' } else { '-' }, self.pattern)
    }
}

impl Rule {
    /// Reads `+ PATTERN` or `- PATTERN`, as rules are printed. A plain pattern has the sign of
    /// `plain_is_in`.
    ///
    /// # Errors
    ///
    /// The pattern isn't understood: see [`Pattern::new`].
    pub fn parse(text: &str, plain_is_in: bool) -> Result<Rule, String> {
        let text = text.trim();
        let (is_in, pattern) = match (text.strip_prefix("+ "), text.strip_prefix("- ")) {
            (Some(pattern), _) => (true, pattern),
            (_, Some(pattern)) => (false, pattern),
            _ => (plain_is_in, text),
        };
        Ok(Rule { is_in, pattern: Pattern::new(pattern)? })
    }
}

/// Why there is no selection.
#[derive(Debug)]
#[non_exhaustive]
pub enum SelectionError {
    /// A pattern isn't understood.
    Pattern {
        /// The pattern.
        text: String,
        /// Why it is invalid.
        reason: String,
    },
    /// A list can't be read.
    List(PathBuf, String),
    /// A line of a list isn't understood.
    Line {
        /// The list.
        list: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The line.
        text: String,
        /// Why it is invalid.
        reason: String,
    },
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelectionError::Pattern { text, reason } => write!(f, "the pattern {text:?} {reason}"),
            SelectionError::List(path, reason) => write!(
                f,
                "{} can't be read: {reason}; name a file with a pattern on each line, as in @functions.txt",
                path.display()
            ),
            SelectionError::Line { list, line, text, reason } => {
                write!(f, "{}:{line}: the pattern {text:?} {reason}", list.display())
            }
        }
    }
}

impl std::error::Error for SelectionError {}

/// Which functions are recorded: rules in order, the last of which that matches decides.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    rules: Vec<Rule>,
    /// Whether functions are recorded that no rule matches.
    others: bool,
}

impl Selection {
    /// A selection without rules: everything, or nothing.
    #[must_use]
    pub fn all_or_none(all: bool) -> Selection {
        Selection { rules: Vec::new(), others: all }
    }

    /// The selection of `--only` and `--not`: with `only`, nothing but its functions is recorded;
    /// then `not` leaves out functions. Each is a pattern, or `@FILE` for a list.
    ///
    /// # Errors
    ///
    /// A pattern isn't understood, or a list can't be read.
    pub fn of_options(only: &[String], not: &[String]) -> Result<Selection, SelectionError> {
        let mut selection = Selection::all_or_none(only.is_empty());
        for text in only {
            selection.add(text, true)?;
        }
        for text in not {
            selection.add(text, false)?;
        }
        Ok(selection)
    }

    /// Adds a pattern, or the rules of a list for `@FILE`. A rule without a sign has that of
    /// `is_in`.
    ///
    /// # Errors
    ///
    /// As [`Selection::of_options`].
    pub fn add(&mut self, text: &str, is_in: bool) -> Result<(), SelectionError> {
        if let Some(path) = text.strip_prefix('@') {
            return self.add_list(Path::new(path), is_in);
        }
        let pattern =
            Pattern::new(text).map_err(|reason| SelectionError::Pattern { text: text.to_owned(), reason })?;
        self.push(Rule { is_in, pattern });
        Ok(())
    }

    /// Adds a rule.
    pub fn push(&mut self, rule: Rule) {
        // Rules before one for everything have no effect any more.
        if rule.pattern.text() == "*" {
            self.rules.clear();
        }
        // Nor has the same pattern's earlier one.
        self.rules.retain(|earlier| earlier.pattern.text() != rule.pattern.text());
        self.rules.push(rule);
    }

    fn add_list(&mut self, path: &Path, is_in: bool) -> Result<(), SelectionError> {
        let failed = |reason: String| SelectionError::List(path.to_owned(), reason);
        let text = everycall_io::infile::read_text(path, LIST_SIZE_MAX)
            .map_err(|error| failed(error.to_string()))?;
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            // `#` begins a comment where it begins a line or follows a space; names may contain it.
            let text = text.split(" #").next().unwrap_or_default().trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            match Rule::parse(text, is_in) {
                Ok(rule) => self.rules.push(rule),
                Err(reason) => {
                    let (list, text) = (path.to_owned(), text.to_owned());
                    return Err(SelectionError::Line { list, line, text, reason });
                }
            }
        }
        Ok(())
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether functions are recorded that no rule matches.
    #[must_use]
    pub fn others(&self) -> bool {
        self.others
    }

    /// Whether everything is recorded.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.others && self.rules.is_empty()
    }

    /// Whether a function that isn't linked yet is recorded.
    #[must_use]
    pub fn keeps(&self, function: &mut Compiled) -> bool {
        let last = self.rules.iter().rev().find(|rule| rule.pattern.matches(function));
        last.map_or(self.others, |rule| rule.is_in)
    }

    /// The rules as text, for [`Selection::from_text`].
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from(if self.others { "+\n" } else { "-\n" });
        for rule in &self.rules {
            text.push_str(&format!("{rule}\n"));
        }
        text
    }

    /// The selection of such a text; none if it isn't one.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Selection> {
        let (others, rules) = text.split_once('\n')?;
        let others = match others {
            "+" => true,
            "-" => false,
            _ => return None,
        };
        let rules = rules.lines().map(|line| Rule::parse(line, true)).collect::<Result<_, _>>().ok()?;
        Some(Selection { rules, others })
    }

    /// Decides which of a file's functions are selected.
    #[must_use]
    pub fn resolve(&self, table: &mut FunctionTable) -> Resolved {
        let count = table.functions().len();
        let mut is_on = vec![self.others; count];
        let mut matched = vec![Matched::default(); self.rules.len()];
        let texts: Vec<String> = self.rules.iter().map(Rule::to_string).collect();
        for (index, is_on) in is_on.iter_mut().enumerate() {
            let sites = table.functions().get(index).map_or(0, |function| function.sites);
            let frame = table.frame(index).cloned();
            let mut function = InTable::at(table, index);
            for ((rule, text), matched) in self.rules.iter().zip(&texts).zip(&mut matched) {
                let is_meant = match &frame {
                    Some(frame) => rule_says(text.as_bytes(), &frame.name, &frame.file).is_some(),
                    None => rule.pattern.matches(&mut function),
                };
                if is_meant {
                    *is_on = rule.is_in;
                    matched.functions += 1;
                    matched.sites += u64::from(sites);
                }
            }
        }
        let on = table.functions().iter().zip(&is_on).filter(|(_, is_on)| **is_on);
        let on = on.fold(Matched::default(), |sum, (function, _)| Matched {
            functions: sum.functions + 1,
            sites: sum.sites + u64::from(function.sites),
        });
        let all = Matched { functions: count as u64, sites: table.site_count() as u64 };
        Resolved { ranges: table.ranges(&is_on), is_on, on, all, matched }
    }

    /// For rules that match nothing: those of `names` that are most similar to their names.
    #[must_use]
    pub fn near(rule: &Rule, names: &[String]) -> Vec<String> {
        let mut near: Vec<String> =
            rule.pattern.names().flat_map(|name| name.near(names.iter().map(String::as_str))).collect();
        near.dedup();
        near
    }
}

/// How much something matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Functions.
    pub functions: u64,
    /// Their sites.
    pub sites: u64,
}

impl std::ops::AddAssign for Matched {
    fn add_assign(&mut self, more: Matched) {
        self.functions += more.functions;
        self.sites += more.sites;
    }
}

/// The result of a selection for one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Recorded functions as image addresses: begin and end, ascending and apart.
    pub ranges: Vec<(u64, u64)>,
    /// Whether each function is recorded, by its index.
    pub is_on: Vec<bool>,
    /// Counts of what is recorded.
    pub on: Matched,
    /// Counts of all functions and sites.
    pub all: Matched,
    /// Counts of each rule's matches, whether or not a later one decides.
    pub matched: Vec<Matched>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_keep_their_order_and_lose_what_has_no_effect() {
        let mut selection = Selection::all_or_none(true);
        for rule in ["- a*", "+ ab", "- a*", "- c"] {
            selection.push(Rule::parse(rule, true).unwrap());
        }
        let shown =
            |selection: &Selection| selection.rules().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&selection), ["+ ab", "- a*", "- c"]);
        selection.push(Rule::parse("- *", true).unwrap());
        assert_eq!(shown(&selection), ["- *"]);
    }

    #[test]
    fn functions_that_are_not_linked_yet_are_selected() {
        let not = ["size:<9 & !has:loop", "file:lib/*"].map(str::to_owned);
        let mut selection = Selection::of_options(&[], &not).unwrap();
        selection.push(Rule::parse("+ forced*", true).unwrap());
        let selection = Selection::from_text(&selection.to_text()).unwrap();
        for (name, instructions, has_loop, file, is_kept) in [
            ("f", 8, false, "/src/a.c", false),
            ("f", 9, false, "/src/a.c", true),
            ("f", 8, true, "/src/a.c", true),
            ("f", 99, true, "/src/lib/a.c", false),
            ("_Z7forced1i", 1, false, "/src/lib/a.c", true),
        ] {
            let code = crate::Code { instructions, has_loop };
            let mut function = Compiled::new(name, code, Some(file.to_owned()));
            assert_eq!(selection.keeps(&mut function), is_kept, "{name} {instructions} {has_loop} {file}");
        }
        assert!(Selection::from_text("x\n").is_none() && Selection::from_text("+\n- size:x\n").is_none());
    }

    #[test]
    fn errors_say_where() {
        let list = std::env::temp_dir().join(format!("everycall-list-{}", std::process::id()));
        std::fs::write(&list, "# what is slow\n+ handle_*\n\nparse # and this\n- size:many\n").unwrap();
        let mut selection = Selection::all_or_none(false);
        let error = selection.add(&format!("@{}", list.display()), true).unwrap_err().to_string();
        assert!(error.contains(":5: the pattern \"- size:many\""), "{error}");
        std::fs::remove_file(&list).unwrap();
        let error = selection.add("@/not/there", true).unwrap_err().to_string();
        assert!(error.contains("/not/there can't be read"), "{error}");
        let error = Selection::of_options(&["/(/".to_owned()], &[]).unwrap_err().to_string();
        assert!(error.starts_with("the pattern \"/(/\" isn't a regular expression"), "{error}");
    }
}
