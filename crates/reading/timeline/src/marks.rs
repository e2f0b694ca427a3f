//! The names of labels, instants and spans: each is stored once and numbered.

use std::borrow::Cow;
use std::collections::HashMap;

use everycall_format::{label, tasks};
use everycall_reader::event::label_name;
use everycall_reader::xray_event::xray_event_text;

use crate::log_lines::LogLines;
use crate::values::CapturedValues;
use everycall_calls::MarkName;

/// Limit on stored names, because a program that generates names could fill memory.
const NAMES_MAX: usize = 1 << 16;
/// The name of all further ones.
const FURTHER: &str = "(one of more names than are kept)";

/// A name, and how often it occurs in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedMarks {
    /// The name; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Labels.
    pub labels: u64,
    /// Instants.
    pub instants: u64,
    /// Begins of spans.
    pub spans: u64,
    /// Values of counters.
    pub counters: u64,
}

/// The names in a trace, by number.
#[derive(Clone, Debug, Default)]
pub struct MarkNames {
    numbers: HashMap<Box<[u8]>, u32>,
    names: Vec<NamedMarks>,
    /// Marks of tasks that are named by their code.
    coded: Vec<Coded>,
    pub(crate) logs: LogLines,
    pub(crate) values: CapturedValues,
}

/// A name in which a task's has to be put, once it is known.
#[derive(Clone, Copy, Debug)]
struct Coded {
    number: u32,
    what: &'static str,
    code: TaskCode,
}

/// A place in the code of a process, by which tasks are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskCode {
    pub process: usize,
    pub address: u64,
}

impl TaskCode {
    /// The title of tasks whose name isn't known.
    pub fn title(self) -> String {
        format!("task at {:#x}", self.address)
    }
}

impl MarkNames {
    /// All of them, by number.
    #[must_use]
    pub fn all(&self) -> &[NamedMarks] {
        &self.names
    }

    /// The text of a name; empty for one of another trace.
    #[must_use]
    pub fn text(&self, name: MarkName) -> &str {
        self.names.get(name.0 as usize).map_or("", |named| &named.name)
    }

    /// Counts a mark of a process, of the class in `detail`.
    pub(crate) fn count(&mut self, process: usize, name: &[u8], detail: u8) {
        let full: &[u8] = &full_name(process, name, detail);
        let number = match self.numbers.get(full) {
            Some(number) => *number,
            None => self.add(full, coded(process, name, detail)),
        };
        let Some(named) = self.names.get_mut(number as usize) else { return };
        match detail & label::CLASS_MASK {
            label::LABEL => named.labels += 1,
            label::INSTANT
            | label::MODULE_LOADED
            | label::MODULE_UNLOADED
            | label::TASK_WAKE
            | label::TASK_BEGIN => named.instants += 1,
            label::SPAN_BEGIN => named.spans += 1,
            label::COUNTER | label::COUNTER_REAL => named.counters += 1,
            _ => {}
        }
    }

    fn add(&mut self, name: &[u8], coded: Option<(&'static str, TaskCode)>) -> u32 {
        if self.numbers.len() == NAMES_MAX {
            if self.names.len() == NAMES_MAX {
                self.names.push(NamedMarks { name: FURTHER.to_owned(), ..NamedMarks::default() });
            }
            return NAMES_MAX as u32;
        }
        let number = self.names.len() as u32;
        let text = match coded {
            Some((what, code)) => {
                self.coded.push(Coded { number, what, code });
                format!("{what}{}", code.title())
            }
            None => String::from_utf8_lossy(name).into_owned(),
        };
        self.names.push(NamedMarks { name: text, ..NamedMarks::default() });
        self.numbers.insert(name.into(), number);
        number
    }

    /// The number of a name that was counted, with its process and class.
    pub(crate) fn number(&self, process: usize, name: &[u8], detail: u8) -> MarkName {
        let name: &[u8] = &full_name(process, name, detail);
        MarkName(self.numbers.get(name).copied().unwrap_or(NAMES_MAX as u32))
    }

    /// The text of a name; `task_at` gives those of tasks that are named by code, by its address.
    pub(crate) fn text_with(&self, name: MarkName, task_at: impl FnOnce(u64) -> Option<String>) -> String {
        let coded = self.coded.iter().find(|coded| coded.number == name.0);
        let named = coded.and_then(|coded| Some(format!("{}{}", coded.what, task_at(coded.code.address)?)));
        named.unwrap_or_else(|| self.text(name).to_owned())
    }

    /// The code by which tasks are named.
    pub(crate) fn codes(&self) -> impl Iterator<Item = TaskCode> + '_ {
        self.coded.iter().map(|coded| coded.code)
    }

    /// Names the tasks that are named by their code, as far as `name` knows it.
    pub(crate) fn name_tasks(&mut self, name: &mut dyn FnMut(TaskCode) -> Option<String>) {
        for Coded { number, what, code } in &self.coded {
            if let (Some(named), Some(name)) = (self.names.get_mut(*number as usize), name(*code)) {
                named.name = format!("{what}{name}");
            }
        }
    }
}

/// Runs `then` with the name in the record of a mark that begins at `slot` of `words`.
pub(crate) fn with_name<T>(words: &[u64], slot: u32, then: impl FnOnce(&[u8]) -> T) -> T {
    match xray_event_text(words, slot) {
        Some(text) => then(text.as_bytes()),
        None => then(label_name(words, slot).bytes()),
    }
}

/// Of a mark of a task that is named by its code: what comes before its name, and that code.
fn coded(process: usize, name: &[u8], detail: u8) -> Option<(&'static str, TaskCode)> {
    let what = match detail & label::CLASS_MASK {
        label::TASK_WAKE => "wake ",
        label::TASK_BEGIN => "step ",
        _ => return None,
    };
    Some((what, TaskCode { process, address: tasks::code_in(name)? }))
}

/// A mark's full name: the runtime's own marks name the event, too. Code is one process's.
fn full_name(process: usize, name: &[u8], detail: u8) -> Cow<'_, [u8]> {
    if let Some((what, code)) = coded(process, name, detail) {
        return [what.as_bytes(), name, &(code.process as u64).to_le_bytes()].concat().into();
    }
    match detail & label::CLASS_MASK {
        label::MODULE_LOADED => [b"loaded ", name].concat().into(),
        label::MODULE_UNLOADED => [b"unloaded ", name].concat().into(),
        label::TASK_WAKE => [b"wake ", name].concat().into(),
        label::TASK_BEGIN => [b"step ", name].concat().into(),
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_code_are_named_later() {
        let mut names = MarkNames::default();
        let marks =
            [(0, label::TASK_WAKE), (0, label::TASK_BEGIN), (1, label::TASK_WAKE), (0, label::INSTANT)];
        for (process, detail) in marks {
            names.count(process, b"\x01abc", detail);
        }
        names.count(0, b"\x01abd", label::TASK_WAKE);
        names.name_tasks(&mut |code| {
            (code.address == 0xabc).then(|| ["app::serve", "other::run"][code.process].to_owned())
        });
        let numbers = marks.map(|(process, detail)| names.number(process, b"\x01abc", detail));
        assert_eq!(
            numbers.map(|number| names.text(number)),
            ["wake app::serve", "step app::serve", "wake other::run", "\x01abc"]
        );
        let unknown = names.number(0, b"\x01abd", label::TASK_WAKE);
        assert_eq!(names.text(unknown), "wake task at 0xabd");
    }

    #[test]
    fn names_beyond_the_limit_share_one() {
        let mut names = MarkNames::default();
        for number in 0..NAMES_MAX as u32 + 10 {
            names.count(0, &number.to_le_bytes(), label::SPAN_BEGIN);
        }
        names.count(0, &3_u32.to_le_bytes(), label::LABEL | label::NO_VALUE);
        assert_eq!(names.all().len(), NAMES_MAX + 1);
        assert_eq!(names.number(0, &3_u32.to_le_bytes(), label::LABEL), MarkName(3));
        assert_eq!((names.all()[3].spans, names.all()[3].labels), (1, 1));
        let further = names.number(0, &u32::MAX.to_le_bytes(), label::LABEL);
        assert_eq!((names.text(further), names.all()[further.0 as usize].spans), (FURTHER, 10));
        assert_eq!(names.text(MarkName(u32::MAX)), "");
    }
}
