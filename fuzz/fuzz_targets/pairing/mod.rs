//! What holds for the timelines of any input.

use everycall_reader::Source;
use everycall_timeline::{Location, TimelineEvent, Trace};

/// Reads everything and checks nesting and order.
pub fn check(source: impl Source) {
    let Ok(trace) = Trace::open(source) else { return };
    let same = |entry: Location, exit: Location| (exit.image_address % 3 != 0).then_some(entry == exit);
    for thread in trace.threads() {
        for checked in [None, Some(&same as &_)] {
            let mut open = Vec::new();
            let mut now = 0;
            for event in trace.thread_events_checked(thread.index, checked) {
                assert!(event.at_ns() >= now, "time goes on");
                now = event.at_ns();
                match event {
                    TimelineEvent::Begin(begin) => {
                        assert_eq!(begin.depth as usize, open.len());
                        open.push(begin);
                    }
                    TimelineEvent::End(end) => {
                        let begin = open.pop().expect("an end has its begin");
                        assert_eq!((begin.depth, begin.location), (end.depth, end.location));
                        assert_eq!(begin.start_ns, end.start_ns);
                    }
                    _ => {}
                }
            }
            assert!(open.is_empty(), "a begin has its end");
        }
    }
    for warning in trace.warnings() {
        let _ = warning.to_string();
    }
}
