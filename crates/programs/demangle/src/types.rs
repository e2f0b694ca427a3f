//! Types.

use crate::node::{Function, Id, List, Node, Qualifiers, Reference};
use crate::parser::Parser;

/// Types of one letter.
fn builtin(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'v' => "void",
        b'w' => "wchar_t",
        b'b' => "bool",
        b'c' => "char",
        b'a' => "signed char",
        b'h' => "unsigned char",
        b's' => "short",
        b't' => "unsigned short",
        b'i' => "int",
        b'j' => "unsigned int",
        b'l' => "long",
        b'm' => "unsigned long",
        b'x' => "long long",
        b'y' => "unsigned long long",
        b'n' => "__int128",
        b'o' => "unsigned __int128",
        b'f' => "float",
        b'd' => "double",
        b'e' => "long double",
        b'g' => "__float128",
        b'z' => "...",
        _ => return None,
    })
}

/// The types after a `D`.
fn long_builtin(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'd' => "decimal64",
        b'e' => "decimal128",
        b'f' => "decimal32",
        b'h' => "half",
        b'i' => "char32_t",
        b's' => "char16_t",
        b'u' => "char8_t",
        b'a' => "auto",
        b'c' => "decltype(auto)",
        b'n' => "decltype(nullptr)",
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    pub(crate) fn qualifiers(&mut self) -> Qualifiers {
        let is_restrict = self.eat(b'r');
        let is_volatile = self.eat(b'V');
        let is_const = self.eat(b'K');
        Qualifiers { is_const, is_volatile, is_restrict }
    }

    pub(crate) fn reference(&mut self) -> Reference {
        if self.eat(b'O') {
            Reference::Right
        } else if self.eat(b'R') {
            Reference::Left
        } else {
            Reference::None
        }
    }

    fn is_at_function(&self) -> bool {
        matches!(self.peek_two(), [b'F', _] | [b'D', b'o' | b'O' | b'w' | b'x'])
    }

    pub(crate) fn ty(&mut self) -> Option<Id> {
        self.deeper(Self::ty_here)
    }

    fn ty_here(&mut self) -> Option<Id> {
        if let Some(name) = builtin(self.peek()) {
            self.skip(1);
            return Some(self.node(Node::Builtin(name)));
        }
        let ty = match self.peek_two() {
            [b'r' | b'V' | b'K', _] => {
                let qualifiers = self.qualifiers();
                if self.is_at_function() {
                    self.function_type(qualifiers)?
                } else {
                    let ty = self.ty()?;
                    self.node(Node::Qualified(ty, qualifiers))
                }
            }
            [b'U', b'0'..=b'9'] => {
                self.skip(1);
                let name = self.source_name()?;
                let name = if self.peek() == b'I' {
                    let arguments = self.template_arguments(false)?;
                    self.node(Node::Template(name, arguments))
                } else {
                    name
                };
                let ty = self.ty()?;
                self.node(Node::VendorQualified(ty, name))
            }
            [b'P', _] => self.around(Node::Pointer)?,
            [b'R', _] => self.around(Node::LeftReference)?,
            [b'O', _] => self.around(Node::RightReference)?,
            [b'C', _] => self.around(|ty| Node::Suffixed(ty, " _Complex"))?,
            [b'G', _] => self.around(|ty| Node::Suffixed(ty, " _Imaginary"))?,
            [b'A', _] => self.array()?,
            [b'M', _] => {
                self.skip(1);
                let class = self.ty()?;
                let member = self.ty()?;
                self.node(Node::MemberPointer(class, member))
            }
            [b'F', _] | [b'D', b'o' | b'O' | b'w' | b'x'] => self.function_type(Qualifiers::default())?,
            [b'D', letter] => return self.long_type(letter),
            [b'T', b's' | b'u' | b'e'] => {
                self.skip(2);
                self.name(None)?
            }
            [b'T', _] => {
                let parameter = self.template_parameter()?;
                if self.peek() == b'I' && !self.is_plain_conversion {
                    self.substitutable(parameter);
                    let arguments = self.template_arguments(false)?;
                    self.node(Node::Template(parameter, arguments))
                } else {
                    parameter
                }
            }
            [b'S', next] if next != b't' => {
                let known = self.substitution()?;
                if self.is_module(known) {
                    let name = self.unqualified_name_in(None, Some(known), None)?;
                    let ty = self.arguments_of_type(name)?;
                    return Some(self.substitutable(ty));
                }
                // The arguments belong to the conversion itself or to its target type: to the
                // latter where the name can be read only so.
                if self.peek() != b'I' {
                    return Some(known);
                }
                if self.is_plain_conversion
                    && !matches!(
                        self.nodes.get(known as usize),
                        Some(Node::Standard { .. } | Node::Nested(..) | Node::Name(_))
                    )
                {
                    return Some(known);
                }
                let arguments = self.template_arguments(false)?;
                self.node(Node::Template(known, arguments))
            }
            [b'u', _] => {
                self.skip(1);
                let name = self.source_name()?;
                if self.peek() == b'I' {
                    let arguments = self.template_arguments(false)?;
                    self.node(Node::Template(name, arguments))
                } else {
                    name
                }
            }
            _ => {
                let plain = std::mem::replace(&mut self.is_plain_conversion, false);
                let name = self.name(None);
                self.is_plain_conversion = plain;
                name?
            }
        };
        Some(self.substitutable(ty))
    }

    /// A class's name, with its arguments if they follow.
    fn arguments_of_type(&mut self, name: Id) -> Option<Id> {
        if self.peek() != b'I' {
            return Some(name);
        }
        self.substitutable(name);
        let arguments = self.template_arguments(false)?;
        Some(self.node(Node::Template(name, arguments)))
    }

    /// The type of one letter.
    fn around(&mut self, node: impl FnOnce(Id) -> Node<'a>) -> Option<Id> {
        self.skip(1);
        let ty = self.ty()?;
        Some(self.node(node(ty)))
    }

    fn array(&mut self) -> Option<Id> {
        self.skip(1);
        let size = if self.eat(b'_') {
            None
        } else {
            let size = match self.digits() {
                Some(digits) => self.node(Node::Name(digits)),
                None => self.expression()?,
            };
            self.expect(b'_')?;
            Some(size)
        };
        let ty = self.ty()?;
        Some(self.node(Node::Array(ty, size)))
    }

    pub(crate) fn decltype(&mut self) -> Option<Id> {
        self.skip(2);
        let expression = self.expression()?;
        self.expect(b'E')?;
        Some(self.node(Node::Decltype(expression)))
    }

    /// Types that begin with a `D`; builtin ones aren't substituted.
    fn long_type(&mut self, letter: u8) -> Option<Id> {
        if let Some(name) = long_builtin(letter) {
            self.skip(2);
            return Some(self.node(Node::Builtin(name)));
        }
        let ty = match letter {
            b't' | b'T' => self.decltype()?,
            b'p' => {
                self.skip(2);
                let ty = self.ty()?;
                self.node(Node::Expansion(ty))
            }
            b'v' => {
                self.skip(2);
                let size = match self.digits() {
                    Some(digits) => self.node(Node::Name(digits)),
                    None => {
                        self.expect(b'_')?;
                        self.expression()?
                    }
                };
                self.expect(b'_')?;
                let ty = self.ty()?;
                self.node(Node::Vector(ty, size))
            }
            b'F' => {
                self.skip(2);
                let bits = self.digits()?;
                if bits == "16" && self.eat(b'b') {
                    return Some(self.node(Node::Builtin("std::bfloat16_t")));
                }
                let end = if self.eat(b'x') { "x" } else { "" };
                if end.is_empty() {
                    self.expect(b'_')?;
                }
                let bits = self.node(Node::Name(bits));
                return Some(self.node(Node::Sized("_Float", bits, end)));
            }
            b'B' | b'U' => {
                self.skip(2);
                let bits = match self.digits() {
                    Some(digits) => self.node(Node::Name(digits)),
                    None => self.expression()?,
                };
                self.expect(b'_')?;
                let word = if letter == b'B' { "_BitInt(" } else { "unsigned _BitInt(" };
                self.node(Node::Sized(word, bits, ")"))
            }
            b'k' | b'K' => {
                self.skip(2);
                let concept = self.name(None)?;
                let word = if letter == b'k' { " auto" } else { " decltype(auto)" };
                self.node(Node::Constrained(concept, word))
            }
            _ => return None,
        };
        Some(self.substitutable(ty))
    }

    pub(crate) fn function_type(&mut self, qualifiers: Qualifiers) -> Option<Id> {
        let exceptions = match self.peek_two() {
            [b'D', b'o'] => {
                self.skip(2);
                Some(self.node(Node::Noexcept(None)))
            }
            [b'D', b'O'] => {
                self.skip(2);
                let condition = self.expression()?;
                self.expect(b'E')?;
                Some(self.node(Node::Noexcept(Some(condition))))
            }
            [b'D', b'w'] => {
                self.skip(2);
                let types = self.until_end(Self::ty)?;
                Some(self.node(Node::Throws(types)))
            }
            _ => None,
        };
        // Of transactional memory; of C's linkage. Neither is shown.
        self.eat_text("Dx");
        self.expect(b'F')?;
        self.eat(b'Y');
        let result = self.ty()?;
        let mut reference = Reference::None;
        let mut types = Vec::new();
        loop {
            if self.eat(b'E') {
                break;
            }
            if self.eat_text("RE") {
                reference = Reference::Left;
                break;
            }
            if self.eat_text("OE") {
                reference = Reference::Right;
                break;
            }
            if self.eat(b'v') {
                continue;
            }
            types.push(self.ty()?);
        }
        let parameters: List = self.list(&types);
        Some(self.node(Node::FunctionType(Function {
            result: Some(result),
            parameters,
            qualifiers,
            reference,
            exceptions,
        })))
    }
}
