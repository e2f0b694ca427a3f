//! The cheapest way to hook each entry and exit in place.

use iced_x86::{Code, Instruction, Register};

use crate::bitmap::Bitmap;
use crate::code::{Kind, instruction_at, kind_of};
use crate::flow::{Exit, ExitKind, Flow, Unit};
use crate::functions::Functions;
use crate::image::Image;
use crate::islands::Islands;
use crate::layout::page_end;
use crate::refusal::Refusal;
use crate::tactic::Tactic;
use crate::windows::{SLOT, Text, Window, entry_of};

/// Reach of a short jump, backward and forward.
const SHORT_REACH: u64 = 127;
/// A pun keeps so many bytes of its displacement at least, to be placed near enough.
const PUN_LENGTH: u64 = 3;
/// Bytes of pushes before a first call: with more of them, there is another way.
const PUSHES: u64 = 4;
/// Bytes of a displacement.
const DISPLACEMENT: u64 = 4;

/// How a window leads to its trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a jump at its start.
    Jump,
    /// By a short jump to a jump at this address.
    Slot(u64),
    /// By a jump to one at this address, from the module's on, of which this window only chooses
    /// the first bytes.
    Pun(i64),
    /// By the displacement of its only instruction, a tail call.
    Retarget,
    /// By the displacement of its last instruction, a call. The window stays as it is.
    Call,
}

impl Way {
    /// Whether the window's instructions run in the trampoline only.
    fn is_replacing(self) -> bool {
        !matches!(self, Way::Retarget | Way::Call)
    }
}

/// Instructions that are replaced, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detour {
    pub(crate) window: Window,
    pub(crate) way: Way,
}

/// The decision about a function.
pub(crate) struct Choice {
    pub(crate) outcome: Result<Tactic, Refusal>,
    /// Sorted, disjoint.
    pub(crate) detours: Vec<Detour>,
    /// The entry, and then each exit.
    pub(crate) tactics: Vec<Tactic>,
    pub(crate) is_copied: bool,
    /// Returns that stay where they are: all that leads to them leads to a copy in a trampoline.
    pub(crate) returns: Vec<u64>,
}

/// An entry or exit that has no bytes of its own.
struct Open {
    unit: usize,
    exit: Option<Exit>,
}

struct Chooser<'a> {
    text: Text<'a>,
    functions: &'a Functions<'a>,
    choices: Vec<Choice>,
    open: Vec<Open>,
    islands: Islands,
}

/// For each unit of `flow`, and the islands that puns jump to.
pub(crate) fn choose(
    image: &Image<'_>,
    functions: &Functions<'_>,
    flow: &Flow<'_>,
    untouchable: &Bitmap,
) -> (Vec<Choice>, Islands) {
    let text = Text { image, flow, free: flow.padding.clone(), locked: untouchable.clone() };
    let islands = Islands::new(image);
    let mut chooser = Chooser { text, functions, choices: Vec::new(), open: Vec::new(), islands };
    for (index, unit) in flow.units.iter().enumerate() {
        chooser.own_bytes(index, unit);
    }
    chooser.try_all(Chooser::short);
    chooser.copies();
    chooser.try_all(Chooser::sources);
    chooser.try_all(Chooser::evict);
    chooser.try_all(Chooser::pun);
    chooser.try_all(Chooser::first_call);
    for open in std::mem::take(&mut chooser.open) {
        if let Some(choice) = chooser.choices.get_mut(open.unit)
            && !choice.is_copied
        {
            choice.outcome = Err(Refusal::TooSmall);
        }
    }
    for choice in &mut chooser.choices {
        choice.detours.sort_by_key(|detour| detour.window.start);
        if let Ok(outcome) = &mut choice.outcome {
            *outcome = choice.tactics.iter().copied().max().unwrap_or(*outcome);
        }
    }
    (chooser.choices, chooser.islands)
}

impl<'a> Chooser<'a> {
    /// Displacement, padding and other displacements of tail calls: what needs the function's own
    /// bytes and the padding behind it only.
    fn own_bytes(&mut self, index: usize, unit: &Unit<'_>) {
        let mut choice = Choice {
            outcome: Ok(Tactic::Retarget),
            detours: Vec::new(),
            tactics: Vec::new(),
            is_copied: false,
            returns: Vec::new(),
        };
        let entry = entry_of(self.text.image, unit.start);
        let is_again = unit.has_entry_loop || entry != unit.start && self.text.flow.targets.get(entry);
        let refusal = unit.refusal.or_else(|| is_again.then_some(Refusal::EntryLoop));
        if let Some(refusal) = refusal {
            choice.outcome = Err(refusal);
            self.choices.push(choice);
            return;
        }
        let mut windows: Vec<Window> = Vec::new();
        let mut retargets: Vec<(Exit, Window)> = Vec::new();
        let first = self.text.forward(unit, entry, SLOT);
        self.note(index, &mut choice, None, first, &mut windows);
        for &exit in &unit.exits {
            if let Some(window) = self.retarget(unit, exit) {
                retargets.push((exit, window));
                continue;
            }
            let window = self.text.backward(unit, exit.at, SLOT);
            self.note(index, &mut choice, Some(exit), window, &mut windows);
        }
        choice.detours.extend(merged(windows).into_iter().map(|window| Detour { window, way: Way::Jump }));
        for (_, window) in retargets {
            let is_covered = choice.detours.iter().any(|detour| detour.window.overlaps(window));
            choice.tactics.push(if is_covered { Tactic::Displace } else { Tactic::Retarget });
            if !is_covered {
                choice.detours.push(Detour { window, way: Way::Retarget });
            }
        }
        for detour in &choice.detours {
            self.text.lock(detour.window.start, detour.window.end);
        }
        self.choices.push(choice);
    }

    /// Keeps a window of five bytes, or notes that there is none.
    fn note(
        &mut self,
        unit: usize,
        choice: &mut Choice,
        exit: Option<Exit>,
        window: Window,
        windows: &mut Vec<Window>,
    ) {
        if window.len() < SLOT {
            self.open.push(Open { unit, exit });
            return;
        }
        choice.tactics.push(if window.end > window.code_end { Tactic::Padding } else { Tactic::Displace });
        windows.push(window);
    }

    /// The instruction at an exit, if it is a jump with a displacement of 32 bits.
    fn retarget(&self, unit: &Unit<'_>, exit: Exit) -> Option<Window> {
        if !matches!(exit.kind, ExitKind::Tail | ExitKind::ConditionalTail) {
            return None;
        }
        let (_, part_end) = unit.part_of(exit.at)?;
        let instruction = instruction_at(self.text.image, exit.at, part_end)?;
        let end = instruction.next_ip();
        let is_free = !self.text.locked.any(exit.at, end) && !self.text.flow.targets.any(exit.at + 1, end);
        (has_displacement(&instruction) && is_free).then_some(Window { start: exit.at, code_end: end, end })
    }

    fn try_all(&mut self, way: impl Fn(&mut Self, &Unit<'a>, &Open) -> Option<(Tactic, Vec<Detour>)>) {
        let flow = self.text.flow;
        for open in std::mem::take(&mut self.open) {
            let Some(unit) = flow.units.get(open.unit) else { continue };
            if self.choices.get(open.unit).is_none_or(|choice| choice.is_copied) {
                continue;
            }
            if self.is_covered(unit, &open) {
                continue;
            }
            let Some((tactic, detours)) = way(self, unit, &open) else {
                self.open.push(open);
                continue;
            };
            for detour in &detours {
                self.text.lock(detour.window.start, detour.window.end);
            }
            if let Some(choice) = self.choices.get_mut(open.unit) {
                choice.detours.extend(detours);
                choice.tactics.push(tactic);
            }
        }
    }

    /// Whether the window of another entry or exit of the function contains this one.
    fn is_covered(&self, unit: &Unit<'_>, open: &Open) -> bool {
        let at = open.exit.map_or_else(|| entry_of(self.text.image, unit.start), |exit| exit.at);
        let detours = self.choices.get(open.unit).map_or(&[][..], |choice| &choice.detours);
        detours.iter().any(|detour| {
            detour.way.is_replacing() && detour.window.start <= at && at < detour.window.code_end
        })
    }

    /// A window of at least `need` bytes for an entry or exit. It takes more if there are, as they
    /// may be another's that has no bytes left otherwise: small functions have both in one.
    fn window(&self, unit: &Unit<'_>, open: &Open, need: u64) -> Option<Window> {
        let window = match open.exit {
            None => self.text.forward(unit, entry_of(self.text.image, unit.start), SLOT),
            Some(exit) => self.text.backward(unit, exit.at, SLOT),
        };
        (window.len() >= need).then_some(window)
    }

    fn short(&mut self, unit: &Unit<'_>, open: &Open) -> Option<(Tactic, Vec<Detour>)> {
        let window = self.window(unit, open, 2)?;
        Some((Tactic::Short, vec![self.by_slot(window)?]))
    }

    /// By padding in reach.
    fn by_slot(&mut self, window: Window) -> Option<Detour> {
        // The slot must not be made of the window's own padding.
        let padding = (window.code_end, window.end);
        self.text.free.clear_all(padding.0, padding.1);
        let slot = self.text.slot(window.start);
        if slot.is_none() {
            self.text.free.set_all(padding.0, padding.1);
        }
        Some(Detour { window, way: Way::Slot(slot?) })
    }

    /// A return that has no bytes but its own, and that jumps of this function and the instruction
    /// before it lead to: instead, each of these leads to a copy of it.
    fn sources(&mut self, unit: &Unit<'a>, open: &Open) -> Option<(Tactic, Vec<Detour>)> {
        let exit = open.exit.filter(|exit| exit.kind == ExitKind::Return)?;
        let (part_start, part_end) = unit.part_of(exit.at)?;
        if self.text.flow.entered.get(exit.at) || self.text.locked.any(exit.at, exit.at + 1) {
            return None;
        }
        let jumps: Vec<Instruction> = crate::code::decode(self.text.image, part_start, part_end)
            .into_iter()
            .filter(|instruction| {
                matches!(kind_of(instruction), Kind::Branch { to, .. } if to == exit.at)
                    && self.text.flow.starts.get(instruction.ip())
            })
            .collect();
        // Something else leads to one without jumps, or nothing does.
        if jumps.is_empty() {
            return None;
        }
        let mut found: Vec<Detour> = Vec::new();
        let mut worst = Tactic::Retarget;
        // Of the function's other entries and exits.
        let own = self.choices.get(open.unit)?.detours.clone();
        let is_whole = self.before_is_led_away(unit, exit, part_start, &own, &mut found, &mut worst)
            && jumps.iter().all(|jump| self.is_led_away(unit, jump, part_end, &own, &mut found, &mut worst));
        if !is_whole {
            for detour in found {
                self.unlock(detour);
            }
            return None;
        }
        self.choices.get_mut(open.unit)?.returns.push(exit.at);
        Some((worst, found))
    }

    /// Whether the instruction before a return doesn't continue with it any more.
    fn before_is_led_away(
        &mut self,
        unit: &Unit<'a>,
        exit: Exit,
        part_start: u64,
        own: &[Detour],
        found: &mut Vec<Detour>,
        worst: &mut Tactic,
    ) -> bool {
        let Some(before) = self.text.before(exit.at, part_start) else { return false };
        let is_dead = self.text.flow.padding.get(exit.at.saturating_sub(1));
        let instruction = instruction_at(self.text.image, before, exit.at);
        let continues = instruction.is_none_or(|instruction| kind_of(&instruction).falls_through());
        let is_replaced = own.iter().any(|detour| {
            let window = detour.window;
            detour.way.is_replacing() && window.start <= before && window.code_end == exit.at
        });
        if is_dead || !continues || is_replaced {
            return true;
        }
        let window = self.text.up_to(unit, exit.at, SLOT);
        self.lead_away(unit, window, found, worst)
    }

    /// Whether a jump doesn't lead to its target any more.
    fn is_led_away(
        &mut self,
        unit: &Unit<'a>,
        jump: &Instruction,
        part_end: u64,
        own: &[Detour],
        found: &mut Vec<Detour>,
        worst: &mut Tactic,
    ) -> bool {
        let (at, end) = (jump.ip(), jump.next_ip());
        let is_replaced = |detour: &Detour| {
            detour.way.is_replacing() && detour.window.start <= at && end <= detour.window.code_end
        };
        if own.iter().chain(&*found).any(is_replaced) {
            return true;
        }
        if self.text.locked.any(at, end) || self.text.flow.targets.any(at + 1, end) {
            return false;
        }
        if has_displacement(jump) {
            let detour = Detour { window: Window { start: at, code_end: end, end }, way: Way::Retarget };
            self.text.lock(at, end);
            found.push(detour);
            return true;
        }
        let backward = self.text.backward(unit, at, SLOT);
        let forward = self.text.straight(at, part_end, SLOT, false);
        let is_hooked = (forward.start..forward.end).any(|at| unit.exit_at(at).is_some());
        let window =
            if backward.len() < SLOT && forward.len() >= SLOT && !is_hooked { forward } else { backward };
        self.lead_away(unit, window, found, worst)
    }

    /// Takes a window, and what it needs besides.
    fn lead_away(
        &mut self,
        unit: &Unit<'a>,
        window: Window,
        found: &mut Vec<Detour>,
        worst: &mut Tactic,
    ) -> bool {
        let (tactic, detours) = if window.len() >= SLOT {
            let tactic = if window.end > window.code_end { Tactic::Padding } else { Tactic::Displace };
            (tactic, vec![Detour { window, way: Way::Jump }])
        } else if window.len() < 2 {
            return false;
        } else if let Some(detour) = self.by_slot(window) {
            (Tactic::Short, vec![detour])
        } else if let Some(detours) = self.by_evicted(unit, window) {
            (Tactic::Evict, detours)
        } else {
            return false;
        };
        for detour in &detours {
            self.text.lock(detour.window.start, detour.window.end);
        }
        found.extend(detours);
        *worst = tactic.max(*worst);
        true
    }

    /// Gives back the bytes of a detour that isn't used.
    fn unlock(&mut self, detour: Detour) {
        let window = detour.window;
        self.text.locked.clear_all(window.start, window.end);
        self.text.free.set_all(window.code_end, window.end);
        if let Way::Slot(slot) = detour.way
            && self.text.flow.padding.get(slot)
        {
            self.text.locked.clear_all(slot, slot + SLOT);
            self.text.free.set_all(slot, slot + SLOT);
        }
    }

    /// Functions that call nothing may be copied where a site of theirs is open.
    fn copies(&mut self) {
        let flow = self.text.flow;
        let open: Vec<usize> = self.open.iter().map(|open| open.unit).collect();
        let loops = self.choices.iter().enumerate();
        let loops =
            loops.filter(|(_, choice)| choice.outcome == Err(Refusal::EntryLoop)).map(|(index, _)| index);
        let mut candidates: Vec<usize> = open.into_iter().chain(loops).collect();
        candidates.sort_unstable();
        candidates.dedup();
        for index in candidates {
            let Some(unit) = flow.units.get(index).filter(|unit| unit.is_leaf && unit.refusal.is_none())
            else {
                continue;
            };
            let entry = entry_of(self.text.image, unit.start);
            let Some((_, part_end)) = unit.parts.first().copied() else { continue };
            let window = Window { start: entry, code_end: entry + SLOT, end: entry + SLOT };
            let is_on_page = window.end <= page_end(entry);
            if part_end < window.end || !is_on_page || !self.is_copyable(unit, entry) {
                continue;
            }
            let Some(choice) = self.choices.get_mut(index) else { continue };
            for detour in choice.detours.drain(..) {
                self.text.locked.clear_all(detour.window.start, detour.window.end);
            }
            if self.text.locked.any(window.start, window.end) {
                choice.outcome = Err(Refusal::TooSmall);
                continue;
            }
            choice.outcome = Ok(Tactic::Copy);
            choice.tactics = vec![Tactic::Copy];
            choice.is_copied = true;
            choice.detours.push(Detour { window, way: Way::Jump });
            self.text.lock(window.start, window.end);
        }
    }

    /// Whether each instruction of the function can be moved, and its entry doesn't begin in the
    /// middle of what is behind `endbr64`.
    fn is_copyable(&self, unit: &Unit<'_>, entry: u64) -> bool {
        self.text.flow.starts.get(entry)
            && unit.parts.iter().all(|&(start, end)| {
                crate::code::decode(self.text.image, start, end).iter().all(|instruction| {
                    crate::code::is_movable(instruction)
                        && !self.text.flow.targets.any(instruction.ip() + 1, instruction.next_ip())
                })
            })
    }

    fn evict(&mut self, unit: &Unit<'a>, open: &Open) -> Option<(Tactic, Vec<Detour>)> {
        let window = self.window(unit, open, 2)?;
        Some((Tactic::Evict, self.by_evicted(unit, window)?))
    }

    /// Straight code of ten bytes in reach, of this function or a neighbour, makes place for its
    /// own jump and for ours.
    fn by_evicted(&self, unit: &Unit<'a>, window: Window) -> Option<Vec<Detour>> {
        /// Functions on each side that are tried.
        const NEIGHBOURS: usize = 12;
        let units = &self.text.flow.units;
        let index = units.partition_point(|one| one.start < unit.start);
        let near = index.saturating_sub(NEIGHBOURS)..(index + NEIGHBOURS + 1).min(units.len());
        let is_known = |index: &usize| {
            let is_moved = |unit: &Unit<'_>| unit.refusal.is_none() && !unit.has_entry_loop;
            // All of a copied function stays as it is.
            self.choices.get(*index).is_some_and(|choice| !choice.is_copied)
                && units.get(*index).is_some_and(is_moved)
        };
        std::iter::once(index)
            .chain(near.filter(|&near| near != index))
            .filter(is_known)
            .find_map(|index| self.evicted_from(units.get(index)?, window))
    }

    fn evicted_from(&self, unit: &Unit<'a>, window: Window) -> Option<Vec<Detour>> {
        let low = (window.start + 2).saturating_sub(SHORT_REACH + 1 + SLOT);
        let high = window.start + 2 + SHORT_REACH - SLOT;
        let entry = entry_of(self.text.image, unit.start);
        for &(part_start, part_end) in &unit.parts {
            let mut from = low.max(part_start);
            while let Some(start) = self.text.flow.starts.first(from, high.min(part_end)) {
                from = start + 1;
                let evicted = self.text.straight(start, part_end, 2 * SLOT, false);
                let is_hooked =
                    (evicted.start..evicted.end).any(|at| at == entry || unit.exit_at(at).is_some());
                // An entry's window begins behind `endbr64`, which is to stay.
                let is_behind_entry = part_start != unit.start || start >= entry;
                if evicted.len() >= 2 * SLOT && !evicted.overlaps(window) && !is_hooked && is_behind_entry {
                    let evicted = Detour { window: evicted, way: Way::Jump };
                    let own = Detour { window, way: Way::Slot(start + SLOT) };
                    return Some(vec![evicted, own]);
                }
            }
        }
        None
    }

    fn pun(&mut self, unit: &Unit<'_>, open: &Open) -> Option<(Tactic, Vec<Detour>)> {
        let window = self.window(unit, open, PUN_LENGTH)?;
        let fixed = (window.end, window.start + SLOT);
        if fixed.0 >= fixed.1 || self.text.locked.any(fixed.0, fixed.1) {
            return None;
        }
        // The next function's entry may be patched later.
        let next = self.functions.all.partition_point(|function| function.start <= window.start);
        if self.functions.all.get(next).is_some_and(|function| function.start < fixed.1) {
            return None;
        }
        let target = self.islands.pun(self.text.image, window)?;
        self.text.lock(fixed.0, fixed.1);
        Some((Tactic::Pun, vec![Detour { window, way: Way::Pun(target) }]))
    }

    /// An entry with nothing but pushes before its first call, which nothing else leads to.
    fn first_call(&mut self, unit: &Unit<'_>, open: &Open) -> Option<(Tactic, Vec<Detour>)> {
        if open.exit.is_some() {
            return None;
        }
        let entry = entry_of(self.text.image, unit.start);
        let (_, part_end) = unit.part_of(entry)?;
        let mut at = entry;
        let end = loop {
            let instruction = instruction_at(self.text.image, at, part_end)?;
            let next = instruction.next_ip();
            let is_jumped_to = at > entry && self.text.flow.targets.get(at);
            if is_jumped_to || self.text.flow.targets.any(at + 1, next) || self.text.locked.any(at, next) {
                return None;
            }
            if instruction.code() == Code::Call_rel32_64 && instruction.len() as u64 == SLOT {
                break next;
            }
            if !is_push(&instruction) || next - entry > PUSHES {
                return None;
            }
            at = next;
        };
        let window = Window { start: entry, code_end: end, end };
        let is_on_page = end <= page_end(end - DISPLACEMENT);
        is_on_page.then(|| (Tactic::Call, vec![Detour { window, way: Way::Call }]))
    }
}

/// Whether an instruction pushes a register of 64 bits that isn't the stack pointer.
fn is_push(instruction: &Instruction) -> bool {
    instruction.code() == Code::Push_r64 && instruction.op0_register() != Register::RSP
}

/// `jmp` or `jcc` with a displacement of 32 bits, which are its last bytes, and on one page.
fn has_displacement(instruction: &Instruction) -> bool {
    let end = instruction.next_ip();
    let is_on_page = end.checked_sub(DISPLACEMENT).is_some_and(|start| end <= page_end(start));
    (instruction.is_jmp_near() || instruction.is_jcc_near()) && is_on_page
}

/// Windows that overlap become one.
fn merged(mut windows: Vec<Window>) -> Vec<Window> {
    windows.sort_by_key(|window| (window.start, window.end));
    let mut all: Vec<Window> = Vec::with_capacity(windows.len());
    for window in windows {
        match all.last_mut() {
            Some(last) if last.overlaps(window) => {
                last.code_end = last.code_end.max(window.code_end);
                last.end = last.end.max(window.end);
            }
            _ => all.push(window),
        }
    }
    all
}
