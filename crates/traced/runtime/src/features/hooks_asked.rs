//! Hooks for programs that were built without them: a recorder writes them, from outside, when a
//! process asks for them.

use crate::state::hub;
use crate::state::process;
use everycall_format::arena::counter;

/// Asks for hooks in what was loaded since the last time, and waits for them. Nothing of the
/// runtime may be locked.
pub(crate) fn ask() {
    let Some(hub) = hub::hub() else { return };
    if !hub.ask_for_hooks()
        && let Some(process) = process::process()
    {
        process.arena().count(counter::RECORDER_LATE, 1);
    }
}
