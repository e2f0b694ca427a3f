//! Memory that counted calls have allocated and freed.

use everycall_export::Filter;
use everycall_profile::{
    Allocations, Counts, Function, FunctionIdentity, FunctionNumber, Functions, Notes, Sums,
};
use everycall_reader::{Memory, MemoryNumbers, MemoryOfCalls, MemoryOwner};

use super::counted::{Selected, Slot, last_of_processes};
use crate::view::TraceView;

/// The displayed name of what isn't allocated in counted calls.
const OUTSIDE: &str = "(outside of traced calls)";
/// The displayed name of functions that had no room.
const OTHERS: &str = "(functions that had no room)";

/// Adds what a trace has counted. Only the last snapshot of a process counts.
pub(super) fn add(target: &mut Counts<'_>, view: &TraceView<'_>, filter: &Filter) {
    let trace = view.trace();
    let selected = Selected::of(view, filter, target.grouping).filter(|_| !trace.memory().is_empty());
    let Some(mut selected) = selected else { return };
    for (process, memory) in last_of_processes(trace.memory(), |memory| memory.process) {
        if !selected.has_process(process) {
            continue;
        }
        tell(memory, target.notes);
        for calls in &memory.calls {
            add_calls(target, view, &mut selected, process, calls);
        }
        if selected.has_all() {
            let numbers = allocations(memory.elsewhere);
            let of = Sums { memory: numbers, own_memory: numbers, ..Sums::default() };
            let function = nameless(OUTSIDE, target.functions);
            let key = selected.key(target, (process, None), function);
            if !numbers.is_none() {
                target.add(key, &of);
            }
        }
    }
}

fn add_calls(
    target: &mut Counts<'_>,
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
    let own = allocations(calls.own);
    // Calls of other groups than functions lie in each other, and only own numbers add up. A thread
    // has no total of its own as a function.
    let is_total = target.grouping.is_by_function() && calls.whose != MemoryOwner::Thread;
    let memory = if is_total { allocations(calls.total) } else { own };
    let slot = Slot { number: calls.slot, has_earlier: true };
    let key = selected.key(target, (process, Some(slot)), function);
    let of = Sums { memory, own_memory: own, ..Sums::default() };
    if !memory.is_none() || !own.is_none() {
        target.add(key, &of);
    }
}

/// A row that is no function.
fn nameless(name: &str, functions: &mut Functions) -> FunctionNumber {
    functions.number(Function::of(FunctionIdentity { name: name.to_owned(), ..FunctionIdentity::default() }))
}

/// Counts a process whose allocations were not seen, or only in part.
fn tell(memory: &Memory, notes: &mut Notes) {
    notes.memory_not_seen += u64::from(!memory.is_seen);
    notes.memory_without_sizes += u64::from(!memory.has_sizes);
    notes.memory_own_allocator += u64::from(memory.own_allocator);
}

fn allocations(of: MemoryNumbers) -> Allocations {
    let MemoryNumbers { allocated, allocated_blocks: blocks, freed, freed_blocks } = of;
    Allocations { allocated, blocks, freed, freed_blocks }
}
