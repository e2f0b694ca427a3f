//! The parts of a name. Nodes are in one table and refer to each other by index; several may refer
//! to one.

/// Index of a node.
pub(crate) type Id = u32;

/// Consecutive entries of the table of lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List {
    pub(crate) start: u32,
    pub(crate) count: u32,
}

impl List {
    pub(crate) fn of<'l>(&self, lists: &'l [Id]) -> &'l [Id] {
        let start = self.start as usize;
        lists.get(start..start + self.count as usize).unwrap_or_default()
    }
}

/// `const`, `volatile`, `restrict`, in the order in which they are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Qualifiers {
    pub(crate) is_const: bool,
    pub(crate) is_volatile: bool,
    pub(crate) is_restrict: bool,
}

/// The ref-qualifier behind the parameters of a member function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reference {
    #[default]
    None,
    Left,
    Right,
}

/// A function's type; in an encoding, the name is between result and parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) result: Option<Id>,
    pub(crate) parameters: List,
    pub(crate) qualifiers: Qualifiers,
    pub(crate) reference: Reference,
    /// `noexcept`, `throw(...)` and the like.
    pub(crate) exceptions: Option<Id>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Node<'a> {
    /// An identifier, or words that are always the same.
    Name(&'a str),
    /// A builtin type; constants of some have suffixes.
    Builtin(&'static str),
    /// One of the abbreviations `Sa` .. `Sd`.
    Standard {
        text: &'static str,
        last: &'static str,
    },
    /// `scope::name`.
    Nested(Id, Id),
    /// `name<arguments>`.
    Template(Id, List),
    /// An argument that is a pack.
    Pack(List),
    /// `T_`: its number, and its argument, if known.
    Parameter(u32, Option<Id>),
    /// `name[abi:tag]`.
    Tagged(Id, &'a str),
    /// A part of a module's name: the parts before it, whether it is a partition, and its text.
    Module(Option<Id>, bool, &'a str),
    /// `name@module`: what is attached to a named module.
    Attached(Id, Id),
    /// A constructor or destructor of the scope.
    Structor {
        scope: Id,
        is_destructor: bool,
    },
    /// An entity that is local to a function.
    Local(Id, Id),
    /// `{default arg#1}::name`.
    DefaultArgument(u32, Id),
    Lambda {
        heads: List,
        parameters: List,
        number: u32,
    },
    Unnamed(u32),
    Binding(List),
    /// `friend name`: a function that a template's class befriends, and whose constraints make it a
    /// member of sorts.
    Friend(Id),
    Operator(&'static str),
    LiteralOperator(Id),
    Conversion(Id),
    /// A function: its name, and its type.
    Encoding(Id, Function),
    /// `name requires constraint`.
    Requires(Id, Id),
    /// `words thing`, as of a virtual table.
    Special(&'static str, Id),
    /// `construction vtable for a-in-b`.
    ConstructionTable(Id, Id),
    /// `reference temporary #0 for a`.
    Temporary(Id, u32),

    FunctionType(Function),
    Qualified(Id, Qualifiers),
    VendorQualified(Id, Id),
    Pointer(Id),
    LeftReference(Id),
    RightReference(Id),
    Array(Id, Option<Id>),
    Vector(Id, Id),
    MemberPointer(Id, Id),
    /// `type words`, as of complex numbers.
    Suffixed(Id, &'static str),
    Expansion(Id),
    Decltype(Id),
    /// `_BitInt(n)` and the like: words around a number.
    Sized(&'static str, Id, &'static str),
    Noexcept(Option<Id>),
    Throws(List),
    Constrained(Id, &'static str),

    /// A head of a lambda's template parameters.
    TypeHead(u32),
    ConstrainedHead(Id, u32),
    ValueHead(Id, u32),
    TemplateHead(List, u32),
    PackHead(Id),

    /// A constant: its type, whether it is negative, and its digits.
    Literal {
        ty: Id,
        is_negative: bool,
        digits: &'a str,
    },
    FunctionParameter(u32),
    Binary(&'static str, Id, Id),
    Prefix(&'static str, Id),
    Postfix(&'static str, Id),
    /// `word (operand)`, as of `sizeof` with a type.
    Word(&'static str, Id),
    Conditional(Id, Id, Id),
    Index(Id, Id),
    Member(Id, &'static str, Id),
    Call(Id, List),
    /// `(type)(values)`.
    Convert(Id, List),
    /// `(type)value`.
    ConvertOne(Id, Id),
    /// `static_cast<type>(value)`.
    Cast(&'static str, Id, Id),
    /// `type{values}`.
    Braces(Option<Id>, List),
    New {
        word: &'static str,
        placement: List,
        ty: Id,
        values: Option<List>,
    },
    CountOfPack(Id),
    CountOfArguments(List),
    /// `(... op pack)` and `(pack op ...)`.
    Fold {
        op: &'static str,
        pack: Id,
        first: Option<Id>,
        is_left: bool,
    },
    /// `.member = value`, `[index] = value`, `[low ... high] = value`.
    Designated(Id, Id),
    DesignatedIndex(Id, Option<Id>, Id),
    RequiresExpression(List, List),
    Requirement(Id, bool, Option<Id>),
    TypeRequirement(Id),
    NestedRequirement(Id),
    Subobject(Id, Id),
    GlobalScope(Id),
}
