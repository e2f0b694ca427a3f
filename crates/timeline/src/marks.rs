//! The names of labels, instants and spans: each is stored once and numbered.

use std::borrow::Cow;
use std::collections::HashMap;

use everycall_format::label;
use everycall_reader::event::label_name;
use everycall_reader::xray_event::xray_event_text;

use crate::event::MarkName;
use crate::log_lines::LogLines;

/// Limit on stored names, because a program that generates names could fill memory.
const NAMES_MAX: usize = 1 << 16;
/// What all further ones are called.
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
    pub(crate) logs: LogLines,
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

    /// Counts a mark of the class in `detail`.
    pub(crate) fn count(&mut self, name: &[u8], detail: u8) {
        let name: &[u8] = &full_name(name, detail);
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.add(name),
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

    fn add(&mut self, name: &[u8]) -> u32 {
        if self.numbers.len() == NAMES_MAX {
            if self.names.len() == NAMES_MAX {
                self.names.push(NamedMarks { name: FURTHER.to_owned(), ..NamedMarks::default() });
            }
            return NAMES_MAX as u32;
        }
        let number = self.names.len() as u32;
        self.names
            .push(NamedMarks { name: String::from_utf8_lossy(name).into_owned(), ..NamedMarks::default() });
        self.numbers.insert(name.into(), number);
        number
    }

    /// The number of a name that was counted, with its class.
    pub(crate) fn number(&self, name: &[u8], detail: u8) -> MarkName {
        MarkName(self.numbers.get(&*full_name(name, detail)).copied().unwrap_or(NAMES_MAX as u32))
    }
}

/// Runs `then` with the name in the record of a mark that begins at `slot` of `words`.
pub(crate) fn with_name<T>(words: &[u64], slot: u32, then: impl FnOnce(&[u8]) -> T) -> T {
    match xray_event_text(words, slot) {
        Some(text) => then(text.as_bytes()),
        None => then(label_name(words, slot).bytes()),
    }
}

/// What a mark is called: the runtime's own marks say what happened to whom.
fn full_name(name: &[u8], detail: u8) -> Cow<'_, [u8]> {
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
    fn names_beyond_the_limit_share_one() {
        let mut names = MarkNames::default();
        for number in 0..NAMES_MAX as u32 + 10 {
            names.count(&number.to_le_bytes(), label::SPAN_BEGIN);
        }
        names.count(&3_u32.to_le_bytes(), label::LABEL | label::NO_VALUE);
        assert_eq!(names.all().len(), NAMES_MAX + 1);
        assert_eq!(names.number(&3_u32.to_le_bytes(), label::LABEL), MarkName(3));
        assert_eq!((names.all()[3].spans, names.all()[3].labels), (1, 1));
        let further = names.number(&u32::MAX.to_le_bytes(), label::LABEL);
        assert_eq!((names.text(further), names.all()[further.0 as usize].spans), (FURTHER, 10));
        assert_eq!(names.text(MarkName(u32::MAX)), "");
    }
}
