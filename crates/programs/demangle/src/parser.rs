//! The text that is read, and names: encodings, scopes, identifiers.

use crate::node::{Function, Id, List, Node, Qualifiers, Reference};
use crate::operators::operator_name;

/// Productions within each other. A frame of the deepest path takes some hundred bytes.
const DEPTH_MAX: u32 = 256;

/// Properties of a function's name, collected while it is parsed.
#[derive(Default)]
pub(crate) struct NameState {
    /// Constructors, destructors and conversions have no result type.
    is_without_result: bool,
    ends_with_arguments: bool,
    qualifiers: Qualifiers,
    reference: Reference,
}

pub(crate) struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    pub(crate) nodes: Vec<Node<'a>>,
    pub(crate) lists: Vec<Id>,
    pub(crate) substitutions: Vec<Id>,
    /// The arguments that `T_`, `T0_` ... stand for, by level.
    pub(crate) levels: Vec<Vec<Id>>,
    /// In the type of a conversion, `T_` may stand for an argument that comes later.
    pub(crate) may_refer_forward: bool,
    pub(crate) forward: Vec<(Id, u32)>,
    /// Lambdas whose parameters are being read: `T_` may be an `auto`.
    pub(crate) lambdas: u32,
    /// A conversion's type in an expression isn't followed by arguments of the conversion.
    pub(crate) is_plain_conversion: bool,
    /// How scopes in expressions are read: see [`crate::demangle`].
    pub(crate) are_scopes_plain: bool,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str) -> Parser<'a> {
        Parser {
            text,
            at: 0,
            depth: 0,
            nodes: Vec::with_capacity(text.len() / 2),
            lists: Vec::with_capacity(text.len() / 4),
            substitutions: Vec::with_capacity(32),
            levels: Vec::new(),
            may_refer_forward: false,
            forward: Vec::new(),
            lambdas: 0,
            is_plain_conversion: false,
            are_scopes_plain: false,
        }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// The byte at this distance after the next one; 0 after the end.
    pub(crate) fn peek_at(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(crate) fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    pub(crate) fn peek_two(&self) -> [u8; 2] {
        [self.peek(), self.peek_at(1)]
    }

    pub(crate) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == byte && !self.is_at_end();
        self.at += usize::from(is_next);
        is_next
    }

    pub(crate) fn eat_text(&mut self, text: &str) -> bool {
        let is_next = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(text));
        self.at += if is_next { text.len() } else { 0 };
        is_next
    }

    pub(crate) fn expect(&mut self, byte: u8) -> Option<()> {
        self.eat(byte).then_some(())
    }

    /// Text up to the first byte for which `is_part` is false.
    pub(crate) fn take_while(&mut self, is_part: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at.min(self.text.len());
        let rest = &self.text.as_bytes()[start..];
        let count = rest.iter().position(|&byte| !is_part(byte)).unwrap_or(rest.len());
        self.at = start + count;
        self.text.get(start..self.at).unwrap_or_default()
    }

    pub(crate) fn digits(&mut self) -> Option<&'a str> {
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        (!digits.is_empty()).then_some(digits)
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        self.digits()?.parse().ok()
    }

    /// `_` is 0, `0_` is 1 and so on, in decimal.
    pub(crate) fn counted(&mut self) -> Option<u32> {
        if self.eat(b'_') {
            return Some(0);
        }
        let number = self.number()?.checked_add(1)?;
        self.expect(b'_')?;
        Some(number)
    }

    pub(crate) fn node(&mut self, node: Node<'a>) -> Id {
        self.nodes.push(node);
        (self.nodes.len() - 1) as Id
    }

    pub(crate) fn list(&mut self, ids: &[Id]) -> List {
        let start = self.lists.len() as u32;
        self.lists.extend_from_slice(ids);
        List { start, count: ids.len() as u32 }
    }

    pub(crate) fn substitutable(&mut self, id: Id) -> Id {
        self.substitutions.push(id);
        id
    }

    /// One production further in, as far as that is bounded.
    pub(crate) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Parses a list by `read`, up to `E`.
    pub(crate) fn until_end(&mut self, mut read: impl FnMut(&mut Self) -> Option<Id>) -> Option<List> {
        let mut ids = Vec::new();
        while !self.eat(b'E') {
            ids.push(read(self)?);
        }
        Some(self.list(&ids))
    }

    /// Reads, or restores the position on failure.
    pub(crate) fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let (at, substitutions, forward) = (self.at, self.substitutions.len(), self.forward.len());
        let result = read(self);
        if result.is_none() {
            self.at = at;
            self.substitutions.truncate(substitutions);
            self.forward.truncate(forward);
        }
        result
    }

    /// A function with its parameters, or an object.
    pub(crate) fn encoding(&mut self, is_top: bool) -> Option<Id> {
        self.deeper(|parser| {
            if matches!(parser.peek(), b'T' | b'G') {
                return parser.special_name();
            }
            let levels = std::mem::take(&mut parser.levels);
            let lambdas = std::mem::take(&mut parser.lambdas);
            let result = parser.function(is_top);
            parser.levels = levels;
            parser.lambdas = lambdas;
            result
        })
    }

    fn is_at_encoding_end(&self) -> bool {
        matches!(self.peek(), 0 | b'E' | b'.' | b'_' | b'@') || self.is_at_end()
    }

    fn function(&mut self, is_top: bool) -> Option<Id> {
        let mut state = NameState::default();
        let before = self.forward.len();
        let name = self.name(Some(&mut state))?;
        for (id, index) in self.forward.split_off(before) {
            let argument = *self.levels.first()?.get(index as usize)?;
            *self.nodes.get_mut(id as usize)? = Node::Parameter(index, Some(argument));
        }
        if self.is_at_encoding_end() {
            return Some(name);
        }
        // clang's enable_if attribute isn't shown.
        if self.eat_text("Ua9enable_ifI") {
            self.until_end(Self::template_argument)?;
        }
        let has_result = state.ends_with_arguments && !state.is_without_result;
        let result = if has_result { Some(self.ty()?) } else { None };
        let parameters = self.parameters(|parser| parser.is_at_encoding_end() || parser.peek() == b'Q')?;
        let function = Function {
            // The result is left out of the names of entities local to a function.
            result: result.filter(|_| is_top),
            parameters,
            qualifiers: state.qualifiers,
            reference: state.reference,
            exceptions: None,
        };
        let encoding = self.node(Node::Encoding(name, function));
        if self.eat(b'Q') {
            let constraint = self.expression()?;
            return Some(self.node(Node::Requires(encoding, constraint)));
        }
        Some(encoding)
    }

    /// Types until `is_end`; at least one; `v` alone means none.
    pub(crate) fn parameters(&mut self, is_end: impl Fn(&Self) -> bool) -> Option<List> {
        if self.eat(b'v') {
            return Some(List::default());
        }
        let mut types = Vec::new();
        loop {
            types.push(self.ty()?);
            if is_end(self) {
                return Some(self.list(&types));
            }
        }
    }

    fn special_name(&mut self) -> Option<Id> {
        let letters = self.peek_two();
        self.skip(2);
        let of_type = |parser: &mut Self, words| {
            let ty = parser.ty()?;
            Some(parser.node(Node::Special(words, ty)))
        };
        let of_name = |parser: &mut Self, words| {
            let name = parser.name(None)?;
            Some(parser.node(Node::Special(words, name)))
        };
        match &letters {
            b"TV" => of_type(self, "vtable for "),
            b"TT" => of_type(self, "VTT for "),
            b"TI" => of_type(self, "typeinfo for "),
            b"TS" => of_type(self, "typeinfo name for "),
            b"TA" => {
                let argument = self.template_argument()?;
                Some(self.node(Node::Special("template parameter object for ", argument)))
            }
            b"TH" => of_name(self, "TLS init function for "),
            b"TW" => of_name(self, "TLS wrapper function for "),
            b"GV" => of_name(self, "guard variable for "),
            b"GR" => {
                let name = self.name(None)?;
                // In base 36, as substitutions are.
                let number = self.sequence()?;
                Some(self.node(Node::Temporary(name, number)))
            }
            b"GA" | b"GT" => {
                let words = match (letters[1], self.peek()) {
                    (b'A', _) => "hidden alias for ",
                    (_, b'n') => "non-transaction clone for ",
                    _ => "transaction clone for ",
                };
                self.skip(usize::from(letters[1] == b'T'));
                let target = self.encoding(true)?;
                Some(self.node(Node::Special(words, target)))
            }
            b"GI" => {
                let module = self.module_name(None)??;
                Some(self.node(Node::Special("initializer for module ", module)))
            }
            b"TC" => {
                let derived = self.ty()?;
                self.digits()?;
                self.expect(b'_')?;
                let base = self.ty()?;
                Some(self.node(Node::ConstructionTable(base, derived)))
            }
            b"Th" | b"Tv" => {
                self.at -= 1;
                self.call_offset()?;
                let words = if letters[1] == b'h' { "non-virtual thunk to " } else { "virtual thunk to " };
                let target = self.encoding(true)?;
                Some(self.node(Node::Special(words, target)))
            }
            b"Tc" => {
                self.call_offset()?;
                self.call_offset()?;
                let target = self.encoding(true)?;
                Some(self.node(Node::Special("covariant return thunk to ", target)))
            }
            _ => None,
        }
    }

    fn call_offset(&mut self) -> Option<()> {
        let numbers = if self.eat(b'h') {
            1
        } else {
            self.expect(b'v')?;
            2
        };
        for _ in 0..numbers {
            self.eat(b'n');
            self.digits()?;
            self.expect(b'_')?;
        }
        Some(())
    }

    /// A name with its scopes.
    pub(crate) fn name(&mut self, mut state: Option<&mut NameState>) -> Option<Id> {
        self.deeper(|parser| match parser.peek_two() {
            [b'N', _] => parser.nested_name(state),
            [b'Z', _] => parser.local_name(state),
            [b'S', next] if next != b't' => {
                let mut name = parser.substitution()?;
                let is_attached = parser.is_module(name);
                if is_attached {
                    name = parser.unqualified_name_in(None, Some(name), state.as_deref_mut())?;
                }
                if parser.peek() == b'I' {
                    if is_attached {
                        parser.substitutable(name);
                    }
                    return parser.with_arguments(name, state);
                }
                if is_attached {
                    return Some(name);
                }
                // An abbreviation with a scope of its own: none is a function's name.
                None
            }
            _ => {
                let is_std = parser.eat_text("St");
                let own = parser.unqualified_name(None, state.as_deref_mut())?;
                let name = if is_std {
                    let scope = parser.node(Node::Name("std"));
                    parser.node(Node::Nested(scope, own))
                } else {
                    own
                };
                if parser.peek() == b'I' {
                    parser.substitutable(name);
                    return parser.with_arguments(name, state);
                }
                Some(name)
            }
        })
    }

    fn with_arguments(&mut self, name: Id, state: Option<&mut NameState>) -> Option<Id> {
        let arguments = self.template_arguments(state.is_some())?;
        if let Some(state) = state {
            state.ends_with_arguments = true;
        }
        Some(self.node(Node::Template(name, arguments)))
    }

    fn nested_name(&mut self, mut state: Option<&mut NameState>) -> Option<Id> {
        self.expect(b'N')?;
        // An explicit object parameter is the first of the parameters.
        let (qualifiers, reference) = if self.eat(b'H') {
            Default::default()
        } else {
            let qualifiers = self.qualifiers();
            (qualifiers, self.reference())
        };
        if let Some(state) = state.as_deref_mut() {
            state.qualifiers = qualifiers;
            state.reference = reference;
        }
        let mut scope: Option<Id> = None;
        while !self.eat(b'E') {
            if let Some(state) = state.as_deref_mut() {
                state.ends_with_arguments = false;
            }
            let next = self.peek_two();
            // A substitution isn't a new candidate for substitution.
            let mut is_new = true;
            let so_far = match (scope, next) {
                (None, [b'T', _]) => self.template_parameter()?,
                (Some(name), [b'I', _]) => self.with_arguments(name, state.as_deref_mut())?,
                (None, [b'D', b't' | b'T']) => self.decltype()?,
                (None, [b'S', b't']) => {
                    self.skip(2);
                    is_new = false;
                    self.node(Node::Name("std"))
                }
                (_, [b'S', _]) => {
                    let known = self.substitution()?;
                    if self.is_module(known) {
                        let own = self.unqualified_name_in(scope, Some(known), state.as_deref_mut())?;
                        match scope {
                            Some(scope) => self.node(Node::Nested(scope, own)),
                            None => own,
                        }
                    } else if scope.is_none() {
                        is_new = false;
                        known
                    } else {
                        return None;
                    }
                }
                _ => {
                    let own = self.unqualified_name(scope, state.as_deref_mut())?;
                    match scope {
                        Some(scope) => self.node(Node::Nested(scope, own)),
                        None => own,
                    }
                }
            };
            scope = Some(so_far);
            // Within an initialiser of a member.
            self.eat(b'M');
            if is_new && self.peek() != b'E' {
                self.substitutable(so_far);
            }
        }
        scope
    }

    fn local_name(&mut self, state: Option<&mut NameState>) -> Option<Id> {
        self.expect(b'Z')?;
        let function = self.encoding(false)?;
        self.expect(b'E')?;
        if self.eat(b's') {
            self.discriminator()?;
            let name = self.node(Node::Name("string literal"));
            return Some(self.node(Node::Local(function, name)));
        }
        if self.eat(b'd') {
            let number = self.counted()?;
            let name = self.name(state)?;
            let name = self.node(Node::DefaultArgument(number + 1, name));
            return Some(self.node(Node::Local(function, name)));
        }
        let name = self.name(state)?;
        self.discriminator()?;
        Some(self.node(Node::Local(function, name)))
    }

    /// Which one of several local things of one name; it isn't shown.
    fn discriminator(&mut self) -> Option<()> {
        if self.peek() != b'_' {
            return Some(());
        }
        self.skip(1);
        if self.eat(b'_') {
            self.digits()?;
            return self.expect(b'_');
        }
        if !self.peek().is_ascii_digit() {
            return None;
        }
        self.skip(1);
        Some(())
    }

    /// A name without scope; `scope` is its enclosing scope.
    pub(crate) fn unqualified_name(
        &mut self,
        scope: Option<Id>,
        state: Option<&mut NameState>,
    ) -> Option<Id> {
        self.unqualified_name_in(scope, None, state)
    }

    /// Whether this is the name of a module, or the beginning of one.
    pub(crate) fn is_module(&self, id: Id) -> bool {
        matches!(self.nodes.get(id as usize), Some(Node::Module(..)))
    }

    /// Parts of a module's name, after those that are known.
    fn module_name(&mut self, mut module: Option<Id>) -> Option<Option<Id>> {
        while self.eat(b'W') {
            let is_partition = self.eat(b'P');
            let text = self.identifier()?;
            let part = self.node(Node::Module(module, is_partition, text));
            module = Some(self.substitutable(part));
        }
        Some(module)
    }

    /// A name without scope that may be attached to a module; `module`: the parts of its name that
    /// are known.
    pub(crate) fn unqualified_name_in(
        &mut self,
        scope: Option<Id>,
        module: Option<Id>,
        state: Option<&mut NameState>,
    ) -> Option<Id> {
        self.deeper(|parser| {
            let module = parser.module_name(module)?;
            let is_friend = parser.eat(b'F');
            parser.eat(b'L');
            let name = match parser.peek_two() {
                [b'0'..=b'9', _] => parser.source_name()?,
                [b'U', b't'] => {
                    parser.skip(2);
                    let number = parser.counted()?;
                    parser.node(Node::Unnamed(number + 1))
                }
                [b'U', b'l'] => parser.lambda()?,
                [b'D', b'C'] => {
                    parser.skip(2);
                    let names = parser.until_end(Self::source_name)?;
                    parser.node(Node::Binding(names))
                }
                [b'C', b'1'..=b'5' | b'I'] | [b'D', b'0'..=b'5'] => parser.structor(scope?, state)?,
                _ => parser.operator_name(state)?,
            };
            let name = match module {
                Some(module) => parser.node(Node::Attached(name, module)),
                None => name,
            };
            let name = parser.tagged(name)?;
            Some(if is_friend { parser.node(Node::Friend(name)) } else { name })
        })
    }

    fn tagged(&mut self, mut name: Id) -> Option<Id> {
        while self.eat(b'B') {
            let tag = self.identifier()?;
            name = self.node(Node::Tagged(name, tag));
        }
        Some(name)
    }

    fn structor(&mut self, scope: Id, state: Option<&mut NameState>) -> Option<Id> {
        let is_destructor = self.peek() == b'D';
        self.skip(1);
        let is_inherited = self.eat(b'I');
        if !matches!(self.peek(), b'0'..=b'5') {
            return None;
        }
        self.skip(1);
        if is_inherited {
            // The base class, which isn't shown.
            self.ty()?;
        }
        if let Some(state) = state {
            state.is_without_result = true;
        }
        Some(self.node(Node::Structor { scope, is_destructor }))
    }

    fn identifier(&mut self) -> Option<&'a str> {
        let length = self.number()? as usize;
        let end = self.at.checked_add(length)?;
        let name = self.text.get(self.at..end).filter(|name| !name.is_empty())?;
        self.at = end;
        Some(name)
    }

    pub(crate) fn source_name(&mut self) -> Option<Id> {
        let name = self.identifier()?;
        let is_anonymous = name
            .strip_prefix("_GLOBAL_")
            .is_some_and(|rest| matches!(rest.as_bytes(), [b'_' | b'.' | b'$', b'N', ..]));
        Some(self.node(Node::Name(if is_anonymous { "(anonymous namespace)" } else { name })))
    }

    pub(crate) fn operator_name(&mut self, state: Option<&mut NameState>) -> Option<Id> {
        let letters = self.peek_two();
        match &letters {
            b"cv" => {
                self.skip(2);
                if let Some(state) = state {
                    state.is_without_result = true;
                    let outer = std::mem::replace(&mut self.may_refer_forward, true);
                    let plain = std::mem::replace(&mut self.is_plain_conversion, true);
                    let ty = self.ty();
                    self.may_refer_forward = outer;
                    self.is_plain_conversion = plain;
                    let ty = ty?;
                    return Some(self.node(Node::Conversion(ty)));
                }
                let ty = self.ty()?;
                Some(self.node(Node::Conversion(ty)))
            }
            b"li" => {
                self.skip(2);
                let name = self.source_name()?;
                Some(self.node(Node::LiteralOperator(name)))
            }
            [b'v', b'0'..=b'9'] => {
                self.skip(2);
                let name = self.source_name()?;
                Some(self.node(Node::Conversion(name)))
            }
            _ => {
                let text = operator_name(letters)?;
                self.skip(2);
                Some(self.node(Node::Operator(text)))
            }
        }
    }
}
