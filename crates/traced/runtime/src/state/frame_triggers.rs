//! Compares names of frames by id with the patterns of triggers.

use crate::state::arena::Arena;
use crate::state::frames::{self, Name};
use crate::state::named_frames::{are_any, clear, lock, put};
use crate::state::trigger_table::Triggers;
use everycall_format::frame_pattern::matches;

/// The rules of an area that mean this name.
fn rules_for(triggers: &Triggers, name: &Name<'_>) -> u32 {
    let rules = triggers.frame_rules().filter(|(_, pattern)| matches(pattern, name.name, name.file));
    rules.fold(0, |all, (rule, _)| all | 1 << rule)
}

/// An id was named. Returns whether it is the first frame that the rules of an area name.
pub(crate) fn look_at(arena: &Arena, name: &Name<'_>) -> bool {
    let _lock = lock();
    let mut is_first = false;
    for triggers in Triggers::all(arena) {
        let had_any = are_any(triggers.area);
        put(triggers.area, name.id, rules_for(&triggers, name));
        is_first |= !had_any && are_any(triggers.area);
    }
    is_first
}

/// An area has got its rules: compares all names. `begin` puts it into use: names that are stored
/// from then on are compared one by one.
pub(crate) fn begin(arena: &Arena, triggers: &Triggers, begin: impl FnOnce()) {
    let _lock = lock();
    clear(triggers.area);
    if triggers.frame_rules().next().is_some() {
        frames::each(arena, |name| put(triggers.area, name.id, rules_for(triggers, &name)));
    }
    begin();
}
