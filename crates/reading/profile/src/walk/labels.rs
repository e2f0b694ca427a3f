//! The values of a label that calls have.

use std::iter::Peekable;

/// A label's value at a call, if it has one.
type Value = Option<Option<u64>>;

/// The values of one label, in the calls of a thread.
pub(super) struct Labels {
    /// Positions of the calls that set it.
    set: Peekable<std::vec::IntoIter<(u64, Option<u64>)>>,
    /// Number of begins so far.
    begins: u64,
    /// By open call: the value in it.
    in_force: Vec<Value>,
}

impl Labels {
    /// `set` are the calls that set the label, by their position, with its values.
    pub(super) fn new(set: Vec<(u64, Option<u64>)>) -> Labels {
        Labels { set: set.into_iter().peekable(), begins: 0, in_force: Vec::new() }
    }

    /// A call begins. Returns the value at the innermost call that has one, including this one.
    pub(super) fn begin(&mut self) -> Value {
        let around = self.in_force.last().copied().flatten();
        let value = self.set.next_if(|(position, _)| *position == self.begins).map(|(_, value)| value);
        self.begins += 1;
        self.in_force.push(value.or(around));
        value.or(around)
    }

    /// The innermost call ends.
    pub(super) fn end(&mut self) {
        self.in_force.pop();
    }
}
