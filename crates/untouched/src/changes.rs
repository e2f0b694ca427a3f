//! A plan's changes as addresses and bytes of a process.

use std::collections::BTreeMap;

use everycall_inject::{Move, Patch, PatchSet};
use everycall_rewrite::{PatchKind, Plan};

const PAGE: u64 = 4096;
const INT3: u8 = 0xcc;
const SHORT_JUMP: u8 = 0xeb;
/// Bytes of a jump that reaches everything.
const JUMP: usize = 5;

/// The pages of a plan's islands, by their addresses. `base` is that of the module's address 0.
pub fn island_pages(plan: &Plan, base: u64) -> BTreeMap<u64, Vec<u8>> {
    let mut pages: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for island in &plan.islands {
        let at = base.wrapping_add_signed(island.at);
        let (page, offset) = (at & !(PAGE - 1), (at % PAGE) as usize);
        let bytes = pages.entry(page).or_insert_with(|| vec![INT3; PAGE as usize]);
        if let Some(bytes) = bytes.get_mut(offset..offset + island.bytes.len()) {
            bytes.copy_from_slice(&island.bytes);
        }
    }
    pages
}

/// The patches and moves of each of a plan's functions. `base` is that of the module's address 0.
pub fn patch_sets(plan: &Plan, base: u64) -> Vec<PatchSet> {
    let mut sets = vec![PatchSet::default(); plan.functions.len()];
    let mut patches: Vec<&everycall_rewrite::Patch> = plan.patches.iter().collect();
    // Short jumps lead to others, which have to be there before.
    patches.sort_by_key(|patch| {
        let is_short = patch.kind == PatchKind::Window && patch.new.first() == Some(&SHORT_JUMP);
        (is_short && patch.new.len() < JUMP, patch.kind != PatchKind::Slot, patch.at)
    });
    for patch in patches {
        if let Some(set) = sets.get_mut(patch.function as usize) {
            let at = base.wrapping_add(patch.at);
            set.patches.push(Patch { at, old: patch.old.to_vec(), new: patch.new.to_vec() });
        }
    }
    for one in &plan.moves {
        if let Some(set) = sets.get_mut(plan.function_of(one) as usize) {
            let to = base.wrapping_add_signed(plan.region + i64::from(one.to));
            set.moves.push(Move { from: base.wrapping_add(one.from), to });
        }
    }
    sets
}
