//! Places of a thread from which it can be read, and from which tables of ranges are computed.

use std::sync::Arc;

use everycall_analysis::{Stretch, StretchNotes, WholeCall, WholeCalls};
use everycall_timeline::Checkpoint;
use rustc_hash::FxHashMap;

/// A place from which a thread can be read.
#[derive(Clone)]
pub(crate) struct Stop {
    /// When the next event happened.
    pub at: u64,
    /// Events before it.
    events: u64,
    /// Numbers of the calls that are open, outermost first.
    open: Arc<[u32]>,
    /// Whether tables can begin and end here.
    is_between: bool,
    pub checkpoint: Arc<Checkpoint>,
}

impl Stop {
    fn bytes(&self) -> usize {
        size_of::<Stop>() + size_of_val::<[u32]>(&self.open) + self.checkpoint.bytes()
    }
}

/// The stops of a track.
#[derive(Default)]
pub(crate) struct Stops {
    /// By time.
    all: Vec<Stop>,
    /// The calls that are open at some stop, by number.
    calls: FxHashMap<u32, WholeCall>,
    /// Notes on the numbers of the whole track; `None` before it was read.
    notes: Option<StretchNotes>,
}

impl Stops {
    /// Adds a stop behind so many events, before an event at `at`. Returns how many bytes it takes.
    pub fn add(&mut self, at: u64, events: u64, calls: &mut WholeCalls<'_>, checkpoint: Checkpoint) -> usize {
        let is_between = calls.is_between();
        let mut bytes = 0;
        let open = calls.open().map(|(number, call)| {
            self.calls.entry(number).or_insert_with(|| {
                bytes += call_bytes(call);
                call.clone()
            });
            number
        });
        let open = open.collect();
        let stop = Stop { at, events, open, is_between, checkpoint: Arc::new(checkpoint) };
        bytes += stop.bytes();
        self.all.push(stop);
        bytes
    }

    /// A call has ended that was open at a stop.
    pub fn end(&mut self, number: u32, call: WholeCall) {
        if let Some(known) = self.calls.get_mut(&number) {
            *known = call;
        }
    }

    /// An event comes at a moment: stops that seemed to be behind that are of no use for ranges.
    #[inline]
    pub fn pass(&mut self, at_ns: u64) {
        if self.all.last().is_some_and(|last| last.at > at_ns) {
            let late = self.all.iter_mut().rev().take_while(|stop| stop.at > at_ns);
            late.for_each(|stop| stop.is_between = false);
        }
    }

    /// The track was read.
    pub fn finish(&mut self, notes: StretchNotes) {
        self.notes = Some(notes);
    }

    /// The last stop before a moment, with the calls that are open there, outermost first.
    pub fn before(&self, at_ns: u64) -> Option<(Arc<Checkpoint>, Vec<&WholeCall>)> {
        let behind = self.all.partition_point(|stop| stop.at < at_ns);
        let stop = self.all.get(behind.checked_sub(1)?)?;
        let open = stop.open.iter().map(|number| self.calls.get(number)).collect::<Option<_>>()?;
        Some((Arc::clone(&stop.checkpoint), open))
    }

    /// The calls that are open at a stop; `None` if some never ended.
    fn whole(&self, stop: &Stop) -> Option<Vec<WholeCall>> {
        let calls = stop.open.iter().map(|number| self.calls.get(number).cloned());
        calls.map(|call| call.filter(WholeCall::has_ended)).collect()
    }

    pub fn stretch(&self, since_ns: u64, until_ns: u64, is_in_order: bool) -> Option<Stretch> {
        let notes = self.notes.clone()?;
        let first = self.all.partition_point(|stop| stop.at < since_ns);
        let begin = self.all.iter().take(first).rev().find(|stop| stop.is_between);
        let behind = self.all.partition_point(|stop| stop.at <= until_ns);
        let end = self.all.iter().skip(behind).find(|stop| stop.is_between);
        if begin.is_none() && end.is_none() {
            return None;
        }
        let before = begin.map_or_else(|| Some(Vec::new()), |stop| self.whole(stop))?;
        let passed = begin.map_or(0, |stop| stop.events);
        let end = match end {
            Some(stop) => Some((stop.events.saturating_sub(passed), self.whole(stop)?)),
            None => None,
        };
        let checkpoint = begin.map(|stop| Arc::clone(&stop.checkpoint));
        Some(Stretch { checkpoint, before, end, is_in_order, notes })
    }

    /// Drops every second stop. Returns how many bytes the others take.
    pub fn thin(&mut self) -> usize {
        let mut index = 0_usize;
        self.all.retain(|_| {
            index += 1;
            index.is_multiple_of(2)
        });
        let mut needed: Vec<u32> = self.all.iter().flat_map(|stop| stop.open.iter().copied()).collect();
        needed.sort_unstable();
        needed.dedup();
        self.calls.retain(|number, _| needed.binary_search(number).is_ok());
        self.calls.shrink_to_fit();
        let calls: usize = self.calls.values().map(call_bytes).sum();
        calls + self.all.iter().map(Stop::bytes).sum::<usize>()
    }
}

fn call_bytes(call: &WholeCall) -> usize {
    // Maps keep some room.
    call.bytes() * 3 / 2
}
