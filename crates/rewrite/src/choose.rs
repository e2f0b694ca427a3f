//! The cheapest way to hook each entry and exit in place.

use iced_x86::Instruction;

use crate::bitmap::Bitmap;
use crate::code::instruction_at;
use crate::flow::{Exit, ExitKind, Flow, Unit};
use crate::functions::Functions;
use crate::image::Image;
use crate::islands::Islands;
use crate::refusal::Refusal;
use crate::tactic::Tactic;
use crate::windows::{SLOT, Text, Window, entry_of};

/// Reach of a short jump, backward and forward.
const SHORT_REACH: u64 = 127;
/// A pun keeps so many bytes of its displacement at least, to be placed near enough.
const PUN_LENGTH: u64 = 3;

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
    chooser.try_all(Chooser::evict);
    chooser.try_all(Chooser::pun);
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
        (is_near_jump(&instruction) && is_free).then_some(Window { start: exit.at, code_end: end, end })
    }

    fn try_all(&mut self, way: impl Fn(&mut Self, &Unit<'a>, &Open) -> Option<(Tactic, Vec<Detour>)>) {
        let flow = self.text.flow;
        for open in std::mem::take(&mut self.open) {
            let Some(unit) = flow.units.get(open.unit) else { continue };
            if self.choices.get(open.unit).is_none_or(|choice| choice.is_copied) {
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

    /// The smallest window of at least `need` bytes for an entry or exit.
    fn window(&self, unit: &Unit<'_>, open: &Open, need: u64) -> Option<Window> {
        let window = match open.exit {
            None => self.text.forward(unit, entry_of(self.text.image, unit.start), need),
            Some(exit) => self.text.backward(unit, exit.at, need),
        };
        (window.len() >= need).then_some(window)
    }

    fn short(&mut self, unit: &Unit<'_>, open: &Open) -> Option<(Tactic, Vec<Detour>)> {
        let window = self.window(unit, open, 2)?;
        // The slot must not be made of the window's own padding.
        let padding = (window.code_end, window.end);
        self.text.free.clear_all(padding.0, padding.1);
        let slot = self.text.slot(window.start);
        if slot.is_none() {
            (padding.0..padding.1).for_each(|at| self.text.free.set(at));
        }
        Some((Tactic::Short, vec![Detour { window, way: Way::Slot(slot?) }]))
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
            if part_end < window.end || !self.is_copyable(unit, entry) {
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

    /// Straight code of ten bytes in reach makes place for its own jump and for ours.
    fn evict(&mut self, unit: &Unit<'_>, open: &Open) -> Option<(Tactic, Vec<Detour>)> {
        let window = self.window(unit, open, 2)?;
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
                    return Some((Tactic::Evict, vec![evicted, own]));
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
}

/// `jmp` or `jcc` with a displacement of 32 bits, which are its last bytes.
pub(crate) fn is_near_jump(instruction: &Instruction) -> bool {
    instruction.is_jmp_near() || instruction.is_jcc_near()
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
