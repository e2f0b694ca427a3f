//! Compares the filter with a model that examines whole calls and spans.

use super::*;
use crate::filter::{Filter, LabelPattern};
use crate::source::Source;
use crate::testing::Calls;
use everycall_timeline::{Loss, SpanEndKind};
use regex::Regex;

/// A small random number generator, so that a failure can be repeated by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn random_calls(dice: &mut Dice) -> Calls {
    let mut calls = Calls::default();
    let (mut depth, mut now_ns) = (0, dice.roll(3));
    let mut spans = Vec::new();
    for span in 0..dice.roll(60) as u32 {
        now_ns += dice.roll(4) * dice.roll(6);
        let (name, value) = (dice.roll(2) as u32, (dice.roll(2) == 0).then(|| dice.roll(2)));
        match dice.roll(14) {
            0..5 => {
                calls.begin(dice.roll(5), now_ns);
                depth += 1;
            }
            5..8 if depth > 0 => {
                calls.end(now_ns);
                depth -= 1;
            }
            8 => calls.mark(now_ns, name, value, MarkKind::Label),
            9 => {
                let kinds = [MarkKind::Instant, MarkKind::Throw, MarkKind::Catch];
                calls.mark(now_ns, name, value, kinds[dice.roll(3) as usize]);
            }
            10 => {
                calls.mark(now_ns, name, value, MarkKind::SpanBegin { span, cut: false });
                spans.push((span, now_ns));
            }
            11 if !spans.is_empty() => {
                let (span, start_ns) = spans.swap_remove(dice.roll(spans.len() as u64) as usize);
                let how = SpanEndKind::Ended;
                calls.mark(now_ns, name, value, MarkKind::SpanEnd { span, start_ns, start_cut: false, how });
            }
            12 => {
                let at_ns = now_ns;
                now_ns += dice.roll(30);
                let why = [GapKind::Disabled, GapKind::Suspended];
                calls.gap(at_ns, now_ns, why[dice.roll(2) as usize]);
            }
            _ => calls.loss(now_ns, 1 + dice.roll(3)),
        }
    }
    for _ in 0..depth {
        now_ns += dice.roll(4);
        calls.end(now_ns);
    }
    for (span, start_ns) in spans {
        let how = SpanEndKind::TruncatedAtEnd;
        calls.mark(now_ns, 0, None, MarkKind::SpanEnd { span, start_ns, start_cut: false, how });
    }
    calls
}

fn random_filter(dice: &mut Dice) -> Filter {
    let mut maybe = |sides| (dice.roll(3) == 0).then(|| dice.roll(sides));
    Filter {
        pids: Vec::new(),
        tids: Vec::new(),
        since_ns: maybe(250),
        until_ns: maybe(250),
        since_wall: None,
        until_wall: None,
        last_ns: maybe(100),
        min_duration_ns: maybe(40).unwrap_or(0),
        function: maybe(5).map(|f| Regex::new(&format!("^f{f}$")).unwrap()),
        label: maybe(2).map(|name| LabelPattern { name: format!("m{name}"), value: maybe(2) }),
        values: None,
        depth: maybe(4).map(|depth| depth as u32),
        call: None,
    }
}

/// Function, begin and end of calls; all other shown events.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    calls: Vec<(u64, u64, u64)>,
    others: Vec<TimelineEvent>,
}

/// A complete call, with all that is known about it.
struct Whole {
    begin: usize,
    end: usize,
    matches: bool,
    labelled: bool,
}

/// The result of the conditions in [`crate::filter`], computed from whole calls and spans.
fn expected(calls: &Calls, filter: &Filter, trace_end_ns: u64) -> Shown {
    let since_ns =
        filter.since_ns.unwrap_or(0).max(filter.last_ns.map_or(0, |last| trace_end_ns.saturating_sub(last)));
    let until_ns = filter.until_ns.unwrap_or(u64::MAX);
    let within = |at_ns: u64| (since_ns..=until_ns).contains(&at_ns);
    let mut wholes: Vec<Whole> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (place, event) in calls.events.iter().enumerate() {
        match event {
            TimelineEvent::Begin(begin) => {
                let name = format!("f{}", begin.location.image_address);
                let matches = filter.function.as_ref().is_none_or(|f| f.is_match(&name));
                open.push(wholes.len());
                wholes.push(Whole { begin: place, end: 0, matches, labelled: filter.label.is_none() });
            }
            TimelineEvent::End(_) => wholes[open.pop().unwrap()].end = place,
            TimelineEvent::Mark(Mark { kind: MarkKind::Label, name, value, .. }) => {
                let wanted = filter.label.as_ref().is_some_and(|label| {
                    label.name == calls.mark_name(*name)
                        && label.value.is_none_or(|wanted| *value == Some(wanted))
                });
                if let Some(innermost) = open.last() {
                    wholes[*innermost].labelled |= wanted;
                }
            }
            _ => {}
        }
    }
    // The calls around a position, outermost first.
    let around = |place: usize| {
        let around: Vec<&Whole> =
            wholes.iter().filter(|call| call.begin < place && place < call.end).collect();
        around
    };
    // Calls from the outermost match of both kinds inwards.
    let inside = |calls: &[&Whole]| {
        let first = |is: &dyn Fn(&Whole) -> bool| calls.iter().position(|call| is(call));
        let (by_name, by_label) = (first(&|call| call.matches), first(&|call| call.labelled));
        by_name.zip(by_label).map(|(a, b)| calls.len() - a.max(b))
    };
    let is_shown = |call: &Whole| {
        let TimelineEvent::End(end) = calls.events[call.end] else { panic!("an end") };
        let mut chain = around(call.begin);
        chain.push(call);
        inside(&chain).is_some_and(|levels| filter.depth.is_none_or(|depth| levels <= depth as usize))
            && end.start_ns <= until_ns
            && end.end_ns >= since_ns
            && end.end_ns - end.start_ns >= filter.min_duration_ns
    };
    let selects = filter.function.is_some() || filter.label.is_some();
    let is_selected = |place: usize| !selects || inside(&around(place)).is_some();
    let mut shown = Shown::default();
    for (place, event) in calls.events.iter().enumerate() {
        let is_shown = match event {
            TimelineEvent::Begin(_) | TimelineEvent::Unstamped(_) | TimelineEvent::Returned(_) => false,
            TimelineEvent::End(end) => {
                let whole = wholes.iter().find(|call| call.end == place).unwrap();
                if is_shown(whole) {
                    shown.calls.push((end.location.image_address, end.start_ns, end.end_ns));
                }
                false
            }
            TimelineEvent::Loss(loss) => within(loss.at_ns),
            TimelineEvent::Gap(gap) => {
                let is_suspension = gap.why == GapKind::Suspended;
                gap.at_ns <= until_ns
                    && gap.until_ns >= since_ns
                    && (!is_suspension
                        || is_selected(place) && gap.until_ns - gap.at_ns >= filter.min_duration_ns)
            }
            TimelineEvent::Mark(mark) => match (mark.kind, around(place).last()) {
                (MarkKind::Label, Some(call)) => is_shown(call),
                (MarkKind::Throw | MarkKind::Catch, Some(call)) => within(mark.at_ns) && is_shown(call),
                (MarkKind::SpanBegin { span: wanted, .. } | MarkKind::SpanEnd { span: wanted, .. }, _) => {
                    let of = |begin: bool| {
                        let is = |event: &TimelineEvent| match event {
                            TimelineEvent::Mark(Mark { kind: MarkKind::SpanBegin { span, .. }, .. }) => {
                                begin && *span == wanted
                            }
                            TimelineEvent::Mark(Mark { kind: MarkKind::SpanEnd { span, .. }, .. }) => {
                                !begin && *span == wanted
                            }
                            _ => false,
                        };
                        calls.events.iter().position(is).unwrap()
                    };
                    let (begin, end) = (of(true), of(false));
                    is_selected(begin)
                        && calls.events[begin].at_ns() <= until_ns
                        && calls.events[end].at_ns() >= since_ns
                }
                _ => within(mark.at_ns) && is_selected(place),
            },
            TimelineEvent::Instant(_) | TimelineEvent::Untraced(_) => panic!("there is none"),
        };
        if is_shown {
            shown.others.push(*event);
        }
    }
    shown
}

#[test]
fn filters_agree_with_looking_at_whole_calls() {
    for seed in 0..30_000 {
        let mut dice = Dice(seed);
        let calls = random_calls(&mut dice);
        let filter = random_filter(&mut dice);
        let trace_end_ns = calls.events.last().map_or(0, TimelineEvent::at_ns);
        let (mut shown, mut open, mut now_ns) = (Shown::default(), Vec::new(), 0);
        for event in calls.filtered_by(&filter, trace_end_ns) {
            let at_ns = match event {
                Event::Begin { function, start_ns, .. } => {
                    open.push((function, start_ns));
                    start_ns
                }
                Event::End { function, start_ns, end_ns, .. } => {
                    assert_eq!(open.pop(), Some((function, start_ns)), "seed {seed}: nesting");
                    shown.calls.push((calls.number_of(function), start_ns, end_ns));
                    end_ns
                }
                Event::Point(Point { at_ns, count, kind: PointKind::Lost(why) }) => {
                    shown.others.push(TimelineEvent::Loss(Loss { at_ns, count, why }));
                    at_ns
                }
                Event::Point(point) => panic!("seed {seed}: {point:?}"),
                Event::Mark(mark) => {
                    shown.others.push(TimelineEvent::Mark(mark));
                    mark.at_ns
                }
                Event::Gap(gap) => {
                    shown.others.push(TimelineEvent::Gap(gap));
                    gap.at_ns
                }
                Event::ShortSuspension(gap) => {
                    assert!(gap.until_ns - gap.at_ns < filter.min_duration_ns);
                    gap.at_ns
                }
                Event::Untraced(_) | Event::OffCpu(_) => panic!("seed {seed}: {event:?}"),
            };
            assert!(at_ns >= now_ns, "seed {seed}: order");
            now_ns = at_ns;
        }
        assert!(open.is_empty(), "seed {seed}: balance");
        let mut expected = expected(&calls, &filter, trace_end_ns);
        // Events at the same time may be in any order if some of them were pending.
        for shown in [&mut shown, &mut expected] {
            shown.others.sort_by_key(|event| (event.at_ns(), format!("{event:?}")));
        }
        assert_eq!(shown, expected, "seed {seed}: {filter:?} {calls:#?}");
    }
}

#[test]
fn labels_of_pending_calls_are_bounded_and_none_is_forgotten() {
    let mut calls = Calls::default();
    calls.begin(0, 10);
    (0..50_000).for_each(|at_ns| calls.mark(10 + at_ns, 0, Some(at_ns), MarkKind::Label));
    calls.end(200_000);
    for (min_duration_ns, shown) in [(150_000, true), (300_000, false)] {
        let filter = Filter { min_duration_ns, ..Filter::default() };
        let events = calls.filtered_by(&filter, 200_000);
        let marks = events.iter().filter(|event| matches!(event, Event::Mark(_))).count();
        let left_out = events.iter().map(|event| match event {
            Event::Point(Point { count: Some(count), kind: PointKind::LeftOut, .. }) => *count,
            _ => 0,
        });
        assert_eq!(marks, if shown { PENDING_MARKS_MAX } else { 0 });
        // The call that they belonged to is not known any more.
        assert_eq!(left_out.sum::<u64>(), 50_000 - PENDING_MARKS_MAX as u64);
    }
}

#[test]
fn many_losses_behind_a_pending_call_are_added_up_and_none_is_forgotten() {
    let mut calls = Calls::default();
    calls.begin(0, 10);
    (0..100_000).for_each(|at_ns| calls.loss(10 + at_ns, 2));
    calls.end(200_000);
    let filter = Filter { min_duration_ns: 150_000, ..Filter::default() };
    let events = calls.filtered_by(&filter, 200_000);
    assert!(events.len() <= PENDING_POINTS_MAX + 2);
    assert!(matches!(events[0], Event::Begin { start_ns: 10, .. }));
    let sum: u64 = events
        .iter()
        .filter_map(|event| if let Event::Point(point) = event { point.count } else { None })
        .sum();
    assert_eq!(sum, 200_000);
}

/// Untraced code is shown with the call that jumped to it, and by its own duration.
#[test]
fn what_is_not_traced_is_filtered_like_the_call_before_it() {
    let mut calls = Calls::default();
    calls.begin(0, 0);
    calls.begin(1, 10);
    calls.end_how(20, EndKind::Jumped);
    calls.untraced(20, 50);
    calls.end(60);
    let filter = Filter::default;
    let function = |name: &str| Some(Regex::new(name).unwrap());
    for (filter, is_shown) in [
        (filter(), true),
        (Filter { min_duration_ns: 25, ..filter() }, true),
        (Filter { min_duration_ns: 31, ..filter() }, false),
        (Filter { function: function("^f1$"), ..filter() }, true),
        (Filter { function: function("^f2$"), ..filter() }, false),
        (Filter { depth: Some(2), ..filter() }, true),
        (Filter { depth: Some(1), ..filter() }, false),
        (Filter { since_ns: Some(45), ..filter() }, true),
        (Filter { since_ns: Some(55), ..filter() }, false),
        (Filter { until_ns: Some(15), ..filter() }, false),
    ] {
        let events = calls.filtered_by(&filter, 60);
        let found = events.iter().find_map(|event| match event {
            Event::Untraced(slice) => Some((slice.at_ns, slice.until_ns)),
            _ => None,
        });
        assert_eq!(found, is_shown.then_some((20, 50)), "{filter:?}");
    }
}
