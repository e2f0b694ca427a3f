//! An independent check of plans: it reads the file itself, decodes with another decoder, and
//! shares no code with the planner but the distribution of work to threads.
//!
//! - Patches are disjoint, none is on two pages, and the file has the bytes that they replace.
//! - Nothing that is known to be jumped to lies strictly within a patch.
//! - Every displacement leads where it should.
//! - Each trampoline does what the replaced instructions did, and calls hooks at entries and exits
//!   only. No call is moved.
//! - Each return of a hooked function runs in a trampoline.
//! - Stopped threads go on with the instruction that they were stopped before.

mod decode;
mod elf;
mod frames;
mod replay;
mod targets;
mod violation;

use rustc_hash::FxHashSet;

use self::decode::{Decoder, Next};
use self::elf::Loaded;
use self::replay::{Found, Replay};
use self::targets::{References, Source, nops};
pub use self::violation::{Rule, Violation};
use crate::kinds::PatchKind;
use crate::parallel;
use crate::plan::{Patch, Plan};

const JUMP: u8 = 0xe9;
const SHORT_JUMP: u8 = 0xeb;
const INT3: u8 = 0xcc;
const REACH: i64 = 1 << 31;

/// Checks a plan against the file that it was made for.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(file: &[u8], plan: &Plan) -> Result<(), Violation> {
    let file = Loaded::read(file).ok_or_else(|| Violation::new(Rule::File, 0, "can't be read"))?;
    let mut checker = Checker::new(&file, plan);
    checker.places()?;
    checker.disjoint()?;
    checker.pages()?;
    checker.bytes()?;
    checker.targets()?;
    checker.trampolines()?;
    checker.complete()?;
    checker.moves()?;
    checker.displacements()?;
    checker.rows()
}

struct Checker<'a> {
    file: &'a Loaded<'a>,
    plan: &'a Plan,
    known: References,
    replay: Replay<'a>,
    found: Found,
    decoder: Decoder,
}

fn ensure(holds: bool, rule: Rule, at: u64, what: &str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(rule, at, what)) }
}

/// The bytes that a patch relies on: a jump may end with bytes that stay as they are.
fn extent(patch: &Patch) -> u64 {
    let length = patch.new.len() as u64;
    let is_pun = patch.kind == PatchKind::Window && patch.new.first() == Some(&JUMP);
    patch.at + if is_pun { length.max(5) } else { length }
}

impl<'a> Checker<'a> {
    fn new(file: &'a Loaded<'a>, plan: &'a Plan) -> Self {
        let displacements = plan.patches.iter().filter(|patch| patch.kind == PatchKind::Displacement);
        let displacements: FxHashSet<u64> = displacements.map(|patch| patch.at).collect();
        let planned: FxHashSet<u64> = plan.functions.iter().map(|function| function.start).collect();
        let known = References::of(file, &planned, &displacements);
        let replay = Replay::new(file, plan);
        Self { file, plan, known, replay, found: Found::default(), decoder: Decoder::new() }
    }

    /// The region and islands are beside the module, in reach of all of it.
    fn places(&self) -> Result<(), Violation> {
        let plan = self.plan;
        let (low, high) = (self.file.range.0 as i64, self.file.range.1 as i64);
        let end = plan.region + i64::from(plan.hooks.reserved) + plan.code.len() as i64;
        let is_beside = end <= low || plan.region >= high;
        let is_in_reach = plan.region > high - REACH && end < low + REACH;
        let is_its = (plan.module.start, plan.module.end) == self.file.range;
        ensure(is_its, Rule::Places, 0, "the module is another one")?;
        ensure(is_beside && is_in_reach, Rule::Places, 0, "the region isn't beside the module")?;
        let mut last = i64::MIN;
        for island in &plan.islands {
            let (at, next) = (island.at, island.at.saturating_add(5));
            let is_clear = (next <= low || at >= high) && (next <= plan.region || at >= end);
            ensure(is_clear && at >= last, Rule::Places, 0, "an island isn't by itself")?;
            last = next;
        }
        Ok(())
    }

    fn disjoint(&self) -> Result<(), Violation> {
        let mut end = 0;
        for patch in &self.plan.patches {
            let is_behind = patch.at >= end && !patch.new.is_empty();
            ensure(is_behind, Rule::Disjoint, patch.at, "overlaps the patch before")?;
            end = extent(patch);
        }
        Ok(())
    }

    /// The kernel writes page by page: whoever writes a patch could be killed in between.
    fn pages(&self) -> Result<(), Violation> {
        const PAGE: u64 = 4096;
        for patch in &self.plan.patches {
            let last = patch.at + (patch.new.len() as u64).saturating_sub(1);
            ensure(patch.at / PAGE == last / PAGE, Rule::Pages, patch.at, "is on two pages")?;
        }
        Ok(())
    }

    fn bytes(&self) -> Result<(), Violation> {
        for patch in &self.plan.patches {
            let bytes = self.file.bytes(patch.at, patch.old.len());
            let is_same = bytes == &*patch.old && patch.old.len() == patch.new.len();
            ensure(is_same && self.file.is_code(patch.at), Rule::OldBytes, patch.at, "replaces other bytes")?;
        }
        Ok(())
    }

    fn entry(&self, patch: &Patch) -> Option<u64> {
        let start = self.plan.functions.get(patch.function as usize)?.start;
        let has_mark = self.file.bytes(start, 4) == [0xf3, 0x0f, 0x1e, 0xfa];
        Some(if has_mark { start + 4 } else { start })
    }

    fn targets(&self) -> Result<(), Violation> {
        for patch in &self.plan.patches {
            let first = patch.at + u64::from(matches!(patch.kind, PatchKind::Window | PatchKind::Copy));
            let owner = self.plan.functions.get(patch.function as usize).map_or(0, |function| function.start);
            let end = self.known.functions.get(&owner).copied().unwrap_or(owner);
            // Kept bytes that a jump ends with aren't in `new`, and may be jumped to.
            for (at, source) in self.known.within(first, patch.at + patch.new.len() as u64) {
                // Jumps within a copied function aren't run any more.
                let is_copied = patch.kind == PatchKind::Copy
                    && matches!(*source, Source::Jump(from) if from >= owner && from < end);
                ensure(is_copied, Rule::Targets, *at, "is jumped to, and within a patch")?;
            }
        }
        Ok(())
    }

    /// The address that the jump of five bytes at `at` leads to, by the bytes of its patch.
    fn jump(&self, bytes: &[u8], at: u64) -> Option<u64> {
        let decoded = self.decoder.decode(bytes, at).filter(|decoded| decoded.length == 5)?;
        match decoded.next {
            Next::Jump(target) if bytes.first() == Some(&JUMP) => Some(target),
            _ => None,
        }
    }

    /// The patch whose bytes include `at`.
    fn patch_at(&self, at: u64) -> Option<&'a Patch> {
        let index = self.plan.patches.partition_point(|patch| patch.at <= at).checked_sub(1)?;
        self.plan.patches.get(index).filter(|patch| at - patch.at < patch.new.len() as u64)
    }

    /// The place of the trampoline that a patch leads to.
    fn trampoline(&self, patch: &Patch) -> Option<u32> {
        let at = patch.at;
        let target = match patch.new.first() {
            Some(&JUMP) if patch.new.len() >= 5 => self.jump(&patch.new, at)?,
            Some(&JUMP) => {
                let mut bytes = patch.new.to_vec();
                let rest = self.file.bytes(at + bytes.len() as u64, 5 - bytes.len());
                bytes.extend(rest);
                let island = self.jump(&bytes, at)? as i64;
                let index = self.plan.islands.binary_search_by_key(&island, |island| island.at).ok()?;
                self.jump(&self.plan.islands.get(index)?.bytes, island as u64)?
            }
            Some(&SHORT_JUMP) => {
                let Next::Jump(slot) = self.decoder.decode(&patch.new, at)?.next else { return None };
                let other = self.patch_at(slot)?;
                let offset = (slot - other.at) as usize;
                let is_slot = match other.kind {
                    PatchKind::Slot => offset == 0,
                    PatchKind::Window => offset == 5,
                    PatchKind::Copy | PatchKind::Displacement | PatchKind::Call => false,
                };
                self.jump(other.new.get(offset..).filter(|_| is_slot)?, slot)?
            }
            _ => return None,
        };
        self.replay.place(target)
    }

    fn trampolines(&mut self) -> Result<(), Violation> {
        let parts = parallel::chunks(&self.plan.patches, |_, patches| {
            let mut found = Found::default();
            patches.iter().try_for_each(|patch| self.patch(patch, &mut found)).map(|()| found)
        });
        self.found = Found::all(parts.into_iter().collect::<Result<_, _>>()?);
        Ok(())
    }

    fn patch(&self, patch: &Patch, found: &mut Found) -> Result<(), Violation> {
        let entry = self.entry(patch);
        let entry = entry.ok_or_else(|| Violation::new(Rule::NewBytes, patch.at, "is no function's"))?;
        match patch.kind {
            PatchKind::Window | PatchKind::Copy => self.window(patch, entry, found),
            PatchKind::Slot => {
                let is_jump = self.jump(&patch.new, patch.at).and_then(|target| self.replay.place(target));
                let is_padding = self.known.is_dead(patch.at, patch.at + patch.new.len() as u64);
                ensure(is_jump.is_some() && is_padding, Rule::NewBytes, patch.at, "isn't a jump in padding")
            }
            PatchKind::Displacement => self.displacement(patch, entry, found),
            PatchKind::Call => self.first_call(patch, entry, found),
        }
    }

    fn window(&self, patch: &Patch, entry: u64, found: &mut Found) -> Result<(), Violation> {
        let place = self.trampoline(patch);
        let place =
            place.ok_or_else(|| Violation::new(Rule::NewBytes, patch.at, "leads to no trampoline"))?;
        let (mut end, mut is_over) = self.replay.run(found, patch.at, place, patch.function, entry)?;
        let patched = patch.at + patch.new.len() as u64;
        if patch.kind == PatchKind::Copy {
            return ensure(patch.at == entry, Rule::NewBytes, patch.at, "copies a function elsewhere");
        }
        // The last instruction that was moved doesn't continue, or there is nothing behind it.
        let mut padding = nops(&self.decoder, self.file.from(end));
        // Code behind it that nothing reaches was moved, too: compilers leave a `ret` behind NOPs.
        while is_over && padding < patched.saturating_sub(end) {
            let next = end + padding;
            let moved = self.plan.moves.binary_search_by_key(&next, |one| one.from).ok();
            let Some(dead) = moved.and_then(|index| self.plan.moves.get(index)) else { break };
            (end, is_over) = self.replay.run(found, next, dead.to, patch.function, entry)?;
            padding = nops(&self.decoder, self.file.from(end));
        }
        ensure(
            end >= patched || is_over && padding >= patched - end,
            Rule::NewBytes,
            patch.at,
            "replaces more than was moved",
        )?;
        let first = if patch.new.first() == Some(&SHORT_JUMP) { 2 } else { 5 };
        let is_filled =
            |from: usize| patch.new.get(from..).is_none_or(|rest| rest.iter().all(|byte| *byte == INT3));
        let has_slot = || patch.new.get(first) == Some(&JUMP) && is_filled(first + 5);
        ensure(is_filled(first) || has_slot(), Rule::NewBytes, patch.at, "leaves something behind its jump")
    }

    fn displacement(&self, patch: &Patch, entry: u64, found: &mut Found) -> Result<(), Violation> {
        let wrong = |what: &str| Violation::new(Rule::NewBytes, patch.at, what);
        let at = *self.known.jumps.get(&patch.at).ok_or_else(|| wrong("isn't a jump's displacement"))?;
        let end = patch.at + 4;
        let bytes: [u8; 4] = (*patch.new).try_into().map_err(|_| wrong("isn't a displacement"))?;
        let target = end.wrapping_add_signed(i32::from_le_bytes(bytes).into());
        let place = self.replay.place(target).ok_or_else(|| wrong("leads to no trampoline"))?;
        self.replay.tail_call(found, at, place, patch.function, entry)
    }

    fn first_call(&self, patch: &Patch, entry: u64, found: &mut Found) -> Result<(), Violation> {
        let wrong = |what: &str| Violation::new(Rule::NewBytes, patch.at, what);
        let bytes: [u8; 4] = (*patch.new).try_into().map_err(|_| wrong("isn't a displacement"))?;
        let call = patch.at - 1;
        if entry > call || !self.known.within(entry + 1, patch.at).is_empty() {
            return Err(Violation::new(Rule::Targets, patch.at, "is jumped to, and a function's first call"));
        }
        let target = (patch.at + 4).wrapping_add_signed(i32::from_le_bytes(bytes).into());
        let place = self.replay.place(target).ok_or_else(|| wrong("leads to no trampoline"))?;
        self.replay.first_call(found, call, place, patch.function, entry)
    }

    fn complete(&self) -> Result<(), Violation> {
        for call in &self.plan.calls {
            // A copied function may contain code that nothing reaches.
            let function = self.plan.functions.get(call.function as usize);
            let is_copied = function.is_some_and(|function| self.is_copied(function.start));
            let is_reached = is_copied || self.found.is_reached(call.at);
            ensure(is_reached, Rule::Complete, call.at.into(), "calls a hook, but isn't reached")?;
        }
        for function in &self.plan.functions {
            let returns = self.known.returns.get(&function.start).map_or(&[][..], Vec::as_slice);
            for &(at, before) in returns {
                let is_replaced = || self.patch_at(at).is_some() || !self.is_reached(at, before);
                let is_moved = self.found.is_moved(at) && is_replaced() || self.is_copied(function.start);
                ensure(is_moved, Rule::Complete, at, "returns without a hook")?;
            }
            let entered = self.found.is_moved(function.start) || self.found.is_moved(function.start + 4);
            ensure(entered, Rule::Complete, function.start, "is entered without a hook")?;
        }
        Ok(())
    }

    /// Whether something still leads to an instruction that isn't replaced. `before`: the
    /// instruction that continues with it.
    fn is_reached(&self, at: u64, before: Option<u64>) -> bool {
        let is_replaced = |from: u64| {
            let patch = self.patch_at(from);
            patch.is_some_and(|patch| matches!(patch.kind, PatchKind::Window | PatchKind::Copy))
        };
        let is_displaced = |from: u64| {
            let patches = &self.plan.patches;
            let next = patches.get(patches.partition_point(|patch| patch.at <= from));
            let jump = next.filter(|patch| patch.kind == PatchKind::Displacement);
            jump.is_some_and(|patch| self.known.jumps.get(&patch.at) == Some(&from))
        };
        let leads_there = |source: &Source| match *source {
            Source::Jump(from) => !is_replaced(from) && !is_displaced(from),
            Source::Other => true,
        };
        let continues = before.is_some_and(|from| !is_replaced(from) && !self.known.is_dead(from, at));
        continues
            || self.known.within(at, at + 1).iter().any(|(_, source)| leads_there(source))
            || self.found.is_left_to(at)
    }

    fn is_copied(&self, start: u64) -> bool {
        let patch = self.patch_at(start).or_else(|| self.patch_at(start + 4));
        patch.is_some_and(|patch| patch.kind == PatchKind::Copy)
    }

    fn moves(&self) -> Result<(), Violation> {
        for one in &self.plan.moves {
            let is_place = self.found.is_place(one.from, one.to);
            // Code of a copied function that nothing reaches may be anywhere in the copy.
            let is_right =
                is_place.unwrap_or_else(|| self.replay.place(self.replay_address(one.to)).is_some());
            ensure(is_right, Rule::Moves, one.from, "goes on elsewhere")?;
        }
        let moved = &self.found.moved;
        for patch in self.plan.patches.iter().filter(|patch| patch.kind == PatchKind::Window) {
            let end = patch.at + patch.new.len() as u64;
            let first = moved.partition_point(|at| *at <= patch.at);
            for at in moved.iter().skip(first).take_while(|at| **at < end) {
                let is_known = self.plan.moves.binary_search_by_key(at, |one| one.from).is_ok();
                ensure(is_known, Rule::Moves, *at, "isn't known to be moved")?;
            }
        }
        Ok(())
    }

    /// All displacements from trampolines to the module are known: they change if the region moves.
    fn displacements(&self) -> Result<(), Violation> {
        let plan = self.plan;
        let mut fields = plan.to_module.iter().copied().peekable();
        let mut calls = plan.calls.iter().map(|call| call.at).peekable();
        let mut place = plan.hooks.reserved;
        let wrong = |at: u32, what: &str| Violation::new(Rule::Displacements, at.into(), what);
        while let Some(code) = self.replay.code_at(place) {
            while calls.next_if(|at| *at < place).is_some() {}
            let Some(decoded) = self.decoder.decode(code, self.replay_address(place)) else {
                // Only unreachable code hasn't been decoded before.
                match calls.peek() {
                    Some(call) => place = *call,
                    None => break,
                }
                while fields.next_if(|field| *field < place).is_some() {}
                continue;
            };
            let end = place + decoded.length as u32;
            let target = match decoded.next {
                Next::Jump(target) | Next::Branch(target) => Some(target),
                _ => decoded.relative,
            };
            let target = target.filter(|&target| self.replay.place(target).is_none());
            if let Some(target) = target.filter(|_| calls.peek() != Some(&place)) {
                let field = fields.next_if(|field| *field >= place && *field + 4 <= end);
                let field = field.ok_or_else(|| wrong(place, "leads to the module, which isn't known"))?;
                let bytes = code.get((field - place) as usize..).and_then(|bytes| bytes.first_chunk());
                let value = i64::from(bytes.map_or(0, |bytes| i32::from_le_bytes(*bytes)));
                let leads_there = self.replay_address(end).wrapping_add_signed(value) == target;
                ensure(leads_there, Rule::Displacements, field.into(), "isn't the displacement")?;
            }
            place = end;
            ensure(
                fields.peek().is_none_or(|field| *field >= place),
                Rule::Displacements,
                place.into(),
                "is a displacement that doesn't lead to the module",
            )?;
        }
        match fields.next() {
            Some(field) => Err(wrong(field, "isn't in the trampolines")),
            None => Ok(()),
        }
    }

    fn replay_address(&self, place: u32) -> u64 {
        self.plan.region.wrapping_add(i64::from(place)) as u64
    }

    fn rows(&self) -> Result<(), Violation> {
        let end = u64::from(self.plan.hooks.reserved) + self.plan.code.len() as u64;
        let mut last = None;
        for row in &self.plan.rows {
            let is_sorted = last.is_none_or(|last| row.at > last) && u64::from(row.at) < end;
            let has_state = row.state.is_none_or(|state| (state as usize) < self.plan.states.len());
            ensure(is_sorted && has_state, Rule::Rows, row.at.into(), "isn't in order, or has no state")?;
            last = Some(row.at);
        }
        Ok(())
    }
}
