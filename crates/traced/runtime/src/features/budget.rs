//! Keeps the cost of tracing below a share of the program's CPU time without tracing
//! (`EVERYCALL_BUDGET`): switches off the functions that are called most, and on again when the
//! load falls. `docs/design/budget.md` says why it is done here and how.
//!
//! A thread of ours wakes up now and then. It counts the events of all threads, looks in the newest
//! ones for the functions that they are of, and compares their cost with the process's CPU time.
//! It records its actions as instants in a ring of its own ([`everycall_format::budget`]).
#![allow(unsafe_code)] // Words of rings in the arena; a thread that gets the process by its address.

use crate::features::loaded_modules::{self, COSTLY_MAX, Costly};
use crate::state::process::{Process, process_state};
use crate::state::trigger_table::Triggers;
use crate::sys::helper::{self, Stack, Started};
use crate::sys::system::{self, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_PROCESS_CPU, CLOCK_THREAD_CPU};
use crate::threads::begin;
use crate::threads::thread::Thread;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use everycall_format::arena::THREAD_CAPACITY;
use everycall_format::budget::{self, Function as FunctionId, Name, WHOLE, instant};
use everycall_format::event::Word;
use everycall_format::label;
use everycall_ring::{Control, state};

/// A forked child has it, too.
static STACK: Stack = Stack::new();
/// The budget, in millionths; 0 if there is none.
static BUDGET: AtomicU32 = AtomicU32::new(0);
/// Cost of an event, in picoseconds. Measured once; a forked child runs on the same machine.
static EVENT_PS: AtomicU64 = AtomicU64::new(0);
/// Never changed: the thread only waits for a timeout.
static NEVER: AtomicU32 = AtomicU32::new(0);

/// [`FunctionCost::state`].
mod is {
    pub(super) const ON: u32 = 0;
    pub(super) const OFF: u32 = 1;
    /// It can't be switched.
    pub(super) const STUCK: u32 = 2;
}

/// A function that was seen in a ring. The thread alone uses these.
struct FunctionCost {
    /// The code offset of its entries.
    code: AtomicU32,
    /// One of [`is`].
    state: AtomicU32,
    /// Events since the last decision, as far as samples show.
    events: AtomicU64,
    /// Its last known cost, in millionths of the program's CPU time.
    cost: AtomicU64,
    /// How often it was called then, per second of CPU time.
    calls: AtomicU64,
    /// Calls in samples that called nothing, and their ticks.
    leaves: AtomicU64,
    leaf_ticks: AtomicU64,
    /// Not 0: its hooks are called also while it is off.
    is_always_called: AtomicU32,
    /// How long it stays off at least, the next time.
    patience_ms: AtomicU64,
    /// Until when it stays off, at least; when it went on.
    until_ms: AtomicU64,
}

/// Largest number of functions that are counted separately. Further ones count only for the total,
/// and can't be switched off.
const KNOWN: usize = 4096;
/// Places of the hash table, twice as many.
const HASHES: usize = 2 * KNOWN;

static FUNCTIONS: [FunctionCost; KNOWN] = [const {
    FunctionCost {
        code: AtomicU32::new(0),
        state: AtomicU32::new(is::ON),
        events: AtomicU64::new(0),
        cost: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        leaves: AtomicU64::new(0),
        leaf_ticks: AtomicU64::new(0),
        is_always_called: AtomicU32::new(0),
        patience_ms: AtomicU64::new(0),
        until_ms: AtomicU64::new(0),
    }
}; KNOWN];
static COUNT: AtomicU32 = AtomicU32::new(0);
/// By hash: a function's number plus 1.
static PLACES: [AtomicU16; HASHES] = [const { AtomicU16::new(0) }; HASHES];
/// By thread slot: its events at the last look.
static EVENTS: [AtomicU64; THREAD_CAPACITY as usize] =
    [const { AtomicU64::new(0) }; THREAD_CAPACITY as usize];

/// The newest words of a ring that are looked at.
const SAMPLE: usize = 1024;
/// The longest and the shortest time between two looks.
const LOOK_MS: u64 = 100;
const LOOK_MS_LEAST: u64 = 4;
/// A decision needs so much of the process's CPU time to compare with, or so much time.
const ENOUGH_CPU_NS: u64 = 1_000_000;
const ENOUGH_MS: u64 = 1000;
/// How much of the budget may be used before functions go off, and when no more go, in percent. What
/// is left is for what isn't measured.
const TOO_MUCH: u64 = 75;
const LITTLE: u64 = 55;
/// The first time that a function stays off; it doubles each time that switching it on again
/// exceeded the budget.
const PATIENCE_MS: u64 = 1000;
const PATIENCE_MS_MOST: u64 = 64_000;
/// How much of the budget trying functions may take, in percent.
const TRIALS: u64 = 10;
/// Cost of an always-called hook while its function is off, in picoseconds.
const OFF_PS: u64 = 1200;
/// From so much of the process's CPU time on, that of this thread is compared with it.
const COMPARABLE_NS: u64 = 100_000_000;
/// Time to switch a function.
const SWITCHING_NS: u64 = 200_000;
/// Shorter calls are short: about a microsecond.
const SHORT_TICKS: u64 = 2000;
/// A program that does little may be tried, too: at the cost of this part of the time that passes.
const IDLE_TRIALS: u64 = 5_000;
/// Unused time of that kind is kept up to this much.
const ALLOWANCE_NS_MOST: u64 = 20_000_000;
/// Cost of hooks in a program, in percent of their cost in the measurement's loop.
const MORE_THAN_IN_A_LOOP: u64 = 170;

/// Sets the budget, in millionths, for [`start`].
pub(crate) fn set(millionths: u32) {
    BUDGET.store(millionths, Relaxed);
}

/// Whether there is a budget.
pub(crate) fn is_set() -> bool {
    BUDGET.load(Relaxed) != 0
}

/// Starts the thread if there is a budget. Returns false if that failed.
pub(crate) fn start(process: &'static Process) -> bool {
    // In a child that shares its parent's memory, the thread would end with the child.
    if BUDGET.load(Relaxed) == 0 || process.pid.load(Relaxed) != system::process_id() {
        return true;
    }
    let mask = system::set_signal_mask(u64::MAX);
    let argument = core::ptr::from_ref(process) as u64;
    let is_started = match STACK.prepare() {
        Started::Busy => true,
        Started::Failed => false,
        Started::Yes => {
            !matches!(helper::start(&STACK, &process.governor, govern, argument), Started::Failed)
        }
    };
    system::set_signal_mask(mask);
    is_started
}

/// Runs in the thread.
unsafe extern "C" fn govern(process: u64) {
    helper::begin();
    let mut name = [0; 16];
    name.iter_mut().zip(budget::THREAD.bytes()).for_each(|(place, byte)| *place = byte);
    system::set_thread_name(&name);
    // SAFETY: the process that has started the thread; it is never unmapped.
    let process: &'static Process = unsafe { &*(process as *const Process) };
    if EVENT_PS.load(Relaxed) == 0 {
        EVENT_PS.store(event_ps().max(1), Relaxed);
    }
    let mut governor = Governor {
        process,
        pid: process.pid.load(Relaxed),
        control: begin::begin_own(process),
        budget: BUDGET.load(Relaxed).into(),
        event_ps: EVENT_PS.load(Relaxed),
        cpu_ns: system::clock_ns(CLOCK_PROCESS_CPU),
        own_ns: system::clock_ns(CLOCK_THREAD_CPU),
        since_ms: now_ms(),
        allowance_ns: 0,
        load: 100,
        events: 0,
        is_out_of_reach: false,
        allowed: 0,
    };
    governor.begin();
    let mut wait_ms = LOOK_MS_LEAST;
    // Children forked from here on have no such thread, and its memory is wiped.
    while process.state.load(Acquire) == process_state::ON {
        system::wait(&NEVER, 0, wait_ms * 1_000_000);
        let has_changed = governor.look();
        wait_ms = if has_changed { LOOK_MS_LEAST } else { (wait_ms * 2).min(LOOK_MS) };
    }
}

fn now_ms() -> u64 {
    system::clock_ns(CLOCK_MONOTONIC) / 1_000_000
}

/// Measures the cost of an event on this machine, in picoseconds: reading the clock, a word for the
/// ring and an entry for the open-call stack, in a loop.
fn event_ps() -> u64 {
    const EVENTS: u64 = 4096;
    let words = [const { AtomicU64::new(0) }; 512];
    let mut best = u64::MAX;
    for _ in 0..5 {
        let begin = system::clock_ns(CLOCK_MONOTONIC_RAW);
        for event in 0..EVENTS {
            let ticks = everycall_hooks::ticks();
            for place in [event, event.wrapping_mul(3), event.wrapping_mul(3) + 1] {
                if let Some(word) = words.get(place as usize % words.len()) {
                    word.store(ticks, Relaxed);
                }
            }
        }
        let took = system::clock_ns(CLOCK_MONOTONIC_RAW).saturating_sub(begin);
        best = best.min(took * 1000 / EVENTS);
    }
    best * MORE_THAN_IN_A_LOOP / 100
}

fn known() -> &'static [FunctionCost] {
    FUNCTIONS.get(..COUNT.load(Relaxed) as usize).unwrap_or(&FUNCTIONS)
}

/// Cost of hooks that are called though their functions are off, in millionths.
fn off_cost() -> u64 {
    let off = known()
        .iter()
        .filter(|function| function.is(is::OFF) && function.is_always_called.load(Relaxed) != 0);
    // Picoseconds per second are millionths of a millionth.
    off.map(|function| function.calls.load(Relaxed) * 2 * OFF_PS / 1_000_000).sum()
}

/// The function at a code offset; a new one if there is room.
fn function(code: u32) -> Option<&'static FunctionCost> {
    let hash = code.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASHES.ilog2());
    for step in 0..HASHES {
        let place = PLACES.get((hash as usize + step) % HASHES)?;
        match place.load(Relaxed) {
            0 => {
                let number = COUNT.load(Relaxed);
                let function = FUNCTIONS.get(number as usize)?;
                function.code.store(code, Relaxed);
                place.store(number as u16 + 1, Relaxed);
                COUNT.store(number + 1, Relaxed);
                return Some(function);
            }
            number => {
                let function = FUNCTIONS.get(usize::from(number) - 1)?;
                if function.code.load(Relaxed) == code {
                    return Some(function);
                }
            }
        }
    }
    None
}

impl FunctionCost {
    fn is(&self, state: u32) -> bool {
        self.state.load(Relaxed) == state
    }

    /// Which of two functions that cost the same goes off first: calls that are short and call
    /// nothing say the least.
    fn weight(&self) -> u64 {
        let (leaves, ticks) = (self.leaves.load(Relaxed), self.leaf_ticks.load(Relaxed));
        let is_short = ticks.checked_div(leaves).is_some_and(|ticks| ticks < SHORT_TICKS);
        let cost = self.cost.load(Relaxed);
        if is_short { cost } else { cost / 2 }
    }
}

struct Governor {
    process: &'static Process,
    pid: u32,
    /// Of its own ring; `None` if there was no room.
    control: Option<&'static Control>,
    /// In millionths.
    budget: u64,
    event_ps: u64,
    /// At the last decision: CPU time of the process and of this thread, and the time.
    cpu_ns: u64,
    own_ns: u64,
    since_ms: u64,
    /// CPU time that may be spent on trying functions.
    allowance_ns: u64,
    /// CPU time that the program took lately, in percent of the time that passed.
    load: u64,
    /// Events since the last decision.
    events: u64,
    is_out_of_reach: bool,
    /// Permitted cost of functions that are on, in millionths.
    allowed: u64,
}

impl Governor {
    fn begin(&mut self) {
        self.say(instant::BUDGET.as_bytes(), self.budget);
        self.say(instant::EVENT.as_bytes(), self.event_ps);
        EVENTS.iter().for_each(|events| events.store(0, Relaxed));
        // In a forked child: what its parent had switched off, which it may not have finished.
        let mut off = [Costly::default(); COSTLY_MAX];
        let mut count = 0;
        for function in known().iter().filter(|function| function.is(is::OFF)) {
            if let Some(place) = off.get_mut(count) {
                *place = Costly { code: function.code.load(Relaxed), is_off: true, ..Costly::default() };
                count += 1;
            }
            if count == COSTLY_MAX {
                self.switch(&mut off);
                count = 0;
            }
        }
        self.switch(off.get_mut(..count).unwrap_or(&mut []));
    }

    /// Looks at the rings and decides. Returns whether functions were switched.
    fn look(&mut self) -> bool {
        self.sample();
        let (cpu, own) = (system::clock_ns(CLOCK_PROCESS_CPU), system::clock_ns(CLOCK_THREAD_CPU));
        let now = now_ms();
        let (cpu_ns, own_ns) = (cpu.saturating_sub(self.cpu_ns), own.saturating_sub(self.own_ns));
        let program_ns = cpu_ns.saturating_sub(own_ns);
        if program_ns < ENOUGH_CPU_NS && now.saturating_sub(self.since_ms) < ENOUGH_MS {
            return false;
        }
        let elapsed_ns = now.saturating_sub(self.since_ms).max(1) * 1_000_000;
        (self.cpu_ns, self.own_ns, self.since_ms) = (cpu, own, now);
        let hooks_ns = self.events * self.event_ps / 1000;
        self.events = 0;
        // The program's estimated CPU time without tracing.
        let plain_ns = program_ns.saturating_sub(hooks_ns).max(program_ns / 16).max(1);
        let share = |ns: u64| ns.saturating_mul(WHOLE.into()).checked_div(plain_ns).unwrap_or(0);
        for function in known() {
            let events = function.events.swap(0, Relaxed);
            if !function.is(is::OFF) {
                function.cost.store(share(events * self.event_ps / 1000), Relaxed);
                let calls = (events / 2).saturating_mul(1_000_000_000).checked_div(plain_ns);
                function.calls.store(calls.unwrap_or(0), Relaxed);
            }
        }
        let own_cost = match cpu {
            COMPARABLE_NS.. => own.saturating_mul(WHOLE.into()).checked_div(cpu).unwrap_or(0),
            _ => 0,
        };
        let cost = share(hooks_ns);
        // Where what no switching can change costs too much already, functions needn't go for it:
        // in a program that does little, this thread's share alone may be above the budget.
        let fixed_cost = off_cost().saturating_add(own_cost);
        self.allowed = self.budget.saturating_sub(fixed_cost).max(self.budget / 4);
        if fixed_cost > self.budget {
            self.say_out_of_reach(cost.saturating_add(fixed_cost));
        } else if cost <= self.budget {
            self.is_out_of_reach = false;
        }
        let allowed = plain_ns.saturating_mul(self.budget) / u64::from(WHOLE) * TRIALS / 100;
        self.allowance_ns += allowed.max(elapsed_ns / IDLE_TRIALS);
        self.allowance_ns = self.allowance_ns.min(ALLOWANCE_NS_MOST);
        self.load = plain_ns.saturating_mul(100).checked_div(elapsed_ns).unwrap_or(0);
        if cost.saturating_mul(100) > self.allowed * TOO_MUCH {
            // Functions that were tried may have cost more than was expected.
            self.allowance_ns = self.allowance_ns.saturating_sub(hooks_ns);
            self.switch_off(cost, now)
        } else {
            self.switch_on(cost, now)
        }
    }

    /// Says once that the budget can't be kept.
    fn say_out_of_reach(&mut self, cost: u64) {
        if !self.is_out_of_reach && cost > self.budget {
            self.is_out_of_reach = true;
            self.say(instant::OUT_OF_REACH.as_bytes(), cost);
        }
    }

    /// Counts events, and takes samples of which functions they are.
    fn sample(&mut self) {
        let arena = self.process.arena();
        let layout = arena.layout();
        for (control, before) in self.process.controls().zip(&EVENTS) {
            let is_own = self.control.is_some_and(|own| core::ptr::eq(own, control));
            if is_own || control.state.load(Relaxed) != state::ACTIVE {
                continue;
            }
            let current = control.current.load(Relaxed);
            if current >= layout.segment_capacity {
                continue;
            }
            let first = arena.base() as u64 + layout.segment_at(current);
            let suspended = control.suspended_position.load(Relaxed);
            let position =
                if control.end.load(Relaxed) == 0 { suspended } else { control.position.load(Relaxed) };
            let Some(bytes) = position.checked_sub(first).filter(|bytes| *bytes <= layout.segment_size)
            else {
                continue;
            };
            let count = bytes / 8;
            let events =
                control.events.load(Relaxed) + count.saturating_sub(control.other_words.load(Relaxed));
            // The slot may be another thread's by now.
            let then = before.swap(events, Relaxed);
            let new = if events < then { events } else { events - then };
            if new > 0 {
                self.events += new;
                let take = count.min(new).min(SAMPLE as u64);
                // SAFETY: within a segment of the arena, which is never unmapped; atomics may be
                // shared.
                let words = unsafe {
                    core::slice::from_raw_parts((position - take * 8) as *const AtomicU64, take as usize)
                };
                attribute(words, new);
            }
        }
    }

    fn switch_off(&mut self, cost: u64, now: u64) -> bool {
        let triggers = Triggers::of(self.process.arena());
        let is_armed = |code: u32| triggers.is_some_and(|triggers| triggers.names(code));
        let goal = self.allowed * LITTLE / 100;
        let mut left = cost;
        let mut all = [Costly::default(); COSTLY_MAX];
        let mut count = 0;
        // Armed functions are the last to go.
        for armed in [false, true] {
            while left > goal && count < COSTLY_MAX {
                let chosen = |code: u32| all.iter().take(count).any(|costly| costly.code == code);
                let candidates = known().iter().filter(|function| {
                    let code = function.code.load(Relaxed);
                    function.is(is::ON)
                        && function.cost.load(Relaxed) > 0
                        && is_armed(code) == armed
                        && !chosen(code)
                });
                let Some(most) = candidates.max_by_key(|function| function.weight()) else {
                    break;
                };
                left = left.saturating_sub(most.cost.load(Relaxed));
                if let Some(place) = all.get_mut(count) {
                    *place = Costly { code: most.code.load(Relaxed), is_off: true, ..Costly::default() };
                }
                count += 1;
            }
        }
        if count == 0 {
            self.say_out_of_reach(cost);
            return false;
        }
        self.say(instant::COST.as_bytes(), cost);
        let all = all.get_mut(..count).unwrap_or(&mut []);
        // Before the first call is missing.
        for costly in all.iter() {
            let calls = function(costly.code).map_or(0, |function| function.calls.load(Relaxed));
            self.say_of(instant::OFF, costly.code, calls);
        }
        let is_switched = self.switch(all);
        for costly in all.iter() {
            let Some(function) = function(costly.code) else { continue };
            if !is_switched {
                self.say_of(instant::ON, costly.code, function.calls.load(Relaxed));
                continue;
            }
            function.is_always_called.store(costly.is_always_called.into(), Relaxed);
            if !costly.done {
                function.state.store(is::STUCK, Relaxed);
                self.say_of(instant::ON, costly.code, function.calls.load(Relaxed));
                self.say_of(instant::STUCK, costly.code, function.calls.load(Relaxed));
                continue;
            }
            // Was it on for long?
            let patience = function.patience_ms.load(Relaxed);
            let on_ms = now.saturating_sub(function.until_ms.load(Relaxed));
            let patience = match patience {
                0 => PATIENCE_MS,
                _ if on_ms > 2 * patience => PATIENCE_MS,
                _ => (patience * 2).min(PATIENCE_MS_MOST),
            };
            function.patience_ms.store(patience, Relaxed);
            function.until_ms.store(now + patience, Relaxed);
            function.state.store(is::OFF, Relaxed);
        }
        true
    }

    fn switch_on(&mut self, cost: u64, now: u64) -> bool {
        let goal = self.allowed * LITTLE / 100;
        let due = |function: &&FunctionCost| function.is(is::OFF) && function.until_ms.load(Relaxed) <= now;
        let Some(first) = known().iter().filter(due).min_by_key(|function| function.cost.load(Relaxed))
        else {
            return false;
        };
        let mut all = [Costly::default(); COSTLY_MAX];
        let mut count = 0;
        let mut total = cost;
        // All that fit by what was last known of them; else one, to see.
        for function in known().iter().filter(due) {
            let more = function.cost.load(Relaxed);
            if total + more <= goal && count < COSTLY_MAX {
                total += more;
                if let Some(place) = all.get_mut(count) {
                    *place = Costly { code: function.code.load(Relaxed), is_off: false, ..Costly::default() };
                }
                count += 1;
            }
        }
        if count == 0 {
            // Until the next look, and the time that switching takes.
            let share = first.cost.load(Relaxed);
            let whole = share.saturating_add(WHOLE.into());
            let busy_ns = LOOK_MS_LEAST * 1_000_000 * self.load.min(10_000) / 100;
            let hooks = busy_ns.saturating_mul(share).checked_div(whole);
            let expected = (SWITCHING_NS + hooks.unwrap_or(0)).min(ALLOWANCE_NS_MOST);
            if self.allowance_ns < expected {
                return false;
            }
            self.allowance_ns -= expected;
            if let Some(place) = all.get_mut(0) {
                *place = Costly { code: first.code.load(Relaxed), is_off: false, ..Costly::default() };
            }
            count = 1;
        }
        let all = all.get_mut(..count).unwrap_or(&mut []);
        if !self.switch(all) {
            return false;
        }
        for costly in all.iter() {
            let Some(function) = function(costly.code) else { continue };
            function.state.store(is::ON, Relaxed);
            function.until_ms.store(now, Relaxed);
            self.say_of(instant::ON, costly.code, function.calls.load(Relaxed));
        }
        true
    }

    /// Switches functions. Returns false if another thread was in the way.
    fn switch(&self, all: &mut [Costly]) -> bool {
        all.is_empty() || loaded_modules::mark_costly(self.process, all).is_ok()
    }

    fn say_of(&self, what: &str, code: u32, value: u64) {
        self.say(Name::new(what, FunctionId { pid: self.pid, code }).bytes(), value);
    }

    /// Writes an instant into the thread's own ring.
    fn say(&self, name: &[u8], value: u64) {
        if let Some(control) = self.control {
            Thread::new(self.process, control).between_events(|thread| {
                let ticks = thread.prepare(label::WORDS_MAX);
                let record = label::record(label::INSTANT, ticks, Some(value), name);
                thread.ring.push(record.words());
            });
        }
    }
}

/// Counts `events` for the functions that these words, the newest of a ring, are of.
fn attribute(words: &[AtomicU64], events: u64) {
    let is_event = |word: &Word| matches!(word, Word::Entry { .. } | Word::Exit { .. });
    let decoded = || words.iter().map(|word| Word::decode(word.load(Relaxed)));
    let entries = decoded().filter(|word| matches!(word, Word::Entry { .. })).count() as u64;
    // Fixed-point, so that rare functions of a large sample don't vanish.
    let Some(each) = (events << 10).checked_div(entries) else { return };
    let mut rest = 0;
    let mut last = None;
    for word in decoded().filter(is_event) {
        match word {
            Word::Entry { ticks_low, offset } => {
                rest += each;
                if let Some(function) = function(offset) {
                    function.events.fetch_add(rest >> 10, Relaxed);
                }
                rest &= 0x3ff;
                last = Some((offset, ticks_low));
            }
            Word::Exit { ticks_low, offset } => {
                if let Some((entered, at)) = last.take()
                    && entered.abs_diff(offset) < 1 << 16
                    && let Some(function) = function(entered)
                {
                    function.leaves.fetch_add(1, Relaxed);
                    function.leaf_ticks.fetch_add(ticks_low.wrapping_sub(at).into(), Relaxed);
                }
            }
            _ => {}
        }
    }
}
