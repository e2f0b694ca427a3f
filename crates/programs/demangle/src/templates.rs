//! Template arguments and parameters, substitutions, and lambdas.

use crate::node::{Id, List, Node};
use crate::parser::Parser;

impl<'a> Parser<'a> {
    /// `I .. E`. From here on, `T_` refers to the arguments of a function's own name (`is_own`).
    pub(crate) fn template_arguments(&mut self, is_own: bool) -> Option<List> {
        self.expect(b'I')?;
        let plain = std::mem::replace(&mut self.is_plain_conversion, false);
        if is_own {
            self.levels.clear();
            self.levels.push(Vec::new());
        }
        let mut arguments = Vec::new();
        while !self.eat(b'E') {
            let argument = if is_own {
                // Arguments don't refer to themselves, but later ones may refer to earlier ones.
                let argument = self.template_argument()?;
                self.levels.truncate(1);
                self.levels.first_mut()?.push(argument);
                argument
            } else {
                self.template_argument()?
            };
            arguments.push(argument);
            if self.eat(b'Q') {
                // A constraint of the template; it isn't shown.
                self.expression()?;
            }
        }
        self.is_plain_conversion = plain;
        Some(self.list(&arguments))
    }

    pub(crate) fn template_argument(&mut self) -> Option<Id> {
        self.deeper(|parser| match parser.peek_two() {
            [b'X', _] => {
                parser.skip(1);
                let expression = parser.expression()?;
                parser.expect(b'E')?;
                Some(expression)
            }
            [b'L', b'Z'] => {
                parser.skip(2);
                let encoding = parser.encoding(true)?;
                parser.expect(b'E')?;
                Some(encoding)
            }
            [b'L', _] => parser.primary(),
            [b'J' | b'I', _] => {
                parser.skip(1);
                let arguments = parser.until_end(Self::template_argument)?;
                Some(parser.node(Node::Pack(arguments)))
            }
            // The parameter, if the argument alone doesn't identify the template; it isn't shown.
            [b'T', b'y' | b'n' | b't' | b'p' | b'k'] => {
                parser.parameter_head(0)?;
                parser.template_argument()
            }
            _ => parser.ty(),
        })
    }

    /// `T_`, `T0_`, `TL0__`.
    pub(crate) fn template_parameter(&mut self) -> Option<Id> {
        self.expect(b'T')?;
        let level = if self.eat(b'L') {
            let level = self.number()?.checked_add(1)?;
            self.expect(b'_')?;
            level
        } else {
            0
        };
        let index = self.counted()?;
        if self.may_refer_forward && level == 0 {
            let id = self.node(Node::Parameter(index, None));
            self.forward.push((id, index));
            return Some(id);
        }
        let argument = self.levels.get(level as usize).and_then(|level| level.get(index as usize)).copied();
        if argument.is_none() && self.lambdas == 0 {
            return None;
        }
        Some(self.node(Node::Parameter(index, argument)))
    }

    /// The declaration of a template parameter: `Ty`, `Tn TYPE`, `Tt .. E`, `Tp DECLARATION`, `Tk
    /// CONCEPT`.
    pub(crate) fn parameter_head(&mut self, index: u32) -> Option<Id> {
        self.deeper(|parser| {
            let kind = parser.peek_at(1);
            parser.skip(2);
            match kind {
                b'y' => Some(parser.node(Node::TypeHead(index))),
                b'k' => {
                    let concept = parser.name(None)?;
                    Some(parser.node(Node::ConstrainedHead(concept, index)))
                }
                b'n' => {
                    let ty = parser.ty()?;
                    Some(parser.node(Node::ValueHead(ty, index)))
                }
                b't' => {
                    let mut heads = Vec::new();
                    while !parser.eat(b'E') {
                        heads.push(parser.parameter_head(heads.len() as u32)?);
                        if parser.eat(b'Q') {
                            parser.expression()?;
                        }
                    }
                    let heads = parser.list(&heads);
                    Some(parser.node(Node::TemplateHead(heads, index)))
                }
                b'p' => {
                    let head = parser.parameter_head(index)?;
                    Some(parser.node(Node::PackHead(head)))
                }
                _ => None,
            }
        })
    }

    fn is_at_head(&self) -> bool {
        matches!(self.peek_two(), [b'T', b'y' | b'n' | b't' | b'p' | b'k'])
    }

    /// `Ul HEADS PARAMETERS E NUMBER _`.
    pub(crate) fn lambda(&mut self) -> Option<Id> {
        self.skip(2);
        self.lambdas += 1;
        let forward = std::mem::replace(&mut self.may_refer_forward, false);
        let signature = self.lambda_signature();
        self.lambdas -= 1;
        self.may_refer_forward = forward;
        let (heads, parameters) = signature?;
        let number = self.counted()?;
        Some(self.node(Node::Lambda { heads, parameters, number: number + 1 }))
    }

    fn lambda_signature(&mut self) -> Option<(List, List)> {
        let mut heads = Vec::new();
        while self.is_at_head() {
            heads.push(self.parameter_head(heads.len() as u32)?);
        }
        if self.eat(b'Q') {
            self.expression()?;
        }
        let parameters = self.parameters(|parser| matches!(parser.peek(), b'E' | b'Q'))?;
        if self.eat(b'Q') {
            self.expression()?;
        }
        self.expect(b'E')?;
        Some((self.list(&heads), parameters))
    }

    /// A number in base 36: `_` is 0, `0_` is 1.
    pub(crate) fn sequence(&mut self) -> Option<u32> {
        if self.eat(b'_') {
            return Some(0);
        }
        let digits = self.take_while(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        let number = u32::from_str_radix(digits, 36).ok()?.checked_add(1)?;
        self.expect(b'_')?;
        Some(number)
    }

    /// Parses a reference to an earlier component, or to one of the library's usual types.
    pub(crate) fn substitution(&mut self) -> Option<Id> {
        self.expect(b'S')?;
        let (text, last) = match self.peek() {
            b'a' => ("std::allocator", "allocator"),
            b'b' => ("std::basic_string", "basic_string"),
            b's' => {
                ("std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "basic_string")
            }
            b'i' => ("std::basic_istream<char, std::char_traits<char> >", "basic_istream"),
            b'o' => ("std::basic_ostream<char, std::char_traits<char> >", "basic_ostream"),
            b'd' => ("std::basic_iostream<char, std::char_traits<char> >", "basic_iostream"),
            _ => {
                let index = self.sequence()?;
                return self.substitutions.get(index as usize).copied();
            }
        };
        self.skip(1);
        let standard = self.node(Node::Standard { text, last });
        if self.peek() != b'B' {
            return Some(standard);
        }
        let mut name = standard;
        while self.eat(b'B') {
            let tag = self.source_name()?;
            let Some(&Node::Name(tag)) = self.nodes.get(tag as usize) else { return None };
            name = self.node(Node::Tagged(name, tag));
        }
        Some(self.substitutable(name))
    }
}
