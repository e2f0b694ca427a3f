//! Programs that only compare registers with constants and copy registers, words of the stack and
//! texts: as lists that a hook can work off without an interpreter.

use everycall_format::capture::{
    COPY_MAX, Instruction, REGISTERS, UNTIL_ZERO, comparison, operation, register, status,
};

use crate::check::Program;

/// The most tests of such a program.
const TESTS: usize = 4;
/// The most items.
const ITEMS: usize = 8;
/// The DWARF number of the stack pointer.
const STACK_POINTER: u32 = 7;
/// Words of the stack lie at most so many bytes above the stack pointer.
const STACK_MAX: u64 = 1 << 12;
/// Texts are copied by so many bytes at once.
const CHUNK: u32 = 16;

/// Where 64 bits are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A register of the call, one of [`register`].
    Register(u32),
    /// The stack, so many bytes above the stack pointer.
    Stack(u32),
}

/// A condition on the low bits of a value: they lie in a range, which may wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// The register of the call, one of [`register`]. A word of the stack is read only where it is
    /// known to be mapped, and a test has no way to fail.
    pub register: u32,
    /// How many bits, 1 to 64.
    pub bits: u32,
    /// The first one of the range.
    pub first: u64,
    /// The last one minus the first one, without bits above.
    pub span: u64,
}

/// A value that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The low `size` bytes, 4 or 8, without a status.
    Word {
        /// The value.
        origin: Origin,
        /// Bytes.
        size: u32,
    },
    /// The low `size` bytes, 1 to 8.
    Value {
        /// The value.
        origin: Origin,
        /// Bytes.
        size: u32,
    },
    /// A text that ends before its first zero byte.
    Text {
        /// Its address.
        origin: Origin,
        /// The most bytes that are copied, a multiple of 16.
        size: u32,
    },
}

/// Such a program: if all tests are true, all items are copied, and otherwise it rejects the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    tests: [Option<Test>; TESTS],
    items: [Option<Item>; ITEMS],
}

impl Plain {
    /// Its tests.
    pub fn tests(&self) -> impl Iterator<Item = &Test> {
        self.tests.iter().flatten()
    }

    /// Its items.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().flatten()
    }

    /// That of a checked program; `None` if it does anything else.
    #[must_use]
    pub fn of(program: &Program<'_>) -> Option<Plain> {
        let mut reader = Reader {
            program,
            registers: [Symbol::Constant(0); REGISTERS],
            plain: Plain { tests: [None; TESTS], items: [None; ITEMS] },
            is_in_item: false,
        };
        let mut at = 0;
        while let Some(instruction) = program.instruction(at) {
            if instruction.operation == operation::END {
                break;
            }
            reader.step(&instruction)?;
            at += 1;
        }
        (!reader.is_in_item).then_some(reader.plain)
    }
}

/// The content of a register of the interpreter.
#[derive(Clone, Copy)]
enum Symbol {
    Constant(u64),
    StackPointer,
    Value(Value),
    /// 1 if the test is true; `None` if it always is.
    Test(Option<Test>),
}

/// The low bits of 64, extended.
#[derive(Clone, Copy)]
struct Value {
    origin: Origin,
    bits: u32,
    is_signed: bool,
}

impl Value {
    /// All 64 bits are its own, whatever their sign.
    fn is_whole(self) -> bool {
        self.bits == u64::BITS
    }

    /// Its least and greatest number, where it has a sign or not.
    fn domain(self, is_signed: bool) -> (i128, i128) {
        if is_signed {
            (-1 << (self.bits - 1), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// A test whether it lies from `first` to `last`. `None` if it never does, or can't be tested.
    fn lies_in(self, first: i128, last: i128, domain: (i128, i128)) -> Option<Symbol> {
        let (first, last) = (first.max(domain.0), last.min(domain.1));
        if first > last {
            return None;
        }
        if (first, last) == domain {
            return Some(Symbol::Test(None));
        }
        Some(Symbol::Test(Some(self.test(first as u64, (last - first) as u64)?)))
    }

    fn test(self, first: u64, span: u64) -> Option<Test> {
        let Origin::Register(register) = self.origin else { return None };
        let mask = u64::MAX >> (u64::BITS - self.bits);
        Some(Test { register, bits: self.bits, first: first & mask, span: span & mask })
    }
}

impl Test {
    /// The opposite, which isn't empty because no test is true of all values.
    fn opposite(self) -> Test {
        let mask = u64::MAX >> (u64::BITS - self.bits);
        let first = self.first.wrapping_add(self.span).wrapping_add(1) & mask;
        Test { first, span: mask - self.span - 1, ..self }
    }
}

struct Reader<'a> {
    program: &'a Program<'a>,
    registers: [Symbol; REGISTERS],
    plain: Plain,
    /// An item has begun, and nothing was written yet.
    is_in_item: bool,
}

impl Reader<'_> {
    fn step(&mut self, it: &Instruction) -> Option<()> {
        let left = self.registers.get(usize::from(it.left)).copied();
        let result = match it.operation {
            // Nothing fails that is accepted here.
            operation::GUARD => return Some(()),
            operation::ITEM if !self.is_in_item && it.value == u64::from(status::PRESENT) => {
                self.is_in_item = true;
                return Some(());
            }
            operation::EMIT => {
                let Symbol::Value(value) = left? else { return None };
                let (origin, size) = (value.origin, it.size);
                let item = match (self.is_in_item, size) {
                    (true, _) => Item::Value { origin, size },
                    (false, 4 | 8) => Item::Word { origin, size },
                    _ => return None,
                };
                return (value.bits >= 8 * size).then_some(item).and_then(|item| self.add(item));
            }
            operation::COPY_TEXT => {
                let Symbol::Value(value) = left? else { return None };
                let is_plain = it.right == UNTIL_ZERO
                    && value.is_whole()
                    && it.size > 0
                    && it.size <= COPY_MAX as u32
                    && it.size.is_multiple_of(CHUNK)
                    && self.is_in_item;
                return is_plain
                    .then_some(Item::Text { origin: value.origin, size: it.size })
                    .and_then(|item| self.add(item));
            }
            operation::JUMP_IF_ZERO => return self.require(left?, true, it.size),
            operation::JUMP_UNLESS_ZERO => return self.require(left?, false, it.size),
            operation::CONSTANT => Symbol::Constant(it.value),
            operation::REGISTER if it.size == STACK_POINTER => Symbol::StackPointer,
            operation::REGISTER if it.size < register::FLOATING => {
                let origin = Origin::Register(it.size);
                Symbol::Value(Value { origin, bits: u64::BITS, is_signed: false })
            }
            operation::LOAD => {
                let Symbol::StackPointer = left? else { return None };
                let at = u32::try_from(it.value).ok().filter(|at| u64::from(*at) < STACK_MAX)?;
                let origin = Origin::Stack(at);
                Symbol::Value(Value { origin, bits: 8 * it.size, is_signed: it.right != 0 })
            }
            operation::BITS if it.value == 0 => {
                let Symbol::Value(value) = left? else { return None };
                (it.size <= value.bits).then_some(())?;
                Symbol::Value(Value { bits: it.size, is_signed: it.right != 0, ..value })
            }
            operation::COMPARE => {
                let right = self.registers.get(usize::from(it.right)).copied()?;
                compare(it.size, left?, right)?
            }
            _ => return None,
        };
        *self.registers.get_mut(usize::from(it.target))? = result;
        Some(())
    }

    fn add(&mut self, item: Item) -> Option<()> {
        *self.plain.items.iter_mut().find(|place| place.is_none())? = Some(item);
        self.is_in_item = false;
        Some(())
    }

    /// A jump if a register is zero (`is_true`), or if it isn't: accepted if it leads to where the
    /// program rejects the call.
    fn require(&mut self, symbol: Symbol, is_true: bool, to: u32) -> Option<()> {
        let target = self.program.instruction(to as usize)?;
        if target.operation != operation::REJECT || self.is_in_item {
            return None;
        }
        let test = match symbol {
            Symbol::Test(test) => test,
            // It is zero, or from 1 on.
            Symbol::Value(value) => Some(value.test(0, 0)?.opposite()),
            Symbol::Constant(_) | Symbol::StackPointer => return None,
        };
        let test = match (test, is_true) {
            (None, true) => return Some(()),
            (None, false) => return None,
            (Some(test), true) => test,
            (Some(test), false) => test.opposite(),
        };
        *self.plain.tests.iter_mut().find(|place| place.is_none())? = Some(test);
        Some(())
    }
}

/// Whether a value and a constant compare so; `None` if that is no range of the value's bits, or
/// is never true.
fn compare(how: u32, left: Symbol, right: Symbol) -> Option<Symbol> {
    let (value, constant, is_constant_left) = match (left, right) {
        (Symbol::Value(value), Symbol::Constant(constant)) => (value, constant, false),
        (Symbol::Constant(constant), Symbol::Value(value)) => (value, constant, true),
        _ => return None,
    };
    let is_signed = match how {
        comparison::LESS_SIGNED => value.is_signed || value.is_whole(),
        // Extended signs are large numbers here.
        comparison::LESS if value.is_signed && !value.is_whole() => return None,
        comparison::LESS => false,
        comparison::EQUAL => value.is_signed && !value.is_whole(),
        _ => return None,
    };
    let is_constant_signed = is_signed || how == comparison::LESS_SIGNED;
    let constant = if is_constant_signed { i128::from(constant as i64) } else { i128::from(constant) };
    let domain = value.domain(is_signed);
    match (how, is_constant_left) {
        (comparison::EQUAL, _) => value.lies_in(constant, constant, domain),
        (_, false) => value.lies_in(domain.0, constant - 1, domain),
        (_, true) => value.lies_in(constant + 1, domain.1, domain),
    }
}
