//! The labels of open calls.

use everycall_timeline::{Mark, MarkKind, MarkName};

use crate::json::{put_number, put_string};
use crate::source::Source;
use crate::text;

/// Largest number of labels that are stored per call; further ones are counted.
const KEPT: usize = 32;
/// Larger JSON numbers lose digits if they are read as doubles.
const EXACT_MAX: u64 = 1 << 53;

/// The labels of one call, each name with its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    level: usize,
    pub(crate) named: Vec<(MarkName, Vec<Option<u64>>)>,
    kept: usize,
    /// Number of further labels.
    pub(crate) more: u64,
}

impl Labels {
    fn add(&mut self, name: MarkName, value: Option<u64>) {
        let values = self.named.iter_mut().find(|(known, _)| *known == name).map(|(_, values)| values);
        if values.as_ref().is_some_and(|values| values.contains(&value)) {
            return;
        }
        if self.kept == KEPT {
            self.more += 1;
            return;
        }
        self.kept += 1;
        match values {
            Some(values) => values.push(value),
            None => self.named.push((name, vec![value])),
        }
    }

    /// Appends an object: the value of each name, or an array of its values.
    pub(crate) fn put_json(&self, bytes: &mut Vec<u8>, source: &impl Source) {
        bytes.push(b'{');
        for (place, (name, values)) in self.named.iter().enumerate() {
            if place > 0 {
                bytes.push(b',');
            }
            put_string(bytes, text::mark_name(source, *name));
            bytes.push(b':');
            match values[..] {
                [value] => put_optional(bytes, value),
                _ => {
                    let mut separator = b'[';
                    for value in values {
                        bytes.push(std::mem::replace(&mut separator, b','));
                        put_optional(bytes, *value);
                    }
                    bytes.push(b']');
                }
            }
        }
        bytes.push(b'}');
    }
}

fn put_optional(bytes: &mut Vec<u8>, value: Option<u64>) {
    match value {
        Some(value) => put_value(bytes, value),
        None => bytes.extend_from_slice(b"null"),
    }
}

/// Appends a value as a JSON number, or as a string if a number could lose digits.
pub(crate) fn put_value(bytes: &mut Vec<u8>, value: u64) {
    if value > EXACT_MAX {
        put_string(bytes, &value.to_string());
    } else {
        put_number(bytes, value);
    }
}

/// Appends the value of a mark in the same way. JSON has no infinity: such doubles are strings.
pub(crate) fn put_mark_value(bytes: &mut Vec<u8>, mark: &Mark) {
    let value = mark.value.unwrap_or(0);
    match mark.kind {
        MarkKind::Counter if value.cast_signed().unsigned_abs() <= EXACT_MAX => {
            bytes.extend_from_slice(value.cast_signed().to_string().as_bytes());
        }
        MarkKind::Counter => put_string(bytes, &value.cast_signed().to_string()),
        MarkKind::CounterReal if f64::from_bits(value).is_finite() => {
            bytes.extend_from_slice(format!("{:?}", f64::from_bits(value)).as_bytes());
        }
        MarkKind::CounterReal => put_string(bytes, &f64::from_bits(value).to_string()),
        _ => put_value(bytes, value),
    }
}

/// The labels of a thread's open calls.
#[derive(Debug, Default)]
pub(crate) struct OpenLabels {
    /// Of the calls that have any, outermost first.
    open: Vec<Labels>,
    /// The labels of the call that ended last.
    ended: Labels,
}

impl OpenLabels {
    /// Adds a label to the innermost of `level` open calls.
    pub(crate) fn add(&mut self, level: usize, name: MarkName, value: Option<u64>) {
        if self.open.last().is_none_or(|labels| labels.level != level) {
            self.open.push(Labels { level, ..Labels::default() });
        }
        if let Some(labels) = self.open.last_mut() {
            labels.add(name, value);
        }
    }

    /// The innermost of `level` open calls ends. Returns whether it has labels: see
    /// [`OpenLabels::ended`].
    #[inline]
    pub(crate) fn end(&mut self, level: usize) -> bool {
        match self.open.last() {
            Some(labels) if labels.level == level => {
                self.ended = self.open.pop().unwrap_or_default();
                true
            }
            _ => false,
        }
    }

    /// The labels of the call with labels that ended last.
    pub(crate) fn ended(&self) -> &Labels {
        &self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stay_with_their_call_and_are_bounded() {
        let mut open = OpenLabels::default();
        let (a, b) = (MarkName(0), MarkName(1));
        open.add(1, a, Some(1));
        open.add(3, a, Some(2));
        (0..100).for_each(|value| open.add(3, b, Some(value)));
        (0..100).for_each(|_| open.add(3, b, Some(7)));
        assert!(open.end(3));
        assert_eq!((open.ended().named.len(), open.ended().named[1].1.len(), open.ended().more), (2, 31, 69));
        assert!(!open.end(3) && !open.end(2));
        assert!(open.end(1));
        assert_eq!(open.ended().named, [(a, vec![Some(1)])]);
    }
}
