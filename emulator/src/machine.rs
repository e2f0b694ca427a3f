//! An emulated processor with a module and its trampolines in its memory.

use everycall_rewrite::Plan;
use object::{Object as _, ObjectSegment as _};
use unicorn_engine::{Arch, HookType, MemType, Mode, Prot, RegisterX86, Unicorn};

const PAGE: u64 = 4096;
const STACK: u64 = 0x7e_0000_0000;
const STACK_SIZE: u64 = 0x1_0000;
const THREAD: u64 = 0x7d_0000_0000;
/// Pages that one run may need.
const PAGES: usize = 16;
const RET: u8 = 0xc3;
/// Carry, parity, adjust, zero, sign, overflow.
const FLAGS: u64 = 0x8d5;

const REGISTERS: [RegisterX86; 16] = [
    RegisterX86::RAX,
    RegisterX86::RBX,
    RegisterX86::RCX,
    RegisterX86::RDX,
    RegisterX86::RSI,
    RegisterX86::RDI,
    RegisterX86::RBP,
    RegisterX86::RSP,
    RegisterX86::R8,
    RegisterX86::R9,
    RegisterX86::R10,
    RegisterX86::R11,
    RegisterX86::R12,
    RegisterX86::R13,
    RegisterX86::R14,
    RegisterX86::R15,
];

const VECTORS: [RegisterX86; 16] = [
    RegisterX86::XMM0,
    RegisterX86::XMM1,
    RegisterX86::XMM2,
    RegisterX86::XMM3,
    RegisterX86::XMM4,
    RegisterX86::XMM5,
    RegisterX86::XMM6,
    RegisterX86::XMM7,
    RegisterX86::XMM8,
    RegisterX86::XMM9,
    RegisterX86::XMM10,
    RegisterX86::XMM11,
    RegisterX86::XMM12,
    RegisterX86::XMM13,
    RegisterX86::XMM14,
    RegisterX86::XMM15,
];

/// A generator of numbers: the same for each run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Often an address that can be mapped, or a small number.
    fn value(&mut self) -> u64 {
        let number = self.next();
        match number % 5 {
            0 => number >> 58,
            1 => number,
            _ => (number & 0xff_ffff_fff8) | 1 << 40,
        }
    }
}

/// The state when a run left the code that is compared.
#[derive(PartialEq)]
pub struct End {
    rip: u64,
    registers: [u64; 16],
    vectors: Vec<Vec<u8>>,
    flags: u64,
    /// Address, size, value.
    writes: Vec<(u64, usize, i64)>,
}

impl End {
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.rip != other.rip {
            lines.push(format!("rip {:x} {:x}", self.rip, other.rip));
        }
        for (index, (one, other)) in self.registers.iter().zip(&other.registers).enumerate() {
            if one != other {
                lines.push(format!("{:?} {one:x} {other:x}", REGISTERS[index]));
            }
        }
        if self.vectors != other.vectors {
            lines.push("vector registers".to_owned());
        }
        if self.flags != other.flags {
            lines.push(format!("flags {:x} {:x}", self.flags, other.flags));
        }
        if self.writes != other.writes {
            lines.push(format!("writes {:x?} {:x?}", self.writes, other.writes));
        }
        lines
    }
}

/// Why a run has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An instruction that faults, or that the emulator doesn't know.
    Fault,
    Loop,
}

#[derive(Default)]
struct Log {
    is_on: bool,
    /// The instruction is the call of a hook: its write isn't the program's.
    is_hook: bool,
    /// Pages that this run needed.
    pages: Vec<u64>,
    /// The hook was called, and returns next.
    is_called: bool,
    writes: Vec<(u64, usize, i64)>,
    before: Vec<(u64, Vec<u8>)>,
}

pub struct Machine {
    unicorn: Unicorn<'static, Log>,
    /// Calls of hooks, sorted.
    calls: Vec<u64>,
}

/// Random content, which a page's address decides.
fn content(page: u64) -> Vec<u8> {
    let mut random = Random(page);
    (0..PAGE / 8).flat_map(|_| random.value().to_le_bytes()).collect()
}

fn map(unicorn: &mut Unicorn<'_, Log>, page: u64) -> bool {
    unicorn.mem_map(page, PAGE, Prot::ALL).is_ok() && unicorn.mem_write(page, &content(page)).is_ok()
}

fn text<T: std::fmt::Debug>(error: T) -> String {
    format!("{error:?}")
}

impl Machine {
    pub fn new(file: &[u8], plan: &Plan, base: u64) -> Result<Self, String> {
        let mut unicorn = Unicorn::new_with_data(Arch::X86, Mode::MODE_64, Log::default()).map_err(text)?;
        let start = base.wrapping_add(plan.module.start) & !(PAGE - 1);
        let end = base.wrapping_add(plan.module.end).next_multiple_of(PAGE);
        unicorn.mem_map(start, end - start, Prot::ALL).map_err(text)?;
        let elf = object::File::parse(file).map_err(text)?;
        for segment in elf.segments() {
            let data = segment.data().map_err(text)?;
            unicorn.mem_write(base.wrapping_add(segment.address()), data).map_err(text)?;
        }
        for page in (STACK..STACK + STACK_SIZE).step_by(PAGE as usize).chain([THREAD]) {
            map(&mut unicorn, page);
        }
        let unmapped = HookType::MEM_READ_UNMAPPED | HookType::MEM_WRITE_UNMAPPED;
        unicorn
            .add_mem_hook(unmapped, 1, 0, |unicorn: &mut Unicorn<'_, Log>, _: MemType, at, size, _| {
                // A repeated instruction with a large count would go on for hours.
                if unicorn.get_data().pages.len() > PAGES {
                    return false;
                }
                let first = at & !(PAGE - 1);
                let last = at.wrapping_add(size as u64 - 1) & !(PAGE - 1);
                let mut is_mapped = false;
                for page in if first == last { vec![first] } else { vec![first, last] } {
                    if map(unicorn, page) {
                        unicorn.get_data_mut().pages.push(page);
                        is_mapped = true;
                    }
                }
                is_mapped
            })
            .map_err(text)?;
        unicorn
            .add_mem_hook(
                HookType::MEM_WRITE,
                1,
                0,
                |unicorn: &mut Unicorn<'_, Log>, _: MemType, at, size, value| {
                    if unicorn.get_data().is_on {
                        let before = unicorn.mem_read_as_vec(at, size).unwrap_or_default();
                        let log = unicorn.get_data_mut();
                        log.before.push((at, before));
                        if !log.is_hook {
                            log.writes.push((at, size, value));
                        }
                    }
                    true
                },
            )
            .map_err(text)?;
        let region = base.wrapping_add_signed(plan.region);
        let calls = plan.calls.iter().map(|call| region + u64::from(call.at)).collect();
        Ok(Self { unicorn, calls })
    }

    /// Maps the trampolines, with hooks that only return, and writes the patches.
    pub fn apply(&mut self, plan: &Plan, base: u64) -> Result<(), String> {
        let region = base.wrapping_add_signed(plan.region);
        self.unicorn.mem_map(region, plan.region_size(), Prot::ALL).map_err(text)?;
        let hooks = vec![RET; plan.hooks.reserved as usize];
        self.unicorn.mem_write(region, &hooks).map_err(text)?;
        self.unicorn.mem_write(region + u64::from(plan.hooks.reserved), &plan.code).map_err(text)?;
        for patch in &plan.patches {
            self.unicorn.mem_write(base.wrapping_add(patch.at), &patch.new).map_err(text)?;
        }
        for island in &plan.islands {
            let at = base.wrapping_add_signed(island.at);
            // Another island may have mapped it.
            let _ = self.unicorn.mem_map(at & !(PAGE - 1), PAGE, Prot::ALL);
            self.unicorn.mem_write(at, &island.bytes).map_err(text)?;
        }
        Ok(())
    }

    pub fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let bytes = self.unicorn.mem_read_as_vec(at, N).unwrap_or_default();
        bytes.try_into().unwrap_or([0; N])
    }

    /// Runs from `start` on as long as `is_inside` holds, from a state that `seed` decides. Memory
    /// is as before afterwards.
    pub fn run(
        &mut self,
        start: u64,
        seed: u64,
        steps: usize,
        is_inside: &dyn Fn(u64) -> bool,
    ) -> Result<End, Stop> {
        let end = self.steps(start, seed, steps, is_inside);
        let log = self.unicorn.get_data_mut();
        (log.is_on, log.is_called) = (false, false);
        log.writes.clear();
        for (at, bytes) in std::mem::take(&mut log.before).into_iter().rev() {
            self.unicorn.mem_write(at, &bytes).map_err(|_| Stop::Fault)?;
        }
        for page in std::mem::take(&mut self.unicorn.get_data_mut().pages) {
            self.unicorn.mem_unmap(page, PAGE).map_err(|_| Stop::Fault)?;
        }
        end
    }

    fn steps(
        &mut self,
        start: u64,
        seed: u64,
        steps: usize,
        is_inside: &dyn Fn(u64) -> bool,
    ) -> Result<End, Stop> {
        let mut random = Random(seed);
        let mut set = |register, value: u64| self.unicorn.reg_write(register, value).map_err(|_| Stop::Fault);
        for register in REGISTERS {
            set(register, random.value())?;
        }
        set(RegisterX86::RSP, STACK + STACK_SIZE / 2 + (random.next() & 0xff8))?;
        // Repeated instructions count it down.
        set(RegisterX86::RCX, random.next() & 0x7f)?;
        set(RegisterX86::FS_BASE, THREAD)?;
        set(RegisterX86::EFLAGS, 2 | random.next() & FLAGS)?;
        for vector in VECTORS {
            let bytes = [random.next().to_le_bytes(), random.value().to_le_bytes()].concat();
            self.unicorn.reg_write_long(vector, &bytes).map_err(|_| Stop::Fault)?;
        }
        let log = self.unicorn.get_data_mut();
        log.is_on = true;
        let mut rip = start;
        for _ in 0..steps {
            let is_hook = self.calls.binary_search(&rip).is_ok();
            self.unicorn.get_data_mut().is_hook = is_hook;
            let result = self.unicorn.emu_start(rip, u64::MAX, 0, 1);
            let next = self.unicorn.reg_read(RegisterX86::RIP).map_err(|_| Stop::Fault)?;
            // The emulator reads the next instruction before it stops, which may not be there.
            if result.is_err() && next == rip {
                return Err(Stop::Fault);
            }
            rip = next;
            // The memory below the stack pointer is nobody's, but code may read it: it keeps what
            // is there in the original.
            let log = self.unicorn.get_data_mut();
            if !is_hook && log.is_called {
                log.is_called = false;
                let last = log.before.last().cloned();
                if let Some((at, bytes)) = last {
                    self.unicorn.mem_write(at, &bytes).map_err(|_| Stop::Fault)?;
                }
            } else if is_hook {
                log.is_called = true;
            }
            if !is_inside(rip) {
                return self.end(rip).ok_or(Stop::Fault);
            }
        }
        Err(Stop::Loop)
    }

    fn end(&mut self, rip: u64) -> Option<End> {
        let mut registers = [0; 16];
        for (value, register) in registers.iter_mut().zip(REGISTERS) {
            *value = self.unicorn.reg_read(register).ok()?;
        }
        let vectors: Option<Vec<Vec<u8>>> = VECTORS
            .iter()
            .map(|&vector| self.unicorn.reg_read_long(vector).ok().map(|bytes| bytes.to_vec()))
            .collect();
        let flags = self.unicorn.reg_read(RegisterX86::EFLAGS).ok()? & FLAGS;
        let all = std::mem::take(&mut self.unicorn.get_data_mut().writes);
        // What a trampoline writes twice is the same in the end.
        let mut writes: Vec<(u64, usize, i64)> = Vec::new();
        for write in all {
            writes.retain(|(at, size, _)| (*at, *size) != (write.0, write.1));
            writes.push(write);
        }
        Some(End { rip, registers, vectors: vectors?, flags, writes })
    }
}
