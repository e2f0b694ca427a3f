//! A plan: what has to be mapped and written so that a loaded file calls hooks.

use std::ops::Range;

use crate::choose::Choice;
use crate::error::RewriteError;
use crate::flow::Unit;
use crate::image::{FileKind, Image};
use crate::kinds::{HookKind, PatchKind};
use crate::layout::{MAX_REGION, PAGE, region_below};
use crate::parallel;
use crate::refusal::Refusal;
use crate::tactic::Tactic;
use crate::trampoline::{Emitter, Output};
use crate::unwind::{Unwind, UnwindState};

/// As long as a call.
const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

/// Where the hooks are, from the region's start on.
///
/// Whoever applies the plan puts them there. Hooks preserve all registers, vector registers
/// included; flags and the red zone are free where they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookLayout {
    /// The trampolines begin behind so many bytes.
    pub reserved: u32,
    /// For [`HookKind::Entry`].
    pub entry: u32,
    /// For [`HookKind::Exit`].
    pub exit: u32,
    /// For [`HookKind::TailExit`].
    pub tail_exit: u32,
}

impl HookLayout {
    /// Where the hooks of one kind are.
    pub fn of(&self, kind: HookKind) -> u32 {
        match kind {
            HookKind::Entry => self.entry,
            HookKind::Exit => self.exit,
            HookKind::TailExit => self.tail_exit,
        }
    }
}

impl Default for HookLayout {
    fn default() -> Self {
        Self { reserved: 4096, entry: 0, exit: 64, tail_exit: 128 }
    }
}

/// Bytes of the module that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// From the module's address 0.
    pub at: u64,
    /// The kind of code that it replaces.
    pub kind: PatchKind,
    /// The bytes that must be there before.
    pub old: Box<[u8]>,
    /// As many bytes.
    pub new: Box<[u8]>,
    /// The index of the function that it belongs to.
    pub function: u32,
}

/// A jump away from the module and its trampolines, on a page of its own or of several islands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Island {
    /// From the module's address 0.
    pub at: i64,
    /// `jmp` to a trampoline.
    pub bytes: [u8; 5],
}

/// Where a thread goes on that was stopped before a replaced instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The instruction, from the module's address 0.
    pub from: u64,
    /// Its place, from the region's start.
    pub to: u32,
}

/// A call of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookCall {
    /// Of the five bytes of the call, from the region's start. What it returns to is the code
    /// offset that the hook sees.
    pub at: u32,
    /// The index of the function.
    pub function: u32,
    /// Which hook.
    pub kind: HookKind,
    /// The instruction that it stands before, from the module's address 0: the function's first
    /// one, or the one by which it leaves, if that isn't in another part of the function.
    pub from: u64,
}

/// From a place in the region on, how to find the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindRow {
    /// From the region's start.
    pub at: u32,
    /// The index of the state; `None` if unwinding isn't possible there.
    pub state: Option<u32>,
}

/// A function with hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFunction {
    /// From the module's address 0.
    pub start: u64,
    /// Bytes of all its parts.
    pub size: u64,
    /// Empty if no symbol names it.
    pub name: String,
    /// That of its worst entry or exit.
    pub tactic: Tactic,
}

/// A function without hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// From the module's address 0.
    pub start: u64,
    /// Empty if no symbol names it.
    pub name: String,
    /// Why.
    pub refusal: Refusal,
}

/// All changes of a loaded file. All places are relative to where it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of the file that it was made for. It must not be applied to another one.
    pub build_id: Vec<u8>,
    /// The kind of the file.
    pub kind: FileKind,
    /// The addresses that the file takes in memory.
    pub module: Range<u64>,
    /// Where the region of hooks and trampolines has to be mapped, from the module's address 0.
    /// [`Plan::move_region`] changes it.
    pub region: i64,
    /// Where the hooks are in it.
    pub hooks: HookLayout,
    /// The trampolines, behind [`HookLayout::reserved`] bytes.
    pub code: Vec<u8>,
    /// The displacements of 32 bits in `code` that lead to the module, from the region's start.
    /// Sorted.
    pub to_module: Vec<u32>,
    /// Sorted, disjoint.
    pub patches: Vec<Patch>,
    /// Sorted, disjoint.
    pub islands: Vec<Island>,
    /// Sorted.
    pub moves: Vec<Move>,
    /// Sorted.
    pub calls: Vec<HookCall>,
    /// Sorted.
    pub rows: Vec<UnwindRow>,
    /// The states that rows refer to.
    pub states: Vec<Option<UnwindState>>,
    /// Sorted.
    pub functions: Vec<PlannedFunction>,
    /// Sorted.
    pub left_out: Vec<LeftOut>,
}

/// The inputs of a plan.
pub(crate) struct Ingredients<'a> {
    pub(crate) image: &'a Image<'a>,
    pub(crate) unwind: &'a Unwind,
    pub(crate) units: &'a [Unit<'a>],
    pub(crate) choices: &'a [Choice],
}

impl Ingredients<'_> {
    /// `is_wanted`: by start and name.
    pub(crate) fn plan(
        &self,
        hooks: HookLayout,
        is_wanted: &dyn Fn(u64, &str) -> bool,
    ) -> Result<Plan, RewriteError> {
        let mut functions = Vec::new();
        let mut left_out = Vec::new();
        let mut planned: Vec<(u32, &Unit<'_>, &Choice)> = Vec::new();
        for (unit, choice) in
            self.units.iter().zip(self.choices).filter(|(unit, _)| is_wanted(unit.start, unit.name))
        {
            let (start, name) = (unit.start, unit.name.to_owned());
            match choice.outcome {
                Ok(tactic) => {
                    planned.push((functions.len() as u32, unit, choice));
                    functions.push(PlannedFunction { start, size: unit.size(), name, tactic });
                }
                Err(refusal) => left_out.push(LeftOut { start, name, refusal }),
            }
        }
        let outputs = parallel::chunks(&planned, |_, planned| {
            let mut emitter = Emitter::new(self.image, self.unwind);
            planned.iter().for_each(|&(index, unit, choice)| emitter.function(index, unit, choice));
            emitter.out
        });
        let size = outputs.iter().map(|output| output.code.len() as i64).sum::<i64>();
        let size = (size + i64::from(hooks.reserved) + PAGE as i64 - 1) & !(PAGE as i64 - 1);
        if size > MAX_REGION {
            return Err(RewriteError::TooLarge);
        }
        let place = region_below(self.image);
        let region = if self.image.kind == FileKind::Fixed { place.0 } else { place.1 - size };
        let mut plan = Plan {
            build_id: self.image.build_id.clone(),
            kind: self.image.kind,
            module: self.image.range.0..self.image.range.1,
            region,
            hooks,
            code: Vec::new(),
            to_module: Vec::new(),
            patches: Vec::new(),
            islands: Vec::new(),
            moves: Vec::new(),
            calls: Vec::new(),
            rows: Vec::new(),
            states: self.unwind.states().to_vec(),
            functions,
            left_out,
        };
        outputs.into_iter().for_each(|output| plan.add(self.image, output));
        plan.patches.sort_by_key(|patch| patch.at);
        plan.islands.sort_by_key(|island| island.at);
        plan.moves.sort_unstable();
        plan.moves.dedup_by_key(|one| one.from);
        Ok(plan)
    }
}

impl Plan {
    /// Gives trampolines their place.
    fn add(&mut self, image: &Image<'_>, output: Output) {
        let base = self.hooks.reserved + self.code.len() as u32;
        let region = self.region;
        // The displacement from a place in the module, or an address, to an offset of the output.
        let to_region = |from: i64, offset: u32| (region + i64::from(base + offset) - from) as i32;
        let mut code = output.code;
        let mut change = |field: u32, value: &dyn Fn(i32) -> i32| {
            let range = field as usize..field as usize + 4;
            if let Some(bytes) = code.get_mut(range)
                && let Ok(old) = <[u8; 4]>::try_from(&*bytes)
            {
                bytes.copy_from_slice(&value(i32::from_le_bytes(old)).to_le_bytes());
            }
        };
        let moved_by = (region + i64::from(base)) as i32;
        output.to_module.iter().for_each(|&field| change(field, &|value| value.wrapping_sub(moved_by)));
        for call in &output.hooks {
            let target = i64::from(self.hooks.of(call.kind)) - i64::from(base + call.at + 5);
            change(call.at + 1, &|_| target as i32);
            self.calls.push(HookCall {
                at: base + call.at,
                function: call.unit,
                kind: call.kind,
                from: call.from,
            });
        }
        self.code.extend(code);
        self.to_module.extend(output.to_module.iter().map(|field| base + field));
        for patch in output.patches {
            let mut new = patch.bytes;
            for (field, to) in patch.fields {
                let end = patch.at as i64 + field as i64 + 4;
                if let Some(bytes) = new.get_mut(field..field + 4) {
                    bytes.copy_from_slice(&to_region(end, to).to_le_bytes());
                }
            }
            let old = image.bytes(patch.at, patch.at + new.len() as u64);
            self.patches.push(Patch {
                at: patch.at,
                kind: patch.kind,
                old: old.into(),
                new: new.into(),
                function: patch.unit,
            });
        }
        for (at, to) in output.islands {
            let displacement = to_region(at + 5, to).to_le_bytes();
            let bytes = [0xe9, displacement[0], displacement[1], displacement[2], displacement[3]];
            self.islands.push(Island { at, bytes });
        }
        self.moves.extend(output.moves.iter().map(|&(from, to)| Move { from, to: base + to }));
        self.rows.extend(output.rows.iter().map(|&(at, state)| UnwindRow { at: base + at, state }));
    }

    /// The difference between addresses in memory and those of the plan, if the module's first page
    /// is at `mapped`.
    pub fn base(&self, mapped: u64) -> u64 {
        self.kind.base(mapped, self.module.start)
    }

    /// Leaves the functions out that aren't wanted. Their trampolines stay, and nothing leads
    /// there.
    pub fn keep(&mut self, is_wanted: impl Fn(&PlannedFunction) -> bool) {
        let mut kept = 0;
        let numbers: Vec<Option<u32>> = self
            .functions
            .iter()
            .map(|function| {
                is_wanted(function).then(|| {
                    kept += 1;
                    kept - 1
                })
            })
            .collect();
        let number = |function: u32| numbers.get(function as usize).copied().flatten();
        let moves = std::mem::take(&mut self.moves);
        self.moves = moves.into_iter().filter(|one| number(self.function_of(one)).is_some()).collect();
        let renumbered = |function: &mut u32| number(*function).map(|new| *function = new).is_some();
        self.patches.retain_mut(|patch| renumbered(&mut patch.function));
        self.calls.retain_mut(|call| renumbered(&mut call.function));
        let mut index = 0..;
        self.functions.retain(|_| index.next().is_some_and(|index| number(index).is_some()));
    }

    /// The index of the function to which a move belongs.
    pub fn function_of(&self, one: &Move) -> u32 {
        let index = self.patches.partition_point(|patch| patch.at <= one.from);
        let before = index.checked_sub(1).and_then(|index| self.patches.get(index));
        let within = before.filter(|patch| one.from < patch.at + patch.new.len() as u64);
        // Others are of functions that are copied as a whole.
        let start = || self.functions.partition_point(|function| function.start <= one.from).wrapping_sub(1);
        within.map_or_else(|| start() as u32, |patch| patch.function)
    }

    /// The bytes that the region takes, hooks included.
    pub fn region_size(&self) -> u64 {
        (u64::from(self.hooks.reserved) + self.code.len() as u64).next_multiple_of(PAGE)
    }

    /// The trampolines with a hook at entries only: `stub` says where that of a function is, from
    /// the region's start on. At exits, the calls become a `nop` of the same length.
    pub fn code_with_stubs(&self, stub: impl Fn(u32) -> u32) -> Vec<u8> {
        let mut code = self.code.clone();
        for call in &self.calls {
            let at = call.at.wrapping_sub(self.hooks.reserved) as usize;
            let Some(bytes) = code.get_mut(at..at + NOP.len()) else { continue };
            if call.kind == HookKind::Entry {
                let end = i64::from(call.at) + NOP.len() as i64;
                let displacement = i64::from(stub(call.function)) - end;
                bytes[1..].copy_from_slice(&(displacement as i32).to_le_bytes());
            } else {
                bytes.copy_from_slice(&NOP);
            }
        }
        code
    }

    /// The call whose hook sees this code offset.
    pub fn call_at(&self, code_offset: u32) -> Option<&HookCall> {
        let at = code_offset.checked_sub(5)?;
        self.calls.binary_search_by_key(&at, |call| call.at).ok().and_then(|index| self.calls.get(index))
    }
}
