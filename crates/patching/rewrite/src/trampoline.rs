//! Moved instructions with calls of hooks: the machine code of trampolines.
//!
//! Instructions are copied byte by byte. Only displacements change, and short jumps become long
//! ones. So the size of a trampoline doesn't depend on where it lies, and it can be placed when all
//! are known.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use rustc_hash::FxHashMap;

use crate::choose::{Choice, Detour, Way};
use crate::code::kind_of;
use crate::flow::{Exit, ExitKind, Unit};
use crate::image::Image;
use crate::kinds::{HookKind, PatchKind};
use crate::unwind::Unwind;
use crate::windows::{Window, entry_of};

const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
const SHORT_JUMP: u8 = 0xeb;
const CALL_LENGTH: u8 = 5;
/// Of a push of one of the upper eight registers.
const PREFIX: u8 = 0x41;
/// Fills what isn't run any more.
const INT3: u8 = 0xcc;

/// A call of a hook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalHook {
    /// Where the call is.
    pub(crate) at: u32,
    pub(crate) unit: u32,
    pub(crate) kind: HookKind,
    /// The instruction that it stands before; the function's first one if it is in another part.
    pub(crate) from: u64,
}

/// New bytes of the module, before the trampolines have their place.
pub(crate) struct LocalPatch {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
    /// Displacements in it, and which offset of the code they lead to.
    pub(crate) fields: Vec<(usize, u32)>,
    pub(crate) unit: u32,
    pub(crate) kind: PatchKind,
}

/// The trampolines of some functions, as if they began at address 0.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) code: Vec<u8>,
    /// Displacements to addresses of the module: where they are.
    pub(crate) to_module: Vec<u32>,
    pub(crate) hooks: Vec<LocalHook>,
    /// (address in the module, offset).
    pub(crate) moves: Vec<(u64, u32)>,
    /// From an offset on, a state of the unwind information.
    pub(crate) rows: Vec<(u32, Option<u32>)>,
    pub(crate) patches: Vec<LocalPatch>,
    /// A place away from the module, and the offset that it leads to.
    pub(crate) islands: Vec<(i64, u32)>,
}

/// Where a jump leads to.
#[derive(Clone, Copy)]
enum To {
    Module(u64),
    /// To the moved instruction that was there.
    Moved(u64),
    /// To the stub with this number.
    Stub(usize),
    /// To the copy of a return that stays where it is, and that nothing leads to any more.
    Return(u64),
}

/// Writes trampolines.
pub(crate) struct Emitter<'a> {
    image: &'a Image<'a>,
    unwind: &'a Unwind,
    pub(crate) out: Output,
}

/// The state while the code of one window or function is written.
struct Block<'a> {
    index: u32,
    /// See [`Choice::returns`].
    returns: &'a [u64],
    entry: u64,
    /// For copies: what is within them.
    ranges: Vec<(u64, u64)>,
    /// Where instructions are now.
    places: FxHashMap<u64, u32>,
    /// Jumps within the block that aren't filled in yet.
    pending: Vec<(u32, To)>,
    /// Targets of conditional tail calls: (address of the call, its target).
    stubs: Vec<(u64, u64)>,
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(image: &'a Image<'a>, unwind: &'a Unwind) -> Self {
        Self { image, unwind, out: Output::default() }
    }

    /// The trampolines and patches of one function.
    pub(crate) fn function(&mut self, index: u32, unit: &Unit<'_>, choice: &Choice) {
        let entry = entry_of(self.image, unit.start);
        let (first, first_hook) = (self.out.patches.len(), self.out.hooks.len());
        for detour in &choice.detours {
            let block = Block {
                index,
                returns: &choice.returns,
                entry,
                ranges: if choice.is_copied { copied(unit, entry) } else { Vec::new() },
                places: FxHashMap::default(),
                pending: Vec::new(),
                stubs: Vec::new(),
            };
            let (to, moves) = (self.here(), self.out.moves.len());
            match detour.way {
                Way::Retarget => self.retarget(block, unit, detour),
                Way::Call => self.first_call(block, detour),
                _ if choice.is_copied => self.block(block, unit, &copied(unit, entry)),
                _ => self.block(block, unit, &[(detour.window.start, detour.window.code_end)]),
            }
            let window = detour.window;
            let patched = |at: u64| at > window.start && at < window.end;
            let is_kept = matches!(detour.way, Way::Retarget | Way::Call);
            // All of a copied function moves: its own code isn't run any more.
            let new = self.out.moves.split_off(moves);
            let is_moved = |at: u64| patched(at) || choice.is_copied && at != entry;
            let is_return = |at: u64| choice.returns.contains(&at);
            self.out
                .moves
                .extend(new.into_iter().filter(|&(at, _)| !is_kept && is_moved(at) || is_return(at)));
            self.patch(index, detour, to, choice.is_copied);
        }
        // No symbol may tell to which function another part belongs.
        let is_apart = |at: u64| unit.parts.first().is_none_or(|&(start, end)| at < start || at >= end);
        for hook in self.out.hooks.iter_mut().skip(first_hook).filter(|hook| is_apart(hook.from)) {
            hook.from = unit.start;
        }
        self.combine(first);
    }

    fn here(&self) -> u32 {
        self.out.code.len() as u32
    }

    fn row(&mut self, at: u64) {
        let (here, state) = (self.here(), self.unwind.state_at(at));
        if self.out.rows.last().is_none_or(|(_, last)| *last != state) {
            self.out.rows.push((here, state));
        }
    }

    /// `from`: the instruction that it stands before.
    fn hook(&mut self, unit: u32, kind: HookKind, from: u64) {
        let at = self.here();
        self.out.hooks.push(LocalHook { at, unit, kind, from });
        self.out.code.extend([CALL, 0, 0, 0, 0]);
    }

    /// A displacement of 32 bits that ends here.
    fn displacement(&mut self, block: &mut Block<'_>, to: To) {
        let field = self.here();
        match to {
            To::Module(target) => {
                self.out.to_module.push(field);
                let value = target.wrapping_sub(u64::from(field) + 4) as u32;
                self.out.code.extend(value.to_le_bytes());
            }
            To::Moved(_) | To::Stub(_) | To::Return(_) => {
                block.pending.push((field, to));
                self.out.code.extend([0; 4]);
            }
        }
    }

    fn jump(&mut self, block: &mut Block<'_>, to: To) {
        self.out.code.push(JUMP);
        self.displacement(block, to);
    }

    /// A tail call: its own jump leads here.
    fn retarget(&mut self, mut block: Block<'_>, unit: &Unit<'_>, detour: &Detour) {
        let at = detour.window.start;
        let Some(instruction) = crate::code::instruction_at(self.image, at, detour.window.end) else {
            return;
        };
        if block.returns.contains(&instruction.near_branch_target()) {
            self.returned(&block, instruction.near_branch_target());
            return;
        }
        self.row(at);
        if unit.exit_at(at).is_some() {
            self.hook(block.index, HookKind::TailExit, at);
        }
        self.jump(&mut block, To::Module(instruction.near_branch_target()));
    }

    /// A function's first call, before which there are only pushes: it leads here. The hook sees the
    /// stack as it is at the entry; then it becomes what it was, with the address behind the call.
    fn first_call(&mut self, mut block: Block<'_>, detour: &Detour) {
        let Window { start, end, .. } = detour.window;
        let bytes = self.image.bytes(start, end);
        let call = end - u64::from(CALL_LENGTH);
        let Some(instruction) = crate::code::instruction_at(self.image, call, end) else { return };
        let pushes = bytes.get(..(call - start) as usize).unwrap_or_default();
        // Each is of one byte, or has a prefix.
        let count = pushes.iter().filter(|byte| **byte != PREFIX).count() as u8;
        self.row(start);
        // lea 8 * (pushes + 1)(%rsp), %rsp
        self.out.code.extend([0x48, 0x8d, 0x64, 0x24, 8 * (count + 1)]);
        self.hook(block.index, HookKind::Entry, start);
        let mut at = start;
        for push in pushes.split_inclusive(|byte| *byte != PREFIX) {
            self.row(at);
            self.out.code.extend(push);
            at += push.len() as u64;
        }
        self.row(call);
        // push %rax; lea end(%rip), %rax; xchg %rax, (%rsp)
        self.out.code.push(0x50);
        self.out.rows.push((self.here(), None));
        self.out.code.extend([0x48, 0x8d, 0x05]);
        self.displacement(&mut block, To::Module(end));
        self.out.code.extend([0x48, 0x87, 0x04, 0x24]);
        // As at any function's entry.
        self.row(start);
        self.jump(&mut block, To::Module(instruction.near_branch_target()));
    }

    /// The return at `at`, with its hook. The result is its place.
    fn returned(&mut self, block: &Block<'_>, at: u64) -> u32 {
        self.row(at);
        let place = self.here();
        self.out.moves.push((at, place));
        self.hook(block.index, HookKind::Exit, at);
        let instruction = crate::code::instruction_at(self.image, at, u64::MAX);
        let length = instruction.map_or(0, |instruction| instruction.len() as u64);
        self.out.code.extend(self.image.bytes(at, at + length));
        place
    }

    /// Instructions in `ranges`, with their hooks.
    fn block(&mut self, mut block: Block<'_>, unit: &Unit<'_>, ranges: &[(u64, u64)]) {
        for &(start, end) in ranges {
            let bytes = self.image.bytes(start, end);
            let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
            let mut continues = true;
            while decoder.can_decode() {
                let instruction = decoder.decode();
                let offsets = decoder.get_constant_offsets(&instruction);
                let from = (instruction.ip() - start) as usize;
                let own = bytes.get(from..from + instruction.len()).unwrap_or_default();
                self.instruction(&mut block, unit, &instruction, own, offsets.displacement_offset());
                continues = kind_of(&instruction).falls_through();
            }
            if continues && block.returns.contains(&end) {
                self.returned(&block, end);
            } else if continues {
                self.row(end);
                self.jump(&mut block, To::Module(end));
            }
        }
        let mut stubs = Vec::new();
        for (at, target) in std::mem::take(&mut block.stubs) {
            stubs.push(self.here());
            self.row(at);
            self.hook(block.index, HookKind::TailExit, at);
            self.jump(&mut block, To::Module(target));
        }
        let mut returns: Vec<(u64, u32)> = Vec::new();
        for (field, to) in std::mem::take(&mut block.pending) {
            let place = match to {
                To::Return(at) => {
                    let known = returns.iter().find(|(one, _)| *one == at).map(|(_, place)| *place);
                    let place = known.unwrap_or_else(|| self.returned(&block, at));
                    returns.push((at, place));
                    Some(place)
                }
                To::Moved(at) => block.places.get(&at).copied(),
                To::Stub(number) => stubs.get(number).copied(),
                To::Module(_) => None,
            };
            // The checker finds what isn't filled in.
            let Some(place) = place else { continue };
            let value = place.wrapping_sub(field + 4);
            if let Some(bytes) = self.out.code.get_mut(field as usize..field as usize + 4) {
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        }
    }

    fn instruction(
        &mut self,
        block: &mut Block<'_>,
        unit: &Unit<'_>,
        instruction: &Instruction,
        own: &[u8],
        field: usize,
    ) {
        let at = instruction.ip();
        self.row(at);
        if at == block.entry {
            self.hook(block.index, HookKind::Entry, at);
        }
        // A thread that is stopped before this instruction goes on here: at an exit, by its hook.
        let place = self.here();
        self.out.moves.push((at, place));
        block.places.insert(at, place);
        let exit = unit.exit_at(at);
        match exit {
            Some(Exit { kind: ExitKind::ConditionalTail, .. }) => {
                block.stubs.push((at, instruction.near_branch_target()));
                let stub = To::Stub(block.stubs.len() - 1);
                return self.branch(block, instruction, own, stub);
            }
            Some(Exit { kind: ExitKind::Return, .. }) => self.hook(block.index, HookKind::Exit, at),
            Some(_) => self.hook(block.index, HookKind::TailExit, at),
            None => {}
        }
        let is_branch = matches!(kind_of(instruction), crate::code::Kind::Branch { .. });
        if is_branch {
            let target = instruction.near_branch_target();
            let is_within = |&(start, end): &(u64, u64)| target >= start && target < end;
            let to = if exit.is_none() && block.ranges.iter().any(is_within) {
                To::Moved(target)
            } else if exit.is_none() && !block.ranges.is_empty() && target == unit.start {
                // Behind `endbr64` is what it does.
                To::Moved(block.entry)
            } else if block.returns.contains(&target) {
                To::Return(target)
            } else {
                To::Module(target)
            };
            return self.branch(block, instruction, own, to);
        }
        let here = self.here();
        self.out.code.extend(own);
        if instruction.is_ip_rel_memory_operand() {
            // An address that the program uses or takes stays what it is.
            let end = u64::from(here) + own.len() as u64;
            let value = instruction.ip_rel_memory_address().wrapping_sub(end) as u32;
            let field = here as usize + field;
            if let Some(bytes) = self.out.code.get_mut(field..field + 4) {
                bytes.copy_from_slice(&value.to_le_bytes());
                self.out.to_module.push(field as u32);
            }
        }
    }

    /// A jump with a displacement, in a form that reaches everything.
    fn branch(&mut self, block: &mut Block<'_>, instruction: &Instruction, own: &[u8], to: To) {
        if instruction.is_jmp_short_or_near() {
            self.out.code.push(JUMP);
        } else if instruction.is_jcc_short_or_near() {
            self.out.code.extend([0x0f, 0x7f + instruction.condition_code() as u8]);
        } else {
            // `jrcxz` and `loop` have no long form: over a jump that isn't taken, to one that is.
            let kept = own.len().saturating_sub(1);
            self.out.code.extend(&own[..kept]);
            self.out.code.extend([2, SHORT_JUMP, 5, JUMP]);
        }
        self.displacement(block, to);
    }

    fn patch(&mut self, unit: u32, detour: &Detour, to: u32, is_copy: bool) {
        let window = detour.window;
        let length = window.len() as usize;
        let mut patch = |at: u64, kind: PatchKind, bytes: Vec<u8>, fields: Vec<(usize, u32)>| {
            self.out.patches.push(LocalPatch { at, bytes, fields, unit, kind });
        };
        match detour.way {
            Way::Jump => {
                let mut bytes = vec![INT3; length];
                bytes[..5].copy_from_slice(&[JUMP, 0, 0, 0, 0]);
                let kind = if is_copy { PatchKind::Copy } else { PatchKind::Window };
                patch(window.start, kind, bytes, vec![(1, to)]);
            }
            Way::Retarget => patch(window.end - 4, PatchKind::Displacement, vec![0; 4], vec![(0, to)]),
            Way::Call => patch(window.end - 4, PatchKind::Call, vec![0; 4], vec![(0, to)]),
            Way::Slot(slot) => {
                let mut bytes = vec![INT3; length];
                let displacement = slot.wrapping_sub(window.start + 2) as u8;
                bytes[..2].copy_from_slice(&[SHORT_JUMP, displacement]);
                patch(window.start, PatchKind::Window, bytes, Vec::new());
                patch(slot, PatchKind::Slot, vec![JUMP, 0, 0, 0, 0], vec![(1, to)]);
            }
            Way::Pun(target) => {
                let displacement = target.wrapping_sub((window.start + 5) as i64) as i32;
                let mut bytes = vec![JUMP];
                bytes.extend(&displacement.to_le_bytes()[..length - 1]);
                patch(window.start, PatchKind::Window, bytes, Vec::new());
                self.out.islands.push((target, to));
            }
        }
    }

    /// A slot in what was evicted becomes a part of that patch.
    fn combine(&mut self, first: usize) {
        let mut patches = self.out.patches.split_off(first);
        patches.sort_by_key(|patch| (patch.at, std::cmp::Reverse(patch.bytes.len())));
        for patch in patches {
            if let Some(last) = self.out.patches.get_mut(first..).and_then(<[LocalPatch]>::last_mut) {
                let offset = (patch.at - last.at) as usize;
                let end = offset + patch.bytes.len();
                if let Some(bytes) = last.bytes.get_mut(offset..end) {
                    bytes.copy_from_slice(&patch.bytes);
                    last.fields.extend(patch.fields.iter().map(|(at, to)| (at + offset, *to)));
                    continue;
                }
            }
            self.out.patches.push(patch);
        }
    }
}

/// All code of a function from its entry on.
fn copied(unit: &Unit<'_>, entry: u64) -> Vec<(u64, u64)> {
    let ranges = unit.parts.iter().enumerate();
    ranges.map(|(index, &(start, end))| (if index == 0 { entry } else { start }, end)).collect()
}
