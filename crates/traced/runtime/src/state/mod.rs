//! Plain structures: the state of the process, its threads, stacks, modules and triggers, and the
//! rules for access to it.
//!
//! ```text
//! process          the process's state: private, wiped in a forked child
//! arena            typed access to the shared memory
//! local            a thread's data in its thread-local slot
//! ranges           the known stacks that aren't threads' own
//! slow_stacks      the stacks of the slow path
//! module_table     which entry and range of the code space a module gets
//! places           which module contains an address
//! trigger_table    armed functions and posted calls
//! own_triggers     the same, as written by the process itself
//! live_areas       which areas for clients' triggers are in use
//! thresholds       the thresholds of a set of functions
//! selection        which functions are recorded
//! capture_sets     sets that say whose values are recorded, and their union
//! captures         which values are copied at the functions of a module
//! last_error       where threads have the C library's `errno`
//! constants        read-only memory that values are read from without asking the kernel
//! off_ranges       functions that are off by themselves and whose hooks are always called
//! dropped          counts of calls that are not recorded
//! all_calls        counts of all calls, beside the rings
//! stamps           which events have a time of their own
//! times, memory    what these calls took, and what they allocated
//! frames           names of frames by id
//! named_frames     which triggers name which of them
//! frame_triggers   compares their names with those of triggers
//! code_log         names of code that a just-in-time compiler made, and the ids that it has
//! hub              how a process finds the recorder's arenas
//! beginning        the command line and folder with which the process was started
//! retired, cancelled, snapshots, kept_calls, crash_file, recording
//!                  plain data of the features and threads above
//! ```

/// A field of a structure in shared memory, at `$address`.
macro_rules! field {
    ($address:expr, $structure:ty, $field:ident, $atomic:ty) => {
        // SAFETY: the address is that of a whole, aligned structure in the arena, which is never
        // unmapped; atomics may be shared.
        unsafe { &*($address.wrapping_add(core::mem::offset_of!($structure, $field)).cast::<$atomic>()) }
    };
}

pub(crate) mod all_calls;
pub(crate) mod arena;
pub(crate) mod beginning;
pub(crate) mod cancelled;
pub(crate) mod capture_sets;
pub(crate) mod captures;
pub(crate) mod code_log;
pub(crate) mod constants;
pub(crate) mod crash_file;
pub(crate) mod dropped;
pub(crate) mod frame_triggers;
pub(crate) mod frames;
pub(crate) mod hub;
pub(crate) mod kept_calls;
pub(crate) mod last_error;
pub(crate) mod live_areas;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod module_table;
pub(crate) mod more_places;
pub(crate) mod named_frames;
pub(crate) mod off_ranges;
pub(crate) mod own_triggers;
pub(crate) mod places;
pub(crate) mod process;
pub(crate) mod ranges;
pub(crate) mod recording;
pub(crate) mod retired;
pub(crate) mod selection;
pub(crate) mod slow_stacks;
pub(crate) mod snapshots;
pub(crate) mod stamps;
pub(crate) mod thresholds;
pub(crate) mod times;
pub(crate) mod trigger_table;
pub(crate) mod value_counts;
