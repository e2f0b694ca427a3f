//! Marks, which are drawn beside calls: labels, instants, spans, log lines, throws, losses, times
//! without recording. Their number is bounded: if there are too many, neighbours of one kind are
//! merged.

use everycall_timeline::MarkName;

/// Marks of a track that are kept.
const KEPT_MAX: usize = 1 << 18;

/// The kind of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Label,
    Instant,
    Span,
    Log,
    /// A line that the program wrote.
    Output,
    Throw,
    Catch,
    Loss,
    Module,
    Off,
}

impl Kind {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Label => "label",
            Kind::Instant => "instant",
            Kind::Span => "span",
            Kind::Log => "log",
            Kind::Output => "output",
            Kind::Throw => "throw",
            Kind::Catch => "catch",
            Kind::Loss => "loss",
            Kind::Module => "module",
            Kind::Off => "off",
        }
    }
}

/// The parts of a mark's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// A name, and the value that it was given.
    Name(MarkName, Option<u64>),
    /// Lost events, if they were counted.
    Lost(Option<u64>),
    /// Why nothing was recorded.
    Off(&'static str),
}

/// A mark, or several neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub at: u64,
    /// When it ended; `at` if it is a moment.
    pub to: u64,
    pub kind: Kind,
    pub text: Text,
    /// How many were merged; the text is the first one's.
    pub count: u32,
}

/// The marks of a track.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    items: Vec<Item>,
    /// Neighbours closer than this were merged.
    width: u64,
    /// The longest of them.
    longest: u64,
}

impl Marks {
    /// Adds a mark; spans come when they end.
    pub fn add(&mut self, item: Item) {
        self.longest = self.longest.max(item.to.saturating_sub(item.at));
        self.items.push(item);
        if self.items.len() >= KEPT_MAX {
            self.sort();
            while self.items.len() >= KEPT_MAX / 2 && self.width < u64::MAX / 8 {
                self.width = (self.width * 4).max(64);
                self.items = merged(self.items.iter().copied(), self.width, usize::MAX);
            }
            self.longest = self.items.iter().map(|item| item.to.saturating_sub(item.at)).max().unwrap_or(0);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All marks are there.
    pub fn sort(&mut self) {
        self.items.sort_by_key(|item| item.at);
    }

    /// Those in a window, at most about `limit` of them.
    pub fn within(&self, from: u64, to: u64, limit: usize) -> Vec<Item> {
        // Those that were added last may be out of order.
        let is_in_order = self.items.is_sorted_by_key(|item| item.at);
        let first = if is_in_order {
            self.items.partition_point(|item| item.at < from.saturating_sub(self.longest))
        } else {
            0
        };
        let rest = self.items.get(first..).unwrap_or_default().iter().copied();
        let mut items: Vec<Item> = if is_in_order {
            rest.take_while(|item| item.at <= to).filter(|item| item.to >= from).collect()
        } else {
            rest.filter(|item| item.at <= to && item.to >= from).collect()
        };
        items.sort_by_key(|item| item.at);
        let pixel = to.saturating_sub(from) / (limit.max(1) as u64);
        merged(items.into_iter(), pixel.max(1), limit)
    }
}

/// Merges neighbours of one kind that lie within `width`, if there are more than `few`.
fn merged(items: impl Iterator<Item = Item>, width: u64, few: usize) -> Vec<Item> {
    let items: Vec<Item> = items.collect();
    if few != usize::MAX && items.len() <= few {
        return items;
    }
    // By kind: the place of the one that may grow.
    let mut last: [Option<usize>; Kind::Off as usize + 1] = [None; Kind::Off as usize + 1];
    let mut out: Vec<Item> = Vec::new();
    for item in items {
        let slot = &mut last[item.kind as usize];
        if let Some(grown) = slot.and_then(|at| out.get_mut(at))
            && item.to.saturating_sub(grown.at) <= width
        {
            grown.count = grown.count.saturating_add(item.count);
            grown.to = grown.to.max(item.to);
            if let (Text::Lost(sum), Text::Lost(more)) = (&mut grown.text, item.text) {
                *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
            }
            continue;
        }
        *slot = Some(out.len());
        out.push(item);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_marks_of_any_kind_are_merged() {
        let kinds = [Kind::Label, Kind::Loss, Kind::Module, Kind::Off];
        let mut marks = Marks::default();
        for at in 0..KEPT_MAX as u64 + 9 {
            let kind = kinds[at as usize % kinds.len()];
            marks.add(Item { at, to: at, kind, text: Text::Off(""), count: 1 });
        }
        marks.sort();
        assert!(marks.items.len() < KEPT_MAX);
        let all = marks.within(0, u64::MAX, 10);
        assert_eq!(all.iter().map(|item| u64::from(item.count)).sum::<u64>(), KEPT_MAX as u64 + 9);
        assert!(kinds.iter().all(|kind| all.iter().any(|item| item.kind == *kind)));
    }
}
