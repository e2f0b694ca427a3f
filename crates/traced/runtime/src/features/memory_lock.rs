//! `mlockall` without the runtime's own memory. Most of that is unused address space, which the
//! kernel would fill with pages, or count against the limit.
#![allow(unsafe_code)] // Called by the kit's wrapper through a table.

use crate::state::process;
use crate::sys::{mapping, system};
use core::ops::Range;
use everycall_hooks::arch;

const CURRENT: u32 = 1;
const FUTURE: u32 = 2;
const ON_FAULT: u32 = 4;

/// See [`everycall_hooks::RuntimeTable::lock_memory`].
pub(crate) unsafe extern "C" fn lock_memory(flags: u32) -> i32 {
    let result = match process::own_memory() {
        Some(own) => lock(flags, own),
        None => system::lock_all(flags),
    };
    result.err().map_or(0, |error| -error as i32)
}

fn lock(flags: u32, mut own: [Range<u64>; 3]) -> Result<(), isize> {
    own.sort_unstable_by_key(|range| range.start);
    let mut bytes = 0;
    if !each_of_the_program(&own, |start, end| bytes += end - start) {
        return system::lock_all(flags);
    }
    if bytes > system::locked_memory_limit() {
        // A process that may lock more than the limit may lock everything. Of the runtime's memory,
        // only touched pages are locked.
        system::lock_all(CURRENT | ON_FAULT)?;
    }
    if flags & FUTURE != 0 {
        system::lock_all(flags & !CURRENT)?;
    }
    // As in the kernel: what can't be in memory is skipped.
    each_of_the_program(&own, |start, end| system::lock_range(start, end - start, flags & ON_FAULT != 0));
    Ok(())
}

/// Passes each mapping, or part of one, that isn't the runtime's. Returns false if the mappings
/// can't be read.
fn each_of_the_program(own: &[Range<u64>; 3], mut then: impl FnMut(u64, u64)) -> bool {
    mapping::each(|mapping| {
        let (mut start, end) = (mapping.start, mapping.end.min(arch::USER_END));
        for own in own {
            let until = own.start.min(end);
            if start < until {
                then(start, until);
            }
            start = start.max(own.end);
        }
        if start < end {
            then(start, end);
        }
    })
}
