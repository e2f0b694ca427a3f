//! A plan as bytes, to be kept for the next time.
//!
//! Numbers are LEB128, and addresses differences to the one before. Names are left out. Whoever
//! keeps the bytes adds what finds damage and tells files apart; a damaged plan is still one whose
//! numbers are within their bounds.

use crate::image::FileKind;
use crate::kinds::{HookKind, PatchKind};
use crate::layout::MAX_REGION;
use crate::plan::{HookCall, HookLayout, Island, LeftOut, Move, Patch, Plan, PlannedFunction, UnwindRow};
use crate::refusal::Refusal;
use crate::tactic::Tactic;
use crate::unwind::UnwindState;

const FILE_KINDS: [FileKind; 3] = [FileKind::Pie, FileKind::Library, FileKind::Fixed];
const HOOK_KINDS: [HookKind; 3] = [HookKind::Entry, HookKind::Exit, HookKind::TailExit];
const PATCH_KINDS: [PatchKind; 5] =
    [PatchKind::Window, PatchKind::Copy, PatchKind::Slot, PatchKind::Displacement, PatchKind::Call];

/// A hash of this crate's sources.
const PLANNER: u64 = match u64::from_str_radix(env!("EVERYCALL_PLANNER_SOURCES"), 10) {
    Ok(hash) => hash,
    Err(_) => 0,
};

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut value: u64) {
        while value > 127 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn signed(&mut self, value: i64) {
        self.number((value << 1 ^ value >> 63) as u64);
    }

    /// The difference to the last value, which becomes this one.
    fn step(&mut self, last: &mut i64, value: i64) {
        self.signed(value.wrapping_sub(*last));
        *last = value;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn kind<T: PartialEq>(&mut self, all: &[T], value: &T) {
        self.number(all.iter().position(|one| one == value).unwrap_or(all.len()) as u64);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn step(&mut self, last: &mut i64) -> Option<i64> {
        *last = last.wrapping_add(self.signed()?);
        Some(*last)
    }

    /// Like [`Self::step`], for values that have fewer bits.
    fn small_step(&mut self, last: &mut i64) -> Option<u32> {
        u32::try_from(self.step(last)?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    fn kind<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::try_from(self.number()?).ok()?).copied()
    }

    /// A list, of which no more is allocated than its bytes can make.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| one(self)).collect()
    }
}

impl Plan {
    /// Which planner makes plans: changes with this crate's sources. Plans that another one made
    /// must not be used.
    pub const PLANNER: u64 = PLANNER;

    /// All of the plan but names.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(4 * self.code.len()));
        out.bytes(&self.build_id);
        out.kind(&FILE_KINDS, &self.kind);
        out.number(self.module.start);
        out.number(self.module.end);
        out.signed(self.region);
        let HookLayout { reserved, entry, exit, tail_exit } = self.hooks;
        [reserved, entry, exit, tail_exit].iter().for_each(|&number| out.number(number.into()));
        out.bytes(&self.code);
        let mut last = 0;
        out.number(self.to_module.len() as u64);
        self.to_module.iter().for_each(|&field| out.step(&mut last, field.into()));
        let (mut last, mut function) = (0, 0);
        out.number(self.patches.len() as u64);
        for patch in &self.patches {
            out.step(&mut last, patch.at as i64);
            out.kind(&PATCH_KINDS, &patch.kind);
            out.step(&mut function, patch.function.into());
            out.bytes(&patch.old);
            out.bytes(&patch.new);
        }
        last = 0;
        out.number(self.islands.len() as u64);
        for island in &self.islands {
            out.step(&mut last, island.at);
            out.0.extend(island.bytes);
        }
        let (mut last, mut to) = (0, 0);
        out.number(self.moves.len() as u64);
        for one in &self.moves {
            out.step(&mut last, one.from as i64);
            out.step(&mut to, one.to.into());
        }
        let (mut last, mut function, mut from) = (0, 0, 0);
        out.number(self.calls.len() as u64);
        for call in &self.calls {
            out.step(&mut last, call.at.into());
            out.step(&mut function, call.function.into());
            out.kind(&HOOK_KINDS, &call.kind);
            out.step(&mut from, call.from as i64);
        }
        last = 0;
        out.number(self.rows.len() as u64);
        for row in &self.rows {
            out.step(&mut last, row.at.into());
            out.number(row.state.map_or(0, |state| u64::from(state) + 1));
        }
        out.number(self.states.len() as u64);
        for state in &self.states {
            let Some(state) = state else {
                out.number(0);
                continue;
            };
            out.number(u64::from(state.cfa_register) + 1);
            out.signed(state.cfa_offset);
            out.number(state.saved.len() as u64);
            for &(register, offset) in &state.saved {
                out.number(register.into());
                out.signed(offset);
            }
        }
        last = 0;
        out.number(self.functions.len() as u64);
        for function in &self.functions {
            out.step(&mut last, function.start as i64);
            out.number(function.size);
            out.kind(&Tactic::ALL, &function.tactic);
        }
        last = 0;
        out.number(self.left_out.len() as u64);
        for function in &self.left_out {
            out.step(&mut last, function.start as i64);
            out.kind(&Refusal::ALL, &function.refusal);
        }
        out.0
    }

    /// The plan whose bytes these are; its names are empty. `None` if they are damaged in a way
    /// that can be seen.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let input = &mut Reader(bytes);
        let build_id = input.bytes()?.to_vec();
        let kind = input.kind(&FILE_KINDS)?;
        let module = input.number()?..input.number()?;
        let region = input.signed()?;
        let (reserved, entry, exit, tail_exit) =
            (input.small()?, input.small()?, input.small()?, input.small()?);
        let hooks = HookLayout { reserved, entry, exit, tail_exit };
        let code = input.bytes()?.to_vec();
        let mut last = 0;
        let to_module = input.list(|input| input.small_step(&mut last))?;
        let (mut last, mut function) = (0, 0);
        let patches = input.list(|input| {
            Some(Patch {
                at: input.step(&mut last)? as u64,
                kind: input.kind(&PATCH_KINDS)?,
                function: input.small_step(&mut function)?,
                old: input.bytes()?.into(),
                new: input.bytes()?.into(),
            })
        })?;
        last = 0;
        let islands = input.list(|input| {
            Some(Island { at: input.step(&mut last)?, bytes: input.take(5)?.try_into().ok()? })
        })?;
        let (mut last, mut to) = (0, 0);
        let moves = input.list(|input| {
            Some(Move { from: input.step(&mut last)? as u64, to: input.small_step(&mut to)? })
        })?;
        let (mut last, mut function, mut from) = (0, 0, 0);
        let calls = input.list(|input| {
            Some(HookCall {
                at: input.small_step(&mut last)?,
                function: input.small_step(&mut function)?,
                kind: input.kind(&HOOK_KINDS)?,
                from: input.step(&mut from)? as u64,
            })
        })?;
        last = 0;
        let rows = input.list(|input| {
            Some(UnwindRow { at: input.small_step(&mut last)?, state: input.small()?.checked_sub(1) })
        })?;
        let states = input.list(|input| {
            let Some(register) = input.small()?.checked_sub(1) else { return Some(None) };
            let cfa_register = u16::try_from(register).ok()?;
            let cfa_offset = input.signed()?;
            let saved = input.list(|input| Some((u16::try_from(input.number()?).ok()?, input.signed()?)))?;
            Some(Some(UnwindState { cfa_register, cfa_offset, saved }))
        })?;
        last = 0;
        let functions = input.list(|input| {
            let start = input.step(&mut last)? as u64;
            let size = input.number()?;
            Some(PlannedFunction { start, size, name: String::new(), tactic: input.kind(&Tactic::ALL)? })
        })?;
        last = 0;
        let left_out = input.list(|input| {
            let start = input.step(&mut last)? as u64;
            Some(LeftOut { start, name: String::new(), refusal: input.kind(&Refusal::ALL)? })
        })?;
        let plan = Self {
            build_id,
            kind,
            module,
            region,
            hooks,
            code,
            to_module,
            patches,
            islands,
            moves,
            calls,
            rows,
            states,
            functions,
            left_out,
        };
        (input.0.is_empty() && plan.is_in_bounds()).then_some(plan)
    }

    /// Whether all is in order, disjoint, and within what it belongs to.
    fn is_in_bounds(&self) -> bool {
        let (reserved, size) = (u64::from(self.hooks.reserved), self.code.len() as u64);
        let end = reserved + size;
        let is_trampoline = |at: u32, length: u64| u64::from(at) >= reserved && u64::from(at) + length <= end;
        let is_function = |index: u32| (index as usize) < self.functions.len();
        let is_patch = |patch: &Patch| {
            let end = patch.at.checked_add(patch.new.len() as u64);
            let is_inside = patch.at >= self.module.start && end.is_some_and(|end| end <= self.module.end);
            is_inside
                && !patch.new.is_empty()
                && patch.old.len() == patch.new.len()
                && is_function(patch.function)
        };
        let is_row = |row: &UnwindRow| {
            is_trampoline(row.at, 1) && row.state.is_none_or(|state| (state as usize) < self.states.len())
        };
        let reach = -(1_i64 << 40)..1_i64 << 56;
        self.module.start < self.module.end
            && reach.contains(&self.region)
            && self.module.end < 1 << 56
            && size <= MAX_REGION as u64
            && reserved <= MAX_REGION as u64
            && self.to_module.is_sorted_by(|one, next| u64::from(*one) + 4 <= u64::from(*next))
            && self.to_module.iter().all(|&field| is_trampoline(field, 4))
            && self.patches.iter().all(is_patch)
            && self.patches.is_sorted_by(|one, next| one.at + one.new.len() as u64 <= next.at)
            && self.islands.iter().all(|island| reach.contains(&island.at))
            && self.islands.is_sorted_by(|one, next| one.at + 5 <= next.at)
            && self.moves.iter().all(|one| is_trampoline(one.to, 1))
            && self.moves.is_sorted_by(|one, next| one.from < next.from)
            && self.calls.iter().all(|call| is_trampoline(call.at, 5) && is_function(call.function))
            && self.calls.is_sorted_by(|one, next| one.at < next.at)
            && self.rows.iter().all(is_row)
            && self.rows.is_sorted_by(|one, next| one.at < next.at)
            && self.functions.is_sorted_by(|one, next| one.start < next.start)
            && self.left_out.is_sorted_by(|one, next| one.start < next.start)
    }
}
