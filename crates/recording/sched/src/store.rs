//! The newest events, in bounded memory.

use std::collections::VecDeque;

use everycall_format::sched::SchedEvent;

/// Events that are taken at a time: few enough that their memory is used again.
const TAKEN_MAX: usize = 1 << 13;

/// A ring of events.
#[derive(Debug)]
pub struct Store {
    events: VecDeque<SchedEvent>,
    capacity: usize,
    /// How many of the newest ones weren't taken yet.
    fresh: usize,
    overwritten: u64,
    /// How many there were so far.
    pushed: u64,
}

impl Store {
    /// For so many events. Memory is taken as they come.
    pub fn new(capacity: usize) -> Store {
        Store { events: VecDeque::new(), capacity: capacity.max(1), fresh: 0, overwritten: 0, pushed: 0 }
    }

    /// Adds one; the oldest one makes room for it.
    pub fn push(&mut self, event: SchedEvent) {
        let is_full = self.events.len() >= self.capacity;
        // No memory is the same as no room.
        if is_full || self.events.try_reserve(1).is_err() {
            if self.fresh == self.events.len() {
                self.overwritten += 1;
                self.fresh = self.fresh.saturating_sub(1);
            }
            if self.events.pop_front().is_none() {
                return;
            }
        }
        self.events.push_back(event);
        self.fresh += 1;
        self.pushed += 1;
    }

    /// Takes the first of those that weren't taken yet, by time, and how many were overwritten
    /// before them. They stay for [`Store::all`].
    pub fn take(&mut self) -> (Vec<SchedEvent>, u64) {
        let first = self.events.len() - self.fresh.min(self.events.len());
        let end = self.events.len().min(first + TAKEN_MAX);
        let mut events: Vec<SchedEvent> = self.events.range(first..end).copied().collect();
        events.sort_by_key(|event| event.time);
        self.fresh = self.events.len() - end;
        (events, std::mem::take(&mut self.overwritten))
    }

    /// How many there were so far.
    pub fn count(&self) -> u64 {
        self.pushed
    }

    /// Those that came after the first `seen`, as far as they are here, in the order of their
    /// arrival.
    pub fn since(&self, seen: u64) -> impl Iterator<Item = &SchedEvent> {
        let wanted = usize::try_from(self.pushed.saturating_sub(seen)).unwrap_or(usize::MAX);
        self.events.range(self.events.len().saturating_sub(wanted)..)
    }

    /// All that there are, in the order of their arrival.
    pub fn all(&self) -> impl Iterator<Item = &SchedEvent> {
        self.events.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: u64) -> SchedEvent {
        SchedEvent { time, ..SchedEvent::default() }
    }

    #[test]
    fn the_newest_stay_and_come_by_time() {
        let mut store = Store::new(3);
        [5, 4, 9, 7].into_iter().for_each(|time| store.push(event(time)));
        let (events, overwritten) = store.take();
        assert_eq!(events, [4, 7, 9].map(event));
        assert_eq!(overwritten, 1);
        assert_eq!(store.take(), (vec![], 0));
        // Events that were taken stay until there is no room, and don't count as overwritten then.
        [11, 10].into_iter().for_each(|time| store.push(event(time)));
        assert_eq!(store.all().map(|event| event.time).collect::<Vec<_>>(), [7, 11, 10]);
        assert_eq!(store.take(), ([10, 11].map(event).to_vec(), 0));
        (20..24).for_each(|time| store.push(event(time)));
        assert_eq!(store.take(), ([21, 22, 23].map(event).to_vec(), 1));
        let since = |seen| store.since(seen).map(|event| event.time).collect::<Vec<_>>();
        assert_eq!((store.count(), since(0)), (10, vec![21, 22, 23]));
        assert_eq!((since(8), since(10), since(11)), (vec![22, 23], vec![], vec![]));
    }

    #[test]
    fn many_are_taken_in_parts() {
        let mut store = Store::new(2 * TAKEN_MAX);
        (0..TAKEN_MAX as u64 + 3).for_each(|time| store.push(event(time)));
        assert_eq!(store.take().0.len(), TAKEN_MAX);
        store.push(event(1));
        let rest = store.take().0.iter().map(|event| event.time).collect::<Vec<_>>();
        assert_eq!(rest, [1, TAKEN_MAX as u64, TAKEN_MAX as u64 + 1, TAKEN_MAX as u64 + 2]);
        assert_eq!(store.take(), (vec![], 0));
    }
}
