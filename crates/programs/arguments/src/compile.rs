//! From expressions to a program.

use everycall_capture::Program;
use everycall_format::capture::{
    ERRNO, OUTPUT_MAX, UNTIL_ZERO, calculation, comparison, operation, register,
};

use crate::arch::{INTEGERS, VECTORS};
use crate::builder::Builder;
use crate::error::ArgumentError;
use crate::known::{Representation, known};
use crate::place::{Piece, Place};
use crate::prototypes::{Prototype, named_shape, named_types};
use crate::secrets::Secrets;
use crate::signature::Signature;
use crate::syntax::{Expression, Node};
use crate::types::{Kind, Member, Type, TypeId, Types};
use everycall_values::layout::{Content, Item, Layout, Missing, Shape};
use everycall_values::{CALL_SITE, ERROR};

/// Names that are offered in an error.
const OFFERED_MAX: usize = 8;

/// How values are copied.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Bytes of a text that are copied.
    pub text_max: usize,
    /// Names whose values are never copied.
    pub secrets: Secrets,
    /// Whether the address is copied from which the function was called.
    pub call_site: bool,
    /// Whether the function is one of a C library's that others can call: without debugging
    /// information, it has the prototype that the C standard or POSIX gives to its name.
    pub is_c_library: bool,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self { text_max: 64, secrets: Secrets::default(), call_site: false, is_c_library: false }
    }
}

/// When a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At the function's first instruction.
    Entry,
    /// When it returns.
    Exit,
}

/// A program and what it writes.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program's bytes, which pass the check of the traced side.
    pub program: Vec<u8>,
    /// The program's id, which is that of the layout.
    pub id: u32,
    /// The [`Layout`] of what it writes, as bytes.
    pub layout: Vec<u8>,
    /// Whether there is no item, and no condition: all parameters of a function that has none.
    pub is_empty: bool,
    /// Whether there is an item, so that something is copied.
    pub copies: bool,
}

/// A condition of a trigger.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    /// The number by which the traced process knows it.
    pub number: u32,
    pub condition: Expression,
    /// The request that it was read from.
    pub text: String,
}

/// Where an expression's value is while the program runs.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// In memory at the address in a register of the interpreter, and an offset.
    At {
        register: u8,
        offset: i64,
    },
    /// In several registers of the call.
    Pieces(Vec<Piece>),
    /// In the low bytes of a register of the interpreter.
    Bits(u8),
    /// A bit field: memory, first bit, number.
    Field {
        register: u8,
        offset: i64,
        first: u64,
        size: u64,
    },
    Number(i128),
    Float(f64),
    /// A text or null that stands in the request.
    Constant,
    /// Nothing is known of it.
    Missing(Missing),
}

#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub value: Value,
    pub ty: Option<TypeId>,
    /// Without DWARF: what the user said it is.
    pub plain: Option<Plain>,
}

/// A type that a user wrote.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plain {
    /// A text at a pointer; the register of the interpreter that has its length, or [`UNTIL_ZERO`].
    Text(u8),
    /// A socket address at a pointer; the register of the interpreter that has its length.
    Address(u8),
    Shape(Shape),
}

impl Plain {
    /// Bytes that a value has in memory: a text's are those of its pointer.
    fn size(&self) -> u64 {
        match self {
            Self::Text(_) | Self::Address(_) => Shape::Pointer.size() as u64,
            Self::Shape(shape) => shape.size() as u64,
        }
    }
}

/// A number in a register of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// With the sign extended.
    Signed,
    /// Of so many bits.
    Unsigned(u64),
    /// A 64-bit float.
    Float,
    Pointer,
}

/// How a value is called in a trace: as it was written, without its type.
pub(crate) fn item_name(it: &Expression) -> &str {
    match &it.node {
        Node::Argument { .. } => it.text.split(':').next().unwrap_or_default().trim(),
        Node::Typed { value, .. } => item_name(value),
        Node::Named(name, _) => name,
        _ => &it.text,
    }
}

pub(crate) struct Compiler<'t, 'd, 'a> {
    pub types: Option<&'t mut Types<'d, 'a>>,
    pub signature: Option<Signature>,
    /// The C library's, for facts that debugging information lacks.
    pub prototype: Option<Prototype>,
    pub moment: Moment,
    pub options: &'t CaptureOptions,
    pub text: String,
    pub builder: Builder,
}

pub(crate) type Result<T> = std::result::Result<T, ArgumentError>;

impl<'t, 'd, 'a> Compiler<'t, 'd, 'a> {
    pub(crate) fn new(
        types: Option<&'t mut Types<'d, 'a>>,
        signature: Option<Signature>,
        moment: Moment,
        options: &'t CaptureOptions,
        text: &str,
    ) -> Self {
        let (text, builder) = (text.to_owned(), Builder::default());
        Self { types, signature, prototype: None, moment, options, text, builder }
    }

    pub(crate) fn with_prototype(self, prototype: Option<Prototype>) -> Self {
        Self { prototype, ..self }
    }

    /// Makes the program of values and a condition. `values`: `None` for all. `conditions`: those
    /// of triggers, with their numbers and what they were read from.
    pub(crate) fn compile(
        mut self,
        values: Option<&[Expression]>,
        condition: Option<&Expression>,
        conditions: &[Judged],
    ) -> Result<Compiled> {
        let reject = self.builder.label();
        if let Some(condition) = condition {
            self.builder.jump(operation::GUARD, 0, reject);
            self.jump_if(condition, false, reject)?;
            self.builder.release(0);
            if Program::check(&self.builder.finish(0)).is_err() || !self.builder.has_room() {
                return Err(self.error(condition, "the condition is too large"));
            }
        }
        for judged in conditions {
            let text = std::mem::replace(&mut self.text, judged.text.clone());
            let next = self.builder.label();
            self.builder.jump(operation::GUARD, 0, next);
            self.jump_if(&judged.condition, false, next)?;
            self.builder.emit(operation::MEET, 0, 0, 0, judged.number, 0);
            self.builder.place(next);
            self.builder.release(0);
            if Program::check(&self.builder.finish(0)).is_err() || !self.builder.has_room() {
                return Err(self.error(&judged.condition, "the condition is too large"));
            }
            self.text = text;
        }
        let mut layout = Layout::default();
        match values {
            Some(values) => {
                for value in values {
                    let name = item_name(value).to_owned();
                    if self.has_secret_name(value) {
                        layout.items.push(Item { name, content: Content::Missing(Missing::Hidden) });
                        continue;
                    }
                    self.add(&mut layout.items, name, |it| it.value(value))?;
                }
            }
            None => self.add_all(&mut layout.items)?,
        }
        if self.options.call_site && self.moment == Moment::Entry {
            self.add(&mut layout.items, CALL_SITE.to_owned(), |it| {
                let stack = it.call_register(register::STACK_POINTER);
                let value = Value::Bits(it.load(stack, 0, 8, false));
                Ok(Typed { value, ty: None, plain: Some(Plain::Shape(Shape::CallSite)) })
            })?;
        }
        self.builder.emit(operation::END, 0, 0, 0, 0, 0);
        if condition.is_some() {
            self.builder.place(reject);
            self.builder.emit(operation::REJECT, 0, 0, 0, 0, 0);
        }
        let is_empty = layout.items.is_empty() && condition.is_none() && conditions.is_empty();
        let copies = !layout.items.is_empty();
        let layout = layout.to_bytes();
        let id = Layout::id_of(&layout);
        let program = self.builder.finish(id);
        match Program::check(&program) {
            Ok(_) => Ok(Compiled { program, id, layout, is_empty, copies }),
            Err(refusal) => Err(ArgumentError::new(
                &self.text,
                0..self.text.len(),
                format!("this makes no valid program ({refusal:?})"),
            )),
        }
    }

    /// Whether a name in an expression is on the deny list, also that of a pointer that is
    /// followed.
    fn has_secret_name(&self, it: &Expression) -> bool {
        match &it.node {
            Node::Name(name) => self.options.secrets.has(name),
            Node::Named(name, inner) => self.options.secrets.has(name) || self.has_secret_name(inner),
            Node::Typed { value, .. } => self.has_secret_name(value),
            Node::Member(object, name) => self.options.secrets.has(name) || self.has_secret_name(object),
            Node::Index(left, right) | Node::Binary(_, left, right) => {
                self.has_secret_name(left) || self.has_secret_name(right)
            }
            Node::Follow(inner) | Node::Address(inner) | Node::Negative(inner) | Node::Not(inner) => {
                self.has_secret_name(inner)
            }
            _ => false,
        }
    }

    /// All parameters, or the result.
    fn add_all(&mut self, items: &mut Vec<Item>) -> Result<()> {
        if let Some(prototype) = self.prototype.clone().filter(|_| self.signature.is_none()) {
            if self.moment == Moment::Exit {
                let nowhere = Expression { node: Node::Result, span: 0..0, text: String::new() };
                if prototype.result.is_some() {
                    self.add(items, "returned".to_owned(), |it| it.returned(&nowhere))?;
                    self.add_error(items, |it| it.returned(&nowhere));
                }
                return Ok(());
            }
            for parameter in &prototype.parameters {
                self.add(items, item_name(parameter).to_owned(), |it| it.value(parameter))?;
            }
            return Ok(());
        }
        let Some(signature) = &self.signature else {
            return Err(ArgumentError::new(
                &self.text,
                0..self.text.len(),
                "there is no debugging information for this function",
            )
            .with_help("compile with -g, or write the arguments' types, as in f(arg1:int, arg2:str)"));
        };
        if self.moment == Moment::Exit {
            if let Some(ty) = signature.result {
                let place = signature.result_place.clone();
                self.add(items, "returned".to_owned(), |it| Ok(it.placed(&place, ty)))?;
                self.add_error(items, |it| Ok(it.placed(&place, ty)));
            }
            return Ok(());
        }
        let parameters: Vec<(String, TypeId, Place)> = signature
            .parameters
            .iter()
            .map(|parameter| (parameter.name.clone(), parameter.ty, parameter.place.clone()))
            .collect();
        for (name, ty, place) in parameters {
            self.add(items, name, |it| Ok(it.placed(&place, ty)))?;
        }
        Ok(())
    }

    /// Adds the error beside a result by which a function of the C library says that it has failed.
    /// Other results have none.
    fn add_error(&mut self, items: &mut Vec<Item>, result: impl FnOnce(&mut Self) -> Result<Typed>) {
        let failure = self.prototype.as_ref().and_then(|prototype| prototype.failure);
        let (Some(failure), Some(shape)) = (failure, named_shape(ERROR)) else { return };
        let nowhere = Expression { node: Node::Result, span: 0..0, text: String::new() };
        let before = self.builder.clone();
        self.builder.release(0);
        let (none, end) = (self.builder.label(), self.builder.label());
        self.builder.jump(operation::GUARD, 0, none);
        let returned = result(self).and_then(|found| self.number_of(&nowhere, &found));
        let Ok((returned, Number::Signed | Number::Pointer)) = returned else {
            self.builder = before;
            return;
        };
        let failure = self.builder.constant(failure as u64);
        let has_failed = self.builder.binary(operation::COMPARE, comparison::EQUAL, returned, failure);
        self.builder.jump(operation::JUMP_IF_ZERO, has_failed, none);
        let number = self.call_register(ERRNO);
        self.builder.jump(operation::JUMP_IF_ZERO, number, none);
        self.builder.item(end);
        self.builder.emit(operation::EMIT, 0, number, 0, shape.size() as u32, 0);
        self.builder.jump(operation::JUMP, 0, end);
        self.builder.place(none);
        self.builder.absent_item(end);
        self.builder.place(end);
        self.builder.release(0);
        if self.builder.has_room() && Program::check(&self.builder.finish(0)).is_ok() {
            items.push(Item { name: ERROR.to_owned(), content: Content::Fixed(shape) });
        } else {
            self.builder = before;
        }
    }

    /// Adds one value, unless it doesn't fit.
    fn add(
        &mut self,
        items: &mut Vec<Item>,
        name: String,
        value: impl FnOnce(&mut Self) -> Result<Typed>,
    ) -> Result<()> {
        if self.options.secrets.has(&name) {
            items.push(Item { name, content: Content::Missing(Missing::Hidden) });
            return Ok(());
        }
        let before = self.builder.clone();
        self.builder.release(0);
        let end = self.builder.label();
        self.builder.item(end);
        let found = value(self)?;
        let mut content = self.content(&found, 0);
        if let Content::Fixed(shape) = &content
            && self.builder.shorten_item(before.length())
        {
            content = Content::Word(shape.clone());
        }
        self.builder.place(end);
        self.builder.release(0);
        let fits = self.builder.has_room()
            && Program::check(&self.builder.finish(0))
                .is_ok_and(|program| program.output_max() <= OUTPUT_MAX);
        if !fits && !matches!(content, Content::Missing(_)) {
            content = Content::Missing(Missing::NoSpace);
        }
        if matches!(content, Content::Missing(_)) {
            self.builder = before;
        }
        items.push(Item { name, content });
        Ok(())
    }

    pub(crate) fn error(&self, at: &Expression, message: impl Into<String>) -> ArgumentError {
        ArgumentError::new(&self.text, at.span.clone(), message)
    }

    pub(crate) fn get(&mut self, id: TypeId) -> Type {
        match &mut self.types {
            Some(types) => (*types.get(id)).clone(),
            None => Type { name: String::new(), size: 0, kind: Kind::Other },
        }
    }

    pub(crate) fn known(&mut self, ty: &Type) -> Option<Representation> {
        known(self.types.as_deref_mut()?, ty)
    }

    pub(crate) fn shown(&mut self, id: Option<TypeId>) -> String {
        self.types.as_deref_mut().map_or_else(String::new, |types| types.shown(id))
    }

    // ---- values

    /// A parameter or result at its place.
    fn placed(&mut self, place: &Place, ty: TypeId) -> Typed {
        let size = self.get(ty).size;
        let value = match place {
            Place::Unknown => Value::Missing(Missing::OptimisedOut),
            Place::Constant(value) => Value::Bits(self.builder.constant(*value)),
            Place::Memory { register, offset } => {
                Value::At { register: self.call_register(*register), offset: *offset }
            }
            Place::Indirect { register, offset } => {
                let base = self.call_register(*register);
                Value::At { register: self.load(base, *offset, 8, false), offset: 0 }
            }
            Place::Registers(pieces) => match &pieces[..] {
                [one] if one.size <= 8 && one.offset == 0 && size <= 8 => {
                    Value::Bits(self.call_register(one.register))
                }
                _ => Value::Pieces(pieces.clone()),
            },
        };
        Typed { value, ty: Some(ty), plain: None }
    }

    pub(crate) fn call_register(&mut self, number: u32) -> u8 {
        let target = self.builder.register();
        self.builder.emit(operation::REGISTER, target, 0, 0, number, 0);
        target
    }

    pub(crate) fn load(&mut self, base: u8, offset: i64, size: u64, is_signed: bool) -> u8 {
        let target = self.builder.register();
        self.builder.emit(operation::LOAD, target, base, u8::from(is_signed), size as u32, offset as u64);
        target
    }

    pub(crate) fn value(&mut self, it: &Expression) -> Result<Typed> {
        let untyped = |value| Typed { value, ty: None, plain: None };
        match &it.node {
            Node::Number(number) => Ok(untyped(Value::Number(*number))),
            Node::Bool(value) => Ok(untyped(Value::Number(i128::from(*value)))),
            Node::Float(number) => Ok(untyped(Value::Float(*number))),
            Node::Text(_) | Node::Null => Ok(untyped(Value::Constant)),
            Node::Name(name) => self.named(it, name),
            Node::Argument { number, is_float, type_name } => {
                self.argument(it, *number, *is_float, type_name)
            }
            Node::Typed { value, type_name, length } => {
                let found = self.value(value)?;
                self.read_as(it, &found, type_name, length.as_deref())
            }
            Node::Named(_, value) => self.value(value),
            Node::Result => self.returned(it),
            Node::Member(object, name) => {
                let object = self.value(object)?;
                self.member(it, &object, name)
            }
            Node::Index(object, index) => {
                let object = self.value(object)?;
                self.element(it, &object, index)
            }
            Node::Follow(pointer) => {
                let pointer = self.value(pointer)?;
                self.follow(it, &pointer)
            }
            Node::Address(object) => {
                let found = self.value(object)?;
                match found.value {
                    Value::At { register, offset } => {
                        let offset = self.builder.constant(offset as u64);
                        let sum =
                            self.builder.binary(operation::CALCULATE, calculation::ADD, register, offset);
                        Ok(Typed {
                            value: Value::Bits(sum),
                            ty: None,
                            plain: Some(Plain::Shape(Shape::Pointer)),
                        })
                    }
                    Value::Field { .. } => Err(self.error(it, "a bit field has no address")),
                    Value::Missing(_) => Ok(found),
                    _ => Err(self.error(it, "this is in a register, so it has no address")),
                }
            }
            Node::Negative(_) | Node::Binary(..) | Node::Not(_) => {
                let (register, number) = self.number(it)?;
                let shape = match number {
                    Number::Signed => Shape::Integer { size: 8, is_signed: true },
                    Number::Unsigned(_) => Shape::Integer { size: 8, is_signed: false },
                    Number::Float => Shape::Float(8),
                    Number::Pointer => Shape::Pointer,
                };
                Ok(Typed { value: Value::Bits(register), ty: None, plain: Some(Plain::Shape(shape)) })
            }
        }
    }

    fn named(&mut self, it: &Expression, name: &str) -> Result<Typed> {
        if self.moment == Moment::Exit {
            let Some(shape) = named_shape(name).filter(|_| name == ERROR) else {
                return Err(self.gone(it, name));
            };
            let value = Value::Bits(self.call_register(ERRNO));
            return Ok(Typed { value, ty: None, plain: Some(Plain::Shape(shape)) });
        }
        if let Some(prototype) = self.prototype.clone().filter(|_| self.signature.is_none()) {
            let known = prototype.parameters.iter().find(|parameter| item_name(parameter) == name);
            return match known {
                Some(parameter) => self.value(parameter),
                None => {
                    let names: Vec<&str> = prototype.parameters.iter().map(item_name).collect();
                    let error = self.error(it, format!("there is no parameter `{name}`"));
                    Err(error.with_help(format!("there are: {}", names.join(", "))))
                }
            };
        }
        let Some(signature) = &self.signature else {
            return Err(self
                .error(it, format!("there is no debugging information that says what `{name}` is"))
                .with_help(
                    "compile with -g, or write the argument's number and type, as in arg1:int or arg2:str",
                ));
        };
        let found = signature.parameters.iter().find(|parameter| parameter.name == name);
        if let Some(parameter) = found {
            let (ty, place) = (parameter.ty, parameter.place.clone());
            return Ok(self.placed(&place, ty));
        }
        let this = signature
            .parameters
            .iter()
            .find(|parameter| parameter.name == "this" || parameter.name == "self");
        if let Some(this) = this {
            let (ty, place) = (this.ty, this.place.clone());
            let in_use = self.builder.clone();
            let this = self.placed(&place, ty);
            if let Ok(member) = self.member(it, &this, name) {
                return Ok(member);
            }
            self.builder = in_use;
        }
        let all: Vec<(String, TypeId)> = self
            .signature
            .iter()
            .flat_map(|signature| &signature.parameters)
            .filter(|parameter| !parameter.name.is_empty())
            .map(|parameter| (parameter.name.clone(), parameter.ty))
            .collect();
        let offered = self.offered(name, all);
        let error = self.error(it, format!("there is no parameter `{name}`"));
        Err(match offered {
            Some(offered) => error.with_help(format!("there are: {offered}")),
            None => error.with_help("the function has no parameters with names"),
        })
    }

    /// Where an argument was, there may be anything when the function returns.
    fn gone(&self, it: &Expression, name: &str) -> ArgumentError {
        self.error(it, format!("`{name}` isn't known any more when the function returns"))
            .with_help("there are: returned, errno; --args records arguments")
    }

    /// Names with their types, the most similar ones first.
    fn offered(&mut self, name: &str, mut all: Vec<(String, TypeId)>) -> Option<String> {
        all.sort_by_cached_key(|(known, _)| strsim::damerau_levenshtein(known, name));
        let count = all.len();
        all.truncate(OFFERED_MAX);
        let mut texts: Vec<String> =
            all.into_iter().map(|(known, ty)| format!("{known}: {}", self.shown(Some(ty)))).collect();
        if count > texts.len() {
            texts.push(format!("and {} more", count - texts.len()));
        }
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    fn returned(&mut self, it: &Expression) -> Result<Typed> {
        if self.moment == Moment::Entry {
            return Err(self.error(it, "at its entry, a function has returned nothing yet"));
        }
        match &self.signature {
            Some(Signature { result: Some(ty), result_place, .. }) => {
                let (ty, place) = (*ty, result_place.clone());
                Ok(self.placed(&place, ty))
            }
            Some(_) => Err(self.error(it, "the function returns nothing")),
            None if self.prototype.is_some() => {
                let result = self.prototype.as_ref().and_then(|prototype| prototype.result.clone());
                let Some(result) = result else {
                    return Err(self.error(it, "the function returns nothing"));
                };
                let plain = self.plain(it, &result)?;
                let is_float = matches!(plain, Plain::Shape(Shape::Float(_)));
                let register = if is_float { register::VECTOR } else { register::GENERAL };
                let value = Value::Bits(self.call_register(register));
                Ok(Typed { value, ty: None, plain: Some(plain) })
            }
            None => {
                let value = Value::Bits(self.call_register(register::GENERAL));
                let shape = Shape::Integer { size: 8, is_signed: true };
                Ok(Typed { value, ty: None, plain: Some(Plain::Shape(shape)) })
            }
        }
    }

    /// A type by its name.
    fn plain(&self, it: &Expression, type_name: &str) -> Result<Plain> {
        let integer = |size, is_signed| Plain::Shape(Shape::Integer { size, is_signed });
        Ok(match type_name {
            "int" | "i32" => integer(4, true),
            "i8" => integer(1, true),
            "i16" | "short" => integer(2, true),
            "long" | "i64" => integer(8, true),
            "u8" => integer(1, false),
            "u16" => integer(2, false),
            "u32" | "unsigned" => integer(4, false),
            "u64" | "size_t" => integer(8, false),
            "bool" => Plain::Shape(Shape::Bool(1)),
            "char" => Plain::Shape(Shape::Char(1)),
            "ptr" => Plain::Shape(Shape::Pointer),
            "hex" => Plain::Shape(Shape::Hex(8)),
            "str" => Plain::Text(UNTIL_ZERO),
            "f32" | "float" => Plain::Shape(Shape::Float(4)),
            "f64" | "double" => Plain::Shape(Shape::Float(8)),
            "mode" => Plain::Shape(Shape::Octal(4)),
            "sockaddr" => {
                let error = self.error(it, "a socket address needs its length");
                return Err(error.with_help("write sockaddr[arg3:u32], with the argument that has it"));
            }
            _ => match named_shape(type_name) {
                Some(shape) => Plain::Shape(shape),
                None => {
                    let named: Vec<&str> = named_types().collect();
                    let error = self.error(it, format!("`{type_name}` isn't a type here"));
                    return Err(error.with_help(format!(
                        "types: i8 to i64, u8 to u64, int, long, bool, char, f32, f64, ptr, hex, str; with \
                         names for values: mode, sockaddr, {}",
                        named.join(", ")
                    )));
                }
            },
        })
    }

    /// A value's bytes, read as another type.
    fn read_as(
        &mut self,
        it: &Expression,
        found: &Typed,
        type_name: &str,
        length: Option<&Expression>,
    ) -> Result<Typed> {
        let is_address = type_name == "sockaddr" && length.is_some();
        let mut plain = if is_address { Plain::Address(UNTIL_ZERO) } else { self.plain(it, type_name)? };
        let register = match &found.value {
            Value::Missing(_) => return Ok(found.clone()),
            Value::At { register, offset } => self.load(*register, *offset, plain.size(), false),
            Value::Bits(_) | Value::Pieces(_) => self.first_word(it, found)?,
            _ => return Err(self.error(it, "only values in memory and registers are read as another type")),
        };
        if let Some(length) = length {
            let (bytes, number) = self.number(length)?;
            if number == Number::Float {
                return Err(self.error(length, "a length is an integer"));
            }
            plain = if is_address { Plain::Address(bytes) } else { Plain::Text(bytes) };
        }
        Ok(Typed { value: Value::Bits(register), ty: None, plain: Some(plain) })
    }

    /// An argument by its number: in the order of the System V ABI.
    fn argument(&mut self, it: &Expression, number: u32, is_float: bool, type_name: &str) -> Result<Typed> {
        if self.moment == Moment::Exit {
            return Err(self.gone(it, item_name(it)));
        }
        let plain = self.plain(it, type_name)?;
        let is_float_type = matches!(plain, Plain::Shape(Shape::Float(_)));
        if is_float != is_float_type {
            return Err(self.error(it, "integers and floats are counted by themselves").with_help(format!(
                "write {}arg{number}:{type_name}",
                if is_float_type { "fp" } else { "" }
            )));
        }
        let index = number as usize - 1;
        let value = if is_float {
            if index >= VECTORS as usize {
                return Err(self.error(it, "only the first 8 floating-point arguments are in registers"));
            }
            Value::Bits(self.call_register(register::VECTOR + index as u32))
        } else if let Some(register) = INTEGERS.get(index) {
            Value::Bits(self.call_register(*register))
        } else {
            let stack = self.call_register(register::STACK_POINTER);
            let offset = 8 * (i64::from(number) - INTEGERS.len() as i64);
            Value::Bits(self.load(stack, offset, 8, false))
        };
        Ok(Typed { value, ty: None, plain: Some(plain) })
    }

    /// Goes through pointers, references and owners, until an object is there.
    fn pointed(&mut self, it: &Expression, found: &Typed) -> Result<Typed> {
        let mut found = found.clone();
        for _ in 0..8 {
            let Some(id) = found.ty else { break };
            let ty = self.get(id);
            let target = match (&ty.kind, self.known(&ty)) {
                (Kind::Pointer { to: Some(to), .. }, _) => *to,
                (_, Some(Representation::Owner { target })) => target,
                _ => return Ok(found),
            };
            if let Value::Missing(_) = found.value {
                return Ok(Typed { ty: Some(target), ..found });
            }
            let register = self.first_word(it, &found)?;
            self.builder.emit(operation::FAIL_IF_ZERO, 0, register, 0, 0, 0);
            found = Typed { value: Value::At { register, offset: 0 }, ty: Some(target), plain: None };
        }
        Ok(found)
    }

    /// The first eight bytes of a value.
    pub(crate) fn first_word(&mut self, it: &Expression, found: &Typed) -> Result<u8> {
        match &found.value {
            Value::At { register, offset } => Ok(self.load(*register, *offset, 8, false)),
            Value::Bits(register) => Ok(*register),
            Value::Pieces(pieces) => match pieces.first() {
                Some(piece) => Ok(self.call_register(piece.register)),
                None => Err(self.error(it, "this has no value")),
            },
            Value::Missing(_) => Err(self.error(it, "the optimiser has removed this value")),
            _ => Err(self.error(it, "this isn't a pointer")),
        }
    }

    fn follow(&mut self, it: &Expression, found: &Typed) -> Result<Typed> {
        let Some(id) = found.ty else { return self.follow_address(it, found) };
        let ty = self.get(id);
        let target = match (&ty.kind, self.known(&ty)) {
            (Kind::Pointer { to: Some(to), is_reference: false }, _) => *to,
            (Kind::Pointer { to: Some(to), is_reference: true }, _) => {
                let inner = self.reference_target(it, found, *to)?;
                return self.follow(it, &inner);
            }
            (_, Some(Representation::Owner { target })) => target,
            (_, Some(Representation::Optional { value, .. })) => {
                return Ok(Typed { ty: Some(value), ..found.clone() });
            }
            (Kind::Pointer { to: None, .. }, _) => return self.follow_address(it, found),
            _ => {
                let shown = self.shown(Some(id));
                return Err(self.error(it, format!("`{shown}` isn't a pointer")));
            }
        };
        if let Value::Missing(_) = found.value {
            return Ok(found.clone());
        }
        let register = self.first_word(it, found)?;
        self.builder.emit(operation::FAIL_IF_ZERO, 0, register, 0, 0, 0);
        Ok(Typed { value: Value::At { register, offset: 0 }, ty: Some(target), plain: None })
    }

    /// The 8 bytes at an address whose type only the user knows.
    fn follow_address(&mut self, it: &Expression, found: &Typed) -> Result<Typed> {
        let is_number = match &found.plain {
            Some(Plain::Shape(shape)) => matches!(shape, Shape::Pointer | Shape::Integer { size: 8, .. }),
            Some(Plain::Text(_) | Plain::Address(_)) => false,
            None => found.ty.is_some(),
        };
        match found.value {
            Value::Missing(_) => return Ok(found.clone()),
            _ if is_number => {}
            _ => {
                let error = self.error(it, "this isn't a pointer");
                return Err(error.with_help("write the type of a pointer, as in *(arg1:ptr + 8)"));
            }
        }
        let register = self.first_word(it, found)?;
        self.builder.emit(operation::FAIL_IF_ZERO, 0, register, 0, 0, 0);
        let plain = Some(Plain::Shape(Shape::Hex(8)));
        Ok(Typed { value: Value::At { register, offset: 0 }, ty: None, plain })
    }

    pub(crate) fn reference_target(&mut self, it: &Expression, found: &Typed, to: TypeId) -> Result<Typed> {
        if let Value::Missing(_) = found.value {
            return Ok(Typed { ty: Some(to), ..found.clone() });
        }
        let register = self.first_word(it, found)?;
        Ok(Typed { value: Value::At { register, offset: 0 }, ty: Some(to), plain: None })
    }

    fn member(&mut self, it: &Expression, found: &Typed, name: &str) -> Result<Typed> {
        let object = self.pointed(it, found)?;
        let Some(id) = object.ty else {
            return Err(self.error(it, format!("this value has no member `{name}`")));
        };
        let ty = self.get(id);
        let Kind::Aggregate(aggregate) = &ty.kind else {
            let shown = self.shown(Some(id));
            return Err(self.error(it, format!("`{shown}` has no members")));
        };
        if aggregate.is_incomplete {
            return Err(self
                .error(it, format!("`{}` is only declared where this function is compiled", ty.name))
                .with_help("compile with -fno-limit-debug-info (clang), or include its definition"));
        }
        let Some(member) = self.find_member(id, name, 0) else {
            let members: Vec<(String, TypeId)> = aggregate
                .members
                .iter()
                .filter(|member| !member.name.is_empty())
                .map(|member| (member.name.clone(), member.ty))
                .collect();
            let error = self.error(it, format!("`{}` has no member `{name}`", ty.name));
            return Err(match self.offered(name, members) {
                Some(offered) => error.with_help(format!("it has: {offered}")),
                None => error,
            });
        };
        Ok(self.part(&object, &member))
    }

    /// A member, also of bases and of members without a name.
    fn find_member(&mut self, id: TypeId, name: &str, depth: usize) -> Option<Member> {
        let Kind::Aggregate(aggregate) = self.get(id).kind else { return None };
        if let Some(member) = aggregate.members.iter().find(|member| member.name == name) {
            return Some(member.clone());
        }
        if depth > 8 {
            return None;
        }
        let inner = aggregate.members.iter().filter(|member| member.name.is_empty()).cloned();
        for outer in inner {
            if let Some(found) = self.find_member(outer.ty, name, depth + 1) {
                return Some(Member { offset: outer.offset + found.offset, ..found });
            }
        }
        None
    }

    /// A part of an object.
    pub(crate) fn part(&mut self, object: &Typed, member: &Member) -> Typed {
        let size = self.get(member.ty).size;
        self.part_sized(object, member, size)
    }

    /// So many bytes of an object, from where a member begins.
    pub(crate) fn part_sized(&mut self, object: &Typed, member: &Member, size: u64) -> Typed {
        let value = match &object.value {
            Value::Missing(missing) => Value::Missing(*missing),
            _ if size == 0 => Value::Pieces(Vec::new()),
            Value::At { register, offset } => {
                let offset = offset.saturating_add_unsigned(member.offset);
                match member.bits {
                    Some((first, size)) => Value::Field { register: *register, offset, first, size },
                    None => Value::At { register: *register, offset },
                }
            }
            Value::Bits(register) => self.bits_of(*register, 8 * member.offset, member.bits, size),
            Value::Pieces(pieces) => {
                let begin = member.offset;
                let end = begin + size;
                // A register has eight bytes of the value, or those up to the next one's.
                let until = |index: usize, piece: &Piece| {
                    let next = pieces.get(index + 1).map_or(u64::MAX, |next| next.offset);
                    next.min(piece.offset + piece.size.max(1).next_multiple_of(8))
                };
                let within = pieces
                    .iter()
                    .enumerate()
                    .find(|(index, piece)| piece.offset <= begin && end <= until(*index, piece));
                match (within, size) {
                    (Some((_, piece)), 0..=8) => {
                        let register = self.call_register(piece.register);
                        self.bits_of(register, 8 * (begin - piece.offset), member.bits, size)
                    }
                    _ => {
                        let inner: Vec<Piece> = pieces
                            .iter()
                            .filter(|piece| piece.offset >= begin && piece.offset < end)
                            .map(|piece| Piece {
                                register: piece.register,
                                offset: piece.offset - begin,
                                size: piece.size.min(end - piece.offset),
                            })
                            .collect();
                        let covered: u64 = inner.iter().map(|piece| piece.size).sum();
                        // Padding has no register.
                        if covered == size || inner.len() == pieces.len() {
                            Value::Pieces(inner)
                        } else {
                            Value::Missing(Missing::OptimisedOut)
                        }
                    }
                }
            }
            _ => Value::Missing(Missing::OptimisedOut),
        };
        Typed { value, ty: Some(member.ty), plain: None }
    }

    fn bits_of(&mut self, register: u8, first: u64, bits: Option<(u64, u64)>, size: u64) -> Value {
        let (first, count) = match bits {
            Some((more, count)) => (first + more, count),
            None => (first, 8 * size),
        };
        if first >= 64 || count == 0 || first + count > 64 {
            return Value::Missing(Missing::OptimisedOut);
        }
        let target = self.builder.register();
        self.builder.emit(operation::BITS, target, register, 0, count as u32, first);
        Value::Bits(target)
    }

    fn element(&mut self, it: &Expression, found: &Typed, index: &Expression) -> Result<Typed> {
        let mut found = found.clone();
        if let Some(id) = found.ty
            && let Kind::Pointer { to: Some(to), is_reference: true } = self.get(id).kind
        {
            found = self.reference_target(it, &found, to)?;
        }
        let Some(id) = found.ty else { return self.word_of(it, &found, index) };
        let ty = self.get(id);
        let (element, base, offset) = match (&ty.kind, self.known(&ty)) {
            (_, _) if matches!(found.value, Value::Missing(_)) => return Ok(found),
            (Kind::Array { element, .. }, _) => match found.value {
                Value::At { register, offset } => (*element, register, offset),
                _ => return Err(self.error(it, "elements of an array in registers can't be chosen")),
            },
            (Kind::Pointer { to: Some(to), .. }, _) => (*to, self.first_word(it, &found)?, 0),
            (
                _,
                Some(
                    Representation::Range { begin: pointer, element, .. }
                    | Representation::Elements { pointer, element, .. },
                ),
            ) => {
                let base = self.word_at(it, &found, pointer)?;
                (element, base, 0)
            }
            _ => {
                let shown = self.shown(Some(id));
                return Err(self.error(it, format!("`{shown}` has no elements")));
            }
        };
        let size = self.get(element).size;
        if size == 0 {
            return Err(self.error(it, "the elements have no size"));
        }
        let value = self.element_at(base, offset, index, size)?;
        Ok(Typed { value, ty: Some(element), plain: None })
    }

    /// The element with a number, of so many bytes.
    fn element_at(&mut self, base: u8, offset: i64, index: &Expression, size: u64) -> Result<Value> {
        if let Node::Number(number) = index.node {
            let distance = i64::try_from(number).ok().and_then(|number| number.checked_mul(size as i64));
            let sum = distance.and_then(|distance| offset.checked_add(distance));
            let Some(offset) = sum else { return Err(self.error(index, "this index is too large")) };
            return Ok(Value::At { register: base, offset });
        }
        let (number, kind) = self.number(index)?;
        if !matches!(kind, Number::Signed | Number::Unsigned(_)) {
            return Err(self.error(index, "an index is an integer"));
        }
        let size = self.builder.constant(size);
        let distance = self.builder.binary(operation::CALCULATE, calculation::MULTIPLY, number, size);
        let register = self.builder.binary(operation::CALCULATE, calculation::ADD, base, distance);
        Ok(Value::At { register, offset })
    }

    /// A pointer, as everything that a pointer of unknown type points to.
    fn word_of(&mut self, it: &Expression, found: &Typed, index: &Expression) -> Result<Typed> {
        let pointer = Some(Plain::Shape(Shape::Pointer));
        if matches!(found.value, Value::Missing(_)) {
            return Ok(found.clone());
        }
        if found.plain != pointer {
            let error = self.error(it, "this has no elements");
            return Err(error.with_help("write the type of a pointer, as in arg1:ptr[2]"));
        }
        let base = self.first_word(it, found)?;
        self.builder.emit(operation::FAIL_IF_ZERO, 0, base, 0, 0, 0);
        Ok(Typed { value: self.element_at(base, 0, index, 8)?, ty: None, plain: pointer })
    }

    /// Eight bytes of a value at an offset.
    pub(crate) fn word_at(&mut self, it: &Expression, found: &Typed, at: u64) -> Result<u8> {
        match &found.value {
            Value::At { register, offset } => {
                Ok(self.load(*register, offset.saturating_add_unsigned(at), 8, false))
            }
            Value::Bits(register) if at == 0 => Ok(*register),
            Value::Pieces(pieces) => match pieces.iter().find(|piece| piece.offset == at).cloned() {
                Some(piece) => Ok(self.call_register(piece.register)),
                None => Err(self.error(it, "the optimiser has removed a part of this value")),
            },
            _ => Err(self.error(it, "the optimiser has removed this value")),
        }
    }
}
