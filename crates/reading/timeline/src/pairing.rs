//! Pairing: entries push, exits pop, and what does not fit is counted instead of guessed.

mod inlined;
mod thrown;

use std::num::NonZeroU32;

use everycall_format::event::{gap, unwound, values};
use everycall_format::label;

use crate::clock::ClockWalk;
use crate::code::{Answers, Caller, Code};
use crate::location::ModuleMap;
use crate::placing::{self, Run, STEP_NS};
use crate::slots::{Step, StepKind};
use crate::spans::{self, Spans};
use everycall_calls::Location;
use everycall_calls::PairingStats;
use everycall_calls::ValuesNumber;
use everycall_calls::{
    Begin, End, EndKind, Gap, GapKind, Instant, InstantKind, Loss, LossKind, Mark, MarkKind, Returned,
    SpanEndKind, TailCall, TimelineEvent, Unstamped, Untraced,
};

/// Calls that may be open at once; deeper ones are counted only.
const DEPTH_MAX: usize = 1 << 19;
/// How far below the innermost call the function of a strange exit is looked for.
const SEARCH_DEPTH: usize = 256;
/// A jump to an address that it computes, and the entry to which it led, are never further apart.
const JUMP_NS: u64 = 1000;
/// Calls that are opened or closed together, so that not all of them need to be in memory twice.
const CALLS_AT_ONCE: usize = 4096;

/// An open call of the snapshot's list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedCall {
    pub ticks: u64,
    /// `None` for code outside all modules.
    pub location: Option<Location>,
}

/// A call that began before the available events and ended within them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutCall {
    /// Its exit is there.
    Exit(Location),
    /// So many were left without an exit, one in the other.
    Unnamed(u32),
}

/// Calls and spans that began before the available events and ended within them, innermost first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts {
    pub calls: Vec<CutCall>,
    pub spans: Vec<spans::Key>,
}

impl Cuts {
    /// How many calls they are.
    pub fn open_calls(&self) -> u32 {
        let count = |call: &CutCall| match call {
            CutCall::Exit(_) => 1,
            CutCall::Unnamed(count) => *count,
        };
        self.calls.iter().map(count).fold(0, u32::saturating_add)
    }
}

/// A call that is open.
#[derive(Clone, Copy, Debug)]
struct Frame {
    location: Location,
    start_ticks: u64,
    start_ns: u64,
    start_cut: bool,
    /// A placeholder for so many calls of which nothing is known.
    unnamed: u32,
    /// Not 0 while an exception unwinds it: an exit that comes now is part of its cleanup. 1 for
    /// the first exception, 2 for one that is thrown meanwhile, and so on.
    left: u8,
    /// The runtime doesn't count it any more, because it didn't know whether an exception had
    /// unwound it.
    uncounted: bool,
    /// It began, or was entered again to clean up or to catch, when its thread was ending already.
    runs_at_end: bool,
}

impl Frame {
    fn new(location: Location, start_ticks: u64, start_ns: u64) -> Frame {
        let (start_cut, unnamed, left, uncounted, runs_at_end) = (false, 0, 0, false, false);
        Frame { location, start_ticks, start_ns, start_cut, unnamed, left, uncounted, runs_at_end }
    }

    fn is(&self, listed: &ListedCall) -> bool {
        self.unnamed == 0
            && self.start_ticks == listed.ticks
            && listed.location.is_none_or(|location| location == self.location)
    }
}

/// An exception on its way.
#[derive(Clone, Copy, Debug)]
struct Thrown {
    exception: ValuesNumber,
    /// Frames of the stack that it hasn't left.
    frames: usize,
}

/// Calls that have ended and are still to be closed.
#[derive(Clone, Copy, Debug)]
struct Closing {
    /// Frames that stay.
    until: usize,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Is(EndKind),
    /// When recording was on again, they had ended; the gap lasts until these ticks. Which thread
    /// continues the stack.
    InGap(u64, GapKind, Option<NonZeroU32>),
    /// There are no more events; see [`AtEnd`].
    AtEnd,
}

/// The calls that are open behind the last event.
#[derive(Clone, Debug, Default)]
struct AtEnd {
    /// Those that were listed as open, by time.
    listed: Vec<ListedCall>,
    /// Until when they were.
    until_ns: u64,
    /// Calls that began before this and aren't listed had ended.
    ended_before: u64,
    /// Time of the first event.
    first_ticks: u64,
}

/// The state of pairing between two steps, without the tables that it can rebuild.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairingState {
    /// Where the call that ended last jumped away, until the next event.
    jumped: Option<Location>,
    /// When.
    jumped_ns: u64,
    stack: Vec<Frame>,
    /// Frames of the stack that are calls.
    depth: u32,
    /// Open calls that are too deep for the stack.
    too_deep: u64,
    /// How many of the stack's frames, the outermost ones, were there when recording was last off.
    before_gap: usize,
    spans: Spans,
    /// The thread ends: calls that are open after its last event were unwound.
    is_ending: bool,
    /// The stack is run again, and the next call may be that of another one in its memory.
    maybe_another: bool,
    /// Where the next call was made, or a handler began, if that is recorded.
    caller: Option<Caller>,
    /// Values of the call that the next step enters or leaves: which, at which ticks.
    values: Option<(u8, ValuesNumber, u64)>,
    /// Exceptions on their way, the one that was thrown last at the end.
    thrown: Vec<Thrown>,
    /// Time of the last event.
    now_ns: u64,
    /// When the events begin.
    rim_ticks: u64,
    stats: PairingStats,
}

impl PairingState {
    /// Bytes that it occupies, without spans.
    pub fn bytes(&self) -> usize {
        size_of::<PairingState>()
            + self.stack.len() * size_of::<Frame>()
            + self.thrown.len() * size_of::<Thrown>()
    }
}

/// The open calls of one thread.
pub(crate) struct Pairing<'a> {
    clock: ClockWalk<'a>,
    modules: &'a ModuleMap,
    cursor: usize,
    code: Answers<'a>,
    state: PairingState,
    /// [`JUMP_NS`] in the clock's unit.
    jump_max: u64,
    /// [`STEP_NS`] in the clock's unit.
    step_max: u64,
    /// Whether events may have no stamp.
    is_unstamped: bool,
    closing: Option<Closing>,
    /// A traced call catches the exception that is thrown next.
    is_caught: bool,
    /// Calls and spans truncated at the beginning and still to be opened, innermost first.
    opening: Cuts,
    at_end: AtEnd,
    /// Collects those truncated at the beginning; `None` if they are known.
    collected: Option<Cuts>,
}

impl<'a> Pairing<'a> {
    pub fn new(clock: ClockWalk<'a>, modules: &'a ModuleMap, code: Option<&'a dyn Code>) -> Pairing<'a> {
        Pairing {
            jump_max: clock.distance(JUMP_NS),
            step_max: clock.distance(STEP_NS),
            is_unstamped: false,
            clock,
            modules,
            cursor: 0,
            code: Answers::new(code),
            state: PairingState::default(),
            closing: None,
            is_caught: false,
            opening: Cuts::default(),
            at_end: AtEnd::default(),
            collected: None,
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> PairingStats {
        self.state.stats
    }

    /// Events may have no stamp.
    pub fn may_be_unstamped(&mut self) {
        self.is_unstamped = true;
    }

    /// The state between two steps; `None` if calls are still to be opened or closed.
    pub fn state(&self) -> Option<PairingState> {
        (!self.is_busy() && self.collected.is_none()).then(|| self.state.clone())
    }

    /// Continues with such a state.
    pub fn resume(&mut self, state: &PairingState) {
        self.state = state.clone();
    }

    /// The calls that are open, outermost first, with the ticks of their entries.
    pub fn open_now(&self) -> Vec<(u64, Location)> {
        let known = self.state.stack.iter().filter(|frame| frame.unnamed == 0);
        known.map(|frame| (frame.start_ticks, frame.location)).collect()
    }

    /// Forgets all calls and spans. From now on, exits without an entry and ends of spans without a
    /// begin are collected as those of calls and spans that began before, if there can be such.
    pub fn collect(&mut self, can_be: bool) {
        self.state.stack.clear();
        self.state.before_gap = 0;
        self.state.spans = Spans::default();
        self.state.depth = 0;
        self.state.too_deep = 0;
        self.state.jumped = None;
        self.state.maybe_another = false;
        self.state.caller = None;
        self.state.thrown.clear();
        self.collected = can_be.then(Cuts::default);
    }

    /// Takes the collected exits and ends.
    pub fn collected(&mut self) -> Cuts {
        self.collected.take().unwrap_or_default()
    }

    /// One step, in the order of time.
    #[inline]
    pub fn step(&mut self, step: &Step, out: &mut Vec<TimelineEvent>) {
        // A gap's calls end where it begins.
        let ticks = match step.kind {
            StepKind::Gap(from, ..) | StepKind::Resumed(from, ..) => from.min(step.ticks),
            _ => step.ticks,
        };
        self.state.now_ns = self.clock.ns(ticks).max(self.state.now_ns);
        self.act(step, ticks, out);
    }

    /// One step of a run: it has no stamp, and is number `number` among the steps.
    pub fn unstamped_step(&mut self, step: &Step, run: &Run, number: usize, out: &mut Vec<TimelineEvent>) {
        let ticks = placing::begin(step);
        let until_ns = self.clock.ns(run.until);
        let from_ns = self.clock.ns(ticks);
        let (part, parts) = run.part(number);
        let length = until_ns.saturating_sub(from_ns);
        let step_max = match run.step_max {
            u64::MAX => self.step_max,
            step => self.clock.ns(ticks.saturating_add(step)).saturating_sub(from_ns).min(self.step_max),
        };
        let at_ns = from_ns + part * (length / parts.max(1)).min(step_max);
        self.state.now_ns = at_ns.max(self.state.now_ns);
        let place = out.len();
        let is_behind_jump = self.state.jumped.is_some();
        let is_call = matches!(
            step.kind,
            StepKind::Entry(_) | StepKind::Exit(_) | StepKind::UnknownEntry(_) | StepKind::UnknownExit(_)
        );
        let at_ns = self.state.now_ns;
        let (from_ns, until_ns) = (from_ns.min(at_ns), until_ns.max(at_ns));
        let unstamped = TimelineEvent::Unstamped(Unstamped { at_ns, from_ns, until_ns });
        if is_call && !is_behind_jump {
            out.push(unstamped);
        }
        self.act(step, ticks, out);
        if is_call && is_behind_jump {
            // The time after the jump comes first: it began earlier.
            let is_first = matches!(out.get(place), Some(TimelineEvent::Untraced(_)));
            out.insert(place + usize::from(is_first), unstamped);
        }
    }

    #[inline]
    fn act(&mut self, step: &Step, ticks: u64, out: &mut Vec<TimelineEvent>) {
        let ns = self.state.now_ns;
        let values = self.state.values.take().filter(|(.., at)| *at == step.ticks);
        match step.kind {
            StepKind::Entry(offset) => {
                let location = self.modules.locate(&mut self.cursor, offset, ticks);
                let tail_call = match self.state.jumped.take() {
                    None => TailCall::No,
                    Some(exit) => self.tail_call(exit, location, out),
                };
                let before = out.len();
                self.open(Frame::new(location, ticks, ns), tail_call, out);
                if let Some((values::ARGUMENTS, number, _)) = values
                    && let Some(TimelineEvent::Begin(begin)) = out[before..].last_mut()
                {
                    begin.arguments = Some(number);
                }
            }
            StepKind::Exit(offset) => {
                let location = self.modules.locate(&mut self.cursor, offset, ticks);
                let before = out.len();
                self.exit(location, out);
                if let Some((values::RESULT, number, _)) = values {
                    self.returned(number, before, out);
                }
            }
            // The jump before it, if there was one, led to the call that it belongs to.
            StepKind::Values(what, number) => {
                self.state.values = number.map(|number| (what, number, step.ticks))
            }
            other => self.rare(ticks, step.ticks, other, out),
        }
    }

    /// Says what the call returned that an exit has ended, unless it ended none: its events are
    /// those from `before` on.
    #[cold]
    fn returned(&self, result: ValuesNumber, before: usize, out: &mut Vec<TimelineEvent>) {
        if let Some(TimelineEvent::End(end)) = out.last()
            && end.how == EndKind::Returned
            && out.len() > before
        {
            let at_ns = end.end_ns;
            out.insert(out.len() - 1, TimelineEvent::Returned(Returned { at_ns, result }));
        }
    }

    /// Whether the call that is entered at `location` was made by the jump at `exit`. If not, that
    /// led to what isn't traced.
    #[cold]
    fn tail_call(&mut self, exit: Location, location: Location, out: &mut Vec<TimelineEvent>) -> TailCall {
        let tail_call = self.code.tail_call(exit, location);
        let is_far = self.state.now_ns.saturating_sub(self.state.jumped_ns) >= self.jump_max;
        if tail_call == TailCall::No || tail_call == TailCall::Perhaps && is_far {
            self.untraced(exit, self.state.now_ns, out);
        }
        tail_call
    }

    /// The code to which the jump at `exit` led isn't traced, and had ended then.
    #[cold]
    fn untraced(&self, exit: Location, until_ns: u64, out: &mut Vec<TimelineEvent>) {
        out.push(TimelineEvent::Untraced(Untraced { at_ns: self.state.jumped_ns, until_ns, exit }));
    }

    #[cold]
    fn rare(&mut self, ticks: u64, until: u64, kind: StepKind, out: &mut Vec<TimelineEvent>) {
        let at_ns = self.state.now_ns;
        if let Some(exit) = self.state.jumped.take() {
            self.untraced(exit, at_ns, out);
        }
        let unknown = |address| self.modules.locate_outside(address, ticks);
        match kind {
            StepKind::Entry(_) | StepKind::Exit(_) | StepKind::Values(..) => {}
            StepKind::UnknownEntry(address) => {
                let location = unknown(address);
                self.open(Frame::new(location, ticks, at_ns), TailCall::No, out);
            }
            StepKind::UnknownExit(address) => self.exit(unknown(address), out),
            StepKind::Unwound(count, unwound::INLINED) => self.end_inlined(count, false),
            StepKind::Unwound(count, unwound::INLINED_IN_CLEANUP) => self.end_inlined(count, true),
            StepKind::Unwound(count, how) => {
                let is_late = how == unwound::NOTICED;
                let how = if is_late { EndKind::UnwoundLate } else { EndKind::Unwound };
                self.unwind(count, How::Is(how));
            }
            StepKind::OrphanExit(offset) => {
                let location = self.modules.locate(&mut self.cursor, offset, ticks);
                if let Some(inside) = self.find_uncounted(location) {
                    for _ in 0..inside {
                        self.close(EndKind::UnwoundLate, at_ns, out);
                    }
                    return self.leave(location, false, out);
                }
                if self.code.is_bare_thunks(location) {
                    self.state.stats.thunk_exits += 1;
                    return;
                }
                self.state.stats.orphan_exits += 1;
                out.push(TimelineEvent::Instant(Instant { at_ns, kind: InstantKind::OrphanExit(location) }));
            }
            StepKind::Loss(count, why) => {
                self.state.thrown.clear();
                out.push(TimelineEvent::Loss(Loss { at_ns, count: Some(count), why }));
            }
            StepKind::Throw(name, exception) => {
                self.throw(exception);
                out.push(TimelineEvent::Mark(Mark { at_ns, name, value: None, kind: MarkKind::Throw }));
            }
            StepKind::Catch(name, _) => {
                self.catch();
                out.push(TimelineEvent::Mark(Mark { at_ns, name, value: None, kind: MarkKind::Catch }));
            }
            StepKind::Label(detail, name, value) => {
                let value = (detail & label::NO_VALUE == 0).then_some(value);
                self.mark(detail & label::CLASS_MASK, (name, value), out);
            }
            StepKind::Log(name) => {
                let mark = Mark { at_ns, name, value: None, kind: MarkKind::Log };
                out.push(TimelineEvent::Mark(mark));
            }
            StepKind::Output(stream, name, line) => {
                let mark = Mark { at_ns, name, value: Some(line), kind: MarkKind::Output(stream) };
                out.push(TimelineEvent::Mark(mark));
            }
            StepKind::Gap(_, left, why) => {
                let why = match why {
                    gap::THREAD => GapKind::Thread,
                    gap::DISABLED => GapKind::Disabled,
                    other => GapKind::Other(other),
                };
                self.forget_leaving();
                self.state.thrown.clear();
                self.unwind(left, How::InGap(until, why, None));
            }
            StepKind::Resumed(_, thread, maybe_another) => {
                self.state.maybe_another = maybe_another;
                self.state.caller = None;
                self.state.thrown.clear();
                self.unwind(0, How::InGap(until, GapKind::Suspended, NonZeroU32::new(thread)));
            }
            StepKind::Caller(offset, is_callees) => {
                let code = offset.map(|offset| self.modules.locate(&mut self.cursor, offset, ticks));
                self.state.caller = Some(Caller { code, is_callees });
            }
        }
    }

    /// The program said something.
    fn mark(&mut self, class: u8, key: spans::Key, out: &mut Vec<TimelineEvent>) {
        let at_ns = self.state.now_ns;
        let (name, value) = key;
        let simple = |kind| Some(Mark { at_ns, name, value, kind });
        let mark = match class {
            label::LABEL => simple(MarkKind::Label),
            label::INSTANT | label::MODULE_LOADED | label::MODULE_UNLOADED => simple(MarkKind::Instant),
            label::SPAN_BEGIN => {
                let mark = self.state.spans.begin(key, at_ns, false);
                self.state.stats.spans_too_many = self.state.spans.too_many;
                mark
            }
            label::COUNTER => simple(MarkKind::Counter),
            label::TASK_WAKE => simple(MarkKind::Wake),
            label::TASK_BEGIN if value.is_some_and(|value| label::is_numbered_step(class, value)) => {
                simple(MarkKind::Step)
            }
            label::COUNTER_REAL => simple(MarkKind::CounterReal),
            label::CLEANUP => {
                self.begin_leaving(value.unwrap_or(1));
                None
            }
            label::HANDLER => {
                self.end_leaving(value.unwrap_or(1));
                None
            }
            label::THREAD_END => {
                // Said once more of each frame that is entered again.
                let is_entered = value.is_some() || self.state.is_ending;
                if let Some(frame) = self.state.stack.last_mut() {
                    frame.runs_at_end |= is_entered;
                }
                self.state.is_ending = true;
                self.state.thrown.clear();
                None
            }
            label::SPAN_END => self.state.spans.end(key, at_ns).or_else(|| {
                if let Some(cuts) = self.collected.as_mut().filter(|cuts| cuts.spans.len() < spans::OPEN_MAX)
                {
                    cuts.spans.push(key);
                    return None;
                }
                self.state.stats.orphan_span_ends += 1;
                simple(MarkKind::OrphanSpanEnd)
            }),
            _ => None,
        };
        out.extend(mark.map(TimelineEvent::Mark));
    }

    #[inline]
    fn open(&mut self, frame: Frame, tail_call: TailCall, out: &mut Vec<TimelineEvent>) {
        // Its caller may be an unnamed call.
        let is_inside_unnamed = self.state.stack.last().is_some_and(|caller| caller.unnamed > 0);
        let is_unsure = self.state.maybe_another || self.state.is_ending || self.state.caller.is_some();
        let caller_unsure = is_unsure && self.is_caller_unsure() || is_inside_unnamed;
        if self.state.stack.len() >= DEPTH_MAX {
            self.state.too_deep += 1;
            self.state.stats.too_deep += 1;
            return;
        }
        let Frame { location, start_ns, start_cut, .. } = frame;
        let depth = self.state.depth;
        let begin =
            Begin { depth, location, start_ns, cut: start_cut, tail_call, caller_unsure, arguments: None };
        out.push(TimelineEvent::Begin(begin));
        self.state.stack.push(Frame { runs_at_end: self.state.is_ending, ..frame });
        self.state.depth += 1;
        self.state.stats.calls += 1;
    }

    /// Whether the innermost call is not known to be the caller. At the end of a thread,
    /// destructors of thread-local objects are called from a frame without hooks, but destructors
    /// in a frame that is being unwound are called from that frame.
    #[cold]
    fn is_caller_unsure(&mut self) -> bool {
        let maybe_another = std::mem::take(&mut self.state.maybe_another);
        let is_callers =
            self.state.caller.take().map(|caller| caller.code.is_some_and(|code| self.is_open(code)));
        let is_destructors = |caller: &Frame| self.state.is_ending && !caller.runs_at_end;
        let is_unsure = |caller| match is_callers {
            Some(is_callers) => !is_callers,
            None => maybe_another || is_destructors(caller),
        };
        self.state.stack.last().is_some_and(is_unsure)
    }

    /// Whether a call of the function that contains this code is open. Then the code runs on that
    /// call's stack: another stack's first call is made by code without hooks. All open calls are
    /// checked, because the innermost function may have been inlined into an outer call's code.
    fn is_open(&mut self, code: Location) -> bool {
        let open = self.state.stack.iter().rev().filter(|frame| frame.unnamed == 0).take(SEARCH_DEPTH);
        open.map(|frame| frame.location).any(|entry| self.code.is_same_function(entry, code))
    }

    /// Closes the innermost frame; unnamed calls produce no event.
    #[inline]
    fn close(&mut self, how: EndKind, end_ns: u64, out: &mut Vec<TimelineEvent>) {
        let Some(frame) = self.state.stack.pop() else { return };
        let how = if frame.left > 0 && how == EndKind::Returned { EndKind::Unwound } else { how };
        let how = if self.state.stack.len() < self.state.before_gap { self.ends_after_gap(how) } else { how };
        if frame.unnamed > 0 {
            return;
        }
        self.state.depth -= 1;
        match how {
            EndKind::Unwound | EndKind::UnwoundLate => self.state.stats.unwound += 1,
            EndKind::ExitLost => self.state.stats.exits_lost += 1,
            EndKind::Returned
            | EndKind::Jumped
            | EndKind::ReturnedAfterGap
            | EndKind::TruncatedAtEnd
            | EndKind::TruncatedAtLoss
            | EndKind::TruncatedAtGap => {}
        }
        if how == EndKind::Unwound && !self.state.thrown.is_empty() {
            self.left_by_exception(end_ns, out);
        }
        let Frame { location, start_ns, start_cut, .. } = frame;
        out.push(TimelineEvent::End(End {
            depth: self.state.depth,
            location,
            start_ns,
            end_ns,
            how,
            start_cut,
        }));
    }

    /// How a call ended that was open when recording went off: its events in between are unknown.
    #[cold]
    fn ends_after_gap(&mut self, how: EndKind) -> EndKind {
        self.state.before_gap = self.state.stack.len();
        // The next call isn't linked to a call that isn't shown to jump.
        self.state.jumped = None;
        match how {
            EndKind::Returned | EndKind::Jumped => EndKind::ReturnedAfterGap,
            EndKind::Unwound | EndKind::UnwoundLate => EndKind::ExitLost,
            other => other,
        }
    }

    #[inline]
    fn exit(&mut self, location: Location, out: &mut Vec<TimelineEvent>) {
        if let Some(exit) = self.state.jumped.take() {
            self.untraced(exit, self.state.now_ns, out);
        }
        self.state.maybe_another = false;
        self.state.caller = None;
        if self.state.too_deep > 0 {
            self.state.too_deep -= 1;
            return;
        }
        if let Some(top) = self.state.stack.last().filter(|top| top.unnamed == 0 && !top.uncounted) {
            let answer = self.code.exit(top.location, location);
            if answer.same != Some(false) {
                return self.leave(location, answer.jumps, out);
            }
        }
        self.strange_exit(location, out);
    }

    /// The innermost call ends by its exit.
    #[inline]
    fn leave(&mut self, exit: Location, jumps: bool, out: &mut Vec<TimelineEvent>) {
        self.state.jumped = jumps.then_some(exit);
        self.state.jumped_ns = self.state.now_ns;
        self.close(if jumps { EndKind::Jumped } else { EndKind::Returned }, self.state.now_ns, out);
    }

    /// An exit that is not the innermost call's.
    #[cold]
    fn strange_exit(&mut self, location: Location, out: &mut Vec<TimelineEvent>) {
        let now_ns = self.state.now_ns;
        if self.state.stack.is_empty()
            && let Some(cuts) = self.collected.as_mut().filter(|cuts| cuts.calls.len() < DEPTH_MAX)
        {
            return cuts.calls.push(CutCall::Exit(location));
        }
        let (mut found, mut jumps) = (None, false);
        // Unnamed calls on top have ended without an exit, and those that the runtime doesn't count
        // may have, so that the exit may belong to the next one.
        let mut is_next = true;
        for (distance, frame) in self.state.stack.iter().rev().take(SEARCH_DEPTH).enumerate() {
            if frame.unnamed > 0 {
                continue;
            }
            let answer = self.code.exit(frame.location, location);
            if answer.same == Some(true) || answer.same.is_none() && is_next && !frame.uncounted {
                (found, jumps) = (Some(distance), answer.jumps);
                break;
            }
            is_next &= frame.uncounted;
        }
        let Some(distance) = found else {
            self.state.stats.inferred_orphan_exits += 1;
            let kind = InstantKind::InferredOrphanExit(location);
            return out.push(TimelineEvent::Instant(Instant { at_ns: now_ns, kind }));
        };
        for _ in 0..distance {
            // One that the runtime doesn't count was left by an exception.
            let is_left = self.state.stack.last().is_some_and(|frame| frame.uncounted);
            self.close(if is_left { EndKind::UnwoundLate } else { EndKind::ExitLost }, now_ns, out);
        }
        if self.state.stack.last().is_some_and(|frame| frame.uncounted) {
            self.count_less(location);
        }
        self.leave(location, jumps, out);
    }

    /// The innermost `count` calls ended without an exit.
    fn unwind(&mut self, count: u32, how: How) {
        let hidden = self.state.too_deep.min(count.into());
        self.state.too_deep -= hidden;
        let mut left = count - hidden as u32;
        let mut until = self.state.stack.len();
        while left > 0 && until > 0 {
            let top = &mut self.state.stack[until - 1];
            if top.unnamed > left {
                top.unnamed -= left;
                self.state.stats.unnamed += u64::from(left);
                left = 0;
                break;
            }
            self.state.stats.unnamed += u64::from(top.unnamed);
            left -= if top.uncounted { 0 } else { top.unnamed.max(1) };
            until -= 1;
        }
        self.closing = Some(Closing { until, how });
        if left > 0
            && let Some(cuts) = self.collected.as_mut().filter(|cuts| cuts.calls.len() < DEPTH_MAX)
        {
            cuts.calls.push(CutCall::Unnamed(left));
        }
    }

    /// Whether calls are still to be opened or closed, by [`Pairing::go_on`], before anything else.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.closing.is_some() || !self.opening.calls.is_empty() || !self.opening.spans.is_empty()
    }

    /// Opens some of the truncated calls, or closes some that have ended: there may be very many.
    pub fn go_on(&mut self, out: &mut Vec<TimelineEvent>) {
        for _ in 0..CALLS_AT_ONCE {
            if let Some(Closing { until, how }) = self.closing {
                if matches!(how, How::AtEnd)
                    && let Some(exit) = self.state.jumped.take()
                {
                    self.untraced(exit, self.at_end.until_ns, out);
                }
                if self.state.stack.len() <= until {
                    self.closed(how, out);
                    continue;
                }
                let how = match how {
                    How::Is(how) => how,
                    How::InGap(..) => EndKind::TruncatedAtGap,
                    How::AtEnd => self.end_of_innermost(),
                };
                self.close(how, self.state.now_ns, out);
            } else if let Some(cut) = self.opening.calls.pop() {
                self.open_cut(cut, out);
            } else if let Some(key) = self.opening.spans.pop() {
                out.extend(self.state.spans.begin(key, self.state.now_ns, true).map(TimelineEvent::Mark));
            } else {
                return;
            }
        }
    }

    /// All calls that had ended are closed: what comes next, one at a time.
    fn closed(&mut self, how: How, out: &mut Vec<TimelineEvent>) {
        let cut = match how {
            How::Is(EndKind::TruncatedAtLoss) => Some(SpanEndKind::TruncatedAtLoss),
            How::AtEnd => Some(SpanEndKind::TruncatedAtEnd),
            How::Is(_) | How::InGap(..) => None,
        };
        if let Some(mark) = cut.and_then(|how| self.state.spans.cut(self.state.now_ns, how)) {
            return out.push(TimelineEvent::Mark(mark));
        }
        if let How::InGap(until, why, thread) = how {
            let at_ns = self.state.now_ns;
            self.state.now_ns = self.clock.ns(until).max(at_ns);
            if why != GapKind::Suspended {
                self.state.before_gap = self.state.stack.len();
            }
            out.push(TimelineEvent::Gap(Gap {
                at_ns,
                until_ns: self.state.now_ns,
                why,
                resumed_by: thread.map(NonZeroU32::get),
            }));
        }
        self.closing = None;
    }

    /// How the innermost call ended that was open behind the last event.
    fn end_of_innermost(&mut self) -> EndKind {
        let Some(frame) = self.state.stack.last().filter(|frame| frame.unnamed == 0) else {
            return EndKind::TruncatedAtEnd;
        };
        if frame.uncounted {
            // Nor is it listed.
            self.state.now_ns = if self.state.is_ending { self.state.now_ns } else { self.at_end.until_ns };
            return if self.state.is_ending { EndKind::Unwound } else { EndKind::TruncatedAtEnd };
        }
        let at_end = &self.at_end;
        let first = at_end.listed.partition_point(|call| call.ticks < frame.start_ticks);
        let mut same_time = at_end.listed[first..].iter().take_while(|call| call.ticks == frame.start_ticks);
        if same_time.any(|call| frame.is(call)) {
            if frame.start_ticks >= at_end.first_ticks {
                self.state.stats.open_call_disagreements =
                    self.state.stats.open_call_disagreements.saturating_sub(1);
            }
            if self.state.is_ending {
                return EndKind::Unwound;
            }
            self.state.now_ns = at_end.until_ns;
            return EndKind::TruncatedAtEnd;
        }
        self.state.stats.open_call_disagreements += 1;
        if frame.start_ticks < at_end.ended_before { EndKind::ExitLost } else { EndKind::TruncatedAtEnd }
    }

    /// Events begin, at first or behind missing segments, at `first_ticks`. `listed` are the calls
    /// open at the end; `cuts` are the truncated calls that ended within the events.
    pub fn begin(
        &mut self,
        first_ticks: u64,
        listed: &[ListedCall],
        cuts: Cuts,
        out: &mut Vec<TimelineEvent>,
    ) {
        for call in listed.iter().skip(self.state.stack.len()).take_while(|call| call.ticks < first_ticks) {
            let true_ns = self.clock.ns(call.ticks);
            self.state.now_ns = self.state.now_ns.max(true_ns);
            let location =
                call.location.unwrap_or(Location { module: Location::NO_MODULE, image_address: 0 });
            let start_cut = true_ns < self.state.now_ns;
            let frame = Frame { start_cut, ..Frame::new(location, call.ticks, self.state.now_ns) };
            if self.is_unstamped && !start_cut {
                // Its entry isn't there, and may have had the stamp of one before it.
                let later = listed.iter().map(|call| call.ticks).find(|ticks| *ticks > call.ticks);
                let until = later.unwrap_or(first_ticks).min(first_ticks);
                let until = if until == u64::MAX { call.ticks } else { until };
                let (at_ns, until_ns) = (self.state.now_ns, self.clock.ns(until).max(self.state.now_ns));
                out.push(TimelineEvent::Unstamped(Unstamped { at_ns, from_ns: at_ns, until_ns }));
            }
            self.open(frame, TailCall::No, out);
        }
        if !cuts.calls.is_empty() || !cuts.spans.is_empty() {
            self.state.now_ns = self.state.now_ns.max(self.clock.ns(first_ticks));
            self.state.rim_ticks = first_ticks;
            self.opening = cuts;
        }
    }

    /// Opens a truncated call.
    fn open_cut(&mut self, cut: CutCall, out: &mut Vec<TimelineEvent>) {
        let (location, unnamed) = match cut {
            CutCall::Exit(location) => (location, 0),
            CutCall::Unnamed(count) => (Location { module: Location::NO_MODULE, image_address: 0 }, count),
        };
        let frame = Frame {
            start_cut: true,
            unnamed,
            ..Frame::new(location, self.state.rim_ticks, self.state.now_ns)
        };
        if unnamed == 0 {
            self.open(frame, TailCall::No, out);
        } else if self.state.stack.len() < DEPTH_MAX {
            self.state.stack.push(frame);
        }
    }

    /// Segments are missing, with `count` events if that is known: only calls that are still open
    /// at the end are known to continue.
    pub fn gap(&mut self, listed: &[ListedCall], count: Option<u64>, out: &mut Vec<TimelineEvent>) {
        let keep = self.state.stack.iter().zip(listed).take_while(|(frame, call)| frame.is(call)).count();
        self.state.too_deep = 0;
        self.state.jumped = None;
        self.state.maybe_another = false;
        self.state.caller = None;
        self.state.thrown.clear();
        out.push(TimelineEvent::Loss(Loss { at_ns: self.state.now_ns, count, why: LossKind::Segments }));
        self.closing = Some(Closing { until: keep, how: How::Is(EndKind::TruncatedAtLoss) });
    }

    /// There are no more events: open calls are open at the end, or their exits are lost.
    ///
    /// `listed` are the calls open when the snapshot was taken, at `end_ticks`. If that list
    /// `is_exact`, because nothing ran any more, it also shows lost exits.
    pub fn finish(
        &mut self,
        mut listed: Vec<ListedCall>,
        first_ticks: u64,
        end_ticks: Option<u64>,
        is_exact: bool,
    ) {
        let until_ns =
            end_ticks.map_or(self.state.now_ns, |ticks| self.clock.ns(ticks)).max(self.state.now_ns);
        // The list may be too short if a hook was interrupted; but a call that is missing before a
        // listed one has ended.
        let ended_before = listed.last().filter(|_| is_exact).map_or(0, |call| call.ticks);
        listed.sort_by_key(|call| call.ticks);
        // Each that is found among the open ones agrees after all.
        let expected = listed.iter().filter(|call| call.ticks >= first_ticks).count();
        self.state.stats.open_call_disagreements += expected as u64;
        self.at_end = AtEnd { listed, until_ns, ended_before, first_ticks };
        self.closing = Some(Closing { until: 0, how: How::AtEnd });
    }
}
