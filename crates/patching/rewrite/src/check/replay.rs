//! Runs a trampoline beside the code that it stands for: the two must do the same, but for hooks.

use rustc_hash::{FxHashMap, FxHashSet};
use yaxpeax_x86::long_mode::Opcode;

use super::decode::{Decoded, Decoder, Next};
use super::elf::Loaded;
use super::violation::{Rule, Violation};
use crate::kinds::HookKind;
use crate::plan::{HookCall, Plan};

/// A plan's trampolines, and the file that they are for.
pub(super) struct Replay<'a> {
    file: &'a Loaded<'a>,
    plan: &'a Plan,
    decoder: Decoder,
    calls: FxHashMap<u32, HookCall>,
}

/// Results of replays.
#[derive(Default)]
pub(super) struct Found {
    /// Calls of hooks that were reached.
    reached: Vec<u32>,
    /// Original instructions, each with a place at which a thread may go on with it.
    places: Vec<(u64, u32)>,
    /// Original instructions that run in trampolines.
    pub(super) moved: Vec<u64>,
    /// Where trampolines lead to in the module.
    left: Vec<u64>,
    /// Entries that were run.
    entered: FxHashSet<u64>,
}

impl Found {
    /// All results together, in order.
    pub(super) fn all(parts: Vec<Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.reached.extend(part.reached);
            all.places.extend(part.places);
            all.moved.extend(part.moved);
            all.left.extend(part.left);
            all.entered.extend(part.entered);
        }
        all.reached.sort_unstable();
        all.places.sort_unstable();
        all.moved.sort_unstable();
        all.left.sort_unstable();
        all
    }

    /// Of results in order: whether the call of a hook was reached.
    pub(super) fn is_reached(&self, call: u32) -> bool {
        self.reached.binary_search(&call).is_ok()
    }

    /// Of results in order: whether a trampoline leads to an address of the module.
    pub(super) fn is_left_to(&self, at: u64) -> bool {
        self.left.binary_search(&at).is_ok()
    }

    /// Of results in order: whether an instruction runs in a trampoline.
    pub(super) fn is_moved(&self, at: u64) -> bool {
        self.moved.binary_search(&at).is_ok()
    }

    /// Of results in order: whether a thread may go on with an instruction at this place; `None`
    /// if the instruction isn't moved.
    pub(super) fn is_place(&self, at: u64, place: u32) -> Option<bool> {
        let first = self.places.partition_point(|(from, _)| *from < at);
        let mut places = self.places.iter().skip(first).take_while(|(from, _)| *from == at).peekable();
        places.peek()?;
        Some(places.any(|(_, to)| *to == place))
    }
}

/// Two places that have to do the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Pair {
    /// In the file.
    original: u64,
    /// From the region's start.
    place: u32,
    /// Where a conditional tail call was, whose target this is.
    from: Option<u64>,
}

/// A trampoline's instruction.
enum Step {
    Hook(HookCall),
    Code(Decoded, u64),
}

impl<'a> Replay<'a> {
    pub(super) fn new(file: &'a Loaded<'a>, plan: &'a Plan) -> Self {
        Self {
            file,
            plan,
            decoder: Decoder::new(),
            calls: plan.calls.iter().map(|call| (call.at, *call)).collect(),
        }
    }

    /// The region's address, as if the module were at its own.
    fn address(&self, place: u32) -> u64 {
        self.plan.region.wrapping_add(i64::from(place)) as u64
    }

    /// The place of an address, if it is in the trampolines.
    pub(super) fn place(&self, address: u64) -> Option<u32> {
        let place = u32::try_from(address.wrapping_sub(self.plan.region as u64)).ok()?;
        let end = u64::from(self.plan.hooks.reserved) + self.plan.code.len() as u64;
        (place >= self.plan.hooks.reserved && u64::from(place) < end).then_some(place)
    }

    fn code(&self, place: u32) -> &'a [u8] {
        let offset = place.checked_sub(self.plan.hooks.reserved);
        offset.and_then(|offset| self.plan.code.get(offset as usize..)).unwrap_or_default()
    }

    /// The trampolines' bytes from `place` on; `None` at their end.
    pub(super) fn code_at(&self, place: u32) -> Option<&'a [u8]> {
        Some(self.code(place)).filter(|code| !code.is_empty())
    }

    fn step(&self, place: u32) -> Option<Step> {
        let address = self.address(place);
        let decoded = self.decoder.decode(self.code(place), address)?;
        if let Some(call) = self.calls.get(&place) {
            let hook = self.address(self.plan.hooks.of(call.kind));
            let is_call = decoded.next == Next::Call(Some(hook)) && decoded.length == 5;
            return is_call.then_some(Step::Hook(*call));
        }
        Some(Step::Code(decoded, address))
    }

    /// Follows the code from `original` and the trampoline at `place`. `function`: whose it is;
    /// `entry`: where that begins. Returns the end of the instructions that were moved one after
    /// the other, and whether nothing is run behind it.
    pub(super) fn run(
        &self,
        found: &mut Found,
        original: u64,
        place: u32,
        function: u32,
        entry: u64,
    ) -> Result<(u64, bool), Violation> {
        let mut open = vec![Pair { original, place, from: None }];
        let mut seen = FxHashSet::default();
        let mut straight = (original, false);
        while let Some(pair) = open.pop() {
            if seen.insert(pair) {
                let end = self.follow(found, pair, (function, entry), &mut open, &mut seen)?;
                if pair.original == original && pair.place == place {
                    straight = end;
                }
            }
        }
        Ok(straight)
    }

    /// A tail call whose displacement leads to its trampoline: a hook, then the jump. Or a jump to
    /// a return: a hook, then the return.
    pub(super) fn tail_call(
        &self,
        found: &mut Found,
        at: u64,
        place: u32,
        function: u32,
        entry: u64,
    ) -> Result<(), Violation> {
        let wrong = |what: &str| Violation::new(Rule::Trampoline, at, what);
        let old = self.decoder.decode(self.file.bytes(at, 15), at).map(|decoded| decoded.next);
        let Some(Next::Jump(target) | Next::Branch(target)) = old else { return Err(wrong("isn't a jump")) };
        if matches!(self.step(place), Some(Step::Hook(call)) if call.kind == HookKind::Exit) {
            self.run(found, target, place, function, entry)?;
            found.moved.push(at);
            return Ok(());
        }
        let (Some(Step::Hook(call)), Some(Step::Code(jump, _))) = (self.step(place), self.step(place + 5))
        else {
            return Err(wrong("has no hook"));
        };
        let is_its =
            call.function == function && call.kind == HookKind::TailExit && jump.next == Next::Jump(target);
        if !is_its || at == entry {
            return Err(wrong("leads to another trampoline"));
        }
        found.reached.push(call.at);
        found.moved.push(at);
        Ok(())
    }

    /// A function's first call, whose displacement leads to its trampoline, and the pushes before it:
    /// the stack as at the entry; the hook; pushes; the address behind the call; the jump.
    pub(super) fn first_call(
        &self,
        found: &mut Found,
        at: u64,
        place: u32,
        function: u32,
        entry: u64,
    ) -> Result<(), Violation> {
        let wrong = |what: &str| Violation::new(Rule::Trampoline, at, what);
        let pushes = self.file.bytes(entry, (at - entry) as usize);
        let mut depth = 8;
        let mut rest = pushes;
        loop {
            rest = match rest {
                [] => break,
                [0x50..=0x53 | 0x55..=0x57, rest @ ..] | [0x41, 0x50..=0x57, rest @ ..] => rest,
                _ => return Err(wrong("isn't a first call")),
            };
            depth += 8;
        }
        let old = self.decoder.decode(self.file.bytes(at, 5), at).filter(|decoded| decoded.length == 5);
        let Some(Next::Call(Some(target))) = old.map(|decoded| decoded.next) else {
            return Err(wrong("isn't a call"));
        };
        let has = |place: u32, bytes: &[u8]| self.code(place).starts_with(bytes);
        let is_entry_level = has(place, &[0x48, 0x8d, 0x64, 0x24, depth]);
        let hook = match self.step(place + 5) {
            Some(Step::Hook(call)) if call.function == function && call.kind == HookKind::Entry => call.at,
            _ => return Err(wrong("has no hook")),
        };
        let is_pushed = has(place + 10, &[pushes, &[0x50]].concat());
        let step = |place: u32| match self.step(place) {
            Some(Step::Code(decoded, _)) => Some(decoded),
            _ => None,
        };
        let address_at = place + 11 + pushes.len() as u32;
        let address = step(address_at).filter(|code| code.length == 7 && code.is_lea);
        let is_back = address.is_some_and(|code| code.relative == Some(at + 5))
            && has(address_at, &[0x48, 0x8d, 0x05])
            && has(address_at + 7, &[0x48, 0x87, 0x04, 0x24]);
        let goes_on = step(address_at + 11).is_some_and(|code| code.next == Next::Jump(target));
        if !(is_entry_level && is_pushed && is_back && goes_on) {
            return Err(wrong("leads to another trampoline"));
        }
        found.reached.push(hook);
        found.moved.push(entry);
        found.entered.insert(entry);
        Ok(())
    }

    fn follow(
        &self,
        found: &mut Found,
        mut pair: Pair,
        (function, entry): (u32, u64),
        open: &mut Vec<Pair>,
        seen: &mut FxHashSet<Pair>,
    ) -> Result<(u64, bool), Violation> {
        let wrong = |at: u64, what: &str| Violation::new(Rule::Trampoline, at, what);
        loop {
            let at = pair.original;
            let mut hook = None;
            let first = pair.place;
            let mut step = self.step(pair.place).ok_or_else(|| wrong(at, "isn't code"))?;
            let mut after_hook = None;
            // An entry that is an exit, too, has two.
            while let Step::Hook(call) = step {
                if call.function != function || hook.is_some_and(|hook| hook != HookKind::Entry) {
                    return Err(wrong(at, "calls a hook that isn't its own"));
                }
                if call.kind == HookKind::Entry {
                    if at != entry {
                        return Err(wrong(at, "calls the entry hook elsewhere"));
                    }
                    after_hook = Some(call.at + 5);
                }
                found.reached.push(call.at);
                hook = Some(call.kind);
                pair.place = call.at + 5;
                step = self.step(pair.place).ok_or_else(|| wrong(at, "isn't code"))?;
            }
            let Step::Code(new, address) = step else { return Err(wrong(at, "isn't code")) };
            let exit = hook.filter(|hook| *hook != HookKind::Entry);
            if let Some(source) = pair.from {
                // The stub of a conditional tail call.
                let is_stub = exit == Some(HookKind::TailExit) && new.next == Next::Jump(at);
                return if is_stub {
                    Ok((at, true))
                } else {
                    Err(wrong(source, "has a stub that does something else"))
                };
            }
            let old_bytes = self.file.bytes(at, 15);
            let old = self.decoder.decode(old_bytes, at).ok_or_else(|| wrong(at, "moves what isn't code"))?;
            if new.next == Next::Jump(at) && exit.is_none() && hook.is_none() && old.next != Next::Jump(at) {
                // Back to the code that wasn't moved.
                found.left.push(at);
                return Ok((at, false));
            }
            if at == entry && hook.is_none() && !found.entered.contains(&at) {
                return Err(wrong(at, "enters without its hook"));
            }
            found.places.push((at, after_hook.unwrap_or(first)));
            if at == entry {
                found.entered.insert(at);
            }
            found.moved.push(at);
            let end = at + old.length;
            let expected = match old.next {
                Next::Return => Some(HookKind::Exit),
                Next::IndirectJump => exit,
                Next::Jump(_) => exit,
                _ => None,
            };
            if exit != expected || expected == Some(HookKind::Exit) && old.next != Next::Return {
                return Err(wrong(at, "has the wrong hook, or none"));
            }
            match (old.next, new.next) {
                (Next::Call(_), _) | (_, Next::Call(_)) => return Err(wrong(at, "moves a call")),
                (Next::Jump(old_target), Next::Jump(target)) => {
                    found.left.extend(self.same_target(at, old_target, target, exit.is_some(), open)?);
                    return Ok((end, true));
                }
                (Next::Branch(old_target), Next::Branch(target)) => {
                    let mut target = target;
                    let mut next = pair.place + new.length as u32;
                    if old.opcode != new.opcode {
                        return Err(wrong(at, "has another condition"));
                    }
                    if is_counted(old.opcode) {
                        // Over `jmp next`, to a long jump.
                        let over = self.decoder.decode(self.code(next), self.address(next));
                        let long = self.decoder.decode(self.code(next + 2), self.address(next + 2));
                        let (Some(over), Some(long)) = (over, long) else {
                            return Err(wrong(at, "isn't code"));
                        };
                        let is_over = over.length == 2 && over.next == Next::Jump(self.address(next + 7));
                        let Next::Jump(far) = long.next else { return Err(wrong(at, "has no long form")) };
                        if !is_over || long.length != 5 || target != self.address(next + 2) {
                            return Err(wrong(at, "has no long form"));
                        }
                        target = far;
                        next += 7;
                    }
                    found.left.extend(self.same_branch(at, old_target, target, open)?);
                    pair = Pair { original: end, place: next, from: None };
                }
                (old_next, new_next) if old_next == new_next => {
                    self.same_bytes(at, &old, &new, old_bytes, pair.place, address)?;
                    if matches!(old_next, Next::Return | Next::IndirectJump | Next::Stop) {
                        return Ok((end, true));
                    }
                    pair = Pair { original: end, place: pair.place + new.length as u32, from: None };
                }
                _ => return Err(wrong(at, "becomes another instruction")),
            }
            if !seen.insert(pair) {
                return Ok((pair.original, true));
            }
        }
    }

    /// A jump to the module is to the same address, which is the result; within the trampolines, to
    /// what stands for it.
    fn same_target(
        &self,
        at: u64,
        old: u64,
        new: u64,
        is_exit: bool,
        open: &mut Vec<Pair>,
    ) -> Result<Option<u64>, Violation> {
        match self.place(new) {
            None if old == new => Ok(Some(new)),
            Some(place) if !is_exit => {
                open.push(Pair { original: old, place, from: None });
                Ok(None)
            }
            _ => Err(Violation::new(Rule::Trampoline, at, "jumps to another address")),
        }
    }

    fn same_branch(
        &self,
        at: u64,
        old: u64,
        new: u64,
        open: &mut Vec<Pair>,
    ) -> Result<Option<u64>, Violation> {
        let Some(place) = self.place(new) else {
            return self.same_target(at, old, new, false, open);
        };
        // Either the stub of a tail call, or code of a copied function.
        let is_stub = matches!(self.step(place), Some(Step::Hook(call)) if call.kind == HookKind::TailExit)
            && self
                .step(place + 5)
                .is_some_and(|step| matches!(step, Step::Code(code, _) if code.next == Next::Jump(old)));
        open.push(Pair { original: old, place, from: is_stub.then_some(at) });
        Ok(None)
    }

    /// Checks that both have equal bytes, except an operand's displacement, which leads to the same
    /// address.
    fn same_bytes(
        &self,
        at: u64,
        old: &Decoded,
        new: &Decoded,
        old_bytes: &[u8],
        place: u32,
        address: u64,
    ) -> Result<(), Violation> {
        let length = old.length as usize;
        let (Some(before), Some(now)) = (old_bytes.get(..length), self.code(place).get(..length)) else {
            return Err(Violation::new(Rule::Trampoline, at, "is truncated"));
        };
        let is_same = old.length == new.length && old.opcode == new.opcode && old.relative == new.relative;
        let differing = || before.iter().zip(now).enumerate().filter(|(_, (one, other))| one != other);
        let (first, last) = (differing().next(), differing().next_back());
        let is_displacement = match first.zip(last) {
            None => old.relative.is_none() || self.address(place) == at,
            Some(((first, _), (last, _))) => old.relative.is_some() && last - first < 4,
        };
        if is_same && (is_displacement || old.relative.is_some() && address == at) {
            return Ok(());
        }
        Err(Violation::new(Rule::Trampoline, at, "becomes another instruction"))
    }
}

fn is_counted(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::LOOP | Opcode::LOOPZ | Opcode::LOOPNZ | Opcode::JRCXZ | Opcode::JECXZ)
}
