//! Expressions: in array bounds, `decltype`, template arguments and constraints.

use crate::node::{Id, List, Node};
use crate::operators::{Kind, operator};
use crate::parser::Parser;

impl<'a> Parser<'a> {
    pub(crate) fn expression(&mut self) -> Option<Id> {
        self.deeper(Self::expression_here)
    }

    fn expression_here(&mut self) -> Option<Id> {
        let is_global = self.eat_text("gs");
        let letters = self.peek_two();
        match letters {
            [b'L', _] => return self.primary(),
            [b'T', b'y' | b'n' | b't' | b'p' | b'k'] => return None,
            [b'T', _] => return self.template_parameter(),
            [b'f', b'p'] => return self.function_parameter(),
            // `fL` with a level in digits is a parameter; otherwise it is a fold.
            [b'f', b'L'] if self.peek_at(2).is_ascii_digit() => return self.function_parameter(),
            [b'f', b'l' | b'r' | b'L' | b'R'] => return self.fold(),
            [b'0'..=b'9', _] | [b'o' | b'd', b'n'] | [b's', b'r'] => return self.unresolved_name(is_global),
            [b'n', b'w' | b'a'] => return self.new_expression(is_global),
            [b'd', b'l' | b'a'] => {
                let word = match (letters[1], is_global) {
                    (b'l', false) => "delete ",
                    (b'l', true) => "::delete ",
                    (_, false) => "delete[] ",
                    (_, true) => "::delete[] ",
                };
                self.skip(2);
                let operand = self.expression()?;
                return Some(self.node(Node::Prefix(word, operand)));
            }
            [b'u', _] => return self.vendor(),
            [b'r', b'q' | b'Q'] => return self.requires(),
            _ => {}
        }
        self.skip(2);
        match &letters {
            b"cv" => self.conversion(),
            b"cc" | b"dc" | b"rc" | b"sc" => {
                let (word, _) = operator(letters)?;
                let ty = self.ty()?;
                let operand = self.expression()?;
                Some(self.node(Node::Cast(word, ty, operand)))
            }
            b"at" | b"st" | b"ti" => self.word_of(letters, Self::ty),
            b"az" | b"sz" | b"te" => self.word_of(letters, Self::expression),
            b"qu" => {
                let condition = self.expression()?;
                let yes = self.expression()?;
                let no = self.expression()?;
                Some(self.node(Node::Conditional(condition, yes, no)))
            }
            b"tr" => Some(self.node(Node::Name("throw"))),
            b"tw" => {
                let operand = self.expression()?;
                Some(self.node(Node::Prefix("throw ", operand)))
            }
            b"sp" => {
                let operand = self.expression()?;
                Some(self.node(Node::Expansion(operand)))
            }
            b"sZ" => {
                let pack =
                    if self.peek() == b'T' { self.template_parameter()? } else { self.function_parameter()? };
                Some(self.node(Node::CountOfPack(pack)))
            }
            b"sP" => {
                let arguments = self.until_end(Self::template_argument)?;
                Some(self.node(Node::CountOfArguments(arguments)))
            }
            b"il" => {
                let values = self.until_end(Self::braced)?;
                Some(self.node(Node::Braces(None, values)))
            }
            b"tl" => {
                let ty = self.ty()?;
                let values = self.until_end(Self::braced)?;
                Some(self.node(Node::Braces(Some(ty), values)))
            }
            b"cl" | b"cp" => {
                let callee = self.expression()?;
                let arguments = self.until_end(Self::expression)?;
                Some(self.node(Node::Call(callee, arguments)))
            }
            b"so" => self.subobject(),
            b"mm" | b"pp" => {
                let (op, _) = operator(letters)?;
                let is_prefix = self.eat(b'_');
                let operand = self.expression()?;
                Some(self.node(if is_prefix {
                    Node::Prefix(op, operand)
                } else {
                    Node::Postfix(op, operand)
                }))
            }
            _ => self.operation(letters),
        }
    }

    fn operation(&mut self, letters: [u8; 2]) -> Option<Id> {
        let (op, kind) = operator(letters)?;
        match kind {
            Kind::Binary => {
                let left = self.expression()?;
                let right = self.expression()?;
                Some(self.node(Node::Binary(op, left, right)))
            }
            Kind::Index => {
                let left = self.expression()?;
                let right = self.expression()?;
                Some(self.node(Node::Index(left, right)))
            }
            Kind::Member => {
                let left = self.expression()?;
                let right = self.expression()?;
                Some(self.node(Node::Member(left, op, right)))
            }
            Kind::Prefix => {
                let operand = self.expression()?;
                Some(self.node(Node::Prefix(op, operand)))
            }
            Kind::Word => self.word_of(letters, Self::expression),
            Kind::Postfix | Kind::Call | Kind::Special | Kind::NameOnly => None,
        }
    }

    fn word_of(&mut self, letters: [u8; 2], read: impl FnOnce(&mut Self) -> Option<Id>) -> Option<Id> {
        let (word, _) = operator(letters)?;
        let operand = read(self)?;
        let has_parentheses = matches!(&letters, b"st" | b"nx");
        Some(self.node(if has_parentheses { Node::Word(word, operand) } else { Node::Prefix(word, operand) }))
    }

    fn conversion(&mut self) -> Option<Id> {
        // Here, arguments of the type follow `T_ I`.
        let plain = std::mem::replace(&mut self.is_plain_conversion, false);
        let ty = self.ty();
        self.is_plain_conversion = plain;
        let ty = ty?;
        if self.eat(b'_') {
            let values = self.until_end(Self::expression)?;
            return Some(self.node(Node::Convert(ty, values)));
        }
        let value = self.expression()?;
        Some(self.node(Node::ConvertOne(ty, value)))
    }

    fn braced(&mut self) -> Option<Id> {
        self.deeper(|parser| match &parser.peek_two() {
            b"di" => {
                parser.skip(2);
                let member = parser.source_name()?;
                let value = parser.braced()?;
                Some(parser.node(Node::Designated(member, value)))
            }
            b"dx" => {
                parser.skip(2);
                let index = parser.expression()?;
                let value = parser.braced()?;
                Some(parser.node(Node::DesignatedIndex(index, None, value)))
            }
            b"dX" => {
                parser.skip(2);
                let low = parser.expression()?;
                let high = parser.expression()?;
                let value = parser.braced()?;
                Some(parser.node(Node::DesignatedIndex(low, Some(high), value)))
            }
            _ => parser.expression(),
        })
    }

    fn new_expression(&mut self, is_global: bool) -> Option<Id> {
        let word = match (self.peek_at(1), is_global) {
            (b'w', false) => "new",
            (b'w', true) => "::new",
            (_, false) => "new[]",
            (_, true) => "::new[]",
        };
        self.skip(2);
        let mut placement = Vec::new();
        while !self.eat(b'_') {
            placement.push(self.expression()?);
        }
        let placement = self.list(&placement);
        let ty = self.ty()?;
        let values = if self.eat_text("pi") {
            Some(self.until_end(Self::expression)?)
        } else if self.peek_two() == *b"il" {
            let value = self.expression()?;
            self.expect(b'E')?;
            Some(self.list(&[value]))
        } else {
            self.expect(b'E')?;
            None
        };
        Some(self.node(Node::New { word, placement, ty, values }))
    }

    /// `fp_`, `fp0_`, `fL0p_`; `fpT` is `this`.
    fn function_parameter(&mut self) -> Option<Id> {
        if self.eat_text("fpT") {
            return Some(self.node(Node::Name("this")));
        }
        if self.eat_text("fp") {
            self.qualifiers();
        } else {
            self.skip(2);
            self.digits()?;
            self.expect(b'p')?;
            self.qualifiers();
        }
        let number = self.counted()?;
        Some(self.node(Node::FunctionParameter(number.checked_add(1)?)))
    }

    fn fold(&mut self) -> Option<Id> {
        let kind = self.peek_at(1);
        self.skip(2);
        let letters = self.peek_two();
        let op = match operator(letters)? {
            (op, Kind::Binary | Kind::Member) => op,
            _ => return None,
        };
        self.skip(2);
        let one = self.expression()?;
        let two = if matches!(kind, b'L' | b'R') { Some(self.expression()?) } else { None };
        let is_left = matches!(kind, b'l' | b'L');
        let (pack, first) = match two {
            Some(two) => (two, Some(one)),
            None => (one, None),
        };
        Some(self.node(Node::Fold { op, pack, first, is_left }))
    }

    /// A type, an address or a number as a constant.
    pub(crate) fn primary(&mut self) -> Option<Id> {
        self.expect(b'L')?;
        if self.eat_text("_Z") || self.eat(b'Z') {
            let encoding = self.encoding(true)?;
            self.expect(b'E')?;
            return Some(encoding);
        }
        let ty = self.ty()?;
        // A string, a lambda or a null pointer may have no value.
        let is_negative = self.eat(b'n');
        let digits = self.take_while(|byte| byte != b'E');
        if digits.bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'_') {
            return None;
        }
        self.expect(b'E')?;
        Some(self.node(Node::Literal { ty, is_negative, digits }))
    }

    fn vendor(&mut self) -> Option<Id> {
        self.skip(1);
        let name = self.source_name()?;
        let arguments: List = self.until_end(Self::template_argument)?;
        Some(self.node(Node::Call(name, arguments)))
    }

    fn subobject(&mut self) -> Option<Id> {
        let ty = self.ty()?;
        let object = self.expression()?;
        self.eat(b'n');
        self.digits();
        while self.eat(b'_') {
            self.digits();
        }
        self.eat(b'p');
        self.expect(b'E')?;
        Some(self.node(Node::Subobject(ty, object)))
    }

    fn requires(&mut self) -> Option<Id> {
        let has_parameters = self.peek_at(1) == b'Q';
        self.skip(2);
        let parameters = if has_parameters {
            let parameters = self.parameters(|parser| parser.peek() == b'_')?;
            self.expect(b'_')?;
            parameters
        } else {
            List::default()
        };
        let requirements = self.until_end(|parser| {
            let kind = parser.peek();
            parser.skip(1);
            match kind {
                b'X' => {
                    let expression = parser.expression()?;
                    let is_noexcept = parser.eat(b'N');
                    let constraint = if parser.eat(b'R') { Some(parser.name(None)?) } else { None };
                    Some(parser.node(Node::Requirement(expression, is_noexcept, constraint)))
                }
                b'T' => {
                    let ty = parser.ty()?;
                    Some(parser.node(Node::TypeRequirement(ty)))
                }
                b'Q' => {
                    let constraint = parser.expression()?;
                    Some(parser.node(Node::NestedRequirement(constraint)))
                }
                _ => None,
            }
        })?;
        Some(self.node(Node::RequiresExpression(parameters, requirements)))
    }

    /// A name that was looked up when the template was instantiated.
    fn unresolved_name(&mut self, is_global: bool) -> Option<Id> {
        let name = self.unresolved_here()?;
        Some(if is_global { self.node(Node::GlobalScope(name)) } else { name })
    }

    fn unresolved_here(&mut self) -> Option<Id> {
        if !self.eat_text("sr") {
            return self.base_name();
        }
        // A type as any other, as gcc writes it, or scopes that end in `E`, which aren't
        // substituted.
        let read: [fn(&mut Self) -> Option<Id>; 2] = if self.are_scopes_plain {
            [Self::in_scopes, Self::in_type]
        } else {
            [Self::in_type, Self::in_scopes]
        };
        // `sr 1a E 1b` begins like a type, too.
        let read = if self.peek().is_ascii_digit() { [Self::in_scopes, Self::in_type] } else { read };
        self.attempt(read[0]).or_else(|| self.attempt(read[1]))
    }

    fn in_type(&mut self) -> Option<Id> {
        let mut scope = self.unresolved_type()?;
        if self.peek() == b'I' {
            scope = self.with_plain_arguments(scope)?;
        }
        self.base_in(scope)
    }

    fn in_scopes(&mut self) -> Option<Id> {
        let mut scope = if self.eat(b'N') {
            let ty = self.unresolved_type()?;
            if self.peek() == b'I' { self.with_plain_arguments(ty)? } else { ty }
        } else {
            self.simple_id()?
        };
        while !self.eat(b'E') {
            let level = self.simple_id()?;
            scope = self.node(Node::Nested(scope, level));
        }
        self.base_in(scope)
    }

    fn base_in(&mut self, scope: Id) -> Option<Id> {
        let base = self.base_name()?;
        Some(self.nested_base(scope, base))
    }

    /// `scope::name<arguments>` is an instance of `scope::name`.
    fn nested_base(&mut self, scope: Id, base: Id) -> Id {
        match self.nodes.get(base as usize) {
            Some(&Node::Template(name, arguments)) => {
                let nested = self.node(Node::Nested(scope, name));
                self.node(Node::Template(nested, arguments))
            }
            _ => self.node(Node::Nested(scope, base)),
        }
    }

    fn with_plain_arguments(&mut self, name: Id) -> Option<Id> {
        let arguments = self.template_arguments(false)?;
        let template = self.node(Node::Template(name, arguments));
        Some(self.substitutable(template))
    }

    fn unresolved_type(&mut self) -> Option<Id> {
        match self.peek_two() {
            [b'T', _] => {
                let parameter = self.template_parameter()?;
                Some(self.substitutable(parameter))
            }
            [b'D', b't' | b'T'] => {
                let ty = self.decltype()?;
                Some(self.substitutable(ty))
            }
            [b'S', next] if next != b't' => self.substitution(),
            _ => self.ty(),
        }
    }

    fn simple_id(&mut self) -> Option<Id> {
        let name = self.source_name()?;
        if self.peek() != b'I' {
            return Some(name);
        }
        let arguments = self.template_arguments(false)?;
        Some(self.node(Node::Template(name, arguments)))
    }

    fn base_name(&mut self) -> Option<Id> {
        if self.peek().is_ascii_digit() {
            return self.simple_id();
        }
        if self.eat_text("dn") {
            let destroyed =
                if self.peek().is_ascii_digit() { self.simple_id()? } else { self.unresolved_type()? };
            return Some(self.node(Node::Prefix("~", destroyed)));
        }
        self.eat_text("on");
        let name = self.operator_name(None)?;
        if self.peek() != b'I' {
            return Some(name);
        }
        let arguments = self.template_arguments(false)?;
        Some(self.node(Node::Template(name, arguments)))
    }
}
