//! From a capture to values.

use std::net::{Ipv4Addr, Ipv6Addr};

use everycall_format::Wire;
use everycall_format::capture::{TextHeader, status, text_flag};

use crate::ERROR;
use crate::layout::{Content, Item, Layout, Missing, Shape};

/// Bytes of a [`Content::Word`].
const WORD: usize = 4;

/// A value that was copied.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Integer(i128),
    /// An integer without a sign that needs all of 128 bits.
    Large(u128),
    /// A truth value.
    Bool(bool),
    /// A character; its number if it is none.
    Char(u32),
    /// A 64-bit float.
    Float(f64),
    /// A 32-bit float.
    Float32(f32),
    /// A text.
    Text {
        /// What was copied.
        bytes: Vec<u8>,
        /// The whole length, as far as it is known.
        length: u32,
        /// Whether it goes on.
        is_cut: bool,
        /// Whether the rest couldn't be read.
        is_unreadable: bool,
    },
    /// A null pointer.
    Null,
    /// An address.
    Pointer(u64),
    /// A function's address.
    Function(u64),
    /// The address behind the instruction that made the call.
    CallSite(u64),
    /// An address, and what is there: a function, a variable, or a line.
    Named(u64, String),
    /// A value of an enumeration, with its name or names.
    Enum(i128, Option<String>),
    /// Members with their names.
    Struct(Vec<(String, Value)>),
    /// Elements, and how many there are.
    Array(Vec<Value>, u64),
    /// A case of an enum with its fields.
    Case(String, Vec<(String, Value)>),
    /// An optional value that isn't there.
    None,
    /// Seconds and nanoseconds.
    Duration(u64, u32),
    /// Bytes of an unknown type.
    Hex(Vec<u8>),
    /// Not shown.
    Opaque,
    /// It lies in memory that can't be read.
    Unreadable,
    /// There is none, for this reason.
    Missing(Missing),
    /// The capture is damaged here.
    Damaged,
}

/// The values of a capture, one for each item of the layout, but no `errno` where there is none
/// or it wasn't known. What comes after damage is [`Value::Damaged`].
#[must_use]
pub fn decode(layout: &Layout, capture: &[u8]) -> Vec<(String, Value)> {
    let mut reader = Reader { bytes: capture, is_damaged: false };
    let values = reader.items(&layout.items);
    let is_error = |content: &Content| matches!(content, Content::Fixed(Shape::Enum { .. }));
    let is_known = |item: &Item, value: &Value| {
        let is_none = matches!(value, Value::None | Value::Unreadable);
        !(is_none && item.name == ERROR && is_error(&item.content))
    };
    layout
        .items
        .iter()
        .zip(values)
        .filter(|(item, (_, value))| is_known(item, value))
        .map(|(_, it)| it)
        .collect()
}

impl Value {
    /// The value with the names of addresses in it, as far as `name` knows them.
    #[must_use]
    pub fn with_names(self, name: &dyn Fn(&Value) -> Option<String>) -> Value {
        let all = |values: Vec<(String, Value)>| {
            values.into_iter().map(|(key, value)| (key, value.with_names(name))).collect()
        };
        match self {
            Value::Pointer(address) | Value::Function(address) | Value::CallSite(address) => {
                match name(&self) {
                    Some(name) => Value::Named(address, name),
                    None => self,
                }
            }
            Value::Struct(values) => Value::Struct(all(values)),
            Value::Case(case, values) => Value::Case(case, all(values)),
            Value::Array(values, count) => {
                Value::Array(values.into_iter().map(|value| value.with_names(name)).collect(), count)
            }
            other => other,
        }
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    is_damaged: bool,
}

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> &'b [u8] {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) if !self.is_damaged => {
                self.bytes = rest;
                taken
            }
            _ => {
                self.is_damaged = true;
                &[]
            }
        }
    }

    fn items(&mut self, items: &[Item]) -> Vec<(String, Value)> {
        items.iter().map(|item| (item.name.clone(), self.content(&item.content))).collect()
    }

    fn content(&mut self, content: &Content) -> Value {
        if let Content::Missing(missing) = content {
            return Value::Missing(*missing);
        }
        if let Content::Word(shape) = content {
            let size = shape.size();
            let bytes = self.take(if size > WORD { 2 * WORD } else { WORD });
            return match bytes.get(..size).filter(|_| !self.is_damaged) {
                Some(bytes) => shaped(shape, bytes),
                None => Value::Damaged,
            };
        }
        match self.take(1).first() {
            Some(&status::PRESENT) => {}
            Some(&status::UNREADABLE) => return Value::Unreadable,
            Some(&status::ABSENT) => return Value::None,
            _ => {
                self.is_damaged = true;
                return Value::Damaged;
            }
        }
        let value = match content {
            Content::Fixed(shape) => shaped(shape, self.take(shape.size())),
            Content::Text => self.text(),
            Content::SocketAddress => match self.text() {
                Value::Text { bytes, .. } => socket_address(bytes),
                other => other,
            },
            Content::Elements(shape) => self.elements(shape),
            Content::Group(items) => Value::Struct(self.items(items)),
            Content::Optional(inner) => match self.take(1).first() {
                Some(0) => Value::None,
                _ => self.content(inner),
            },
            Content::Choice(cases) => {
                let index = self.take(1).first().copied().map_or(usize::MAX, usize::from);
                match cases.get(index) {
                    Some((name, items)) => Value::Case(name.clone(), self.items(items)),
                    None => {
                        self.is_damaged = true;
                        Value::Damaged
                    }
                }
            }
            // Above.
            Content::Missing(_) | Content::Word(_) => Value::Damaged,
        };
        if self.is_damaged { Value::Damaged } else { value }
    }

    fn header(&mut self) -> (TextHeader, &'b [u8]) {
        let header = TextHeader::read(self.take(TextHeader::SIZE)).unwrap_or_default();
        (header, self.take(usize::from(header.copied)))
    }

    fn text(&mut self) -> Value {
        let (header, bytes) = self.header();
        if header.flags & text_flag::NULL != 0 {
            return Value::Null;
        }
        let is_unreadable = header.flags & text_flag::UNREADABLE != 0;
        if is_unreadable && bytes.is_empty() {
            return Value::Unreadable;
        }
        Value::Text {
            bytes: bytes.to_vec(),
            length: header.length,
            is_cut: header.flags & text_flag::CUT != 0,
            is_unreadable,
        }
    }

    fn elements(&mut self, shape: &Shape) -> Value {
        let (header, bytes) = self.header();
        if header.flags & text_flag::NULL != 0 {
            return Value::Null;
        }
        let size = shape.size().max(1);
        let elements = bytes.chunks_exact(size).map(|bytes| shaped(shape, bytes)).collect();
        Value::Array(elements, u64::from(header.length) / size as u64)
    }
}

/// A socket address as text; bytes that are none, or of another kind, in hexadecimal.
fn socket_address(bytes: Vec<u8>) -> Value {
    const UNIX: u16 = 1;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let text = |text: String| {
        let bytes = text.into_bytes();
        Value::Text { length: bytes.len() as u32, bytes, is_cut: false, is_unreadable: false }
    };
    if bytes.is_empty() {
        return Value::Null;
    }
    let Some((family, rest)) = bytes.split_first_chunk() else { return Value::Hex(bytes) };
    let port = rest.first_chunk().map(|port| u16::from_be_bytes(*port));
    match (u16::from_le_bytes(*family), port) {
        (UNIX, _) => match rest {
            [] => text("(unnamed)".to_owned()),
            [0, name @ ..] => text(format!("@{}", String::from_utf8_lossy(name))),
            path => {
                let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
                text(String::from_utf8_lossy(path).into_owned())
            }
        },
        (INET, Some(port)) => match rest[2..].first_chunk() {
            Some(address) => text(format!("{}:{port}", Ipv4Addr::from(*address))),
            None => Value::Hex(bytes),
        },
        (INET6, Some(port)) => match rest.get(6..).and_then(<[u8]>::first_chunk::<16>) {
            Some(address) => text(format!("[{}]:{port}", Ipv6Addr::from(*address))),
            None => Value::Hex(bytes),
        },
        _ => Value::Hex(bytes),
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().take(16).rev().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn signed(number: u128, bits: u32) -> i128 {
    let up = 128_u32.saturating_sub(bits).min(127);
    (number << up) as i128 >> up
}

/// The value of a shape; `bytes` are as many as it has.
fn shaped(shape: &Shape, bytes: &[u8]) -> Value {
    if bytes.len() < shape.size() {
        return Value::Damaged;
    }
    let bytes = &bytes[..shape.size()];
    match shape {
        Shape::Struct { members, .. } => {
            let of = |member: &crate::layout::Field| {
                let rest = bytes.get(member.offset..).unwrap_or_default();
                match member.bits {
                    None => shaped(&member.shape, rest),
                    Some((first, size)) => {
                        let all = number(rest.get(..rest.len().min(16)).unwrap_or_default());
                        let mask = (1_u128 << size.min(127)) - 1;
                        scalar(&member.shape, all.checked_shr(first).unwrap_or(0) & mask, size, &[])
                    }
                }
            };
            Value::Struct(members.iter().map(|member| (member.name.clone(), of(member))).collect())
        }
        Shape::Array(element, count, has_more) => {
            let size = element.size().max(1);
            let elements: Vec<Value> =
                bytes.chunks_exact(size).take(*count).map(|bytes| shaped(element, bytes)).collect();
            Value::Array(elements, *count as u64 + u64::from(*has_more))
        }
        Shape::Chars(_) => {
            let end = bytes.iter().position(|byte| *byte == 0);
            let kept = end.unwrap_or(bytes.len());
            Value::Text {
                bytes: bytes[..kept].to_vec(),
                length: kept as u32,
                is_cut: false,
                is_unreadable: false,
            }
        }
        Shape::Duration(seconds, nanoseconds) => {
            let part = |at: usize, size: usize| number(bytes.get(at..at + size).unwrap_or_default());
            Value::Duration(part(*seconds, 8) as u64, part(*nanoseconds, 4) as u32)
        }
        Shape::Opaque(_) => Value::Opaque,
        Shape::Octal(_) => {
            let bits = number(bytes);
            Value::Enum(bits as i128, Some(format!("0{bits:o}")))
        }
        Shape::Hex(_) => Value::Hex(bytes.to_vec()),
        _ => scalar(shape, number(bytes), 8 * bytes.len() as u32, bytes),
    }
}

/// A scalar of so many bits.
fn scalar(shape: &Shape, raw: u128, bits: u32, bytes: &[u8]) -> Value {
    match shape {
        Shape::Integer { is_signed: true, .. } => Value::Integer(signed(raw, bits)),
        Shape::Integer { .. } => i128::try_from(raw).map_or(Value::Large(raw), Value::Integer),
        Shape::Bool(_) => Value::Bool(raw != 0),
        Shape::Char(_) => Value::Char(raw as u32),
        Shape::Float(4) => Value::Float32(f32::from_bits(raw as u32)),
        Shape::Float(8) => Value::Float(f64::from_bits(raw as u64)),
        Shape::Float(2) => Value::Float(of_half(raw as u16)),
        Shape::Float(_) => Value::Float(of_extended(raw)),
        Shape::Enum { is_signed, values, .. } => {
            let value = if *is_signed { signed(raw, bits) } else { raw as i128 };
            Value::Enum(value, enumerators(value, values))
        }
        Shape::Pointer if raw == 0 => Value::Null,
        Shape::Function if raw == 0 => Value::Null,
        Shape::Pointer => Value::Pointer(raw as u64),
        Shape::Function => Value::Function(raw as u64),
        Shape::CallSite => Value::CallSite(raw as u64),
        _ => Value::Hex(bytes.to_vec()),
    }
}

/// The name of a value, or of its flags.
fn enumerators(value: i128, values: &[(String, i128)]) -> Option<String> {
    if let Some((name, _)) = values.iter().find(|(_, known)| *known == value) {
        return Some(name.clone());
    }
    let are_flags = values.len() > 1
        && values.iter().all(|(_, known)| *known >= 0)
        && values.iter().filter(|(_, known)| known.count_ones() == 1).count() * 2 > values.len();
    if !are_flags || value <= 0 {
        return None;
    }
    let mut rest = value;
    let mut names = Vec::new();
    for (name, known) in values {
        if known.count_ones() == 1 && rest & known != 0 {
            rest &= !known;
            names.push(name.as_str());
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut text = names.join(" | ");
    if rest != 0 {
        text.push_str(&format!(" | {rest:#x}"));
    }
    Some(text)
}

fn of_half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * (2.0_f64).powi(-24),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * (2.0_f64).powi(exponent - 15),
    }
}

/// x87's format of 80 bits: exponent and sign, and 64 bits with the leading one.
fn of_extended(bits: u128) -> f64 {
    let fraction = bits as u64;
    let exponent = (bits >> 64) as i32 & 0x7fff;
    let sign = if bits >> 79 & 1 == 1 { -1.0 } else { 1.0 };
    if exponent == 0x7fff {
        return if fraction << 1 == 0 { sign * f64::INFINITY } else { f64::NAN };
    }
    // Two steps, so that no power is out of range.
    let power = exponent - 16383 - 63;
    let half = power / 2;
    sign * fraction as f64 * (2.0_f64).powi(half) * (2.0_f64).powi(power - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_not_there_is_not_shown() {
        let error = Shape::Enum { size: 4, is_signed: true, values: vec![("ENOENT".to_owned(), 2)] };
        let item = |name: &str, content| Item { name: name.to_owned(), content };
        let layout = Layout {
            items: vec![
                item("returned", Content::Word(Shape::Integer { size: 4, is_signed: true })),
                item(ERROR, Content::Fixed(error)),
            ],
        };
        let returned = ("returned".to_owned(), Value::Integer(-1));
        let of = |rest: &[u8]| decode(&layout, &[&[0xff; 4], rest].concat());
        let known = (ERROR.to_owned(), Value::Enum(2, Some("ENOENT".to_owned())));
        assert_eq!(of(&[status::PRESENT, 2, 0, 0, 0]), [returned.clone(), known]);
        assert_eq!(of(&[status::ABSENT]), std::slice::from_ref(&returned));
        assert_eq!(of(&[status::UNREADABLE]), std::slice::from_ref(&returned));
        assert_eq!(of(&[status::PRESENT, 2]), [returned, (ERROR.to_owned(), Value::Damaged)]);
    }
}
