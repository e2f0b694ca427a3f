//! A call by its place in a thread.

use crate::event::{Begin, TimelineEvent};

/// One call of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallAt {
    /// When it began, in the times of the source.
    pub start_ns: u64,
    /// Number of enclosing calls.
    pub depth: u32,
}

impl CallAt {
    /// Its position among the begins of a thread.
    #[must_use]
    pub fn position(self, events: impl Iterator<Item = TimelineEvent>) -> Option<u64> {
        let begins = events.filter_map(|event| match event {
            TimelineEvent::Begin(begin) => Some(begin),
            _ => None,
        });
        let mut begins = begins.zip(0..).take_while(|(begin, _)| begin.start_ns <= self.start_ns);
        let is_it = |begin: &Begin| (begin.start_ns, begin.depth) == (self.start_ns, self.depth);
        begins.find(|(begin, _)| is_it(begin)).map(|(_, position)| position)
    }
}
