//! The newest events, in bounded memory.

use std::collections::VecDeque;

use everycall_format::sched::SchedEvent;

/// A ring of events.
#[derive(Debug)]
pub struct Store {
    events: VecDeque<SchedEvent>,
    capacity: usize,
    overwritten: u64,
}

impl Store {
    /// For so many events. Memory is taken as they come.
    pub fn new(capacity: usize) -> Store {
        Store { events: VecDeque::new(), capacity: capacity.max(1), overwritten: 0 }
    }

    /// Adds one; the oldest one makes room for it.
    pub fn push(&mut self, event: SchedEvent) {
        let is_full = self.events.len() >= self.capacity;
        // No memory is the same as no room.
        if is_full || self.events.try_reserve(1).is_err() {
            self.overwritten += 1;
            if self.events.pop_front().is_none() {
                return;
            }
        }
        self.events.push_back(event);
    }

    /// Takes all of them, by time, and how many were overwritten before them.
    pub fn take(&mut self) -> (Vec<SchedEvent>, u64) {
        let mut events = Vec::from(std::mem::take(&mut self.events));
        events.sort_by_key(|event| event.time);
        (events, std::mem::take(&mut self.overwritten))
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
    }
}
