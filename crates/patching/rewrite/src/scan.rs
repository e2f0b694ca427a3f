//! One pass over each function's instructions.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register, RflagsBits};

use crate::bitmap::Bitmap;
use crate::code::{Kind, kind_of, padding};
use crate::functions::Function;
use crate::image::Image;
use crate::parallel;

/// Instructions at an entry that are looked at for flags that they read.
const FLAGS_WITHIN: usize = 32;

/// A jump with a known target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jump {
    pub(crate) at: u64,
    pub(crate) to: u64,
    pub(crate) is_conditional: bool,
}

/// An instruction that loads an address into a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) at: u64,
    pub(crate) register: Register,
    pub(crate) address: u64,
}

/// One function.
#[derive(Default)]
pub(crate) struct Scan {
    /// Jumps that leave the function.
    pub(crate) leaving: Vec<Jump>,
    pub(crate) returns: Vec<u64>,
    pub(crate) indirect: Vec<u64>,
    /// Addresses that it calls.
    pub(crate) calls: Vec<u64>,
    /// Kept if there are indirect jumps.
    pub(crate) loads: Vec<Load>,
    /// Bytes behind unconditional jumps that do nothing.
    pub(crate) padding: Vec<(u64, u64)>,
    pub(crate) has_calls: bool,
    /// Jumps to its entry.
    pub(crate) has_entry_loop: bool,
    pub(crate) has_data: bool,
    /// Its last instruction continues behind its end.
    pub(crate) falls_through: bool,
    /// Nothing that is behind its end is reached from its last instruction.
    pub(crate) ends_dead: bool,
    /// Something that ran before it has left flags that it reads.
    pub(crate) reads_flags: bool,
}

/// All functions.
pub(crate) struct Scans {
    /// In the functions' order.
    pub(crate) all: Vec<Scan>,
    /// Where instructions begin.
    pub(crate) starts: Bitmap,
    /// Where jumps and calls lead to.
    pub(crate) targets: Bitmap,
    /// Those of `targets` that something else leads to than a jump with a displacement in the same
    /// function.
    pub(crate) entered: Bitmap,
    /// Addresses of code that instructions compute, sorted.
    pub(crate) taken: Vec<u64>,
}

pub(crate) fn scan(image: &Image<'_>, functions: &[Function<'_>]) -> Scans {
    let (low, high) = image.code;
    let mut scans = Scans {
        all: Vec::with_capacity(functions.len()),
        starts: Bitmap::new(low, high),
        targets: Bitmap::new(low, high),
        entered: Bitmap::new(low, high),
        taken: Vec::new(),
    };
    let parts = parallel::chunks(functions, |_, functions| {
        let end = functions.iter().map(|function| function.end).max().unwrap_or(low);
        // Words of all bitmaps begin at the same addresses.
        let start = functions.first().map_or(low, |function| function.start - (function.start - low) % 64);
        let mut part = Part {
            starts: Bitmap::new(start, end),
            targets: Bitmap::new(start, end),
            outer: Vec::new(),
            taken: Vec::new(),
        };
        let all: Vec<Scan> = functions.iter().map(|function| part.function(image, function)).collect();
        (all, part)
    });
    for (all, part) in parts {
        scans.all.extend(all);
        scans.starts.merge(&part.starts);
        scans.targets.merge(&part.targets);
        part.outer.iter().for_each(|&target| scans.enter(target));
        scans.taken.extend(part.taken);
    }
    scans.taken.sort_unstable();
    scans.taken.dedup();
    scans
}

impl Scans {
    /// Something leads there, but no jump with a displacement in the same function.
    pub(crate) fn enter(&mut self, at: u64) {
        self.targets.set(at);
        self.entered.set(at);
    }
}

/// The results of one thread.
struct Part {
    starts: Bitmap,
    targets: Bitmap,
    /// Targets of calls, and of jumps out of the function.
    outer: Vec<u64>,
    taken: Vec<u64>,
}

impl Part {
    fn target(&mut self, function: &Function<'_>, to: u64) {
        if to >= function.start && to < function.end {
            self.targets.set(to);
        } else {
            self.outer.push(to);
        }
    }

    fn function(&mut self, image: &Image<'_>, function: &Function<'_>) -> Scan {
        let mut scan = Scan { ends_dead: true, ..Scan::default() };
        let bytes = image.bytes(function.start, function.end);
        let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut flags = Flags::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let (at, end) = (instruction.ip(), instruction.next_ip());
            self.starts.set(at);
            let kind = kind_of(&instruction);
            flags.see(&instruction, kind);
            match kind {
                Kind::Branch { to, is_conditional } => {
                    self.target(function, to);
                    scan.has_entry_loop |= to == function.start;
                    if to < function.start || to >= function.end {
                        scan.leaving.push(Jump { at, to, is_conditional });
                    }
                }
                Kind::Call => {
                    scan.has_calls = true;
                    if instruction.op0_kind() == OpKind::NearBranch64 {
                        let to = instruction.near_branch64();
                        self.outer.push(to);
                        scan.calls.push(to);
                    }
                }
                Kind::IndirectJump => scan.indirect.push(at),
                Kind::Return => scan.returns.push(at),
                Kind::Invalid => scan.has_data = true,
                Kind::Plain => self.loads(image, &instruction, &mut scan),
                Kind::Stop => {}
            }
            let offset = (end - function.start) as usize;
            if !kind.falls_through()
                && let Some(rest) = bytes.get(offset..)
            {
                let dead = padding(rest) as u64;
                if dead > 0 {
                    scan.padding.push((end, end + dead));
                }
            }
            // Bytes behind a last call are never reached: that call doesn't return.
            let offset = (at - function.start) as usize;
            let own = bytes.get(offset..(end - function.start) as usize).unwrap_or_default();
            if padding(own) < own.len() {
                scan.falls_through = kind.falls_through() && !matches!(kind, Kind::Call | Kind::Invalid);
                scan.ends_dead = !kind.falls_through() || kind == Kind::Call;
            }
        }
        scan.reads_flags = flags.are_read;
        if scan.indirect.is_empty() {
            scan.loads = Vec::new();
        }
        scan
    }

    fn loads(&mut self, image: &Image<'_>, instruction: &Instruction, scan: &mut Scan) {
        let at = instruction.ip();
        if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address();
            if image.is_code(address) {
                self.taken.push(address);
            }
            scan.loads.push(Load { at, register: instruction.op0_register(), address });
        } else if !image.is_relocated() {
            for operand in 0..instruction.op_count() {
                let kind = instruction.op_kind(operand);
                if !matches!(kind, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64) {
                    continue;
                }
                let address = instruction.immediate(operand);
                if image.is_code(address) {
                    self.taken.push(address);
                }
                if image.section_of(address).is_some() && instruction.op0_kind() == OpKind::Register {
                    scan.loads.push(Load { at, register: instruction.op0_register(), address });
                }
            }
        }
    }
}

/// Which flags an entry reads that it hasn't written.
struct Flags {
    unwritten: u32,
    left: usize,
    are_read: bool,
}

impl Default for Flags {
    fn default() -> Self {
        const STATUS: u32 = RflagsBits::CF
            | RflagsBits::PF
            | RflagsBits::AF
            | RflagsBits::ZF
            | RflagsBits::SF
            | RflagsBits::OF;
        Self { unwritten: STATUS, left: FLAGS_WITHIN, are_read: false }
    }
}

impl Flags {
    fn see(&mut self, instruction: &Instruction, kind: Kind) {
        // A system call saves flags, but nothing expects any of them.
        if self.left == 0 || instruction.mnemonic() == Mnemonic::Syscall {
            self.left = 0;
            return;
        }
        self.left -= 1;
        self.are_read |= instruction.rflags_read() & self.unwritten != 0;
        self.unwritten &= !instruction.rflags_modified();
        if kind != Kind::Plain || self.unwritten == 0 {
            self.left = 0;
        }
    }
}
