//! How values are copied: by their types.

use everycall_format::capture::{COPY_MAX, operation};

use crate::compile::{Compiler, Plain, Typed, Value};
use crate::known::Representation;
use crate::place::Piece;
use crate::syntax::{Expression, Node};
use crate::types::{Aggregate, Kind, Member, Type, TypeId, Variants};
use everycall_values::layout::{Content, Field, Item, Missing, Shape};

/// Bytes of a socket address that are copied: the largest one is a Unix socket's.
const ADDRESS_MAX: u32 = 110;
/// Members of one object that are copied.
const MEMBERS_MAX: usize = 24;
/// Cases of one enum that are told apart.
const CASES_MAX: usize = 24;
/// Objects up to this size are copied as they are, if no member needs more.
const OBJECT_MAX: u64 = 256;
/// Elements of an array that are copied.
const ELEMENTS_MAX: u64 = 16;
/// Members of members are shown to this depth.
const DEPTH_MAX: usize = 2;

impl Compiler<'_, '_, '_> {
    /// Copies a value within the item that has begun.
    pub(crate) fn content(&mut self, found: &Typed, depth: usize) -> Content {
        let nowhere = Expression { node: Node::Null, span: 0..0, text: String::new() };
        self.content_inside(&nowhere, found, depth).unwrap_or(Content::Missing(Missing::OptimisedOut))
    }

    fn content_inside(
        &mut self,
        it: &Expression,
        found: &Typed,
        depth: usize,
    ) -> crate::compile::Result<Content> {
        match &found.value {
            Value::Missing(missing) => return Ok(Content::Missing(*missing)),
            Value::Number(number) => {
                let register = self.builder.constant(*number as u64);
                self.builder.emit(operation::EMIT, 0, register, 0, 8, 0);
                let is_signed = *number <= i128::from(i64::MAX);
                return Ok(Content::Fixed(Shape::Integer { size: 8, is_signed }));
            }
            Value::Float(number) => {
                let register = self.builder.constant(number.to_bits());
                self.builder.emit(operation::EMIT, 0, register, 0, 8, 0);
                return Ok(Content::Fixed(Shape::Float(8)));
            }
            _ => {}
        }
        if let Some(plain) = found.plain.clone() {
            return Ok(match (plain, &found.value) {
                (Plain::Text(length), Value::Bits(register)) => self.text(*register, length),
                (Plain::Address(length), Value::Bits(register)) => {
                    self.builder.emit(operation::COPY_TEXT, 0, *register, length, ADDRESS_MAX, 0);
                    Content::SocketAddress
                }
                (Plain::Shape(shape), _) => self.fixed(found, shape),
                _ => Content::Missing(Missing::OptimisedOut),
            });
        }
        let Some(id) = found.ty else { return Ok(Content::Missing(Missing::OptimisedOut)) };
        let ty = self.get(id);
        if let Some(place) = self.text_content(it, found, &ty)? {
            return Ok(place);
        }
        match (&ty.kind, self.known(&ty)) {
            (Kind::Pointer { to: Some(to), is_reference }, _)
                if (*is_reference || ty.name.starts_with('&')) && depth < DEPTH_MAX =>
            {
                let target = self.reference_target(it, found, *to)?;
                if self.get(*to).size == 0 {
                    return Ok(self.fixed(found, Shape::Pointer));
                }
                self.content_inside(it, &target, depth)
            }
            (_, Some(Representation::Range { begin, end, element })) => {
                let begin = self.word_at(it, found, begin)?;
                let end = self.word_at(it, found, end)?;
                let how = everycall_format::capture::calculation::SUBTRACT;
                let length = self.builder.binary(operation::CALCULATE, how, end, begin);
                Ok(self.elements(begin, length, element))
            }
            (_, Some(Representation::Elements { pointer, count, element })) => {
                let pointer = self.word_at(it, found, pointer)?;
                let count = self.word_at(it, found, count)?;
                let size = self.get(element).size;
                let size = self.builder.constant(size);
                let how = everycall_format::capture::calculation::MULTIPLY;
                let length = self.builder.binary(operation::CALCULATE, how, count, size);
                Ok(self.elements(pointer, length, element))
            }
            (_, Some(Representation::Optional { engaged, value })) => {
                self.optional(it, found, engaged, value, depth)
            }
            (_, Some(Representation::Owner { .. })) => {
                let register = self.first_word(it, found)?;
                let value = Typed { value: Value::Bits(register), ..found.clone() };
                Ok(self.fixed(&value, Shape::Pointer))
            }
            (_, Some(Representation::Duration { seconds, nanoseconds })) => {
                Ok(self.fixed(found, Shape::Duration(seconds as usize, nanoseconds as usize)))
            }
            (Kind::Aggregate(aggregate), _) => self.aggregate(it, found, &ty, aggregate, depth),
            _ => {
                let shape = self.shape(id, &ty, depth);
                Ok(match shape {
                    Some(shape) => self.fixed(found, shape),
                    None => Content::Missing(Missing::Incomplete),
                })
            }
        }
    }

    fn text(&mut self, pointer: u8, length: u8) -> Content {
        let size = self.options.text_max.min(COPY_MAX) as u32;
        self.builder.emit(operation::COPY_TEXT, 0, pointer, length, size, 0);
        Content::Text
    }

    /// A text, if the type is one.
    fn text_content(
        &mut self,
        it: &Expression,
        found: &Typed,
        ty: &Type,
    ) -> crate::compile::Result<Option<Content>> {
        let is_text = match (&ty.kind, self.known(ty)) {
            (Kind::Pointer { to: Some(to), is_reference: false }, _) => {
                let target = self.get(*to);
                target.size == 1 && matches!(target.kind, Kind::Char { .. })
            }
            (
                _,
                Some(Representation::Text { .. } | Representation::CountedText | Representation::ShortText),
            ) => true,
            _ => false,
        };
        if !is_text {
            return Ok(None);
        }
        let place = self.text_place(it, found)?;
        Ok(place.map(|place| self.text(place.pointer, place.length)))
    }

    fn elements(&mut self, pointer: u8, length: u8, element: TypeId) -> Content {
        let ty = self.get(element);
        let shape = self.shape(element, &ty, 1).filter(|shape| shape.size() > 0);
        let (shape, size) = match shape {
            Some(shape) => {
                let most = self.options.text_max.max(shape.size()).min(COPY_MAX);
                let size = most / shape.size() * shape.size();
                (shape, size)
            }
            None => (Shape::Opaque(ty.size.max(1) as usize), 0),
        };
        self.builder.emit(operation::COPY_TEXT, 0, pointer, length, size as u32, 0);
        Content::Elements(shape)
    }

    fn optional(
        &mut self,
        it: &Expression,
        found: &Typed,
        engaged: u64,
        value: TypeId,
        depth: usize,
    ) -> crate::compile::Result<Content> {
        let flag = Member { name: String::new(), ty: value, offset: engaged, bits: None };
        let flag = self.part_sized(found, &flag, 1);
        let flag = self.raw(it, &flag, 1, false)?;
        self.builder.emit(operation::EMIT, 0, flag, 0, 1, 0);
        let done = self.builder.label();
        self.builder.jump(operation::JUMP_IF_ZERO, flag, done);
        let member = Member { name: String::new(), ty: value, offset: 0, bits: None };
        let inner = self.item_of(found, &member, depth + 1);
        self.builder.place(done);
        Ok(Content::Optional(Box::new(inner)))
    }

    /// A member as an item of its own.
    fn item_of(&mut self, object: &Typed, member: &Member, depth: usize) -> Content {
        let before = self.builder.clone();
        let in_use = self.builder.in_use();
        let end = self.builder.label();
        self.builder.item(end);
        let part = self.part(object, member);
        let content = self.content(&part, depth);
        self.builder.place(end);
        self.builder.release(in_use);
        if matches!(content, Content::Missing(_)) {
            self.builder = before;
        }
        content
    }

    fn aggregate(
        &mut self,
        it: &Expression,
        found: &Typed,
        ty: &Type,
        aggregate: &Aggregate,
        depth: usize,
    ) -> crate::compile::Result<Content> {
        if aggregate.is_incomplete {
            return Ok(Content::Missing(Missing::Incomplete));
        }
        if let Some(variants) = &aggregate.variants {
            return self.choice(it, found, variants, depth);
        }
        let Some(id) = found.ty else { return Ok(Content::Missing(Missing::Incomplete)) };
        if ty.size <= OBJECT_MAX
            && let Some(shape) = self.shape(id, ty, depth)
        {
            return Ok(self.fixed(found, shape));
        }
        if depth >= DEPTH_MAX || aggregate.is_union {
            return Ok(Content::Fixed(Shape::Opaque(0)));
        }
        Ok(Content::Group(self.members(found, aggregate, depth)))
    }

    /// Members as items; bases and members without a name are looked into.
    fn members(&mut self, found: &Typed, aggregate: &Aggregate, depth: usize) -> Vec<Item> {
        let mut items = Vec::new();
        for member in self.flat(aggregate, 0, 0) {
            let content = if self.options.secrets.has(&member.name) {
                Content::Missing(Missing::Hidden)
            } else if items.len() >= MEMBERS_MAX {
                break;
            } else {
                self.item_of(found, &member, depth + 1)
            };
            items.push(Item { name: member.name, content });
        }
        items
    }

    fn flat(&mut self, aggregate: &Aggregate, offset: u64, depth: usize) -> Vec<Member> {
        let mut all = Vec::new();
        for member in &aggregate.members {
            let moved = Member { offset: member.offset + offset, ..member.clone() };
            let inner = if member.name.is_empty() && depth < 8 { Some(self.get(member.ty)) } else { None };
            match inner.map(|inner| inner.kind) {
                Some(Kind::Aggregate(inner)) => all.extend(self.flat(&inner, moved.offset, depth + 1)),
                _ if self.is_nothing(member.ty) => {}
                _ => all.push(moved),
            }
        }
        all
    }

    /// A type without a value, as Rust's `()` and markers. (Arrays at a struct's end have no size.)
    fn is_nothing(&mut self, id: TypeId) -> bool {
        let ty = self.get(id);
        let is_known = match &ty.kind {
            Kind::Aggregate(it) => !it.is_incomplete,
            Kind::Integer { .. } => true,
            _ => false,
        };
        ty.size == 0 && is_known
    }

    /// One of several cases, by the discriminant.
    fn choice(
        &mut self,
        it: &Expression,
        found: &Typed,
        variants: &Variants,
        depth: usize,
    ) -> crate::compile::Result<Content> {
        if variants.cases.len() > CASES_MAX || depth > DEPTH_MAX {
            return Ok(Content::Fixed(Shape::Opaque(0)));
        }
        let done = self.builder.label();
        let labels: Vec<_> = variants.cases.iter().map(|_| self.builder.label()).collect();
        let in_use = self.builder.in_use();
        if let Some(discriminant) = &variants.discriminant {
            let size = self.get(discriminant.ty).size;
            let part = self.part(found, discriminant);
            let value = self.raw(it, &part, size, false)?;
            let mask = if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
            for (case, label) in variants.cases.iter().zip(&labels) {
                for known in &case.values {
                    let in_use = self.builder.in_use();
                    let known = self.builder.constant(*known & mask);
                    let how = everycall_format::capture::comparison::EQUAL;
                    let is = self.builder.binary(operation::COMPARE, how, value, known);
                    self.builder.jump(operation::JUMP_UNLESS_ZERO, is, *label);
                    self.builder.release(in_use);
                }
            }
        }
        match variants.cases.iter().position(|case| case.values.is_empty()) {
            Some(other) => self.builder.jump(operation::JUMP, 0, labels[other]),
            None => {
                // No case has this value: the bytes aren't those of such an enum.
                let zero = self.builder.constant(0);
                self.builder.emit(operation::FAIL_IF_ZERO, 0, zero, 0, 0, 0);
            }
        }
        self.builder.release(in_use);
        let mut cases = Vec::new();
        for (index, (case, label)) in variants.cases.iter().zip(labels).enumerate() {
            self.builder.place(label);
            let number = self.builder.constant(index as u64);
            self.builder.emit(operation::EMIT, 0, number, 0, 1, 0);
            self.builder.release(in_use);
            let object = self.part(found, &case.member);
            let items = match self.get(case.member.ty).kind {
                Kind::Aggregate(inner) if depth < DEPTH_MAX => self.members(&object, &inner, depth),
                _ => Vec::new(),
            };
            self.builder.release(in_use);
            cases.push((case.name.clone(), items));
            self.builder.jump(operation::JUMP, 0, done);
        }
        self.builder.place(done);
        Ok(Content::Choice(cases))
    }

    /// Copies bytes of a fixed size.
    fn fixed(&mut self, found: &Typed, shape: Shape) -> Content {
        let size = shape.size();
        let missing = Content::Missing(Missing::OptimisedOut);
        match &found.value {
            _ if size == 0 => {}
            Value::At { register, offset } => {
                if size > COPY_MAX {
                    return Content::Missing(Missing::NoSpace);
                }
                self.builder.emit(operation::COPY, 0, *register, 0, size as u32, *offset as u64);
            }
            Value::Bits(register) => {
                if size > 8 {
                    return missing;
                }
                self.builder.emit(operation::EMIT, 0, *register, 0, size as u32, 0);
            }
            Value::Field { .. } => {
                let nowhere = Expression { node: Node::Null, span: 0..0, text: String::new() };
                let is_signed = matches!(
                    shape,
                    Shape::Integer { is_signed: true, .. } | Shape::Enum { is_signed: true, .. }
                );
                let Ok(register) = self.raw(&nowhere, found, size as u64, is_signed) else { return missing };
                self.builder.emit(operation::EMIT, 0, register, 0, size.min(8) as u32, 0);
            }
            Value::Pieces(pieces) => {
                let (mut at, size) = (0, size as u64);
                for Piece { register, offset, size: length } in pieces.clone() {
                    let length = length.min(size.saturating_sub(offset));
                    if offset < at || offset - at >= 8 || length == 0 {
                        return missing;
                    }
                    self.padding(offset - at);
                    let in_use = self.builder.in_use();
                    let register = self.call_register(register);
                    self.builder.emit(operation::EMIT, 0, register, 0, length as u32, 0);
                    self.builder.release(in_use);
                    at = offset + length;
                }
                if size - at >= 8 {
                    return missing;
                }
                self.padding(size - at);
            }
            _ => return missing,
        }
        Content::Fixed(shape)
    }

    /// Bytes between the parts of a value.
    fn padding(&mut self, size: u64) {
        if size > 0 {
            let in_use = self.builder.in_use();
            let zero = self.builder.constant(0);
            self.builder.emit(operation::EMIT, 0, zero, 0, size.min(8) as u32, 0);
            self.builder.release(in_use);
        }
    }

    /// What the bytes of a type are. `None` if they must not be copied as they are, because some
    /// have to be followed, or are secret. `level`: how many objects it is within.
    pub(crate) fn shape(&mut self, id: TypeId, ty: &Type, level: usize) -> Option<Shape> {
        let size = ty.size as usize;
        match (&ty.kind, self.known(ty)) {
            (_, Some(Representation::Duration { seconds, nanoseconds })) => {
                Some(Shape::Duration(seconds as usize, nanoseconds as usize))
            }
            (_, Some(_)) => (level >= DEPTH_MAX).then_some(Shape::Opaque(size)),
            (Kind::Integer { is_signed }, _) => Some(Shape::Integer { size, is_signed: *is_signed }),
            (Kind::Bool, _) => Some(Shape::Bool(size)),
            (Kind::Char { .. }, _) => Some(Shape::Char(size)),
            // Ten of the sixteen bytes of a long double have a meaning.
            (Kind::Float, _) if size == 16 && ty.name == "long double" => {
                Some(Shape::Float(if level == 0 { 10 } else { 16 }))
            }
            (Kind::Float, _) if matches!(size, 2 | 4 | 8) => Some(Shape::Float(size)),
            (Kind::Enum { is_signed, values }, _) => {
                Some(Shape::Enum { size, is_signed: *is_signed, values: values.clone() })
            }
            (Kind::Pointer { to, .. }, _) => {
                let target = to.map(|to| self.get(to));
                match target.map(|target| (target.size, target.kind)) {
                    Some((_, Kind::Function)) => Some(Shape::Function),
                    // A text within an object is an item of its own.
                    Some((1, Kind::Char { .. })) if level == 1 => None,
                    _ => Some(Shape::Pointer),
                }
            }
            (Kind::Array { element, count }, _) => self.array(*element, *count, level),
            (Kind::Aggregate(it), _) => self.object(id, ty, it, level),
            (Kind::Function, _) => None,
            (Kind::Float | Kind::Other, _) if size > 0 && size <= 64 => Some(Shape::Hex(size)),
            _ => Some(Shape::Opaque(size)),
        }
    }

    fn array(&mut self, element: TypeId, count: Option<u64>, level: usize) -> Option<Shape> {
        let inner = self.get(element);
        let count = count.unwrap_or(0);
        let is_member = level > 0;
        if inner.size == 1 && matches!(inner.kind, Kind::Char { .. }) {
            let most = if is_member { OBJECT_MAX } else { self.options.text_max as u64 };
            return Some(Shape::Chars(count.min(most) as usize));
        }
        let most = ELEMENTS_MAX.min(OBJECT_MAX / inner.size.max(1));
        let kept = count.min(most);
        match self.shape(element, &inner, level + 1) {
            Some(shape) if shape.size() as u64 == inner.size => {
                Some(Shape::Array(Box::new(shape), kept as usize, kept < count))
            }
            Some(_) => Some(Shape::Opaque(0)),
            None if is_member => None,
            None => Some(Shape::Opaque(0)),
        }
    }

    fn object(&mut self, id: TypeId, ty: &Type, it: &Aggregate, level: usize) -> Option<Shape> {
        if self.has_secret(id, 0) {
            return None;
        }
        if level >= DEPTH_MAX {
            return Some(Shape::Opaque(ty.size as usize));
        }
        if it.is_incomplete || it.variants.is_some() || it.is_union || ty.size > OBJECT_MAX {
            return None;
        }
        let mut members = Vec::new();
        for member in self.flat(it, 0, 0) {
            let inner = self.get(member.ty);
            let shape = self.shape(member.ty, &inner, level + 1)?;
            if members.len() < MEMBERS_MAX {
                let bits = member.bits.map(|(first, size)| (first as u32, size as u32));
                members.push(Field { name: member.name, offset: member.offset as usize, bits, shape });
            }
        }
        Some(Shape::Struct { size: ty.size as usize, members })
    }

    /// Whether a member of an object, or of its members, has a name on the deny list.
    fn has_secret(&mut self, id: TypeId, depth: usize) -> bool {
        match self.get(id).kind {
            Kind::Aggregate(it) if depth < 8 => it.members.iter().any(|member| {
                self.options.secrets.has(&member.name) || self.has_secret(member.ty, depth + 1)
            }),
            Kind::Array { element, .. } if depth < 8 => self.has_secret(element, depth + 1),
            _ => false,
        }
    }
}
