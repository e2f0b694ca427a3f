//! Conditions and numbers.

use everycall_format::capture::{COPY_MAX, UNTIL_ZERO, calculation, comparison, likeness, operation};

use crate::builder::Label;
use crate::compile::{Compiler, Number, Plain, Result, Typed, Value};
use crate::known::Representation;
use crate::syntax::{Expression, Node, Operator};
use crate::types::{Kind, Type};
use everycall_values::layout::{Missing, Shape};

/// A text's address and length, in registers.
pub(crate) struct TextPlace {
    pub pointer: u8,
    pub length: u8,
}

impl Compiler<'_, '_, '_> {
    /// Jumps to a label if an expression is true, or false (`when`).
    pub(crate) fn jump_if(&mut self, it: &Expression, when: bool, to: Label) -> Result<()> {
        match &it.node {
            Node::Not(inner) => self.jump_if(inner, !when, to),
            Node::Binary(operator @ (Operator::And | Operator::Or), left, right) => {
                // One operand may decide it: "and" is false, or "or" is true.
                let is_decided_by = *operator == Operator::Or;
                if is_decided_by == when {
                    self.jump_if(left, when, to)?;
                    return self.jump_if(right, when, to);
                }
                let done = self.builder.label();
                self.jump_if(left, is_decided_by, done)?;
                self.jump_if(right, when, to)?;
                self.builder.place(done);
                Ok(())
            }
            Node::Bool(value) => {
                if *value == when {
                    self.builder.jump(operation::JUMP, 0, to);
                }
                Ok(())
            }
            _ => {
                let in_use = self.builder.in_use();
                let (register, is_inverted) = self.truth(it)?;
                let jump =
                    if when == is_inverted { operation::JUMP_IF_ZERO } else { operation::JUMP_UNLESS_ZERO };
                self.builder.jump(jump, register, to);
                self.builder.release(in_use);
                Ok(())
            }
        }
    }

    /// A register that isn't zero if an expression is true, or (second) if it is false.
    fn truth(&mut self, it: &Expression) -> Result<(u8, bool)> {
        let Node::Binary(operator, left, right) = &it.node else {
            let (register, number) = self.number(it)?;
            if number == Number::Float {
                return Err(self
                    .error(it, "a float isn't a condition")
                    .with_help("compare it, as in x > 0.5"));
            }
            return Ok((register, false));
        };
        match operator {
            Operator::Contains | Operator::StartsWith => {
                let Node::Text(text) = &right.node else {
                    return Err(self.error(right, "a text in quotes is missing here"));
                };
                let how = if *operator == Operator::Contains { likeness::CONTAINS } else { likeness::PREFIX };
                Ok((self.compare_text(left, text, how)?, false))
            }
            Operator::Equal | Operator::NotEqual => {
                let is_inverted = *operator == Operator::NotEqual;
                if let Node::Text(text) = &right.node {
                    return Ok((self.compare_text(left, text, likeness::EQUAL)?, is_inverted));
                }
                if let Node::Text(text) = &left.node {
                    return Ok((self.compare_text(right, text, likeness::EQUAL)?, is_inverted));
                }
                Ok((self.compare(it, left, right, *operator)?, is_inverted))
            }
            Operator::Less | Operator::Greater => Ok((self.compare(it, left, right, *operator)?, false)),
            // Integers have an order: not less is greater or equal. Floats don't always.
            Operator::LessEqual | Operator::GreaterEqual => {
                self.compare_equal_too(it, left, right, *operator)
            }
            _ => {
                let (register, _) = self.number(it)?;
                Ok((register, false))
            }
        }
    }

    fn compare_equal_too(
        &mut self,
        it: &Expression,
        left: &Expression,
        right: &Expression,
        operator: Operator,
    ) -> Result<(u8, bool)> {
        let (a, b) = self.operands(left, right)?;
        let (a, b) = if operator == Operator::LessEqual { (a, b) } else { (b, a) };
        if a.1 == Number::Float {
            let how = comparison::LESS_EQUAL_FLOAT;
            return Ok((self.builder.binary(operation::COMPARE, how, a.0, b.0), false));
        }
        Ok((self.less(it, b, a)?, true))
    }

    fn compare(
        &mut self,
        it: &Expression,
        left: &Expression,
        right: &Expression,
        operator: Operator,
    ) -> Result<u8> {
        let (a, b) = self.operands(left, right)?;
        match operator {
            Operator::Less => self.less(it, a, b),
            Operator::Greater => self.less(it, b, a),
            _ => self.equal(it, a, b),
        }
    }

    /// Both operands as numbers of one kind.
    fn operands(&mut self, left: &Expression, right: &Expression) -> Result<((u8, Number), (u8, Number))> {
        let a = self.number_beside(left, right)?;
        let b = self.number_beside(right, left)?;
        match (a.1 == Number::Float, b.1 == Number::Float) {
            (true, false) => Ok((a, self.as_float(right)?)),
            (false, true) => Ok((self.as_float(left)?, b)),
            _ => Ok((a, b)),
        }
    }

    /// An operand; a name that is no parameter may be an enumerator of the other one's type.
    fn number_beside(&mut self, it: &Expression, other: &Expression) -> Result<(u8, Number)> {
        let Node::Name(name) = &it.node else { return self.number(it) };
        let before = self.builder.clone();
        let error = match self.number(it) {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        let Ok(other) = self.value(other) else { return Err(error) };
        self.builder = before;
        let mut ty = match (other.ty, other.plain) {
            (Some(id), _) => self.get(id),
            (None, Some(Plain::Shape(Shape::Enum { size, is_signed, values }))) => {
                Type { name: "type".to_owned(), size: size as u64, kind: Kind::Enum { is_signed, values } }
            }
            _ => return Err(error),
        };
        if let Kind::Pointer { to: Some(to), is_reference: true } = ty.kind {
            ty = self.get(to);
        }
        let Kind::Enum { values, .. } = &ty.kind else { return Err(error) };
        let last = name.rsplit("::").next().unwrap_or(name);
        match values.iter().find(|(known, _)| known == last) {
            Some((_, value)) => Ok(self.integer(*value)),
            None => {
                let mut known: Vec<&str> = values.iter().map(|(known, _)| known.as_str()).collect();
                known.sort_by_cached_key(|known| strsim::damerau_levenshtein(known, last));
                known.truncate(8);
                let message = format!("`{}` has no value `{last}`", ty.name);
                Err(self.error(it, message).with_help(format!("it has: {}", known.join(", "))))
            }
        }
    }

    /// A constant integer beside a float.
    fn as_float(&mut self, it: &Expression) -> Result<(u8, Number)> {
        match it.node {
            Node::Number(number) => Ok((self.builder.constant((number as f64).to_bits()), Number::Float)),
            _ => Err(self
                .error(it, "an integer can't be compared with a float")
                .with_help("compare each with a number")),
        }
    }

    fn integer(&mut self, value: i128) -> (u8, Number) {
        let number = match value {
            ..0 => Number::Signed,
            _ if value > i128::from(i64::MAX) => Number::Unsigned(64),
            _ => Number::Unsigned(63),
        };
        (self.builder.constant(value as u64), number)
    }

    /// Whether one integer is less than another, as numbers: signs may differ.
    fn less(&mut self, it: &Expression, a: (u8, Number), b: (u8, Number)) -> Result<u8> {
        let builder = &mut self.builder;
        let is_wide = |number: Number| matches!(number, Number::Unsigned(64) | Number::Pointer);
        match (a.1, b.1) {
            (Number::Float, Number::Float) => {
                Ok(builder.binary(operation::COMPARE, comparison::LESS_FLOAT, a.0, b.0))
            }
            (Number::Float, _) | (_, Number::Float) => {
                Err(self.error(it, "a float is compared with an integer"))
            }
            (Number::Signed, wide) if is_wide(wide) => {
                // A negative number is less than all of these.
                let unsigned = builder.binary(operation::COMPARE, comparison::LESS, a.0, b.0);
                let zero = builder.constant(0);
                let negative = builder.binary(operation::COMPARE, comparison::LESS_SIGNED, a.0, zero);
                Ok(builder.binary(operation::CALCULATE, calculation::OR, unsigned, negative))
            }
            (wide, Number::Signed) if is_wide(wide) => {
                let unsigned = builder.binary(operation::COMPARE, comparison::LESS, a.0, b.0);
                let minus = builder.constant(u64::MAX);
                let positive = builder.binary(operation::COMPARE, comparison::LESS_SIGNED, minus, b.0);
                Ok(builder.binary(operation::CALCULATE, calculation::AND, unsigned, positive))
            }
            (Number::Signed, _) | (_, Number::Signed) => {
                Ok(builder.binary(operation::COMPARE, comparison::LESS_SIGNED, a.0, b.0))
            }
            _ => Ok(builder.binary(operation::COMPARE, comparison::LESS, a.0, b.0)),
        }
    }

    fn equal(&mut self, it: &Expression, a: (u8, Number), b: (u8, Number)) -> Result<u8> {
        let builder = &mut self.builder;
        match (a.1, b.1) {
            (Number::Float, Number::Float) => {
                Ok(builder.binary(operation::COMPARE, comparison::EQUAL_FLOAT, a.0, b.0))
            }
            (Number::Float, _) | (_, Number::Float) => {
                Err(self.error(it, "a float is compared with an integer"))
            }
            (Number::Signed, Number::Unsigned(64)) | (Number::Unsigned(64), Number::Signed) => {
                // The bits of -1 are those of the largest number without a sign.
                let signed = if a.1 == Number::Signed { a.0 } else { b.0 };
                let equal = builder.binary(operation::COMPARE, comparison::EQUAL, a.0, b.0);
                let minus = builder.constant(u64::MAX);
                let positive = builder.binary(operation::COMPARE, comparison::LESS_SIGNED, minus, signed);
                Ok(builder.binary(operation::CALCULATE, calculation::AND, equal, positive))
            }
            _ => Ok(builder.binary(operation::COMPARE, comparison::EQUAL, a.0, b.0)),
        }
    }

    fn compare_text(&mut self, it: &Expression, text: &[u8], how: u32) -> Result<u8> {
        if text.len() >= COPY_MAX {
            return Err(self.error(it, "the text to compare with is too long"));
        }
        let found = self.value(it)?;
        if let Value::Missing(missing) = found.value {
            return Err(self.removed(it, missing));
        }
        let Some(place) = self.text_place(it, &found)? else {
            let shown = self.shown(found.ty);
            return Err(self.error(it, format!("`{shown}` isn't a text")));
        };
        let target = self.builder.register();
        let value = self.builder.text(text);
        self.builder.emit(operation::COMPARE_TEXT, target, place.pointer, place.length, how, value);
        Ok(target)
    }

    fn removed(&self, it: &Expression, missing: Missing) -> crate::error::ArgumentError {
        self.error(
            it,
            match missing {
                Missing::OptimisedOut => "the optimiser has removed this value",
                Missing::Incomplete => "this type is only declared where the function is compiled",
                Missing::Hidden => "this name is on the deny list",
                Missing::NoSpace => "this is too large",
            },
        )
    }

    /// Where a text is; `None` if the value isn't one.
    pub(crate) fn text_place(&mut self, it: &Expression, found: &Typed) -> Result<Option<TextPlace>> {
        if let Some(plain) = &found.plain {
            return match (plain, &found.value) {
                (Plain::Text(length), Value::Bits(register)) => {
                    Ok(Some(TextPlace { pointer: *register, length: *length }))
                }
                _ => Ok(None),
            };
        }
        let mut found = found.clone();
        for _ in 0..3 {
            let Some(id) = found.ty else { return Ok(None) };
            let ty = self.get(id);
            if let Kind::Pointer { to: Some(to), is_reference } = ty.kind {
                let target = self.get(to);
                if matches!(target.kind, Kind::Char { .. }) && target.size == 1 && !is_reference {
                    let pointer = self.first_word(it, &found)?;
                    return Ok(Some(TextPlace { pointer, length: UNTIL_ZERO }));
                }
                found = self.reference_target(it, &found, to)?;
                continue;
            }
            if let Kind::Array { element, .. } = ty.kind {
                let element = self.get(element);
                return match found.value {
                    Value::At { register, offset }
                        if element.size == 1 && matches!(element.kind, Kind::Char { .. }) =>
                    {
                        Ok(Some(TextPlace { pointer: self.sum(register, offset), length: UNTIL_ZERO }))
                    }
                    _ => Ok(None),
                };
            }
            return match self.known(&ty) {
                Some(Representation::Text { pointer, length }) => {
                    let pointer = self.word_at(it, &found, pointer)?;
                    let length = self.word_at(it, &found, length)?;
                    Ok(Some(TextPlace { pointer, length }))
                }
                Some(Representation::CountedText) => {
                    let pointer = self.first_word(it, &found)?;
                    let length = self.load(pointer, -24, 8, false);
                    Ok(Some(TextPlace { pointer, length }))
                }
                Some(Representation::ShortText) => Ok(self.short_text(&found)),
                _ => Ok(None),
            };
        }
        Ok(None)
    }

    /// libc++'s string: the first bit says whether the text lies elsewhere.
    fn short_text(&mut self, found: &Typed) -> Option<TextPlace> {
        let Value::At { register, offset } = found.value else { return None };
        let first = self.load(register, offset, 1, false);
        let one = self.builder.constant(1);
        let is_long = self.builder.binary(operation::CALCULATE, calculation::AND, first, one);
        let (long, done) = (self.builder.label(), self.builder.label());
        let (pointer, length) = (self.builder.register(), self.builder.register());
        self.builder.jump(operation::JUMP_UNLESS_ZERO, is_long, long);
        let distance = self.builder.constant(offset.wrapping_add(1) as u64);
        self.builder.emit(operation::CALCULATE, pointer, register, distance, calculation::ADD, 0);
        self.builder.emit(operation::BITS, length, first, 0, 7, 1);
        self.builder.jump(operation::JUMP, 0, done);
        self.builder.place(long);
        self.builder.emit(operation::LOAD, pointer, register, 0, 8, offset.wrapping_add(16) as u64);
        self.builder.emit(operation::LOAD, length, register, 0, 8, offset.wrapping_add(8) as u64);
        self.builder.place(done);
        Some(TextPlace { pointer, length })
    }

    pub(crate) fn sum(&mut self, register: u8, offset: i64) -> u8 {
        if offset == 0 {
            return register;
        }
        let offset = self.builder.constant(offset as u64);
        self.builder.binary(operation::CALCULATE, calculation::ADD, register, offset)
    }

    /// An expression as a number in a register.
    pub(crate) fn number(&mut self, it: &Expression) -> Result<(u8, Number)> {
        match &it.node {
            Node::Number(number) => Ok(self.integer(*number)),
            Node::Bool(value) => Ok(self.integer(i128::from(*value))),
            Node::Float(number) => Ok((self.builder.constant(number.to_bits()), Number::Float)),
            Node::Null => Ok((self.builder.constant(0), Number::Pointer)),
            Node::Text(_) => Err(self.error(it, "a text isn't a number")),
            Node::Negative(inner) => {
                let (register, number) = self.number(inner)?;
                self.require_integer(inner, number)?;
                let zero = self.builder.constant(0);
                let how = calculation::SUBTRACT;
                Ok((self.builder.binary(operation::CALCULATE, how, zero, register), Number::Signed))
            }
            Node::Binary(operator, left, right) => self.calculate(it, *operator, left, right),
            Node::Not(_) => Err(self.error(it, "a condition isn't a number")),
            _ => {
                let found = self.value(it)?;
                self.number_of(it, &found)
            }
        }
    }

    fn require_integer(&self, it: &Expression, number: Number) -> Result<()> {
        if number == Number::Float {
            return Err(self
                .error(it, "floats are compared, but not calculated with")
                .with_help("the traced program's floating-point state must stay as it is"));
        }
        Ok(())
    }

    fn calculate(
        &mut self,
        it: &Expression,
        operator: Operator,
        left: &Expression,
        right: &Expression,
    ) -> Result<(u8, Number)> {
        let how = |is_signed: bool| {
            Some(match operator {
                Operator::Add => calculation::ADD,
                Operator::Subtract => calculation::SUBTRACT,
                Operator::Multiply => calculation::MULTIPLY,
                Operator::Divide if is_signed => calculation::DIVIDE_SIGNED,
                Operator::Divide => calculation::DIVIDE,
                Operator::Rest if is_signed => calculation::REST_SIGNED,
                Operator::Rest => calculation::REST,
                Operator::BitAnd => calculation::AND,
                Operator::BitOr => calculation::OR,
                Operator::BitXor => calculation::XOR,
                Operator::ShiftLeft => calculation::SHIFT_LEFT,
                Operator::ShiftRight if is_signed => calculation::SHIFT_RIGHT_SIGNED,
                Operator::ShiftRight => calculation::SHIFT_RIGHT,
                _ => return None,
            })
        };
        if how(false).is_none() {
            return Err(self.error(it, "a condition isn't a number"));
        }
        let in_use = self.builder.in_use();
        let (a, first) = self.number(left)?;
        self.require_integer(left, first)?;
        let (b, second) = self.number(right)?;
        self.require_integer(right, second)?;
        // As numbers of 64 bits: with a sign, unless one of them has all 64 without one.
        let is_wide = |number: Number| matches!(number, Number::Unsigned(64) | Number::Pointer);
        let is_shift = matches!(operator, Operator::ShiftLeft | Operator::ShiftRight);
        let is_signed = !is_wide(first) && (is_shift || !is_wide(second));
        let how = how(is_signed).unwrap_or(calculation::ADD);
        // The result may take an operand's register: both are read before it is written.
        self.builder.release(in_use);
        let result = self.builder.binary(operation::CALCULATE, how, a, b);
        Ok((result, if is_signed { Number::Signed } else { Number::Unsigned(64) }))
    }

    /// A value as a number.
    pub(crate) fn number_of(&mut self, it: &Expression, found: &Typed) -> Result<(u8, Number)> {
        if let Value::Missing(missing) = found.value {
            return Err(self.removed(it, missing));
        }
        if let Some(plain) = found.plain.clone() {
            let register = match found.value {
                Value::Bits(register) => register,
                Value::At { register, offset } => self.load(register, offset, 8, false),
                _ => return Err(self.error(it, "this isn't a number")),
            };
            return Ok(match plain {
                Plain::Address(_) => {
                    return Err(self.error(it, "a socket address isn't a number"));
                }
                Plain::Shape(Shape::Octal(size)) => {
                    (self.extend(register, 8 * size as u64, false), Number::Unsigned(8 * size as u64))
                }
                Plain::Shape(Shape::Integer { size, is_signed } | Shape::Enum { size, is_signed, .. }) => {
                    let target = self.extend(register, 8 * size as u64, is_signed);
                    (target, if is_signed { Number::Signed } else { Number::Unsigned(8 * size as u64) })
                }
                Plain::Shape(Shape::Bool(_) | Shape::Char(_)) => {
                    (self.extend(register, 8, false), Number::Unsigned(8))
                }
                Plain::Shape(Shape::Float(4)) => (self.widen(register), Number::Float),
                Plain::Shape(Shape::Float(_)) => (register, Number::Float),
                _ => (register, Number::Pointer),
            });
        }
        let Some(id) = found.ty else { return Err(self.error(it, "this isn't a number")) };
        let ty = self.get(id);
        match &ty.kind {
            Kind::Pointer { to: Some(to), is_reference: true } => {
                let inner = self.reference_target(it, found, *to)?;
                return self.number_of(it, &inner);
            }
            Kind::Pointer { .. } => return Ok((self.first_word(it, found)?, Number::Pointer)),
            Kind::Aggregate(_) if matches!(self.known(&ty), Some(Representation::Owner { .. })) => {
                return Ok((self.first_word(it, found)?, Number::Pointer));
            }
            Kind::Float if matches!(ty.size, 4 | 8) => {
                let raw = self.raw(it, found, ty.size, false)?;
                return Ok((if ty.size == 4 { self.widen(raw) } else { raw }, Number::Float));
            }
            Kind::Float => return Err(self.error(it, "only floats of 32 and 64 bits are compared")),
            _ => {}
        }
        let is_signed = match &ty.kind {
            Kind::Integer { is_signed } | Kind::Char { is_signed } | Kind::Enum { is_signed, .. } => {
                *is_signed
            }
            Kind::Bool => false,
            _ => {
                let shown = self.shown(Some(id));
                let error = self.error(it, format!("`{shown}` isn't a number"));
                return Err(match &ty.kind {
                    Kind::Aggregate(_) => error.with_help("write one of its members"),
                    _ => error,
                });
            }
        };
        if ty.size > 8 {
            return Err(self.error(it, "numbers of more than 64 bits aren't compared"));
        }
        let register = self.raw(it, found, ty.size, is_signed)?;
        Ok((register, if is_signed { Number::Signed } else { Number::Unsigned(8 * ty.size) }))
    }

    fn widen(&mut self, register: u8) -> u8 {
        let target = self.builder.register();
        self.builder.emit(operation::WIDEN_FLOAT, target, register, 0, 0, 0);
        target
    }

    fn extend(&mut self, register: u8, bits: u64, is_signed: bool) -> u8 {
        if bits == 0 || bits >= 64 {
            return register;
        }
        let target = self.builder.register();
        self.builder.emit(operation::BITS, target, register, u8::from(is_signed), bits as u32, 0);
        target
    }

    /// A scalar's bits, extended.
    pub(crate) fn raw(&mut self, it: &Expression, found: &Typed, size: u64, is_signed: bool) -> Result<u8> {
        match &found.value {
            Value::At { register, offset } if matches!(size, 1 | 2 | 4 | 8) => {
                Ok(self.load(*register, *offset, size, is_signed))
            }
            Value::Bits(register) => Ok(self.extend(*register, 8 * size, is_signed)),
            Value::Field { register, offset, first, size } => {
                let (first, size) = (*first, *size);
                let bytes = (first + size).div_ceil(8).next_power_of_two();
                if bytes > 8 || size == 0 {
                    return Err(self.error(it, "this bit field is too wide"));
                }
                let word = self.load(*register, *offset, bytes, false);
                let target = self.builder.register();
                self.builder.emit(operation::BITS, target, word, u8::from(is_signed), size as u32, first);
                Ok(target)
            }
            Value::Pieces(pieces) if pieces.len() == 1 => {
                let register = self.call_register(pieces[0].register);
                Ok(self.extend(register, 8 * size, is_signed))
            }
            _ => Err(self.error(it, "this isn't a number")),
        }
    }
}
