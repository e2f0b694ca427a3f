//! Names and types as text.
//!
//! A type may be written around the name that has it: `void (*f())(int)`. So each is printed in two
//! parts, the part before the name (`left`) and the part behind it (`right`).

use crate::node::{Function, Id, List, Node, Qualifiers, Reference};

/// Limit on the text of one name, in bytes.
pub const TEXT_MAX: usize = 32 << 10;
/// Nodes within each other.
const DEPTH_MAX: u32 = 400;
/// Limit on visits of nodes, repeated ones included.
const STEPS_MAX: u32 = 1 << 18;

/// The text of a node.
pub(crate) fn text(nodes: &[Node<'_>], lists: &[Id], root: Id) -> Option<String> {
    let out = String::with_capacity(nodes.len() * 4);
    let mut printer = Printer {
        nodes,
        lists,
        out,
        depth: 0,
        steps: 0,
        element: None,
        lambdas: 0,
        templates: Vec::new(),
        template: 0,
    };
    printer.print(root)?;
    (!printer.out.is_empty()).then_some(printer.out)
}

pub(crate) struct Printer<'p, 'a> {
    nodes: &'p [Node<'a>],
    pub(crate) lists: &'p [Id],
    pub(crate) out: String,
    depth: u32,
    steps: u32,
    /// The current element of each pack within an expansion.
    pub(crate) element: Option<u32>,
    /// Lambdas with a signature that is being printed.
    lambdas: u32,
    /// Arguments of the functions whose printing has begun, each with the place of the enclosing
    /// one, from 1.
    templates: Vec<(List, Scope)>,
    /// The function to whose arguments `T_` refers.
    template: Scope,
}

/// Place of a function's arguments, from 1; 0 for none.
type Scope = u32;

/// The shape of an inner type, as far as the outer part depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Function,
    Array,
}

impl<'p, 'a> Printer<'p, 'a> {
    pub(crate) fn node(&self, id: Id) -> Option<Node<'a>> {
        self.nodes.get(id as usize).copied()
    }

    /// A step further in; `None` beyond any bound.
    fn step<T>(&mut self, with: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.steps += 1;
        if self.depth >= DEPTH_MAX || self.steps > STEPS_MAX || self.out.len() > TEXT_MAX {
            return None;
        }
        self.depth += 1;
        let result = with(self);
        self.depth -= 1;
        result
    }

    pub(crate) fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    pub(crate) fn last(&self) -> u8 {
        self.out.as_bytes().last().copied().unwrap_or(0)
    }

    pub(crate) fn print(&mut self, id: Id) -> Option<()> {
        self.left(id)?;
        self.right(id)
    }

    /// The elements, separated by commas, except those whose text is empty.
    pub(crate) fn list(&mut self, list: List) -> Option<()> {
        let lists = self.lists;
        self.comma_separated(list.of(lists).iter().copied())
    }

    pub(crate) fn comma_separated(&mut self, ids: impl Iterator<Item = Id>) -> Option<()> {
        let mut has_any = false;
        for id in ids {
            let before = self.out.len();
            if has_any {
                self.put(", ");
            }
            let start = self.out.len();
            self.print(id)?;
            if self.out.len() == start {
                self.out.truncate(before);
            } else {
                has_any = true;
            }
        }
        Some(())
    }

    /// The argument of a parameter in `scope` (of a pack, its current element), with the scope of
    /// that argument. `None` if it can't be known. Substitutions may contain parameters, so one
    /// that was read within one function may be used in another: the function being printed
    /// decides.
    fn argument(&self, id: Id, scope: Scope) -> Option<(Id, Scope)> {
        let Node::Parameter(index, read) = self.node(id)? else { return None };
        if self.lambdas > 0 {
            return None;
        }
        let template = scope.checked_sub(1).and_then(|at| self.templates.get(at as usize));
        let here = template
            .and_then(|(arguments, around)| Some((*arguments.of(self.lists).get(index as usize)?, *around)));
        let (argument, scope) = here.or(read.map(|read| (read, 0)))?;
        match (self.node(argument)?, self.element) {
            (Node::Pack(elements), Some(element)) => {
                elements.of(self.lists).get(element as usize).map(|&element| (element, scope))
            }
            _ => Some((argument, scope)),
        }
    }

    /// The text after the parameters.
    fn resolved(&mut self, mut id: Id, mut scope: Scope) -> Option<(Id, Scope)> {
        // Arguments may be parameters in turn.
        for _ in 0..DEPTH_MAX {
            match self.argument(id, scope) {
                Some(argument) => (id, scope) = argument,
                None => return Some((id, scope)),
            }
        }
        None
    }

    fn shape(&mut self, id: Id, scope: Scope) -> Option<Shape> {
        self.step(|printer| {
            let (id, scope) = printer.resolved(id, scope)?;
            Some(match printer.node(id)? {
                Node::FunctionType(_) => Shape::Function,
                Node::Array(..) => Shape::Array,
                Node::Qualified(inner, _) | Node::VendorQualified(inner, _) => printer.shape(inner, scope)?,
                _ => Shape::Plain,
            })
        })
    }

    /// The type that a reference refers to with its scope, and whether it is an rvalue reference:
    /// those to references collapse.
    fn collapsed(&mut self, mut id: Id, mut is_right: bool) -> Option<(Id, Scope, bool)> {
        let mut scope = self.template;
        for _ in 0..DEPTH_MAX {
            (id, scope) = self.resolved(id, scope)?;
            match self.node(id)? {
                Node::LeftReference(inner) => (id, is_right) = (inner, false),
                Node::RightReference(inner) => id = inner,
                _ => return Some((id, scope, is_right)),
            }
        }
        None
    }

    /// Runs a closure in which `T_` has the meaning that it has in `scope`.
    fn within<T>(&mut self, scope: Scope, with: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let outer = std::mem::replace(&mut self.template, scope);
        let result = with(self);
        self.template = outer;
        result
    }

    /// The arguments of the function of this name, if it is a template's.
    fn own_arguments(&self, mut name: Id) -> Option<List> {
        for _ in 0..DEPTH_MAX {
            match self.node(name)? {
                Node::Template(_, arguments) => return Some(arguments),
                Node::Local(_, inner) | Node::DefaultArgument(_, inner) => name = inner,
                _ => return None,
            }
        }
        None
    }

    fn open_pointer(&mut self, inner: Id) -> Option<()> {
        self.left(inner)?;
        match self.shape(inner, self.template)? {
            Shape::Plain => {}
            Shape::Function => self.put("("),
            Shape::Array => self.put(" ("),
        }
        Some(())
    }

    fn close_pointer(&mut self, inner: Id) -> Option<()> {
        if self.shape(inner, self.template)? != Shape::Plain {
            self.put(")");
        }
        self.right(inner)
    }

    fn qualifiers(&mut self, qualifiers: Qualifiers) {
        for (is_set, word) in [
            (qualifiers.is_const, " const"),
            (qualifiers.is_volatile, " volatile"),
            (qualifiers.is_restrict, " __restrict"),
        ] {
            if is_set {
                self.put(word);
            }
        }
    }

    /// Parameters, and what follows them.
    fn signature(&mut self, function: &Function) -> Option<()> {
        self.put("(");
        self.list(function.parameters)?;
        self.put(")");
        self.qualifiers(function.qualifiers);
        match function.reference {
            Reference::None => {}
            Reference::Left => self.put(" &"),
            Reference::Right => self.put(" &&"),
        }
        if let Some(exceptions) = function.exceptions {
            self.put(" ");
            self.print(exceptions)?;
        }
        Some(())
    }

    fn left(&mut self, id: Id) -> Option<()> {
        self.step(|printer| printer.left_here(id))
    }

    fn right(&mut self, id: Id) -> Option<()> {
        // Most have nothing there.
        match self.node(id)? {
            Node::FunctionType(_)
            | Node::Array(..)
            | Node::Pointer(_)
            | Node::LeftReference(_)
            | Node::RightReference(_)
            | Node::MemberPointer(..)
            | Node::Qualified(..)
            | Node::VendorQualified(..)
            | Node::Parameter(..) => self.step(|printer| printer.right_here(id)),
            _ => Some(()),
        }
    }

    fn right_here(&mut self, id: Id) -> Option<()> {
        match self.node(id)? {
            Node::FunctionType(function) => {
                self.signature(&function)?;
                function.result.map_or(Some(()), |result| self.right(result))
            }
            Node::Array(ty, size) => {
                if self.last() != b']' {
                    self.put(" ");
                }
                self.put("[");
                if let Some(size) = size {
                    self.print(size)?;
                }
                self.put("]");
                self.right(ty)
            }
            Node::Pointer(inner) => self.close_pointer(inner),
            Node::LeftReference(inner) => {
                let (inner, scope, _) = self.collapsed(inner, false)?;
                self.within(scope, |printer| printer.close_pointer(inner))
            }
            Node::RightReference(inner) => {
                let (inner, scope, _) = self.collapsed(inner, true)?;
                self.within(scope, |printer| printer.close_pointer(inner))
            }
            Node::MemberPointer(_, member) => self.close_pointer(member),
            Node::Qualified(inner, _) | Node::VendorQualified(inner, _) => self.right(inner),
            Node::Parameter(..) => match self.argument(id, self.template) {
                Some((argument, scope)) => self.within(scope, |printer| printer.right(argument)),
                None => Some(()),
            },
            _ => Some(()),
        }
    }

    fn left_here(&mut self, id: Id) -> Option<()> {
        match self.node(id)? {
            Node::Name(text) => self.put(text),
            Node::Builtin(text) | Node::Standard { text, .. } => self.put(text),
            Node::Nested(scope, name) | Node::Local(scope, name) => {
                self.print(scope)?;
                self.put("::");
                self.print(name)?;
            }
            Node::Template(name, arguments) => {
                self.print(name)?;
                self.arguments(arguments)?;
            }
            Node::Pack(elements) => self.list(elements)?,
            Node::Parameter(index, _) => match self.argument(id, self.template) {
                Some((argument, scope)) => self.within(scope, |printer| printer.left(argument))?,
                None if self.lambdas > 0 => {
                    let number = u64::from(index) + 1;
                    self.put(&format!("auto:{number}"));
                }
                None => return None,
            },
            Node::Tagged(name, tag) => {
                self.print(name)?;
                self.put("[abi:");
                self.put(tag);
                self.put("]");
            }
            Node::Module(before, is_partition, text) => {
                if let Some(before) = before {
                    self.print(before)?;
                }
                match (is_partition, before) {
                    (true, _) => self.put(":"),
                    (false, Some(_)) => self.put("."),
                    (false, None) => {}
                }
                self.put(text);
            }
            Node::Attached(name, module) => {
                self.print(name)?;
                self.put("@");
                self.print(module)?;
            }
            Node::Structor { scope, is_destructor } => {
                if is_destructor {
                    self.put("~");
                }
                self.last_name(scope)?;
            }
            Node::DefaultArgument(number, name) => {
                self.put(&format!("{{default arg#{number}}}::"));
                self.print(name)?;
            }
            Node::Lambda { heads, parameters, number } => self.lambda(heads, parameters, number)?,
            Node::Unnamed(number) => self.put(&format!("{{unnamed type#{number}}}")),
            Node::Binding(names) => {
                self.put("[");
                self.list(names)?;
                self.put("]");
            }
            Node::Friend(name) => {
                self.put("friend ");
                self.print(name)?;
            }
            Node::Operator(text) => {
                self.put("operator");
                self.put(text);
            }
            Node::LiteralOperator(name) => {
                self.put("operator\"\" ");
                self.print(name)?;
            }
            Node::Conversion(ty) => {
                self.put("operator ");
                self.print(ty)?;
            }
            Node::Encoding(name, function) => {
                let scope = match self.own_arguments(name) {
                    Some(arguments) => {
                        self.templates.push((arguments, self.template));
                        self.templates.len() as Scope
                    }
                    None => self.template,
                };
                self.within(scope, |printer| printer.function(name, &function))?;
            }
            Node::Requires(what, constraint) => {
                self.print(what)?;
                self.put(" requires ");
                self.print(constraint)?;
            }
            Node::Special(words, what) => {
                self.put(words);
                self.print(what)?;
            }
            Node::ConstructionTable(base, derived) => {
                self.put("construction vtable for ");
                self.print(base)?;
                self.put("-in-");
                self.print(derived)?;
            }
            Node::Temporary(name, number) => {
                self.put(&format!("reference temporary #{number} for "));
                self.print(name)?;
            }
            _ => return self.left_of_type(id),
        }
        Some(())
    }

    fn function(&mut self, name: Id, function: &Function) -> Option<()> {
        if let Some(result) = function.result {
            self.left(result)?;
            if !self.is_open(result, self.template)? {
                self.put(" ");
            }
        }
        self.print(name)?;
        self.signature(function)?;
        function.result.map_or(Some(()), |result| self.right(result))
    }

    fn left_of_type(&mut self, id: Id) -> Option<()> {
        match self.node(id)? {
            Node::FunctionType(function) => {
                if let Some(result) = function.result {
                    self.left(result)?;
                    if !self.is_open(result, self.template)? {
                        self.put(" ");
                    }
                }
            }
            Node::Qualified(inner, qualifiers) => {
                self.left(inner)?;
                // An argument may itself be `const`.
                let (behind, _) = self.resolved(inner, self.template)?;
                let has = match self.node(behind)? {
                    Node::Qualified(_, has) if behind != inner => has,
                    _ => Qualifiers::default(),
                };
                self.qualifiers(Qualifiers {
                    is_const: qualifiers.is_const && !has.is_const,
                    is_volatile: qualifiers.is_volatile && !has.is_volatile,
                    is_restrict: qualifiers.is_restrict && !has.is_restrict,
                });
            }
            Node::VendorQualified(inner, name) => {
                self.left(inner)?;
                self.put(" ");
                self.print(name)?;
            }
            Node::Pointer(inner) => {
                self.open_pointer(inner)?;
                self.put("*");
            }
            Node::LeftReference(inner) => self.reference(inner, false)?,
            Node::RightReference(inner) => self.reference(inner, true)?,
            Node::Array(ty, _) => self.left(ty)?,
            Node::Vector(ty, size) => {
                self.print(ty)?;
                self.put(" __vector(");
                self.print(size)?;
                self.put(")");
            }
            Node::MemberPointer(class, member) => {
                self.open_pointer(member)?;
                if self.last() != b'(' {
                    self.put(" ");
                }
                self.print(class)?;
                self.put("::*");
            }
            Node::Suffixed(ty, words) | Node::Constrained(ty, words) => {
                self.print(ty)?;
                self.put(words);
            }
            Node::Expansion(pattern) => self.expansion(pattern)?,
            Node::Decltype(expression) => {
                self.put("decltype (");
                self.print(expression)?;
                self.put(")");
            }
            Node::Sized(before, bits, behind) => {
                self.put(before);
                self.print(bits)?;
                self.put(behind);
            }
            Node::Noexcept(condition) => {
                self.put("noexcept");
                if let Some(condition) = condition {
                    self.put("(");
                    self.print(condition)?;
                    self.put(")");
                }
            }
            Node::Throws(types) => {
                self.put("throw(");
                self.list(types)?;
                self.put(")");
            }
            _ => return self.print_expression(id),
        }
        Some(())
    }

    /// Whether a result's left part ends inside a parenthesis, after which no space is written.
    fn is_open(&mut self, id: Id, scope: Scope) -> Option<bool> {
        self.step(|printer| {
            let (id, scope) = printer.resolved(id, scope)?;
            Some(match printer.node(id)? {
                Node::Pointer(inner) | Node::LeftReference(inner) | Node::RightReference(inner) => {
                    printer.shape(inner, scope)? != Shape::Plain || printer.is_open(inner, scope)?
                }
                Node::MemberPointer(_, member) => {
                    printer.shape(member, scope)? != Shape::Plain || printer.is_open(member, scope)?
                }
                _ => false,
            })
        })
    }

    fn reference(&mut self, inner: Id, is_right: bool) -> Option<()> {
        let (inner, scope, is_right) = self.collapsed(inner, is_right)?;
        self.within(scope, |printer| printer.open_pointer(inner))?;
        self.put(if is_right { "&&" } else { "&" });
        Some(())
    }

    pub(crate) fn arguments(&mut self, arguments: List) -> Option<()> {
        // `operator< <int>`.
        if self.last() == b'<' {
            self.put(" ");
        }
        self.put("<");
        self.list(arguments)?;
        if self.last() == b'>' {
            self.put(" ");
        }
        self.put(">");
        Some(())
    }

    fn lambda(&mut self, heads: List, parameters: List, number: u32) -> Option<()> {
        self.put("{lambda");
        self.lambdas += 1;
        if heads.count > 0 {
            self.put("<");
            self.list(heads)?;
            self.put(">");
        }
        self.put("(");
        let element = self.element.take();
        self.list(parameters)?;
        self.element = element;
        self.lambdas -= 1;
        self.put(&format!(")#{number}}}"));
        Some(())
    }

    /// The class's own name, as constructors use it: without scopes, arguments and tags.
    fn last_name(&mut self, id: Id) -> Option<()> {
        self.step(|printer| match printer.node(id)? {
            // A class without a name is printed as in `c++filt`: with the name of the enclosing
            // one.
            Node::Nested(scope, name) if matches!(printer.node(name)?, Node::Unnamed(_)) => {
                printer.last_name(scope)
            }
            Node::Nested(_, name)
            | Node::Local(_, name)
            | Node::Template(name, _)
            | Node::Tagged(name, _)
            | Node::Attached(name, _)
            | Node::DefaultArgument(_, name) => printer.last_name(name),
            Node::Standard { last, .. } => {
                printer.put(last);
                Some(())
            }
            Node::Parameter(..) => match printer.argument(id, printer.template) {
                Some((argument, scope)) => printer.within(scope, |printer| printer.last_name(argument)),
                None => None,
            },
            _ => printer.print(id),
        })
    }

    /// How many elements the first pack has that `id` is made of, which isn't expanded further in.
    fn pack_size(&mut self, id: Id) -> Option<Option<u32>> {
        self.step(|printer| {
            let children: [Option<Id>; 3] = match printer.node(id)? {
                Node::Parameter(..) => {
                    let element = printer.element.take();
                    let argument = printer.argument(id, printer.template);
                    printer.element = element;
                    return Some(match argument.and_then(|(argument, _)| printer.node(argument)) {
                        Some(Node::Pack(elements)) => Some(elements.count),
                        _ => None,
                    });
                }
                Node::Expansion(_) | Node::Lambda { .. } => return Some(None),
                Node::Nested(a, b)
                | Node::Local(a, b)
                | Node::MemberPointer(a, b)
                | Node::Vector(a, b)
                | Node::VendorQualified(a, b)
                | Node::Binary(_, a, b)
                | Node::Index(a, b)
                | Node::Member(a, _, b)
                | Node::Cast(_, a, b)
                | Node::ConvertOne(a, b)
                | Node::Designated(a, b) => [Some(a), Some(b), None],
                Node::Array(a, b) => [b, Some(a), None],
                Node::Qualified(a, _)
                | Node::Pointer(a)
                | Node::LeftReference(a)
                | Node::RightReference(a)
                | Node::Suffixed(a, _)
                | Node::Decltype(a)
                | Node::Prefix(_, a)
                | Node::Postfix(_, a)
                | Node::Word(_, a)
                | Node::GlobalScope(a)
                | Node::CountOfPack(a)
                | Node::Tagged(a, _)
                | Node::Attached(a, _)
                | Node::Conversion(a) => [Some(a), None, None],
                Node::Conditional(a, b, c) => [Some(a), Some(b), Some(c)],
                Node::Template(name, list) | Node::Call(name, list) | Node::Convert(name, list) => {
                    return printer.pack_size_among(Some(name), list);
                }
                Node::Braces(ty, list) => return printer.pack_size_among(ty, list),
                Node::FunctionType(function) => {
                    return printer.pack_size_among(function.result, function.parameters);
                }
                Node::Encoding(name, function) => {
                    return printer.pack_size_among(Some(name), function.parameters);
                }
                Node::Pack(list) => return printer.pack_size_among(None, list),
                Node::Literal { ty, .. } => [Some(ty), None, None],
                Node::Fold { pack, first, .. } => [first, Some(pack), None],
                _ => return Some(None),
            };
            for child in children.into_iter().flatten() {
                if let Some(size) = printer.pack_size(child)? {
                    return Some(Some(size));
                }
            }
            Some(None)
        })
    }

    fn pack_size_among(&mut self, first: Option<Id>, list: List) -> Option<Option<u32>> {
        let lists = self.lists;
        for child in first.into_iter().chain(list.of(lists).iter().copied()) {
            if let Some(size) = self.pack_size(child)? {
                return Some(Some(size));
            }
        }
        Some(None)
    }

    /// The pattern once for each element of its pack; with dots where the pack isn't known.
    fn expansion(&mut self, pattern: Id) -> Option<()> {
        let size = if self.lambdas > 0 { None } else { self.pack_size(pattern)? };
        let Some(size) = size else {
            self.subexpression(pattern)?;
            self.put("...");
            return Some(());
        };
        let outer = self.element;
        let mut has_any = false;
        for element in 0..size {
            self.element = Some(element);
            let before = self.out.len();
            if has_any {
                self.put(", ");
            }
            let start = self.out.len();
            self.print(pattern)?;
            if self.out.len() == start {
                self.out.truncate(before);
            } else {
                has_any = true;
            }
        }
        self.element = outer;
        Some(())
    }

    /// The number of elements of a parameter's pack.
    pub(crate) fn elements(&mut self, id: Id) -> Option<Option<u32>> {
        self.pack_size(id)
    }
}
