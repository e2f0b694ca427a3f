//! The events of one process in a time, for a file that has only that.

use std::collections::BTreeMap;

use everycall_format::sched::{SchedEvent, kind};

/// The events of process `pid` from `since` on, by time, with the earlier ones that give each
/// thread's state then.
pub fn excerpt<'e>(events: impl Iterator<Item = &'e SchedEvent>, pid: u32, since: u64) -> Vec<SchedEvent> {
    // A CPU's lost events may have been those of any process.
    let mut events: Vec<SchedEvent> =
        events.filter(|event| event.pid == pid || event.kind == kind::LOST).copied().collect();
    events.sort_by_key(|event| event.time);
    let begin = events.partition_point(|event| event.time < since);
    let within = events.split_off(begin);
    // By thread: the last event that says where it was, and how it was woken since.
    let mut before: BTreeMap<u32, Vec<SchedEvent>> = BTreeMap::new();
    for event in events.into_iter().filter(|event| event.kind != kind::LOST && event.kind != kind::RENAMED) {
        let of_thread = before.entry(event.tid).or_default();
        // Among samples, such an event says in which call the thread waits.
        let is_of_samples = of_thread.first().is_some_and(|first| first.kind == kind::SAMPLE);
        if event.kind != kind::WOKEN && !(event.kind == kind::OFF && is_of_samples) {
            of_thread.clear();
        }
        // It is woken once; the others don't matter.
        of_thread.truncate(1);
        of_thread.push(event);
    }
    before.retain(|_, events| events.iter().all(|event| event.kind != kind::ENDED));
    let mut all: Vec<SchedEvent> = before.into_values().flatten().collect();
    all.sort_by_key(|event| event.time);
    all.extend(within);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_state_at_its_beginning() {
        let event = |time, pid, tid, kind| SchedEvent { time, pid, tid, kind, ..SchedEvent::default() };
        let all = [
            event(1, 7, 7, kind::ON),
            event(2, 7, 7, kind::OFF),
            event(3, 7, 8, kind::OFF),
            event(4, 7, 8, kind::WOKEN),
            event(5, 7, 9, kind::ENDED),
            event(5, 6, 6, kind::ON),
            event(6, 0, 0, kind::LOST),
            event(12, 7, 8, kind::ON),
            event(11, 7, 7, kind::WOKEN),
            event(13, 6, 6, kind::OFF),
            event(14, 0, 0, kind::LOST),
        ];
        let times = |since| excerpt(all.iter(), 7, since).iter().map(|event| event.time).collect::<Vec<_>>();
        assert_eq!(times(10), [2, 3, 4, 11, 12, 14]);
        assert_eq!(times(0), [1, 2, 3, 4, 5, 6, 11, 12, 14]);
        // Later CPU time is counted from the last sample, so that stays, with the call of its wait.
        let sampled = [event(1, 7, 7, kind::SAMPLE), event(2, 7, 7, kind::SAMPLE), event(3, 7, 7, kind::OFF)];
        let times =
            |since| excerpt(sampled.iter(), 7, since).iter().map(|event| event.time).collect::<Vec<_>>();
        assert_eq!(times(10), [2, 3]);
    }
}
