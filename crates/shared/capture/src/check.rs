//! Checks that a program has to pass before it may run.

use everycall_format::Wire;
use everycall_format::capture::{
    CONDITIONS, COPY_MAX, COST_MAX, ERRNO, INSTRUCTIONS_MAX, Instruction, MAGIC, OUTPUT_MAX, POOL_MAX,
    ProgramHeader, READS_MAX, REGISTERS, TextHeader, UNTIL_ZERO, calculation, comparison, likeness,
    operation, register, status,
};

/// A checked program. It borrows its bytes, which can't change any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Program<'a> {
    header: ProgramHeader,
    instructions: &'a [u8],
    pool: &'a [u8],
    output_max: usize,
    may_reject: bool,
}

/// Why a program may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The header is damaged, or the bytes are fewer or more than it says.
    Header,
    /// The instruction with this index has an unknown operation, register, size or place.
    Instruction(usize),
    /// The instruction with this index jumps backwards, to itself, or beyond the program.
    Jump(usize),
    /// It may write more than [`OUTPUT_MAX`] bytes.
    Output,
    /// It may read more often than [`READS_MAX`] times.
    Reads,
    /// It may take more than [`COST_MAX`] steps.
    Cost,
}

/// Bounds of what one instruction does.
#[derive(Default)]
struct Bounds {
    output: usize,
    reads: usize,
    cost: u32,
}

impl<'a> Program<'a> {
    /// Checks a program.
    ///
    /// # Errors
    ///
    /// If one of the rules of [`everycall_format::capture`] is broken.
    pub fn check(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let header = ProgramHeader::read(bytes).ok_or(Refusal::Header)?;
        let count = header.instructions as usize;
        let pool_size = header.pool as usize;
        if header.magic != MAGIC || count == 0 || count > INSTRUCTIONS_MAX || pool_size > POOL_MAX {
            return Err(Refusal::Header);
        }
        let rest = bytes.get(ProgramHeader::SIZE..).ok_or(Refusal::Header)?;
        let (instructions, pool) = rest.split_at_checked(count * Instruction::SIZE).ok_or(Refusal::Header)?;
        if pool.len() != pool_size {
            return Err(Refusal::Header);
        }
        let mut program = Self { header, instructions, pool, output_max: 0, may_reject: false };
        let mut sum = Bounds::default();
        for at in 0..count {
            let instruction = program.instruction(at).ok_or(Refusal::Header)?;
            let bounds = program.bounds(at, &instruction)?;
            program.may_reject |= instruction.operation == operation::REJECT;
            sum.output += bounds.output;
            sum.reads += bounds.reads;
            sum.cost += bounds.cost;
        }
        if sum.output > OUTPUT_MAX {
            return Err(Refusal::Output);
        }
        if sum.reads > READS_MAX {
            return Err(Refusal::Reads);
        }
        if sum.cost > COST_MAX {
            return Err(Refusal::Cost);
        }
        program.output_max = sum.output;
        Ok(program)
    }

    /// The program's id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.header.id
    }

    /// The most bytes that it writes.
    #[must_use]
    pub fn output_max(&self) -> usize {
        self.output_max
    }

    /// Whether it has a condition that may be false.
    #[must_use]
    pub fn may_reject(&self) -> bool {
        self.may_reject
    }

    /// The instruction with this index; `None` behind the last one.
    pub(crate) fn instruction(&self, at: usize) -> Option<Instruction> {
        let start = at.checked_mul(Instruction::SIZE)?;
        self.instructions.get(start..).and_then(Instruction::read)
    }

    /// The bytes of the pool that a value of [`operation::COMPARE_TEXT`] means.
    pub(crate) fn pool_bytes(&self, value: u64) -> Option<&'a [u8]> {
        let start = value as u32 as usize;
        let length = (value >> 32) as usize;
        self.pool.get(start..start.checked_add(length)?)
    }

    /// Checks one instruction. The sum of the costs is the bound of a run, because each instruction
    /// runs at most once.
    fn bounds(&self, at: usize, it: &Instruction) -> Result<Bounds, Refusal> {
        let is_register = |number: u8| usize::from(number) < REGISTERS;
        let is_length = |number: u8| number == UNTIL_ZERO || is_register(number);
        let size = it.size as usize;
        let is_word = matches!(size, 1 | 2 | 4 | 8);
        let wrong = Refusal::Instruction(at);
        let mut bounds = Bounds { output: 0, reads: 0, cost: 1 };
        let is_right = match it.operation {
            operation::END | operation::REJECT => true,
            operation::ITEM => {
                bounds.output = 1;
                self.check_jump(at, size)?;
                it.value <= u64::from(status::ABSENT)
            }
            operation::GUARD | operation::JUMP => {
                self.check_jump(at, size)?;
                true
            }
            operation::JUMP_IF_ZERO | operation::JUMP_UNLESS_ZERO => {
                self.check_jump(at, size)?;
                is_register(it.left)
            }
            operation::CONSTANT => is_register(it.target),
            operation::REGISTER => is_register(it.target) && is_call_register(it.size),
            operation::LOAD => {
                bounds.reads = 1;
                bounds.cost = 16;
                is_register(it.target) && is_register(it.left) && it.right <= 1 && is_word
            }
            operation::CALCULATE => {
                bounds.cost = 8;
                is_register(it.target)
                    && is_register(it.left)
                    && is_register(it.right)
                    && it.size < calculation::COUNT
            }
            operation::COMPARE => {
                is_register(it.target)
                    && is_register(it.left)
                    && is_register(it.right)
                    && it.size < comparison::COUNT
            }
            operation::EMIT => {
                bounds.output = size.min(8);
                is_register(it.left) && (1..=8).contains(&size)
            }
            operation::COPY => {
                bounds.output = size.min(COPY_MAX);
                bounds.reads = 1;
                bounds.cost = 16 + it.size.min(COPY_MAX as u32) / 8;
                is_register(it.left) && (1..=COPY_MAX).contains(&size)
            }
            operation::COPY_TEXT => {
                bounds.output = TextHeader::SIZE + size.min(COPY_MAX);
                bounds.reads = 1;
                bounds.cost = 16 + it.size.min(COPY_MAX as u32);
                is_register(it.left) && is_length(it.right) && size <= COPY_MAX
            }
            operation::COMPARE_TEXT => {
                let text = self.pool_bytes(it.value).ok_or(wrong)?;
                bounds.reads = 1;
                let tries = if it.size == likeness::CONTAINS { COPY_MAX } else { 1 };
                // A pool is at most `POOL_MAX`, so this doesn't overflow.
                bounds.cost = 16 + COPY_MAX as u32 + (tries * text.len().min(COPY_MAX) / 4) as u32;
                is_register(it.target)
                    && is_register(it.left)
                    && is_length(it.right)
                    && it.size < likeness::COUNT
                    && text.len() < COPY_MAX
            }
            operation::FAIL_IF_ZERO => is_register(it.left),
            operation::BITS => {
                is_register(it.target)
                    && is_register(it.left)
                    && it.right <= 1
                    && (1..=64).contains(&size)
                    && it.value < 64
            }
            operation::WIDEN_FLOAT => is_register(it.target) && is_register(it.left),
            operation::MEET => it.size < CONDITIONS,
            _ => false,
        };
        if is_right { Ok(bounds) } else { Err(wrong) }
    }

    fn check_jump(&self, at: usize, to: usize) -> Result<(), Refusal> {
        if to > at && to <= self.header.instructions as usize { Ok(()) } else { Err(Refusal::Jump(at)) }
    }
}

/// Whether the traced call has a register of this number, or it is that of `errno`.
fn is_call_register(number: u32) -> bool {
    let general = register::GENERAL..register::GENERAL + register::GENERAL_COUNT;
    general.contains(&number) || (register::VECTOR..register::END).contains(&number) || number == ERRNO
}
