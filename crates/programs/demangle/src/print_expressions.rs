//! Expressions as text.

use crate::node::{Id, List, Node, Qualifiers, Reference};
use crate::print::Printer;

/// Constants of these types have a suffix instead of a cast.
fn constant_suffix(ty: &str) -> Option<&'static str> {
    Some(match ty {
        "int" => "",
        "unsigned int" => "u",
        "long" => "l",
        "unsigned long" => "ul",
        "long long" => "ll",
        "unsigned long long" => "ull",
        _ => return None,
    })
}

impl Printer<'_, '_> {
    /// An operand: in parentheses unless it is a name or the like.
    pub(crate) fn subexpression(&mut self, id: Id) -> Option<()> {
        let is_simple = matches!(
            self.node(id)?,
            Node::Name(_) | Node::Nested(..) | Node::Braces(..) | Node::FunctionParameter(_)
        );
        if is_simple {
            return self.print(id);
        }
        self.put("(");
        self.print(id)?;
        self.put(")");
        Some(())
    }

    fn operands(&mut self, list: List) -> Option<()> {
        self.put("(");
        self.list(list)?;
        self.put(")");
        Some(())
    }

    pub(crate) fn print_expression(&mut self, id: Id) -> Option<()> {
        match self.node(id)? {
            Node::TypeHead(index) => {
                self.put("typename $T");
                self.put_index(index);
            }
            Node::ConstrainedHead(concept, index) => {
                self.print(concept)?;
                self.put(" $T");
                self.put_index(index);
            }
            Node::ValueHead(ty, index) => {
                self.print(ty)?;
                self.put(" $N");
                self.put_index(index);
            }
            Node::TemplateHead(heads, index) => {
                self.put("template<");
                self.list(heads)?;
                self.put("> class $TT");
                self.put_index(index);
            }
            Node::PackHead(head) => {
                self.put("...");
                self.print(head)?;
            }
            Node::Literal { ty, is_negative, digits } => self.literal(ty, is_negative, digits)?,
            Node::FunctionParameter(number) => self.put(&format!("{{parm#{number}}}")),
            Node::Binary(op, left, right) => {
                // Else it would end the template's arguments.
                let is_greater = op == ">";
                if is_greater {
                    self.put("(");
                }
                self.subexpression(left)?;
                self.put(op);
                self.subexpression(right)?;
                if is_greater {
                    self.put(")");
                }
            }
            Node::Prefix(op, operand) => {
                self.put(op);
                // The address of a member function is printed as its name, unless only its
                // qualifiers identify it.
                match (op, self.node(operand)?) {
                    ("&", Node::Encoding(name, function))
                        if matches!(self.node(name)?, Node::Nested(..))
                            && function.qualifiers == Qualifiers::default()
                            && function.reference == Reference::None =>
                    {
                        self.print(name)?;
                    }
                    _ => self.subexpression(operand)?,
                }
            }
            Node::Postfix(op, operand) => {
                self.subexpression(operand)?;
                self.put(op);
            }
            Node::Word(word, operand) => {
                self.put(word);
                self.put("(");
                self.print(operand)?;
                self.put(")");
            }
            Node::Conditional(condition, yes, no) => {
                self.subexpression(condition)?;
                self.put("?");
                self.subexpression(yes)?;
                self.put(" : ");
                self.subexpression(no)?;
            }
            Node::Index(array, index) => {
                self.subexpression(array)?;
                self.put("[");
                self.print(index)?;
                self.put("]");
            }
            Node::Member(object, op, member) => {
                self.subexpression(object)?;
                self.put(op);
                self.subexpression(member)?;
            }
            Node::Call(callee, arguments) => {
                match self.node(callee)? {
                    Node::Encoding(name, _) => self.subexpression(name)?,
                    _ => self.subexpression(callee)?,
                }
                self.operands(arguments)?;
            }
            Node::Convert(ty, values) => {
                self.put("(");
                self.print(ty)?;
                self.put(")");
                self.operands(values)?;
            }
            Node::ConvertOne(ty, value) => {
                self.put("(");
                self.print(ty)?;
                self.put(")");
                self.subexpression(value)?;
            }
            Node::Cast(word, ty, value) => {
                self.put(word);
                self.put("<");
                self.print(ty)?;
                self.put(">(");
                self.print(value)?;
                self.put(")");
            }
            Node::Braces(ty, values) => {
                if let Some(ty) = ty {
                    self.print(ty)?;
                }
                self.put("{");
                self.list(values)?;
                self.put("}");
            }
            Node::New { word, placement, ty, values } => {
                self.put(word);
                self.put(" ");
                if placement.count > 0 {
                    self.operands(placement)?;
                    self.put(" ");
                }
                self.print(ty)?;
                if let Some(values) = values {
                    self.operands(values)?;
                }
            }
            Node::CountOfPack(pack) => match self.elements(pack)? {
                Some(count) => self.put(&count.to_string()),
                None => {
                    self.put("sizeof...(");
                    self.print(pack)?;
                    self.put(")");
                }
            },
            Node::CountOfArguments(arguments) => {
                let mut count = 0;
                for &argument in arguments.of(self.lists) {
                    count += match self.node(argument)? {
                        Node::Expansion(pattern) => self.elements(pattern)?.unwrap_or(1),
                        _ => 1,
                    };
                }
                self.put(&count.to_string());
            }
            Node::Fold { op, pack, first, is_left } => self.fold(op, pack, first, is_left)?,
            Node::Designated(member, value) => {
                self.put(".");
                self.print(member)?;
                self.designated(value)?;
            }
            Node::DesignatedIndex(low, high, value) => {
                self.put("[");
                self.print(low)?;
                if let Some(high) = high {
                    self.put(" ... ");
                    self.print(high)?;
                }
                self.put("]");
                self.designated(value)?;
            }
            Node::RequiresExpression(parameters, requirements) => {
                self.put("requires");
                if parameters.count > 0 {
                    self.put(" ");
                    self.operands(parameters)?;
                }
                self.put(" {");
                for &requirement in requirements.of(self.lists) {
                    self.put(" ");
                    self.print(requirement)?;
                }
                self.put(" }");
            }
            Node::Requirement(expression, is_noexcept, constraint) => {
                let has_braces = is_noexcept || constraint.is_some();
                if has_braces {
                    self.put("{");
                }
                self.print(expression)?;
                if has_braces {
                    self.put("}");
                }
                if is_noexcept {
                    self.put(" noexcept");
                }
                if let Some(constraint) = constraint {
                    self.put(" -> ");
                    self.print(constraint)?;
                }
                self.put(";");
            }
            Node::TypeRequirement(ty) => {
                self.put("typename ");
                self.print(ty)?;
                self.put(";");
            }
            Node::NestedRequirement(constraint) => {
                self.put("requires ");
                self.print(constraint)?;
                self.put(";");
            }
            Node::Subobject(ty, object) => {
                self.print(object)?;
                self.put(".<");
                self.print(ty)?;
                self.put(">");
            }
            Node::GlobalScope(name) => {
                self.put("::");
                self.print(name)?;
            }
            // All others are names and types.
            _ => return None,
        }
        Some(())
    }

    /// The first of a kind has no number.
    fn put_index(&mut self, index: u32) {
        if index > 0 {
            self.put(&(index - 1).to_string());
        }
    }

    fn designated(&mut self, value: Id) -> Option<()> {
        if !matches!(self.node(value)?, Node::Designated(..) | Node::DesignatedIndex(..)) {
            self.put("=");
        }
        self.print(value)
    }

    fn literal(&mut self, ty: Id, is_negative: bool, digits: &str) -> Option<()> {
        let sign = if is_negative { "-" } else { "" };
        if let Node::Builtin(name) = self.node(ty)? {
            if let Some(suffix) = constant_suffix(name) {
                for part in [sign, digits, suffix] {
                    self.put(part);
                }
                return Some(());
            }
            match (name, digits) {
                ("bool", "0") => {
                    self.put("false");
                    return Some(());
                }
                ("bool", "1") => {
                    self.put("true");
                    return Some(());
                }
                _ => {}
            }
            if matches!(name, "float" | "double" | "long double" | "__float128") {
                self.put("(");
                self.put(name);
                self.put(")");
                self.put(sign);
                self.put("[");
                self.put(digits);
                self.put("]");
                return Some(());
            }
        }
        self.put("(");
        self.print(ty)?;
        self.put(")");
        self.put(sign);
        self.put(digits);
        Some(())
    }

    /// Of a pack that is known, too, the pattern alone is shown.
    fn fold(&mut self, op: &'static str, pack: Id, first: Option<Id>, is_left: bool) -> Option<()> {
        let outer = self.element.take();
        self.put("(");
        match (first, is_left) {
            (None, true) => {
                self.put("...");
                self.put(op);
                self.subexpression(pack)?;
            }
            (None, false) => {
                self.subexpression(pack)?;
                self.put(op);
                self.put("...");
            }
            (Some(first), _) => {
                self.subexpression(first)?;
                self.put(op);
                self.put("...");
                self.put(op);
                self.subexpression(pack)?;
            }
        }
        self.put(")");
        self.element = outer;
        Some(())
    }
}
