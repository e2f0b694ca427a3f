//! Which whole instructions around an entry or exit may be moved away.

use iced_x86::Instruction;

use crate::bitmap::Bitmap;
use crate::code::{MAX_INSTRUCTION, instruction_at, is_movable, kind_of};
use crate::flow::{Flow, Unit};
use crate::image::Image;
use crate::layout::{page_end, page_start};

/// Instructions that are replaced: `start..code_end`, then padding up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) code_end: u64,
    pub(crate) end: u64,
}

impl Window {
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The bytes of a file, and what may be done with each.
pub(crate) struct Text<'a> {
    pub(crate) image: &'a Image<'a>,
    pub(crate) flow: &'a Flow<'a>,
    /// Padding that nobody has taken.
    pub(crate) free: Bitmap,
    /// Bytes that are patched, that a displacement relies on, or that must stay as they are.
    pub(crate) locked: Bitmap,
}

impl Text<'_> {
    /// Of `need` bytes, or of fewer if there aren't more, from an entry on.
    pub(crate) fn forward(&self, unit: &Unit<'_>, start: u64, need: u64) -> Window {
        let part_end = unit.part_of(start).map_or(start, |(_, end)| end);
        self.straight(start, part_end, need, true)
    }

    /// Straight code from `start` on. `may_pad`: padding behind it may be used as well.
    pub(crate) fn straight(&self, start: u64, part_end: u64, need: u64, may_pad: bool) -> Window {
        let mut window = Window { start, code_end: start, end: start };
        let part_end = part_end.min(page_end(start));
        while window.len() < need {
            let at = window.end;
            if at > start && self.flow.targets.get(at) {
                break;
            }
            let Some(instruction) = self.movable(at, part_end) else { break };
            if self.flow.targets.any(at + 1, instruction.next_ip()) {
                break;
            }
            window.code_end = instruction.next_ip();
            window.end = window.code_end;
            if !kind_of(&instruction).falls_through() {
                if may_pad {
                    window.end += self.padding(window, need);
                }
                break;
            }
        }
        window
    }

    /// Of `need` bytes, or of fewer if there aren't more, up to the exit at `at`.
    pub(crate) fn backward(&self, unit: &Unit<'_>, at: u64, need: u64) -> Window {
        let (part_start, part_end) = unit.part_of(at).unwrap_or((at, at));
        let (part_start, part_end) = (part_start.max(page_start(at)), part_end.min(page_end(at)));
        let mut window = Window { start: at, code_end: at, end: at };
        let Some(exit) = self.movable(at, part_end) else { return window };
        if self.flow.targets.any(at + 1, exit.next_ip()) {
            return window;
        }
        window.code_end = exit.next_ip();
        window.end = window.code_end;
        if !kind_of(&exit).falls_through() {
            window.end += self.padding(window, need);
        }
        while window.len() < need && !self.flow.targets.get(window.start) {
            let Some(before) = self.continuing(unit, window.start, part_start) else { break };
            window.start = before;
        }
        window
    }

    /// Of `need` bytes, or of fewer if there aren't more, that continue at `end`, which isn't in
    /// it.
    pub(crate) fn up_to(&self, unit: &Unit<'_>, end: u64, need: u64) -> Window {
        let part_start = unit.part_of(end).map_or(end, |(start, _)| start);
        let part_start = part_start.max(page_start(end.saturating_sub(1)));
        let mut window = Window { start: end, code_end: end, end };
        while window.len() < need && (window.start == end || !self.flow.targets.get(window.start)) {
            let Some(before) = self.continuing(unit, window.start, part_start) else { break };
            window.start = before;
        }
        window
    }

    /// Free bytes behind a window that are missing from `need`, as far as they are on its page.
    fn padding(&self, window: Window, need: u64) -> u64 {
        let on_page = page_end(window.start).saturating_sub(window.end);
        self.free.run(window.end, need.saturating_sub(window.len()).min(on_page))
    }

    /// The start of a movable instruction that continues at `at`, which isn't the entry.
    fn continuing(&self, unit: &Unit<'_>, at: u64, part_start: u64) -> Option<u64> {
        let before = self.before(at, part_start).filter(|_| at != entry_of(self.image, unit.start))?;
        let instruction = self.movable(before, at)?;
        let continues = instruction.next_ip() == at && kind_of(&instruction).falls_through();
        (continues && !self.flow.targets.any(before + 1, at)).then_some(before)
    }

    /// The instruction before the one at `at`.
    pub(crate) fn before(&self, at: u64, part_start: u64) -> Option<u64> {
        (1..=MAX_INSTRUCTION)
            .map_while(|length| at.checked_sub(length))
            .take_while(|&before| before >= part_start)
            .find(|&before| self.flow.starts.get(before))
    }

    fn movable(&self, at: u64, end: u64) -> Option<Instruction> {
        let instruction = instruction_at(self.image, at, end)?;
        let is_free = !self.locked.any(at, instruction.next_ip());
        (is_free && is_movable(&instruction)).then_some(instruction)
    }

    /// Takes the bytes for a patch.
    pub(crate) fn lock(&mut self, start: u64, end: u64) {
        self.locked.set_all(start, end);
        self.free.clear_all(start, end);
    }

    /// Five free bytes that a jump of two bytes at `at` reaches.
    pub(crate) fn slot(&mut self, at: u64) -> Option<u64> {
        let next = at.checked_add(2)?;
        let low = next.saturating_sub(128);
        let mut candidate = low;
        while let Some(slot) = self.free.first(candidate, next + 128) {
            let run = self.free.run(slot, SLOT.min(page_end(slot) - slot));
            if run == SLOT {
                self.lock(slot, slot + SLOT);
                return Some(slot);
            }
            candidate = slot + run;
        }
        None
    }
}

/// Bytes of a jump that reaches every trampoline.
pub(crate) const SLOT: u64 = 5;

/// Where a function's first hook goes: `endbr64` stays what an indirect call finds.
pub(crate) fn entry_of(image: &Image<'_>, start: u64) -> u64 {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    if image.bytes(start, start.saturating_add(4)) == ENDBR64 { start + 4 } else { start }
}
