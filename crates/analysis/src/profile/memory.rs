//! What counted calls have allocated and freed.

use std::collections::BTreeMap;

use everycall_reader::{Memory, MemoryNumbers, MemoryOfCalls, MemoryOwner};

use super::counted::{Selected, Target};
use super::functions::{Function, FunctionIdentity, FunctionNumber, Functions};
use super::group::Grouping;
use super::notes::Notes;
use super::sums::Sums;
use crate::view::TraceView;

/// How many numbers [`Allocations`] has.
pub(super) const NUMBERS: usize = 4;
/// The displayed name of what isn't allocated in counted calls.
const OUTSIDE: &str = "(outside of traced calls)";
/// The displayed name of functions that had no room.
const OTHERS: &str = "(functions that had no room)";

/// Bytes and blocks that were allocated and freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Bytes allocated.
    pub allocated: u64,
    /// Blocks allocated.
    pub blocks: u64,
    /// Bytes freed.
    pub freed: u64,
    /// Blocks freed.
    pub freed_blocks: u64,
}

impl Allocations {
    /// All numbers.
    pub(super) fn all(self) -> [u64; NUMBERS] {
        [self.allocated, self.blocks, self.freed, self.freed_blocks]
    }

    pub(super) fn all_mut(&mut self) -> [&mut u64; NUMBERS] {
        [&mut self.allocated, &mut self.blocks, &mut self.freed, &mut self.freed_blocks]
    }

    /// Adds others.
    pub(super) fn add(&mut self, other: Allocations) {
        for (sum, more) in self.all_mut().into_iter().zip(other.all()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// What came since an earlier reading.
    pub(super) fn since(mut self, before: Allocations) -> Allocations {
        for (now, before) in self.all_mut().into_iter().zip(before.all()) {
            *now = now.saturating_sub(before);
        }
        self
    }

    /// Whether nothing was allocated or freed.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Allocations::default()
    }
}

impl From<MemoryNumbers> for Allocations {
    fn from(of: MemoryNumbers) -> Allocations {
        let MemoryNumbers { allocated, allocated_blocks: blocks, freed, freed_blocks } = of;
        Allocations { allocated, blocks, freed, freed_blocks }
    }
}

/// Adds what a trace has counted. Only the last snapshot of a process counts.
pub(super) fn add(target: &mut Target<'_>, view: &TraceView<'_>, selected: &mut Selected<'_>) {
    let trace = view.trace();
    let of_process: BTreeMap<usize, &Memory> =
        trace.memory().iter().map(|memory| (memory.process, memory)).collect();
    for (process, memory) in of_process {
        if !selected.has_process(process) {
            continue;
        }
        tell(memory, target.notes);
        for calls in &memory.calls {
            add_calls(target, view, selected, process, calls);
        }
        if selected.has_all() {
            let numbers = memory.elsewhere.into();
            let of = Sums { memory: numbers, own_memory: numbers, ..Sums::default() };
            let function = nameless(OUTSIDE, target.functions);
            let key = selected.key(target, (process, None), function);
            if !numbers.is_none() {
                target.cells.add(key, &of);
            }
        }
    }
}

fn add_calls(
    target: &mut Target<'_>,
    view: &TraceView<'_>,
    selected: &mut Selected<'_>,
    process: usize,
    calls: &MemoryOfCalls,
) {
    if !selected.has_slot(process, calls.slot) {
        return;
    }
    let function = match calls.whose {
        MemoryOwner::Function(offset, ticks) => {
            let location = view.trace().locate(process, offset, ticks);
            match selected.function(location, target.functions) {
                Some(function) => function,
                None => return,
            }
        }
        _ if !selected.has_all_functions() => return,
        MemoryOwner::Thread => nameless(OUTSIDE, target.functions),
        MemoryOwner::Others => nameless(OTHERS, target.functions),
    };
    let own = calls.own.into();
    // Calls of other groups than functions lie in each other, and only own numbers add up. A thread
    // has no total of its own as a function.
    let is_total = *target.grouping == Grouping::Function && calls.whose != MemoryOwner::Thread;
    let memory = if is_total { calls.total.into() } else { own };
    let key = selected.key(target, (process, Some(calls.slot)), function);
    let of = Sums { memory, own_memory: own, ..Sums::default() };
    if !memory.is_none() || !own.is_none() {
        target.cells.add(key, &of);
    }
}

/// A row that is no function.
fn nameless(name: &str, functions: &mut Functions) -> FunctionNumber {
    functions.number(Function::of(FunctionIdentity { name: name.to_owned(), ..FunctionIdentity::default() }))
}

/// What can't be seen in a process.
fn tell(memory: &Memory, notes: &mut Notes) {
    notes.memory_not_seen += u64::from(!memory.is_seen);
    notes.memory_without_sizes += u64::from(!memory.has_sizes);
    notes.memory_own_allocator += u64::from(memory.own_allocator);
}
