//! Made-up threads and the sums of their calls.

use everycall_calls::{Gap, GapKind, Thread, Untraced, Window};

use super::tails::WAITING_MAX;
use super::*;
use crate::explain::Explanation;
use crate::focus::Focus;
use crate::functions::{Function, FunctionIdentity, FunctionNumber};
use crate::group::{Grouping, Key};
use crate::hooks::Prices;
use crate::slowest::Slowest;
use crate::sums::Sums;
use crate::table::{Cells, Table};

/// Functions at multiples of ten in the address space.
struct ByTens<'t>(&'t dyn Fn(u64) -> Option<Thunk>);

impl PlaceOf for ByTens<'_> {
    fn get(&mut self, location: Location, functions: &mut Functions) -> Place {
        let name = (location.image_address / 10).to_string();
        let identity = FunctionIdentity { name, ..FunctionIdentity::default() };
        let function = functions.number(Function::of(identity));
        Place { function, thunk: (self.0)(location.image_address), split: Split::No, matches: true }
    }
}

const NOTHING: Window =
    Window { since_ns: 0, until_ns: u64::MAX, min_duration_ns: 0, depth: usize::MAX, selects: false };

/// The sums of the function with this name.
fn sums(events: &[TimelineEvent], window: &Window, thunk: &dyn Fn(u64) -> Option<Thunk>, name: &str) -> Sums {
    sums_of(Cells::default(), events, window, thunk, name)
}

/// The sums of the function with this name, including tail calls.
fn sums_with_tails(events: &[TimelineEvent], name: &str) -> Sums {
    let mut cells = Cells::default();
    cells.follows_tails = true;
    sums_of(cells, events, &NOTHING, &|_| None, name)
}

fn sums_of(
    mut cells: Cells,
    events: &[TimelineEvent],
    window: &Window,
    thunk: &dyn Fn(u64) -> Option<Thunk>,
    name: &str,
) -> Sums {
    let mut functions = Functions::default();
    let mut table = Table::new(&mut cells, &Grouping::Function, 0, Vec::new());
    let mut places = ByTens(thunk);
    let mut walker = Walker::new(Calls::new(*window, None), &mut functions, &mut places, &mut table);
    walker.walk(events, &mut Notes::default());
    walker.untie();
    assert!(walker.calls.open().is_empty());
    drop(table);
    let is_it = |key: &Key| match key {
        Key::Function(number) => functions.get(*number).is_some_and(|it| it.identity.name == name),
        _ => false,
    };
    cells.all.iter().find(|cell| is_it(&cell.key)).map(|cell| cell.sums.clone()).unwrap_or_default()
}

fn at(image_address: u64) -> Location {
    Location { module: 0, image_address }
}

fn begin_by(address: u64, start_ns: u64, tail_call: TailCall) -> TimelineEvent {
    let location = at(address);
    let begin = Begin { location, start_ns, tail_call, ..Begin::default() };
    TimelineEvent::Begin(begin)
}

fn begin(address: u64, start_ns: u64) -> TimelineEvent {
    begin_by(address, start_ns, TailCall::No)
}

fn end_by(address: u64, start_ns: u64, end_ns: u64, how: EndKind) -> TimelineEvent {
    TimelineEvent::End(End { depth: 0, location: at(address), start_ns, end_ns, how, start_cut: false })
}

fn end(address: u64, start_ns: u64, end_ns: u64) -> TimelineEvent {
    end_by(address, start_ns, end_ns, EndKind::Returned)
}

#[test]
fn own_time_leaves_out_what_was_called() {
    let events =
        [begin(10, 0), begin(20, 10), end(20, 10, 40), begin(20, 50), end(20, 50, 60), end(10, 0, 100)];
    let of = |name| sums(&events, &NOTHING, &|_| None, name);
    assert_eq!((of("1").calls, of("1").total_ns, of("1").own_ns), (1, 100, 60));
    assert_eq!((of("2").calls, of("2").total_ns, of("2").own_ns), (2, 40, 40));
    assert_eq!((of("2").times.min(), of("2").times.max()), (Some(10), Some(30)));

    // Functions at 10 and 13 are clones.
    for inner in [10, 13] {
        let recursive = [begin(10, 0), begin(inner, 10), end(inner, 10, 40), end(10, 0, 100)];
        let sum = sums(&recursive, &NOTHING, &|_| None, "1");
        assert_eq!((sum.calls, sum.total_ns, sum.own_ns), (2, 100, 100));
        assert_eq!(sum.times.sum(), 130);
    }
}

#[test]
fn what_is_filtered_out_is_still_no_own_time_of_its_caller() {
    let events = [begin(10, 0), begin(20, 10), end(20, 10, 40), end(10, 0, 100)];
    for filter in [
        Window { depth: 1, ..NOTHING },
        Window { min_duration_ns: 50, ..NOTHING },
        Window { since_ns: 50, ..NOTHING },
        Window { until_ns: 5, ..NOTHING },
    ] {
        assert_eq!(sums(&events, &filter, &|_| None, "2").calls, 0);
        let of = sums(&events, &filter, &|_| None, "1");
        assert_eq!((of.calls, of.total_ns, of.own_ns), (1, 100, 70), "{filter:?}");
    }
}

#[test]
fn truncated_calls_count_but_have_no_duration() {
    for how in [
        EndKind::TruncatedAtEnd,
        EndKind::TruncatedAtLoss,
        EndKind::TruncatedAtGap,
        EndKind::ExitLost,
        EndKind::ReturnedAfterGap,
    ] {
        let sum = sums(&[begin(10, 0), end_by(10, 0, 100, how)], &NOTHING, &|_| None, "1");
        assert_eq!((sum.calls, sum.truncated, sum.total_ns, sum.times.count()), (1, 1, 100, 0));
    }
    let late = sums(&[begin(10, 0), end_by(10, 0, 9, EndKind::UnwoundLate)], &NOTHING, &|_| None, "1");
    assert_eq!((late.calls, late.unwound, late.ended_earlier, late.times.count()), (1, 1, 1, 0));
    let unwound = sums(&[begin(10, 0), end_by(10, 0, 9, EndKind::Unwound)], &NOTHING, &|_| None, "1");
    assert_eq!((unwound.calls, unwound.unwound, unwound.truncated, unwound.times.count()), (1, 1, 0, 1));
}

#[test]
fn a_thunk_and_its_function_are_one_call() {
    let first = |address: u64| (address == 11).then_some(Thunk::This);
    let jumped =
        |tail| [begin(11, 0), end_by(11, 0, 2, EndKind::Jumped), begin_by(10, 2, tail), end(10, 2, 10)];
    let one = sums(&jumped(TailCall::Yes), &NOTHING, &first, "1");
    assert_eq!((one.calls, one.total_ns, one.own_ns, one.tail_calls), (1, 10, 10, 0));
    assert_eq!((one.times.count(), one.times.max()), (1, Some(10)));
    let two = sums(&jumped(TailCall::Perhaps), &NOTHING, &first, "1");
    assert_eq!((two.calls, two.total_ns, two.own_ns, two.times.min()), (2, 10, 10, Some(2)));
    // No event follows the thunk.
    let alone = [begin(20, 0), begin(11, 1), end_by(11, 1, 3, EndKind::Jumped), end(20, 0, 5)];
    let alone = sums(&alone, &NOTHING, &first, "1");
    assert_eq!((alone.calls, alone.total_ns, alone.own_ns, alone.times.max()), (1, 2, 2, Some(2)));
    // A thunk that adjusts the result.
    let around = |address: u64| (address == 11).then_some(Thunk::Result);
    let events = [begin(11, 0), begin(10, 2), end(10, 2, 8), end(11, 0, 10)];
    let inside = sums(&events, &NOTHING, &around, "1");
    assert_eq!((inside.calls, inside.total_ns, inside.own_ns), (1, 10, 10));
    assert_eq!((inside.times.count(), inside.times.max()), (1, Some(10)));
}

#[test]
fn suspended_time_is_not_own_time() {
    let gap = Gap { at_ns: 20, until_ns: 50, why: GapKind::Suspended, resumed_by: None };
    let events = [begin(10, 0), TimelineEvent::Gap(gap), end(10, 0, 100)];
    let sum = sums(&events, &NOTHING, &|_| None, "1");
    assert_eq!((sum.total_ns, sum.own_ns), (100, 70));
}

#[test]
fn time_behind_a_jump_into_what_is_not_traced_is_kept_apart() {
    let untraced = Untraced { at_ns: 10, until_ns: 60, exit: at(10) };
    let events = [
        begin(20, 0),
        begin(10, 0),
        end_by(10, 0, 10, EndKind::Jumped),
        TimelineEvent::Untraced(untraced),
        end(20, 0, 60),
    ];
    let sum = sums(&events, &NOTHING, &|_| None, "1");
    assert_eq!((sum.total_ns, sum.untraced_at_most_ns, sum.tail_calls), (10, 50, 1));
    let long = Window { min_duration_ns: 55, ..NOTHING };
    assert_eq!(sums(&events, &long, &|_| None, "1").untraced_at_most_ns, 0);
}

#[test]
fn with_tail_calls_a_call_goes_on_until_what_it_jumped_to_ends() {
    let jump = |address, start_ns, end_ns| end_by(address, start_ns, end_ns, EndKind::Jumped);
    // 1 jumps to 2, which calls 1 and jumps to 3; then 1 jumps to untraced code.
    let events = [
        begin(90, 0),
        begin(10, 10),
        jump(10, 10, 20),
        begin_by(20, 20, TailCall::Yes),
        begin(10, 25),
        end(10, 25, 30),
        jump(20, 20, 40),
        begin_by(30, 40, TailCall::Yes),
        end(30, 40, 70),
        begin(10, 100),
        jump(10, 100, 103),
        TimelineEvent::Untraced(Untraced { at_ns: 103, until_ns: 150, exit: at(10) }),
        end(90, 0, 200),
    ];
    let one = sums_with_tails(&events, "1");
    // The call in the first call's tail is within it.
    assert_eq!((one.calls, one.total_ns, one.own_ns, one.tail_calls), (3, 60 + 50, 10 + 5 + 3, 2));
    assert_eq!((one.times.count(), one.times.sum(), one.at_most), (3, 60 + 5 + 50, 1));
    let two = sums_with_tails(&events, "2");
    assert_eq!((two.calls, two.total_ns, two.own_ns, two.times.max()), (1, 50, 15, Some(50)));
    assert_eq!(sums_with_tails(&events, "3").total_ns, 30);
    assert_eq!(sums_with_tails(&events, "9").own_ns, 200 - 10 - 20 - 30 - 3);
    // Without tail calls: as `replay` shows them.
    let slices = sums(&events, &NOTHING, &|_| None, "1");
    assert_eq!((slices.total_ns, slices.times.sum(), slices.untraced_at_most_ns), (18, 18, 47));

    // The target of the jump, and its end, are unknown.
    let lost = [begin(10, 0), jump(10, 0, 5), begin(20, 9), end(20, 9, 12)];
    assert_eq!(sums_with_tails(&lost, "1").total_ns, 5);
    let cut = [
        begin(10, 0),
        jump(10, 0, 5),
        begin_by(20, 5, TailCall::Yes),
        end_by(20, 5, 9, EndKind::TruncatedAtEnd),
    ];
    let cut = sums_with_tails(&cut, "1");
    assert_eq!((cut.calls, cut.truncated, cut.total_ns, cut.times.count()), (1, 1, 9, 0));
    let perhaps = [begin(10, 0), jump(10, 0, 5), begin_by(20, 5, TailCall::Perhaps), end(20, 5, 9)];
    assert_eq!(sums_with_tails(&perhaps, "1").at_most, 1);
}

/// With tail calls, what slow calls did is theirs also after their jumps.
#[test]
fn slow_calls_are_listed_and_explained_with_their_tail_calls() {
    let jump = |address, start_ns, end_ns| end_by(address, start_ns, end_ns, EndKind::Jumped);
    // Function 1 jumps to 2, which calls 1 and jumps to 3; returns; jumps to untraced code.
    let events = [
        begin(90, 0),
        begin(10, 10),
        begin(40, 12),
        end(40, 12, 15),
        jump(10, 10, 20),
        begin_by(20, 20, TailCall::Yes),
        begin(10, 25),
        end(10, 25, 30),
        jump(20, 20, 40),
        begin_by(30, 40, TailCall::Yes),
        end(30, 40, 400),
        begin(10, 500),
        end(10, 500, 510),
        begin(10, 600),
        jump(10, 600, 603),
        TimelineEvent::Untraced(Untraced { at_ns: 603, until_ns: 650, exit: at(10) }),
        end(90, 0, 700),
    ];
    let is_meant = |function: &Function| function.identity.name == "1";
    let window = NOTHING;
    let mut functions = Functions::default();

    let mut slowest = Slowest::new(Focus::new(&is_meant), 10).with_tails(true);
    let name = String::new();
    slowest.thread(&Thread { process: 0, pid: 1, tid: 1, name, dropped: 0, is_sampled: false });
    let mut places = ByTens(&|_| None);
    let mut walker = Walker::new(Calls::new(window, None), &mut functions, &mut places, &mut slowest);
    walker.walk(&events, &mut Notes::default());
    walker.untie();
    let calls = slowest.calls();
    let facts = calls.iter().map(|call| (call.duration_ns(), call.has_tail, call.is_at_most));
    let expected = [(390, true, false), (50, true, true), (10, false, false), (5, false, false)];
    assert_eq!(facts.collect::<Vec<_>>(), expected);

    let mut explanation = Explanation::new(Focus::new(&is_meant)).with_tails(true);
    for pass in 0..2 {
        if pass == 1 {
            assert_eq!((explanation.times.count(), explanation.times.max()), (3, Some(390)));
            explanation.begin_second();
        }
        let mut places = ByTens(&|_| None);
        let mut walker = Walker::new(Calls::new(window, None), &mut functions, &mut places, &mut explanation);
        walker.walk(&events, &mut Notes::default());
        walker.untie();
    }
    let of = |name: &str| {
        let is_it = |function: &Function| function.identity.name == name;
        let number = functions.all().iter().position(is_it).unwrap() as FunctionNumber;
        explanation.slow.called.get(&number).copied()
    };
    let slow = &explanation.slow;
    assert_eq!((slow.calls, slow.duration_ns, slow.own_ns, slow.tails_ns), (1, 390, 7, 0));
    assert_eq!((of("4"), of("2"), of("3")), (Some((3, 1)), Some((20, 1)), Some((360, 1))));
    let median = &explanation.median;
    assert_eq!((median.calls, median.duration_ns), (1, 50));
    assert_eq!((median.own_ns, median.tails_ns, median.at_most), (3, 47, 1));
}

#[test]
fn what_hooks_cost_is_where_the_hooks_ran() {
    let hooks = |events: &[TimelineEvent], name| {
        let mut cells = Cells::default();
        cells.prices = Some(Prices::of_all(10_000, 4_000));
        let HookTime { own_ps, total_ps } = sums_of(cells, events, &NOTHING, &|_| None, name).hooks;
        (own_ps, total_ps)
    };
    // 1 calls 2 twice, once with 3 in it.
    let tree = [
        begin(10, 0),
        begin(20, 10),
        begin(30, 20),
        end(30, 20, 30),
        end(20, 10, 40),
        begin(20, 50),
        end(20, 50, 60),
        end(10, 0, 100),
    ];
    assert_eq!(hooks(&tree, "1"), (10_000 + 2 * 4_000, 10_000 + 3 * 14_000));
    assert_eq!(hooks(&tree, "2"), (2 * 10_000 + 4_000, 2 * 10_000 + 14_000));
    assert_eq!(hooks(&tree, "3"), (10_000, 10_000));
    // Recursion counts once.
    let recursive = [begin(10, 0), begin(10, 10), end(10, 10, 40), end(10, 0, 100)];
    assert_eq!(hooks(&recursive, "1"), (2 * 10_000 + 4_000, 10_000 + 14_000));
    // A call without an exit has run one hook, and so has its caller.
    let cut = [begin(10, 0), begin(20, 10), end_by(20, 10, 40, EndKind::Unwound), end(10, 0, 100)];
    assert_eq!(hooks(&cut, "2"), (5_000, 5_000));
    assert_eq!(hooks(&cut, "1"), (10_000 + 2_000, 10_000 + 7_000));
}

#[test]
fn chains_of_jumps_take_no_more_memory_than_they_may() {
    let count = 3 * WAITING_MAX as u64;
    let mut events = Vec::new();
    for at in 0..count {
        events.push(begin_by(10, at, if at == 0 { TailCall::No } else { TailCall::Yes }));
        let how = if at + 1 == count { EndKind::Returned } else { EndKind::Jumped };
        events.push(end_by(10, at, at + 1, how));
    }
    let sum = sums_with_tails(&events, "1");
    assert_eq!((sum.calls, sum.own_ns), (count, count));
    assert_eq!(sum.truncated + sum.times.count(), count);
    assert_eq!(sum.times.count(), WAITING_MAX as u64 + 1);
}
