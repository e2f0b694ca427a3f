//! Plain structures: what is known of the process, its threads, stacks, modules and triggers, and
//! who may touch it.
//!
//! ```text
//! process        the process's state, private, gone in a forked child; what features keep of it lies beside
//! arena          typed access to the shared memory
//! local          what a thread has in its thread-local slot
//! ranges         the stacks that are known; slow_stacks: those of the slow path
//! module_table   which entry and range of the code space a module gets; places: where an address lies
//! trigger_table  armed functions and posted calls; own_triggers: those of an arena of our own; thresholds: of a set
//! retired, cancelled, snapshots, kept_calls, crash_file, recording   plain data of what the layers above do
//! hub            where the recorder's arenas are found
//! beginning      what the process was started with
//! ```

/// A field of a structure in shared memory, at `$address`.
macro_rules! field {
    ($address:expr, $structure:ty, $field:ident, $atomic:ty) => {
        // SAFETY: the address is that of a whole, aligned structure in the arena, which is never
        // unmapped; atomics may be shared.
        unsafe { &*($address.wrapping_add(core::mem::offset_of!($structure, $field)).cast::<$atomic>()) }
    };
}

pub(crate) mod arena;
pub(crate) mod beginning;
pub(crate) mod cancelled;
pub(crate) mod crash_file;
pub(crate) mod hub;
pub(crate) mod kept_calls;
pub(crate) mod local;
pub(crate) mod module_table;
pub(crate) mod own_triggers;
pub(crate) mod places;
pub(crate) mod process;
pub(crate) mod ranges;
pub(crate) mod recording;
pub(crate) mod retired;
pub(crate) mod slow_stacks;
pub(crate) mod snapshots;
pub(crate) mod thresholds;
pub(crate) mod trigger_table;
