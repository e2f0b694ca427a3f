//! Indirect jumps: tail calls, or jumps within the function by a table.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashMap;

use crate::bytes::offsets;
use crate::code::{Kind, kind_of};
use crate::image::Image;
use crate::references::References;
use crate::scan::Scan;
use crate::unwind::Unwind;

/// Instructions before a jump in which its table is looked for.
const BEFORE: usize = 24;

/// The kind of an indirect jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Indirect {
    /// It stays in the function.
    Table,
    /// Another function continues.
    Tail,
    Unknown,
}

/// Where the indirect jumps of one function may lead to.
///
/// Many jumps of a large function may use the same table: each is read once.
#[derive(Default)]
pub(crate) struct Targets {
    pub(crate) all: Vec<u64>,
    /// How many entries the table of offsets at an address has.
    offsets: FxHashMap<u64, usize>,
    /// Whether one of the addresses that the function loads into a register is a table's.
    by_base: FxHashMap<Register, bool>,
}

/// The data needed to judge the indirect jumps of one function.
pub(crate) struct Judge<'a> {
    pub(crate) image: &'a Image<'a>,
    pub(crate) unwind: &'a Unwind,
    pub(crate) references: &'a References,
    pub(crate) scan: &'a Scan,
    pub(crate) instructions: &'a [Instruction],
    /// The function and its parts.
    pub(crate) ranges: &'a [(u64, u64)],
    /// How many addresses within the function are taken.
    pub(crate) labels: usize,
}

impl Judge<'_> {
    /// Whether a table may lead there. Clang lets entries that are never used lead to the
    /// function's end, between others.
    fn is_inside(&self, at: u64) -> bool {
        self.ranges.iter().any(|&(start, end)| at >= start && at <= end)
    }

    /// Entries of a table of 32-bit offsets from its own start, as long as they lead into the
    /// function.
    fn offsets(&self, at: u64) -> Vec<u64> {
        let bytes = self.image.section_of(at).map_or(&[][..], |section| section.from(at));
        let entries = offsets(bytes).map(|offset| at.wrapping_add_signed(offset.into()));
        entries.take_while(|&entry| self.is_inside(entry)).collect()
    }

    /// Entries of a table of addresses.
    fn addresses(&self, at: u64) -> Vec<u64> {
        let places = (0..).map_while(|index: u64| at.checked_add(8 * index));
        let entries = places.map_while(|place| self.references.word(self.image, place));
        entries.take_while(|&entry| self.is_inside(entry)).collect()
    }

    /// The kind of the jump with this index. `targets` gets its possible targets.
    pub(crate) fn judge(&self, index: usize, targets: &mut Targets) -> Indirect {
        let Some(jump) = self.instructions.get(index) else { return Indirect::Unknown };
        let level = self.unwind.is_at_entry_level(jump.ip());
        let mut search = Search { judge: self, targets, is_found: false, is_like_table: false };
        if jump.op0_kind() == OpKind::Memory {
            if jump.is_ip_rel_memory_operand() {
                return Indirect::Tail;
            }
            if jump.memory_index() == Register::None || jump.memory_index_scale() != 8 {
                return if level == Some(false) { Indirect::Unknown } else { Indirect::Tail };
            }
            search.is_like_table = true;
            if jump.memory_base() == Register::None {
                search.add(self.addresses(jump.memory_displacement64()), 1);
            }
            search.is_found |= self.labels >= 2;
        } else if let Some(found) = search.by_register(index, jump, level) {
            return found;
        }
        match (search.is_found, level) {
            (true, _) => Indirect::Table,
            (false, Some(true)) if !search.is_like_table => Indirect::Tail,
            _ => Indirect::Unknown,
        }
    }
}

struct Search<'a, 'j> {
    judge: &'a Judge<'j>,
    targets: &'a mut Targets,
    is_found: bool,
    is_like_table: bool,
}

impl Search<'_, '_> {
    fn add(&mut self, entries: Vec<u64>, at_least: usize) {
        self.is_found |= entries.len() >= at_least;
        self.targets.all.extend(entries);
    }

    /// Adds the table of offsets at an address.
    fn offsets(&mut self, at: u64, at_least: usize) {
        let count = match self.targets.offsets.get(&at) {
            Some(count) => *count,
            None => {
                let entries = self.judge.offsets(at);
                self.targets.offsets.insert(at, entries.len());
                self.targets.all.extend(&entries);
                entries.len()
            }
        };
        self.is_found |= count >= at_least;
    }

    /// Adds the tables of offsets whose addresses the function loads into a register.
    fn offsets_by(&mut self, base: Register) {
        if let Some(is_found) = self.targets.by_base.get(&base) {
            self.is_found |= is_found;
            return;
        }
        let before = std::mem::take(&mut self.is_found);
        for load in self.judge.scan.loads.iter().filter(|load| load.register.full_register() == base) {
            self.offsets(load.address, 1);
        }
        self.targets.by_base.insert(base, self.is_found);
        self.is_found |= before;
    }

    /// For a jump to the address in a register.
    fn by_register(&mut self, index: usize, jump: &Instruction, level: Option<bool>) -> Option<Indirect> {
        let judge = self.judge;
        let before = judge.instructions.get(index.saturating_sub(BEFORE)..index).unwrap_or_default();
        for instruction in before.iter().rev() {
            let is_load = instruction.op_count() == 2
                && instruction.op1_kind() == OpKind::Memory
                && instruction.memory_index() != Register::None;
            if is_load && instruction.mnemonic() == Mnemonic::Movsxd && instruction.memory_index_scale() == 4
            {
                self.is_like_table = true;
                self.offsets_by(instruction.memory_base().full_register());
                if self.is_found {
                    break;
                }
            }
            if is_load
                && instruction.mnemonic() == Mnemonic::Mov
                && instruction.memory_index_scale() == 8
                && instruction.op0_register().full_register() == jump.op0_register().full_register()
            {
                self.is_like_table = true;
                self.is_found |= judge.labels >= 2;
                if instruction.memory_base() == Register::None {
                    self.add(judge.addresses(instruction.memory_displacement64()), 1);
                }
                break;
            }
            if kind_of(instruction) == Kind::Return {
                break;
            }
        }
        // Unoptimised code loads the entry in other ways, but the table's address is near.
        if !self.is_found && level != Some(true) {
            let first = judge.instructions.get(index.saturating_sub(BEFORE)).map_or(0, Instruction::ip);
            let loads = &judge.scan.loads;
            let first = loads.partition_point(|load| load.at < first);
            for load in loads.iter().skip(first).take_while(|load| load.at < jump.ip()) {
                let section = judge.image.section_of(load.address);
                if section.is_some_and(|section| !section.is_code && !section.is_writable) {
                    self.offsets(load.address, 2);
                }
            }
        }
        // A computed goto may have loaded its label long before. With the stack as at the entry, it
        // is a tail call, if the function has a frame elsewhere; otherwise it may be either.
        if !self.is_like_table && judge.labels >= 2 {
            if level != Some(true) {
                self.is_found = true;
            } else if !judge
                .instructions
                .iter()
                .any(|at| judge.unwind.is_at_entry_level(at.ip()) == Some(false))
            {
                return Some(Indirect::Unknown);
            }
        }
        None
    }
}
