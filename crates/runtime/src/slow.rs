//! The slow path: everything that a hook doesn't do itself. Runs with signals blocked, so nothing
//! of this thread comes in between, but for two handlers: of a program's traps that steps through itself, and of the system calls that its filter
//! traps. Their events are counted as lost.

use crate::arena::{Arena, Slot};
use crate::contexts::{self, AtWork, Found};
use crate::open_calls::{Exit, Frame, HOOK_BELOW, OpenCalls};
use crate::process::{self, Process, state as process_state};
use crate::shared_frames::Caller;
use crate::triggers::{self, Fallen};
use crate::{cancellation, crash, fork, modules, pause, stacks, system, threads};
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::arena::{counter, stream};
use everycall_format::event::{self, EXIT, Word, gap, kind, payload_word, record_word, resumed, unwound};
use everycall_hooks::{ModuleDescriptor, slow};
use everycall_ring::{Advance, Control, Ring, Shortage, Size, state};

/// Events after which a thread's name is read again: most threads set it early in their lives.
const FIRST_LOOK: usize = 64;
/// Words that one event may need: epoch 2, gap 5, caller 2, those inlined 5, unknown code 3.
pub(crate) const EVENT_WORDS_MAX: usize = 17;
/// Words of the record that a stack is run again: a gap, with a thread and flags.
const RESUMED_WORDS: usize = 7;
/// How long a thread that waits for a segment sleeps before it looks whether the recorder is still there.
const STALL_LOOK_NS: u64 = 100_000_000;

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
    // A signal handler may have begun the thread since the hook looked for a control block.
    // SAFETY: null or a control block; the thread-local slot is this thread's own.
    let control = unsafe { control.as_ref().or_else(|| process::thread_slot().read().as_ref()) };
    let traced = match process.state.load(Acquire) {
        process_state::ON => true,
        process_state::BLANK => fork::begin(process),
        _ => false,
    };
    // A forked child's only thread finds its parent's control block, blank: it was wiped, and what the hook did with it means
    // nothing.
    let (control, slot, what) = match control {
        Some(wiped) if wiped.state.load(Relaxed) == state::BLANK => {
            (None, core::ptr::null(), what & !slow::PUSHED)
        }
        other => (other, slot, what),
    };
    if !traced {
        if control.is_none() {
            threads::leave_out();
        }
        return;
    }
    let seen = control.filter(|control| stacks::is_seen(control, stack_pointer));
    if let Some(other) = control.filter(|_| seen.is_none() && (!slot.is_null() || what & slow::PUSHED != 0)) {
        // It was seen as this stack's until a moment ago, so that it is this thread's.
        // SAFETY: null or a word of this thread's ring.
        give_back(process, other, unsafe { slot.as_ref() }, what);
    }
    let (slot, what) = match seen {
        Some(_) => (slot, what),
        None => (core::ptr::null(), what & !slow::PUSHED),
    };
    let found = match seen {
        Some(control) => Some(Found { control, is_new: false }),
        None => contexts::current(process, stack_pointer),
    };
    let Some(Found { control, is_new }) = found else { return };
    let is_first = is_new && control.fiber.load(Relaxed) == 0;
    if control.state.load(Relaxed) != state::ACTIVE {
        return;
    }
    let thread = Thread::new(process, control);
    if control.busy.swap(1, Relaxed) != 0 {
        thread.slot.lost_busy().fetch_add(1, Relaxed);
        return;
    }
    thread.ring.hold();
    // SAFETY: null or a word of this thread's ring; the module is registered, or its hooks were off.
    let (reserved, module) = unsafe { (slot.as_ref(), &*module) };
    let body = what & slow::BODY != 0;
    let frame = match body {
        false => Frame::Start(stack_pointer),
        // SAFETY: where the hook has saved its registers.
        true if what & slow::EXIT != 0 && unsafe { returns_to_call_site(stack_pointer) } => {
            Frame::Left(stack_pointer)
        }
        true => Frame::Body(stack_pointer),
    };
    if let Some(reserved) = reserved {
        if what & slow::EXIT != 0 && !pause::is_off(control) {
            let place = modules::place(process, module, address, body);
            if thread.exit_in_place(reserved, place, frame) {
                thread.resume();
                thread.watch_on();
                pause::look_again(control);
                control.busy.store(0, Relaxed);
                return;
            }
        }
        // The event takes a slot in order, behind the records that have to come before it.
        thread.ring.give_up_slot(reserved, everycall_hooks::ticks());
    }
    if what & slow::PUSHED != 0 {
        thread.open.take_back();
    }
    if pause::stop_if_asked(&thread) {
        control.busy.store(0, Relaxed);
        return;
    }
    if reserved.is_none() && seen.is_some() && control.deep.load(Relaxed) == 0 {
        thread.look_at_name();
        threads::add_open_calls_to_dumps(process.arena(), control);
    }
    let place = modules::place(process, module, address, body);
    let is_entry = what & slow::EXIT == 0;
    let maybe_another = is_entry && thread.is_maybe_another(frame);
    let at_end = is_entry && thread.has_ended() && seen.is_none();
    let ticks = thread.prepare_for(EVENT_WORDS_MAX, maybe_another);
    let handler = control.handled.swap(0, Relaxed);
    if is_entry {
        if !maybe_another {
            thread.drop_dead(ticks, frame);
        }
        let is_inlined = !maybe_another && body && thread.open.innermost_pointer() == Some(stack_pointer);
        // SAFETY: an entry hook's.
        let behind =
            || unsafe { if is_inlined { hook_returns_to(stack_pointer) } else { returns_to(frame) } };
        let caller = || Caller { code: behind().saturating_sub(1), is_callees: is_inlined };
        // SAFETY: the stack above the hook's stack pointer.
        let caller_in_frame =
            || unsafe { thread.call_in_frame() }.filter(|_| !is_inlined).unwrap_or_else(caller);
        let cleans_up = !maybe_another && thread.open.cleans_up();
        if cleans_up {
            thread.drop_inlined(ticks, caller_in_frame(), unwound::INLINED_IN_CLEANUP);
        } else if handler != 0 {
            thread.drop_inlined(ticks, Caller { code: handler, is_callees: false }, unwound::INLINED);
        }
        if maybe_another || at_end {
            thread.called_at(ticks, caller());
        }
        let is_there = thread.entry(ticks, place, frame, maybe_another);
        if is_there && (is_first || at_end || cleans_up && !is_inlined) {
            // Most threads end when their first call does: the last chance to learn their name. When one has ended, or where a frame cleans up,
            // what is called behind this call's exit may be called from elsewhere.
            thread.open.watch_innermost(frame);
        }
    } else {
        thread.exit(ticks, place, frame);
    }
    thread.resume();
    thread.watch_handler();
    if !at_end || thread.is_cancelled() {
        thread.watch_end();
    }
    thread.watch_cleanup();
    if is_first {
        thread.ring.end_after(FIRST_LOOK);
    }
    pause::look_again(control);
    control.busy.store(0, Relaxed);
}

/// Takes back what a hook has done in a ring that isn't that of its stack.
#[cold]
fn give_back(process: &'static Process, control: &Control, slot: Option<&AtomicU64>, what: u32) {
    let thread = Thread::new(process, control);
    if control.state.load(Relaxed) != state::ACTIVE || control.busy.swap(1, Relaxed) != 0 {
        return;
    }
    thread.ring.hold();
    if let Some(slot) = slot {
        thread.ring.give_up_slot(slot, everycall_hooks::ticks());
    }
    if what & slow::PUSHED != 0 {
        thread.open.take_back();
    }
    thread.resume();
    pause::look_again(control);
    control.busy.store(0, Relaxed);
}

/// What a `__cyg_profile` hook has saved: `rsi`, in which it was handed the call site, three other registers, and where it returns to.
///
/// # Safety
/// `stack_pointer` is that of a hook.
unsafe fn saved_by_hook(stack_pointer: u64) -> [u64; 5] {
    // SAFETY: by contract.
    unsafe { *(stack_pointer as *const [u64; 5]) }
}

/// Whether a `__cyg_profile` hook returns to the call site that it was handed, not into the function.
///
/// # Safety
/// `stack_pointer` is that of a hook.
unsafe fn returns_to_call_site(stack_pointer: u64) -> bool {
    // SAFETY: by contract.
    let saved = unsafe { saved_by_hook(stack_pointer) };
    saved[0] == saved[4]
}

/// Where a call returns to whose entry hook has this stack pointer.
///
/// # Safety
/// It is an entry hook's.
unsafe fn returns_to(hook: Frame) -> u64 {
    match hook {
        // SAFETY: by contract: what the function was called with.
        Frame::Start(pointer) => unsafe { *((pointer + HOOK_BELOW) as *const u64) },
        // SAFETY: by contract.
        Frame::Body(pointer) | Frame::Left(pointer) => unsafe { saved_by_hook(pointer)[0] },
    }
}

/// Where a `__cyg_profile` hook itself returns to: of a call that was inlined, into the function that made it.
///
/// # Safety
/// `stack_pointer` is the hook's.
unsafe fn hook_returns_to(stack_pointer: u64) -> u64 {
    // SAFETY: by contract.
    let saved = unsafe { saved_by_hook(stack_pointer) };
    saved[4]
}

/// Where an event's address lies.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In a module: its code offset.
    Offset(u32),
    /// In none.
    Unknown(u64),
}

/// Waits for the recorder to give a segment back, unless it has rung since it read `bell`; where it is gone, nobody waits any
/// more.
#[cold]
fn wait_for_segment(arena: &Arena, bell: u32) {
    arena.pool_waiters().fetch_add(1, SeqCst);
    let begin = everycall_hooks::ticks();
    system::wait(arena.pool_bell(), bell, STALL_LOOK_NS);
    arena.count(counter::STALL_TICKS, everycall_hooks::ticks().saturating_sub(begin));
    arena.pool_waiters().fetch_sub(1, SeqCst);
    if arena.pool_bell().load(SeqCst) == bell && system::process_has_ended(arena.recorder_pid()) {
        arena.stream().store(stream::OFF, Relaxed);
    }
}

/// The calling thread, with signals blocked.
pub(crate) struct Thread<'a> {
    pub(crate) process: &'static Process,
    pub(crate) control: &'a Control,
    pub(crate) slot: Slot,
    pub(crate) ring: Ring<'a>,
    pub(crate) open: OpenCalls<'a>,
}

impl<'a> Thread<'a> {
    pub(crate) fn new(process: &'static Process, control: &'a Control) -> Thread<'a> {
        let slot = process.arena().slot(control.slot.load(Relaxed));
        let ring = threads::ring(process.arena(), control, &slot);
        Thread { process, control, slot, ring, open: OpenCalls::new(control) }
    }

    /// Whether a stack is run again, by a call at this hook, whose memory may be another one's by now, of which nobody told.
    fn is_maybe_another(&self, hook: Frame) -> bool {
        self.control.resumed.load(Relaxed) != 0
            && contexts::is_untold(self.process, self.control, hook.stack_pointer())
    }

    /// Whether the program has said that the thread ends, or asked it to.
    fn has_ended(&self) -> bool {
        self.control.ending.load(Relaxed) != 0 || self.is_cancelled()
    }

    /// Whether another thread has asked it to end, which it may do at any call.
    fn is_cancelled(&self) -> bool {
        self.control.thread.load(Relaxed) & cancellation::CANCELLED != 0
    }

    /// A thread that goes on for one or two segments after it was asked to end isn't slowed down any longer.
    fn forget_cancellation(&self) {
        let thread = self.control.thread.load(Relaxed);
        if thread & cancellation::LONG_AGO != 0 {
            self.control.thread.store(thread & !(cancellation::CANCELLED | cancellation::LONG_AGO), Relaxed);
            stacks::refit(self.process, self.control);
        } else if thread & cancellation::CANCELLED != 0 {
            self.control.thread.fetch_or(cancellation::LONG_AGO, Relaxed);
        }
    }

    /// When the thread has ended, frames that it left may be entered again, and what they call is theirs; but the thread's last destructors are nobody's.
    /// Both come to the slow path, so that it is known where they were called, but not what they call.
    fn watch_end(&self) {
        // Another thread that asks this one to end either is seen here or has the last word.
        fence(SeqCst);
        if self.has_ended() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }

    /// What the next event is watched for, it still is where something else has happened between two events, which may have set anew what hooks take for the stack.
    pub(crate) fn watch_on(&self) {
        self.watch_end();
        self.watch_cleanup();
        if self.control.handled.load(Relaxed) != 0 {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }

    /// Records where the next call was made, of which open calls can't tell whose it is: the last byte of the instruction. Another stack's first call, and
    /// those that the C library makes, are made by code without hooks.
    pub(crate) fn called_at(&self, ticks: u64, caller: Caller) {
        let detail = if caller.is_callees { everycall_format::event::caller::CALLEES } else { 0 };
        match modules::place_anywhere(self.process, caller.code) {
            Place::Offset(code) => {
                self.ring.push(&[
                    record_word(ticks, kind::CALLER, 1, detail),
                    payload_word(code, kind::CALLER, 1),
                ]);
            }
            Place::Unknown(_) => self.ring.push(&[record_word(ticks, kind::CALLER, 0, detail)]),
        }
    }

    /// Makes room for `words` and brings the clock's upper half up to date. The time of the event.
    pub(crate) fn prepare(&self, words: usize) -> u64 {
        self.prepare_for(words, false)
    }

    /// The same; `maybe_another` as [`Thread::is_maybe_another`] has it.
    fn prepare_for(&self, words: usize, maybe_another: bool) -> u64 {
        if !self.ring.has_room(words + RESUMED_WORDS) {
            self.advance();
        }
        let ticks = everycall_hooks::ticks();
        let high = (ticks >> 32) as u32;
        if self.control.ticks_high.load(Relaxed) != high {
            self.control.ticks_high.store(high, Relaxed);
            self.slot.ticks_high().store(high, Relaxed);
            self.ring.push(&[record_word(ticks, kind::EPOCH, 1, 0), payload_word(high, kind::EPOCH, 1)]);
            triggers::watch_open_calls(self.process, &self.open);
            triggers::look_at_floor(self.process, self.control);
        }
        if self.control.resumed.load(Relaxed) != 0 {
            self.resumed(ticks, maybe_another);
        }
        ticks
    }

    /// While a handler's calls are open on an alternate stack above the context's own, hooks take no stack for the context's: a call below may be
    /// made within the handler or after it was left, which only the slow path can tell.
    pub(crate) fn watch_handler(&self) {
        if self.control.handler.load(Relaxed) == 0 {
            return;
        }
        if self.open.has_handler() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        } else {
            stacks::refit(self.process, self.control);
        }
    }

    /// Records that a stack is run again which had been left.
    #[cold]
    fn resumed(&self, ticks: u64, maybe_another: bool) {
        let since = self.control.resumed.swap(0, Relaxed);
        if self.control.gap_ticks.load(Relaxed) != 0 {
            // Nothing was recorded meanwhile anyway.
            return;
        }
        let since = if since == contexts::UNSEEN { self.last_ticks(ticks) } else { since.min(ticks) };
        self.ring.push(&[
            record_word(ticks, kind::GAP, 6, gap::SUSPENDED),
            payload_word(since as u32, kind::GAP, 1),
            payload_word((since >> 32) as u32, kind::GAP, 2),
            payload_word(self.open.depth(), kind::GAP, 3),
            payload_word(0, kind::GAP, 4),
            payload_word(self.control.runner.load(Relaxed) as u32, kind::GAP, 5),
            payload_word(if maybe_another { resumed::MAYBE_ANOTHER } else { 0 }, kind::GAP, 6),
        ]);
    }

    /// When the last event was recorded that the current segment has; `now` where it has none.
    fn last_ticks(&self, now: u64) -> u64 {
        let low =
            self.ring.current().1.iter().rev().find_map(|word| match Word::decode(word.load(Relaxed)) {
                Word::Entry { ticks_low, .. } | Word::Exit { ticks_low, .. } => Some(ticks_low),
                _ => None,
            });
        low.map_or(now, |low| now - u64::from((now as u32).wrapping_sub(low)))
    }

    /// All calls that are open have been left: something new begins on the stack, or nothing any more. `how` is one of [`unwound`].
    pub(crate) fn leave_all(&self, how: u8) {
        self.control.jumped_to.store(0, Relaxed);
        if self.open.depth() > 0 {
            self.between_events(|thread| {
                let ticks = thread.prepare(EVENT_WORDS_MAX);
                thread.leave_innermost(ticks, thread.open.depth(), how);
            });
        }
    }

    /// What a jump from another stack has left of this one ends, as the stack is run again.
    pub(crate) fn leave_below_jump(&self) {
        let hook = self.control.jumped_to.swap(0, Relaxed);
        if hook != 0 {
            self.between_events(|thread| {
                let ticks = thread.prepare(EVENT_WORDS_MAX);
                // Whoever switches stacks by jumps goes on with what it has left: nothing that was inlined there is gone.
                thread.drop_below(ticks, hook, false);
            });
        }
    }

    /// Records something where no hook is at work, if the thread records.
    fn between_events(&self, record: impl FnOnce(&Self)) {
        if self.control.state.load(Relaxed) != state::ACTIVE || self.control.busy.swap(1, Relaxed) != 0 {
            return;
        }
        self.ring.hold();
        if !pause::stop_if_asked(self) {
            record(self);
            self.resume();
        }
        pause::look_again(self.control);
        self.control.busy.store(0, Relaxed);
    }

    /// Reads a thread's name once more. A fiber's isn't the thread's.
    pub(crate) fn look_at_name(&self) {
        if self.control.fiber.load(Relaxed) == 0 {
            self.slot.set_name(system::thread_name());
        }
    }

    /// Goes on in the next segment.
    fn advance(&self) {
        let arena = self.process.arena();
        self.forget_cancellation();
        crash::make_room(self.process, arena, false);
        crash::look_at_clocks(self.process, arena);
        self.process.graveyard.keep_to_time(self.process);
        let streaming = arena.stream().load(Relaxed);
        let matching = triggers::look_at_open_calls(self.process, self);
        let high = self.control.ticks_high.load(Relaxed);
        self.ring.close(everycall_hooks::ticks(), streaming != stream::OFF);
        let mut tries = if crash::is_file() { crash::ROOM_TRIES } else { 0 };
        loop {
            // Before the look for a segment, so that none is given back unheard.
            let bell = arena.pool_bell().load(SeqCst);
            let ticks = everycall_hooks::ticks();
            let is_asked = arena.pool().keep_until.load(Relaxed) > ticks || triggers::are_awaited(arena);
            let waits = arena.stream().load(Relaxed) == stream::STALL;
            let how = Advance {
                ticks,
                open_calls: self.open.depth(),
                size: match matching {
                    _ if is_asked => Size::Grow(0),
                    Some(events) if triggers::may_grow(self.process) => Size::Grow(events),
                    Some(events) => Size::Stay(events),
                    None => Size::Limit,
                },
                shortage: match waits {
                    _ if tries > 0 => Shortage::Ask,
                    true => Shortage::Wait,
                    false => Shortage::Overwrite,
                },
            };
            // The first lap: the pages at once cost less than a fault for each. Only a hint.
            let populate = |address: u64, size: u64| {
                let _ = system::advise(address as *mut u8, size, system::MADV_POPULATE_WRITE);
            };
            if self.ring.advance(how, populate) {
                break;
            }
            if tries > 0 {
                tries -= 1;
                crash::make_room(self.process, arena, true);
                continue;
            }
            wait_for_segment(arena, bell);
        }
        threads::add_segment_to_dumps(arena, self.control.current.load(Relaxed));
        triggers::count_beyond(self.process, self.control);
        if self.control.ticks_high.load(Relaxed) != high {
            triggers::watch_open_calls(self.process, &self.open);
        }
        triggers::look_at_floor(self.process, self.control);
    }

    /// Lets hooks write again. They don't check the open-call stack's end: they may fill as many entries
    /// as the segment has words. Where that could be too many, every event goes on to come here.
    pub(crate) fn resume(&self) {
        if self.control.deep.load(Relaxed) == 0 && self.open.room() > self.slot.segment_words() as u64 {
            self.ring.release();
        }
    }

    /// Opens a call; those that are gone have been removed, but where this is perhaps another stack's. Whether it is in the open-call stack.
    fn entry(&self, ticks: u64, place: Place, frame: Frame, maybe_another: bool) -> bool {
        if maybe_another {
            let begun = if let Place::Offset(code) = place { Some(code) } else { None };
            self.drop_gone(ticks, frame, begun);
        }
        let word = match place {
            Place::Offset(offset) => event::call_word(ticks, offset),
            Place::Unknown(_) => record_word(ticks, kind::UNKNOWN_CODE, 0, 0),
        };
        let is_there = self.open.push(word, (ticks >> 32) as u32, frame);
        if !is_there {
            self.slot.deep().fetch_add(1, Relaxed);
        }
        self.write(ticks, place, 0);
        is_there
    }

    /// Does what the exit hook would have done, which has read the clock and came here because the call took long or is marked.
    /// False, and nothing is done, where there is more to it.
    fn exit_in_place(&self, slot: &AtomicU64, place: Place, frame: Frame) -> bool {
        let word = slot.load(Relaxed);
        let Place::Offset(offset) = place else { return false };
        let is_read = word != 0 && word as u32 == 0;
        if !is_read
            || self.control.gap_ticks.load(Relaxed) != 0
            || self.open.find_exit(frame, offset) != Exit::Of(0)
        {
            return false;
        }
        slot.store(word | u64::from(EXIT | offset), Relaxed);
        let now = everycall_hooks::ticks();
        let ticks = now.wrapping_sub((now as u32).wrapping_sub((word >> 32) as u32).into());
        triggers::judge(self.process, self, ticks);
        self.open.drop_frames(1, |_| ());
        if self.open.depth() == 0 {
            self.look_at_name();
        }
        true
    }

    /// Removes the frames that are gone at `frame`, and records that.
    pub(crate) fn drop_dead(&self, ticks: u64, frame: Frame) {
        self.drop_gone(ticks, frame, None);
    }

    /// The same, and where a call of the function at `begun` begins at a stack pointer at which one is open, that one and all inside it.
    fn drop_gone(&self, ticks: u64, frame: Frame, begun: Option<u32>) {
        self.leave(ticks, unwound::NOTICED, |fallen| {
            let dead = self.open.drop_dead(frame, |call| fallen.add(self.process, call, ticks));
            let inside = begun.map_or(0, |code| self.open.count_from_same(frame, code));
            self.open.drop_frames(inside, |call| fallen.add(self.process, call, ticks));
            dead + inside
        });
    }

    /// Removes the frames that are gone when the program goes on where a hook would have this stack pointer, as it is about to, and
    /// records that. `jumps`: to where the frame's function has called `setjmp`, so that what was inlined into it is gone, too.
    /// (Compilers don't inline functions that call `setjmp`, but for clang into others that do.)
    pub(crate) fn drop_below(&self, ticks: u64, hook: u64, jumps: bool) {
        self.leave(ticks, unwound::KNOWN, |fallen| {
            let below = self.open.drop_below(hook, |call| fallen.add(self.process, call, ticks));
            let inlined = if jumps { self.open.count_inlined(hook) } else { 0 };
            self.open.drop_frames(inlined, |call| fallen.add(self.process, call, ticks));
            below + inlined
        });
    }

    fn exit(&self, ticks: u64, place: Place, frame: Frame) {
        let low = match place {
            Place::Offset(offset) => offset,
            Place::Unknown(_) => record_word(0, kind::UNKNOWN_CODE, 0, 0) as u32,
        };
        let found = self.open.find_exit(frame, low);
        if let Exit::Of(inside) = found {
            self.leave_innermost(ticks, inside, unwound::NOTICED);
            self.write(ticks, place, EXIT);
            triggers::judge(self.process, self, ticks);
            self.open.drop_frames(1, |_| ());
            if self.open.depth() == 0 {
                self.look_at_name();
            }
        } else {
            self.drop_dead(ticks, Frame::Body(frame.stack_pointer()));
            if found == Exit::Stray {
                self.slot.orphan_exits().fetch_add(1, Relaxed);
            } else {
                self.drop_inside_uncounted(ticks);
            }
            let offset = if let Place::Offset(offset) = place { offset } else { 0 };
            self.ring.push(&[
                record_word(ticks, kind::ORPHAN_EXIT, 1, 0),
                payload_word(offset, kind::ORPHAN_EXIT, 1),
            ]);
        }
    }

    /// Removes the innermost `count` calls, records that they were left, and tells the triggers. `how` is one of [`unwound`].
    pub(crate) fn leave_innermost(&self, ticks: u64, count: u32, how: u8) {
        self.leave(ticks, how, |fallen| {
            self.open.drop_frames(count, |call| fallen.add(self.process, call, ticks));
            count
        });
    }

    /// The same of those that `remove` removes, which says how many they were.
    fn leave(&self, ticks: u64, how: u8, remove: impl FnOnce(&mut Fallen) -> u32) {
        let mut fallen = Fallen::default();
        let count = remove(&mut fallen);
        self.left(ticks, count, how);
        fallen.post(self.process, self);
    }

    /// Records that `count` frames have been left, down to the depth as it is now; after a gap, with the gap. `how` is one of [`unwound`].
    fn left(&self, ticks: u64, count: u32, how: u8) {
        let since = self.control.gap_ticks.load(Relaxed);
        self.control.gap_ticks.store(0, Relaxed);
        if since != 0 {
            // What was told meanwhile wasn't heard.
            self.control.handled.store(0, Relaxed);
            self.open.settle_all();
            let reason = self.control.gap_reason.swap(gap::DISABLED.into(), Relaxed) as u8;
            self.ring.push(&[
                record_word(ticks, kind::GAP, 4, reason),
                payload_word(since as u32, kind::GAP, 1),
                payload_word((since >> 32) as u32, kind::GAP, 2),
                payload_word(self.open.depth(), kind::GAP, 3),
                payload_word(count, kind::GAP, 4),
            ]);
        } else if count > 0 || matches!(how, unwound::INLINED | unwound::INLINED_IN_CLEANUP) {
            self.slot.unwound().fetch_add(u64::from(count), Relaxed);
            if self.open.depth() <= 1 {
                // As when pthread_exit or a cancellation has ended the thread.
                self.look_at_name();
            }
            self.ring.push(&[
                record_word(ticks, kind::UNWOUND, 2, how),
                payload_word(self.open.depth(), kind::UNWOUND, 1),
                payload_word(count, kind::UNWOUND, 2),
            ]);
        }
    }

    fn write(&self, ticks: u64, place: Place, exit: u32) {
        match place {
            Place::Offset(offset) => self.ring.push(&[event::call_word(ticks, exit | offset)]),
            Place::Unknown(address) => {
                self.process.arena().count(counter::UNKNOWN_CODE, 1);
                self.ring.push(&[
                    record_word(ticks, kind::UNKNOWN_CODE, 2, u8::from(exit != 0)),
                    payload_word(address as u32, kind::UNKNOWN_CODE, 1),
                    payload_word((address >> 32) as u32, kind::UNKNOWN_CODE, 2),
                ]);
            }
        }
    }
}
