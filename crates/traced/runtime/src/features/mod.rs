//! Features of the runtime besides recording, one file for each.
//!
//! ```text
//! snapshot         snapshots that the program takes of its own rings
//! snapshot_signal  snapshots on a signal
//! keeper           keeps calls that met a trigger, without a recorder
//! choice           which calls it keeps
//! set_file         files with sets of functions, read at the start
//! site_set         the set of functions that its triggers name
//! crash            the arena in a file that outlives the process
//! hooks_asked      hooks for what was built without them, by the recorder
//! fork             a forked child gets an arena of its own
//! pause            recording off and on again, for one thread or all
//! control          other processes choose what is recorded, through a socket
//! live_triggers    triggers that others arm while the process runs
//! budget           switches functions off until tracing costs no more than it may
//! calibration      measures what the hooks cost, at the start
//! captures         the set of functions whose values are recorded, and their modules
//! left_out         functions that the program itself leaves out, and its own selection
//! min_duration     from which duration on calls are recorded
//! modules          traced objects are loaded and unloaded
//! live             the loaded modules, and whether their sites are on
//! bits             which functions hooks record that are always called
//! sites            the sites that a module lists
//! counted          where hooks find the counts of functions, where calls are only counted
//! frames           frames by id: when their hooks are on, and their names
//! marks            single functions off or on, beside the whole process
//! plain_exits      tail exits that no list has, in armed functions
//! xray             XRay's own interface: function ids, and the program's handlers
//! switch           rewrites sites while all threads run
//! calling          actions on the calling thread
//! memory_lock      `mlockall`, without the runtime's own memory
//! address_space    `RLIMIT_AS`, without the runtime's own memory
//! ```

pub(crate) mod address_space;
pub(crate) mod bits;
pub(crate) mod budget;
pub(crate) mod calibration;
pub(crate) mod calling;
pub(crate) mod captures;
pub(crate) mod choice;
pub(crate) mod code_frames;
pub(crate) mod control_server;
pub(crate) mod counted;
pub(crate) mod crash;
pub(crate) mod fork;
pub(crate) mod frame_bits;
pub(crate) mod frames;
pub(crate) mod hooks_asked;
pub(crate) mod keeper;
pub(crate) mod left_out;
pub(crate) mod live_triggers;
pub(crate) mod loaded_modules;
pub(crate) mod marks;
pub(crate) mod memory_lock;
pub(crate) mod min_duration;
pub(crate) mod modules;
pub(crate) mod pause;
pub(crate) mod plain_exits;
pub(crate) mod set_file;
pub(crate) mod site_set;
pub(crate) mod sites;
pub(crate) mod snapshot;
pub(crate) mod snapshot_signal;
pub(crate) mod switch;
pub(crate) mod xray;
