//! Invariants of the timelines of any input.

use everycall_reader::Source;
use everycall_timeline::{Code, EndKind, Location, MarkKind, TailCall, TimelineEvent, Trace};

/// Code that says anything, the same each time.
struct Anything;

impl Code for Anything {
    fn same_function(&self, entry: Location, exit: Location) -> Option<bool> {
        (!exit.image_address.is_multiple_of(3)).then_some(entry == exit)
    }

    fn jumps(&self, exit: Location) -> bool {
        exit.image_address.is_multiple_of(2)
    }

    fn jumps_to(&self, exit: Location, entry: Location) -> Option<bool> {
        (!exit.image_address.is_multiple_of(4)).then_some(entry.image_address.is_multiple_of(5))
    }

    fn is_inlined(&self, code: Location, entry: Location, is_callees: bool) -> Option<bool> {
        (!code.image_address.is_multiple_of(4)).then_some(entry.image_address.is_multiple_of(2) || is_callees)
    }

    fn reports_exits_in_cleanups(&self, code: Location) -> Option<bool> {
        (!code.image_address.is_multiple_of(5)).then_some(code.image_address.is_multiple_of(8))
    }
}

/// Reads everything and checks nesting and order.
pub fn check(source: impl Source) {
    let Ok(trace) = Trace::open(source) else { return };
    for thread in trace.threads() {
        for checked in [None, Some(&Anything as &dyn Code)] {
            let mut open = Vec::new();
            let mut now = 0;
            let mut jumped = false;
            for event in trace.thread_events_checked(thread.index, checked) {
                assert!(event.at_ns() >= now, "time goes on");
                now = event.at_ns();
                let after_jump = std::mem::take(&mut jumped);
                match event {
                    TimelineEvent::Begin(begin) => {
                        assert_eq!(begin.depth as usize, open.len());
                        assert!(begin.tail_call == TailCall::No || after_jump);
                        open.push(begin);
                    }
                    TimelineEvent::End(end) => {
                        let begin = open.pop().expect("an end has its begin");
                        assert_eq!((begin.depth, begin.location), (end.depth, end.location));
                        assert_eq!(begin.start_ns, end.start_ns);
                        jumped = end.how == EndKind::Jumped;
                    }
                    TimelineEvent::Untraced(untraced) => {
                        assert!(after_jump && untraced.at_ns <= untraced.until_ns);
                        jumped = true;
                    }
                    TimelineEvent::Mark(mark) if matches!(mark.kind, MarkKind::Log | MarkKind::Output(_)) => {
                        let text = trace.log_lines().text(mark.name, |place| {
                            Some(
                                place
                                    .image_address
                                    .to_string()
                                    .repeat(9)
                                    .replace('7', "%*d")
                                    .replace('3', "%s")
                                    .into(),
                            )
                        });
                        assert!(text.len() < 10_000);
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
