//! A forked child finds the process and every control block wiped. It runs untraced and is listed.

use crate::process::{self, Process, state as process_state};
use crate::{system, threads};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use everycall_format::arena::{ChildEntry, child_kind, counter};
use everycall_ring::{Control, state};

/// The first event of a thread in a child.
pub(crate) fn child(process: &'static Process, control: Option<&Control>) {
    match control {
        // The main thread's block, or one that a thread of the parent had: ours, private, blank.
        Some(control) => control.state.store(state::OFF, Relaxed),
        None => threads::leave_out(),
    }
    let first =
        process.state.compare_exchange(process_state::BLANK, process_state::OFF, AcqRel, Relaxed).is_ok();
    if first {
        list(child_kind::FORK);
        if let Some(arena) = process::inherited_arena() {
            arena.count(counter::FORKED_CHILDREN, 1);
        }
    }
}

/// Lists the calling process as one that isn't followed.
fn list(kind: u32) {
    if let Some(arena) = process::inherited_arena() {
        list_in(&arena, kind);
    }
}

/// Lists the calling process in `arena` as one that isn't followed.
pub(crate) fn list_in(arena: &crate::arena::Arena, kind: u32) {
    let mut name = [0; 40];
    let own = system::thread_name();
    for (place, byte) in name.iter_mut().zip(own) {
        *place = byte;
    }
    let entry = ChildEntry {
        pid: system::process_id(),
        parent: system::parent_id(),
        kind,
        reserved: 0,
        ticks: everycall_hooks::ticks(),
        name,
    };
    arena.put_child(arena.child_count().fetch_add(1, Relaxed), &entry);
}
