//! From a sample's registers and its copy of the stack to the callers' addresses.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, LittleEndian, Location,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};
use rustc_hash::FxHashMap;

use crate::arch::{COUNT, FRAME, INSTRUCTION, PRESERVED, STACK};

/// Rows that are kept of a file: those of the addresses that occurred.
const ROWS_KEPT: usize = 1 << 16;
/// Most steps in evaluating an expression.
const STEPS_MAX: u32 = 256;
/// Bytes of an address.
const WORD: u64 = 8;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Registers, by unwind information's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    values: [u64; COUNT],
    /// A bit for each one that is known.
    known: u32,
}

impl Registers {
    /// The value of a register, if it is known.
    pub fn get(&self, number: u16) -> Option<u64> {
        let value = self.values.get(usize::from(number))?;
        (self.known & 1 << number != 0).then_some(*value)
    }

    pub fn set(&mut self, number: u16, value: u64) {
        if let Some(at) = self.values.get_mut(usize::from(number)) {
            *at = value;
            self.known |= 1 << number;
        }
    }
}

/// The copy of a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// The address of its first byte.
    pub begin: u64,
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.begin)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(WORD as usize)?)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

/// How the search for a caller went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The caller's registers; whether the instruction pointer is that of an interrupted
    /// instruction, and not a return address.
    Caller(Registers, bool),
    /// This is the outermost frame.
    Outermost,
    /// Nothing is known of this code.
    Unknown,
    /// The caller's address isn't in the copy of the stack, or isn't plausible.
    Failed,
}

/// Where a value of the caller is.
#[derive(Clone, Debug)]
enum Rule {
    Undefined,
    Same,
    /// In memory, this far from the frame's address.
    At(i64),
    /// This far from the frame's address.
    Is(i64),
    Register(u16),
    AtExpression(UnwindExpression<usize>),
    IsExpression(UnwindExpression<usize>),
}

#[derive(Clone, Debug)]
enum Frame {
    Register(u16, i64),
    Expression(UnwindExpression<usize>),
}

/// How callers are found from one place of code.
#[derive(Clone, Debug)]
struct Row {
    frame: Frame,
    rules: Vec<(u16, Rule)>,
    is_signal: bool,
}

/// Rows of a file by address: those that were looked for.
#[derive(Debug, Default)]
pub struct Rows(FxHashMap<u64, Option<Box<Row>>>);

/// Unwind information of a file.
#[derive(Debug, Default)]
pub struct UnwindFile {
    /// Contents of `.eh_frame_hdr`, and its address.
    pub header: (Vec<u8>, u64),
    /// Contents of `.eh_frame`, and its address.
    pub frames: (Vec<u8>, u64),
    /// Addresses of `.text` and `.got`.
    pub text: u64,
    pub got: u64,
    pub rows: Rows,
}

/// Memory for reading unwind information.
pub type Context = UnwindContext<usize>;

impl UnwindFile {
    /// The caller of the frame with these registers, whose code is at `address` of the file.
    pub fn step(
        &mut self,
        address: u64,
        registers: &Registers,
        stack: StackCopy<'_>,
        context: &mut Context,
    ) -> Step {
        if !self.rows.0.contains_key(&address) {
            if self.rows.0.len() >= ROWS_KEPT {
                self.rows.0.clear();
            }
            let row = self.find(address, context).map(Box::new);
            self.rows.0.insert(address, row);
        }
        let Some(Some(row)) = self.rows.0.get(&address) else { return Step::Unknown };
        self.caller(row, registers, stack).unwrap_or(Step::Failed)
    }

    fn section(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.frames.0, LittleEndian);
        section.set_address_size(WORD as u8);
        section
    }

    fn find(&self, address: u64, context: &mut Context) -> Option<Row> {
        let (header, header_at) = &self.header;
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(*header_at)
            .set_eh_frame(self.frames.1)
            .set_text(self.text)
            .set_got(self.got);
        let section = self.section();
        let header = EhFrameHdr::new(header, LittleEndian).parse(&bases, WORD as u8).ok();
        let table = header.as_ref().and_then(|header| header.table());
        let entry = match table {
            Some(table) => table.fde_for_address(&section, &bases, address, EhFrame::cie_from_offset),
            None => section.fde_for_address(&bases, address, EhFrame::cie_from_offset),
        };
        let entry = entry.ok()?;
        let row = entry.unwind_info_for_address(&section, &bases, context, address).ok()?;
        Some(row_of(row, entry.is_signal_trampoline()))
    }

    /// `None`: a value is needed that isn't known.
    fn caller(&self, row: &Row, registers: &Registers, stack: StackCopy<'_>) -> Option<Step> {
        let frame = match &row.frame {
            Frame::Register(number, offset) => registers.get(*number)?.checked_add_signed(*offset)?,
            Frame::Expression(expression) => self.evaluate(expression, registers, stack, None)?,
        };
        let mut caller = Registers::default();
        for number in PRESERVED {
            if let Some(value) = registers.get(number) {
                caller.set(number, value);
            }
        }
        caller.set(STACK, frame);
        for (number, rule) in &row.rules {
            let value = match rule {
                Rule::Undefined if *number == INSTRUCTION => return Some(Step::Outermost),
                Rule::Undefined => continue,
                Rule::Same => registers.get(*number),
                Rule::At(offset) => frame.checked_add_signed(*offset).and_then(|at| stack.word(at)),
                Rule::Is(offset) => frame.checked_add_signed(*offset),
                Rule::Register(other) => registers.get(*other),
                Rule::AtExpression(expression) => {
                    let at = self.evaluate(expression, registers, stack, Some(frame));
                    at.and_then(|at| stack.word(at))
                }
                Rule::IsExpression(expression) => self.evaluate(expression, registers, stack, Some(frame)),
            };
            match value {
                Some(value) => caller.set(*number, value),
                None if *number == INSTRUCTION => return None,
                None => caller.known &= !(1 << number),
            }
        }
        let (stack_pointer, before) = (caller.get(STACK)?, registers.get(STACK)?);
        match caller.get(INSTRUCTION)? {
            0 => Some(Step::Outermost),
            // A signal's handler may have a stack of its own.
            _ if stack_pointer <= before && !row.is_signal => None,
            _ => Some(Step::Caller(caller, row.is_signal)),
        }
    }

    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        registers: &Registers,
        stack: StackCopy<'_>,
        frame: Option<u64>,
    ) -> Option<u64> {
        let encoding =
            gimli::Encoding { address_size: WORD as u8, format: gimli::Format::Dwarf32, version: 4 };
        let mut evaluation = expression.get(&self.section()).ok()?.evaluation(encoding);
        evaluation.set_max_iterations(STEPS_MAX);
        if let Some(frame) = frame {
            evaluation.set_initial_value(frame);
        }
        let mut result = evaluation.evaluate().ok()?;
        // Each answer is needed by an operation, of which there are no more.
        for _ in 0..STEPS_MAX {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(registers.get(register.0)?)).ok()?
                }
                EvaluationResult::RequiresMemory { address, size, .. } if u64::from(size) == WORD => {
                    evaluation.resume_with_memory(Value::Generic(stack.word(address)?)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.value_result() {
            Some(value) => value.to_u64(u64::MAX).ok(),
            None => match evaluation.as_result().first()?.location {
                Location::Address { address } => Some(address),
                _ => None,
            },
        }
    }
}

fn row_of(row: &UnwindTableRow<usize>, is_signal: bool) -> Row {
    let frame = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Frame::Register(register.0, *offset),
        CfaRule::Expression(expression) => Frame::Expression(*expression),
    };
    let rule = |rule: &RegisterRule<usize>| match rule {
        RegisterRule::SameValue => Rule::Same,
        RegisterRule::Offset(offset) => Rule::At(*offset),
        RegisterRule::ValOffset(offset) => Rule::Is(*offset),
        RegisterRule::Register(other) => Rule::Register(other.0),
        RegisterRule::Expression(expression) => Rule::AtExpression(*expression),
        RegisterRule::ValExpression(expression) => Rule::IsExpression(*expression),
        _ => Rule::Undefined,
    };
    let rules = row.registers().map(|(register, of)| (register.0, rule(of))).collect();
    Row { frame, rules, is_signal }
}

/// The caller of the frame with these registers, if its code keeps a frame pointer.
pub fn step_by_frame_pointer(registers: &Registers, stack: StackCopy<'_>) -> Step {
    let found = || {
        let frame = registers.get(FRAME)?;
        let before = registers.get(STACK)?;
        if frame < before || frame % WORD != 0 {
            return None;
        }
        let mut caller = Registers::default();
        caller.set(FRAME, stack.word(frame)?);
        caller.set(INSTRUCTION, stack.word(frame.checked_add(WORD)?)?);
        caller.set(STACK, frame.checked_add(2 * WORD)?);
        Some(caller)
    };
    match found() {
        Some(caller) if caller.get(INSTRUCTION) == Some(0) => Step::Outermost,
        Some(caller) => Step::Caller(caller, false),
        None => Step::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn registers(of: &[(u16, u64)]) -> Registers {
        let mut registers = Registers::default();
        of.iter().for_each(|(number, value)| registers.set(*number, *value));
        registers
    }

    #[test]
    fn frame_pointers_lead_upwards_only() {
        let bytes = words(&[0, 1016, 77, 0, 0]);
        let stack = StackCopy { begin: 992, bytes: &bytes };
        let at = |frame| step_by_frame_pointer(&registers(&[(STACK, 992), (FRAME, frame)]), stack);
        let caller = registers(&[(FRAME, 1016), (INSTRUCTION, 77), (STACK, 1016)]);
        assert_eq!(at(1000), Step::Caller(caller, false));
        assert_eq!(at(1016), Step::Outermost, "the return address is 0");
        assert_eq!(at(984), Step::Failed, "below the stack pointer");
        assert_eq!(at(1001), Step::Failed);
        assert_eq!(at(1024), Step::Failed, "not in the copy");
        assert_eq!(at(u64::MAX - 7), Step::Failed);
    }

    /// A CIE and an FDE as gcc writes them: the frame is at the stack pointer plus 8, behind the
    /// first instruction (a push) at 16.
    #[test]
    fn rows_say_where_the_caller_is() {
        let cie: &[u8] =
            &[20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
        let at = 0x1000_u64;
        // The code is at 0x2000, 16 bytes: relative to the field, which is 32 behind the section.
        let place = (0x2000_i32 - (0x1000 + 32)).to_le_bytes();
        let fde =
            [&[20, 0, 0, 0, 28, 0, 0, 0][..], &place, &[16, 0, 0, 0, 0, 0x41, 0x0e, 16, 0, 0, 0, 0]].concat();
        let frames = [cie, &fde, &[0; 4]].concat();
        let mut file = UnwindFile { frames: (frames, at), ..UnwindFile::default() };
        let bytes = words(&[5, 0x3333, 9]);
        let stack = StackCopy { begin: 8000, bytes: &bytes };
        let mut context = Context::new();
        let mut step = |address, pointer| {
            let all = registers(&[(STACK, pointer), (3, 40), (0, 41)]);
            file.step(address, &all, stack, &mut context)
        };
        let entry = registers(&[(3, 40), (STACK, 8016), (INSTRUCTION, 0x3333)]);
        assert_eq!(step(0x2000, 8008), Step::Caller(entry, false));
        assert_eq!(step(0x2001, 8000), Step::Caller(entry, false), "behind the push");
        assert_eq!(step(0x2001, 8016), Step::Failed, "not in the copy");
        assert_eq!(step(0x2010, 8000), Step::Unknown);
    }
}
