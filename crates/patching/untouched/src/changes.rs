//! A plan's changes as addresses and bytes of a process, and their way there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use everycall_inject::{InjectError, Mapping, Move, Outcome, Patch, PatchSet, Process, gap_near};
use everycall_rewrite::{FileKind, PatchKind, Plan};

const PAGE: u64 = 4096;
const INT3: u8 = 0xcc;
const SHORT_JUMP: u8 = 0xeb;
/// Bytes of a jump that reaches everything.
const JUMP: usize = 5;
/// Attempts to change functions that threads are in, and the time between two of them.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

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

/// A plan with its region where there is room for it: near the module, but not behind a program,
/// where its heap grows. `size`: what has to fit there, the first `before` bytes before the region.
pub(crate) fn placed(mut plan: Plan, maps: &[Mapping], module: Range<u64>, before: u64, size: u64) -> Plan {
    let base = plan.base(module.start);
    let mut taken = maps.to_vec();
    taken.extend(island_pages(&plan, base).into_keys().map(|page| Mapping {
        range: page..page + PAGE,
        is_readable: true,
        is_writable: false,
        is_executable: true,
        name: String::new(),
        inode: 0,
    }));
    taken.sort_by_key(|mapping| mapping.range.start);
    let gap = gap_near(&taken, module.clone(), size);
    let gap = gap.filter(|gap| *gap < module.start || plan.kind == FileKind::Library);
    if let Some(gap) = gap {
        // If displacements don't allow it, its own place may be free.
        let _ = plan.move_region((gap + before).wrapping_sub(base).cast_signed());
    }
    plan
}

/// Where the code of a module leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// Its functions call hooks.
    ToTrampolines,
    /// They are as they were.
    Back,
}

/// Changes functions. Those in which a thread can't be moved are tried again, and left alone at
/// last.
pub(crate) fn lead(
    process: &mut Process,
    mut sets: Vec<PatchSet>,
    to: Lead,
    patience: Duration,
) -> Result<u64, InjectError> {
    let mut done = 0;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        let outcomes = process.with_all_stopped(patience, |stopped| match to {
            Lead::ToTrampolines => stopped.apply(&sets),
            Lead::Back => stopped.undo(&sets),
        })?;
        done += outcomes.iter().filter(|outcome| **outcome == Outcome::Done).count() as u64;
        let mut outcomes = outcomes.into_iter();
        sets.retain(|_| outcomes.next() == Some(Outcome::InUse));
        if sets.is_empty() {
            break;
        }
    }
    Ok(done)
}
