//! Where DWARF says that a variable is at a function's first instruction.

use everycall_format::arch::TO_ARGUMENTS;
use everycall_format::capture::register;
use everycall_symbols::DwarfSlice;
use gimli::{AttributeValue, Dwarf, Encoding, Operation, Unit};

type Slice<'a> = DwarfSlice<'a>;

/// A part of a value that is in a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// A number of [`everycall_format::capture::register`].
    pub register: u32,
    /// Where the part begins in the value, and its bytes, at most 8.
    pub offset: u64,
    pub size: u64,
}

/// Where a value is at the entry, or at an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In registers, in order of the value's bytes.
    Registers(Vec<Piece>),
    /// In memory at a register and an offset.
    Memory { register: u32, offset: i64 },
    /// In memory at an address that is itself in memory.
    Indirect { register: u32, offset: i64 },
    /// Nowhere: the value is this one.
    Constant(u64),
    /// The optimiser has removed it, or nothing says where it is.
    Unknown,
}

/// The meaning of a location at the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// There is none.
    Nowhere,
    /// Exactly here.
    Exactly(Place),
    /// Nowhere at the entry; where it first is, its address is in this register. Without
    /// optimisation, rustc describes what is passed by address from the end of the prologue on.
    Later(u32),
    /// In the function's frame, which doesn't exist yet. `true`: the address is there.
    Frame(bool),
    /// It can be computed, so it is alive. For each part: offset, size (0: the whole value), and
    /// the register if it is one.
    Parts(Vec<(u64, u64, Option<u32>)>),
}

/// The location in an attribute, at the address of the first instruction.
pub(crate) fn located<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    value: AttributeValue<Slice<'a>>,
    entry: u64,
    frame_base: Option<AttributeValue<Slice<'a>>>,
) -> Located {
    let expression = match value {
        AttributeValue::Exprloc(expression) => Some(expression),
        value => match dwarf.attr_locations(unit, value) {
            Ok(Some(mut locations)) => {
                let mut found = None;
                let mut first = None;
                while let Ok(Some(location)) = locations.next() {
                    if location.range.begin <= entry && entry < location.range.end {
                        found = Some(location.data);
                        break;
                    }
                    if location.range.begin > entry {
                        first.get_or_insert(location.data);
                    }
                }
                if let (None, Some(first)) = (&found, first) {
                    return match evaluate(unit.encoding(), first, frame_base) {
                        Located::Exactly(Place::Memory { register, offset: 0 }) => Located::Later(register),
                        _ => Located::Nowhere,
                    };
                }
                found
            }
            _ => None,
        },
    };
    match expression {
        Some(expression) => evaluate(unit.encoding(), expression, frame_base),
        None => Located::Nowhere,
    }
}

/// Whether the frame's base is the value of the stack pointer before the call.
fn is_call_frame(encoding: Encoding, frame_base: Option<AttributeValue<Slice<'_>>>) -> bool {
    let Some(AttributeValue::Exprloc(expression)) = frame_base else { return false };
    matches!(expression.operations(encoding).next(), Ok(Some(Operation::CallFrameCFA)))
}

fn evaluate<'a>(
    encoding: Encoding,
    expression: gimli::Expression<Slice<'a>>,
    frame_base: Option<AttributeValue<Slice<'a>>>,
) -> Located {
    let mut operations = Vec::new();
    let mut iterator = expression.operations(encoding);
    loop {
        match iterator.next() {
            Ok(Some(operation)) => operations.push(operation),
            Ok(None) => break,
            Err(_) => return Located::Nowhere,
        }
    }
    if operations.is_empty() {
        return Located::Nowhere;
    }
    if operations.iter().any(|operation| matches!(operation, Operation::Piece { .. })) {
        return pieces(&operations);
    }
    match &operations[..] {
        [Operation::Register { register }] => match register_of(register.0) {
            Some(register) => whole(register),
            None => Located::Parts(vec![(0, 0, None)]),
        },
        [Operation::FrameOffset { offset }] => frame(encoding, *offset, frame_base, false),
        [Operation::FrameOffset { offset }, Operation::Deref { .. }] => {
            frame(encoding, *offset, frame_base, true)
        }
        [Operation::RegisterOffset { register, offset, .. }] => match register_of(register.0) {
            // The stack pointer's offset is that of a later instruction in code of some compilers.
            Some(_) if u32::from(register.0) == register::STACK_POINTER => Located::Frame(false),
            Some(register) => Located::Exactly(Place::Memory { register, offset: *offset }),
            None => Located::Nowhere,
        },
        [Operation::EntryValue { expression }, Operation::StackValue] => {
            evaluate(encoding, gimli::Expression(*expression), frame_base)
        }
        [Operation::EntryValue { expression }] => {
            match evaluate(encoding, gimli::Expression(*expression), frame_base) {
                Located::Parts(parts) if matches!(parts[..], [(0, 0, Some(_))]) => {
                    let register = parts[0].2.unwrap_or_default();
                    Located::Exactly(Place::Memory { register, offset: 0 })
                }
                _ => Located::Nowhere,
            }
        }
        [Operation::UnsignedConstant { value }, Operation::StackValue] => {
            Located::Exactly(Place::Constant(*value))
        }
        [Operation::SignedConstant { value }, Operation::StackValue] => {
            Located::Exactly(Place::Constant(*value as u64))
        }
        operations if operations.iter().any(is_register) => Located::Parts(vec![(0, 0, None)]),
        _ => Located::Nowhere,
    }
}

fn is_register(operation: &Operation<Slice<'_>>) -> bool {
    matches!(
        operation,
        Operation::Register { .. } | Operation::RegisterOffset { .. } | Operation::EntryValue { .. }
    )
}

/// A whole value in one register; its size is that of its type.
fn whole(register: u32) -> Located {
    Located::Parts(vec![(0, 0, Some(register))])
}

fn frame(
    encoding: Encoding,
    offset: i64,
    frame_base: Option<AttributeValue<Slice<'_>>>,
    is_address: bool,
) -> Located {
    // Below the return address lies the function's own frame. Above it is what the caller stored.
    if offset >= 0 && is_call_frame(encoding, frame_base) {
        let (register, offset) = (register::STACK_POINTER, offset + TO_ARGUMENTS);
        return Located::Exactly(if is_address {
            Place::Indirect { register, offset }
        } else {
            Place::Memory { register, offset }
        });
    }
    Located::Frame(is_address)
}

fn pieces(operations: &[Operation<Slice<'_>>]) -> Located {
    let mut parts = Vec::new();
    let mut offset = 0;
    let mut begin = 0;
    for (at, operation) in operations.iter().enumerate() {
        let Operation::Piece { size_in_bits, .. } = operation else { continue };
        let size = size_in_bits / 8;
        match &operations[begin..at] {
            [] => {}
            [Operation::Register { register }] => {
                parts.push((offset, size, register_of(register.0)));
            }
            part if part.iter().any(|operation| is_register(operation) || is_frame(operation)) => {
                parts.push((offset, size, None));
            }
            _ => {}
        }
        offset += size;
        begin = at + 1;
    }
    if parts.is_empty() { Located::Nowhere } else { Located::Parts(parts) }
}

fn is_frame(operation: &Operation<Slice<'_>>) -> bool {
    matches!(operation, Operation::FrameOffset { .. })
}

/// A register of DWARF's numbering.
fn register_of(number: u16) -> Option<u32> {
    let number = u32::from(number);
    let is_known = number < register::GENERAL_COUNT
        || (register::VECTOR..register::VECTOR + register::VECTOR_COUNT).contains(&number);
    is_known.then_some(number)
}
