//! A thread of a traced program: calls, their hooks step by step, signals in between, and jumps out
//! of them.
//!
//! If you change a hook in crates/traced/hooks, change it here. A step here is one instruction there
//! that accesses memory which others read.
#![allow(unsafe_code)] // The arena and the stacks of a pretended thread, by their addresses.

extern crate std;

use crate::entry::slow::slow_path;
use crate::state::arena::{Arena, Slot};
use crate::state::dropped;
use crate::state::local::Local;
use crate::state::process::{self, Process, process_state};
use crate::sys::system;
use crate::threads::contexts;
use crate::threads::open_calls::OpenCalls;
use crate::threads::stacks::{self, Bounds, bounds};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::{ArenaHeader, OpenCall, pinned_by};
use everycall_format::env::KeepEnded;
use everycall_format::event::{EXIT, OFFSET_FIRST, WORD_SIZE, Word, call_word, kind, record_word};
use everycall_hooks::{ModuleDescriptor, short_map, slow};
use everycall_ring::{Advance, Control, Ring, SEGMENT_RECORD_WORDS, Shortage, Size, left_out};
use std::boxed::Box;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::vec::Vec;

/// Entries of the open-call stack: so few that deep programs exceed them.
pub(super) const CAPACITY: u32 = 700;
/// Bytes of a frame, and how far below the interrupted frame a handler's begins.
const FRAME: u64 = 48;
const BELOW: u64 = 256;
/// Bytes of code of each call. Every call has a function of its own, so that events can be told
/// apart.
const FUNCTION: u32 = 16;

std::thread_local! {
    static THREAD: Cell<Local> = const { Cell::new(Local::NONE) };
}

/// An interruption between two steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Interrupt {
    /// A handler that makes two nested calls and returns.
    Returns,
    /// As [`Interrupt::Returns`], on the alternate signal stack.
    Alternate,
    /// A handler that makes a call, within which it jumps to the innermost [`Machine::catch`].
    Jumps,
    /// As [`Interrupt::Jumps`], from the alternate signal stack.
    AlternateJumps,
    /// A handler that jumps before it has made a call.
    JumpsAtOnce,
    /// A handler whose calls fill more than a segment.
    FillsSegment,
    /// No handler: the clock's upper half changes.
    Epoch,
    /// A handler that switches to a fiber, which makes two nested calls and switches back.
    Switches,
}

impl Interrupt {
    pub(super) const ALL: [Interrupt; 8] = [
        Interrupt::Returns,
        Interrupt::Alternate,
        Interrupt::Jumps,
        Interrupt::AlternateJumps,
        Interrupt::JumpsAtOnce,
        Interrupt::FillsSegment,
        Interrupt::Epoch,
        Interrupt::Switches,
    ];
}

/// A jump is unwinding to the innermost catch.
#[derive(Debug)]
pub(super) struct Jump;
pub(super) type Flow = Result<(), Jump>;

/// How a function calls its hooks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hooks {
    /// At its first and last instruction.
    Sited,
    /// From within its frame (`__cyg_profile`).
    Body,
}

/// The state of a call's entry or exit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Never,
    /// Its hook has begun and may have been abandoned.
    Begun,
    Done,
}

pub(super) struct Machine {
    process: &'static Process,
    module: &'static ModuleDescriptor,
    control: &'static Control,
    slot: Slot,
    stack_pointer: u64,
    /// Memory of the simulated stack.
    stack: Vec<u64>,
    /// Memory of a fiber's stack.
    fiber: Vec<u64>,
    /// Whether the program runs on the fiber. Calls there don't belong to the thread.
    is_on_fiber: bool,
    /// Number of steps so far.
    pub(super) steps: u64,
    /// The interruptions, each with the step that it precedes, in order.
    plan: Vec<(u64, Interrupt)>,
    /// For the message of a failed check.
    name: std::string::String,
    /// Hooks that have begun and aren't finished.
    in_flight: u32,
    /// Entries and exits by call.
    calls: Vec<[Known; 2]>,
    /// Calls that are open from the program's point of view: code offset and stack pointer.
    open: Vec<(u32, u64)>,
    /// Slots that were reserved in order and given up, because a handler has meanwhile continued
    /// beyond the ring's end. They are empty, although no event is lost.
    given_up: u64,
    /// Number of signals.
    interrupts: u64,
    /// Number of hooks that were left by a jump.
    pub(super) abandoned: u64,
    /// Set if the open-call stack may differ from the program's until the surrounding calls have
    /// ended: see `docs/design/memory-model.md`, "What isn't promised".
    pub(super) unsure: bool,
    /// Number of slow paths taken.
    pub(super) slow_paths: u64,
    /// Frames have been left by a jump, and no call has followed. A handler's frame lies below
    /// theirs, so its call can't reveal that they are dead.
    dead: bool,
    /// Whether short calls are dropped.
    drops: bool,
    /// Places of the functions' counts, by call.
    places: Vec<u32>,
    /// Number of calls that were dropped.
    pub(super) dropped: u64,
    /// Whether an exit hook was left between writing its word and closing its call.
    leaves_frame: bool,
    /// Whether hooks were called from within frames: a dead frame may then have the stack pointer
    /// of a new one.
    from_frames: bool,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("the program with {}, at step {}", self.name, self.steps);
        }
    }
}

fn word_at(address: u64) -> &'static AtomicU64 {
    // SAFETY: addresses of the arena's ring and open-call stack, aligned, never unmapped.
    unsafe { &*(address as *const AtomicU64) }
}

fn half_at(address: u64) -> &'static AtomicU32 {
    // SAFETY: as above.
    unsafe { &*(address as *const AtomicU32) }
}

/// The process: this one, with an arena of its own.
fn started() -> (&'static Process, &'static ModuleDescriptor) {
    static MODULE: OnceLock<&'static ModuleDescriptor> = OnceLock::new();
    let module = MODULE.get_or_init(|| {
        let header = ArenaHeader {
            open_call_capacity: CAPACITY,
            ..ArenaHeader::with_layout(everycall_format::env::RING_SIZE_MIN, 2, 0)
        };
        assert!(header.is_consistent(header.arena_size));
        let flags = system::MAP_SHARED | system::MAP_ANONYMOUS;
        let base = system::map(header.arena_size, system::PROT_READ | system::PROT_WRITE, flags, -1).unwrap();
        // SAFETY: just mapped, never unmapped.
        let arena = unsafe { Arena::new(base, header) };
        arena.put_header(&header);
        let place = THREAD.with(|cell| core::ptr::from_ref(cell) as u64);
        assert!(process::begin(&arena, place.wrapping_sub(everycall_hooks::thread_pointer())));
        process::process().unwrap().retired.keep(KeepEnded::DEFAULT);
        process::process().unwrap().state.store(process_state::ON, Relaxed);
        let zero = || AtomicU64::new(0);
        Box::leak(Box::new(ModuleDescriptor {
            thread_slot: zero(),
            // Addresses are code offsets.
            bias_entry: AtomicU32::new(0),
            bias_exit: AtomicU32::new(EXIT),
            on: AtomicU64::new(1),
            slow: zero(),
            slow_stacks: zero(),
            start: zero(),
            size: AtomicU64::new(u64::from(EXIT)),
            abi: AtomicU32::new(0),
            index: AtomicU32::new(0),
            elf_header: zero(),
            sites: [zero(), zero()],
            sleds: [zero(), zero()],
            entry_hook: zero(),
            exit_hook: zero(),
            tail_exit_hook: zero(),
            count_hook: AtomicU64::new(0),
            time_entry_hook: zero(),
            time_exit_hook: zero(),
            times: zero(),
            places: AtomicU64::new(0),
            recorded_places: AtomicU64::new(0),
            unstamped: zero(),
            guard_offset: zero(),
            guard: zero(),
            sequence: [zero(), zero(), zero()],
            unstamped_entry_hook: zero(),
            unstamped_exit_hook: zero(),
            called_exit_hook: zero(),
            sled_hooks: [zero(), zero()],
            capture_entry_hook: zero(),
            capture_exit_hook: zero(),
            captures: zero(),
            capture: zero(),
            region: [zero(), zero()],
            trampolines: zero(),
        }))
    });
    (process::process().unwrap(), module)
}

impl Machine {
    /// A new thread that has already recorded `before` words (fillers).
    pub(super) fn new(before: u64, plan: &[(u64, Interrupt)]) -> Machine {
        Machine::dropping(before, plan, false)
    }

    /// As [`Machine::new`]. If it `drops`, two of three calls are short.
    pub(super) fn dropping(before: u64, plan: &[(u64, Interrupt)], drops: bool) -> Machine {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (process, module) = started();
        let arena = process.arena();
        dropped::set_threshold(arena, if drops { u64::from(u32::MAX) } else { 0 }, drops.into());
        THREAD.set(Local::NONE);
        arena.thread_count().store(0, Relaxed);
        let slot = arena.slot(0);
        let pool = arena.pool();
        pool.words.iter().for_each(|word| word.store(0, Relaxed));
        for entry in pool.entries {
            entry.pins.store(0, Relaxed);
            entry.next.store(0, Relaxed);
            entry.written.store(0, Relaxed);
        }
        for count in [pool.taken, pool.in_use, pool.ring_segments] {
            count.store(0, Relaxed);
        }
        pool.free.store(0, Relaxed);
        process.retired.forget();
        process.stacks.clear();
        let (first, end) = arena.open_calls(0);
        (first..end).step_by(WORD_SIZE).for_each(|address| word_at(address).store(0, Relaxed));
        let stack = std::vec![0_u64; 1 << 16];
        let all = stack.as_ptr_range();
        let bounds = Bounds { low: all.start as u64, high: all.end as u64, how: bounds::TOLD };
        let control = contexts::begin_home(process, bounds, system::thread_id().unwrap()).unwrap().control;
        let ring = arena.ring(control, &slot);
        for _ in 0..before {
            if !ring.has_room(1) {
                ring.close(everycall_hooks::ticks(), false);
                let how = Advance {
                    ticks: everycall_hooks::ticks(),
                    open_calls: 0,
                    size: Size::Limit,
                    shortage: Shortage::Overwrite,
                };
                assert!(ring.advance(how, |_, _| ()));
            }
            ring.push(&[record_word(everycall_hooks::ticks(), kind::FILLER, 0, 0)]);
        }
        let fiber = std::vec![0_u64; 1 << 12];
        let all = fiber.as_ptr_range();
        assert!(contexts::register(process, all.start as u64, all.end as u64, [0; 16], 0));
        Machine {
            process,
            module,
            control,
            slot,
            stack_pointer: stack.as_ptr_range().end as u64 - 4096,
            stack,
            fiber,
            is_on_fiber: false,
            steps: 0,
            plan: plan.to_vec(),
            name: std::format!("{before} words before, then {plan:?}"),
            in_flight: 0,
            calls: Vec::new(),
            open: Vec::new(),
            given_up: 0,
            interrupts: plan.len() as u64,
            abandoned: 0,
            slow_paths: 0,
            unsure: false,
            dead: false,
            drops,
            places: Vec::new(),
            dropped: 0,
            leaves_frame: false,
            from_frames: false,
            _one_at_a_time: guard,
        }
    }

    fn ring(&self) -> Ring<'static> {
        self.process.arena().ring(self.control, &self.slot)
    }

    /// Between two instructions.
    fn step(&mut self) -> Flow {
        let now = self.steps;
        self.steps += 1;
        while let Some(&(at, interrupt)) = self.plan.first()
            && at == now
        {
            self.plan.remove(0);
            self.signal(interrupt)?;
        }
        Ok(())
    }

    /// A step. If `after_first`, a second signal there would be one too many.
    fn step_with(&mut self, after_first: bool) -> Flow {
        let now = self.steps;
        self.unsure |= after_first && self.plan.first().is_some_and(|(at, _)| *at == now);
        self.step()
    }

    pub(super) fn signal(&mut self, interrupt: Interrupt) -> Flow {
        let interrupted = self.stack_pointer;
        let alternate = matches!(interrupt, Interrupt::Alternate | Interrupt::AlternateJumps);
        self.stack_pointer = match system::alternate_stack().filter(|_| alternate) {
            // The test's own thread has an alternate stack, on which the kernel would save the
            // interrupted context.
            Some((first, end)) if !(first..end).contains(&interrupted) => {
                let context = (end - 512) & !15;
                for (at, noted) in [(16, first), (32, end - first), (160, interrupted)] {
                    word_at(context + at).store(noted, Relaxed);
                }
                context
            }
            _ => interrupted - BELOW,
        };
        self.unsure |= self.dead;
        let flow = self.handler(interrupt);
        // If it was left by a jump, its frames lie on another stack than those of later calls.
        self.unsure |= alternate && flow.is_err();
        self.stack_pointer = interrupted;
        flow
    }

    fn handler(&mut self, interrupt: Interrupt) -> Flow {
        match interrupt {
            Interrupt::Returns | Interrupt::Alternate => {
                self.call(Hooks::Sited, |machine| machine.call(Hooks::Sited, |_| Ok(())))
            }
            Interrupt::Jumps | Interrupt::AlternateJumps => self.call(Hooks::Sited, |_| Err(Jump)),
            Interrupt::JumpsAtOnce => Err(Jump),
            Interrupt::FillsSegment => {
                (0..self.slot.segment_words() / 2).try_for_each(|_| self.call(Hooks::Sited, |_| Ok(())))
            }
            Interrupt::Switches => {
                let before = (self.stack_pointer, self.is_on_fiber);
                if !self.is_on_fiber {
                    self.stack_pointer = self.fiber.as_ptr_range().end as u64 - 512;
                    self.is_on_fiber = true;
                }
                self.call(Hooks::Sited, |machine| machine.call(Hooks::Sited, |_| Ok(())))?;
                (self.stack_pointer, self.is_on_fiber) = before;
                Ok(())
            }
            Interrupt::Epoch => {
                self.control.ticks_high.fetch_xor(1, Relaxed);
                Ok(())
            }
        }
    }

    /// Runs `body` and catches jumps out of it, as a function with setjmp or a catch clause does.
    pub(super) fn catch(&mut self, body: impl FnOnce(&mut Machine) -> Flow) {
        let (stack_pointer, open, in_flight) = (self.stack_pointer, self.open.len(), self.in_flight);
        let is_on_fiber = self.is_on_fiber;
        if body(self).is_err() {
            self.is_on_fiber = is_on_fiber;
            self.unsure |= self.from_frames;
            self.dead = true;
            self.stack_pointer = stack_pointer;
            self.open.truncate(open);
            self.abandoned += u64::from(self.in_flight - in_flight);
            self.in_flight = in_flight;
        }
    }

    /// A call of a new function.
    pub(super) fn call(&mut self, hooks: Hooks, body: impl FnOnce(&mut Machine) -> Flow) -> Flow {
        self.from_frames |= hooks == Hooks::Body;
        let outside = self.stack_pointer;
        self.stack_pointer -= FRAME;
        let call = self.calls.len();
        let function = OFFSET_FIRST + call as u32 * FUNCTION;
        self.calls.push([Known::Never; 2]);
        if self.drops {
            self.places.push(self.learn(function));
        }
        if self.is_on_fiber {
            // None of its events may be in the thread's ring.
            self.enter(hooks, function)?;
            body(self)?;
            self.exit(hooks, function)?;
            self.stack_pointer = outside;
            return Ok(());
        }
        self.hook(call, 0, |machine| machine.enter(hooks, function))?;
        self.dead = false;
        self.open.push((function, self.stack_pointer));
        self.check_open_calls();
        body(self)?;
        self.hook(call, 1, |machine| machine.exit(hooks, function))?;
        self.open.pop();
        self.stack_pointer = outside;
        Ok(())
    }

    /// The place of a function's count, as if a short call of it had ended before.
    fn learn(&self, function: u32) -> u32 {
        let place = dropped::learn(self.process, function, 0).expect("a place");
        let count = dropped::counts_at(self.process.arena(), 0) + u64::from(place) * WORD_SIZE as u64;
        word_at(count).store(0, Relaxed);
        place
    }

    /// A function's place in the map of functions.
    fn place(&self, function: u32) -> u32 {
        let hash = function.wrapping_mul(short_map::FACTOR) >> short_map::SHIFT;
        let mut entries = self.process.short_map.entries[hash as usize..].iter();
        let entry = entries.find(|entry| entry.load(Relaxed) as u32 == function).expect("learnt");
        (entry.load(Relaxed) >> 32) as u32
    }

    /// Forgets all functions.
    fn forget(&self) {
        let map = &self.process.short_map;
        for call in 0..self.calls.len() as u32 {
            let function = OFFSET_FIRST + call * FUNCTION;
            let hash = function.wrapping_mul(short_map::FACTOR) >> short_map::SHIFT;
            for entry in map.entries[hash as usize..].iter().take_while(|entry| entry.load(Relaxed) != 0) {
                entry.store(0, Relaxed);
            }
        }
        map.places.store(0, Relaxed);
        assert_eq!(map.is_full.load(Relaxed), 0);
    }

    /// The control block that the hook finds in the thread-local slot.
    fn loaded() -> &'static Control {
        // SAFETY: the machine's thread has begun.
        unsafe { &*THREAD.get().current }
    }

    fn hook(&mut self, call: usize, end: usize, run: impl FnOnce(&mut Machine) -> Flow) -> Flow {
        self.in_flight += 1;
        self.calls[call][end] = Known::Begun;
        run(self)?;
        self.calls[call][end] = Known::Done;
        self.in_flight -= 1;
        Ok(())
    }

    /// `everycall_prologue`: the control block, the slot and the time. `None` if the slow path was
    /// taken.
    fn reserve(&mut self, what: u32, address: u32) -> Result<Option<(&'static Control, u64, u64)>, Jump> {
        self.step()?;
        let control = Machine::loaded();
        self.step()?;
        // Two steps in one, because no other thread changes this.
        if control.left_out.load(Relaxed) == left_out::AT_ONCE && stacks::is_seen(control, self.stack_pointer)
        {
            return Ok(None);
        }
        if !stacks::is_seen(control, self.stack_pointer) {
            return self.slow(what, control, 0, address).map(|()| None);
        }
        self.step()?;
        let ticks = everycall_hooks::ticks();
        self.step()?;
        let slot = control.position.fetch_add(WORD_SIZE as u64, Relaxed);
        let in_order = slot < control.end.load(Relaxed);
        self.step()?;
        if slot >= control.end.load(Relaxed) {
            self.given_up += u64::from(in_order);
            return self.slow(what, control, 0, address).map(|()| None);
        }
        self.step()?;
        if control.ticks_high.load(Relaxed) != (ticks >> 32) as u32 {
            return self.slow(what, control, slot, address).map(|()| None);
        }
        Ok(Some((control, slot, ticks)))
    }

    fn enter(&mut self, hooks: Hooks, function: u32) -> Flow {
        let body = if hooks == Hooks::Body { slow::BODY } else { 0 };
        let Some((control, slot, ticks)) = self.reserve(body, function)? else { return Ok(()) };
        let pointer = self.stack_pointer;
        self.step()?;
        let entry = control.open_top.load(Relaxed);
        self.step()?;
        word_at(entry + 8).store(pointer, Relaxed);
        self.step()?;
        let overwritten = word_at(entry + 8).load(Relaxed) != pointer;
        control.open_top.fetch_add(size_of::<OpenCall>() as u64, Relaxed);
        self.step_with(overwritten)?;
        let below = word_at(entry - 16).load(Relaxed);
        if below < pointer || below == pointer && hooks == Hooks::Sited {
            return self.slow(body | slow::PUSHED, control, slot, function);
        }
        self.step_with(overwritten)?;
        word_at(entry + 8).store(pointer, Relaxed);
        self.step()?;
        let high = control.ticks_high.load(Relaxed);
        self.step()?;
        word_at(entry + 16).store(high.into(), Relaxed);
        self.step()?;
        let word = call_word(ticks, function);
        word_at(entry).store(word, Relaxed);
        self.step()?;
        word_at(slot).store(word, Relaxed);
        self.step()
    }

    fn exit(&mut self, hooks: Hooks, function: u32) -> Flow {
        let body = if hooks == Hooks::Body { slow::BODY } else { 0 };
        let what = body | slow::EXIT;
        let Some((control, slot, ticks)) = self.reserve(what, function)? else { return Ok(()) };
        self.step()?;
        let top = control.open_top.load(Relaxed);
        self.step()?;
        half_at(slot + 4).store(ticks as u32, Relaxed);
        self.step()?;
        let pointer = word_at(top - 16).load(Relaxed);
        let is_other = match hooks {
            Hooks::Sited => pointer != self.stack_pointer,
            Hooks::Body => pointer < self.stack_pointer,
        };
        let took = (ticks as u32).wrapping_sub(half_at(top - 20).load(Relaxed));
        if is_other {
            return self.slow(what, control, slot, function);
        }
        if took >= control.floor.load(Relaxed) {
            self.step()?;
            let is_short = took < control.short.load(Relaxed) && !(function / FUNCTION).is_multiple_of(3);
            let entry = word_at(top - 24).load(Relaxed);
            let is_functions = hooks == Hooks::Sited || entry as u32 == function;
            self.step()?;
            if is_short && is_functions && word_at(slot - 8).load(Relaxed) == entry {
                return self.drop_call(control, slot, top, entry as u32);
            }
            if took >= control.trigger_floor.load(Relaxed) {
                return self.slow(what, control, slot, function);
            }
        }
        if hooks == Hooks::Body && word_at(top - 24).load(Relaxed) as u32 != function {
            return self.slow(what, control, slot, function);
        }
        self.step()?;
        half_at(slot).store(function | EXIT, Relaxed);
        self.step().or_else(|jump| self.leave_frame(jump))?;
        word_at(top - 24).store(0, Relaxed);
        self.step().or_else(|jump| self.leave_frame(jump))?;
        control.open_top.fetch_sub(size_of::<OpenCall>() as u64, Relaxed);
        self.step()
    }

    fn leave_frame(&mut self, jump: Jump) -> Flow {
        self.leaves_frame = true;
        Err(jump)
    }

    /// The end of an exit hook whose call is dropped.
    fn drop_call(&mut self, control: &Control, slot: u64, top: u64, function: u32) -> Flow {
        let place = self.place(function);
        let counts = control.short_counts.load(Relaxed);
        self.step()?;
        word_at(slot).store(0, Relaxed);
        self.step()?;
        word_at(slot - 8).store(0, Relaxed);
        self.step()?;
        word_at(top - 24).store(0, Relaxed);
        self.step()?;
        control.open_top.fetch_sub(size_of::<OpenCall>() as u64, Relaxed);
        self.step()?;
        word_at(counts + u64::from(place) * WORD_SIZE as u64).fetch_add(1, Relaxed);
        self.step()?;
        word_at(counts).fetch_add(1, Relaxed);
        self.step()?;
        self.dropped += 1;
        let (next, before) = (slot + WORD_SIZE as u64, slot - WORD_SIZE as u64);
        if let Err(position) = control.position.compare_exchange(next, before, Relaxed, Relaxed)
            && position != 0
        {
            self.step()?;
            word_at(slot).store(record_word(0, kind::FILLER, 0, 0), Relaxed);
            self.step()?;
            word_at(slot - 8).store(record_word(0, kind::FILLER, 0, 0), Relaxed);
            self.step()?;
            control.other_words.fetch_add(2, Relaxed);
        }
        self.step()
    }

    /// The slow path that ships. Signals come before and after it.
    fn slow(&mut self, what: u32, control: &Control, slot: u64, address: u32) -> Flow {
        self.step()?;
        self.slow_paths += 1;
        if what & slow::BODY != 0 {
            // `returns_to_call_site` reads a call site that isn't the return address.
            let first = (self.stack_pointer - self.stack.as_ptr() as u64) as usize / WORD_SIZE;
            self.stack[first] = 1;
            self.stack[first + 4] = 2;
        }
        let slot = slot as *const AtomicU64;
        // SAFETY: control block and slot are this thread's, the module is registered.
        unsafe { slow_path(what, control, slot, address.into(), self.stack_pointer, self.module) };
        self.step()
    }

    /// Checks that the open-call stack matches the program's. Called when no hook is running.
    fn check_open_calls(&self) {
        if self.in_flight > 0 || self.unsure || self.control.deep.load(Relaxed) > 0 {
            return;
        }
        let first = self.control.open_base.load(Relaxed) + size_of::<OpenCall>() as u64;
        let stack: Vec<(u32, u64)> = (first..self.control.open_top.load(Relaxed))
            .step_by(size_of::<OpenCall>())
            .map(|entry| (word_at(entry).load(Relaxed) as u32 & !EXIT, word_at(entry + 8).load(Relaxed) & !1))
            .collect();
        assert_eq!(stack, self.open, "open calls (code offset, stack pointer)");
        assert_eq!(word_at(self.control.open_top.load(Relaxed)).load(Relaxed), 0, "the word behind the last");
    }

    /// Number of open calls that the runtime knows.
    pub(super) fn depth(&self) -> u32 {
        OpenCalls::new(self.control).depth()
    }

    /// Whether every event goes to the slow path.
    pub(super) fn is_suspended(&self) -> bool {
        self.control.end.load(Relaxed) == 0
    }

    /// From here on, no signals come, so that the next call at the latest finds the dead frames.
    pub(super) fn last_call(&mut self) {
        self.plan.clear();
        self.catch(|machine| machine.call(Hooks::Sited, |_| Ok(())));
    }

    /// After the program: every event is in the ring once, there are holes only where hooks were
    /// left by jumps, and no call is open.
    pub(super) fn finish(self) {
        assert_eq!(self.process.state.load(Relaxed), process_state::ON);
        let pool = self.process.arena().pool();
        let segment_words = self.slot.segment_words();
        let newest = self.ring().number();
        assert_eq!(self.slot.segment().load(Relaxed), newest);
        let suspended = self.control.suspended_position.load(Relaxed);
        let next = if suspended != 0 { suspended } else { self.control.position.load(Relaxed) };
        let current = pool.address(self.control.current.load(Relaxed));
        let written = (next.min(self.control.segment_end.load(Relaxed)) - current) as usize / WORD_SIZE;
        let events = self.ring().events();
        let mut found = std::vec![[0_u32; 2]; self.calls.len()];
        let mut holes = 0;
        let mut in_ring = 0;
        let mut oldest_events = u64::MAX;
        let limit = u64::from(self.control.ring_limit.load(Relaxed));
        let mut nesting = [Nesting::default(), Nesting { by_depth: true, ..Nesting::default() }];
        for number in newest.saturating_sub(limit - 1)..=newest {
            let is_it = |entry: &&everycall_ring::SegmentEntry| {
                entry.number.load(Relaxed) == number && entry.pins.load(Relaxed) == pinned_by::OWNER
            };
            let entry = pool.entries.iter().find(is_it).expect("every segment is somewhere");
            oldest_events = oldest_events.min(entry.events_before.load(Relaxed));
            let index = pool.entries.iter().position(|other| core::ptr::eq(other, entry)).unwrap();
            let words = pool.segment(index as u32);
            let end = if number == newest { written } else { segment_words };
            let segment: Vec<Word> =
                words[..end].iter().map(|word| Word::decode(word.load(Relaxed))).collect();
            let begins = matches!(segment[0], Word::Record { kind: kind::SEGMENT, .. });
            assert!(begins, "segment {number} begins with {:?}", segment[0]);
            for word in &segment[SEGMENT_RECORD_WORDS..] {
                nesting.iter_mut().for_each(|nesting| nesting.add(word));
                in_ring += u64::from(matches!(
                    word,
                    Word::Empty
                        | Word::Entry { .. }
                        | Word::Exit { .. }
                        | Word::Record { kind: kind::ORPHAN_EXIT, .. }
                ));
                match *word {
                    Word::Empty => holes += 1,
                    Word::Entry { offset, .. } => {
                        found[((offset - OFFSET_FIRST) / FUNCTION) as usize][0] += 1
                    }
                    Word::Exit { offset, .. } => found[((offset - OFFSET_FIRST) / FUNCTION) as usize][1] += 1,
                    Word::Payload { kind: kind::ORPHAN_EXIT, payload, .. } if self.unsure => {
                        found[((payload - OFFSET_FIRST) / FUNCTION) as usize][1] += 1;
                    }
                    Word::Record { .. } | Word::Payload { .. } => {}
                }
            }
        }
        assert!(
            self.unsure || nesting.iter().any(|nesting| nesting.is_right(self.leaves_frame)),
            "{nesting:?}"
        );
        // If a slot is given up while its hook is interrupted, and the hook then trusts it, it is
        // counted wrongly. So are the two of a hook that is interrupted by the end of the segment
        // while it drops its call.
        let wrong = if self.drops { 2 } else { 1 } * self.interrupts;
        assert!(
            (events - oldest_events).abs_diff(in_ring) <= self.given_up + wrong,
            "{} events counted, {in_ring} there",
            events - oldest_events
        );
        for (call, (found, known)) in found.iter().zip(&self.calls).enumerate() {
            let count =
                self.places.get(call).map_or(0, |place| dropped::count(self.process.arena(), 0, *place));
            assert!(count <= 1, "call {call} was dropped {count} times");
            // An exit hook that was left while it dropped its call leaves neither word.
            let is_left = self.drops && known[1] == Known::Begun;
            for (found, known) in found.iter().zip(known) {
                // A dropped call isn't there; if its hook was left by a jump, it may be counted,
                // too.
                let there = u64::from(*found) + count;
                let right = match known {
                    Known::Never => there == 0,
                    Known::Begun => there <= 1,
                    Known::Done => there == 1 || is_left && there == 0,
                };
                assert!(right, "call {call}: {found:?}, {count} dropped, for {known:?}");
            }
        }
        self.forget();
        let holes_each = if self.drops { 2 } else { 1 };
        assert!(
            holes <= holes_each * self.abandoned + self.given_up,
            "{holes} holes, {} hooks left, {} slots given up",
            self.abandoned,
            self.given_up
        );
        assert_eq!(self.slot.lost_busy().load(Relaxed), 0);
        assert!(self.unsure || self.depth() == 0, "{} open calls at the end", self.depth());
    }
}

/// Calls as a reader nests them, in the order of slots. (A handler that jumps out of an exit hook
/// which has written its word and not yet closed its call unwinds that call, too. Only the depth
/// shows that.)
#[derive(Debug, Default)]
struct Nesting {
    by_depth: bool,
    open: Vec<u32>,
    has_hole: bool,
    /// The open calls of an UNWOUND record whose number of frames comes next.
    afterwards: usize,
    /// An event that fits no open call.
    wrong: Option<Word>,
}

impl Nesting {
    fn add(&mut self, word: &Word) {
        match *word {
            Word::Empty => self.has_hole = true,
            Word::Entry { offset, .. } => self.open.push(offset),
            Word::Exit { offset, .. } => {
                let closed = self.open.pop();
                if closed != Some(offset) {
                    self.wrong.get_or_insert(*word);
                }
            }
            Word::Payload { kind: kind::UNWOUND, index: 1, payload } => self.afterwards = payload as usize,
            Word::Payload { kind: kind::UNWOUND, index: 2, payload } => {
                // As the reader's `SlotDepth` does it.
                let by_depth = self.open.len().saturating_sub(self.afterwards);
                let left = payload as usize;
                let has_hole = std::mem::take(&mut self.has_hole);
                let ended = if has_hole || self.by_depth { left.min(by_depth) } else { left };
                if ended > self.open.len() {
                    self.wrong.get_or_insert(*word);
                }
                self.open.truncate(self.open.len().saturating_sub(ended));
            }
            _ => {}
        }
    }

    fn is_right(&self, leaves_frame: bool) -> bool {
        self.by_depth <= leaves_frame && self.wrong.is_none() && self.open.is_empty()
    }
}
