//! The open spans of one thread. They overlap each other as they like, so they are found by name
//! and value.

use std::collections::{BTreeMap, HashMap};

use everycall_calls::{Mark, MarkKind, MarkName, SpanEndKind};

/// Spans that may be open at once; others are counted only.
pub(crate) const OPEN_MAX: usize = 1 << 16;

/// The key by which a span's end finds its begin.
pub(crate) type Key = (MarkName, Option<u64>);

#[derive(Clone, Copy, Debug)]
struct Span {
    key: Key,
    start_ns: u64,
    cut: bool,
}

/// The open spans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    /// By number, which grows with each begin.
    open: BTreeMap<u32, Span>,
    /// The numbers of those with the same key, innermost last.
    by_key: HashMap<Key, Vec<u32>>,
    /// The number of the next one.
    next: u32,
    /// Begins for which there was no room. Their ends can't be distinguished from other ends with
    /// the same key.
    pub too_many: u64,
}

impl Spans {
    /// A span begins; `None` where there is no room for it.
    pub fn begin(&mut self, key: Key, at_ns: u64, cut: bool) -> Option<Mark> {
        if self.open.len() >= OPEN_MAX {
            self.too_many += 1;
            return None;
        }
        let span = self.next;
        self.next = span.checked_add(1)?;
        self.open.insert(span, Span { key, start_ns: at_ns, cut });
        self.by_key.entry(key).or_default().push(span);
        Some(Mark { at_ns, name: key.0, value: key.1, kind: MarkKind::SpanBegin { span, cut } })
    }

    /// The innermost span of a key ends; `None` where none is open.
    pub fn end(&mut self, key: Key, at_ns: u64) -> Option<Mark> {
        let same = self.by_key.get_mut(&key)?;
        let span = same.pop();
        if same.is_empty() {
            self.by_key.remove(&key);
        }
        let span = span?;
        let ended = self.open.remove(&span)?;
        Some(ended.end(span, at_ns, SpanEndKind::Ended))
    }

    /// The innermost of those that ended without an end event; `None` if none is open.
    pub fn cut(&mut self, at_ns: u64, how: SpanEndKind) -> Option<Mark> {
        let (span, ended) = self.open.pop_last()?;
        if let Some(same) = self.by_key.get_mut(&ended.key) {
            same.pop();
            if same.is_empty() {
                self.by_key.remove(&ended.key);
            }
        }
        Some(ended.end(span, at_ns, how))
    }
}

impl Span {
    fn end(self, span: u32, at_ns: u64, how: SpanEndKind) -> Mark {
        let (name, value) = self.key;
        let kind = MarkKind::SpanEnd { span, start_ns: self.start_ns, start_cut: self.cut, how };
        Mark { at_ns, name, value, kind }
    }
}
