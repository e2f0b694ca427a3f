//! Parts of a thread that are read alone, as if nothing else of it existed.

use std::ops::Range;
use std::sync::Arc;

use everycall_reader::event::{Event, EventKind, Events};
use everycall_reader::{SegmentCursor, Warning};

use crate::clock::Clock;
use crate::code::Code;
use crate::location::ModuleMap;
use crate::marks::MarkNames;
use crate::pairing::Pairing;
use crate::thread::ThreadEvents;

/// A part of a thread, or several that follow each other: some of its segments.
pub struct Part<'t> {
    /// Numbers and words.
    segments: Arc<[(u64, Vec<u64>)]>,
    begins: Vec<u64>,
    process: usize,
    /// Whether events may have no stamp.
    is_unstamped: bool,
    clock: &'t Clock,
    modules: &'t ModuleMap,
    names: &'t MarkNames,
    code: Option<&'t dyn Code>,
}

/// The timeline of some segments of a part.
#[derive(Debug)]
pub struct PartEvents<'t> {
    /// Its events. Calls that began before are cut, and so are those that end later.
    pub events: ThreadEvents<'t>,
    /// Calls that are open in all of it, and not in `events`, which are within them.
    pub depth: u32,
}

impl<'t> Part<'t> {
    pub(crate) fn read<'s>(
        cursors: impl Iterator<Item = Box<dyn SegmentCursor + 's>>,
        (process, is_unstamped): (usize, bool),
        clock: &'t Clock,
        modules: &'t ModuleMap,
        names: &'t MarkNames,
        code: Option<&'t dyn Code>,
    ) -> Option<Part<'t>> {
        let (mut segments, mut begins) = (Vec::new(), Vec::new());
        let mut words = Vec::new();
        for mut cursor in cursors {
            while let Some(segment) = cursor.next_segment(&mut words) {
                // A damaged segment is a gap in the numbers.
                if let Ok(number) = segment
                    && let Some(first) = first(&words)
                {
                    begins.push(clock.ns(first.ticks));
                    segments.push((number, std::mem::take(&mut words)));
                }
            }
        }
        let is_empty = segments.is_empty();
        (!is_empty).then(|| Part {
            segments: segments.into(),
            begins,
            process,
            is_unstamped,
            clock,
            modules,
            names,
            code,
        })
    }

    /// When its segments begin, in nanoseconds since the origin; there is at least one.
    #[must_use]
    pub fn begins(&self) -> &[u64] {
        &self.begins
    }

    /// The timeline of some of its segments; `None` if there are none.
    #[must_use]
    pub fn events(&self, segments: Range<usize>) -> Option<PartEvents<'t>> {
        let (_, words) = self.segments.get(segments.start).filter(|_| !segments.is_empty())?;
        let EventKind::Segment { open_calls, .. } = first(words)?.kind else { return None };
        let (clock, modules, code) = (self.clock, self.modules, self.code);
        let stored =
            || Stored { segments: Arc::clone(&self.segments), next: segments.start, end: segments.end };
        let pairing = || Pairing::new(clock.walk(), modules, code);
        let behind = self.segments.get(segments.end).and_then(|(_, words)| first(words));
        let unstamped = self.is_unstamped.then_some(behind.map(|event| event.ticks));
        let (events, begun) = ThreadEvents::alone(stored, pairing, self.names, self.process, unstamped);
        Some(PartEvents { events, depth: open_calls.saturating_sub(begun) })
    }
}

impl std::fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("begins", &self.begins).finish_non_exhaustive()
    }
}

fn first(words: &[u64]) -> Option<Event> {
    Events::new(words).next()
}

/// Segments in memory: they are gone through twice.
struct Stored {
    segments: Arc<[(u64, Vec<u64>)]>,
    next: usize,
    end: usize,
}

impl SegmentCursor for Stored {
    fn next_segment(&mut self, words: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        let (number, stored) = self.segments.get(self.next).filter(|_| self.next < self.end)?;
        self.next += 1;
        words.clear();
        words.extend_from_slice(stored);
        Some(Ok(*number))
    }
}
