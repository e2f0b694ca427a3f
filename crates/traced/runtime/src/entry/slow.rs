//! The slow path: everything that a hook can't finish alone. It runs with signals blocked, so
//! nothing else of this thread runs in between, with two exceptions:
//!
//! - the handler for traps, in a program that single-steps itself;
//! - the handler for system calls that the program's seccomp filter traps.
//!
//! Events of these handlers are counted as lost.
#![allow(unsafe_code)] // Called by hooks, with pointers to a control block, a slot and a module.

use crate::features::{code_frames, control_server, counted, fork, frames, keeper, loaded_modules, modules};
use crate::state::local::{self, AtWork};
use crate::state::places::{self, Place};
use crate::state::process::{self, Process, process_state};
use crate::state::value_counts::ValueCounts;
use crate::state::{dropped, recording, selection};
use crate::threads::contexts::{self, Found};
use crate::threads::events::EVENT_WORDS_MAX;
use crate::threads::open_calls::{Exit, Frame};
use crate::threads::shared_frames::Caller;
use crate::threads::tails::Met;
use crate::threads::thread::Thread;
use crate::threads::values::{Values, Verdict};
use crate::threads::{armed_calls, begin, short_calls, stacks};
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use everycall_format::arena::counter;
use everycall_format::event::{kind, record_word, unwound};
use everycall_format::frame::{IDS, STEP};
use everycall_hooks::arch::frame;
use everycall_hooks::{ModuleDescriptor, slow};
use everycall_ring::{Control, state};

/// An event that a hook passes on.
struct Event<'a> {
    /// A set of the flags in [`slow`].
    what: u32,
    /// The ring slot that the hook has reserved.
    reserved: Option<&'a AtomicU64>,
    address: u64,
    stack_pointer: u64,
    module: &'a ModuleDescriptor,
    /// The address of code that a frame had in place of the id that it has got.
    code: Option<u64>,
}

impl Event<'_> {
    fn is_exit(&self) -> bool {
        self.what & slow::EXIT != 0
    }

    fn is_body(&self) -> bool {
        self.what & slow::BODY != 0
    }

    /// Whether the call is to be counted, and nothing else.
    fn is_counted(&self) -> bool {
        self.what & slow::COUNT != 0
    }

    /// Whether the call is to be counted, and its hook didn't know that yet: it is the first frame
    /// by id.
    fn is_first_counted(&self) -> bool {
        self.what & slow::FRAME != 0 && !self.is_exit() && dropped::is_counting() && !dropped::is_timing()
    }

    /// The code address after the hook's call. `None` for a `__cyg_profile` hook.
    fn behind(&self) -> Option<u64> {
        (!self.is_body()).then_some(self.address)
    }

    /// Whether the hook has raised the top of the open-call stack.
    fn has_pushed(&self) -> bool {
        self.what & slow::PUSHED != 0
    }

    fn frame(&self) -> Frame {
        let pointer = self.stack_pointer;
        match self.is_body() {
            false => Frame::Start(pointer),
            true if self.what & slow::FRAME != 0 => Frame::ById(pointer),
            true if self.is_exit() && self.returns_to_call_site() => Frame::Left(pointer),
            true => Frame::Body(pointer),
        }
    }

    /// Whether a `__cyg_profile` hook returns to the call site that it was passed, not into the
    /// function.
    fn returns_to_call_site(&self) -> bool {
        // SAFETY: such a hook's stack pointer.
        unsafe { frame::call_site(self.stack_pointer) == frame::hook_returns_to(self.stack_pointer) }
    }

    /// The address of code that a frame by id has in place of an id.
    fn frame_address(&self) -> Option<u64> {
        let number = self.address / u64::from(STEP);
        (self.what & slow::FRAME != 0 && number >= u64::from(IDS)).then_some(number)
    }

    /// Gives a frame that has an address an id, if its name is known and something depends on it.
    fn name_code(&mut self, process: &'static Process) {
        if let Some(address) = self.frame_address()
            && let Place::Unknown(_) = places::of(process, address)
            && let Some(id) = code_frames::id_of(process, address, !self.is_exit())
        {
            self.code = Some(address);
            self.address = u64::from(id) * u64::from(STEP);
        }
    }

    /// Whether it is of code outside the hook's module.
    fn is_elsewhere(&self) -> bool {
        let offset = self.address.wrapping_sub(self.module.start.load(Relaxed));
        self.is_body() && self.what & slow::FRAME == 0 && offset >= self.module.size.load(Relaxed)
    }

    /// Adds the module of a call that begins to the table, if it isn't there.
    fn find_module(&self, process: &'static Process) {
        if !self.is_exit()
            && self.is_elsewhere()
            && let Place::Unknown(address) = places::of(process, self.address)
        {
            modules::take_in_untraced(process, address);
        }
    }

    /// Whether a frame that has an address is left out where not everything is selected.
    fn is_left_out(&self) -> bool {
        let is_wanted = || match self.code {
            Some(_) => frames::is_recorded((self.address / u64::from(STEP)) as u32),
            None => self.frame_address().is_none() || selection::is_everything(),
        };
        self.reserved.is_none() && !is_wanted()
    }

    /// The place at which a call ends. If it began before its code had a name, it is the one that
    /// it had then; `None` if it wasn't recorded, as only the name is selected.
    fn exit_place(&self, thread: &Thread<'_>, frame: Frame) -> Option<Place> {
        let place = self.place(thread.process);
        let is_open = |low| matches!(thread.open.find_exit(frame, low), Exit::Of(_));
        match (place, self.code) {
            (Place::Offset(offset), Some(address)) if !is_open(offset) => {
                let had_no_name = is_open(record_word(0, kind::UNKNOWN_CODE, 0, 0) as u32);
                had_no_name.then_some(Place::Unknown(address))
            }
            // Another thread has found the module meanwhile.
            (Place::Offset(offset), None)
                if self.is_elsewhere()
                    && !is_open(offset)
                    && is_open(record_word(0, kind::UNKNOWN_CODE, 0, 0) as u32) =>
            {
                Some(Place::Unknown(self.address))
            }
            _ => Some(place),
        }
    }

    fn place(&self, process: &Process) -> Place {
        if let Some(address) = self.frame_address() {
            return places::of(process, address);
        }
        places::of_hook(process, self.module, self.address, self.is_body())
    }

    /// Discards what the hook did in a control block that doesn't belong to its stack, or that was
    /// wiped.
    fn forget_hook(&mut self) {
        self.reserved = None;
        self.what &= !slow::PUSHED;
    }
}

/// Which stack the control block belongs to that a hook has found.
enum Owner {
    /// The stack that the hook runs on.
    Stack(&'static Control),
    /// Another stack: the thread has switched contexts.
    Other(&'static Control),
    /// The hook has found no control block, or (in a forked child) the parent's.
    Nobody,
}

impl Owner {
    fn of(control: *const Control, stack_pointer: u64) -> Owner {
        // A signal handler may have begun the thread's context since the hook read the thread-local
        // slot. SAFETY: null or a control block; the thread-local slot belongs to this thread.
        let control = unsafe { control.as_ref().or_else(|| process::thread_slot().read().as_ref()) };
        match control {
            // In a forked child, the thread finds its parent's control block, which the kernel has
            // wiped.
            Some(control) if control.state.load(Relaxed) == state::BLANK => Owner::Nobody,
            Some(control) if stacks::is_seen(control, stack_pointer) => Owner::Stack(control),
            Some(control) => Owner::Other(control),
            None => Owner::Nobody,
        }
    }
}

/// See [`everycall_hooks::SlowCall`].
///
/// # Safety
/// For the hooks of a registered module only.
pub(crate) unsafe extern "C" fn slow_path(
    what: u32,
    control: *const Control,
    slot: *const AtomicU64,
    address: u64,
    stack_pointer: u64,
    module: *const ModuleDescriptor,
) {
    let Some(process) = process::process() else { return };
    let Some(_at_work) = AtWork::begin() else { return AtWork::lose_event() };
    // SAFETY: null or a word of this thread's ring; the module is registered, or its hooks were
    // off.
    let (reserved, module) = unsafe { (slot.as_ref(), &*module) };
    let module = if what & slow::FRAME == 0 { module } else { frames::module(process) };
    let mut event = Event { what, reserved, address, stack_pointer, module, code: None };
    if is_traced(process) {
        event.name_code(process);
        event.find_module(process);
        match event.is_counted() || event.is_first_counted() {
            _ if event.is_left_out() => {}
            true if dropped::is_counting() => count(process, &event),
            true => count_recorded(process, &Owner::of(control, stack_pointer), &event),
            false => record(process, Owner::of(control, stack_pointer), event),
        }
        keeper::start_if_due(process);
        control_server::start_if_asked(process);
        loaded_modules::follow_new_tails(process);
    } else if let Owner::Nobody = Owner::of(control, stack_pointer) {
        begin::leave_out();
    }
}

/// Whether the process is traced. The tracing of a forked child begins here.
fn is_traced(process: &'static Process) -> bool {
    match process.state.load(Acquire) {
        process_state::ON => true,
        process_state::BLANK => fork::begin(process),
        _ => false,
    }
}

/// Counts a call, in a process that counts: the first one of its function or of its thread.
fn count(process: &'static Process, event: &Event<'_>) {
    let found = || contexts::current(process, event.stack_pointer).map(|found| found.control);
    let Some(control) = local::home().or_else(found) else { return };
    if control.state.load(Relaxed) != state::ACTIVE || recording::is_off(control) {
        return;
    }
    let thread = Thread::new(process, control);
    if control.short_counts.load(Relaxed) == 0 {
        // Its counts have no disk space.
        thread.slot.lost_busy().fetch_add(1, Relaxed);
        return;
    }
    let code = match event.place(process) {
        Place::Offset(code) => Some(code),
        Place::Unknown(_) => None,
    };
    let (place, is_new) = dropped::place_of(process, code);
    dropped::count_call(process.arena(), control, place);
    counted::note(event.module, event.address, place);
    if is_new {
        short_calls::add_functions_to_dumps(process);
        // Most threads set their name soon after they start.
        thread.look_at_name();
    }
}

/// Counts a call that its hook has recorded: the first one of its function.
fn count_recorded(process: &'static Process, owner: &Owner, event: &Event<'_>) {
    // Otherwise the process was forked meanwhile: the call is its parent's.
    if let Owner::Stack(control) = owner
        && control.state.load(Relaxed) == state::ACTIVE
    {
        let thread = Thread::new(process, control);
        let place = thread.count_recorded(event.place(process));
        counted::note(event.module, event.address, place);
    }
}

/// Finds the context of an event and records it there.
fn record(process: &'static Process, owner: Owner, mut event: Event<'_>) {
    if let Owner::Stack(control) = owner {
        return record_in(process, Context::Seen(control), &event);
    }
    if let Owner::Other(control) = owner
        && (event.reserved.is_some() || event.has_pushed())
    {
        // A moment ago, the control block was that of this stack, so this thread may still write
        // it.
        give_back(process, control, &event);
    }
    event.forget_hook();
    let Some(Found { control, is_new }) = contexts::current(process, event.stack_pointer) else { return };
    let context = match is_new && control.fiber.load(Relaxed) == 0 {
        true => Context::New(control),
        false => Context::Switched(control),
    };
    record_in(process, context, &event);
}

/// Undoes what a hook has done in a context that doesn't belong to its stack any more.
#[cold]
fn give_back(process: &'static Process, control: &Control, event: &Event<'_>) {
    if control.state.load(Relaxed) != state::ACTIVE || control.busy.swap(1, Relaxed) != 0 {
        return;
    }
    let thread = Thread::new(process, control);
    thread.ring.suspend();
    if let Some(slot) = event.reserved {
        thread.ring.give_up_slot(slot, everycall_hooks::ticks());
    }
    if event.has_pushed() {
        thread.open.take_back();
    }
    thread.resume();
    recording::look_again(control);
    control.busy.store(0, Relaxed);
}

/// The context of an event.
#[derive(Clone, Copy)]
enum Context {
    /// The context that the hook has found.
    Seen(&'static Control),
    /// Another context than the hook's: the thread has switched to it, or its hooks are diverted.
    Switched(&'static Control),
    /// A thread's own context, which begins with this event.
    New(&'static Control),
}

impl Context {
    fn control(self) -> &'static Control {
        match self {
            Context::Seen(control) | Context::Switched(control) | Context::New(control) => control,
        }
    }
}

/// Records an event, unless the context doesn't record or the slow path is already running in it.
fn record_in(process: &'static Process, context: Context, event: &Event<'_>) {
    let control = context.control();
    if control.state.load(Relaxed) != state::ACTIVE {
        return;
    }
    let mut values = Values::none();
    // SAFETY: the event's hook is in the slow path, in this context.
    let verdict = unsafe {
        let Event { what, address, stack_pointer, module, .. } = event;
        values.copy(process, control, module, *what, *address, *stack_pointer)
    };
    let thread = Thread::new(process, control);
    if control.busy.swap(1, Relaxed) != 0 {
        thread.slot.lost_busy().fetch_add(1, Relaxed);
        return;
    }
    thread.met.set(verdict.met);
    thread.values.set(Some(&values).filter(|values| values.are_any()));
    thread.ring.suspend();
    if record_suspended(&thread, context, event, verdict) {
        recording::look_again(control);
    }
    control.busy.store(0, Relaxed);
}

/// Records an event while hooks are kept from the ring. Returns whether they may write again.
fn record_suspended(thread: &Thread<'_>, context: Context, event: &Event<'_>, verdict: Verdict) -> bool {
    let frame = event.frame();
    if let Some(reserved) = event.reserved {
        if event.is_exit() && exit_in_place(thread, reserved, frame, event) {
            return true;
        }
        // The event gets a new slot, after the records that must precede it.
        thread.ring.give_up_slot(reserved, everycall_hooks::ticks());
    }
    if event.has_pushed() {
        thread.open.take_back();
    }
    if recording::stop_if_asked(thread.control, &thread.slot) {
        return false;
    }
    if is_left_out(thread, event, frame, verdict) {
        thread.resume();
        thread.divert_again();
        thread.divert_in_handler();
        return true;
    }
    if let Context::Seen(control) = context
        && event.reserved.is_none()
        && !event.has_pushed()
        && control.deep.load(Relaxed) == 0
        && thread.open.jumped().is_none()
    {
        // Either the segment is full, or it is time for the first look, ...
        thread.look_at_name_now_and_then();
        begin::add_open_calls_to_dumps(thread.process.arena(), thread.control);
        // ... or another thread has changed what is recorded.
        thread.adopt_thresholds();
    }
    let is_ending = if event.is_exit() {
        if let Some(place) = event.exit_place(thread, frame) {
            let ticks = thread.prepare(EVENT_WORDS_MAX + thread.value_words());
            thread.control.handled.store(0, Relaxed);
            thread.exit(ticks, place, frame, event.behind());
        }
        false
    } else {
        let place = event.place(thread.process);
        let entry = Entry::new(thread, context, frame, event.address);
        entry.record(thread, place);
        if dropped::is_timing() {
            counted::note_timed(thread.process, event.module, event.address, place);
        }
        entry.is_ending
    };
    thread.lose_values();
    divert(thread, is_ending);
    true
}

/// Whether nothing is recorded of an event because the condition on its call is false. Calls beyond
/// the capacity of the open-call stack are recorded whatever their conditions say: of some of them
/// nothing is known that would tell their exits apart.
fn is_left_out(thread: &Thread<'_>, event: &Event<'_>, frame: Frame, verdict: Verdict) -> bool {
    if event.is_exit() {
        return verdict.is_conditional && thread.open.find_exit(frame, 0) == Exit::Orphan;
    }
    if !verdict.is_rejected || thread.control.deep.load(Relaxed) != 0 {
        return false;
    }
    // A dead call at this stack pointer would be taken for this one when it ends. If a tail call
    // has led here, or may have, the next event decides what has ended.
    let is_below = |pointer: u64| pointer <= frame.stack_pointer();
    if thread.open.jumped().is_none()
        && thread.open.innermost_pointer().is_some_and(is_below)
        && !thread.is_maybe_another(frame)
    {
        let ticks = thread.prepare(EVENT_WORDS_MAX);
        thread.drop_dead(ticks, frame);
    }
    let arena = thread.process.arena();
    match ValueCounts::of(arena).filter(|_| verdict.is_counted) {
        None => arena.count(counter::CALLS_LEFT_OUT, 1),
        Some(counts) => match thread.values.take() {
            Some(values) => values.count(counts),
            None => counts.count_too_long(),
        },
    }
    true
}

/// Handles an exit whose hook has read the clock, and which took the slow path because the call
/// took long or is marked. Returns false without effect if more has to be recorded.
fn exit_in_place(thread: &Thread<'_>, reserved: &AtomicU64, frame: Frame, event: &Event<'_>) -> bool {
    if recording::is_off(thread.control)
        || !thread.exit_in_place(reserved, event.place(thread.process), frame, event.behind())
    {
        return false;
    }
    thread.resume();
    thread.divert_again();
    true
}

/// Lets hooks write again, except for events that need the slow path.
fn divert(thread: &Thread<'_>, is_ending: bool) {
    thread.resume();
    thread.divert_in_handler();
    if !is_ending || thread.is_cancelled() {
        thread.divert_if_ended();
    }
    thread.divert_in_cleanup();
}

/// The kind of stack on which a call is entered.
enum Class {
    /// A stack whose open calls are known.
    Known,
    /// A stack that is resumed, and in whose memory another, unregistered stack may have begun.
    MaybeAnother,
}

/// The entry of a call.
struct Entry {
    frame: Frame,
    /// An address in the function.
    address: u64,
    class: Class,
    /// Whether this is the thread's first call.
    is_first: bool,
    /// Whether the thread makes this call while it is ending.
    is_ending: bool,
}

impl Entry {
    fn new(thread: &Thread<'_>, context: Context, frame: Frame, address: u64) -> Entry {
        let class = if thread.is_maybe_another(frame) { Class::MaybeAnother } else { Class::Known };
        Entry {
            frame,
            address,
            class,
            is_first: matches!(context, Context::New(_)),
            is_ending: thread.has_ended() && !matches!(context, Context::Seen(_)),
        }
    }

    fn record(&self, thread: &Thread<'_>, place: Place) {
        match self.class {
            Class::Known => self.record_known(thread, place),
            Class::MaybeAnother => self.record_maybe_another(thread, place),
        }
    }

    /// Records an entry on a stack whose open calls are known.
    fn record_known(&self, thread: &Thread<'_>, place: Place) {
        let frame = self.frame;
        let ticks = thread.prepare(EVENT_WORDS_MAX + thread.value_words());
        let handler = thread.control.handled.swap(0, Relaxed);
        let met = thread.meet_jump(ticks, frame, self.address, place);
        // If a tail call led to this entry, the open calls at its place aren't dead.
        if met != Met::Target {
            thread.drop_dead(ticks, frame);
        }
        let is_inlined = !frame.is_start() && thread.open.innermost_pointer() == Some(frame.stack_pointer());
        let cleans_up = thread.open.cleans_up();
        if cleans_up {
            // SAFETY: the stack above the hook's stack pointer.
            let in_frame = if is_inlined { None } else { unsafe { thread.call_in_frame() } };
            let caller = in_frame.unwrap_or_else(|| self.caller(is_inlined));
            thread.drop_inlined(ticks, caller, unwound::INLINED_IN_CLEANUP);
        } else {
            drop_handled(thread, ticks, handler);
        }
        if self.is_ending {
            thread.called_at(ticks, self.caller(is_inlined));
        }
        let is_there = thread.entry(ticks, place, frame, false);
        let ends_jump = met != Met::Nothing;
        if is_there {
            judge_entry(thread);
        }
        if is_there && (self.is_first || self.is_ending || ends_jump || cleans_up && !is_inlined) {
            // The exit of this call must take the slow path. Reasons:
            // - Most threads end when their first call does: read the thread's name then.
            // - While a thread ends or a frame cleans up, the next call may have another caller.
            // - When a jump's target exits, the call that jumped ends, too. After a call that the
            //   target has made, the target may have ended.
            thread.open.divert_innermost(frame);
        }
    }

    /// Records an entry on a resumed stack, in whose memory another, unregistered stack may have
    /// begun.
    fn record_maybe_another(&self, thread: &Thread<'_>, place: Place) {
        let ticks = thread.prepare_for(EVENT_WORDS_MAX + thread.value_words(), true);
        let has_jumped = thread.open.jumped().is_some();
        let handler = thread.control.handled.swap(0, Relaxed);
        drop_handled(thread, ticks, handler);
        thread.called_at(ticks, self.caller(false));
        let is_there = thread.entry(ticks, place, self.frame, true);
        if is_there {
            judge_entry(thread);
        }
        if is_there && (self.is_ending || has_jumped) {
            thread.open.divert_innermost(self.frame);
        }
    }

    /// The code address from which the call was made. `is_inlined`: the call was inlined into the
    /// innermost frame.
    fn caller(&self, is_inlined: bool) -> Caller {
        let pointer = self.frame.stack_pointer();
        // SAFETY: an entry hook's stack pointer.
        let behind = unsafe {
            match self.frame {
                _ if is_inlined => frame::hook_returns_to(pointer),
                Frame::Start(_) => frame::function_returns_to(pointer),
                Frame::Body(_) | Frame::Left(_) | Frame::ById(_) => frame::call_site(pointer),
            }
        };
        Caller { code: behind.saturating_sub(1), is_callees: is_inlined }
    }
}

/// The innermost call was entered: remembers which conditions it meets, and posts it for triggers
/// that want it now.
fn judge_entry(thread: &Thread<'_>) {
    let met = thread.met.get();
    if met != 0 {
        thread.open.remember_met(met);
        armed_calls::judge_entry(thread);
    }
}

/// If an exception handler has begun in the innermost frame, at `handler` (0: none has), removes
/// the calls that were inlined there: they may have been unwound.
fn drop_handled(thread: &Thread<'_>, ticks: u64, handler: u64) {
    if handler != 0 {
        thread.drop_inlined(ticks, Caller { code: handler, is_callees: false }, unwound::INLINED);
    }
}
