//! Which events have a time of their own: see [`everycall_format::stamp`].
//!
//! Each module has a table with a double word for each function, at twice the code offset of its
//! entry: the lower one is a word of [`site`], the upper one holds what was [`seen`] of its events.
//!
//! Whether an event may go without is learned from the times of its function's events, so it takes
//! no analysis of code, and a short loop doesn't count as a long one.
#![allow(unsafe_code)] // Tables that are mapped here, and the C library's area.

use crate::state::arena::Arena;
use crate::state::dropped;
use crate::state::process::Process;
use crate::sys::system::{self, MADV_DONTNEED};
use crate::sys::wiped;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::EXIT_WITHOUT_STAMP;
use everycall_format::event::WORD_SIZE;
use everycall_format::stamp::{BOUNDED_EVENTS, EXACT, ORDER};
use everycall_hooks::arch::{self, Sequence};
use everycall_hooks::{ModuleDescriptor, site};
use everycall_ring::Control;

/// One of [`everycall_format::stamp`]. Forked children inherit it, with the tables, which they find
/// empty.
static STAMPS: AtomicU32 = AtomicU32::new(EXACT);
/// The mode that the process began with.
static FIRST: AtomicU32 = AtomicU32::new(EXACT);
/// Whether the kernel clears the guard of a thread that waits: one of [`clears`].
static CLEARS: AtomicU32 = AtomicU32::new(clears::UNKNOWN);
static GUARD_OFFSET: AtomicU64 = AtomicU64::new(0);
/// By their index. Events of modules beyond these get stamps.
static MODULES: [Module; 256] = [const { Module::new() }; 256];
/// How many of them were ever used.
static USED: AtomicU32 = AtomicU32::new(0);
/// That of modules beyond.
static NO_SEQUENCE: Sequence = Sequence::new();

/// A module. Its table stays when it is unloaded, for the next one with its index: other threads may
/// be reading it.
struct Module {
    sequence: Sequence,
    /// Its code offsets, as [`Function::at`] finds them: first one and end. 0: none.
    codes: [AtomicU32; 2],
    /// Where the table's double word of code offset 0 would be.
    table: AtomicU64,
    /// Where the table is, and its size in bytes.
    memory: [AtomicU64; 2],
}

impl Module {
    const fn new() -> Module {
        Module {
            sequence: Sequence::new(),
            codes: [const { AtomicU32::new(0) }; 2],
            table: AtomicU64::new(0),
            memory: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// Gets a table for these code offsets.
    fn begin(&self, codes: &Range<u32>) -> bool {
        let [mut memory, room] = self.memory.each_ref().map(|word| word.load(Relaxed));
        if room < size(codes) {
            let Some(table) = wiped::map_table(size(codes)) else { return false };
            memory = table as u64;
            self.memory[0].store(memory, Relaxed);
            self.memory[1].store(size(codes), Relaxed);
        }
        self.table.store(memory.wrapping_sub(2 * u64::from(codes.start)), Relaxed);
        self.codes[0].store(codes.start, Relaxed);
        self.codes[1].store(codes.end, Release);
        true
    }

    /// The module is about to be unloaded.
    fn end(&self) {
        self.sequence.end();
        self.codes[1].store(0, Relaxed);
        self.forget();
    }

    /// Empties the table. Functions get their counts' places again at their next call.
    fn forget(&self) {
        let [memory, size] = self.memory.each_ref().map(|word| word.load(Relaxed));
        let _ = system::advise(memory as *mut u8, size, MADV_DONTNEED);
    }
}

/// Bytes of a table for code offsets.
fn size(codes: &Range<u32>) -> u64 {
    2 * u64::from(codes.end - codes.start) + size_of::<u64>() as u64
}

/// Values of [`CLEARS`].
mod clears {
    pub const UNKNOWN: u32 = 0;
    pub const NO: u32 = 1;
    pub const YES: u32 = 2;
}

/// Statistics of a function's entries, and in the next bits those of its exits.
mod seen {
    pub const BITS: u32 = 14;
    /// How often the stretches beside it were short.
    pub const SHORT_MAX: u32 = (1 << 9) - 1;
    /// How often one of them was long.
    pub const LONG_SHIFT: u32 = 9;
    pub const LONG_MAX: u32 = (1 << 5) - 1;
}

const _: () = assert!(site::COUNT < EXIT_WITHOUT_STAMP && site::COUNT & site::ENTRY == 0);

/// Begins, when the process does. Without a guard, every event gets a stamp.
pub(crate) fn begin(arena: &Arena, wanted: u32) {
    if wanted != EXACT && has_guard() && is_guarded() {
        FIRST.store(wanted, Relaxed);
        STAMPS.store(wanted, Relaxed);
        note(arena);
    }
}

/// Chooses while the process runs, and nothing is recorded. What the caller can't have, for lack of
/// a guard, is exact. The caller holds the module lock, and prepares the modules.
pub(crate) fn choose(process: &'static Process, wanted: u32) {
    let chosen = if wanted == EXACT || has_guard() { wanted } else { EXACT };
    if chosen == mode() {
        return;
    }
    // Threads find out by themselves, when their segment is full.
    stop(process);
    begin_again();
    STAMPS.store(chosen, Relaxed);
    // Events in the rings stay, so the choice of exact isn't noted.
    if chosen != EXACT {
        note(process.arena());
    }
}

/// The mode that the process began with.
pub(crate) fn first() -> u32 {
    FIRST.load(Relaxed)
}

/// Finds the guard's place, if this process can have one.
fn has_guard() -> bool {
    if dropped::is_counting() || CLEARS.load(Relaxed) == clears::NO {
        return false;
    }
    let offset = arch::guard_offset();
    GUARD_OFFSET.store(offset.unwrap_or(0), Relaxed);
    offset.is_some()
}

/// Whether the calling thread has a guard that detects all stops. The process has a place for it.
fn is_guarded() -> bool {
    let offset = GUARD_OFFSET.load(Relaxed);
    // SAFETY: the offset is the guard's.
    if !unsafe { arch::is_guarded(offset) } {
        return false;
    }
    if CLEARS.load(Relaxed) == clears::UNKNOWN {
        // Kernels may leave the guard of a thread that waits alone: it isn't within a sequence. Then
        // it doesn't tell of waits.
        let wait = || system::wait(&AtomicU32::new(0), 0, WAIT_NS);
        // SAFETY: the offset is the guard's, and the sequence is never freed.
        let is_cleared = unsafe { arch::is_cleared(offset, &NO_SEQUENCE, wait) };
        CLEARS.store(if is_cleared { clears::YES } else { clears::NO }, Relaxed);
    }
    CLEARS.load(Relaxed) == clears::YES
}

/// How long a thread waits once, so that the kernel stops it.
const WAIT_NS: u64 = 1000;

/// Notes the choice in an arena, for readers.
pub(crate) fn note(arena: &Arena) {
    arena.stamps().store(mode(), Relaxed);
}

/// Lets a module's hooks know, unless they do. If there is no memory for a table, all events of the
/// process get stamps from here on. The module's place in the code space is set.
pub(crate) fn prepare(process: &'static Process, module: &ModuleDescriptor, index: Option<u32>) {
    if !are_left_out() || module.unstamped.load(Relaxed) != 0 {
        return;
    }
    let first = (module.start.load(Relaxed) as u32).wrapping_sub(module.bias_entry.load(Relaxed));
    let codes = &(first..first.saturating_add(module.size.load(Relaxed) as u32));
    let known = index.and_then(|index| MODULES.get(index as usize));
    let (sequence, table) = match known {
        Some(known) if known.begin(codes) => {
            USED.fetch_max(index.unwrap_or(0) + 1, Release);
            let [start, end, abort] = module.sequence.each_ref().map(|word| word.load(Relaxed));
            known.sequence.begin(start, end, abort);
            (&known.sequence, known.table.load(Relaxed))
        }
        // An empty table: each event gets a stamp.
        _ => match wiped::map_table(size(codes)) {
            Some(memory) => (&NO_SEQUENCE, (memory as u64).wrapping_sub(2 * u64::from(codes.start))),
            None => return give_up(process),
        },
    };
    module.guard_offset.store(GUARD_OFFSET.load(Relaxed), Relaxed);
    module.guard.store(&raw const *sequence as u64, Relaxed);
    module.unstamped.store(table, Relaxed);
}

fn give_up(process: &'static Process) {
    STAMPS.store(EXACT, Relaxed);
    stop(process);
}

/// All threads' next events get stamps.
fn stop(process: &'static Process) {
    for control in process.controls() {
        control.stamp_after.store(0, Relaxed);
        control.stamp_due.store(0, Relaxed);
    }
}

/// Triggers have changed: what was learned is forgotten, so that events of the functions that they
/// follow get stamps.
pub(crate) fn begin_again() {
    for module in MODULES.get(..USED.load(Acquire) as usize).unwrap_or(&[]) {
        module.forget();
    }
}

/// A module is about to be unloaded.
pub(crate) fn end(module: &ModuleDescriptor) {
    if module.unstamped.load(Relaxed) != 0
        && let Some(known) = MODULES.get(module.index.load(Relaxed) as usize)
    {
        known.end();
    }
}

/// The calling thread, or a fiber that it makes, begins. Without a guard of its own, all its events
/// get stamps.
pub(crate) fn begin_thread(control: &Control) {
    let distance = match mode() {
        EXACT => 0,
        _ if !is_guarded() => 0,
        ORDER => u64::from(u32::MAX),
        _ => BOUNDED_EVENTS * WORD_SIZE as u64,
    };
    control.stamp_due.store(0, Relaxed);
    control.stamp_after.store(distance, Relaxed);
}

/// Which events have stamps: one of [`everycall_format::stamp`].
pub(crate) fn mode() -> u32 {
    STAMPS.load(Relaxed)
}

/// Whether hooks may write events without stamps.
pub(crate) fn are_left_out() -> bool {
    mode() != EXACT
}

/// The function whose entry is at a code offset of the module counts at this offset.
pub(crate) fn counts_at(module: &ModuleDescriptor, code: u32, offset: u32) {
    let table = module.unstamped.load(Relaxed);
    if table != 0 {
        let function = Function((table + 2 * u64::from(code)) as *mut u64);
        let old = function.load();
        function.store(old & !u64::from(site::COUNT) | u64::from(offset & site::COUNT));
    }
}

/// Learns from an event of the function whose entry is at a code offset: from the stretches from
/// the event before it and to the event after it, together. `last`: see [`Function::at`].
pub(crate) fn learn(code: u32, is_exit: bool, was_long: bool, last: &mut usize) {
    let Some(function) = Function::at(code, last) else { return };
    let old = function.load();
    if old & u64::from(site::COUNT) == 0 {
        // The function's first call has not been counted yet.
        return;
    }
    let may = u64::from(if is_exit { EXIT_WITHOUT_STAMP } else { site::ENTRY });
    if old & may != 0 && !was_long {
        return;
    }
    if mode() == ORDER {
        function.store(old | may);
        return;
    }
    let shift = u32::BITS + if is_exit { seen::BITS } else { 0 };
    let seen = (old >> shift) as u32 & ((1 << seen::BITS) - 1);
    let (mut short, mut long) = (seen & seen::SHORT_MAX, seen >> seen::LONG_SHIFT);
    match was_long {
        true => long = (long + 1).min(seen::LONG_MAX),
        false => short = (short + 1).min(seen::SHORT_MAX),
    }
    let is_short = short >= SHORT_ENOUGH + SHORT_FOR_LONG * long;
    if !is_short && short == seen::SHORT_MAX {
        (short, long) = (0, long / 2);
    }
    let seen = u64::from(long << seen::LONG_SHIFT | short);
    let kept = old & !(((1 << seen::BITS) - 1) << shift | may);
    function.store(kept | seen << shift | if is_short { may } else { 0 });
}

/// An event may go without a stamp after so many short stretches, and so many more for each long one.
const SHORT_ENOUGH: u32 = 16;
const SHORT_FOR_LONG: u32 = 48;

/// A double word of the table. They aren't aligned. Threads may write one at the same time; then
/// one of them has learned in vain.
struct Function(*mut u64);

impl Function {
    /// That of the function whose entry is at a code offset. The module of the last one is tried
    /// first.
    fn at(code: u32, last: &mut usize) -> Option<Function> {
        let table_of = |module: &Module| {
            let codes = module.codes[0].load(Relaxed)..module.codes[1].load(Acquire);
            codes.contains(&code).then(|| module.table.load(Relaxed))
        };
        let used = MODULES.get(..USED.load(Acquire) as usize).unwrap_or(&[]);
        let table = used.get(*last).and_then(table_of).or_else(|| {
            let (number, table) =
                used.iter().enumerate().find_map(|(number, module)| Some((number, table_of(module)?)))?;
            *last = number;
            Some(table)
        })?;
        Some(Function((table + 2 * u64::from(code)) as *mut u64))
    }

    fn load(&self) -> u64 {
        // SAFETY: within a table, which is never unmapped.
        unsafe { self.0.read_unaligned() }
    }

    fn store(&self, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.write_unaligned(value) }
    }
}
